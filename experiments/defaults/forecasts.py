"""Forecasts of sessions of ten points, beside the values that came true.

``bands``: an objective and a constraint of sd 1 are drawn from one of the four kernels of ``python -m experiments settled``, on 20 x 20
points of the unit square or on the unit cube. A session with its defaults is told ten random points, with noise of sd .1, and forecasts its
next evaluations in 256 futures. Then it asks for them in earnest, and fits its model as sessions do. The table has the shares of central
bands of 80% that hold the best allowed value and the number of violating evaluations that came true. Where equal values of many futures
lie across the end of a band, their part inside it counts.

``time``: 1,000 futures of five algorithms, 30 evaluations each on 50 x 50 points, in seconds of CPU time, after a forecast has compiled
them.

``choices``: ten families of such functions, with long or short length-scales, little or much noise, and a limit that hardly matters or
excludes most points. A session of ten points forecasts five algorithms in 64 futures, and a session of each algorithm goes on in earnest
from the same ten values. The loss of an algorithm is how far its best allowed value is from the best one of all, the largest of the five
where it knows none. The table has the mean losses of the algorithm that each forecast recommends, of the best one in hindsight for each
family, and of every fixed algorithm.

``--trials`` are truths in each space, ``--horizon`` the further evaluations.

Measured 2026-11-28 by ``python -m experiments forecasts --parts bands time --spaces grid --trials 32``; the table is on the page
"Simulate before you run".

``--runs FILE`` keeps each truth as soon as it has ended. ``--parameters`` and ``--points-per-axis`` have no effect.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

import jaxbandit as jb
from experiments.common.experiment import Experiment, Options
from experiments.defaults.kept import Kept
from experiments.defaults.settled import KERNELS, drawn
from jaxbandit.report.plots import COLOURS, figure_of, legend_below
from jaxbandit.session import Axis, Session, forecast

PARTS = ("bands", "time", "choices")
SPACES = {"grid": 2, "box": 3}
QUANTITIES = ("best", "violating")
FIRST, FUTURES, NOISE, LIMIT = 10, 256, 0.1, -0.3
FUTURES_OF_CHOICES = 64
LENGTHS, NOISES = {"long": (0.3, 0.6), "short": (0.08, 0.15)}, {"little": 0.01, "much": 0.5}
LIMITS = {"loose": 2.0, "middle": -0.3, "tight": -1.0}
ALGORITHMS: dict[str, jb.Algorithm] = {
    "CEI": jb.Cei(augmented=True),
    "Thompson": jb.ConstrainedThompson(),
    "CONFIG": jb.Config(),
    "RPOL": jb.Rpol(),
    "UCB": jb.Unconstrained(),
}
# Range of length-scales, standard deviation of the noise, and limit of the constraint.
FAMILIES: dict[str, tuple[tuple[float, float], float, float]] = {
    f"{length} lengths, {noise} noise, {limit} limit": (LENGTHS[length], NOISES[noise], LIMITS[limit])
    for length, noise, limit in itertools.product(LENGTHS, NOISES, LIMITS)
    if (noise, limit) != ("much", "tight")
}
ALL: dict[str, Any] = {"parts": PARTS, "spaces": tuple(SPACES), "runs": None}


def told(axes: Any, at: Any, limit: float, noise: float, rng: np.random.Generator, seed: int) -> Session:
    """Return a session that was told ten random points of functions ``at``."""
    design = jb.InitialDesign(random=FIRST)
    session = Session.create(None, axes, key=seed, objective="maximise f", constraints=[f"c <= {limit}"], initial=design)
    for ticket in session.ask(FIRST):
        session.tell(ticket, dict(zip("fc", at(ticket.point) + noise * rng.standard_normal(2), strict=True)))
    return session


def functions(dimension: int, lengths: tuple[float, float], seed: int) -> tuple[Any, Any, np.random.Generator]:
    """Return functions of points ``[n, d]`` and of one, and a generator."""
    rng, kernel = np.random.default_rng(seed), KERNELS[seed % len(KERNELS)]
    both = [drawn(rng, *kernel, dimension, lengths) for _ in "fc"]

    def values(points: np.ndarray) -> np.ndarray:
        return np.stack([one(points) for one in both])

    return values, lambda point: values(np.asarray([list(point.values())]))[:, 0], rng


def axes_of(space: str) -> Any:
    """Return the axes of a space."""
    names = "xyz"[: SPACES[space]]
    return [Axis.between(name, 0, 1, 20) for name in names] if space == "grid" else {name: (0.0, 1.0) for name in names}


def bands_of(space: str, evaluations: int, seed: int) -> dict[str, Any]:
    """Return the places of true values in the forecast's distributions."""
    values, at, rng = functions(SPACES[space], (0.15, 0.4), seed)
    with told(axes_of(space), at, LIMIT, NOISE, rng, seed) as session:
        found = forecast(session, evaluations, [session.specification.algorithm], trials=FUTURES, key=seed)
        for _ in range(evaluations):
            ticket = session.ask()
            session.tell(ticket, dict(zip("fc", at(ticket.point) + NOISE * rng.standard_normal(2), strict=True)))
        columns = session.columns()
        points = values(np.stack([columns[name] for name in session.specification.space.names], axis=1)).T
    allowed = [value for value, cost in points if cost <= LIMIT]
    true = {"best": float(max(allowed, default=-np.inf)), "violating": float(np.count_nonzero(points[FIRST:, 1] > LIMIT))}
    last = found.dataset.isel(algorithm=0, in_flight=0, delay=0, evaluation=-1)
    return {name: place(np.nan_to_num(last[name].values, nan=-np.inf), value) for name, value in true.items()}


