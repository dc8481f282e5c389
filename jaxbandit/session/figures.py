"""Figures of a session: what it believes of every output, and what was measured, in the user's own units."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from jaxbandit.drawing import COLOURS, SHADES, Drawing, figure_of, plain, styled
from jaxbandit.session.axes import Space
from jaxbandit.session.outputs import Outputs

if TYPE_CHECKING:
    import xarray as xr

BLUE, ORANGE, GREEN = COLOURS[:3]
MEASURED: dict[str, Any] = {"marker": "o", "s": 22, "c": "white", "edgecolors": "black", "linewidths": 1.0, "zorder": 3}
RECOMMENDED: dict[str, Any] = {"marker": "*", "s": 150, "c": ORANGE, "edgecolors": "black", "linewidths": 0.8, "zorder": 4}
WIDE, MAP, SLICE = (6.4, 2.9), (4.6, 3.4), (3.2, 2.7)  # inches of one panel
FEASIBILITY = "probability of feasibility"


@dataclasses.dataclass(frozen=True)
class _Row:
    """One row of panels: a quantity at every point ``[M]``, with its deviation and bounds and what was measured of it, if any."""

    label: str
    mean: np.ndarray
    sd: np.ndarray | None = None
    lower: np.ndarray | None = None
    upper: np.ndarray | None = None
    measured: np.ndarray | None = None  # by ticket


def belief_figure(
    space: Space, outputs: Outputs, belief: xr.Dataset, history: xr.Dataset, best: int, *, feasibility: bool = False
) -> Drawing:
    """Return a figure with a row for each output: a band on a line, maps of mean and deviation on a plane, else slices along each axis.

    Slices go through the recommended point, number ``best``. A set of points of more than two dimensions that is no grid is shown in the
    order of the objective. With ``feasibility`` a last row shows the probability that all constraints hold.
    """
    dimension, rows = space.domain.dimension, _rows(outputs, belief, history)
    if feasibility:
        rows.append(_Row(FEASIBILITY, belief["probability_of_feasibility"].values))
    in_slices = dimension > 2 and bool(space.domain.axes)
    columns = 2 if dimension == 2 else dimension if in_slices else 1
    size = MAP if dimension == 2 else SLICE if in_slices else WIDE
    figure, panels = figure_of(len(rows), columns, size, one_scale=in_slices)
    with styled():
        for axes, row in zip(panels, rows, strict=True):
            if dimension == 1:
                _curve(axes[0], row, space, history["index"].values, best)
            elif dimension == 2:
                _maps(axes, row, space, history["index"].values, best)
            elif in_slices:
                for number, axis in enumerate(axes):
                    _slice(axis, row, space, number, best)
            else:
                _ordered(axes[0], row, outputs, belief["mean"].values[0])
            if row.label == FEASIBILITY and dimension != 2:
                axes[0].set_ylim(-0.05, 1.05)
            elif dimension != 2:
                _bound(axes, outputs, row.label)
        _legend(figure)
    return figure


def history_figure(outputs: Outputs, history: xr.Dataset) -> Drawing:
    """Return a figure of what was measured by ticket: the objective with the best feasible value so far, then each constraint."""
    tickets = history["ticket"].values
    figure, grid = figure_of(len(outputs.names), 1, (9.0, 2.6))
    with styled():
        for axis, name in zip(grid[:, 0], outputs.names, strict=True):
            axis.plot(tickets, history[name].values, "o", color=BLUE, markersize=4, label="measured")
            axis.set(ylabel=plain(name), xlim=(tickets[0] - 0.5, tickets[-1] + 0.5))
            if name == outputs.objective.name:
                axis.step(tickets, history["best_so_far"].values, where="post", color=ORANGE, label="best feasible so far")
            _bound([axis], outputs, name)
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
            axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
        grid[-1, 0].set_xlabel("ticket")
    return figure


def _rows(outputs: Outputs, belief: xr.Dataset, history: xr.Dataset) -> list[_Row]:
    """Return what is believed and was measured of each output."""
    fields = ("mean", "sd", "lower", "upper")
    return [
        _Row(name, **{field: belief[field].values[number] for field in fields}, measured=history[name].values)
        for number, name in enumerate(outputs.names)
    ]


def _curve(axis: Axes, row: _Row, space: Space, chosen: np.ndarray, best: int) -> None:
    """Draw mean and band of a quantity over the only axis, with what was measured."""
    points = space.coordinates[:, 0]
    _band(axis, row, points, np.argsort(points), joined=not space.domain.is_categorical(0))
    if row.measured is not None:
        axis.scatter(points[chosen], row.measured, label="measured", **MEASURED)
    axis.axvline(points[best], color=ORANGE, linestyle=":", label="recommended")
    axis.set(xlabel=plain(space.names[0]), ylabel=plain(row.label))
    _scale(axis, space, 0)


def _maps(axes: np.ndarray, row: _Row, space: Space, chosen: np.ndarray, best: int) -> None:
    """Draw maps of a quantity's mean and deviation on a plane, with the points measured and the one recommended."""
    points = space.coordinates
    for axis, values, words in zip(axes, (row.mean, row.sd), ("posterior mean", "standard deviation"), strict=True):
        if values is None:
            axis.set_axis_off()
            continue
        limits: dict[str, Any] = {"vmin": 0.0, "vmax": 1.0} if row.label == FEASIBILITY else {}
        if space.domain.axes:
            shape = space.domain.grid_shape
            edges = [_edges(np.unique(points[:, number]), logarithmic=_logarithmic(space, number)) for number in (0, 1)]
            drawn: Any = axis.pcolormesh(*edges, values.reshape(shape).T, shading="flat", cmap=SHADES, rasterized=True, **limits)
        else:
            drawn = axis.scatter(points[:, 0], points[:, 1], c=values, cmap=SHADES, s=60, marker="s", **limits)
        axis.figure.colorbar(drawn, ax=axis)
        axis.grid(False)
        measured = chosen if row.measured is None else chosen[np.isfinite(row.measured)]
        axis.scatter(*points[measured].T, label="measured", **MEASURED)
        axis.scatter(*points[best], label="recommended", **RECOMMENDED)
        title = row.label if row.label == FEASIBILITY else f"{row.label}: {words}"
        axis.set(xlabel=plain(space.names[0]), ylabel=plain(space.names[1]), title=plain(title))
        _scale(axis, space, 0)
        _scale(axis, space, 1, vertical=True)


