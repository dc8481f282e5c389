"""Fixed problems, tables, and problems whose runs fail in a region."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit import InvalidArgument, canonicalise, delays, domains, kernels, problems
from jaxbandit.results import metrics
from jaxbandit.surrogates import arithmetic

P_FACTS = {
    "P1": (0.287, 0.560),
    "P2": (0.287, -359.07),
    "P3": (0.0164, 12.164),
    "P4": (0.0164, -77.19),
    "P5": (0.573, 0.3986),
    "P6": (0.573, -211.30),
}


def feasible_share(problem):
    return float(np.mean(np.all(np.asarray(problem.means)[1:] <= 0, axis=0)))


@pytest.mark.parametrize("name", P_FACTS)
def test_artificial_facts(name):
    share, least = P_FACTS[name]
    problem = problems.artificial(name, 401, standardised=False)
    # The tolerance is half a unit of the last stated digit.
    stated = 5e-5 if share < 0.1 else 5e-4
    assert feasible_share(problem) == pytest.approx(share, abs=stated)
    means = np.asarray(problem.means)
    assert -np.max(means[0][means[1] <= 0]) == pytest.approx(least, rel=2e-4, abs=5e-4)
    # The level over the grid is that over the square.
    constraint = means[1]
    assert 0.75 * constraint.min() + 0.25 * constraint.max() == pytest.approx(0, abs=1e-3)


def test_branin_minima():
    """Branin's known minimum, 0.397887 at (pi, 2.275), lies in the square."""
    problem = problems.artificial("P5", 401, standardised=False)
    near = problem.domain.nearest([np.pi, 2.275])
    assert -problem.means[0, near] == pytest.approx(0.3979, abs=0.01)
    modified = problems.artificial("P6", 401, standardised=False)
    x1, x2 = np.asarray(problem.domain.points).T
    np.testing.assert_allclose(modified.means[0], problem.means[0] - 20 * x1 + 30 * x2)


def test_standardised_artificial_has_the_same_order():
    raw, standard = (problems.artificial("P4", 41, standardised=flag) for flag in (False, True))
    assert standard.means[0].mean() == pytest.approx(0, abs=1e-12) and standard.means[0].std() == pytest.approx(1)
    np.testing.assert_array_equal(raw.means[1], standard.means[1])
    assert np.corrcoef(raw.means[0], standard.means[0])[0, 1] == pytest.approx(1)
    assert problems.optimum(raw).index == problems.optimum(standard).index


def test_data_rate_facts():
    problem = problems.data_rate(9)
    best = problems.optimum(problem)
    assert float(best.value) == pytest.approx(2.6318, abs=1e-4)
    np.testing.assert_allclose(problem.domain.points[int(best.index)], [1.5, 1.75, 1.25, 0])
    assert feasible_share(problem) == pytest.approx(0.2955, abs=1e-4)
    assert problem.means[1, int(best.index)] == 0
    low, high = problem.domain.nearest([0.0] * 4), problem.domain.nearest([2.0] * 4)
    np.testing.assert_allclose(problem.means[:, low], [0, -2], atol=1e-12)
    np.testing.assert_allclose(problem.means[:, high], [4, 3.2], atol=1e-12)
    eleven = problems.optimum(problems.data_rate())
    assert float(eleven.value) == pytest.approx(2.6416, abs=1e-4)


def test_data_rate_utilities():
    problem = problems.data_rate(5)
    at = problem.domain.nearest([0.5, 1.0, 0.0, 0.0])
    sigmoid = lambda z: 1 / (1 + np.exp(-5 * (z - 1)))  # noqa: E731
    utilities = (sigmoid(0.5) - sigmoid(0)) / (sigmoid(2) - sigmoid(0)), np.log(2) / np.log(3)
    assert problem.means[0, at] == pytest.approx(sum(utilities))


