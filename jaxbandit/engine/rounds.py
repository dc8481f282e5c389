"""One round of a learner in the parts that simulations and sessions share: a point is chosen, then what has arrived is taken in.

What users' classes and functions return is checked while a trial is traced; a fault that only running shows is flagged.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms.base import Algorithm, Arena, Decision
from jaxbandit.core import checks
from jaxbandit.core.declare import Array, Key
from jaxbandit.core.keys import Stream, round_key, stream_key
from jaxbandit.core.pytree import replace
from jaxbandit.core.status import Status
from jaxbandit.problems import AbstractProblem
from jaxbandit.surrogates import BoxSurrogate, Posterior, Surrogate

# Prior deviations, noise included, beyond which the model calls a value unlikely, and impossible; the papers' functions reach 14.
UNLIKELY, IMPOSSIBLE = 5.0, 20.0
A_FEW = 5  # values


class Choice(NamedTuple):
    """The point chosen in a round, and the algorithm's state after that."""

    point: Array  # [] int32, a row of the domain's points, or of those that the posterior of a box holds
    decision: Decision  # as the algorithm made it; its index may mark a NaN score
    state: object

    @property
    def place(self) -> Array:
        """The point as a problem takes it: on a box its coordinates ``[d]`` in the unit cube, else its index ``[]``."""
        return self.point if self.decision.point is None else self.decision.point


def policy_key(trial: Key, t: Array) -> Key:
    """Return the key of an algorithm's own random numbers in round ``t``."""
    return round_key(stream_key(trial, Stream.POLICY), t)


def design_key(trial: Key) -> Key:
    """Return the key with which the points of an initial design are drawn."""
    return round_key(stream_key(trial, Stream.DESIGN), 0)


def choose_point(algorithm: Algorithm, arena: Arena, state: object, t: Array, key: Key) -> Choice:
    """Return the choice of round ``t``, whose point is one of the domain's whatever the algorithm gives, see :func:`faults`."""
    where = f"algorithm: {type(algorithm).__name__}.select"
    with checks.blaming(f"{where} must return (Decision, state) for (arena, state, t, key)"):
        chosen = algorithm.select(arena, state, t, key)
    if not isinstance(chosen, tuple) or len(chosen) != 2 or not isinstance(chosen[0], Decision):
        raise checks.InvalidArgument(f"{where} must return (Decision, state), got {checks.short(chosen)}")
    decision, state = chosen
    index = _array(f"{where} must choose the number of a point, an int32 []", decision.index, (), jnp.integer)
    widths = _array(f"{where}: widths", decision.widths, (arena.constraints + 1,), jnp.number).astype(arena.dtype)
    _array(f"{where}: flags", decision.flags, (), jnp.integer)
    for leaf in jax.tree.leaves(decision.draws):  # None where it draws nothing
        _array(f"{where}: draws", leaf, None, np.generic)
    decision = replace(decision, index=index.astype(jnp.int32), widths=widths)
    point = jax.lax.clamp(jnp.int32(0), decision.index, jnp.int32(arena.size - 1))  # the size itself marks a NaN score
    return Choice(point, decision, state)


def faults(
    arena: Arena,
    choice: Choice,
    state: object,
    infinite: list[Array],
    others: Mapping[Status, Array] | None = None,
    *,
    before: Array | bool = False,
) -> dict[Status, Array]:
    """Return which failures a round shows, each a boolean ``[]``; ``others`` are those that the choice does not show.

    Widths and states that are none count where no other failure, now or ``before``, has led to them; for ``infinite`` see below.
    """
    index = choice.decision.index
    failures = {Status.NONFINITE_SCORE: index == arena.size, Status.NO_SUCH_POINT: (index < 0) | (index > arena.size), **(others or {})}
    unexplained = ~functools.reduce(jnp.bitwise_or, failures.values(), jnp.asarray(before))
    return failures | {
        Status.NEGATIVE_WIDTH: unexplained & ~functools.reduce(jnp.logical_and, list(choice.decision.widths >= 0)),
        Status.NONFINITE_STATE: unexplained & _is_broken(state, infinite, choice.point, arena.size),
    }


SYMPTOMS = int(Status.NEGATIVE_WIDTH | Status.NONFINITE_STATE)  # flags of rounds without another failure


def flags_raised(algorithm: Algorithm, decision: Decision, state: object) -> Array:
    """Return the flags ``[]`` (int32) that a decision and the state after it raise, such as a declared infeasibility."""
    return jnp.asarray(decision.flags, jnp.int32) | jnp.asarray(algorithm.diagnose(state).get("flags", 0), jnp.int32)


def _watched(state: object) -> list[Array]:
    """Return the numbers of a state that :func:`faults` looks at: of posteriors the gain alone, which a function that is none makes NaN."""
    parts = jax.tree.leaves(state, is_leaf=lambda part: isinstance(part, Posterior))
    leaves = (jnp.asarray(part.gain if isinstance(part, Posterior) else part) for part in parts)
    return [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact)]


