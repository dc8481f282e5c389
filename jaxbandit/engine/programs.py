"""Compiled programs that run many trials, whole or in parts.

Between parts the trials' state is a plain pytree of arrays. A run continues from it bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from jaxbandit.algorithms.base import Algorithm
from jaxbandit.core.blocks import equal_blocks, least_block, map_blocks
from jaxbandit.core.checks import InvalidArgument, blaming
from jaxbandit.core.declare import Array
from jaxbandit.core.keys import trial_key
from jaxbandit.core.pytree import replace
from jaxbandit.engine.cell import Cell, with_room_for
from jaxbandit.engine.trial import Record, TrialState, advance, begin, conclude, multipliers_of
from jaxbandit.results.metrics import Curves, curves, healthy
from jaxbandit.surrogates import Surrogate


@partial(jax.jit, static_argnames="mesh")
def begin_all(cell: Cell, key: Array, pairs: Array, *, mesh: Mesh | None) -> tuple[TrialState, Record]:
    """Return states before round 1 of ``pairs [P, 3]``, and initial designs."""

    def one(shared: tuple[Cell, Array], pair: Array) -> tuple[TrialState, Record]:
        cell, key = shared
        return begin(cell.setting(key, pair), cell.initial)

    return map_blocks(one, (cell, key), pairs, block=cell.block, mesh=mesh)


@partial(jax.jit, static_argnames=("rounds", "record", "mesh"), donate_argnames="carry")
def advance_all(
    cell: Cell, key: Array, carry: TrialState, pairs: Array, first: Array, *, rounds: int, record: str, mesh: Mesh | None
) -> tuple[TrialState, Record]:
    """Run ``rounds`` rounds of each pair and return states and records."""

    def one(shared: tuple[Cell, Array, Array], item: tuple[TrialState, Array]) -> tuple[TrialState, Record]:
        cell, key, first = shared
        before, pair = item
        return advance(cell.setting(key, pair), before, first, rounds, record=record)

    return map_blocks(one, (cell, key, first), (carry, pairs), block=cell.block, mesh=mesh)


@partial(jax.jit, static_argnames="mesh")
def conclude_all(cell: Cell, key: Array, carry: TrialState, pairs: Array, *, mesh: Mesh | None) -> Record:
    """Return final quantities of trials, named as in :class:`~jaxbandit.Trajectory`."""

    def one(shared: tuple[Cell, Array], item: tuple[TrialState, Array]) -> Record:
        cell, key = shared
        trial, pair = item
        return conclude(cell.setting(key, pair), trial)

    return map_blocks(one, (cell, key), (carry, pairs), block=cell.block, mesh=mesh)


@jax.custom_jvp
def without_derivative(tree: Any) -> Any:
    """Return ``tree``, and raise an error when JAX differentiates it."""
    return tree


@without_derivative.defjvp
def _refuse_derivative(primals: Any, tangents: Any) -> Any:
    raise InvalidArgument(
        "simulate: it has no derivative, for the points chosen are piecewise constant in every hyper-parameter;"
        " use jaxbandit.gradients.SmoothedLoss, or jaxbandit.gradients.replay for beliefs along fixed points"
    )


@partial(jax.jit, static_argnames=("record", "mesh"))
def play_all(
    cell: Cell, key: Array, pairs: Array, count: Array | None = None, *, record: str, mesh: Mesh | None
) -> tuple[Record, Record, Record]:
    """Run all rounds and return initial designs, records and final quantities."""
    cell = without_derivative(cell)

    def one(shared: tuple[Cell, Array], pair: Array) -> tuple[Record, Record, Record]:
        cell, key = shared
        setting = cell.setting(key, pair)
        trial, before = begin(setting, cell.initial)
        trial, seen = advance(setting, trial, 1, cell.horizon, record=record)
        # These records store the multipliers after the last round, and every candidate.
        whole_records = ("all", "audit")
        ended = conclude(setting, trial, whole=record in whole_records)
        if record in whole_records:
            last = multipliers_of(setting.algorithm, trial.state, setting.arena)
            seen["multipliers"] = jnp.concatenate([seen["multipliers"], last[None]])
        return before, seen, ended

    return map_blocks(one, (cell, key), pairs, block=cell.block, mesh=mesh, count=count)


@partial(jax.jit, static_argnames=("build", "measure"))
def measure_each(
    cell: Cell,
    trials: tuple[Any, Array],
    key: Array,
    *,
    build: Callable[[Any], tuple[Algorithm, Surrogate]],
    measure: Callable[[Curves], Array],
) -> tuple[Array, Array, Array]:
    """Run trials with hyper-parameters of their own and return measures ``[P]``.

    ``trials`` has a pytree of parameters with leading axes ``[P]``, for ``build``, and trial numbers ``[P]``. The variant of ``cell`` is
    only its delays. The other two results are fingerprints ``[P]`` of the points that trials chose, equal when all points are, and whether
    each trial is healthy.
    """
    count = trials[1].shape[0]
    blocks, block = equal_blocks(count, cell.block, 1, least_block(cell.block))
    padded = jax.tree.map(lambda x: jnp.concatenate([x, jnp.repeat(x[-1:], blocks * block - count, axis=0)]), trials)

    def one(shared: tuple[Cell, Array], item: tuple[Any, Array]) -> tuple[Array, Array, Array]:
        (cell, key), delays = shared, shared[0].variants.pick(0)
        with blaming("build: must make an algorithm and a surrogate of traced parameters"):
            algorithm, surrogate = build(item[0])
        if delays is not None:
            algorithm = algorithm.with_delays(delays.model, delays.policy)
        surrogate = with_room_for(surrogate, cell.horizon + cell.initial.count)
        setting = cell.setting_of((algorithm, surrogate, delays), trial_key(key, item[1]), unchecked=True)
        trial, before = begin(setting, cell.initial)
        trial, seen = advance(setting, trial, 1, cell.horizon, record="indices")
        name = "points" if "points" in seen else "indices"
        places = jnp.concatenate([before[f"initial_{name}"], seen[name]]) if cell.initial.counted else seen[name]
        words = jax.lax.bitcast_convert_type(places, jnp.uint32)
        weights = 2 * jax.random.bits(jax.random.key(0), words.shape, jnp.uint32) + 1
        status: Array = conclude(setting, trial)["status"]
        return measure(curves(setting.instance, places)), jnp.sum(weights * words), healthy(status)

    played: tuple[Array, Array, Array] = map_blocks(one, (replace(cell, block=block), key), padded, block=block, mesh=None)
    first: tuple[Array, Array, Array] = jax.tree.map(lambda x: x[:count], played)
    return first
