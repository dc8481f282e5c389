"""Confidence intervals of means over trials."""

import numpy as np
import pytest

from jaxbandit.numerics.intervals import half_width, standard_deviation


@pytest.mark.parametrize("shape", [(7,), (7, 3), (2, 3, 4)])
def test_half_widths_are_of_the_mean_over_the_first_axis(shape):
    values = np.random.default_rng(0).normal(3.0, 2.0, shape)
    spread = np.sqrt(np.square(values - values.mean(axis=0)).sum(axis=0) / (shape[0] - 1))
    np.testing.assert_allclose(standard_deviation(values), spread)
    np.testing.assert_allclose(half_width(values), 1.959964 * spread / np.sqrt(shape[0]), rtol=2e-5)
    assert np.shape(half_width(values)) == shape[1:]


@pytest.mark.parametrize("trials", [0, 1])
@pytest.mark.parametrize("rest", [(), (3,)])
def test_fewer_than_two_trials_have_no_interval(trials, rest):
    found = half_width(np.ones((trials, *rest)))
    assert np.shape(found) == rest and np.all(np.isnan(found))
    assert f"{half_width(np.ones(trials)):.2f}" == "nan"


def test_equal_values_have_an_interval_of_width_zero():
    assert half_width(np.full(5, 2.0)) == 0.0
