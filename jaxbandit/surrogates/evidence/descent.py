"""Minimisation of a smooth function of few numbers inside a box, by projected BFGS; it may be called in ``jax.vmap`` and in loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxbandit.core.types import Array

LONGEST = 2.0  # largest change of a number in one step: a factor of 7 where numbers are logarithms
SHRINK = 0.3  # factor by which a step that does not descend is shortened
ARMIJO = 1e-4  # share of the predicted descent that a step has to reach
RESOLUTION = 32  # rounding errors of a value that hide a descent


class Minimum(NamedTuple):
    """A point that a descent has reached."""

    place: Array  # [P]
    value: Array  # []
    converged: Array  # [] whether the next step promises less than the tolerance


class _State(NamedTuple):
    place: Array  # [P]
    value: Array  # []
    gradient: Array  # [P]
    inverse: Array  # [P, P] approximation of the inverse Hessian
    learnt: Array  # [] whether the approximation has seen a step
    share: Array  # [] share of the next step that is taken, less than 1 after a step that did not descend
    evaluations: Array  # [] int32, so far


def minimise(function: Callable[[Array], Array], starts: Array, low: Array, high: Array, *, steps: int, tolerance: float) -> Minimum:
    """Return where projected BFGS gets from the best of ``starts [S, P]`` within ``[low, high]``, each ``[P]``.

    Nocedal and Wright (2006), *Numerical optimization*, eq. 6.17. Every start and every step costs one value and gradient. Numbers that a
    bound holds back do not move; a step that does not descend is taken back, but teaches the approximation of the inverse Hessian. It
    ends after ``steps`` steps, or where the next one promises less than ``tolerance``, in units of the function, and what its rounding
    hides.
    """
    size, dtype = starts.shape[1], starts.dtype
    resolution = RESOLUTION * float(jnp.finfo(dtype).eps)

    def evaluate(place: Array) -> tuple[Array, Array]:
        value, gradient = jax.value_and_grad(function)(place)
        usable = jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient))
        return jnp.where(usable, value, jnp.inf), jnp.where(usable, gradient, 0)

    def direction(now: _State) -> Array:
        held = ((now.place <= low) & (now.gradient > 0)) | ((now.place >= high) & (now.gradient < 0))
        downhill = jnp.where(held, 0, -now.gradient)
        found = jnp.where(held, 0, jnp.matmul(now.inverse, downhill, precision="highest"))
        return jnp.where(jnp.sum(found * downhill) > 0, found, downhill)

    def promises(now: _State) -> Array:
        promised = -0.5 * jnp.sum(direction(now) * now.gradient)
        return promised > tolerance + resolution * jnp.abs(now.value)

    def advance(now: _State) -> _State:
        screening = now.evaluations < len(starts)  # in the same loop, so that the function is compiled once
        step = direction(now)
        step *= now.share * jnp.minimum(1, LONGEST / jnp.maximum(jnp.max(jnp.abs(step)), LONGEST))
        start = jax.lax.dynamic_index_in_dim(starts, jnp.minimum(now.evaluations, len(starts) - 1), keepdims=False)
        place = jnp.where(screening, start, jnp.clip(now.place + step, low, high))
        moved = place - now.place
        value, gradient = evaluate(place)
        wanted = jnp.where(screening, 0, ARMIJO * jnp.sum(now.gradient * moved))
        better = value <= now.value + wanted
        inverse, learnt = _updated(now, moved, gradient - now.gradient, jnp.isfinite(value) & ~screening)
        return _State(
            place=jnp.where(better, place, now.place),
            value=jnp.where(better, value, now.value),
            gradient=jnp.where(better, gradient, now.gradient),
            inverse=inverse,
            learnt=learnt,
            share=jnp.where(better | screening, 1, SHRINK * now.share),
            evaluations=now.evaluations + 1,
        )

    one = jnp.ones((), dtype)
    nowhere = _State(
        starts[0], jnp.inf * one, 0 * starts[0], jnp.eye(size, dtype=dtype), jnp.zeros((), bool), one, jnp.zeros((), jnp.int32)
    )
    most = len(starts) + steps
    last = jax.lax.while_loop(lambda now: (now.evaluations < len(starts)) | ((now.evaluations < most) & promises(now)), advance, nowhere)
    return Minimum(last.place, last.value, ~promises(last) & jnp.isfinite(last.value))


def _updated(now: _State, moved: Array, turned: Array, usable: Array) -> tuple[Array, Array]:
    """Return the inverse Hessian after a step that ``moved`` the place and ``turned`` the gradient, and whether it has seen any step."""
    product, size = jnp.sum(moved * turned), jnp.sum(turned * turned)
    curved = usable & (product > 1e-8 * jnp.sqrt(jnp.sum(moved * moved) * size))
    product, size = jnp.where(curved, product, 1), jnp.where(curved, size, 1)
    identity = jnp.eye(len(moved), dtype=moved.dtype)
    before = jnp.where(now.learnt, now.inverse, identity * (product / size))
    across = identity - moved[:, None] * turned[None] / product
    turned_both = jnp.matmul(jnp.matmul(across, before, precision="highest"), across.T, precision="highest")
    return jnp.where(curved, turned_both + moved[:, None] * moved[None] / product, now.inverse), now.learnt | curved
