"""Replayed beliefs and their derivatives."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxbandit as jb
from jaxbandit import domains, kernels
from jaxbandit.gradients import SmoothedLoss, descend, logarithms, positive_regret, replay
from tests.oracles.gaussian_process import squared_exponential

SIDE, ROUNDS, LENGTH_SCALE = 6, 23, 0.5
# They run in 4 times 4 rounds, and the program is two thirds of the size.
FEW = 16
NOISES, MEANS = np.asarray([0.05, 0.06]), np.asarray([0.3, -0.2])


def observations(rounds: int = ROUNDS) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    indices = rng.integers(0, SIDE**2, ROUNDS)
    indices[5:9] = indices[4]
    return indices[:rounds], rng.standard_normal((ROUNDS, 2))[:rounds]


def model_of(form: str, noise_variance: Any = NOISES, kernel: kernels.Kernel | None = None) -> jb.Surrogate:
    domain = domains.product([np.linspace(0, 1, SIDE)] * 2)
    kernel = kernels.SquaredExponential(length_scale=LENGTH_SCALE) if kernel is None else kernel
    return jb.surrogate(domain, kernel, noise_variance=noise_variance, prior_mean=MEANS, form=form, horizon=ROUNDS, tolerance=None)


def dense(noises: np.ndarray, means: np.ndarray, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Return log evidence [2] and posterior means [2, M] by Cholesky factors."""
    axis = np.linspace(0, 1, SIDE)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    matrix = np.exp(-0.5 * np.sum((points[:, None] - points[None]) ** 2, -1) / LENGTH_SCALE**2)
    indices, values = observations(rounds)
    evidence, posterior = [], []
    for j in range(2):
        triangle = np.linalg.cholesky(matrix[np.ix_(indices, indices)] + noises[j] * np.eye(rounds))
        white = np.linalg.solve(triangle, values[:, j] - means[j])
        evidence.append(-0.5 * white @ white - np.log(np.diag(triangle)).sum() - 0.5 * rounds * np.log(2 * np.pi))
        posterior.append(means[j] + matrix[:, indices] @ np.linalg.solve(triangle.T, white))
    return np.asarray(evidence), np.stack(posterior)


@pytest.mark.full(but=("features",))
@pytest.mark.parametrize(
    ("form", "precision", "rounds"), [("features", "float64", ROUNDS), ("product", "float32", FEW), ("rows", "float64", FEW)]
)
def test_values_and_derivatives_are_those_of_a_dense_solve(form: str, precision: str, rounds: int) -> None:
    indices, values = observations(rounds)
    weights = np.random.default_rng(2).standard_normal((2, SIDE**2))
    with jax.enable_x64(precision == "float64"):
        model = model_of(form)

        def score(noises: jax.Array, means: jax.Array) -> jax.Array:
            found = replay(jb.replace(model, noise_variance=noises, prior_mean=means), indices, values)
            return jnp.sum(found.log_evidence) + jnp.sum(jnp.asarray(weights, noises.dtype) * found.belief.mean)

        dtype = jnp.dtype(precision)
        at = jnp.asarray(NOISES, dtype), jnp.asarray(MEANS, dtype)
        # Prior means change along it in forward mode.
        direction = jnp.asarray([0.8, -0.6], dtype)

        @jax.jit
        def both(noises: jax.Array, means: jax.Array) -> tuple[Any, jax.Array]:
            forward = jax.jvp(lambda x: score(noises, x), (means,), (direction,))[1]
            return jax.value_and_grad(score, (0, 1))(noises, means), forward

        (value, gradients), forward = jax.tree.map(np.asarray, both(*at))

    def expected(noises: np.ndarray, means: np.ndarray) -> float:
        evidence, posterior = dense(noises, means, rounds)
        return float(evidence.sum() + (weights * posterior).sum())

    tolerance = 1e-7 if precision == "float64" else 5e-5
    np.testing.assert_allclose(value, expected(NOISES, MEANS), rtol=tolerance)
    for number, gradient in enumerate(gradients):
        for j in range(2):
            step = 1e-6 * np.eye(2)[j]
            ends = [expected(*(x + sign * step * (number == n) for n, x in enumerate((NOISES, MEANS)))) for sign in (1, -1)]
            np.testing.assert_allclose(gradient[j], (ends[0] - ends[1]) / 2e-6, rtol=max(tolerance, 1e-6), atol=tolerance)
    np.testing.assert_allclose(forward, gradients[1] @ np.asarray(direction), rtol=tolerance)