def choice_of(space: str, family: str, evaluations: int, seed: int) -> dict[str, Any]:
    """Return the recommended algorithm, and the loss of every algorithm."""
    lengths, noise, limit = FAMILIES[family]
    values, at, rng = functions(SPACES[space], lengths, seed)
    goals: dict[str, Any] = {"objective": "maximise f", "constraints": [f"c <= {limit}"]}
    with told(axes_of(space), at, limit, noise, rng, seed) as session:
        said, _ = forecast(session, evaluations, ALGORITHMS, trials=FUTURES_OF_CHOICES, key=seed).recommended
        history = {name: session.columns()[name].tolist() for name in (*session.specification.space.names, "f", "c")}
    best = dict[str, float]()
    for name, algorithm in ALGORITHMS.items():
        with Session.create(None, axes_of(space), algorithm, key=seed, history=history, **goals) as session:
            for _ in range(evaluations):
                ticket = session.ask()
                session.tell(ticket, dict(zip("fc", at(ticket.point) + noise * rng.standard_normal(2), strict=True)))
            columns = session.columns()
            points = values(np.stack([columns[axis] for axis in session.specification.space.names], axis=1)).T
            best[name] = max((float(value) for value, cost in points if cost <= limit), default=-np.inf)
    steps = np.linspace(0, 1, 20 if space == "grid" else 33)
    everywhere = values(np.stack(np.meshgrid(*[steps] * SPACES[space], indexing="ij"), axis=-1).reshape(-1, SPACES[space]))
    most = max([*everywhere[0][everywhere[1] <= limit].tolist(), *best.values()])
    losses = {name: most - value for name, value in best.items()}
    worst = max([loss for loss in losses.values() if np.isfinite(loss)], default=0.0)
    return {"said": said, "losses": [loss if np.isfinite(loss) else worst for loss in losses.values()]}


def place(drawn: np.ndarray, true: float) -> list[float]:
    """Return the shares of ``drawn [N]`` below, and up to, a value."""
    return [float(np.mean(drawn < true - 1e-5)), float(np.mean(drawn <= true + 1e-5))]


def seconds(seed: int) -> dict[str, Any]:
    """Return the CPU time of a forecast that was compiled before."""
    _, at, rng = functions(2, (0.15, 0.4), seed)
    axes = [Axis.between(name, 0, 1, 50) for name in "xy"]
    with told(axes, at, LIMIT, NOISE, rng, seed) as session:
        for _ in range(2):
            begun = time.process_time()
            forecast(session, 30, ALGORITHMS, trials=1000)
    return {"seconds": time.process_time() - begun}


