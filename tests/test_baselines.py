"""What the baselines owe the engine, their refusals and flags, and what is told to some of them of each instance."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_conformance as conformance

import jaxbandit
from jaxbandit import (
    Anytime,
    Cei,
    ConstrainedThompson,
    InvalidArgument,
    Oracle,
    PrimalDual,
    RandomSearch,
    SafeOpt,
    SgpUcb,
    StageOpt,
    Status,
    delays,
    domains,
    estimators,
    informed,
    kernels,
    problems,
    replace,
    safety,
    widths,
)
from jaxbandit.simulate import batch

CONSTRAINTS = conformance.CONSTRAINTS
BASELINES: dict[str, Callable[[], Any]] = {
    "primal-dual": PrimalDual,
    "cei": Cei,
    "cei-observed": lambda: Cei(incumbent="observed", improvement=0.1),
    "constrained-thompson": ConstrainedThompson,
    "safeopt": lambda: SafeOpt(estimator=estimators.Bounds(reward_width=1.0, cost_width=0.5), count=3),
    "safeopt-lipschitz": lambda: SafeOpt(seeds=np.array([3, 7]), lipschitz=2.0),
    "stageopt": lambda: StageOpt(estimator=estimators.Bounds(reward_width=1.0, cost_width=0.5), count=3, exploration=5.0),
    "sgp-ucb": lambda: SgpUcb(estimator=estimators.Bounds(reward_width=1.0, cost_width=0.5), count=3, warm_up=4.0),
    "random-search": RandomSearch,
    "oracle": lambda: Oracle(index=7),
}
PLAIN = ("cei", "cei-observed", "random-search", "oracle")  # without confidence widths
every_baseline = pytest.mark.parametrize("name", BASELINES)


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks of ``test_conformance`` look algorithms up by name."""
    for name, build in BASELINES.items():
        monkeypatch.setitem(conformance.ALGORITHMS, name, build)


@every_baseline
def test_valid_and_a_pytree(name: str) -> None:
    conformance.test_default_construction_is_valid_and_named(name)
    algorithm = BASELINES[name]()
    type(algorithm)().validate(CONSTRAINTS)
    leaves, structure = jax.tree.flatten(algorithm)
    again = jax.tree.unflatten(structure, leaves)
    assert type(again) is type(algorithm) and jax.tree.structure(jax.jit(lambda x: x)(algorithm)) == structure
    arrays = jaxbandit.canonicalise(algorithm)
    conformance.assert_same(jaxbandit.canonicalise(arrays), arrays, tolerance=0)
    integers = {"seeds"}
    for path, x in jax.tree_util.tree_leaves_with_path(arrays):
        assert jnp.issubdtype(x.dtype, jnp.integer if path[0].name in integers else jnp.floating), path
    with pytest.raises(AttributeError):
        algorithm.name = "other"


@pytest.mark.parametrize("precision", ["float32", "float64"])
@every_baseline
def test_the_carry_is_stable(name: str, precision: str) -> None:
    conformance.test_the_carry_is_stable(name, precision)


@functools.cache
def batched(name: str, **options: Any) -> jaxbandit.Trajectory:
    """Five trials side by side, in float64."""
    with jax.enable_x64(True):
        run = conformance.simulate(BASELINES[name](), block=conformance.TRIALS, **options)
        return jax.tree.map(np.asarray, run)


BATCHED = ("cei-observed", "constrained-thompson", "safeopt", "stageopt")


@pytest.mark.parametrize("name", BATCHED)
def test_side_by_side_equals_one_by_one(name: str) -> None:
    """A batch has one loop over candidates for all its trials; a trial by itself has its own."""
    with jax.enable_x64(True):
        alone = conformance.simulate(BASELINES[name](), block=1)
    conformance.assert_same(jax.tree.map(np.asarray, alone), batched(name), tolerance=1e-9)
    assert len({x.tobytes() for x in batched(name).values}) == conformance.TRIALS


