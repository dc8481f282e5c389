"""The course of a trial as an animation, one round after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from jaxbandit.core.arguments import takes
from jaxbandit.core.fields import of_class, optional, positive, scalar, text
from jaxbandit.drawing import SHADES, STYLE, in_style, place_legend, plain, styled
from jaxbandit.engine import Trajectory
from jaxbandit.problems import AbstractProblem
from jaxbandit.problems.base import INSTANCE
from jaxbandit.report.beliefs import ROUNDS, RUN, SCORE, Frame, Score, frames_of, names_of
from jaxbandit.report.lines import LINE_PANEL, line_limits, line_row
from jaxbandit.report.planes import MAP_PANEL, check_plane, headings, legend_below, name_of_axis, panel, scales_of, truth_of
from jaxbandit.surrogates import Surrogate

if TYPE_CHECKING:
    from matplotlib.animation import FuncAnimation

SECONDS_PER_FRAME = 0.5


@takes(
    surrogate=of_class(Surrogate),
    trajectory=RUN,
    rounds=ROUNDS,
    problem=optional(INSTANCE),
    score=SCORE,
    width=positive.of(scalar),
    seconds_per_frame=positive.of(scalar),
    title=text,
)
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
    """Return an animation of ``posterior_maps`` or, on a line, ``posterior_curves``: one round after another.

    Its ``save("trial.gif", writer="pillow")`` writes it; its ``to_jshtml()`` shows it in a notebook. The arguments and errors are those of
    the two functions.
    """
    from matplotlib.animation import FuncAnimation

    on_line = surrogate.domain.dimension == 1
    if not on_line:
        check_plane(surrogate)
    frames = frames_of(surrogate, trajectory, rounds, score)
    heads = [*names_of(surrogate), *(["acquisition"] if score is not None else [])] if on_line else headings(surrogate, score)
    scales, truth, limits = scales_of(frames), truth_of(problem), line_limits(frames, width, problem) if on_line else []
    size = LINE_PANEL if on_line else MAP_PANEL
    with styled():
        figure = Figure(figsize=(size[0] * len(heads), size[1] + 0.9), layout="constrained")
        axes = figure.subplots(1, len(heads), squeeze=False)[0]
        for axis, scale in zip(axes, scales, strict=True) if not on_line else ():
            shades = matplotlib.cm.ScalarMappable(matplotlib.colors.Normalize(*scale), SHADES)
            figure.colorbar(shades, ax=axis, location="bottom", shrink=0.85)
        if not on_line:
            legend_below(figure, truth, frames, new=True)

    @in_style
    def draw(frame: Frame) -> list[Artist]:
        for axis in axes:
            axis.clear()
            axis.grid(True, alpha=STYLE["grid.alpha"])  # which clearing has taken away
        if on_line:
            line_row(axes, surrogate, frame, width, problem, limits)
            for axis in axes:
                axis.set_xlabel(name_of_axis(surrogate.domain, 0))
        for column, (axis, head) in enumerate(zip(axes, heads, strict=True)):
            if not on_line:
                panel(axis, surrogate, frame, column, scales[column], truth)
                axis.set(xlabel=name_of_axis(surrogate.domain, 0), ylabel="" if column else name_of_axis(surrogate.domain, 1))
            axis.set_title(head)
        figure.suptitle(f"{plain(title)}{', ' if title else ''}after round {frame.round}", fontsize=11)
        return []

    if on_line and frames:
        draw(frames[0])
        with styled():
            place_legend(axes[0], axes[0].get_legend_handles_labels()[0], new=True)
    return FuncAnimation(
        figure, draw, frames=frames, init_func=lambda: [], cache_frame_data=False, interval=1000 * seconds_per_frame, repeat=True
    )
