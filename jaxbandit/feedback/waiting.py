"""The learner that waits: the posterior of what has arrived."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxbandit.core.pytree import pytree
from jaxbandit.feedback.buffer import Feedback
from jaxbandit.feedback.learner import Learner, fold, fresh, taken
from jaxbandit.surrogates import Posterior, Prediction

Array = jax.Array


@pytree
class WaitingPosterior:
    """The belief, and how many points were chosen since it was the prior."""

    belief: Posterior
    chosen: Array  # [] int32

    @property
    def mean(self) -> Array:
        """``[k, M]``."""
        return self.belief.mean

    @property
    def gain(self) -> Array:
        """``[G]`` information gained from what has arrived."""
        return self.belief.gain


@pytree
class Waiting(Learner):
    """See :class:`~jaxbandit.feedback.Wait`. ``O(1)`` updates of the posterior per arrival, and none for what is pending."""

    def init(self) -> WaitingPosterior:
        """The prior."""
        return WaitingPosterior(belief=self.surrogate.init(), chosen=jnp.int32(0))

    def condition(self, posterior: WaitingPosterior, index: Array, values: Array) -> WaitingPosterior:
        """Take in values that are there at once, as those of an initial design."""
        return WaitingPosterior(belief=self.surrogate.condition(posterior.belief, index, values), chosen=posterior.chosen)

    def learn(self, posterior: WaitingPosterior, feedback: Feedback) -> WaitingPosterior:
        """Take in what arrives in a round."""
        chosen = posterior.chosen + 1

        def step(belief: Posterior, slots: Array, here: Array) -> Posterior:
            points, values = taken(feedback, slots)
            return self.surrogate.condition(belief, points, values, here)

        mask = feedback.present & fresh(feedback, chosen)[:, None]
        return WaitingPosterior(belief=fold(self, step, posterior.belief, mask), chosen=chosen)

    def predict(self, posterior: WaitingPosterior) -> Prediction:
        """As :meth:`Surrogate.predict <jaxbandit.Surrogate.predict>`, from what has arrived."""
        return self.surrogate.predict(posterior.belief)

    def draw(self, posterior: WaitingPosterior, key: Array, scale: Array) -> Array:
        """As :meth:`Surrogate.draw <jaxbandit.Surrogate.draw>`, from what has arrived."""
        return self.surrogate.draw(posterior.belief, key, scale)

    def covariance(self, posterior: WaitingPosterior, output: int, indices: Array) -> Array:
        """As :meth:`Surrogate.covariance <jaxbandit.Surrogate.covariance>`, from what has arrived."""
        return self.surrogate.covariance(posterior.belief, output, indices)

    def arrived(self, posterior: WaitingPosterior) -> Prediction:
        """What :meth:`predict` gives."""
        return self.predict(posterior)
