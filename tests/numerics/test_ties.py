"""Scores that differ by rounding are ties."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import Bpe, Unconstrained, domains, kernels, replace, safety
from jaxbandit.algorithms import Arena, Observation
from jaxbandit.numerics.ties import draw_uniformly, nearly_best, pick
from jaxbandit.rules.estimators import Bounds
from tests.support import posteriors

DOMAIN = domains.grid([0.0, 0.0], [6.0, 6.0], 20)


def model_of(form: str, **options: Any) -> jaxbandit.Surrogate:
    kernel = 2.5 * kernels.SquaredExponential(length_scale=0.9)
    return jaxbandit.surrogate(DOMAIN, kernel, **{"noise_variance": 0.1, "outputs": 1, "form": form} | options)


@pytest.mark.parametrize(("offset", "penalty"), [(0.0, 0.0), (1000.0, 0.0), (0.0, 1e6)])
@pytest.mark.parametrize(("precision", "apart"), [("float32", 1e-6), ("float64", 1e-12)])
def test_neither_an_offset_nor_a_penalty_makes_others_tie(precision: str, apart: float, offset: float, penalty: float) -> None:
    with jax.enable_x64(precision == "float64"):
        scores = jnp.asarray(np.array([2.0, 3.0 - 1e3 * apart, 3.0 - apart, 3.0, 3.0, -penalty]) + offset, precision)
        assert nearly_best(scores).tolist() == [False, False, True, True, True, False]
        assert int(pick(scores)) == 2


def test_scores_that_are_no_numbers_infinite_or_whole() -> None:
    assert int(pick(jnp.array([1.0, jnp.nan, 2.0]))) == 3
    assert int(pick(jnp.array([1.0, jnp.inf, 2.0, jnp.inf]))) == 1
    assert int(pick(jnp.array([-jnp.inf, 1.0, 1.0]))) == 1
    assert int(pick(jnp.full(3, -jnp.inf))) == 0
    assert int(pick(jnp.array([-jnp.inf, 1.0, 1.0 + 2e-6]))) == 1
    assert int(pick(jnp.array([2**23, 2**23 + 1]))) == 1


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("form", ["features", "product", "rows"])
def test_the_prior_variance_is_that_of_the_kernel(form: str, precision: str) -> None:
    model = model_of(form, precision=precision)
    with jax.enable_x64(precision == "float64"):
        np.testing.assert_array_equal(posteriors.start(model).variance, np.full((1, DOMAIN.size), 2.5, precision))


@pytest.mark.full
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_points_far_from_data_tie_alike_in_every_form(precision: str) -> None:
    chosen = []
    for form in ("features", "product", "rows"):
        model = model_of(form, precision=precision)
        with jax.enable_x64(precision == "float64"):
            arena, learner = Arena(surrogate=model, horizon=jnp.int32(9)), Unconstrained()
            select, update = jax.jit(learner.select), jax.jit(learner.update)
            state = jax.jit(learner.init)(arena)
            assert int(select(arena, state, np.int32(1), jax.random.key(0))[0].index) == 0
            for index, value in ((0, 1e-3), (19, -1e-3)):
                state = update(arena, state, Observation(index=np.int32(index), values=np.array([value], precision)), np.int32(1))
            chosen.append(int(select(arena, state, np.int32(3), jax.random.key(0))[0].index))
    assert chosen == [chosen[0]] * 3


def test_a_variance_computed_anew_keeps_what_features_leave_out() -> None:
    model = model_of("features", tolerance=1e-2)
    spread, point = jax.jit(model.forms[0].spread), posteriors.start(model)
    np.testing.assert_allclose(spread(point.factors[0]), 2.5, rtol=1e-6)
    after = posteriors.condition(model, point, np.int32(7), np.zeros(1, np.float32))
    np.testing.assert_allclose(spread(after.factors[0]), after.variance[0], rtol=1e-4)


def test_random_ties_of_bpe_are_drawn_among_all_that_rounding_parts() -> None:
    model = model_of("product")
    arena, learner = Arena(surrogate=model, horizon=jnp.int32(50)), Bpe(width=1.0, ties="random")
    state, select = jax.jit(learner.init)(arena), jax.jit(learner.select)
    rounded = np.array(state.posterior.variance)
    rounded[0, 5] *= 1 + 2e-7
    state = replace(state, posterior=replace(state.posterior, variance=rounded))
    drawn = {int(select(arena, state, np.int32(1), jax.random.key(seed))[0].index) for seed in range(5)}
    assert len(drawn) > 3


def test_expanders_of_equal_width_but_for_rounding() -> None:
    model = model_of("product", outputs=2)
    safe = np.arange(DOMAIN.size) < 100

    @jax.jit
    def widest(key: jax.Array) -> jax.Array:
        belief = model.belief(model.init())
        known = safety.intervals(model, belief, Bounds(), jnp.int32(1), key)
        known = replace(known, sd=known.sd.at[:, 60].multiply(1 + 2e-7), mean=known.mean.at[1].set(jnp.where(safe, -30.0, 3.0)))
        return safety.Expansion(lipschitz=1.0).widest(model, belief, known, safe, safe)

    assert int(widest(jax.random.key(0))) == 0


def test_each_allowed_point_is_drawn_as_often() -> None:
    allowed = np.array([False, True, True, False, True])
    drawn = jax.jit(jax.vmap(draw_uniformly, in_axes=(0, None)))(jax.random.split(jax.random.key(0), 3000), allowed)
    counts = np.bincount(drawn, minlength=5)
    assert np.all(np.abs(counts - 1000 * allowed) < 5 * np.sqrt(3000 * 2 / 9)) and counts[~allowed].sum() == 0
    assert draw_uniformly(jax.random.key(0), np.zeros(5, bool)) == 5, "no point is allowed"
