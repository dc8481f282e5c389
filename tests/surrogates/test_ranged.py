"""Models with a traced length-scale."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit import domains, kernels
from jaxbandit.core.pytree import canonicalise
from jaxbandit.core.status import Status
from jaxbandit.engine.programs import play_all
from jaxbandit.surrogates import RangedSurrogate, Surrogate
from jaxbandit.surrogates.features import DenseFeatures
from tests.oracles.gaussian_process import (
    aggregated,
    information_gain,
    matern32,
    matern52,
    mean_and_sd,
    random_functions,
    squared_exponential,
)

LOW, HIGH = 0.4, 0.9
NOISE = 0.05
PLANE = domains.grid([0.0, 0.0], [2.0, 1.5], [13, 11])
LINE = domains.grid([0.0], [2.0], 60)
KERNEL = kernels.SquaredExponential(length_scale=0.5)


@functools.cache
def plane_model(tolerance: float | None = None, x64: bool = False) -> RangedSurrogate:
    with jax.enable_x64(x64):
        return jb.ranged(PLANE, KERNEL, low=LOW, high=HIGH, noise_variance=NOISE, tolerance=tolerance)


def gram(model: RangedSurrogate) -> jax.Array:
    """The prior covariance [M, M] that the features stand for."""
    form = canonicalise(jb.replace(model, kernels=())).factorised().forms[0]
    phi = jax.vmap(form.row, (None, 0))(None, jnp.arange(model.domain.size))
    return jnp.matmul(phi, phi.T, precision="highest")


def grams_and_derivatives(model: RangedSurrogate, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    def of(scale: jax.Array) -> jax.Array:
        return gram(jb.replace(model, length_scale=scale))

    both = jax.jit(jax.vmap(lambda scale, along: jax.jvp(of, (scale,), (along,))))
    dtype = model.dtype
    matrices, derivatives = both(jnp.asarray(scales, dtype), jnp.ones(scales.shape, dtype))
    return np.asarray(matrices, np.float64), np.asarray(derivatives, np.float64)


CASES = {
    "squared exponential": (PLANE, KERNEL, squared_exponential, 1e-4),
    "scaled": (PLANE, 2.5 * KERNEL, lambda x, y, scale: 2.5 * squared_exponential(x, y, scale), 1e-4),
    "matern": (LINE, kernels.Matern52(length_scale=0.5), matern52, 1e-3),
    "fine": (PLANE, KERNEL, squared_exponential, 1e-9),
    "linear": (domains.grid([1.0], [2.0], 20), kernels.Linear(length_scale=0.5), lambda x, y, scale: x @ y.T / scale**2, 1e-4),
}


@pytest.mark.full
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("x64", [False, True])
def test_the_features_are_those_of_the_kernel_over_the_range_and_so_is_their_derivative(case: str, x64: bool) -> None:
    domain, kernel, reference, tolerance = CASES[case]
    tolerance = tolerance if x64 else max(tolerance, 1e-5)
    scales = np.concatenate([[LOW, HIGH], np.random.default_rng(0).uniform(LOW, HIGH, 3)])
    points = np.asarray(domain.points, np.float64)
    with jax.enable_x64(x64):
        model = jb.ranged(domain, kernel, low=LOW, high=HIGH, noise_variance=NOISE, tolerance=tolerance)
        matrices, derivatives = grams_and_derivatives(model, scales)
    variance = float(np.diag(reference(points, points, LOW)).max())
    residual, rounding = float(model.forms[0].residual), 1e-12 if x64 else 2e-6
    assert 0 <= residual <= tolerance and model.forms[0].rank < domain.size
    for number, scale in enumerate(scales):
        exact = reference(points, points, scale)
        # The largest entry of a positive semi-definite remainder is on its diagonal, and the features never add variance.
        np.testing.assert_allclose(matrices[number], exact, rtol=0, atol=variance * (1.02 * residual + rounding))
        assert np.all(np.diag(matrices[number] - exact) <= variance * rounding)
        step = 1e-5
        slope = (reference(points, points, scale + step) - reference(points, points, scale - step)) / (2 * step)
        np.testing.assert_allclose(derivatives[number], slope, rtol=0, atol=np.abs(slope).max() * (60 * tolerance + 3 * rounding))
    if case == "fine" and x64:
        assert np.abs(derivatives[0] - (reference(points, points, LOW + 1e-5) - reference(points, points, LOW - 1e-5)) / 2e-5).max() < 5e-6


def test_each_axis_can_have_its_own_length_scale_and_each_group_of_outputs_too() -> None:
    points = np.asarray(PLANE.points, np.float64)
    model = jb.ranged(PLANE, [KERNEL, 2.0 * kernels.SquaredExponential(length_scale=0.8)], low=LOW, high=[HIGH, 1.0], noise_variance=NOISE)
    np.testing.assert_allclose(model.length_scale, [[0.5, 0.5], [0.8, 0.8]])
    np.testing.assert_allclose(model.variance, [1.0, 2.0])
    assert model.forms[0] is not None and model.groups == (0, 1)
    stretched = jb.replace(model, length_scale=np.asarray([[0.45, 0.7], [0.9, 1.0]]))

    @jax.jit
    def made() -> list[tuple[jax.Array, jax.Array]]:
        forms = canonicalise(jb.replace(stretched, kernels=())).factorised().forms
        return [(jax.vmap(form.row, (None, 0))(None, jnp.arange(PLANE.size)), form.prior_variance) for form in forms]

    missed = 1.02 * float(model.forms[0].residual) + 2e-6
    for (phi, prior), scale, variance in zip(made(), ([0.45, 0.7], [0.9, 1.0]), (1.0, 2.0), strict=True):
        exact = variance * squared_exponential(points, points, np.asarray(scale))
        np.testing.assert_allclose(np.asarray(phi, np.float64) @ np.asarray(phi, np.float64).T, exact, rtol=0, atol=variance * missed)
        np.testing.assert_array_equal(prior, variance, err_msg="points of equal variance tie")
    shown = stretched.kernels_in_force
    np.testing.assert_allclose(shown[0].length_scale, [0.45, 0.7], rtol=1e-6)  # type: ignore[attr-defined]
    assert isinstance(shown[1], kernels.Scale) and float(np.asarray(shown[1].variance)) == 2.0
    assert "[0.4, 0.9] x [0.4, 1]" in stretched.describe() and "residual" in stretched.describe()
    apart = jb.ranged(PLANE, KERNEL, low=LOW, high=HIGH, noise_variance=NOISE).separate()
    assert len(apart.forms) == len(apart.variance) == 2


@pytest.mark.full
def test_a_posterior_is_that_of_a_dense_solve_whether_features_are_computed_once_or_every_time() -> None:
    rng = np.random.default_rng(1)
    indices, values = rng.integers(0, PLANE.size, 12), rng.standard_normal((12, 2))
    model = canonicalise(jb.replace(plane_model(1e-5), length_scale=0.7, kernels=()))

    def learn(used: RangedSurrogate) -> Any:
        posterior = used.init()
        for index, value in zip(indices[:3], values[:3], strict=True):
            posterior = used.condition(posterior, jnp.int32(index), jnp.asarray(value, jnp.float32))
        key, scale = jax.random.key(0), jnp.ones(2)
        return (belief := used.belief(posterior)).prediction, belief.draw(key, scale), belief.covariance(0, jnp.asarray([3]))

    once, anew = jax.jit(lambda: (learn(model.factorised()), learn(model)))()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), once, anew)
    exact = squared_exponential(np.asarray(PLANE.points), np.asarray(PLANE.points), 0.7)
    mean, sd = mean_and_sd(exact, indices[:3], values[:3, 1], NOISE)
    np.testing.assert_allclose(once[0].mean[1], mean, atol=2e-4)
    np.testing.assert_allclose(once[0].sd[1], sd, atol=5e-4)


KERNELS = {squared_exponential: kernels.SquaredExponential, matern32: kernels.Matern32, matern52: kernels.Matern52}


def sampled(seed: int) -> tuple[Any, domains.Domain, float, float, float]:
    """Return a random kernel, points, range and noise."""
    rng = np.random.default_rng(seed)
    kernel = list(KERNELS)[seed % 3]
    axes = int(rng.integers(1, 4)) if kernel is squared_exponential else 1
    count = round(rng.integers(30, 301) ** (1 / axes))
    low = np.exp(rng.uniform(np.log(0.02), np.log(0.4)))
    return (
        kernel,
        domains.grid([0.0] * axes, [1.0] * axes, [count] * axes),
        low,
        low * np.exp(rng.uniform(0.18, 1.38)),
        10 ** rng.uniform(-3, -1),
    )


# Those whose features a factorisation in float32 had lost, then others at random.
MODELS = [
    (squared_exponential, domains.grid([-10.0], [10.0], 101), 0.5, 2.0, 0.05),
    (matern52, domains.grid([-3.0], [3.0], 101), 0.5, 2.0, 0.05),
    (matern32, domains.grid([-3.0], [3.0], 301), 0.6, 1.8, 0.01),
    (squared_exponential, LINE, LOW, HIGH, 1e-4),
    *(sampled(seed) for seed in range(9)),
]


# All models share two programs, because points and features are padded.
PADDED, WIDTHS, SEEN = 304, (96, 288), 60


NUMBERED = domains.arms(PADDED)


@jax.jit
@jax.vmap
def learned(phi: jax.Array, indices: jax.Array, values: jax.Array, noise: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return one output's mean and deviation [PADDED] after values [SEEN]."""
    form = DenseFeatures(phi=phi, prior_variance=jnp.ones(PADDED, phi.dtype), residual=jnp.zeros(()))
    model = Surrogate(
        domain=NUMBERED, forms=(form,), noise_variance=noise[None], prior_mean=jnp.zeros(1, phi.dtype), groups=(0,), refresh=8
    )

    def observe(known: Any, seen: Any) -> tuple[Any, None]:
        return model.condition(known, seen[0], seen[1][None]), None

    found = model.belief(jax.lax.scan(observe, model.init(), (indices, values))[0]).prediction
    return found.mean[0], found.sd[0]