def play(options: Options, directory: Path) -> xr.Dataset:
    """Forecast and play all truths that the file of runs lacks."""
    parts, spaces, kept = options.extra["parts"], options.extra["spaces"], Kept(options.extra["runs"])
    seeds, count, found = range(options.seed, options.seed + options.trials), options.horizon, xr.Dataset()
    if "bands" in parts:
        runs = [[kept.outcome(("bands", one, count, seed), partial(bands_of, one, count, seed)) for seed in seeds] for one in spaces]
        places = [[[run[name] for name in QUANTITIES] for run in row] for row in runs]
        coords = {"space": list(spaces), "quantity": list(QUANTITIES)}
        found = found.assign_coords(coords).assign(place=(("space", "seed", "quantity", "end"), places))
    if "choices" in parts:
        names = [*ALGORITHMS]

        def choices(space: str, family: str) -> list[dict[str, Any]]:
            of = "choices", space, family, count
            return [kept.outcome((*of, seed), partial(choice_of, space, family, count, seed)) for seed in seeds]

        chosen = [[choices(space, family) for family in FAMILIES] for space in spaces]
        said = [[[names.index(run["said"]) for run in row] for row in each] for each in chosen]
        losses = [[[run["losses"] for run in row] for row in each] for each in chosen]
        coords = {"space": list(spaces), "family": list(FAMILIES), "algorithm": names}
        found = found.assign_coords(coords).assign(
            said=(("space", "family", "seed"), said), loss=(("space", "family", "seed", "algorithm"), losses)
        )
    if "time" in parts:
        found = found.assign(seconds=kept.outcome(("time", options.seed), partial(seconds, options.seed))["seconds"])
    return found


def shares(dataset: Any) -> np.ndarray:
    """Return the shares ``[space, quantity]`` of 80% bands that held."""
    low, high = np.moveaxis(dataset["place"].values, -1, 0)
    inside = np.clip(np.minimum(high, 0.9) - np.maximum(low, 0.1), 0, None) / np.maximum(high - low, 1e-12)
    return np.asarray(np.where(high > low, inside, (low >= 0.1) & (low <= 0.9)).mean(axis=1))


def losses_of(dataset: Any) -> dict[str, np.ndarray]:
    """Return mean losses ``[space, family]`` of each way to choose."""
    losses = dataset["loss"].values
    chosen = np.take_along_axis(losses, dataset["said"].values[..., None], axis=-1)[..., 0].mean(axis=-1)
    fixed = losses.mean(axis=2)
    return {"forecast": chosen, "hindsight": fixed.min(axis=-1)} | dict(
        zip(dataset["algorithm"].values, np.moveaxis(fixed, -1, 0), strict=True)
    )


def rows(dataset: Any) -> list[dict[str, str]]:
    """Return a row for each space, way to choose, and time."""
    made = list[dict[str, str]]()
    if "loss" in dataset:
        for name, losses in losses_of(dataset).items():
            means = zip(dataset["space"].values, losses.mean(axis=1), strict=True)
            made.append({"of": f"choice: {name}"} | {f"mean loss, {space}": f"{mean:.3f}" for space, mean in means})
    if "place" in dataset:
        for space, each in zip(dataset["space"].values, shares(dataset), strict=True):
            words = zip(dataset["quantity"].values, each, strict=True)
            made.append({"of": str(space)} | {f"{name} in band": f"{share:.0%}" for name, share in words})
    if "seconds" in dataset:
        made.append({"of": "1,000 futures", "CPU s": f"{float(dataset['seconds']):.1f}"})
    return [{name: row.get(name, "") for name in dict.fromkeys(name for row in made for name in row)} for row in made]


def notes(dataset: Any) -> list[str]:
    """Return the meaning of the shares."""
    lines = ["shares of central bands of 80% that held the value that came true"] if "place" in dataset else []
    if "loss" in dataset:
        best = Counter(dataset["algorithm"].values[np.argmin(dataset["loss"].mean("seed").values, axis=-1)].ravel().tolist())
        lines.append(f"best in hindsight, in families: {', '.join(f'{name} {count}' for name, count in best.most_common())}")
    return lines


def draw(dataset: Any) -> Any:
    """Draw the shares of bands that held over their probability."""
    figure, [[axis]] = figure_of(1, 1, (4.2, 3.6), title=EXPERIMENT.title)
    axis.plot([0, 1], [0, 1], color="0.5", linewidth=0.8)
    runs = itertools.product(range(dataset.sizes["space"]), range(len(QUANTITIES))) if "place" in dataset else ()
    for number, (space, quantity) in enumerate(runs):
        middle = dataset["place"].values[space, :, quantity].mean(axis=-1)
        label = f"{dataset['space'].values[space]}, {QUANTITIES[quantity]}"
        axis.plot(np.sort(2 * np.abs(middle - 0.5)), (np.arange(len(middle)) + 1) / len(middle), color=COLOURS[number], label=label)
    axis.set(xlabel="probability of the central band", ylabel="share that held")
    legend_below(figure)
    return figure


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
    choices={"parts": PARTS, "spaces": SPACES},
)
