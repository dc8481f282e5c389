"""The learner that hallucinates: the deviation of all points chosen, the mean of what has arrived."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxbandit.core.pytree import pytree, replace
from jaxbandit.feedback.buffer import Feedback
from jaxbandit.feedback.learner import Learner, fold, fresh, taken
from jaxbandit.surrogates import Posterior, Prediction, Surrogate

Array = jax.Array


@pytree
class HallucinatingPosterior:
    """Two beliefs: of all points chosen (deviations), and of what has arrived (means), the latter as weights of the features."""

    everything: Posterior  # its mean is that of what has arrived
    factors: tuple[Any, ...]  # of what has arrived, one per group of outputs that arrive together
    weights: tuple[Array, ...]  # [r] for each output: the mean less the prior mean
    chosen: Array  # [] int32

    @property
    def mean(self) -> Array:
        """``[k, M]``, from what has arrived."""
        return self.everything.mean

    @property
    def gain(self) -> Array:
        """``[G]`` information that all points chosen will give."""
        return self.everything.gain


@pytree
class Hallucinating(Learner):
    """See :class:`~jaxbandit.feedback.Hallucinate`.

    Arrivals move the weights of the mean only; functions on the grid are made once a round, however many values arrive.

    Attributes:
      arrivals: the surrogate with a factor for each group of outputs that arrive together.
    """

    arrivals: Surrogate

    def init(self) -> HallucinatingPosterior:
        """The prior."""
        forms, groups = self.arrivals.forms, self.arrivals.groups
        everything = self.surrogate.init()
        return HallucinatingPosterior(
            everything=everything,
            factors=tuple(form.init() for form in forms),
            weights=tuple(jnp.zeros((forms[g].rank,), everything.mean.dtype) for g in groups),
            chosen=jnp.int32(0),
        )

    def condition(self, posterior: HallucinatingPosterior, index: Array, values: Array) -> HallucinatingPosterior:
        """Take in values that are there at once, as those of an initial design."""
        points, here = jnp.broadcast_to(index, (self.outputs,)), jnp.ones((self.outputs,), bool)
        factors, weights = self._arrive((posterior.factors, posterior.weights), points, values, here)
        return self._finish(self.surrogate.condition_variance(posterior.everything, index), factors, weights, posterior.chosen)

    def learn(self, posterior: HallucinatingPosterior, feedback: Feedback) -> HallucinatingPosterior:
        """Take in the point chosen, and what arrives in its round."""
        chosen = posterior.chosen + 1

        def step(belief: Any, slots: Array, here: Array) -> Any:
            return self._arrive(belief, *taken(feedback, slots), here)

        mask = feedback.present & fresh(feedback, chosen)[:, None]
        factors, weights = fold(self, step, (posterior.factors, posterior.weights), mask)
        return self._finish(self.surrogate.condition_variance(posterior.everything, feedback.index), factors, weights, chosen)

    def _arrive(self, belief: Any, points: Array, values: Array, here: Array) -> Any:
        """One value of each output that has one: ``weights += u (y - mean - phi.weights) / s``."""
        factors, weights = list(belief[0]), list(belief[1])
        groups = self.arrivals.groups
        for g, form in enumerate(self.arrivals.forms):
            first, noise = groups.index(g), self.arrivals.noise_variance[g]
            factors[g], phi, u, s = form.absorb(factors[g], points[first], noise, here[first])
            for j in [j for j, group in enumerate(groups) if group == g]:
                target = jnp.where(here[j], values[j] - self.arrivals.prior_mean[j], 0)
                weights[j] = weights[j] + u * ((target - jnp.sum(phi * weights[j])) * (1 / s))
        return tuple(factors), tuple(weights)

    def _finish(self, everything: Posterior, factors: Any, weights: Any, chosen: Array) -> HallucinatingPosterior:
        groups = self.arrivals.groups
        means = [self.arrivals.forms[g].expand(factors[g], weights[j]) for j, g in enumerate(groups)]
        mean = jnp.asarray(self.arrivals.prior_mean, means[0].dtype)[:, None] + jnp.stack(means)
        return HallucinatingPosterior(everything=replace(everything, mean=mean), factors=factors, weights=weights, chosen=chosen)

    def predict(self, posterior: HallucinatingPosterior) -> Prediction:
        """Mean of what has arrived, deviation of all points chosen."""
        return self.surrogate.predict(posterior.everything)

    def draw(self, posterior: HallucinatingPosterior, key: Array, scale: Array) -> Array:
        """As :meth:`Surrogate.draw <jaxbandit.Surrogate.draw>`, from ``GP(mean of what has arrived, covariance of all chosen)``."""
        return self.surrogate.draw(posterior.everything, key, scale)

    def covariance(self, posterior: HallucinatingPosterior, output: int, indices: Array) -> Array:
        """As :meth:`Surrogate.covariance <jaxbandit.Surrogate.covariance>`, of all points chosen."""
        return self.surrogate.covariance(posterior.everything, output, indices)

    def arrived(self, posterior: HallucinatingPosterior) -> Prediction:
        """Mean and deviation of what has arrived, ``O(M r^2)``: for those who want it now and then. The gain is that of all chosen."""
        spreads = [form.spread(factor) for form, factor in zip(self.arrivals.forms, posterior.factors, strict=True)]
        sd = jnp.sqrt(jnp.maximum(jnp.stack([spreads[g] for g in self.arrivals.groups]), 0))
        return replace(self.predict(posterior), sd=sd)
