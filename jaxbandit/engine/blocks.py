"""One pure function for every pair of a variant and a trial: in blocks side by side, spread over devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, PartitionSpec

BLOCK_AXIS = "trials"  # name of a block's batch axis, for what its trials decide together
MESH_AXIS = "trial"


def map_blocks(function: Callable[..., Any], shared: Any, own: Any, *, block: int, mesh: Mesh | None) -> Any:
    """Return ``function(shared, one)`` for each of ``own [P, ...]``, whose ``P`` is a multiple of ``block`` times the number of devices.

    A block is one ``vmap``; blocks of a device run one after the other.
    """

    def local(shared: Any, own: Any) -> Any:
        # An unbatched trial keeps its branches (see surrogates.rows), so a block of one is not a vmap of one.
        def alone(one: Any) -> Any:
            return jax.tree.map(lambda x: x[None], function(shared, jax.tree.map(lambda x: x[0], one)))

        many = jax.vmap(lambda one: function(shared, one), axis_name=BLOCK_AXIS) if block > 1 else alone
        blocks = jax.lax.map(many, jax.tree.map(lambda x: x.reshape(x.shape[0] // block, block, *x.shape[1:]), own))
        return jax.tree.map(lambda x: x.reshape(x.shape[0] * block, *x.shape[2:]), blocks)

    if mesh is None:
        return local(shared, own)
    split = PartitionSpec(MESH_AXIS)
    return jax.shard_map(local, mesh=mesh, in_specs=(PartitionSpec(), split), out_specs=split, check_vma=False)(shared, own)


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


def mesh_of(devices: Sequence[jax.Device]) -> Mesh | None:
    """Return a mesh over which trials are spread, ``None`` for one device."""
    return Mesh(np.asarray(devices), (MESH_AXIS,), axis_types=(AxisType.Auto,)) if len(devices) > 1 else None


def axis_of(block: int) -> str | None:
    """Return the name of the batch axis that a trial sees, ``None`` for a trial by itself."""
    return BLOCK_AXIS if block > 1 else None


def place(array: Any, devices: Sequence[jax.Device]) -> Any:
    """Place an array on the devices, sharded over its leading axis of pairs."""
    mesh = mesh_of(devices)
    if mesh is None:
        return jax.device_put(array, devices[0])
    return jax.device_put(array, jax.sharding.NamedSharding(mesh, PartitionSpec(MESH_AXIS)))
