"""The cost of delay, for any algorithm.

It is regret and violation above those without delay, against the mean delay.

RPOL's Theorem 6 lets censored feedback add a term of order ``m gamma_T`` for a window of m rounds, and BPE-Delay's (Vakili et al. 2023,
Theorem 6.1) a term of order ``E[tau]``: costs that grow in proportion to the delay, whatever the horizon. No paper draws this figure.

Measured 2026-11-27 by ``python -m experiments delay-sweep`` and the options that are named:
What we get for RPOL on ``sine`` (100 trials, 50x50, T = 1,000; E[tau] from 0 to 50), positive regret and violation above those without
delay, for each round of mean delay:
- ``rpol`` waits: 26.5 +- 0.5 and 13.3 +- 0.2, in proportion to the delay to within 17 and 13 (of up to 1,312 and 656).
- ``rpol-censored``, window 100: 7.1 +- 0.6 and 7.1 +- 0.3, less than in proportion beyond E[tau] = 30.
- ``rpol --feedback hallucinate``: 1.81 +- 0.06 and 0.65 +- 0.05, more than in proportion: next to nothing at E[tau] = 5.
A learner that waits repeats a point until its feedback comes, so each of its explorations costs E[tau] rounds. One whose deviations
fall at once does not, and pays only for what it cannot know yet.

On interpolants of two-dimensional Gaussian draws (2026-11-21; 10 trials of T = 1,000, means 0, 10, 25, 50), regret for each round of
mean delay:
- ``bpe-delay``: 3.9 +- 1.1, in proportion to within 2 of up to 195, as its theorem has it; ``bpe``, which does not know of delays:
  6.7 +- 2.0, with 309 at E[tau] = 50.
- ``gp-ucb-sdf``, window 100: 1,008 at E[tau] = 50, half of that at 10 already.
- ``gp-bucb``: nothing to speak of, 14 +- 7 at E[tau] = 50, and the least regret without delay but for ``gp-ucb-sdf``.
- ``gp-ucb`` (100 trials): 1,860 at E[tau] = 10 and no more than 2,060 beyond, since it learns next to nothing in the rounds it has.

Constrained algorithms run on ``sine``, those of safe sets from the safest point there; ``gp-ucb``, ``gp-bucb``, ``gp-ucb-sdf``,
``gp-ts``, ``gp-ts-sdf``, ``bpe`` and ``bpe-delay`` on the interpolants, a new one in each trial, which takes ten times as long. Delays
are Poisson, of outputs by themselves; all means but 0 run as one program, all on the same noise. The window of ``censor`` is twice the
largest mean. A slope is fitted through the reference in each trial; its interval is from the spread over trials. Where a run is too short
to learn anything under long delays the excess levels off, and the notes say how far the means are from the line.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from typing import Any

import numpy as np

import jaxbandit as jb
from experiments.common.experiment import Experiment, Options, spelling, study, with_defaults
from experiments.guo_2022.rpol import LENGTH_SCALE, NOISE_VARIANCE
from jaxbandit import checks
from jaxbandit.delays import Poisson
from jaxbandit.feedback import Censor, Hallucinate, Wait
from jaxbandit.report import plots
from jaxbandit.report.statistics import half_width, paired_final_values
from jaxbandit.rules.estimators import Bounds, Thompson
from jaxbandit.rules.widths import Censored
from jaxbandit.study import Policy, Run, Study

MEANS = (0.0, 5.0, 10.0, 20.0, 30.0, 50.0)
POLICIES = ("wait", "hallucinate", "censor")
# Noise and length-scale of the reward without constraints.
NOISE_SD, F1_LENGTH_SCALE = 0.02, 0.8
MEASURES = {"regret": "R(T)", "positive_regret": "R+(T)", "hard_violation": "V(T)"}


def _bounds(width: Any) -> Bounds:
    return Bounds(reward_width=width, cost_width=width)


# Name: the algorithm, and its policy where that is part of the name.
CONSTRAINED: dict[str, tuple[Any, str | None]] = {
    "rpol": (jb.Rpol(), None),
    "rpol-censored": (jb.Rpol(estimator=_bounds(Censored())), "censor"),
    "config": (jb.Config(), None),
    "cbo": (jb.Cbo(reward_clip=7.0, cost_clip=2.0), None),
}
UNCONSTRAINED: dict[str, tuple[Any, str | None]] = {
    "gp-ucb": (jb.Unconstrained(estimator=_bounds(6.0)), None),
    "gp-bucb": (jb.Unconstrained(estimator=_bounds(6.0)), "hallucinate"),
    "gp-ucb-sdf": (jb.Unconstrained(estimator=_bounds(Censored(base=6.0))), "censor"),
    "gp-ts": (jb.Unconstrained(estimator=Thompson()), None),
    "gp-ts-sdf": (jb.Unconstrained(estimator=Thompson(reward_width=Censored(base=1.0))), "censor"),
    "bpe": (jb.Bpe(aware=False), None),
    "bpe-delay": (jb.Bpe(), None),
}


def _at_once(algorithm: Any) -> Any:
    """Return a censoring algorithm as it is without delay."""
    bases = {name: width.base for name, width in vars(algorithm.estimator).items() if isinstance(width, Censored)}
    return jb.replace(algorithm, estimator=jb.replace(algorithm.estimator, **bases))


def names() -> list[str]:
    """Return the names that ``--algorithm`` takes, those of the library too."""
    return [
        *CONSTRAINED,
        *UNCONSTRAINED,
        *(name for name in _others() if name not in {*CONSTRAINED, *UNCONSTRAINED}),
    ]


def _others() -> dict[str, jb.Algorithm]:
    """Return the library's algorithms that can run under delay, but the oracle."""
    kinds = [kind for kind in with_defaults() if kind not in (jb.Oracle, jb.Unconstrained)]
    return {algorithm.name: algorithm for algorithm in (kind() for kind in kinds) if not algorithm.traits.needs_feedback_at_once}


