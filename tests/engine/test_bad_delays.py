"""Bad delays, policies and capacities are refused by name before anything compiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import jaxbandit
from jaxbandit import InvalidArgument, delays, estimators, feedback, kernels, widths
from jaxbandit.engine import simulation
from tests.support.delayed_runs import (
    KEY,
    NOISE,
    RPOL,
    problem,
    surrogate,
    tables,
)

# Bad input.


@jaxbandit.pytree
class Impostor:
    mean: Any = 1.0


def bad(**options: Any) -> Any:
    model = jaxbandit.surrogate(tables()[0], kernels.SquaredExponential(), noise_variance=NOISE, outputs=2, form="features")
    options = {"horizon": 4, "key": KEY, "algorithm": RPOL, **options}
    return jaxbandit.simulate(problem(), options.pop("algorithm"), model, **options)


SOME = delays.Constant(rounds=2)
BAD: list[tuple[str, Callable[[], dict[str, Any]], str]] = [
    ("negative delay", lambda: {"delay": delays.Constant(rounds=-1)}, "Constant.rounds: must lie in [0, "),
    ("half a round", lambda: {"delay": delays.Constant(rounds=1.5)}, "Constant.rounds: must be whole numbers"),
    ("negative observed delay", lambda: {"delay": delays.Empirical(values=np.array([0, -2]))}, "Empirical.values: must lie in [0, "),
    ("half an observed delay", lambda: {"delay": delays.Empirical(values=np.array([0.5, 2.0]))}, "Empirical.values: must be whole"),
    ("no observed delay", lambda: {"delay": delays.Empirical(values=np.zeros(0, int))}, "Empirical.values: expected shape [n] with n >= 1"),
    ("negative mean", lambda: {"delay": delays.Poisson(mean=-1.0)}, "Poisson.mean: must lie in [0, "),
    ("NaN mean", lambda: {"delay": delays.Geometric(mean=float("nan"))}, "Geometric.mean: "),
    (
        "a bad one in a sweep",
        lambda: {"delay": jaxbandit.sweep(delays.Poisson(), {"mean": [1.0, -1.0]})},
        "sweep.mean: Poisson.mean: must lie in [0, ",
    ),
    ("reversed", lambda: {"delay": delays.Uniform(low=3, high=1)}, "Uniform.high: must be >= low"),
    ("a probability above 1", lambda: {"delay": delays.Lossy(never=1.5)}, "Lossy.never: must lie in [0, 1]"),
    (
        "models for other outputs",
        lambda: {"delay": delays.PerOutput(delays=(SOME, SOME, SOME))},
        "PerOutput.delays: must hold 2 models, one per output, got 3",
    ),
    ("a number for a delay", lambda: {"delay": 3}, "delay: must be a delay model of jaxbandit.delays"),
    ("a policy for a delay", lambda: {"delay": feedback.Wait()}, "delay: must be a delay model of jaxbandit.delays"),
    ("a class for a delay", lambda: {"delay": delays.Poisson}, "delay: must be a delay model of jaxbandit.delays"),
    ("an impostor", lambda: {"delay": Impostor()}, "delay: must be a delay model of jaxbandit.delays"),
    ("a name for a policy", lambda: {"delay": SOME, "feedback": "wait"}, "feedback: must be a policy of jaxbandit.feedback"),
    ("a class for a policy", lambda: {"delay": SOME, "feedback": feedback.Censor}, "feedback: must be a policy of jaxbandit.feedback"),
    ("a delay for a policy", lambda: {"delay": SOME, "feedback": SOME}, "feedback: must be a policy of jaxbandit.feedback"),
    ("a negative window", lambda: {"delay": SOME, "feedback": feedback.Censor(window=-1)}, "Censor.window: must be a whole number >= 0"),
    ("half a window", lambda: {"delay": SOME, "feedback": feedback.Censor(window=1.5)}, "Censor.window: must be a whole number from 0 to"),  # type: ignore[arg-type]
    ("a NaN minimum", lambda: {"delay": SOME, "feedback": feedback.Censor(minimum=float("nan"))}, "Censor.minimum: 1 of 1 values are NaN"),
    ("three minima", lambda: {"delay": SOME, "feedback": feedback.Censor(minimum=[0.0, 0.0, 0.0])}, "Censor.minimum: expected one number"),
    ("one minimum in a list", lambda: {"delay": SOME, "feedback": feedback.Censor(minimum=[0.0])}, "Censor.minimum: expected one number"),
    ("a bad policy without delay", lambda: {"feedback": feedback.Censor(window=-1)}, "Censor.window: must be a whole number >= 0"),
    ("no capacity", lambda: {"delay": SOME, "capacity": 0}, "capacity: must be a whole number"),
    ("negative capacity", lambda: {"delay": SOME, "capacity": -3}, "capacity: must be a whole number"),
    ("half a capacity", lambda: {"delay": SOME, "capacity": 2.5}, "capacity: must be a whole number"),
    ("no capacity without delay", lambda: {"capacity": 0}, "capacity: must be a whole number"),
    (
        "sweeps of different sizes",
        lambda: {
            "delay": jaxbandit.sweep(delays.Poisson(), {"mean": [1.0, 2.0]}),
            "algorithm": jaxbandit.sweep(RPOL, {"initial_penalty": [1.0, 2.0, 3.0]}),
        },
        "algorithm, surrogate, delay: sweeps of different sizes",
    ),
]


@pytest.mark.parametrize(("options", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input_is_refused_before_anything_compiles(
    options: Callable[[], dict[str, Any]], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("nothing may compile")

    monkeypatch.setattr(simulation, "play_all", stop)
    with pytest.raises(InvalidArgument) as error:
        bad(**options())
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("options", [{"delay": SOME}, {"delay": SOME, "feedback": feedback.Hallucinate()}, {}])
def test_a_censored_width_is_for_censored_feedback(options: dict[str, Any]) -> None:
    algorithm = jaxbandit.Rpol(estimator=estimators.Bounds(reward_width=widths.Censored()))
    with pytest.raises(InvalidArgument, match=r"widths\.Censored"):
        bad(algorithm=algorithm, **options)


def test_a_bad_problems_own_delay() -> None:
    with pytest.raises(InvalidArgument, match=r"^Constant\.rounds: must lie in"):
        jaxbandit.simulate(jaxbandit.replace(problem(), delay=delays.Constant(rounds=-1)), RPOL, surrogate(), horizon=3, key=KEY)
