"""What learners under delay have in common: the surrogate's interface, and a loop over arrivals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from jaxbandit.core.pytree import pytree, static
from jaxbandit.domains import Domain
from jaxbandit.feedback.buffer import Feedback
from jaxbandit.surrogates import Surrogate

Array = jax.Array
T = TypeVar("T")


@pytree
class Learner:
    """A surrogate that is taught by delayed feedback; abstract.

    Attributes:
      surrogate: the GP model.
      axis: name of the batch axis of trials, ``None`` for a trial by itself.
    """

    surrogate: Surrogate
    axis: str | None = static(default=None)

    @property
    def domain(self) -> Domain:
        """The ``M`` points."""
        return self.surrogate.domain

    @property
    def forms(self) -> tuple[Any, ...]:
        """One factorisation per group of outputs that share chosen points."""
        return self.surrogate.forms

    @property
    def noise_variance(self) -> Any:
        """``[G]`` regulariser of each group."""
        return self.surrogate.noise_variance

    @property
    def outputs(self) -> int:
        """``k = 1 + m``."""
        return self.surrogate.outputs

    @property
    def constraints(self) -> int:
        """``m``."""
        return self.surrogate.constraints


def fold(learner: Learner, step: Callable[[T, Array, Array], T], carry: T, mask: Array) -> T:
    """Take in arrivals one by one: ``carry = step(carry, slots [k], here [k])`` until ``mask [C, k]`` is used up.

    In each step every output takes its next arrival, ``here`` says whether it has one left. Under ``vmap`` the number of steps is the
    largest among the trials, so that the loop has one exit for all and its carry is updated in place.
    """
    count = jnp.max(jnp.sum(mask, axis=0, dtype=jnp.int32))
    if learner.axis is not None:
        count = jax.lax.pmax(count, learner.axis)
    places = jnp.arange(mask.shape[0], dtype=jnp.int32)[:, None]

    def one(_: Array, state: tuple[T, Array]) -> tuple[T, Array]:
        carry, mask = state
        slots = jnp.argmax(mask, axis=0).astype(jnp.int32)
        carry = step(carry, slots, jnp.any(mask, axis=0))
        return carry, mask & (places != slots[None, :])

    return jax.lax.fori_loop(0, count, one, (carry, mask))[0]


def taken(feedback: Feedback, slots: Array) -> tuple[Array, Array]:
    """Points ``[k]`` and values ``[k]`` in each output's slot."""
    outputs = jnp.arange(slots.shape[0])
    return feedback.indices[slots], feedback.values[slots, outputs]


def fresh(feedback: Feedback, chosen: Array) -> Array:
    """Which slots ``[C]`` hold points chosen in the last ``chosen`` rounds: a restart forgets older ones for good."""
    return feedback.ages < chosen
