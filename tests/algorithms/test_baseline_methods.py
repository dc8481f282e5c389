"""Flags and refusals of the baselines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import (
    InvalidArgument,
    SafeOpt,
    SgpUcb,
    Status,
    domains,
    estimators,
    kernels,
    problems,
    replace,
)
from jaxbandit.engine import simulation
from tests.support import conformance
from tests.support.algorithms import BASELINES
from tests.support.conformance import CONSTRAINTS

# Flags.


@pytest.mark.full
def test_a_safe_set_that_empties_falls_back_to_the_seeds_and_is_flagged() -> None:
    """The model believes at first that every point is safe; data say that none is."""
    domain = domains.grid([0.0], [1.0], 12)
    problem = problems.from_tables(domain, np.linspace(0, 1, 12), np.full(12, 2.0), noise=problems.Gaussian(variance=1e-4))
    model = jaxbandit.surrogate(
        domain, kernels.SquaredExponential(length_scale=0.5), noise_variance=0.01, prior_mean=[0.0, -4.0], form="features"
    )
    bounds = estimators.Bounds(reward_width=1.0, cost_width=2.0)
    options = {"horizon": 15, "trials": 2, "key": jax.random.key(0), "block": 1}
    for algorithm in (
        SafeOpt(estimator=bounds, seeds=[2]),
        SgpUcb(estimator=bounds, seeds=[2], warm_up=0.0),
    ):
        run = jax.device_get(jaxbandit.simulate(problem, algorithm, model, **options))
        assert np.all(np.asarray(run.status) & int(Status.SAFE_SET_EMPTIED) != 0), algorithm.name
        assert np.all(run.indices[:, -3:] == 2) and not np.all(run.indices[:, 0] == 2)
        assert np.all(jaxbandit.metrics.healthy(run.status)), "a note, not a failure"
        assert "fell back to its seed set" in jaxbandit.explain(int(run.status[0]))
    safe = replace(problem, means=np.stack([np.linspace(0, 1, 12), np.full(12, -4.0)]))
    calm = jaxbandit.simulate(safe, SafeOpt(estimator=bounds, seeds=[2]), model, **options)
    assert np.all(np.asarray(calm.status) & int(Status.SAFE_SET_EMPTIED) == 0)
    # A set that was never more than its seeds has not emptied.
    doubting = replace(model, prior_mean=np.array([0.0, 4.0]))
    never = jaxbandit.simulate(problem, SafeOpt(estimator=bounds, seeds=[2]), doubting, **options)
    assert np.all(np.asarray(never.status) & int(Status.SAFE_SET_EMPTIED) == 0) and np.all(np.asarray(never.indices) == 2)


@pytest.mark.parametrize("build", [SgpUcb, SafeOpt])
def test_a_seed_outside_the_domain_is_refused_or_fails_the_trial(build: Callable[..., Any]) -> None:
    """Check that what is told of an instance is found at run time."""
    with pytest.raises(InvalidArgument, match=rf"{build.__name__}\.seeds: must lie in \[0, \d+\]"):
        conformance.simulate(build(seeds=[1, 10_000]), horizon=3, trials=1)

    def told(instance: Any, algorithm: Any, surrogate: Any) -> Any:
        return replace(algorithm, seeds=jnp.asarray([1, 10_000], jnp.int32)), surrogate

    run = conformance.simulate(build(), horizon=3, trials=1, informed=told, block=1)
    assert np.all(np.asarray(run.status) & int(Status.NONFINITE_SCORE) != 0) and np.all(run.failed_round == 1)


@pytest.mark.full
def test_nan_feedback_is_flagged_and_chooses_nothing() -> None:
    """Once the posterior is NaN so is every score; it is not taken for a small one."""

    @jax.jit
    def chosen(algorithms: dict[str, Any], surrogate: jaxbandit.Surrogate, values: jax.Array) -> dict[str, jax.Array]:
        arena = jaxbandit.algorithms.Arena(surrogate=surrogate, horizon=jnp.int32(3))
        seen = jaxbandit.algorithms.Observation(index=jnp.int32(3), values=values)
        states = {name: own.update(arena, own.init(arena), seen, jnp.int32(1)) for name, own in algorithms.items()}
        return {name: own.select(arena, states[name], jnp.int32(9), jax.random.key(0))[0].index for name, own in algorithms.items()}

    surrogate, seeds = conformance.surrogate().without_kernels(), {"seeds": np.array([0])}  # chosen in round 1 otherwise
    algorithms = {name: BASELINES[name]() for name in ("cei", "constrained-thompson", "safeopt", "stageopt", "sgp-ucb")}
    algorithms |= {name: replace(algorithms[name], **seeds) for name in ("safeopt", "stageopt", "sgp-ucb")}
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
        conformance.simulate(SafeOpt(threshold=-1.0))
    with pytest.raises(CompiledError):
        conformance.simulate(SafeOpt(seeds=[0, 29], lipschitz=[1.0, 2.0]))
