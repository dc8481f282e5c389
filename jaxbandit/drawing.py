"""The style of all figures, readable by colour-blind people and in grey print, and the axes that they are drawn on.

New axes are pyplot's, so that a notebook shows them; no backend is ever chosen here. A function that returns a whole figure, for a file or
a notebook, makes a :class:`Drawing`, without pyplot; whoever asked for one writes it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, TypeAlias

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxbandit.core.checks import InvalidArgument, short, short_enough
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import between, each, of_class, scalar, whole

# Okabe and Ito's palette, without yellow, which is too light for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
LINE_COLOURS = (*COLOURS, "#8C510A", "#5E3C99", "#7F7F7F", "#882255")  # brown, violet, grey and wine, where there are many lines
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))
STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "figure.dpi": 100,
}
DPI = 160  # of figures in files
SHADES = "cividis"  # colour map of heat maps; its lightness increases for colour-blind people and in grey print too
Count: TypeAlias = Annotated[int, whole(1, 1000)]  # of rows or columns of a figure
PANEL = (4.6, 3.5)  # inches
GivenAxes: TypeAlias = Any  # one of matplotlib's Axes, an array of them, an empty figure, or None for new ones
Size: TypeAlias = Annotated[tuple[float, float], each(between(0, 1000, host=True).of(scalar), length=2)]  # in inches
DRAWN = each(each(of_class(Callable, "a function of an argument ax"), least=1), least=1)  # type: ignore[arg-type]  # a class at run time
# The optimum, where a figure shows it.
STAR: Any = {"linestyle": "none", "markersize": 12, "markerfacecolor": COLOURS[1], "markeredgecolor": "white", "markeredgewidth": 0.8}


class Drawing(Figure):
    """A figure that belongs to no window, which a notebook shows whether pyplot has been loaded or not."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=STYLE["figure.dpi"])
        return buffer.getvalue()


