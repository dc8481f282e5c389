"""Problems drawn at random on a continuous box, and their best feasible points, found in the program that draws them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.ascent import ascend, to_edge
from jaxbandit.core.declare import Array, Scalar, Table
from jaxbandit.core.pytree import pytree, static
from jaxbandit.delays import Delay, NoDelay
from jaxbandit.domains import Box
from jaxbandit.domains.finite import sobol_points
from jaxbandit.problems.boxes import APART, Certificate, OnBox
from jaxbandit.problems.noise import Gaussian, Noise

Waves: TypeAlias = Callable[[Array], Array]
"""Functions of points ``[n, d]`` of the unit cube, a pytree; several are stacked along the first axes of its arrays."""
LOOKED_AT = 4096  # Sobol points from the best of which the optimum is looked for
STARTS, BRIEF = 192, 6  # ascents, and their steps after which the best go on
BEST, LONG = 48, 14  # these, and their steps
LAST, STEPS, TIMES = 12, 16, 5  # the best of these, the steps of each of theirs, and how often multipliers are set anew
PRICE = 20.0  # of the square of a violation, both in deviations over the points looked at
CORNER = 12  # Newton's steps to a corner of constraints, each to the edge of that violated most
MARGIN = 1e-5  # deviations by which constraints are to hold, more than rounding


@pytree
class BoxDraw(OnBox):
    """A problem on a box whose reward and constraints were drawn; an instance of what :func:`~jaxbandit.problems.gp_draws` makes of a box.

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
        pass  # made in a program; a trial is flagged instead

    def values(self, point: Array) -> Array:
        drawn = at(self.waves, self.domain.to_unit(point)[None])[:, 0]
        return jnp.concatenate([drawn[:1], constrained(drawn[1:], self.shifts, self.accepted)])


def at(waves: Waves, points: Array) -> Array:
    """Return the values ``[k, n]`` of ``k`` functions, stacked, at ``points [n, d]``."""
    drawn: Array = jax.vmap(lambda wave: wave(points))(waves)
    return drawn


def constrained(drawn: Array, shifts: Array, accepted: Array) -> Array:
    """Return constraints ``[m, ...]`` from the functions drawn: 1 everywhere where none was accepted."""
    return jnp.where(accepted, drawn + shifts.reshape(-1, *[1] * (drawn.ndim - 1)), 1)


def look_out(box: Box, others: Sequence[np.ndarray]) -> np.ndarray:
    """Return points ``[L, d]`` of the unit cube of a box: its candidates, many of a Sobol sequence, and others, each ``[d]``."""
    candidates = box.to_unit(np.asarray(box.points, np.float64))
    return np.concatenate([candidates, box.snapped(sobol_points(box.dimension, LOOKED_AT)), *(other[None] for other in others)])


def least(wave: Callable[[Array], Array], box: Box, looked_at: Array, values: Array) -> Array:
    """Return the least value ``[]`` of a function, from those ``[L]`` at the points looked at."""
    starts = looked_at[jax.lax.top_k(-values, STARTS)[1]]
    reached = ascend(lambda points: -wave(box.snapped(points)), starts, BRIEF + 2 * LONG, first=BRIEF, best=BEST).value
    return -jnp.max(reached)


def solved(functions: Callable[[Array], Array], box: Box, looked_at: Array, table: Array) -> Certificate:
    """Return the best feasible point of ``functions``, ``[k, n]`` at ``[n, d]`` of the unit cube, ``table`` where looked at.

    Augmented Lagrangians of deviations of reward and constraints are ascended (Nocedal and Wright 2006, *Numerical optimization*,
    Algorithm 17.4, at a fixed price ``mu``), ``f - sum_j (max(0, lambda_j + mu g_j)^2 - lambda_j^2) / 2 mu``.
    """
    unit = jnp.maximum(jnp.std(table, axis=1), jnp.finfo(table.dtype).tiny)

    def parts(points: Array) -> tuple[Array, Array]:
        values = functions(box.snapped(points)) / unit[:, None]
        return values[0], values[1:].T + MARGIN

    def lagrangian(points: Array, multipliers: Array) -> Array:
        reward, costs = parts(points)
        return reward - jnp.sum(jnp.square(jnp.maximum(0, multipliers + PRICE * costs)), axis=1) / (2 * PRICE)

    def again(now: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        points, multipliers = now
        multipliers = jnp.maximum(0, multipliers + PRICE * parts(points)[1])
        return (ascend(lambda points: lagrangian(points, multipliers), points, STEPS).place, multipliers), None

    none = jnp.zeros((1, len(table) - 1), table.dtype)
    violated = jnp.maximum(0, table[1:] / unit[1:, None])
    height = table[0] / unit[0] - PRICE / 2 * jnp.sum(jnp.square(violated), axis=0)
    starts = looked_at[jax.lax.top_k(height, STARTS)[1]]
    begun, reached, *_ = ascend(lambda points: lagrangian(points, none), starts, BRIEF + LONG, first=BRIEF, best=BEST)
    near = jnp.linalg.norm(begun[:, None] - begun[None], axis=-1) < APART / 5 * np.sqrt(box.dimension)
    better = (reached[None] > reached[:, None]) | ((reached[None] == reached[:, None]) & jnp.tri(BEST, k=-1, dtype=bool))
    begun = begun[jax.lax.top_k(jnp.where(jnp.any(near & better, axis=1), -jnp.inf, reached), LAST)[1]]  # one of each basin
    (ends, multipliers), _ = jax.lax.scan(again, (begun, jnp.zeros((LAST, len(table) - 1), table.dtype)), None, length=TIMES)
    edges = to_edge(lambda points: jnp.max(parts(points)[1], axis=1, initial=-jnp.inf), ends, CORNER)
    first = jnp.argmax(jnp.where(jnp.all(table[1:] <= 0, axis=0), table[0], -jnp.inf))
    points = box.snapped(jnp.concatenate([ends, edges, looked_at[first][None]]))
    values = functions(points)
    reached = jnp.where(jnp.all(values[1:] <= 0, axis=0), values[0], -jnp.inf)
    best = jnp.argmax(reached)
    apart = jnp.linalg.norm(points - points[best][None], axis=1) > APART * np.sqrt(box.dimension)
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
    """Return the problem of functions that were drawn, ``table [1 + m, L]`` at points looked at, the candidates first."""
    costs = jax.tree.map(lambda part: part[1:], waves)
    shifts = jnp.zeros((len(table) - 1,), table.dtype)
    if slack is not None:
        shifts = slack - jax.vmap(lambda wave, values: least(wave, box, looked_at, values))(costs, table[1:])

    def functions(drawn: Array) -> Array:
        return jnp.concatenate([drawn[:1], constrained(drawn[1:], shifts, accepted)])

    values = functions(table)
    best = solved(lambda points: functions(at(waves, points)), box, looked_at, values)
    return BoxDraw(domain=box, waves=waves, shifts=shifts, accepted=accepted, means=values[:, : box.size], best=best, **known)
