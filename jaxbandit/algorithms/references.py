"""The floor that a learner has to leave behind, and the ceiling."""

from __future__ import annotations

from typing import Annotated, ClassVar

import jax.numpy as jnp

from jaxbandit.acquisition import draw_uniformly
from jaxbandit.algorithms.base import Algorithm, Arena, BeliefState, Decision, Traits
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.fields import mask, point
from jaxbandit.core.pytree import pytree
from jaxbandit.core.types import Array, Key, Scalar


@pytree
class RandomSearch(Algorithm[BeliefState]):
    """Draw points uniformly from the grid, or from those allowed; nothing is learnt, and the information gain stays 0.

    Attributes:
      allowed: ``[M]`` booleans, the points that may be drawn; default all. ``informed=jaxbandit.informed.FeasiblePoints()`` allows the
        feasible points of each instance: what luck earns at no violation. (Where no point is feasible, all are allowed.)
    """

    name: ClassVar[str] = "randomsearch"
    title: ClassVar[str] = "random search"
    traits = Traits(learns=False)
    allowed: Annotated[Array, mask] | None = None

    def select(self, arena: Arena, state: BeliefState, t: Array, key: Key) -> tuple[Decision, BeliefState]:
        everywhere = jnp.ones((arena.size,), bool)
        allowed = everywhere if self.allowed is None else jnp.where(jnp.any(self.allowed), self.allowed, everywhere)
        widths = jnp.zeros((1 + arena.constraints,), arena.dtype)
        return Decision(index=draw_uniformly(key, allowed), widths=widths), state


@pytree
class Oracle(Algorithm[BeliefState]):
    """Choose one point in every round: the best feasible one, which ``informed=jaxbandit.informed.BestPoint()`` tells.

    Attributes:
      index: number of the point. It has to be told, for an algorithm cannot look at the truth.
    """

    name: ClassVar[str] = "oracle"
    title: ClassVar[str] = "clairvoyant"
    traits = Traits(learns=False)
    index: Annotated[Scalar, point] | None = None

    def init(self, arena: Arena) -> BeliefState:
        if self.index is None:
            raise InvalidArgument("Oracle.index: nobody told it the optimum; pass informed=jaxbandit.informed.BestPoint() to simulate")
        return super().init(arena)

    def select(self, arena: Arena, state: BeliefState, t: Array, key: Key) -> tuple[Decision, BeliefState]:
        widths = jnp.zeros((1 + arena.constraints,), arena.dtype)
        return Decision(index=jnp.asarray(self.index).astype(jnp.int32), widths=widths), state
