"""Bad delays, policies and capacities are refused by name before anything compiles."""

from __future__ import annotations

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
BAD: list[tuple[str, dict[str, Any], str]] = [
    ("negative delay", {"delay": delays.Constant(rounds=-1)}, "Constant.rounds: must lie in [0, "),
    ("half a round", {"delay": delays.Constant(rounds=1.5)}, "Constant.rounds: must be whole numbers"),
    ("negative observed delay", {"delay": delays.Empirical(values=np.array([0, -2]))}, "Empirical.values: must lie in [0, "),
    ("half an observed delay", {"delay": delays.Empirical(values=np.array([0.5, 2.0]))}, "Empirical.values: must be whole"),
    ("no observed delay", {"delay": delays.Empirical(values=np.zeros(0, int))}, "Empirical.values: expected shape [n] with n >= 1"),
    ("negative mean", {"delay": delays.Poisson(mean=-1.0)}, "Poisson.mean: must lie in [0, "),
    ("NaN mean", {"delay": delays.Geometric(mean=float("nan"))}, "Geometric.mean: "),
    ("a bad one in a sweep", {"delay": jaxbandit.sweep(delays.Poisson(), {"mean": [1.0, -1.0]})}, "Poisson.mean: must lie in [0, "),
    ("reversed", {"delay": delays.Uniform(low=3, high=1)}, "Uniform.high: must be >= low"),
    ("a probability above 1", {"delay": delays.Lossy(never=1.5)}, "Lossy.never: must lie in [0, 1]"),
    ("models for other outputs", {"delay": delays.PerOutput(delays=(SOME, SOME, SOME))}, "PerOutput.delays: 3 models for 2 outputs"),
    ("a number for a delay", {"delay": 3}, "delay: expected a model of jaxbandit.delays"),
    ("a policy for a delay", {"delay": feedback.Wait()}, "delay: expected a model of jaxbandit.delays"),
    ("a class for a delay", {"delay": delays.Poisson}, "delay: expected a model of jaxbandit.delays"),
    ("an impostor", {"delay": Impostor()}, "delay: expected a model of jaxbandit.delays"),
    ("a name for a policy", {"delay": SOME, "feedback": "wait"}, "feedback: expected a policy of jaxbandit.feedback"),
    ("a class for a policy", {"delay": SOME, "feedback": feedback.Censor}, "feedback: expected a policy of jaxbandit.feedback"),
    ("a delay for a policy", {"delay": SOME, "feedback": SOME}, "feedback: expected a policy of jaxbandit.feedback"),
    ("a negative window", {"delay": SOME, "feedback": feedback.Censor(window=-1)}, "Censor.window: must be a whole number >= 0"),
    ("half a window", {"delay": SOME, "feedback": feedback.Censor(window=1.5)}, "Censor.window: must be a whole number >= 0"),  # type: ignore[arg-type]
    ("a NaN minimum", {"delay": SOME, "feedback": feedback.Censor(minimum=float("nan"))}, "Censor.minimum: 1 of 1 values are NaN"),
    ("three minima", {"delay": SOME, "feedback": feedback.Censor(minimum=[0.0, 0.0, 0.0])}, "Censor.minimum: expected one number"),
    ("one minimum in a list", {"delay": SOME, "feedback": feedback.Censor(minimum=[0.0])}, "Censor.minimum: expected one number"),
    ("a bad policy without delay", {"feedback": feedback.Censor(window=-1)}, "Censor.window: must be a whole number >= 0"),
    ("no capacity", {"delay": SOME, "capacity": 0}, "capacity: must be a whole number >= 1"),
    ("negative capacity", {"delay": SOME, "capacity": -3}, "capacity: must be a whole number >= 1"),
    ("half a capacity", {"delay": SOME, "capacity": 2.5}, "capacity: must be a whole number >= 1"),
    ("no capacity without delay", {"capacity": 0}, "capacity: must be a whole number >= 1"),
    (
        "sweeps of different sizes",
        {
            "delay": jaxbandit.sweep(delays.Poisson(), {"mean": [1.0, 2.0]}),
            "algorithm": jaxbandit.sweep(RPOL, {"initial_penalty": [1.0, 2.0, 3.0]}),
        },
        "algorithm, surrogate, delay: sweeps of different sizes",
    ),
]


@pytest.mark.parametrize(("options", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input_is_refused_before_anything_compiles(options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("nothing may compile")

    monkeypatch.setattr(simulation, "play_all", stop)
    with pytest.raises(InvalidArgument) as error:
        bad(**options)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("options", [{"delay": SOME}, {"delay": SOME, "feedback": feedback.Hallucinate()}, {}])
def test_a_censored_width_is_for_censored_feedback(options: dict[str, Any]) -> None:
    algorithm = jaxbandit.Rpol(estimator=estimators.Bounds(reward_width=widths.Censored()))
    with pytest.raises(InvalidArgument, match=r"widths\.Censored"):
        bad(algorithm=algorithm, **options)


def test_a_bad_problems_own_delay() -> None:
    with pytest.raises(InvalidArgument, match=r"^Constant\.rounds: must lie in"):
        jaxbandit.simulate(jaxbandit.replace(problem(), delay=delays.Constant(rounds=-1)), RPOL, surrogate(), horizon=3, key=KEY)
