"""Random families of problems."""

import functools
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize

import jaxbandit as jb
from jaxbandit import InvalidArgument, canonicalise, delays, domains, kernels, problems, replace
from jaxbandit.core.keys import Stream, stream_key, trial_key
from jaxbandit.numerics.ascent import to_edge
from jaxbandit.problems.drawn import OptimumSearch
from jaxbandit.problems.families import gram
from tests.support.unchecked import changed

FAMILIES = {
    "rkhs_1d": problems.rkhs_1d,
    "rkhs_1d-max": lambda: problems.rkhs_1d(bound="max", threshold=0.25),
    "rkhs_1d_binding": problems.rkhs_1d_binding,
    "gp_draws": problems.gp_draws,
    "gp_draws-code": lambda: problems.gp_draws("code"),
    "gp_draws-3": lambda: problems.gp_draws(constraints=3),
    "gp_draws_infeasible": problems.gp_draws_infeasible,
    "gp_draws_infeasible-code": lambda: problems.gp_draws_infeasible("code"),
}


def test_a_family_knows_the_model_of_its_functions():
    """A changed copy does not know it."""
    small = {"domain": domains.grid([0.0], [1.0], 5)}
    makers = [problems.rkhs_1d(5), problems.rkhs_1d_binding(5), problems.gp_draws("code", **small), problems.gp_draws_infeasible(**small)]
    for family in makers:
        model = family.model()
        drawn_with = family.matrix if hasattr(family, "matrix") else family.root @ family.root.T
        np.testing.assert_allclose(gram(model.kernels[0], family.domain), drawn_with, atol=1e-9)
        noise = family.noise.variances(1)[0] or 1e-6 * np.max(np.diag(drawn_with))
        assert model.outputs == family.outputs and np.allclose(model.noise_variance, noise)
        with pytest.raises(InvalidArgument, match=r"^kernel: .* has none; give one"):
            replace(family, name="mine").model()


def test_a_model_of_a_problem_takes_what_it_does_not_know():
    sine = problems.sine(5, noise_variance=[0.1, 0.2])
    model = sine.model(kernels.Matern52(), prior_mean=0.5)
    assert np.allclose(model.noise_variance, [0.1, 0.2]) and model.outputs == 2 and np.allclose(model.prior_mean, 0.5)
    (fixed,) = problems.rkhs_2d(points_per_axis=2, centres=4).model().kernels
    shown = problems.full_information(problems.gp_draws(domain=domains.grid([0.0], [1.0], 5)))
    assert fixed.length_scale == problems.RKHS_2D_LENGTH_SCALES["f1"] and shown.model().outputs == 2
    with pytest.raises(InvalidArgument, match=r"^noise_variance: must be given"):
        replace(sine, noise=problems.StudentT(df=2.0)).model(kernels.Matern52())


@partial(jax.jit, static_argnums=(1, 2))
def sampled(family, count, optima):
    many = jax.vmap(family.sample)(jax.random.split(jax.random.key(0), count))
    return many, jax.vmap(problems.optimum)(many) if optima else None


@jax.jit
def sampled_alone(family):
    """The fifth of 200 instances."""
    return family.sample(jax.random.split(jax.random.key(0), 200)[4])


def instances(family, count):
    """Return tables ``[count, 1 + m, M]`` of a family."""
    return np.asarray(sampled(canonicalise(family), count, False)[0].means)


def instances_and_optima(family, count):
    many, best = sampled(canonicalise(family), count, True)
    return np.asarray(many.means), jax.tree.map(np.asarray, best)


@pytest.mark.full(but=("3",))
@pytest.mark.parametrize("name", FAMILIES)
def test_instances_are_distinct_repeatable_the_same_alone_and_feasible_as_declared(name):
    family = FAMILIES[name]()
    family.validate()
    means, best = instances_and_optima(family, 200)
    assert means.shape == (200, family.outputs, family.domain.size) and np.all(np.isfinite(means))
    assert len(np.unique(means[:, 0, 0])) == 200 and len(np.unique(means[:, 1].max(axis=1))) == 200
    np.testing.assert_array_equal(means, instances_and_optima(family, 200)[0])
    # An instance depends on its key only, not on what was rejected beside it.
    alone = sampled_alone(canonicalise(family))
    np.testing.assert_allclose(alone.means, means[4], rtol=1e-4, atol=1e-5)
    assert alone.name == family.name
    alone.validate()
    assert np.all(np.isnan(best.value)) if "infeasible" in name else np.all(np.isfinite(best.value))


