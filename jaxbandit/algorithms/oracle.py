"""The clairvoyant optimum: the ceiling."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms.base import Algorithm, Arena, BeliefState, Decision, Observation
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.pytree import pytree
from jaxbandit.feedback import Feedback

Array = jax.Array


@pytree
class Oracle(Algorithm):
    """One point in every round, the best feasible one when it is told by ``informed=jaxbandit.informed.BestPoint()``.

    Attributes:
      index: the point; it has to be told one, for an algorithm cannot look at the truth.
    """

    name: ClassVar[str] = "oracle"
    index: Any = None

    def init(self, arena: Arena) -> BeliefState:
        if self.index is None:
            raise InvalidArgument("Oracle.index: nobody told it the optimum; pass informed=jaxbandit.informed.BestPoint() to simulate")
        return BeliefState(posterior=arena.surrogate.init())

    def select(self, arena: Arena, state: BeliefState, t: Array, key: Array) -> tuple[Decision, BeliefState]:
        widths = jnp.zeros((1 + arena.constraints,), arena.dtype)
        return Decision(index=jnp.asarray(self.index).astype(jnp.int32), widths=widths), state

    def update(self, arena: Arena, state: BeliefState, observation: Observation | Feedback, t: Array) -> BeliefState:
        return state

    def validate(self, constraints: int) -> None:
        given = self.index
        if given is not None and (np.shape(given) != () or given < 0 or given != int(given)):
            raise InvalidArgument(f"Oracle.index: must be the number of a point, got {given!r}")
