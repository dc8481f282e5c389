"""Problems from functions that JAX cannot trace; and keys and lists at every entry."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import InvalidArgument, delays, domains, estimators, kernels, problems

DOMAIN = domains.grid([0.0, 0.0], [1.0, 2.0], 3)
X = np.asarray(DOMAIN.points)
KEY = jax.random.key(0)


def with_numpy(x: Any) -> Any:
    return np.interp(x[0], [0.0, 1.0], [0.0, 2.0])


def with_branches(x: Any) -> Any:
    return 1.0 if x[0] > 0.4 else math.sin(x[1])


def of_all(points: Any) -> Any:
    return points[:, 0] - points[:, 1] ** 2


TABLES: dict[Callable[[Any], Any], np.ndarray] = {with_numpy: 2 * X[:, 0], with_branches: np.where(X[:, 0] > 0.4, 1.0, np.sin(X[:, 1]))}


@pytest.mark.parametrize("function", TABLES, ids=lambda function: function.__name__)
def test_what_jax_cannot_trace_is_called_point_by_point(function: Callable[[Any], Any]) -> None:
    problem = problems.from_functions(DOMAIN, function, [lambda x: x[0], function], noise_variance=1.0)
    np.testing.assert_allclose(problem.means, [TABLES[function], X[:, 0], TABLES[function]], rtol=1e-15, atol=1e-15)


def test_what_gives_no_number_is_refused_with_both_ways_out() -> None:
    def wrong(x: Any) -> Any:
        return x.missing

    for named in (
        lambda: problems.from_functions(DOMAIN, wrong, []),
        lambda: problems.from_functions(DOMAIN, with_numpy, [wrong]),
        lambda: problems.from_functions(DOMAIN, of_all, []),
        lambda: problems.from_functions(DOMAIN, lambda x: x[0], [lambda x: x[2]]),
    ):
        with pytest.raises(InvalidArgument, match=r"^(reward|constraints\[0\]): .* jax\.numpy.* problems\.from_tables; got .* fails with"):
            named()
    with pytest.raises(InvalidArgument, match=r"^reward\(x\): 9 of 9 values are NaN"):
        problems.from_functions(DOMAIN, lambda x: math.nan, [])
    with pytest.raises(InvalidArgument, match=r"^reward\(x\): 3 of 9 values are NaN"):
        problems.from_functions(DOMAIN, lambda x: math.log(x[0]) if x[0] else -math.inf, [])


def model() -> jaxbandit.Surrogate:
    return jaxbandit.surrogate(DOMAIN, kernels.SquaredExponential(length_scale=[0.5, 1]), noise_variance=[0.1, 0.2], form="features")


def problem(**options: Any) -> problems.Problem:
    return problems.from_tables(DOMAIN, [1.0] * 9, [[0.0] * 9], **options)


def test_lists_do_where_arrays_do() -> None:
    """Tables, points, length-scales, widths, noise, delays, initial points and trials."""
    domain = domains.points([[0.0, 0.0], np.array([0.5, 1.0]), jnp.array([1.0, 2.0])])
    np.testing.assert_allclose(domain.points, [[0, 0], [0.5, 1], [1, 2]])
    assert domain.nearest([0.4, 1.2]) == 1
    assert domains.product([[0, 1], np.array([0, 1, 2])]).size == 6
    assert problem(noise=problems.Gaussian(variance=[0.1, 0.2])).means.shape == (2, 9)
    widths = estimators.Bounds(cost_width=[1.0, 2])
    widths.validate(outputs=3)
    assert problems.Problem(domain=DOMAIN, means=[[0.0] * 9, [1.0] * 9]).outputs == 2
    assert np.asarray(kernels.Gram(matrix=[[1.0, 0.5], [0.5, 1.0]]).matrix).shape == (2, 2)
    assert delays.Empirical(values=[0, 3]).mean == 1.5
    assert model().outputs == 2 and jaxbandit.InitialDesign(indices=[1, 2]).count == 2
    assert jaxbandit.metrics.curves(problem(), [0, 1]).regret.shape == (2,)
