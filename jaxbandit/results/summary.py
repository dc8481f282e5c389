"""Summaries of runs: means over trials after the last round, a row for each run, as text and as HTML."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxbandit.core.intervals import half_width
from jaxbandit.core.showing import aligned, html_table
from jaxbandit.core.status import Status, healthy
from jaxbandit.core.types import Key
from jaxbandit.problems import AbstractProblem
from jaxbandit.results.measured import Played, check_alike, measured, variants_named

# Columns of a table: heading, measure, and true if it is divided by the number of rounds.
COLUMNS = (
    ("R/t", "regret", True),
    ("R+/t", "positive_regret", True),
    ("V/t", "hard_violation", True),
    ("soft V/t", "soft_violation", True),
    ("N", "violating_rounds", False),
    ("best R+V", "best_constrained_regret", False),
    ("strong R/t", "strong_regret", True),
)

LEGEND = (
    "Means over trials after the last round with half-widths of 95% intervals; /t: divided by the number of rounds. R regret, R+ its"
    " positive part, V violation, N violating rounds, declared: trials that declared the instance infeasible."
)


@dataclasses.dataclass(frozen=True, repr=False)
class RunSummary:
    """Table of how runs went; it shows itself as text and, in notebooks, as HTML.

    Attributes:
      rows: by heading, the mean and (``"R/t +-"``) the 95% confidence half-width of every measure, with counts of trials.
    """

    rows: tuple[dict[str, Any], ...]

    def __repr__(self) -> str:
        return aligned(summary_cells(self.rows))

    def _repr_html_(self) -> str:
        head, *body = summary_cells(self.rows, " ± ")
        return html_table(head, body, caption=LEGEND)


def summary_row(label: str, finals: Mapping[str, np.ndarray], status: np.ndarray, declared: np.ndarray) -> dict[str, Any]:
    """Return the row of one run.

    Args:
      label: name of the run.
      finals: by measure, its values after the last round in the trials that did not fail, divided by the rounds where the column says so.
      status, declared: ``[trials]`` flags, and rounds in which infeasibility was declared, 0 for none.
    """
    ok = healthy(status)
    row: dict[str, Any] = {"algorithm": label, "trials": len(ok), "failed": int((~ok).sum())}
    for heading, name, _ in COLUMNS:
        final = finals.get(name, np.zeros(0))
        row[heading] = float(final.mean()) if len(final) else float("nan")
        row[f"{heading} +-"] = float(half_width(final))
    row["declared infeasible"] = int(np.count_nonzero(status & int(Status.DECLARED_INFEASIBLE)))
    row["mean round declared"] = float(declared[declared > 0].mean()) if np.any(declared > 0) else float("nan")
    return row


def summary_of(
    runs: Mapping[str, Played],
    problem: AbstractProblem,
    *,
    key: Key | None = None,
    trials: int | Sequence[int] | None = None,
    swept: Mapping[str, Sequence[Any]] | None = None,
) -> RunSummary:
    """Return the summary of runs on one problem; arguments and errors as for :meth:`~jaxbandit.Trajectory.to_xarray`."""
    numbers = check_alike(runs, problem, trials)
    rows = []
    for label, run in runs.items():
        curves, elapsed = measured(run, problem, numbers, key), run.horizon + run.before
        for place, (name, _) in enumerate(variants_named(label, run, swept)):
            own = slice(place * run.trials, (place + 1) * run.trials)
            status, declared = run.arrays["end_status"][own], run.arrays["end_declared_round"][own]
            ok = healthy(status)
            finals = {
                measure: curves[measure][own, -1][ok].astype(np.float64) / (elapsed if averaged else 1)
                for _, measure, averaged in COLUMNS
                if measure in curves
            }
            rows.append(summary_row(name, finals, status, declared))
    return RunSummary(rows=tuple(rows))


def summary_cells(rows: Sequence[Mapping[str, Any]], joint: str = " +- ") -> list[list[str]]:
    """Return the cells of a table of rows as text, the heading first, with every measure that some row has."""
    shown = [heading for heading, _, _ in COLUMNS if any(np.isfinite(row[heading]) for row in rows)]

    def cell(row: Mapping[str, Any], heading: str) -> str:
        if not np.isfinite(row[heading]):
            return "undefined"
        half = row[f"{heading} +-"]
        return f"{row[heading]:.3f}{joint}{half:.3f}" if np.isfinite(half) else f"{row[heading]:.3f}"

    body = [
        [
            row["algorithm"] + (f" ({row['failed']} failed)" if row["failed"] else ""),
            *(cell(row, heading) for heading in shown),
            f"{row['declared infeasible']}/{row['trials']}",
        ]
        for row in rows
    ]
    return [["algorithm", *shown, "declared"], *body]
