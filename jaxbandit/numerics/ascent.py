"""Ascent of a score on the unit cube, from several points."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxbandit.core.declare import Array


class Steps:
    """Step lengths of an ascent, in sides of the cube.

    Other fields are factors on them.

    Attributes:
      first: length of the first step.
      longest: length of any step.
      shorter: factor after a step that was taken back.
      longer: factor after any other step, up to the whole step.
      bolder: factor on the whole step after a step along which the score is not concave.
      curved: least share of the product of their lengths by which a step and the change of the gradient must agree to be learnt from.
      near: sides of the cube on each axis within which ascents lead to the same place.
      probe: length of the steps that find the directions in a part of the cube.
    """

    first: float = 0.2
    longest: float = 0.5
    shorter: float = 0.25
    longer: float = 2.0
    bolder: float = 4.0
    curved: float = 1e-8
    near: float = 0.05
    probe: float = 1e-3


class Climb(NamedTuple):
    """Places that ascents have reached, and the state of the next step.

    Attributes:
      inverse: approximates the inverse of the negative Hessian.
      share: share of the whole step that is tried next.
    """

    place: Array  # [n, d]
    value: Array  # [n]
    gradient: Array  # [n, d]
    inverse: Array  # [n, d, d]
    share: Array  # [n]


def ascend(
    score: Callable[[Array], Array],
    starts: Array,
    steps: int,
    *,
    first: int = 0,
    best: int | None = None,
    inverse: Array | None = None,
    onto: Callable[[Array], Array] | None = None,
    in_one: bool = False,
) -> Climb:
    """Ascend a score from ``starts [n, d]``, and return the ends.

    All points are in the unit cube. No end has a lower score than its start. Each start goes its own way, ``steps`` steps of BFGS on the
    axes that do not hold it at a face of the cube (Nocedal and Wright 2006, *Numerical optimization*, eq. 6.17). A step that does not
    ascend, or leads to NaN or minus infinity, is taken back and shortened.

    Args:
      score: the scores ``[n]`` of points ``[n, d]``, each computed from its own point.
      starts: points of the unit cube.
      steps: number of steps.
      first: number of steps after which only the best ascents go on. Default: all ascents go on.
      best: number ``n`` of ascents that go on.
      inverse: inverses ``[n, d, d]`` of the negative Hessians at the starts, of an earlier ascent from there. Default: they are unknown.
      onto: projection of points ``[n, d]`` onto a convex part of the cube that has the starts, in which ascents stay. Default: the cube.
      in_one: whether all ascents go on in one loop, and only the best are returned. The program takes less time to compile and more to run.
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

    def inside(place: Array, along: Array) -> Array:
        """Return the directions ``[n, d]`` without parts that lead outside."""
        assert onto is not None
        length = jnp.maximum(jnp.sqrt(jnp.sum(along * along, axis=-1)), jnp.finfo(along.dtype).tiny)[:, None]
        return (onto(place + Steps.probe * along / length) - place) * (length / Steps.probe)

    def proposed(now: Climb) -> Array:
        if onto is None:
            fixed = held(now.place, now.gradient)
            slope = jnp.where(fixed, 0, now.gradient)
            along = jnp.where(fixed, 0, jnp.sum(now.inverse * slope[:, None, :], axis=-1))
        else:
            slope = inside(now.place, now.gradient)
            along = inside(now.place, jnp.sum(now.inverse * slope[:, None, :], axis=-1))
        along = jnp.where(jnp.sum(along * slope, axis=-1, keepdims=True) > 0, along, slope)
        length = jnp.sqrt(jnp.sum(along * along, axis=-1))
        whole = jnp.minimum(1, Steps.longest / jnp.maximum(length, jnp.finfo(length.dtype).tiny))
        moved = now.place + (now.share * whole)[:, None] * along
        return jnp.clip(moved, 0, 1) if onto is None else onto(moved)

    def step(before: tuple[Climb, Array], fresh: Array | bool) -> tuple[tuple[Climb, Array], None]:
        now, place = before
        value, gradient = evaluate(place)
        better = value > now.value
        learnt = _bfgs_inverse(now.inverse, place - now.place, now.gradient - gradient, better)
        keep = better[:, None]
        after = Climb(
            place=jnp.where(keep, place, now.place),
            value=jnp.where(better, value, now.value),
            gradient=jnp.where(keep, gradient, now.gradient),
            inverse=jnp.where(fresh, now.inverse if inverse is not None else _first_inverse(gradient), learnt),
            share=jnp.where(better, jnp.minimum(1, Steps.longer * now.share), Steps.shorter * now.share),
        )
        return (after, proposed(after)), None

    # The points tried next are kept between steps, because XLA would compute them anew within everything that looks at them. The first
    # points are the starts, so that a program has the score once for each loop.
    climb = Climb(
        place=starts,
        value=jnp.full((count,), -jnp.inf, starts.dtype),
        gradient=jnp.zeros_like(starts),
        inverse=jnp.zeros((count, dimension, dimension), starts.dtype) if inverse is None else inverse,
        share=jnp.ones((count,), starts.dtype),
    )
    if best is None or best >= count:
        (climb, _), _ = jax.lax.scan(step, (climb, starts), jnp.arange(1 + steps) == 0)
        return climb
    length = min(first, steps)
    if in_one:

        def noted(before: tuple[Climb, Array], fresh: Array) -> tuple[tuple[Climb, Array], tuple[Array, Array]]:
            after = step(before, fresh)[0]
            return after, (after[0].place, after[0].value)

        (climb, place), way = jax.lax.scan(noted, (climb, starts), jnp.arange(1 + steps) == 0)
        so_far = jax.tree.map(lambda part: part[length], way)
    else:
        (climb, place), _ = jax.lax.scan(step, (climb, starts), jnp.arange(1 + length) == 0)
        so_far = climb.place, climb.value
    _, kept = jax.lax.top_k(_apart(*so_far), best)
    climb, place = jax.tree.map(lambda part: part[kept], (climb, place))
    if not in_one:
        (climb, _), _ = jax.lax.scan(lambda now, _: step(now, False), (climb, place), length=steps - length)
    return climb


