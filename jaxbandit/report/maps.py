"""Pictures of a problem and of a learner's posterior on it after chosen rounds: curves on a line, maps on a plane, and their animation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from jaxbandit.core import checks
from jaxbandit.core.arguments import takes
from jaxbandit.core.fields import positive
from jaxbandit.core.pytree import canonicalise, float_dtype
from jaxbandit.core.types import Array
from jaxbandit.engine import Trajectory
from jaxbandit.problems import AbstractProblem, optimum
from jaxbandit.problems.base import INSTANCE
from jaxbandit.report.style import COLOURS, SHADES, grid_of_axes, in_style, plain, styled
from jaxbandit.surrogates import Posterior, Prediction, Surrogate, arithmetic

if TYPE_CHECKING:
    from matplotlib.animation import FuncAnimation

# An acquisition to map: takes the posterior of one round, the multipliers [m] in force and the round; returns the score [M].
Score = Callable[[Prediction, np.ndarray, int], Array]

PANEL, LINE_PANEL = (3.1, 2.7), (4.2, 2.6)  # inches
TRIED: Any = {"linestyle": "none", "markerfacecolor": "white", "markeredgecolor": "black", "markeredgewidth": 0.7}
LATEST: Any = TRIED | {"markerfacecolor": COLOURS[5]}
STAR: Any = {"linestyle": "none", "markersize": 12, "markerfacecolor": COLOURS[1], "markeredgecolor": "white", "markeredgewidth": 0.8}
SECONDS_PER_FRAME = 0.5


def posterior_after(surrogate: Surrogate, trajectory: Trajectory, rounds: Sequence[int]) -> Prediction:
    """Compute the posterior of one trial after some of its rounds, from its chosen points and observed values.

    It is conditioned on every value that had arrived by the end of the round, those of the initial design included: the information of
    a learner under :class:`~jaxbandit.feedback.Wait` when it chooses its next point.

    Args:
      surrogate: the model that was run.
      trajectory: trajectory of one trial, without leading axes (``run.trial(3)``), recorded with values.
      rounds: ``n`` rounds in ``[0, T]``; 0 means before the first.

    Returns:
      Means and standard deviations ``[n, k, M]``, information gains ``[n, k]``.

    Raises:
      InvalidArgument: on a trajectory of many trials or without values, or a round out of range.
    """
    if trajectory.values is None:
        raise checks.InvalidArgument("trajectory: has no values; run it with record='all'")
    if np.ndim(trajectory.indices) != 1:
        raise checks.InvalidArgument(f"trajectory: of many trials, shape {list(np.shape(trajectory.indices))}; take one by run.trial(0)")
    horizon, outputs = np.shape(trajectory.values)
    if not len(rounds):
        raise checks.InvalidArgument("rounds: give at least one")
    for t in rounds:
        if checks.integer("rounds", t, least=0) > horizon:
            raise checks.InvalidArgument(f"rounds: {t} is beyond the last, {horizon}")
    before = len(np.asarray(trajectory.initial_indices))
    at_once = np.broadcast_to(np.arange(1, horizon + 1, dtype=np.int32)[:, None], (horizon, outputs))
    arrivals = at_once if trajectory.arrivals is None else np.asarray(trajectory.arrivals)
    due = np.concatenate([np.zeros((before, outputs), np.int32), arrivals])
    # Values of one point that arrive at different times need a factor for each output.
    model = surrogate if (due == due[:, :1]).all() else surrogate.separate()
    indices = np.concatenate([np.asarray(trajectory.initial_indices), np.asarray(trajectory.indices)]).astype(np.int32)
    values = np.concatenate([np.asarray(trajectory.initial_values), np.asarray(trajectory.values)])
    with arithmetic([model.precision]) as switched:
        belief = _replayed(canonicalise(model).factorised(), indices, values.astype(float_dtype()), due, np.asarray(rounds, np.int32))
    return jax.tree.map(np.asarray, belief) if switched else belief  # outside, JAX would round its own arrays


@jax.jit
def _replayed(surrogate: Surrogate, indices: Array, values: Array, due: Array, rounds: Array) -> Prediction:
    """Return the predictions after each of ``rounds [n]``, from ``indices [N]``, ``values [N, k]`` and rounds of arrival ``due [N, k]``."""

    def after(last: Array) -> Prediction:
        def observe(posterior: Posterior, seen: tuple[Array, Array, Array]) -> tuple[Posterior, None]:
            index, value, when = seen
            return surrogate.condition(posterior, index, value, when <= last), None

        return surrogate.predict(jax.lax.scan(observe, surrogate.init(), (indices, values, due))[0])

    return jax.lax.map(after, rounds)


def penalised_bounds(reward_width: float, cost_width: float, *, rectified: bool = True) -> Score:
    """Return RPOL-UCB's score ``UCB_f - sum_j Q_j LCB_{g_j}^+`` as a function; ``rectified=False``: CBO-UCB's, without its clipping."""

    def score(belief: Prediction, multipliers: np.ndarray, t: int) -> Array:
        costs = belief.mean[1:] - cost_width * belief.sd[1:]
        costs = jnp.maximum(costs, 0) if rectified else costs
        weights = jnp.asarray(multipliers, costs.dtype)[:, None]
        return belief.mean[0] + reward_width * belief.sd[0] - jnp.sum(weights * costs, axis=0)

    return score


@dataclasses.dataclass(frozen=True)
class _Frame:
    """Contents of the panels of one round: a table ``[M]`` for each, the points tried so far, the largest mean constraint."""

    round: int
    tables: list[np.ndarray]
    tried: np.ndarray  # [n] indices
    chosen: int | None  # the point chosen next, None after the last round
    believed: np.ndarray | None  # [M] largest posterior mean of a constraint
    belief: Prediction
    seen: np.ndarray  # [n, k] values of the points tried, NaN where they have not arrived


@in_style
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
    _check_plane(surrogate)
    frames, heads = _frames(surrogate, trajectory, rounds, score), _headings(surrogate, score)
    scales, truth = _scales(frames), _truth(problem)
    grid = grid_of_axes(axes, len(frames), len(heads), PANEL)
    for row, frame in zip(grid, frames, strict=True):
        images = [_panel(axis, surrogate, frame, c, scales[c], truth) for c, axis in enumerate(row)]
        row[0].set_ylabel(f"after round {frame.round}")
    for axis, head in zip(grid[0], heads, strict=True):
        axis.set_title(head)
    for column, image in enumerate(images):
        grid[0, 0].figure.colorbar(image, ax=list(grid[:, column]), location="bottom", shrink=0.85, aspect=30)
    _legend(grid[0, 0].figure, truth, frames, new=axes is None)
    return grid


@in_style
def posterior_curves(
    surrogate: Surrogate,
    trajectory: Trajectory,
    rounds: Sequence[int],
    *,
    width: float = 2.0,
    problem: AbstractProblem | None = None,
    score: Score | None = None,
    axes: Any = None,
) -> np.ndarray:
    """Draw curves of one trial's posterior on a line after chosen rounds: a row for each round, a column for each output and the score.

    Bands are ``width`` standard deviations about the posterior mean, dots the values observed so far, dotted lines the truth, the vertical
    line the point that is chosen next, the star the optimum; a constraint holds below the line at zero.

    Args:
      surrogate, trajectory, rounds: as for :func:`posterior_after`; the domain is one-dimensional.
      width: standard deviations of the bands, such as the confidence width of the algorithm.
      problem: the instance that was run, for the truth and the optimum.
      score: the acquisition of the next round, such as :func:`penalised_bounds`.
      axes: Axes ``[rounds, columns]``; default new ones.

    Returns:
      The axes.

    Raises:
      InvalidArgument: on a domain of more dimensions, a width that is not positive, or where :func:`posterior_after` raises it.
    """
    checks.positive("width", width)
    _check_line(surrogate)
    frames, heads = _frames(surrogate, trajectory, rounds, score), _names(surrogate)
    columns = len(heads) + (score is not None)
    grid = grid_of_axes(axes, len(frames), columns, LINE_PANEL)
    limits = _line_limits(frames, width, problem)
    for row, frame in zip(grid, frames, strict=True):
        _line_row(row, surrogate, frame, width, problem, limits)
        row[0].set_ylabel(f"after round {frame.round}")
    for axis, head in zip(grid[0], [*heads, "acquisition"], strict=False):
        axis.set_title(head)
    for axis in grid[-1]:
        axis.set_xlabel("$x$")
    grid[0, 0].legend(loc="best", fontsize=8)
    return grid


def posterior_animation(
    surrogate: Surrogate,
    trajectory: Trajectory,
    rounds: Sequence[int],
    *,
    title: str = "",
    width: float = 2.0,
    problem: AbstractProblem | None = None,
    score: Score | None = None,
    seconds_per_frame: float = SECONDS_PER_FRAME,
) -> FuncAnimation:
    """Return an animation of :func:`posterior_maps` or, on a line, :func:`posterior_curves`: one round after another.

    Its ``save("trial.gif", writer="pillow")`` writes it; its ``to_jshtml()`` shows it in a notebook. The arguments and errors are those of
    the two functions.
    """
    positive("seconds_per_frame", seconds_per_frame)
    positive("width", width)
    from matplotlib.animation import FuncAnimation

    on_line = surrogate.domain.dimension == 1
    if not on_line:
        _check_plane(surrogate)
    frames = _frames(surrogate, trajectory, rounds, score)
    heads = [*_names(surrogate), *(["acquisition"] if score is not None else [])] if on_line else _headings(surrogate, score)
    scales, truth, limits = _scales(frames), _truth(problem), _line_limits(frames, width, problem) if on_line else []
    size = LINE_PANEL if on_line else PANEL
    with styled():
        figure = Figure(figsize=(size[0] * len(heads), size[1] + 0.9), layout="constrained")
        axes = figure.subplots(1, len(heads), squeeze=False)[0]
        for axis, scale in zip(axes, scales, strict=True) if not on_line else ():
            shades = matplotlib.cm.ScalarMappable(matplotlib.colors.Normalize(*scale), SHADES)
            figure.colorbar(shades, ax=axis, location="bottom", shrink=0.85)
        if not on_line:
            _legend(figure, truth, frames, new=True)

    @in_style
    def draw(frame: _Frame) -> list[Artist]:
        for axis in axes:
            axis.clear()
        if on_line:
            _line_row(axes, surrogate, frame, width, problem, limits)
            axes[0].legend(loc="best", fontsize=8)
        for column, (axis, head) in enumerate(zip(axes, heads, strict=True)):
            if not on_line:
                _panel(axis, surrogate, frame, column, scales[column], truth)
            axis.set_title(head)
        figure.suptitle(f"{plain(title)}{', ' if title else ''}after round {frame.round}", fontsize=11)
        return []

    return FuncAnimation(
        figure, draw, frames=frames, init_func=lambda: [], cache_frame_data=False, interval=1000 * seconds_per_frame, repeat=True
    )


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
        _check_plane(problem)
    row: np.ndarray = grid_of_axes(axes, 1, len(means), (3.9, 3.1))[0]
    best, feasible = optimum(problem), np.all(means[1:] <= 0, axis=0)
    place = np.asarray(domain.points)[int(best.index)] if feasible.any() else None
    for axis, values, name in zip(row, means, _names(problem), strict=True):
        axis.set_title(name)
        if on_line:
            _true_curve(
                axis, np.asarray(domain.points)[:, 0], values, feasible, None if place is None else (place[0], values[int(best.index)])
            )
            continue
        across, up = (np.asarray(values) for values in domain.axes)
        table = values.reshape(domain.grid_shape).T
        image = axis.pcolormesh(across, up, table, shading="nearest", cmap=SHADES, rasterized=True)
        axis.figure.colorbar(image, ax=axis)
        _outline(axis, domain, _worst(means), "solid")
        if place is not None:
            axis.plot(*place, "*", **STAR)
        axis.grid(False)
        axis.set(xlabel="$x_1$", ylabel="$x_2$")
    if place is not None and not on_line:
        handles = [Line2D([], [], marker="*", label="optimum", **STAR), Line2D([], [], color="black", label="edge of the feasible region")]
        _place_legend(row[0], handles[: 1 + (len(means) > 1)], new=axes is None)
    return row


def _true_curve(axis: Axes, x: np.ndarray, values: np.ndarray, feasible: np.ndarray, best: tuple[float, float] | None) -> None:
    """Draw one true function over a line, with what is infeasible shaded and the optimum as a star."""
    order = np.argsort(x)
    axis.plot(x[order], values[order], color=COLOURS[0])
    bottom, top = axis.get_ylim()
    axis.fill_between(x[order], bottom, top, where=~feasible[order], step="mid", color="0.85", linewidth=0, zorder=0, label="infeasible")
    axis.set(xlabel="$x$", ylim=(bottom, top), xlim=(x.min(), x.max()))
    if best is not None:
        axis.plot(*best, "*", label="optimum", **STAR)
    axis.legend(loc="best", fontsize=8)


def _check_plane(item: Surrogate | AbstractProblem) -> None:
    """Raise ``InvalidArgument`` unless the domain is a two-dimensional product grid."""
    domain = item.domain
    if len(domain.grid_shape) != 2:
        raise checks.InvalidArgument(
            f"{'surrogate' if isinstance(item, Surrogate) else 'problem'}: maps need a two-dimensional product grid (domains.grid), not"
            f" {domain.size} points of dimension {domain.dimension}{'' if domain.axes else ' without axes'}"
        )


def _check_line(surrogate: Surrogate) -> None:
    """Raise ``InvalidArgument`` unless the domain is one-dimensional."""
    if surrogate.domain.dimension != 1:
        raise checks.InvalidArgument(
            f"surrogate: curves need a one-dimensional domain, not dimension {surrogate.domain.dimension}; see posterior_maps"
        )


def _frames(surrogate: Surrogate, trajectory: Trajectory, rounds: Sequence[int], score: Score | None) -> list[_Frame]:
    """Return the contents of the panels, one frame for each round."""
    beliefs = posterior_after(surrogate, trajectory, rounds)
    indices, horizon = np.asarray(trajectory.indices), len(np.asarray(trajectory.indices))
    tried = np.concatenate([np.asarray(trajectory.initial_indices), indices])
    seen = np.concatenate([np.asarray(trajectory.initial_values), np.asarray(trajectory.values)])
    before = len(tried) - horizon
    due = np.arange(1, horizon + 1)[:, None] if trajectory.arrivals is None else np.asarray(trajectory.arrivals)
    frames = []
    for place, t in enumerate(rounds):
        belief = jax.tree.map(lambda x, place=place: np.asarray(x[place]), beliefs)
        mean, sd = belief.mean, belief.sd
        tables = [table for j in range(len(mean)) for table in (mean[j], sd[j])]
        if score is not None:
            tables.append(_ranks(np.asarray(score(belief, np.asarray(trajectory.multipliers)[t], t + 1))))  # in force at round t + 1
        arrived = np.where((due <= t)[:t], seen[before : before + t], np.nan)
        frames.append(
            _Frame(
                round=int(t),
                tables=tables,
                tried=tried[: before + t],
                chosen=int(indices[t]) if t < horizon else None,
                believed=mean[1:].max(axis=0) if len(mean) > 1 else None,
                belief=belief,
                seen=np.concatenate([seen[:before], arrived]),
            )
        )
    return frames


def _line_limits(frames: list[_Frame], width: float, problem: AbstractProblem | None) -> list[tuple[float, float]]:
    """Return for each output the least and the greatest value that some frame shows."""
    limits = []
    for j in range(len(frames[0].belief.mean)):
        shown = [frame.belief.mean[j] + sign * width * frame.belief.sd[j] for frame in frames for sign in (-1, 1)]
        shown += [frame.seen[:, j] for frame in frames] + ([] if problem is None else [np.asarray(problem.means)[j]])
        values = np.concatenate(shown)
        low, high = np.nanmin(values), np.nanmax(values)
        limits.append((float(low - 0.05 * (high - low)), float(high + 0.05 * (high - low))))
    return limits


def _line_row(
    row: np.ndarray, surrogate: Surrogate, frame: _Frame, width: float, problem: AbstractProblem | None, limits: list[tuple[float, float]]
) -> None:
    """Draw the outputs of one frame, and its acquisition if there is one more panel."""
    x = np.asarray(surrogate.domain.points)[:, 0]
    order = np.argsort(x)
    best = None if problem is None or not np.isfinite(float(optimum(problem).value)) else int(optimum(problem).index)
    for j, axis in enumerate(row[: len(limits)]):
        mean, sd = frame.belief.mean[j][order], frame.belief.sd[j][order]
        axis.plot(x[order], mean, color=COLOURS[0], label="posterior mean")
        axis.fill_between(
            x[order], mean - width * sd, mean + width * sd, color=COLOURS[0], alpha=0.18, linewidth=0, label=f"± {width:g} sd"
        )
        if problem is not None:
            axis.plot(x[order], np.asarray(problem.means)[j][order], color="black", linestyle=":", linewidth=1.2, label="truth")
        axis.plot(x[frame.tried], frame.seen[:, j], "o", color="black", markersize=3.5, markerfacecolor="white", label="observed")
        if best is not None:
            axis.plot(x[best], np.asarray(problem.means)[j][best], "*", label="optimum", **STAR)  # type: ignore[union-attr]
        if j:
            axis.axhline(0, color="0.4", linewidth=0.8)
        axis.set(ylim=limits[j], xlim=(x.min(), x.max()))
    for axis in row[len(limits) :]:
        axis.plot(x[order], frame.tables[-1][order], color=COLOURS[2])
        axis.set(ylim=(-0.03, 1.03), xlim=(x.min(), x.max()), ylabel="share of points below")
    for axis in row if frame.chosen is not None else ():
        axis.axvline(x[frame.chosen], color=COLOURS[1], linewidth=1.2, linestyle="--", label="chosen next")


def _ranks(scores: np.ndarray) -> np.ndarray:
    """Return the share of other points with a lower score, ties as half: scores themselves span too wide a range under penalties."""
    finite = scores[np.isfinite(scores)]
    rounding = 1e-6 * max(1.0, float(np.abs(finite).max(initial=0)))  # scores that differ by that in float32 are equal
    _, place, counts = np.unique(np.round(scores / rounding), return_inverse=True, return_counts=True)
    below = np.cumsum(counts) - counts + (counts - 1) / 2
    return np.where(np.isnan(scores), np.nan, below[place.reshape(-1)] / max(len(scores) - 1, 1))


def _names(item: Surrogate | AbstractProblem) -> list[str]:
    """Return the names of the outputs."""
    return ["reward", *([f"constraint {j}" for j in range(1, item.outputs)] if item.outputs > 2 else ["constraint"])][: item.outputs]


def _headings(surrogate: Surrogate, score: Score | None) -> list[str]:
    heads = [f"{name}: {what}" for name in _names(surrogate) for what in ("mean", "sd")]
    return [*heads, "acquisition: rank"] if score is not None else heads


def _scales(frames: list[_Frame]) -> list[tuple[float, float]]:
    """Return the least and the greatest finite value of each column, over all frames."""
    scales = []
    for column in range(len(frames[0].tables)):
        values = np.concatenate([frame.tables[column] for frame in frames])
        finite = values[np.isfinite(values)]
        scales.append((float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0))
    return scales


@dataclasses.dataclass(frozen=True)
class _Truth:
    """True facts of an instance: its largest constraint ``[M]``, if it has one, and its best feasible point, if there is one."""

    worst: np.ndarray | None
    best: int | None


def _truth(problem: AbstractProblem | None) -> _Truth:
    """Return the facts of an instance, none without one."""
    if problem is None:
        return _Truth(worst=None, best=None)
    best = optimum(problem)
    return _Truth(worst=_worst(np.asarray(problem.means)), best=int(best.index) if np.isfinite(float(best.value)) else None)


def _worst(means: np.ndarray) -> np.ndarray | None:
    """Return the largest constraint value ``[M]``; ``None`` without constraints."""
    return means[1:].max(axis=0) if len(means) > 1 else None


def _legend(figure: Any, truth: _Truth, frames: list[_Frame], *, new: bool) -> None:
    """Say what the marks and lines of maps are, under the panels of a figure of its own."""
    line: Any = {"color": "black", "linewidth": 1.4}
    handles = [Line2D([], [], marker="o", markersize=3.2, label="tried", **TRIED)]
    handles += [Line2D([], [], marker="o", markersize=6, label="latest", **LATEST)]
    handles += [Line2D([], [], marker="*", label="optimum", **STAR)] if truth.best is not None else []
    handles += [Line2D([], [], label="truly feasible", **line)] if truth.worst is not None else []
    handles += [Line2D([], [], linestyle="--", label="believed feasible", **line)] if frames[0].believed is not None else []
    _place_legend(figure.axes[0], handles, new=new)


def _place_legend(axis: Axes, handles: list[Line2D], *, new: bool) -> None:
    """Put a legend under the panels of a figure of its own, into the first panel of a user's."""
    if new:
        axis.figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=9)
    else:
        axis.legend(handles=handles, loc="best", fontsize=7, frameon=True)


