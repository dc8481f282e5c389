"""Random problems on a box, and their best feasible points.

The program that draws a problem finds its best feasible point, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.declare import Array, Scalar, Table
from jaxbandit.core.pytree import pytree, static
from jaxbandit.delays import Delay, NoDelay
from jaxbandit.domains import Box
from jaxbandit.domains.finite import sobol_points
from jaxbandit.numerics.ascent import ascend, to_edge
from jaxbandit.problems.boxes import Certificate, OnBox
from jaxbandit.problems.noise import Gaussian, Noise

Waves: TypeAlias = Callable[[Array], Array]
"""Functions of points ``[n, d]`` of the unit cube, as a pytree. Several functions are stacked along the first axes of its arrays."""


class OptimumSearch:
    """Numbers of the search for the best feasible point.

    Attributes:
      starts: ascents, from the best of the points of :func:`search_points`.
      brief: steps of each ascent.
      kept: number of the best ascents that continue.
      long: further steps of each.
      basins: number of the best ascents, in different basins, that get multipliers.
      steps: steps of each of them between two updates of multipliers.
      updates: number of these updates.
      penalty: factor of the square of a violation, both in deviations over the points of :func:`search_points`.
      to_corner: Newton's steps to a corner of constraints, each to the edge of the constraint that is violated most.
      margin: deviations by which constraints are satisfied, more than rounding.
    """

    starts, brief, kept, long = 192, 6, 48, 14
    basins, steps, updates = 12, 16, 5
    penalty, to_corner, margin = 20.0, 12, 1e-5


@pytree
class BoxDraw(OnBox):
    """Problem on a box with drawn reward and constraints.

    It is an instance of :func:`~jaxbandit.problems.gp_draws` on a box.

    Attributes:
      waves: the ``1 + m`` functions of points ``[n, d]`` of the unit cube, stacked.
      shifts: ``[m]`` added to the constraints.
      accepted: ``[]`` whether a draw was accepted; otherwise every constraint is 1 everywhere.
      domain, means, best, noise, delay, name: as of :class:`~jaxbandit.problems.BoxProblem`.
    """

    domain: Box
    waves: Waves = dataclasses.field(repr=False)
    shifts: Array
    accepted: Array
    means: Table
    best: Certificate
    noise: Noise = Gaussian()
    delay: Delay = NoDelay()
    name: str = static(default="draws")

    def __post_init__(self) -> None:
        # A program makes it, and a trial raises a flag instead of an error.
        pass

    def values(self, point: Array) -> Array:
        drawn = values_of(self.waves, self.domain.to_unit(point)[None])[:, 0]
        return jnp.concatenate([drawn[:1], constrained(drawn[1:], self.shifts, self.accepted)])


def values_of(waves: Waves, points: Array) -> Array:
    """Return the values ``[k, n]`` of stacked functions at ``points [n, d]``."""
    drawn: Array = jax.vmap(lambda wave: wave(points))(waves)
    return drawn


def constrained(drawn: Array, shifts: Array, accepted: Array) -> Array:
    """Return constraints ``[m, ...]`` of drawn functions, 1 everywhere unless accepted."""
    return jnp.where(accepted, drawn + shifts.reshape(-1, *[1] * (drawn.ndim - 1)), 1)


def search_points(box: Box, others: Sequence[np.ndarray]) -> np.ndarray:
    """Return starts ``[L, d]``: candidates, 4096 Sobol points, and ``others``."""
    candidates = box.to_unit(np.asarray(box.points, np.float64))
    return np.concatenate([candidates, box.snapped(sobol_points(box.dimension, 4096)), *(other[None] for other in others)])


def solved(functions: Callable[[Array], Array], box: Box, looked_at: Array, table: Array) -> Certificate:
    """Return the best feasible point of functions, ``table`` at the points ``looked_at``.

    The functions return ``[k, n]`` at ``[n, d]`` of the unit cube. The search ascends augmented Lagrangians of deviations of reward and
    constraints (Nocedal and Wright 2006, *Numerical optimization*, Algorithm 17.4, at a fixed penalty ``mu``),
    ``f - sum_j (max(0, lambda_j + mu g_j)^2 - lambda_j^2) / 2 mu``.
    """
    penalty, margin = OptimumSearch.penalty, OptimumSearch.margin
    unit = jnp.maximum(jnp.std(table, axis=1), jnp.finfo(table.dtype).tiny)

    def parts(points: Array) -> tuple[Array, Array]:
        values = functions(box.snapped(points)) / unit[:, None]
        return values[0], values[1:].T + margin

    def lagrangian(points: Array, multipliers: Array) -> Array:
        reward, costs = parts(points)
        return reward - jnp.sum(jnp.square(jnp.maximum(0, multipliers + penalty * costs)), axis=1) / (2 * penalty)

    def again(now: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        points, multipliers = now
        multipliers = jnp.maximum(0, multipliers + penalty * parts(points)[1])
        return (ascend(lambda points: lagrangian(points, multipliers), points, OptimumSearch.steps).place, multipliers), None

    none = jnp.zeros((1, len(table) - 1), table.dtype)
    violated = jnp.maximum(0, table[1:] / unit[1:, None])
    height = table[0] / unit[0] - penalty / 2 * jnp.sum(jnp.square(violated), axis=0)
    starts = looked_at[jax.lax.top_k(height, OptimumSearch.starts)[1]]
    steps = OptimumSearch.brief + OptimumSearch.long
    begun, reached, *_ = ascend(lambda points: lagrangian(points, none), starts, steps, first=OptimumSearch.brief, best=OptimumSearch.kept)
    near = jnp.linalg.norm(begun[:, None] - begun[None], axis=-1) < Certificate.basin_distance / 5 * np.sqrt(box.dimension)
    better = (reached[None] > reached[:, None]) | ((reached[None] == reached[:, None]) & jnp.tri(OptimumSearch.kept, k=-1, dtype=bool))
    # Continue with the best point of each basin.
    begun = begun[jax.lax.top_k(jnp.where(jnp.any(near & better, axis=1), -jnp.inf, reached), OptimumSearch.basins)[1]]
    multipliers = jnp.zeros((OptimumSearch.basins, len(table) - 1), table.dtype)
    (ends, multipliers), _ = jax.lax.scan(again, (begun, multipliers), None, length=OptimumSearch.updates)
    edges = to_edge(lambda points: jnp.max(parts(points)[1], axis=1, initial=-jnp.inf), ends, OptimumSearch.to_corner)
    first = jnp.argmax(jnp.where(jnp.all(table[1:] <= 0, axis=0), table[0], -jnp.inf))
    points = box.snapped(jnp.concatenate([ends, edges, looked_at[first][None]]))
    values = functions(points)
    reached = jnp.where(jnp.all(values[1:] <= 0, axis=0), values[0], -jnp.inf)
    best = jnp.argmax(reached)
    apart = jnp.linalg.norm(points - points[best][None], axis=1) > Certificate.basin_distance * np.sqrt(box.dimension)
    other = jnp.max(jnp.where(apart, reached, -jnp.inf))
    exists, weights = reached[best] > -jnp.inf, jnp.concatenate([multipliers, multipliers, none])[best]
    x = points[best]
    slope = jax.grad(lambda x: parts(x[None])[0][0] - jnp.sum(weights * parts(x[None])[1][0]))(x)
    slope = jnp.where(((x <= 0) & (slope < 0)) | ((x >= 1) & (slope > 0)), 0, slope)
    return Certificate(
        value=jnp.where(exists, reached[best], jnp.nan),
        point=jnp.where(exists, box.from_unit(x), jnp.nan),
        gradient=jnp.where(exists, jnp.linalg.norm(slope), jnp.nan),
        gap=jnp.where(exists & (other > -jnp.inf), reached[best] - other, jnp.nan),
    )


def instance(
    box: Box,
    waves: Waves,
    looked_at: Array,
    table: Array,
    *,
    accepted: Array,
    slack: Scalar | None,
    **known: Any,
) -> BoxDraw:
    """Return the problem of drawn functions with ``table [1 + m, L]``."""
    costs = jax.tree.map(lambda part: part[1:], waves)
    shifts = jnp.zeros((len(table) - 1,), table.dtype)

    def least(wave: Waves, values: Array) -> Array:
        """Return a function's least value, given ``values [L]`` at ``looked_at``."""
        starts, steps = looked_at[jax.lax.top_k(-values, OptimumSearch.starts)[1]], OptimumSearch.brief + 2 * OptimumSearch.long
        reached = ascend(lambda points: -wave(box.snapped(points)), starts, steps, first=OptimumSearch.brief, best=OptimumSearch.kept)
        return -jnp.max(reached.value)

    if slack is not None:
        shifts = slack - jax.vmap(least)(costs, table[1:])

    def functions(drawn: Array) -> Array:
        return jnp.concatenate([drawn[:1], constrained(drawn[1:], shifts, accepted)])

    values = functions(table)
    best = solved(lambda points: functions(values_of(waves, points)), box, looked_at, values)
    return BoxDraw(domain=box, waves=waves, shifts=shifts, accepted=accepted, means=values[:, : box.size], best=best, **known)
