"""Reasons why a kernel can make the choices of an algorithm, or cannot, in words."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxbandit.algorithms.base import Algorithm, Arena, Decision
from jaxbandit.core.arguments import takes
from jaxbandit.core.fields import of_class, optional
from jaxbandit.core.pytree import canonicalise, float_dtype, replace
from jaxbandit.core.types import Array, Key
from jaxbandit.feedback import Policy
from jaxbandit.fused.choice import Choose, Plan, fused_arena, plan_of
from jaxbandit.fused.deferred import DeferredSurrogate
from jaxbandit.fused.equations import Unsupported
from jaxbandit.fused.packing import rows_in, split_names
from jaxbandit.surrogates import Surrogate

NOT_MEASURED = (
    "by XLA, for fused='auto' takes a kernel only where it has been measured to be faster; no device has run it, and compiled for an H100 a"
    " round with it is more launches than without"
)


class _Chosen(NamedTuple):
    point: Array
    decision: Decision
    state: Any


def _select(algorithm: Algorithm, arena: Arena, state: Any, t: Array, key: Key) -> _Chosen:
    decision, after = algorithm.select(arena, state, t, key)
    return _Chosen(decision.index, decision, after)


def plan_before_running(choose: Choose, algorithm: Algorithm, arena: Arena) -> Plan:
    """Return the plan of an algorithm's choices, from the shapes of its state alone.

    Raises:
      Unsupported: when a kernel cannot make them, with the reason.
    """
    found: list[Plan] = []

    def trace(algorithm: Algorithm, arena: Arena, t: Array, key: Key) -> int:
        found.append(plan_of(choose, (algorithm, arena, algorithm.init(arena), t, key)))
        return 0

    jax.eval_shape(trace, algorithm, arena, jnp.int32(1), jax.random.key(0))
    return found[0]


@takes(algorithm=of_class(Algorithm), surrogate=of_class(Surrogate), feedback=optional(of_class(Policy)))
def describe(algorithm: Algorithm, surrogate: Surrogate, feedback: Policy | None = None) -> str:
    """Return a line on the kernel that makes an algorithm's choices under ``fused=True``, or on the reason why XLA makes them.

    Args:
      algorithm: an algorithm.
      surrogate: the GP model that it runs with.
      feedback: policy under which it runs with late feedback; default: feedback comes at once.

    Raises:
      InvalidArgument: on objects of other classes, and where the algorithm cannot run with the model.
    """
    try:
        arena, plan = planned_choice(algorithm, surrogate, feedback)
    except Unsupported as reason:
        return f"by XLA, because {reason}"
    read, written = (
        sum(rows_in(name, plan.size) for name in split_names(names, plan.size)[0]) for names in (plan.division.needs, plan.division.made)
    )
    moves = isinstance(arena.surrogate, DeferredSurrogate) and written > 0
    work = "moves the posterior, scores and chooses" if moves else "scores and chooses"
    how = " (interpreted on a CPU, to check results)" if jax.default_backend() == "cpu" else ""
    return (
        f"one kernel a round{how} {work}: {len(plan.division.inside)} operations over {plan.size} points, {read} functions read,"
        f" {written} written"
    )


def why_not(algorithm: Algorithm, surrogate: Surrogate, feedback: Policy | None, platform: str) -> str | None:
    """Return the reason why no kernel can make an algorithm's choices on a platform of JAX, ``None`` where one can."""
    if platform != "cpu" and "float64" in (surrogate.precision, str(float_dtype())):
        return "kernels of accelerators work in float32"
    try:
        planned_choice(algorithm, surrogate, feedback)
    except Unsupported as reason:
        return str(reason)
    return None


def in_words(fused: bool | str, algorithm: Algorithm, surrogate: Surrogate, feedback: Policy | None) -> str:
    """Return a line on what makes an algorithm's choices under a value of the argument ``fused``."""
    if fused is True:
        return describe(algorithm, surrogate, feedback)
    return NOT_MEASURED if fused == "auto" else "by XLA, as fused=False asks"


def planned_choice(algorithm: Algorithm, surrogate: Surrogate, feedback: Policy | None) -> tuple[Arena, Plan]:
    """Return the arena in which a kernel makes an algorithm's choices, and the plan of them; arguments as for :func:`describe`."""
    algorithm, model = canonicalise((algorithm, surrogate.without_kernels()))
    arena = Arena(surrogate=model.factorised(), horizon=jnp.int32(1))
    if feedback is not None:
        separate = not (algorithm.joint_arrival or model.outputs == 1)
        arena = replace(arena, surrogate=feedback.bind(model, separate_outputs=separate, capacity=1, axis=None))
    arena = fused_arena(arena)
    return arena, plan_before_running(_select, algorithm, arena)
