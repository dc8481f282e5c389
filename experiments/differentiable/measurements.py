"""Measurements beside the study.

They are the jump of the loss, errors of gradients, random search, and a descent that fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

import jaxbandit as jb
from experiments.differentiable.settings import Setting, seven, sine
from jaxbandit.gradients import SmoothedLoss, descend
from jaxbandit.report.statistics import half_width

# Widths about the paper's. One of them equals the paper's to the last bit.
NEAR = np.round(np.linspace(2.7, 3.3, 13), 3)
# First step of the descent that fails.
RASH = 0.4
# Pairs of trials and step of Adam in the comparison of gradients.
PAIRS, STEP = 32, 0.2
# Range of random search in logarithms, as of the screening of a descent.
REACH = float(np.log(10.0))


def losses_of(loss: SmoothedLoss, points: Any, trials: int, key: Any) -> np.ndarray:
    """Return the losses ``[C, trials]`` of parameters with leading axes ``[C]``.

    All are on the same trials. A loss is infinite if its trial failed.
    """
    count = len(jax.tree.leaves(points)[0])
    owners, numbers = np.repeat(np.arange(count), trials), np.tile(np.arange(trials, dtype=np.int32), count)
    room, found = 2 * loss.pairs, []
    for first in range(0, len(owners), room):
        # Batches are whole, so that one program runs them.
        part = np.resize(np.arange(first, min(first + room, len(owners))), room)
        own = jax.tree.map(lambda leaf, part=part: np.asarray(leaf)[owners[part]], points)
        played, _, _, healthy = loss.measured(own, jnp.asarray(numbers[part]), key)
        found.append(np.where(healthy, np.asarray(played, np.float64), np.inf)[: len(owners) - first])
    return np.concatenate(found).reshape(count, trials)


def jump(problem: Any, model: Any, horizon: int, trials: int, key: Any) -> dict[str, Any]:
    """Return the mean loss at widths, with and without an initial design."""

    def build(width: Any) -> tuple[jb.Algorithm, Any]:
        return jb.Rpol(estimator=jb.estimators.Bounds(reward_width=width, cost_width=width)), model

    found: dict[str, Any] = {"widths": NEAR.tolist()}
    for name, initial in (("as it is", jb.InitialDesign()), ("after 5 random points", jb.InitialDesign(random=5))):
        loss = SmoothedLoss(problem, build, horizon=horizon, pairs=PAIRS, initial=initial)
        each = losses_of(loss, NEAR.astype(np.float32), trials, key)
        found[name] = {"mean": each.mean(axis=1).tolist(), "half": half_width(each.T).tolist()}
    return found


def errors_of_gradients(problem: Any, setting: Setting, horizon: int, batches: int, key: Any) -> dict[str, Any]:
    """Return the relative error of gradients, by method.

    They are of four hyper-parameters, against the number of trials. Each method's errors are about its own mean over all batches of 64
    trials, for each smooths the loss in its own way.
    """
    start, build = setting
    loss = SmoothedLoss(problem, build, horizon=horizon, pairs=PAIRS, step=STEP)
    flat, rebuild = ravel_pytree(start)
    start_at, rebuilt = np.asarray(flat), jax.jit(jax.vmap(rebuild))
    size = len(start_at)

    def differences(steps: np.ndarray, key: Any) -> np.ndarray:
        around = start_at[None] + np.concatenate([steps, -steps]).astype(start_at.dtype)
        numbers = jnp.asarray(np.tile(np.arange(PAIRS, dtype=np.int32), 2))
        played = np.asarray(loss.measured(rebuilt(around), numbers, key)[0], np.float64)
        return played[:PAIRS] - played[PAIRS:]

    def factorial(random: np.random.Generator, key: Any) -> np.ndarray:
        return np.asarray(ravel_pytree(loss.estimate(start, key).gradient)[0])

    def coordinate(random: np.random.Generator, key: Any) -> np.ndarray:
        axes = np.arange(PAIRS) % size
        slopes = differences(STEP * np.eye(size)[axes], key) / (2 * STEP)
        return np.asarray([slopes[axes == axis].mean() for axis in range(size)])

    def gaussian(random: np.random.Generator, key: Any) -> np.ndarray:
        directions = random.standard_normal((PAIRS, size))
        return (directions * (differences(STEP * directions, key) / (2 * STEP))[:, None]).mean(axis=0)

    methods: dict[str, Callable[..., np.ndarray]] = {
        "factorial pairs (SmoothedLoss)": factorial,
        "one coordinate at a time": coordinate,
        "Gaussian directions": gaussian,
    }
    found: dict[str, Any] = {"trials": [], "methods": {}}
    for name, method in methods.items():
        random = np.random.default_rng(0)
        gradients = np.stack([method(random, jax.random.fold_in(key, batch)) for batch in range(batches)])
        counts = [count for count in (1, 2, 4, 8) if batches // count >= 4]
        found["trials"] = [2 * PAIRS * count for count in counts]
        found["methods"][name] = [_relative_error(gradients, count) for count in counts]
    return found


def _relative_error(gradients: np.ndarray, count: int) -> float:
    """Return the root mean square error of means of gradients.

    Each is of ``count`` of ``gradients [B, d]``, relative to the mean of all.
    """
    groups = gradients[: len(gradients) // count * count].reshape(-1, count, gradients.shape[1]).mean(axis=1)
    return float(np.sqrt(np.sum(groups.var(axis=0, ddof=1))) / np.linalg.norm(gradients.mean(axis=0)))


def random_search(loss: SmoothedLoss, setting: Setting, trials: int, each: int, seed: int, key: Any) -> Any:
    """Return the best of random points within ``trials``.

    Each point has ``each`` trials. The start is one of the points.
    """
    flat, rebuild = ravel_pytree(setting[0])
    away = np.random.default_rng(seed).uniform(-REACH, REACH, (max(1, trials // each) - 1, len(flat)))
    points = np.concatenate([np.asarray(flat)[None], np.asarray(flat)[None] + away.astype(flat.dtype)])
    return rebuild(points[int(np.argmin(losses_of(loss, jax.jit(jax.vmap(rebuild))(points), each, key).mean(axis=1)))])


def failing_descent(points_per_axis: int, horizon: int, steps: int, validate: int, held_out: int, key: Any) -> dict[str, Any]:
    """Return the end of a rash descent, and its validation.

    It has seven hyper-parameters and more rounds. Screening is measured, too. Few trials get stuck in the trap of this problem, for
    hundreds of rounds, and few gradients see them: steps that are large for their trials lead there.
    """
    problem, model = sine(points_per_axis, horizon)
    start, build = seven(model)
    loss = SmoothedLoss(problem, build, horizon=horizon, pairs=PAIRS)
    rash = optax.adam(optax.cosine_decay_schedule(RASH, steps, 0.1), b1=0.8, b2=0.95)
    every = max(1, steps // 6)
    bare = descend(loss, start, key, optimizer=rash, steps=steps, screen=1, validate=validate, every=every)
    guarded = descend(loss, start, key, steps=steps, screen=16, validate=validate, every=every)
    last = next(candidate for candidate in reversed(bare.candidates) if candidate.found.startswith("step"))
    settings = {
        "the paper's": start,
        "rash, last step": last.values,
        "rash, validated": bare.params,
        "screened, validated": guarded.params,
    }
    points = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *settings.values())
    each = losses_of(loss, points, held_out, jax.random.fold_in(key, 1))
    return {
        "value": bare.history["value"].tolist(),
        "validated": [
            [0 if c.found == "start" else int(c.found.split()[1]), c.loss] for c in bare.candidates if c.found[:4] in ("star", "step")
        ],
        "held out": {name: [float(row.mean()), float(half_width(row))] for name, row in zip(settings, each, strict=True)},
        "stuck": {name: float((row > 3).mean()) for name, row in zip(settings, each, strict=True)},
    }