def build(options: Options) -> Study:
    """Return the study of one algorithm under Poisson delays of several means."""
    name, means = options.extra["algorithm"], tuple(sorted(set(options.extra["means"])))
    checks.one_of("--algorithm", name, tuple(names()))
    for mean in means:
        checks.nonnegative("--means", mean)
    algorithm, policy = (CONSTRAINED | UNCONSTRAINED).get(name) or (_others()[name], None)
    without_delay = _at_once(algorithm) if policy == "censor" else algorithm
    policy = options.extra["feedback"] or policy
    policies: dict[str, Policy] = {"wait": Wait(), "hallucinate": Hallucinate(), "censor": Censor(window=max(1, round(2 * max(means))))}
    feedback = None if policy is None else policies[policy]

    problem: Any
    if name in UNCONSTRAINED:
        noise = jb.problems.Gaussian.from_sd(NOISE_SD)
        problem = jb.problems.rkhs_2d_draws("f1", options.points_per_axis, noise=noise, shift_to_zero=policy == "censor")
        kernel = jb.kernels.SquaredExponential(length_scale=F1_LENGTH_SCALE)
        lam = NOISE_SD**2
    else:
        problem = jb.problems.sine_delayed(options.points_per_axis, noise_variance=NOISE_VARIANCE)
        problem = jb.problems.full_information(problem) if algorithm.traits.sees_constraints else problem
        kernel, lam = jb.kernels.SquaredExponential(length_scale=LENGTH_SCALE), NOISE_VARIANCE
    model = jb.surrogate(problem.domain, kernel, noise_variance=lam, outputs=problem.outputs, horizon=options.horizon)
    informed = jb.informed.SafestSeeds() if isinstance(algorithm, jb.SafeOpt | jb.StageOpt | jb.SgpUcb) else None
    trace_name = name.replace("-", "_")
    runs = (
        Run(
            label(mean), problem, algorithm if mean else without_delay, model, Poisson(mean=mean), feedback, informed, trace_name=trace_name
        )
        for mean in means
    )
    recorded = {"points_per_axis": options.points_per_axis, "algorithm": name, "means": means, "problem": problem.name}
    return study("delay-sweep", runs, options, recorded)


def label(mean: float) -> str:
    """Return the label of a mean delay in tables."""
    return f"E[tau] = {mean:g}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this experiment to a parser."""
    extra = EXPERIMENT.defaults.extra
    parser.add_argument(
        "--algorithm",
        type=spelling(names()),
        default=extra["algorithm"],
        metavar="NAME",
        help=f"one of {', '.join(names())} (default %(default)s)",
    )
    parser.add_argument("--feedback", choices=POLICIES, default=extra["feedback"], help="policy under delay (default: the algorithm's)")
    words = f"mean delays; the least is the reference (default {' '.join(f'{mean:g}' for mean in extra['means'])})"
    parser.add_argument("--means", type=float, nargs="+", default=extra["means"], metavar="TAU", help=words)


def excess(dataset: Any, name: str) -> np.ndarray:
    """Return a measure's excess over the least mean delay.

    It is ``[trials, means - 1]`` at the end, in trials that failed for no mean.
    """
    final = paired_final_values(dataset, name)
    return (final[1:] - final[0]).T


