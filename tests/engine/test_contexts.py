"""Domains with contexts.

Each choice is compared with a dense float64 reference among the actions of its context, and measures with brute force.
"""

import functools
import json
import tomllib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

import jaxbandit
from jaxbandit import Pdcbo, Status, delays, domains, estimators, feedback, informed, kernels, metrics, problems, study
from jaxbandit.algorithms import Arena
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.keys import Stream, round_key, stream_key, trial_key
from tests.oracles import bandit, pdcbo, policies, ucb_policies
from tests.oracles import gaussian_process as gp

ACTIONS, CONTEXTS, HORIZON, TRIALS = 8, 5, 40, 2
LENGTH_SCALE, NOISE = 0.35, 0.01
WIDTH = 1.5
BOUNDS = estimators.Bounds(reward_width=WIDTH, cost_width=WIDTH)
LAW = [0.1, 0.2, 0.3, 0.25, 0.15]
SEQUENCE = [4, 0, 0, 2, 1, 3]


def domain(**law: Any) -> domains.Contextual:
    return domains.with_contexts(domains.grid([0.0], [1.0], ACTIONS), domains.grid([0.0], [1.0], CONTEXTS), **law)


@functools.cache
def problem(*, sequence: bool = False, contexts: bool = True) -> problems.Problem:
    """Two constraints, each feasible somewhere in every context."""
    plain = domain(sequence=SEQUENCE) if sequence else domain(probabilities=LAW)
    points = np.asarray(plain.points)
    rng = np.random.default_rng(3)
    reward, *costs = gp.random_functions(gp.matern52(points, points, LENGTH_SCALE), 3, rng)
    costs = [0.5 * reward + cost for cost in costs]
    # The largest of both constraints has a feasible action in every context.
    least = np.max(costs, axis=0).reshape(CONTEXTS, ACTIONS).min(axis=1)
    table = np.stack([cost - np.repeat(least, ACTIONS) - 0.3 for cost in costs])
    place = plain if contexts else domains.product(plain.axes)
    return problems.from_tables(place, reward, table, noise_variance=NOISE)


def model(given: problems.Problem, form: str = "features") -> jaxbandit.Surrogate:
    return given.model(kernels.Matern52(length_scale=LENGTH_SCALE), form=form)


@functools.cache
def reference() -> bandit.Model:
    points = np.asarray(problem().domain.points)
    gram = gp.matern52(points, points, LENGTH_SCALE)
    return bandit.Model(np.stack([gram] * 3), np.full(3, NOISE), np.zeros(3), bandit.constant(WIDTH))


def run(algorithm: Any, **options: Any) -> jaxbandit.Trajectory:
    given = options.pop("problem", problem())
    with jax.enable_x64(True):
        played = jaxbandit.simulate(
            given, algorithm, model(given), horizon=HORIZON, trials=TRIALS, key=7, initial=jaxbandit.InitialDesign(indices=[0]), **options
        )
    return jax.tree.map(np.asarray, played)


def scores_of_config(model: bandit.Model, record: bandit.Record) -> np.ndarray:
    replay = ucb_policies.config(model, record)
    return np.where(replay.worst <= 0, replay.ucb, -1e9)


Replay = Callable[[bandit.Model, bandit.Record], Any]
PLAYED: dict[str, tuple[Any, Replay]] = {
    "rpol": (jaxbandit.Rpol(estimator=BOUNDS), functools.partial(policies.rpol, strategy="bounds")),
    "cbo": (
        jaxbandit.Cbo(estimator=BOUNDS, reward_clip=6.0, cost_clip=6.0),
        functools.partial(policies.cbo, strategy="bounds", reward_bound=6.0, cost_bound=6.0, cap=10.0),
    ),
    "config": (jaxbandit.Config(estimator=BOUNDS), scores_of_config),
    "epbo": (jaxbandit.Epbo(estimator=BOUNDS, penalty=2.0), functools.partial(policies.epbo, strategy="bounds", penalty=np.full(2, 2.0))),
    "primal-dual": (
        jaxbandit.PrimalDual(estimator=BOUNDS, step=0.5),
        functools.partial(policies.primal_dual, first=np.ones(2), step=0.5),
    ),
    "pdcbo": (Pdcbo(estimator=BOUNDS), pdcbo.replay),
    "pdcbo-decaying": (
        Pdcbo(estimator=BOUNDS, step=3.0, decay=0.5, initial_multiplier=0.5),
        functools.partial(pdcbo.replay, step=3.0, decay=0.5, first=0.5),
    ),
    "pdcbo-estimate": (
        Pdcbo(estimator=BOUNDS, dual="estimate", tightening=0.1, initial_multiplier=0.0),
        functools.partial(pdcbo.replay, observed=False, epsilon=0.1, first=0.0),
    ),
}


