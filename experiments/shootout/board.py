"""Ranks of every algorithm on grids, under delay and on boxes.

Each part is another set of problems. All algorithms of a problem have the same random numbers, and are ranked within each trial.

- ``grids``: the problems of ``shootout`` with feedback at once, by positive regret and violation per round, R+/t + V/t.
- ``late``: those of them whose points are not arms, with values that come Poisson(15) rounds late, by the same number.
- ``boxes``: the constrained benchmarks of ``boxes``, models fitted as they play, by the best feasible value.
- ``coco``: the 54 functions of COCO's suite bbob-constrained in five axes (Hansen et al. 2021), by the best feasible value after
  ``--horizon`` evaluations and at most 60: ``jb.optimise`` beside samplers of Optuna and random points. It needs the extra ``board``.

A rank is 0 for the best of a problem's algorithms and 1 for the worst; equal values share a rank, and a trial that failed or found no
feasible point is the worst. The difference is from the best algorithm of the part, with half of its 95% interval over problems and trials.

Measured 2026-11-28 by ``python -m experiments board`` and the options that the page "The board" names; its tables are there.

``board.csv`` has the raw curves: means over trials after a tenth, a quarter, a half and all of the rounds. Points and settings are those
of ``shootout`` and ``boxes``. ``--runs FILE`` keeps the runs of ``coco``. ``--parameters`` has no effect.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

import jaxbandit as jb
from experiments import boxes
from experiments.common.experiment import Experiment, Options, study
from experiments.defaults.functions import coco
from experiments.defaults.kept import Kept
from experiments.defaults.players import PLAYERS, check_installed
from experiments.defaults.rivals import played
from experiments.shootout import arenas, contestants
from experiments.shootout.page import markdown_table
from jaxbandit.delays import Poisson
from jaxbandit.report.plots import COLOURS, figure_of
from jaxbandit.report.statistics import elapsed, half_width, healthy_trials
from jaxbandit.report.tables import write_csv
from jaxbandit.study import Run, run_study

SHARES = (0.1, 0.25, 0.5, 1.0)
MOST_EVALUATIONS = 60
# Algorithms that are told the best point are no contestants.
CEILING = "Oracle"
GRIDS = tuple(name for name in arenas.PROBLEMS if name not in ("queueing", "sine, late", "interpolants, late"))


def grids(options: Options) -> Iterator[Run]:
    """Return the runs of the chosen algorithms on the chosen grids."""
    chosen = {"problems": [name for name in GRIDS if name in options.extra["problems"]], "algorithms": options.extra["algorithms"]}
    return contestants.runs(dataclasses.replace(options, extra=chosen))


def late(options: Options) -> Iterator[Run]:
    """Return the runs of chosen algorithms whose values come late.

    Each waits for them, unless it has a policy of its own.
    """
    everybody = {
        name: who for name, who in contestants.contestants().items() if name in options.extra["algorithms"] and "late" in who.kinds
    }
    for name in [name for name in GRIDS if name in options.extra["problems"]]:
        arena = arenas.PROBLEMS[name](options.points_per_axis).tabulated(options)
        if arena.kind == "box":
            problem, model = jb.replace(arena.problem, delay=Poisson(mean=arenas.MEAN_DELAY)), arena.model(options.horizon)
            for label, who in everybody.items():
                given = {"feedback": who.feedback, "informed": who.informed, "initial": who.initial}
                yield Run(f"{name}: {label}", problem, who.algorithm, model, **given)


def on_boxes(options: Options) -> Iterator[Run]:
    """Return the runs of the chosen learners on the chosen boxes."""
    problems, algorithms = ([name for name in boxes.NAMES[kind] if name in options.extra[kind]] for kind in ("problems", "algorithms"))
    return iter(boxes.runs(problems, algorithms))


STUDIES: dict[str, Callable[[Options], Iterator[Run]]] = {"grids": grids, "late": late, "boxes": on_boxes}


def of_study(part: str, options: Options) -> list[dict[str, Any]]:
    """Return an entry with losses ``[trial, share]`` for each run."""
    dataset = run_study(study(f"board-{part}", tuple(STUDIES[part](options)), options, {"part": part}))
    counts = elapsed(dataset)
    at = [int(np.searchsorted(counts, share * counts[-1])) for share in SHARES]
    made = []
    for label in dataset.algorithm.values:
        own = dataset.sel(algorithm=label).isel(round=at)
        cumulative = (own["positive_regret"] + own["hard_violation"]) / counts[at]
        losses = -own["best_feasible_value"] if part == "boxes" else cumulative
        values = np.where(healthy_trials(own)[:, None], losses.transpose("trial", "round").values, np.nan)
        problem, algorithm = str(label).split(": ")
        made.append({"part": part, "problem": problem, "algorithm": algorithm, "losses": values})
    return made


def of_coco(options: Options) -> list[dict[str, Any]]:
    """Return an entry for each function of COCO and each player."""
    players, kept, made = tuple(options.extra["players"]), Kept(options.extra["runs"]), []
    check_installed(players)
    evaluations = min(options.horizon, MOST_EVALUATIONS)
    for function in coco():
        for player in players:
            seeds = range(options.seed, options.seed + options.trials)
            outcomes = [
                kept.outcome((function.name, player, evaluations, seed), partial(played, function, player, evaluations, seed))
                for seed in seeds
            ]
            last = np.array([run.get("best", np.nan) for run in outcomes], np.float64)
            losses = np.full((options.trials, len(SHARES)), np.nan)
            losses[:, -1] = np.where(np.isfinite(last), last, np.nan)
            made.append({"part": "coco", "problem": function.name, "algorithm": player, "losses": losses})
    return made


def play(options: Options, directory: Path) -> xr.Dataset:
    """Play all chosen parts, and return the losses ``[entry, trial, share]``.

    An entry is an algorithm on a problem.
    """
    entries = [entry for part in options.extra["parts"] for entry in (of_coco(options) if part == "coco" else of_study(part, options))]
    return xr.Dataset(
        {"loss": (("entry", "trial", "share"), np.stack([entry["losses"] for entry in entries]))},
        coords={"share": list(SHARES)} | {name: ("entry", [entry[name] for entry in entries]) for name in ("part", "problem", "algorithm")},
    )


def ranked(dataset: Any) -> dict[str, pd.DataFrame]:
    """Return, by part, the ranks of algorithms in every trial.

    Rows are problems and trials. A rank is NaN where an algorithm does not meet a problem.
    """
    last = dataset["loss"].isel(share=-1).to_series().rename("loss").reset_index()
    for name in ("part", "problem", "algorithm"):
        last[name] = dataset[name].values[last["entry"]]
    last["loss"] = last["loss"].fillna(np.inf)
    of_trial = last.groupby(["part", "problem", "trial"])["loss"]
    last["rank"] = (of_trial.rank() - 1) / (of_trial.transform("size") - 1).clip(lower=1)
    parts = dict.fromkeys(map(str, dataset["part"].values))
    return {part: last[last["part"] == part].pivot(index=["problem", "trial"], columns="algorithm", values="rank") for part in parts}


def rows(dataset: Any) -> list[dict[str, str]]:
    """Return a row for each part and algorithm, the best first."""
    made = []
    for part, table in ranked(dataset).items():
        means = table.mean().sort_values()
        for name, mean in means.items():
            above = (table[name] - table[means.index[0]]).dropna().to_numpy()
            difference = "0" if name == means.index[0] else f"{above.mean():+.2f} +- {float(half_width(above)):.2f}"
            problems = str(table[name].dropna().index.get_level_values(0).nunique())
            made.append({"part": part, "algorithm": str(name), "rank": f"{mean:.2f}", "minus the best": difference, "problems": problems})
    return made


def notes(dataset: Any) -> list[str]:
    """Return notes on the ranks."""
    return [
        f"mean ranks over problems and {dataset.sizes['trial']} trials of each: 0 is the best of a problem's algorithms, 1 the worst",
        "+-: half of a 95% interval of the difference, trial by trial",
    ]


def curves(dataset: Any) -> list[dict[str, Any]]:
    """Return the mean losses of each algorithm on a problem."""
    means = dataset["loss"].mean("trial").values
    names = [dataset[name].values for name in ("part", "problem", "algorithm")]
    heads = [f"after {share:g}" for share in SHARES]
    return [
        {"part": part, "problem": problem, "algorithm": algorithm}
        | {head: f"{value:.4g}" if np.isfinite(value) else "" for head, value in zip(heads, values, strict=True)}
        for part, problem, algorithm, values in zip(*names, means, strict=True)
    ]


def files(dataset: Any, rows: Sequence[dict[str, str]]) -> Mapping[str, Callable[[Path], object]]:
    """Return the functions that write tables and curves."""
    lines = []
    for part in dict.fromkeys(row["part"] for row in rows):
        own = [{name: cell for name, cell in row.items() if name != "part"} for row in rows if row["part"] == part]
        lines += [f"## {part}", "", markdown_table([list(own[0]), *(list(row.values()) for row in own)]), ""]
    lines += [f"- {note}" for note in notes(dataset)]
    return {
        "board.md": lambda path: path.write_text("\n".join(lines) + "\n", encoding="utf-8"),
        "board.csv": lambda path: write_csv(curves(dataset), path),
    }


def draw(dataset: Any) -> Any:
    """Draw the mean rank of every algorithm, a panel for each part.

    Bars are 95% intervals over problems and trials.
    """
    tables = ranked(dataset)
    longest = max(len(table.columns) for table in tables.values())
    figure, axes = figure_of(1, len(tables), (3.0, 1.2 + 0.2 * longest), title=EXPERIMENT.title)
    for axis, (part, table) in zip(axes[0], tables.items(), strict=True):
        means = table.mean().sort_values()
        halves = [float(half_width(table[name].dropna().to_numpy())) for name in means.index]
        axis.errorbar(means, range(len(means)), xerr=halves, fmt="o", color=COLOURS[0], markersize=4)
        axis.set(title=part, xlabel="mean rank, 0 is best", xlim=(-0.02, 1.02))
        axis.set_yticks(range(len(means)), means.index)
        axis.invert_yaxis()
    return figure


COMPARED = ("jaxbandit", "GPSampler", "TPESampler", "random")
NAMES = {
    "parts": (*STUDIES, "coco"),
    "problems": (*GRIDS, *boxes.NAMES["problems"]),
    "algorithms": tuple(name for name in dict.fromkeys([*contestants.contestants(), *boxes.NAMES["algorithms"]]) if name != CEILING),
}
# Compiling takes the time at reduced size.
FEWER = {"parts": ("grids", "late"), "problems": ("sine", "P6"), "algorithms": ("RPOL", "CBO-UCB", "Random"), "players": (), "runs": None}
EXPERIMENT = Experiment(
    module=__name__,
    title="Ranks of every algorithm on the problems of papers, boxes and COCO",
    position=91,
    defaults=Options(trials=20, horizon=200, points_per_axis=30, extra=NAMES | {"players": COMPARED, "runs": None}),
    quick=Options(trials=4, horizon=60, points_per_axis=16, extra=FEWER),
    build=None,
    play=play,
    rows=rows,
    notes=notes,
    draw=draw,
    choices=NAMES | {"players": PLAYERS},
    files=files,
)