@every_baseline
def test_results_are_finite_and_of_the_engines_type(name: str) -> None:
    algorithm = BASELINES[name]()
    single = conformance.simulate(algorithm)
    runs = {"float32": single} | ({"float64": batched(name)} if name in BATCHED else {})
    for precision, run in runs.items():
        for field in ("values", "multipliers", "widths", "information_gain"):
            array = np.asarray(getattr(run, field))
            assert array.dtype == precision and np.all(np.isfinite(array)), field
        assert np.all(np.asarray(run.multipliers) >= 0) and np.all(np.asarray(run.failed_round) == 0)
        assert np.all((np.asarray(run.widths) > 0) == (name not in PLAIN))
        assert np.all((np.asarray(run.indices) >= 0) & (np.asarray(run.indices) < conformance.study()[0].domain.size))
        assert np.all(jaxbandit.metrics.healthy(jnp.asarray(run.status)))
        assert len(np.unique(run.indices)) > 1 or name in ("oracle", "safeopt-lipschitz")
    # Hyper-parameters and seeds are data.
    assert conformance.traces(lambda: conformance.simulate(algorithm, seed=1)) == 0
    floats = jax.tree.map(lambda x: x if np.issubdtype(np.asarray(x).dtype, np.integer) else x * 0.75, algorithm)
    assert conformance.traces(lambda: conformance.simulate(floats)) == 0
    again, other = conformance.simulate(algorithm), conformance.simulate(algorithm, seed=1)
    conformance.assert_same(again, single, tolerance=0)
    assert not np.any(np.asarray(other.values) == np.asarray(single.values))


@pytest.mark.parametrize("name", ["cei-observed", "safeopt"])
def test_no_delay_is_a_delay_of_nothing(name: str) -> None:
    """The same decisions when what is observed takes the way of delayed feedback, and different ones when it is late."""
    with jax.enable_x64(True):
        at_once = conformance.simulate(BASELINES[name](), block=conformance.TRIALS, delay=delays.Constant(rounds=0))
        late = conformance.simulate(BASELINES[name](), block=conformance.TRIALS, delay=delays.Constant(rounds=2))
    for field in ("indices", "multipliers", "widths"):
        np.testing.assert_allclose(getattr(at_once, field), getattr(batched(name), field), rtol=1e-9, atol=1e-9, err_msg=field)
    assert not np.array_equal(late.indices, batched(name).indices)
    assert np.all(jaxbandit.metrics.healthy(late.status))


@pytest.mark.parametrize("name", ["cei", "safeopt"])
def test_without_constraints(name: str) -> None:
    """Every point is safe, and certainly feasible."""
    problem = conformance.study()[0]
    free = problems.from_tables(
        problem.domain, problem.means[0], np.zeros((0, problem.domain.size)), noise=problems.Gaussian(variance=0.05)
    )
    model = jaxbandit.surrogate(free.domain, kernels.SquaredExponential(length_scale=0.3), noise_variance=0.05, outputs=1, form="features")
    run = jaxbandit.simulate(free, BASELINES[name](), model, horizon=6, trials=1, key=jax.random.key(0))
    assert np.all(jaxbandit.metrics.healthy(run.status)) and run.multipliers.shape == (1, 7, 0)
    assert len(np.unique(run.indices)) > 1


# What a learner may be told of an instance.


def told(algorithm: Any, hook: Any, *, horizon: int = 12, **changes: Any) -> jaxbandit.Trajectory:
    return conformance.simulate(algorithm, informed=hook, horizon=horizon, **changes)


def test_the_safest_points() -> None:
    problem = conformance.study()[0]
    worst = np.asarray(problem.means)[1:].max(0)
    np.testing.assert_array_equal(informed.safest(problem, 4), np.argsort(worst)[:4])
    plain, model = informed.SafestSeeds(4)(problem, SafeOpt(), "model")
    np.testing.assert_array_equal(plain.seeds, np.argsort(worst)[:4])
    assert model == "model"
    wrapped = told(Anytime(algorithm=SgpUcb(warm_up=12.0)), informed.SafestSeeds(4))
    assert set(np.unique(wrapped.indices)) == set(np.argsort(worst)[:4])


def test_the_floor_and_the_ceiling() -> None:
    problem = conformance.study()[0]
    feasible = np.flatnonzero(np.all(np.asarray(problem.means)[1:] <= 0, axis=0))
    best = feasible[np.argmax(np.asarray(problem.means)[0, feasible])]
    anywhere = told(RandomSearch(), None, horizon=200)
    counts = np.bincount(np.asarray(anywhere.indices).ravel(), minlength=problem.domain.size)
    expected = conformance.TRIALS * 200 / problem.domain.size
    # Chi-square with 29 degrees of freedom: mean 29, variance 58.
    assert np.sum((counts - expected) ** 2 / expected) < 29 + 5 * np.sqrt(58)
    assert np.all(np.asarray(anywhere.information_gain) == 0)
    lucky = told(RandomSearch(), informed.FeasiblePoints(), horizon=100)
    assert set(np.unique(lucky.indices)) == set(feasible)
    assert int(informed.BestPoint()(problem, Oracle(), None)[0].index) == best


