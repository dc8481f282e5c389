"""Figures of a comparison in one style, readable by colour-blind people and in grey print."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import matplotlib
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from jaxbandit.report.statistics import elapsed, final_values, half_width, healthy_values, over_trials

# Okabe and Ito's palette, without yellow, which is too light for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))
STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "figure.dpi": 100,
    "savefig.dpi": 160,
}
SHADES = "cividis"  # colour map of heat maps; its lightness increases for colour-blind people and in grey print too

PANELS = (
    ("regret", "average regret $R(t)/t$"),
    ("positive_regret", "average positive regret $R^+(t)/t$"),
    ("hard_violation", "average violation $V(t)/t$"),
)


def plain(label: object) -> str:
    """Return a label as text for a figure, with dollar signs escaped so that they start no formula."""
    return str(label).replace("$", r"\$")


@contextmanager
def figure_at(
    path: Path | BinaryIO, title: str, rows: int, columns: int, size: tuple[float, float], *, one_scale: bool = False
) -> Iterator[np.ndarray]:
    """Provide the axes ``[rows, columns]`` of one figure, ``size`` inches each, and write the figure as a PNG to ``path`` at the end.

    With ``one_scale`` the panels of a row share their vertical scale.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")  # of no backend: notebooks keep theirs
        axes: np.ndarray = figure.subplots(rows, columns, squeeze=False, sharey="row" if one_scale else "none")
        yield axes
        figure.suptitle(title, fontsize=11)
        figure.savefig(path)


def average_curves(dataset: xr.Dataset, path: Path | BinaryIO, *, title: str, panels: Sequence[tuple[str, str]] = PANELS) -> None:
    """Draw averages over time, ``measure(t) / t``, as mean lines with 95% confidence bands; write a PNG to ``path``.

    Failed trials are left out. ``panels`` are pairs of a dataset variable and its axis label.
    """
    with figure_at(path, title, 1, len(panels), (4.2, 3.6)) as axes:
        rounds = elapsed(dataset)
        for axis, (name, label) in zip(axes[0], panels, strict=True):
            summary = over_trials(dataset, name, averaged=True, levels=())
            for number, algorithm in enumerate(dataset.algorithm.values):
                _band(axis, rounds, summary.isel(algorithm=number), plain(algorithm), number)
            axis.set(xlabel="round $t$", ylabel=label, xlim=(rounds[0], max(rounds[-1], 2)))
            if name != "regret":
                axis.set_ylim(bottom=0)
            else:
                axis.axhline(0, color="0.4", linewidth=0.8)
        axes[0][-1].legend(loc="upper right")


def _band(axis: Axes, rounds: np.ndarray, summary: xr.Dataset, label: str, number: int) -> None:
    """Draw one algorithm's mean line and confidence band."""
    if not np.isfinite(summary["mean"].values).any():
        axis.plot([], [], label=f"{label} (undefined)")
        return
    colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
    # Later lines are thinner, so that an earlier line stays visible on both sides of a later one that coincides with it.
    axis.plot(rounds, summary["mean"], color=colour, linestyle=dash, linewidth=max(3.4 - 0.9 * number, 1.5), label=label)
    axis.fill_between(rounds, summary.low, summary.high, color=colour, alpha=0.18, linewidth=0)


def compose(
    path: Path | BinaryIO,
    title: str,
    rows: Sequence[Sequence[Callable[[Axes], None]]],
    *,
    size: tuple[float, float] = (4.6, 3.5),
    one_scale: bool = False,
) -> None:
    """Draw a figure of several panels, as a PNG at ``path``; each function in ``rows`` draws one panel on the axis that it is given.

    Panels are ``size`` inches each; with ``one_scale`` those of a row share their vertical scale.
    """
    with figure_at(path, title, len(rows), max(len(row) for row in rows), size, one_scale=one_scale) as axes:
        for row, drawers in zip(axes, rows, strict=True):
            for axis in row[len(drawers) :]:
                axis.set_axis_off()
            for axis, draw in zip(row, drawers, strict=False):
                draw(axis)
            for axis in row[1:] if one_scale else ():
                axis.set_ylabel("")