def test_instances_run_in_simulate():
    family = problems.gp_draws(domain=domains.grid([-2.0], [2.0], 15))
    kernel = 2.0 * kernels.SquaredExponential.from_bandwidth(1.0)
    model = jb.surrogate(family.domain, kernel, noise_variance=0.0025)
    run = jb.simulate(family, jb.Config(), model, horizon=5, trials=3, key=jax.random.key(0), block=1)
    assert np.asarray(run.values).shape == (3, 5, 2) and np.all(np.isfinite(run.values))


def test_draws_do_not_depend_on_the_basis_of_equal_eigenvalues(monkeypatch):
    """LAPACK's eigenvectors of equal eigenvalues depend on its threads."""
    domain, kernel = domains.grid([0.0, 0.0], [1.0, 1.0], 8), kernels.SquaredExponential(length_scale=0.3)
    eigh = np.linalg.eigh

    def turned(matrix):
        values, vectors = eigh(matrix)
        vectors = -vectors
        for at in np.flatnonzero(np.diff(values) < 1e-9 * values[1:]):
            vectors[:, at : at + 2] = vectors[:, at : at + 2] @ np.array([[0.6, 0.8], [-0.8, 0.6]])
        return values, vectors

    root = problems.gp_draws(domain=domain, kernel=kernel).root
    monkeypatch.setattr(np.linalg, "eigh", turned)
    np.testing.assert_allclose(problems.gp_draws(domain=domain, kernel=kernel).root, root, atol=1e-8)
    np.testing.assert_allclose(root @ root, gram(kernel, domain), atol=1e-6)


def test_gp_draws_follow_the_kernel_without_the_factor_two():
    family = problems.gp_draws(constraints=2)
    assert family.domain.size == 201 and family.domain.points[0, 0] == -5
    reward = instances(family, 4000)[:, 0].astype(np.float64)
    x = np.asarray(family.domain.points)[:, 0]
    expected = 2 * np.exp(-((x - x[100]) ** 2))
    products = reward * reward[:, 100:101]
    error = products.std(0) / np.sqrt(len(products))
    assert np.all(np.abs(products.mean(0) - expected) < 5 * error)
    assert np.all(np.abs(reward.mean(0)) < 5 * np.sqrt(2 / 4000))


def test_code_variant_starts_well_inside_the_constraint():
    family = problems.gp_draws("code", attempts=30)
    many, _ = instances_and_optima(family, 500)
    assert family.domain.size == 100 and abs(family.domain.points[family.start, 0]) < 0.102
    start = many[:, 1, family.start]
    assert np.all(start < -0.2)
    # The truncated normal: mean of N(0, 2) below -0.2.
    assert abs(start.mean() - -1.2633) < 5 * start.std() / np.sqrt(500)
    assert isinstance(family.noise, problems.Noiseless)
    k = gram(kernels.SquaredExponential(length_scale=1.0), family.domain)
    np.testing.assert_allclose(family.root @ family.root.T, 2 * k, atol=1e-11)


def test_infeasible_instances_are_the_feasible_ones_shifted():
    families = problems.gp_draws(constraints=2), problems.gp_draws_infeasible(slack=0.3, constraints=2)
    feasible, infeasible = (instances(family, 4000) for family in families)
    np.testing.assert_array_equal(feasible[:, 0], infeasible[:, 0])
    shift = (infeasible - feasible)[:, 1:]
    np.testing.assert_allclose(shift, np.broadcast_to(shift[..., :1], shift.shape), atol=1e-5)
    np.testing.assert_allclose(infeasible[:, 1:].min(2), 0.3, atol=1e-5)


def test_rkhs_threshold_against_a_transcription():
    """A kernel expansion recovers the coefficients."""
    for bound in ("norm", "max"):
        family = problems.rkhs_1d(bound=bound, threshold=0.25, attempts=30)
        many = instances_and_optima(family, 200)[0].astype(np.float64)
        reward, level = many[:, 0], many[:, 0] + many[:, 1]
        np.testing.assert_allclose(level, np.broadcast_to(level[:, :1], level.shape), atol=1e-4)
        size = level[:, 0] / 0.25
        assert np.all(reward.max(1) >= 0.52 * size * (1 - 1e-5))
        if bound == "max":
            np.testing.assert_allclose(size, np.abs(reward).max(1), rtol=1e-5)
        else:
            # By the reproducing property |f(x)| <= |f| k(x, x).
            assert np.all(size >= np.abs(reward).max(1) * (1 - 1e-5))
        x = np.linspace(0, 1, 100)
        np.testing.assert_allclose(family.matrix, np.exp(-0.5 * ((x[:, None] - x[None]) / 0.2) ** 2), atol=1e-12)


