"""Checks of what algorithms, problems and functions return, made while a trial is traced, so that they cost nothing when it runs.

A fault that only running shows is flagged, see :mod:`jaxbandit.core.status`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms.base import Algorithm, Arena, Decision
from jaxbandit.core import checks
from jaxbandit.core.pytree import replace
from jaxbandit.core.types import Array, Key
from jaxbandit.problems import AbstractProblem
from jaxbandit.surrogates import Surrogate

ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of functions, in the text of a program
NUMBERS = (jax.Array, np.ndarray, np.generic, int, float)
PURE: set[Any] = set()  # structures of algorithms that were looked at


def blaming(item: Any, words: str) -> contextlib.AbstractContextManager[None]:
    """Return a context that turns any exception into ``InvalidArgument`` with these words, in which ``{name}`` is the class of ``item``."""
    return checks.blaming(words.format(name=type(item).__name__))


def check_instance(instance: Any, problem: AbstractProblem) -> None:
    """Raise ``InvalidArgument`` unless ``instance``, which ``problem`` has drawn, is a problem with its tables of means."""
    where = f"problem: {type(problem).__name__}.sample"
    if not isinstance(instance, AbstractProblem):
        raise checks.InvalidArgument(f"{where} must return a problem of jaxbandit.problems, got {checks.short(instance)}")
    expected, means = (problem.outputs, problem.domain.size), jnp.asarray(instance.means)
    if means.shape != expected or not jnp.issubdtype(means.dtype, jnp.floating):
        raise checks.InvalidArgument(
            f"{where} must return an instance with real means {list(expected)}, one row per output, got {means.dtype} {list(means.shape)}"
        )


def check_learner(told: Any) -> tuple[Algorithm, Surrogate]:
    """Return the algorithm and the surrogate that an ``informed`` function gave; raise ``InvalidArgument`` unless they are such."""
    if not isinstance(told, tuple) or len(told) != 2 or not isinstance(told[0], Algorithm) or not isinstance(told[1], Surrogate):
        raise checks.InvalidArgument(f"informed: must return (algorithm, surrogate), got {checks.short(told)}")
    return told


def choose(algorithm: Algorithm, arena: Arena, state: Any, t: Array, key: Key) -> tuple[Decision, Any]:
    """Return what an algorithm chooses; raises ``InvalidArgument`` unless it is a decision with the number of a point."""
    where = f"algorithm: {type(algorithm).__name__}.select"
    with checks.blaming(f"{where} must return (Decision, state) for (arena, state, t, key)"):
        _check_pure(where, algorithm, arena, state, t, key)
        chosen = algorithm.select(arena, state, t, key)
    if not isinstance(chosen, tuple) or len(chosen) != 2 or not isinstance(chosen[0], Decision):
        raise checks.InvalidArgument(f"{where} must return (Decision, state), got {checks.short(chosen)}")
    decision, after = chosen
    outputs = arena.constraints + 1
    if not isinstance(decision.index, int | np.integer | np.ndarray | jax.Array) or isinstance(decision.index, bool):
        raise checks.InvalidArgument(f"{where} must choose the number of a point, an int32 [], got index={checks.short(decision.index)}")
    with checks.blaming(f"{where} must choose the number of a point, an int32 []"):
        index = jnp.asarray(decision.index)
    if index.shape != () or not jnp.issubdtype(index.dtype, jnp.integer):
        raise checks.InvalidArgument(f"{where} must choose the number of a point, an int32 [], got {index.dtype} {list(index.shape)}")
    widths = _array(f"{where}: widths", decision.widths, (outputs,), jnp.number).astype(arena.dtype)
    _array(f"{where}: flags", decision.flags, (), jnp.integer)
    for leaf in jax.tree.leaves(decision.draws):  # None where it draws nothing
        _array(f"{where}: draws", leaf, None, np.generic)
    return replace(decision, index=index.astype(jnp.int32), widths=widths), after


def _check_pure(where: str, algorithm: Algorithm, *given: Any) -> None:
    """Raise ``InvalidArgument`` where ``select``, traced twice on the same arguments, gives two programs; once for a structure."""

    def traced() -> tuple[str, list[bytes]]:
        made = jax.make_jaxpr(lambda *given: [x for x in jax.tree.leaves(algorithm.select(*given)) if isinstance(x, NUMBERS)])(*given)
        known = [value for value in made.consts if not checks.is_traced(value) and not jnp.issubdtype(value.dtype, jax.dtypes.extended)]
        return ADDRESS.sub("", str(made.jaxpr)), [np.asarray(value).tobytes() for value in known]

    structure = jax.tree.structure(algorithm)
    if structure in PURE:
        return
    if traced() != traced():
        raise checks.InvalidArgument(
            f"{where} must be a pure function, for it is traced once and then compiled, but it gives another program each time: keep what"
            " changes in the state, not in Python's variables, and draw random numbers by the key"
        )
    PURE.add(structure)


def check_diagnostics(algorithm: Algorithm, arena: Arena, state: Any) -> None:
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


def _array(name: str, value: Any, shape: tuple[int, ...] | None, kind: Any) -> Array:
    """Return an array that a method gave; raise ``InvalidArgument`` unless of that shape and kind; complex numbers are of none."""
    words = "an array" if shape is None else f"{kind.__name__.rstrip('_')} {list(shape)}"
    if not isinstance(value, int | float | np.number | np.ndarray | jax.Array | list | tuple):
        raise checks.InvalidArgument(f"{name} must be {words}, got {checks.short(value)}")
    with checks.blaming(f"{name} must be {words}"):
        array = jnp.asarray(value)
    is_kind = jnp.issubdtype(array.dtype, kind) and not jnp.issubdtype(array.dtype, jnp.complexfloating)
    if not is_kind or (shape is not None and array.shape != shape):
        raise checks.InvalidArgument(f"{name} must be {words}, got {array.dtype} {list(array.shape)}")
    return array