def cumulative(
    axis: Axes,
    dataset: xr.Dataset,
    name: str,
    lines: Mapping[str, str],
    *,
    heading: str,
    ylabel: str,
    log: str = "",
    marks: int = 8,
) -> None:
    """Draw a cumulative measure on one axis: mean lines with error bars (95% intervals) at ``marks`` rounds, medians as thin lines.

    Args:
      axis: the axis to draw on.
      dataset: results; failed trials are left out.
      name: variable of the measure.
      lines: for each legend label, the algorithm's label in the dataset.
      heading, ylabel: text above and beside the axis.
      log: the axes with a logarithmic scale: ``""``, ``"x"``, ``"y"`` or ``"xy"``.
      marks: number of error bars on a line.
    """
    rounds = elapsed(dataset)
    last = int(rounds[-1])
    for number, (label, algorithm) in enumerate(lines.items()):
        values = healthy_values(dataset.sel(algorithm=algorithm), name)
        if not len(values) or not np.isfinite(values).any():
            axis.plot([], [], label=f"{label} (undefined)")
            continue
        # Shift the error bars of different lines against each other, so that they do not overlap.
        offset = (number + 1) / (len(lines) + 1) / marks
        places = np.linspace(0, 1, marks, endpoint=False) + offset
        at = np.unique(np.searchsorted(rounds, (last**places if "x" in log else places * last).astype(int).clip(1, last)))
        mean, half = values.mean(axis=0), half_width(values[:, at])
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
        axis.plot(rounds, mean, color=colour, linestyle=dash, linewidth=1.8, label=label)
        axis.errorbar(rounds[at], mean[at], half, color=colour, linestyle="none", capsize=2.5, linewidth=1.1)
        axis.plot(rounds, np.median(values, axis=0), color=colour, linewidth=0.8, alpha=0.7)
    axis.set(title=heading, xlabel="round $t$", ylabel=ylabel, xlim=(rounds[0], max(last, 2)))
    if "x" in log:
        axis.set_xscale("log")
    else:
        # Few enough ticks that numbers of five digits do not overlap.
        axis.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=True))
    if "y" in log:
        axis.set_yscale("log", nonpositive="clip")
    axis.legend(loc="best")


def distribution(axis: Axes, dataset: xr.Dataset, name: str, lines: Mapping[str, str], *, heading: str, ylabel: str) -> None:
    """Draw a measure after the last round on one axis: box plots with every trial as a point and the mean as a diamond.

    The scale is linear up to 10 and logarithmic beyond; failed trials are left out. The arguments are as for :func:`cumulative`.
    """
    top = 0.0
    for number, algorithm in enumerate(lines.values()):
        final = final_values(dataset.sel(algorithm=algorithm), name)
        final = final[np.isfinite(final)]
        if not len(final):
            continue
        top = max(top, final.max())
        colour = COLOURS[number % len(COLOURS)]
        axis.boxplot(final, positions=[number], widths=0.6, showfliers=False, medianprops={"color": colour, "linewidth": 2})
        jitter = np.linspace(-0.22, 0.22, len(final)) if len(final) > 1 else np.zeros(1)
        axis.plot(number + jitter, final, ".", color=colour, markersize=4, alpha=0.6)
        axis.plot(number, final.mean(), "D", color=colour, markeredgecolor="white", markersize=7)
    axis.set_yscale("symlog", linthresh=10)
    axis.set_yticks([0, 2, 4, 6, 8, *(digit * 10**power for power in range(1, 6) for digit in (1, 2, 5))], minor=False)
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axis.yaxis.set_minor_locator(NullLocator())
    axis.set_ylim(-0.4, 1.15 * max(top, 1.0))
    axis.set(title=heading, ylabel=ylabel, xlim=(-0.6, len(lines) - 0.4))
    axis.set_xticks(range(len(lines)), list(lines))


def boxes_over_time(axis: Axes, part: xr.Dataset, name: str, *, heading: str, ylabel: str, every: int, averaged: bool = True) -> None:
    """Draw box plots over the trials of one algorithm at every ``every``-th round, with the mean as a line, on one axis without legend.

    ``part`` is a dataset of one algorithm; ``averaged`` divides the measure by the number of rounds. Failed trials are left out.
    """
    rounds = elapsed(part)
    values = healthy_values(part, name, averaged=averaged)
    axis.set(title=heading, xlabel="round $t$", ylabel=ylabel)
    if not len(values) or not np.isfinite(values).any():
        axis.text(0.5, 0.5, "undefined", transform=axis.transAxes, ha="center")
        return
    last = int(rounds[-1])
    at = np.unique(np.searchsorted(rounds, np.arange(min(every, last), last + 1, every)))
    fliers = {"marker": ".", "markersize": 3, "markeredgecolor": "0.5"}
    axis.boxplot(
        values[:, at], positions=rounds[at], widths=0.6 * every, manage_ticks=False, flierprops=fliers, medianprops={"color": COLOURS[1]}
    )
    axis.plot(rounds[at], values.mean(axis=0)[at], color=COLOURS[0], linewidth=1.2)
    axis.set_xlim(0, rounds[at][-1] + every)
    if "violation" in name:  # a line at zero shows how large the violation is
        axis.axhline(0, color="0.4", linewidth=0.8, zorder=0)


