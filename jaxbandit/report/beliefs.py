"""A learner's beliefs, replayed from its trajectory: arrays, curves, maps and animations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from matplotlib import rcParams
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import Array, checked
from jaxbandit.core.fields import MOST_ROUNDS, function, integers_from, nonnegative, positive, scalar, vector
from jaxbandit.core.pytree import canonicalise, float_dtype, replace
from jaxbandit.delays import NEVER
from jaxbandit.domains import Box, Contextual, Domain, product
from jaxbandit.engine import Trajectory
from jaxbandit.host import figures
from jaxbandit.problems import AbstractProblem, BoxProblem, optimum
from jaxbandit.problems.base import Instance
from jaxbandit.results.dataset import output_names
from jaxbandit.surrogates import BoxSurrogate, Posterior, Prediction, Surrogate, arithmetic

if TYPE_CHECKING:
    from matplotlib.animation import FuncAnimation

# An acquisition to map: takes the posterior of one round, the round's multipliers [m] and its number; returns the score [M].
Acquisition: TypeAlias = Annotated[Callable[[Prediction, np.ndarray, int], Array], function("(belief, multipliers, t)")]

BandWidth: TypeAlias = Annotated[float, positive, scalar]
RoundNumbers: TypeAlias = Annotated[Sequence[int], integers_from(0, MOST_ROUNDS), vector("the numbers of rounds")]


@checked
def posterior_after(surrogate: Surrogate, trajectory: Trajectory, rounds: RoundNumbers) -> Prediction:
    """Compute the posterior of one trial after some of its rounds.

    It is conditioned on every value that had arrived by the end of the round, including the values of the initial design. A learner
    under :class:`~jaxbandit.feedback.Wait` has the same information when it chooses its next point.

    Args:
      surrogate: the model that was run.
      trajectory: trajectory of one trial, without leading axes (``run.trial(3)``), recorded with values.
      rounds: ``n`` rounds in ``[0, T]``; 0 means before the first.

    Returns:
      Means and standard deviations ``[n, k, M]``, information gains ``[n, k]``. On a box the points are its candidates, the
      points of the initial design and the points of the rounds, in this order.

    Raises:
      InvalidArgument: on a trajectory of many trials or without values, or a round out of range.
    """
    return _after(surrogate, trajectory, rounds)


def _after(surrogate: Surrogate, trajectory: Trajectory, rounds: Sequence[int], where: np.ndarray | None = None) -> Prediction:
    """Return the posterior at the domain's points, or at a box's ``where``."""
    places, values, due = _course(trajectory)
    if (trajectory.points is not None) != isinstance(surrogate, BoxSurrogate):
        raise InvalidArgument("trajectory: of it and the surrogate one is on a box and the other is not; give the model that was run")
    horizon = len(np.asarray(trajectory.indices))
    if np.max(rounds) > horizon:
        raise InvalidArgument(f"rounds: must be at most {horizon}, the last round, got {checks.short(rounds)}")
    # Values of one point that arrive at different times need a factor for each output.
    model = surrogate if (due == due[:, :1]).all() else surrogate.separate()
    with arithmetic([model.precision]) as switched:
        model = canonicalise(model).factorised()
        belief = _predictions_along(model, places, values.astype(float_dtype()), due, np.asarray(rounds, np.int32), where)
    # Outside this block JAX would round its own arrays.
    return jax.tree.map(np.asarray, belief) if switched else belief


def _course(trajectory: Trajectory) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return one trial's points, ``values [N, k]`` and ``arrivals [N, k]``."""
    if trajectory.values is None:
        raise InvalidArgument("trajectory: has no values; run it with record='all'")
    if np.ndim(trajectory.indices) != 1:
        raise InvalidArgument(f"trajectory: of many trials, shape {list(np.shape(trajectory.indices))}; take one by run.trial(0)")
    first, values = np.asarray(trajectory.initial_values), np.asarray(trajectory.values)
    at_once = np.broadcast_to(np.arange(1, len(values) + 1, dtype=np.int32)[:, None], values.shape)
    due = np.where(np.isnan(values), NEVER, at_once if trajectory.arrivals is None else np.asarray(trajectory.arrivals))
    places = np.concatenate([np.asarray(trajectory.initial_indices), np.asarray(trajectory.indices)]).astype(np.int32)
    if trajectory.points is not None:
        places = np.concatenate([np.asarray(trajectory.initial_points), np.asarray(trajectory.points)])
    return places, np.concatenate([first, values]), np.concatenate([np.zeros(first.shape, np.int32), due])


