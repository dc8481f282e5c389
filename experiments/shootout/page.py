"""Tables of algorithms against problems on one page.

They are heat maps and Markdown.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from jaxbandit.report.plots import figure_of

# Runs from best to worst; light, so that black numbers can be read on it.
COLOUR_MAP = "RdYlBu_r"
ALPHA = 0.6


def ranks(table: np.ndarray) -> np.ndarray:
    """Return the rank of each number within its column.

    Ranks are from 0 (least) to 1 (greatest). Ties share a rank, and NaN stays.
    """
    # Numbers that print alike are a tie.
    shown = [[float(f"{value:.3g}") if np.isfinite(value) else np.nan for value in row] for row in table]
    order = pd.DataFrame(shown).rank()
    return ((order - 1) / (order.count() - 1).clip(lower=1)).to_numpy()


def short(value: float) -> str:
    """Format a number in at most six characters."""
    if not np.isfinite(value):
        return ""
    if abs(value) >= 1e4:
        return f"{value / 1000:.0f}k"
    digits = next((digits for least, digits in ((100, 0), (10, 1), (0.005, 2)) if abs(value) >= least), None)
    return f"{value:.0e}" if digits is None and value else f"{value:.{2 if digits is None else digits}f}"


def markdown_table(lines: Sequence[Sequence[str]]) -> str:
    """Format lines of cells, the head first, as a Markdown table."""
    head, *body = lines
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *body))


def page_of(rows: Sequence[Mapping[str, str]], notes: Sequence[str]) -> Callable[[Path], object]:
    """Return the function that writes a table as Markdown, with notes."""
    lines = [markdown_table([list(rows[0]), *(list(row.values()) for row in rows)]), "", *(f"- {note}" for note in notes)]
    return lambda path: path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def heat_maps(title: str, panels: Sequence[tuple[str, np.ndarray]], rows: Sequence[str], columns: Sequence[str]) -> Figure:
    """Return a figure with a panel for each heading and table.

    Tables are ``[rows, columns]``, coloured by rank within the column. Blue is least. Cells that are NaN, pairs that were not run, stay
    empty.
    """
    size = (1.2 + 0.46 * len(columns), 1.35 + 0.21 * len(rows))
    with rc_context({"font.size": 7}):
        figure, axes = figure_of(-(-len(panels) // 2), 2, size, title=title)
        for axis in axes.flat[len(panels) :]:
            axis.set_axis_off()
        for axis, (heading, table) in zip(axes.flat, panels, strict=False):
            values = np.asarray(table, np.float64)
            axis.imshow(ranks(values), cmap=COLOUR_MAP, alpha=ALPHA, vmin=0, vmax=1, aspect="auto")
            for row, column in zip(*np.nonzero(np.isfinite(values)), strict=True):
                axis.text(column, row, short(values[row, column]), ha="center", va="center", fontsize="small")
            axis.set_title(textwrap.fill(heading, max(12, int(10 * size[0]))), fontsize="large")
            axis.set_xticks(range(len(columns)), columns, rotation=40, ha="right")
            axis.set_yticks(range(len(rows)), rows)
            axis.tick_params(length=0)
            axis.grid(False)
            axis.spines[:].set_visible(False)
    return figure
