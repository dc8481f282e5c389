"""The two-dimensional interpolants against NumPy."""

import jax
import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from jaxbandit import canonicalise, delays, kernels, problems


def keys(count, seed=0):
    return jax.random.split(jax.random.key(seed), count)


# -- rkhs_2d --------------------------------------------------------------------------------------------------------------------------


def interpolant(points, length, where, weights):
    """``f`` on ``points [M, 2]``, its values at the centres and its norm, in float64: NumPy's own way, by a Cholesky factor."""
    gap = points[:, None] - points[None]
    k = np.exp(-np.sum(gap**2, axis=2) / (2 * length**2))
    lower = np.linalg.cholesky(k[np.ix_(where, where)])
    return k[:, where] @ solve_triangular(lower, weights, trans=1, lower=True), lower @ weights, np.linalg.norm(weights)


@pytest.mark.parametrize(("variant", "length"), [("f1", 0.8), ("f2", 1.0)])
def test_a_fixed_function_is_the_interpolant_of_its_draws(variant, length):
    problem = problems.rkhs_2d(variant, 15, seed=4, centres=60)
    points = np.asarray(problem.domain.points)
    np.testing.assert_array_equal(points[[0, -1]], [[0.0, 0.0], [10.0, 10.0]])
    rng = np.random.default_rng(4)
    where, weights = rng.choice(225, 60, replace=False), rng.standard_normal(60)
    values, at_centres, norm = interpolant(points, length, where, weights)
    assert problem.means.shape == (1, 225) and problem.means.dtype == np.float64
    np.testing.assert_allclose(problem.means[0], values, atol=1e-8)
    np.testing.assert_allclose(problem.means[0, where], at_centres, atol=1e-8)
    assert problem.norm == pytest.approx(norm, rel=1e-10)
    assert (problem.name, problem.constraints, problem.noise.variance) == (f"rkhs_2d-{variant}", 0, pytest.approx(4e-4))
    assert problem.delay == delays.Poisson(mean=50.0)
    problem.validate()
    assert float(problems.optimum(problem).value) == pytest.approx(values.max(), rel=1e-6)


def test_the_norm_is_that_of_the_reproducing_kernel():
    """The least norm of a function through all values of a small, well-conditioned grid is ``sqrt(f^T K^{-1} f)``."""
    kernel = kernels.SquaredExponential(length_scale=1.5)
    problem = problems.rkhs_2d(points_per_axis=6, centres=20, kernel=kernel)
    gap = problem.domain.points[:, None] - problem.domain.points[None]
    factor = cho_factor(np.exp(-np.sum(gap**2, axis=2) / 4.5))
    assert problem.norm == pytest.approx(np.sqrt(problem.means[0] @ cho_solve(factor, problem.means[0])), rel=1e-6)


def test_a_fixed_function_is_the_same_in_both_floating_types():
    small = [problems.rkhs_2d("f2", 10, side=5.0, seed=1, centres=50)]
    with jax.enable_x64(True):
        small.append(problems.rkhs_2d("f2", 10, side=5.0, seed=1, centres=50))
    np.testing.assert_array_equal(small[0].means, small[1].means)
    other = problems.rkhs_2d("f2", 10, side=5.0, seed=2, centres=50)
    assert np.abs(other.means - small[0].means).max() > 0.1 and small[0].domain.points.max() == 5


def test_the_shift_takes_the_least_value_off_and_nothing_else():
    plain, shifted = (problems.rkhs_2d(points_per_axis=8, centres=30, shift_to_zero=flag) for flag in (False, True))
    assert shifted.means.min() == 0 and shifted.norm == plain.norm
    np.testing.assert_allclose(shifted.means, plain.means - plain.means.min(), atol=1e-12)
    many = jax.jit(jax.vmap(problems.rkhs_2d_draws(points_per_axis=8, centres=30, shift_to_zero=True).sample))(keys(5))
    np.testing.assert_array_equal(np.asarray(many.means).min((1, 2)), 0)


@pytest.mark.full
@pytest.mark.parametrize(("side", "points_per_axis", "centres"), [(10.0, 12, 50), (5.0, 20, 100)])
def test_instances_against_numpy(side, points_per_axis, centres):
    """Check it in float32, to its precision, also where the centres' kernel matrix is ill-conditioned."""
    family = problems.rkhs_2d_draws("f1", points_per_axis, side=side, centres=centres)
    points = np.asarray(family.domain.points)

    def drawn(key):
        instance, (where_key, weight_key) = canonicalise(family).sample(key), jax.random.split(key)
        where = jax.random.choice(where_key, len(points), (centres,), replace=False)
        return instance.means[0], instance.norm, where, jax.random.normal(weight_key, (centres,), instance.means.dtype)

    for means, norm, where, weights in zip(*map(np.asarray, jax.jit(jax.vmap(drawn))(keys(3))), strict=True):
        assert len(set(where)) == centres
        values, _, own_norm = interpolant(points, 0.8, where, weights.astype(np.float64))
        np.testing.assert_allclose(means, values, atol=1e-5)
        assert float(norm) == pytest.approx(own_norm, rel=1e-5)


@pytest.mark.full
def test_instances_are_distinct_and_their_squared_norms_chi_squared():
    family = problems.rkhs_2d_draws("f2", 15)
    many = jax.jit(jax.vmap(family.sample))(keys(400))
    means, squares = np.asarray(many.means, np.float64), np.asarray(many.norm, np.float64) ** 2
    assert means.shape == (400, 1, 225) and np.all(np.isfinite(means)) and len(np.unique(means[:, 0, 7])) == 400
    assert abs(squares.mean() - 100) < 5 * np.sqrt(200 / 400)
    assert abs(squares.var() / 200 - 1) < 5 * np.sqrt((2 + 12 / 100) / 400)  # the fourth moment of a chi-squared
    assert np.all(np.abs(means.mean(0)) < 5 / np.sqrt(400))  # variance at most k(x, x) = 1
    assert 0.5 < means.var() < 1


def test_a_domain_with_fewer_directions_than_centres():
    family = problems.rkhs_2d_draws("f2", 6, side=0.5, centres=36)
    instance = jax.jit(family.sample)(jax.random.key(0))
    assert np.shape(family.root)[1] < 36 and np.all(np.isfinite(instance.means)) and 0 < float(instance.norm) < 9