@jax.jit
def _predictions_along(surrogate: Surrogate, places: Array, values: Array, due: Array, rounds: Array, where: Array | None) -> Prediction:
    """Return the predictions after ``rounds [n]`` of values due at ``due``."""
    if isinstance(surrogate, BoxSurrogate):
        surrogate, prior, indices = surrogate.holding(places)
    else:
        prior, indices = surrogate.init(), places

    def after(last: Array) -> Prediction:
        def observe(posterior: Posterior, seen: tuple[Array, Array, Array]) -> tuple[Posterior, None]:
            index, value, when = seen
            return surrogate.condition(posterior, index, value, when <= last), None

        last_posterior, _ = jax.lax.scan(observe, prior, (indices, values, due))
        belief = surrogate.belief(last_posterior)
        if where is not None:
            belief = belief.at(cast(Box, surrogate.domain).to_unit(jnp.asarray(where, surrogate.dtype)))
        return belief.prediction

    return jax.lax.map(after, rounds)


@checked
def penalised_bounds(
    reward_width: Annotated[float, nonnegative, scalar], cost_width: Annotated[float, nonnegative, scalar], *, rectified: bool = True
) -> Acquisition:
    """Return RPOL-UCB's score ``UCB_f - sum_j Q_j LCB_{g_j}^+``, or CBO-UCB's unless ``rectified``."""

    def score(belief: Prediction, multipliers: np.ndarray, t: int) -> Array:
        costs = belief.mean[1:] - cost_width * belief.sd[1:]
        costs = jnp.maximum(costs, 0) if rectified else costs
        weights = jnp.asarray(multipliers, costs.dtype)[:, None]
        return belief.mean[0] + reward_width * belief.sd[0] - jnp.sum(weights * costs, axis=0)

    return score


@figures.styled()
@checked
def problem_maps(problem: Instance, *, axes: figures.GivenAxes = None) -> np.ndarray:
    """Draw a problem's means, its optimum (the star) and its feasible region.

    Args:
      problem: one instance, on a one-dimensional domain, a two-dimensional product grid, or a box of one or two dimensions.
      axes: an Axes for each output; default new ones.

    Returns:
      The axes ``[outputs]``.

    Raises:
      InvalidArgument: on a domain of more dimensions.
    """
    ground, on_line = _ground("problem", problem.domain), problem.domain.dimension == 1
    means, star = _means(problem, ground), _star(problem)
    row: np.ndarray = figures.grid_of_axes(axes, 1, len(means), (3.9, 3.1))[0]
    feasible, x, order = np.all(means[1:] <= 0, axis=0), ground.points[:, 0], np.argsort(ground.points[:, 0])
    for j, (axis, values, name) in enumerate(zip(row, means, output_names(len(means)), strict=True)):
        axis.set_title(name)
        if on_line:
            axis.plot(x[order], values[order], color=figures.COLOURS[0])
            low, high = axis.get_ylim()
            shaded: Any = {"step": "mid", "color": "0.85", "linewidth": 0, "zorder": 0, "label": "infeasible"}
            axis.fill_between(x[order], low, high, where=~feasible[order], **shaded)
            axis.set(ylim=(low, high), xlim=(x.min(), x.max()))
            ground.dress(axis, 0)
        else:
            axis.figure.colorbar(figures.shade(axis, ground, values), ax=axis)
            figures.outline(axis, ground, _worst(means), "edge of the feasible region", dash="-")
        if star is not None:
            axis.plot(*star[0], *([star[1][j]] if on_line else []), "*", label="optimum", **figures.MARKERS["best"])
    figures.place_legend(row, new=axes is None)
    return row


