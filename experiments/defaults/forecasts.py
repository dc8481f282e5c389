"""Forecasts of ``jb.forecast`` from ten points with fitted models, beside what came true.

``bands``: an objective and a constraint of sd 1 are drawn from one of the four kernels of ``python -m experiments settled``, on 20 x 20
points of the unit square or on the unit cube. A session with its defaults is told ten random points, with noise of sd .1, and forecasts its
next evaluations in 256 futures. Then it asks for them in earnest, and fits its model as sessions do. The table has the shares of central
bands of 80% that hold the best allowed value and the number of violating evaluations that came true. On the grid the same is played by a
learner that keeps the model of ten points, as learners in forecasts do, ``model kept``. Where equal values of many futures lie
across the end of a band, their part inside it counts.

``choice``: in each of ten families, on 20 x 20 points, a session forecasts five algorithms from ten points. All of them are then played on
the truth, 64 times with other noise, with the learners of the forecast. The table has the share of the gap to the best allowed value, known
after ten points, that is closed in the mean by the recommended algorithm, by the best algorithm of each truth in hindsight, by the best one
of the family, and by the best one of all families.

``time``: 1,000 futures of five algorithms, 30 evaluations each on 50 x 50 points, in seconds of CPU time, after a forecast has compiled
them.

``--trials`` are truths in each space or family, ``--horizon`` the further evaluations. Measured 2026-11-28 by ``python -m experiments
forecasts --parts bands time --spaces grid --trials 32``; the table is on the page "Simulate before you run".

``--runs FILE`` keeps each truth as soon as it has ended. ``--parameters`` and ``--points-per-axis`` have no effect.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr

import jaxbandit as jb
from experiments.common.experiment import Experiment, Options
from experiments.defaults.kept import Kept, add_runs
from experiments.defaults.settled import KERNELS, drawn
from jaxbandit import checks
from jaxbandit.core.pytree import replace
from jaxbandit.problems import Gaussian
from jaxbandit.report.plots import COLOURS, figure_of, legend_below
from jaxbandit.session import Axis, Session, forecasts

PARTS = ("bands", "choice", "time")
SPACES = {"grid": 2, "box": 3}
FIRST, FUTURES, NOISE, LIMIT = 10, 256, 0.1, -0.3
ALGORITHMS: dict[str, jb.Algorithm] = {
    "CEI": jb.Cei(augmented=True),
    "Thompson": jb.ConstrainedThompson(),
    "CONFIG": jb.Config(),
    "RPOL": jb.Rpol(),
    "UCB": jb.Unconstrained(),
}
# Length-scales, limit of the constraint, sd of the noise, and runs in flight.
FAMILIES: dict[str, tuple[tuple[float, float], float, float, int]] = {
    "plain": ((0.15, 0.4), -0.3, 0.1, 1),
    "no limit": ((0.15, 0.4), 5.0, 0.1, 1),
    "no limit, rough": ((0.06, 0.1), 5.0, 0.1, 1),
    "no limit, noisy": ((0.15, 0.4), 5.0, 0.7, 1),
    "tight": ((0.15, 0.4), -1.2, 0.1, 1),
    "tight, rough": ((0.08, 0.15), -1.2, 0.1, 1),
    "rough": ((0.06, 0.1), -0.3, 0.1, 1),
    "smooth": ((0.5, 1.0), -0.3, 0.1, 1),
    "noisy": ((0.15, 0.4), -0.3, 0.7, 1),
    "eight in flight": ((0.15, 0.4), -0.3, 0.1, 8),
}
QUANTITIES = ("best", "violating", "best, model kept", "violating, model kept")
HOW: dict[str, Any] = {"in_flight": (1,), "trials": 2}
CHOSEN = ("recommended", "best of truth", "best of family", "best of all")
ALL: dict[str, Any] = {"parts": PARTS, "spaces": tuple(SPACES), "runs": None}


def told(axes: Any, at: Any, limit: float, noise: float, rng: np.random.Generator, seed: int) -> Session:
    """Return a session that was told ten random points of functions ``at``."""
    design = jb.InitialDesign(random=FIRST)
    session = Session.create(None, axes, key=seed, objective="maximise f", constraints=[f"c <= {limit}"], initial=design)
    for ticket in session.ask(FIRST):
        session.tell(ticket, dict(zip("fc", at(ticket.point) + noise * rng.standard_normal(2), strict=True)))
    return session


def functions(dimension: int, lengths: tuple[float, float], seed: int) -> tuple[Any, np.random.Generator]:
    """Return an objective and a constraint of points ``[n, d]``, ``[2, n]``, and the generator that drew them."""
    rng, kernel = np.random.default_rng(seed), KERNELS[seed % len(KERNELS)]
    both = [drawn(rng, *kernel, dimension, lengths) for _ in "fc"]
    return (lambda points: np.stack([one(points) for one in both])), rng


def axes_of(space: str) -> Any:
    """Return the axes of a space."""
    names = "xyz"[: SPACES[space]]
    return [Axis.between(name, 0, 1, 20) for name in names] if space == "grid" else {name: (0.0, 1.0) for name in names}


def bands_of(space: str, evaluations: int, seed: int) -> dict[str, Any]:
    """Return the places of what came true in the forecast's distributions, from 0 to 1, the ends of equal values apart."""
    values, rng = functions(SPACES[space], (0.15, 0.4), seed)

    def at(point: Any) -> np.ndarray:
        return np.asarray(values(np.asarray([list(point.values())]))[:, 0])

    with told(axes_of(space), at, LIMIT, NOISE, rng, seed) as session:
        own = [session.specification.algorithm]
        found, begun = jb.forecast(session, evaluations, own, trials=FUTURES, key=seed), forecasts.begun_by(session, 2)
        for _ in range(evaluations):
            ticket = session.ask()
            session.tell(ticket, dict(zip("fc", at(ticket.point) + NOISE * rng.standard_normal(2), strict=True)))
        columns = session.columns()
        points = values(np.stack([columns[name] for name in session.specification.space.names], axis=1)).T
    allowed = [value for value, cost in points if cost <= LIMIT]
    true = {"best": float(max(allowed, default=-np.inf)), "violating": float(np.count_nonzero(points[FIRST:, 1] > LIMIT))}
    future = last_of(found)
    places = {name: place(future[name], value) for name, value in true.items()}
    if space == "grid":
        kept = last_of(
            forecasts.played(on_truth(begun, values(unit_points(session)), NOISE), evaluations, own, **HOW, key=jax.random.key(seed))
        )
        places |= {f"{name}, model kept": place(future[name], kept[name][0]) for name in true}
    return places