def test_rkhs_norm_and_variance():
    """The formula is ``E f(x)^2 = p / 3 mean_i k(x, x_i)^2``."""
    matrix = problems.rkhs_1d().matrix
    draw = jax.jit(lambda key: jax.vmap(lambda key: problems.rkhs.rkhs_function(key, matrix, 100))(jax.random.split(key, 2000)))
    values, norms = (np.asarray(drawn, np.float64) for drawn in draw(jax.random.key(1)))
    expected = 100 / 3 * np.mean(matrix**2, axis=1)
    error = np.std(values**2, axis=0) / np.sqrt(2000)
    assert np.all(np.abs(np.mean(values**2, axis=0) - expected) < 5 * error)
    exact = np.sqrt(values[0] @ np.linalg.solve(matrix + 1e-5 * np.eye(100), values[0]))
    assert exact == pytest.approx(float(norms[0]), rel=0.02)


def test_rkhs_binding_constraints_bind_and_leave_room():
    many, best = instances_and_optima(problems.rkhs_1d_binding(least_slack=0.4, attempts=40), 100)
    costs = many[:, 1]
    assert np.all(best.unconstrained_value > best.value)
    assert np.all(best.slater_slack >= 0.4 * np.abs(costs).max(1) * (1 - 1e-5))


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda: replace(problems.gp_draws("code", attempts=30), start_level=-1e6), 500),
        (lambda: changed(problems.rkhs_1d(threshold=0.01, attempts=30), least_peak=10.0), 200),
        (lambda: changed(problems.rkhs_1d_binding(attempts=40), least_slack=10.0), 100),
    ],
    ids=["gp", "rkhs", "binding"],
)
def test_the_cap_leaves_an_instance_infeasible(make, count):
    many, best = instances_and_optima(make(), count)
    assert np.all(many[:, 1] == 1)
    assert np.all(np.isnan(best.value))
    assert len(np.unique(many[:, 0, 0])) == count


@pytest.mark.full
def test_instances_drawn_in_one_program_leave_their_domain_as_it_is():
    """JAX may keep a float32 copy of an array of the domain."""
    domain, kernel = domains.grid([0.0, 0.0], [6.0, 6.0], 9), kernels.SquaredExponential(length_scale=1.0)
    family = problems.gp_draws(domain=domain, kernel=kernel, noise=problems.Gaussian(variance=0.05))
    # The copy lives as long as the program.
    draw = jax.jit(lambda keys: jax.vmap(family.sample)(keys).means)
    assert draw(jax.random.split(jax.random.key(0), 3)).shape == (3, 2, 81)
    model = jb.surrogate(domain, kernel, noise_variance=0.05, precision="float64")
    options = {"horizon": 2, "key": jax.random.key(0), "block": 1, "record": "indices"}
    assert int(np.asarray(jb.simulate(family, jb.Rpol(), model, **options).status)[0]) == 0


def keys(count, seed=0):
    return jax.random.split(jax.random.key(seed), count)


# Functions of ``rkhs_2d``.


def interpolant(points, length, where, weights):
    """Return ``f`` at ``points [M, 2]``, its values and norm, by Cholesky."""
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
    """The least norm is ``sqrt(f^T K^{-1} f)``."""
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
    """The centres' kernel matrix may be ill-conditioned."""
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
    # The bound uses the fourth moment of a chi-squared variable.
    assert abs(squares.var() / 200 - 1) < 5 * np.sqrt((2 + 12 / 100) / 400)
    # The variance is at most k(x, x) = 1.
    assert np.all(np.abs(means.mean(0)) < 5 / np.sqrt(400))
    assert 0.5 < means.var() < 1


def test_a_domain_with_fewer_directions_than_centres():
    family = problems.rkhs_2d_draws("f2", 6, side=0.5, centres=36)
    instance = jax.jit(family.sample)(jax.random.key(0))
    assert np.shape(family.root)[1] < 36 and np.all(np.isfinite(instance.means)) and 0 < float(instance.norm) < 9


