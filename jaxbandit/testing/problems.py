"""The check of problems."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.declare import Array
from jaxbandit.problems import AbstractProblem
from jaxbandit.problems.boxes import OnBox
from jaxbandit.testing.common import STANDARD_ERRORS, ensure, made, near


def check_problem(problem: AbstractProblem | Callable[[], AbstractProblem], *, draws: int = 4000) -> AbstractProblem:
    """Check a problem's optimum, and the mean and variance of its draws.

    Args:
      problem: the problem, or a random family, from which the check samples two instances.
      draws: number of observations at each of five points. Tolerances are five standard errors.

    Raises:
      AssertionError: if the problem breaks a promise.
    """
    problem = made(problem, AbstractProblem)
    name = f"{type(problem).__name__} {problem.name!r}"
    problem.validate()
    with jax.enable_x64(True):
        first, second = (jax.jit(problem.sample)(jax.random.key(seed)) if problem.is_random else problem for seed in (0, 1))
        if problem.is_random:
            shapes = [jax.tree.map(lambda leaf: (jnp.shape(leaf), jnp.result_type(leaf)), instance) for instance in (first, second)]
            ensure(shapes[0] == shapes[1], name, "must sample instances of one structure")
            apart = not np.array_equal(first.means, second.means)
            ensure(apart, name, "must sample another instance for another key, got the same means")
        for instance in (first, second) if problem.is_random else (first,):
            _check_instance(name, instance, draws)
    return problem


def _check_instance(name: str, instance: AbstractProblem, draws: int) -> None:
    """Check the optimum, the draws and the revealed constraints of one instance."""
    means, best = np.asarray(instance.means, np.float64), jax.tree.map(np.asarray, instance.optimum())
    feasible = np.all(means[1:] <= 0, axis=0)
    tolerance = 1e-6 * (1 + float(np.abs(means[0]).max()))
    ensure(
        bool(instance.has_feasible_point()) == bool(np.isfinite(best.value)), name, f"has a feasible point or none, optimum {best.value}"
    )
    if feasible.any():
        most, at = float(means[0][feasible].max()), int(best.index)
        ensure(0 <= at < means.shape[1], name, f"optimum at point {at}, but there are {means.shape[1]} points")
        ensure(bool(feasible[at]), name, f"optimum at point {at} must be feasible, its constraints are {means[1:, at]}")
        ensure(bool(best.value >= most - tolerance), name, f"optimum {best.value:.9g} is beaten by a feasible point with {most:.9g}")
        if not instance.on_boxes:
            near(name, "optimum is the reward at its point", best.value, means[0, at], tolerance)
        near(name, "share of feasible points", best.feasible_fraction, feasible.mean(), 1e-6)
    places = [*np.linspace(0, means.shape[1] - 1, 4).astype(int), int(best.index)]
    inputs = instance.domain.points[np.asarray(places)] if instance.on_boxes else np.asarray(places, np.int32)

    @jax.jit
    def observed(keys: Array, inputs: Array) -> Array:
        return jax.vmap(lambda key: jax.vmap(lambda place: instance.observe(place, instance.draw(key)))(inputs))(keys)

    values = np.asarray(observed(jax.random.split(jax.random.key(2), draws), inputs))
    expected_shape = (draws, len(places), instance.outputs)
    ensure(values.shape == expected_shape, name, f"must observe [{instance.outputs}], got {list(values.shape[2:])}")
    noise = values - means[:, places].T[None]
    if isinstance(instance, OnBox):
        noise = values - np.asarray(jax.vmap(lambda u: instance.values(instance.domain.from_unit(u)))(jnp.asarray(inputs)))[None]
    size, root = 1 + np.abs(means).max(), math.sqrt(draws)
    error = STANDARD_ERRORS * noise.std(axis=0) / root + 1e-6 * size
    off = np.abs(noise.mean(axis=0))
    ensure(
        bool(np.all(off <= error)),
        name,
        f"draws must be centred on means: off by {off.max():.3g}, tolerance {error.flat[off.argmax()]:.3g}",
    )
    declared = instance.noise.variances(instance.outputs)
    if declared is not None and np.all(np.isfinite(declared)) and not instance.noise.by_point:
        found = noise.var(axis=0)
        error = STANDARD_ERRORS * (noise**2).std(axis=0) / root + 1e-6 * size
        right = np.abs(found - declared[None]) <= error
        ensure(bool(np.all(right)), name, f"declares noise of variance {declared}, but {draws} draws have {found.mean(axis=0)}")
    if instance.reveals_constraints:
        drawn = instance.draw(jax.random.key(3))
        shown = np.asarray(instance.constraint_sample(drawn))[:, places]
        seen = np.stack([np.asarray(instance.observe(jnp.int32(place), drawn))[1:] for place in places], axis=1)
        near(name, "shows the constraints that it then observes", shown, seen, 1e-6 * size)
