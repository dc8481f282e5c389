"""Random search: the floor that a learner has to leave behind."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.acquisition import uniform
from jaxbandit.algorithms.base import Arena, Decision, Observation
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.pytree import pytree

Array = jax.Array


@pytree
class RandomSearchState:
    """What random search carries: a prior that it never conditions."""

    posterior: Any


@pytree
class RandomSearch:
    """A point drawn uniformly from the grid, or from the points it is allowed; it learns nothing, and its information gain stays 0.

    Attributes:
      allowed: ``[M]`` booleans, where it may draw; default everywhere. ``informed=jaxbandit.informed.FeasiblePoints()`` allows the
        feasible points of each instance: what luck earns at no violation. (Where no point is feasible it draws from all.)
    """

    name: ClassVar[str] = "randomsearch"
    allowed: Any = None

    def init(self, arena: Arena) -> RandomSearchState:
        return RandomSearchState(posterior=arena.surrogate.init())

    def select(self, arena: Arena, state: RandomSearchState, t: Array, key: Array) -> tuple[Decision, RandomSearchState]:
        everywhere = jnp.ones((arena.surrogate.domain.size,), bool)
        allowed = everywhere if self.allowed is None else jnp.where(jnp.any(self.allowed), self.allowed, everywhere)
        widths = jnp.zeros((1 + arena.constraints,), state.posterior.mean.dtype)
        return Decision(index=uniform(key, allowed), widths=widths), state

    def update(self, arena: Arena, state: RandomSearchState, observation: Observation, t: Array) -> RandomSearchState:
        return state

    def validate(self, constraints: int) -> None:
        if self.allowed is not None and (np.ndim(self.allowed) != 1 or jnp.asarray(self.allowed).dtype != bool):
            raise InvalidArgument(f"RandomSearch.allowed: expected booleans [M], got {self.allowed!r}")
