"""Parts of a learner's round that simulations and sessions share.

They check results of users' classes and functions while JAX traces a trial, and flag the faults of a running trial.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms.base import Algorithm, Arena, Decision
from jaxbandit.core import checks
from jaxbandit.core.declare import Array, Key
from jaxbandit.core.keys import Stream, round_key, stream_key
from jaxbandit.core.pytree import replace
from jaxbandit.core.status import Status
from jaxbandit.domains import Contextual
from jaxbandit.feedback.learner import DelayedSurrogate, LatePosterior
from jaxbandit.problems import AbstractProblem
from jaxbandit.surrogates import BoxSurrogate, Posterior, Surrogate

# Values this many prior deviations away, noise included, are unlikely.
UNLIKELY = 5.0


class Choice(NamedTuple):
    """The point chosen in a round, and the algorithm's state after that."""

    point: Array  # [] int32, row of points
    decision: Decision
    state: object

    @property
    def place(self) -> Array:
        """Unit coordinates ``[d]`` of the point on a box, else its index."""
        return self.point if self.decision.point is None else self.decision.point


def policy_key(trial: Key, t: Array) -> Key:
    """Return the key of an algorithm's own random numbers in round ``t``."""
    return round_key(stream_key(trial, Stream.POLICY), t)


def design_key(trial: Key) -> Key:
    """Return the key of the initial design's random points."""
    return round_key(stream_key(trial, Stream.DESIGN), 0)


def choose_point(algorithm: Algorithm, arena: Arena, state: object, t: Array, key: Key, context: Array | None = None) -> Choice:
    """Return the choice of round ``t``, its point clamped to the domain."""
    where = f"algorithm: {type(algorithm).__name__}.select"
    if isinstance(arena.surrogate, DelayedSurrogate):
        drawing = jax.random.fold_in(key, 1)
        arena = replace(arena, surrogate=replace(arena.surrogate, key=drawing))
    with checks.blaming(f"{where} must return (Decision, state) for (arena, state, t, key)"):
        chosen = algorithm.select(arena if context is None else replace(arena, context=context), state, t, key)
    if not isinstance(chosen, tuple) or len(chosen) != 2 or not isinstance(chosen[0], Decision):
        raise checks.InvalidArgument(f"{where} must return (Decision, state), got {checks.short(chosen)}")
    decision, state = chosen
    index = _array(f"{where} must choose the number of a point, an int32 []", decision.index, (), jnp.integer)
    widths = _array(f"{where}: widths", decision.widths, (arena.constraints + 1,), jnp.number).astype(arena.dtype)
    _array(f"{where}: flags", decision.flags, (), jnp.integer)
    if decision.outputs is not None:
        _array(f"{where}: outputs", decision.outputs, (arena.constraints + 1,), jnp.bool_)
        if not algorithm.traits.decoupled:
            raise checks.InvalidArgument(f"{where} chose some outputs; give the class traits = Traits(decoupled=True)")
    for leaf in jax.tree.leaves(decision.draws):
        _array(f"{where}: draws", leaf, None, np.generic)
    index = index.astype(jnp.int32)
    if context is not None:
        index = cast(Contextual, arena.domain).numbers(context, index)
    decision = replace(decision, index=index, widths=widths)
    point = jax.lax.clamp(jnp.int32(0), decision.index, jnp.int32(arena.size - 1))
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
    """Return the failures of a round, boolean ``[]``, together with ``others``.

    Negative widths and broken states count only if no other failure, now or ``before``, explains them. A NaN score has the index ``M``.
    """
    index = choice.decision.index
    failures = {Status.NONFINITE_SCORE: index == arena.size, Status.NO_SUCH_POINT: (index < 0) | (index > arena.size), **(others or {})}
    unexplained = ~functools.reduce(jnp.bitwise_or, failures.values(), jnp.asarray(before))
    return failures | {
        Status.NEGATIVE_WIDTH: unexplained & ~functools.reduce(jnp.logical_and, list(choice.decision.widths >= 0)),
        Status.NONFINITE_STATE: unexplained & _is_broken(state, infinite, choice.point, arena.size),
    }


def flags_raised(algorithm: Algorithm, decision: Decision, state: object) -> Array:
    """Return the algorithm's int32 flags ``[]``, such as a declared infeasibility."""
    return jnp.asarray(decision.flags, jnp.int32) | jnp.asarray(algorithm.diagnose(state).get("flags", 0), jnp.int32)


