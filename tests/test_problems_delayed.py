"""Default delays of problems, through families and wrappers; the two-dimensional interpolants against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from jaxbandit import InvalidArgument, canonicalise, delays, domains, kernels, problems, replace

LATE = delays.Poisson(mean=3.0)


def keys(count, seed=0):
    return jax.random.split(jax.random.key(seed), count)


def delays_of(problem, count=4000):
    """``[count, outputs]`` delays of a problem's default model."""
    model = canonicalise(problem).delay
    return np.asarray(jax.jit(jax.vmap(lambda key: model.draw(key, problem.outputs)))(keys(count)))


def test_sine_delayed_is_sine_with_independent_poisson_delays():
    problem, prompt = problems.sine_delayed(9, noise_variance=0.01), problems.sine(9)
    np.testing.assert_array_equal(problem.means, prompt.means)
    assert (problem.name, problem.noise.variance, problem.delay) == ("sine_delayed", 0.01, delays.Poisson(mean=15.0))
    drawn = delays_of(problem)
    assert np.all(np.abs(drawn.mean(0) - 15) < 5 * np.sqrt(15 / len(drawn)))
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 5 / np.sqrt(len(drawn))
    assert isinstance(prompt.delay, delays.NoDelay)


def test_a_users_problem_takes_a_delay():
    domain = domains.arms(3)
    tables = problems.from_tables(domain, np.zeros(3), np.zeros((2, 3)), delay=LATE)
    functions = problems.from_functions(domain, lambda x: x[0], [lambda x: x[0] - 1], delay=LATE)
    assert tables.delay == functions.delay == LATE
    assert isinstance(problems.from_tables(domain, np.zeros(3), np.zeros(3)).delay, delays.NoDelay)
    for bad in (delays.Poisson(mean=-1.0), delays.PerOutput(delays=(LATE, LATE))):
        with pytest.raises(InvalidArgument, match=r"Poisson.mean|2 models for 3 outputs"):
            problems.from_tables(domain, np.zeros(3), np.zeros((2, 3)), delay=bad)


@pytest.mark.parametrize(
    "make",
    [
        lambda: problems.rkhs_1d(20),
        lambda: problems.rkhs_1d_binding(20),
        lambda: problems.gp_draws(domain=domains.grid([-2.0], [2.0], 15)),
        lambda: problems.rkhs_2d_draws("f2", 6, centres=10),
        lambda: problems.with_equalities(problems.rkhs_1d(20), tolerance=0.1),
        lambda: problems.full_information(problems.rkhs_1d_binding(20)),
    ],
    ids=["rkhs_1d", "rkhs_1d_binding", "gp_draws", "rkhs_2d_draws", "equalities", "full_information"],
)
def test_instances_have_the_delay_of_their_family(make):
    family = make()
    if isinstance(family, problems.FullInformation):
        family = replace(family, problem=replace(family.problem, delay=LATE))
    else:
        family = replace(family, delay=LATE)
    family.validate()
    many = jax.eval_shape(jax.vmap(family.sample), keys(3))
    assert jax.tree.structure(many.delay) == jax.tree.structure(LATE) and many.delay.mean.shape == (3,)
    assert many.norm is None if isinstance(family, problems.GpDraws) else many.norm.shape == (3,)
    with pytest.raises(InvalidArgument, match=r"Lossy\.never"):
        broken = delays.Lossy(never=2.0)
        wrapped = isinstance(family, problems.FullInformation)
        (replace(family.problem, delay=broken) if wrapped else replace(family, delay=broken)).validate()


def test_the_norm_of_rkhs_1d_is_the_bound_it_is_cut_at():
    family = problems.rkhs_1d(30, threshold=0.25)
    many = jax.vmap(canonicalise(family).sample)(keys(5))
    np.testing.assert_allclose(many.means[:, 0] + many.means[:, 1], np.broadcast_to(0.25 * many.norm[:, None], (5, 30)), rtol=1e-4)


