"""One pure function for every pair of a variant and a trial: in blocks side by side, spread over devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, PartitionSpec

TRIALS_AXIS = "trials"  # of a block, for what its trials decide together
MESH_AXIS = "trial"


def over_pairs(function: Callable[..., Any], shared: Any, own: Any, *, block: int, mesh: Mesh | None) -> Any:
    """``function(shared, one)`` for each of ``own [P, ...]``, whose ``P`` is a multiple of ``block`` times the number of devices.

    A block is one ``vmap``; blocks of a device run one after the other.
    """

    def local(shared: Any, own: Any) -> Any:
        # An unbatched trial keeps its branches (see surrogates.rows), so a block of one is not a vmap of one.
        def alone(one: Any) -> Any:
            return jax.tree.map(lambda x: x[None], function(shared, jax.tree.map(lambda x: x[0], one)))

        many = jax.vmap(lambda one: function(shared, one), axis_name=TRIALS_AXIS) if block > 1 else alone
        blocks = jax.lax.map(many, jax.tree.map(lambda x: x.reshape(x.shape[0] // block, block, *x.shape[1:]), own))
        return jax.tree.map(lambda x: x.reshape(x.shape[0] * block, *x.shape[2:]), blocks)

    if mesh is None:
        return local(shared, own)
    split = PartitionSpec(MESH_AXIS)
    return jax.shard_map(local, mesh=mesh, in_specs=(PartitionSpec(), split), out_specs=split, check_vma=False)(shared, own)


def shares(count: int, block: int, devices: int, least: int = 1) -> tuple[int, int]:
    """How many blocks each device runs of ``count`` pairs, and of how many pairs: as equal as can be, from ``least`` to ``block``."""
    local = -(-count // devices)
    blocks = -(-local // block)
    return blocks, max(-(-local // blocks), least)


def not_alone(block: int) -> int:
    """The least size of a block: a lone trial rounds otherwise than one of many, and is run beside itself to repeat its study's."""
    return min(2, block)


def mesh_of(devices: Sequence[jax.Device]) -> Mesh | None:
    """A mesh over which trials are spread, ``None`` for one device."""
    return Mesh(np.asarray(devices), (MESH_AXIS,), axis_types=(AxisType.Auto,)) if len(devices) > 1 else None


def axis_of(block: int) -> str | None:
    """The name of the batch axis that a trial sees."""
    return TRIALS_AXIS if block > 1 else None