@pytest.mark.full(but=("2",))
@pytest.mark.parametrize("number", range(len(MODELS)))
def test_beliefs_are_right_over_the_whole_range(number: int) -> None:
    reference, domain, low, high, noise = MODELS[number]
    rng, points = np.random.default_rng(number), np.asarray(domain.points)
    model = jb.ranged(domain, KERNELS[reference](length_scale=low), low=low, high=high, noise_variance=noise, outputs=1)
    assert model.precision == "float32"
    scales = low * (high / low) ** np.asarray([0.0, *rng.random(2), 1.0])

    def features(scale: jax.Array) -> tuple[jax.Array, jax.Array]:
        form = jb.replace(model, kernels=(), length_scale=scale).factorised().forms[0]
        return form.prior_variance, jax.vmap(form.row, (None, 0))(None, jnp.arange(domain.size))

    prior, phi = jax.jit(jax.vmap(features))(scales)
    width = next(width for width in WIDTHS if width >= phi.shape[2])
    phi = np.pad(phi, [(0, 0), (0, PADDED - domain.size), (0, width - phi.shape[2])])
    indices = np.where(rng.random((4, SEEN)) < 0.5, rng.integers(0, domain.size, (4, SEEN)), domain.size // 3)
    exact = [reference(points, points, scale) for scale in scales]
    values = np.stack([random_functions(gram, 1, rng)[0, own] for gram, own in zip(exact, indices, strict=True)])
    values = (values + np.sqrt(noise) * rng.standard_normal(values.shape)).astype(np.float32)
    found = map(np.asarray, learned(phi, indices.astype(np.int32), values, np.full(4, noise, np.float32)))
    for gram, seen, own, mean, sd in zip(exact, indices, values, *found, strict=True):
        expected = mean_and_sd(gram, *aggregated(seen, own, noise))
        assert np.max(np.abs(mean[: domain.size] - expected[0]) / expected[1]) <= 0.1
        np.testing.assert_allclose(sd[: domain.size], expected[1], rtol=0.1)
    np.testing.assert_array_equal(prior, 1.0)


@pytest.mark.full
def test_trials_of_a_rough_kernel_are_sound_at_every_length_scale() -> None:
    _, domain, low, high, noise = MODELS[1]
    problem = jb.problems.from_tables(
        domain, np.sin(domain.points[:, 0]), np.cos(domain.points[:, :1].T), noise=jb.problems.Gaussian(variance=noise)
    )
    model = jb.ranged(domain, kernels.Matern52(length_scale=low), low=low, high=high, noise_variance=noise)
    scales = [low, 0.73, 1.52, high]
    played = jb.simulate(problem, jb.Rpol(), jb.sweep(model, {"length_scale": scales}), horizon=20, key=jax.random.key(0), block=1)
    assert not np.any(played.status)
    for scale, gain, indices in zip(scales, np.asarray(played.information_gain).ravel(), np.asarray(played.indices)[:, 0], strict=True):
        points = np.asarray(domain.points)
        np.testing.assert_allclose(gain, information_gain(matern52(points, points, scale), indices, noise), rtol=1e-3)


def test_the_tolerance_follows_the_noise_and_float64_serves_where_float32_does_not() -> None:
    def built(**options: Any) -> jb.Surrogate:
        return jb.ranged(LINE, KERNEL, low=LOW, high=HIGH, noise_variance=options.pop("noise", NOISE), **options)

    assert float(built(noise=1e-3).forms[0].residual) <= 1e-7 < float(built(horizon=10).forms[0].residual) <= 1e-4
    assert built(noise=1e-9).precision == built(tolerance=1e-13).precision == "float64"


def test_all_length_scales_are_one_program_and_each_trial_plays_with_its_own() -> None:
    problem = jb.problems.sine(10)
    model = jb.ranged(problem.domain, kernels.SquaredExponential(length_scale=1.0), low=0.8, high=1.6, noise_variance=NOISE)
    run = functools.partial(jb.simulate, problem, jb.Rpol(), horizon=6, trials=2, key=jax.random.key(0), block=1)
    before = play_all._cache_size()
    played = run(jb.sweep(model, {"length_scale": [0.8, 1.1, 1.6]}))
    assert play_all._cache_size() == before + 1
    run(jb.sweep(model, {"length_scale": [0.9, 1.0, 1.5]}))
    assert play_all._cache_size() == before + 1
    assert not np.any(np.asarray(played.failed_round))
    gains = np.asarray(played.information_gain)[:, 0, 0]
    assert len(set(gains.tolist())) == 3, "each plays with its own length-scale"
    points = np.asarray(problem.domain.points)
    for scale, gain, indices in zip([0.8, 1.1, 1.6], gains, np.asarray(played.indices)[:, 0], strict=True):
        visited = squared_exponential(points[indices], points[indices], scale)
        np.testing.assert_allclose(gain, 0.5 * np.linalg.slogdet(np.eye(6) + visited / NOISE)[1], rtol=1e-3)


def test_a_traced_length_scale_outside_the_range_flags_the_trial() -> None:
    def told(instance: Any, algorithm: Any, surrogate: Any) -> tuple[Any, Any]:
        return algorithm, jb.replace(surrogate, length_scale=surrogate.length_scale * 3.0)

    problem = jb.problems.sine(10)
    model = jb.ranged(problem.domain, kernels.SquaredExponential(length_scale=1.0), low=0.8, high=1.6, noise_variance=NOISE)
    played = jb.simulate(problem, jb.Rpol(), model, horizon=2, key=jax.random.key(0), informed=told, block=1)
    assert int(np.asarray(played.status)[0]) & int(Status.NONFINITE_SCORE)