def test_data_rate_noise():
    problem = canonicalise(problems.data_rate(3, cost_half_width=0.2))
    keys = jax.random.split(jax.random.key(0), 20_000)
    observed = np.asarray(jax.vmap(lambda key: problem.observe(jnp.int32(4), problem.draw(key)))(keys), np.float64)
    utility, cost = (observed - np.asarray(problem.means)[:, 4]).T
    # Five standard errors of a variance: sqrt(2 / n) of it for a Gaussian, sqrt(0.8 / n) for a uniform.
    assert utility.var() == pytest.approx(0.01, rel=5 * np.sqrt(2 / 20_000))
    assert np.abs(cost).max() <= 0.2001 and cost.var() == pytest.approx(0.04 / 3, rel=5 * np.sqrt(0.8 / 20_000))
    quiet = canonicalise(problems.data_rate(3))
    assert float(quiet.observe(jnp.int32(4), quiet.draw(jax.random.key(0)))[1]) == float(quiet.means[1, 4])


def test_queueing_binds_and_has_slack():
    problem = problems.queueing()
    best = problems.optimum(problem)
    assert float(best.slater_slack) == pytest.approx(4.0)
    assert float(best.unconstrained_value) == 0 and float(best.value) == pytest.approx(-0.5225)
    value, policy = problems.best_mixed_policy(problem)
    assert -0.5225 < value < 0 and abs(float(policy @ np.asarray(problem.means)[1])) < 1e-9
    # Without service only arrivals count.
    assert problem.means[1, 0] == 6


def test_queueing_shows_the_arrivals_of_the_round():
    problem = canonicalise(problems.queueing(5))
    drawn = jax.vmap(problem.draw)(jax.random.split(jax.random.key(0), 4000))
    seen = np.asarray(jax.vmap(problem.constraint_sample)(drawn), np.float64)
    assert seen.shape == (4000, 1, 25)
    # The share is 0, so g_t is the count itself.
    arrivals = seen[:, 0, 0]
    np.testing.assert_allclose(arrivals, np.round(arrivals), atol=1e-5)
    assert abs(arrivals.mean() - 6) < 5 * np.sqrt(6 / 4000)
    means = np.asarray(problem.means, np.float64)[1:]
    np.testing.assert_allclose(seen - means[None], np.broadcast_to((arrivals - 6)[:, None, None], seen.shape), atol=1e-4)


@jax.jit
def seen_of(problem, indices):
    """Return an instance, a round's constraints, and values at ``indices``."""
    instance = problem.sample(jax.random.key(1))
    drawn = instance.draw(jax.random.key(2))
    return instance, instance.constraint_sample(drawn), jax.vmap(lambda index: instance.observe(index, drawn))(indices)


@pytest.mark.full(but=("problem",))
@pytest.mark.parametrize("noise", ["shared", "independent"])
@pytest.mark.parametrize("inner", ["problem", "family", "residuals"])
def test_observation_agrees_with_the_sample(noise, inner):
    base = {
        "problem": lambda: problems.sine(5),
        "family": lambda: problems.gp_draws(constraints=2),
        "residuals": lambda: problems.stocks_synthetic().problem,
    }[inner]()
    problem = problems.full_information(base, noise=noise)
    problem.validate()
    indices = np.asarray([0, 3, base.domain.size - 1], np.int32)
    instance, seen, observed = seen_of(canonicalise(problem), indices)
    assert isinstance(instance, problems.FullInformation)
    assert (instance.outputs, instance.constraints, instance.name) == (base.outputs, base.constraints, base.name)
    assert seen.shape == (base.constraints, base.domain.size)
    np.testing.assert_allclose(observed[:, 1:], np.asarray(seen)[:, indices].T, rtol=1e-6, atol=1e-6)
    added = np.asarray(seen) - np.asarray(instance.means)[1:]
    one_number = inner != "residuals" and noise == "shared"
    assert np.allclose(added, added[:, :1], atol=1e-5) == one_number


