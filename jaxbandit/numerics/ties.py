"""The best of scores ``[M]``, its ties, and reductions over points."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from jaxbandit.core import checks
from jaxbandit.core.blocks import by_platform
from jaxbandit.core.declare import Array, Key, Table, checked
from jaxbandit.core.fields import booleans, exactly, finite_numbers, numbers, vector

__all__ = ["draw_uniformly", "nearly_best", "pick", "restricted_to"]
__all__ += ["squared_distance", "unit_box", "weighted_sum"]


def tie_share(dtype: DTypeLike) -> float:
    """Return the share of a score within one tie.

    It is 1e-5 in float32 and 5e-12 in float64: far more than rounding, and the variance that features leave out, move equal scores.
    """
    return float(jnp.finfo(dtype).eps) ** 0.72


@checked
def nearly_best(score: Annotated[Array, numbers, vector("one score per point")]) -> Array:
    """Return where ``score [M]`` is the largest but for rounding.

    The result ``[M]`` is false everywhere when a score is NaN. Points tie that are within ``tie_share`` of the best score or of the scores'
    range, whichever is less: neither a large mean of all scores nor a large penalty on some makes others equal. Without it rounding would
    choose among points so far from all data that they are equally good, and rounding differs between programs.
    """
    score = jnp.asarray(score)
    best = largest(score)
    return score >= least_of_best(best, least(score)) if jnp.issubdtype(score.dtype, jnp.floating) else score == best


def least_of_best(best: Array, least: Array) -> Array:
    """Return the least score that ties with the best score."""
    # The spread is infinite where some points are not allowed: the others may all tie.
    spread = best - least
    # Points tie within four roundings of the best score, however near all scores are.
    rounding = 4 * float(jnp.finfo(best.dtype).eps) * jnp.abs(best)
    room = jnp.maximum(tie_share(best.dtype) * jnp.minimum(jnp.abs(best), spread), rounding)
    return jnp.where(jnp.abs(best) < jnp.inf, best - room, best)


@checked
def pick(score: Annotated[Array, numbers, vector("one score per point")]) -> Array:
    """Return the index ``[]`` of the first :func:`nearly_best` score of ``score [M]``.

    The int32 index is ``M`` when a score is NaN, by which ``simulate`` flags the trial. A maximum and then the least index near it take
    less than a third of the time of XLA's argmax on CPUs. The indices are floats meanwhile, because XLA vectorises reductions of floats
    on CPUs but not those of integers.
    """
    score = jnp.asarray(score)
    return first(nearly_best(score), score.dtype)


def first(mask: Array, kind: np.dtype) -> Array:
    """Return the least index ``[]`` where ``mask [M]`` holds.

    It is ``M`` where the mask holds nowhere. ``kind`` is the type of the scores that the mask compares.
    """
    count = mask.shape[0]
    # Indices have the score's own precision: XLA's CPU compiler lost the comparison where float32 indices met a float64 score. Integers
    # up to 2^24 are exact in float32.
    number = kind.type if count < 2**24 else jnp.int32
    return least(jnp.where(mask, jnp.arange(count, dtype=number), number(count))).astype(jnp.int32)


def _reduction(join: Callable[[Array, Array], Array], reduce: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return a function that reduces ``[M]`` quickly on CPUs.

    On CPUs it joins 16 parts element-wise first, because XLA vectorises that: rounds on 400 points take a sixth less time. On 2,500 points
    they would take a sixth more.
    """

    def in_parts(values: Array) -> Array:
        size = values.shape[0]
        width = -(-size // 16) if 128 <= size <= 512 else size
        starts = (min(start, size - width) for start in range(0, size, width))
        return reduce(functools.reduce(join, [values[start : start + width] for start in starts]))

    return by_platform(reduce, cpu=in_parts)


largest, least = _reduction(jnp.maximum, jnp.max), _reduction(jnp.minimum, jnp.min)


def everywhere(mask: Array) -> Array:
    """Return whether ``mask [M]`` holds at every point."""
    # A reduction of floats is quick on CPUs.
    return least(jnp.where(mask, 1.0, 0.0)) > 0


@checked
def weighted_sum(
    weights: Annotated[Array, numbers, exactly(None, words="one weight per table")],
    tables: Annotated[Array, numbers, exactly(None, None, words="one row per weight")],
) -> Array:
    """Return ``sum_j weights[j] tables[j] [M]`` of ``weights [m]`` and ``tables [m, M]``."""
    checks.shape("tables", tables, (np.shape(weights)[0], None), remedy="one row for each weight")
    # XLA fuses element-wise products with the code that uses them.
    return jnp.sum(jnp.asarray(weights)[:, None] * jnp.asarray(tables), axis=0)


@checked
def restricted_to(
    allowed: Annotated[Array, booleans, vector("one entry per point")], score: Annotated[Array, numbers, vector("one score per point")]
) -> Array:
    """Return ``score [M]`` where ``allowed [M]``, minus infinity elsewhere.

    NaN scores stay, and all scores are NaN when no point is allowed.
    """
    allowed, score = jnp.asarray(allowed), jnp.asarray(score)
    checks.shape("allowed", allowed, score.shape, remedy="one entry for each score")
    hidden = jnp.where(jnp.any(allowed), -jnp.inf, jnp.nan)
    return jnp.where(allowed | jnp.isnan(score), score, hidden)


@checked
def draw_uniformly(key: Key, allowed: Annotated[Array, booleans, vector("one entry per point")]) -> Array:
    """Return the index ``[]`` of a point drawn uniformly from ``allowed [M]``.

    It is ``M`` when no point is allowed.
    """
    rank = jnp.cumsum(jnp.asarray(allowed), dtype=jnp.int32)
    wanted = jax.random.randint(key, (), 1, jnp.maximum(rank[-1], 1) + 1, jnp.int32)
    return jnp.sum(rank < wanted, dtype=jnp.int32)


@checked
def unit_box(points: Annotated[Table, finite_numbers, exactly(None, None, words="one row per point")]) -> Array:
    """Return ``points [M, d]`` scaled to the box ``[0, 1]^d``.

    The box bounds the points. An axis with a single value becomes 0.
    """
    points = jnp.asarray(points)
    low, high = jnp.min(points, axis=0), jnp.max(points, axis=0)
    return (points - low[None]) / jnp.where(high > low, high - low, 1)[None]


@checked
def squared_distance(
    points: Annotated[Array, numbers, exactly(None, None)], centre: Annotated[Array, numbers, vector("one number per axis")]
) -> Array:
    """Return ``|x - centre|^2 [M]`` of ``points [M, d]`` and ``centre [d]``."""
    checks.shape("centre", centre, np.shape(points)[1:], remedy="one number for each axis of the points")
    return jnp.sum(jnp.square(jnp.asarray(points) - jnp.asarray(centre)[None]), axis=-1)