@figures.styled()
@checked
def posterior_curves(
    surrogate: Surrogate,
    trajectory: Trajectory,
    rounds: RoundNumbers,
    *,
    width: BandWidth = 2.0,
    problem: Instance | None = None,
    score: Acquisition | None = None,
    axes: figures.GivenAxes = None,
) -> np.ndarray:
    """Draw curves of one trial's posterior on a line after chosen rounds.

    Each round has a row, each output and the score a column. Bands are ``width`` standard deviations about the posterior mean, dots the
    values observed so far, and dotted lines the truth. The vertical line is the next point, the star the optimum; a constraint is satisfied
    below the line at zero.

    Args:
      surrogate, trajectory, rounds: as for :func:`posterior_after`; the domain is one-dimensional.
      width: half-width of the bands in standard deviations, such as the confidence width of the algorithm.
      problem: the instance that was run; with it the truth and the optimum are drawn.
      score: the acquisition of the next round, such as :func:`penalised_bounds`.
      axes: Axes ``[rounds, columns]``; default new ones.

    Returns:
      The axes.

    Raises:
      InvalidArgument: on a domain of more dimensions, a width that is not positive, or where :func:`posterior_after` raises it.
    """
    if surrogate.domain.dimension != 1:
        raise InvalidArgument(
            f"surrogate: curves need a one-dimensional domain, not dimension {surrogate.domain.dimension}; see posterior_maps"
        )
    return _Shown(surrogate, trajectory, rounds, problem, score, width).drawn(axes)


@figures.styled()
@checked
def posterior_maps(
    surrogate: Surrogate,
    trajectory: Trajectory,
    rounds: RoundNumbers,
    *,
    problem: Instance | None = None,
    score: Acquisition | None = None,
    axes: figures.GivenAxes = None,
) -> np.ndarray:
    """Draw maps of one trial's posterior on a plane after chosen rounds.

    Each round has a row. Columns are the mean and the standard deviation of every output and, if ``score`` is given, the acquisition of the
    next round, as the share of points with a lower score. Circles are the points tried so far, the orange circle is the latest point; the
    star is the optimum. Dashed lines enclose the region where the posterior means of all constraints are feasible, solid lines the truly
    feasible region. All rows have the same colour scales.

    Args:
      surrogate, trajectory, rounds: as for :func:`posterior_after`; the domain is a two-dimensional product grid or box.
      problem: the instance that was run; with it the optimum and the outline of the truly feasible region are drawn.
      score: the acquisition, such as :func:`penalised_bounds`.
      axes: Axes ``[rounds, columns]``; default new ones.

    Returns:
      The axes.

    Raises:
      InvalidArgument: on another kind of domain, or where :func:`posterior_after` raises it.
    """
    _check_plane("surrogate", surrogate.domain)
    return _Shown(surrogate, trajectory, rounds, problem, score).drawn(axes)


@checked
def posterior_animation(
    surrogate: Surrogate,
    trajectory: Trajectory,
    rounds: RoundNumbers,
    *,
    title: str = "",
    width: BandWidth = 2.0,
    problem: Instance | None = None,
    score: Acquisition | None = None,
) -> FuncAnimation:
    """Return an animation of ``posterior_maps`` or, on a line, ``posterior_curves``.

    Its ``save("trial.gif", writer="pillow")`` writes a file, its ``to_jshtml()`` shows it in a notebook. Arguments and errors are those of
    the two functions, apart from ``title``, the heading of each frame.
    """
    from matplotlib.animation import FuncAnimation

    shown = _Shown(surrogate, trajectory, rounds, problem, score, width)
    size, columns = (shown.size[0], shown.size[1] + 0.9), len(shown.limits)
    figure, grid = figures.figure_of(1, columns, size)
    with figures.styled():
        shown.scales(figure, grid[0])

    @figures.styled()
    def draw(frame: _Frame) -> list[Artist]:
        for axis in grid.flat:
            axis.clear()
            # Clearing an axis removes its grid.
            axis.grid(rcParams["axes.grid"], alpha=rcParams["grid.alpha"])
        shown.draw(grid[0], frame)
        figure.suptitle(f"{figures.plain(title)}{', ' if title else ''}after round {frame.round}")
        return []

    draw(shown.frames[0])
    with figures.styled():
        figures.place_legend(grid.flat)
    return FuncAnimation(figure, draw, frames=shown.frames, init_func=list, cache_frame_data=False, interval=500, repeat=True)


