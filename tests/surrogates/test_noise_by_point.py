"""Noise variances that differ between points: posteriors against the dense reference in every round, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import InvalidArgument, algorithms, domains, kernels, problems
from jaxbandit.surrogates import Prediction, Surrogate
from tests.oracles import gaussian_process as gp

ROUNDS = 24
DOMAIN = domains.product([np.linspace(0, 1, 7), np.linspace(-1, 1, 5)])
POINTS = np.asarray(DOMAIN.points)
PRIOR = np.array([0.5, -1.0])
# Of the reward a hundred times as large at one end as at the other; of the constraint by point without order.
TABLE = np.stack([0.01 * 10 ** (2 * POINTS[:, 0]), np.random.default_rng(0).uniform(0.02, 0.5, DOMAIN.size)])
TOLERANCE = {"float32": 1e-4, "float64": 1e-11}  # worst seen 1e-5 and 5e-14


@jax.jit
def every_round(model: Surrogate, indices: jax.Array, values: jax.Array) -> Prediction:
    """The predictions after 1, 2, ... observations."""

    def step(posterior: Any, seen: Any) -> tuple[Any, Prediction]:
        posterior = model.condition(posterior, *seen)
        return posterior, model.predict(posterior)

    return jax.lax.scan(step, model.init(), (indices, values))[1]


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("form", ["features", "product", "rows"])
def test_every_form_is_the_dense_posterior_in_every_round(form: str, precision: str) -> None:
    rng = np.random.default_rng(3)
    indices, values = rng.integers(DOMAIN.size, size=ROUNDS), rng.standard_normal((ROUNDS, 2))
    indices[5:9] = indices[4]  # one point five times
    gram = gp.squared_exponential(POINTS, POINTS, 0.5)
    with jax.enable_x64(precision == "float64"):
        kernel = kernels.SquaredExponential(length_scale=0.5)
        noise = [lambda x: 0.01 * 10 ** (2 * x[0]), TABLE[1]]
        model = jaxbandit.surrogate(DOMAIN, kernel, noise_variance=noise, prior_mean=PRIOR, form=form, horizon=ROUNDS)
        assert model.noise_variance.shape == (2, DOMAIN.size) and model.dtype == precision
        found = every_round(model, jnp.asarray(indices, jnp.int32), jnp.asarray(values, model.dtype))
    for n in range(1, ROUNDS + 1):
        seen = indices[:n]
        for j in range(2):
            mean, sd = gp.mean_and_sd(gram, seen, values[:n, j], TABLE[j][seen], PRIOR[j])
            gain = gp.information_gain(gram, seen, TABLE[j][seen])
            close = {"rtol": TOLERANCE[precision], "atol": TOLERANCE[precision]}
            np.testing.assert_allclose(found.mean[n - 1, j], mean, err_msg=f"mean of output {j} after {n}", **close)
            np.testing.assert_allclose(found.sd[n - 1, j], sd, err_msg=f"sd of output {j} after {n}", **close)
            np.testing.assert_allclose(found.gain[n - 1, j], gain, err_msg=f"gain of output {j} after {n}", **close)


def model_with(noise: Any, **options: Any) -> Surrogate:
    return jaxbandit.surrogate(DOMAIN, kernels.SquaredExponential(length_scale=0.5), noise_variance=noise, **options)


def test_a_noise_variance_is_a_number_a_table_or_a_function() -> None:
    assert model_with(0.1).noise_variance.shape == (1,) and not model_with(0.1).noise_differs
    assert model_with([0.1, 0.2]).noise_variance.shape == (2,)
    shared = model_with(TABLE[0])  # one table for all outputs: they share a factor
    assert shared.groups == (0, 0) and shared.noise_variance.shape == (1, DOMAIN.size)
    np.testing.assert_allclose(shared.noise_variance[0], TABLE[0], rtol=1e-6)
    np.testing.assert_array_equal(shared.noise_variance, model_with(lambda x: 0.01 * 10 ** (2 * x[0])).noise_variance)
    apart = model_with([0.1, TABLE[1]])
    assert apart.groups == (0, 1) and np.ptp(np.asarray(apart.noise_variance[0])) == 0
    assert "0.02" in apart.describe() and "by point" in apart.describe()
    apart.validate()
    np.testing.assert_array_equal(shared.separate().noise_at(1, jnp.asarray([3, 1])), shared.noise_variance[0][jnp.asarray([3, 1])])


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        (algorithms.Bpe(width=algorithms.Elimination()), "Bpe.width"),
        (algorithms.Refitted(algorithm=jaxbandit.Rpol()), "surrogate.noise_variance: Refitted"),
    ],
    ids=lambda item: type(item).__name__,
)
def test_algorithms_that_need_one_noise_variance_say_so(algorithm: Any, words: str) -> None:
    kernel = kernels.SquaredExponential(length_scale=0.5)
    model = jaxbandit.ranged(DOMAIN, kernel, low=0.4, high=0.6, noise_variance=TABLE, tolerance=0.1)
    problem = problems.from_tables(DOMAIN, POINTS[:, 0], POINTS[:, 1])
    with pytest.raises(InvalidArgument, match=re.escape(words)):
        jaxbandit.simulate(problem, algorithm, model, horizon=3, trials=1, key=jax.random.key(0))
