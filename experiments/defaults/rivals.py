"""``jb.optimise`` beside Optuna's and BoTorch's samplers and random points.

All have their defaults, on standard functions.

Every player evaluates each function equally often, its first points included, from the same seeds. Without noise a run is judged by the
best point that it evaluated, with noise by the true value of the point that it recommends in the end, as gaps to the least value known.
Optuna's samplers are as Optuna makes them and recommend the best trial; BoTorch is its ``SingleTaskGP`` with log-EI, or under noise
``qLogNoisyExpectedImprovement``, 8 restarts and 512 raw samples, after 2(d+1) Sobol points, and recommends the best posterior mean among
the points evaluated.

Measured 2026-11-28 by ``python -m experiments rivals`` and the options that are named on the page "Why this default", which has the tables.

A run takes some seconds, and of BoTorch half a minute, so that all of them take hours: ``--runs FILE`` keeps each run as soon as it has
ended, and a later command with the same file plays only the runs that the file lacks. ``--players`` and ``--functions`` choose some.
``--functions held-out`` has functions that no choice went by. With ``--noise`` functions without noise have some, of that share of their
standard deviation over the box. ``--parameters`` and ``--points-per-axis`` have no effect.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from experiments.common.experiment import Experiment, Options
from experiments.defaults.functions import LISTS, Function
from experiments.defaults.kept import Kept
from experiments.defaults.players import PLAYERS, check_installed
from experiments.shootout.page import page_of
from jaxbandit import checks
from jaxbandit.report.plots import COLOURS, figure_of, legend_below

OURS, RANDOM = "jaxbandit", "random"
# A function counts as lost from this multiple of the best peer's median gap on.
BEHIND = 1.2
# Gaps below this share of a function's range count as not lost.
NEAR = 1e-3
# Gaps below this share of a function's range count as equal in ratios.
LEAST = 1e-6
MEASURES = ("best", "recommended", "cpu")


def chosen(names: Sequence[str], noise: float) -> list[Function]:
    """Return the functions of some lists or names, with noise.

    Noise is a share of the standard deviation, for functions without noise of their own.
    """
    known = {function.name: [function] for make in LISTS.values() for function in make()} | {name: list(LISTS[name]()) for name in LISTS}
    for name in names:
        checks.one_of("--functions", name, tuple(known))
    found = {function.name: function for name in names for function in known[name]}
    return [function.with_noise(noise) if noise and not function.noise else function for function in found.values()]


def played(function: Function, player: str, evaluations: int, seed: int) -> dict[str, Any]:
    """Return the outcome of one run, or its error."""
    true: list[np.ndarray] = []
    rng = np.random.default_rng([seed, 2])

    def evaluate(point: np.ndarray) -> np.ndarray:
        true.append(np.asarray(function.values(point), np.float64))
        return true[-1] + np.concatenate([[function.noise * rng.standard_normal()], np.zeros(function.constraints)])

    begun = time.process_time()
    try:
        recommended = PLAYERS[player][0](function, evaluate, evaluations, seed)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error)[:200]}"}
    seconds, values = time.process_time() - begun, np.stack(true)
    feasible = values[np.all(values[:, 1:] <= 0, axis=1), 0]
    own = np.nan if recommended is None else float(function.values(recommended)[0]) - function.least
    return {"best": float(np.min(feasible, initial=np.inf)) - function.least, "recommended": own, "cpu": seconds}


def play(options: Options, directory: Path) -> xr.Dataset:
    """Play the missing runs, and return gaps and CPU seconds."""
    extra = options.extra
    checks.within("--noise", extra["noise"], 0.0, 10.0, open_low=False)
    functions, players = chosen(extra["functions"], extra["noise"]), tuple(extra["players"])
    check_installed(players)
    kept, errors = Kept(extra["runs"]), []
    seeds = range(options.seed, options.seed + options.trials)
    shape = (len(functions), len(players), len(seeds))
    columns = {name: np.full(shape, np.nan) for name in MEASURES}
    for third, seed in enumerate(seeds):
        for first, function in enumerate(functions):
            for second, player in enumerate(players):
                of = (function.name, function.noise, player, options.horizon, seed)
                run = kept.outcome(of, partial(played, function, player, options.horizon, seed))
                if "error" in run:
                    errors.append(f"{player} on {function.name}, seed {seed}: {run['error']}")
                for name in MEASURES:
                    columns[name][first, second, third] = run.get(name, np.nan)
    facts = {
        "range": [function.spread[0] for function in functions],
        "noise": [function.noise for function in functions],
        "dimension": [function.box.dimension for function in functions],
    }
    return xr.Dataset(
        {name: (("function", "player", "seed"), column) for name, column in columns.items()}
        | {name: ("function", fact) for name, fact in facts.items()},
        coords={"function": [function.name for function in functions], "player": list(players), "seed": list(seeds)},
        attrs={"evaluations": options.horizon, "errors": json.dumps(errors), "versions": json.dumps(dict(_versions(players)))},
    )


def _versions(players: Sequence[str]) -> Iterator[tuple[str, str]]:
    for module in dict.fromkeys([OURS, *(module for player in players for module in PLAYERS[player][1])]):
        yield module, version(module)


def judged(dataset: Any) -> np.ndarray:
    """Return the median gaps ``[function, player]``, failed runs apart.

    They are of the best point evaluated, with noise of the point recommended.
    """
    gaps = np.where((dataset["noise"].values > 0)[:, None, None], dataset["recommended"].values, dataset["best"].values)
    with warnings.catch_warnings():
        # NumPy warns of players without a run that succeeded.
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmedian(gaps, axis=2))


def ratios(dataset: Any) -> np.ndarray:
    """Return the ratios ``[function]`` of our median gap to the best peer's.

    Ours is ``jb.optimise``. Each gap is at least ``LEAST`` of the range.
    """
    players = list(dataset["player"].values)
    peers = [number for number, player in enumerate(players) if player not in (OURS, RANDOM)]
    gaps = np.maximum(judged(dataset), LEAST * dataset["range"].values[:, None])
    if OURS not in players or not peers:
        return np.full(len(gaps), np.nan)
    # Where no player has found a feasible point there is none.
    with np.errstate(invalid="ignore"):
        return np.asarray(gaps[:, players.index(OURS)] / np.min(gaps[:, peers], axis=1))


def rows(dataset: Any) -> list[dict[str, str]]:
    """Return a row for each function, with median gaps and ratio."""
    made = []
    for name, dimension, gaps, ratio in zip(
        dataset["function"].values, dataset["dimension"].values, judged(dataset), ratios(dataset), strict=True
    ):
        cells = {str(player): f"{gap:.3g}" if np.isfinite(gap) else "-" for player, gap in zip(dataset["player"].values, gaps, strict=True)}
        made.append({"function": str(name), "d": str(dimension), **cells, "ratio": f"{ratio:.2g}" if np.isfinite(ratio) else "-"})
    return made


def notes(dataset: Any) -> list[str]:
    """Return notes on the gaps and on the cost of runs."""
    players, count = list(dataset["player"].values), dataset.sizes["seed"]
    seconds = dataset["cpu"].median(["function", "seed"]).values
    lines = [
        f"medians over {count} seed{'' if count == 1 else 's'} of {dataset.attrs['evaluations']} evaluations of the gap to the least value"
        f" known: of the best point evaluated, under noise the true one of the point recommended; -: no feasible point",
        f"CPU seconds of a run, median: {', '.join(f'{player} {each:.2g}' for player, each in zip(players, seconds, strict=True))}",
        f"versions: {', '.join(f'{name} {each}' for name, each in json.loads(dataset.attrs['versions']).items())}",
    ]
    known, gaps = ratios(dataset), judged(dataset)
    if np.isfinite(known).any():
        ours = gaps[:, players.index(OURS)]
        behind = (known > BEHIND) & (ours > NEAR * dataset["range"].values)
        lines.append(
            f"ratio: of jaxbandit's median to the best peer's, gaps below {LEAST:g} of a function's range taken for that; geometric mean"
            f" {np.exp(np.nanmean(np.log(np.maximum(known, LEAST)))):.2g}; above {BEHIND:g} and {NEAR:g} of the range:"
            f" {'; '.join(dataset['function'].values[behind]) or 'none'}"
        )
        for rival in [player for player in players if player in ("TPESampler", RANDOM)]:
            lost = dataset["function"].values[ours > gaps[:, players.index(rival)]]
            lines.append(f"behind {rival}: {'; '.join(lost) or 'nowhere'}")
        quiet = dataset.sel(player=OURS).where(dataset["noise"] == 0)
        worse = int((quiet["recommended"] > quiet["best"] + 1e-9 * dataset["range"]).sum())
        lines.append(f"runs without noise in which jaxbandit recommends a worse point than it evaluated: {worse}")
    return lines + [f"failed: {error}" for error in json.loads(dataset.attrs["errors"])]


def draw(dataset: Any) -> Any:
    """Draw every player's median gap on each function, as shares of ranges."""
    names, shares = dataset["function"].values, judged(dataset) / dataset["range"].values[:, None]
    figure, axes = figure_of(1, 1, (7.0, 1.5 + 0.32 * len(names)), title=EXPERIMENT.title)
    axis = axes[0][0]
    for number, player in enumerate(dataset["player"].values):
        gaps, look = np.maximum(shares[:, number], 1e-9), {"color": COLOURS[number], "zorder": 9 - number}
        axis.plot(gaps, range(len(names)), "osD^v"[number % 5], label=str(player), **look)
    axis.set(xscale="log", xlabel="median gap to the least value, as a share of the function's range")
    axis.set_yticks(range(len(names)), [str(name) for name in names])
    axis.invert_yaxis()
    legend_below(figure)
    return figure


