"""Models whose hyper-parameters are fitted while they are built: the same as by ``fit``, for the outputs that share them or not."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import jaxbandit
from jaxbandit import InvalidArgument, domains, kernels
from jaxbandit.surrogates import Prior, Surrogate, fit

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


def test_outputs_that_share_a_kernel_are_fitted_together() -> None:
    found, want = model(), fit(KERNEL, POINTS, VALUES - [0.0, 3.0], 0.1, prior=PRIOR, fixed=FIXED)
    assert kernels.same(found.kernels[0], want.kernel) and kernels.same(found.kernels[1], want.kernel) and found.groups == (0, 0)
    np.testing.assert_allclose(found.noise_variance, [want.noise_variance], rtol=1e-6)
    np.testing.assert_array_equal(found.kernels[0].right.kernel.matrix, KERNEL.right.kernel.matrix)
    assert float(found.kernels[0].left.kernel.length_scale) != 1.0 and found.prior_mean.tolist() == [0.0, 3.0]


def test_outputs_with_numbers_of_their_own_are_fitted_apart() -> None:
    found = model(noise_variance=[0.1, 0.2])
    assert found.groups == (0, 1)
    for output, start in enumerate((0.1, 0.2)):
        want = fit(KERNEL, POINTS, VALUES[:, output] - [0.0, 3.0][output], start, prior=PRIOR, fixed=FIXED)
        assert kernels.same(found.kernels[output], want.kernel)
        np.testing.assert_allclose(found.noise_variance[output], want.noise_variance, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fit_to": (POINTS, VALUES[:5])}, "fit_to: must be points [n, 2] and values of the same n, got [16, 2] and [5, 2]"),
        ({"fit_to": (POINTS[:, :1], VALUES)}, "fit_to: must be points [n, 2]"),
        ({"fit_to": (POINTS, VALUES[:, 0])}, "fit_to: values must have a column for each of the 2 outputs, got [16]"),
        ({"fit_to": (POINTS, np.full((16, 2), np.nan))}, "fit_to: values"),
        ({"fit_to": (POINTS[:, 0], VALUES)}, "fit_to: must be two arrays, points [n, d]"),
        ({"fit_to": POINTS}, "fit_to: must be two arrays"),
        ({"noise_variance": np.ones(18)}, "noise_variance: fit_to fits one number for each output"),
    ],
)
def test_other_data_are_refused(options: Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(words)):
        model(**options)
