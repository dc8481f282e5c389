"""UCB-D against UCB-C: one function a round, or all functions.

The paper (Nguyen, Chew, Song, Low and Jaillet, ICLR 2024): UCB-D, which evaluates reward and constraints apart, needs fewer evaluations
than UCB-C for the same regret. It shows this in figures, whose values are not published in text, so that only their order can be compared.

Measured 2026-11-28 by ``python -m experiments decoupled``:
The order reproduces. On functions drawn from the model with two constraints the median regret after 10, 25 and 50 evaluations is 0.30,
0.071 and 0 for UCB-D, and 0.82, 0.34 and 0.066 for UCB-C. UCB-D evaluates the reward in 75% of its rounds, and the constraints in 11% and
15%. On Branin, where the constraint is the reward itself, it is 0.0051, 0.0021 and 0.0005, and 0.029, 0.0030 and 0.0009; after 75
evaluations neither is better (0.0005 and 0.0002).

As in the authors' code: 100 x 100 points, 101 evaluations, noise of standard deviation 0.01, 5 first points that all functions share and
that do not count, widths ``beta_t = 2 ln(M t^2 / 0.6) / B`` with their ``B`` of 40 on Branin and 10 on the draws. The regret of a point is
its positive regret and violation, the least among the chosen points so far. The code fits its kernels anew in every round; ours are fixed.
Branin with itself as the constraint is the code's problem; the draws are ours. ``--parameters`` has no effect.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxbandit as jb
from experiments.common.experiment import Experiment, Options, study
from jaxbandit.kernels import SquaredExponential
from jaxbandit.problems import Gaussian
from jaxbandit.report import plots
from jaxbandit.rules.estimators import Bounds
from jaxbandit.rules.widths import Custom
from jaxbandit.study import Run, Study

NOISE, START, LEVEL = Gaussian(variance=1e-4), 5, 0.6
MARKS = (10, 25, 50, 75, 100)
LABELS = ("UCB-D", "UCB-C")


def branin(points: int) -> jb.problems.Problem:
    """Return the code's Branin function, to be at least 0.6."""

    def value(x: Any) -> Any:
        bend = x[1] - 5.1 * x[0] ** 2 / (4 * jnp.pi**2) + 5 * x[0] / jnp.pi - 6
        return -(bend**2 + (10 - 10 / (8 * jnp.pi)) * jnp.cos(x[0]) - 44.81) / 51.95

    domain = jb.domains.grid([-5.0, 0.0], [10.0, 15.0], points)
    return jb.problems.from_functions(domain, value, [lambda x: LEVEL - value(x)], noise=NOISE)


def build(options: Options) -> Study:
    """Return the study of both forms on both problems."""
    kernel = SquaredExponential(length_scale=0.2)
    drawn = jb.problems.gp_draws(
        domain=jb.domains.grid([0.0, 0.0], [1.0, 1.0], options.points_per_axis), kernel=kernel, constraints=2, noise=NOISE
    )
    places = {"Branin": (branin(options.points_per_axis), SquaredExponential(length_scale=3.0), 40.0), "GP draws": (drawn, kernel, 10.0)}
    runs = []
    for name, (problem, own, divisor) in places.items():
        size = problem.domain.size
        width = Custom(function=partial(schedule, size=size), scale=1 / divisor)
        model = jb.surrogate(problem.domain, own, noise_variance=1e-4, outputs=problem.outputs)
        for label in LABELS:
            rule = jb.UcbD(estimator=Bounds(reward_width=width, cost_width=width), coupled=label == "UCB-C")
            runs.append(Run(f"{label} on {name}", problem, rule, model, initial=jb.InitialDesign(random=START)))
    return study("decoupled", runs, options, {})


def schedule(t: Any, gain: Any, size: int) -> Any:
    """Return the code's width, before it is divided by ``B``."""
    return jnp.broadcast_to(2 * jnp.log(size * jnp.asarray(t, gain.dtype) ** 2 / 0.6), gain.shape)


def regrets(dataset: Any, label: str) -> np.ndarray:
    """Return the least regret and violation ``[trials, E]`` by evaluations."""
    run = dataset.sel(algorithm=label)
    values = run.observed.values[..., run.observed.notnull().any(("trial", "played")).values]
    return jb.metrics.by_evaluations(run.best_constrained_regret.values, values, horizon=int(run.sizes["round"]))


def shares(dataset: Any, label: str) -> str:
    """Return the share of the rounds that evaluated each function, in words."""
    seen = dataset.observed.sel(algorithm=label).notnull().mean(("trial", "played"))
    return ", ".join(f"{name} in {share:.0%}" for name, share in zip(seen.output.values, seen.values, strict=True) if share > 0)


def notes(dataset: Any) -> list[str]:
    """Return the median regret by evaluations, and what was evaluated."""
    lines = ["the horizon counts rounds, and the following counts evaluations of single functions; published: curves without numbers"]
    for label in map(str, dataset.algorithm.values):
        found = np.median(regrets(dataset, label), axis=0)
        marks = [mark for mark in MARKS if mark <= len(found)]
        said = ", ".join(f"{found[mark - 1]:.3g}" for mark in marks)
        lines.append(f"{label}: median regret at {', '.join(map(str, marks))} evaluations: {said}; evaluated {shares(dataset, label)}")
    return lines


def draw(dataset: Any) -> Any:
    """Draw quartiles of the regret on each problem."""

    def panel(ax: Any, name: str) -> None:
        for rule in LABELS:
            low, median, high = np.quantile(regrets(dataset, f"{rule} on {name}"), [0.25, 0.5, 0.75], axis=0)
            counts = np.arange(1, len(median) + 1)
            (line,) = ax.plot(counts, median, label=rule)
            ax.fill_between(counts, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        ax.set(title=name, xlabel="evaluations", ylabel="least regret and violation", yscale="log")
        ax.legend()

    names = list(dict.fromkeys(str(label).partition(" on ")[2] for label in dataset.algorithm.values))
    return plots.compose("One function a round, or all: medians and quartiles", [[partial(panel, name=name) for name in names]])


EXPERIMENT = Experiment(
    module=__name__,
    title="UCB-D and UCB-C: evaluate one function or all (ICLR 2024)",
    position=33,
    defaults=Options(trials=10, horizon=101, points_per_axis=100),
    quick=Options(trials=2, horizon=12, points_per_axis=12),
    build=build,
    notes=notes,
    draw=draw,
)
