"""Maps of a learner's posterior on a plane after chosen rounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, QuadMesh
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from jaxbandit.core import checks
from jaxbandit.core.arguments import takes
from jaxbandit.core.fields import of_class, optional
from jaxbandit.domains import Domain
from jaxbandit.drawing import COLOURS, SHADES, STAR, grid_of_axes, in_style, place_legend, plain
from jaxbandit.engine import Trajectory
from jaxbandit.problems import AbstractProblem, optimum
from jaxbandit.problems.base import INSTANCE
from jaxbandit.report.beliefs import ROUNDS, RUN, SCORE, Frame, Score, frames_of, names_of
from jaxbandit.surrogates import Surrogate

MAP_PANEL = (3.1, 2.7)  # inches
TRIED: Any = {"linestyle": "none", "markerfacecolor": "white", "markeredgecolor": "black", "markeredgewidth": 0.7}
LATEST: Any = TRIED | {"markerfacecolor": COLOURS[5]}


@in_style
@takes(surrogate=of_class(Surrogate), trajectory=RUN, rounds=ROUNDS, problem=optional(INSTANCE), score=SCORE)
def posterior_maps(
    surrogate: Surrogate,
    trajectory: Trajectory,
    rounds: Sequence[int],
    *,
    problem: AbstractProblem | None = None,
    score: Score | None = None,
    axes: Any = None,
) -> np.ndarray:
    """Draw maps of one trial's posterior on a plane after chosen rounds: a row for each round.

    Columns are the mean and the standard deviation of every output and, if ``score`` is given, the acquisition of the next round, as
    the share of points with a lower score. Circles are the points tried so far, the orange one is the latest; the star is the optimum.
    Dashed lines enclose the region where the means of all constraints are feasible, solid lines the truly feasible region. All rows have
    the same colour scales.

    Args:
      surrogate, trajectory, rounds: as for :func:`posterior_after`; the domain is a two-dimensional product grid.
      problem: the instance that was run, for the optimum and the outline of the truly feasible region.
      score: the acquisition, such as :func:`penalised_bounds`.
      axes: Axes ``[rounds, columns]``; default new ones.

    Returns:
      The axes.

    Raises:
      InvalidArgument: on another kind of domain, or where :func:`posterior_after` raises it.
    """
    check_plane(surrogate)
    frames, heads = frames_of(surrogate, trajectory, rounds, score), headings(surrogate, score)
    scales, truth = scales_of(frames), truth_of(problem)
    grid = grid_of_axes(axes, len(frames), len(heads), MAP_PANEL)
    for row, frame in zip(grid, frames, strict=True):
        images = [panel(axis, surrogate, frame, c, scales[c], truth) for c, axis in enumerate(row)]
        row[0].set_ylabel(f"after round {frame.round}\n{name_of_axis(surrogate.domain, 1)}")
    for top, bottom, head in zip(grid[0], grid[-1], heads, strict=True):
        top.set_title(head)
        bottom.set_xlabel(name_of_axis(surrogate.domain, 0))
    for column, image in enumerate(images):
        grid[0, 0].figure.colorbar(image, ax=list(grid[:, column]), location="bottom", shrink=0.85, aspect=30)
    legend_below(grid[0, 0].figure, truth, frames, new=axes is None)
    return grid


def check_plane(item: Surrogate | AbstractProblem) -> None:
    """Raise ``InvalidArgument`` unless the domain is a two-dimensional product grid."""
    domain = item.domain
    if len(domain.grid_shape) != 2:
        raise checks.InvalidArgument(
            f"{'surrogate' if isinstance(item, Surrogate) else 'problem'}: maps need a two-dimensional product grid (domains.grid), not"
            f" {domain.size} points of dimension {domain.dimension}{'' if domain.axes else ' without axes'}"
        )


def name_of_axis(domain: Domain, number: int) -> str:
    """Return the label of an axis in figures: its name, or a letter where it has none."""
    if domain.names:
        return plain(domain.name_of(number))
    return f"$x_{number + 1}$" if domain.dimension > 1 else "$x$"


def is_categorical(domain: Domain) -> bool:
    """Say whether some axis of a plane holds categories, between which there is nothing."""
    return any(domain.is_categorical(number) for number in (0, 1))


def _between_cells(across: np.ndarray, up: np.ndarray, inside: np.ndarray) -> list[list[tuple[float, float]]]:
    """Return the sides ``[n]`` from point to point that part cells of ``inside [up, across]`` that differ, of cells about the values."""
    x, y = (np.concatenate([[1.5 * v[0] - 0.5 * v[1]], (v[1:] + v[:-1]) / 2, [1.5 * v[-1] - 0.5 * v[-2]]]) for v in (across, up))
    upright = [[(x[c + 1], y[r]), (x[c + 1], y[r + 1])] for r, c in zip(*np.nonzero(inside[:, 1:] != inside[:, :-1]), strict=True)]
    level = [[(x[c], y[r + 1]), (x[c + 1], y[r + 1])] for r, c in zip(*np.nonzero(inside[1:] != inside[:-1]), strict=True)]
    return [*upright, *level]


def tick_categories(axis: Axes, domain: Domain) -> None:
    """Put the names of categories, where an axis of the domain has such, at the ticks of a plane."""
    for number, ticks in enumerate((axis.xaxis, axis.yaxis)):
        if domain.is_categorical(number):
            names = [plain(name) for name in domain.categories[number]]
            ticks.set_ticks(range(len(names)), names)


def headings(surrogate: Surrogate, score: Score | None) -> list[str]:
    """Return the titles of the columns of maps."""
    heads = [f"{name}: {what}" for name in names_of(surrogate) for what in ("mean", "sd")]
    return [*heads, "acquisition: rank"] if score is not None else heads


def scales_of(frames: list[Frame]) -> list[tuple[float, float]]:
    """Return the least and the greatest finite value of each column, over all frames."""
    scales = []
    for column in range(len(frames[0].tables)):
        values = np.concatenate([frame.tables[column] for frame in frames])
        finite = values[np.isfinite(values)]
        scales.append((float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0))
    return scales


@dataclasses.dataclass(frozen=True)
class Truth:
    """True facts of an instance: its largest constraint ``[M]``, if it has one, and its best feasible point, if there is one."""

    worst: np.ndarray | None
    best: int | None


def truth_of(problem: AbstractProblem | None) -> Truth:
    """Return the facts of an instance, none without one."""
    if problem is None:
        return Truth(worst=None, best=None)
    best = optimum(problem)
    return Truth(worst=worst_of(np.asarray(problem.means)), best=int(best.index) if np.isfinite(float(best.value)) else None)


def worst_of(means: np.ndarray) -> np.ndarray | None:
    """Return the largest constraint value ``[M]``; ``None`` without constraints."""
    return means[1:].max(axis=0) if len(means) > 1 else None


def legend_below(figure: Any, truth: Truth, frames: list[Frame], *, new: bool) -> None:
    """Say what the marks and lines of maps are, under the panels of a figure of its own."""
    line: Any = {"color": "black", "linewidth": 1.4}
    handles = [Line2D([], [], marker="o", markersize=3.2, label="tried", **TRIED)]
    handles += [Line2D([], [], marker="o", markersize=6, label="latest", **LATEST)]
    handles += [Line2D([], [], marker="*", label="optimum", **STAR)] if truth.best is not None else []
    handles += [Line2D([], [], label="truly feasible", **line)] if truth.worst is not None else []
    handles += [Line2D([], [], linestyle="--", label="believed feasible", **line)] if frames[0].believed is not None else []
    place_legend(figure.axes[0], handles, new=new)


def panel(axis: Axes, surrogate: Surrogate, frame: Frame, column: int, scale: tuple[float, float], truth: Truth) -> QuadMesh:
    """Draw one table as a map with outlines and points; return the shaded image."""
    across, up = (np.asarray(values) for values in surrogate.domain.axes)
    table = np.ma.masked_invalid(frame.tables[column].reshape(surrogate.domain.grid_shape).T)  # the last axis is drawn upwards
    image = axis.pcolormesh(across, up, table, shading="nearest", cmap=SHADES, vmin=scale[0], vmax=scale[1], rasterized=True)
    outline(axis, surrogate.domain, truth.worst, "solid")
    outline(axis, surrogate.domain, frame.believed, "dashed")
    points = np.asarray(surrogate.domain.points)
    tried = points[frame.tried]
    marks = axis.plot(*tried[:-1].T, "o", markersize=3.2, clip_on=False, **TRIED) + axis.plot(
        *tried[-1:].T, "o", markersize=6, clip_on=False, **LATEST
    )
    if truth.best is not None:
        marks += axis.plot(*points[truth.best], "*", clip_on=False, **STAR)
    for mark in marks:
        mark.set_in_layout(False)  # marks that are not clipped would enlarge the panel
    axis.grid(False)
    if not is_categorical(surrogate.domain):
        axis.set(xlim=(across[0], across[-1]), ylim=(up[0], up[-1]))
    tick_categories(axis, surrogate.domain)
    return image


def outline(axis: Axes, domain: Domain, worst: np.ndarray | None, dash: str) -> None:
    """Draw the line on a plane where the largest constraint is zero, if it is anywhere."""
    if worst is None or not np.nanmin(worst, initial=np.inf) < 0 < np.nanmax(worst, initial=-np.inf):
        return
    across, up = (np.asarray(values) for values in domain.axes)
    table = np.ma.masked_invalid(worst.reshape(domain.grid_shape).T)
    style: Any = {"colors": "white", "linewidths": 1.2, "linestyles": dash}
    if is_categorical(domain):
        line: Any = axis.add_collection(LineCollection(_between_cells(across, up, np.asarray(table.filled(np.inf) > 0)), **style))
    else:
        line = axis.contour(across, up, table, levels=[0.0], **style)
    line.set(path_effects=[withStroke(linewidth=2.6, foreground="black")])  # visible on dark and on light shades
