"""One round of a learner in the parts that simulations and sessions share: a point is chosen, then what has arrived is taken in.

A simulation plays both parts of a round in one scan, with values and delays of a problem. A session plays them when a user asks and tells.
Both call these functions, so that equal feedback leads to equal choices.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from jaxbandit.algorithms.base import Algorithm, Arena, Decision, Observation
from jaxbandit.core.declare import is_foreign
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
    return surrogate.outputs == 1 or algorithm.joint_arrival


def immediate_arena(surrogate: Surrogate, horizon: int) -> Arena:
    """Return the arena of a learner that sees the values of a round at its end."""
    return Arena(surrogate=surrogate, horizon=jnp.int32(horizon))


def delayed_arena(surrogate: Surrogate, horizon: int, policy: Policy, *, separate_outputs: bool, capacity: int, axis: str | None) -> Arena:
    """Return the arena of a learner whose values come late, under a feedback policy; arguments as for ``Policy.bind``."""
    late = policy.bind(surrogate, separate_outputs=separate_outputs, capacity=capacity, axis=axis)
    return Arena(surrogate=late, horizon=jnp.int32(horizon))


def policy_key(trial: Key, t: Array) -> Key:
    """Return the key of an algorithm's own random numbers in round ``t``."""
    return round_key(stream_key(trial, Stream.POLICY), t)


def design_key(trial: Key) -> Key:
    """Return the key with which the points of an initial design are drawn."""
    return round_key(stream_key(trial, Stream.DESIGN), 0)


def choose_point(algorithm: Algorithm, arena: Arena, state: Any, t: Array, key: Key) -> Choice:
    """Return the choice of round ``t``, whose point is one of the domain's whatever the algorithm gives, see :func:`faults`."""
    watched = is_foreign(algorithm)  # the package's own algorithms choose points of the domain, by widths that their fields allow
    decision, state = choose(algorithm, arena, state, t, key) if watched else algorithm.select(arena, state, t, key)
    index = jnp.minimum(decision.index, arena.size - 1)  # the size itself marks a NaN score
    return Choice(jnp.maximum(index, 0) if watched else index, decision, state)


def faults(algorithm: Algorithm, arena: Arena, decision: Decision, state: Any, start: Any) -> dict[Status, Array]:
    """Return which failures a decision and the state after it show, each a boolean ``[]``; ``start`` is the state before round 1.

    The package's own algorithms have no state that is not finite without a score that is NaN.
    """
    if not is_foreign(algorithm):
        return {Status.NONFINITE_SCORE: decision.index >= arena.size}
    return {
        Status.NONFINITE_STATE: _is_broken(state, start),
        Status.NONFINITE_SCORE: decision.index == arena.size,
        Status.NO_SUCH_POINT: (decision.index < 0) | (decision.index > arena.size),
        Status.NEGATIVE_WIDTH: ~jnp.all(decision.widths >= 0),
    }


def flags_raised(algorithm: Algorithm, decision: Decision, state: Any) -> Array:
    """Return the flags ``[]`` (int32) that a decision and the state after it raise, such as a declared infeasibility."""
    return jnp.asarray(decision.flags, jnp.int32) | jnp.asarray(algorithm.diagnose(state).flags, jnp.int32)


def start_of(algorithm: Algorithm, arena: Arena) -> Any:
    """Return the state before round 1 that :func:`faults` takes."""
    return algorithm.init(arena) if is_foreign(algorithm) else None


def _is_broken(state: Any, start: Any) -> Array:
    """Return whether a number of a state is NaN, or infinite where the state before round 1 is not, as a best value so far may be."""

    def numbers(tree: Any) -> list[Array]:
        parts = jax.tree.leaves(tree, is_leaf=lambda part: isinstance(part, Posterior))
        kept = [(part.shift, part.variance) if isinstance(part, Posterior) else part for part in parts]  # not its large factors
        return [leaf for leaf in map(jnp.asarray, jax.tree.leaves(kept)) if jnp.issubdtype(leaf.dtype, jnp.inexact)]

    pairs = zip(numbers(state), numbers(start), strict=True)
    found = [~jnp.all(jnp.isfinite(now) | (jnp.isinf(now) & jnp.isinf(before))) for now, before in pairs]
    return jnp.any(jnp.stack(found)) if found else jnp.asarray(False)


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
