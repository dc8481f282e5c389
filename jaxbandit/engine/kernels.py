"""Whether the choices of a cell are made by kernels of :mod:`jaxbandit.fused`."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.pytree import float_dtype, replace
from jaxbandit.engine.programs import Cell
from jaxbandit.engine.rounds import choose_point
from jaxbandit.fused.equations import Unsupported
from jaxbandit.fused.reasons import plan_before_running


def why_not_fused(cell: Cell, devices: Sequence[jax.Device]) -> str | None:
    """Return the reason why kernels cannot make the choices of a cell on some devices, ``None`` where they can."""
    if devices[0].platform != "cpu" and float_dtype() == np.float64:
        return "kernels of accelerators work in float32"
    alone = replace(cell, fused=True, block=1)

    def trace(cell: Cell, key: jax.Array, pair: jax.Array) -> int:
        setting = cell.setting(key, pair)
        plan_before_running(choose_point, setting.algorithm, setting.arena)
        return 0

    try:
        jax.eval_shape(trace, alone, jax.random.key(0), jnp.zeros((3,), jnp.int32))
    except Unsupported as reason:
        return str(reason)
    return None


def fused_cell(cell: Cell, fused: bool | str, devices: Sequence[jax.Device]) -> Cell:
    """Return the cell whose choices are made by kernels where ``fused`` asks for that.

    Raises:
      InvalidArgument: when they are asked for and cannot be.
    """
    if fused is not True:
        return cell
    reason = why_not_fused(cell, devices)
    if reason is not None:
        name = type(cell.variants.pick(0)[0]).__name__
        raise InvalidArgument(f"fused: no kernel can make the choices of {name}, because {reason}; leave them to XLA by fused=False")
    return replace(cell, fused=True)
