"""Every plot function, in one place; the modules beside this one define them.

Each takes what a person has at hand (a trajectory from :func:`~jaxbandit.simulate`, a mapping from labels to trajectories, or the dataset
of a study), draws on the Axes that it is given or on new ones, and returns them. Writing files is the caller's. In maps the star is the
optimum, solid lines are the edge of the truly feasible region and dashed lines that of the region believed to be feasible.
"""

from jaxbandit.drawing import COLOURS, DASHES, DPI, SHADES, STYLE, compose, figure_of, plain
from jaxbandit.report.beliefs import penalised_bounds, posterior_after, posterior_animation, posterior_curves, posterior_maps, problem_maps
from jaxbandit.report.curves import (
    PANELS,
    boxes_over_time,
    cumulative,
    curves,
    delay_histogram,
    distribution,
    multiplier_paths,
    rounds_of_declaration,
    trade_off,
)
from jaxbandit.report.sweeps import sweep, win_map

__all__ = [
    "COLOURS",
    "DASHES",
    "DPI",
    "PANELS",
    "SHADES",
    "STYLE",
    "boxes_over_time",
    "compose",
    "cumulative",
    "curves",
    "delay_histogram",
    "distribution",
    "figure_of",
    "multiplier_paths",
    "penalised_bounds",
    "plain",
    "posterior_after",
    "posterior_animation",
    "posterior_curves",
    "posterior_maps",
    "problem_maps",
    "rounds_of_declaration",
    "sweep",
    "trade_off",
    "win_map",
]
__dir__ = __all__.copy  # what completion shows
