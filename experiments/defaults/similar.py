"""``jb.optimise`` that knows a similar session, or a misleading one.

A standard function is changed: each coordinate of the unit cube is raised to a power from 1/1.3 to 1.3, and values are multiplied by 3 and
shifted by 5. A search of the original function by ``optimise``, with 25 evaluations, comes before.

- ``alone``: knows nothing.
- ``similar``: is told that the search of the original function is similar.
- ``misleading``: is told so of a search of the original function with its first coordinate mirrored.

Gaps are of the best feasible value so far from the least one, in standard deviations of the function over its box; without a feasible value
a gap is infinite. Measured 2026-11-28 by ``python -m experiments similar``; the table is on the page "Go on from a plant's CSV file".
``--runs FILE`` keeps each run as soon as it has ended. ``--parameters`` and ``--points-per-axis`` have no effect.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from experiments.common.experiment import Experiment, Options
from experiments.defaults.functions import LISTS, Function
from experiments.defaults.kept import Kept
from jaxbandit.report.plots import COLOURS, figure_of, legend_below
from jaxbandit.session import optimise

NAMES = ("Branin", "six-hump camel", "Gramacy, constrained", "Hartmann-3", "Hartmann-4")
PLAYERS = ("alone", "similar", "misleading")
POWER, FACTOR, SHIFT, BEFORE, MARKS = 1.3, 3.0, 5.0, 25, (10, 20)
ALL: dict[str, Any] = {"functions": NAMES, "players": PLAYERS, "runs": None}


def search(
    function: Function, evaluations: int, key: int, powers: Any, unit: float, *, is_mirrored: bool = False, similar: Any = ()
) -> Any:
    """Return a search on the unit cube, of values in another ``unit``."""
    names = ["y", *(f"g{number}" for number in range(1, 1 + function.constraints))]

    def called(**point: float) -> dict[str, float]:
        place = np.array(list(point.values()), np.float64) ** powers
        place[0] = 1 - place[0] if is_mirrored else place[0]
        value, *costs = function.values(np.asarray(function.box.from_unit(place)))
        return dict(zip(names, map(float, [unit * value + SHIFT, *costs]), strict=True))

    axes = {f"u{number}": (0.0, 1.0) for number in range(function.box.dimension)}
    goals: dict[str, Any] = {"objective": "minimise y", "constraints": [f"{name} <= 0" for name in names[1:]]}
    return optimise(called, axes, evaluations, key=key, similar=similar, **goals)


def played(function: Function, player: str, evaluations: int, seed: int) -> dict[str, Any]:
    """Return the gaps of a search after each of its evaluations."""
    powers = np.exp(np.random.default_rng(seed).uniform(-1, 1, function.box.dimension) * np.log(POWER))
    similar = () if player == "alone" else search(function, BEFORE, 1000 + seed, 1.0, 1.0, is_mirrored=player == "misleading").session
    found = search(function, evaluations, seed, powers, FACTOR, similar=similar)
    best = (found.table["best_so_far"].to_numpy() - SHIFT) / FACTOR - function.least
    return {"gaps": (np.nan_to_num(best, nan=np.inf) / function.spread[1]).tolist()}


def play(options: Options, directory: Path) -> xr.Dataset:
    """Play the missing searches, and return gaps by evaluation."""
    functions = {function.name: function for make in LISTS.values() for function in make()}
    chosen, players, kept = options.extra["functions"], options.extra["players"], Kept(options.extra["runs"])
    seeds, count = range(options.seed, options.seed + options.trials), options.horizon

    def gaps(name: str, player: str, seed: int) -> Any:
        return kept.outcome((name, player, count, seed), partial(played, functions[name], player, count, seed))["gaps"]

    found = [[[gaps(name, player, seed) for seed in seeds] for player in players] for name in chosen]
    coords = {"function": list(chosen), "player": list(players), "seed": list(seeds), "evaluation": np.arange(1, count + 1)}
    return xr.Dataset({"gap": (tuple(coords), np.asarray(found))}, coords=coords)


def rows(dataset: Any) -> list[dict[str, str]]:
    """Return a row for each function and player, with median gaps."""
    marks = [mark for mark in MARKS if mark <= dataset.sizes["evaluation"]]
    return [
        {"function": str(name), "session": str(player)}
        | {f"after {mark}": f"{np.median(dataset['gap'].sel(function=name, player=player, evaluation=mark).values):.2g}" for mark in marks}
        for name in dataset["function"].values
        for player in dataset["player"].values
    ]


def notes(dataset: Any) -> list[str]:
    """Return the meaning of the numbers."""
    return [f"median gaps of {dataset.sizes['seed']} seeds, in standard deviations of the function"]


def draw(dataset: Any) -> Any:
    """Draw median gaps over evaluations, a panel for each function."""
    names = dataset["function"].values
    figure, [axes] = figure_of(1, len(names), (2.4, 2.4), title=EXPERIMENT.title)
    for axis, name in zip(axes, names, strict=True):
        for number, player in enumerate(dataset["player"].values):
            middle = np.median(dataset["gap"].sel(function=name, player=player).values, axis=0)
            axis.plot(dataset["evaluation"].values, middle, color=COLOURS[number], label=str(player))
        axis.set(title=str(name), xlabel="evaluations", yscale="log")
    axes[0].set_ylabel("median gap")
    legend_below(figure)
    return figure


EXPERIMENT = Experiment(
    module=__name__,
    title="A search that knows a similar session, or a misleading one",
    position=99,
    defaults=Options(trials=10, horizon=20, extra=ALL),
    quick=Options(trials=1, horizon=8, extra=ALL | {"functions": ("Branin",), "players": ("alone", "similar")}),
    build=None,
    play=play,
    rows=rows,
    notes=notes,
    draw=draw,
    choices={"functions": NAMES, "players": PLAYERS},
)
