"""Memory that trials take while they run, and how many of them fit an accelerator side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from jaxbandit.core.memory import device_memory, tree_bytes
from jaxbandit.core.types import Device
from jaxbandit.engine.cell import Cell
from jaxbandit.engine.programs import begin_all

COPIES_OF_CARRY = 2.5  # of what trials carry from round to round: before and after a part, and what a block works on
SHARE_FOR_BLOCKS = 0.5  # of an accelerator's memory; results and what the compiler sets aside have the rest


def carried_bytes(cell: Cell) -> int:
    """Return the bytes that one trial carries from round to round."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    pairs = jax.ShapeDtypeStruct((cell.block, 3), jnp.int32)
    carry, _ = jax.eval_shape(lambda c, k, p: begin_all(c, k, p, mesh=None), cell, key, pairs)
    return -(-tree_bytes(carry) // cell.block)


def default_block(cell: Cell, on_cpu: int, trials: int, devices: Sequence[Device]) -> int:
    """Return the number of trials side by side on each device: ``on_cpu`` of them there, as many as fit on an accelerator.

    There it is all ``trials``, or fewer where those of each device would take more than ``SHARE_FOR_BLOCKS`` of its memory.
    """
    if devices[0].platform == "cpu":
        return on_cpu
    each = COPIES_OF_CARRY * carried_bytes(dataclasses.replace(cell, block=2))
    room = int(SHARE_FOR_BLOCKS * device_memory() / len(jax.local_devices()) / each)
    return max(min(-(-trials // len(devices)), room), 1)
