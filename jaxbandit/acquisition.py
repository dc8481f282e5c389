"""Choosing a point from scores on the grid."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr, ndtr

from jaxbandit.core.status import Status

__all__ = [
    "among",
    "clipped",
    "log_expected_improvement",
    "log_feasibility",
    "pick",
    "squared_distance",
    "uniform",
    "unit_box",
    "weighted_sum",
]

Array = jax.Array

EXACT_IN_FLOAT32 = 2**24  # integers up to here


def pick(score: Array) -> Array:
    """The index ``[]`` (int32) of the largest of ``score [M]``, the first of equals; ``M`` when a score is NaN.

    A maximum and then the least matching index: XLA's CPU argmax takes over three times as long. The indices are floats on the way,
    whose reductions XLA vectorises on CPUs and those of integers it does not. The out-of-range index for NaN lets ``simulate`` flag
    the trial.
    """
    count = score.shape[0]
    # In the score's own precision: XLA's CPU compiler was seen to lose the comparison where float32 indices met a float64 score.
    number = score.dtype.type if count < EXACT_IN_FLOAT32 else jnp.int32
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


def among(allowed: Array, score: Array) -> Array:
    """``score [M]`` where ``allowed [M]``, minus infinity elsewhere; a NaN stays one, and all are NaN when nothing is allowed."""
    hidden = jnp.where(jnp.any(allowed), -jnp.inf, jnp.nan)
    return jnp.where(allowed | jnp.isnan(score), score, hidden)


def uniform(key: Array, allowed: Array) -> Array:
    """The index ``[]`` of a point drawn uniformly from ``allowed [M]``; ``M`` when nothing is allowed."""
    rank = jnp.cumsum(allowed, dtype=jnp.int32)
    wanted = jax.random.randint(key, (), 1, jnp.maximum(rank[-1], 1) + 1, jnp.int32)
    return jnp.sum(rank < wanted, dtype=jnp.int32)


def unit_box(points: Array) -> Array:
    """``points [M, d]`` moved and scaled so that their bounding box is ``[0, 1]^d``; an axis of one value becomes 0."""
    points = jnp.asarray(points)
    low, high = jnp.min(points, axis=0), jnp.max(points, axis=0)
    return (points - low[None]) / jnp.where(high > low, high - low, 1)[None]


def squared_distance(points: Array, centre: Array) -> Array:
    """``|x - centre|^2`` for each of ``points [M, d]``, as ``[M]``."""
    return jnp.sum(jnp.square(points - centre[None]), axis=-1)


FAR = 4.0  # deviations below the incumbent from which improvement is taken from a continued fraction
LEVELS = 20  # of it: a relative error of 1.4e-11 at z = -4, less beyond


def _convergent() -> tuple[list[float], list[float]]:
    """Coefficients, highest power first, of ``t(y) = 1 + 2 y / (1 + 3 y / (1 + ... LEVELS y))`` as a ratio of polynomials."""
    above, below = [1], [1]
    for n in range(LEVELS, 1, -1):
        shifted = [n * c for c in below] + [0]
        size = max(len(above), len(shifted))
        padded = [[0] * (size - len(p)) + p for p in (above, shifted)]
        above, below = [a + b for a, b in zip(*padded, strict=True)], above
    return [float(c) for c in above], [float(c) for c in below]


ABOVE, BELOW = _convergent()


def _mills(x: Array) -> Array:
    """``u = x (x + 2 / (x + 3 / (x + ...)))`` for ``x >= FAR``, from the continued fraction of Mills' ratio.

    ``R(x) = (1 - Phi(x)) / phi(x) = 1 / (x + 1 / (x + 2 / (x + ...)))``, so that ``1 - x R(x) = 1 / (1 + u)`` without a difference.
    Every coefficient is positive, so nothing cancels; and two polynomials and a division are cheaper than a division per level.
    """
    y = 1 / jnp.square(x)
    above, below = jnp.full_like(y, ABOVE[0]), jnp.full_like(y, BELOW[0])
    for c in ABOVE[1:]:
        above = above * y + c
    for c in BELOW[1:]:
        below = below * y + c
    return jnp.square(x) * (above / below)


def _log_density(z: Array) -> Array:
    return -0.5 * jnp.square(z) - 0.5 * math.log(2 * math.pi)


def _log_h(z: Array) -> Array:
    """``log(z Phi(z) + phi(z))``, to rounding for every ``z``; where the sum cancels it is ``phi(x) (1 - x R(x))`` with ``x = -z``."""
    near = jnp.maximum(z, -FAR)
    direct = jnp.log(near * ndtr(near) + jnp.exp(_log_density(near)))
    return jnp.where(z > -FAR, direct, _log_density(z) - jnp.log1p(_mills(jnp.maximum(-z, FAR))))


def _floored(sd: Array) -> Array:
    """Standard deviations that may be divided by and squared."""
    return jnp.maximum(sd, math.sqrt(jnp.finfo(sd.dtype).tiny))


def log_expected_improvement(mean: Array, sd: Array, best: Array) -> Array:
    """``log E (f - best)^+`` for ``f ~ N(mean, sd^2)``: ``log(sd (z Phi(z) + phi(z)))`` with ``z = (mean - best) / sd``.

    Finite where the improvement itself underflows, so that hopeless points are still ranked.
    """
    sd = _floored(sd)
    return jnp.log(sd) + _log_h((mean - best) / sd)


def log_feasibility(mean: Array, sd: Array) -> Array:
    """``sum_j log P(g_j <= 0)`` as ``[M]``, for independent ``g_j ~ N(mean, sd^2)``, ``[m, M]``."""
    return jnp.sum(log_ndtr(-mean / _floored(sd)), axis=0)
