"""Shared by the two data sets of Zhou and Ji (2022).

Readings are in units of ``B``. It has one figure, and notes on where the numbers come from.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import jaxbandit as jb
from experiments.common.experiment import Experiment, Options, no_code_note, study
from experiments.zhou_ji_2022 import shared
from jaxbandit.problems import ArmsData
from jaxbandit.report import plots
from jaxbandit.study import Study

Load = Callable[..., ArmsData]


def build(name: str, load: Load, width: float, options: Options) -> Study:
    """Return the study of the three algorithms on a data set's arms.

    ``width`` is the recommended one. Readings are divided by ``B``: the same problem, in numbers that single precision likes.
    """
    path = options.extra.get("data")
    bound = load(path).bound
    data = load(path, scale=bound)
    literal = options.parameters != "recommended"
    # R is the largest residual in the paper; a model of the noise wants the mean variance.
    noise_variance = data.noise_bound**2 if literal else float(np.mean(np.square(data.residuals)))
    model = jb.surrogate(data.problem.domain, data.kernel, noise_variance=noise_variance, horizon=options.horizon)
    cost_clip = float(np.max(np.abs(data.problem.means[1])))
    chosen = shared.theory_width(data.noise_bound) if literal else width
    runs = shared.cbo_runs(data.problem, model, chosen, cost_clip=cost_clip)
    return study(name, runs, options, {"noise_variance": noise_variance, **facts(data, bound)})


def facts(data: ArmsData, bound: float) -> dict[str, Any]:
    """Return the source of the numbers, their units and fit."""
    gram, mean = np.asarray(data.gram), np.asarray(data.problem.means)[0]
    return {
        "source": data.source,
        "bound": bound,
        "threshold": data.threshold * bound,
        "largest_residual": data.noise_bound * bound,
        "condition_number": float(np.linalg.cond(gram)),
        "norm_over_bound": float(np.sqrt(mean @ np.linalg.solve(gram, mean))),
    }


def notes(dataset: Any) -> list[str]:
    """Return the data, the units, and the distribution of ``N``."""
    known = json.loads(dataset.attrs["parameters"])
    return [
        f"data: {known['source']}",
        f"rewards and costs are in units of B = {known['bound']:.4g}; h = {known['threshold']:.4g} leaves"
        f" {100 * float(dataset.feasible_fraction[0, 0]):.0f}% of the arms feasible; the arms are fixed, --points-per-axis has no effect",
        f"condition number of K {known['condition_number']:.1e}; norm of f in its RKHS {known['norm_over_bound']:.1f} B;"
        f" lambda = {known['noise_variance']:.3g} B^2",
        shared.soft_violation_note(dataset),
        *shared.spread_of_counts(dataset),
        *no_code_note(dataset),
    ]


def draw(dataset: Any, *, name: str) -> Any:
    """Draw regret, violation and ``N`` of some arms, as the paper does."""
    lines = {str(label): str(label) for label in dataset.algorithm.values}
    curve = partial(plots.cumulative, results=dataset, lines=lines)
    row = [
        partial(curve, name="regret", heading="cumulative regret", ylabel="$R(t) / B$"),
        partial(curve, name="hard_violation", heading="cumulative violation", ylabel="$V(t) / B$"),
        partial(plots.distribution, results=dataset, name="violating_rounds", lines=lines, heading="violating rounds", ylabel="$N$"),
    ]
    synthetic = "synthetic" in json.loads(dataset.attrs["parameters"])["source"]
    subject = f"SYNTHETIC stand-in for {name}" if synthetic else name.capitalize()
    title = f"{subject}: mean with 95% error bars (thin: median); N in every trial, diamonds: means"
    figure: Any = plots.compose(title, [row], size=(4.2, 3.6))
    for axis in figure.axes[:2]:
        # One legend for both panels stands below them.
        axis.get_legend().remove()
    plots.legend_below(figure)
    return figure


def add_arguments(parser: argparse.ArgumentParser, *, variable: str, what: str) -> None:
    """Add the option that names the data file."""
    parser.add_argument(
        "--data", metavar="FILE", help=f"{what}; default the environment variable {variable}, and without it made-up data, which say so"
    )


def experiment(
    module: str,
    *,
    title: str,
    position: int,
    load: Load,
    width: float,
    horizon: int,
    quick_horizon: int,
    arms: str,
    variable: str,
    what: str,
) -> Experiment:
    """Return the experiment on one data set.

    ``width`` is the recommended one, ``arms`` says what they are, ``what`` what the file is.
    """
    return Experiment(
        module=module,
        title=title,
        position=position,
        defaults=Options(trials=50, horizon=horizon, extra={"data": None}),
        quick=Options(trials=10, horizon=quick_horizon, extra={"data": None}),
        build=partial(build, module.rpartition(".")[2].replace("_", "-"), load, width),
        notes=notes,
        draw=partial(draw, name=arms),
        add_arguments=partial(add_arguments, variable=variable, what=what),
    )