def last_of(found: jb.session.Forecast) -> dict[str, np.ndarray]:
    """Return the best value and the violating evaluations ``[N]`` at the end of a forecast of one algorithm."""
    last = found.dataset.isel(algorithm=0, in_flight=0, delay=0, evaluation=-1)
    return {name: np.nan_to_num(last[name].values, nan=-np.inf) for name in ("best", "violating")}


def place(drawn: np.ndarray, true: float) -> list[float]:
    """Return the shares of ``drawn [N]`` that are below the true value, and at most that."""
    return [float(np.mean(drawn < true - 1e-5)), float(np.mean(drawn <= true + 1e-5))]


def unit_points(session: Session) -> np.ndarray:
    """Return the points ``[M, 2]`` of a session's grid in the unit square."""
    points = np.asarray(session.specification.space.modelled, np.float64)
    return np.asarray((points - points.min(axis=0)) / np.ptp(points, axis=0))


def gaps_of(family: str, evaluations: int, seed: int) -> dict[str, Any]:
    """Return the recommended algorithm, and the mean gap of each on the truth, and before."""
    lengths, limit, noise, flight = FAMILIES[family]
    values, rng = functions(2, lengths, seed)
    with told(axes_of("grid"), lambda point: values(np.asarray([list(point.values())]))[:, 0], limit, noise, rng, seed) as session:
        found = jb.forecast(session, evaluations, ALGORITHMS, in_flight=(flight,), trials=FUTURES, key=seed)
        begun = forecasts.begun_by(session, 2)
    truth = values(unit_points(session))
    allowed = truth[1] <= limit
    if not allowed.any():
        return {}
    true = forecasts.played(
        on_truth(begun, truth, noise), evaluations, ALGORITHMS, in_flight=(flight,), trials=64, key=jax.random.key(seed)
    )
    # A run that finds no allowed point counts as the worst point.
    gaps = true.dataset["gap"].isel(evaluation=[0, -1]).fillna(truth[0][allowed].max() - truth[0].min())
    mean = gaps.mean(("in_flight", "delay", "future")).transpose("evaluation", "algorithm").values
    return {"pick": found.recommended[0], "start": float(mean[0, 0]), "true": mean[1].tolist()}