def _watched(state: object) -> list[Array]:
    """Return the arrays that :func:`faults` checks, of a posterior only its gain."""
    parts = jax.tree.leaves(state, is_leaf=lambda part: isinstance(part, Posterior | LatePosterior))
    leaves = (jnp.asarray(part.gain if isinstance(part, Posterior | LatePosterior) else part) for part in parts)
    return [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact)]


def may_be_infinite(start: object) -> list[Array]:
    """Return whether each number of the initial state is infinite."""
    return [jnp.isinf(leaf) for leaf in _watched(start)]


def _is_broken(state: object, infinite: list[Array], point: Array, size: int) -> Array:
    """Return whether a state has a NaN or a new infinity."""

    def is_broken(now: Array, allowed: Array) -> Array:
        # Functions on the points are checked at the chosen point only.
        if now.shape[-1:] == (size,):
            now, allowed = now[..., point], allowed[..., point]
        return jnp.any(~jax.lax.is_finite(now) & (~allowed | (now != now)))

    return functools.reduce(jnp.logical_or, [is_broken(*pair) for pair in zip(_watched(state), infinite, strict=True)], jnp.asarray(False))


def surprises_at(model: Surrogate, index: Array, values: Array) -> tuple[Array, Array, Array]:
    """Return whether each value ``[k]`` is not NaN, unlikely, and impossible."""
    variances = [jnp.asarray(form.prior_variance)[index] + model.noise_at(g, index) for g, form in enumerate(model.forms)]
    variance, outputs = variances[0], jnp.arange(len(model.groups), dtype=jnp.int32)
    # A GPU would stack the variances in a kernel of its own.
    for g, other in enumerate(variances[1:], start=1):
        is_of_group = functools.reduce(jnp.logical_or, [outputs == j for j, group in enumerate(model.groups) if group == g])
        variance = jnp.where(is_of_group, other, variance)
    away = values - jnp.asarray(model.prior_mean, values.dtype)
    square = away * away
    # Values 20 prior deviations away, noise included, are impossible. The papers' functions reach 14.
    return square == square, square > UNLIKELY**2 * variance, square > 20.0**2 * variance


def far_from_prior(algorithm: Algorithm, model: Surrogate, counts: tuple[Array, Array, Array]) -> dict[Status, Array]:
    """Return whether all values of an output are unlikely, or several impossible.

    There is no such flag where beliefs do not use the model's own prior mean and variance.
    """
    if not algorithm.traits.learns or (algorithm.traits.standardises and isinstance(model, BoxSurrogate)):
        return {}
    seen, unlikely, impossible = counts
    a_few = 5
    far: Array = (((unlikely == seen) & (seen >= a_few)) | ((impossible >= a_few) & (impossible > seen // 100))).any()
    return {Status.FAR_FROM_PRIOR: far}


def with_flags(status: Array, raised: Mapping[Status, Array]) -> Array:
    """Return int32 flags ``[]`` together with those that are ``raised``."""
    return functools.reduce(jnp.bitwise_or, [is_so.astype(jnp.int32) * int(bit) for bit, is_so in raised.items()], status)


def blaming_class(item: object, words: str) -> contextlib.AbstractContextManager[None]:
    """Return a context that names the class of ``item`` in errors."""
    return checks.blaming(words.format(name=type(item).__name__))


def check_instance(instance: object, problem: AbstractProblem) -> None:
    """Raise ``InvalidArgument`` unless the instance is a problem with means."""
    where = f"problem: {type(problem).__name__}.sample"
    if not isinstance(instance, AbstractProblem):
        raise checks.InvalidArgument(f"{where} must return a problem of jaxbandit.problems, got {checks.short(instance)}")
    expected = (problem.outputs, problem.domain.size)
    _array(f"{where} must return an instance with real means {list(expected)}, one row per output", instance.means, expected, jnp.floating)


def check_diagnostics(algorithm: Algorithm, arena: Arena, state: object) -> None:
    """Raise ``InvalidArgument`` unless an algorithm's diagnostics have the shapes of records."""
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
    """Return ``value`` as a real array, or raise ``InvalidArgument``."""
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