BOX = domains.box({"a": (0.0, 2.0), "b": (-1.0, 1.0)}, candidates=16, starts=2, steps=3)
FAMILY = problems.gp_draws(domain=BOX, kernel=kernels.Matern52(length_scale=0.3), constraints=2)


@functools.cache
def box_instances() -> Any:
    """Return instances of 6 keys and of 3 trials, from one program."""

    @jax.jit
    def sampled(family: problems.AbstractProblem) -> Any:
        trials = jax.vmap(lambda trial: stream_key(trial_key(jax.random.key(2), trial), Stream.PROBLEM))(jnp.arange(3))
        return jax.vmap(family.sample)(jnp.concatenate([jax.random.split(jax.random.key(0), 6), trials]))

    return jax.tree.map(np.asarray, sampled(canonicalise(FAMILY)))


def functions(waves: Any, trial: int) -> Any:
    """Return means ``[3, ...]`` and gradients of an instance, in float64."""
    frequencies, phases, sizes = (np.asarray(part, np.float64)[trial] for part in jax.tree.leaves(waves))

    def turns(unit: np.ndarray) -> np.ndarray:
        return np.asarray(2 * np.pi * (np.einsum("kfd,...d->k...f", frequencies, unit) + phases.reshape(3, *[1] * (unit.ndim - 1), -1)))

    def values(unit: np.ndarray) -> np.ndarray:
        return np.asarray(np.einsum("k...f,kf->k...", np.cos(turns(unit)), sizes))

    def slopes(unit: np.ndarray) -> np.ndarray:
        return np.asarray(-2 * np.pi * np.einsum("kf,kf,kfd->kd", np.sin(turns(unit)), sizes, frequencies))

    return values, slopes


def climbed(values: Any, slopes: Any, start: np.ndarray) -> np.ndarray:
    limits = {"type": "ineq", "fun": lambda x: -values(x)[1:], "jac": lambda x: -slopes(x)[1:]}
    given = {"jac": lambda x: -slopes(x)[0], "bounds": [(0, 1)] * len(start), "constraints": limits}
    return np.clip(minimize(lambda x: -values(x)[0], start, **given).x, 0, 1)


@pytest.mark.full
def test_the_best_feasible_point_is_that_of_scipy_from_many_starts() -> None:
    """The loss is at most 1e-3, and was at most 2e-4.

    Its gradient is below .1 but where a corner of constraints is met to 1e-5 only.
    """
    many = jax.tree.map(lambda leaf: leaf[:6], box_instances())
    for trial in range(6):
        values, slopes = functions(many.waves, trial)
        unit = np.random.default_rng(trial).uniform(size=(1000, 2))
        table = values(unit)
        order = np.argsort(-(table[0] - 5 * np.sum(np.maximum(table[1:], 0), axis=0)))[:100:10]
        best, found = jax.tree.map(lambda leaf, trial=trial: leaf[trial].astype(np.float64), many.best), []
        for start in [*unit[order], np.asarray(BOX.to_unit(best.point))]:
            reached = values(climbed(values, slopes, start))
            found += [reached[0]] if np.all(reached[1:] <= 1e-7) else []
        assert max(found) - 1e-3 < best.value < max(found) + 1e-5
        at_best = np.asarray(values(np.asarray(BOX.to_unit(best.point))))
        np.testing.assert_allclose(at_best[0], best.value, atol=1e-5)
        assert np.all(at_best[1:] <= 1e-6)
        np.testing.assert_allclose(np.asarray(many.means)[trial], values(np.asarray(BOX.to_unit(BOX.points))), atol=2e-5)
    assert np.median(many.best.gradient) < 0.05 and np.nanmin(many.best.gap) >= 0


def test_points_beyond_two_constraints_reach_their_corner() -> None:
    """Edges' normals are 105 degrees apart, so alternating steps diverge."""
    turn, corner, away = np.deg2rad(105), np.array([0.4, 0.5]), np.array([[0.05, 0.2], [0.2, 0.05], [0.1, 0.1]])
    normals = np.array([[1.0, 0.0], [np.cos(turn), np.sin(turn)]])
    # Points lie equally far beyond the edges.
    points = corner + away @ np.linalg.inv(normals).T

    def worst(x: jax.Array) -> jax.Array:
        return jnp.max((x - corner[None].astype(np.float32)) @ normals.T.astype(np.float32), axis=1)

    reached = jax.jit(lambda points: to_edge(worst, points, OptimumSearch.to_corner))(points.astype(np.float32))
    assert np.all((np.asarray(reached, np.float64) - corner) @ normals.T <= 1e-7)
    assert np.allclose(reached, corner, atol=1e-4)