def test_nothing_feasible() -> None:
    """The feasible points are all points then, and the best point is the least violating one."""
    problem = conformance.study()[0]
    hopeless = replace(problem, means=np.concatenate([problem.means[:1], np.asarray(problem.means)[1:] + 9]))
    given = {"horizon": 30, "key": jax.random.key(0), "informed": informed.FeasiblePoints()}
    lucky = jaxbandit.simulate(hopeless, RandomSearch(), conformance.surrogate(), **given)
    assert len(np.unique(lucky.indices)) > 10 and np.all(jaxbandit.metrics.healthy(lucky.status))
    assert int(informed.BestPoint()(hopeless, Oracle(), None)[0].index) == np.asarray(hopeless.means)[1:].max(0).argmin()


def test_equal_hooks_are_one_program() -> None:
    told(SgpUcb(), informed.SafestSeeds(2))
    assert conformance.traces(lambda: told(SgpUcb(), informed.SafestSeeds(2))) == 0
    assert informed.SafestSeeds(2) != informed.SafestSeeds(3)


def test_an_oracle_that_nobody_tells() -> None:
    with pytest.raises(InvalidArgument, match=r"Oracle\.index: nobody told it the optimum"):
        told(Oracle(), None)


# Flags.


def test_a_safe_set_that_empties_falls_back_to_the_seeds_and_is_flagged() -> None:
    """The model believes at first that every point is safe; data say that none is."""
    domain = domains.grid([0.0], [1.0], 12)
    problem = problems.from_tables(domain, np.linspace(0, 1, 12), np.full(12, 2.0), noise=problems.Gaussian(variance=1e-4))
    model = jaxbandit.surrogate(
        domain, kernels.SquaredExponential(length_scale=0.5), noise_variance=0.01, prior_mean=[0.0, -4.0], form="features"
    )
    bounds = estimators.Bounds(reward_width=1.0, cost_width=2.0)
    for algorithm in (
        SafeOpt(estimator=bounds, seeds=[2]),
        SgpUcb(estimator=bounds, seeds=[2], warm_up=0.0),
    ):
        run = jaxbandit.simulate(problem, algorithm, model, horizon=15, trials=2, key=jax.random.key(0))
        assert np.all(np.asarray(run.status) & int(Status.SAFE_SET_EMPTIED) != 0), algorithm.name
        assert np.all(run.indices[:, -3:] == 2) and not np.all(run.indices[:, 0] == 2)
        assert np.all(jaxbandit.metrics.healthy(run.status)), "a note, not a failure"
        assert "fell back to its seed set" in jaxbandit.explain(int(run.status[0]))
    safe = replace(problem, means=np.stack([np.linspace(0, 1, 12), np.full(12, -4.0)]))
    calm = jaxbandit.simulate(safe, SafeOpt(estimator=bounds, seeds=[2]), model, horizon=15, trials=2, key=jax.random.key(0))
    assert np.all(np.asarray(calm.status) & int(Status.SAFE_SET_EMPTIED) == 0)
    # A set that was never more than its seeds has not emptied.
    doubting = replace(model, prior_mean=np.array([0.0, 4.0]))
    never = jaxbandit.simulate(problem, SafeOpt(estimator=bounds, seeds=[2]), doubting, horizon=15, trials=2, key=jax.random.key(0))
    assert np.all(np.asarray(never.status) & int(Status.SAFE_SET_EMPTIED) == 0) and np.all(never.indices == 2)


@pytest.mark.parametrize("build", [SgpUcb, SafeOpt])
def test_a_seed_outside_the_domain_fails_the_trial(build: Callable[..., Any]) -> None:
    """It is found at run time, for an algorithm does not know the domain when it is checked."""
    run = conformance.simulate(build(seeds=[1, 10_000]), horizon=3, trials=1)
    assert np.all(np.asarray(run.status) & int(Status.NONFINITE_SCORE) != 0) and np.all(run.failed_round == 1)


