"""Pictures of a problem as it is: its mean reward and constraints on a line or a plane."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from jaxbandit.core.arguments import takes
from jaxbandit.drawing import COLOURS, SHADES, STAR, grid_of_axes, in_style, place_legend
from jaxbandit.problems import AbstractProblem, optimum
from jaxbandit.problems.base import INSTANCE
from jaxbandit.report.beliefs import names_of
from jaxbandit.report.planes import check_plane, name_of_axis, outline, tick_categories, worst_of


@in_style
@takes(problem=INSTANCE)
def problem_maps(problem: AbstractProblem, *, axes: Any = None) -> np.ndarray:
    """Draw the mean reward and constraints of a problem on a line or a plane: the star is the optimum, infeasible points are shaded.

    Args:
      problem: one instance, on a one-dimensional domain or a two-dimensional product grid.
      axes: an Axes for each output; default new ones.

    Returns:
      The axes ``[outputs]``.

    Raises:
      InvalidArgument: on a domain of more dimensions.
    """
    means, domain = np.asarray(problem.means), problem.domain
    on_line = domain.dimension == 1
    if not on_line:
        check_plane(problem)
    row: np.ndarray = grid_of_axes(axes, 1, len(means), (3.9, 3.1))[0]
    best, feasible = optimum(problem), np.all(means[1:] <= 0, axis=0)
    place = np.asarray(domain.points)[int(best.index)] if feasible.any() else None
    for axis, values, name in zip(row, means, names_of(problem), strict=True):
        axis.set_title(name)
        if on_line:
            _true_curve(
                axis, np.asarray(domain.points)[:, 0], values, feasible, None if place is None else (place[0], values[int(best.index)])
            )
            axis.set_xlabel(name_of_axis(domain, 0))
            continue
        across, up = (np.asarray(values) for values in domain.axes)
        table = values.reshape(domain.grid_shape).T
        image = axis.pcolormesh(across, up, table, shading="nearest", cmap=SHADES, rasterized=True)
        axis.figure.colorbar(image, ax=axis)
        outline(axis, domain, worst_of(means), "solid")
        if place is not None:
            axis.plot(*place, "*", **STAR)
        axis.grid(False)
        axis.set(xlabel=name_of_axis(domain, 0), ylabel=name_of_axis(domain, 1))
        tick_categories(axis, domain)
    if place is not None and not on_line:
        handles = [Line2D([], [], marker="*", label="optimum", **STAR), Line2D([], [], color="black", label="edge of the feasible region")]
        place_legend(row[0], handles[: 1 + (len(means) > 1)], new=axes is None)
    return row


def _true_curve(axis: Axes, x: np.ndarray, values: np.ndarray, feasible: np.ndarray, best: tuple[float, float] | None) -> None:
    """Draw one true function over a line, with what is infeasible shaded and the optimum as a star."""
    order = np.argsort(x)
    axis.plot(x[order], values[order], color=COLOURS[0])
    bottom, top = axis.get_ylim()
    axis.fill_between(x[order], bottom, top, where=~feasible[order], step="mid", color="0.85", linewidth=0, zorder=0, label="infeasible")
    axis.set(ylim=(bottom, top), xlim=(x.min(), x.max()))
    if best is not None:
        axis.plot(*best, "*", label="optimum", **STAR)
    axis.legend(loc="best", fontsize=8)
