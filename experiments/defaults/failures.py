"""``jb.optimise`` on functions that crash in a region.

It is told the failures, and plays beside a session that drops these runs.

The function is ``f = x + exp(-((x - .5)^2 + (y - .5)^2) / .05)`` on the unit square with the constraint ``.3 - y <= 0``, without noise. A
run crashes in one of these regions:

- ``none``: nowhere.
- ``wall``: where ``x > .55``, 45% of the square.
- ``corner``: where ``x > .7`` and ``y > .7``, 9%.
- ``ball``: within .15 of (.525, .5), near the best point of the function, 7%.
- ``random``: at a tenth of all points, drawn anew for each point and seed.
- ``band``: where ``|y - .5| > .15``, 70%.

``told`` tells the session which runs failed. ``dropped`` drops these runs, as if they had never been made. Gaps are shares of the best
feasible value where runs do not crash.

Measured 2026-11-28 by ``python -m experiments failures``; the table is on the page "My run crashed".

``--runs FILE`` keeps each run as soon as it has ended. ``--parameters`` and ``--points-per-axis`` have no effect.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from experiments.common.experiment import Experiment, Options
from experiments.defaults.kept import Kept
from jaxbandit.report.plots import COLOURS, figure_of, legend_below
from jaxbandit.session import Session, optimise

AXES = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
GOALS: dict[str, Any] = {"objective": "maximise f", "constraints": ["g <= 0"]}
# Each function says if a run crashes at a point, given a seed.
REGIONS: dict[str, Callable[[float, float, int], bool]] = {
    "none": lambda x, y, seed: False,
    "wall": lambda x, y, seed: x > 0.55,
    "corner": lambda x, y, seed: x > 0.7 and y > 0.7,
    "ball": lambda x, y, seed: math.hypot(x - 0.525, y - 0.5) < 0.15,
    "random": lambda x, y, seed: random.Random(f"{x:.9f} {y:.9f} {seed}").random() < 0.1,
    "band": lambda x, y, seed: abs(y - 0.5) > 0.15,
}
PLAYERS = ("told", "dropped")
ALL: dict[str, Any] = {"regions": tuple(REGIONS), "players": PLAYERS, "runs": None}
# Gaps that count as the optimum, and the number of crashes that a search may have at most.
NEAR, MOST = 0.01, 8


def value(x: float, y: float) -> float:
    """Return the objective at a point."""
    return x + math.exp(-((x - 0.5) ** 2 + (y - 0.5) ** 2) / 0.05)


def best_of(region: str) -> float:
    """Return the best feasible value where runs do not crash.

    It is on a fine grid, so the best point may lie between.
    """
    steps = np.linspace(0, 1, 401).tolist()
    crashes = REGIONS["none" if region == "random" else region]
    return max(value(x, y) for x in steps for y in steps if y >= 0.3 and not crashes(x, y, 0))


def played(region: str, player: str, evaluations: int, seed: int) -> dict[str, Any]:
    """Return a search's number of crashes and best feasible value."""
    crashes, count, best = REGIONS[region], 0, -math.inf

    def run(x: float, y: float) -> dict[str, float] | None:
        nonlocal count, best
        if crashes(x, y, seed):
            count += 1
            return None
        best = max(best, value(x, y)) if y >= 0.3 else best
        return {"f": value(x, y), "g": 0.3 - y}

    if player == "told":
        optimise(run, AXES, evaluations, key=seed, **GOALS)
    else:
        with Session.create(None, AXES, key=seed, **GOALS) as session:
            for _ in range(evaluations):
                ticket = session.ask()
                if (values := run(**ticket.point)) is None:  # type: ignore[arg-type]
                    session.drop(ticket)
                else:
                    session.tell(ticket, values)
    return {"crashes": count, "best": best}


def play(options: Options, directory: Path) -> xr.Dataset:
    """Play the missing searches, and return crashes and gaps."""
    regions, players = tuple(options.extra["regions"]), tuple(options.extra["players"])
    kept, seeds = Kept(options.extra["runs"]), range(options.seed, options.seed + options.trials)
    crashes, gaps = (np.full((len(regions), len(players), len(seeds)), np.nan) for _ in range(2))
    for first, region in enumerate(regions):
        best = best_of(region)
        for second, player in enumerate(players):
            for third, seed in enumerate(seeds):
                of = (region, player, options.horizon, seed)
                run = kept.outcome(of, partial(played, region, player, options.horizon, seed))
                crashes[first, second, third], gaps[first, second, third] = run["crashes"], max(best - run["best"], 0.0) / best
    names = ("region", "player", "seed")
    coords = {"region": list(regions), "player": list(players), "seed": list(seeds)}
    return xr.Dataset({"crashes": (names, crashes), "gap": (names, gaps)}, coords=coords, attrs={"evaluations": options.horizon})


def rows(dataset: Any) -> list[dict[str, str]]:
    """Return a row for each region and player."""
    made, count = [], dataset.sizes["seed"]
    for region in dataset["region"].values:
        for player in dataset["player"].values:
            part = dataset.sel(region=region, player=player)
            crashes, gaps = part["crashes"].values, part["gap"].values
            made.append({
                "region": str(region),
                "failures are": str(player),
                "crashes": f"{np.median(crashes):g} ({np.min(crashes):g} to {np.max(crashes):g})",
                f"at most {MOST}": f"{np.count_nonzero(crashes <= MOST)} of {count}",
                "median gap": f"{np.median(gaps):.2%}",
                f"within {NEAR:.0%}": f"{np.count_nonzero(gaps <= NEAR)} of {count}",
            })  # fmt: skip
    return made


def notes(dataset: Any) -> list[str]:
    """Return what the numbers count."""
    return [f"crashes of {dataset.attrs['evaluations']} evaluations: median (least to most) over {dataset.sizes['seed']} seeds"]


def draw(dataset: Any) -> Any:
    """Draw the crashes of every search by region."""
    figure, axes = figure_of(1, 1, (7.0, 3.0), title=EXPERIMENT.title)
    axis, regions = axes[0][0], dataset["region"].values
    middle = (dataset.sizes["player"] - 1) / 2
    for number, player in enumerate(dataset["player"].values):
        for place, region in enumerate(regions):
            crashes = dataset["crashes"].sel(region=region, player=player).values
            spread = place + 0.3 * (number - middle) + np.linspace(-0.1, 0.1, len(crashes))
            words = str(player) if place == 0 else None
            axis.plot(spread, np.sort(crashes), "os"[number], color=COLOURS[number], markersize=3, label=words)
    axis.set_xticks(range(len(regions)), [str(region) for region in regions])
    axis.set_ylabel(f"crashes of {dataset.attrs['evaluations']}")
    legend_below(figure)
    return figure


EXPERIMENT = Experiment(
    module=__name__,
    title="A search whose runs crash in a region, told the failures or not",
    position=97,
    defaults=Options(trials=20, horizon=40, extra=ALL),
    quick=Options(trials=2, horizon=9, extra=ALL | {"regions": ("wall",)}),
    build=None,
    play=play,
    rows=rows,
    notes=notes,
    draw=draw,
    choices={"regions": REGIONS, "players": PLAYERS},
)
