"""The posterior of a learner whose functions on the grid move in the kernel of the next choice.

An observation moves the factors of a posterior at once, and its mean and variance at every point. The latter is left to the next round's
kernel, which reads them anyway.
"""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from jaxbandit.core.pytree import pytree, replace
from jaxbandit.core.types import Array
from jaxbandit.domains import Domain
from jaxbandit.surrogates import AbstractSurrogate, Posterior, Prediction, Surrogate
from jaxbandit.surrogates.posterior import column_of

T = TypeVar("T")


@pytree
class Unsettled:
    """Posterior whose mean and variance have yet to take in the last observation."""

    posterior: Posterior  # factors and gain after the observation, mean and variance before it
    columns: Array  # [G, M] covariance of every point with the observed one
    shrinkage: Array  # [G] 1 / s, by which the variance falls; 0 where it was computed anew
    innovation: Array  # [k] (y - mean) / s, by which the mean moves


@pytree
class Settled:
    """Posterior that has taken in everything, within a round."""

    posterior: Posterior
    seen: Any = None  # [k] the mean less the prior mean at the point chosen, None before one is


@pytree
class DeferredSurrogate(AbstractSurrogate):
    """Surrogate whose posterior is :class:`Unsettled` between rounds; it gives the same beliefs as ``base``.

    Attributes:
      base: the Gaussian-process model.
    """

    base: Surrogate

    @property
    def model(self) -> Surrogate:
        """The Gaussian-process model."""
        return self.base

    @property
    def domain(self) -> Domain:
        """The ``M`` points."""
        return self.base.domain

    def init(self) -> Unsettled:
        return self.unsettled(self.base.init())

    def unsettled(self, posterior: Posterior) -> Unsettled:
        """Return a posterior with nothing left to take in."""
        groups, size = posterior.variance.shape
        zeros = jnp.zeros((groups, size), posterior.variance.dtype)
        return Unsettled(
            posterior=posterior, columns=zeros, shrinkage=zeros[:, 0], innovation=jnp.zeros((self.outputs,), posterior.shift.dtype)
        )

    def settled(self, state: Unsettled | Settled) -> Settled:
        """Return the posterior whose mean and variance have taken in the last observation."""
        if isinstance(state, Settled):
            return state
        before, columns = state.posterior, state.columns
        variance = before.variance - columns * columns * state.shrinkage[:, None]
        by_output = columns[0][None] if len(self.base.forms) == 1 else jnp.stack([columns[g] for g in self.base.groups])
        return Settled(posterior=replace(before, shift=before.shift + by_output * state.innovation[:, None], variance=variance))

    def condition(self, posterior: Unsettled | Settled, index: Array, values: Array) -> Unsettled:
        base, known = self.base, self.settled(posterior)
        before = known.posterior
        after, steps = base.absorb(before, index)
        seen = column_of(before.shift, index) if known.seen is None else known.seen
        shrinkage = jnp.stack([step.precision for step in steps])
        innovation = (values - jnp.asarray(base.prior_mean, values.dtype) - seen) * shrinkage[jnp.asarray(base.groups)]
        kept = replace(after, variance=before.variance)
        if base.refresh:
            refreshed = base.refreshed(kept)
            due = refreshed.rounds % base.refresh == 0
            kept, shrinkage = refreshed, jnp.where(due, 0, shrinkage)
        return Unsettled(posterior=kept, columns=jnp.stack([step.column for step in steps]), shrinkage=shrinkage, innovation=innovation)

    def predict(self, posterior: Unsettled | Settled) -> Prediction:
        return self.base.predict(self.settled(posterior).posterior)

    def gain(self, posterior: Any) -> Array:
        return posterior.gain if isinstance(posterior, Posterior) else posterior.posterior.gain

    def draw(self, posterior: Unsettled | Settled, key: Array, scale: Array) -> Array:
        return self.base.draw(self.settled(posterior).posterior, key, scale)

    def covariance(self, posterior: Unsettled | Settled, output: int, indices: Array) -> Array:
        return self.base.covariance(posterior.posterior, output, indices)


def each_belief(function: Any, state: T) -> T:
    """Return a state with ``function`` of each belief that moves later, wherever an algorithm keeps it."""
    kinds = (Unsettled, Settled)
    return jax.tree.map(lambda x: function(x) if isinstance(x, kinds) else x, state, is_leaf=lambda x: isinstance(x, kinds))


def between_rounds(surrogate: AbstractSurrogate, state: T) -> T:
    """Return a state after a round; a belief that has taken nothing in during it is left with nothing to take in."""
    if not isinstance(surrogate, DeferredSurrogate):
        return state
    return each_belief(lambda belief: surrogate.unsettled(belief.posterior) if isinstance(belief, Settled) else belief, state)
