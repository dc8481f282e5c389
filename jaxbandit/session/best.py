"""The best point of a box by what is believed, found by the ascents by which algorithms choose."""

from __future__ import annotations

from typing import cast

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri

from jaxbandit.acquisition import log_feasibility
from jaxbandit.algorithms.base import Arena, BeliefState, Score, Scored, posterior_of
from jaxbandit.core.declare import Array, Key, Scalar
from jaxbandit.core.pytree import pytree
from jaxbandit.core.status import Status
from jaxbandit.domains import Domain
from jaxbandit.engine.trial import Setting
from jaxbandit.estimators import Estimate
from jaxbandit.surrogates import AbstractSurrogate, Prediction, Surrogate
from jaxbandit.surrogates.posterior import Belief

FAR = -30.0  # logarithm of a probability below which its quantile is worked out about


@pytree
class _Arrived(AbstractSurrogate):
    """A model as it is read from what has arrived alone."""

    surrogate: AbstractSurrogate

    @property
    def model(self) -> Surrogate:
        return self.surrogate.model

    @property
    def domain(self) -> Domain:
        """The box."""
        return cast(Domain, self.surrogate.domain)

    @property
    def size(self) -> int:
        return self.surrogate.size

    def predict(self, posterior: Belief) -> Prediction:
        return self.surrogate.arrived(posterior)

    def predict_at(self, posterior: Belief, points: Array) -> Prediction:
        return self.surrogate.arrived_at(posterior, points)

    def place(self, posterior: Belief, point: Array) -> tuple[Array, Belief]:
        return self.surrogate.place(posterior, point)

    def pool(self, posterior: Belief) -> Array:
        return self.surrogate.pool(posterior)


@pytree
class _BestMean(Scored[BeliefState]):
    """The point of the best mean among those feasible with a probability, else the one most likely to be feasible."""

    probability: Scalar

    def estimate(self, arena: Arena, state: BeliefState, t: Array, key: Key) -> Estimate:
        belief = arena.surrogate.predict(posterior_of(state))
        return Estimate(reward=belief.mean[0], costs=belief.mean[1:], widths=jnp.zeros_like(belief.gain), sd=belief.sd)

    def score(self, state: BeliefState, estimate: Estimate) -> Score:
        assert estimate.sd is not None
        costs, sd = estimate.costs, estimate.sd[1:]
        logarithm = log_feasibility(costs, sd)
        lacks = logarithm < jnp.log(self.probability)
        # In deviations, times the largest: of one constraint its mean and so many deviations, as smooth as these.
        excess = (_quantile(jnp.log(self.probability)) - _quantile(logarithm)) * jnp.max(sd, axis=0, initial=0)
        fine = jnp.where(lacks, -jnp.inf, estimate.reward)
        return Score(fine, flags=((lacks, Status.OK),), otherwise=logarithm, limited=(estimate.reward, excess[None]))


def _quantile(logarithm: Array) -> Array:
    """Return the standard normal quantile of a probability from its logarithm, of small ones about, and of 1 a large one."""
    largest = -jnp.finfo(logarithm.dtype).eps
    return jnp.where(logarithm > FAR, ndtri(jnp.exp(jnp.clip(logarithm, FAR, largest))), -jnp.sqrt(-2 * jnp.minimum(logarithm, FAR)))


@jax.jit
def best_place(setting: Setting, belief: Belief, probability: Array) -> Array:
    """Return the point ``[d]`` of the unit cube of a box of the best mean from what has arrived, see :class:`_BestMean`."""
    surrogate = setting.algorithm.reading(setting.arena).surrogate
    arena = Arena(surrogate=_Arrived(surrogate=surrogate), horizon=setting.arena.horizon)
    rule = _BestMean(probability=probability)
    decision, _ = rule.select(arena, BeliefState(posterior=belief), jnp.int32(1), setting.key)
    assert decision.point is not None
    return decision.point


@jax.jit
def believed_at(setting: Setting, belief: Belief, point: Array) -> Prediction:
    """Return mean and deviation ``[k, 1]`` at a point ``[d]`` of the unit cube from what has arrived."""
    return setting.algorithm.reading(setting.arena).surrogate.arrived_at(belief, point[None])