def in_context(scores: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return scores ``[T, M]`` without the actions of other contexts."""
    return np.where(np.arange(scores.shape[1]) // ACTIONS == (indices // ACTIONS)[:, None], scores, -1e12)


def gap(scores: np.ndarray, indices: np.ndarray) -> float:
    return float(bandit.score_gaps(in_context(scores, indices), indices).max())


@pytest.mark.full(but=("pdcbo", "pdcbo-estimate"))
@pytest.mark.parametrize("name", PLAYED)
def test_every_choice_is_the_best_action_of_its_context(name: str) -> None:
    algorithm, replay = PLAYED[name]
    played = run(algorithm)
    assert len(np.unique(played.indices // ACTIONS)) == CONTEXTS
    for trial in range(TRIALS):
        record = bandit.Record(played.indices[trial], played.values[trial], played.initial_indices[trial], played.initial_values[trial])
        found = replay(reference(), record)
        scores = getattr(found, "scores", found)
        assert gap(scores, record.indices) < 1e-8
        # Among all points another one is the best in some round.
        assert bandit.score_gaps(scores, record.indices).max() > 1e-3
        if hasattr(found, "multipliers"):
            np.testing.assert_allclose(played.multipliers[trial], found.multipliers, rtol=1e-8, atol=1e-8)


def test_another_dual_step_is_not_the_reference() -> None:
    played = run(PLAYED["pdcbo"][0])
    record = bandit.Record(played.indices[0], played.values[0], played.initial_indices[0], played.initial_values[0])
    assert gap(pdcbo.replay(reference(), record, observed=False).scores, record.indices) > 1e-3
    assert gap(pdcbo.replay(reference(), record, first=0.0).scores, record.indices) > 1e-3


@pytest.mark.full(but=("observed",))
@pytest.mark.parametrize("dual", ["observed", "estimate"])
def test_late_values_move_an_observed_dual_when_they_arrive_and_an_estimated_one_at_once(dual: str) -> None:
    late = 3
    algorithm = Pdcbo(estimator=BOUNDS, dual=dual, step=2.0, decay=0.5)
    played = run(algorithm, delay=delays.Constant(rounds=late), feedback=feedback.Wait())
    known = reference()
    for trial in range(TRIALS):
        indices, values = played.indices[trial], played.values[trial]
        phi = np.ones(2)
        for t in range(1, HORIZON + 1):
            # At the start of round t the values of rounds up to t - 1 - late have arrived.
            seen = max(t - 1 - late, 0)
            data = np.append(played.initial_indices[trial], indices[:seen])
            mean, sd, _ = gp.beliefs(
                known.grams, data, np.vstack([played.initial_values[trial], values[:seen]]), known.noise, known.prior_mean
            )
            lower = mean[1:] - WIDTH * sd[1:]
            score = mean[0] + WIDTH * sd[0] - phi @ lower
            np.testing.assert_allclose(played.multipliers[trial, t - 1], phi, rtol=1e-8, atol=1e-8)
            assert gap(score[None], indices[t - 1 : t]) < 1e-8
            arriving = values[t - 1 - late, 1:] if t > late else np.zeros(2)
            phi = np.maximum(phi + 2.0 / t**0.5 * (arriving if dual == "observed" else lower[:, indices[t - 1]]), 0)


def test_contexts_follow_their_law_and_are_the_same_for_all_algorithms() -> None:
    first, other = run(PLAYED["pdcbo"][0]), run(jaxbandit.RandomSearch())
    np.testing.assert_array_equal(first.indices // ACTIONS, other.indices // ACTIONS)
    assert not np.array_equal(first.indices, other.indices)
    place = problem().domain
    drawn = np.asarray(jax.vmap(lambda key: place.draw(key, jnp.int32(1)))(jax.random.split(jax.random.key(1), 4000)))
    # Four standard errors of a share at 4,000 draws are at most 0.029.
    np.testing.assert_allclose(np.bincount(drawn, minlength=CONTEXTS) / 4000, LAW, atol=0.029)
    given = run(jaxbandit.RandomSearch(), problem=problem(sequence=True))
    np.testing.assert_array_equal(given.indices // ACTIONS, np.tile(SEQUENCE, 7)[None, :HORIZON].repeat(TRIALS, 0))


SAME = {
    "rpol": jaxbandit.Rpol(),
    "cei": jaxbandit.Cei(),
    "thompson": jaxbandit.Unconstrained(estimator=estimators.Thompson()),
    "safeopt": jaxbandit.SafeOpt(seeds=[2]),
    "scgp": jaxbandit.Scgp(reward_clip=6.0),
}


@pytest.mark.full(but=("rpol",))
@pytest.mark.parametrize("name", SAME)
def test_one_context_changes_no_bit(name: str) -> None:
    """The same run without contexts, by another domain."""
    actions = domains.product(problem().domain.axes)
    alone = domains.with_contexts(actions, domains.points([[0.5]]))
    given = problem(contexts=False)
    other = problems.from_tables(alone, given.means[0], given.means[1:], noise_variance=NOISE)
    model = given.model(kernels.Matern52(length_scale=LENGTH_SCALE), form="features")
    if name == "scgp":
        given, other = (problems.full_information(each) for each in (given, other))
    options = {"horizon": 25, "trials": 2, "key": 3, "block": 1}
    expected = jaxbandit.simulate(given, SAME[name], model, **options)
    played = jaxbandit.simulate(other, SAME[name], jaxbandit.replace(model, domain=alone), **options)
    for field in ("indices", "values", "multipliers", "widths", "status"):
        np.testing.assert_array_equal(getattr(played, field), getattr(expected, field), err_msg=field)


def test_scores_are_made_among_the_actions_alone() -> None:
    """The scores of a round have no number for every point."""
    shapes = []

    class Looking(Pdcbo):
        def score(self, state: Any, estimate: Any) -> Any:
            shapes.append((estimate.reward.shape, estimate.costs.shape))
            return super().score(state, estimate)

    given = problem()
    own = jaxbandit.canonicalise(model(given))
    arena = Arena(surrogate=own, horizon=jnp.int32(9), context=jnp.int32(2))
    algorithm = jaxbandit.canonicalise(jaxbandit.pytree(Looking)())
    state = algorithm.init(jaxbandit.replace(arena, context=None))
    decision, _ = algorithm.select(arena, state, jnp.int32(1), jax.random.key(0))
    assert shapes == [((ACTIONS,), (2, ACTIONS))] and arena.size == ACTIONS and 0 <= int(decision.index) < ACTIONS


def test_joint_draws_and_covariances_are_those_of_the_context() -> None:
    given = problem()
    own = jaxbandit.canonicalise(model(given))
    posterior = own.condition(own.init(), jnp.int32(9), jnp.zeros(3))
    arena = Arena(surrogate=own, horizon=jnp.int32(9))
    state = Pdcbo().init(arena)
    state = jaxbandit.replace(state, posterior=posterior)
    whole, part = arena.belief(state), jaxbandit.replace(arena, context=jnp.int32(1)).belief(state)
    here = slice(ACTIONS, 2 * ACTIONS)
    key, scale = jax.random.key(4), jnp.ones(3)
    np.testing.assert_array_equal(part.draw(key, scale), whole.draw(key, scale)[:, here])
    np.testing.assert_array_equal(part.covariance(1, jnp.array([3])), whole.covariance(1, jnp.array([ACTIONS + 3]))[:, here])
    np.testing.assert_array_equal(part.arrived.mean, whole.arrived.mean[:, here])


# Measures.


def test_regret_is_against_the_best_feasible_action_of_each_context() -> None:
    given, played = problem(), run(PLAYED["pdcbo"][0])
    means = np.asarray(given.means)
    expected = []
    for z in played.indices[0] // ACTIONS:
        f, *g = means[:, z * ACTIONS : (z + 1) * ACTIONS]
        expected.append(f[np.max(g, axis=0) <= 0].max())
    curves = metrics.curves(given, played.indices[0])
    np.testing.assert_allclose(curves.regret, np.cumsum(expected - means[0, played.indices[0]]), rtol=1e-12, atol=1e-12)
    best = problems.optimum(given)
    assert best.value.shape == (CONTEXTS,) and np.all(best.index // ACTIONS == np.arange(CONTEXTS))
    np.testing.assert_array_equal(best.value, means[0, best.index])


def test_a_context_without_a_feasible_action_has_no_regret_and_a_flag() -> None:
    given = problem()
    means = np.array(given.means)
    means[1, :ACTIONS] = 1.0
    other = problems.from_tables(given.domain, means[0], means[1:], noise_variance=NOISE)
    assert not bool(other.has_feasible_point()) and np.isnan(problems.optimum(other).value[0])
    # A sequence that never comes to the context has no need of it.
    some = problems.from_tables(domain(sequence=[1, 2, 3, 4]), means[0], means[1:], noise_variance=NOISE)
    assert bool(some.has_feasible_point())


def test_the_best_stationary_policy_keeps_average_constraints() -> None:
    """The second of two contexts pays for violation in the first."""
    place = domains.with_contexts(domains.points([[0.0], [1.0]]), domains.points([[0.0], [1.0]]), probabilities=[0.25, 0.75])
    given = problems.from_tables(place, [0.0, 10.0, 2.0, 1.0], [-1.0, 3.0, 0.0, -1.0], noise_variance=0.1)
    value, policy = problems.best_mixed_policy(given)
    # By hand: in context 1 the second action costs 1 of reward and gains 1 of constraint, in context 0 it is 10 for 4. With the second
    # action always in context 0 the constraint has 0.25 * 3 = 0.75, which the second action of context 1, always, pays exactly.
    np.testing.assert_allclose((value, *policy), (0.25 * 10 + 0.75 * 1, 0.0, 0.25, 0.0, 0.75), atol=1e-9)
    best = problems.optimum(given)
    np.testing.assert_array_equal(best.value, [0.0, 2.0])
    # Another law by another way: the linear programme over pi(a | z) itself.
    given, shares = problem(), np.asarray(LAW)
    f, *g = (row.reshape(CONTEXTS, ACTIONS) * shares[:, None] for row in np.asarray(given.means))
    sums = np.zeros((CONTEXTS, CONTEXTS, ACTIONS))
    sums[np.arange(CONTEXTS), np.arange(CONTEXTS)] = 1
    solved = linprog(-f.ravel(), [row.ravel() for row in g], [0, 0], sums.reshape(CONTEXTS, -1), np.ones(CONTEXTS), bounds=(0, None))
    np.testing.assert_allclose(problems.best_mixed_policy(given)[0], -solved.fun, rtol=1e-9)


# Safe sets.


def test_safe_sets_choose_seeds_and_certified_actions_of_the_context() -> None:
    width = 0.7
    algorithm = jaxbandit.SafeOpt(estimator=estimators.Bounds(reward_width=width, cost_width=width))
    played = run(algorithm, informed=informed.SafestSeeds(count=1))
    given, known = problem(), reference()
    worst = np.max(np.asarray(given.means)[1:], axis=0)
    seeds = worst.reshape(CONTEXTS, ACTIONS).argmin(axis=1) + ACTIONS * np.arange(CONTEXTS)
    np.testing.assert_array_equal(informed.safest(given, 1), seeds)
    beyond = 0
    for trial in range(TRIALS):
        record = bandit.Record(played.indices[trial], played.values[trial], played.initial_indices[trial], played.initial_values[trial])
        indices, values = np.append(record.initial_indices, record.indices), np.vstack([record.initial_values, record.values])
        for seen, index in enumerate(record.indices, start=1):
            if index not in seeds:
                mean, sd, _ = gp.beliefs(known.grams, indices[:seen], values[:seen], known.noise, known.prior_mean)
                assert np.max(mean[1:, index] + width * sd[1:, index]) <= 1e-8
                beyond += 1
    assert beyond > 0, "the safe set grew"


def test_a_context_without_a_seed_is_flagged() -> None:
    played = run(jaxbandit.SafeOpt(estimator=BOUNDS, seeds=[0]))
    assert np.all(played.status & int(Status.NO_SAFE_POINT))


# Refusals, studies and audits.


def test_bad_domains_are_refused() -> None:
    two, three = domains.points([[0.0], [1.0]]), domains.points([[0.0], [1.0], [2.0]])
    for words, options in {
        r"^probabilities: expected shape \[3\], got \[2\]": {"probabilities": [0.5, 0.5]},
        r"^probabilities: must have the sum 1, got 1\.2": {"probabilities": [0.4, 0.4, 0.4]},
        r"^probabilities: .*> 0": {"probabilities": [0.0, 0.5, 0.5]},
        r"^sequence: must lie in \[0, 2\]": {"sequence": [0, 3]},
        r"^sequence: give either it or probabilities": {"sequence": [0], "probabilities": [0.2, 0.4, 0.4]},
    }.items():
        with pytest.raises(InvalidArgument, match=words):
            domains.with_contexts(two, three, **options)
    with pytest.raises(InvalidArgument, match=r"^contexts: must be a finite domain without contexts"):
        domains.with_contexts(two, domains.box({"x": (0.0, 1.0)}))


@pytest.mark.parametrize("algorithm", [jaxbandit.Bpe(), jaxbandit.SafeOpt(count=2), jaxbandit.Cei(incumbent="observed")], ids=str)
def test_algorithms_that_need_all_points_are_refused(algorithm: Any) -> None:
    with pytest.raises(InvalidArgument, match="cannot choose among the actions of one context"):
        run(algorithm)


TABLE = """
name = "contexts"
trials = 2
horizon = 12
metrics = ["regret", "strong_regret", "hard_violation"]
[model]
kernel = {type = "Matern52", length_scale = 0.4}
noise_variance = 0.01
[problem.drawn]
type = "gp_draws"
kernel = {type = "Matern52", length_scale = 0.4}
noise = {type = "Gaussian", variance = 0.01}
[problem.drawn.domain]
type = "with_contexts"
actions = {type = "grid", low = [0.0], high = [1.0], points_per_axis = 6}
contexts = {type = "grid", low = [0.0], high = [1.0], points_per_axis = 3}
sequence = [2, 0, 1]
[algorithm.pdcbo]
type = "Pdcbo"
[algorithm.rpol]
type = "Rpol"
"""


@pytest.mark.full
def test_study_files_audits_and_reports_know_contexts() -> None:
    planned = study.from_table(tomllib.loads(TABLE))
    results = study.run_study(planned)
    assert np.all(np.isfinite(results.strong_regret.values))
    trace = study.audit(planned, planned.runs[0], 0)
    np.testing.assert_array_equal(trace["contexts"], np.tile([2, 0, 1], 4))
    np.testing.assert_array_equal(trace["indices"] // 6, trace["contexts"])
    assert json.loads(str(trace["meta"]))["contexts"]["axes"] == ["z1"]


def test_a_loop_of_ones_own_gives_the_context() -> None:
    given = problem(sequence=True)
    own, root = model(given), jax.random.key(7)
    learner, key = jaxbandit.Learner.of(Pdcbo(), own, horizon=9), trial_key(root, 0)

    def turn(state: Any, t: Any) -> Any:
        point, state = learner.ask(state, round_key(stream_key(key, Stream.POLICY), t), given.domain.draw(key, t))
        values = given.observe(point, given.draw(round_key(stream_key(key, Stream.NOISE), t)))
        return learner.tell(state, point, values), point

    points = jax.jit(lambda: jax.lax.scan(turn, learner.init(), jnp.arange(1, 10, dtype=jnp.int32)))()[1]
    np.testing.assert_array_equal(points, jaxbandit.simulate(given, Pdcbo(), own, horizon=9, key=root).indices[0])
    with pytest.raises(InvalidArgument, match=r"^context: the domain has contexts, got None"):
        learner.ask(learner.init(), key)
    with pytest.raises(InvalidArgument, match=r"^algorithm: Bpe cannot choose"):
        jaxbandit.Learner.of(jaxbandit.Bpe(), own, horizon=9)
