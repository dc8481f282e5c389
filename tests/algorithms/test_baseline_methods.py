"""Flags and refusals of baselines and safe sets."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import InvalidArgument, delays, domains, estimators, feedback, informed, kernels, problems
from jaxbandit.engine import simulation
from tests.support import conformance
from tests.support.algorithms import BASELINES
from tests.support.conformance import CONSTRAINTS

# Flags.


@pytest.mark.full
def test_a_safe_set_that_empties_falls_back_to_the_seeds_and_is_flagged() -> None:
    """The prior believes every point safe, and the data none of them."""
    domain = domains.grid([0.0], [1.0], 12)
    problem = problems.from_tables(domain, np.linspace(0, 1, 12), np.full(12, 2.0), noise=problems.Gaussian(variance=1e-4))
    model = jaxbandit.surrogate(
        domain, kernels.SquaredExponential(length_scale=0.5), noise_variance=0.01, prior_mean=[0.0, -4.0], form="features"
    )
    bounds = estimators.Bounds(reward_width=1.0, cost_width=2.0)
    options = {"horizon": 15, "trials": 2, "key": jax.random.key(0), "block": 1}
    for algorithm in (jaxbandit.SafeOpt(estimator=bounds, seeds=[2]), jaxbandit.SgpUcb(estimator=bounds, seeds=[2], warm_up=0.0)):
        run = jax.device_get(jaxbandit.simulate(problem, algorithm, model, **options))
        assert np.all(np.asarray(run.status) & int(jaxbandit.Status.SAFE_SET_EMPTIED) != 0), algorithm.name
        assert np.all(run.indices[:, -3:] == 2) and not np.all(run.indices[:, 0] == 2)
        assert np.all(jaxbandit.metrics.healthy(run.status)), "a note, not a failure"
        assert "fell back to its seed set" in jaxbandit.explain(int(run.status[0]))
    safe = jaxbandit.replace(problem, means=np.stack([np.linspace(0, 1, 12), np.full(12, -4.0)]))
    calm = jaxbandit.simulate(safe, jaxbandit.SafeOpt(estimator=bounds, seeds=[2]), model, **options)
    assert np.all(np.asarray(calm.status) & int(jaxbandit.Status.SAFE_SET_EMPTIED) == 0)
    # A set that was never more than its seeds has not emptied.
    doubting = jaxbandit.replace(model, prior_mean=np.array([0.0, 4.0]))
    never = jaxbandit.simulate(problem, jaxbandit.SafeOpt(estimator=bounds, seeds=[2]), doubting, **options)
    assert np.all(np.asarray(never.status) & int(jaxbandit.Status.SAFE_SET_EMPTIED) == 0) and np.all(np.asarray(never.indices) == 2)


@pytest.mark.parametrize("build", [jaxbandit.SgpUcb, jaxbandit.SafeOpt])
def test_a_seed_outside_the_domain_is_refused_or_fails_the_trial(build: Callable[..., Any]) -> None:
    """An instance's seeds are checked at run time."""
    with pytest.raises(InvalidArgument, match=rf"{build.__name__}\.seeds: must lie in \[0, \d+\]"):
        conformance.simulate(build(seeds=[1, 10_000]), horizon=3, trials=1)

    def told(instance: Any, algorithm: Any, surrogate: Any) -> Any:
        return jaxbandit.replace(algorithm, seeds=jnp.asarray([1, 10_000], jnp.int32)), surrogate

    run = conformance.simulate(build(), horizon=3, trials=1, informed=told, block=1)
    assert np.all(np.asarray(run.status) & int(jaxbandit.Status.NONFINITE_SCORE) != 0) and np.all(run.failed_round == 1)


@pytest.mark.full
def test_nan_feedback_is_flagged_and_chooses_nothing() -> None:
    @jax.jit
    def chosen(algorithms: dict[str, Any], surrogate: jaxbandit.Surrogate, values: jax.Array) -> dict[str, jax.Array]:
        arena = jaxbandit.algorithms.Arena(surrogate=surrogate, horizon=jnp.int32(3))
        seen = jaxbandit.algorithms.Observation(index=jnp.int32(3), values=values)
        states = {name: own.update(arena, own.init(arena), seen, jnp.int32(1)) for name, own in algorithms.items()}
        return {name: own.select(arena, states[name], jnp.int32(9), jax.random.key(0))[0].index for name, own in algorithms.items()}

    # Otherwise round 1 would choose it.
    surrogate, seeds = jaxbandit.replace(conformance.surrogate(), kernels=()), {"seeds": np.array([0])}
    algorithms = {name: BASELINES[name]() for name in ("cei", "constrained-thompson", "safeopt", "stageopt", "sgp-ucb")}
    algorithms |= {name: jaxbandit.replace(algorithms[name], **seeds) for name in ("safeopt", "stageopt", "sgp-ucb")}
    for value, is_nan in ((np.nan, True), (0.0, False)):
        for name, index in chosen(*jaxbandit.canonicalise((algorithms, surrogate)), np.full(1 + CONSTRAINTS, value, np.float32)).items():
            assert (int(index) == surrogate.domain.size) == is_nan and int(index) <= surrogate.domain.size, name