@figures.styled()
@checked
def safe_set(
    surrogate: Surrogate, trajectory: Trajectory, *, problem: Instance | None = None, width: BandWidth = 3.0, ax: Axes | None = None
) -> Axes:
    """Draw when each point was first certified safe, and the tried points.

    A point is certified once the upper bounds of all constraints, ``width`` deviations above the mean, are at most 0. On a plane colours
    are rounds, and a solid line is the edge of the truly feasible region. On a line rounds go upwards and infeasible points are shaded.

    Args:
      surrogate, trajectory: as for :func:`posterior_after`; the domain is a line or a two-dimensional product grid.
      problem: the instance that was run; with it the truly feasible region is drawn.
      width: standard deviations from the mean to the upper bound, > 0, such as the algorithm's ``cost_width``.
      ax: the axes to draw on; default new ones.

    Returns:
      The axes.

    Raises:
      InvalidArgument: on another kind of domain, a model without constraints, or where :func:`posterior_after` raises it.
    """
    ground, on_line = _ground("surrogate", surrogate.domain), surrogate.domain.dimension == 1
    if surrogate.outputs == 1:
        raise InvalidArgument("surrogate: must model constraints, for without any every point is safe")
    rounds = np.arange(len(np.asarray(trajectory.indices)) + 1)
    belief = _after(surrogate, trajectory, rounds.tolist(), ground.points if isinstance(surrogate.domain, Box) else None)
    certified = np.all(belief.mean[:, 1:] + float(width) * belief.sd[:, 1:] <= 0, axis=1)  # [T + 1, M]
    tried = np.asarray(trajectory.points if trajectory.points is not None else ground.points[np.asarray(trajectory.indices)])
    worst, axis = _worst(None if problem is None else _means(problem, ground)), figures.one_axis(ax)
    if on_line:
        order = np.argsort(ground.points[:, 0])
        x = ground.points[order, 0]
        shown = np.ma.masked_equal(certified[:, order], 0)
        axis.pcolormesh(x, rounds, shown, cmap=ListedColormap([figures.COLOURS[0]]), alpha=0.45, shading="nearest", rasterized=True)
        axis.fill_between(x[[0, -1]], 0, 0, color=figures.COLOURS[0], alpha=0.45, linewidth=0, label="certified")
        if worst is not None:
            shaded: Any = {"step": "mid", "color": "0.85", "linewidth": 0, "zorder": 0, "label": "infeasible"}
            axis.fill_between(x, 0, rounds[-1], where=worst[order] > 0, **shaded)
        axis.plot(tried[:, 0], rounds[1:], ".", color=figures.COLOURS[1], label="tried")
        axis.set(ylabel="round $t$", ylim=(0, rounds[-1]))
        ground.dress(axis, 0)
    else:
        first = np.where(certified.any(axis=0), certified.argmax(axis=0), np.nan)
        image = figures.shade(axis, ground, first, (0, rounds[-1]))
        axis.figure.colorbar(image, ax=axis, label="certified after round")
        figures.outline(axis, ground, worst, "edge of the feasible region", dash="-")
        axis.plot(tried[:, 0], tried[:, 1], "o", markersize=3, color=figures.COLOURS[1], markeredgecolor="white", label="tried")
    figures.place_legend(np.asarray([axis]), new=ax is None)
    return axis


class _Frame(NamedTuple):
    """Panels after a round, points tried and chosen, largest constraint mean."""

    round: int
    panels: list[tuple[str, figures.Quantity]]
    tried: np.ndarray  # [n] indices
    chosen: int | None
    believed: np.ndarray | None  # [M]


