"""Confidence widths against their formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxbandit
from jaxbandit import widths
from jaxbandit.rules.estimators import Bounds

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
    tolerance = 16 * float(np.finfo(dtype).eps)  # a log, a root and three products
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
        np.testing.assert_allclose(table[t - 1], formula(t, GAINS), rtol=2e-6)  # 16 roundings of float32


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_and_vectors_are_broadcast_to_the_gains(dtype):
    np.testing.assert_array_equal(evaluated(2, dtype=dtype), [2.0, 2.0, 2.0])
    np.testing.assert_array_equal(evaluated(np.float64(2.5), dtype=dtype), [2.5, 2.5, 2.5])
    np.testing.assert_array_equal(evaluated(np.array([1.0, 2.0, 3.0]), dtype=dtype), [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(evaluated([1.0, 2.0, 3.0], dtype=dtype), [1.0, 2.0, 3.0])
    assert evaluated(4.0, gain=np.float64(0), dtype=dtype) == 4.0
    assert evaluated(4.0, gain=np.zeros(0), dtype=dtype).shape == (0,)  # no constraints


def test_a_vector_of_another_length_does_not_pass():
    with pytest.raises(jaxbandit.InvalidArgument, match="width: expected one number"):
        evaluated(np.ones(2))


@SETTINGS
@given(gain=st.floats(0, 1e4), more=st.floats(0.01, 1e4), delta=st.floats(0.001, 0.9), bound=st.floats(0.01, 100))
def test_theory_widths_grow_with_gain_bound_and_confidence(gain, more, delta, bound):
    def beta(gain, delta, bound):
        return float(evaluated(widths.ImprovedGPUCB(norm_bound=bound, delta=delta), gain=np.float64(gain)))

    width = beta(gain, delta, bound)
    assert width > bound + np.sqrt(2)  # ln(2 / delta) > 0
    assert beta(gain + more, delta, bound) > width
    assert beta(gain, delta / 2, bound) > width
    assert beta(gain, delta, bound + more) > width


def test_widths_are_leaves_to_sweep():
    for width, count in ((widths.ImprovedGPUCB(), 4), (widths.SqrtLog(), 2), (widths.Custom(function=lambda t, gain: gain), 1)):
        assert len(jax.tree.leaves(width)) == count
    swept = jaxbandit.sweep(widths.SqrtLog(), {"a": [1.0, 4.0]})
    values = jax.vmap(lambda number: widths.evaluate(swept.pick(number), jnp.int32(3), jnp.float32(0)))(jnp.arange(2))
    np.testing.assert_allclose(values, [np.sqrt(np.log(6)), 2 * np.sqrt(np.log(6))], rtol=1e-6)  # float32


@pytest.mark.parametrize(
    "width", [0.5, 3, np.array([1.0, 2.0]), [1.0, 2.0], widths.SqrtLog(b=1.0001), widths.Custom(function=lambda t, gain: gain)]
)
def test_good_widths_validate(width):
    Bounds(cost_width=width).validate(outputs=1 + np.size(width) if isinstance(width, list | np.ndarray) else 2)  # raises nothing


def test_width_of_a_finite_set() -> None:
    """``beta_t = sqrt(2 ln(M t^2 pi^2 / (6 delta)))``."""
    t = np.arange(1, 30)
    expected = np.sqrt(2 * np.log(50 * t**2 * np.pi**2 / (6 * 0.1)))
    np.testing.assert_allclose(widths.finite_set(50, 0.1)(jnp.asarray(t), jnp.zeros(29)), expected, rtol=1e-5)
