"""Tables of averages over trials as text, LaTeX or CSV."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Annotated, Any, TypeAlias

import numpy as np
import pandas as pd

from jaxbandit.core.checks import one_of
from jaxbandit.core.declare import KeyOrSeed
from jaxbandit.core.fields import whole
from jaxbandit.core.text import aligned, filled
from jaxbandit.problems import AbstractProblem
from jaxbandit.report.statistics import AnyResults, elapsed, results_at_hand
from jaxbandit.results.dataset import LABELS, to_dataframe
from jaxbandit.results.summary import COLUMNS, RunSummary, measures_shown, note_of, summary_row, summary_text

__all__ = ["COLUMNS", "aligned", "filled", "latex_table", "summary_rows", "text_table", "to_dataframe", "write_csv"]
__dir__ = __all__.copy


#: Measures divided by the number of rounds, and their axis labels; a figure has a panel for each.
PANELS = (
    ("regret", "average regret $R(t)/t$"),
    ("positive_regret", "average positive regret $R^+(t)/t$"),
    ("hard_violation", "average violation $V(t)/t$"),
)

# Axis labels of cumulative measures.
AXIS_LABELS = {
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

Summarised: TypeAlias = AnyResults | RunSummary | Sequence[Mapping[str, Any]]
"""Results as for plots, or their summary, of a run or in rows."""


def summary_rows(results: Summarised, problem: AbstractProblem | None = None, *, key: KeyOrSeed | None = None) -> list[dict[str, Any]]:
    """Return a row of final means and 95% half-widths per algorithm.

    Args:
      results: a trajectory, a mapping from labels to trajectories, a study's dataset, a summary, or rows; the function copies rows.
      problem, key: problem and key of trajectories; the key for random families only.

    Raises:
      InvalidArgument: on other results, or when the problem or the key is missing.
    """
    given = results.rows if isinstance(results, RunSummary) else results
    needed = summary_row("", {}, 0, np.zeros(0, np.int32), np.zeros(0, np.int32)).keys()
    if isinstance(given, list | tuple) and given and all(isinstance(row, Mapping) and row.keys() >= needed for row in given):
        return [dict(row) for row in given]
    dataset = results_at_hand(given, problem, key=key)  # type: ignore[arg-type]
    rows = []
    for label in dataset.algorithm.values:
        part = dataset.sel(algorithm=label)
        last = {column.measure: part[column.measure].isel(round=-1).values for column in COLUMNS if column.measure in part}
        row = summary_row(str(label), last, elapsed(part)[-1], part.status.values, part.declared_round.values)
        row |= {name: str(part[name].item()) for name in LABELS if name in part.coords}
        row |= {name: float(part[name]) for name in json.loads(dataset.attrs.get("swept", "[]")) if name in part.coords}
        played = part.sizes["trial"] * int(part["round"][-1])
        seconds = float(part.run_seconds) if "run_seconds" in part else float("nan")
        row["us per trial-round, compiling included"] = seconds / played * 1e6
        rows.append(row)
    return rows


def write_csv(rows: Sequence[dict[str, Any]], path: Path | IO[str]) -> None:
    """Write rows as CSV, with their keys as header."""
    pd.DataFrame(rows).to_csv(path, index=False, na_rep="nan")


def text_table(
    results: Summarised,
    problem: AbstractProblem | None = None,
    *,
    key: KeyOrSeed | None = None,
    width: Annotated[int, whole(20)] | None = None,
) -> str:
    """Return an aligned text table with ``mean +- half-width`` and a legend.

    Wide tables are cut into blocks of columns, and many rows are grouped by problem and sweep.

    Args:
      results, problem, key: as for :func:`summary_rows`.
      width: letters in a line; default the width of the terminal, or 80 without a terminal.
    """
    return summary_text(summary_rows(results, problem, key=key), width)


def decimals(half: float) -> int:
    """Return the number of decimals that shows two digits of a half-width."""
    return int(np.clip(1 - np.floor(np.log10(half)), 0, 9)) if np.isfinite(half) and half > 0 else 3


def with_half(mean: float, half: float, joint: str = " ± ") -> str:
    """Return a mean and its half-width, such as ``0.52 ± 0.13``."""
    if not np.isfinite(mean):
        return "undefined"
    digits = decimals(half)
    return f"{mean:z,.{digits}f}" + (f"{joint}{half:z,.{digits}f}" if np.isfinite(half) else "")


def latex_table(
    results: Summarised,
    problem: AbstractProblem | None = None,
    *,
    key: KeyOrSeed | None = None,
    caption: str = "",
    label: str = "",
    measures: Sequence[str] = (),
) -> str:
    """Return a LaTeX ``tabular`` of results, or ``table`` with a caption.

    It needs no package. For one problem each measure has a column; for several problems each problem has a column, and the measures stand
    one below the other. Numbers have two digits of their half-width, and the best mean on each problem is bold.

    Args:
      results, problem, key: as for :func:`summary_rows`.
      caption: text of the caption, in LaTeX.
      label: name for references, such as ``tab:sine``.
      measures: headings or names (``"R/t"`` or ``"regret"``); default all, and the number of trials that declared infeasibility.

    Raises:
      InvalidArgument: on unknown measures, or where :func:`summary_rows` raises it.
    """
    rows = summary_rows(results, problem, key=key)
    named = {word: column.heading for column in COLUMNS for word in (column.heading, column.measure)}
    formulas = {column.heading: column.formula for column in COLUMNS}
    for number, measure in enumerate(measures):
        one_of(f"measures[{number}]", measure, named)
    shown = [named[measure] for measure in measures] or measures_shown(rows)
    problems = list(dict.fromkeys(str(row.get("problem", "")) for row in rows))

    words = {"~": r"\textasciitilde ", "^": r"\textasciicircum ", "\\": r"\textbackslash "}
    escapes = str.maketrans({letter: f"\\{letter}" for letter in "&%$#_{}"} | words)

    def cell(row: Mapping[str, Any], heading: str) -> str:
        rivals = [other[heading] for other in rows if other.get("problem", "") == row.get("problem", "") and np.isfinite(other[heading])]
        best = len(rivals) > 1 and row[heading] == (max if heading == "best feasible" else min)(rivals)
        text = with_half(row[heading], row[f"{heading} +-"], r" \pm ").replace(",", "{,}")
        return (f"$\\mathbf{{{text}}}$" if best else f"${text}$" if np.isfinite(row[heading]) else text) + note_of(row, heading)

    def failed(row: Mapping[str, Any]) -> str:
        return f" ({row['failed']} failed)" if row["failed"] else ""

    if len(problems) > 1:
        head, lines = ["algorithm", *(place.translate(escapes) for place in problems)], list[list[str]]()
        members = [(row["algorithm"].replace(f" on {row['problem']}", "", 1), str(row["problem"]), row) for row in rows]
        for heading in shown:
            lines.append([f"\\multicolumn{{{len(head)}}}{{l}}{{{formulas[heading]}}}"])
            cells = {(name, place): cell(row, heading) + failed(row) for name, place, row in members}
            names = dict.fromkeys(name for name, _, _ in members)
            lines += [[name.translate(escapes), *(cells.get((name, place), "--") for place in problems)] for name in names]
    else:
        head = ["algorithm", *(formulas[heading] for heading in shown), *([] if measures else ["declared"])]
        lines = [
            [(row["algorithm"] + failed(row)).translate(escapes), *(cell(row, heading) for heading in shown)]
            + ([] if measures else [f"{row['declared infeasible']}/{row['trials']}"])
            for row in rows
        ]
    body = [" & ".join(line) + r" \\" for line in (head, *lines)]
    text = "\n".join(
        [f"\\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\hline", body[0], r"\hline", *body[1:], r"\hline", r"\end{tabular}"]
    )
    if not (caption or label):
        return text
    said = [f"\\caption{{{caption}}}"] * bool(caption) + [f"\\label{{{label}}}"] * bool(label)
    return "\n".join([r"\begin{table}", r"\centering", *said, text, r"\end{table}"])
