"""Shared by the three experiments on BPE-Delay.

It has functions, algorithms, parameter sets, notes and figure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

import jaxbandit as jb
from experiments.common.experiment import Options, study
from jaxbandit.algorithms import Elimination
from jaxbandit.delays import NoDelay, Poisson
from jaxbandit.feedback import Censor
from jaxbandit.problems import RKHS_2D_LENGTH_SCALES
from jaxbandit.report import plots
from jaxbandit.report.statistics import half_width, healthy_trials, paired_final_values
from jaxbandit.rules.estimators import Bounds
from jaxbandit.rules.widths import Censored, ImprovedGPUCB
from jaxbandit.study import Run, Study

FULL = Options(trials=40, horizon=1000, points_per_axis=50)
QUICK = Options(trials=4, horizon=200, points_per_axis=12)
# The values are their names in audit traces.
ALGORITHMS = {"BPE-Delay": "bpe_delay", "BPE": "bpe", "GP-UCB-SDF": "gp_ucb_sdf"}
NOISE_SD = 0.02
# Norm of the functions in their RKHS, 10 on average.
NORM = 11.0
# The delays' sub-exponential parameters, as the paper gives them.
XI, B = 9.0, 1.0


def build(name: str, options: Options, lines: Iterable[tuple[str, float]]) -> Study:
    """Return the study of algorithms and mean delays on new functions."""
    lines, runs = tuple(lines), []
    for function in RKHS_2D_LENGTH_SCALES:
        noise = jb.problems.Gaussian.from_sd(NOISE_SD)
        # An algorithm that censors reads 0 for missing feedback, so 0 must be the least value. It runs on f - min f, with the regret of f.
        kinds = {
            shifted: jb.problems.rkhs_2d_draws(function, options.points_per_axis, noise=noise, delay=NoDelay(), shift_to_zero=shifted)
            for shifted in (False, True)
        }
        kernel = jb.kernels.SquaredExponential(length_scale=1.0 if options.parameters == "code" else RKHS_2D_LENGTH_SCALES[function])
        model = jb.surrogate(kinds[False].domain, kernel, noise_variance=NOISE_SD**2, outputs=1, horizon=options.horizon)
        for algorithm, mean in lines:
            censors = algorithm == "GP-UCB-SDF"
            runs.append(
                Run(
                    label=label(function, algorithm, mean),
                    problem=kinds[censors],
                    algorithm=_sdf(options, mean) if censors else _bpe(options, algorithm, mean),
                    model=model,
                    trace_name=ALGORITHMS[algorithm],
                    delay=Poisson(mean=mean) if mean else NoDelay(),
                    feedback=Censor(window=math.ceil(2 * mean)) if censors else None,
                )
            )
    recorded = {"points_per_axis": options.points_per_axis, "means": sorted({mean for _, mean in lines})}
    return study(name, runs, options, recorded)


def label(function: str, algorithm: str, mean: float) -> str:
    """Return the label of a line in tables."""
    return f"{function} {algorithm} {mean:g}"


def _bpe(options: Options, algorithm: str, mean: float) -> jb.Bpe:
    """Return BPE-Delay or BPE under delays of some mean."""
    code = options.parameters == "code"
    aware = algorithm == "BPE-Delay" and (mean > 0 or code)
    width: Any = 2.0
    delta = 0.1
    if options.parameters == "paper":
        width = Elimination(norm_bound=NORM, noise_scale=NOISE_SD, delta=delta)
    elif code:
        width, delta = math.sqrt(6), 0.01
    variant: dict[str, Any] = {"lengths": "code", "ties": "random"} if code else {}
    known: dict[str, Any] = {"xi": XI, "b": B} if aware else {}
    return jb.Bpe(width=width, delta=delta, aware=aware, **known, **variant)


def _sdf(options: Options, mean: float) -> jb.Unconstrained:
    """Return GP-UCB-SDF."""
    width: Any = {"recommended": 6.0, "code": math.sqrt(6)}.get(options.parameters)
    if width is None:
        bound = NORM + NOISE_SD * math.sqrt(2 * math.log(options.horizon))
        base = ImprovedGPUCB(norm_bound=NORM, noise_scale=NOISE_SD + bound, delta=0.1, union=4.0)
        width = Censored(base=base, feedback_bound=bound, scale=1.0) if mean else base
    return jb.Unconstrained(estimator=Bounds(reward_width=width))


def notes(dataset: Any, pairs: Iterable[tuple[tuple[str, float], tuple[str, float]]]) -> list[str]:
    """Return lengths of stages, eliminated maximisers, and paired differences of regret."""
    lines = stage_notes(dataset) + elimination_notes(dataset)
    for other, reference in pairs:
        parts = []
        for function in RKHS_2D_LENGTH_SCALES:
            labels = [label(function, *line) for line in (other, reference)]
            above, below = paired_final_values(dataset.sel(algorithm=labels), "regret")
            gap = above - below
            parts.append(f"{gap.mean():.0f} +- {half_width(gap):.0f} on {function} (more in {np.mean(gap > 0):.0%} of trials)")
        names = [f"{algorithm} at E[tau] = {mean:g}" for algorithm, mean in (other, reference)]
        lines.append(f"regret of {names[0]} above {names[1]}, paired by trial: {', '.join(parts)}")
    return lines


def stage_notes(dataset: Any) -> list[str]:
    """Return the rounds of each stage of BPE, up to the horizon."""
    known = json.loads(dataset.attrs["parameters"])
    options = Options(trials=1, horizon=dataset.sizes["round"], seed=0, parameters=known["set"])
    plans = {}
    if any("BPE-Delay" in str(name) for name in dataset.algorithm.values):
        for mean in known["means"]:
            late = _bpe(options, "BPE-Delay", mean)
            told = jb.replace(late, mean_delay=mean) if late.aware else late
            plans[f"E[tau] = {mean:g}"] = told.stage_lengths(options.horizon)
    plans["BPE"] = _bpe(options, "BPE", 0.0).stage_lengths(options.horizon)
    written = [f"{name}: {', '.join(str(rounds) for rounds, _ in stages)}" for name, stages in plans.items()]
    return [f"stages in rounds, the last cut to the horizon: {'; '.join(written)}"]


def elimination_notes(dataset: Any) -> list[str]:
    """Return how many trials eliminated the maximiser, and the points left."""
    written = []
    for name in dataset.algorithm.values:
        part = dataset.sel(algorithm=name)
        ok = healthy_trials(part)
        kept, left = part.optimum_kept.values[ok], part.candidates.values[ok]
        if "BPE" in str(name) and ok.any():
            written.append(f"{name} {np.sum(~kept)} of {len(kept)} (median of points left: {np.median(left):.0f})")
    return [f"trials that struck out the maximiser: {', '.join(written)}"]


def draw(dataset: Any, *, title: str, rows: Sequence[Mapping[str, tuple[str, float]]]) -> Any:
    """Draw regret on ``f1`` and ``f2``, a row of panels per legend."""
    panels = [
        [
            partial(
                plots.cumulative,
                results=dataset,
                name="regret",
                lines={words: label(function, *line) for words, line in row.items()},
                heading=f"${function[0]}_{function[1]}$",
                ylabel="cumulative regret $R(t)$",
            )
            for function in RKHS_2D_LENGTH_SCALES
        ]
        for row in rows
    ]
    return plots.compose(title, panels)
