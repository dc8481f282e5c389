"""Figures of sweeps over hyper-parameters, and of shares of trials won."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from jaxbandit.core.checks import InvalidArgument, one_of
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import AtLeast, Words
from jaxbandit.host.figures import SHADES, GivenAxes, grid_of_axes, look, one_axis, plain, styled
from jaxbandit.report.statistics import grouped, over_trials
from jaxbandit.report.tables import PANELS
from jaxbandit.results.dataset import Results


def swept_parameters(dataset: xr.Dataset) -> list[str]:
    """Return the paths of swept hyper-parameters, such as ``estimator.reward_width``."""
    named = [str(name) for name in json.loads(dataset.attrs.get("swept", "[]"))]
    return [name for name in named if name in dataset.coords and np.isfinite(dataset[name].values).any()]


def swept_together(dataset: xr.Dataset, parameter: str) -> list[str]:
    """Return the swept parameters that ``parameter`` determines for every base algorithm."""
    frame, names = _labels_of(dataset), swept_parameters(dataset)
    pairs = {name: frame[["base", parameter, name]].dropna().drop_duplicates() for name in names if name != parameter}
    return [name for name, table in pairs.items() if len(table) and not table.duplicated(["base", parameter]).any()]


def families(dataset: xr.Dataset, *varied: str) -> list[tuple[str, xr.Dataset]]:
    """Return labelled groups of algorithms that differ in the ``varied`` parameters only.

    Parameters that are swept together with the first varied parameter do not distinguish groups. Algorithms without a value of the varied
    parameters are in no group.
    """
    dataset = dataset.isel(algorithm=np.flatnonzero(np.all([np.isfinite(dataset[name].values) for name in varied], axis=0)))
    frame = _labels_of(dataset).drop(columns=[*varied, *swept_together(dataset, varied[0])], errors="ignore")
    telling = [name for name in frame if name == "base" or frame[name].nunique(dropna=False) > 1]
    words = [
        [value if isinstance(value, str) else f"{name} = {value:.3g}" if np.isfinite(value) else "" for value in frame[name]]
        for name in telling
    ]
    labels = [", ".join(filter(None, values)) for values in zip(*words, strict=True)]
    return [(label, dataset.isel(algorithm=members)) for label, members in grouped(labels).items()]


def _labels_of(dataset: xr.Dataset) -> pd.DataFrame:
    """Return base algorithm, problem, delay and swept parameters of every run."""
    names = [name for name in ("problem", "delay", *swept_parameters(dataset)) if name in dataset.coords]
    base = dataset["base"].values if "base" in dataset.coords else np.full(dataset.sizes["algorithm"], "")
    return pd.DataFrame({"base": base, **{name: dataset[name].values for name in names}})


def sweeps_of(dataset: xr.Dataset) -> list[tuple[list[str], xr.Dataset]]:
    """Return the study's sweeps, one or two parameters with their algorithms."""
    names, sweeps = swept_parameters(dataset), []
    has = zip(*(np.isfinite(dataset[name].values) for name in names), strict=True)
    for varying, members in grouped([tuple(itertools.compress(names, defined)) for defined in has]).items():
        part = dataset.isel(algorithm=members)
        varied = [name for name in varying if len(np.unique(part[name].values)) > 1]
        if varied:
            apart = [name for name in varied[1:] if name not in swept_together(part, varied[0])]
            sweeps.append(([varied[0], *apart][:2], part))
    return sweeps


