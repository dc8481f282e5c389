"""Figures of a session's beliefs and measurements in the user's units."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from jaxbandit.domains import Box, Domain
from jaxbandit.host import figures
from jaxbandit.host.figures import COLOURS, MARKERS, Drawing, Ground, Quantity, figure_of, pen, plain, styled
from jaxbandit.numerics.intervals import NORMAL_95
from jaxbandit.session.axes import Space
from jaxbandit.session.quantities import Outputs, readable

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

FEASIBILITY = "probability of feasibility"
# A slice shows points within this share of the other axes' ranges.
NEAR = 0.2


def belief_figure(
    space: Space, outputs: Outputs, belief: xr.Dataset, history: xr.Dataset, best: int, *, feasibility: bool = False
) -> Drawing:
    """Return a figure of beliefs with a row for each output.

    A line has a band, a plane has maps of mean and deviation, and more dimensions have slices along each axis. Slices go through the
    recommended point, number ``best``, and show measurements near them (:func:`nearness`). Points of more than two dimensions that form no
    grid are sorted by the objective. With ``feasibility`` a last row shows the probability that all constraints hold.
    """
    logarithmic = tuple(number for number, name in enumerate(space.names) if space.is_logarithmic(name))
    domain = Domain(points=space.modelled) if isinstance(space.domain, Box) else space.domain
    numbers = zip(space.columns.values(), space.modelled.T, strict=True)
    places = np.stack([scaled if column.dtype.kind == "U" else column for column, scaled in numbers], axis=-1)
    ground = Ground(domain, places, tuple(plain(space.label(name)) for name in space.names), logarithmic)
    chosen, rows, failed = history["index"].values, [], history["index"].values[history["state"].values == "failed"]
    for row, name in enumerate(outputs.names):
        held = belief.isel(output=row)
        band = {"low": held["lower"].values, "high": held["upper"].values}
        seen, limits = (chosen, history[name].values), _limits(outputs, name)
        rows.append(Quantity(outputs.label(name), held["mean"].values, held["sd"].values, **band, seen=seen, limits=limits))
    if feasibility:
        rows.append(Quantity(FEASIBILITY, belief["probability_of_feasibility"].values))
    courses = _courses(ground, best, np.argsort(-outputs.objective.sign * rows[0].mean))
    on_plane = space.domain.dimension == 2
    # Width and height of one panel in inches.
    size = (4.6, 3.4) if on_plane else (3.2, 2.7) if len(courses) > 1 else (6.4, 2.9)
    sliced = len(courses) > 1 and not on_plane
    place = ", ".join(f"{space.label(name)} = {readable(value)}" for name, value in space.point(best).items())
    title = textwrap.fill(plain(f"Slices through {place}"), 34 * len(courses)) if sliced else ""
    figure, panels = figure_of(len(rows), 2 if on_plane else len(courses), size, title=title, one_scale=len(courses) > 1)
    with styled():
        for axes, quantity in zip(panels, rows, strict=True):
            if on_plane:
                _maps(axes, quantity, ground, chosen, best, failed)
                continue
            for axis, (number, x, along) in zip(axes, courses, strict=True):
                shown = quantity
                if sliced and number is not None and quantity.seen is not None:
                    kept = _near(ground, best, number)[chosen]
                    shown = dataclasses.replace(quantity, seen=(chosen[kept], quantity.seen[1][kept]))
                if len(failed):
                    kept = failed[_near(ground, best, number)[failed]] if sliced and number is not None else failed
                    _cross_out(axis, x[kept])
                joined = number is None or not space.domain.is_categorical(number)
                figures.belief_curve(axis, shown, x, along, joined=joined, dots=nearness(space) if sliced else "measured")
                axis.axvline(x[best], color=COLOURS[1], linestyle=":", label="recommended")
                if number is None:
                    axis.set_xlabel("points, the best first")
                else:
                    ground.dress(axis, number)
                if number:
                    axis.set_ylabel("")
            if quantity.label == FEASIBILITY:
                axes[0].set_ylim(-0.05, 1.05)
        figures.place_legend(figure.axes)
    return figure


def nearness(space: Space) -> str:
    """Return a label for the measurements in a slice."""
    same = ", in the same category" if any(map(space.domain.is_categorical, range(space.domain.dimension))) else ""
    return f"measured within {NEAR:.0%} of the other axes' ranges{same}"


def _cross_out(axis: Axes, places: np.ndarray) -> None:
    """Draw crosses of failed runs at the foot of a panel."""
    foot = np.full(len(places), 0.03)
    axis.plot(places, foot, transform=axis.get_xaxis_transform(), label="failed", **MARKERS["failed"])


def history_figure(outputs: Outputs, history: xr.Dataset) -> Drawing:
    """Return a figure of the outputs' measurements and best values by ticket."""
    tickets = history["ticket"].values
    failed = tickets[history["state"].values == "failed"]
    figure, grid = figure_of(len(outputs.names), 1, (9.0, 2.6))
    with styled():
        for axis, name in zip(grid[:, 0], outputs.names, strict=True):
            axis.plot(tickets, history[name].values, "o", color=COLOURS[0], markersize=4, label="measured")
            axis.set(ylabel=plain(outputs.label(name)), xlim=(tickets[0] - 0.5, tickets[-1] + 0.5))
            if name == outputs.objective.name:
                axis.step(tickets, history["best_so_far"].values, where="post", color=COLOURS[1], label="best feasible so far")
            if len(failed):
                _cross_out(axis, failed)
            for limit, label in _limits(outputs, name):
                axis.axhline(limit, color=COLOURS[2], linestyle="--", linewidth=pen(0.7), label=label)
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
            axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small")
        grid[-1, 0].set_xlabel("ticket")
    return figure


