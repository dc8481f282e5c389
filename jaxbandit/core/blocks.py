"""One pure function for every pair of a variant and a trial, in blocks side by side, spread over devices; one for each platform."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, PartitionSpec

from jaxbandit.core.declare import Device

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

BLOCK_AXIS = "trials"  # name of a block's batch axis, for what its trials decide together
MESH_AXIS = "trial"


def map_blocks(function: Callable[[S, T], R], shared: S, items: T, *, block: int, mesh: Mesh | None, count: jax.Array | None = None) -> R:
    """Return ``function(shared, item)`` for each of ``items [P, ...]``, whose ``P`` is a multiple of ``block`` times the number of devices.

    A block is one ``vmap``; blocks of a device run one after the other. Given ``count``, which may be traced, only the first so many
    blocks of each device run, and the results of the others are zeros: one program serves any number of pairs up to ``P``.
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
    """Return ``function`` of the first ``count`` of ``blocks [n, ...]``, and zeros for the others."""
    traced = jax.jit(function)  # traced once: for the shapes of its results, and for the loop
    results = jax.eval_shape(traced, jax.tree.map(lambda x: x[0], blocks))
    size = jax.tree.leaves(blocks)[0].shape[0]

    def play(number: jax.Array, before: R) -> R:
        result = traced(jax.tree.map(lambda x: x[number], blocks))
        after: R = jax.tree.map(lambda table, x: table.at[number].set(x), before, result)
        return after

    played: R = jax.lax.fori_loop(0, count, play, jax.tree.map(lambda x: jnp.zeros((size, *x.shape), x.dtype), results))
    return played


def equal_blocks(count: int, block: int, devices: int, least: int = 1) -> tuple[int, int]:
    """Return how many blocks each device runs of ``count`` pairs, and the pairs in each: as equal as can be, ``least`` to ``block``."""
    local = -(-count // devices)
    blocks = -(-local // block)
    return blocks, max(-(-local // blocks), least)


def least_block(block: int) -> int:
    """Return the least size of a block, 2 where blocks are larger than 1: a lone trial rounds otherwise than one of many.

    A single trial is run beside a copy of itself, to repeat the bits it has within its study.
    """
    return min(2, block)


def mesh_of(devices: Sequence[Device]) -> Mesh | None:
    """Return a mesh over which trials are spread, ``None`` for one device."""
    return Mesh(np.asarray(devices), (MESH_AXIS,), axis_types=(AxisType.Auto,)) if len(devices) > 1 else None


def axis_of(block: int) -> str | None:
    """Return the name of the batch axis that a trial sees, ``None`` for a trial by itself."""
    return BLOCK_AXIS if block > 1 else None


def place(array: Any, devices: Sequence[Device]) -> jax.Array:
    """Place an array on the devices, sharded over its leading axis of pairs."""
    mesh = mesh_of(devices)
    placed: jax.Array = jax.device_put(array, devices[0] if mesh is None else jax.sharding.NamedSharding(mesh, PartitionSpec(MESH_AXIS)))
    return placed


def by_platform(default: Callable[..., R], **others: Callable[..., R]) -> Callable[..., R]:
    """Return the function that is ``others[platform](*args)`` on the platforms named, and ``default(*args)`` elsewhere.

    All of them give the same up to rounding. A program holds the one of the platform that it is compiled for. The derivative is that of
    ``default`` on all platforms: reverse-mode differentiation of the choice itself would store what every alternative needs.
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


def numpy_of(array: Any) -> Any:
    """Return the module that computes with an array: on the host NumPy, which compiles no programs."""
    return np if isinstance(array, np.ndarray | np.generic) else jnp


def one_program(function: F) -> F:
    """Return the same function, compiled as a whole where it is called by itself, not operation by operation, and a part of programs."""
    return cast(F, jax.jit(function, inline=True))
