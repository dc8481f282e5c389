"""The check of plot functions."""

from __future__ import annotations

import contextlib
import inspect
import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxbandit.testing.common import ensure


def check_plot(plot: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Check that a plot function draws labelled axes, and return its result.

    Args:
      plot: a function that returns a figure, Axes or an array of Axes. If it has an argument ``ax``, it must draw there.
      args: its positional arguments.
      options: its arguments by name.

    Raises:
      AssertionError: if the function breaks a promise, such as to write no file.
    """
    import matplotlib as mpl
    import matplotlib.pyplot as plt
    from matplotlib.category import StrCategoryFormatter
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedFormatter, FuncFormatter

    name, settings = plot.__name__, dict(mpl.rcParams)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        drawn = plot(*args, **options)
        figures = (
            [drawn] if isinstance(drawn, Figure) else [axis.figure for axis in np.ravel(np.asarray(drawn, object)) if axis is not None]
        )
        ensure(bool(figures), name, f"must return a figure or Axes, got {drawn!r}")
        figures[0].canvas.draw()
        written = sorted(os.listdir(folder))
    ensure(not written, name, f"must write no file, wrote {', '.join(written)}")
    ensure(dict(mpl.rcParams) == settings, name, "must leave matplotlib's settings as they were")
    axes = [axis for figure in dict.fromkeys(figures) for axis in figure.axes if axis.has_data() and axis.axison]
    ensure(bool(axes), name, "must draw data on Axes with visible axes")
    for number, axis in enumerate(axes):
        # Panels of a row may share the label of the y axis, and panels of a column the label of the x axis.
        beside = [(other, other.get_subplotspec()) for other in axes if other.figure is axis.figure]
        place = axis.get_subplotspec()
        column = [other for other, at in beside if other is axis or (at and place and at.colspan == place.colspan)]
        row = [other for other, at in beside if other is axis or (at and place and at.rowspan == place.rowspan)]
        sides = {"x": (axis.xaxis, [other.get_xlabel() for other in column]), "y": (axis.yaxis, [other.get_ylabel() for other in row])}
        for side, (own, labels) in sides.items():
            # Ticks with words, such as names of algorithms, need no label. A colour bar has its label on the side of its ticks.
            has_words = isinstance(own.get_major_formatter(), FixedFormatter | FuncFormatter | StrCategoryFormatter)
            labelled = any(labels) or has_words or not own.get_majorticklocs().size or axis.get_label() == "<colorbar>"
            ensure(labelled, name, f"must label the {side} axis of panel {number}, titled {axis.get_title()!r}")
    if "ax" in inspect.signature(plot).parameters and options.get("ax") is None:
        figure, axis = plt.subplots()
        again = plot(*args, **options | {"ax": axis})
        ensure(again is axis and axis.has_data(), name, "must draw on the Axes that it is given, and return them")
        plt.close(figure)
    return drawn
