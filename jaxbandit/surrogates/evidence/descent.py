"""Minimisation of a smooth function of few numbers inside a box, by damped scoring; it may be called in ``jax.vmap`` and in loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.types import Array
from jaxbandit.surrogates.evidence.density import inverse

LONGEST = 2.0  # largest change of a number in one step: a factor of 7 where numbers are logarithms
ARMIJO = 1e-4  # share of the predicted descent that a step has to reach
RESOLUTION = 32  # rounding errors of a value that hide a descent
DAMPING, LEAST_DAMPING = 1e-2, 1e-3  # of the first step, and of any, in units of the information's diagonal
EASED, STIFFENED = 0.1, 10.0  # factors on the damping after a step that descends, and after one that does not
SEEN = 1e-2  # least share of the expected curvature that a seen one is believed from
LEAST_INFORMATION = 1e-6  # of one number, for steps along which the function hardly changes


class Minimum(NamedTuple):
    """A point that a descent has reached."""

    place: Array  # [P]
    value: Array  # []
    converged: Array  # [] whether the next step promises less than the tolerance


class _State(NamedTuple):
    place: Array  # [P]
    value: Array  # []
    gradient: Array  # [P]
    information: Array  # [P, P] positive semi-definite, in place of the Hessian
    damping: Array  # []
    step: Array  # [P] the next one
    evaluations: Array  # [] int32, so far


def minimise(
    function: Callable[[Array], tuple[Array, Array, Array]], starts: Array, low: Array, high: Array, *, steps: int, tolerance: float
) -> Minimum:
    """Return where projected scoring gets from the best of ``starts [S, P]`` within ``[low, high]``, each ``[P]``.

    ``function`` returns its value ``[]``, gradient ``[P]`` and a positive semi-definite matrix ``[P, P]`` in place of its Hessian, such as
    Fisher's information. Steps are damped as Levenberg's and Marquardt's (Nocedal and Wright 2006, *Numerical optimization*, sec. 10.3).
    Numbers that a bound holds back do not move, and do so again once the gradient points inside; a step that does not descend is taken
    back, and the next one is damped more. It ends after ``steps`` steps, each one call of ``function``, or where the next one promises
    less than ``tolerance``, in units of the function, and what its rounding hides.
    """
    size, dtype = starts.shape[1], starts.dtype
    resolution = RESOLUTION * float(np.finfo(dtype).eps)

    def evaluate(place: Array) -> tuple[Array, Array, Array]:
        value, gradient, information = function(place)
        usable = jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient)) & jnp.all(jnp.isfinite(information))
        return jnp.where(usable, value, jnp.inf), jnp.where(usable, gradient, 0), jnp.where(usable, information, 0)

    def step_of(place: Array, gradient: Array, information: Array, damping: Array) -> Array:
        held = ((place <= low) & (gradient > 0)) | ((place >= high) & (gradient < 0))
        units = jnp.where(held, 0, 1 / jnp.sqrt(jnp.maximum(jnp.diagonal(information), LEAST_INFORMATION)))
        inverted, _ = inverse(jnp.eye(size, dtype=dtype) + information * (units[:, None] * units[None] / damping))
        step = -units * jnp.matmul(inverted, units * gradient, precision="highest") / damping
        return step / jnp.maximum(jnp.max(jnp.abs(step)) / LONGEST, 1)

    def promises(now: _State) -> Array:
        return -0.5 * jnp.sum(now.step * now.gradient) > tolerance + resolution * jnp.abs(now.value)

    def advance(now: _State) -> _State:
        screening = now.evaluations < len(starts)  # in the same loop, so that the function is compiled once
        start = jax.lax.dynamic_index_in_dim(starts, jnp.minimum(now.evaluations, len(starts) - 1), keepdims=False)
        place = jnp.where(screening, start, jnp.clip(now.place + now.step, low, high))
        wanted = jnp.where(screening, 0, ARMIJO * jnp.sum(now.gradient * (place - now.place)))
        reached = (place, *evaluate(place))
        better = reached[1] <= now.value + wanted
        reached = (*reached[:3], _corrected(reached[3], place - now.place, reached[2] - now.gradient, ~screening))
        place, value, gradient, information = (jnp.where(better, new, old) for new, old in zip(reached, now, strict=False))
        damping = jnp.where(better, jnp.maximum(EASED * now.damping, LEAST_DAMPING), STIFFENED * now.damping)
        damping = jnp.where(screening, now.damping, damping)
        step = step_of(place, gradient, information, damping)
        return _State(place, value, gradient, information, damping, step, now.evaluations + 1)

    one, nothing = jnp.ones((), dtype), jnp.zeros((size,), dtype)
    nowhere = _State(starts[0], jnp.inf * one, nothing, jnp.eye(size, dtype=dtype), DAMPING * one, nothing, jnp.zeros((), jnp.int32))
    most = len(starts) + steps
    last = jax.lax.while_loop(lambda now: (now.evaluations < len(starts)) | ((now.evaluations < most) & promises(now)), advance, nowhere)
    return Minimum(last.place, last.value, ~promises(last) & jnp.isfinite(last.value))


def _corrected(information: Array, moved: Array, turned: Array, usable: Array) -> Array:
    """Return ``information [P, P]`` by BFGS's formula (eq. 6.19) with the curvature seen along the last step, where it is positive.

    Information alone is off the Hessian by what does not vanish at the minimum, so that steps would end in ever the same small share.
    """
    along = jnp.matmul(information, moved, precision="highest")
    expected, seen = jnp.sum(along * moved), jnp.sum(moved * turned)
    usable &= (expected > 0) & (seen > SEEN * expected)
    expected, seen = jnp.where(usable, expected, 1), jnp.where(usable, seen, 1)
    return information + jnp.where(usable, turned[:, None] * turned[None] / seen - along[:, None] * along[None] / expected, 0)