def on_truth(begun: forecasts.Start, truth: np.ndarray, noise: float) -> forecasts.Start:
    """Return the start of runs on known functions ``[2, M]``."""
    outputs, standard = begun.outputs, begun.standard
    assert outputs is not None and standard is not None and isinstance(begun.problem, forecasts.Futures)
    rows, (shift, scale) = np.stack([truth[0], truth[1] - outputs.functions[1][2]]), outputs.units(standard)
    rows[0] = standard.bent(rows[0])
    table, variances = (rows - shift[:, None]) / scale[:, None], np.square(noise / scale)
    problem = replace(begun.problem, tables=table[None].astype(np.float32), noise=Gaussian(variance=variances))
    return dataclasses.replace(begun, problem=problem)


def seconds(seed: int) -> dict[str, Any]:
    """Return the CPU time of a forecast of five algorithms that were compiled before."""
    values, rng = functions(2, (0.15, 0.4), seed)
    axes = [Axis.between(name, 0, 1, 50) for name in "xy"]
    with told(axes, lambda point: values(np.asarray([list(point.values())]))[:, 0], LIMIT, NOISE, rng, seed) as session:
        for _ in range(2):
            begun = time.process_time()
            jb.forecast(session, 30, ALGORITHMS, trials=1000)
    return {"seconds": time.process_time() - begun}


def play(options: Options, directory: Path) -> xr.Dataset:
    """Forecast and play all truths that the file of runs lacks."""
    parts, spaces, kept = options.extra["parts"], options.extra["spaces"], Kept(options.extra["runs"])
    for name, given, known in (("--parts", parts, PARTS), ("--spaces", spaces, tuple(SPACES))):
        for one in given:
            checks.one_of(name, one, known)
    seeds, count, found = range(options.seed, options.seed + options.trials), options.horizon, xr.Dataset()
    with warnings.catch_warnings():
        # Fits warn of hyper-parameters that few values do not determine.
        warnings.simplefilter("ignore")
        if "bands" in parts:
            runs = [[kept.outcome(("bands", one, count, seed), partial(bands_of, one, count, seed)) for seed in seeds] for one in spaces]
            names = [name for name in QUANTITIES if any(name in row[0] for row in runs)]
            places = [[[run.get(name, [np.nan] * 2) for name in names] for run in row] for row in runs]
            coords = {"space": list(spaces), "quantity": names}
            found = found.assign_coords(coords).assign(place=(("space", "seed", "quantity", "end"), places))
        if "choice" in parts:
            shape = len(FAMILIES), len(seeds)
            picks, start, true = np.full(shape, "", "U16"), np.full(shape, np.nan), np.full((*shape, len(ALGORITHMS)), np.nan)
            for first, family in enumerate(FAMILIES):
                for second, seed in enumerate(seeds):
                    if run := kept.outcome(("choice", family, count, seed), partial(gaps_of, family, count, seed)):
                        picks[first, second], start[first, second], true[first, second] = run["pick"], run["start"], run["true"]
            found = found.assign_coords({"family": list(FAMILIES), "algorithm": list(ALGORITHMS)})
            found = found.assign(pick=(("family", "seed"), picks), start=(("family", "seed"), start))
            found = found.assign(true=(("family", "seed", "algorithm"), true))
        if "time" in parts:
            found = found.assign(seconds=kept.outcome(("time", options.seed), partial(seconds, options.seed))["seconds"])
    return found


def shares(dataset: Any) -> np.ndarray:
    """Return the shares ``[space, quantity]`` of 80% bands that hold what came true."""
    low, high = np.moveaxis(dataset["place"].values, -1, 0)
    inside = np.clip(np.minimum(high, 0.9) - np.maximum(low, 0.1), 0, None) / np.maximum(high - low, 1e-12)
    shares = np.where(high > low, inside, (low >= 0.1) & (low <= 0.9)).mean(axis=1)
    return np.where(np.isfinite(low[:, 0]), shares, np.nan)


def choices(dataset: Any) -> np.ndarray:
    """Return the shares ``[family, 4]`` of the first gap that are closed, by the algorithms of ``CHOSEN``."""
    true, names = dataset["true"].values, dataset["algorithm"].values
    picked = np.where(dataset["pick"].values[..., None] == names, true, np.nan)
    with warnings.catch_warnings():
        # A truth without allowed points has no gaps.
        warnings.simplefilter("ignore", RuntimeWarning)
        best, each = np.nanmin(true, axis=-1), np.nanmean(true, axis=1)
        gaps = np.stack([np.nanmean(np.nanmin(picked, axis=-1), axis=1), np.nanmean(best, axis=1), each.min(axis=1)], axis=1)
        start = np.nanmean(dataset["start"].values, axis=1)[:, None]
    closed = 1 - each / start
    return np.column_stack([1 - gaps / start, closed[:, np.argmax(closed.mean(axis=0))]])


