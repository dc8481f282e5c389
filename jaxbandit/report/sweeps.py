"""Figures of many variants: a measure against one or two swept hyper-parameters, and who beats whom, as lines and heat maps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import xarray as xr

from jaxbandit.core import checks
from jaxbandit.report.plots import COLOURS, DASHES, PANELS, SHADES, compose, plain
from jaxbandit.report.statistics import over_trials

WIDE = 20.0  # a range of positive values whose ends differ by this factor or more is drawn on a logarithmic scale
FEW = 12  # most cells along an axis of a heat map that are labelled one by one, with their numbers inside


def swept_parameters(dataset: xr.Dataset) -> list[str]:
    """Paths of the hyper-parameters that a study swept (``estimator.reward_width``), none for a study without sweeps."""
    named = [str(name) for name in json.loads(dataset.attrs.get("swept", "[]"))]
    return [name for name in named if name in dataset.coords and np.isfinite(dataset[name].values).any()]


def families(dataset: xr.Dataset, *varied: str) -> list[tuple[str, xr.Dataset]]:
    """The algorithms in groups that differ in the ``varied`` parameters only, each with a label of what sets it apart.

    Algorithms without a value of the varied parameters are in no group.
    """
    has_all = np.all([np.isfinite(dataset[name].values) for name in varied], axis=0)
    dataset = dataset.isel(algorithm=np.flatnonzero(has_all))
    others = [name for name in ("base", "problem", "delay", *swept_parameters(dataset)) if name in dataset.coords and name not in varied]
    tags = {name: [_tag(name, value) for value in dataset[name].values] for name in others}
    telling = [name for name in others if name == "base" or len(set(tags[name])) > 1]
    places: dict[str, list[int]] = {}
    for place in range(dataset.sizes["algorithm"]):
        places.setdefault(", ".join(filter(None, (tags[name][place] for name in telling))), []).append(place)
    return [(label, dataset.isel(algorithm=chosen)) for label, chosen in places.items()]


def swept_curve(axis: Any, dataset: xr.Dataset, measure: str, parameter: str, *, heading: str, ylabel: str, averaged: bool = True) -> None:
    """A measure after the last round against one swept parameter, on one axis: means with 95% intervals, a line for each family.

    Args:
      axis: of matplotlib.
      dataset: of a study that swept ``parameter``; failed trials are left out.
      measure: a variable of it.
      parameter: one of :func:`swept_parameters`.
      heading, ylabel: words above and beside the axis.
      averaged: whether the measure is divided by the number of rounds.

    Raises:
      InvalidArgument: when the dataset has no such measure or sweep.
    """
    _check(dataset, parameter)
    spans = []
    for number, (label, part) in enumerate(families(dataset, parameter)):
        last = over_trials(part, measure, averaged=averaged, levels=()).isel(round=-1)
        order = np.argsort(part[parameter].values, kind="stable")
        x, mean, half = part[parameter].values[order], last["mean"].values[order], (last.high - last["mean"]).values[order]
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
        axis.errorbar(x, mean, half, color=colour, linestyle=dash, marker="o", markersize=4, capsize=3, label=plain(label) or None)
        spans.append(x)
    values = np.concatenate(spans)
    if values.min() > 0 and values.max() / values.min() >= WIDE:
        axis.set_xscale("log")
    axis.set(title=heading, xlabel=plain(parameter), ylabel=ylabel)
    if axis.get_legend_handles_labels()[1]:
        axis.legend(loc="best")


def swept_map(axis: Any, dataset: xr.Dataset, measure: str, x: str, y: str, *, heading: str, label: str, averaged: bool = True) -> None:
    """The mean of a measure after the last round over two swept parameters, as a heat map on one axis.

    Args:
      axis: of matplotlib.
      dataset: of one family of :func:`families`; failed trials are left out. Pairs of values that were not run stay hatched.
      measure: a variable of it.
      x, y: two of :func:`swept_parameters`.
      heading, label: words above the axis and beside the scale.
      averaged: whether the measure is divided by the number of rounds.

    Raises:
      InvalidArgument: when the dataset has no such measure or sweep, or several algorithms share a cell.
    """
    _check(dataset, x, y)
    mean = over_trials(dataset, measure, averaged=averaged, levels=())["mean"].values[:, -1]
    columns, column = np.unique(dataset[x].values, return_inverse=True)
    rows, row = np.unique(dataset[y].values, return_inverse=True)
    if len(set(zip(column.tolist(), row.tolist(), strict=True))) < len(mean):
        raise checks.InvalidArgument(f"dataset: several algorithms share values of {x} and {y}; choose one family, see sweeps.families")
    table = np.full((len(rows), len(columns)), np.nan)
    table[row, column] = mean
    shaded_cells(axis, table, [f"{v:.3g}" for v in columns], [f"{v:.3g}" for v in rows], label=label)
    axis.set(title=heading, xlabel=plain(x), ylabel=plain(y))


def win_map(axis: Any, wins: xr.DataArray, *, heading: str) -> None:
    """A matrix of :func:`~jaxbandit.report.statistics.win_matrix` as a heat map on one axis; hatched where nothing can be compared."""
    labels = [plain(label) for label in wins.algorithm.values]
    shaded_cells(
        axis, wins.values[::-1], labels, labels[::-1], label="share of trials that the row wins", limits=(0.0, 1.0), digits="{:.2f}"
    )
    axis.set_xticks(axis.get_xticks(), [tick.get_text() for tick in axis.get_xticklabels()], rotation=35, ha="right")
    axis.set(title=heading)


def sweep_figure(
    dataset: xr.Dataset,
    path: Path | BinaryIO,
    *,
    title: str,
    panels: Sequence[tuple[str, str]] = PANELS[1:],
    parameters: Sequence[str] = (),
) -> None:
    """One panel for each measure, as a PNG at ``path``: lines over one swept parameter, or heat maps over two, a row for each family.

    Args:
      dataset: of a study with a sweep.
      path: where to write.
      title: above the figure.
      panels: pairs of a dataset variable and its axis label.
      parameters: one or two of :func:`swept_parameters`; default its first two. What else was swept sets families apart.

    Raises:
      InvalidArgument: when the dataset has no such measure or sweep.
    """
    chosen = list(parameters) or swept_parameters(dataset)[:2]
    _check(dataset, *chosen)
    if len(chosen) == 1 or _zipped(dataset, *chosen[:2]):
        row = [_partial(swept_curve, dataset, name, chosen[0], heading="", ylabel=label) for name, label in panels]
        return compose(path, title, [row])
    rows = [
        [_partial(swept_map, part, name, *chosen[:2], heading=plain(family), label=label) for name, label in panels]
        for family, part in families(dataset, *chosen[:2])
    ]
    return compose(path, title, rows)


def shaded_cells(
    axis: Any,
    table: np.ndarray,
    columns: Sequence[str],
    rows: Sequence[str],
    *,
    label: str,
    limits: tuple[float, float] | None = None,
    digits: str = "{:.3g}",
) -> None:
    """A table ``[rows, columns]`` as shaded cells, from the bottom up, with their numbers where there are few; NaN is hatched."""
    finite = table[np.isfinite(table)]
    low, high = limits or ((finite.min(), finite.max()) if len(finite) else (0.0, 1.0))
    axis.set_facecolor("0.92")
    image = axis.pcolormesh(np.ma.masked_invalid(table), cmap=SHADES, vmin=low, vmax=high, edgecolors="white", linewidth=0.6)
    axis.grid(False)
    axis.figure.colorbar(image, ax=axis, label=label, shrink=0.9)
    written = max(table.shape) <= FEW
    for (r, c), value in np.ndenumerate(table):
        if not np.isfinite(value):
            axis.add_patch(_hatched(c, r))
        elif written:
            dark = value < low + 0.55 * (high - low)
            axis.text(c + 0.5, r + 0.5, digits.format(value), ha="center", va="center", fontsize=8, color="white" if dark else "black")
    for names, set_ticks in ((columns, axis.set_xticks), (rows, axis.set_yticks)):
        step = -(-len(names) // FEW)
        set_ticks(np.arange(0, len(names), step) + 0.5, list(names)[::step])


def _hatched(column: int, row: int) -> Any:
    """A cell without a value."""
    from matplotlib.patches import Rectangle

    return Rectangle((column, row), 1, 1, facecolor="0.92", edgecolor="0.7", hatch="///", linewidth=0)


def _partial(draw: Any, dataset: xr.Dataset, *arguments: Any, **words: Any) -> Any:
    """``draw`` with all but its axis."""
    return lambda axis: draw(axis, dataset, *arguments, **words)


def _zipped(dataset: xr.Dataset, x: str, y: str) -> bool:
    """Whether each value of one parameter was run with one value of the other only, so that there is no plane to map."""
    pairs = {(a, b) for a, b in zip(dataset[x].values.tolist(), dataset[y].values.tolist(), strict=True) if a == a and b == b}
    return len(pairs) <= max(len({a for a, _ in pairs}), len({b for _, b in pairs}))


def _tag(name: str, value: Any) -> str:
    """One coordinate of a family in words; empty for a parameter that it does not have."""
    if isinstance(value, str):
        return value
    return f"{name} = {value:.3g}" if np.isfinite(value) else ""


def _check(dataset: xr.Dataset, *parameters: str) -> None:
    known = swept_parameters(dataset)
    if not parameters or not known:
        raise checks.InvalidArgument("dataset: no hyper-parameter was swept; there is no sweep to draw")
    for name in parameters:
        checks.one_of("parameter", name, known)
