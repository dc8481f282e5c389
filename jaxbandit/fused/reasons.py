"""Whether a kernel can make the choices of an algorithm, in words."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxbandit.algorithms.base import Algorithm, Arena, Decision
from jaxbandit.core.arguments import takes
from jaxbandit.core.fields import of_class, optional
from jaxbandit.core.pytree import canonicalise
from jaxbandit.core.types import Array, Key
from jaxbandit.feedback import Policy
from jaxbandit.fused.choice import Choose, Plan, fused_arena, plan_of
from jaxbandit.fused.deferred import DeferredSurrogate
from jaxbandit.fused.equations import Unsupported
from jaxbandit.fused.packing import rows_in, split_names
from jaxbandit.surrogates import Surrogate

NOT_MEASURED = "fused='auto' leaves all choices to XLA: on no device has a kernel been measured beside it"


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
    algorithm, model = canonicalise(algorithm), canonicalise(surrogate.without_kernels()).factorised()
    arena = Arena(surrogate=model, horizon=jnp.int32(1))
    if feedback is not None:
        late = feedback.bind(model, separate_outputs=not algorithm.joint_arrival, capacity=1, axis=None)
        arena = Arena(surrogate=late, horizon=arena.horizon)
    try:
        plan = plan_before_running(_select, algorithm, fused_arena(arena))
    except Unsupported as reason:
        return f"{algorithm.name}: by XLA, because {reason}"
    read, written = (
        sum(rows_in(name, plan.size) for name in split_names(names, plan.size)[0]) for names in (plan.division.needs, plan.division.made)
    )
    moves = "moves the posterior, scores and chooses" if _moves(plan, arena) else "scores and chooses"
    return (
        f"{algorithm.name}: one kernel {moves}: {len(plan.division.inside)} operations over {plan.size} points, {read} functions read,"
        f" {written} written"
    )


def _moves(plan: Plan, arena: Arena) -> bool:
    return isinstance(fused_arena(arena).surrogate, DeferredSurrogate) and bool(split_names(plan.division.made, plan.size)[0])
