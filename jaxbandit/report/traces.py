"""Figures of the course of trials: penalty factors or dual variables over the rounds, and delays of feedback."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from jaxbandit.core import checks
from jaxbandit.core.status import FAILED
from jaxbandit.core.types import Numbers
from jaxbandit.delays import NEVER
from jaxbandit.report.plots import COLOURS, DASHES, plain

MOST_BINS = 40


def multiplier_paths(
    axis: Axes,
    multipliers: Numbers | None,
    *,
    heading: str,
    ylabel: str,
    status: Numbers | None = None,
    names: Sequence[str] = (),
    log: str = "",
) -> None:
    """Draw the penalty factors or dual variables in force at each round: means over trials, and bands of 5% to 95% of the trials.

    Args:
      axis: the axis to draw on.
      multipliers: ``Trajectory.multipliers``, ``[trials, T + 1, m]``, or those of one trial, ``[T + 1, m]``.
      heading, ylabel: text above and beside the axis.
      status: ``[trials]`` flags (``Trajectory.status``); failed trials are left out.
      names: names of the constraints; default their numbers.
      log: the axes with a logarithmic scale: ``""``, ``"x"``, ``"y"`` or ``"xy"``.

    Raises:
      InvalidArgument: on another shape, such as that of a run that recorded indices only.
    """
    paths = np.asarray(np.nan if multipliers is None else multipliers, np.float64)
    if paths.ndim == 2:
        paths = paths[None]
    checks.shape("multipliers", paths, (None, None, None), remedy="give those of a run with record='all'")
    if status is not None:
        paths = paths[(np.asarray(status).reshape(-1) & int(FAILED)) == 0]
    axis.set(title=heading, xlabel="round $t$", ylabel=ylabel)
    if not len(paths):
        axis.text(0.5, 0.5, "every trial failed", transform=axis.transAxes, ha="center")
        return
    rounds = np.arange(1, paths.shape[1] + 1)
    for j in range(paths.shape[2]):
        colour, dash = COLOURS[j % len(COLOURS)], DASHES[j % len(DASHES)]
        label = names[j] if j < len(names) else f"constraint {j + 1}"
        axis.plot(rounds, paths[:, :, j].mean(axis=0), color=colour, linestyle=dash, linewidth=1.8, label=plain(label))
        if len(paths) > 1:
            axis.fill_between(rounds, *np.quantile(paths[:, :, j], (0.05, 0.95), axis=0), color=colour, alpha=0.18, linewidth=0)
    if "x" in log:
        axis.set_xscale("log")
    if "y" in log:
        axis.set_yscale("log", nonpositive="clip")
    axis.set_xlim(1, max(rounds[-1], 2))
    if paths.shape[2] > 1:
        axis.legend(loc="best")


def delay_groups(dataset: xr.Dataset) -> list[tuple[str, list[str]]]:
    """Return the delay models of a study with delayed feedback, each with the labels of the algorithms that ran under it."""
    groups: dict[str, list[str]] = {}
    for label, words in zip(dataset.algorithm.values, dataset["delay"].values, strict=True):
        groups.setdefault(str(words) or "none", []).append(str(label))
    return list(groups.items())


def delay_histogram(axis: Axes, dataset: xr.Dataset, *, heading: str) -> None:
    """Draw a histogram of the delays of values, in rounds: a line for each delay model and each output whose delays differ.

    Trials of all algorithms under one model share their delays, so those of the first are drawn. Values that had not arrived when the
    run ended are not in the histogram; the legend states their share, and the share of those that never arrive.

    Args:
      axis: the axis to draw on.
      dataset: results of a study with delayed feedback.
      heading: text above the axis.

    Raises:
      InvalidArgument: when the dataset has no ``arrival``.
    """
    if "arrival" not in dataset:
        raise checks.InvalidArgument("dataset: has no variable arrival; no feedback of this study was late")
    lines = [(words, *line) for words, labels in delay_groups(dataset) for line in _late(dataset.sel(algorithm=labels[0]))]
    most = max((int(delays.max()) for *_, delays in lines if len(delays)), default=0)
    width = max(1, -(-(most + 1) // MOST_BINS))
    edges = np.arange(0, most + width + 1, width) - 0.5
    for number, (words, output, note, delays) in enumerate(lines):
        share = np.histogram(delays, edges)[0] / max(len(delays), 1)
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
        mean = f"mean {delays.mean():.1f}" if len(delays) else "none arrived"
        label = f"{plain(words)}, {output}: {mean}{note}"
        axis.stairs(share, edges, color=colour, linestyle=dash, linewidth=1.5, label=label, fill=False)
    axis.set(title=heading, xlabel="delay in rounds", ylabel="share of the values that arrived", xlim=(edges[0], edges[-1]))
    axis.set_ylim(0, 1.25 * max(axis.get_ylim()[1], 1e-12))
    axis.legend(loc="upper right", fontsize=8)


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
