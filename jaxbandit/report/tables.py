"""Tables of results: averages over trials at the last round, as text, LaTeX or CSV."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from jaxbandit.core.declare import Key
from jaxbandit.core.pytree import aligned
from jaxbandit.problems import AbstractProblem
from jaxbandit.report.statistics import Given, elapsed, results_at_hand
from jaxbandit.results.dataset import to_dataframe
from jaxbandit.results.measured import COLUMNS, RunSummary, summary_cells, summary_row

__all__ = ["COLUMNS", "aligned", "latex_table", "summary_rows", "text_table", "to_dataframe", "write_csv"]
__dir__ = __all__.copy  # what completion shows

# The measures' headings as formulas of LaTeX.
FORMULAS = {
    "R/t": "$R/t$",
    "R+/t": "$R^+/t$",
    "V/t": "$V/t$",
    "soft V/t": "$V_{\\mathrm{soft}}/t$",
    "N": "$N$",
    "best R+V": "$\\min(R^+ + V)$",
    "strong R/t": "$R_{\\mathrm{strong}}/t$",
}

# Axis labels of measures divided by the rounds, as figures have a panel for each.
PANELS = (
    ("regret", "average regret $R(t)/t$"),
    ("positive_regret", "average positive regret $R^+(t)/t$"),
    ("hard_violation", "average violation $V(t)/t$"),
)

# Axis labels of measures, in units of the reward and the constraints, or counts.
WORDS = {
    "regret": "regret $R(t)$",
    "positive_regret": "positive regret $R^+(t)$",
    "hard_violation": "violation $V(t)$",
    "soft_violation": "soft violation",
    "strong_regret": "strong regret",
    "violating_rounds": "violating rounds $N$",
    "best_constrained_regret": "best regret + violation so far",
    "reward": "sum of rewards",
    "best_feasible_value": "best feasible value so far",
}

Summarised: TypeAlias = Given | RunSummary | Sequence[Mapping[str, Any]]
"""Results as plots take them, or a summary of them: that of a run, or the rows of one."""

ROW = summary_row("", {}, 0, np.zeros(0, np.int32), np.zeros(0, np.int32)).keys()


def summary_rows(results: Summarised, problem: AbstractProblem | None = None, *, key: Key | None = None) -> list[dict[str, Any]]:
    """Return a row per algorithm: mean and 95% half-width of every measure after the last round, over trials that did not fail.

    Args:
      results: what plots take, see :func:`~jaxbandit.report.statistics.results_at_hand`; rows, and those of a summary, stay as they are.
      problem, key: of trajectories, as for plots.

    Raises:
      InvalidArgument: on anything else, or when the problem or the key is missing.
    """
    given = results.rows if isinstance(results, RunSummary) else results
    if isinstance(given, list | tuple) and given and all(isinstance(row, Mapping) and row.keys() >= ROW for row in given):
        return [dict(row) for row in given]
    dataset = results_at_hand(given, problem, key=key)  # type: ignore[arg-type]  # which refuses what it does not take
    rows = []
    for label in dataset.algorithm.values:
        part = dataset.sel(algorithm=label)
        last = {name: part[name].isel(round=-1).values for _, name, _ in COLUMNS if name in part}
        row = summary_row(str(label), last, elapsed(part)[-1], part.status.values, part.declared_round.values)
        played = part.sizes["trial"] * int(part["round"][-1])
        seconds = float(part.run_seconds) if "run_seconds" in part else float("nan")
        row["us per trial-round, compiling included"] = seconds / played * 1e6
        rows.append(row)
    return rows


def write_csv(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write rows as CSV, with their keys as header."""
    pd.DataFrame(rows).to_csv(path, index=False, na_rep="nan")


def text_table(results: Summarised, problem: AbstractProblem | None = None, *, key: Key | None = None) -> str:
    """Return an aligned text table, with ``mean +- half-width`` of every measure that some row has; arguments as :func:`summary_rows`."""
    return aligned(summary_cells(summary_rows(results, problem, key=key)))


def latex_table(
    results: Summarised, problem: AbstractProblem | None = None, *, key: Key | None = None, caption: str = "", label: str = ""
) -> str:
    """Return a table of results as a LaTeX ``tabular``, which needs no package; with a caption or label as a ``table``.

    Args:
      results, problem, key: as for :func:`summary_rows`.
      caption: text of the caption, in LaTeX.
      label: name for references, such as ``tab:sine``.
    """
    head, *body = summary_cells(summary_rows(results, problem, key=key), joint=r" \pm ")
    lines = [[first, *(f"${cell}$" if r"\pm" in cell else cell for cell in others)] for first, *others in body]
    frame = pd.DataFrame(lines, columns=[FORMULAS.get(cell, cell) for cell in head]).style.hide(axis="index")
    form = {"column_format": f"l{'r' * (len(head) - 1)}", "position_float": "centering" if caption or label else None}
    text = frame.format(escape="latex", subset=["algorithm"]).to_latex(hrules=True, caption=caption or None, label=label or None, **form)
    return re.sub(r"\\(top|mid|bottom)rule", r"\\hline", text).strip()
