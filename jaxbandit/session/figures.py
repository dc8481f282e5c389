"""Figures of a session: what it believes of every output, and what was measured, in the user's own units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxbandit.session.axes import Space
from jaxbandit.session.outputs import Outputs

if TYPE_CHECKING:
    import xarray as xr

BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"  # of Okabe and Ito's palette, which colour-blind people can tell apart
MEASURED: dict[str, Any] = {"marker": "o", "s": 22, "c": "white", "edgecolors": "black", "linewidths": 1.0, "zorder": 3}
RECOMMENDED: dict[str, Any] = {"marker": "*", "s": 150, "c": ORANGE, "edgecolors": "black", "linewidths": 0.8, "zorder": 4}
STYLE: Any = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25}


def belief_figure(space: Space, outputs: Outputs, belief: xr.Dataset, history: xr.Dataset, best: int) -> Figure:
    """Return a figure with a row for each output: a band on a line, maps of mean and deviation on a plane, else slices along each axis.

    Slices go through the recommended point, number ``best``. A set of points of more than two dimensions that is no grid is shown in the
    order of the objective.
    """
    dimension, names = space.domain.dimension, outputs.names
    columns = 1 if dimension == 1 else 2 if dimension == 2 else dimension if space.domain.axes else 1
    with rc_context(STYLE):
        figure = Figure(figsize=(max(4.6 * columns, 6.0), 3.3 * len(names)), layout="constrained")
        panels = figure.subplots(len(names), columns, squeeze=False)
        for row, name in zip(panels, names, strict=True):
            if dimension == 1:
                _curve(row[0], belief, history, space, name, best)
            elif dimension == 2:
                _maps(figure, row, belief, history, space, name, best)
            elif space.domain.axes:
                for number, axis in enumerate(row):
                    _slice(axis, belief, space, number, name, best)
            else:
                _ordered(row[0], belief, outputs, name)
            if dimension != 2:
                _bound(row, outputs, name)
        panels[0][0].legend(loc="best", fontsize=8) if dimension == 1 else None
    return figure


def history_figure(outputs: Outputs, history: xr.Dataset) -> Figure:
    """Return a figure of what was measured by ticket: the objective with the best feasible value so far, then each constraint."""
    tickets = history["ticket"].values
    with rc_context(STYLE):
        figure = Figure(figsize=(9.0, 2.7 * len(outputs.names)), layout="constrained")
        panels = figure.subplots(len(outputs.names), 1, squeeze=False, sharex=True)[:, 0]
        for axis, name in zip(panels, outputs.names, strict=True):
            axis.plot(tickets, history[name].values, "o", color=BLUE, markersize=4, label="measured")
            axis.set_ylabel(_plain(name))
            if name == outputs.objective.name:
                axis.step(tickets, history["best_so_far"].values, where="post", color=ORANGE, label="best feasible so far")
            _bound([axis], outputs, name)
            axis.legend(loc="best", fontsize=8)
        panels[-1].set_xlabel("ticket")
        panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def _curve(axis: Axes, belief: xr.Dataset, history: xr.Dataset, space: Space, name: str, best: int) -> None:
    """Draw mean and band of an output over the only axis, with what was measured."""
    own, points = belief.sel(output=name), space.coordinates[:, 0]
    order = np.argsort(points)
    axis.fill_between(points[order], own["lower"].values[order], own["upper"].values[order], color=BLUE, alpha=0.2, linewidth=0)
    axis.plot(points[order], own["mean"].values[order], color=BLUE, label="posterior mean")
    axis.scatter(points[history["index"].values], history[name].values, label="measured", **MEASURED)
    axis.axvline(points[best], color=ORANGE, linestyle=":", label="recommended")
    axis.set(xlabel=_plain(space.names[0]), ylabel=_plain(name))
    _scale(axis, space, 0)


def _maps(figure: Figure, row: np.ndarray, belief: xr.Dataset, history: xr.Dataset, space: Space, name: str, best: int) -> None:
    """Draw maps of an output's mean and deviation on a plane, with the points measured and the one recommended."""
    points, own = space.coordinates, belief.sel(output=name)
    for axis, which in zip(row, ("mean", "sd"), strict=True):
        values = own[which].values
        if space.domain.axes:
            shape = space.domain.grid_shape
            first, second = points[:, 0].reshape(shape), points[:, 1].reshape(shape)
            drawn: Any = axis.pcolormesh(first, second, values.reshape(shape), shading="nearest", cmap="cividis", rasterized=True)
        else:
            drawn = axis.scatter(points[:, 0], points[:, 1], c=values, cmap="cividis", s=30)
        figure.colorbar(drawn, ax=axis)
        axis.grid(False)
        measured = np.isfinite(history[name].values)
        axis.scatter(*points[history["index"].values[measured]].T, **MEASURED)
        axis.scatter(*points[best], **RECOMMENDED)
        title = f"{name}: {'posterior mean' if which == 'mean' else 'standard deviation'}"
        axis.set(xlabel=_plain(space.names[0]), ylabel=_plain(space.names[1]), title=_plain(title))
        _scale(axis, space, 0)
        if space.axes and space.axes[1].scale == "logarithmic":
            axis.set_yscale("log")
        if space.domain.is_categorical(1):
            axis.set_yticks(range(len(space.domain.categories[1])), [_plain(label) for label in space.domain.categories[1]])


