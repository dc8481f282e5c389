"""Confidence widths and bounds, and expanders of safe sets."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxbandit
from jaxbandit import domains, estimators, kernels, replace, safety, widths
from jaxbandit.rules.estimators import Bounds
from tests.support import posteriors

SETTINGS = settings(max_examples=30, derandomize=True, database=None)
GAINS = np.array([0.0, 0.5, 40.0])
ROUND = np.int32(7)


def evaluated(width, gain=GAINS, t=ROUND, dtype=np.float64):
    with jax.enable_x64(dtype == np.float64):
        result = widths.evaluate(width, jnp.asarray(t), jnp.asarray(gain, dtype))
        assert result.dtype == dtype and result.shape == np.shape(gain)
        return np.asarray(result, np.float64)


SCHEDULES = {
    "theory": (widths.ImprovedGPUCB(), lambda t, gain: 1 + np.sqrt(2 * (gain + 1 + np.log(2 / 0.1)))),
    "theory of RPOL": (
        widths.ImprovedGPUCB(norm_bound=2.0, noise_scale=0.5, delta=0.05, union=2.0),
        lambda t, gain: 2 + 0.5 * np.sqrt(2 * (gain + 1 + np.log(2 / 0.05))),
    ),
    "theory of CONFIG with m = 3": (
        widths.ImprovedGPUCB(norm_bound=1.5, noise_scale=0.1, delta=0.2, union=4.0),
        lambda t, gain: 1.5 + 0.1 * np.sqrt(2 * (gain + 1 + np.log(4 / 0.2))),
    ),
    "theory of SE22": (widths.ImprovedGPUCB(union=1.0, delta=0.01), lambda t, gain: 1 + np.sqrt(2 * (gain + 1 + np.log(1 / 0.01)))),
    "theory, one bound per constraint": (
        widths.ImprovedGPUCB(norm_bound=np.array([1.0, 2.0, 3.0]), noise_scale=np.array([0.1, 0.2, 0.3])),
        lambda t, gain: np.array([1.0, 2.0, 3.0]) + np.array([0.1, 0.2, 0.3]) * np.sqrt(2 * (gain + 1 + np.log(20))),
    ),
    "theory by the data": (widths.RealBeta(), lambda t, gain: 1 + np.sqrt(2 * gain + 2 * np.log(10))),
    "theory by the data, as in the authors' code": (
        widths.RealBeta(norm_bound=2.0, noise_scale=0.3, delta=0.05, regulariser=0.04, factor=2.0),
        # The code has sqrt(2 ln det(K / lambda + I) + 2 ln(1 / delta)), and ln det is 2 gain.
        lambda t, gain: 2 + 0.3 / np.sqrt(0.04) * np.sqrt(2 * (2 * gain) + 2 * np.log(1 / 0.05)),
    ),
    "square root of log": (widths.SqrtLog(a=2.0, b=5.0), lambda t, gain: np.full(3, np.sqrt(2 * np.log(5 * t)))),
    "square root of log, defaults": (widths.SqrtLog(), lambda t, gain: np.full(3, np.sqrt(2 * np.log(2 * t)))),
    "custom": (widths.Custom(function=lambda t, gain: 1 + gain * gain), lambda t, gain: 1 + gain**2),
    "custom, scaled": (widths.Custom(function=lambda t, gain: 1 + gain, scale=0.25), lambda t, gain: 0.25 * (1 + gain)),
    "custom in t": (
        widths.Custom(function=lambda t, gain: jnp.sqrt(jnp.asarray(t, gain.dtype)), scale=2.0),
        lambda t, gain: np.full(3, 2 * np.sqrt(t)),
    ),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_match_their_formulas(name, dtype):
    width, formula = SCHEDULES[name]
    Bounds(cost_width=width).validate(outputs=1 + GAINS.size)
    # The formula has a logarithm, a root and three products.
    tolerance = 16 * float(np.finfo(dtype).eps)
    for t in (1, 7, 2000):
        np.testing.assert_allclose(evaluated(width, t=np.int32(t), dtype=dtype), formula(t, GAINS), rtol=tolerance)


@pytest.mark.parametrize("name", ["theory", "square root of log", "custom", "custom in t"])
def test_schedules_take_a_scalar_gain_and_run_under_jit_and_vmap(name):
    width, formula = SCHEDULES[name]
    assert evaluated(width, gain=np.float64(0.5)) == pytest.approx(np.broadcast_to(formula(7, np.array(0.5)), (3,))[0])
    rounds = jnp.arange(1, 5, dtype=jnp.int32)
    gains = jnp.asarray(GAINS, jnp.float32)
    table = jax.jit(jax.vmap(lambda t: widths.evaluate(width, t, gains)))(rounds)
    for t in range(1, 5):
        # The tolerance is 16 roundings of float32.
        np.testing.assert_allclose(table[t - 1], formula(t, GAINS), rtol=2e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_and_vectors_are_broadcast_to_the_gains(dtype):
    np.testing.assert_array_equal(evaluated(2, dtype=dtype), [2.0, 2.0, 2.0])
    np.testing.assert_array_equal(evaluated(np.float64(2.5), dtype=dtype), [2.5, 2.5, 2.5])
    np.testing.assert_array_equal(evaluated(np.array([1.0, 2.0, 3.0]), dtype=dtype), [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(evaluated([1.0, 2.0, 3.0], dtype=dtype), [1.0, 2.0, 3.0])
    assert evaluated(4.0, gain=np.float64(0), dtype=dtype) == 4.0
    assert evaluated(4.0, gain=np.zeros(0), dtype=dtype).shape == (0,)


def test_a_vector_of_another_length_does_not_pass():
    with pytest.raises(jaxbandit.InvalidArgument, match="width: expected one number"):
        evaluated(np.ones(2))


@SETTINGS
@given(gain=st.floats(0, 1e4), more=st.floats(0.01, 1e4), delta=st.floats(0.001, 0.9), bound=st.floats(0.01, 100))
def test_theory_widths_grow_with_gain_bound_and_confidence(gain, more, delta, bound):
    def beta(gain, delta, bound):
        return float(evaluated(widths.ImprovedGPUCB(norm_bound=bound, delta=delta), gain=np.float64(gain)))

    width = beta(gain, delta, bound)
    # The term ln(2 / delta) is positive.
    assert width > bound + np.sqrt(2)
    assert beta(gain + more, delta, bound) > width
    assert beta(gain, delta / 2, bound) > width
    assert beta(gain, delta, bound + more) > width


def test_the_width_by_the_data_is_below_improved_gp_ucb_and_has_the_models_noise():
    given = {"norm_bound": 1.5, "noise_scale": 0.2, "delta": 0.05}
    own, improved = evaluated(widths.RealBeta(**given)), evaluated(widths.ImprovedGPUCB(**given, union=1.0))
    assert np.all(own < improved)
    domain = domains.grid([0.0], [1.0], 5)
    problem = jaxbandit.problems.from_tables(domain, np.arange(5.0), -np.ones((1, 5)), noise=jaxbandit.problems.Gaussian(variance=0.04))

    def run(regulariser):
        model = jaxbandit.surrogate(domain, kernels.SquaredExponential(length_scale=0.3), noise_variance=0.04, outputs=2)
        bounds = Bounds(reward_width=widths.RealBeta(**given, regulariser=regulariser), cost_width=2.0)
        algorithm = jaxbandit.Anytime(algorithm=jaxbandit.SafeOpt(estimator=bounds, seeds=[0]))
        return jaxbandit.simulate(problem, algorithm, model, horizon=2, key=0)

    with pytest.raises(
        jaxbandit.InvalidArgument,
        match=r"RealBeta\.regulariser: must be the noise variance of the model, 0\.04, because lambda is the same, got 1\.0",
    ):
        run(1.0)
    assert run(0.04).widths[0, 0, 0] == pytest.approx(1.5 + np.sqrt(2 * np.log(20)), rel=1e-6)


def test_widths_are_leaves_to_sweep():
    for width, count in ((widths.ImprovedGPUCB(), 4), (widths.SqrtLog(), 2), (widths.Custom(function=lambda t, gain: gain), 1)):
        assert len(jax.tree.leaves(width)) == count
    swept = jaxbandit.sweep(widths.SqrtLog(), {"a": [1.0, 4.0]})
    values = jax.vmap(lambda number: widths.evaluate(swept.pick(number), jnp.int32(3), jnp.float32(0)))(jnp.arange(2))
    # The tolerance is float32's.
    np.testing.assert_allclose(values, [np.sqrt(np.log(6)), 2 * np.sqrt(np.log(6))], rtol=1e-6)


@pytest.mark.parametrize(
    "width", [0.5, 3, np.array([1.0, 2.0]), [1.0, 2.0], widths.SqrtLog(b=1.0001), widths.Custom(function=lambda t, gain: gain)]
)
def test_good_widths_validate(width):
    Bounds(cost_width=width).validate(outputs=1 + np.size(width) if isinstance(width, list | np.ndarray) else 2)


def test_width_of_a_finite_set() -> None:
    """``beta_t = sqrt(2 ln(M t^2 pi^2 / (6 delta)))``."""
    t = np.arange(1, 30)
    expected = np.sqrt(2 * np.log(50 * t**2 * np.pi**2 / (6 * 0.1)))
    np.testing.assert_allclose(widths.finite_set(50, 0.1)(jnp.asarray(t), jnp.zeros(29)), expected, rtol=1e-5)


# Bounds.

DOMAIN = domains.grid([0.0, 0.0], [2.0, 2.0], [4, 3])


@functools.cache
def belief(constraints, own_kernels=False):
    """A surrogate, its posterior after three observations, and what that predicts."""
    scales = [0.5 + j for j in range(1 + constraints)]
    kernel = [kernels.SquaredExponential(length_scale=s) for s in scales] if own_kernels else kernels.SquaredExponential()
    model = jaxbandit.surrogate(DOMAIN, kernel, noise_variance=0.1, outputs=1 + constraints, prior_mean=0.25, form="features")
    posterior = posteriors.start(model)
    for n, index in enumerate((0, 7, 3)):
        values = np.arange(1 + constraints, dtype=np.float32) - n
        posterior = posteriors.condition(model, posterior, np.int32(index), values)
    return model, posterior, posteriors.predict(model, posterior)


@jax.jit
def estimate(bounds, model, posterior, t, key):
    return bounds.estimate(model.belief(posterior), t, key)


KEY = jax.random.key(0)


@pytest.mark.parametrize("own_kernels", [False, True], ids=["one factor", "a factor each"])
@pytest.mark.parametrize("constraints", [0, 1, 3])
def test_bounds_are_mean_plus_and_minus_deviations(constraints, own_kernels):
    model, posterior, now = belief(constraints, own_kernels)
    mean, sd = np.asarray(now.mean), np.asarray(now.sd)
    got = estimate(Bounds(reward_width=2.0, cost_width=3.0), model, posterior, np.int32(4), KEY)
    assert got.reward.shape == (12,) and got.costs.shape == (constraints, 12)
    # The data show in the deviations.
    assert sd.min() > 0.01 and np.ptp(sd[0]) > 0.1
    # Up to the fusing of a product and a sum, values of order 3.
    np.testing.assert_allclose(got.reward, mean[0] + 2 * sd[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(got.costs, mean[1:] - 3 * sd[1:], rtol=0, atol=1e-6)
    np.testing.assert_array_equal(got.widths, [2.0] + [3.0] * constraints)


def test_bounds_take_a_width_per_constraint():
    model, posterior, now = belief(2)
    mean, sd = np.asarray(now.mean), np.asarray(now.sd)
    got = estimate(Bounds(reward_width=1.0, cost_width=np.array([0.5, 4.0], np.float32)), model, posterior, np.int32(4), KEY)
    np.testing.assert_allclose(got.costs[0], mean[1] - np.float32(0.5) * sd[1], rtol=0, atol=1e-6)
    np.testing.assert_allclose(got.costs[1], mean[2] - np.float32(4) * sd[2], rtol=0, atol=1e-6)
    np.testing.assert_array_equal(got.widths, [1.0, 0.5, 4.0])


def test_bounds_give_each_schedule_the_round_and_the_gain_of_its_own_output():
    model, posterior, now = belief(2, own_kernels=True)
    mean, sd, gain = np.asarray(now.mean), np.asarray(now.sd), np.asarray(now.gain)
    assert len(np.unique(gain)) == 3
    theory = widths.ImprovedGPUCB(norm_bound=0.5, noise_scale=0.2, delta=0.05, union=3.0)
    got = estimate(Bounds(reward_width=widths.SqrtLog(a=1.0, b=4.0), cost_width=theory), model, posterior, np.int32(9), KEY)
    want = [np.sqrt(np.log(36)), *(0.5 + 0.2 * np.sqrt(2 * (gain[1:] + 1 + np.log(3 / 0.05))))]
    # The tolerance is float32's.
    np.testing.assert_allclose(got.widths, want, rtol=1e-6)
    np.testing.assert_allclose(got.reward, mean[0] + want[0].astype(np.float32) * sd[0], rtol=0, atol=2e-6)
    for j in (1, 2):
        np.testing.assert_allclose(got.costs[j - 1], mean[j] - want[j] * sd[j], rtol=0, atol=2e-6)


def test_bounds_ignore_the_key():
    model, posterior, _ = belief(1)
    one, other = (estimate(Bounds(), model, posterior, np.int32(1), jax.random.key(seed)) for seed in (1, 2))
    np.testing.assert_array_equal(one.reward, other.reward)
    np.testing.assert_array_equal(one.costs, other.costs)


# Safe sets by hand.


@jax.jit
def before_data(model: jaxbandit.Surrogate) -> tuple[Any, safety.Intervals]:
    """The posterior and the intervals of round 1."""
    belief = model.belief(model.init())
    return belief, safety.intervals(model, belief, estimators.Bounds(), jnp.int32(1), jax.random.key(0))


def test_expansion_without_anything_outside_or_to_examine() -> None:
    domain = domains.grid([0.0], [1.0], 5)
    model = jaxbandit.surrogate(domain, kernels.SquaredExponential(length_scale=0.3), noise_variance=0.1, form="features")
    belief, known = before_data(model)
    everything, nothing = np.ones(5, bool), np.zeros(5, bool)
    for expansion in (safety.Expansion(), safety.Expansion(lipschitz=1.0), safety.Expansion(together=False)):
        widest = jax.jit(lambda safe, expansion=expansion: expansion.widest(model, belief, known, safe, safe))
        assert int(widest(everything)) == int(widest(nothing)) == 5


def test_the_widest_of_many_blocks() -> None:
    """The first block has no expander."""
    domain = domains.grid([0.0], [10.0], 201)
    model = jaxbandit.surrogate(domain, kernels.SquaredExponential(length_scale=0.5), noise_variance=0.1, form="features")
    belief, known = before_data(model)
    known = jax.device_get(known)
    lower = np.full(201, -1.0)
    # With L = 1 only this point reaches a point outside, 7.5 away.
    lower[150] = -9.0
    mean, sd = known.mean.copy(), known.sd.copy()
    mean[1], sd[0] = lower + known.widths[1] * sd[1], np.linspace(2, 1, 201)
    safe = np.ones(201, bool)
    safe[:3] = False
    by_hand = replace(known, mean=mean, sd=sd)
    widest = jax.jit(lambda *sets: safety.Expansion(lipschitz=1.0).widest(model, belief, jax.tree.map(jnp.asarray, by_hand), *sets))
    near = safe & (np.asarray(domain.points)[:, 0] - 0.1 <= 1.0)
    assert int(widest(safe, safe)) == 3 and near[3], "wider, and near enough"
    assert int(widest(safe, safe & ~near)) == 150


def test_an_expander_is_judged_by_the_noise_at_its_own_point() -> None:
    """Tables of noise give the same expanders as single numbers."""
    domain = domains.grid([0.0], [2.0], 12)
    kernel = kernels.SquaredExponential(length_scale=0.4)
    model = jaxbandit.surrogate(domain, kernel, noise_variance=0.1, form="features")
    table = np.where(np.arange(12) % 2 == 0, 1e-3, 30.0)[None]
    belief, known = before_data(model)
    known = jax.device_get(known)
    known = replace(known, mean=np.stack([known.mean[0], np.linspace(-2.0, 2.5, 12, dtype=np.float32)]))
    safe, points = np.arange(12) < 6, np.arange(12)
    expands = jax.jit(lambda noise: safety.Expansion().expands(replace(model, noise_variance=noise), belief, known, safe, points))
    found = np.asarray(expands(table))
    alone = [np.asarray(expands(np.full(1, value))) for value in (1e-3, 30.0)]
    np.testing.assert_array_equal(found, np.where(np.arange(12) % 2 == 0, *alone))
    assert 0 < found.sum() < 12 and np.any(alone[0] != alone[1])
