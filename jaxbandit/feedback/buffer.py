"""The buffer of pending feedback, and the values of it that arrive in a round."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from jaxbandit.core.fields import Described
from jaxbandit.core.pytree import pytree, replace
from jaxbandit.core.types import Array


@pytree
class Feedback(Described):
    """Feedback of one round under delay: the point chosen, and the values that arrive at the round's end.

    ``C`` is the buffer's capacity, ``k = 1 + m`` outputs. A slot's entries mean nothing where ``present`` is false.
    """

    described: ClassVar[str] = "what arrives in a round, a jaxbandit.feedback.Feedback"
    index: Array  # [] int32, the point chosen in this round
    own_values: Array  # [k] its values
    own_present: Array  # [k] which of them are there at once
    indices: Array  # [C] int32, points chosen in earlier rounds, and this one
    values: Array  # [C, k]
    ages: Array  # [C] int32, rounds since they were chosen, 0 for this round's
    present: Array  # [C, k] whether a value arrives now

    def total(self) -> Array:
        """Return the sum of the values of each output that arrive in this round, ``[k]``."""
        return jnp.sum(jnp.where(self.present, self.values, 0), axis=0)

    def largest(self) -> Array:
        """Return the largest value of each output that arrives in this round, ``[k]``, ``-inf`` where none does."""
        return jnp.max(jnp.where(self.present, self.values, -jnp.inf), axis=0)

    @property
    def count(self) -> Array:
        """Number of values of each output that arrive in this round, ``[k]``."""
        return jnp.sum(self.present, axis=0).astype(self.values.dtype)

    def map(self, function: Callable[[Array], Array]) -> Feedback:
        """Return the same feedback with ``function`` of every point's values ``[k]``."""
        return replace(self, values=jax.vmap(function)(self.values), own_values=function(self.own_values))


@pytree
class Pending:
    """Feedback that has not arrived: ``C`` slots that are used in turn, so that nothing is lost while delays stay below ``C`` rounds."""

    indices: Array  # [C] int32
    values: Array  # [C, k]
    issued: Array  # [C] int32, the round in which the point was chosen, 0 for a slot never used
    due: Array  # [C, k] int32, the round at whose end each value arrives
    lost: Array  # [k] int32, values overwritten that were to arrive within the horizon

    @classmethod
    def empty(cls, capacity: int, outputs: int, dtype: DTypeLike) -> Pending:
        """Return a buffer of ``capacity`` free slots."""
        return cls(
            indices=jnp.zeros((capacity,), jnp.int32),
            values=jnp.zeros((capacity, outputs), dtype),
            issued=jnp.zeros((capacity,), jnp.int32),
            due=jnp.zeros((capacity, outputs), jnp.int32),
            lost=jnp.zeros((outputs,), jnp.int32),
        )

    def push(self, t: Array, index: Array, values: Array, due: Array, horizon: Array) -> Pending:
        """Put round ``t``'s point into the slot of the oldest one; values still to come there are counted as lost."""
        slot = (t - 1) % self.indices.shape[0]
        overwritten = (self.due[slot] >= t) & (self.due[slot] <= horizon)
        return Pending(
            indices=self.indices.at[slot].set(index),
            values=self.values.at[slot].set(values),
            issued=self.issued.at[slot].set(t),
            due=self.due.at[slot].set(due),
            lost=self.lost + overwritten.astype(jnp.int32),
        )

    def arriving(self, t: Array, index: Array, values: Array, due: Array) -> Feedback:
        """Return the feedback at the end of round ``t``, whose point has just been pushed."""
        return Feedback(
            index=index,
            own_values=values,
            own_present=due == t,
            indices=self.indices,
            values=self.values,
            ages=t - self.issued,
            present=self.due == t,
        )

    def received(self, t: Array, index: Array, values: Array, arrived: Array) -> tuple[Pending, Feedback]:
        """Return the buffer and the feedback at the end of round ``t``, of a learner that learns values when they come.

        Round ``t``'s point takes the slot of the oldest one, and ``values [C, k]`` are written where ``arrived [C, k]`` is true.
        """
        nothing = jnp.zeros_like(self.lost)
        pushed = self.push(t, index, nothing.astype(self.values.dtype), nothing, t)
        after = replace(pushed, values=jnp.where(arrived, values, pushed.values), due=jnp.where(arrived, t, pushed.due))
        slot = (t - 1) % self.indices.shape[0]
        return after, after.arriving(t, index, after.values[slot], after.due[slot])
