"""Figures of the course of trials: penalty factors or dual variables over the rounds, and delays of feedback."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from jaxbandit.core import checks
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import numbers
from jaxbandit.core.status import STATUS, healthy
from jaxbandit.core.types import Key, Numbers
from jaxbandit.delays import NEVER
from jaxbandit.drawing import in_style, look, one_axis, plain
from jaxbandit.engine import Trajectory
from jaxbandit.problems import AbstractProblem
from jaxbandit.report.given import GIVEN, Given, results_at_hand, runs_of

MOST_BINS = 40


@in_style
@checked
def multiplier_paths(
    multipliers: Annotated[Trajectory | Mapping[str, Trajectory] | Numbers, GIVEN | numbers] | None,
    *,
    heading: str = "",
    ylabel: str = "multiplier in force",
    status: Annotated[Numbers, STATUS] | None = None,
    names: Sequence[str] = (),
    log: Literal["", "x", "y", "xy"] = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw the penalty factors or dual variables in force at each round: means over trials, and bands of 5% to 95% of the trials.

    Args:
      multipliers: a trajectory, a mapping from labels to trajectories, or an array ``[trials, T + 1, m]`` or ``[T + 1, m]``.
      heading, ylabel: text above and beside the axis.
      status: ``[trials]`` flags of an array's trials; failed trials are left out. Trajectories have their own.
      names: names of the constraints; default their numbers.
      log: the axes with a logarithmic scale: ``""``, ``"x"``, ``"y"`` or ``"xy"``.
      ax: the axes to draw on; default new ones.

    Returns:
      The axes.

    Raises:
      InvalidArgument: on another shape, such as that of a run that recorded indices only, or of a sweep.
    """
    runs = runs_of(multipliers)
    given: dict[str, tuple[Any, Any]] = {"": (multipliers, status)}
    if runs is not None:
        given = {(label if len(runs) > 1 else ""): (run.multipliers, run.status) for label, run in runs.items()}
    axis = one_axis(ax)
    axis.set(title=heading, xlabel="round $t$", ylabel=ylabel)
    number, last = 0, 2
    for label, (values, flags) in given.items():
        paths = _healthy_paths(values, flags)
        last = max(last, paths.shape[1])
        if not len(paths):
            axis.text(0.5, 0.5, "every trial failed", transform=axis.transAxes, ha="center")
            continue
        for j in range(paths.shape[2]):
            several = paths.shape[2] > 1 or j < len(names)
            constraint = (names[j] if j < len(names) else f"constraint {j + 1}") if several else ""
            rounds, style = np.arange(1, paths.shape[1] + 1), look(number)
            words = plain(", ".join(filter(None, (label, constraint)))) or None
            axis.plot(rounds, paths[:, :, j].mean(axis=0), **style, linewidth=1.8, label=words)
            if len(paths) > 1:
                axis.fill_between(rounds, *np.quantile(paths[:, :, j], (0.05, 0.95), axis=0), color=style["color"], alpha=0.18, linewidth=0)
            number += 1
    if "x" in log:
        axis.set_xscale("log")
    if "y" in log:
        axis.set_yscale("log", nonpositive="clip")
    axis.set_xlim(1, last)
    if axis.get_legend_handles_labels()[1]:
        axis.legend(loc="best")
    return axis


def _healthy_paths(multipliers: Any, status: Any) -> np.ndarray:
    """Return multipliers as ``[trials, T + 1, m]``, of the trials that did not fail."""
    paths = np.asarray(np.nan if multipliers is None else multipliers, np.float64)
    if paths.ndim == 2:
        paths = paths[None]
    checks.shape("multipliers", paths, (None, None, None), remedy="give those of a run with record='all', of a sweep run.variant(0)")
    if status is None:
        return paths
    flags = np.asarray(status).reshape(-1)
    checks.shape("status", flags, (len(paths),), remedy="one for each trial of the multipliers")
    return paths[healthy(flags)]


def delay_groups(dataset: xr.Dataset) -> list[tuple[str, list[str]]]:
    """Return the delay models of a study with delayed feedback, each with the labels of the algorithms that ran under it."""
    groups: dict[str, list[str]] = {}
    for label, words in zip(dataset.algorithm.values, dataset["delay"].values, strict=True):
        groups.setdefault(str(words) or "none", []).append(str(label))
    return list(groups.items())


@in_style
@checked
def delay_histogram(
    results: Given,
    problem: AbstractProblem | None = None,
    *,
    key: Key | None = None,
    heading: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw a histogram of the delays of values, in rounds: a line for each delay model and each output whose delays differ.

    Trials of all algorithms under one model share their delays, so those of the first are drawn. Values that had not arrived when the
    run ended are not in the histogram; the legend states their share, and the share of those that never arrive.

    Args:
      results: a trajectory, a mapping from labels to trajectories, or a study's dataset, with delayed feedback.
      problem, key: what was run, for trajectories; the key for random families only.
      heading: text above the axis.
      ax: the axes to draw on; default new ones.

    Returns:
      The axes.

    Raises:
      InvalidArgument: when the results have no ``arrival``.
    """
    dataset = results_at_hand(results, problem, key=key)
    if "arrival" not in dataset:
        raise checks.InvalidArgument("dataset: has no variable arrival; no feedback of this study was late")
    lines = [(words, *line) for words, labels in delay_groups(dataset) for line in _late(dataset.sel(algorithm=labels[0]))]
    most = max((int(delays.max()) for *_, delays in lines if len(delays)), default=0)
    axis, width = one_axis(ax, (7.0, 3.6)), max(1, -(-(most + 1) // MOST_BINS))
    edges = np.arange(0, most + width + 1, width) - 0.5
    for number, (words, output, note, delays) in enumerate(lines):
        share = np.histogram(delays, edges)[0] / max(len(delays), 1)
        mean = f"mean {delays.mean():.1f}" if len(delays) else "none arrived"
        label = f"{plain(words)}, {output}: {mean}{note}"
        axis.stairs(share, edges, **look(number), linewidth=1.5, label=label, fill=False)
    axis.set(title=heading, xlabel="delay in rounds", ylabel="share of the values that arrived", xlim=(edges[0], edges[-1]))
    axis.set_ylim(0, 1.25 * max(axis.get_ylim()[1], 1e-12))
    axis.legend(loc="upper right", fontsize=8)
    return axis


def _late(part: xr.Dataset) -> list[tuple[str, str, np.ndarray]]:
    """Return for each output its name, a note on values that did not arrive, and the delays of those that did; one entry if all agree."""
    arrival = part.arrival.transpose("trial", "played", "output").values
    delays = arrival - part.played.values[None, :, None]
    names = [str(name) for name in part.output.values]
    if len(names) > 1 and (arrival == arrival[..., :1]).all():
        arrival, delays, names = arrival[..., :1], delays[..., :1], ["all outputs"]
    found = []
    for j, name in enumerate(names):
        pending = arrival[..., j] > part.played.values[-1]
        never = arrival[..., j] >= NEVER
        note = f", {pending.mean():.1%} pending at the end" if pending.any() else ""
        note += f" ({never.mean():.1%} never arrive)" if never.any() else ""
        found.append((name, note, delays[..., j][~pending]))
    return found