class _Shown:
    """Frames of a trial after some rounds, and their shared limits."""

    def __init__(
        self,
        surrogate: Surrogate,
        trajectory: Trajectory,
        rounds: Sequence[int],
        problem: AbstractProblem | None,
        score: Acquisition | None,
        width: float = 2.0,
    ) -> None:
        self.ground, self.on_line, self.width = _ground("surrogate", surrogate.domain), surrogate.domain.dimension == 1, width
        self.star = None if problem is None else _star(problem)
        self.truth = None if problem is None else _means(problem, self.ground)
        self.size = (4.2, 2.6) if self.on_line else (3.1, 2.7)  # [2] inches
        on_box, (indices, values, due) = isinstance(surrogate.domain, Box), _course(trajectory)
        beliefs = _after(surrogate, trajectory, rounds, self.ground.points) if on_box else posterior_after(surrogate, trajectory, rounds)
        # Panels refer to points by their number in this array.
        self.places = np.concatenate([self.ground.points, indices]) if on_box else self.ground.points
        if on_box:
            indices = len(self.ground.points) + np.arange(len(indices))
        before, self.frames = len(indices) - len(np.asarray(trajectory.indices)), list[_Frame]()
        for place, t in enumerate(rounds):
            belief: Prediction = jax.tree.map(lambda x, place=place: np.asarray(x)[place], beliefs)
            tried, seen = indices[: before + t], np.where(due <= t, values, np.nan)[: before + t]
            panels: list[tuple[str, figures.Quantity]] = []
            for j, (name, mean, sd) in enumerate(zip(output_names(surrogate.outputs), belief.mean, belief.sd, strict=True)):
                if self.on_line:
                    truth, limits = None if self.truth is None else self.truth[j], [(0.0, "")] if j else []
                    drawn = figures.Quantity("", mean, None, mean - width * sd, mean + width * sd, truth, (tried, seen[:, j]), limits)
                    panels.append((name, drawn))
                else:
                    panels += [(f"{name}: mean", figures.Quantity("", mean)), (f"{name}: sd", figures.Quantity("", sd))]
            # Round t + 1 uses the multipliers of index t.
            if score is not None:
                rank = _ranks(np.asarray(score(belief, np.asarray(trajectory.multipliers)[t], t + 1)))
                panels.append(("acquisition" if self.on_line else "acquisition: rank", figures.Quantity("share of points below", rank)))
            chosen = int(indices[before + t]) if before + t < len(indices) else None
            self.frames.append(_Frame(int(t), panels, tried, chosen, _worst(np.asarray(belief.mean))))
        # The least and the greatest finite number of each column.
        self.limits = list[tuple[float, float]]()
        for column in zip(*(frame.panels for frame in self.frames), strict=True):
            tables = [(q.mean, q.low, q.high, q.truth, None if q.seen is None else q.seen[1]) for _, q in column]
            values = np.concatenate([table for each in tables for table in each if table is not None])
            finite = values[np.isfinite(values)]
            self.limits.append((float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0))

    def draw(self, axes: Sequence[Axes], frame: _Frame) -> None:
        """Draw the panels of one round."""
        for number, (axis, (heading, quantity), (low, high)) in enumerate(zip(axes, frame.panels, self.limits, strict=True)):
            if self.on_line:
                x, margin = self.places[:, 0], 0.05 * (high - low)
                figures.belief_curve(axis, quantity, x, np.argsort(self.ground.points[:, 0]), band=f"± {self.width:g} sd")
                if self.star is not None and quantity.truth is not None:
                    axis.plot(self.star[0], self.star[1][number], "*", label="optimum", **figures.MARKERS["best"])
                axis.set(xlim=(x.min(), x.max()), ylim=(low - margin, high + margin))
                self.ground.dress(axis, 0)
                if frame.chosen is not None:
                    axis.axvline(x[frame.chosen], color=figures.COLOURS[1], linewidth=figures.pen(0.8), linestyle="--", label="chosen next")
            else:
                figures.shade(axis, self.ground, quantity.mean, (low, high))
                figures.outline(axis, self.ground, _worst(self.truth), "truly feasible", dash="-")
                figures.outline(axis, self.ground, frame.believed, "believed feasible")
                tried = self.places[frame.tried]
                axis.plot(*tried[:-1].T, label="tried", **figures.MARKERS["measured"] | {"markersize": 3.2})
                axis.plot(
                    *tried[-1:].T, label="latest", **figures.MARKERS["measured"] | {"markersize": 6, "markerfacecolor": figures.COLOURS[5]}
                )
                if self.star is not None:
                    axis.plot(*self.star[0], "*", label="optimum", **figures.MARKERS["best"])
                axis.set_ylabel("" if number else axis.get_ylabel())
            axis.set_title(heading)

    def drawn(self, axes: figures.GivenAxes) -> np.ndarray:
        """Draw a row of panels for each frame, and return the axes."""
        grid = figures.grid_of_axes(axes, len(self.frames), len(self.limits), self.size)
        for row, frame in zip(grid, self.frames, strict=True):
            self.draw(row, frame)
            row[0].set_ylabel("\n".join(filter(None, (f"after round {frame.round}", row[0].get_ylabel()))))
        for axis in grid[:-1].flat:
            axis.set_xlabel("")
        for axis in grid[1:].flat:
            axis.set_title("")
        self.scales(grid[0, 0].figure, [list(column) for column in grid.T], aspect=30)
        figures.place_legend(grid.flat, new=axes is None)
        return grid

    def scales(self, figure: Figure, columns: Sequence[Any], **style: Any) -> None:
        """Add the colour scale of every column of maps to its axes."""
        for axes, limits in zip(columns, self.limits, strict=True) if not self.on_line else ():
            figure.colorbar(ScalarMappable(Normalize(*limits), figures.SHADES), ax=axes, location="bottom", shrink=0.85, **style)


