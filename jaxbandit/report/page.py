"""Tables of algorithms against problems on one page, as heat maps and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxbandit.core.checks import shape
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import AtLeast, each, numbers, text, whole
from jaxbandit.drawing import STYLE

__all__ = ["heat_maps", "markdown_table", "ranks", "short"]
__dir__ = __all__.copy  # what completion shows

# Runs from best to worst; light, so that black numbers can be read on it.
COLOUR_MAP = "RdYlBu_r"
ALPHA = 0.6


def ranks(table: np.ndarray) -> np.ndarray:
    """Return the rank of each number within its column, from 0 (least) to 1 (greatest), ties sharing a rank; NaN where there is none."""
    result = np.full(table.shape, np.nan)
    for column, values in enumerate(table.T):
        known = np.flatnonzero(np.isfinite(values))
        shown = np.array([float(f"{value:.3g}") for value in values[known]])  # numbers that print alike are ties
        below = np.array([np.sum(shown < value) + 0.5 * (np.sum(shown == value) - 1) for value in shown])
        result[known, column] = below / max(len(known) - 1, 1)
    return result


def short(value: float) -> str:
    """Format a number in at most six characters."""
    if not np.isfinite(value):
        return ""
    size = abs(value)
    if size >= 1e4:
        return f"{value / 1000:.0f}k"
    return (
        f"{value:.0f}"
        if size >= 100
        else f"{value:.1f}"
        if size >= 10
        else f"{value:.2f}"
        if size >= 0.005 or size == 0
        else f"{value:.0e}"
    )


def markdown_table(lines: Sequence[Sequence[str]]) -> str:
    """Format lines of cells as a Markdown table; the first line is its head, all columns but the first are right-aligned."""
    head, *body = lines
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *body))


@checked
def heat_maps(
    title: str,
    panels: Annotated[Sequence[tuple[str, np.ndarray]], each(each(text | numbers, length=2), least=1)],
    rows: Annotated[Sequence[str], AtLeast(1)],
    columns: Annotated[Sequence[str], AtLeast(1)],
    *,
    across: Annotated[int, whole(1, 1000)] = 2,
) -> Figure:
    """Return a figure with a panel for each heading and table ``[rows, columns]``, coloured by rank within the column: blue is least.

    Cells that are NaN, pairs that were not run, stay empty.
    """
    for number, (_, table) in enumerate(panels):
        shape(f"panels[{number}]", table, (len(rows), len(columns)), remedy="a table with an entry for each row and column")
    down = -(-len(panels) // across)
    size = (across * (1.2 + 0.46 * len(columns)), 0.6 + down * (1.35 + 0.21 * len(rows)))
    with rc_context({**STYLE, "axes.grid": False, "font.size": 7}):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(down, across, squeeze=False)
        for axis in axes.flat[len(panels) :]:
            axis.set_axis_off()
        for axis, (heading, table) in zip(axes.flat, panels, strict=False):
            _panel(axis, heading, np.asarray(table, np.float64), rows, columns)
        figure.suptitle(title, fontsize=11)
    return figure


def _panel(axis: Axes, heading: str, table: np.ndarray, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Draw one table on one axis."""
    axis.imshow(ranks(table), cmap=COLOUR_MAP, alpha=ALPHA, vmin=0, vmax=1, aspect="auto")
    for row, column in zip(*np.nonzero(np.isfinite(table)), strict=True):
        axis.text(column, row, short(table[row, column]), ha="center", va="center", fontsize=6)
    axis.set_title(heading, fontsize=9)
    axis.set_xticks(range(len(columns)), columns, rotation=40, ha="right")
    axis.set_yticks(range(len(rows)), rows)
    axis.tick_params(length=0)
    for side in axis.spines.values():
        side.set_visible(False)