@pytest.mark.full
def test_full_information_runs_in_simulate():
    options = {"horizon": 4, "trials": 2, "key": jax.random.key(0), "block": 1}
    problem = problems.full_information(problems.rkhs_1d_binding(12), noise="independent")
    model = jb.surrogate(problem.domain, kernels.SquaredExponential(length_scale=0.2), noise_variance=0.01)
    run = jb.simulate(problem, jb.RandomSearch(), model, **options)
    assert np.all(np.isfinite(run.values))
    queue = problems.queueing(4)
    model = jb.surrogate(queue.domain, kernels.SquaredExponential(length_scale=0.5), noise_variance=0.01)
    run = jb.simulate(queue, jb.RandomSearch(), model, **options)
    assert np.all(np.isfinite(jb.metrics.curves(queue, run.indices).hard_violation))


def test_an_overloaded_queue_is_infeasible():
    assert np.isnan(float(problems.optimum(problems.queueing(5, arrival_rate=11.0)).value))


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize(("points", "want"), [(30, -0.4493), (50, -0.3487), (100, -0.2728)])
def test_sine_optimum_on_grids(points, want, x64):
    problem = problems.sine(points)
    with jax.enable_x64(x64):
        best = problems.optimum(problem)
        value, index = float(best.value), int(best.index)
    # Four decimals are published.
    assert value == pytest.approx(want, abs=5e-5)
    means = problem.means
    feasible = np.flatnonzero(means[1] <= 0)
    assert index in feasible
    # The tolerance is float32's.
    assert value == pytest.approx(means[0][feasible].max(), abs=1e-6)


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
    # The reward is flat in x1, of second order there.
    np.testing.assert_allclose(centre, problems.CONTINUUM_POINT, atol=5e-3)


def test_sine_feasible_region():
    with jax.enable_x64(True):
        fine = problems.optimum(problems.sine(600))
        coarse = problems.optimum(problems.sine(50))
    # The boundary's length of 8 leaves 8 / 0.01 of 360,000 cells undecided, half of them wrong by chance: some 0.01%.
    assert 100 * float(fine.feasible_fraction) == pytest.approx(1.77, abs=0.02)
    for best in (fine, coarse):
        assert 0 < float(best.slater_slack) <= 0.05 + 1e-15
    # The grid misses the deepest point by half of 0.01.
    assert float(fine.slater_slack) == pytest.approx(0.05, abs=1e-4)
    # There sin x1 = -1 and x2 = 0.
    assert float(fine.unconstrained_value) == pytest.approx(1.0, abs=1e-4)


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
    # Sines of two libraries agree in float64.
    np.testing.assert_allclose(functions.means, tables.means, rtol=1e-14, atol=1e-14)
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
    # The last arm has min(9, 9).
    assert float(best.slater_slack) == 9.0
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
        # The tolerance is float32's near 6.
        np.testing.assert_allclose(noise, drawn, atol=2e-6)
    quiet = jb.replace(problem, noise=problems.Noiseless())
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
        np.testing.assert_allclose(model.belief(model.init()).sd[:, 0], np.sqrt([1, 2]), rtol=1e-3)


def test_a_problem_whose_means_nobody_knows_says_what_runs_it():
    @jb.pytree
    class Unknown(problems.AbstractProblem):
        domain: domains.Domain
        noise: problems.Noise = problems.Gaussian(variance=0.05)
        name = "unknown"
        constraints = 0

    with pytest.raises(jb.InvalidArgument, match=r"Unknown\.means: must be the table .*jaxbandit.optimise or a Session"):
        Unknown(domain=domains.grid([0.0], [1.0], 5))


HORIZON = 14
KERNEL = kernels.SquaredExponential(length_scale=0.3)
GRID = domains.grid([0.0, 0.0], [1.0, 1.0], 7)
BOX = domains.box({"x": (0.0, 1.0), "y": (0.0, 1.0)})
NOISE: dict[str, Any] = {"noise_variance": 0.01}


def crashes(x: Any) -> Any:
    return x[0] > 0.55


