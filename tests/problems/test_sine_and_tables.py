"""The sine benchmark's published numbers, tables against functions, and optima."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import InvalidArgument, domains, kernels, problems
from jaxbandit.surrogates import arithmetic


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize(("points", "want"), [(30, -0.4493), (50, -0.3487), (100, -0.2728)])
def test_sine_optimum_on_grids(points, want, x64):
    problem = problems.sine(points)
    with jax.enable_x64(x64):
        best = problems.optimum(problem)
        value, index = float(best.value), int(best.index)
    assert value == pytest.approx(want, abs=5e-5)  # four decimals are published
    means = problem.means
    feasible = np.flatnonzero(means[1] <= 0)
    assert index in feasible
    assert value == pytest.approx(means[0][feasible].max(), abs=1e-6)  # float32


def test_sine_continuum_optimum():
    assert abs(problems.CONTINUUM_OPTIMUM + 0.25324) < 5e-6
    np.testing.assert_allclose(problems.CONTINUUM_POINT, (4.7124, 1.2532), atol=5e-5)
    # A search of the whole square, refined twice around the best feasible point, finds it from below.
    low, high, best = np.zeros(2), np.full(2, 6.0), None
    for _ in range(3):
        x1, x2 = np.meshgrid(*[np.linspace(a, b, 601) for a, b in zip(low, high, strict=True)], indexing="ij")
        reward = np.where(np.sin(x1) * np.sin(x2) + 0.95 <= 0, -np.sin(x1) - x2, -np.inf)
        at = np.unravel_index(np.argmax(reward), reward.shape)
        best, centre, width = reward[at], np.array([x1[at], x2[at]]), 10 * (high - low) / 600
        low, high = centre - width, centre + width
    assert best <= problems.CONTINUUM_OPTIMUM + 1e-12
    # The last grid's spacing is 6 / 600 / 30^2 = 1.1e-5, along which f changes with slope 1.
    assert best == pytest.approx(problems.CONTINUUM_OPTIMUM, abs=2.5e-5)
    np.testing.assert_allclose(centre, problems.CONTINUUM_POINT, atol=5e-3)  # f is flat in x1, of second order there


def test_sine_feasible_region():
    with jax.enable_x64(True):
        fine = problems.optimum(problems.sine(600))
        coarse = problems.optimum(problems.sine(50))
    # The boundary's length of 8 leaves 8 / 0.01 of 360,000 cells undecided, half of them wrong by chance: some 0.01%.
    assert 100 * float(fine.feasible_fraction) == pytest.approx(1.77, abs=0.02)
    for best in (fine, coarse):
        assert 0 < float(best.slater_slack) <= 0.05 + 1e-15
    assert float(fine.slater_slack) == pytest.approx(0.05, abs=1e-4)  # the grid misses the deepest point by half of 0.01
    assert float(fine.unconstrained_value) == pytest.approx(1.0, abs=1e-4)  # sin x1 = -1 at x2 = 0


def test_sine_has_a_trap_in_its_second_island():
    problem = problems.sine(200)
    points, (reward, cost) = problem.domain.points, problem.means
    island = (cost <= 0) & (points[:, 1] > 3)
    assert np.all(points[island, 0] < 3) and island.sum() > 0
    # The paper's f = -5.395 at the island's edge x2 = 2 pi - asin(0.95) - ..., that is -1 - (pi + asin 0.95); spacing 0.03.
    assert reward[island].max() == pytest.approx(-1 - (np.pi + np.arcsin(0.95)), abs=0.03)


def test_sine_tables_are_the_formulas():
    problem = problems.sine(7, noise_variance=[0.01, 0.02])
    x1, x2 = problem.domain.points[:, 0], problem.domain.points[:, 1]
    np.testing.assert_allclose(problem.means, [-np.sin(x1) - x2, np.sin(x1) * np.sin(x2) + 0.95], rtol=1e-15, atol=1e-15)
    assert (problem.outputs, problem.constraints, problem.name) == (2, 1, "sine")
    np.testing.assert_array_equal(problem.noise.variance, [0.01, 0.02])
    np.testing.assert_array_equal(problem.domain.points[[0, -1]], [[0.0, 0.0], [6.0, 6.0]])


def test_functions_give_the_same_problem_as_tables():
    domain = domains.grid([0.0, 0.0], [6.0, 6.0], [4, 5])
    noise = problems.Gaussian(variance=0.3)
    functions = problems.from_functions(
        domain,
        lambda x: -jnp.sin(x[0]) - x[1],
        [lambda x: jnp.sin(x[0]) * jnp.sin(x[1]) + 0.95, lambda x: jnp.sum(x) - 7.0],
        noise=noise,
        name="mine",
    )
    x1, x2 = domain.points.T
    tables = problems.from_tables(domain, -np.sin(x1) - x2, [np.sin(x1) * np.sin(x2) + 0.95, x1 + x2 - 7.0], noise=noise, name="mine")
    assert functions.means.dtype == tables.means.dtype == np.float64
    np.testing.assert_allclose(functions.means, tables.means, rtol=1e-14, atol=1e-14)  # sines of two libraries, in float64
    assert jax.tree.structure(functions) == jax.tree.structure(tables)
    assert (functions.outputs, functions.name, functions.noise) == (3, "mine", noise)


def test_one_constraint_may_be_given_flat():
    domain = domains.arms(3)
    flat = problems.from_tables(domain, [1.0, 2.0, 3.0], [0.0, 1.0, -1.0])
    np.testing.assert_array_equal(flat.means, problems.from_tables(domain, [1.0, 2.0, 3.0], [[0.0, 1.0, -1.0]]).means)


def test_optimum_enumerates():
    problem = problems.from_tables(
        domains.arms(5), [9.0, 3.0, 5.0, 5.0, 1.0], [[1.0, -1.0, 0.0, -2.0, -9.0], [-1.0, -3.0, -0.5, 0.25, -9.0]]
    )
    best = problems.optimum(problem)
    assert (float(best.value), int(best.index), float(best.unconstrained_value)) == (5.0, 2, 9.0)
    assert float(best.feasible_fraction) == pytest.approx(3 / 5)
    assert float(best.slater_slack) == 9.0  # at the last arm, min(9, 9)
    with_tie = problems.from_tables(domains.arms(3), [2.0, 2.0, 2.0], [1.0, 0.0, -1.0])
    assert int(problems.optimum(with_tie).index) == 1


def test_optimum_without_feasible_points_or_constraints():
    impossible = problems.optimum(problems.from_tables(domains.arms(2), [1.0, 2.0], [0.5, 0.25]))
    assert np.isnan(impossible.value) and float(impossible.feasible_fraction) == 0 and float(impossible.slater_slack) == -0.25
    free = problems.optimum(problems.from_tables(domains.arms(2), [1.0, 2.0], np.zeros((0, 2))))
    assert float(free.value) == 2.0 and float(free.feasible_fraction) == 1 and float(free.slater_slack) == np.inf


def test_optimum_under_vmap_takes_an_instance_per_trial():
    domain = domains.arms(3)
    means = jnp.asarray([[[1.0, 2.0, 3.0], [-1.0, -1.0, 1.0]], [[3.0, 2.0, 1.0], [1.0, 1.0, 1.0]]])
    best = jax.vmap(lambda table: problems.optimum(problems.Problem(domain=domain, means=table)))(means)
    np.testing.assert_array_equal(best.value, [2.0, np.nan])
    np.testing.assert_array_equal(best.index[0], 1)


def test_observations_are_means_plus_noise():
    problem = problems.sine(5)
    drawn = problem.draw(jax.random.key(3))
    for index in (0, 7, 24):
        noise = np.asarray(problem.observe(jnp.int32(index), drawn)) - problem.means[:, index].astype(np.float32)
        np.testing.assert_allclose(noise, drawn, atol=2e-6)  # float32 near 6
    quiet = jaxbandit.replace(problem, noise=problems.Noiseless())
    np.testing.assert_array_equal(quiet.observe(jnp.int32(7), quiet.draw(jax.random.key(3))), problem.means[:, 7].astype(np.float32))


def test_tables_of_no_constraints():
    free = problems.from_tables(domains.arms(3), [0.0, 2.0, 1.0], [])
    assert free.constraints == 0 and np.array_equal(free.means, [[0, 2, 1]])
    with pytest.raises(InvalidArgument, match=r"constraints: expected shape \[\*, 3\]"):
        problems.from_tables(domains.arms(3), [0.0, 2.0, 1.0], [[], []])


@pytest.mark.parametrize("noise", [problems.Gaussian(variance=0.05), problems.Noiseless()])
def test_a_model_has_a_kernel_for_each_output_where_several_are_given(noise):
    problem = problems.from_tables(domains.grid([0.0], [1.0], 5), np.ones(5), [np.ones(5)], noise=noise)
    both = [kernels.Matern52(length_scale=0.3), 2.0 * kernels.Matern52(length_scale=0.5)]
    model = problem.model(both)
    variances = 0.05 * np.ones(2) if np.all(noise.variances(2)) else 1e-6 * np.array([1, 2])
    np.testing.assert_allclose(model.noise_variance, variances, rtol=1e-6)
    with arithmetic([model.precision]):
        np.testing.assert_allclose(model.predict(model.init()).sd[:, 0], np.sqrt([1, 2]), rtol=1e-3)


def test_a_problem_whose_means_nobody_knows_says_what_runs_it():
    @jaxbandit.pytree
    class Unknown(problems.AbstractProblem):
        domain: domains.Domain
        noise: problems.Noise = problems.Gaussian(variance=0.05)
        name = "unknown"
        constraints = 0

    with pytest.raises(jaxbandit.InvalidArgument, match=r"Unknown\.means: must be the table .*jaxbandit.optimise or a Session"):
        Unknown(domain=domains.grid([0.0], [1.0], 5))
