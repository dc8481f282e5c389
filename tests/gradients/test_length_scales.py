"""Derivatives in the length-scale: exact ones along fixed points, and smoothed ones of simulated studies."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxbandit as jb
from jaxbandit import domains, kernels
from jaxbandit.gradients import SmoothedLoss, descend, logarithms, positive_regret, replay
from tests.oracles.gaussian_process import squared_exponential

DOMAIN = domains.grid([0.0, 0.0], [1.5, 1.5], [7, 6])
LOW, HIGH, NOISE = 0.4, 0.8, 0.05
ROUNDS = 16  # played in 4 times 4, with none left over, whose program is two thirds of the size
MEANS = np.asarray([0.3, -0.2])
WEIGHTS = np.random.default_rng(2).standard_normal((2, DOMAIN.size))


def observations() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    indices = rng.integers(0, DOMAIN.size, ROUNDS)
    indices[5:9] = indices[4]  # repeats
    return indices, rng.standard_normal((ROUNDS, 2))


def expected(scale: np.ndarray, variance: float) -> float:
    """The log evidence of both outputs and a weighted sum of their posterior means, by Cholesky factors in float64."""
    points, (indices, values) = np.asarray(DOMAIN.points), observations()
    matrix = variance * squared_exponential(points, points, scale)
    root = np.linalg.cholesky(matrix[np.ix_(indices, indices)] + NOISE * np.eye(ROUNDS))
    total = 0.0
    for j in range(2):
        white = np.linalg.solve(root, values[:, j] - MEANS[j])
        total += -0.5 * white @ white - np.log(np.diag(root)).sum() - 0.5 * ROUNDS * np.log(2 * np.pi)
        total += WEIGHTS[j] @ (MEANS[j] + matrix[:, indices] @ np.linalg.solve(root.T, white))
    return float(total)


@pytest.mark.full
@pytest.mark.parametrize(("precision", "built_to", "tolerance"), [("float64", 1e-11, 1e-7), ("float32", 5e-6, 5e-5)])
def test_replay_is_exact_in_the_length_scale_and_the_variance(precision: str, built_to: float, tolerance: float) -> None:
    indices, values = observations()
    scales, variance = np.asarray([[0.5, 0.7], [0.62, 0.45], [0.75, 0.8]]), 1.3
    with jax.enable_x64(precision == "float64"):
        kernel = kernels.SquaredExponential(length_scale=[0.5, 0.5])
        model = jb.ranged(DOMAIN, kernel, low=LOW, high=HIGH, noise_variance=NOISE, prior_mean=MEANS, tolerance=built_to)

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
    initial = jb.InitialDesign(random=12)  # points far from all data tie up to rounding
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
    length = tuned.best["model.length_scale"]  # in its own unit
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