def test_predictions_come_before_their_values() -> None:
    indices, values = observations()
    model = model_of("product")
    found = jax.device_get(jax.jit(replay)(model, indices, values))
    np.testing.assert_allclose(found.mean[0], MEANS, rtol=1e-6)
    np.testing.assert_allclose(found.sd[0], 1.0, rtol=1e-5)
    half = jax.device_get(jax.jit(replay)(model, indices[:10], values[:10]))
    np.testing.assert_allclose(found.log_density[:10], half.log_density, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(half.belief.mean[:, indices[10]], found.mean[10], rtol=1e-4, atol=1e-5)


@jax.jit
@jax.grad
def slope(noise: jax.Array, model: jb.Surrogate) -> jax.Array:
    # Repeats among them have the least deviations.
    indices, values = observations(FEW)
    found = replay(jb.replace(model, noise_variance=noise), indices, values)
    return jnp.sum(found.log_evidence) + jnp.sum(found.belief.sd) + jnp.sum(found.sd)


@pytest.mark.full
@pytest.mark.parametrize("noise", [1e-3, 1e-5, 1e-7])
def test_no_derivative_is_nan_at_low_noise(noise: float) -> None:
    with pytest.warns(UserWarning, match="float32 resolves too little") if noise < 1e-4 else jax.numpy_dtype_promotion("strict"):
        domain = domains.product([np.linspace(0, 1, SIDE)] * 2)
        kernel = kernels.SquaredExponential(length_scale=LENGTH_SCALE)
        model = jb.surrogate(domain, kernel, noise_variance=noise, precision="float32", horizon=ROUNDS)
    assert np.all(np.isfinite(slope(jnp.asarray([noise], jnp.float32), model)))


DOMAIN = domains.grid([0.0, 0.0], [1.5, 1.5], [7, 6])
LOW, HIGH, NOISE = 0.4, 0.8, 0.05
# They run in 4 times 4 rounds, and the program is two thirds of the size.
SCALE_ROUNDS = 16
SCALE_MEANS = np.asarray([0.3, -0.2])
WEIGHTS = np.random.default_rng(2).standard_normal((2, DOMAIN.size))


def scale_observations() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    indices = rng.integers(0, DOMAIN.size, SCALE_ROUNDS)
    indices[5:9] = indices[4]
    return indices, rng.standard_normal((SCALE_ROUNDS, 2))


def expected(scale: np.ndarray, variance: float) -> float:
    """Return log evidence and a weighted sum of means, in float64."""
    points, (indices, values) = np.asarray(DOMAIN.points), scale_observations()
    matrix = variance * squared_exponential(points, points, scale)
    root = np.linalg.cholesky(matrix[np.ix_(indices, indices)] + NOISE * np.eye(SCALE_ROUNDS))
    total = 0.0
    for j in range(2):
        white = np.linalg.solve(root, values[:, j] - SCALE_MEANS[j])
        total += -0.5 * white @ white - np.log(np.diag(root)).sum() - 0.5 * SCALE_ROUNDS * np.log(2 * np.pi)
        total += WEIGHTS[j] @ (SCALE_MEANS[j] + matrix[:, indices] @ np.linalg.solve(root.T, white))
    return float(total)


@pytest.mark.full
@pytest.mark.parametrize(("precision", "built_to", "tolerance"), [("float64", 1e-11, 1e-7), ("float32", 5e-6, 5e-5)])
def test_replay_is_exact_in_the_length_scale_and_the_variance(precision: str, built_to: float, tolerance: float) -> None:
    indices, values = scale_observations()
    scales, variance = np.asarray([[0.5, 0.7], [0.62, 0.45], [0.75, 0.8]]), 1.3
    with jax.enable_x64(precision == "float64"):
        kernel = kernels.SquaredExponential(length_scale=[0.5, 0.5])
        model = jb.ranged(DOMAIN, kernel, low=LOW, high=HIGH, noise_variance=NOISE, prior_mean=SCALE_MEANS, tolerance=built_to)

        def score(scale: jax.Array, variance: jax.Array) -> jax.Array:
            found = replay(jb.replace(model, length_scale=scale, variance=variance[None]), indices, values)
            return jnp.sum(found.log_evidence) + jnp.sum(jnp.asarray(WEIGHTS, scale.dtype) * found.belief.mean)

        both = jax.jit(jax.value_and_grad(score, (0, 1)))
        ends = [both(jnp.asarray(scale, precision), jnp.asarray(variance, precision)) for scale in scales]
    step = 1e-5
    for scale, (found, (by_scale, by_variance)) in zip(scales, ends, strict=True):
        size = abs(expected(scale, variance))
        assert abs(float(found) - expected(scale, variance)) <= tolerance * size
        ways = [(step * np.eye(2)[axis], 0.0) for axis in range(2)] + [(np.zeros(2), step)]
        slopes = [(expected(scale + a, variance + b) - expected(scale - a, variance - b)) / (2 * step) for a, b in ways]
        gradient = np.asarray([*np.asarray(by_scale), by_variance], np.float64)
        assert np.abs(gradient - slopes).max() <= tolerance * np.abs(slopes).max()


@pytest.mark.full
def test_a_smoothed_loss_of_the_length_scale_is_the_difference_of_simulated_trials() -> None:
    problem = jb.problems.sine(10)
    model = jb.ranged(problem.domain, kernels.SquaredExponential(length_scale=1.0), low=0.7, high=1.4, noise_variance=NOISE)
    params, build = logarithms(jb.Rpol(), model, "model.length_scale")
    # Points far from all data tie up to rounding.
    initial = jb.InitialDesign(random=12)
    loss = SmoothedLoss(problem, build, horizon=10, pairs=6, step=0.3, measure=positive_regret, initial=initial, block=1)
    found = loss.estimate(params, jax.random.key(5))
    key = jax.random.split(jax.random.key(5))[1]
    both = jb.sweep(model, {"length_scale": np.exp([0.3, -0.3])})
    run = jb.simulate(problem, jb.Rpol(), both, horizon=10, trials=6, key=key, record="indices", initial=initial, block=1)
    curves = jb.metrics.curves(problem, run.indices)
    ends = np.asarray(curves.positive_regret[..., -1]) / 10
    assert int(found.failed) == 0 and np.any(ends[0] != ends[1])
    np.testing.assert_allclose(found.value, np.mean(ends), rtol=1e-4)
    np.testing.assert_allclose(found.gradient["model.length_scale"], np.mean(ends[0] - ends[1]) / 0.6, rtol=1e-3, atol=1e-4)
    # Screening within a factor of 10 and steps of 5 lead out of the range at once; all that is played stays a step inside it.
    options = {"screen": 8, "steps": 3, "every": 1, "validate": 4, "optimizer": optax.sgd(5.0)}
    tuned = descend(loss, params, jax.random.key(6), **options)
    # It is in its own unit.
    length = tuned.best["model.length_scale"]
    assert length == np.exp(tuned.params["model.length_scale"]) == tuned.model.length_scale and isinstance(tuned.algorithm, jb.Rpol)
    inside = np.log([0.7, 1.4]) + np.asarray([0.3, -0.3])
    visited = np.asarray(tuned.history["params"]).ravel()
    assert np.all((visited >= inside[0]) & (visited <= inside[1])) and np.any(np.isclose(visited[:, None], inside[None], atol=1e-5))
    assert all(np.isfinite(candidate.loss) for candidate in tuned.candidates)
    with pytest.raises(jb.InvalidArgument, match=r"^params: their ranges must leave room .* 2 x 0\.35, got a width of 0\.693"):
        descend(dataclasses.replace(loss, step=0.35), params, jax.random.key(6), **options)
    for outside, message in ((1.35, "a trial failed in 6 of 6 pairs"), (1.5, "length_scale: must lie between")):
        with pytest.raises(jb.InvalidArgument, match=message):
            loss.estimate({"model.length_scale": jnp.asarray(np.log(outside), jnp.float32)}, jax.random.key(5))
