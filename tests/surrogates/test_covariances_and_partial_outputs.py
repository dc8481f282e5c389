"""Posterior covariances between points, and outputs observed apart, against the dense reference."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import Surrogate, domains, kernels
from jaxbandit.surrogates import Posterior
from tests.oracles import gaussian_process as gp
from tests.support import posteriors

SIDE, ROUNDS, NOISE = 7, 12, 0.05
DOMAIN = domains.grid([0.0, 0.0], [1.0, 1.0], SIDE)
FORMS = ("features", "product", "rows")
TOLERANCE = {"float32": 2e-5, "float64": 1e-11}  # absolute, of covariances below 2; features leave out 1e-6 or 1e-13
INDICES = np.random.default_rng(3).integers(0, DOMAIN.size, ROUNDS)
VALUES = np.random.default_rng(4).standard_normal((ROUNDS, 3))


def gram(form: str) -> np.ndarray:
    kernel = gp.squared_exponential if form == "product" else gp.matern52
    return 1.5 * kernel(DOMAIN.points, DOMAIN.points, 0.4)


def surrogate(form: str, noise: list[float]) -> Surrogate:
    kernel = kernels.SquaredExponential(length_scale=0.4) if form == "product" else kernels.Matern52(length_scale=0.4)
    return jaxbandit.surrogate(DOMAIN, 1.5 * kernel, noise_variance=noise, outputs=3, form=form, prior_mean=[0.3, 0.0, -0.2])


@jax.jit
def conditioned(model: Surrogate, indices: jax.Array, values: jax.Array, present: jax.Array | None = None) -> Posterior:
    def step(posterior: Posterior, seen: tuple) -> tuple[Posterior, None]:
        return model.condition(posterior, *seen), None

    given = (indices, values) if present is None else (indices, values, present)
    return jax.lax.scan(step, model.init(), given)[0]


def covariances(model: Surrogate, posterior: Posterior, some: np.ndarray, more: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Of every output those of ``some`` points with all others, and of the first those of ``more``."""

    @jax.jit
    def columns(model: Surrogate, posterior: Posterior) -> tuple[list[jax.Array], jax.Array]:
        return [model.covariance(posterior, k, jnp.asarray(some)) for k in range(3)], model.covariance(posterior, 0, jnp.asarray(more))

    return jax.device_get(columns(model, posterior))


@pytest.mark.full(but=("features",))
@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("form", FORMS)
def test_covariance_columns_are_the_dense_ones(form: str, precision: str) -> None:
    with jax.enable_x64(precision == "float64"):
        model = surrogate(form, [NOISE, NOISE, 2 * NOISE])
        posterior = conditioned(model, jnp.asarray(INDICES, jnp.int32), jnp.asarray(VALUES))
        some = np.asarray([0, 48, 17, 17, int(INDICES[0])], np.int32)
        ours, everything = covariances(model, posterior, some, np.arange(DOMAIN.size, dtype=np.int32))
    for k, noise in enumerate([NOISE, NOISE, 2 * NOISE]):
        expected = gp.posterior(gram(form), INDICES, VALUES[:, k], noise)[1]
        assert ours[k].dtype == precision
        np.testing.assert_allclose(ours[k], expected[np.asarray(some)], rtol=0, atol=TOLERANCE[precision])
    np.testing.assert_allclose(everything, everything.T, rtol=0, atol=TOLERANCE[precision])
    np.testing.assert_allclose(np.diag(everything), np.asarray(posterior.variance)[0], rtol=0, atol=TOLERANCE[precision])


@pytest.mark.full(but=("product",))
@pytest.mark.parametrize("form", FORMS)
def test_outputs_observed_apart(form: str) -> None:
    """Each output's posterior is that of its own observations alone; the values of the others may be anything."""
    present = np.random.default_rng(5).random((ROUNDS, 3)) < 0.5
    assert np.all(present.sum(0) > 2) and not np.any(present.all(0))
    with jax.enable_x64(True):
        shared = surrogate(form, [NOISE, NOISE, NOISE])
        assert len(shared.forms) == 1
        model = shared.separate()
        values = np.where(present, VALUES, np.nan)
        posterior = conditioned(model, jnp.asarray(INDICES, jnp.int32), jnp.asarray(values), jnp.asarray(present))
        belief = jax.device_get(posteriors.predict(model, posterior))
        covariance = covariances(model, posterior, np.asarray([5], np.int32), np.asarray([0], np.int32))[0][2]
        again = model.separate()
    assert again.groups == model.groups == (0, 1, 2)
    for k, prior_mean in enumerate([0.3, 0.0, -0.2]):
        seen = present[:, k]
        mean, dense = gp.posterior(gram(form), INDICES[seen], VALUES[seen, k], NOISE, prior_mean)
        np.testing.assert_allclose(belief.mean[k], mean, rtol=0, atol=1e-10)
        np.testing.assert_allclose(belief.sd[k], np.sqrt(np.maximum(np.diag(dense), 0)), rtol=0, atol=1e-6)
        gain = gp.information_gain(gram(form), INDICES[seen], NOISE)
        np.testing.assert_allclose(np.asarray(posterior.gain)[k], gain, rtol=1e-9)
        if k == 2:
            np.testing.assert_allclose(covariance[0], dense[5], rtol=0, atol=1e-10)


def test_everything_present_is_an_ordinary_observation() -> None:
    with jax.enable_x64(True):
        model = surrogate("features", [NOISE, NOISE, NOISE]).separate()
        given = (jnp.asarray(INDICES, jnp.int32), jnp.asarray(VALUES))
        masked = conditioned(model, *given, jnp.ones((ROUNDS, 3), bool))
        plain = conditioned(model, *given)
    for a, b in zip(jax.tree.leaves(masked), jax.tree.leaves(plain), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("form", FORMS)
def test_what_is_absent_adds_nothing_to_the_gain(form: str) -> None:
    """To the last bit, also where a noise variance times its inverse is not 1; what is present adds what the dense reference says."""
    noise = 0.052
    assert noise * (1 / noise) != 1
    present = np.zeros((ROUNDS, 3), bool)
    present[4, 2] = True
    with jax.enable_x64(True):
        model = surrogate(form, [noise] * 3).separate()
        gains = np.asarray(conditioned(model, jnp.asarray(INDICES, jnp.int32), jnp.asarray(VALUES), jnp.asarray(present)).gain)
    np.testing.assert_array_equal(gains[:2], 0)
    np.testing.assert_allclose(gains[2], gp.information_gain(gram(form), INDICES[4:5], noise), rtol=1e-9)


def test_outputs_that_share_a_factor_go_together() -> None:
    """One group observed, the other not."""
    with jax.enable_x64(True):
        model = surrogate("features", [NOISE, NOISE, 2 * NOISE])
        assert model.groups == (0, 0, 1)
        prior, seen = posteriors.start(model), (np.int32(17), np.asarray([1.0, -1.0, 0.5]))
        both = posteriors.condition(model, prior, *seen, np.asarray([True, True, False]))
        neither = posteriors.condition(model, prior, *seen, np.asarray([False, False, False]))
        everything = posteriors.condition(model, prior, *seen)
    np.testing.assert_allclose(np.asarray(both.shift)[:2], np.asarray(everything.shift)[:2], rtol=1e-12)
    np.testing.assert_array_equal(np.asarray(both.shift)[2], np.asarray(prior.shift)[2])
    np.testing.assert_array_equal(neither.shift, prior.shift)
    gains = np.asarray(both.gain)
    assert np.all(np.asarray(neither.gain) == 0) and gains[0] > 0 and gains[1] == 0
