"""Panels of quantities over a line or a plane, for reports and sessions: bands, maps, outlines, and marks of points."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.patheffects import withStroke

from jaxbandit.domains import Domain
from jaxbandit.drawing import COLOURS, SHADES, plain

BLUE, ORANGE, GREEN = COLOURS[:3]
DOT: Any = {"marker": "o", "linestyle": "none", "markersize": 4.5, "markerfacecolor": "white", "markeredgecolor": "black"}
OUTLINED = [withStroke(linewidth=2.6, foreground="black")]  # of white lines: visible on dark and on light shades


@dataclasses.dataclass(frozen=True)
class Ground:
    """Points ``[M, d]`` of a figure in its units, and how their coordinates are named and scaled."""

    domain: Domain
    points: np.ndarray
    names: tuple[str, ...]
    logarithmic: tuple[int, ...] = ()

    @classmethod
    def of(cls, domain: Domain) -> Ground:
        """Return the points of a domain, with letters for coordinates that have no names."""
        letters = ("$x$",) if domain.dimension == 1 else tuple(f"$x_{number + 1}$" for number in range(domain.dimension))
        return cls(domain, np.asarray(domain.points, np.float64), tuple(map(plain, domain.names)) or letters)

    def edges(self, number: int) -> np.ndarray:
        """Return the edges ``[n + 1]`` of cells about the values of a coordinate, half way between them on their scale."""
        values = np.unique(self.points[:, number])
        if len(values) < 2:
            return values + np.asarray([-0.5, 0.5])
        scaled = np.log(values) if number in self.logarithmic else values
        between = (scaled[1:] + scaled[:-1]) / 2
        edges = np.concatenate([[2 * scaled[0] - between[0]], between, [2 * scaled[-1] - between[-1]]])
        return np.exp(edges) if number in self.logarithmic else edges

    def dress(self, axis: Axes, *numbers: int) -> None:
        """Give the axes of a panel the names and scales of coordinates: logarithmic, or with a tick for each category."""
        for number, letter, ticks in zip(numbers, "xy", (axis.xaxis, axis.yaxis), strict=False):
            axis.set(**{f"{letter}label": self.names[number]})
            if number in self.logarithmic:
                axis.set(**{f"{letter}scale": "log"})
            if self.domain.is_categorical(number):
                labels = [plain(label) for label in self.domain.categories[number]]
                slanted: Any = {"rotation": 30, "ha": "right"} if letter == "x" and sum(map(len, labels)) > 24 else {}
                ticks.set_ticks(range(len(labels)), labels, **slanted)
                axis.set(**{f"{letter}lim": (-0.5, len(labels) - 0.5)})


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A quantity at every point ``[M]``: posterior mean and, where known, deviation, bounds of a band, truth and measurements.

    Attributes:
      label: its name.
      mean, sd, low, high, truth: ``[M]`` each.
      seen: points ``[n]`` by number and values measured there, NaN where none has arrived.
      limits: values at which a constraint begins to be violated, with their labels.
    """

    label: str
    mean: np.ndarray
    sd: np.ndarray | None = None
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    truth: np.ndarray | None = None
    seen: tuple[np.ndarray, np.ndarray] | None = None
    limits: Sequence[tuple[float, str]] = ()


def belief_curve(axis: Axes, quantity: Quantity, x: np.ndarray, along: np.ndarray, *, joined: bool = True, band: str = "") -> None:
    """Draw a quantity at the points ``along [n]`` over their places ``x [M]``: mean and band, or bars where points have no order."""
    at, mean = x[along], quantity.mean[along]
    words = "posterior mean" if quantity.low is not None else None
    axis.plot(at, mean, "-" if joined else "s", color=BLUE, label=words)
    if quantity.low is not None and quantity.high is not None:
        if joined:
            axis.fill_between(at, quantity.low[along], quantity.high[along], color=BLUE, alpha=0.2, linewidth=0, label=band or None)
        else:
            axis.vlines(at, quantity.low[along], quantity.high[along], color=BLUE, alpha=0.4, linewidth=6)
    if quantity.truth is not None:
        axis.plot(at, quantity.truth[along], color="black", linestyle=":", linewidth=1.2, label="truth")
    if quantity.seen is not None:
        axis.plot(x[quantity.seen[0]], quantity.seen[1], label="measured", **DOT)
    for limit, label in quantity.limits:
        axis.axhline(limit, color=GREEN, linestyle="--", linewidth=1, label=label)
    axis.set_ylabel(plain(quantity.label))


def shade(axis: Axes, ground: Ground, values: np.ndarray, limits: tuple[float | None, float | None] = (None, None)) -> ScalarMappable:
    """Draw values ``[M]`` over a plane as shaded cells, of bare points as squares; return the image."""
    style: Any = {"cmap": SHADES, "vmin": limits[0], "vmax": limits[1]}
    if ground.domain.axes:
        table = np.ma.masked_invalid(values.reshape(ground.domain.grid_shape).T)  # the last axis is drawn upwards
        image: ScalarMappable = axis.pcolormesh(ground.edges(0), ground.edges(1), table, shading="flat", rasterized=True, **style)
    else:
        image = axis.scatter(ground.points[:, 0], ground.points[:, 1], c=values, s=60, marker="s", **style)
    axis.grid(False)
    ground.dress(axis, 0, 1)
    return image


def outline(
    axis: Axes, ground: Ground, values: np.ndarray | None, label: str, *, levels: Sequence[float] = (0.0,), dash: str = "--"
) -> None:
    """Draw the lines on a grid on a plane where values ``[M]`` cross ``levels``, if they do anywhere."""
    if values is None or min(ground.domain.grid_shape, default=0) < 2:
        return
    axis.plot([], [], color="black", linewidth=1.4, linestyle=dash, label=label)
    crossed = sorted({level for level in levels if np.nanmin(values, initial=np.inf) < level < np.nanmax(values, initial=-np.inf)})
    if not crossed:
        return
    table = np.ma.masked_invalid(values.reshape(ground.domain.grid_shape).T)
    style: Any = {"colors": "white", "linewidths": 1.2, "linestyles": dash}
    if any(ground.domain.is_categorical(number) for number in (0, 1)):  # between which there is nothing
        sides = [side for level in crossed for side in _sides(ground, np.asarray(table.filled(np.inf) > level))]
        line: Any = axis.add_collection(LineCollection(sides, **style))
    else:
        line = axis.contour(*(np.unique(ground.points[:, number]) for number in (0, 1)), table, levels=crossed, **style)
    line.set(path_effects=OUTLINED)


def _sides(ground: Ground, inside: np.ndarray) -> list[list[tuple[float, float]]]:
    """Return the sides, from point to point, that part cells of ``inside [up, across]`` that differ."""
    x, y = ground.edges(0), ground.edges(1)
    upright = [[(x[c + 1], y[r]), (x[c + 1], y[r + 1])] for r, c in zip(*np.nonzero(inside[:, 1:] != inside[:, :-1]), strict=True)]
    level = [[(x[c], y[r + 1]), (x[c + 1], y[r + 1])] for r, c in zip(*np.nonzero(inside[1:] != inside[:-1]), strict=True)]
    return [*upright, *level]