@pytest.mark.parametrize("name", ["cei", "constrained-thompson", "safeopt", "stageopt", "sgp-ucb"])
def test_nan_feedback_is_flagged_and_chooses_nothing(name: str) -> None:
    """Once the posterior is NaN so is every score; it is not taken for a small one."""

    @jax.jit
    def chosen(algorithm: Any, surrogate: jaxbandit.Surrogate, values: jax.Array) -> jax.Array:
        arena = jaxbandit.algorithms.Arena(surrogate=surrogate, horizon=jnp.int32(3))
        seen = jaxbandit.algorithms.Observation(index=jnp.int32(3), values=values)
        state = algorithm.update(arena, algorithm.init(arena), seen, jnp.int32(1))
        return algorithm.select(arena, state, jnp.int32(9), jax.random.key(0))[0].index

    algorithm, surrogate = BASELINES[name](), conformance.surrogate()
    if hasattr(algorithm, "seeds"):  # chosen in round 1 otherwise
        algorithm = replace(algorithm, seeds=np.array([0]))
    algorithm = jaxbandit.canonicalise(algorithm)
    assert int(chosen(algorithm, surrogate, jnp.full((1 + CONSTRAINTS,), jnp.nan))) == surrogate.domain.size
    assert int(chosen(algorithm, surrogate, jnp.zeros((1 + CONSTRAINTS,)))) < surrogate.domain.size


# Refusals.


def check(algorithm: Any, constraints: int = 2) -> None:
    algorithm.validate(constraints)


BAD = [
    ("multiplier", lambda: check(PrimalDual(initial_multiplier=-1.0)), "PrimalDual.initial_multiplier: must be >= 0"),
    ("multipliers", lambda: check(PrimalDual(initial_multiplier=np.ones(3))), "PrimalDual.initial_multiplier: expected one number"),
    ("dual step", lambda: check(PrimalDual(step=0.0)), "PrimalDual.step: must be > 0"),
    ("dual steps", lambda: check(PrimalDual(step=np.ones(3))), "PrimalDual.step: expected one number"),
    ("width", lambda: check(PrimalDual(estimator=estimators.Bounds(reward_width=0.0))), "reward_width: must be > 0"),
    ("incumbent", lambda: check(Cei(incumbent="median")), "Cei.incumbent: must be one of mean, observed; got 'median'"),
    ("improvement", lambda: check(Cei(improvement=-0.1)), "Cei.improvement: must be >= 0"),
    ("improvements", lambda: check(Cei(improvement=np.zeros(2))), "Cei.improvement: expected one number"),
    ("width of a draw", lambda: check(ConstrainedThompson(estimator=estimators.Thompson(cost_width=-1.0))), "cost_width: must be > 0"),
    ("point of an oracle", lambda: check(Oracle(index=-1)), "Oracle.index: must be the number of a point, got -1"),
    ("half a point", lambda: check(Oracle(index=0.5)), "Oracle.index: must be the number of a point, got 0.5"),
    ("points of an oracle", lambda: check(Oracle(index=[1, 2])), "Oracle.index: must be the number of a point"),
    ("allowed", lambda: check(RandomSearch(allowed=[0.5, 1.0])), "RandomSearch.allowed: expected booleans [M]"),
    ("Lipschitz constant", lambda: check(SafeOpt(lipschitz=0.0)), "SafeOpt.lipschitz: must be > 0"),
    ("Lipschitz constants", lambda: check(SafeOpt(lipschitz=np.ones(3))), "SafeOpt.lipschitz: expected one number"),
    ("Lipschitz constant of StageOpt", lambda: check(StageOpt(lipschitz=-1.0)), "StageOpt.lipschitz: must be > 0"),
    ("threshold", lambda: check(SafeOpt(threshold=-0.1)), "SafeOpt.threshold: must be >= 0"),
    ("stage", lambda: check(StageOpt(exploration=-1.0)), "StageOpt.exploration: must be >= 0"),
    ("warm-up", lambda: check(SgpUcb(warm_up=-1.0)), "SgpUcb.warm_up: must be >= 0"),
    ("count of seeds to tell", lambda: informed.SafestSeeds(0), "SafestSeeds.count: must be a whole number >= 1"),
    ("size of a finite set", lambda: widths.finite_set(0, 0.1), "size: must be a whole number >= 1"),
    ("delta of a finite set", lambda: widths.finite_set(9, 1.0), "delta: must lie in (0, 1)"),
    *(
        (f"{build.__name__}: {what}", functools.partial(check, build(**given)), f"{build.__name__}.{message}")
        for build in (SafeOpt, StageOpt, SgpUcb)
        for what, given, message in (
            ("no seeds", {"seeds": []}, "seeds: expected a list of point numbers"),
            ("one seed", {"seeds": 3}, "seeds: expected a list of point numbers, got 3"),
            ("seeds by coordinate", {"seeds": [0.5]}, "seeds: expected a list of point numbers"),
            ("a mask", {"seeds": np.array([True, False])}, "seeds: expected a list of point numbers"),
            ("negative seed", {"seeds": [4, -1]}, "seeds: must be >= 0, got [4, -1]"),
            ("no count", {"count": 0}, "count: must be a whole number >= 1"),
            ("draws", {"estimator": estimators.Thompson()}, "estimator: safe sets need confidence bounds, got Thompson"),
        )
    ),
]