def look(number: int) -> dict[str, Any]:
    """Return colour and dash of line ``number`` of a figure; the first eleven have colours of their own."""
    return {"color": LINE_COLOURS[number % len(LINE_COLOURS)], "linestyle": DASHES[(number + number // len(LINE_COLOURS)) % len(DASHES)]}


def plain(label: object) -> str:
    """Return a label as text for a figure, with dollar signs escaped so that they start no formula."""
    return str(label).replace("$", r"\$")


def in_style(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function draw in the figures' style, whatever the user's settings are outside of it."""
    return styled()(draw)


@contextmanager
def styled() -> Iterator[None]:
    """Set the figures' style for a while.

    Unlike ``matplotlib.rc_context`` this restores nothing else: a notebook's backend, which is loaded with the first figure, then makes
    settings of its own that have to stay.
    """
    before = {name: rcParams[name] for name in STYLE}
    rcParams.update(STYLE)
    try:
        yield
    finally:
        rcParams.update(before)


def one_axis(ax: Axes | None, size: tuple[float, float] = PANEL) -> Axes:
    """Return the axes that were given, or new ones of ``size`` inches."""
    if ax is not None and not isinstance(ax, Axes):
        raise InvalidArgument(f"ax: must be matplotlib's Axes, or None for new ones, got {short(ax)}")
    return new_axes(1, 1, size)[0, 0] if ax is None else ax


def grid_of_axes(axes: GivenAxes, rows: int, columns: int, size: tuple[float, float] = PANEL, *, one_scale: bool = False) -> np.ndarray:
    """Return the axes that were given as ``[rows, columns]``, or new ones of ``size`` inches each: in an empty figure, or pyplot's.

    Raises:
      InvalidArgument: when those given are not so many axes.
    """
    if axes is None:
        return new_axes(rows, columns, size)
    if isinstance(axes, Figure) and not axes.axes:
        with styled():
            return _panels(axes, rows, columns, size, one_scale=one_scale)
    short_enough("axes", axes)
    given = np.asarray(axes, object).reshape(-1)
    if given.size != rows * columns or not all(isinstance(one, Axes) for one in given):
        raise InvalidArgument(f"axes: must be {rows * columns} Axes ({rows} x {columns}), or None for new ones, got {short(axes)}")
    return given.reshape(rows, columns)


@checked
def new_axes(rows: Count, columns: Count, size: Size = PANEL) -> np.ndarray:
    """Return axes ``[rows, columns]`` of a new figure of pyplot's, ``size`` inches each, which the user's backend shows."""
    from matplotlib import pyplot  # only here: files need none

    with styled():
        return _panels(pyplot.figure(layout="constrained"), rows, columns, size)


@checked
def figure_of(rows: Count, columns: Count, size: Size = PANEL, *, title: str = "", one_scale: bool = False) -> tuple[Drawing, np.ndarray]:
    """Return a figure for a file and its axes ``[rows, columns]``, ``size`` inches each.

    With ``one_scale`` the panels of a row share their vertical scale.
    """
    with styled():
        figure = Drawing(layout="constrained")  # of no backend: notebooks keep theirs
        axes = _panels(figure, rows, columns, size, one_scale=one_scale)
        figure.suptitle(title, fontsize=11)
    return figure, axes


def _panels(figure: Figure, rows: int, columns: int, size: tuple[float, float], *, one_scale: bool = False) -> np.ndarray:
    """Return axes ``[rows, columns]`` of an empty figure, ``size`` inches each."""
    figure.set_size_inches(size[0] * columns, size[1] * rows)
    axes: np.ndarray = figure.subplots(rows, columns, squeeze=False, sharey="row" if one_scale else "none")
    for axis in axes.flat:  # ticks are made when a figure is drawn, and would look up the settings of that time
        axis.grid(True, alpha=STYLE["grid.alpha"])
    return axes


@checked
def compose(
    title: str, rows: Annotated[Sequence[Sequence[Callable[..., Any]]], DRAWN], *, size: Size = PANEL, one_scale: bool = False
) -> Drawing:
    """Return a figure of several panels, for a file; each function in ``rows`` draws one panel on the ``ax`` that it is given.

    Panels are ``size`` inches each; with ``one_scale`` those of a row share their vertical scale.
    """
    figure, axes = figure_of(len(rows), max(len(row) for row in rows), size, title=title, one_scale=one_scale)
    with styled():
        for row, drawers in zip(axes, rows, strict=True):
            for axis in row[len(drawers) :]:
                axis.set_axis_off()
            for axis, draw in zip(row, drawers, strict=False):
                draw(ax=axis)
            for axis in row[1:] if one_scale else ():
                axis.set_ylabel("")
    return figure


def place_legend(axes: Iterable[Axes], *, new: bool = True) -> None:
    """Add a legend with each line and mark of panels once: under the panels of a ``new`` figure, else in the first panel."""
    panels = list(axes)
    shown = {label: handle for axis in panels for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    if not shown:
        return
    if new:
        panels[0].figure.legend(list(shown.values()), list(shown), loc="outside lower center", ncols=min(len(shown), 6), fontsize=9)
    else:
        panels[0].legend(list(shown.values()), list(shown), loc="best", fontsize=7, frameon=True)


def thumbnail(values: np.ndarray, feasible: np.ndarray, best: tuple[int, int] | None) -> bytes:
    """Return a PNG of a table on a plane: shades of the ``values [across, up]``, pale where not ``feasible``, a cross at the best point."""
    figure = Drawing(figsize=(1.6, 1.6))
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set_axis_off()
    axis.imshow(values.T, cmap=SHADES, alpha=np.where(feasible, 1.0, 0.35).T, origin="lower", interpolation="nearest", aspect="auto")
    if best is not None:
        axis.plot(*best, "P", **STAR | {"markersize": 13})
    return figure._repr_png_()
