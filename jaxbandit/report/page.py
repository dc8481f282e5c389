"""Tables of algorithms against problems on one page: as heat maps, and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from jaxbandit.report.plots import STYLE

# From what is best to what is worst; light, so that black numbers can be read on it.
COLOUR_MAP = "RdYlBu_r"
ALPHA = 0.6


def ranks(table: np.ndarray) -> np.ndarray:
    """The rank of every number within its column, 0 for the least and 1 for the greatest, equals sharing one; NaN where there is none."""
    result = np.full(table.shape, np.nan)
    for column, values in enumerate(table.T):
        known = np.flatnonzero(np.isfinite(values))
        shown = np.array([float(f"{value:.3g}") for value in values[known]])  # what prints alike is alike
        below = np.array([np.sum(shown < value) + 0.5 * (np.sum(shown == value) - 1) for value in shown])
        result[known, column] = below / max(len(known) - 1, 1)
    return result


def short(value: float) -> str:
    """A number in at most six characters."""
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
    """Lines of cells as a Markdown table, the first as its head; all columns but the first to the right."""
    head, *body = lines
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *body))


def heat_maps(
    path: Path, title: str, panels: Sequence[tuple[str, np.ndarray]], rows: Sequence[str], columns: Sequence[str], *, across: int = 2
) -> None:
    """One panel for each pair of a heading and a table ``[rows, columns]``, coloured by rank within the column: blue is least.

    Writes a PNG to ``path``. NaN stays empty: that pair was not run.
    """
    down = -(-len(panels) // across)
    size = (across * (1.2 + 0.46 * len(columns)), 0.6 + down * (1.35 + 0.21 * len(rows)))
    with plt.rc_context({**STYLE, "axes.grid": False, "font.size": 7}):
        figure, axes = plt.subplots(down, across, figsize=size, layout="constrained", squeeze=False)
        for axis in axes.flat[len(panels) :]:
            axis.set_axis_off()
        for axis, (heading, table) in zip(axes.flat, panels, strict=False):
            _panel(axis, heading, table, rows, columns)
        figure.suptitle(title, fontsize=11)
        figure.savefig(path)
        plt.close(figure)


def _panel(axis: Any, heading: str, table: np.ndarray, rows: Sequence[str], columns: Sequence[str]) -> None:
    """One table on one axis."""
    axis.imshow(ranks(table), cmap=COLOUR_MAP, alpha=ALPHA, vmin=0, vmax=1, aspect="auto")
    for row, column in zip(*np.nonzero(np.isfinite(table)), strict=True):
        axis.text(column, row, short(table[row, column]), ha="center", va="center", fontsize=6)
    axis.set_title(heading, fontsize=9)
    axis.set_xticks(range(len(columns)), columns, rotation=40, ha="right")
    axis.set_yticks(range(len(rows)), rows)
    axis.tick_params(length=0)
    for side in axis.spines.values():
        side.set_visible(False)
