"""Shared by the experiments of Shi and Eryilmaz (2022).

It has the kernel, surrogate, baselines, measure of violation, and box plots over time.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

import jaxbandit as jb
from experiments.common.experiment import Options, no_code_note
from jaxbandit.report import plots
from jaxbandit.report.plots import COLOURS, DASHES
from jaxbandit.report.statistics import final_values, healthy_trials, healthy_values
from jaxbandit.study import Run, Study, tune

KERNEL = jb.kernels.Matern52(length_scale=1.0)
NOISE_VARIANCE = 0.01
EPOCH = 20
# The step is mu of Algorithm 3.
STEP = 0.5
FULL = Options(trials=100, horizon=350, points_per_axis=30)
QUICK = Options(trials=10, horizon=100, points_per_axis=20)
# Number of rounds between two box plots of the paper.
BOXES_EVERY = 20
# Number of rounds between two box plots of the algorithm that stops by itself.
BOXES_EVERY_IF_STOPPED = 5
# The paper says "set to achieve the best performance".
OCO_STEPS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
# Distances in units of the domain [0, 6]^2, as in the authors' code: x and z agree sooner than in the unit box.
ADMMBO = jb.Admmbo(side=6.0)
# Points before its first round, in its authors' code.
ADMMBO_START = 2

VIOLATION = ("soft_violation", "average violation $V(t)/t$")
REGRET = ("regret", "average regret $R(t)/t$")
UTILITY = ("reward", "average utility")


def model(problem: Any, horizon: int, form: str = "auto") -> jb.Surrogate:
    """Return the Matern-5/2 surrogate of all their experiments, with ADMMBO's room."""
    return jb.surrogate(problem.domain, KERNEL, noise_variance=NOISE_VARIANCE, horizon=horizon + ADMMBO_START, form=form)


def restarts(options: Options) -> bool:
    """Return whether every epoch forgets earlier data, as in the paper's text."""
    return options.parameters != "recommended"


def with_baselines(study: Study, admmbo: jb.Admmbo = ADMMBO, *, suffix: str = "", problem: Any = None) -> Study:
    """Return the study with ADMMBO and bandit OCO added.

    They are on the first run's problem unless another one is given. OCO has the best step of a grid, by regret and violation on trials of
    their own.
    """
    like = study.runs[0]
    problem = like.problem if problem is None else problem
    first = Run(f"ADMMBO{suffix}", problem, admmbo, like.model, initial=jb.InitialDesign(random=ADMMBO_START))
    tuned = tune(study, Run(f"OCO{suffix}", problem, jb.Oco(), like.model), {"step": OCO_STEPS})
    second, tried = tuned.best, {f"{candidate.values['step']:g}": round(candidate.loss, 4) for candidate in tuned.candidates}
    parameters = {**study.recorded, f"steps tried, {second.label}": tried}
    return dataclasses.replace(study, runs=(*study.runs, first, second), parameters=parameters)


def tuning_notes(dataset: Any) -> list[str]:
    """Return the step of OCO, and the other steps that were tried."""
    known = json.loads(dataset.attrs["parameters"])
    lines = []
    for name, tried in known.items():
        if name.startswith("steps tried, "):
            best = min(tried, key=tried.__getitem__)
            scores = ", ".join(f"{step} {score:.1f}" for step, score in tried.items())
            lines.append(f"{name.removeprefix('steps tried, ')}: step {best}; positive regret + violation in trials of their own: {scores}")
    return lines


def evaluations(dataset: Any, label: str) -> np.ndarray:
    """Return the rounds ``[trials]`` until an algorithm stopped by itself."""
    rounds = np.full(dataset.sizes["trial"], dataset.sizes["round"])
    return dataset.evaluations.sel(algorithm=label).values if "evaluations" in dataset else rounds


def until_stopped(dataset: Any) -> Any:
    """Return the dataset with averages constant after each trial's stop."""
    if "evaluations" not in dataset:
        return dataset
    elapsed = np.arange(1, dataset.sizes["round"] + 1)
    at = np.minimum(elapsed, dataset.evaluations.transpose("algorithm", "trial").values[..., None])  # [algorithm, trial, round]
    names = [name for name, _ in (VIOLATION, REGRET, UTILITY) if name in dataset]
    held = {
        name: (("algorithm", "trial", "round"), np.take_along_axis(values, at - 1, axis=-1) / at * elapsed)
        for name in names
        for values in [dataset[name].transpose("algorithm", "trial", "round").values]
    }
    return dataset.assign(held)


