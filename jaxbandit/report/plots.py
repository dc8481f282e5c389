"""All plot functions, including the plots of beliefs and sweeps.

A function takes a trajectory from :func:`~jaxbandit.simulate`, a mapping from labels to trajectories, or the dataset of a study, draws on
the Axes given or on new Axes, and returns them. It writes no files. In maps the star is the optimum, solid lines are the edge of the truly
feasible region, and dashed lines the edge of the region believed to be feasible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypeAlias

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator, NullLocator

from jaxbandit.core.checks import InvalidArgument, one_of, shape
from jaxbandit.core.declare import KeyOrSeed, Numbers, checked
from jaxbandit.core.fields import AtLeast, Words, numbers, whole
from jaxbandit.core.status import healthy
from jaxbandit.delays import NEVER
from jaxbandit.engine import Trajectory
from jaxbandit.host.figures import (
    COLOURS,
    DASHES,
    DPI,
    SHADES,
    STYLE,
    GivenAxes,
    caption_of,
    compose,
    figure_of,
    grid_of_axes,
    legend_below,
    look,
    one_axis,
    pen,
    plain,
    styled,
    write_figure,
)
from jaxbandit.problems import AbstractProblem
from jaxbandit.report import statistics
from jaxbandit.report.beliefs import (
    penalised_bounds,
    posterior_after,
    posterior_animation,
    posterior_curves,
    posterior_maps,
    problem_maps,
    safe_set,
)
from jaxbandit.report.sweeps import sweep, win_map
from jaxbandit.report.tables import AXIS_LABELS, PANELS
from jaxbandit.results.dataset import OneResult

__all__ = [
    "COLOURS", "DASHES", "DPI", "PANELS", "SHADES", "STYLE", "boxes_over_time", "caption_of", "compose", "cumulative", "curves",
    "delay_histogram", "distribution", "figure_of", "legend_below", "multiplier_paths", "penalised_bounds", "plain", "posterior_after",
    "posterior_animation", "posterior_curves", "posterior_maps", "problem_maps", "rounds_of_declaration", "safe_set", "sweep", "trade_off",
    "win_map", "write_figure",
]  # fmt: skip
__dir__ = __all__.copy

Lines: TypeAlias = Annotated[Mapping[str, str], Words("a mapping from legend labels to labels of algorithms in the results"), AtLeast(1)]


@styled()
@checked
def curves(
    results: statistics.AnyResults,
    problem: AbstractProblem | None = None,
    *,
    measures: Annotated[Sequence[tuple[str, str]], AtLeast(1)] = PANELS,
    key: KeyOrSeed | None = None,
    axes: GivenAxes = None,
) -> np.ndarray:
    """Draw averages over time, ``measure(t) / t``, with 95% confidence bands.

    Args:
      results: a trajectory, a mapping from labels to trajectories, or a study's dataset; failed trials are left out.
      problem, key: problem and key of trajectories; the key for random families only.
      measures: pairs of a measure and its axis label, each for a panel.
      axes: as many Axes; default new ones.

    Returns:
      The axes ``[measures]``.

    Raises:
      InvalidArgument: on results without such measures, or axes of another number.
    """
    dataset = statistics.results_at_hand(results, problem, key=key)
    for number, (name, _) in enumerate(measures):
        statistics.check_measure(f"measures[{number}]", dataset, name)
    row: np.ndarray = grid_of_axes(axes, 1, len(measures), (4.2, 3.6))[0]
    mean_curves(row, statistics.elapsed(dataset), measures, [statistics.over_trials(dataset, name, averaged=True) for name, _ in measures])
    return row


@styled()
def mean_curves(axes: np.ndarray, rounds: np.ndarray, measures: Sequence[tuple[str, str]], summaries: Sequence[xr.Dataset]) -> None:
    """Draw each algorithm's mean and band, one summary on each axis."""
    for axis, (name, label), summary in zip(axes, measures, summaries, strict=True):
        for number, algorithm in enumerate(summary.algorithm.values):
            line, style = summary.isel(algorithm=number), look(number)
            if not np.isfinite(line["mean"].values).any():
                axis.plot([], [], label=f"{plain(algorithm)} (undefined)")
                continue
            # Later lines are thinner, so that an earlier line stays visible on both sides of a later one that coincides with it.
            axis.plot(rounds, line["mean"], **style, linewidth=pen(max(1.9 - 0.45 * number, 1)), label=plain(algorithm))
            axis.fill_between(rounds, line.low, line.high, color=style["color"], alpha=0.18, linewidth=0)
        axis.set(xlabel="round $t$", ylabel=label, xlim=(rounds[0], max(rounds[-1], 2)))
        if name != "regret":
            axis.set_ylim(bottom=0)
        else:
            axis.axhline(0, color="0.4", linewidth=pen(0.5))
    figure, (_, labels) = axes[-1].figure, axes[-1].get_legend_handles_labels()
    fits_below = isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine) and set(figure.axes) == set(axes)
    # A legend inside a panel has at most 14 letters per inch of the panel's width.
    if fits_below and len("".join(labels)) > 14 * figure.get_figwidth() / len(axes):
        legend_below(figure)
    else:
        axes[-1].legend(loc="best")