def check_figure(outputs: Outputs, table: xr.Dataset, marked: Sequence[int]) -> Drawing:
    """Return a figure of measured against predicted values, and of residuals."""
    names, tickets = table["output"].values.tolist(), table["ticket"].values
    figure, grid = figure_of(len(names), 2, (4.6, 3.0))
    rings: Any = {"marker": "o", "linestyle": "none", "markersize": 9, "markerfacecolor": "none", "markeredgecolor": COLOURS[1]}
    with styled():
        for (left, right), name in zip(grid, names, strict=True):
            row, label = table.sel(output=name), plain(outputs.label(name))
            value, mean, sd, residual = (row[part].values for part in ("value", "mean", "sd", "residual"))
            is_marked = np.isin(tickets, marked)
            left.errorbar(
                mean, value, xerr=NORMAL_95 * sd, fmt="o", color=COLOURS[0], markersize=4, elinewidth=pen(0.7), label="95% interval"
            )
            left.plot(mean[is_marked], value[is_marked], label="least expected", **rings)
            left.axline((np.nanmean(value), np.nanmean(value)), slope=1, color="black", linewidth=pen(0.7), label="as predicted")
            left.set(xlabel=f"{label} predicted from the other runs", ylabel=f"{label} measured")
            left.xaxis.set_major_locator(MaxNLocator(5))
            right.plot(tickets, residual, "o", color=COLOURS[0], markersize=4)
            right.plot(tickets[is_marked], residual[is_marked], **rings)
            for bound in (-NORMAL_95, 0.0, NORMAL_95):
                right.axhline(bound, color="black", linewidth=pen(0.7), linestyle="--" if bound else "-")
            right.set(xlabel="ticket", ylabel=f"residual of {label} / deviation")
            right.xaxis.set_major_locator(MaxNLocator(integer=True))
        figures.place_legend(figure.axes)
    return figure


