"""The policy that hallucinates: the deviation of all points chosen, the mean of what has arrived."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxbandit.core.pytree import pytree, replace
from jaxbandit.feedback.base import DelayedSurrogate, Policy, fold_arrivals, points_and_values
from jaxbandit.feedback.buffer import Feedback
from jaxbandit.surrogates import Posterior, Prediction
from jaxbandit.surrogates.posterior import deviation

Array = jax.Array


@pytree
class HallucinatePosterior:
    """Two beliefs: of all points chosen (deviations), and of what has arrived (means), the latter as weights of the features."""

    everything: Posterior  # its mean is that of what has arrived
    factors: tuple[Any, ...]  # of what has arrived, one for each group of outputs that arrive together
    weights: tuple[Array, ...]  # [r] for each output: the mean less the prior mean
    chosen: Array  # [] int32, points chosen since the belief was the prior


@pytree
class Hallucinate(Policy):
    """The mean of what has arrived, with the deviation of all points chosen, as GP-BUCB (Desautels, Krause and Burdick 2014).

    Arrivals move the weights of the mean only; functions on the grid are made once a round, however many values arrive.
    """

    name: ClassVar[str] = "hallucinate"
    posteriors: ClassVar[type] = HallucinatePosterior

    def init(self, learner: DelayedSurrogate) -> HallucinatePosterior:
        forms, groups = learner.arrivals.forms, learner.arrivals.groups
        everything = learner.chosen.init()
        return HallucinatePosterior(
            everything=everything,
            factors=tuple(form.init() for form in forms),
            weights=tuple(jnp.zeros((forms[g].rank,), everything.shift.dtype) for g in groups),
            chosen=jnp.int32(0),
        )

    def condition(self, learner: DelayedSurrogate, posterior: HallucinatePosterior, index: Array, values: Array) -> HallucinatePosterior:
        points, here = jnp.broadcast_to(index, (learner.outputs,)), jnp.ones((learner.outputs,), bool)
        factors, weights = _arrive(learner, (posterior.factors, posterior.weights), points, values, here)
        everything = learner.chosen.condition_variance(posterior.everything, index)
        return _with_mean(learner, everything, factors, weights, posterior.chosen)

    def learn(self, learner: DelayedSurrogate, posterior: HallucinatePosterior, feedback: Feedback) -> HallucinatePosterior:
        chosen = posterior.chosen + 1

        def step(belief: Any, slots: Array, here: Array) -> Any:
            return _arrive(learner, belief, *points_and_values(feedback, slots), here)

        belief = (posterior.factors, posterior.weights)
        factors, weights = fold_arrivals(step, belief, self.taken(feedback, chosen), learner.axis)
        everything = learner.chosen.condition_variance(posterior.everything, feedback.index)
        return _with_mean(learner, everything, factors, weights, chosen)

    def believed(self, posterior: HallucinatePosterior) -> Posterior:
        """Return the posterior with the mean of what has arrived and the covariance of all points chosen, whose gain it has."""
        return posterior.everything

    def arrived(self, learner: DelayedSurrogate, posterior: HallucinatePosterior) -> Prediction:
        """Return mean and deviation of what has arrived, at a cost of ``O(M r^2)``; the gain is that of all points chosen."""
        spreads = [form.spread(factor) for form, factor in zip(learner.arrivals.forms, posterior.factors, strict=True)]
        sd = deviation(jnp.stack([spreads[g] for g in learner.arrivals.groups]))
        return replace(self.predict(learner, posterior), sd=sd)


def _arrive(learner: DelayedSurrogate, belief: Any, points: Array, values: Array, here: Array) -> Any:
    """Take in one value of each output that has one: ``weights += u (y - mean - phi.weights) / s``."""
    factors, weights = list(belief[0]), list(belief[1])
    model = learner.arrivals
    for g, form in enumerate(model.forms):
        first = model.groups.index(g)
        factors[g], phi, u, s = form.absorb(factors[g], points[first], model.noise_at(g, points[first]), here[first])
        for j in [j for j, group in enumerate(model.groups) if group == g]:
            target = jnp.where(here[j], values[j] - model.prior_mean[j], 0)
            weights[j] = weights[j] + u * ((target - jnp.sum(phi * weights[j])) * (1 / s))
    return tuple(factors), tuple(weights)


def _with_mean(learner: DelayedSurrogate, everything: Posterior, factors: Any, weights: Any, chosen: Array) -> HallucinatePosterior:
    """Return the posterior whose mean on the grid is that of the weights."""
    model = learner.arrivals
    shifts = [model.forms[g].expand(factors[g], weights[j]) for j, g in enumerate(model.groups)]
    return HallucinatePosterior(everything=replace(everything, shift=jnp.stack(shifts)), factors=factors, weights=weights, chosen=chosen)
