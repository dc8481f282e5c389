"""Pure functions of variants and trials, run in blocks on all devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, PartitionSpec

from jaxbandit.core.declare import Device, T

S = TypeVar("S")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

# The trials of a block decide some steps together over this batch axis.
BLOCK_AXIS = "trials"
MESH_AXIS = "trial"


def map_blocks(function: Callable[[S, T], R], shared: S, items: T, *, block: int, mesh: Mesh | None, count: jax.Array | None = None) -> R:
    """Return ``function(shared, item)`` for each of ``items [P, ...]``.

    Number ``P`` is a multiple of ``block`` times the number of devices. A block is one ``vmap``; blocks of a device run one after the
    other. If ``count`` is given, also traced, each device runs only its first ``count`` blocks, and the other results are zeros, so that
    one program serves any number of pairs.
    """

    def local(shared: S, items: T, count: jax.Array | None) -> R:
        # An unbatched trial keeps its branches (see surrogates.rows), so a block of one is not a vmap of one.
        def alone(items: T) -> R:
            result: R = jax.tree.map(lambda x: x[None], function(shared, jax.tree.map(lambda x: x[0], items)))
            return result

        many = jax.vmap(lambda item: function(shared, item), axis_name=BLOCK_AXIS) if block > 1 else alone
        split = jax.tree.map(lambda x: x.reshape(x.shape[0] // block, block, *x.shape[1:]), items)
        blocks = jax.lax.map(many, split) if count is None else _map_first(many, split, count)
        results: R = jax.tree.map(lambda x: x.reshape(x.shape[0] * block, *x.shape[2:]), blocks)
        return results

    if mesh is None:
        return local(shared, items, count)
    whole, split = PartitionSpec(), PartitionSpec(MESH_AXIS)
    results: R = jax.shard_map(local, mesh=mesh, in_specs=(whole, split, whole), out_specs=split, check_vma=False)(shared, items, count)
    return results


def _map_first(function: Callable[[T], R], blocks: T, count: jax.Array) -> R:
    """Return ``function`` of the first ``count`` of ``blocks [n, ...]``, else zeros."""
    # The shapes of results and the loop share one trace.
    traced = jax.jit(function)
    results = jax.eval_shape(traced, jax.tree.map(lambda x: x[0], blocks))
    size = jax.tree.leaves(blocks)[0].shape[0]

    def play(number: jax.Array, before: R) -> R:
        result = traced(jax.tree.map(lambda x: x[number], blocks))
        after: R = jax.tree.map(lambda table, x: table.at[number].set(x), before, result)
        return after

    played: R = jax.lax.fori_loop(0, count, play, jax.tree.map(lambda x: jnp.zeros((size, *x.shape), x.dtype), results))
    return played


def equal_blocks(count: int, block: int, devices: int, least: int = 1) -> tuple[int, int]:
    """Return blocks per device and pairs per block, as equal as possible."""
    local = -(-count // devices)
    blocks = -(-local // block)
    return blocks, max(-(-local // blocks), least)


def least_block(block: int) -> int:
    """Return the least size of a block, 1 or 2.

    A lone trial rounds otherwise than one of many. So where blocks are larger than 1, a single trial runs beside a copy of itself, for the
    bits that it has in its study.
    """
    return min(2, block)


def mesh_of(devices: Sequence[Device]) -> Mesh | None:
    """Return the mesh that spreads trials, ``None`` for one device."""
    return Mesh(np.asarray(devices), (MESH_AXIS,), axis_types=(AxisType.Auto,)) if len(devices) > 1 else None


def axis_of(block: int) -> str | None:
    """Return the batch axis of a trial, ``None`` for a lone trial."""
    return BLOCK_AXIS if block > 1 else None


def place(array: Any, devices: Sequence[Device]) -> jax.Array:
    """Place an array on the devices, sharded over its axis of pairs."""
    mesh = mesh_of(devices)
    placed: jax.Array = jax.device_put(array, devices[0] if mesh is None else jax.sharding.NamedSharding(mesh, PartitionSpec(MESH_AXIS)))
    return placed


def by_platform(default: Callable[..., R], **others: Callable[..., R]) -> Callable[..., R]:
    """Return ``others[platform]`` on the platforms named, and ``default`` elsewhere.

    All functions return the same up to rounding. A program contains the function of its platform. The derivative is that of ``default`` on
    all platforms, because reverse-mode differentiation of the choice itself would store the intermediate values of every alternative.
    """

    @jax.custom_jvp
    def function(*args: object) -> R:
        result: R = jax.lax.platform_dependent(*args, default=default, **others)
        return result

    @function.defjvp
    def _(primals: tuple[object, ...], tangents: tuple[object, ...]) -> tuple[R, R]:
        pair: tuple[R, R] = jax.jvp(default, primals, tangents)
        return pair

    return function


def repeated(step: Callable[[T], T], state: T, count: jax.Array, most: int) -> T:
    """Return the state after ``count <= most`` steps.

    All trials have the same count. A step must leave the state the same when there is nothing to do. The host of an accelerator would wait
    for each turn of a loop of unknown length, so that there the loop has the next larger of some known lengths.
    """
    lengths = [length for length in (0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 32) if length < most] + [most]

    def turns(length: Any, state: T) -> T:
        after: T = jax.lax.fori_loop(0, length, lambda _, state: step(state), state)
        return after

    def known(state: T) -> T:
        branch = jnp.sum(count > jnp.asarray(lengths, jnp.int32), dtype=jnp.int32)
        after: T = jax.lax.switch(branch, [partial(turns, length) for length in lengths], state)
        return after

    after: T = jax.lax.platform_dependent(state, cpu=partial(turns, count), default=known)
    return after


def numpy_of(array: Any) -> Any:
    """Return NumPy for arrays on the host, where it compiles no programs."""
    return np if isinstance(array, np.ndarray | np.generic) else jnp


def one_program(function: F) -> F:
    """Return the function, compiled as a whole or inlined in programs."""
    return cast(F, jax.jit(function, inline=True))
