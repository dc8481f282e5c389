"""Probabilities of ``Session.settled``, beside how often they came true.

An objective and a constraint of sd 1 are drawn from one of four kernels on the unit square: squared-exponential, Matern-5/2, Matern-3/2
with length-scales from .15 to .4 for each axis, and Matern-5/2 with one for both. The limit of the constraint is .3 below its mean.
Values have noise of sd .1. A session with its defaults, on 20 x 20 points or on the box, asks for 60 points. After every fifth from the
tenth on it says how likely its recommended point is allowed and within .1 of the best allowed one, which is compared with the truth.

Measured 2026-11-28 by ``python -m experiments settled --spaces grid --trials 30 --seed 200``; the table is on the page "Am I done?".

``--runs FILE`` keeps each session as soon as it has ended. ``--parameters`` and ``--points-per-axis`` have no effect.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from experiments.common.experiment import Experiment, Options
from experiments.defaults.kept import Kept
from jaxbandit.report.plots import COLOURS, figure_of, legend_below
from jaxbandit.session import Axis, Session

SPACES = ("grid", "box")
# Degrees of freedom of the spectra of the kernels, and whether both axes have one length-scale.
KERNELS: tuple[tuple[float, bool], ...] = ((np.inf, False), (5, False), (3, False), (5, True))
WITHIN, NOISE, LIMIT, EVERY, FIRST = 0.1, 0.1, -0.3, 5, 10
CLASSES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.95, 1.0)
LEVELS = np.linspace(0, 1, 20)
ALL: dict[str, Any] = {"spaces": SPACES, "runs": None}
Drawn = Callable[[np.ndarray], np.ndarray]


def drawn(
    rng: np.random.Generator, freedom: float, is_isotropic: bool, dimension: int = 2, ends: tuple[float, float] = (0.15, 0.4)
) -> Drawn:
    """Return a function of points ``[n, d]``, a sum of random cosines.

    Its length-scales lie between the ``ends``.
    """
    count = 1500
    frequencies, lengths = rng.standard_normal((count, dimension)), rng.uniform(*ends, dimension)
    if is_isotropic:
        lengths[:] = lengths[0]
    if np.isfinite(freedom):
        frequencies /= np.sqrt(rng.chisquare(freedom, (count, 1)) / freedom)
    frequencies /= lengths
    phases, sizes = rng.uniform(0, 2 * np.pi, count), rng.standard_normal(count) * np.sqrt(2 / count)
    return lambda points: np.asarray(np.cos(points @ frequencies.T + phases) @ sizes)


def best_of(space: str, rng: np.random.Generator, objective: Drawn, constraint: Drawn) -> float:
    """Return the best allowed value.

    It is NaN if fewer than a twentieth of the points are allowed.
    """
    levels = LEVELS if space == "grid" else np.linspace(0, 1, 161)
    points = np.stack(np.meshgrid(levels, levels, indexing="ij"), axis=-1).reshape(-1, 2)
    values, costs = objective(points), constraint(points)
    if np.mean(costs <= LIMIT) < 0.05:
        return np.nan
    for size in (0.01, 0.003, 0.001) if space == "box" else ():
        best = points[np.argmax(np.where(costs <= LIMIT, values, -np.inf))]
        near = np.clip(best + size * rng.standard_normal((500, 2)), 0, 1)
        points, values, costs = (np.concatenate(pair) for pair in ((points, near), (values, objective(near)), (costs, constraint(near))))
    return float(np.max(values[costs <= LIMIT]))


def played(space: str, evaluations: int, seed: int) -> dict[str, Any]:
    """Return a session's probabilities every five evaluations, and whether they came true."""
    rng = np.random.default_rng(seed)
    kernel = KERNELS[seed % len(KERNELS)]
    objective, constraint = drawn(rng, *kernel), drawn(rng, *kernel)
    best = best_of(space, rng, objective, constraint)
    said, true = list[float](), list[bool]()
    if np.isnan(best):
        return {"said": said, "true": true}
    axes: Any = [Axis.between(name, 0, 1, 20) for name in ("x", "y")] if space == "grid" else {"x": (0.0, 1.0), "y": (0.0, 1.0)}

    def at(point: Any) -> tuple[float, float]:
        place = np.asarray([[point["x"], point["y"]]])
        return float(objective(place)[0]), float(constraint(place)[0])

    with Session.create(None, axes, key=seed, objective="maximise f", constraints=[f"c <= {LIMIT}"]) as session:
        for count in range(1, evaluations + 1):
            ticket = session.ask()
            noisy = (value + NOISE * rng.standard_normal() for value in at(ticket.point))
            session.tell(ticket, dict(zip("fc", noisy, strict=True)))
            if count >= FIRST and count % EVERY == 0:
                said.append(session.settled(WITHIN).probability)
                value, cost = at(session.recommend().point)
                true.append(bool(cost <= LIMIT and best - value <= WITHIN))
    return {"said": said, "true": true}


