"""Equality constraints as pairs of inequalities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import canonicalise, domains, kernels, problems
from jaxbandit.problems import with_equalities
from tests.oracles import bandit, policies, ucb_policies
from tests.oracles import gaussian_process as gp

ROW = np.linspace(-1.0, 1.0, 6)


def three(noise=None):
    """Six arms with a reward and three constraints of different scale."""
    means = np.stack([ROW**2, ROW, 10 * ROW, 100 * ROW])
    return problems.from_tables(domains.arms(6), means[0], means[1:], noise=noise, name="three")


def test_an_equality_becomes_two_rows_in_its_place():
    problem = with_equalities(three(), [3, 1], tolerance=[5.0, 0.25])
    want = [ROW**2, ROW - 0.25, -ROW - 0.25, 10 * ROW, 100 * ROW - 5, -100 * ROW - 5]
    np.testing.assert_array_equal(problem.means, want)
    assert problem.means.dtype == np.float64
    assert (problem.constraints, problem.name) == (5, "three")
    problem.validate()


def test_all_constraints_are_equalities_by_default():
    problem = with_equalities(three(), tolerance=0.5)
    np.testing.assert_array_equal(problem.means, with_equalities(three(), [1, 2, 3], tolerance=[0.5, 0.5, 0.5]).means)
    assert problem.constraints == 6


def test_the_optimum_is_the_best_point_within_the_tolerance():
    domain = domains.grid([-2.0, -2.0], [2.0, 2.0], 21)
    x, y = np.asarray(domain.points).T
    circle = x**2 + y**2 - 1
    problem = with_equalities(problems.from_tables(domain, 2 * x + y, circle), tolerance=0.1)
    best = problems.optimum(problem)
    near = np.abs(circle) <= 0.1
    assert 0 < near.sum() < 60
    assert float(best.value) == pytest.approx((2 * x + y)[near].max(), rel=1e-6)
    assert float(best.feasible_fraction) == pytest.approx(near.mean(), rel=1e-6)
    assert float(best.slater_slack) == pytest.approx((0.1 - np.abs(circle)).max(), rel=1e-5)
    value, policy = problems.best_mixed_policy(problem)
    # A mixture may leave the circle.
    assert abs(policy @ circle) <= 0.1 + 1e-9 and value >= float(best.value)


NOISES = {
    "gaussian": problems.Gaussian(variance=np.array([1.0, 4.0, 9.0, 16.0])),
    "residuals": problems.Residuals(table=np.arange(18.0).reshape(3, 6), weights=np.array([1.0, -1.0, 2.0, 3.0])),
    "per output": problems.PerOutput(models=(problems.Noiseless(), *(problems.Uniform(half_width=w) for w in (1.0, 2.0, 3.0)))),
    "per point": problems.PerPoint(model=problems.Gaussian()),
}


@jax.jit
def reading(problem, key, index):
    return problem.observe(index, problem.draw(key))


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_both_inequalities_see_the_reading_of_the_problem_itself(noise):
    plain = canonicalise(three(noise))
    problem = canonicalise(with_equalities(three(noise), [1, 3], tolerance=[0.25, 0.5]))
    problem.validate()
    for number in range(5):
        read = jax.random.key(number), np.int32(number)
        reward, h1, g2, h3 = np.asarray(reading(plain, *read))
        seen = np.asarray(reading(problem, *read))
        np.testing.assert_allclose(seen, [reward, h1 - 0.25, -h1 - 0.25, g2, h3 - 0.5, -h3 - 0.5], rtol=1e-5, atol=1e-5)
        assert np.any(np.abs(seen - np.asarray(problem.means)[:, number]) > 1e-3), "the case must be noisy"


@pytest.mark.parametrize("noise", ["shared", "independent"])
def test_under_full_information(noise):
    problem = problems.full_information(with_equalities(three(), [1], tolerance=0.5), noise=noise)
    assert isinstance(problem, problems.FullInformation)
    problem.validate()

    @jax.jit
    def shown(problem):
        instance = problem.sample(jax.random.key(1))
        drawn = instance.draw(jax.random.key(2))
        return instance.constraint_sample(drawn), instance.observe(jnp.int32(4), drawn)

    seen, observed = jax.device_get(shown(canonicalise(problem)))
    assert seen.shape == (4, 6)
    np.testing.assert_allclose(seen[0] + seen[1], -np.ones(seen.shape[1]), atol=1e-4)
    np.testing.assert_allclose(observed[1:], seen[:, 4], rtol=1e-6, atol=1e-6)


def test_a_tolerance_may_be_traced():
    wide = jax.jit(lambda tolerance: jnp.asarray(with_equalities(three(), [1], tolerance=tolerance).means))(0.5)
    np.testing.assert_allclose(wide, with_equalities(three(), [1], tolerance=0.5).means, rtol=1e-6)


# Algorithms in float64 against a dense solve of every round.

SIDE, HORIZON, LENGTH_SCALE, NOISE, TOLERANCE = 9, 25, 0.3, 0.01, 0.3
CLIPS = {"reward_clip": 2.0, "cost_clip": 1.5, "dual_cap": 4.0}
ALGORITHMS = {"config": (jaxbandit.Config, {}), "rpol": (jaxbandit.Rpol, {}), "cbo": (jaxbandit.Cbo, CLIPS)}


def smooth(seed=0):
    """Return a smooth reward, an ``h``, and their Gram matrix.

    ``h`` is far below 0 where the reward is high.
    """
    domain = domains.grid([0.0, 0.0], [1.0, 1.0], SIDE)
    points = np.asarray(domain.points)
    gram = gp.squared_exponential(points, points, LENGTH_SCALE)
    reward, other = gp.random_functions(gram, 2, np.random.default_rng(seed))
    return problems.from_tables(domain, reward, other - reward, noise=problems.Gaussian(variance=NOISE)), gram


def play(name, problem, prior_mean):
    """One trial in float64, and its record."""
    with jax.enable_x64(True):
        made, parameters = ALGORITHMS[name]
        algorithm = made(estimator=jaxbandit.estimators.Bounds(reward_width=2.0, cost_width=2.0), **parameters)
        kernel = kernels.SquaredExponential(length_scale=LENGTH_SCALE)
        model = jaxbandit.surrogate(
            problem.domain, kernel, noise_variance=NOISE, outputs=problem.outputs, prior_mean=prior_mean, horizon=HORIZON
        )
        run = jaxbandit.simulate(problem, algorithm, model, horizon=HORIZON, block=1, key=jax.random.key(2))
    nothing = np.zeros((0, problem.outputs))
    record = bandit.Record(
        indices=np.asarray(run.indices[0]), values=np.asarray(run.values[0]), initial_indices=np.zeros(0, int), initial_values=nothing
    )
    assert record.values.dtype == np.float64
    return run, record


@pytest.mark.full
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_choice_under_one_equality_is_the_papers_for_two_inequalities(name):
    problem, gram = smooth()
    prior_mean = [0.0, -TOLERANCE, -TOLERANCE]
    run, record = play(name, with_equalities(problem, tolerance=TOLERANCE), prior_mean)
    model = bandit.Model(grams=np.stack([gram] * 3), noise=np.full(3, NOISE), prior_mean=np.array(prior_mean), width=bandit.constant(2.0))
    if name == "config":
        replay = ucb_policies.config(model, record)
        assert ucb_policies.config_faults(replay, record.indices, int(run.declared_round[0]), 1e-8) == []
        # The rule is not so weak that others pass: the unconstrained best point, and the best point of h <= tolerance alone, break it.
        one_sided = replay.lcb[:, 0]
        for allowed in (np.full_like(one_sided, True, bool), one_sided <= 0):
            other = np.where(allowed, replay.ucb, -np.inf).argmax(1)
            assert len(ucb_policies.config_faults(replay, other, 0, 1e-3)) > 3
    else:
        bounds = {"reward_bound": 2.0, "cost_bound": 1.5, "cap": 4.0} if name == "cbo" else {}
        replay = getattr(policies, name)(model, record, strategy="bounds", **bounds)
        assert bandit.score_gaps(replay.scores, record.indices).max() <= 1e-8
        np.testing.assert_allclose(np.asarray(run.multipliers[0]), replay.multipliers, rtol=1e-8, atol=1e-8)


def test_config_on_an_equality_is_one_posterior_of_h():
    """The choice has ``|mean of h| <= tolerance + beta sd``."""
    problem, gram = smooth()
    run, record = play("config", with_equalities(problem, tolerance=TOLERANCE), [0.0, -TOLERANCE, -TOLERANCE])
    readings = record.values[:, 1] + TOLERANCE
    hidden = 0
    for t, chosen in enumerate(record.indices):
        reward, sd = gp.mean_and_sd(gram, record.indices[:t], record.values[:t, 0], NOISE)
        h, _ = gp.mean_and_sd(gram, record.indices[:t], readings[:t], NOISE)
        allowed = np.abs(h) <= TOLERANCE + 2 * sd
        upper = reward + 2 * sd
        assert allowed[chosen] and upper[chosen] == pytest.approx(upper[allowed].max(), abs=1e-8)
        hidden += int(upper.argmax() != chosen)
    assert hidden > 5, "the equality must matter"
    assert int(run.declared_round[0]) == 0


def test_config_declares_an_equality_that_cannot_hold():
    problem, _ = smooth()
    high = problems.from_tables(problem.domain, problem.means[0], problem.means[1] - problem.means[1].min() + 0.5, noise=problem.noise)
    run, _ = play("config", with_equalities(high, tolerance=0.1), [0.0, -0.1, -0.1])
    status = int(run.status[0])
    assert status & jaxbandit.Status.NO_FEASIBLE_POINT and status & jaxbandit.Status.DECLARED_INFEASIBLE
    assert 1 < int(run.declared_round[0]) <= HORIZON