def _panel(axis: Axes, surrogate: Surrogate, frame: _Frame, column: int, scale: tuple[float, float], truth: _Truth) -> QuadMesh:
    """Draw one table as a map with outlines and points; return the shaded image."""
    across, up = (np.asarray(values) for values in surrogate.domain.axes)
    table = np.ma.masked_invalid(frame.tables[column].reshape(surrogate.domain.grid_shape).T)  # the last axis is drawn upwards
    image = axis.pcolormesh(across, up, table, shading="nearest", cmap=SHADES, vmin=scale[0], vmax=scale[1], rasterized=True)
    _outline(axis, surrogate.domain, truth.worst, "solid")
    _outline(axis, surrogate.domain, frame.believed, "dashed")
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
    axis.set(xlim=(across[0], across[-1]), ylim=(up[0], up[-1]))
    return image


def _outline(axis: Axes, domain: Any, worst: np.ndarray | None, dash: str) -> None:
    """Draw the line on a plane where the largest constraint is zero, if it is anywhere."""
    if worst is None or not np.nanmin(worst, initial=np.inf) < 0 < np.nanmax(worst, initial=-np.inf):
        return
    across, up = (np.asarray(values) for values in domain.axes)
    table = np.ma.masked_invalid(worst.reshape(domain.grid_shape).T)
    line = axis.contour(across, up, table, levels=[0.0], colors="white", linewidths=1.2, linestyles=dash)
    line.set(path_effects=[withStroke(linewidth=2.6, foreground="black")])  # visible on dark and on light shades
