"""Fits of hyper-parameters by the evidence."""

import faulthandler
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize

import jaxbandit
from jaxbandit import domains, kernels
from jaxbandit.core.pytree import canonicalise, replace
from jaxbandit.kernels import Linear, Matern52, Periodic, Product, Scale, SquaredExponential
from jaxbandit.surrogates import Surrogate
from jaxbandit.surrogates.evidence import LogNormal, Prior, fit, fit_many, log_evidence
from jaxbandit.surrogates.evidence.density import LEARNED, LEARNING, Collapsed, collapse, inverse, learned
from jaxbandit.surrogates.evidence.fitting import Search, maximise
from jaxbandit.surrogates.evidence.host import _density, best_fit
from tests.oracles import hyper_parameters
from tests.oracles.gaussian_process import matern52, squared_exponential

NOISE = 0.01
LIKELIEST = {"prior": None, "fixed": ("noise_variance",)}


def sample(count=30, length_scale=0.7, variance=2.0, noise=NOISE, seed=0):
    """Return points of [0, 6]^2 and noisy values of a drawn function."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(0, 6, (count, 2))
    covariance = variance * squared_exponential(points, points, length_scale) + noise * np.eye(count)
    return points, np.linalg.cholesky(covariance) @ rng.standard_normal(count)


def se(length_scale=1.0, variance=1.0):
    return Scale(kernel=SquaredExponential(length_scale=length_scale), variance=variance)


def gaussian_log_density(covariance, values):
    sign, logdet = np.linalg.slogdet(covariance)
    assert sign == 1
    return -0.5 * (values @ np.linalg.solve(covariance, values) + logdet + len(values) * np.log(2 * np.pi))


def test_numbers_that_share_one_are_jointly_normal_in_logarithms():
    """Log covariances are spread^2 between two, and apart^2 more of each."""
    spread, apart, units = 0.7, 0.1, np.array([1.0, 2.0, 0.5])
    prior, covariance = LogNormal(median=0.4, spread=spread, apart=apart), np.full((3, 3), spread**2) + apart**2 * np.eye(3)
    values = np.array([[0.3, 0.9, 0.2], [3.0, 6.2, 1.4]])
    want = [gaussian_log_density(covariance, np.log(own / (0.4 * units))) - gaussian_log_density(covariance, np.zeros(3)) for own in values]
    own = jax.jit(jax.vmap(prior.log_density, (0, None)))(values, units)
    # The tolerance is that of float32.
    np.testing.assert_allclose(own, want, rtol=1e-5)


def dense(points, values, length_scale, variance, noise):
    """Log evidence of all values, repeats included, from one dense matrix."""
    return gaussian_log_density(variance * squared_exponential(points, points, length_scale) + noise * np.eye(len(values)), values)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("size", [1, 5, 33])
def test_the_inverse_is_that_of_a_dense_solve(size, precision):
    rng = np.random.default_rng(size)
    root = rng.standard_normal((2, size, size))
    matrices = np.eye(size) + 20 * root @ root.transpose(0, 2, 1)
    with jax.enable_x64(precision == "float64"):
        inverted, logdet = jax.jit(jax.vmap(inverse))(matrices)
        assert inverted.dtype == precision
    tolerance = {"float32": 1e-3, "float64": 1e-11}[precision]
    np.testing.assert_allclose(inverted, np.linalg.inv(matrices), atol=tolerance)
    np.testing.assert_allclose(logdet, np.linalg.slogdet(matrices)[1], rtol=tolerance, atol=tolerance)


def test_float32_is_near_at_low_noise_and_finite_below():
    points = np.repeat(np.linspace(0, 1, 60)[:, None], 2, axis=1)
    both = jax.jit(jax.value_and_grad(lambda noise: log_evidence(se(), points, np.ones(60), noise)))
    assert np.all(np.isfinite(both(1e-6)))
    near = [both(noise)[0] for noise in (1e-4, 3e-5)]
    np.testing.assert_allclose(near, [dense(points, np.ones(60), 1.0, 1.0, noise) for noise in (1e-4, 3e-5)], atol=0.1)


def test_evidence_is_the_gaussian_log_density():
    points, values = sample()
    with jax.enable_x64(True):
        got = float(jax.jit(log_evidence)(se(0.8, 1.5), points, values, NOISE))
    assert got == pytest.approx(dense(points, values, 0.8, 1.5, NOISE), rel=1e-10)


def repeated():
    """Return values [40, 2] of two outputs at 15 different points."""
    rng = np.random.default_rng(3)
    points = rng.uniform(0, 6, (15, 2))[np.concatenate([np.arange(15), rng.integers(0, 15, 25)])]
    covariance = squared_exponential(points, points) + 0.05 * np.eye(40)
    return points, np.linalg.cholesky(covariance) @ rng.standard_normal((40, 2))


def test_collapsed_repeats_and_padding_change_nothing():
    points, values = repeated()
    data = collapse(points, values)
    assert len(data.counts) == 15 and data.counts.sum() == 40
    expected = [dense(points, column, 0.8, 1.5, 0.05) for column in values.T]
    with jax.enable_x64(True):
        found = jax.jit(lambda *some: [own.log_evidence(se(0.8, 1.5), 0.05) for own in some])(data, data.padded(19))
    np.testing.assert_allclose(found, [expected] * 2, rtol=1e-12)


def test_derivatives_are_those_of_finite_differences():
    """Both modes of differentiation agree with finite differences of dense formulas."""
    points, values = repeated()
    data = collapse(points, values)

    def value(theta):
        return jnp.sum(data.log_evidence(se(theta[:2], theta[2]), theta[3]))

    def reference(theta):
        return sum(dense(points, column, theta[:2], theta[2], theta[3]) for column in values.T)

    theta, steps = np.array([0.8, 1.3, 1.5, 0.05]), 1e-6 * np.eye(4)
    with jax.enable_x64(True):
        derived = jax.jit(lambda t, moved: (jax.hessian(value)(t), jax.jacfwd(value)(t), jax.vmap(jax.grad(value))(moved)))
        hessian, forward, slopes = map(np.asarray, derived(theta, theta + np.concatenate([np.zeros((1, 4)), steps, -steps])))
    for i, step in enumerate(steps):
        assert slopes[0, i] == pytest.approx((reference(theta + step) - reference(theta - step)) / 2e-6, rel=1e-5)
        np.testing.assert_allclose(hessian[i], (slopes[1 + i] - slopes[5 + i]) / 2e-6, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(forward, slopes[0], rtol=1e-9)


def test_the_expansion_is_that_of_a_dense_covariance():
    points, values = repeated()
    data, theta = collapse(points, values).padded(40), np.log([0.8, 1.5, 0.1])

    def model(place):
        return Scale(kernel=SquaredExponential(length_scale=jnp.exp(place[0])), variance=jnp.exp(place[1])), jnp.exp(place[2])

    with jax.enable_x64(True):
        value, gradient, information = jax.jit(lambda place: data.expansion(model, place))(theta)

    def covariance(theta):
        length_scale, variance, noise = np.exp(theta)
        return variance * squared_exponential(points, points, length_scale) + noise * np.eye(len(points))

    def evidence(theta):
        return sum(gaussian_log_density(covariance(theta), column) for column in values.T)

    steps = 1e-5 * np.eye(3)
    relative = [np.linalg.solve(covariance(theta), (covariance(theta + h) - covariance(theta - h)) / 2e-5) for h in steps]
    assert float(value) == pytest.approx(evidence(theta), rel=1e-10)
    np.testing.assert_allclose(gradient, [(evidence(theta + h) - evidence(theta - h)) / 2e-5 for h in steps], rtol=1e-6)
    want = [[0.5 * values.shape[1] * np.trace(a @ b) for b in relative] for a in relative]
    np.testing.assert_allclose(information, want, rtol=1e-6)


def test_float32_is_near_where_most_values_are_at_one_point():
    """Padding, and points seen once, keep the pivots that they have."""
    counts = np.asarray([250.0, 3, 1, 1, 1, 1])
    data = Collapsed(points=np.linspace(0, 1, 6)[:, None], counts=counts, means=np.ones((1, 6)), within=np.ones(1)).padded(64)
    found = {}
    for precise in (False, True):
        with jax.enable_x64(precise):
            (found[precise],) = np.asarray(jax.jit(lambda: data.log_evidence(se(0.3, 8.0), 0.01))())
    assert found[False] == pytest.approx(found[True], abs=0.05)


def test_fit_finds_what_scikit_learn_finds():
    gp = pytest.importorskip("sklearn.gaussian_process")
    points, values = sample(length_scale=1.5, seed=1)
    found = fit(se(), points, values, NOISE, **LIKELIEST)
    kernel = gp.kernels.ConstantKernel(1.0, (1e-3, 1e3)) * gp.kernels.RBF(1.0, (1e-3, 1e3))
    other = gp.GaussianProcessRegressor(kernel, alpha=NOISE, n_restarts_optimizer=5, random_state=0).fit(points, values)
    assert found.converged and found.noise_variance == pytest.approx(NOISE) and found.standard_errors["noise_variance"] == 0
    assert float(found.log_evidence) == pytest.approx(other.log_marginal_likelihood_value_, abs=1e-5)
    assert float(found.kernel.kernel.length_scale) == pytest.approx(other.kernel_.k2.length_scale, rel=1e-3)
    assert float(found.kernel.variance) == pytest.approx(other.kernel_.k1.constant_value, rel=1e-3)


def test_span_bounds_the_search_and_seeds_repeat():
    points, values = sample()
    with pytest.warns(UserWarning, match=r"^fit: kernel\.length_scale, variance ended at the end of the range"):
        found = fit(se(100.0, 1.0), points, values, NOISE, span=2.0, **LIKELIEST)
    assert 50.0 * (1 - 1e-9) <= float(found.kernel.kernel.length_scale) <= 200.0 * (1 + 1e-9)
    assert np.isnan(found.standard_errors["kernel.length_scale"]) and found.at_bound["kernel.length_scale"]
    free = fit(se(), points, values, NOISE, **LIKELIEST)
    assert found.log_evidence < free.log_evidence and not any(free.at_bound.values())
    again = fit(se(100.0, 1.0), points, values, NOISE, span=2.0, **LIKELIEST).kernel
    assert jax.tree.leaves(again) == jax.tree.leaves(found.kernel)


ROUGH = Scale(kernel=Product(left=Matern52(length_scale=[1.0, 2.0]), right=SquaredExponential(length_scale=3.0)), variance=1.0)


def log_posterior(points, values, theta, prior):
    """Log posterior of ``ROUGH``'s logarithms and the noise's, ``theta [5]``."""
    lengths, other, variance, noise = np.exp(theta[:2]), np.exp(theta[2]), np.exp(theta[3]), np.exp(theta[4])
    gram = variance * matern52(points, points, lengths) * squared_exponential(points, points, other)
    density = sum(gaussian_log_density(gram + noise * np.eye(len(points)), column) for column in values.T)
    if prior:
        diagonal, scale = np.sqrt(2) * np.ptp(points, axis=0), np.mean(values**2)
        centre = np.sqrt(2) + np.log(diagonal)
        density -= 0.5 * np.sum(((theta[:2] - centre) / np.sqrt(3)) ** 2) + 0.5 * ((theta[2] - centre.mean()) / np.sqrt(3)) ** 2
        density -= 0.5 * ((theta[3] - np.log(scale)) / 1.5) ** 2 + 0.5 * ((theta[4] - np.log(scale) + 4) / 1.5) ** 2
    return density


def test_fit_is_the_maximum_of_the_posterior_with_the_errors_of_its_curvature():
    points, values = repeated()
    found = fit(ROUGH, points, values, 0.1)
    assert found.kernel.kernel.left.length_scale.shape == (2,) and found.converged
    leaves = [*jax.tree.leaves(found.kernel), found.noise_variance]
    assert all(leaf.dtype == np.float64 for leaf in leaves)
    theta = np.log(np.concatenate([np.ravel(leaf) for leaf in leaves]))
    best = log_posterior(points, values, theta, prior=True)
    assert float(found.log_evidence) == pytest.approx(log_posterior(points, values, theta, prior=False), rel=1e-9)
    step, hessian = 1e-3 * np.eye(5), np.empty((5, 5))
    for i in range(5):
        for sign in (-1, 1):
            assert log_posterior(points, values, theta + 3 * sign * step[i], prior=True) < best
        for j in range(5):
            ends = [a * b * log_posterior(points, values, theta + a * step[i] + b * step[j], prior=True) for a in (1, -1) for b in (1, -1)]
            hessian[i, j] = -sum(ends) / 4e-6
    errors = found.standard_errors
    names = ["kernel.left.length_scale", "kernel.right.length_scale", "variance", "noise_variance"]
    assert sorted(errors) == sorted(names)
    np.testing.assert_allclose(
        np.concatenate([np.ravel(errors[name]) for name in names]), np.sqrt(np.diag(np.linalg.inv(hessian))), rtol=1e-3
    )


SETS, LENGTH, VARIANCE, WIDE_NOISE = 200, 1.2, 1.5, 0.1


@functools.cache
def many():
    """Return data sets of one GP and their maximum-likelihood fits."""
    drawn = [sample(48, LENGTH, VARIANCE, WIDE_NOISE, seed) for seed in range(SETS)]
    points, values = (np.stack(parts) for parts in zip(*drawn, strict=True))
    mask = np.arange(48)[None] < 40 + np.arange(SETS)[:, None] % 9
    values[~mask] = np.nan
    return points, values, mask, fit_many(se(), points, values, 0.05, mask=mask, prior=None)


@pytest.mark.full
# Many fits at once then run in a tenth of the time.
@pytest.mark.usefixtures("optimised")
def test_many_fits_are_those_of_each_by_itself():
    gp = pytest.importorskip("sklearn.gaussian_process")
    points, values, mask, fits = many()
    assert fits.converged.all() and fits.log_evidence.shape == (SETS,)
    kernel = gp.kernels.ConstantKernel(1.0, (1e-3, 1e3)) * gp.kernels.RBF(1.0, (1e-3, 1e3)) + gp.kernels.WhiteKernel(0.05, (5e-5, 50))
    for number in (0, 5, 111):
        here = mask[number]
        other = gp.GaussianProcessRegressor(kernel, alpha=1e-14, n_restarts_optimizer=3, random_state=0).fit(
            points[number, here], values[number, here]
        )
        assert fits.log_evidence[number] == pytest.approx(other.log_marginal_likelihood_value_, abs=1e-4)
        found = [fits.kernel.variance[number], fits.kernel.kernel.length_scale[number], fits.noise_variance[number]]
        np.testing.assert_allclose(np.log(found), other.kernel_.theta, atol=5e-3)


@pytest.mark.full
@pytest.mark.usefixtures("optimised")
def test_standard_errors_cover_the_truth():
    """Intervals of few data are short, so 90% to 97% will do."""
    *_, fits = many()
    truth = {"kernel.length_scale": LENGTH, "variance": VARIANCE, "noise_variance": WIDE_NOISE}
    found = {
        "kernel.length_scale": fits.kernel.kernel.length_scale,
        "variance": fits.kernel.variance,
        "noise_variance": fits.noise_variance,
    }
    slack = 3 * np.sqrt(0.95 * 0.05 / SETS)
    for name, true in truth.items():
        inside = np.abs(np.log(found[name]) - np.log(true)) <= 1.96 * fits.standard_errors[name]
        assert 0.90 - slack <= inside.mean() <= 0.97 + slack, name


@pytest.mark.full
def test_float32_finds_the_same():
    points, values, mask, fits = many()
    few = slice(0, 8)
    rough = fit_many(se(), points[few], values[few], 0.05, mask=mask[few], prior=None, precision="float32")
    assert rough.log_evidence.dtype == np.float32
    np.testing.assert_allclose(rough.log_evidence, fits.log_evidence[few], atol=5e-3)
    errors = fits.standard_errors["kernel.length_scale"][few]
    assert np.max(np.abs(np.log(rough.kernel.kernel.length_scale / fits.kernel.kernel.length_scale[few])) / errors) < 0.1


def test_priors_count_what_is_a_length_or_a_variance():
    """Periods, biases and other numbers have no prior."""
    prior = Prior(variance=None, extent=[2.0, 8.0])
    data = Collapsed(points=np.zeros((3, 2)), counts=np.array([1, 2, 0]), means=np.array([[1.0, 2.0, 9.0]]), within=np.array([0.5]))
    kernel = Scale(kernel=Product(left=SquaredExponential(length_scale=5.0), right=Periodic(period=2.0)), variance=7.0) + Linear()

    @jax.jit
    def found():
        medians = [LogNormal(median=2.0, spread=0.5, apart=apart).log_density(2.0, 1.0) for apart in (None, 0.1)]
        return *prior.units(data), prior.log_density(kernel, 0.2, *prior.units(data)), medians

    extent, scale, got, medians = found()
    np.testing.assert_allclose(extent, [2.0, 8.0])
    np.testing.assert_allclose(scale, (1 + 2 * 4 + 0.5) / 3, rtol=1e-6)
    centre = np.sqrt(2) + np.log(np.sqrt(2) * np.sqrt(2.0 * 8.0))
    want = -0.5 * ((np.log(5.0) - centre) / np.sqrt(3)) ** 2 - 0.5 * ((np.log(0.2 / float(scale)) + 4) / 1.5) ** 2
    np.testing.assert_allclose(got, want, rtol=1e-5)
    np.testing.assert_array_equal(medians, 0)


@pytest.mark.full
def test_batches_of_fits_in_a_loop_end():
    """Batches of LAPACK inside a loop could wait for ever."""
    rng = np.random.default_rng(0)
    sets = rng.uniform(0, 6, (32, 40, 2)).astype(np.float32), rng.standard_normal((32, 1, 40)).astype(np.float32)

    def fitted(points, values):
        data = Collapsed(points=points, counts=jnp.ones(40), means=values, within=jnp.zeros(1))

        def again(length_scale, _):
            bounds, search = {"kernel.length_scale": (0.1, 9.0)}, Search(starts=1, steps=4, errors=False)
            found = maximise(se(length_scale), 0.05, data, prior=Prior(), bounds=bounds, search=search)
            return found.kernel.kernel.length_scale, found.log_evidence

        return jax.lax.scan(again, jnp.ones(()), length=4)

    lowered = jax.jit(jax.vmap(fitted)).lower(*sets)
    assert "lapack" not in lowered.as_text()
    faulthandler.dump_traceback_later(120, exit=True)
    found, evidence = jax.tree.map(np.asarray, lowered.compile()(*sets))
    faulthandler.cancel_dump_traceback_later()
    assert found.shape == (32,) and np.all((found > 0.0999) & (found < 9.001))
    assert np.all(np.isfinite(evidence))


# ``golden/refusals.json`` has what these arguments may not be.
ARGUMENTS = dict(zip(("points", "values"), sample(), strict=True)) | {"kernel": se(), "noise_variance": NOISE}
MANY = ARGUMENTS | {name: np.stack([ARGUMENTS[name]] * 2) for name in ("points", "values")}


def drawn_data(case: int) -> tuple[np.ndarray, np.ndarray]:
    """Return standardised values ``[n]`` of many kinds of functions."""
    rng = np.random.default_rng(case)
    axes, count = int(rng.choice([1, 2, 3, 5, 8, 12, 20])), int(rng.choice([8, 16, 30, 60, 60, 100, 200]))
    points = rng.random((count, axes))
    if case % 2:
        points[count // 2 :] = np.clip(rng.random(axes) + 0.03 * rng.standard_normal((count - count // 2, axes)), 0, 1)
    if case % 5 == 4:
        values = 3 * np.sum((points - 0.4) ** 2, axis=1) + np.sin(9 * points[:, 0])
    else:
        lengths, noise = 0.4 * np.sqrt(axes) * np.exp(0.7 * rng.standard_normal(axes)), 10 ** rng.uniform(-8, 0)
        covariance = matern52(points, points, lengths) + (noise + 1e-10) * np.eye(count)
        values = np.linalg.cholesky(covariance) @ rng.standard_normal(count)
    return points, (values - values.mean()) / values.std()


def nats_lost(case: int, searches: int = 20, **how: object) -> float:
    """Return a fit's loss of log density against many searches by SciPy."""
    points, values = drawn_data(case)
    axes, kernel = points.shape[1], Scale(kernel=Matern52(length_scale=[0.5] * points.shape[1]), variance=1.0)
    bounds, further = learned(["kernel.length_scale"])
    options = {"bounds": bounds, "further": further, "starts": 1, "constant": LEARNED.mean, "errors": False} | how
    found = best_fit(kernel, points, values, 1e-4, prior=replace(LEARNING, extent=np.ones(axes)), **options)
    place = np.log(np.concatenate([np.ravel(found.kernel.kernel.length_scale), [found.kernel.variance, found.noise_variance]]))
    low, high = (
        np.log([*[bounds["kernel.length_scale"][end]] * axes, 1e-3 ** (1 - 2 * end), bounds["noise_variance"][end]]) for end in (0, 1)
    )
    given = (points, values, LEARNED.mean, hyper_parameters.LEARNING)

    def loss(logs: np.ndarray) -> tuple[float, np.ndarray]:
        try:
            return hyper_parameters.loss_and_slope(logs, *given)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(logs)

    rng = np.random.default_rng(1000 + case)
    starts = np.concatenate(
        [np.log(0.4 * np.sqrt(axes)) + rng.standard_normal((searches, axes)), 1.5 * rng.standard_normal((searches, 1))], axis=1
    )
    starts = np.clip(np.concatenate([starts, np.log(10) * rng.uniform(-7, 0.5, (searches, 1))], axis=1), low, high)
    reached = [minimize(loss, start, jac=True, method="L-BFGS-B", bounds=np.stack([low, high], axis=1)).fun for start in starts]
    return loss(place)[0] - min(reached)