# Refusals.


def check(algorithm: Any, constraints: int = 2) -> None:
    algorithm.validate(outputs=1 + constraints)


def test_refused_before_anything_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    class CompiledError(Exception):
        pass

    def stop(*args: Any, **kwargs: Any) -> None:
        raise CompiledError

    monkeypatch.setattr(simulation, "play_all", stop)
    with pytest.raises(InvalidArgument, match=r"SafeOpt\.threshold"):
        conformance.simulate(jaxbandit.SafeOpt(threshold=-1.0))
    with pytest.raises(CompiledError):
        conformance.simulate(jaxbandit.SafeOpt(seeds=[0, 29], lipschitz=[1.0, 2.0]))


KINDS: list[Callable[..., Any]] = [
    jaxbandit.SafeOpt,
    lambda **given: jaxbandit.StageOpt(exploration=20.0, **given),
    lambda **given: jaxbandit.SgpUcb(warm_up=10.0, **given),
]
LINE = domains.grid([0.0], [1.0], 60)
PLACE = np.linspace(0, 1, 60)
KERNEL = kernels.SquaredExponential(length_scale=0.2)


def line(cost: np.ndarray) -> problems.Problem:
    return problems.from_tables(LINE, np.sin(7 * PLACE), [cost], noise=problems.Gaussian(variance=1e-4))


def play(problem: Any, algorithm: Any, *, kernel: Any = KERNEL, prior_mean: Any = 0.0, noise_variance: float = 1e-4, **options: Any) -> Any:
    model = jaxbandit.surrogate(problem.domain, kernel, noise_variance=noise_variance, prior_mean=prior_mean)
    return jaxbandit.simulate(problem, algorithm, model, **{"horizon": 40, "trials": 2, "key": 0, "record": "all"} | options)


@pytest.mark.full(but=("SafeOpt",))
@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_that_is_unsafe_is_flagged_and_warned_of(kind: Callable[..., Any]) -> None:
    problem = line(PLACE - 0.6)
    with pytest.warns(UserWarning) as said:
        run = play(problem, kind(seeds=[59]))
    both = int(jaxbandit.Status.SEED_UNSAFE | jaxbandit.Status.NO_SAFE_POINT)
    assert np.all(np.asarray(run.status) & both == both) and np.all(run.indices == 59)
    words = " ".join(str(one.message) for one in said)
    assert "a constraint does not hold at a seed" in words and "give seeds that are known to be safe" in words
    # The unsafe seed is dropped.
    with pytest.warns(UserWarning, match="does not hold at a seed"):
        run = play(problem, kind(seeds=[59, 6]))
    assert np.all(np.asarray(run.status) & both == int(jaxbandit.Status.SEED_UNSAFE))
    first = [int(np.flatnonzero(row == 59)[0]) for row in run.indices]
    for row, at in zip(run.indices, first, strict=True):
        assert not np.any(row[at + 1 :] == 59) and np.all(PLACE[row[at + 1 :]] < 0.6)


@pytest.mark.full(but=("SafeOpt",))
@pytest.mark.parametrize("kind", KINDS)
def test_a_set_that_stands_still_is_flagged_and_one_that_grows_is_not(kind: Callable[..., Any]) -> None:
    """Neighbours lie 1/6 of a length-scale away.

    The seed's margin is 0.3 prior deviations, and then 0.9.
    """
    domain = domains.grid([0.0, 0.0], [1.0, 1.0], 30)
    squares = np.sum((np.asarray(domain.points) - [0.3, 0.4]) ** 2, axis=1)
    for margin, grows in ((0.25, False), (0.9, True)):
        problem = problems.from_tables(
            domain, np.asarray(domain.points)[:, 0], [1.2 * squares - margin], noise=problems.Gaussian(variance=1e-4)
        )
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            run = play(problem, kind(seeds=[282]), kernel=kernels.SquaredExponential(length_scale=0.25), horizon=60)
        still = np.asarray(run.status) & int(jaxbandit.Status.SAFE_SET_STILL) != 0
        assert np.all(still != grows) and np.all([(len(set(row)) > 5) == grows for row in run.indices.tolist()])
        assert [str(one.message).count("smaller cost_width, a longer length-scale") for one in said] == ([] if grows else [1])


def test_a_set_that_has_stood_still_for_long_is_flagged_though_measurements_could_change_that() -> None:
    """A hundred values would certify a neighbour, and thirty do not."""
    problem = problems.from_tables(LINE, np.sin(7 * PLACE), [PLACE - 0.3], noise=problems.Gaussian(variance=1.0))
    for rounds, is_said in ((30, False), (40, True)):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            run = play(problem, jaxbandit.SafeOpt(seeds=[16]), noise_variance=1.0, horizon=rounds, trials=[0])
        assert np.all(run.indices == 16)
        assert np.all((np.asarray(run.status) & int(jaxbandit.Status.SAFE_SET_STILL) != 0) == is_said) and len(said) == is_said