@styled()
@checked
def sweep(
    dataset: Results,
    *,
    measures: Annotated[Sequence[tuple[str, str]], AtLeast(1)] = PANELS[1:],
    parameters: Sequence[str] = (),
    axes: GivenAxes = None,
) -> np.ndarray:
    """Draw measures over one swept parameter, or maps over two.

    Measures are means over the trials that did not fail, divided by the number of rounds. Lines have 95% intervals, and maps are hatched
    where a pair of values was not run.

    Args:
      dataset: results of a study with a sweep, or of ``run.to_xarray(problem, swept=...)``.
      measures: pairs of a dataset variable and its axis label, each for a panel.
      parameters: one or two of ``swept_parameters``; default its first two. Other swept parameters distinguish families.
      axes: as many Axes, or an empty figure; default new ones.

    Returns:
      The axes ``[families, measures]``, for lines ``[1, measures]``.

    Raises:
      InvalidArgument: when the dataset has no such measure or sweep, or on axes of another number.
    """
    known = swept_parameters(dataset)
    if not known:
        raise InvalidArgument("dataset: no hyper-parameter was swept; there is no sweep to draw")
    for number, name in enumerate(parameters):
        one_of(f"parameters[{number}]", name, known)
    x, *others = list(parameters or known)[:2]
    if not others or others[0] in swept_together(dataset, x):
        grid = grid_of_axes(axes, 1, len(measures))
        for axis, (name, label) in zip(grid[0], measures, strict=True):
            for number, (family, part) in enumerate(families(dataset, x)):
                order = np.argsort(part[x].values, kind="stable")
                ends = over_trials(part, name, averaged=True).isel(round=-1, algorithm=order)
                marked: Any = {"marker": "o", "markersize": 4, "capsize": 3, "label": plain(family) or None}
                axis.errorbar(part[x].values[order], ends["mean"].values, (ends.high - ends["mean"]).values, **look(number), **marked)
            # Positive values that span a factor of 20 have a logarithmic scale.
            if np.nanmin(dataset[x].values) > 0 and np.nanmax(dataset[x].values) / np.nanmin(dataset[x].values) >= 20:
                axis.set_xscale("log")
            axis.set(xlabel=plain(" and ".join([x, *swept_together(dataset, x)])), ylabel=label)
            if axis.get_legend_handles_labels()[1]:
                axis.legend(loc="best")
        return grid
    y, parts = others[0], families(dataset, x, *others)
    if not parts:
        raise InvalidArgument(f"parameters: no algorithm has both {x} and {y}; see sweeps.sweeps_of")
    grid = grid_of_axes(axes, len(parts), len(measures))
    for column, (name, label) in zip(grid.T, measures, strict=True):
        last = [over_trials(part, name, averaged=True)["mean"].values[:, -1] for _, part in parts]
        every = np.concatenate(last)
        # All maps of a measure share one scale.
        shades = (np.nanmin(every), np.nanmax(every)) if np.isfinite(every).any() else (0.0, 1.0)
        for axis, (family, part), means in zip(column, parts, last, strict=True):
            frame = pd.DataFrame({x: part[x].values, y: part[y].values, "mean": means})
            if frame.duplicated([x, y]).any():
                raise InvalidArgument(f"dataset: several algorithms share values of {x} and {y}; choose one family")
            table = frame.pivot(index=y, columns=x, values="mean")
            columns, rows = ([f"{value:.3g}" for value in values] for values in (table.columns, table.index))
            _shade_cells(axis, table.to_numpy(), columns, rows, label=label, limits=shades)
            axis.set(title=plain(family), xlabel=plain(x), ylabel=plain(y))
    return grid


@styled()
@checked
def win_map(wins: Annotated[xr.DataArray, Words("a matrix of win_matrix")], *, heading: str = "", ax: Axes | None = None) -> Axes:
    """Draw a matrix of :func:`~jaxbandit.report.statistics.win_matrix` as a heat map.

    Cells of algorithms that cannot be compared are hatched. Returns the axes: ``ax`` or new ones.
    """
    if "algorithm" not in wins.coords or wins.ndim != 2:
        raise InvalidArgument(f"wins: must be a matrix of win_matrix, got one of {list(wins.dims)}")
    axis, labels = one_axis(ax), [plain(label) for label in wins.algorithm.values]
    _shade_cells(axis, wins.values[::-1], labels, labels[::-1], label="share of trials that the row wins", limits=(0.0, 1.0))
    axis.set_xticks(axis.get_xticks(), [tick.get_text() for tick in axis.get_xticklabels()], rotation=35, ha="right")
    axis.set(title=heading)
    return axis


def _shade_cells(
    axis: Axes, table: np.ndarray, columns: Sequence[str], rows: Sequence[str], *, label: str, limits: tuple[float, float]
) -> None:
    """Draw a table as shaded cells from the bottom up, NaN hatched."""
    # Up to 12 cells along an axis have labels, and numbers inside.
    (low, high), labelled = limits, 12
    axis.set_facecolor("0.92")
    image = axis.pcolormesh(np.ma.masked_invalid(table), cmap=SHADES, vmin=low, vmax=high, edgecolors="white", linewidth=0.6)
    axis.grid(False)
    axis.figure.colorbar(image, ax=axis, label=label, shrink=0.9)
    # Decimals follow from this map alone, because the values of another problem's map may be far larger.
    largest = np.max(np.abs(table[np.isfinite(table)]), initial=1e-6)
    written, decimals = max(table.shape) <= labelled, int(np.clip(2 - np.floor(np.log10(largest)), 0, 6))
    for (r, c), value in np.ndenumerate(table):
        if not np.isfinite(value):
            axis.add_patch(Rectangle((c, r), 1, 1, facecolor="0.92", edgecolor="0.7", hatch="///", linewidth=0))
        elif written:
            dark = value < low + 0.55 * (high - low)
            centred: Any = {"ha": "center", "va": "center", "fontsize": "small", "color": "white" if dark else "black"}
            axis.text(c + 0.5, r + 0.5, f"{value:.{decimals}f}", **centred)
    for names, set_ticks in ((columns, axis.set_xticks), (rows, axis.set_yticks)):
        step = -(-len(names) // labelled)
        set_ticks(np.arange(0, len(names), step) + 0.5, list(names)[::step])
