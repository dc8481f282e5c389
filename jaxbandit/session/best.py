"""The best point of a box according to the model.

The search uses the ascents of the algorithms' own choice of points.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri

from jaxbandit.core.declare import Array
from jaxbandit.core.status import Status
from jaxbandit.domains import Box
from jaxbandit.engine.trial import Setting
from jaxbandit.numerics.improvement import log_feasibility
from jaxbandit.rules.scores import Score, best_of_box
from jaxbandit.surrogates import Prediction
from jaxbandit.surrogates.posterior import Belief

# Below this logarithm of a probability the quantile is approximated.
SMALL_LOG_PROBABILITY = -30.0


@jax.jit
def best_place(setting: Setting, belief: Belief, probability: Array) -> Array:
    """Return the feasible place ``[d]`` with the best mean.

    A point counts as feasible if it is so with ``probability``, given the values that have arrived. If no point is, return the
    point that is most likely to be feasible.
    """
    surrogate = setting.algorithm.reading(setting.arena).surrogate
    assert isinstance(surrogate.domain, Box)

    # The quantile is computed outside the ascents, because XLA would compile it once for each of their loops.
    quantile = _quantile(jnp.log(probability))

    def look(points: Array) -> tuple[Score, None]:
        return scored(surrogate.arrived_at(belief, points), probability, quantile), None

    score = scored(surrogate.arrived(belief), probability, quantile)
    points, best, _ = best_of_box(surrogate.domain, surrogate.pool(belief), score, look)
    return points[best]


def scored(belief: Prediction, probability: Array, quantile: Array) -> Score:
    """Score feasible points by mean, and other points by probability of feasibility.

    A point counts as feasible if it is so with ``probability``, and ``quantile`` is the standard normal quantile of ``probability``.
    """
    costs, sd = belief.mean[1:], belief.sd[1:]
    logarithm = log_feasibility(costs, sd)
    lacks = logarithm < jnp.log(probability)
    # The excess counts standard deviations and scales them by the largest, so that for one constraint it is as smooth as the mean.
    excess = (quantile - _quantile(logarithm)) * jnp.max(sd, axis=0, initial=0)
    fine = jnp.where(lacks, -jnp.inf, belief.mean[0])
    return Score(fine, flags=((lacks, Status.OK),), otherwise=logarithm, limited=(belief.mean[0], excess[None]))


@jax.custom_jvp
def _quantile(logarithm: Array) -> Array:
    """Return the standard normal quantile of a probability from its logarithm.

    The quantile of a small probability is approximate, and the quantile of 1 is a large finite number.
    """
    exact = ndtri(jnp.exp(jnp.clip(logarithm, SMALL_LOG_PROBABILITY, _largest(logarithm))))
    return jnp.where(logarithm > SMALL_LOG_PROBABILITY, exact, -jnp.sqrt(-2 * jnp.minimum(logarithm, SMALL_LOG_PROBABILITY)))


@_quantile.defjvp
def _tangent(at: tuple[Array], along: tuple[Array]) -> tuple[Array, Array]:
    """Return the quantile and its tangent.

    JAX would differentiate the polynomials of ``ndtri``, and their compilation takes as long as the rest of this module.
    """
    [logarithm], [moved] = at, along
    quantile = _quantile(logarithm)
    # The slope is the probability divided by the normal density at its quantile.
    slope = jnp.exp(logarithm + jnp.square(quantile) / 2 + math.log(2 * math.pi) / 2)
    slope = jnp.where(logarithm > SMALL_LOG_PROBABILITY, jnp.where(logarithm < _largest(logarithm), slope, 0), -1 / quantile)
    return quantile, slope * moved


def _largest(logarithm: Array) -> float:
    """Return the logarithm that represents a probability of 1."""
    return -float(jnp.finfo(logarithm.dtype).eps)


@jax.jit
def believed_at(setting: Setting, belief: Belief, point: Array) -> Prediction:
    """Return mean and standard deviation ``[k, 1]`` at a point ``[d]``.

    The point lies in the unit cube, and the prediction uses the values that have arrived.
    """
    return setting.algorithm.reading(setting.arena).surrogate.arrived_at(belief, point[None])