@pytest.mark.full(but=("SafeOpt",))
@pytest.mark.parametrize("kind", KINDS)
def test_a_point_is_certified_by_values_that_have_arrived_alone(kind: Callable[..., Any]) -> None:
    """Hallucinated values shrink deviations and say nothing of constraints."""
    options = {"delay": delays.Constant(rounds=1000), "feedback": feedback.Hallucinate(), "prior_mean": [0.0, -1.0]}
    run = play(line(PLACE - 0.6), kind(seeds=[6]), horizon=30, **options)
    assert np.all(run.indices == 6)


def test_points_that_are_not_allowed_are_not_certified_and_seeds_are_chosen_all_the_same() -> None:
    allowed = (PLACE > 0.2) & (PLACE < 0.3)
    run = play(line(PLACE - 0.6), jaxbandit.SafeOpt(seeds=[10], allowed=allowed), kernel=kernels.SquaredExponential(length_scale=0.4))
    chosen = np.unique(run.indices)
    assert 10 in chosen and len(chosen) > 3 and np.all(allowed[chosen[chosen != 10]])


# Facts of an instance.


def told(algorithm: Any, hook: Any, *, horizon: int = 12, **changes: Any) -> jaxbandit.Trajectory:
    return conformance.simulate(algorithm, informed=hook, horizon=horizon, block=1, **changes)


def from_safe_seeds() -> jaxbandit.Trajectory:
    return told(jaxbandit.Anytime(algorithm=jaxbandit.SgpUcb(warm_up=12.0)), informed.SafestSeeds(count=4))


def test_the_safest_points() -> None:
    problem = conformance.study()[0]
    worst = np.asarray(problem.means)[1:].max(0)
    np.testing.assert_array_equal(informed.safest(problem, 4), np.argsort(worst)[:4])
    plain, model = informed.SafestSeeds(count=4)(problem, jaxbandit.SafeOpt(), "model")
    np.testing.assert_array_equal(plain.seeds, np.argsort(worst)[:4])
    assert model == "model"
    assert set(np.unique(from_safe_seeds().indices)) == set(np.argsort(worst)[:4])


@pytest.mark.full
def test_the_floor_and_the_ceiling() -> None:
    problem = conformance.study()[0]
    feasible = np.flatnonzero(np.all(np.asarray(problem.means)[1:] <= 0, axis=0))
    best = feasible[np.argmax(np.asarray(problem.means)[0, feasible])]
    anywhere = told(jaxbandit.RandomSearch(), None, horizon=200)
    counts = np.bincount(np.asarray(anywhere.indices).ravel(), minlength=problem.domain.size)
    expected = conformance.TRIALS * 200 / problem.domain.size
    # Chi-square with 29 degrees of freedom: mean 29, variance 58.
    assert np.sum((counts - expected) ** 2 / expected) < 29 + 5 * np.sqrt(58)
    assert np.all(np.asarray(anywhere.information_gain) == 0)
    lucky = jax.device_get(told(jaxbandit.RandomSearch(), informed.FeasiblePoints(), horizon=100))
    assert set(np.unique(lucky.indices)) == set(feasible)
    assert int(informed.BestPoint()(problem, jaxbandit.Oracle(), None)[0].index) == best


@pytest.mark.full
def test_nothing_feasible() -> None:
    """All points then count as feasible, and the optimum violates least."""
    problem = conformance.study()[0]
    hopeless = jaxbandit.replace(problem, means=np.concatenate([problem.means[:1], np.asarray(problem.means)[1:] + 9]))
    # The test above has compiled the program.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conformance, "study", lambda: (hopeless, None))
        lucky = jax.device_get(told(jaxbandit.RandomSearch(), informed.FeasiblePoints(), horizon=100))
    assert len(np.unique(lucky.indices[0, :30])) > 10 and np.all(jaxbandit.metrics.healthy(lucky.status))
    assert int(informed.BestPoint()(hopeless, jaxbandit.Oracle(), None)[0].index) == np.asarray(hopeless.means)[1:].max(0).argmin()


def test_equal_hooks_are_one_program() -> None:
    from_safe_seeds()
    with conformance.no_new_program():
        from_safe_seeds()
    assert informed.SafestSeeds(count=2) != informed.SafestSeeds(count=3)


def test_a_value_out_of_range_flags_the_trial() -> None:
    def less_one(instance: Any, algorithm: Any, surrogate: Any) -> Any:
        width = jaxbandit.replace(algorithm.estimator, cost_width=algorithm.penalty_growth - 1)
        return jaxbandit.replace(algorithm, estimator=width), surrogate

    growths = jaxbandit.sweep(jaxbandit.Rpol(), {"penalty_growth": [0.5, 1.0, 1.5]})
    with pytest.warns(UserWarning, match="gave the algorithm a hyper-parameter outside its range"):
        run = told(growths, less_one)
    outside = np.asarray(run.status) & int(jaxbandit.Status.OUT_OF_RANGE) != 0
    assert outside.all(axis=1).tolist() == outside.any(axis=1).tolist() == [True, True, False]


def test_an_oracle_that_nobody_tells() -> None:
    with pytest.raises(InvalidArgument, match=r"Oracle\.index: nobody told it the optimum"):
        told(jaxbandit.Oracle(), None)