@pytest.mark.full
def test_draws_have_the_covariance_of_the_kernel() -> None:
    """Means of products over 400 draws, within 5 of their standard errors."""
    # Nobody looks at optima here, nor whether any point is feasible: 192 of 4,112 points, in one attempt.
    family = jb.replace(FAMILY, looked_at=FAMILY.looked_at[:192], constraint_count=1, attempts=1)
    draw = jax.jit(lambda keys: jax.vmap(family.sample)(keys).means)
    reward = np.asarray(draw(jax.random.split(jax.random.key(1), 400)), np.float64)[:, 0]
    unit = np.asarray(BOX.to_unit(BOX.points))
    distance = np.sqrt(5 * np.sum((unit[:, None] - unit[None]) ** 2, axis=-1)) / 0.3
    expected = (1 + distance + distance**2 / 3) * np.exp(-distance)
    products = reward[:, :, None] * reward[:, None]
    assert np.all(np.abs(products.mean(0) - expected) < 5 * products.std(0) / np.sqrt(400))


@pytest.mark.full
def test_runs_have_instances_of_their_own_and_the_same_bits_beside_others() -> None:
    """One program plays the trials of a box in turn."""
    options: dict[str, Any] = {"horizon": 4, "key": jax.random.key(2)}
    # Draws differ between precisions.
    model = FAMILY.model(noise_variance=0.01, precision="float32")
    several, others = (jb.simulate(FAMILY, jb.RandomSearch(), model, trials=trials, **options) for trials in (3, [2, 5, 9]))
    np.testing.assert_array_equal(several.points[2], others.points[0])
    np.testing.assert_array_equal(several.values[2], others.values[0])
    assert len(np.unique(np.asarray(several.values)[:, 0, 0])) == 3
    own, points = jax.tree.map(lambda leaf: leaf[6:], box_instances()), np.asarray(several.points)
    means = np.stack([functions(own.waves, trial)[0](BOX.to_unit(points[trial])) for trial in range(3)], axis=2)  # [3, 4, 3]
    # Noise has deviation 0.05, and functions 1.
    np.testing.assert_allclose(several.values, means.T, atol=0.25)
    gaps = own.best.value[:3, None] - means[0].T
    assert several.summary().rows[0]["R/t"] == pytest.approx(np.mean(gaps), abs=1e-4)


def test_an_infeasible_family_and_what_is_refused() -> None:
    family = problems.gp_draws_infeasible("code", domain=domains.box({"x": (-10.0, 10.0)}, candidates=8))
    assert isinstance(family, problems.families.BoxDraws) and family.slack == 0.1
    np.testing.assert_allclose(family.model().kernels[0].kernel.length_scale, [0.05])
    np.testing.assert_allclose(family.looked_at[family.start], [0.5])
    curved = domains.box({"x": domains.log(1.0, 2.0)}, candidates=8)
    for make, words in (
        (lambda: problems.gp_draws(domain=curved), "kernel: must be given on a box with sides that are not linear"),
        (lambda: problems.gp_draws(domain=curved, kernel=kernels.RationalQuadratic()), "kernel: RationalQuadratic has no draws on a box"),
        (lambda: problems.gp_draws(domain=BOX, noise=problems.PerPoint(model=problems.Gaussian())), r"BoxDraws\.noise: PerPoint has a"),
        (lambda: problems.full_information(FAMILY), r"FullInformation\.domain"),
    ):
        with pytest.raises(InvalidArgument, match=f"^{words}"):
            make()


@pytest.mark.full
def test_infeasible_instances_are_shifted_from_the_least_value_of_the_box() -> None:
    instance = problems.gp_draws_infeasible(domain=domains.box({"x": (-5.0, 5.0)}, candidates=16)).sample(jax.random.key(0))
    means = np.asarray(instance.means_of(np.linspace(-5, 5, 5001)[:, None]))
    assert np.isnan(instance.best.value) and means[1].min() == pytest.approx(0.1, abs=1e-4)
