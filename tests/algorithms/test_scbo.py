"""SCBO: its trust region as in the paper, choices within it, and draws on boxes against the dense posterior."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit.algorithms.base import Arena, Observation
from jaxbandit.algorithms.scbo import candidates
from jaxbandit.core.pytree import canonicalise
from jaxbandit.domains import grid
from jaxbandit.kernels import SquaredExponential
from jaxbandit.surrogates import Elsewhere
from tests.support import box_runs


def learnt(algorithm: Any, arena: Arena, seen: list[tuple[int, float, float]]) -> list[Any]:
    """States after each value, with the trust region that the next round has."""

    @jax.jit
    def step(state: Any, index: Any, values: Any) -> Any:
        return algorithm.moved(arena, algorithm.learn(arena, state, Observation(index=index, values=values)))

    states = [canonicalise(algorithm.init(arena))]
    for index, reward, cost in seen:
        states.append(step(states[-1], jnp.int32(index), jnp.asarray([reward, cost], arena.dtype)))
    return states[1:]


def test_the_trust_region_doubles_and_halves_as_in_the_paper() -> None:
    """Length .8 in [2^-7, 1.6]; 3 better points in a row double it, d that are none halve it (Eriksson and Poloczek 2021, sec. 3)."""
    domain = grid([0.0, 0.0], [1.0, 1.0], 5)  # 25 points, nearly independent
    model = jb.surrogate(domain, SquaredExponential(length_scale=0.05), noise_variance=1e-4)
    arena = Arena(surrogate=canonicalise(model.without_kernels()), horizon=jnp.int32(40))
    violating = [(0, 0.9, 3.0), (1, 0.0, 2.0), (2, 0.0, 1.0)]  # less violation is better, whatever the reward
    feasible = [(3, -1.0, -1.0), (4, 0.0, -1.0), (5, 0.5, -1.0), (6, 0.6, -1.0)]
    worse = [(n, 0.1, -1.0) for n in range(7, 25)]
    states = learnt(jb.Scbo(), arena, [*violating, *feasible, *worse])
    lengths, expected = [float(state.length) for state in states], [0.8] * 3 + [1.6] * 4  # the first point is no success
    expected += [*(1.6 / 2 ** (n // 2) for n in range(1, 16)), 0.8, 0.8, 0.4]  # which begins anew below 2^-7
    assert lengths == pytest.approx(expected)
    assert [int(state.best) for state in states] == [0, 1, 2, 3, 4, 5, 6, *[6] * 18]


def test_choices_lie_in_the_trust_region() -> None:
    model = box_runs.model().with_room(8)
    arena = Arena(surrogate=canonicalise(model.without_kernels()), horizon=jnp.int32(8))
    algorithm = jb.Scbo(length=0.1)

    @jax.jit
    def chosen(key: Any) -> Any:
        index, state = algorithm.place(arena, algorithm.init(arena), jnp.asarray([0.3, 0.98], arena.dtype))
        state = algorithm.learn(arena, state, Observation(index=index, values=jnp.asarray([1.0, -1.0], arena.dtype)))
        return algorithm.select(arena, state, jnp.int32(1), key)[0].point

    points = np.stack([chosen(jax.random.key(n)) for n in range(8)])
    assert np.all(np.abs(points - [0.3, 0.98]) <= 0.05 + 1e-6) and np.all(points <= 1) and len(np.unique(points[:, 0])) == 8


def test_candidates_beyond_twenty_axes_change_twenty_coordinates() -> None:
    middle = jnp.full((40,), 0.5)
    around = jax.jit(lambda middle: candidates(jax.random.key(0), middle, middle - 0.25, middle + 0.25))
    many = np.asarray(around(middle))
    changed = np.sum(many != 0.5, axis=1)
    assert many.shape == (5000, 40) and np.min(changed) >= 1 and abs(np.mean(changed) - 20.5) < 5 * np.sqrt(10 / 5000)
    assert np.all(np.abs(many - 0.5) <= 0.25)
    assert jax.eval_shape(around, middle[:3]).shape == (2000, 3)


@pytest.mark.full
def test_draws_on_a_box_have_the_mean_and_covariance_of_the_dense_posterior() -> None:
    """Within 5 standard errors of 4,000 draws, and what 256 features leave out, which their mean over draws does not have."""
    draws, rng = 4000, np.random.default_rng(0)
    seen, values, at = rng.random((5, 2)), rng.standard_normal((5, 2)), rng.random((6, 2))
    surrogate = box_runs.model()
    scale = jnp.asarray([1.0, 2.0], surrogate.dtype)

    @jax.jit
    def drawn_by(keys: Any) -> Any:
        model, posterior, indices = canonicalise(surrogate.without_kernels()).holding(jnp.asarray(surrogate.domain.from_unit(seen)))
        for n in range(5):
            posterior = model.condition(posterior, indices[n], jnp.asarray(values[n], model.dtype))
        there = Elsewhere(surrogate=model, points=jnp.asarray(at, model.dtype))
        return jax.vmap(lambda key: there.draw(posterior, key, scale))(keys)

    drawn = np.asarray(drawn_by(jax.random.split(jax.random.key(0), draws)), np.float64)

    def kernel(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.exp(-np.sum((x[:, None] - y[None]) ** 2, axis=-1) / (2 * 0.3**2))

    gain = kernel(at, seen) @ np.linalg.inv(kernel(seen, seen) + 0.01 * np.eye(5))
    covariance = kernel(at, at) - gain @ kernel(seen, at)
    sd = np.sqrt(np.diag(covariance))
    for j, size in enumerate((1.0, 2.0)):
        mean, sizes = drawn[:, j].mean(axis=0), size * sd
        np.testing.assert_array_less(np.abs(mean - gain @ values[:, j]), 5 * sizes / np.sqrt(draws))
        error = np.abs(np.cov(drawn[:, j].T) / size**2 - covariance)
        np.testing.assert_array_less(error, 5 * np.outer(sd, sd) * np.sqrt(2.5 / draws) + 1e-6)
    assert abs(np.mean((drawn[:, 0] - drawn[:, 0].mean(0)) * (drawn[:, 1] - drawn[:, 1].mean(0)))) < 0.05  # outputs are drawn apart


def test_random_search_is_uniform_on_a_box() -> None:
    run = jb.simulate(
        box_runs.valley(), jb.RandomSearch(), box_runs.model(), horizon=40, key=jax.random.key(0), trials=10, record="indices"
    )
    unit = np.asarray(box_runs.small_box().to_unit(np.asarray(run.points)))
    assert np.max(np.abs(np.mean(unit, axis=(0, 1)) - 0.5)) < 5 / np.sqrt(12 * 400) and np.all((unit > 0) & (unit < 1))
    assert np.max(np.abs(np.std(unit, axis=(0, 1)) - 1 / np.sqrt(12))) < 0.05
    assert int(np.max(run.status)) == 0
