"""What the experiments of Shi and Eryilmaz (2022) share: kernel, surrogate, the measure of violation, box plots over time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jaxbandit as jb
from experiments._experiment import Options, no_code_note
from jaxbandit.core.status import FAILED
from jaxbandit.study import Entry

KERNEL = jb.kernels.Matern52(length_scale=1.0)
NOISE_VARIANCE = 0.01
EPOCH = 20
STEP = 0.5  # mu of Algorithm 3
FULL = Options(trials=100, horizon=350, points_per_axis=30, seed=0, parameters="recommended")
QUICK = Options(trials=10, horizon=100, points_per_axis=20, seed=0, parameters="recommended")
BOXES_EVERY = 20  # rounds between two box plots of the paper

VIOLATION = ("soft_violation", "average violation $V(t)/t$")
REGRET = ("regret", "average regret $R(t)/t$")
UTILITY = ("utility", "average utility")


def model(problem: Any, horizon: int, form: str = "auto") -> jb.Surrogate:
    """The surrogate of all their experiments: Matern-5/2, lambda equal to the noise variance."""
    return jb.surrogate(problem.domain, KERNEL, noise_variance=NOISE_VARIANCE, horizon=horizon, form=form)


def restarts(options: Options) -> bool:
    """Whether every epoch forgets the data of earlier ones, as the paper's text has it."""
    return options.parameters != "recommended"


def entry(label: str, algorithm: Any, surrogate: Any, problem: Any = None) -> Entry:
    """A line of one of these studies."""
    return Entry(label=label, alg=algorithm.name, algorithm=algorithm, surrogate=surrogate, kernels=(KERNEL, KERNEL), problem=problem)


def violation_notes(dataset: Any) -> list[str]:
    """``V(t)/t`` at the rounds the module's docstring quotes."""
    rounds = [t for t in (20, 100, 350) if t <= dataset.sizes["round"]] or [dataset.sizes["round"]]
    lines = ["the paper's V(t) is ||(sum over rounds of g)^+||, the column 'soft V/t'; 'V/t' sums the positive parts"]
    for label in dataset.algorithm.values:
        part = dataset.sel(algorithm=label)
        values = part.soft_violation.values[(part.status.values & int(FAILED)) == 0]
        means = ", ".join(f"{values[:, t - 1].mean() / t:.3f} at t = {t}" for t in rounds)
        lines.append(f"{label}: V(t)/t {means}" if len(values) else f"{label}: every trial failed")
    return lines + no_code_note(dataset)


def with_utility(dataset: Any) -> Any:
    """The dataset with cumulative mean utility, ``t f* - R(t)``."""
    elapsed = dataset["round"] - dataset["round"][0] + 1
    utility = dataset.optimum * elapsed - dataset.regret
    return dataset.assign(utility=utility.transpose(*dataset.regret.dims))


def boxes(dataset: Any, path: Path, *, title: str, panels: Sequence[tuple[str, str]]) -> None:
    """One row per algorithm, one panel per measure: box plots over trials every 20 rounds, as in the paper's appendix."""
    from jaxbandit.report import plots

    every = min(BOXES_EVERY, max(1, dataset.sizes["round"] // 5))
    rows = [
        [
            partial(plots.boxes_over_time, part=dataset.sel(algorithm=label), name=name, heading=str(label), ylabel=words, every=every)
            for name, words in panels
        ]
        for label in dataset.algorithm.values
    ]
    plots.compose(path, f"{title}\n(boxes: trials, orange: medians, blue line: means)", rows)