@pytest.mark.parametrize(("call", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_refused_by_name(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        call()
    assert str(caught.value).startswith(message)


def test_refused_before_anything_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    class CompiledError(Exception):
        pass

    def stop(*args: Any, **kwargs: Any) -> None:
        raise CompiledError

    monkeypatch.setattr(batch, "_run", stop)
    with pytest.raises(InvalidArgument, match=r"SafeOpt\.threshold"):
        conformance.simulate(SafeOpt(threshold=-1.0))
    with pytest.raises(CompiledError):
        conformance.simulate(SafeOpt(seeds=[0, 29], lipschitz=[1.0, 2.0]))


def test_width_of_a_finite_set() -> None:
    """``beta_t = sqrt(2 ln(M t^2 pi^2 / (6 delta)))``."""
    t = np.arange(1, 30)
    expected = np.sqrt(2 * np.log(50 * t**2 * np.pi**2 / (6 * 0.1)))
    np.testing.assert_allclose(widths.finite_set(50, 0.1)(jnp.asarray(t), jnp.zeros(29)), expected, rtol=1e-5)


# Safe sets by hand.


def test_expansion_without_anything_outside_or_to_examine() -> None:
    domain = domains.grid([0.0], [1.0], 5)
    model = jaxbandit.surrogate(domain, kernels.SquaredExponential(length_scale=0.3), noise_variance=0.1, form="features")
    posterior = model.init()
    known = safety.intervals(model, posterior, estimators.Bounds(), jnp.int32(1), jax.random.key(0))
    everything, nothing = jnp.ones(5, bool), jnp.zeros(5, bool)
    for expansion in (safety.Expansion(), safety.Expansion(lipschitz=1.0), safety.Expansion(together=False)):
        widest = jax.jit(lambda safe, expansion=expansion: expansion.widest(model, posterior, known, safe, safe))
        assert int(widest(everything)) == int(widest(nothing)) == 5


def test_the_widest_of_many_blocks() -> None:
    """More candidates than a block holds; the first block has no expander."""
    domain = domains.grid([0.0], [10.0], 201)
    model = jaxbandit.surrogate(domain, kernels.SquaredExponential(length_scale=0.5), noise_variance=0.1, form="features")
    known = safety.intervals(model, model.init(), estimators.Bounds(), jnp.int32(1), jax.random.key(0))
    lower = np.full(201, -1.0)
    lower[150] = -9.0  # only this point, with L = 1, reaches a point outside, 7.5 away
    mean = known.mean.at[1].set(lower + np.asarray(known.widths[1] * known.sd[1]))
    safe = np.ones(201, bool)
    safe[:3] = False
    by_hand = replace(known, mean=mean, sd=known.sd.at[0].set(jnp.linspace(2, 1, 201)))
    found = safety.Expansion(lipschitz=1.0).widest(model, model.init(), by_hand, jnp.asarray(safe), jnp.asarray(safe))
    near = safe & (np.asarray(domain.points)[:, 0] - 0.1 <= 1.0)
    assert int(found) == 3 and near[3], "wider, and near enough"
    far = jnp.asarray(safe & ~near)
    assert int(safety.Expansion(lipschitz=1.0).widest(model, model.init(), by_hand, jnp.asarray(safe), far)) == 150
