"""Models whose hyper-parameters are fitted while they are built: the same as by ``fit``, for the outputs that share them or not."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit
from jaxbandit import domains, kernels
from jaxbandit.surrogates import Prior, Surrogate, fit
from tests.oracles import hyper_parameters

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
    """Say whether kernels are equal up to the seventh digit, to which fitted numbers are rounded."""
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


LOW, HIGH = 0.6, 1.5  # the fit without a range is shorter


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