def play(options: Options, directory: Path) -> xr.Dataset:
    """Play the missing sessions, and return said and true."""
    spaces, kept = tuple(options.extra["spaces"]), Kept(options.extra["runs"])
    counts, seeds = range(FIRST, options.horizon + 1, EVERY), range(options.seed, options.seed + options.trials)
    found = np.full((2, len(spaces), len(seeds), len(counts)), np.nan)
    for first, space in enumerate(spaces):
        for second, seed in enumerate(seeds):
            run = kept.outcome((space, options.horizon, seed), partial(played, space, options.horizon, seed))
            if run["said"]:
                found[:, first, second] = run["said"], run["true"]
    names = ("space", "seed", "evaluations")
    coords = {"space": list(spaces), "seed": list(seeds), "evaluations": list(counts)}
    return xr.Dataset({"said": (names, found[0]), "true": (names, found[1])}, coords=coords)


def rows(dataset: Any) -> list[dict[str, str]]:
    """Return a row for each space and class of probabilities."""
    made = []
    for space in dataset["space"].values:
        said, true = (dataset[name].sel(space=space).values.ravel() for name in ("said", "true"))
        for low, high in itertools.pairwise(CLASSES):
            inside = (said >= low) & ((said < high) | (high == 1.0))
            if inside.any():
                numbers = {"said": f"{said[inside].mean():.2f}", "true": f"{true[inside].mean():.2f}", "times": str(inside.sum())}
                made.append({"space": str(space), "class": f"{low:g} to {high:g}"} | numbers)
    return made


def notes(dataset: Any) -> list[str]:
    """Return how often a session that stops at .95 is right."""
    lines = []
    for space in dataset["space"].values:
        said, true = (dataset[name].sel(space=space).values for name in ("said", "true"))
        stops, each = said >= 0.95, np.arange(len(said))
        at, stopped, played = np.argmax(stops, axis=1), stops.any(axis=1), int(np.isfinite(said[:, 0]).sum())
        right, after = true[each, at][stopped], dataset["evaluations"].values[at][stopped]
        if right.size:
            words = f"{stopped.sum()} of {played} sessions, after {np.median(after):g} evaluations in the median, and is right in"
            lines.append(f"{space}: stopping at .95 ends {words} {right.mean():.0%} of them")
    return lines


def draw(dataset: Any) -> Any:
    """Draw true shares over said probabilities."""
    figure, [[axis]] = figure_of(1, 1, (4.0, 3.2), title=EXPERIMENT.title)
    axis.plot([0, 1], [0, 1], color="0.5", linewidth=0.8)
    for number, space in enumerate(dataset["space"].values):
        held = [row for row in rows(dataset) if row["space"] == space]
        axis.plot([float(row["said"]) for row in held], [float(row["true"]) for row in held], "o-", color=COLOURS[number], label=str(space))
    axis.set(xlabel="probability said", ylabel="share of times")
    legend_below(figure)
    return figure


EXPERIMENT = Experiment(
    module=__name__,
    title="How likely an experiment is settled, said and true",
    position=98,
    defaults=Options(trials=40, horizon=60, extra=ALL),
    quick=Options(trials=1, horizon=10, extra=ALL | {"spaces": ("grid",)}),
    build=None,
    play=play,
    rows=rows,
    notes=notes,
    draw=draw,
    choices={"spaces": SPACES},
)
