"""Random families: distinct and repeatable under ``vmap``, the right distribution, rejection and its cap, bad inputs."""

from functools import partial

import jax
import numpy as np
import pytest

import jaxbandit
from jaxbandit import InvalidArgument, canonicalise, domains, kernels, problems, replace
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
    """Its kernel is that of the table that it draws with; a changed copy does not know it."""
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
    """The tables ``[count, 1 + m, M]``; families that differ by numbers alone share a program if as many are drawn."""
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
    model = jaxbandit.surrogate(family.domain, kernel, noise_variance=0.0025)
    run = jaxbandit.simulate(family, jaxbandit.Config(), model, horizon=5, trials=3, key=jax.random.key(0), block=1)
    assert np.asarray(run.values).shape == (3, 5, 2) and np.all(np.isfinite(run.values))


def test_draws_do_not_depend_on_the_basis_of_equal_eigenvalues(monkeypatch):
    """LAPACK returns other eigenvectors of equal eigenvalues, which a square has in pairs, with other numbers of threads."""
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
    """One instance from NumPy: coefficients recovered by their kernel expansion, ``h = B / 2``, ``max f >= 0.52 B``."""
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
            assert np.all(size >= np.abs(reward).max(1) * (1 - 1e-5))  # |f(x)| <= |f| k(x, x)
        x = np.linspace(0, 1, 100)
        np.testing.assert_allclose(family.matrix, np.exp(-0.5 * ((x[:, None] - x[None]) / 0.2) ** 2), atol=1e-12)


def test_rkhs_norm_and_variance():
    """Without rejection ``E f(x)^2 = p / 3 mean_i k(x, x_i)^2``, and the norm is that of the least-norm interpolant."""
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
    ("make", "count"),  # of which the tests above draw as many, in the same programs
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
    """JAX keeps a float32 copy of an array that a jitted vmap returns as it is, and takes that for the array in float64, too."""
    domain, kernel = domains.grid([0.0, 0.0], [6.0, 6.0], 9), kernels.SquaredExponential(length_scale=1.0)
    family = problems.gp_draws(domain=domain, kernel=kernel, noise=problems.Gaussian(variance=0.05))
    draw = jax.jit(lambda keys: jax.vmap(family.sample)(keys).means)  # the copy lives as long as the program
    assert draw(jax.random.split(jax.random.key(0), 3)).shape == (3, 2, 81)
    model = jaxbandit.surrogate(domain, kernel, noise_variance=0.05, precision="float64")
    options = {"horizon": 2, "key": jax.random.key(0), "block": 1, "record": "indices"}
    assert int(np.asarray(jaxbandit.simulate(family, jaxbandit.Rpol(), model, **options).status)[0]) == 0
