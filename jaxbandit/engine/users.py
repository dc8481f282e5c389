"""Checks of the results of users' classes and functions, made while a trial is traced, so that they cost nothing when it runs.

A fault that only running shows is flagged, see :mod:`jaxbandit.core.status`.
"""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms.base import Algorithm, Arena, Decision
from jaxbandit.core import checks
from jaxbandit.core.declare import is_foreign
from jaxbandit.core.pytree import replace
from jaxbandit.core.types import Array, Key
from jaxbandit.problems import AbstractProblem
from jaxbandit.surrogates import Surrogate


def blaming_user(item: Any, words: str) -> contextlib.AbstractContextManager[None]:
    """Return a context that turns any exception into ``InvalidArgument`` if ``item`` is of a user's class; ``{name}`` is the class's."""
    return checks.blaming(words.format(name=type(item).__name__)) if is_foreign(item) else contextlib.nullcontext()


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
    """Return what a user's algorithm chooses; raise ``InvalidArgument`` unless it is a decision with the number of a point."""
    where = f"algorithm: {type(algorithm).__name__}.select"
    with checks.blaming(f"{where} must return (Decision, state) for (arena, state, t, key)"):
        chosen = algorithm.select(arena, state, t, key)
    if not isinstance(chosen, tuple) or len(chosen) != 2 or not isinstance(chosen[0], Decision):
        raise checks.InvalidArgument(f"{where} must return (Decision, state), got {checks.short(chosen)}")
    decision, after = chosen
    if not isinstance(decision.index, int | np.integer | np.ndarray | jax.Array) or isinstance(decision.index, bool):
        raise checks.InvalidArgument(f"{where} must choose the number of a point, an int32 [], got index={checks.short(decision.index)}")
    index = jnp.asarray(decision.index)
    if index.shape != () or not jnp.issubdtype(index.dtype, jnp.integer):
        raise checks.InvalidArgument(f"{where} must choose the number of a point, an int32 [], got {index.dtype} {list(index.shape)}")
    with checks.blaming(f"{where} must give widths [1 + m]"):
        widths = jnp.asarray(decision.widths, arena.dtype)
    return replace(decision, index=index.astype(jnp.int32), widths=widths), after
