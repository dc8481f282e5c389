"""Confidence bounds against posterior means and deviations."""

import functools

import jax
import numpy as np
import pytest

import jaxbandit
from jaxbandit import domains, kernels, widths
from jaxbandit.rules.estimators import Bounds
from tests.support import posteriors

# -- bounds --------------------------------------------------------------------------------------------------------------------------

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
    return bounds.estimate(model, posterior, t, key)


KEY = jax.random.key(0)


@pytest.mark.parametrize("own_kernels", [False, True], ids=["one factor", "a factor each"])
@pytest.mark.parametrize("constraints", [0, 1, 3])
def test_bounds_are_mean_plus_and_minus_deviations(constraints, own_kernels):
    model, posterior, now = belief(constraints, own_kernels)
    mean, sd = np.asarray(now.mean), np.asarray(now.sd)
    got = estimate(Bounds(reward_width=2.0, cost_width=3.0), model, posterior, np.int32(4), KEY)
    assert got.reward.shape == (12,) and got.costs.shape == (constraints, 12)
    assert sd.min() > 0.01 and np.ptp(sd[0]) > 0.1  # the data are visible in the deviations
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
    assert len(np.unique(gain)) == 3  # three length-scales, three gains
    theory = widths.ImprovedGPUCB(norm_bound=0.5, noise_scale=0.2, delta=0.05, union=3.0)
    got = estimate(Bounds(reward_width=widths.SqrtLog(a=1.0, b=4.0), cost_width=theory), model, posterior, np.int32(9), KEY)
    want = [np.sqrt(np.log(36)), *(0.5 + 0.2 * np.sqrt(2 * (gain[1:] + 1 + np.log(3 / 0.05))))]
    np.testing.assert_allclose(got.widths, want, rtol=1e-6)  # float32
    np.testing.assert_allclose(got.reward, mean[0] + want[0].astype(np.float32) * sd[0], rtol=0, atol=2e-6)
    for j in (1, 2):
        np.testing.assert_allclose(got.costs[j - 1], mean[j] - want[j] * sd[j], rtol=0, atol=2e-6)


def test_bounds_ignore_the_key():
    model, posterior, _ = belief(1)
    one, other = (estimate(Bounds(), model, posterior, np.int32(1), jax.random.key(seed)) for seed in (1, 2))
    np.testing.assert_array_equal(one.reward, other.reward)
    np.testing.assert_array_equal(one.costs, other.costs)
