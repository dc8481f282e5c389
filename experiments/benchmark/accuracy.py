"""Accuracy of beliefs at several noise levels.

It is measured beside a dense float64 solve, with the arithmetic that each level takes.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxbandit
from jaxbandit import kernels
from jaxbandit.surrogates import Posterior, Surrogate, arithmetic

NOISE_VARIANCES = (0.05, 2.5e-3, 1e-4, 1e-6)
# Trials side by side, for the time of a round.
TRIALS = 10


def measure_accuracy(spec: dict[str, Any]) -> dict[str, Any]:
    """Return errors of mean and deviation, by noise variance.

    They are at every point after ``spec["horizon"]`` rounds. Points are chosen as after a while of any algorithm: most of them among the
    best. ``mean_error`` is in posterior deviations, ``sd_error`` relative; both are the largest over the grid of
    ``spec["points_per_axis"]`` points on an axis.
    """
    domain = jaxbandit.problems.sine(spec["points_per_axis"]).domain
    points = np.asarray(domain.points, np.float64)
    matrix = np.exp(-0.5 * np.sum((points[:, None] - points[None]) ** 2, axis=-1))
    rng = np.random.default_rng(0)
    function = np.linalg.cholesky(matrix + 1e-10 * np.eye(len(matrix))) @ rng.standard_normal(len(matrix))
    indices = _mostly_good(function, spec["horizon"], rng)
    levels = {}
    for noise in NOISE_VARIANCES:
        values = function[indices] + np.sqrt(noise) * rng.standard_normal(len(indices))
        kernel = kernels.SquaredExponential(length_scale=1.0)
        model = jaxbandit.surrogate(domain, kernel, noise_variance=noise, outputs=1, horizon=len(indices))
        mean, sd = _dense(matrix, indices, values, noise)
        ours, deviation, seconds = _played(model, indices, values)
        levels[f"{noise:g}"] = {
            "precision": model.precision,
            "refresh": model.refresh,
            "rank": model.forms[0].rank,
            "mean_error": float(np.max(np.abs(ours - mean) / sd)),
            "sd_error": float(np.max(np.abs(deviation / sd - 1))),
            "update_us": seconds / TRIALS / len(indices) * 1e6,
        }
    return {"points": len(points), "horizon": len(indices), "levels": levels}


def _mostly_good(function: np.ndarray, rounds: int, rng: np.random.Generator) -> np.ndarray:
    """Return points ``[T]``: a few at random, then the better the likelier."""
    share = np.exp(-np.arange(len(function)) / 15.0)
    indices = np.argsort(-function)[rng.choice(len(function), rounds, p=share / share.sum())]
    indices[: rounds // 30] = rng.integers(0, len(function), rounds // 30)
    return indices


def _dense(matrix: np.ndarray, indices: np.ndarray, values: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation ``[M]`` by a Cholesky factor.

    The factor is of the distinct points. Repeats are averaged.
    """
    count = np.bincount(indices, minlength=len(matrix))
    seen = np.flatnonzero(count)
    average = np.bincount(indices, values, len(matrix))[seen] / count[seen]
    triangle = np.linalg.cholesky(matrix[np.ix_(seen, seen)] + np.diag(noise / count[seen]))
    half = np.linalg.solve(triangle, matrix[seen])
    return half.T @ np.linalg.solve(triangle, average), np.sqrt(np.diag(matrix) - np.sum(half**2, axis=0))


def _played(model: Surrogate, indices: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Return mean and deviation ``[M]`` after all observations, and seconds.

    The seconds are of a program that plays the observations in several trials.
    """

    def after(model: Surrogate, indices: jax.Array, values: jax.Array) -> tuple[jax.Array, jax.Array]:
        def observe(posterior: Posterior, seen: tuple[jax.Array, jax.Array]) -> tuple[Posterior, None]:
            return model.condition(posterior, seen[0], seen[1][None]), None

        belief = model.belief(jax.lax.scan(observe, model.init(), (indices, values))[0])
        return belief.mean[0], belief.sd[0]

    with arithmetic([model.precision]):
        program = jax.jit(jax.vmap(partial(after, jaxbandit.replace(model, kernels=())), (None, 0)))
        table = jnp.broadcast_to(jnp.asarray(values, model.dtype), (TRIALS, len(values)))
        jax.block_until_ready(program(jnp.asarray(indices, jnp.int32), table))
        start = time.perf_counter()
        mean, sd = jax.block_until_ready(program(jnp.asarray(indices, jnp.int32), table))
        return np.asarray(mean[0], np.float64), np.asarray(sd[0], np.float64), time.perf_counter() - start