def _slice(axis: Axes, row: _Row, space: Space, number: int, best: int) -> None:
    """Draw mean and band of a quantity along one axis of a grid, through the recommended point."""
    shape = space.domain.grid_shape
    place: list[Any] = [int(index) for index in np.unravel_index(best, shape)]
    place[number] = slice(None)
    along = np.arange(space.domain.size).reshape(shape)[tuple(place)]
    points = space.coordinates[:, number]
    _band(axis, row, points, along, joined=not space.domain.is_categorical(number))
    axis.axvline(points[best], color=ORANGE, linestyle=":", label="recommended")
    axis.set(xlabel=plain(space.names[number]), ylabel=plain(row.label) if number == 0 else "")
    _scale(axis, space, number)


def _ordered(axis: Axes, row: _Row, outputs: Outputs, objective: np.ndarray) -> None:
    """Draw mean and band of a quantity at all points, from the best to the worst mean of the objective."""
    order = np.argsort(-outputs.objective.sign * objective)
    places = np.empty(len(order))
    places[order] = np.arange(len(order))
    _band(axis, row, places, order, joined=True)
    axis.set(xlabel="points, the best first", ylabel=plain(row.label))


def _band(axis: Axes, row: _Row, places: np.ndarray, along: np.ndarray, *, joined: bool) -> None:
    """Draw mean and bounds of a quantity at the points ``along [n]``: as a band, or, where the points have no order, as bars."""
    where, mean = places[along], row.mean[along]
    words = "posterior mean" if row.lower is not None else None
    if not joined:
        axis.plot(where, mean, "s", color=BLUE, label=words)
        if row.lower is not None and row.upper is not None:
            axis.vlines(where, row.lower[along], row.upper[along], color=BLUE, alpha=0.4, linewidth=6)
        return
    if row.lower is not None and row.upper is not None:
        axis.fill_between(where, row.lower[along], row.upper[along], color=BLUE, alpha=0.2, linewidth=0)
    axis.plot(where, mean, color=BLUE, label=words)


def _bound(axes: Iterable[Axes], outputs: Outputs, name: str) -> None:
    """Draw the bounds of a constraint as lines."""
    for constraint in outputs.constraints:
        if constraint.name == name:
            for number, (sign, bound) in enumerate(constraint.sides):
                label = "" if number else plain(str(constraint))
                for axis in axes:
                    axis.axhline(sign * bound, color=GREEN, linestyle="--", linewidth=1, label=label)


def _legend(figure: Drawing) -> None:
    """Say below the panels what their marks and lines are, each once."""
    found = {label: handle for axis in figure.axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    if found:
        figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=min(len(found), 4), fontsize=8)


def _edges(values: np.ndarray, *, logarithmic: bool) -> np.ndarray:
    """Return the edges ``[n + 1]`` of cells about ascending values ``[n]``, half way between them on their scale."""
    own = np.log(values) if logarithmic else values
    if len(own) < 2:
        return values + np.asarray([-0.5, 0.5])
    between = (own[1:] + own[:-1]) / 2
    edges = np.concatenate([[2 * own[0] - between[0]], between, [2 * own[-1] - between[-1]]])
    return np.exp(edges) if logarithmic else edges


def _logarithmic(space: Space, number: int) -> bool:
    return bool(space.axes) and space.axes[number].scale == "logarithmic"


def _scale(axis: Axes, space: Space, number: int, *, vertical: bool = False) -> None:
    """Set a scale to that of the user's axis: logarithmic, or a tick for each category."""
    if _logarithmic(space, number):
        axis.set_yscale("log") if vertical else axis.set_xscale("log")
    if space.domain.is_categorical(number):
        labels = [plain(label) for label in space.domain.categories[number]]
        places, margin = range(len(labels)), (-0.5, len(labels) - 0.5)
        if vertical:
            axis.set_yticks(places, labels)
            axis.set_ylim(*margin)
        else:
            slanted: dict[str, Any] = {"rotation": 30, "ha": "right"} if sum(map(len, labels)) > 24 else {}
            axis.set_xticks(places, labels, **slanted)
            axis.set_xlim(*margin)
