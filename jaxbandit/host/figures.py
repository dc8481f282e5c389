"""The style of all figures, readable without colour, and their axes.

Settings of matplotlib that a user has changed from its defaults stay as they are: sizes of letters and lines follow them. New axes are
pyplot's, so that a notebook shows them; no backend is ever chosen here. A function that returns a whole figure, for a file or a notebook,
makes a :class:`Drawing` without pyplot, and its caller writes it.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import re
import string
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Annotated, Any, Literal, TypeAlias

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patheffects import withStroke
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator, NullFormatter

from jaxbandit.core.checks import InvalidArgument, one_of, short, short_enough
from jaxbandit.core.declare import FilePath, checked
from jaxbandit.core.fields import between, each, of_class, scalar, whole
from jaxbandit.domains import Domain

SETTINGS: Any = matplotlib.rcParams

#: Okabe and Ito's palette, without yellow, which is too light for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
#: Dashes of lines, beside their colours.
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))
#: Settings of Matplotlib under which figures are drawn.
STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "figure.dpi": 100,
}
#: The resolution of figures in files, in dots per inch.
DPI = 160
# An inch has this number of letters over their size in points.
LETTERS_OF_AN_INCH = 125
#: Colour map of heat maps; its lightness increases for colour-blind people and in grey print, too.
SHADES = "cividis"
PanelCount: TypeAlias = Annotated[int, whole(1, 1000)]
PANEL = (4.6, 3.5)  # [2] inches
# One of matplotlib's Axes, an array of them, an empty figure, or None for new axes.
GivenAxes: TypeAlias = Any
AnyFigure: TypeAlias = Annotated[Figure, of_class(Figure, "matplotlib's Figure")]
Size: TypeAlias = Annotated[tuple[float, float], each(between(0, 1000, host=True).of(scalar), length=2)]
PanelRows: TypeAlias = Annotated[
    Sequence[Sequence[Callable[..., Any]]],
    each(each(of_class(Callable, "a function of an argument ax"), least=1), least=1),
]
"""Functions of an argument ``ax`` that draw a panel each, by row."""

MARKERS: Any = {
    "best": {"linestyle": "none", "markersize": 12, "markerfacecolor": COLOURS[1], "markeredgecolor": "white", "markeredgewidth": 0.8},
    "measured": {"marker": "o", "linestyle": "none", "markersize": 4.5, "markerfacecolor": "white", "markeredgecolor": "black"},
    "failed": {"marker": "x", "linestyle": "none", "markersize": 5.5, "markeredgewidth": 1.6, "markeredgecolor": COLOURS[3]},
}


def _broken(label: Text, along: str, room: float) -> bool:
    """Break an axis's label that is longer than its panel."""
    length = getattr(label.get_window_extent(), along)
    if length <= room:
        return False
    formulas_whole = re.sub(r"\$[^$]*\$", lambda formula: formula[0].replace(" ", "\0"), label.get_text())
    lines = formulas_whole.split("\n")
    most = max(int(max(map(len, lines)) * room / length), 1)
    broken = [textwrap.fill(line, most, break_long_words=False, break_on_hyphens=False) for line in lines]
    label.set_text("\n".join(broken).replace("\0", " "))
    return broken != lines


class WholeLabels(ConstrainedLayoutEngine):
    """Constrained layout with labels in files no longer than their panels."""

    def execute(self, fig: Figure) -> None:
        """Lay out the figure, and break long labels in files."""
        super().execute(fig)
        for _ in range(2 if fig.canvas.is_saving() else 0):
            wide = [_broken(axis.xaxis.label, "width", axis.bbox.width) for axis in fig.axes]
            high = [_broken(axis.yaxis.label, "height", axis.bbox.height) for axis in fig.axes]
            if not any(wide + high):
                break
            super().execute(fig)


