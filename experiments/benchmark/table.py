"""Figures as text, a line for each number by key.

Keys that come again and again have a table.
"""

from __future__ import annotations

from typing import Any

from jaxbandit.report.tables import aligned

ABOUT = ("backend", "device", "cpu_model", "cores", "pinned", "versions", "date", "seconds", "dtype")
SIZES = ("points_per_axis", "points", "counts", "trials", "horizon", "short_horizon", "repeats", "turns", "plays")


def table(figures: dict[str, Any]) -> str:
    """Return every figure of a run as text."""
    parts = {name: value for name, value in figures.items() if isinstance(value, dict) and name not in ABOUT}
    numbers = {name: value for name, value in figures.items() if name not in {*parts, *ABOUT, *SIZES}}
    about = {name: figures[name] for name in ABOUT if name in figures}
    return sections({"RPOL-UCB on sine, the machine": about, "sizes": {name: figures[name] for name in SIZES}, "engine": numbers, **parts})


def sections(parts: dict[str, dict[str, Any]]) -> str:
    """Return the figures of each part below its name."""
    return "\n".join(line for name, part in parts.items() if part for line in (name, *_lines(part), ""))


def _lines(figures: dict[str, Any]) -> list[str]:
    """Return a line for each figure, or a table of mappings."""
    lines = []
    for name, value in figures.items():
        rows = list(value.values()) if isinstance(value, dict) else []
        if rows and all(isinstance(row, dict) and list(row) == list(rows[0]) for row in rows):
            cells = [[name, *rows[0]], *([str(key), *(in_words(cell) for cell in row.values())] for key, row in value.items())]
            lines += [f"  {line}" for line in aligned(cells).splitlines()]
        else:
            lines.append(f"  {name:32s} {in_words(value)}")
    return lines


def in_words(value: Any) -> str:
    """Return a value as text, numbers with four digits and thousands apart."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {in_words(part)}" for key, part in value.items())
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    return "-" if value is None else str(value)