def violation_notes(dataset: Any) -> list[str]:
    """Return ``V(t)/t`` at the rounds that the docstrings quote."""
    rounds = [t for t in (20, 100, 350) if t <= dataset.sizes["round"]] or [dataset.sizes["round"]]
    lines = ["the paper's V(t) is ||(sum over rounds of g)^+||, the column 'soft V/t'; 'V/t' sums the positive parts"]
    held = until_stopped(dataset)
    for label in map(str, dataset.algorithm.values):
        part = held.sel(algorithm=label)
        ok = healthy_trials(part)
        if not ok.any():
            lines.append(f"{label}: every trial failed")
            continue
        ends = evaluations(dataset, label)[ok]
        if ends.min() < dataset.sizes["round"]:
            violation, regret = (final_values(part, name).mean() / dataset.sizes["round"] for name in ("soft_violation", "regret"))
            lines.append(
                f"{label}: stopped by itself after {np.median(ends):.0f} evaluations (median; {ends.min()} to {ends.max()}) with"
                f" V(t)/t {violation:.3f}, R(t)/t {regret:.3f}; the table's row goes on with its answer until T"
            )
        else:
            values = healthy_values(part, "soft_violation")
            lines.append(f"{label}: V(t)/t " + ", ".join(f"{values[:, t - 1].mean() / t:.3f} at t = {t}" for t in rounds))
    return lines + tuning_notes(dataset) + no_code_note(dataset)


def boxes(dataset: Any, *, title: str, panels: Sequence[tuple[str, str]]) -> Any:
    """Draw box plots over trials every 20 rounds, then all means.

    There is a row for each algorithm and a panel for each measure, as in the paper's appendix. Box plots of a measure have one scale.

    The boxes of an algorithm that stops by itself end where its last trial has, with one every 5 rounds.
    """
    held = until_stopped(dataset)
    rows: list[list[partial[Any]]] = []
    for label in map(str, dataset.algorithm.values):
        ends, every, heading = evaluations(dataset, label), BOXES_EVERY, label
        if ends.min() < dataset.sizes["round"]:
            every, heading = BOXES_EVERY_IF_STOPPED, f"{label},\nstopped after {ends.min()} to {ends.max()} evaluations"
        part = held.sel(algorithm=label).isel(round=slice(0, int(ends.max())))
        every = min(every, max(1, part.sizes["round"] // 5))
        box: partial[Any] = partial(plots.boxes_over_time, part=part, heading=plots.plain(heading), every=every)
        rows.append([partial(box, name=name, ylabel=words) for name, words in panels])
    rows.append([partial(means, dataset=dataset, name=name, ylabel=words) for name, words in panels])
    words = f"{title}\n(boxes: trials, orange: medians, blue: means; below: means of all, cross: all have stopped)"
    figure = plots.compose(words, rows, size=(4.6, 2.5))
    grid = np.asarray(figure.axes, object).reshape(len(rows), len(panels))
    # Axes of one measure have one scale, to be compared.
    for column in grid[:-1].T:
        low, high = zip(*(axis.get_ylim() for axis in column), strict=True)
        for axis in column:
            axis.set(xlim=(0, dataset.sizes["round"] + 0.4 * BOXES_EVERY), ylim=(min(low), max(high)))
    for axis in grid[:-1].flat:
        axis.set_xlabel("")
    plots.legend_below(figure)
    return figure


def means(ax: Any, dataset: Any, name: str, ylabel: str) -> None:
    """Draw means of averages over time of all algorithms.

    They are the paper's Figures 3, 5, 7 and 9. A cross marks a stop.
    """
    held, rounds = until_stopped(dataset), dataset.sizes["round"]
    elapsed = np.arange(1, rounds + 1)
    for number, label in enumerate(map(str, dataset.algorithm.values)):
        part = held.sel(algorithm=label)
        ok = healthy_trials(part)
        if not ok.any():
            continue
        average = healthy_values(part, name).mean(axis=0) / elapsed
        end = int(evaluations(dataset, label)[ok].max())
        colour = COLOURS[number % len(COLOURS)]
        ax.plot(elapsed[:end], average[:end], color=colour, linestyle=DASHES[number % len(DASHES)], label=label)
        if end < rounds:
            ax.plot(end, average[end - 1], "X", color=colour, markersize=8)
    ax.set(xlabel="round $t$", ylabel=ylabel, xlim=(0, rounds + 0.4 * BOXES_EVERY))
