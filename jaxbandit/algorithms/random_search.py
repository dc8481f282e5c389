"""Random search: the floor that a learner has to leave behind."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.acquisition import uniform
from jaxbandit.algorithms.base import Algorithm, Arena, BeliefState, Decision, Observation
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.pytree import pytree
from jaxbandit.feedback import Feedback

Array = jax.Array


@pytree
class RandomSearch(Algorithm):
    """A point drawn uniformly from the grid, or from the points it is allowed; it learns nothing, and its information gain stays 0.

    Attributes:
      allowed: ``[M]`` booleans, where it may draw; default everywhere. ``informed=jaxbandit.informed.FeasiblePoints()`` allows the
        feasible points of each instance: what luck earns at no violation. (Where no point is feasible it draws from all.)
    """

    name: ClassVar[str] = "randomsearch"
    allowed: Any = None

    def select(self, arena: Arena, state: BeliefState, t: Array, key: Array) -> tuple[Decision, BeliefState]:
        everywhere = jnp.ones((arena.size,), bool)
        allowed = everywhere if self.allowed is None else jnp.where(jnp.any(self.allowed), self.allowed, everywhere)
        widths = jnp.zeros((1 + arena.constraints,), arena.dtype)
        return Decision(index=uniform(key, allowed), widths=widths), state

    def update(self, arena: Arena, state: BeliefState, observation: Observation | Feedback, t: Array) -> BeliefState:
        return state

    def validate(self, constraints: int) -> None:
        if self.allowed is not None and (np.ndim(self.allowed) != 1 or jnp.asarray(self.allowed).dtype != bool):
            raise InvalidArgument(f"RandomSearch.allowed: expected booleans [M], got {self.allowed!r}")
