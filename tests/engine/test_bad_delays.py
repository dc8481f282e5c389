"""Bad delays, policies and capacities are refused by name before anything compiles."""

from __future__ import annotations

from typing import Any

import pytest

import jaxbandit
from jaxbandit import InvalidArgument, delays, estimators, feedback, kernels, widths
from tests.support.delayed_runs import (
    KEY,
    NOISE,
    RPOL,
    problem,
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


@pytest.mark.parametrize("options", [{"delay": SOME}, {"delay": SOME, "feedback": feedback.Hallucinate()}, {}])
def test_a_censored_width_is_for_censored_feedback(options: dict[str, Any]) -> None:
    algorithm = jaxbandit.Rpol(estimator=estimators.Bounds(reward_width=widths.Censored()))
    with pytest.raises(InvalidArgument, match=r"widths\.Censored"):
        bad(algorithm=algorithm, **options)