def test_the_two_sides_of_an_equality_arrive_together():
    base = problems.from_tables(domains.arms(3), np.zeros(3), np.zeros((2, 3)), delay=LATE)
    problem = problems.with_equalities(base, [1], tolerance=0.1)
    problem.validate()
    drawn = delays_of(problem, 500)
    np.testing.assert_array_equal(drawn[:, 1], drawn[:, 2])
    np.testing.assert_array_equal(drawn[:, [0, 1, 3]], delays_of(base, 500))
    assert (problem.delay.mean, problem.delay.quantile(0.9)) == (3.0, LATE.quantile(0.9))
    assert problem.delay.sub_exponential == LATE.sub_exponential
    prompt = problems.with_equalities(replace(base, delay=delays.NoDelay()), tolerance=0.1)
    assert isinstance(prompt.delay, delays.NoDelay)
    with pytest.raises(InvalidArgument, match=r"Mirrored\.doubled"):
        replace(problem, delay=delays.Mirrored(delay=LATE, doubled=(3,))).validate()
    with pytest.raises(InvalidArgument, match="2 models for 3 outputs"):
        problems.with_equalities(replace(base, delay=delays.PerOutput(delays=(LATE, LATE))), tolerance=0.1).validate()


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


@pytest.mark.parametrize(("side", "points_per_axis", "centres"), [(10.0, 12, 50), (5.0, 20, 100)])
def test_instances_against_numpy(side, points_per_axis, centres):
    """In float32, to its precision, also where the centres' kernel matrix is ill-conditioned."""
    family = problems.rkhs_2d_draws("f1", points_per_axis, side=side, centres=centres)
    points, sample = np.asarray(family.domain.points), jax.jit(canonicalise(family).sample)
    for key in keys(3):
        instance = sample(key)
        where_key, weight_key = jax.random.split(key)
        where = np.asarray(jax.random.choice(where_key, len(points), (centres,), replace=False))
        weights = np.asarray(jax.random.normal(weight_key, (centres,), instance.means.dtype), np.float64)
        assert len(set(where)) == centres
        values, _, norm = interpolant(points, 0.8, where, weights)
        np.testing.assert_allclose(instance.means[0], values, atol=1e-5)
        assert float(instance.norm) == pytest.approx(norm, rel=1e-5)


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


def test_a_sweep_of_the_default_delay_needs_no_new_problem():
    problem = problems.rkhs_2d(points_per_axis=5, centres=10)
    structures = {jax.tree.structure(replace(problem, delay=delays.Poisson(mean=mean))) for mean in (0.0, 25.0, 50.0)}
    assert len(structures) == 1


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: problems.sine_delayed(1), "points_per_axis"),
        (lambda: problems.sine_delayed(5, mean_delay=-1.0), "Poisson.mean"),
        (lambda: problems.rkhs_2d("f3", 5), "variant"),
        (lambda: problems.rkhs_2d("f1", 1), "points_per_axis"),
        (lambda: problems.rkhs_2d("f1", 5, side=0.0), "side"),
        (lambda: problems.rkhs_2d("f1", 5, side=jnp.ones(2)), "side"),
        (lambda: problems.rkhs_2d("f1", 5, seed=-1, centres=5), "seed"),
        (lambda: problems.rkhs_2d("f1", 5), "centres.*at most M = 25, got 100"),
        (lambda: problems.rkhs_2d("f1", 5, centres=0), "centres"),
        (lambda: problems.rkhs_2d_draws("f1", 5, centres=5, noise=problems.Gaussian(variance=-1.0)), "Gaussian.variance"),
        (lambda: problems.rkhs_2d_draws("f1", 5, centres=5, delay=delays.Constant(rounds=-1)), "Constant.rounds"),
    ],
)
def test_bad_inputs_are_named(make, match):
    with pytest.raises(InvalidArgument, match=match):
        make()