def may_be_infinite(start: object) -> list[Array]:
    """Return which numbers of the state before round 1 are infinite, as a best value so far may be, see :func:`faults`."""
    return [jnp.isinf(leaf) for leaf in _watched(start)]


def _is_broken(state: object, infinite: list[Array], point: Array, size: int) -> Array:
    """Return whether a number of a state is NaN, or infinite where it was not before round 1; of functions on the points at one of them."""

    def is_broken(now: Array, allowed: Array) -> Array:
        if now.shape[-1:] == (size,):
            now, allowed = now[..., point], allowed[..., point]
        return jnp.any(~jax.lax.is_finite(now) & (~allowed | (now != now)))

    return functools.reduce(jnp.logical_or, [is_broken(*pair) for pair in zip(_watched(state), infinite, strict=True)], jnp.asarray(False))


def surprises_at(model: Surrogate, index: Array, values: Array) -> tuple[Array, Array, Array]:
    """Return which values ``[k]`` at a point are there, as NaN is not, and which are unlikely and impossible under the model's prior."""
    variances = [jnp.asarray(form.prior_variance)[index] + model.noise_at(g, index) for g, form in enumerate(model.forms)]
    variance, outputs = variances[0], jnp.arange(len(model.groups), dtype=jnp.int32)
    for g, other in enumerate(variances[1:], start=1):  # not stacked, which a GPU does in a kernel of its own
        is_of_group = functools.reduce(jnp.logical_or, [outputs == j for j, group in enumerate(model.groups) if group == g])
        variance = jnp.where(is_of_group, other, variance)
    away = values - jnp.asarray(model.prior_mean, values.dtype)
    square = away * away
    return square == square, square > UNLIKELY**2 * variance, square > IMPOSSIBLE**2 * variance


def goes_by_prior(algorithm: Algorithm, model: Surrogate) -> bool:
    """Return whether beliefs go by the model's own prior mean and variance, so that values far from them tell of a mistake."""
    return algorithm.traits.learns and not (algorithm.traits.standardises and isinstance(model, BoxSurrogate))


def is_far(counts: tuple[Array, Array, Array]) -> Array:
    """Return whether all values of an output are unlikely, as with an offset, or more than a few impossible, from their counts ``[k]``."""
    seen, unlikely, impossible = counts
    far: Array = (((unlikely == seen) & (seen >= A_FEW)) | ((impossible >= A_FEW) & (impossible > seen // 100))).any()
    return far


def blaming(item: object, words: str) -> contextlib.AbstractContextManager[None]:
    """Return a context that turns any exception into ``InvalidArgument`` with these words, in which ``{name}`` is the class of ``item``."""
    return checks.blaming(words.format(name=type(item).__name__))


def check_instance(instance: object, problem: AbstractProblem) -> None:
    """Raise ``InvalidArgument`` unless ``instance``, which ``problem`` has drawn, is a problem with its tables of means."""
    where = f"problem: {type(problem).__name__}.sample"
    if not isinstance(instance, AbstractProblem):
        raise checks.InvalidArgument(f"{where} must return a problem of jaxbandit.problems, got {checks.short(instance)}")
    expected = (problem.outputs, problem.domain.size)
    _array(f"{where} must return an instance with real means {list(expected)}, one row per output", instance.means, expected, jnp.floating)


def check_diagnostics(algorithm: Algorithm, arena: Arena, state: object) -> None:
    """Raise ``InvalidArgument`` unless what an algorithm shows of a state has the shapes that records hold."""
    where = f"algorithm: {type(algorithm).__name__}.diagnose"
    with checks.blaming(f"{where} must return named arrays for a state"):
        shown = algorithm.diagnose(state)
    if not isinstance(shown, Mapping):
        raise checks.InvalidArgument(f"{where} must return named arrays, a mapping, got {checks.short(shown)}")
    expected = {
        "flags": ((), jnp.integer),
        "multipliers": ((arena.constraints,), jnp.number),
        "candidates": ((arena.size,), jnp.bool_),
        "evaluations": ((), jnp.integer),
    }
    for name, value in shown.items():
        _array(f"{where}: {name}", value, *expected.get(name, (None, jnp.generic)))


def _array(name: str, value: object, shape: tuple[int, ...] | None, kind: Any) -> Array:
    """Return an array that a method gave; raise ``InvalidArgument`` unless of that shape and kind; complex numbers are of none."""
    wanted = "an array" if shape is None else f"{kind.__name__.rstrip('_')} {list(shape)}"
    words = name if " must " in name else f"{name} must be {wanted}"
    if not isinstance(value, int | float | np.number | np.ndarray | jax.Array | list | tuple):
        raise checks.InvalidArgument(f"{words}, got {checks.short(value)}")
    with checks.blaming(words):
        array = jnp.asarray(value)
    is_kind = jnp.issubdtype(array.dtype, kind) and not jnp.issubdtype(array.dtype, jnp.complexfloating)
    if not is_kind or (shape is not None and array.shape != shape):
        raise checks.InvalidArgument(f"{words}, got {array.dtype} {list(array.shape)}")
    return array
