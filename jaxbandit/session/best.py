"""The best point of a box by what is believed, found by the ascents by which algorithms choose."""

from __future__ import annotations

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

    def look(points: Array) -> tuple[Score, None]:
        return scored(surrogate.arrived_at(belief, points), probability), None

    score = scored(surrogate.arrived(belief), probability)
    points, best, _ = best_of_box(surrogate.domain, surrogate.pool(belief), score, look)
    return points[best]


def scored(belief: Prediction, probability: Array) -> Score:
    """Return the scores of points by their means, of those feasible with a probability, else by how likely they are to be feasible."""
    costs, sd = belief.mean[1:], belief.sd[1:]
    logarithm = log_feasibility(costs, sd)
    lacks = logarithm < jnp.log(probability)
    # In deviations, times the largest: of one constraint its mean and so many deviations, as smooth as these.
    excess = (_quantile(jnp.log(probability)) - _quantile(logarithm)) * jnp.max(sd, axis=0, initial=0)
    fine = jnp.where(lacks, -jnp.inf, belief.mean[0])
    return Score(fine, flags=((lacks, Status.OK),), otherwise=logarithm, limited=(belief.mean[0], excess[None]))


def _quantile(logarithm: Array) -> Array:
    """Return the standard normal quantile of a probability from its logarithm, of small ones about, and of 1 a large one."""
    largest = -jnp.finfo(logarithm.dtype).eps
    return jnp.where(logarithm > FAR, ndtri(jnp.exp(jnp.clip(logarithm, FAR, largest))), -jnp.sqrt(-2 * jnp.minimum(logarithm, FAR)))


@jax.jit
def believed_at(setting: Setting, belief: Belief, point: Array) -> Prediction:
    """Return mean and deviation ``[k, 1]`` at a point ``[d]`` of the unit cube from what has arrived."""
    return setting.algorithm.reading(setting.arena).surrogate.arrived_at(belief, point[None])
