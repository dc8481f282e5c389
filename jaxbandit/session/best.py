"""The best point of a box by what is believed, found by the ascents by which algorithms choose."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri

from jaxbandit.acquisition import log_feasibility
from jaxbandit.core.declare import Array
from jaxbandit.core.status import Status
from jaxbandit.domains import Box
from jaxbandit.engine.trial import Setting
from jaxbandit.scores import Score, best_of_box
from jaxbandit.surrogates import Prediction
from jaxbandit.surrogates.posterior import Belief

FAR = -30.0  # logarithm of a probability below which its quantile is worked out about


@jax.jit
def best_place(setting: Setting, belief: Belief, probability: Array) -> Array:
    """Return the point ``[d]`` of the unit cube of a box of the best mean, from what has arrived, of those feasible with a probability.

    Where none is, it is the one most likely to be feasible.
    """
    surrogate = setting.algorithm.reading(setting.arena).surrogate
    assert isinstance(surrogate.domain, Box)

    quantile = _quantile(jnp.log(probability))  # here, for within the loops of the ascents it would be compiled for each of them

    def look(points: Array) -> tuple[Score, None]:
        return scored(surrogate.arrived_at(belief, points), probability, quantile), None

    score = scored(surrogate.arrived(belief), probability, quantile)
    points, best, _ = best_of_box(surrogate.domain, surrogate.pool(belief), score, look)
    return points[best]


def scored(belief: Prediction, probability: Array, quantile: Array) -> Score:
    """Return the scores of points by their means, of those feasible with a probability, else by how likely they are to be feasible.

    ``quantile`` is the standard normal one of the probability.
    """
    costs, sd = belief.mean[1:], belief.sd[1:]
    logarithm = log_feasibility(costs, sd)
    lacks = logarithm < jnp.log(probability)
    # In deviations, times the largest: of one constraint its mean and so many deviations, as smooth as these.
    excess = (quantile - _quantile(logarithm)) * jnp.max(sd, axis=0, initial=0)
    fine = jnp.where(lacks, -jnp.inf, belief.mean[0])
    return Score(fine, flags=((lacks, Status.OK),), otherwise=logarithm, limited=(belief.mean[0], excess[None]))


@jax.custom_jvp
def _quantile(logarithm: Array) -> Array:
    """Return the standard normal quantile of a probability from its logarithm, of small ones about, and of 1 a large one."""
    exact = ndtri(jnp.exp(jnp.clip(logarithm, FAR, _largest(logarithm))))
    return jnp.where(logarithm > FAR, exact, -jnp.sqrt(-2 * jnp.minimum(logarithm, FAR)))


@_quantile.defjvp
def _tangent(at: tuple[Array], along: tuple[Array]) -> tuple[Array, Array]:
    """Return the quantile and its tangent; JAX's, of the polynomials of ``ndtri``, takes as long to compile as all else that is here."""
    [logarithm], [moved] = at, along
    quantile = _quantile(logarithm)
    slope = jnp.exp(logarithm + jnp.square(quantile) / 2 + math.log(2 * math.pi) / 2)  # of a probability, over the density there
    slope = jnp.where(logarithm > FAR, jnp.where(logarithm < _largest(logarithm), slope, 0), -1 / quantile)
    return quantile, slope * moved


def _largest(logarithm: Array) -> float:
    """Return what stands for the logarithm of 1."""
    return -float(jnp.finfo(logarithm.dtype).eps)


@jax.jit
def believed_at(setting: Setting, belief: Belief, point: Array) -> Prediction:
    """Return mean and deviation ``[k, 1]`` at a point ``[d]`` of the unit cube from what has arrived."""
    return setting.algorithm.reading(setting.arena).surrogate.arrived_at(belief, point[None])
