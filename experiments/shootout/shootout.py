"""Every algorithm on every problem that it fits.

They have the same random numbers. The result is one page of numbers, ``shootout.md``.

No paper draws this table. It says which algorithm is for which problem, and catches an algorithm that has stopped working.

Measured 2026-11-21 by ``python -m experiments shootout`` and the options that are named:
What we get (20 trials of 200 rounds, 30x30 points, seed 0; 289 pairs in six and a half minutes on two cores):
- RPOL and CONFIG are alike within 0.002 in positive regret everywhere, and so is EPBO with penalty 20 on P1, P2, P5, RKHS and both data
  sets; elsewhere EPBO violates more (``sine``: V/t 0.75 beside 0.23) for slightly less regret.
- Algorithm 2 of SE22, which is told the costs without noise, violates the least of those that are told no safe point on P1 to P6,
  ``building``, ``data rate`` and ``stocks``, constrained EI on the binding RKHS functions, GP draws, ``light`` and ``sine``. Algorithm
  2 has the least R+/t on P3 and P6, and up to three times RPOL's on RKHS, ``data rate`` and ``stocks``.
- ADMMBO has the least R+/t on P1, P2, P5 and ``building``, and V/t of 0.1 to 1.2 there: it stops and repeats its answer.
- Algorithms with safe sets do not violate but for single rounds (V/t 0.0005 at most). Their regret is the least of all on P4, where the
  safe point that they are told is near the best one, and the greatest on ``sine`` and ``data rate``, where they do not get away from
  it in 200 rounds. In 6 of 20 trials on ``sine`` the safe set became empty.
- SCGP-UCB on ``queueing`` has R+/t 1.60, random search 0.60: it pays back early costs first, see ``scgp``.
- Late feedback (``sine, late``): R+/t 1.65 for RPOL that waits, 0.70 censored, 0.29 hallucinating; V/t 0.92, 0.53, 0.27.
- On the late interpolants R/t is 0.86 for GP-TS, 1.37 for GP-BUCB, 1.55 for BPE-Delay, 1.73 for BPE, 2.27 for GP-UCB-SDF and 2.36 for
  GP-UCB that waits, where random search has 2.47: 200 rounds are few for BPE's stages.
- The clip B of CBO-UCB cuts every point's estimate at some time in all trials on GP draws, ``building`` and both data sets, and these
  trials are flagged.

Who meets whom: algorithms for bandit feedback of all functions meet all constrained problems, but for ADMMBO and OCO, which need distances
(not on arms) and the feedback of a round before the next (not late). SCGP-UCB is for constraints that are seen before the choice, and
runs on ``queueing`` only; nobody else runs there, for its Poisson noise of sd 2.4 on the cost is not what their model says. What is for
late feedback runs on ``sine, late``, and where there is no constraint on ``interpolants, late``. GP-UCB ignores constraints. Random search
is the floor, the best point the ceiling. Left out: the doubling trick, which wraps others; constrained EI with the best observation as
its incumbent (see ``config-gp``); CONFIG's infeasible instances, which have no regret; the data of light sensors and stocks, made up here.

Parameters: widths 3 where there is one (6 on the interpolants, as in ``delay-sweep``), everything else as by default and not tuned; OCO's
step is 1. CBO is told B and G of each instance; algorithms with safe sets one safe point, with the median constraint value among the
feasible ones; SCGP-UCB B and the Slater constant. One kernel serves all outputs of a problem, since SE22's algorithms need that. Grids
are coarse: n points per axis in two dimensions, 100 on the interval, and about as many in all in three and four dimensions. The table's
R, V and N go on after ADMMBO has stopped, with its answer. ``--parameters`` has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common.experiment import Experiment, Options, study
from experiments.shootout import arenas, contestants
from experiments.shootout.page import heat_maps, markdown_table, short
from jaxbandit import checks
from jaxbandit.report import tables
from jaxbandit.report.statistics import healthy_trials
from jaxbandit.study import Study

NAMES = {"algorithms": tuple(contestants.contestants()), "problems": tuple(arenas.PROBLEMS)}
# Times in seconds would all be 0.0000.
SPEED = "us per trial-round"
MEASURES = {
    "R/t": "regret per round, R/t",
    "R+/t": "positive regret per round, R+/t",
    "V/t": "hard violation per round, V/t",
    "soft V/t": "soft violation per round",
    "N": "violating rounds, N",
    "best R+V": "best constrained regret",
    SPEED: "microseconds per trial and round",
}
# Labels of rows.
LABELS = ("algorithm", "base", "problem", "delay")
OF_VIOLATION = ("V/t", "soft V/t", "N")


def build(options: Options) -> Study:
    """Return the study of all chosen pairs that fit."""
    chosen = tuple(contestants.runs(options))
    if not chosen:
        raise checks.InvalidArgument("--algorithms, --problems: none of these algorithms fits one of these problems")
    recorded = {"points_per_axis": options.points_per_axis, **options.extra}
    return study("shootout", chosen, options, recorded)


def page_rows(dataset: Any, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the table's rows with problem and algorithm apart."""
    result = []
    for row, seconds, slack in zip(rows, dataset.playing_seconds.values, dataset.slater_slack.values[:, 0], strict=True):
        problem, algorithm = row["algorithm"].split(": ")
        measured = {key: value for key, value in row.items() if key not in LABELS and not key.startswith("us per")}
        if np.isinf(slack):
            measured |= {name + end: float("nan") for name in OF_VIOLATION for end in ("", " +-")}
        speed = float(seconds) / (dataset.sizes["trial"] * dataset.sizes["played"]) * 1e6
        result.append({"problem": problem, "algorithm": algorithm, **measured, SPEED: speed})
    return result