def rows(dataset: Any) -> list[dict[str, str]]:
    """Return a row for each space, family, and time."""
    made = list[dict[str, str]]()
    if "place" in dataset:
        for space, each in zip(dataset["space"].values, shares(dataset), strict=True):
            words = zip(dataset["quantity"].values, each, strict=True)
            made.append({"of": str(space)} | {f"{name} in band": f"{share:.0%}" for name, share in words if np.isfinite(share)})
    if "true" in dataset:
        names, each = dataset["algorithm"].values, np.nanmean(dataset["true"].values, axis=1)
        for family, closed, own in zip(dataset["family"].values, choices(dataset), each, strict=True):
            numbers = dict(zip(CHOSEN, (f"{share:.1%}" for share in closed), strict=True))
            made.append({"of": str(family), **numbers, "which is": str(names[np.argmin(own)])})
    if "seconds" in dataset:
        made.append({"of": "1,000 futures", "CPU s": f"{float(dataset['seconds']):.1f}"})
    return [{name: row.get(name, "") for name in dict.fromkeys(name for row in made for name in row)} for row in made]


def notes(dataset: Any) -> list[str]:
    """Return the means over all families."""
    if "true" not in dataset:
        return []
    true, start = (np.nanmean(dataset[name].values, axis=1) for name in ("true", "start"))
    fixed = zip(dataset["algorithm"].values, (1 - true / start[:, None]).mean(axis=0), strict=True)
    means = zip(CHOSEN[:3], choices(dataset).mean(axis=0), strict=False)
    shares = ", ".join(f"{name} {share:.1%}" for name, share in [*means, *fixed])
    return [f"share of the gap after the first ten points that is closed, mean over families: {shares}"]


def draw(dataset: Any) -> Any:
    """Draw shares of bands over their probability, and gaps by family."""
    panels = [name for name in ("place", "true") if name in dataset] or ["place"]
    figure, [axes] = figure_of(1, len(panels), (4.2, 3.6), title=EXPERIMENT.title)
    for axis, panel in zip(axes, panels, strict=True):
        if panel == "true":
            gaps, places = choices(dataset), np.arange(dataset.sizes["family"])
            for number, label in enumerate(CHOSEN):
                axis.plot(gaps[:, number], places, "os^v"[number], color=COLOURS[number], markersize=4, label=label)
            axis.set_yticks(places, dataset["family"].values.tolist())
            axis.set_xlabel("share of the first gap that is closed")
        elif "place" in dataset:
            axis.plot([0, 1], [0, 1], color="0.5", linewidth=0.8)
            for number, (space, quantity) in enumerate((s, q) for s in range(dataset.sizes["space"]) for q in range(2)):
                middle = dataset["place"].values[space, :, quantity].mean(axis=-1)
                label = f"{dataset['space'].values[space]}, {dataset['quantity'].values[quantity]}"
                axis.plot(np.sort(2 * np.abs(middle - 0.5)), (np.arange(len(middle)) + 1) / len(middle), color=COLOURS[number], label=label)
            axis.set(xlabel="probability of the central band", ylabel="share that came true")
    legend_below(figure)
    return figure


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose parts and spaces, and say where runs are kept."""
    extra = parser.get_default("option_defaults").extra
    for name, known in (("parts", PARTS), ("spaces", tuple(SPACES))):
        chosen: Sequence[str] = extra[name]
        parser.add_argument(f"--{name}", nargs="+", default=chosen, metavar="NAME", help=f"some of {', '.join(known)} (default: all)")
    add_runs(parser)


EXPERIMENT = Experiment(
    module=__name__,
    title="Forecasts from ten points, beside what came true",
    position=99,
    defaults=Options(trials=100, horizon=20, extra=ALL),
    quick=Options(trials=1, horizon=3, extra=ALL | {"parts": ("bands",), "spaces": ("grid",)}),
    build=None,
    play=play,
    rows=rows,
    notes=notes,
    draw=draw,
    add_arguments=add_arguments,
)
