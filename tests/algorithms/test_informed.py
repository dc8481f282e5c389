"""Tests of what a learner may be told of an instance, and of the algorithms that need to be told."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit
from jaxbandit import (
    Anytime,
    InvalidArgument,
    Oracle,
    RandomSearch,
    SafeOpt,
    SgpUcb,
    informed,
    replace,
)
from tests.support import conformance

# What a learner may be told of an instance.


def told(algorithm: Any, hook: Any, *, horizon: int = 12, **changes: Any) -> jaxbandit.Trajectory:
    return conformance.simulate(algorithm, informed=hook, horizon=horizon, block=1, **changes)


def from_safe_seeds() -> jaxbandit.Trajectory:
    return told(Anytime(algorithm=SgpUcb(warm_up=12.0)), informed.SafestSeeds(count=4))


def test_the_safest_points() -> None:
    problem = conformance.study()[0]
    worst = np.asarray(problem.means)[1:].max(0)
    np.testing.assert_array_equal(informed.safest(problem, 4), np.argsort(worst)[:4])
    plain, model = informed.SafestSeeds(count=4)(problem, SafeOpt(), "model")
    np.testing.assert_array_equal(plain.seeds, np.argsort(worst)[:4])
    assert model == "model"
    assert set(np.unique(from_safe_seeds().indices)) == set(np.argsort(worst)[:4])


@pytest.mark.full
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
    lucky = jax.device_get(told(RandomSearch(), informed.FeasiblePoints(), horizon=100))
    assert set(np.unique(lucky.indices)) == set(feasible)
    assert int(informed.BestPoint()(problem, Oracle(), None)[0].index) == best


@pytest.mark.full
def test_nothing_feasible() -> None:
    """The feasible points are all points then, and the best point is the least violating one."""
    problem = conformance.study()[0]
    hopeless = replace(problem, means=np.concatenate([problem.means[:1], np.asarray(problem.means)[1:] + 9]))
    with pytest.MonkeyPatch.context() as patch:  # a program of the test above
        patch.setattr(conformance, "study", lambda: (hopeless, None))
        lucky = jax.device_get(told(RandomSearch(), informed.FeasiblePoints(), horizon=100))
    assert len(np.unique(lucky.indices[0, :30])) > 10 and np.all(jaxbandit.metrics.healthy(lucky.status))
    assert int(informed.BestPoint()(hopeless, Oracle(), None)[0].index) == np.asarray(hopeless.means)[1:].max(0).argmin()


def test_equal_hooks_are_one_program() -> None:
    from_safe_seeds()
    with conformance.no_new_program():
        from_safe_seeds()
    assert informed.SafestSeeds(count=2) != informed.SafestSeeds(count=3)


def test_a_value_out_of_range_flags_the_trial() -> None:
    """What a user's function sets is traced, so that no check can look at it before the trial is played."""

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
        told(Oracle(), None)
