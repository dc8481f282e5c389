"""Smoothed gradients."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxbandit as jb
from jaxbandit import delays
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.gradients import SmoothedLoss, SubjectTo, logarithms, regret
from jaxbandit.gradients.smoothed import design_size, directions
from tests.support.toy_losses import SPACING, Follow, toy


@functools.cache
def toy_loss(function: Any, *, spread: float = 0.0, **options: Any) -> SmoothedLoss:
    """Return the loss with regret ``1 + function(params)`` in both rounds."""
    problem, model = toy()

    def build(params: Any) -> tuple[Follow, jb.Surrogate]:
        return Follow(place=function(params), spread=spread), model

    return SmoothedLoss(problem, build, measure=regret, **({"horizon": 2, "pairs": 8, "step": 0.1} | options))


WEIGHTS = np.asarray([0.5, -1.0, 0.25])
CURVES = jax.jit(jb.metrics.curves)


def linear(params: Any) -> Any:
    return jnp.sum(jnp.asarray(WEIGHTS, jnp.float32) * params["x"])


@pytest.mark.parametrize("seed", range(3))
def test_a_linear_loss_has_its_gradient_at_any_seed(seed: int) -> None:
    params = {"x": jnp.asarray([0.1, 0.2, -0.1])}
    found = toy_loss(linear).estimate(params, jax.random.key(seed))
    # Float32 rounds regrets, and the step divides the error.
    np.testing.assert_allclose(found.gradient["x"], WEIGHTS, atol=2e-5 / 0.1)
    np.testing.assert_allclose(found.value, 1 + np.sum(WEIGHTS * np.asarray(params["x"])), atol=1e-5)
    assert float(jnp.max(found.standard_error["x"])) < 1e-3 and int(found.failed) == 0


@pytest.mark.full
def test_a_cubic_loss_has_the_gradient_of_its_smoothed_form() -> None:
    step, x = 0.4, 0.3
    found = toy_loss(lambda params: params**3, step=step, pairs=2, block=1).estimate(jnp.asarray(x), jax.random.key(0))
    # The smoothed slope is 3 x^2 + step^2.
    smoothed = ((x + step) ** 3 - (x - step) ** 3) / (2 * step)
    assert smoothed > 1.5 * 3 * x**2
    np.testing.assert_allclose(found.gradient, smoothed, atol=SPACING / step)
    np.testing.assert_allclose(found.value, 1 + x**3 + 3 * x * step**2, atol=SPACING)


@pytest.mark.full
def test_grad_and_jit_and_optax_give_the_estimate() -> None:
    loss, params, key = toy_loss(linear, spread=0.3), {"x": jnp.zeros(3)}, jax.random.key(4)
    found = loss.estimate(params, key)
    value, gradient = jax.value_and_grad(loss)(params, key)
    np.testing.assert_array_equal(value, found.value)
    np.testing.assert_array_equal(gradient["x"], found.gradient["x"])
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(params, key)["x"], gradient["x"], rtol=1e-5)
    np.testing.assert_allclose(jax.grad(lambda p: 3 * loss(p, key))(params)["x"], 3 * gradient["x"], rtol=1e-6)
    optimizer = optax.sgd(0.05)
    updates, _ = optimizer.update(gradient, optimizer.init(params), params)
    assert float(loss(optax.apply_updates(params, updates), key)) < float(value)


@pytest.mark.full
def test_equal_keys_give_equal_bits_and_blocks_change_nothing() -> None:
    params, key = {"x": jnp.asarray([0.1, 0.0, 0.1])}, jax.random.key(1)
    # All 16 trials run in one block.
    loss = toy_loss(linear, spread=0.3)
    several = [either.estimate(params, key) for either in (loss, loss, dataclasses.replace(loss, block=4))]
    for other in several[1:]:
        np.testing.assert_array_equal(several[0].gradient["x"], other.gradient["x"])
    another = loss.estimate(params, jax.random.key(2))
    assert np.any(np.asarray(another.gradient["x"]) != np.asarray(several[0].gradient["x"]))


@pytest.mark.full
@pytest.mark.parametrize("pairs", [16, 64])
def test_the_standard_error_is_right_and_the_interval_covers(pairs: int) -> None:
    """The error of 200 keys is allowed for.

    The square of the error is the mean squared distance from the true gradient, which is within the interval for 95% of keys.
    """

    # Products average out, so the smoothed gradient at 0 is the linear part.
    def interacting(params: Any) -> Any:
        x = params["x"]
        return linear(params) + 0.8 * x[0] * x[1] - 0.6 * x[1] * x[2]

    problem, model = toy()

    def build(params: Any) -> tuple[Follow, jb.Surrogate]:
        return Follow(place=interacting(params), spread=0.2 * (1 + params["x"][2])), model

    loss, params = SmoothedLoss(problem, build, horizon=1, pairs=pairs, step=0.3, measure=regret), {"x": jnp.zeros(3)}
    found = jax.lax.map(lambda key: loss.estimate(params, key), jax.random.split(jax.random.key(9), 200))
    away, error = np.asarray(found.gradient["x"]) - WEIGHTS, np.asarray(found.standard_error["x"])
    np.testing.assert_allclose(np.mean(error**2), np.mean(away**2), rtol=4 * np.sqrt(2 / away.size))
    half = np.asarray(found.half_width["x"])
    assert abs(np.mean(np.abs(away) <= half) - 0.95) <= 4 * np.sqrt(0.95 * 0.05 / away.size)
    assert np.all(half > 1.96 * error)


def test_a_parameter_without_effect_has_gradient_0_and_pairs_are_unchanged() -> None:
    found = toy_loss(lambda params: 0.2 + 0 * params["x"][0], spread=0.1).estimate({"x": jnp.zeros(3)}, jax.random.key(0))
    np.testing.assert_array_equal(found.gradient["x"], 0)
    assert float(found.unchanged) == 1


@pytest.mark.full
def test_failed_pairs_are_left_out_and_too_many_are_refused() -> None:
    problem, model = toy()

    def build(params: Any) -> tuple[Follow, jb.Surrogate]:
        return Follow(place=params, spread=0.1), model

    def measure(curves: Any) -> Any:
        mean = regret(curves)
        return jnp.where(mean > 1.43, jnp.nan, mean)

    loss = SmoothedLoss(problem, build, horizon=2, pairs=256, step=0.2, measure=measure, block=1)
    found = loss.estimate(jnp.asarray(0.05), jax.random.key(3))
    assert 0 < int(found.failed) <= 0.05 * 256
    np.testing.assert_allclose(found.gradient, 1.0, atol=0.1)
    with pytest.raises(InvalidArgument, match=r"^params: a trial failed in \d+ of 256 pairs"):
        loss.estimate(jnp.asarray(0.28), jax.random.key(3))
    assert np.isnan(jax.grad(loss)(jnp.asarray(0.28), jax.random.key(3)))


@functools.cache
def sine() -> tuple[jb.problems.Problem, jb.Surrogate]:
    problem = jb.problems.sine(10)
    return problem, jb.surrogate(problem.domain, jb.kernels.SquaredExponential(length_scale=1.0), noise_variance=0.05)


def simulated(problem: Any, algorithm: Any, model: Any, trials: int, key: Any, **options: Any) -> np.ndarray:
    """Return mean regret and violation ``[2, trials]`` by ``simulate``."""
    run = jb.simulate(problem, algorithm, model, horizon=20, trials=trials, key=key, record="indices", **options)
    curves = CURVES(problem, run.indices)
    return np.stack([np.asarray(curve)[:, -1] for curve in (curves.positive_regret, curves.hard_violation)]) / 20


@pytest.mark.full
@pytest.mark.parametrize(
    ("base", "late", "multiplier", "budget"),
    [(jb.Cbo(), False, 2.5, 0.1), (jb.Rpol(), True, 1.0, 0.0)],
    ids=["cbo-at-once-lagrangian", "rpol-delayed"],
)
def test_it_is_the_difference_of_simulated_trials(base: jb.Algorithm, late: bool, multiplier: float, budget: float) -> None:
    """The gradient is the central difference of both ends' results.

    They are regrets and violations that a Lagrangian weighs, or their sums, which is the default.
    """
    (problem, model), options = sine(), {"initial": jb.InitialDesign(random=3), "block": 1}
    if late:
        options |= {"delay": delays.Poisson(mean=3.0), "feedback": jb.feedback.Hallucinate()}
    params, build = logarithms(base, model, "estimator.reward_width")
    measure = {"measure": SubjectTo(multiplier=multiplier, budget=budget)} if budget else {}
    found = SmoothedLoss(problem, build, horizon=20, pairs=6, step=0.3, **measure, **options).estimate(params, jax.random.key(5))
    key, ends = jax.random.split(jax.random.key(5))[1], []
    for sign in (1, -1):
        width = np.exp(np.asarray(params["estimator.reward_width"]) + sign * 0.3)
        algorithm = jb.replace(base, estimator=jb.replace(base.estimator, reward_width=width))
        regrets, violations = simulated(problem, algorithm, model, 6, key, **options)
        ends.append(regrets + multiplier * (violations - budget))
    np.testing.assert_allclose(found.value, np.mean(ends), rtol=1e-4)
    np.testing.assert_allclose(found.gradient["estimator.reward_width"], np.mean(ends[0] - ends[1]) / 0.6, rtol=1e-3, atol=1e-4)


@pytest.mark.full
def test_a_model_in_float64_plays_in_float64() -> None:
    """Compiled programs in float32 refuse it."""
    problem, _ = sine()
    kernel = jb.kernels.SquaredExponential(length_scale=1.0)
    model = jb.surrogate(problem.domain, kernel, noise_variance=1e-4, precision="float64")
    params, build = logarithms(jb.Rpol(), model, "estimator.cost_width", "model.noise_variance")
    loss, key = SmoothedLoss(problem, build, horizon=6, pairs=4, block=1), jax.random.key(1)
    value, gradient = jax.value_and_grad(loss)(params, key)
    assert {value.dtype, *(part.dtype for part in gradient.values())} == {jnp.dtype("float32")}
    with pytest.raises(InvalidArgument, match=r"^surrogate\.precision: .*enable_x64"):
        jax.jit(loss)(params, key)
    with jax.enable_x64(True):
        np.testing.assert_allclose(loss(params, key), value, rtol=1e-6)


def test_designs_are_orthogonal() -> None:
    assert [design_size(d) for d in (1, 2, 3, 4, 7, 8, 16)] == [2, 4, 4, 8, 8, 16, 32]
    rows = np.asarray(directions(jax.random.key(0), 32, 5), np.int64)
    for copy in rows.reshape(4, 8, 5):
        np.testing.assert_array_equal(copy.T @ copy, 8 * np.eye(5))
        np.testing.assert_array_equal(copy.sum(0), 0)
    assert len({copy.tobytes() for copy in rows.reshape(4, 8, 5)}) > 1


def bad(**options: Any) -> SmoothedLoss:
    return toy_loss(linear, **options)


PARAMS = {"x": jnp.zeros(3)}


def test_simulate_has_no_silent_derivative() -> None:
    problem, model = sine()

    def regret_of(width: Any) -> Any:
        algorithm = jb.Rpol(estimator=jb.estimators.Bounds(reward_width=width, cost_width=3.0))
        run = jb.simulate(problem, algorithm, model, horizon=2, key=jax.random.key(0))
        return jb.metrics.curves(problem, run.indices).regret[0, -1]

    width = jnp.float32(2.0)
    assert np.isfinite(jax.jit(regret_of)(width))
    for derivative in (jax.grad(regret_of), jax.jit(jax.grad(regret_of)), jax.grad(jax.jit(regret_of)), jax.jacfwd(regret_of)):
        with pytest.raises(InvalidArgument, match=r"^simulate: it has no derivative.*SmoothedLoss"):
            derivative(width)