def reason_figure(
    outputs: Outputs, shown: Sequence[tuple[str, Mapping[str, float], Mapping[str, float]]], values: Mapping[str, float]
) -> Drawing:
    """Return a figure of beliefs at named points, by output."""
    figure, grid = figure_of(1, len(outputs.names), (3.6, 1.8))
    with styled():
        for number, (axis, name) in enumerate(zip(grid[0], outputs.names, strict=True)):
            for place, (_, mean, sd) in enumerate(shown):
                bars: Any = {"xerr": NORMAL_95 * sd[name], "label": "" if place else "belief, 95% interval"}
                axis.errorbar(mean[name], place, fmt="s", color=COLOURS[0], **bars)
            if name in values:
                axis.plot(values[name], 0, "o", color=COLOURS[1], label="measured since")
            for limit, label in _limits(outputs, name):
                axis.axvline(limit, color=COLOURS[2], linestyle="--", linewidth=pen(0.7), label=label)
            axis.set(xlabel=plain(outputs.label(name)), ylim=(max(1, len(shown)) - 0.5, -0.5))
            axis.set_yticks(range(len(shown)), [words for words, *_ in shown] if number == 0 else [""] * len(shown))
        figures.place_legend(figure.axes)
    return figure


def _limits(outputs: Outputs, name: str) -> list[tuple[float, str]]:
    """Return an output's bounds with labels, the first the constraint's text."""
    return [
        (sign * bound, "" if number else plain(str(constraint)))
        for constraint in outputs.constraints
        if constraint.name == name
        for number, (sign, bound) in enumerate(constraint.sides)
    ]


def _courses(ground: Ground, best: int, order: np.ndarray) -> list[tuple[int | None, np.ndarray, np.ndarray]]:
    """Return coordinates, places ``[M]`` and sorted points ``[n]`` of lines through ``best``."""
    domain = ground.domain
    if domain.dimension == 1:
        return [(0, ground.points[:, 0], np.argsort(ground.points[:, 0]))]
    if not domain.axes:
        return [(None, np.argsort(order), order)]
    places = np.stack(np.unravel_index(np.arange(domain.size), domain.grid_shape), axis=-1)
    others = [np.delete(places == places[best], number, axis=1).all(axis=1) for number in range(domain.dimension)]
    return [(number, ground.points[:, number], np.flatnonzero(other)) for number, other in enumerate(others)]


def _near(ground: Ground, best: int, number: int) -> np.ndarray:
    """Return whether points ``[M]`` are near the line through ``best`` along ``number``."""
    points = np.asarray(ground.domain.points, np.float64)
    most = [0 if ground.domain.is_categorical(axis) else NEAR for axis in range(points.shape[1])]
    far = np.abs(points - points[best]) > most * np.ptp(points, axis=0) + 1e-9
    return ~np.delete(far, number, axis=1).any(axis=1)


def _maps(axes: np.ndarray, quantity: Quantity, ground: Ground, chosen: np.ndarray, best: int, failed: np.ndarray) -> None:
    """Draw maps of mean and deviation, with points and bounds."""
    measured = chosen if quantity.seen is None else chosen[np.isfinite(quantity.seen[1])]
    for axis, values, words in zip(axes, (quantity.mean, quantity.sd), ("posterior mean", "standard deviation"), strict=True):
        if values is None:
            axis.set_axis_off()
            continue
        image = figures.shade(axis, ground, values, (0.0, 1.0) if quantity.label == FEASIBILITY else (None, None))
        axis.figure.colorbar(image, ax=axis)
        axis.plot(*ground.points[measured].T, label="measured", **MARKERS["measured"])
        if len(failed):
            axis.plot(*ground.points[failed].T, label="failed", **MARKERS["failed"])
        axis.plot(*ground.points[best], "*", label="recommended", **MARKERS["best"])
        axis.set_title(plain(quantity.label if quantity.label == FEASIBILITY else f"{quantity.label}: {words}"))
    if quantity.limits:
        figures.outline(
            axes[0], ground, quantity.mean, f"mean at the bounds of {plain(quantity.label)}", levels=[limit for limit, _ in quantity.limits]
        )