def slopes(means: np.ndarray, excess: np.ndarray) -> np.ndarray:
    """Return the slopes ``[trials]`` of lines through the reference.

    They are fitted to ``excess [trials, n]`` at ``means [n + 1]``. Trials are independent, the points of a trial are not: so the interval
    of the slope comes from its spread over trials.
    """
    beyond = means[1:] - means[0]
    return excess @ beyond / (beyond @ beyond)


def measures(dataset: Any) -> dict[str, str]:
    """Return the measures that are shown.

    They are regret, or with constraints positive regret and violation, because regret then has either sign.
    """
    constrained = dataset.sizes["output"] > 1
    return {name: words for name, words in MEASURES.items() if (name != "regret") == constrained}


def notes(dataset: Any) -> list[str]:
    """Return the fitted slopes, and what they are fitted to."""
    known = json.loads(dataset.attrs["parameters"])
    means = np.array(known["means"])
    policy = next(iter(json.loads(dataset.attrs["feedback"]).values()))
    window = f", window {policy['window']}" if "window" in policy else ""
    lines = [
        f"{known['algorithm']} on {known['problem']}, feedback: {policy['type'].lower()}{window}; trials paired by common random numbers"
    ]
    if len(means) < 2:
        return [*lines, "one mean delay, so no slope: give several as --means"]
    for name, words in measures(dataset).items():
        above = excess(dataset, name)
        each = slopes(means, above)
        line = each.mean() * (means[1:] - means[0])
        off = np.abs(above.mean(axis=0) - line).max()
        lines.append(
            f"{words} above E[tau] = {means[0]:g}, per round of mean delay: {each.mean():.2f} +- {half_width(each):.2f}"
            f" (means lie within {off:.1f} of the line): "
            + ", ".join(f"at {mean:g} {a.mean():.1f} +- {half_width(a):.1f}" for mean, a in zip(means[1:], above.T, strict=True))
        )
    if known["set"] != "recommended":
        lines.append("there is one set of parameters, recommended: --parameters has no effect here")
    return lines


def draw(dataset: Any) -> Any:
    """Draw measures above the reference by mean delay, with a line."""
    known = json.loads(dataset.attrs["parameters"])
    means = np.array(known["means"])

    def panel(ax: Any, name: str, words: str) -> None:
        above = excess(dataset, name)
        each = slopes(means, above) if len(means) > 1 else np.full(1, np.nan)
        line_through_reference(ax, means, above, each.mean(), float(half_width(each)))
        ax.set(xlabel=r"mean delay $E[\tau]$ (rounds)", ylabel=words)

    drawers = [
        partial(panel, name=name, words=f"{words} above that at $E[\\tau]$ = {means[0]:g}") for name, words in measures(dataset).items()
    ]
    return plots.compose(f"What delay costs {known['algorithm']} in {dataset.sizes['round']:,} rounds, 95% intervals", [drawers])


def line_through_reference(ax: Any, x: np.ndarray, above: np.ndarray, slope: float, half: float) -> None:
    """Draw trials ``above [trials, n]`` a reference, and a line.

    The reference is at ``x[0]`` and the trials at ``x[1:]``. The line has its 95% half-width.
    """
    ax.axhline(0, color="0.4", linewidth=0.8)
    if np.isfinite(slope):
        label = f"slope {slope:.2f}" + (f" ± {half:.2f}" if np.isfinite(half) else "")
        ax.plot(x, slope * (x - x[0]), color=plots.COLOURS[0], linestyle="--", label=label)
    if np.isfinite(half):
        ax.fill_between(x, (slope - half) * (x - x[0]), (slope + half) * (x - x[0]), color=plots.COLOURS[0], alpha=0.18, linewidth=0)
    mean = above.mean(axis=0) if len(above) else np.full(len(x) - 1, np.nan)
    ax.errorbar(x[1:], mean, half_width(above), fmt="o", color=plots.COLOURS[1], capsize=3, label="mean over trials")
    ax.plot(x[0], 0, "o", color=plots.COLOURS[1], markerfacecolor="white")
    ax.legend(loc="upper left")


EXPERIMENT = Experiment(
    module=__name__,
    title="What delay costs: any algorithm's regret and violation against the mean delay",
    position=30,
    defaults=Options(trials=100, horizon=1000, points_per_axis=50, extra={"algorithm": "rpol", "feedback": None, "means": MEANS}),
    quick=Options(trials=10, horizon=200, points_per_axis=30, extra={"algorithm": "rpol", "feedback": None, "means": (0.0, 5.0, 10.0)}),
    build=build,
    notes=notes,
    draw=draw,
    add_arguments=add_arguments,
)
