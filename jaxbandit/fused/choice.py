"""The choice of a round in one kernel, made from the algorithm's own ``select``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from jaxbandit.algorithms.base import Algorithm, Arena
from jaxbandit.core.declare import is_foreign
from jaxbandit.core.pytree import replace
from jaxbandit.core.types import Array, Key
from jaxbandit.fused.deferred import DeferredSurrogate, Unsettled, each_belief
from jaxbandit.fused.equations import Constant, Division, Operand, Program, Unsupported, check_axes, divide, evaluate, traced
from jaxbandit.fused.packing import Slots, load_rows, split_names, stored
from jaxbandit.fused.rows import WORDS, Cells, Rows, compute
from jaxbandit.surrogates import Posterior, RangedSurrogate, Surrogate

Choose = Callable[[Algorithm, Arena, Any, Array, Key], Any]
"""Function that gives the choice of a round, an object with ``point`` and ``state``, as ``engine.rounds.choose_point`` does."""


MOST_POINTS = 8192  # of a grid that a kernel holds whole, in registers or in the memory beside them


class Plan(NamedTuple):
    """A function of a round with the part of it that a kernel computes."""

    program: Program
    structure: Any  # of what the function returns
    division: Division
    size: int


def fused_arena(arena: Arena) -> Arena:
    """Return the arena of a learner whose choices are made by :func:`choose_in_kernel`.

    Feedback at once is left to the next kernel as far as it moves functions on the grid. Late feedback comes in a loop of its own, and
    the kernel then scores and chooses only.
    """
    if isinstance(arena.surrogate, Surrogate):
        return replace(arena, surrogate=DeferredSurrogate(base=arena.surrogate))
    return arena


def choose_in_kernel(choose: Choose, algorithm: Algorithm, arena: Arena, state: Any, t: Array, key: Key, *, draws: bool = False) -> Any:
    """Return ``choose(algorithm, arena, state, t, key)``, with all that depends on functions of the grid computed by one kernel.

    Args:
      choose: the function that is traced.
      algorithm, arena, state, t, key: its arguments; the arena is one of :func:`fused_arena`.
      draws: whether the draws of a randomised strategy are kept, which can be functions of the grid.

    Raises:
      Unsupported: when a kernel cannot do it, with the reason.
    """
    arguments = (algorithm, arena, state, t, key)
    plan = plan_of(choose, arguments, draws=draws)
    known: dict[Operand, Any] = dict(zip(plan.program.arguments, jax.tree.leaves(arguments), strict=True))
    evaluate(plan.division.before, known)
    made = _call(plan, [jnp.asarray(known[name]) for name in plan.division.needs])
    known.update(zip(plan.division.made, made, strict=True))
    results = [result.value if isinstance(result, Constant) else known[result] for result in plan.program.results]
    return jax.tree.unflatten(plan.structure, results)


def plan_of(choose: Choose, arguments: tuple[Algorithm, Arena, Any, Array, Key], *, draws: bool = False) -> Plan:
    """Return the plan of a round, see :func:`choose_in_kernel`; ``arguments`` may be shapes instead of arrays."""
    _, arena, state, _, _ = arguments
    if isinstance(arena.surrogate.model, RangedSurrogate):
        raise Unsupported("its model is one of jaxbandit.ranged, whose features are computed in the run")
    if arena.size > MOST_POINTS:
        raise Unsupported(f"the grid has {arena.size:,} points, and a kernel holds {MOST_POINTS:,}")
    program, structure = traced(functools.partial(_round, choose, draws), arguments)
    marks = (False, False, owned_by_kernel(state), False, False)
    grid = [mark for mark, part in zip(marks, arguments, strict=True) for mark in (jax.tree.leaves(mark) if mark else _none(part))]
    size = arena.size
    division = divide(program, grid, size)
    if program.results[0] not in division.made:  # the point
        raise Unsupported("its choice does not depend on what is believed of the functions")
    for equation in division.inside:
        if equation.name in WORDS:
            raise Unsupported(WORDS[equation.name])
    check_axes(division, size)
    _try(division, size)
    return Plan(program, structure, division, size)


def _none(part: Any) -> list[bool]:
    return [False] * len(jax.tree.leaves(part))


def owned_by_kernel(state: Any) -> Any:
    """Return a state with ``True`` for the functions of the grid that beliefs hold, and ``False`` for all else."""
    kinds = (Posterior, Unsettled)

    def of(x: Any) -> Any:
        marked = jax.tree.map(lambda _: False, x)
        if isinstance(x, Posterior):
            return replace(marked, shift=True, variance=True)
        return replace(marked, posterior=of(x.posterior), columns=True) if isinstance(x, Unsettled) else marked

    return jax.tree.map(of, state, is_leaf=lambda x: isinstance(x, kinds))


def _round(choose: Choose, draws: bool, algorithm: Algorithm, arena: Arena, state: Any, t: Array, key: Key) -> Any:
    """Move what is believed by the last observation, choose, and read the means at the point chosen."""
    surrogate = arena.surrogate
    if isinstance(surrogate, DeferredSurrogate):
        state = each_belief(surrogate.settled, state)
    choice = choose(algorithm, arena, state, t, key)
    if not draws:
        choice = choice._replace(decision=replace(choice.decision, draws=None))
    if _of_user(algorithm):
        return choice  # it may learn of other points than the one chosen

    def seen(belief: Any) -> Any:
        shift = belief.posterior.shift
        here = jnp.arange(shift.shape[-1], dtype=jnp.int32) == choice.point
        return replace(belief, seen=jnp.sum(jnp.where(here, shift, 0), axis=-1))

    return choice._replace(state=each_belief(seen, choice.state))


def _of_user(algorithm: Algorithm) -> bool:
    """Say whether an algorithm, or one that it wraps, is of a user's class."""
    return is_foreign(algorithm) or any(isinstance(own, Algorithm) and _of_user(own) for own in vars(algorithm).values())


def _try(division: Division, size: int) -> None:
    """Compute the kernel's equations on shapes, so that what has no form by rows is known when the plan is made."""

    def dry() -> int:
        rows = Rows(size=size, shape=(2, size), axis=-1)
        tables, numbers = split_names(division.needs, size)
        known: dict[Operand, Cells] = {}
        for name in tables:
            row = jnp.zeros(rows.shape, stored(name.aval.dtype))
            load_rows(name, size, functools.partial(lambda row, _: row, row), known)
        kinds = list(Slots.of(numbers).widths)
        Slots.of(numbers).load(lambda array, _: jnp.zeros((2, 1), kinds[array]), known)
        compute(division.inside, known, rows)
        Slots.of(split_names(division.made, size)[1])
        return 0

    jax.eval_shape(dry)


def _call(plan: Plan, values: Sequence[Array]) -> list[Array]:
    """Return what the kernel of a plan makes of its inputs; trials of a batch are played by one call."""
    from jaxbandit.fused import kernel  # which loads the compilers of kernels: nobody else should wait for that

    parts = kernel.Parts.of(plan.division, plan.size)

    @custom_vmap
    def call(*values: Array) -> list[Array]:
        return [x[0] for x in kernel.run_anywhere(parts, values, [False] * len(values), 1)]

    @call.def_vmap
    def _(trials: int, batched: Sequence[bool], *values: Array) -> tuple[list[Array], list[bool]]:
        found = kernel.run_anywhere(parts, values, batched, trials)
        return found, [True] * len(found)

    return list(call(*values))
