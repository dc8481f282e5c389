"""Policies on a box against dense solves in NumPy, where values of one point arrive late and in different rounds."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit import domains, feedback, kernels
from jaxbandit.surrogates import Elsewhere
from tests.oracles.gaussian_process import Matrix, matern52, mean_and_sd

ROUNDS, FIRST, CAPACITY, WINDOW, MINIMUM = 9, 2, 6, 3, -1.5
LENGTH_SCALE, NOISE, MEANS = np.asarray([0.5, 0.3]), 0.02, np.asarray([0.4, -0.3])
FORMS: dict[str, dict[str, Any]] = {"exact": {}, "features": {"form": "features", "tolerance": 0.9}}  # coarse: two of eight candidates
POLICIES = {"wait": feedback.Wait(), "hallucinate": feedback.Hallucinate(), "censor": feedback.Censor(window=WINDOW, minimum=MINIMUM)}
CASES = [(name, form) for name in POLICIES for form in FORMS]
RNG = np.random.default_rng(3)
POINTS, VALUES = RNG.random((FIRST + ROUNDS, 2)), RNG.standard_normal((FIRST + ROUNDS, 2))
ELSEWHERE = np.concatenate([RNG.random((4, 2)), POINTS[-1:] + 1e-3])
DELAYS = np.asarray([[0, 0], [1, 3], [5, 0], [2, 4], [20, 1], [0, 20], [3, 3], [1, 0], [0, 2]])
DUE = np.arange(1, ROUNDS + 1)[:, None] + DELAYS


@functools.cache
def model(form: str) -> Any:
    box = domains.box({"a": (0.0, 1.0), "b": (0.0, 1.0)}, candidates=8)
    kernel = kernels.Matern52(length_scale=LENGTH_SCALE)
    made = jb.surrogate(box, kernel, noise_variance=NOISE, prior_mean=MEANS, precision="float64", **FORMS[form])
    return made.with_room(FIRST + ROUNDS + 2)


@functools.partial(jax.jit, static_argnames="name")
def played(name: str, model: Any, points: Any, values: Any, due: Any) -> Any:
    """What the learner believes at the end, at its pool and elsewhere, with the pool and the draws there."""
    learner = POLICIES[name].bind(model, separate_outputs=True, capacity=CAPACITY, axis=None)

    def first(posterior: Any, seen: Any) -> tuple[Any, None]:
        index, posterior = learner.place(posterior, seen[0])
        return learner.condition(posterior, index, seen[1]), None

    def one(now: Any, given: Any) -> tuple[Any, None]:
        (posterior, pending), (t, point, own, arrival) = now, given
        index, posterior = learner.place(posterior, point)
        pending = pending.push(t, index, own, arrival, jnp.int32(ROUNDS))
        return (learner.learn(posterior, pending.arriving(t, index, own, arrival)), pending), None

    start = learner.init()
    start, _ = jax.lax.scan(first, start, (points[:FIRST], values[:FIRST]))
    rounds = (jnp.arange(1, ROUNDS + 1, dtype=jnp.int32), points[FIRST:], values[FIRST:], due.astype(jnp.int32))
    (posterior, _), _ = jax.lax.scan(one, (start, feedback.Pending.empty(CAPACITY, 2, values.dtype)), rounds)
    _, posterior = learner.place(posterior, jnp.asarray(ELSEWHERE[0]))  # a point under way, in the pool without a value
    pool, key, scale = learner.pool(posterior), jax.random.key(1), jnp.asarray([1.0, 0.5])
    there = Elsewhere(surrogate=learner, points=jnp.asarray(ELSEWHERE))
    draws = learner.draw(posterior, key, scale), Elsewhere(surrogate=learner, points=pool).draw(posterior, key, scale)
    return pool, learner.predict(posterior), there.predict(posterior), draws


def gram_of(form: str, points: Matrix) -> Matrix:
    if form == "exact":
        return matern52(points, points, LENGTH_SCALE)
    pivots = np.asarray(model(form).forms[0].pivots)
    cross = matern52(points, pivots, LENGTH_SCALE)
    return cross @ np.linalg.solve(matern52(pivots, pivots, LENGTH_SCALE), cross.T)


def expected(name: str, at: Matrix, form: str) -> tuple[Matrix, Matrix]:
    """Means and deviations ``[2, n]`` at points ``at [n, 2]``, each output by itself from fresh factorisations."""
    means, deviations = [], []
    gram, chosen = gram_of(form, np.concatenate([POINTS, at])), np.arange(len(POINTS))
    left_out = 1 - np.diag(gram)[len(POINTS) :]
    ages = ROUNDS - np.arange(1, ROUNDS + 1)  # rounds since each choice, at the end
    for j in range(2):
        arrives = DELAYS[:, j] <= np.minimum(ages, WINDOW if name == "censor" else CAPACITY - 1)
        arrived = np.flatnonzero(np.append(np.ones(FIRST, bool), arrives))
        filled = np.where(np.isin(chosen, arrived), VALUES[:, j], MINIMUM)
        seen, target = (chosen, filled) if name == "censor" else (arrived, VALUES[arrived, j])
        mean, sd = mean_and_sd(gram, seen, target, NOISE, MEANS[j])
        if name == "hallucinate":
            _, sd = mean_and_sd(gram, chosen, filled, NOISE)
        means.append(mean[len(POINTS) :])
        deviations.append(np.sqrt(sd[len(POINTS) :] ** 2 + left_out))
    return np.stack(means), np.stack(deviations)


@pytest.mark.full(but=("hallucinate exact",))
@pytest.mark.parametrize(("name", "form"), CASES, ids=map(" ".join, CASES))
def test_beliefs_on_a_box_are_those_of_dense_solves_at_its_pool_and_elsewhere(name: str, form: str) -> None:
    with jax.enable_x64(True):
        pool, here, there, draws = jax.tree.map(np.asarray, played(name, model(form).without_kernels(), POINTS, VALUES, DUE))
    assert np.allclose(pool[8:][: len(POINTS)], POINTS)
    for at, belief in ((pool, here), (ELSEWHERE, there)):
        for given, want in zip((belief.mean, belief.sd), expected(name, at, form), strict=True):
            assert np.allclose(given, want, atol=1e-9), "dense solve"
        if name == "censor":  # by which its widths are set
            assert np.allclose(belief.recent, expected(name, POINTS[-WINDOW:], form)[1].sum(1), atol=1e-9)
    assert np.allclose(*draws, atol=1e-9), "one function for one key"
    assert draws[0].std() > 0.1


MISSING = np.where(np.arange(2 * len(VALUES)).reshape(-1, 2) % 5 == 3, np.nan, VALUES)  # of both outputs, at different points


@functools.partial(jax.jit, static_argnames=("name", "at_once"))
def taught(name: str, at_once: bool, model: Any, points: Any, values: Any, count: Any) -> Any:
    """What the learner believes of ``count`` values that it takes in at once or one after the other, and once one more has arrived."""
    learner = POLICIES[name].bind(model, separate_outputs=True, capacity=CAPACITY, axis=None)
    indices = model.domain.size + jnp.arange(len(points), dtype=jnp.int32)

    def one(row: Any, posterior: Any) -> Any:
        index, posterior = learner.place(posterior, points[row])
        return learner.condition(posterior, index, values[row])

    posterior = learner.conditioned(indices, points, values, count) if at_once else jax.lax.fori_loop(0, count, one, learner.init())
    index, later = learner.place(posterior, points[0] + 0.1)
    t, now = jnp.int32(1), jnp.ones(2, jnp.int32)
    pending = feedback.Pending.empty(CAPACITY, 2, values.dtype).push(t, index, jnp.asarray([1.0, -1.0]), now, jnp.int32(ROUNDS))
    later = learner.learn(later, pending.arriving(t, index, jnp.asarray([1.0, -1.0]), now))
    key, scale = jax.random.key(1), jnp.asarray([1.0, 0.5])
    return [
        (
            learner.pool(belief),
            learner.predict(belief),
            learner.predict_at(belief, jnp.asarray(ELSEWHERE)),
            learner.draw(belief, key, scale),
        )
        for belief in (posterior, later)
    ]


@pytest.mark.full(but=("hallucinate exact",))
@pytest.mark.parametrize(("name", "form"), CASES, ids=map(" ".join, CASES))
def test_many_values_at_once_are_believed_as_one_after_the_other(name: str, form: str) -> None:
    """Also where some are missing, fewer than there is room for are there, and one more arrives later."""
    count = len(POINTS) - 1
    with jax.enable_x64(True):
        given = model(form).without_kernels(), POINTS, MISSING, np.int32(count)
        at_once, in_turn = (jax.tree.map(np.asarray, taught(name, how, *given)) for how in (True, False))
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-10), at_once, in_turn)
    if form == "exact":
        points = np.concatenate([POINTS[:count], ELSEWHERE])
        gram, told = matern52(points, points, LENGTH_SCALE), MISSING[:count]
        for j, values in enumerate(told.T):
            there, filled = np.flatnonzero(~np.isnan(values)), np.nan_to_num(values, nan=MINIMUM)
            of_mean = there if name != "censor" else np.arange(count)
            of_sd = there if name == "wait" else np.arange(count)
            mean, _ = mean_and_sd(gram, of_mean, filled[of_mean], NOISE, MEANS[j], slice(count, None))
            _, sd = mean_and_sd(gram, of_sd, filled[of_sd], NOISE, MEANS[j], slice(count, None))
            np.testing.assert_allclose(at_once[0][2].mean[j], mean, atol=1e-9)
            np.testing.assert_allclose(at_once[0][2].sd[j], sd, atol=1e-9)