class Drawing(Figure):
    """A figure that a notebook shows with and without pyplot."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=100)
        return buffer.getvalue()


def look(number: int) -> dict[str, Any]:
    """Return colour and dash of line ``number``, eleven colours in turn."""
    line_colours = (*COLOURS, "#8C510A", "#5E3C99", "#7F7F7F", "#882255")
    return {"color": line_colours[number % len(line_colours)], "linestyle": DASHES[(number + number // len(line_colours)) % len(DASHES)]}


def plain(label: object) -> str:
    """Return a label with dollar signs escaped, so that no formula starts."""
    return str(label).replace("$", r"\$")


@contextmanager
def styled(settings: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Set matplotlib's ``settings`` for a while, by default ``STYLE``.

    The default changes only settings that the user has left at matplotlib's defaults. Unlike ``matplotlib.rc_context`` this restores
    nothing else: a notebook's backend, loaded with the first figure, then makes settings of its own that have to stay.
    """
    wanted = {name: value for name, value in STYLE.items() if _untouched(name)} if settings is None else settings
    before = {name: SETTINGS[name] for name in wanted}
    SETTINGS.update(wanted)
    try:
        yield
    finally:
        SETTINGS.update(before)


def _untouched(name: str) -> bool:
    settings: Any = matplotlib.rcParamsDefault
    return bool(SETTINGS[name] == settings[name])


@checked
def style(name: Literal["paper", "screen"] = "paper") -> AbstractContextManager[None]:
    """Return a context with a library style for all figures.

    It applies to the user's own figures, too, and so do settings changed within it. For figures with headlines, such as those of
    experiments, :func:`caption_of` removes the sentences.

    Args:
      name: ``"paper"``: as wide as a column (two, where panels stand side by side), 8 pt, thin lines, 300 dpi; or ``"screen"``.
    """
    # New figures are as wide as a column of a page, panels side by side as two columns.
    paper = {
        "figure.figsize": (3.35, 2.6),
        "font.size": 8,
        "axes.labelsize": "medium",
        "axes.titlesize": "medium",
        "axes.linewidth": 0.6,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "lines.linewidth": 1.0,
        "lines.markersize": 4,
        "legend.fontsize": "small",
        "savefig.dpi": 300,
        "pdf.fonttype": 42,
    }
    return styled(STYLE | paper if name == "paper" else STYLE)


def pen(factor: float = 1.0) -> float:
    """Return a line width, relative to the width in matplotlib's settings."""
    return float(SETTINGS["lines.linewidth"]) * factor


@checked
def caption_of(figure: AnyFigure) -> str:
    """Take the headline and long headings off a figure, as a caption."""
    said = [figure.get_suptitle()]
    figure.suptitle("")
    headed = [axis for axis in figure.axes if axis.get_title()]
    # Headings of more than 24 letters move to the caption.
    long = any(len(axis.get_title()) > 24 for axis in headed)
    for letter, axis in zip(itertools.cycle(string.ascii_lowercase), headed if long else (), strict=False):
        said.append(f"({letter}) {axis.get_title()}")
        axis.set_title(f"({letter})")
    return "; ".join(" ".join(words.split()) for words in said if words)


@checked
def write_figure(figure: AnyFigure, path: FilePath, kind: str) -> None:
    """Write a figure to a file of a ``kind``, such as ``"pdf"``."""
    one_of("kind", kind, figure.canvas.get_supported_filetypes())
    dpi = DPI if _untouched("savefig.dpi") else SETTINGS["savefig.dpi"]
    figure.savefig(path, format=kind, dpi=dpi)


def one_axis(ax: Axes | None, size: tuple[float, float] = PANEL) -> Axes:
    """Return the axes given, or new axes of ``size`` inches."""
    if ax is not None and not isinstance(ax, Axes):
        raise InvalidArgument(f"ax: must be matplotlib's Axes, or None for new ones, got {short(ax)}")
    return grid_of_axes(None, 1, 1, size)[0, 0] if ax is None else ax