def _ranks(scores: np.ndarray) -> np.ndarray:
    """Return the share of points with a lower score, ties as half."""
    finite = scores[np.isfinite(scores)]
    # Scores that differ by less are equal in float32.
    rounding = 1e-6 * max(1.0, float(np.abs(finite).max(initial=0)))
    return (pd.Series(np.round(scores / rounding)).rank().to_numpy() - 1) / max(len(scores) - 1, 1)


def _ground(name: str, domain: Domain) -> figures.Ground:
    """Return the points of a line or plane, fine ones of boxes."""
    if domain.dimension != 1:
        _check_plane(name, domain)
    if not isinstance(domain, Box):
        return figures.Ground.of(domain)
    with jax.enable_x64(True):
        shares = jnp.linspace(0, 1, 201 if domain.dimension == 1 else 61)
        fine = replace(
            product([np.unique(side.from_unit(shares)) for side in domain.sides]), names=domain.names, categories=domain.categories
        )
    logarithmic = tuple(axis for axis, side in enumerate(domain.sides) if side.scale == "log")
    return dataclasses.replace(figures.Ground.of(fine), logarithmic=logarithmic)


def _means(problem: AbstractProblem, ground: figures.Ground) -> np.ndarray:
    """Return the means ``[k, M]`` at a figure's points, or raise ``InvalidArgument``."""
    if problem.domain.dimension == ground.domain.dimension:
        means = np.asarray(problem.means_of(jnp.asarray(ground.points)) if isinstance(problem.domain, Box) else problem.means)
        if means.shape[1] == len(ground.points):
            return means
    raise InvalidArgument(f"problem: {problem.name!r} is not on the domain of the surrogate; give the one that was run")


def _star(problem: AbstractProblem) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the best point ``[d]`` and its means ``[k]``, if single."""
    best = optimum(problem)
    if isinstance(problem.domain, Contextual) or np.isnan(float(best.value)):
        return None
    if isinstance(problem, BoxProblem):
        point = np.asarray(problem.best.point)
        return point, np.asarray(problem.means_of(jnp.asarray(point[None])))[:, 0]
    return np.asarray(problem.domain.points)[int(best.index)], np.asarray(problem.means)[:, int(best.index)]


def _worst(means: np.ndarray | None) -> np.ndarray | None:
    """Return the largest constraint value ``[M]``, None without constraints."""
    return None if means is None or len(means) < 2 else means[1:].max(axis=0)


def _check_plane(name: str, domain: Domain) -> None:
    """Raise ``InvalidArgument`` unless a domain is a two-dimensional product grid or box."""
    if isinstance(domain, Box) and domain.dimension != 2:
        raise InvalidArgument(f"{name}: maps need a box of two dimensions, not of {domain.dimension}")
    if not isinstance(domain, Box) and len(domain.grid_shape) != 2:
        raise InvalidArgument(
            f"{name}: maps need a two-dimensional product grid (domains.grid), not"
            f" {domain.size} points of dimension {domain.dimension}{'' if domain.axes else ' without axes'}"
        )
