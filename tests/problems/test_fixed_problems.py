"""Facts of the fixed problems: CONFIG's P1 to P6, data rate allocation, queueing with full information."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import canonicalise, kernels, problems

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
    stated = 5e-5 if share < 0.1 else 5e-4  # half a unit of the last digit stated
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
    assert problem.means[1, 0] == 6  # no share, no service: arrivals only


def test_queueing_shows_the_arrivals_of_the_round():
    problem = canonicalise(problems.queueing(5))
    drawn = jax.vmap(problem.draw)(jax.random.split(jax.random.key(0), 4000))
    seen = np.asarray(jax.vmap(problem.constraint_sample)(drawn), np.float64)
    assert seen.shape == (4000, 1, 25)
    arrivals = seen[:, 0, 0]  # no share, so g_t is the count itself
    np.testing.assert_allclose(arrivals, np.round(arrivals), atol=1e-5)
    assert abs(arrivals.mean() - 6) < 5 * np.sqrt(6 / 4000)
    means = np.asarray(problem.means, np.float64)[1:]
    np.testing.assert_allclose(seen - means[None], np.broadcast_to((arrivals - 6)[:, None, None], seen.shape), atol=1e-4)


@jax.jit
def seen_of(problem, indices):
    """An instance, all constraints of a round there, and what is observed at ``indices [n]`` in that round, ``[n, 1 + m]``."""
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
    model = jaxbandit.surrogate(problem.domain, kernels.SquaredExponential(length_scale=0.2), noise_variance=0.01)
    run = jaxbandit.simulate(problem, jaxbandit.RandomSearch(), model, **options)
    assert np.all(np.isfinite(run.values))
    queue = problems.queueing(4)
    model = jaxbandit.surrogate(queue.domain, kernels.SquaredExponential(length_scale=0.5), noise_variance=0.01)
    run = jaxbandit.simulate(queue, jaxbandit.RandomSearch(), model, **options)
    assert np.all(np.isfinite(jaxbandit.metrics.curves(queue, run.indices).hard_violation))


def test_an_overloaded_queue_is_infeasible():
    assert np.isnan(float(problems.optimum(problems.queueing(5, arrival_rate=11.0)).value))