def trade_off(axis: Axes, dataset: xr.Dataset, x: tuple[str, str], y: tuple[str, str], *, heading: str) -> None:
    """Draw two measures at the last round, averaged over rounds, against each other: a point per algorithm, joined in their order.

    ``x`` and ``y`` are pairs of a dataset variable and its axis label; bars are 95% intervals over the trials that did not fail.
    """
    means = []
    for number, label in enumerate(dataset.algorithm.values):
        pair = [final_values(dataset.sel(algorithm=label), name, averaged=True) for name, _ in (x, y)]
        middle = [values.mean() for values in pair]
        half = [half_width(values) for values in pair]
        means.append(middle)
        axis.errorbar(
            middle[0], middle[1], xerr=half[0], yerr=half[1], fmt="o", capsize=3, color=COLOURS[number % len(COLOURS)], label=str(label)
        )
    axis.plot(*zip(*means, strict=True), color="0.6", linewidth=0.9, zorder=0)
    axis.set(title=heading, xlabel=x[1], ylabel=y[1])
    axis.legend(loc="best")


def line_through_reference(axis: Axes, x: np.ndarray, excess: np.ndarray, slope: tuple[float, float], *, xlabel: str, ylabel: str) -> None:
    """Draw the ``excess [trials, n]`` of trials at ``x[1:] [n]`` over a reference at ``x[0]``, and a line through the reference.

    ``slope`` is the slope of the line with its 95% half-width; what is NaN is not drawn.
    """
    mean = excess.mean(axis=0) if len(excess) else np.full(len(x) - 1, np.nan)
    axis.axhline(0, color="0.4", linewidth=0.8)
    estimate, half = slope
    label = f"slope {estimate:.2f}" + (f" ± {half:.2f}" if np.isfinite(half) else "")
    if np.isfinite(estimate):
        axis.plot(x, estimate * (x - x[0]), color=COLOURS[0], linestyle="--", label=label)
    if np.isfinite(half):
        axis.fill_between(x, (estimate - half) * (x - x[0]), (estimate + half) * (x - x[0]), color=COLOURS[0], alpha=0.18, linewidth=0)
    axis.errorbar(x[1:], mean, half_width(excess), fmt="o", color=COLOURS[1], capsize=3, label="mean over trials")
    axis.plot(x[0], 0, "o", color=COLOURS[1], markerfacecolor="white")
    axis.set(xlabel=xlabel, ylabel=ylabel)
    axis.legend(loc="upper left")


def rounds_of_declaration(axis: Axes, dataset: xr.Dataset, *, heading: str) -> None:
    """Draw a histogram of the rounds in which trials declared infeasibility, for one or more algorithms, on one axis."""
    declared = dataset.declared_round.values
    rounds_seen = declared[declared > 0] if np.any(declared > 0) else np.ones(1)
    bins = np.arange(rounds_seen.min() - 0.5, rounds_seen.max() + 1.5)
    for number, label in enumerate(dataset.algorithm.values):
        rounds = dataset.declared_round.sel(algorithm=label).values
        rounds = rounds[rounds > 0]
        colour = COLOURS[number % len(COLOURS)]
        said = f"{label}: {len(rounds)} of {dataset.sizes['trial']} declared" + (f", mean {rounds.mean():.1f}" if len(rounds) else "")
        axis.hist(rounds, bins=bins.tolist(), color=colour, alpha=0.6, label=said)
        if len(rounds):
            axis.axvline(rounds.mean(), ymax=0.83, color=colour, linestyle="--")
    axis.set(title=heading, xlabel="round of the first declaration (dashed: mean)", ylabel="trials")
    axis.xaxis.set_major_locator(MaxNLocator(10, steps=[1, 2, 5, 10], integer=True))
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_ylim(top=1.2 * axis.get_ylim()[1])  # room for the legend
    axis.legend(loc="upper right")
