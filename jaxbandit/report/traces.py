"""Figures of the course of trials: penalty factors or dual variables over the rounds, and delays of feedback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from jaxbandit.core.checks import InvalidArgument, shape
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import numbers
from jaxbandit.core.status import healthy
from jaxbandit.core.types import Key, Numbers
from jaxbandit.delays import NEVER
from jaxbandit.drawing import look, one_axis, plain, styled
from jaxbandit.engine import Trajectory
from jaxbandit.problems import AbstractProblem
from jaxbandit.report.statistics import GIVEN, Given, results_at_hand, runs_of

MOST_BINS = 40


@styled()
@checked
def multiplier_paths(
    multipliers: Annotated[Trajectory | Mapping[str, Trajectory] | Numbers, GIVEN | numbers] | None,
    *,
    heading: str = "",
    ylabel: str = "multiplier in force",
    ax: Axes | None = None,
) -> Axes:
    """Draw the penalty factors or dual variables in force at each round: means over trials, and bands of 5% to 95% of the trials.

    Args:
      multipliers: a trajectory, a mapping from labels to trajectories, or an array ``[trials, T + 1, m]`` or ``[T + 1, m]``; trials of
        trajectories that failed are left out.
      heading, ylabel: text above and beside the axis.
      ax: the axes to draw on; default new ones.

    Returns:
      The axes.

    Raises:
      InvalidArgument: on another shape, such as that of a run that recorded indices only, or of a sweep.
    """
    runs = runs_of(multipliers)
    given = [("", multipliers)] if runs is None else [(label if len(runs) > 1 else "", run.multipliers) for label, run in runs.items()]
    axis, number, last = one_axis(ax), 0, 2
    for (label, values), run in zip(given, [None] if runs is None else runs.values(), strict=True):
        paths = np.asarray(np.nan if values is None else values, np.float64)
        paths = paths[None] if paths.ndim == 2 else paths
        shape("multipliers", paths, (None, None, None), remedy="give those of a run with record='all', of a sweep run.variant(0)")
        paths = paths if run is None else paths[healthy(np.asarray(run.status).reshape(-1))]
        last = max(last, paths.shape[1])
        if not len(paths):
            axis.text(0.5, 0.5, "every trial failed", transform=axis.transAxes, ha="center")
            continue
        for j, path in enumerate(np.moveaxis(paths, 2, 0)):
            rounds, style = np.arange(1, paths.shape[1] + 1), look(number)
            words = ", ".join(filter(None, (label, f"constraint {j + 1}" if paths.shape[2] > 1 else "")))
            axis.plot(rounds, path.mean(axis=0), **style, linewidth=1.8, label=plain(words) or None)
            if len(paths) > 1:
                axis.fill_between(rounds, *np.quantile(path, (0.05, 0.95), axis=0), color=style["color"], alpha=0.18, linewidth=0)
            number += 1
    axis.set(title=heading, xlabel="round $t$", ylabel=ylabel, xlim=(1, last))
    if axis.get_legend_handles_labels()[1]:
        axis.legend(loc="best")
    return axis


@styled()
@checked
def delay_histogram(
    results: Given, problem: AbstractProblem | None = None, *, key: Key | None = None, heading: str = "", ax: Axes | None = None
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
        raise InvalidArgument("dataset: has no variable arrival; no feedback of this study was late")
    models, first = np.unique(dataset["delay"].values.astype(str), return_index=True)
    lines = [(str(model) or "none", *line) for model, n in zip(models, first, strict=True) for line in _late(dataset.isel(algorithm=n))]
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


def _late(part: xr.Dataset) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yield for each output its name, a note on values that did not arrive, and the delays of those that did; once if all agree."""
    arrival, played = part.arrival.transpose("output", "trial", "played").values, part.played.values
    alike = len(arrival) > 1 and (arrival == arrival[:1]).all()
    for name, arrived in zip(["all outputs"] if alike else map(str, part.output.values), arrival[: 1 if alike else None], strict=True):
        pending, never = arrived > played[-1], arrived >= NEVER
        note = f", {pending.mean():.1%} pending at the end" if pending.any() else ""
        note += f" ({never.mean():.1%} never arrive)" if never.any() else ""
        yield name, note, (arrived - played)[~pending]
