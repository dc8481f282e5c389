"""Noise models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbandit import InvalidArgument, canonicalise, domains, problems

DRAWS = 20_000


def samples(noise, outputs=2, index=0, draws=DRAWS, seed=0):
    """``[draws, outputs]`` values at one point."""
    noise = canonicalise(noise)
    noise.validate(outputs=outputs)
    dtype = jnp.zeros(()).dtype
    keys = jax.random.split(jax.random.key(seed), draws)
    values = jax.vmap(lambda key: noise.apply(noise.draw(key, outputs, dtype), jnp.int32(index)))(keys)
    assert values.dtype == dtype and values.shape == (draws, outputs)
    return np.asarray(values, np.float64)


def assert_moments(values, mean, variance):
    """Check mean and variance within five standard errors."""
    n = len(values)
    centred = values - values.mean(0)
    assert np.all(np.abs(values.mean(0) - mean) <= 5 * np.sqrt(variance / n) + 1e-6)
    error = np.sqrt(np.maximum(np.mean(centred**4, 0) - np.mean(centred**2, 0) ** 2, 0) / n)
    assert np.all(np.abs(values.var(0) - variance) <= 5 * error + 1e-6)


@pytest.mark.full
@pytest.mark.parametrize(
    ("noise", "variance"),
    [
        (problems.Gaussian(variance=np.array([0.25, 4.0])), np.array([0.25, 4.0])),
        (problems.Uniform(half_width=np.array([0.3, 3.0])), np.array([0.03, 3.0])),
        (problems.StudentT(df=9.0, scale=np.array([1.0, 2.0])), np.array([9 / 7, 36 / 7])),
        (problems.CentredPoisson(rate=np.array([6.0, 0.5])), np.array([6.0, 0.5])),
        (problems.PerPoint(model=problems.Gaussian(variance=0.5)), np.array([0.5, 0.5])),
        (problems.Heteroscedastic(variance=np.array([0.25, 9.0])), np.array([0.25, 0.25])),
        (problems.Heteroscedastic(variance=[[4.0, 9.0], [0.0, 9.0]], model=problems.Gaussian(variance=0.5)), np.array([2.0, 0.0])),
        (problems.Noiseless(), np.zeros(2)),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, np.ndarray) else "",
)
def test_moments(noise, variance):
    values = samples(noise)
    assert_moments(values, np.zeros(2), variance)
    if np.all(variance > 0):
        assert abs(np.corrcoef(values.T)[0, 1]) < 5 / np.sqrt(DRAWS)


def test_variances_are_said_where_they_are_known():
    for noise, variances in (
        (problems.Gaussian(variance=[0.25, 4.0]), [0.25, 4.0]),
        (problems.Uniform(half_width=[0.3, 3.0]), [0.03, 3.0]),
        (problems.CentredPoisson(rate=[6.0, 0.5]), [6.0, 0.5]),
        # The variances are means over points.
        (problems.Heteroscedastic(variance=[[4.0, 9.0], [0.0, 9.0]]), [6.5, 4.5]),
    ):
        np.testing.assert_allclose(noise.variances(2), variances)
    assert problems.StudentT().variances(2) is None


def test_uniform_stays_within_its_half_width():
    values = samples(problems.Uniform(half_width=0.2))
    assert 0.199 < np.abs(values).max() <= 0.2 + 1e-7


@pytest.mark.full
def test_student_t_has_heavy_tails():
    tails = [np.mean(np.abs(samples(problems.StudentT(df=df))) > 5) for df in (3.0, 50.0)]
    # The probability is 2 P(t_3 > 5).
    expected = 0.0153924
    assert abs(tails[0] - expected) < 5 * np.sqrt(expected / (2 * DRAWS))
    assert tails[1] < 1e-3


def test_poisson_gives_whole_counts():
    counts = samples(problems.CentredPoisson(rate=2.5)) + 2.5
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-6)


def test_residuals_resample_the_table_at_the_point():
    table = np.random.default_rng(0).normal(size=(7, 3)) + np.array([0.0, 5.0, 0.0])
    values = samples(problems.Residuals(table=table, weights=np.array([1.0, -1.0])), index=1)
    np.testing.assert_allclose(values[:, 0], -values[:, 1])
    seen, counts = np.unique(values[:, 0].round(5), return_counts=True)
    np.testing.assert_allclose(seen, np.sort(table[:, 1]), atol=1e-4)
    assert np.all(np.abs(counts / DRAWS - 1 / 7) < 5 * np.sqrt(6 / 49 / DRAWS))
    assert_moments(values[:, :1], table[:, 1].mean(), table[:, 1].var())


def test_a_residual_row_is_one_sample_of_the_whole_domain():
    table = np.random.default_rng(0).normal(size=(9, 4))
    noise = canonicalise(problems.Residuals(table=table))
    drawn = noise.draw(jax.random.key(3), 1, jnp.zeros(()).dtype)
    row = np.asarray([noise.apply(drawn, jnp.int32(i))[0] for i in range(4)])
    assert np.any(np.all(np.isclose(table, row), axis=1))


def test_per_output_gives_each_output_its_model():
    noise = problems.PerOutput(models=(problems.Gaussian(variance=0.25), problems.Uniform(half_width=0.6), problems.Noiseless()))
    values = samples(noise, outputs=3)
    assert_moments(values, np.zeros(3), np.array([0.25, 0.12, 0.0]))
    assert np.abs(values[:, 1]).max() <= 0.6 + 1e-6


def test_per_point_noise_differs_between_points_and_repeats_at_one():
    noise = canonicalise(problems.PerPoint(model=problems.Gaussian(variance=1.0)))
    drawn = noise.draw(jax.random.key(0), 2, jnp.zeros(()).dtype)
    values = np.asarray(jax.vmap(noise.apply, (None, 0))(drawn, jnp.arange(2000)))
    assert len(np.unique(values)) > 3990
    assert_moments(values.astype(np.float64), np.zeros(2), np.ones(2))
    np.testing.assert_allclose(noise.apply(drawn, jnp.int32(7)), values[7], rtol=1e-6)


def test_heteroscedastic_noise_is_read_at_the_point():
    domain = domains.grid([0.0], [2.0], 3)
    noise = canonicalise(problems.Heteroscedastic.of(domain, [lambda x: x[0] ** 2, lambda x: 4.0]))
    drawn = noise.draw(jax.random.key(0), 2, jnp.zeros(()).dtype)
    values = np.asarray([noise.apply(drawn, jnp.int32(index)) for index in range(3)])
    np.testing.assert_allclose(values, np.asarray(drawn)[None] * [[0, 2], [1, 2], [2, 2]], rtol=1e-6)
    np.testing.assert_array_equal(problems.Heteroscedastic.of(domain, lambda x: x[0]).variance, [0, 1, 2])
    with pytest.raises(InvalidArgument, match=r"Heteroscedastic.variance: must be >= 0"):
        problems.Heteroscedastic.of(domain, lambda x: x[0] - 1)
