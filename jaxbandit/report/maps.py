"""Maps of a learner's posterior on a two-dimensional domain after chosen rounds, as a figure or an animation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from jaxbandit.core import checks
from jaxbandit.core.pytree import canonicalise, float_dtype
from jaxbandit.core.types import Array
from jaxbandit.engine import Trajectory
from jaxbandit.problems import AbstractProblem
from jaxbandit.report.plots import SHADES, STYLE, figure_at, plain
from jaxbandit.surrogates import Posterior, Prediction, Surrogate, arithmetic

# An acquisition to map: takes the posterior of one round, the multipliers [m] in force and the round; returns the score [M].
Score = Callable[[Prediction, np.ndarray, int], Array]

PANEL = (3.1, 2.7)  # inches
SECONDS_PER_FRAME = 0.5


def posterior_after(surrogate: Surrogate, trajectory: Trajectory, rounds: Sequence[int]) -> Prediction:
    """Compute the posterior of one trial after some of its rounds, from its chosen points and observed values.

    It is conditioned on every value that had arrived by the end of the round, those of the initial design included: the information of
    a learner under :class:`~jaxbandit.feedback.Wait` when it chooses its next point.

    Args:
      surrogate: the model that was run.
      trajectory: trajectory of one trial, without leading axes (``jax.tree.map(lambda x: x[3], run)``), recorded with values.
      rounds: ``n`` rounds in ``[0, T]``; 0 means before the first.

    Returns:
      Means and standard deviations ``[n, k, M]``, information gains ``[n, k]``.

    Raises:
      InvalidArgument: on a trajectory of many trials or without values, or a round out of range.
    """
    if trajectory.values is None:
        raise checks.InvalidArgument("trajectory: has no values; run it with record='all'")
    if np.ndim(trajectory.indices) != 1:
        raise checks.InvalidArgument(
            f"trajectory: of many trials, shape {list(np.shape(trajectory.indices))}; take one by jax.tree.map(lambda x: x[0], run)"
        )
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
    """Contents of the maps of one round: a table ``[M]`` for each panel, the points tried so far, the largest mean constraint."""

    round: int
    tables: list[np.ndarray]
    tried: np.ndarray  # [n] indices
    believed: np.ndarray | None  # [M] largest posterior mean of a constraint


def posterior_maps(
    path: Path,
    surrogate: Surrogate,
    trajectory: Trajectory,
    rounds: Sequence[int],
    *,
    title: str,
    problem: AbstractProblem | None = None,
    score: Score | None = None,
) -> None:
    """Draw maps of one trial's posterior after chosen rounds, as a PNG at ``path``: a row for each round.

    Columns are the mean and the standard deviation of every output and, if ``score`` is given, the acquisition of the next round, as
    the share of points with a lower score. Circles are the points tried so far, the star is the latest. Dashed lines enclose the region
    where the means of all constraints are feasible, solid lines the truly feasible region. All rows have the same colour scales.

    Args:
      path: path of the PNG.
      surrogate, trajectory, rounds: as for :func:`posterior_after`; the domain is a two-dimensional product grid.
      title: title above the figure.
      problem: the instance that was run, for the outline of the truly feasible region.
      score: the acquisition, such as :func:`penalised_bounds`.

    Raises:
      InvalidArgument: on another kind of domain, or where :func:`posterior_after` raises it.
    """
    frames, heads = _frames(surrogate, trajectory, rounds, score), _headings(surrogate, score)
    scales = _scales(frames)
    truth = _worst_cost(problem)
    with figure_at(path, plain(title), len(frames), len(heads), PANEL) as axes:
        for row, frame in zip(axes, frames, strict=True):
            images = [_panel(axis, surrogate, frame, c, scales[c], truth) for c, axis in enumerate(row)]
            row[0].set_ylabel(f"after round {frame.round}")
        for axis, head in zip(axes[0], heads, strict=True):
            axis.set_title(head)
        for column, image in enumerate(images):
            axes[0][0].figure.colorbar(image, ax=list(axes[:, column]), location="bottom", shrink=0.85, aspect=30)


def posterior_animation(
    path: Path,
    surrogate: Surrogate,
    trajectory: Trajectory,
    rounds: Sequence[int],
    *,
    title: str,
    problem: AbstractProblem | None = None,
    score: Score | None = None,
    seconds_per_frame: float = SECONDS_PER_FRAME,
) -> None:
    """Draw the maps of :func:`posterior_maps` one round after another, as an animated GIF at ``path``; same arguments, same errors."""
    checks.positive("seconds_per_frame", seconds_per_frame)
    from matplotlib.animation import FuncAnimation, PillowWriter

    frames, heads = _frames(surrogate, trajectory, rounds, score), _headings(surrogate, score)
    scales = _scales(frames)
    truth = _worst_cost(problem)
    with matplotlib.rc_context(STYLE):
        shape = (PANEL[0] * len(heads), PANEL[1] + 0.7)
        figure = Figure(figsize=shape, layout="constrained")
        (axes,) = figure.subplots(1, len(heads), squeeze=False)
        for axis, scale in zip(axes, scales, strict=True):
            shades = matplotlib.cm.ScalarMappable(matplotlib.colors.Normalize(*scale), SHADES)
            figure.colorbar(shades, ax=axis, location="bottom", shrink=0.85)

        def draw(frame: _Frame) -> list[Artist]:
            for column, (axis, head) in enumerate(zip(axes, heads, strict=True)):
                axis.clear()
                _panel(axis, surrogate, frame, column, scales[column], truth)
                axis.set_title(head)
            figure.suptitle(f"{plain(title)}, after round {frame.round}", fontsize=11)
            return []

        writer = PillowWriter(fps=1 / seconds_per_frame)  # type: ignore[arg-type]  # annotated as int, but used as a divisor only
        animation = FuncAnimation(figure, draw, frames=frames, init_func=lambda: [], cache_frame_data=False)
        animation.save(path, writer=writer, dpi=STYLE["figure.dpi"])


def _frames(surrogate: Surrogate, trajectory: Trajectory, rounds: Sequence[int], score: Score | None) -> list[_Frame]:
    """Return the contents of the maps, one frame for each round."""
    if len(surrogate.domain.grid_shape) != 2:
        raise checks.InvalidArgument(
            f"surrogate: maps need a two-dimensional product grid (domains.grid), not {surrogate.domain.size} points of dimension"
            f" {surrogate.domain.dimension}{'' if surrogate.domain.axes else ' without axes'}"
        )
    beliefs = posterior_after(surrogate, trajectory, rounds)
    tried = np.concatenate([np.asarray(trajectory.initial_indices), np.asarray(trajectory.indices)])
    before = len(tried) - len(np.asarray(trajectory.indices))
    frames = []
    for place, t in enumerate(rounds):
        belief = jax.tree.map(lambda x, place=place: x[place], beliefs)
        mean, sd = np.asarray(belief.mean), np.asarray(belief.sd)
        tables = [table for j in range(len(mean)) for table in (mean[j], sd[j])]
        if score is not None:
            tables.append(_ranks(np.asarray(score(belief, np.asarray(trajectory.multipliers)[t], t + 1))))  # in force at round t + 1
        believed = mean[1:].max(axis=0) if len(mean) > 1 else None
        frames.append(_Frame(round=int(t), tables=tables, tried=tried[: before + t], believed=believed))
    return frames


def _ranks(scores: np.ndarray) -> np.ndarray:
    """Return the share of other points with a lower score, ties as half: scores themselves span too wide a range under penalties."""
    finite = scores[np.isfinite(scores)]
    rounding = 1e-6 * max(1.0, float(np.abs(finite).max(initial=0)))  # scores that differ by that in float32 are equal
    _, place, counts = np.unique(np.round(scores / rounding), return_inverse=True, return_counts=True)
    below = np.cumsum(counts) - counts + (counts - 1) / 2
    return np.where(np.isnan(scores), np.nan, below[place.reshape(-1)] / max(len(scores) - 1, 1))


def _headings(surrogate: Surrogate, score: Score | None) -> list[str]:
    names = ["reward", *([f"constraint {j}" for j in range(1, surrogate.outputs)] if surrogate.outputs > 2 else ["constraint"])]
    heads = [f"{name}: {what}" for name in names[: surrogate.outputs] for what in ("mean", "sd")]
    return [*heads, "acquisition: rank"] if score is not None else heads


def _scales(frames: list[_Frame]) -> list[tuple[float, float]]:
    """Return the least and the greatest finite value of each column, over all frames."""
    scales = []
    for column in range(len(frames[0].tables)):
        values = np.concatenate([frame.tables[column] for frame in frames])
        finite = values[np.isfinite(values)]
        scales.append((float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0))
    return scales


def _worst_cost(problem: AbstractProblem | None) -> np.ndarray | None:
    """Return the largest true constraint value ``[M]``; ``None`` without a problem or without constraints."""
    means = None if problem is None else np.asarray(problem.means)
    return None if means is None or len(means) < 2 else means[1:].max(axis=0)


def _panel(axis: Axes, surrogate: Surrogate, frame: _Frame, column: int, scale: tuple[float, float], truth: np.ndarray | None) -> QuadMesh:
    """Draw one table as a map with outlines and points; return the shaded image."""
    across, up = (np.asarray(values) for values in surrogate.domain.axes)
    shape = surrogate.domain.grid_shape

    def on_grid(table: np.ndarray) -> np.ndarray:
        return np.ma.masked_invalid(table.reshape(shape).T)  # the last axis varies fastest and is drawn upwards

    image = axis.pcolormesh(across, up, on_grid(frame.tables[column]), shading="nearest", cmap=SHADES, vmin=scale[0], vmax=scale[1])
    for worst, dash in ((truth, "solid"), (frame.believed, "dashed")):
        if worst is not None and np.nanmin(worst, initial=np.inf) < 0 < np.nanmax(worst, initial=-np.inf):
            line = axis.contour(across, up, on_grid(worst), levels=[0.0], colors="white", linewidths=1.2, linestyles=dash)
            line.set(path_effects=[withStroke(linewidth=2.6, foreground="black")])  # visible on dark and on light shades
    points = np.asarray(surrogate.domain.points)[frame.tried]
    look: Any = {"linestyle": "none", "markerfacecolor": "white", "markeredgecolor": "black", "markeredgewidth": 0.7, "clip_on": False}
    marks = axis.plot(*points[:-1].T, "o", markersize=3.2, **look) + axis.plot(*points[-1:].T, "*", markersize=10, **look)
    for mark in marks:
        mark.set_in_layout(False)  # marks that are not clipped would enlarge the panel
    axis.grid(False)
    axis.set(xlim=(across[0], across[-1]), ylim=(up[0], up[-1]))
    return image