@checked
def grid_of_axes(axes: GivenAxes, rows: PanelCount, columns: PanelCount, size: Size = PANEL) -> np.ndarray:
    """Return axes ``[rows, columns]``: given, in an empty figure, or pyplot's.

    Raises:
      InvalidArgument: when ``axes`` are given in another number.
    """
    if axes is None:
        from matplotlib import pyplot

        axes = pyplot.figure(FigureClass=Drawing, layout=WholeLabels())
    if isinstance(axes, Figure) and not axes.axes:
        return _panels(axes, rows, columns, size)
    short_enough("axes", axes)
    given = np.asarray(axes, object).reshape(-1)
    if given.size != rows * columns or not all(isinstance(one, Axes) for one in given):
        raise InvalidArgument(f"axes: must be {rows * columns} Axes ({rows} x {columns}), or None for new ones, got {short(axes)}")
    return given.reshape(rows, columns)


@checked
def figure_of(
    rows: PanelCount, columns: PanelCount, size: Size = PANEL, *, title: str = "", one_scale: bool = False
) -> tuple[Drawing, np.ndarray]:
    """Return a figure for a file and its axes ``[rows, columns]``.

    Each panel has ``size`` inches. With ``one_scale`` the panels of a row share their vertical scale.
    """
    figure = Drawing(layout=WholeLabels())
    axes = _panels(figure, rows, columns, size, one_scale=one_scale)
    size_of_letters = 1.1 * float(SETTINGS["font.size"])
    across = max(20, int(figure.get_figwidth() * LETTERS_OF_AN_INCH / size_of_letters))
    figure.suptitle("\n".join(textwrap.fill(line, across) for line in title.splitlines()), fontsize=size_of_letters)
    return figure, axes


@styled()
def _panels(figure: Figure, rows: int, columns: int, size: tuple[float, float], *, one_scale: bool = False) -> np.ndarray:
    """Return axes ``[rows, columns]`` of an empty figure, ``size`` inches each."""
    width = size[0] * columns if _untouched("figure.figsize") else SETTINGS["figure.figsize"][0] * min(columns, 2)
    figure.set_size_inches(width, width / columns * size[1] / size[0] * rows)
    axes: np.ndarray = figure.subplots(rows, columns, squeeze=False, sharey="row" if one_scale else "none")
    for axis in axes.flat:
        # Matplotlib makes ticks when it draws a figure, with the settings of that time.
        axis.grid(SETTINGS["axes.grid"], alpha=SETTINGS["grid.alpha"])
    return axes


