"""Curves of a learner's posterior on a line after chosen rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.arguments import takes
from jaxbandit.core.fields import of_class, optional, positive, scalar
from jaxbandit.drawing import COLOURS, STAR, grid_of_axes, in_style, place_legend
from jaxbandit.engine import Trajectory
from jaxbandit.problems import AbstractProblem, optimum
from jaxbandit.problems.base import INSTANCE
from jaxbandit.report.beliefs import ROUNDS, RUN, SCORE, Frame, Score, frames_of, names_of
from jaxbandit.report.planes import name_of_axis
from jaxbandit.surrogates import Surrogate

LINE_PANEL = (4.2, 2.6)  # inches


@in_style
@takes(surrogate=of_class(Surrogate), trajectory=RUN, rounds=ROUNDS, problem=optional(INSTANCE), score=SCORE, width=positive.of(scalar))
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
    check_line(surrogate)
    frames, heads = frames_of(surrogate, trajectory, rounds, score), names_of(surrogate)
    columns = len(heads) + (score is not None)
    grid = grid_of_axes(axes, len(frames), columns, LINE_PANEL)
    limits = line_limits(frames, width, problem)
    for row, frame in zip(grid, frames, strict=True):
        line_row(row, surrogate, frame, width, problem, limits)
        row[0].set_ylabel(f"after round {frame.round}")
    for axis, head in zip(grid[0], [*heads, "acquisition"], strict=False):
        axis.set_title(head)
    for axis in grid[-1]:
        axis.set_xlabel(name_of_axis(surrogate.domain, 0))
    place_legend(grid[0, 0], grid[0, 0].get_legend_handles_labels()[0], new=axes is None)
    return grid


def check_line(surrogate: Surrogate) -> None:
    """Raise ``InvalidArgument`` unless the domain is one-dimensional."""
    if surrogate.domain.dimension != 1:
        raise checks.InvalidArgument(
            f"surrogate: curves need a one-dimensional domain, not dimension {surrogate.domain.dimension}; see posterior_maps"
        )


def line_limits(frames: list[Frame], width: float, problem: AbstractProblem | None) -> list[tuple[float, float]]:
    """Return for each output the least and the greatest value that some frame shows."""
    limits = []
    for j in range(len(frames[0].belief.mean)):
        shown = [frame.belief.mean[j] + sign * width * frame.belief.sd[j] for frame in frames for sign in (-1, 1)]
        shown += [frame.seen[:, j] for frame in frames] + ([] if problem is None else [np.asarray(problem.means)[j]])
        values = np.concatenate(shown)
        low, high = np.nanmin(values), np.nanmax(values)
        limits.append((float(low - 0.05 * (high - low)), float(high + 0.05 * (high - low))))
    return limits


def line_row(
    row: np.ndarray, surrogate: Surrogate, frame: Frame, width: float, problem: AbstractProblem | None, limits: list[tuple[float, float]]
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
