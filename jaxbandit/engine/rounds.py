"""One round of a learner in the parts that simulations and sessions share: a point is chosen, then what has arrived is taken in.

A simulation plays both parts of a round in one scan, with values and delays of a problem. A session plays them when a user asks and tells.
Both call these functions, so that equal feedback leads to equal choices.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms.base import Algorithm, Arena, Decision, Observation
from jaxbandit.core.keys import Stream, round_key, stream_key
from jaxbandit.core.status import Status
from jaxbandit.core.types import Array, Key
from jaxbandit.engine.users import choose
from jaxbandit.feedback import Feedback, Policy
from jaxbandit.surrogates import Posterior, Surrogate

# Prior deviations, noise included, beyond which the model calls a value unlikely, and impossible; the papers' functions reach 14.
UNLIKELY, IMPOSSIBLE = 5.0, 20.0
A_FEW = 5  # values
T = TypeVar("T")


class Choice(NamedTuple):
    """The point chosen in a round, and the algorithm's state after that."""

    point: Array  # [] int32, a row of the domain's points
    decision: Decision  # as the algorithm made it; its index may mark a NaN score
    state: Any


def values_come_together(algorithm: Algorithm, surrogate: Surrogate) -> bool:
    """Return whether late values of a point reach the algorithm together, with the last of them."""
    return surrogate.outputs == 1 or algorithm.traits.joint_arrival


def immediate_arena(surrogate: Surrogate, horizon: int) -> Arena:
    """Return the arena of a learner that sees the values of a round at its end."""
    return Arena(surrogate=surrogate, horizon=jnp.asarray(np.int32(horizon)))


def delayed_arena(surrogate: Surrogate, horizon: int, policy: Policy, *, separate_outputs: bool, capacity: int, axis: str | None) -> Arena:
    """Return the arena of a learner whose values come late, under a feedback policy; arguments as for ``Policy.bind``."""
    late = policy.bind(surrogate, separate_outputs=separate_outputs, capacity=capacity, axis=axis)
    return Arena(surrogate=late, horizon=jnp.asarray(np.int32(horizon)))


def policy_key(trial: Key, t: Array) -> Key:
    """Return the key of an algorithm's own random numbers in round ``t``."""
    return round_key(stream_key(trial, Stream.POLICY), t)


def design_key(trial: Key) -> Key:
    """Return the key with which the points of an initial design are drawn."""
    return round_key(stream_key(trial, Stream.DESIGN), 0)


def choose_point(algorithm: Algorithm, arena: Arena, state: Any, t: Array, key: Key) -> Choice:
    """Return the choice of round ``t``, whose point is one of the domain's whatever the algorithm gives, see :func:`faults`."""
    decision, state = choose(algorithm, arena, state, t, key)
    point = jax.lax.clamp(jnp.int32(0), decision.index, jnp.int32(arena.size - 1))  # the size itself marks a NaN score
    return Choice(point, decision, state)


def faults(
    arena: Arena,
    choice: Choice,
    state: Any,
    infinite: list[Array],
    others: Mapping[Status, Array] | None = None,
    *,
    before: Array | bool = False,
) -> dict[Status, Array]:
    """Return which failures a round shows, each a boolean ``[]``.

    Widths and states that are none are failures in a trial without another one, which would lead to them.

    Args:
      arena: all that the learner knows.
      choice: the choice of the round.
      state: the algorithm's state after it, or after the round.
      infinite: what :func:`may_be_infinite` returns.
      others: failures of the round that the choice does not show.
      before: whether a round before it has failed, ``[]``.
    """
    index = choice.decision.index
    found = {Status.NONFINITE_SCORE: index == arena.size, Status.NO_SUCH_POINT: (index < 0) | (index > arena.size), **(others or {})}
    unexplained = ~functools.reduce(jnp.bitwise_or, found.values(), jnp.asarray(before))
    return found | {
        Status.NEGATIVE_WIDTH: unexplained & ~jnp.all(choice.decision.widths >= 0),
        Status.NONFINITE_STATE: unexplained & _is_broken(state, infinite, choice.point, arena.size),
    }


SYMPTOMS = int(Status.NEGATIVE_WIDTH | Status.NONFINITE_STATE)
"""Flags of rounds that have not failed otherwise in trials that have not failed before."""


def flags_raised(algorithm: Algorithm, decision: Decision, state: Any) -> Array:
    """Return the flags ``[]`` (int32) that a decision and the state after it raise, such as a declared infeasibility."""
    return jnp.asarray(decision.flags, jnp.int32) | jnp.asarray(algorithm.diagnose(state).get("flags", 0), jnp.int32)


def watched(state: Any) -> list[Array]:
    """Return the numbers of a state that :func:`faults` looks at: of posteriors the gain alone, which a function that is none makes NaN."""
    parts = jax.tree.leaves(state, is_leaf=lambda part: isinstance(part, Posterior))
    leaves = (jnp.asarray(part.gain if isinstance(part, Posterior) else part) for part in parts)
    return [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact)]


def may_be_infinite(start: Any) -> list[Array]:
    """Return which of the :func:`watched` numbers are infinite in the state before round 1, as a best value so far may be."""
    return [jnp.isinf(leaf) for leaf in watched(start)]


def _is_broken(state: Any, infinite: list[Array], point: Array, size: int) -> Array:
    """Return whether a number of a state is NaN, or infinite where it was not before round 1.

    Functions on the ``size`` points are looked at where ``point`` is, for a look at all of them would take as long as a choice.
    """

    def is_broken(now: Array, allowed: Array) -> Array:
        if now.shape[-1:] == (size,):
            now, allowed = now[..., point], allowed[..., point]
        return jnp.any(~jax.lax.is_finite(now) & (~allowed | (now != now)))

    return functools.reduce(jnp.logical_or, [is_broken(*pair) for pair in zip(watched(state), infinite, strict=True)], jnp.asarray(False))


def surprises_at(model: Surrogate, index: Array, values: Array) -> tuple[Array, Array, Array]:
    """Return the :func:`surprises` ``[k]`` of values ``[k]`` at a point."""
    own = [jnp.asarray(form.prior_variance)[index] + model.noise_at(g, index) for g, form in enumerate(model.forms)]
    return surprises(values, jnp.asarray(model.prior_mean, values.dtype), jnp.stack([own[g] for g in model.groups]))


def surprises(values: T, mean: Any, variance: Any) -> tuple[T, T, T]:
    """Return which ``values [..., k]`` are there, as NaN is not, and which are unlikely and impossible under their prior mean and variance.

    They are NumPy's arrays or JAX's.
    """
    away: Any = values - mean
    square = away * away
    return square == square, square > UNLIKELY**2 * variance, square > IMPOSSIBLE**2 * variance


def is_far(counts: tuple[Any, Any, Any]) -> Any:
    """Return whether too many values lie far from the prior, given how many ``[k]`` of each output :func:`surprises` finds.

    Either all values of an output are unlikely, as when a reward has an offset, or more than a few are impossible.
    """
    seen, unlikely, impossible = counts
    return (((unlikely == seen) & (seen >= A_FEW)) | ((impossible >= A_FEW) & (impossible > seen // 100))).any()


def take_in(algorithm: Algorithm, arena: Arena, state: Any, observation: Observation | Feedback, t: Array) -> Any:
    """Return the algorithm's state after round ``t``, with the values of the round, or with those that arrived at its end."""
    return algorithm.update(arena, state, observation, t)
