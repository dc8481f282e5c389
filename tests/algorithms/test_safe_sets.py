"""What SafeOpt, StageOpt and SGP-UCB say of seeds that are unsafe and of sets that stand still, and what certifies a point."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import jaxbandit
from jaxbandit import SafeOpt, SgpUcb, StageOpt, Status, delays, domains, feedback, kernels, problems

KINDS: list[Callable[..., Any]] = [
    SafeOpt,
    lambda **given: StageOpt(exploration=20.0, **given),
    lambda **given: SgpUcb(warm_up=10.0, **given),
]
LINE = domains.grid([0.0], [1.0], 60)
PLACE = np.linspace(0, 1, 60)
KERNEL = kernels.SquaredExponential(length_scale=0.2)


def line(cost: np.ndarray) -> problems.Problem:
    return problems.from_tables(LINE, np.sin(7 * PLACE), [cost], noise=problems.Gaussian(variance=1e-4))


def play(problem: Any, algorithm: Any, *, kernel: Any = KERNEL, prior_mean: Any = 0.0, noise_variance: float = 1e-4, **options: Any) -> Any:
    model = jaxbandit.surrogate(problem.domain, kernel, noise_variance=noise_variance, prior_mean=prior_mean)
    return jaxbandit.simulate(problem, algorithm, model, **{"horizon": 40, "trials": 2, "key": 0, "record": "all"} | options)


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_that_is_unsafe_is_flagged_and_warned_of(kind: Callable[..., Any]) -> None:
    problem = line(PLACE - 0.6)
    with pytest.warns(UserWarning) as said:
        run = play(problem, kind(seeds=[59]))
    both = int(Status.SEED_UNSAFE | Status.NO_SAFE_POINT)
    assert np.all(np.asarray(run.status) & both == both) and np.all(run.indices == 59)
    words = " ".join(str(one.message) for one in said)
    assert "a constraint does not hold at a seed" in words and "give seeds that are known to be safe" in words
    with pytest.warns(UserWarning, match="does not hold at a seed"):  # of two the unsafe one is left
        run = play(problem, kind(seeds=[59, 6]))
    assert np.all(np.asarray(run.status) & both == int(Status.SEED_UNSAFE))
    first = [int(np.flatnonzero(row == 59)[0]) for row in run.indices]
    for row, at in zip(run.indices, first, strict=True):
        assert not np.any(row[at + 1 :] == 59) and np.all(PLACE[row[at + 1 :]] < 0.6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_set_that_stands_still_is_flagged_and_one_that_grows_is_not(kind: Callable[..., Any]) -> None:
    """The margin of the seed is .3 of a prior deviation, and neighbours 1/6 of a length-scale away; then that of .9."""
    domain = domains.grid([0.0, 0.0], [1.0, 1.0], 30)
    squares = np.sum((np.asarray(domain.points) - [0.3, 0.4]) ** 2, axis=1)
    for margin, grows in ((0.25, False), (0.9, True)):
        problem = problems.from_tables(
            domain, np.asarray(domain.points)[:, 0], [1.2 * squares - margin], noise=problems.Gaussian(variance=1e-4)
        )
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            run = play(problem, kind(seeds=[282]), kernel=kernels.SquaredExponential(length_scale=0.25), horizon=60)
        still = np.asarray(run.status) & int(Status.SAFE_SET_STILL) != 0
        assert np.all(still != grows) and np.all([(len(set(row)) > 5) == grows for row in run.indices.tolist()])
        assert [str(one.message).count("smaller cost_width, a longer length-scale") for one in said] == ([] if grows else [1])


def test_a_set_that_has_stood_still_for_long_is_flagged_though_measurements_could_change_that() -> None:
    """Under so much noise a hundred values would certify a neighbour of the seed, and thirty do not."""
    problem = problems.from_tables(LINE, np.sin(7 * PLACE), [PLACE - 0.3], noise=problems.Gaussian(variance=1.0))
    for rounds, is_said in ((30, False), (40, True)):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            run = play(problem, SafeOpt(seeds=[16]), noise_variance=1.0, horizon=rounds, trials=[0])
        assert np.all(run.indices == 16)
        assert np.all((np.asarray(run.status) & int(Status.SAFE_SET_STILL) != 0) == is_said) and len(said) == is_said


@pytest.mark.parametrize("kind", KINDS)
def test_a_point_is_certified_by_values_that_have_arrived_alone(kind: Callable[..., Any]) -> None:
    """Under hallucination a point without a value has a small deviation, which says nothing of its constraint."""
    options = {"delay": delays.Constant(rounds=1000), "feedback": feedback.Hallucinate(), "prior_mean": [0.0, -1.0]}
    run = play(line(PLACE - 0.6), kind(seeds=[6]), horizon=30, **options)
    assert np.all(run.indices == 6)


def test_points_that_are_not_allowed_are_not_certified_and_seeds_are_chosen_all_the_same() -> None:
    allowed = (PLACE > 0.2) & (PLACE < 0.3)
    run = play(line(PLACE - 0.6), SafeOpt(seeds=[10], allowed=allowed), kernel=kernels.SquaredExponential(length_scale=0.4))
    chosen = np.unique(run.indices)
    assert 10 in chosen and len(chosen) > 3 and np.all(allowed[chosen[chosen != 10]])
