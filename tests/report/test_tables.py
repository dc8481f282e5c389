"""Tables fit a terminal and a page: blocks of columns, groups of rows, problems side by side, and what their letters mean."""

import io

import numpy as np
import pandas as pd
import pytest

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.report import tables
from jaxbandit.study.progress import Progress
from tests.support.synthetic_results import results

WIDTHS = range(1, 10)
RUNS = [
    (base, width, problem) for problem in ("sine", "plant_2") for base, width in [*(("rpol", width) for width in WIDTHS), ("CONFIG", 0)]
]


def studied():
    """A sweep and another algorithm on two problems; a trial failed, and another one never was at a feasible point."""
    labels = [f"{base} width={width} on {problem}" if width else f"{base} on {problem}" for base, width, problem in RUNS]
    dataset = results(labels=labels, trials=4, rounds=5, failed=[(1, 2)])
    best = np.ones((len(labels), 4, 5))
    best[2, 3] = np.nan
    columns = dict(zip(("base", "width", "problem"), (("algorithm", list(column)) for column in zip(*RUNS, strict=True)), strict=True))
    return dataset.assign(best_feasible_value=(dataset.regret.dims, best)).assign_coords(columns).assign_attrs(swept='["width"]')


def test_text_fits_a_terminal_in_groups_and_says_what_its_letters_mean():
    text = tables.text_table(studied())
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80 and lines == [line.rstrip() for line in lines]
    assert lines[2:5] == ["rpol on sine", lines[3], lines[4]] and lines[3].startswith("  width=1  ") and "width=2 (1 failed)" in lines[4]
    assert lines[12] == "on sine" and lines[13].startswith("  CONFIG") and text.count("rpol on plant_2") == text.count("\nalgorithm") + 1
    assert (
        "1.000 +- 0.000 (3/4)" in text
        and "undefined" not in text
        and "V violation, soft V" in " ".join(text.split())
        and "strong" not in text
    )
    assert "best feasible" in tables.text_table(studied(), width=300).splitlines()[0]
    few = tables.text_table(studied().isel(algorithm=[0, 10]), width=40)  # whose labels are wrapped
    assert max(map(len, few.splitlines())) <= 40 and "rpol on" not in few and few.splitlines()[2].startswith("rpol width=1 on ")


def test_latex_of_several_problems_has_a_column_for_each_and_the_best_in_bold():
    rows = tables.summary_rows(studied())
    lines = tables.latex_table(rows, measures=["V/t", "best_feasible_value"]).splitlines()
    assert (
        lines[2] == r"algorithm & sine & plant\_2 \\" and lines[4] == r"\multicolumn{3}{l}{$V/t$} \\" and len(lines) == 3 + 2 + 2 * 10 + 3
    )
    for column, problem in enumerate(("sine", "plant_2"), start=1):
        cells = {line.split(" & ")[0]: line.removesuffix(r" \\").split(" & ")[column] for line in lines[5:15]}
        means = {row["algorithm"].removesuffix(f" on {problem}"): row["V/t"] for row in rows if row["problem"] == problem}
        assert [name for name, cell in cells.items() if "mathbf" in cell] == [min(means, key=means.get)]
        halves = {row["algorithm"].removesuffix(f" on {problem}"): row["V/t +-"] for row in rows if row["problem"] == problem}
        assert all(tables.with_half(means[name], halves[name], r" \pm ") in cell for name, cell in cells.items())
    assert "(1 failed)" in lines[6] and "(3/4)" in lines[18] and sum("mathbf" in line for line in lines[16:26]) == 10  # all are equal
    assert [tables.with_half(0.12345, half) for half in (0.0213, 4.0, np.nan)] == ["0.123 ± 0.021", "0.1 ± 4.0", "0.123"]
    with pytest.raises(InvalidArgument, match=r"measures\[0\]"):
        tables.latex_table(rows, measures=["regrets"])
    table = io.StringIO()
    tables.write_csv(rows, table)
    assert list(pd.read_csv(io.StringIO(table.getvalue()))["problem"]) == [problem for *_, problem in RUNS]


def test_progress_names_three_runs():
    numbers = {"cell": 0, "cells": 1, "batch": 0, "batches": 1, "round": 5, "last": True, "done": 5, "work": 5}
    progress = Progress("rpol", **numbers, seconds=1.0, rate=5.0, left=0.0, metric="regret", lines={f"r{n}": 1.0 for n in range(5)})
    assert str(progress).endswith("mean regret: r0 1, r1 1, r2 1 and 2 more")
