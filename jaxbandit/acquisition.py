"""Choosing a point from scores on the grid."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxbandit.core.status import Status

__all__ = ["clipped", "pick", "weighted_sum"]

Array = jax.Array

EXACT_IN_FLOAT32 = 2**24  # integers up to here


def pick(score: Array) -> Array:
    """The index ``[]`` (int32) of the largest of ``score [M]``, the first of equals; ``M`` when a score is NaN.

    A maximum and then the least matching index: XLA's CPU argmax takes over three times as long. The indices are floats on the way,
    whose reductions XLA vectorises on CPUs and those of integers it does not. The out-of-range index for NaN lets ``simulate`` flag
    the trial.
    """
    count = score.shape[0]
    number = jnp.float32 if count < EXACT_IN_FLOAT32 else jnp.int32
    best = jnp.max(score)
    return jnp.min(jnp.where(score == best, jnp.arange(count, dtype=number), number(count))).astype(jnp.int32)


def weighted_sum(weights: Array, tables: Array) -> Array:
    """``sum_j weights[j] tables[j]`` as ``[M]`` from ``[m]`` and ``[m, M]``, element-wise so that it fuses with what follows."""
    return jnp.sum(weights[:, None] * tables, axis=0)


def clipped(reward: Array, bound: Array) -> tuple[Array, Array]:
    """``Proj_[-bound, bound]`` of ``reward [M]``, and the flag ``ALL_CLIPPED`` (else 0) when it cuts every point alike."""
    values = jnp.clip(reward, -bound, bound)
    everywhere = (jnp.min(reward) >= bound) | (jnp.max(reward) <= -bound)
    return values, jnp.where(everywhere, int(Status.ALL_CLIPPED), 0)