@checked
def compose(title: str, rows: PanelRows, *, size: Size = PANEL, one_scale: bool = False) -> Drawing:
    """Return a figure of several panels for a file.

    Each function in ``rows`` draws a panel of ``size`` inches on the ``ax`` that it is given. With ``one_scale`` the panels of a row share
    their vertical scale.
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


@checked
def legend_below(figure: AnyFigure) -> None:
    """Add a legend below the panels, with each line and mark once."""
    if shown := _labelled(figure.axes):
        across = int(LETTERS_OF_AN_INCH * figure.get_figwidth() / float(SETTINGS["font.size"]) / (max(map(len, shown)) + 7))
        figure.legend(list(shown.values()), list(shown), loc="outside lower center", ncols=max(1, min(across, len(shown))))


def place_legend(axes: Iterable[Axes], *, new: bool = True) -> None:
    """Add a legend below a ``new`` figure, or in the first panel."""
    first, *others = axes
    if new:
        figure: Any = first.figure
        legend_below(figure)
    elif shown := _labelled([first, *others]):
        first.legend(list(shown.values()), list(shown), loc="best", fontsize="small", frameon=True)


def _labelled(axes: Sequence[Axes]) -> dict[str, Any]:
    """Return lines and marks by their labels."""
    return {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}


def shortened(labels: Sequence[str]) -> list[str]:
    """Return labels of at most 16 letters, without their ends or beginnings."""
    first = [label if len(label) <= 16 else f"{label[:15]}…" for label in labels]
    last = [label if len(label) <= 16 else f"…{label[-15:]}" for label in labels]
    return first if len(set(first)) == len(labels) else last


@dataclasses.dataclass(frozen=True)
class Ground:
    """Points ``[M, d]`` of a figure, with names and scales of coordinates."""

    domain: Domain
    points: np.ndarray
    names: tuple[str, ...]
    logarithmic: tuple[int, ...] = ()

    @classmethod
    def of(cls, domain: Domain) -> Ground:
        """Return the points of a domain, with letters for nameless coordinates."""
        letters = ("$x$",) if domain.dimension == 1 else tuple(f"$x_{number + 1}$" for number in range(domain.dimension))
        return cls(domain, np.asarray(domain.points, np.float64), tuple(map(plain, domain.names)) or letters)

    def edges(self, number: int) -> np.ndarray:
        """Return cell edges ``[n + 1]``, half way between the values, scaled."""
        values = np.unique(self.points[:, number])
        if len(values) < 2:
            around: np.ndarray = values + np.asarray([-0.5, 0.5])
            return around
        scaled = np.log(values) if number in self.logarithmic else values
        between = (scaled[1:] + scaled[:-1]) / 2
        edges = np.concatenate([[2 * scaled[0] - between[0]], between, [2 * scaled[-1] - between[-1]]])
        return np.exp(edges) if number in self.logarithmic else edges

    def dress(self, axis: Axes, *numbers: int) -> None:
        """Give a panel's axes the names, scales and categories of coordinates."""
        for number, letter, ticks in zip(numbers, "xy", (axis.xaxis, axis.yaxis), strict=False):
            axis.set(**{f"{letter}label": self.names[number]})
            if number in self.logarithmic:
                axis.set(**{f"{letter}scale": "log"})
                places = logarithmic_ticks(np.unique(self.points[:, number]))
                ticks.set_ticks(places, [f"{place:g}" for place in places])
                # Matplotlib would write numbers between, over each other.
                ticks.set_minor_formatter(NullFormatter())
            if self.domain.is_categorical(number):
                labels = [plain(label) for label in shortened(self.domain.categories[number])]
                # An axis has room for 15 labels.
                step = -(-len(labels) // 15)
                turned: Any = {"rotation": 30, "ha": "right"} if len(labels) <= 8 else {"rotation": 90}
                turned = turned if letter == "x" and sum(map(len, labels)) > 24 else {}
                ticks.set_ticks(range(0, len(labels), step), labels[::step], **turned)
                axis.set(**{f"{letter}lim": (-0.5, len(labels) - 0.5)})


def logarithmic_ticks(values: np.ndarray) -> np.ndarray:
    """Return ticks of a logarithmic axis with room for their labels."""
    low, high = float(values[0]), float(values[-1])
    exponents = np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    steps = [
        np.outer(10.0 ** exponents[::every], digits).reshape(-1) for every, digits in ((1, (1, 2, 5)), (1, (1, 3)), (1, 1), (2, 1), (3, 1))
    ]
    for ticks in (values, steps[0], np.asarray(MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(low, high)), *steps[1:]):
        inside = ticks[(ticks > low * (1 - 1e-9)) & (ticks < high * (1 + 1e-9))]
        gaps = np.diff(np.log(inside)) / np.log(high / low)
        # An axis has room for 28 letters.
        if len(inside) > 1 and gaps.min() * 28 > 1 + max(len(f"{tick:g}") for tick in inside):
            return inside
    return values[[0, -1]]


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A quantity at every point ``[M]``, and its measurements.

    ``seen`` has points ``[n]`` by number and values, NaN if none has arrived; ``limits`` are labelled values that begin a violation.
    """

    label: str
    mean: np.ndarray
    sd: np.ndarray | None = None
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    truth: np.ndarray | None = None
    seen: tuple[np.ndarray, np.ndarray] | None = None
    limits: Sequence[tuple[float, str]] = ()


def belief_curve(
    axis: Axes, quantity: Quantity, x: np.ndarray, along: np.ndarray, *, joined: bool = True, band: str = "", dots: str = "measured"
) -> None:
    """Draw a quantity ``along [n]`` over ``x [M]``, as bars unless ``joined``."""
    at, mean = x[along], quantity.mean[along]
    words = "posterior mean" if quantity.low is not None else None
    axis.plot(at, mean, "-" if joined else "s", color=COLOURS[0], label=words)
    if quantity.low is not None and quantity.high is not None:
        if joined:
            axis.fill_between(at, quantity.low[along], quantity.high[along], color=COLOURS[0], alpha=0.2, linewidth=0, label=band or None)
        else:
            axis.vlines(at, quantity.low[along], quantity.high[along], color=COLOURS[0], alpha=0.4, linewidth=6)
    if quantity.truth is not None:
        axis.plot(at, quantity.truth[along], color="black", linestyle=":", linewidth=pen(0.8), label="truth")
    if quantity.seen is not None:
        axis.plot(x[quantity.seen[0]], quantity.seen[1], label=dots, **MARKERS["measured"])
    for limit, label in quantity.limits:
        axis.axhline(limit, color=COLOURS[2], linestyle="--", linewidth=pen(0.7), label=label)
    axis.set_ylabel(plain(quantity.label))


def shade(axis: Axes, ground: Ground, values: np.ndarray, limits: tuple[float | None, float | None] = (None, None)) -> ScalarMappable:
    """Draw values ``[M]`` over a plane as cells, or squares without grid."""
    style: Any = {"cmap": SHADES, "vmin": limits[0], "vmax": limits[1]}
    if ground.domain.axes:
        table = np.ma.masked_invalid(values.reshape(ground.domain.grid_shape).T)
        image: ScalarMappable = axis.pcolormesh(ground.edges(0), ground.edges(1), table, shading="flat", rasterized=True, **style)
    else:
        image = axis.scatter(ground.points[:, 0], ground.points[:, 1], c=values, s=60, marker="s", **style)
    axis.grid(False)
    ground.dress(axis, 0, 1)
    return image


def outline(
    axis: Axes, ground: Ground, values: np.ndarray | None, label: str, *, levels: Sequence[float] = (0.0,), dash: str = "--"
) -> None:
    """Draw lines on a plane's grid where values ``[M]`` cross ``levels``."""
    if values is None or min(ground.domain.grid_shape, default=0) < 2:
        return
    axis.plot([], [], color="black", linewidth=pen(0.9), linestyle=dash, label=label)
    crossed = sorted({level for level in levels if np.nanmin(values, initial=np.inf) < level < np.nanmax(values, initial=-np.inf)})
    table, (x, y) = values.reshape(ground.domain.grid_shape).T, (np.unique(ground.points[:, number]) for number in (0, 1))
    if any(ground.domain.is_categorical(number) for number in (0, 1)):
        # Between categories there is nothing, so that lines follow the edges of cells.
        x, y = (ground.edges(number).repeat(2)[1:-1] for number in (0, 1))
        table = table.repeat(2, axis=0).repeat(2, axis=1)
    if crossed:
        shown = axis.contour(x, y, np.ma.masked_invalid(table), levels=crossed, colors="white", linewidths=1.2, linestyles=dash)
        shown.set(path_effects=[withStroke(linewidth=2.6, foreground="black")])


def thumbnail(values: np.ndarray, feasible: np.ndarray, best: tuple[int, int] | None) -> bytes:
    """Return a PNG of ``values [across, up]``, with a cross at ``best``."""
    figure = Drawing(figsize=(1.6, 1.6))
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set_axis_off()
    axis.imshow(values.T, cmap=SHADES, alpha=np.where(feasible, 1.0, 0.35).T, origin="lower", interpolation="nearest", aspect="auto")
    if best is not None:
        axis.plot(*best, "P", **MARKERS["best"] | {"markersize": 13})
    return figure._repr_png_()