def test_the_slope_of_the_oracle_is_that_of_its_loss():
    points, values = drawn_data(5)
    logs = np.random.default_rng(0).standard_normal(points.shape[1] + 2)
    sides = np.ones(points.shape[1])
    given = (points, values[:, None], sides, 1.0, LEARNED.mean, matern52, hyper_parameters.LEARNING)
    value, slope = hyper_parameters.loss_and_slope(logs, points, values, LEARNED.mean, hyper_parameters.LEARNING)
    assert value == pytest.approx(hyper_parameters.loss(logs, *given))
    np.testing.assert_allclose(slope, approx_fprime(logs, hyper_parameters.loss, 1e-6, *given), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("moves", [(True, True, True), (True, False, True)])
def test_searches_on_the_host_climb_the_density_of_compiled_fits(moves):
    """Values and gradients agree to 1e-9."""
    points, values = sample(20)
    points[5] = points[3]
    start = se(np.asarray([0.7, 1.3]), np.asarray(2.0)), np.asarray(NOISE)
    with jax.enable_x64(True):
        data = replace(collapse(points, np.stack([values, values[::-1]], axis=1)).padded(32), constant=1.5)
        start, prior, data = canonicalise((start, LEARNING, data))

        def densities(kernel, noise):
            return jnp.sum(data.log_evidence(kernel, noise)), prior.log_density(kernel, noise, *prior.units(data))

        wanted = densities(*start)
        slopes = jax.tree.leaves(jax.grad(lambda start: sum(densities(*start)))(start))
        leaves = jax.tree.leaves(start)
        place = np.log(np.concatenate([np.ravel(leaf) for leaf, free in zip(leaves, moves, strict=True) if free]))
        evidence, before, *slope = np.asarray(_density(place, start, prior, data, moves=moves))
    np.testing.assert_allclose([evidence, before], wanted, rtol=1e-9)
    along = [np.ravel(np.asarray(each) * leaf) for each, leaf, free in zip(slopes, leaves, moves, strict=True) if free]
    np.testing.assert_allclose(slope, np.concatenate(along), rtol=1e-9)


@pytest.mark.full
def test_a_fit_of_a_session_is_as_likely_as_the_best_of_twenty_searches():
    """The loss is at most 0.01 nats in 95% of fits."""
    lost = np.asarray([nats_lost(case) for case in range(40)])
    assert np.mean(lost <= 0.01) >= 0.95, lost


DOMAIN = domains.mixed({"x": np.linspace(0, 2, 9).tolist(), "kind": ["a", "b"]})
KERNEL = kernels.OnAxes(kernel=kernels.SquaredExponential(length_scale=1.0), axes=(0,)) * kernels.OnAxes(
    kernel=kernels.Gram(matrix=np.array([[1.0, 0.5], [0.5, 1.0]])), axes=(1,)
)
RNG = np.random.default_rng(0)
POINTS = np.asarray(DOMAIN.points)[RNG.integers(DOMAIN.size, size=16)]
VALUES = np.stack([np.sin(4 * POINTS[:, 0]), 3 + 0.1 * POINTS[:, 0]], axis=1) + 0.05 * RNG.standard_normal((16, 2))
FIXED = ("right.kernel.matrix",)
PRIOR = Prior(extent=[2.0, 1.0])


def model(**options: Any) -> Surrogate:
    given = {"kernel": KERNEL, "noise_variance": 0.1, "prior_mean": [0.0, 3.0], "fit_to": (POINTS, VALUES), **options}
    return jaxbandit.surrogate(DOMAIN, **given)


def near(one: kernels.Kernel, other: kernels.Kernel) -> bool:
    """Return whether kernels agree to the seventh digit."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return jax.tree.structure(one) == jax.tree.structure(other) and all(np.allclose(a, b, rtol=5.1e-7, atol=0) for a, b in pairs)


@pytest.mark.full
def test_outputs_that_share_a_kernel_are_fitted_together() -> None:
    found, want = model(), fit(KERNEL, POINTS, VALUES - [0.0, 3.0], 0.1, prior=PRIOR, fixed=FIXED)
    assert near(found.kernels[0], want.kernel) and kernels.same(*found.kernels) and found.groups == (0, 0)
    np.testing.assert_allclose(found.noise_variance, [want.noise_variance], rtol=1e-6)
    np.testing.assert_array_equal(found.kernels[0].right.kernel.matrix, KERNEL.right.kernel.matrix)
    assert float(found.kernels[0].left.kernel.length_scale) != 1.0 and found.prior_mean.tolist() == [0.0, 3.0]


@pytest.mark.full
def test_outputs_with_numbers_of_their_own_are_fitted_apart() -> None:
    found = model(noise_variance=[0.1, 0.2])
    assert found.groups == (0, 1)
    for output, start in enumerate((0.1, 0.2)):
        want = fit(KERNEL, POINTS, VALUES[:, output] - [0.0, 3.0][output], start, prior=PRIOR, fixed=FIXED)
        assert near(found.kernels[output], want.kernel)
        np.testing.assert_allclose(found.noise_variance[output], want.noise_variance, rtol=1e-6)


def test_a_length_scale_for_each_axis_may_be_a_sequence() -> None:
    domain, start = domains.grid([0.0, 0.0], [2.0, 1.0], [9, 2]), {"noise_variance": 0.1, "fit_to": (POINTS, VALUES)}
    array, *others = (
        jaxbandit.surrogate(domain, kernels.SquaredExponential(length_scale=given), **start)
        for given in (np.asarray([0.5, 0.7]), [0.5, 0.7], (0.5, 0.7))
    )
    for other in others:
        assert kernels.same(array.kernels[0], other.kernels[0])


LOW, HIGH = 0.6, 1.5


def test_a_ranged_model_is_fitted_within_its_range() -> None:
    domain = domains.product([np.linspace(0, 2, 9)])
    kernel = kernels.Scale(kernel=kernels.SquaredExponential(length_scale=1.0), variance=1.0)
    points, values = POINTS[:, :1], VALUES[:, :1]
    found = jaxbandit.ranged(domain, kernel, low=LOW, high=HIGH, noise_variance=0.1, outputs=1, fit_to=(points, values))
    start, span = np.asarray([1.0, 1.0, 0.1]), np.asarray([1.0, 1e3, 1e3])
    data = points, values, np.asarray([2.0]), float(np.mean(values**2))
    low, high = start / span, start * span
    low[0], high[0] = LOW, HIGH
    want, _ = hyper_parameters.fit(start, low, high, *data)
    own = [float(found.length_scale), float(found.variance[0]), float(found.noise_variance[0])]
    np.testing.assert_allclose(own, want, rtol=1e-4)
    assert own[0] == pytest.approx(LOW) and hyper_parameters.fit(start, start / 1e3, start * 1e3, *data)[0][0] < LOW
