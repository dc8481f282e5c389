"""Comparison of runs as a table, tests of differences, and a figure."""

from __future__ import annotations

import base64
import dataclasses
import functools
import itertools
import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd
import xarray as xr

from jaxbandit.core.declare import KeyOrSeed, checked
from jaxbandit.core.text import aligned, html_table
from jaxbandit.problems import AbstractProblem
from jaxbandit.report import statistics
from jaxbandit.report.tables import AXIS_LABELS, PANELS, decimals, summary_rows
from jaxbandit.results.summary import RunSummary

if TYPE_CHECKING:
    from jaxbandit.host.figures import Drawing

__all__ = ["Comparison", "compare"]
__dir__ = __all__.copy

LEGEND = (
    "Differences of measures divided by the number of rounds, trial by trial; the interval, by the bootstrap, is of one pair alone; p, by"
    " Student's paired t test, is corrected for the number of pairs by Holm; * below 0.05; ! where the interval says otherwise of 0: go"
    " by p where several pairs are looked at."
)


@dataclasses.dataclass(frozen=True, repr=False)
class Comparison:
    """Comparison of runs, shown as text or, in notebooks, with a figure.

    Attributes:
      results: the dataset of all runs.
      measures: names of the measures that are compared.
    """

    results: xr.Dataset
    measures: tuple[str, ...]

    @functools.cached_property
    def table(self) -> RunSummary:
        """Means over trials after the last round with 95% confidence half-widths."""
        return RunSummary(rows=tuple(summary_rows(self.results)))

    @functools.cached_property
    def differences(self) -> pd.DataFrame:
        """Paired differences ``algorithm`` minus ``versus`` of each measure after the last round.

        Each measure and pair of runs on one problem has a row. Columns are ``mean``, ``low`` and ``high`` (a 95% interval), ``p``, ``holm``
        (``p`` corrected for the number of pairs of a measure) and ``count``, the number of trials in which neither run failed; see
        :func:`~jaxbandit.report.statistics.paired_differences`. Up to seven runs are compared each with each, more with the first.
        """
        labels, columns = self.results.algorithm.values.tolist(), ["mean", "low", "high", "p", "count"]
        firsts = labels if len(labels) <= 7 else labels[:1]
        chosen = [(a, b) for b, a in itertools.combinations(labels, 2) if b in firsts]
        tables = [pd.DataFrame(columns=["measure", "algorithm", "versus", *columns, "holm"])]
        for measure in self.measures:
            pairs = statistics.paired_differences(self.results, measure, seed=0, averaged=True)
            found = [pairs.sel(algorithm=a, versus=b) for a, b in chosen if bool(pairs.comparable.sel(algorithm=a, versus=b))]
            rows = [{"measure": measure, **{name: pair[name].item() for name in ("algorithm", "versus", *columns)}} for pair in found]
            if rows:
                tables.append(pd.DataFrame(rows).assign(holm=statistics.holm([row["p"] for row in rows])))
        return pd.concat(tables[1:] or tables, ignore_index=True)

    def plot(self) -> Drawing:
        """Return a figure of the averages over time with 95% confidence bands."""
        # Import matplotlib here, because tables do not need it.
        from jaxbandit.host.figures import Drawing, WholeLabels
        from jaxbandit.report.plots import curves

        figure, words = Drawing(layout=WholeLabels()), dict(PANELS)
        curves(
            self.results, measures=[(name, words.get(name, f"{AXIS_LABELS.get(name, name)} / t")) for name in self.measures], axes=figure
        )
        return figure

    def _cells(self) -> list[list[str]]:
        cells = [["measure", "difference", "mean", "95% interval", "p (Holm)"]]
        for row in self.differences.to_dict("records"):
            digits = decimals((row["high"] - row["low"]) / 2)
            mean, low, high = (f"{row[name]:z,.{digits}f}" for name in ("mean", "low", "high"))
            p = "< 0.0001" if row["holm"] < 1e-4 else f"{row['holm']:.2g}".replace("nan", "undefined")
            pair, leaves_out_0 = f"{row['algorithm']} - {row['versus']}", not row["low"] <= 0 <= row["high"]
            marks = "*" * (row["holm"] < 0.05) + "!" * (leaves_out_0 != (row["holm"] < 0.05) and math.isfinite(row["holm"]))
            cells.append([row["measure"].replace("_", " "), pair, mean, f"[{low}, {high}]", p + marks])
        return cells

    def __repr__(self) -> str:
        cells = self._cells()
        return "\n\n".join([repr(self.table), *([f"{aligned(cells)}\n\n{textwrap.fill(LEGEND, 80)}"] if len(cells) > 1 else [])])

    def _repr_html_(self) -> str:
        head, *body = self._cells()
        picture = base64.b64encode(self.plot()._repr_png_()).decode()
        image = f'<img src="data:image/png;base64,{picture}" alt="averages over time">'
        return self.table._repr_html_() + (html_table(head, body, caption=LEGEND) if body else "") + image


@checked
def compare(
    results: statistics.AnyResults, problem: AbstractProblem | None = None, *, measures: Sequence[str] = (), key: KeyOrSeed | None = None
) -> Comparison:
    """Compare runs, such as ``compare({"mine": run, "RPOL": other})``, or a study's runs.

    Runs with the same key have the same noise, delays and instances in trials of the same number. Their paired differences therefore vary
    less than the differences of their means.

    Args:
      results: runs by their labels, a run of a sweep, or a study's dataset.
      problem, key: problem and key of runs without, see :meth:`Trajectory.to_xarray <jaxbandit.Trajectory.to_xarray>`.
      measures: names of measures that sum over rounds; default regret, its positive part and, with constraints, violation.

    Raises:
      InvalidArgument: on runs of several problems, sizes or trials, and on results without such a measure.
    """
    dataset = statistics.results_at_hand(results, problem, key=key)
    for number, name in enumerate(measures):
        statistics.check_measure(f"measures[{number}]", dataset, name)
    usual = [name for name, _ in PANELS if name in dataset and (name != "hard_violation" or bool((dataset[name] > 0).any()))]
    return Comparison(dataset, tuple(measures or usual))
