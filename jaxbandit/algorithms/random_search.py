"""Random search: the floor that a learner has to leave behind."""

from __future__ import annotations

from typing import Annotated, ClassVar

import jax.numpy as jnp

from jaxbandit.acquisition import draw_uniformly
from jaxbandit.algorithms.base import Algorithm, Arena, BeliefState, Decision, Traits
from jaxbandit.core.fields import mask
from jaxbandit.core.pytree import pytree
from jaxbandit.core.types import Array, Key


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