def on_grid(there: float) -> problems.Problem:
    """A problem whose functions have another value in the region."""
    means = np.stack([np.sin(5 * GRID.points[:, 0]), 0.3 - GRID.points[:, 1]])
    means[:, np.asarray(GRID.points)[:, 0] > 0.55] += there
    return problems.from_tables(GRID, means[0], means[1:], **NOISE)


def on_box(there: float) -> problems.BoxProblem:
    """The same on a box."""
    functions = [lambda x: jnp.sin(5 * x[0]), lambda x: 0.3 - x[1]]
    moved = [lambda x, own=own: own(x) + jnp.where(crashes(x), there, 0.0) for own in functions]
    return problems.on_box(BOX, moved[0], moved[1:], best=(1.0, (np.pi / 10, 0.5)), **NOISE)


def run(problem: Any, **options: Any) -> jb.Trajectory:
    model = problem.model(KERNEL, prior_mean=[0.0, 0.0, -1.0], noise_variance=[0.01, 0.01, 0.01])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jb.simulate(problem, options.pop("algorithm", jb.Cei()), model, horizon=HORIZON, trials=3, key=2, **options)


@pytest.mark.full(but=("grid",))
@pytest.mark.parametrize(
    ("make", "initial"),
    [(make, jb.InitialDesign(random=random)) for make in (on_grid, on_box) for random in (5, 0)],
    ids=["grid", "grid without design", "box", "box without design"],
)
def test_values_of_failed_runs_have_no_consequence(make: Any, initial: jb.InitialDesign) -> None:
    """Failures are counted."""
    first, other = (run(problems.with_failures(make(there), crashes), initial=initial) for there in (0.0, -0.7))
    chosen = first.indices if make is on_grid else first.points
    assert np.array_equal(chosen, other.indices if make is on_grid else other.points)
    points = np.asarray(GRID.points)[np.asarray(chosen)] if make is on_grid else np.asarray(chosen)
    failed = points[..., 0] > 0.55
    assert failed.any() and not failed.all()
    assert np.array_equal(np.asarray(first.arrivals)[..., 0] >= delays.NEVER, failed)
    assert np.array_equal(np.asarray(first.arrivals)[..., 2] < delays.NEVER, np.ones_like(failed))
    problem = problems.with_failures(make(0.0), crashes)
    assert np.array_equal(metrics.failures(problem, chosen), np.cumsum(failed, axis=-1))
    unlike = run(make_plain(make), initial=initial)
    assert not np.array_equal(chosen, unlike.indices if make is on_grid else unlike.points)


def make_plain(make: Any) -> Any:
    """The problem with failures whose values arrive all the same."""
    return jb.replace(problems.with_failures(make(-0.7), crashes), delay=delays.NoDelay())


def test_failures_are_rarer_where_they_are_learnt() -> None:
    problem = problems.with_failures(on_grid(0.0), np.asarray(GRID.points)[:, 0] > 0.55)
    assert np.array_equal(problem.means, problems.with_failures(on_grid(0.0), crashes).means)
    assert float(problem.optimum().value) == pytest.approx(np.max(np.sin(5 * GRID.points[GRID.points[:, 0] <= 0.55, 0])))
    learnt = metrics.failures(problem, run(problem).indices)[:, -1]
    luck = metrics.failures(problem, run(problem, algorithm=jb.RandomSearch()).indices)[:, -1]
    assert np.mean(learnt) < np.mean(luck)


def test_failures_come_with_delays() -> None:
    late = problems.with_failures(jb.replace(on_grid(0.0), delay=delays.Constant(rounds=2)), crashes)
    arrivals, failed = np.asarray(run(late).arrivals), None
    failed = arrivals[..., 0] >= delays.NEVER
    assert failed.any() and np.array_equal(arrivals[..., 2], np.broadcast_to(np.arange(1, HORIZON + 1) + 2, failed.shape))
    problem = problems.with_failures(on_grid(0.0), crashes)
    assert np.asarray(run(problem, delay=delays.Failing(delay=delays.Constant(rounds=1))).arrivals)[0, 0, 2] == 2
