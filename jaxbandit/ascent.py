"""Ascent of a score on the unit cube from several points at once, by a fixed number of projected quasi-Newton steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxbandit.core.declare import Array

__all__ = ["Climb", "ascend", "to_edge"]
__dir__ = __all__.copy  # what completion shows

FIRST_STEP = 0.2  # length of an ascent's first step, in sides of the cube
LONGEST = 0.5  # length of any step
SHORTER, LONGER = 0.25, 2.0  # factors on the step after one that was taken back, and after one that was not, up to the whole step
BOLDER = 4.0  # factor on the whole step after one along which the score is not concave
CURVED = 1e-8  # least share of the product of their lengths by which a step and the change of gradient must agree to be learnt from
NEAR = 0.05  # sides of the cube on each axis within which ascents lead to the same place
TO_EDGE, WITHIN = 3, 1e-5  # Newton's steps to the edge of a set, and how far within it they end, in sides of the cube


class Climb(NamedTuple):
    """Places that ascents have reached, and what they go on by."""

    place: Array  # [n, d]
    value: Array  # [n]
    gradient: Array  # [n, d]
    inverse: Array  # [n, d, d] approximates the inverse of the negative Hessian
    share: Array  # [n] of the whole step that is tried next


def ascend(
    score: Callable[[Array], Array],
    starts: Array,
    steps: int,
    *,
    first: int = 0,
    best: int | None = None,
    inverse: Array | None = None,
) -> Climb:
    """Return where ascents end: points ``[n, d]`` of the unit cube of a score at least that of ``starts [n, d]``, and their scores ``[n]``.

    Each start goes its own way, ``steps`` steps of BFGS on the axes that do not hold it at a face of the cube (Nocedal and Wright 2006,
    *Numerical optimization*, eq. 6.17); a step that does not ascend, or leads to NaN or minus infinity, is taken back and shortened.

    Args:
      score: the scores ``[n]`` of points ``[n, d]``, each computed from its own point.
      starts: points of the unit cube.
      steps: number of steps.
      first: steps after which only the ``best`` go on, of which there are ``n`` then; default: all do.
      best: number of those.
      inverse: ``[n, d, d]`` for the inverses of the negative Hessians at the starts, of an earlier ascent from there; default: none known.
    """
    count, dimension = starts.shape

    def evaluate(points: Array) -> tuple[Array, Array]:
        def total(points: Array) -> tuple[Array, Array]:
            values = score(points)
            return jnp.sum(values), values

        gradient, values = jax.grad(total, has_aux=True)(points)
        return values, jnp.where(jnp.isfinite(gradient), gradient, 0)

    def held(place: Array, gradient: Array) -> Array:
        return ((place <= 0) & (gradient < 0)) | ((place >= 1) & (gradient > 0))

    def proposed(now: Climb) -> Array:
        fixed = held(now.place, now.gradient)
        slope = jnp.where(fixed, 0, now.gradient)
        along = jnp.where(fixed, 0, jnp.sum(now.inverse * slope[:, None, :], axis=-1))
        along = jnp.where(jnp.sum(along * slope, axis=-1, keepdims=True) > 0, along, slope)
        length = jnp.sqrt(jnp.sum(along * along, axis=-1))
        whole = jnp.minimum(1, LONGEST / jnp.maximum(length, jnp.finfo(length.dtype).tiny))
        return jnp.clip(now.place + (now.share * whole)[:, None] * along, 0, 1)

    def step(before: tuple[Climb, Array], fresh: Array | bool) -> tuple[tuple[Climb, Array], None]:
        now, place = before
        value, gradient = evaluate(place)
        better = value > now.value
        learnt = _corrected(now.inverse, place - now.place, now.gradient - gradient, better)
        keep = better[:, None]
        after = Climb(
            place=jnp.where(keep, place, now.place),
            value=jnp.where(better, value, now.value),
            gradient=jnp.where(keep, gradient, now.gradient),
            inverse=jnp.where(fresh, now.inverse if inverse is not None else _first_inverse(gradient), learnt),
            share=jnp.where(better, jnp.minimum(1, LONGER * now.share), SHORTER * now.share),
        )
        return (after, proposed(after)), None

    # The points tried next are kept between steps, for XLA would compute them anew within everything that looks at them. The first are the
    # starts: a program then holds the score once for each loop.
    climb = Climb(
        place=starts,
        value=jnp.full((count,), -jnp.inf, starts.dtype),
        gradient=jnp.zeros_like(starts),
        inverse=jnp.zeros((count, dimension, dimension), starts.dtype) if inverse is None else inverse,
        share=jnp.ones((count,), starts.dtype),
    )
    length = min(first, steps) if best is not None and best < count else steps
    (climb, place), _ = jax.lax.scan(step, (climb, starts), jnp.arange(1 + length) == 0)
    if best is not None and best < count:
        _, kept = jax.lax.top_k(_apart(climb.place, climb.value), best)
        before = jax.tree.map(lambda part: part[kept], (climb, place))
        (climb, _), _ = jax.lax.scan(lambda now, _: step(now, False), before, length=steps - length)
    return climb


def _first_inverse(gradient: Array) -> Array:
    """Return multiples ``[n, d, d]`` of the unit matrix by which ascents of ``gradient [n, d]`` begin with steps of ``FIRST_STEP``."""
    slope = jnp.sqrt(jnp.sum(gradient * gradient, axis=-1))
    scale = FIRST_STEP / jnp.maximum(slope, jnp.finfo(slope.dtype).tiny)
    return jnp.eye(gradient.shape[1], dtype=gradient.dtype)[None] * scale[:, None, None]


def _apart(places: Array, values: Array) -> Array:
    """Return ``values [n]``, less by twice their range, and so below all others, where a better one is near in ``places [n, d]``."""
    known = values > -jnp.inf
    values = jnp.where(known, values, -jnp.inf)
    number = jnp.arange(len(values))
    better = (values[None] > values[:, None]) | ((values[None] == values[:, None]) & (number[None] < number[:, None]))
    axes = places.T
    near = jnp.sum(jnp.square(axes[:, :, None] - axes[:, None]), axis=0) < len(axes) * NEAR**2
    extent = jnp.max(values) - jnp.min(jnp.where(known, values, jnp.inf))
    return jnp.where(jnp.any(better & near, axis=1), values - 2 * extent, values)


def to_edge(cost: Callable[[Array], Array], points: Array, steps: int = TO_EDGE) -> Array:
    """Return ``points [n, d]`` of the unit cube moved by Newton's method to where ``cost``, as ``[n]``, is zero or just below.

    Where it is the largest of several, more ``steps`` reach a corner of their edges.
    """

    def total(points: Array) -> tuple[Array, Array]:
        values = cost(points)
        return jnp.sum(values), values

    def step(points: Array, _: None) -> tuple[Array, None]:
        slope, value = jax.grad(total, has_aux=True)(points)
        squared = jnp.sum(slope * slope, axis=-1)
        known = jnp.isfinite(value) & jnp.isfinite(squared) & (squared > 0)
        share = jnp.where(known, value + WITHIN * jnp.sqrt(squared), 0) / jnp.where(known, squared, 1)
        return jnp.where(known[:, None], jnp.clip(points - share[:, None] * slope, 0, 1), points), None

    moved, _ = jax.lax.scan(step, points, None, length=steps)
    return moved


def _corrected(inverse: Array, moved: Array, turned: Array, better: Array) -> Array:
    """Return BFGS's inverse Hessians ``[n, d, d]`` after steps ``moved [n, d]`` that changed the negative gradients by ``turned``.

    Where a step was ``better [n]`` and the score is not concave along it, longer ones are tried.
    """
    agree = jnp.sum(moved * turned, axis=-1)
    sizes = jnp.sqrt(jnp.sum(moved * moved, axis=-1) * jnp.sum(turned * turned, axis=-1))
    usable = better & (agree > CURVED * sizes)
    inverse = jnp.where(better & ~usable, BOLDER, 1)[:, None, None] * inverse
    rho = jnp.where(usable, 1 / jnp.where(usable, agree, 1), 0)
    along = jnp.sum(inverse * turned[:, None, :], axis=-1)  # H y
    spread = (1 + rho * jnp.sum(turned * along, axis=-1)) * rho
    cross = along[:, :, None] * moved[:, None, :]
    return inverse + spread[:, None, None] * moved[:, :, None] * moved[:, None, :] - rho[:, None, None] * (cross + cross.swapaxes(1, 2))
