"""The policy that waits: the posterior of what has arrived."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from jaxbandit.core.declare import checked
from jaxbandit.core.pytree import pytree
from jaxbandit.feedback.base import Capacity, DelayedSurrogate, Policy, fold_arrivals, points_and_values
from jaxbandit.feedback.buffer import Feedback
from jaxbandit.surrogates import Posterior, Surrogate

Array = jax.Array


@pytree
class WaitPosterior:
    """Belief from the values that have arrived."""

    belief: Posterior
    chosen: Array  # [] int32, points chosen since the belief was the prior


@pytree
class Wait(Policy):
    """The posterior holds what has arrived, and nothing else: the naive use of an algorithm under delay.

    A round costs one update of the posterior for every arrival, and nothing for what is pending.
    """

    name: ClassVar[str] = "wait"
    posteriors: ClassVar[type] = WaitPosterior

    @checked
    def bind(self, surrogate: Surrogate, *, separate_outputs: bool, capacity: Capacity, axis: str | None) -> DelayedSurrogate:
        model = surrogate.separate() if separate_outputs else surrogate
        return DelayedSurrogate(chosen=model, arrivals=model, policy=self, capacity=capacity, axis=axis)

    def init(self, learner: DelayedSurrogate) -> WaitPosterior:
        return WaitPosterior(belief=learner.arrivals.init(), chosen=jnp.int32(0))

    def condition(self, learner: DelayedSurrogate, posterior: WaitPosterior, index: Array, values: Array) -> WaitPosterior:
        return WaitPosterior(belief=learner.arrivals.condition(posterior.belief, index, values), chosen=posterior.chosen)

    def learn(self, learner: DelayedSurrogate, posterior: WaitPosterior, feedback: Feedback) -> WaitPosterior:
        chosen = posterior.chosen + 1

        def step(belief: Posterior, slots: Array, here: Array) -> Posterior:
            points, values = points_and_values(feedback, slots)
            return learner.arrivals.observe(belief, points, values, here)

        belief = fold_arrivals(step, posterior.belief, self.taken(feedback, chosen), learner.axis)
        return WaitPosterior(belief=learner.arrivals.refreshed(belief), chosen=chosen)

    def model_of(self, learner: DelayedSurrogate) -> Surrogate:
        """Return the model of what has arrived."""
        return learner.arrivals
