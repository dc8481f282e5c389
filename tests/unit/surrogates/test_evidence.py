"""Marginal likelihood and its maximisation, against dense NumPy formulas, finite differences and scikit-learn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbandit import InvalidArgument
from jaxbandit.kernels import Linear, Matern52, Product, Scale, SquaredExponential
from jaxbandit.surrogates.evidence import fit, log_evidence

NOISE = 0.01
LIKELIEST = {"prior": None, "fixed": ("noise_variance",)}


def sample(dimension=1, count=40, length_scale=0.7, variance=2.0, seed=0):
    """Points of [0, 6]^d, and noisy values there of a function drawn from ``variance * SE(length_scale)``."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(0, 6, (count, dimension))
    squares = ((points[:, None] - points[None]) ** 2).sum(-1)
    covariance = variance * np.exp(-0.5 * squares / length_scale**2) + NOISE * np.eye(count)
    return points, np.linalg.cholesky(covariance) @ rng.standard_normal(count)


def se(length_scale=1.0, variance=1.0):
    return Scale(kernel=SquaredExponential(length_scale=length_scale), variance=variance)


def test_evidence_is_the_gaussian_log_density():
    points, values = sample(2)
    with jax.enable_x64(True):
        got = float(log_evidence(se(0.8, 1.5), points, values, NOISE))
    squares = ((points[:, None] - points[None]) ** 2).sum(-1)
    covariance = 1.5 * np.exp(-0.5 * squares / 0.64) + NOISE * np.eye(len(values))
    sign, logdet = np.linalg.slogdet(covariance)
    expected = -0.5 * (values @ np.linalg.solve(covariance, values) + logdet + len(values) * np.log(2 * np.pi))
    assert sign == 1 and got == pytest.approx(expected, rel=1e-10)


def test_gradient_is_that_of_finite_differences():
    points, values = sample(2, 25)

    def value(theta):
        return log_evidence(se(theta[:2], theta[2]), points, values, NOISE)

    with jax.enable_x64(True):
        theta = np.array([0.8, 1.3, 1.5])
        gradient = np.asarray(jax.grad(value)(jnp.asarray(theta)))
        for i, step in enumerate(1e-6 * np.eye(3)):
            slope = (float(value(jnp.asarray(theta + step))) - float(value(jnp.asarray(theta - step)))) / 2e-6
            assert gradient[i] == pytest.approx(slope, rel=1e-5)


def test_fit_finds_what_scikit_learn_finds():
    gp = pytest.importorskip("sklearn.gaussian_process")
    points, values = sample(2, 30, length_scale=1.5, seed=1)
    found = fit(se(), points, values, NOISE, **LIKELIEST)
    fitted, evidence = found.kernel, float(found.log_evidence)
    kernel = gp.kernels.ConstantKernel(1.0, (1e-3, 1e3)) * gp.kernels.RBF(1.0, (1e-3, 1e3))
    other = gp.GaussianProcessRegressor(kernel, alpha=NOISE, n_restarts_optimizer=5, random_state=0).fit(points, values)
    assert evidence == pytest.approx(other.log_marginal_likelihood_value_, abs=1e-4)
    assert float(fitted.kernel.length_scale) == pytest.approx(other.kernel_.k2.length_scale, rel=1e-2)
    assert float(fitted.variance) == pytest.approx(other.kernel_.k1.constant_value, rel=1e-2)


def test_fit_is_a_maximum_and_recovers_the_truth_roughly():
    points, values = sample(1, 80)
    found = fit(se(), points, values, NOISE, **LIKELIEST)
    fitted, evidence = found.kernel, float(found.log_evidence)
    assert 0.5 < float(fitted.kernel.length_scale) < 1.0
    length, variance = float(fitted.kernel.length_scale), float(fitted.variance)
    with jax.enable_x64(True):
        for factor in (0.95, 1.05):
            for other in (se(length * factor, variance), se(length, variance * factor)):
                assert float(log_evidence(other, points, values, NOISE)) < evidence


def test_every_hyper_parameter_of_a_composite_kernel_moves():
    points, values = sample(2, 30)
    start = Scale(
        kernel=Product(left=Matern52(length_scale=np.array([1.0, 2.0])), right=SquaredExponential(length_scale=3.0)), variance=1.0
    )
    fitted = fit(start, points, values, NOISE, starts=1, **LIKELIEST).kernel
    assert jax.tree.structure(fitted) == jax.tree.structure(start)
    for before, after in zip(jax.tree.leaves(start), jax.tree.leaves(fitted), strict=True):
        assert np.asarray(after).dtype == np.float64 and np.all(after > 0) and not np.allclose(before, after, rtol=1e-3)


def test_span_bounds_the_search_and_seeds_repeat():
    points, values = sample(1, 30)
    found = fit(se(100.0, 1.0), points, values, NOISE, span=2.0, **LIKELIEST)
    assert 50.0 * (1 - 1e-9) <= float(found.kernel.kernel.length_scale) <= 200.0 * (1 + 1e-9)
    assert found.log_evidence < fit(se(), points, values, NOISE, **LIKELIEST).log_evidence
    again = fit(se(100.0, 1.0), points, values, NOISE, span=2.0, **LIKELIEST).kernel
    assert jax.tree.leaves(again) == jax.tree.leaves(found.kernel)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"values": np.zeros(3)}, "values"),
        ({"points": np.zeros(30)}, "points"),
        ({"values": np.full(30, np.nan)}, "NaN"),
        ({"noise_variance": 0.0}, "noise_variance"),
        ({"span": 1.0}, "span"),
        ({"starts": 0}, "starts"),
        ({"kernel": Linear()}, r"kernel\.bias"),  # its bias is 0, whose logarithm is not a place to start
    ],
)
def test_bad_arguments_are_named(change, words):
    points, values = sample(1, 30)
    arguments = {"kernel": se(), "points": points, "values": values, "noise_variance": NOISE} | change
    with pytest.raises(InvalidArgument, match=words):
        fit(**arguments)