def _slice(axis: Axes, belief: xr.Dataset, space: Space, number: int, name: str, best: int) -> None:
    """Draw mean and band of an output along one axis of a grid, through the recommended point."""
    shape, own = space.domain.grid_shape, belief.sel(output=name)
    place: list[Any] = [int(index) for index in np.unravel_index(best, shape)]
    here = place[number]
    place[number] = slice(None)
    cut = {which: own[which].values.reshape(shape)[tuple(place)] for which in ("mean", "lower", "upper")}
    points = space.coordinates[:, number].reshape(shape)[tuple(place)]
    axis.fill_between(points, cut["lower"], cut["upper"], color=BLUE, alpha=0.2, linewidth=0)
    axis.plot(points, cut["mean"], color=BLUE)
    axis.axvline(points[here], color=ORANGE, linestyle=":")
    axis.set(xlabel=_plain(space.names[number]), ylabel=_plain(name))
    _scale(axis, space, number)


def _ordered(axis: Axes, belief: xr.Dataset, outputs: Outputs, name: str) -> None:
    """Draw mean and band of an output at all points, from the best to the worst mean of the objective."""
    order = np.argsort(-outputs.objective.sign * belief["mean"].values[0])
    own, places = belief.sel(output=name), np.arange(len(order))
    axis.fill_between(places, own["lower"].values[order], own["upper"].values[order], color=BLUE, alpha=0.2, linewidth=0)
    axis.plot(places, own["mean"].values[order], color=BLUE)
    axis.set(xlabel="points, the best first", ylabel=_plain(name))


def _bound(row: Any, outputs: Outputs, name: str) -> None:
    """Draw the bounds of a constraint as lines."""
    for constraint in outputs.constraints:
        if constraint.name == name:
            for number, (sign, bound) in enumerate(constraint.sides):
                label = "" if number else _plain(str(constraint))
                for axis in row:
                    axis.axhline(sign * bound, color=GREEN, linestyle="--", linewidth=1, label=label)


def _scale(axis: Axes, space: Space, number: int) -> None:
    """Set the horizontal scale to that of the user's axis."""
    if space.axes and space.axes[number].scale == "logarithmic":
        axis.set_xscale("log")
    if space.domain.is_categorical(number):
        axis.set_xticks(range(len(space.domain.categories[number])), [_plain(label) for label in space.domain.categories[number]])


def _plain(label: str) -> str:
    """Return a label with dollar signs escaped, so that they start no formula."""
    return label.replace("$", r"\$")