def files(dataset: Any, rows: Sequence[dict[str, str]]) -> Mapping[str, Callable[[Path], object]]:
    """Return the function that writes the table as Markdown, with the notes."""
    return {"rivals.md": page_of(rows, notes(dataset))}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose functions and players."""
    extra = parser.get_default("option_defaults").extra
    parser.add_argument("--seeds", dest="trials", type=int, default=argparse.SUPPRESS, metavar="N", help="the same as --trials")
    words = "the same as --horizon: of each run, its first points included"
    parser.add_argument("--evaluations", dest="horizon", type=int, default=argparse.SUPPRESS, metavar="N", help=words)
    words = f"lists of functions, some of {', '.join(LISTS)}, or names of functions (default: standard)"
    parser.add_argument("--functions", nargs="+", default=extra["functions"], metavar="NAME", help=words)
    words = "sd of the noise of functions without, as a share of each one's sd over its box (default %(default)s)"
    parser.add_argument("--noise", type=float, default=extra["noise"], metavar="SHARE", help=words)


ALL: dict[str, Any] = {"players": tuple(PLAYERS), "functions": ("standard",), "noise": 0.0, "runs": None}
EXPERIMENT = Experiment(
    module=__name__,
    title="jb.optimise beside the samplers of Optuna and BoTorch on standard functions",
    position=96,
    defaults=Options(trials=20, horizon=60, extra=ALL),
    quick=Options(trials=2, horizon=12, extra=ALL | {"players": (OURS, RANDOM), "functions": ("Branin", "Hartmann-3")}),
    build=None,
    play=play,
    rows=rows,
    notes=notes,
    draw=draw,
    add_arguments=add_arguments,
    choices={"players": PLAYERS},
    files=files,
)