def crossed(rows: Sequence[dict[str, Any]], name: str) -> tuple[list[str], list[str], np.ndarray]:
    """Return algorithms, problems, and one measure of each pair.

    It is ``[algorithms, problems]``, NaN for a pair that did not run.
    """
    algorithms = [name for name in NAMES["algorithms"] if any(row["algorithm"] == name for row in rows)]
    problems = [name for name in NAMES["problems"] if any(row["problem"] == name for row in rows)]
    table = np.full((len(algorithms), len(problems)), np.nan)
    for row in rows:
        table[algorithms.index(row["algorithm"]), problems.index(row["problem"])] = row[name]
    return algorithms, problems, table


def files(dataset: Any, rows: Sequence[dict[str, Any]]) -> Mapping[str, Callable[[Path], object]]:
    """Return the functions that write the page as CSV and as Markdown."""
    page = page_rows(dataset, rows)
    return {
        "shootout.csv": lambda path: tables.write_csv(page, path),
        "shootout.md": lambda path: path.write_text(markdown(dataset, page), encoding="utf-8"),
    }


def markdown(dataset: Any, page: Sequence[dict[str, Any]]) -> str:
    """Return the page, a table for each measure, its least numbers bold."""
    lines = ["# Shoot-out", "", f"`{dataset.attrs.get('command', '')}`", ""]
    lines += [f"Means over {dataset.sizes['trial']} trials of {dataset.sizes['round']} rounds; less is better everywhere.", ""]
    lines += [*(f"- {note}" for note in notes(dataset)), "", "![the same numbers but times, coloured by rank](figure.png)", ""]
    for name, words in MEASURES.items():
        algorithms, problems, table = crossed(page, name)
        rank = np.array([label not in ("Random", "Oracle") for label in algorithms])
        least = np.nanmin(np.where(rank[:, None] & np.isfinite(table), table, np.inf), axis=0)
        cells = [[f"**{short(v)}**" if v == best else short(v) for v, best in zip(row, least, strict=True)] for row in table]
        body = [[label, *row] for label, row in zip(algorithms, cells, strict=True)]
        lines += [f"## {words[0].upper()}{words[1:]}", "", markdown_table([["", *problems], *body]), ""]
    return "\n".join(lines)


def notes(dataset: Any) -> list[str]:
    """Return how to read the numbers, and the failed trials."""
    failed = [str(label) for label in dataset.algorithm.values if not healthy_trials(dataset.sel(algorithm=label)).all()]
    lines = [
        "the same noise and instances for every algorithm of a problem; widths are 3 and not tuned, OCO's step is 1",
        "R rewards violation where infeasible points pay: read R+ beside V",
        "* made-up data; 'late': Poisson(15) delays; empty: does not fit, see --help",
        "microseconds are without compilation, of all trials together on all cores",
    ]
    return lines + ([f"failed trials, left out of the means: {', '.join(failed)}"] if failed else [])


def draw(dataset: Any) -> Any:
    """Draw all measures but the times as heat maps."""
    page = page_rows(dataset, tables.summary_rows(dataset))
    crosses = {words: crossed(page, name) for name, words in MEASURES.items() if name != SPEED}
    algorithms, problems, _ = next(iter(crosses.values()))
    title = f"Means over {dataset.sizes['trial']} trials of {dataset.sizes['round']} rounds, coloured by rank among the algorithms"
    return heat_maps(title, [(words, table) for words, (_, _, table) in crosses.items()], algorithms, problems)


# At reduced size compiling takes the time, of some 130 programs for all of them: one algorithm of each kind on two problems will do.
FEWER = {"algorithms": ("RPOL", "CBO-UCB", "SafeOpt", "Random", "Oracle"), "problems": ("sine", "P6")}

EXPERIMENT = Experiment(
    module=__name__,
    title="Every algorithm on every problem that it fits",
    position=90,
    defaults=Options(trials=20, horizon=200, points_per_axis=30, extra=NAMES),
    quick=Options(trials=4, horizon=60, points_per_axis=16, extra=FEWER),
    build=build,
    notes=notes,
    draw=draw,
    choices=NAMES,
    files=files,
)