@styled()
@checked
def cumulative(
    results: statistics.AnyResults,
    name: str,
    lines: Lines | None = None,
    *,
    problem: AbstractProblem | None = None,
    key: KeyOrSeed | None = None,
    heading: str = "",
    ylabel: str | None = None,
    log: Literal["", "x", "y", "xy"] = "",
    among: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a cumulative measure, means with 95% error bars and medians.

    Lines of means have eight error bars, medians are thin lines. If the measure has a logarithmic scale, the bars are intervals of the
    logarithm of the mean, by the delta method, because other intervals would reach below zero.

    Args:
      results: a trajectory, a mapping from labels to trajectories, or a study's dataset; failed trials are left out.
      name: the measure, such as ``"regret"``.
      lines: for each legend label, the algorithm's label in the results; default all.
      problem, key: problem and key of trajectories; the key for random families only.
      heading, ylabel: text above and beside the axis; default no heading, and the measure's name.
      log: the axes with a logarithmic scale: ``""``, ``"x"``, ``"y"`` or ``"xy"``.
      among: legend labels of all lines of a figure, so that a line looks the same in every panel; default the labels in this panel.
      ax: the axes to draw on; default new ones.

    Returns:
      The axes.

    Raises:
      InvalidArgument: when the results have no such measure.
    """
    dataset, axis = statistics.results_at_hand(results, problem, key=key), one_axis(ax)
    statistics.check_measure("name", dataset, name)
    lines = _lines(dataset, lines)
    order = [*(() if among is None else among), *lines]
    rounds = statistics.elapsed(dataset)
    last, bars = int(rounds[-1]), 8
    for number, (label, algorithm) in enumerate(lines.items()):
        values = statistics.healthy_values(dataset.sel(algorithm=algorithm), name)
        if not len(values) or not np.isfinite(values).any():
            axis.plot([], [], label=f"{label} (undefined)")
            continue
        # Shift the error bars of different lines against each other, so that they do not overlap.
        offset = (number + 1) / (len(lines) + 1) / bars
        places = np.linspace(0, 1, bars, endpoint=False) + offset
        at = np.unique(np.searchsorted(rounds, (last**places if "x" in log else places * last).astype(int).clip(min(2, last), last)))
        mean, half = values.mean(axis=0), statistics.half_width(values[:, at])
        style = look(order.index(label))
        axis.plot(rounds, mean, **style, linewidth=pen(1.2), label=label)
        # Bars are symmetric about the logarithm, with half-width half / mean.
        if "y" in log:
            factor = np.exp(np.divide(half, mean[at], out=np.zeros_like(half), where=mean[at] > 0))
            half = np.stack([mean[at] * (1 - 1 / factor), mean[at] * (factor - 1)])
        elif values.min() >= 0:
            half = np.stack([np.minimum(half, mean[at]), half])
        axis.errorbar(rounds[at], mean[at], half, color=style["color"], linestyle="none", capsize=2.5, linewidth=pen(0.7))
        axis.plot(rounds, np.median(values, axis=0), color=style["color"], linewidth=pen(0.5), alpha=0.7)
    axis.set(title=heading, xlabel="round $t$", ylabel=_axis_label(name, ylabel), xlim=(rounds[0], max(last, 2)))
    if "x" in log:
        axis.set_xscale("log")
    else:
        # Few enough ticks that numbers of five digits do not overlap.
        axis.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=True))
    if "y" in log:
        axis.set_yscale("log", nonpositive="clip")
    axis.legend(loc="best")
    return axis


def _lines(dataset: xr.Dataset, lines: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return the algorithms by their legend labels, by default all."""
    known = [str(label) for label in dataset.algorithm.values]
    for label, algorithm in (lines or {}).items():
        one_of(f"lines[{label!r}]", algorithm, known)
    return {plain(label): label for label in known} if lines is None else lines


def _axis_label(name: str, given: str | None) -> str:
    """Return ``given``, or the axis label of a measure."""
    return AXIS_LABELS.get(name, plain(name)) if given is None else given


@styled()
@checked
def distribution(
    results: statistics.AnyResults,
    name: str,
    lines: Lines | None = None,
    *,
    problem: AbstractProblem | None = None,
    key: KeyOrSeed | None = None,
    heading: str = "",
    ylabel: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw box plots of a measure after the last round.

    Points are trials, diamonds means. Failed trials are left out. The scale is linear up to 10 and logarithmic beyond, or linear
    throughout if all values are above 10 and of one magnitude. Arguments, result and errors are as for :func:`cumulative`.
    """
    dataset, axis = statistics.results_at_hand(results, problem, key=key), one_axis(ax)
    statistics.check_measure("name", dataset, name)
    lines = _lines(dataset, lines)
    top, least = 0.0, np.inf
    for number, algorithm in enumerate(lines.values()):
        final = statistics.final_values(dataset.sel(algorithm=algorithm), name)
        final = final[np.isfinite(final)]
        if not len(final):
            continue
        top, least = max(top, final.max()), min(least, final.min())
        colour = COLOURS[number % len(COLOURS)]
        axis.boxplot(final, positions=[number], widths=0.6, showfliers=False, medianprops={"color": colour, "linewidth": pen(1.3)})
        jitter = np.linspace(-0.22, 0.22, len(final)) if len(final) > 1 else np.zeros(1)
        axis.plot(number + jitter, final, ".", color=colour, markersize=4, alpha=0.6)
        axis.plot(number, final.mean(), "D", color=colour, markeredgecolor="white", markersize=7)
    if not 10 < least < top < 20 * least:
        axis.set_yscale("symlog", linthresh=10)
        axis.set_yticks([0, 2, 4, 6, 8, *(digit * 10**power for power in range(1, 6) for digit in (1, 2, 5))], minor=False)
        axis.yaxis.set_minor_locator(NullLocator())
        axis.set_ylim(-0.4, 1.15 * max(top, 1.0))
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axis.set(title=heading, ylabel=_axis_label(name, ylabel), xlim=(-0.6, len(lines) - 0.4))
    axis.set_xticks(range(len(lines)), list(lines))
    return axis


@styled()
@checked
def boxes_over_time(
    part: OneResult, name: str, *, every: Annotated[int, whole(1)], heading: str = "", ylabel: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw box plots over one algorithm's trials at every ``every``-th round.

    ``part`` is a dataset of one algorithm. The measure is divided by the number of rounds, and its mean is a line. Failed trials are left
    out. Returns the axes: ``ax`` or new ones.
    """
    statistics.check_measure("name", part, name)
    rounds, axis = statistics.elapsed(part), one_axis(ax)
    values = statistics.healthy_values(part, name, averaged=True)
    axis.set(title=heading, xlabel="round $t$", ylabel=_axis_label(name, ylabel))
    if not len(values) or not np.isfinite(values).any():
        axis.text(0.5, 0.5, "undefined", transform=axis.transAxes, ha="center")
        return axis
    last = int(rounds[-1])
    at = np.unique(np.searchsorted(rounds, np.arange(min(every, last), last + 1, every)))
    fliers = {"marker": ".", "markersize": 3, "markeredgecolor": "0.5"}
    axis.boxplot(
        values[:, at], positions=rounds[at], widths=0.6 * every, manage_ticks=False, flierprops=fliers, medianprops={"color": COLOURS[1]}
    )
    axis.plot(rounds[at], values.mean(axis=0)[at], color=COLOURS[0], linewidth=pen(0.8))
    axis.set_xlim(0, rounds[at][-1] + every / 2)
    # A line at zero shows how large the violation is.
    if "violation" in name:
        axis.axhline(0, color="0.4", linewidth=pen(0.5), zorder=0)
    return axis


@styled()
@checked
def trade_off(
    results: statistics.AnyResults,
    x: tuple[str, str] = PANELS[2],
    y: tuple[str, str] = PANELS[1],
    *,
    joined: bool = False,
    problem: AbstractProblem | None = None,
    key: KeyOrSeed | None = None,
    heading: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw two measures against each other, a point for each algorithm.

    Measures are averages over all rounds, with 95% intervals over the trials that did not fail; ``x`` and ``y`` are pairs of a measure and
    its axis label. With ``joined`` a line goes through the points in their order. The other arguments, result and errors are as for
    :func:`cumulative`.
    """
    dataset, axis = statistics.results_at_hand(results, problem, key=key), one_axis(ax)
    for argument, (name, _) in (("x", x), ("y", y)):
        statistics.check_measure(argument, dataset, name)
    means = []
    for number, label in enumerate(dataset.algorithm.values):
        pair = [statistics.final_values(dataset.sel(algorithm=label), name, averaged=True) for name, _ in (x, y)]
        middle = [values.mean() for values in pair]
        half = [statistics.half_width(values) for values in pair]
        means.append(middle)
        axis.errorbar(
            middle[0], middle[1], xerr=half[0], yerr=half[1], fmt="o", capsize=3, color=COLOURS[number % len(COLOURS)], label=plain(label)
        )
    if joined:
        axis.plot(*zip(*means, strict=True), color="0.6", linewidth=pen(0.6), zorder=0)
    axis.set(title=heading, xlabel=x[1], ylabel=y[1])
    for ticks in (axis.xaxis, axis.yaxis):
        ticks.set_major_locator(MaxNLocator(5))
    axis.legend(loc="best")
    return axis


@styled()
@checked
def rounds_of_declaration(
    results: statistics.AnyResults,
    *,
    problem: AbstractProblem | None = None,
    key: KeyOrSeed | None = None,
    heading: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw a histogram of the rounds of first declarations of infeasibility.

    Arguments, result and errors are as for :func:`cumulative`.
    """
    dataset, axis = statistics.results_at_hand(results, problem, key=key), one_axis(ax)
    declared = dataset.declared_round.transpose("algorithm", "trial").values
    seen = declared[declared > 0] if np.any(declared > 0) else np.ones(1)
    bins = np.arange(seen.min() - 0.5, seen.max() + 1.5)
    for number, (label, rounds) in enumerate(zip(dataset.algorithm.values, declared, strict=True)):
        rounds = rounds[rounds > 0]
        colour = COLOURS[number % len(COLOURS)]
        said = f"{label}: {len(rounds)} of {dataset.sizes['trial']} declared" + (f", mean {rounds.mean():.1f}" if len(rounds) else "")
        axis.hist(rounds, bins=bins.tolist(), color=colour, alpha=0.6, label=said)
        if len(rounds):
            axis.axvline(rounds.mean(), ymax=0.83, color=colour, linestyle="--")
    axis.set(title=heading, xlabel="round of the first declaration (dashed: mean)", ylabel="trials")
    axis.xaxis.set_major_locator(MaxNLocator(10, steps=[1, 2, 5, 10], integer=True))
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_ylim(0, 1.2 * max(axis.get_ylim()[1], 1.0))
    axis.legend(loc="upper right")
    return axis


@styled()
@checked
def multiplier_paths(
    multipliers: Annotated[Trajectory | Mapping[str, Trajectory] | Numbers, statistics.any_results | numbers] | None,
    *,
    heading: str = "",
    ylabel: str = "multiplier in force",
    ax: Axes | None = None,
) -> Axes:
    """Draw penalty factors or dual variables: means and 5% to 95% bands.

    Args:
      multipliers: a trajectory, a mapping from labels to trajectories, or an array ``[trials, T + 1, m]`` or ``[T + 1, m]``; failed trials
        of trajectories are left out.
      heading, ylabel: text above and beside the axis.
      ax: the axes to draw on; default new ones.

    Returns:
      The axes.

    Raises:
      InvalidArgument: on another shape, such as the multipliers of a sweep or of a run that recorded indices only.
    """
    runs = statistics.trajectories_of(multipliers)
    given = {"": multipliers} if runs is None else {label if len(runs) > 1 else "": run.multipliers for label, run in runs.items()}
    ends = [None] * len(given) if runs is None else [np.reshape(run.status, -1) for run in runs.values()]
    axis, number, last = one_axis(ax), 0, 2
    for (label, values), status in zip(given.items(), ends, strict=True):
        paths = np.asarray(np.nan if values is None else values, np.float64)
        paths = paths[None] if paths.ndim == 2 else paths
        shape("multipliers", paths, (None, None, None), remedy="give those of a run with record='all', of a sweep run.variant(0)")
        paths = paths if status is None else paths[healthy(status)]
        last = max(last, paths.shape[1])
        if not len(paths):
            axis.text(0.5, 0.5, "every trial failed", transform=axis.transAxes, ha="center")
        for j, path in enumerate(np.moveaxis(paths, 2, 0) if len(paths) else ()):
            rounds, style = np.arange(1, paths.shape[1] + 1), look(number)
            words = ", ".join(filter(None, (label, f"constraint {j + 1}" if paths.shape[2] > 1 else "")))
            axis.plot(rounds, path.mean(axis=0), **style, linewidth=pen(1.2), label=plain(words) or None)
            axis.fill_between(rounds, *np.quantile(path, (0.05, 0.95), axis=0), color=style["color"], alpha=0.18, linewidth=0)
            number += 1
    axis.set(title=heading, xlabel="round $t$", ylabel=ylabel, xlim=(1, last))
    if axis.get_legend_handles_labels()[1]:
        axis.legend(loc="best")
    return axis


@styled()
@checked
def delay_histogram(
    results: statistics.AnyResults,
    problem: AbstractProblem | None = None,
    *,
    key: KeyOrSeed | None = None,
    heading: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw a histogram of the delays of values, in rounds.

    Each delay model has a line, and each output whose delays differ. Algorithms under one model have the same delays. Values that had not
    arrived when the run ended are left out; the legend states their share, and the share of values that never arrive.

    Args:
      results: a trajectory, a mapping from labels to trajectories, or a study's dataset, with delayed feedback.
      problem, key: problem and key of trajectories; the key for random families only.
      heading: text above the axis.
      ax: the axes to draw on; default new ones.

    Returns:
      The axes.

    Raises:
      InvalidArgument: when the results have no ``arrival``.
    """
    dataset = statistics.results_at_hand(results, problem, key=key)
    if "arrival" not in dataset:
        raise InvalidArgument("dataset: has no variable arrival; no feedback of this study was late")
    models, first = np.unique(dataset["delay"].values.astype(str), return_index=True)
    # A line has a label, a note on values that did not arrive, and the delays of the values that arrived.
    lines: list[tuple[str, str, np.ndarray]] = []
    for model, n in zip(models, first, strict=True):
        arrival, played = dataset.arrival.isel(algorithm=n).transpose("output", "trial", "played").values, dataset.played.values
        alike = len(arrival) > 1 and (arrival == arrival[:1]).all()
        for output, arrived in zip(["all outputs"] if alike else dataset.output.values, arrival[: 1 if alike else None], strict=True):
            pending, never = arrived > played[-1], arrived >= NEVER
            note = f", {pending.mean():.1%} pending at the end" if pending.any() else ""
            note += f" ({never.mean():.1%} never arrive)" if never.any() else ""
            lines.append((f"{model or 'none'}, {output}", note, (arrived - played)[~pending]))
    most = max((int(delays.max()) for *_, delays in lines if len(delays)), default=0)
    # There are at most 40 bins.
    axis, width = one_axis(ax, (7.0, 3.6)), max(1, -(-(most + 1) // 40))
    edges = np.arange(0, most + width + 1, width) - 0.5
    for number, (words, note, delays) in enumerate(lines):
        share = np.histogram(delays, edges)[0] / max(len(delays), 1)
        mean = f"mean {delays.mean():.1f}" if len(delays) else "none arrived"
        label = f"{plain(words)}: {mean}{note}"
        axis.stairs(share, edges, **look(number), linewidth=pen(), label=label, fill=False)
    axis.set(title=heading, xlabel="delay in rounds", ylabel="share of the values that arrived", xlim=(edges[0], edges[-1]))
    axis.set_ylim(0, 1.25 * max(axis.get_ylim()[1], 1e-12))
    axis.legend(loc="upper right", fontsize="small")
    return axis
