"""Tables of results: averages over trials at the last round, as text or CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from jaxbandit.core.status import Status
from jaxbandit.report.statistics import elapsed, healthy, healthy_values

# Columns of a table: heading, dataset variable, and true if it is divided by the number of rounds.
COLUMNS = (
    ("R/t", "regret", True),
    ("R+/t", "positive_regret", True),
    ("V/t", "hard_violation", True),
    ("soft V/t", "soft_violation", True),
    ("N", "violating_rounds", False),
    ("best R+V", "best_constrained_regret", False),
    ("strong R/t", "strong_regret", True),
)


def summary_rows(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Return a row per algorithm: mean and 95% half-width of every measure after the last round, over trials that did not fail."""
    rows = []
    for label in dataset.algorithm.values:
        part = dataset.sel(algorithm=label)
        ok = healthy(part)
        declared = part.declared_round.values
        row: dict[str, Any] = {"algorithm": str(label), "trials": len(ok), "failed": int((~ok).sum())}
        for heading, name, averaged in COLUMNS:
            final = healthy_values(part, name)[:, -1] / (elapsed(dataset)[-1] if averaged else 1) if name in part else np.zeros(0)
            row[heading] = float(final.mean()) if len(final) else float("nan")
            row[f"{heading} +-"] = float(1.96 * final.std(ddof=1) / np.sqrt(len(final))) if len(final) > 1 else float("nan")
        row["declared infeasible"] = int(np.count_nonzero(part.status.values & int(Status.DECLARED_INFEASIBLE)))
        row["mean round declared"] = float(declared[declared > 0].mean()) if np.any(declared > 0) else float("nan")
        played = part.sizes["trial"] * int(part["round"][-1])
        seconds = float(part.run_seconds) if "run_seconds" in part else float("nan")
        row["us per trial-round, compiling included"] = seconds / played * 1e6
        rows.append(row)
    return rows


def write_csv(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write rows as CSV, with the keys of the first row as header."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def text_table(rows: Sequence[dict[str, Any]]) -> str:
    """Format rows as an aligned text table, with ``mean +- half-width`` of every measure that some row has."""
    shown = [heading for heading, _, _ in COLUMNS if any(np.isfinite(row[heading]) for row in rows)]
    heads = ["algorithm", *shown, "declared"]
    cells = [
        [
            row["algorithm"] + (f" ({row['failed']} failed)" if row["failed"] else ""),
            *(f"{row[h]:.3f} +- {row[h + ' +-']:.3f}" if np.isfinite(row[h]) else "undefined" for h in shown),
            f"{row['declared infeasible']}/{row['trials']}",
        ]
        for row in rows
    ]
    return aligned([heads, *cells])


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Format lines of cells as text in columns: the first left-aligned, the others right-aligned, a rule under the first line."""
    widths = [max(len(line[c]) for line in lines) for c in range(len(lines[0]))]

    def joined(line: Sequence[str]) -> str:
        first, *rest = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        return "  ".join([first.strip().ljust(widths[0]), *rest])

    text = [joined(line) for line in lines]
    return "\n".join([text[0], "-" * len(text[0]), *text[1:]])