def _first_inverse(gradient: Array) -> Array:
    """Return multiples of the unit matrix, the first inverses ``[n, d, d]``."""
    slope = jnp.sqrt(jnp.sum(gradient * gradient, axis=-1))
    scale = Steps.first / jnp.maximum(slope, jnp.finfo(slope.dtype).tiny)
    return jnp.eye(gradient.shape[1], dtype=gradient.dtype)[None] * scale[:, None, None]


def _apart(places: Array, values: Array) -> Array:
    """Return ``values [n]`` with all but the best neighbours lowered.

    A lowered value is below all others. They are lowered by twice their range; ``places`` are ``[n, d]``.
    """
    known = values > -jnp.inf
    values = jnp.where(known, values, -jnp.inf)
    number = jnp.arange(len(values))
    better = (values[None] > values[:, None]) | ((values[None] == values[:, None]) & (number[None] < number[:, None]))
    axes = places.T
    near = jnp.sum(jnp.square(axes[:, :, None] - axes[:, None]), axis=0) < len(axes) * Steps.near**2
    extent = jnp.max(values) - jnp.min(jnp.where(known, values, jnp.inf))
    return jnp.where(jnp.any(better & near, axis=1), values - 2 * extent, values)


def to_edge(cost: Callable[[Array], Array], points: Array, steps: int = 3) -> Array:
    """Move ``points [n, d]`` to where ``cost [n]`` is zero.

    The points stay in the unit cube. Newton's method moves them to 1e-5 sides within the edge. Where the cost is the largest of several,
    more ``steps`` reach a corner of their edges.
    """

    def total(points: Array) -> tuple[Array, Array]:
        values = cost(points)
        return jnp.sum(values), values

    def step(points: Array, _: None) -> tuple[Array, None]:
        slope, value = jax.grad(total, has_aux=True)(points)
        squared = jnp.sum(slope * slope, axis=-1)
        known = jnp.isfinite(value) & jnp.isfinite(squared) & (squared > 0)
        share = jnp.where(known, value + 1e-5 * jnp.sqrt(squared), 0) / jnp.where(known, squared, 1)
        return jnp.where(known[:, None], jnp.clip(points - share[:, None] * slope, 0, 1), points), None

    moved, _ = jax.lax.scan(step, points, None, length=steps)
    return moved


def _bfgs_inverse(inverse: Array, moved: Array, turned: Array, better: Array) -> Array:
    """Return BFGS's inverse Hessians ``[n, d, d]`` after steps ``moved [n, d]``.

    The steps changed the negative gradients by ``turned [n, d]``. Where a step was ``better [n]`` and the score is not concave along it,
    longer steps are tried.
    """
    agree = jnp.sum(moved * turned, axis=-1)
    sizes = jnp.sqrt(jnp.sum(moved * moved, axis=-1) * jnp.sum(turned * turned, axis=-1))
    usable = better & (agree > Steps.curved * sizes)
    inverse = jnp.where(better & ~usable, Steps.bolder, 1)[:, None, None] * inverse
    rho = jnp.where(usable, 1 / jnp.where(usable, agree, 1), 0)
    along = jnp.sum(inverse * turned[:, None, :], axis=-1)
    spread = (1 + rho * jnp.sum(turned * along, axis=-1)) * rho
    cross = along[:, :, None] * moved[:, None, :]
    return inverse + spread[:, None, None] * moved[:, :, None] * moved[:, None, :] - rho[:, None, None] * (cross + cross.swapaxes(1, 2))
