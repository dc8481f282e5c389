"""A policy that changes one rule of another is that rule."""

from __future__ import annotations

import inspect
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import Rpol, delays, feedback, fields, problems, simulate, testing
from jaxbandit.core.declare import Array
from jaxbandit.feedback import Feedback, Wait
from jaxbandit.kernels import SquaredExponential


def is_policy(kind: type) -> bool:
    """Whether a class is a policy that can be made."""
    return issubclass(kind, feedback.Policy) and not inspect.isabstract(kind)


@jaxbandit.pytree
class Impatient(Wait):
    """Take in no value that is more than ``patience`` rounds late."""

    name = "impatient"
    patience: Annotated[float, fields.nonnegative] = 0.0

    def taken(self, feedback: Feedback, chosen: Array) -> Array:
        return super().taken(feedback, chosen) & (feedback.ages.astype(jnp.asarray(self.patience).dtype) <= self.patience)[:, None]


@pytest.mark.parametrize("name", [name for name, kind in vars(feedback).items() if inspect.isclass(kind) and is_policy(kind)])
def test_every_policy_keeps_its_promises(name: str) -> None:
    testing.check_policy(getattr(feedback, name))


@pytest.mark.full
def test_a_policy_of_a_user_keeps_its_promises_as_late_as_it_is_patient() -> None:
    testing.check_policy(Impatient(patience=3), late=3)
    with pytest.raises(AssertionError, match="Impatient: is Wait once nothing is under way"):
        testing.check_policy(Impatient(patience=2), late=3)


@pytest.mark.full
def test_a_policy_that_takes_in_less_is_one_method() -> None:
    problem = problems.sine(6)
    model = jaxbandit.surrogate(problem.domain, SquaredExponential(length_scale=1.0), noise_variance=0.05)

    def play(policy: Wait, delay: int) -> np.ndarray:
        late = delays.Constant(rounds=delay)
        given = {"horizon": 8, "trials": 2, "key": jax.random.key(0), "capacity": 8, "block": 1}
        return simulate(problem, Rpol(), model, delay=late, feedback=policy, **given).indices

    assert np.array_equal(play(Impatient(patience=3), 3), play(Wait(), 3))
    assert np.array_equal(play(Impatient(patience=2), 3), play(Wait(), 7)), "nothing is taken in before the last round"
    assert not np.array_equal(play(Wait(), 3), play(Wait(), 7))
