"""Feedback policies: what a learner believes while feedback is late, and the surrogate that algorithms see meanwhile."""

from __future__ import annotations

import abc
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, TypeAlias, TypeVar, cast

import jax
import jax.numpy as jnp

from jaxbandit.core.declare import Declared, checked
from jaxbandit.core.fields import MOST_ROUNDS, of_class, whole
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.core.types import Array, Key
from jaxbandit.domains import Domain
from jaxbandit.feedback.buffer import Feedback
from jaxbandit.surrogates import AbstractSurrogate, Posterior, Prediction, Surrogate
from jaxbandit.surrogates.posterior import Number, Points, Scale, Several, Values, deviation

Capacity: TypeAlias = Annotated[int, whole(1, MOST_ROUNDS)]
"""Rounds of pending feedback that are kept."""


@pytree
class LatePosterior:
    """Posterior under a policy; that of :class:`Wait`, and base of the others'."""

    belief: Posterior  # that algorithms work with
    chosen: Array  # [] int32, points chosen since the belief was the prior


if TYPE_CHECKING:  # a policy named without its posterior has any
    from typing_extensions import TypeVar as Defaulting

    L = Defaulting("L", bound=LatePosterior, default=Any)
else:
    L = TypeVar("L", bound=LatePosterior)
T = TypeVar("T")


class Policy(Declared, abc.ABC, Generic[L]):
    """Rule for what a learner believes while feedback is on its way; abstract.

    A policy is a pytree of its parameters. It works on a :class:`DelayedSurrogate`, which holds the Gaussian-process model, and on a
    posterior of type ``L`` that ``init`` makes. Algorithms see neither: they ask the surrogate, which asks the policy.
    """

    described: ClassVar[str] = "a policy of jaxbandit.feedback, such as Wait()"
    called: ClassVar[str] = "feedback"
    in_files: ClassVar[bool] = True
    name: ClassVar[str]
    posteriors: ClassVar[type] = LatePosterior  # class of its posteriors

    @checked
    def bind(self, surrogate: Surrogate, *, separate_outputs: bool, capacity: Capacity, axis: str | None) -> DelayedSurrogate:
        """Return the surrogate that algorithms see under this policy.

        Args:
          surrogate: the Gaussian-process model.
          separate_outputs: whether the values of one point may arrive in different rounds.
          capacity: rounds of pending feedback that are kept.
          axis: name of the batch axis of trials, ``None`` for a trial by itself.
        """
        arrivals = surrogate.separate() if separate_outputs else surrogate
        return DelayedSurrogate(chosen=surrogate, arrivals=arrivals, policy=cast(Policy[LatePosterior], self), capacity=capacity, axis=axis)

    @abc.abstractmethod
    def init(self, learner: DelayedSurrogate) -> L:
        """Return the posterior before any observation."""

    @abc.abstractmethod
    def condition(self, learner: DelayedSurrogate, posterior: L, index: Array, values: Array) -> L:
        """Return the posterior that has taken in values which are there at once, such as those of an initial design."""

    @abc.abstractmethod
    def learn(self, learner: DelayedSurrogate, posterior: L, feedback: Feedback) -> L:
        """Return the posterior at the end of a round: a point was chosen, and some values have arrived."""

    def taken(self, feedback: Feedback, chosen: Array) -> Array:
        """Return which values ``[C, k]`` a belief takes in at the end of a round, ``chosen`` rounds after it was the prior.

        By default these are all that arrive, but for points from before a restart, which forgets them for good.
        """
        return feedback.present & (feedback.ages < chosen)[:, None]

    def model_of(self, learner: DelayedSurrogate) -> Surrogate:
        """Return the model of the posterior that algorithms work with; by default that of the points chosen."""
        return learner.chosen

    def predict(self, learner: DelayedSurrogate, posterior: L) -> Prediction:
        """Return the mean and standard deviation that algorithms work with."""
        return self.model_of(learner).predict(posterior.belief)

    def arrived(self, learner: DelayedSurrogate, posterior: L) -> Prediction:
        """Return the prediction from the values that have arrived alone."""
        return self.predict(learner, posterior)


@pytree
class DelayedSurrogate(AbstractSurrogate):
    """Surrogate that delayed feedback teaches, under a policy.

    Attributes:
      chosen: the model that takes in the points chosen, one factor for each group of outputs that share kernel and noise variance.
      arrivals: the model that takes in values as they arrive, with a factor for each group of outputs that arrive together.
      policy: a policy of :mod:`jaxbandit.feedback`.
      capacity: rounds of pending feedback that are kept.
      axis: name of the batch axis of trials, ``None`` for a trial by itself.
    """

    chosen: Surrogate
    arrivals: Surrogate
    policy: Policy[LatePosterior]
    capacity: int = static()
    axis: str | None = static(default=None)

    @property
    def model(self) -> Surrogate:
        """The Gaussian-process model that takes in the points chosen."""
        return self.chosen

    @property
    def domain(self) -> Domain:
        """The ``M`` points."""
        return self.chosen.domain

    def _checked(self, posterior: object) -> LatePosterior:
        """Return a posterior; raise ``InvalidArgument`` on one that the policy has not made."""
        words = f"a posterior of a surrogate under {type(self.policy).__name__}, such as surrogate.init()"
        of_class(self.policy.posteriors, words)("posterior", posterior)
        return cast(LatePosterior, posterior)

    def init(self) -> LatePosterior:
        return self.policy.init(self)

    @checked
    def condition(self, posterior: object, index: Points, values: Values) -> LatePosterior:
        return self.policy.condition(self, self._checked(posterior), jnp.asarray(index), jnp.asarray(values))

    @checked
    def learn(self, posterior: object, feedback: Feedback) -> LatePosterior:
        """Return the posterior at the end of a round, with what ``feedback`` brings."""
        return self.policy.learn(self, self._checked(posterior), feedback)

    def predict(self, posterior: object) -> Prediction:
        return self.policy.predict(self, self._checked(posterior))

    def arrived(self, posterior: object) -> Prediction:
        return self.policy.arrived(self, self._checked(posterior))

    def gain(self, posterior: object) -> Array:
        return self._checked(posterior).belief.gain

    @checked
    def draw(self, posterior: object, key: Key, scale: Scale) -> Array:
        return self.policy.model_of(self).draw(self._checked(posterior).belief, key, jnp.asarray(scale))

    @checked
    def covariance(self, posterior: object, output: Number, indices: Several) -> Array:
        return self.policy.model_of(self).covariance(self._checked(posterior).belief, output, indices)


def fold_arrivals(step: Callable[[T, Array, Array, Array], T], carry: T, feedback: Feedback, mask: Array, axis: str | None) -> T:
    """Take in arrivals one by one: ``carry = step(carry, points [k], values [k], present [k])`` until ``mask [C, k]`` is used up.

    In each step every output takes its next arrival; ``present`` says whether it has one left. Under ``vmap`` over ``axis`` the number of
    steps is the largest among the trials, so that the loop has one exit for all and its carry is updated in place.
    """
    count = jnp.max(jnp.sum(mask, axis=0, dtype=jnp.int32))
    if axis is not None:
        count = jax.lax.pmax(count, axis)

    def one(_: Array, state: tuple[T, Array]) -> tuple[T, Array]:
        carry, mask = state
        slots, outputs = (jnp.arange(size, dtype=jnp.int32) for size in mask.shape)
        first = jnp.argmax(mask, axis=0).astype(jnp.int32)
        present = jnp.any(mask, axis=0)
        carry = step(carry, feedback.indices[first], feedback.values[first, outputs], present)
        return carry, mask & (slots[:, None] != first[None, :])

    after: T = jax.lax.fori_loop(0, count, one, (carry, mask))[0]
    return after


@pytree
class Wait(Policy[LatePosterior]):
    """The posterior holds what has arrived, and nothing else: the naive use of an algorithm under delay.

    A round costs one update of the posterior for every arrival, and nothing for what is pending.
    """

    name: ClassVar[str] = "wait"

    @checked
    def bind(self, surrogate: Surrogate, *, separate_outputs: bool, capacity: Capacity, axis: str | None) -> DelayedSurrogate:
        model = surrogate.separate() if separate_outputs else surrogate
        return DelayedSurrogate(chosen=model, arrivals=model, policy=self, capacity=capacity, axis=axis)

    def init(self, learner: DelayedSurrogate) -> LatePosterior:
        return LatePosterior(belief=learner.arrivals.init(), chosen=jnp.int32(0))

    def condition(self, learner: DelayedSurrogate, posterior: LatePosterior, index: Array, values: Array) -> LatePosterior:
        return replace(posterior, belief=learner.arrivals.condition(posterior.belief, index, values))

    def learn(self, learner: DelayedSurrogate, posterior: LatePosterior, feedback: Feedback) -> LatePosterior:
        chosen = posterior.chosen + 1
        belief = fold_arrivals(learner.arrivals.observe, posterior.belief, feedback, self.taken(feedback, chosen), learner.axis)
        return LatePosterior(belief=learner.arrivals.refreshed(belief), chosen=chosen)

    def model_of(self, learner: DelayedSurrogate) -> Surrogate:
        """Return the model of what has arrived."""
        return learner.arrivals


@pytree
class HallucinatePosterior(LatePosterior):
    """The deviations of all points chosen, with the mean of what has arrived, which is kept as weights of the features."""

    factors: tuple[object, ...]  # of what has arrived, one for each group of outputs that arrive together
    weights: tuple[Array, ...]  # [r] for each output: the mean less the prior mean


Arrived: TypeAlias = tuple[tuple[object, ...], tuple[Array, ...]]
"""Factors and weights of what has arrived."""


@pytree
class Hallucinate(Policy[HallucinatePosterior]):
    """The mean of what has arrived, with the deviation of all points chosen, as GP-BUCB (Desautels, Krause and Burdick 2014).

    Arrivals move the weights of the mean only; functions on the grid are made once a round, however many values arrive.
    """

    name: ClassVar[str] = "hallucinate"
    posteriors: ClassVar[type] = HallucinatePosterior

    def init(self, learner: DelayedSurrogate) -> HallucinatePosterior:
        forms, groups = learner.arrivals.forms, learner.arrivals.groups
        belief = learner.chosen.init()
        factors = tuple(form.init() for form in forms)
        weights = tuple(jnp.zeros((forms[g].rank,), belief.shift.dtype) for g in groups)
        return HallucinatePosterior(belief=belief, factors=factors, weights=weights, chosen=jnp.int32(0))

    def condition(self, learner: DelayedSurrogate, posterior: HallucinatePosterior, index: Array, values: Array) -> HallucinatePosterior:
        points, present = jnp.broadcast_to(index, (learner.outputs,)), jnp.ones((learner.outputs,), bool)
        arrived = _arrive(learner, (posterior.factors, posterior.weights), points, values, present)
        return _moved(learner, posterior.belief, index, arrived, posterior.chosen)

    def learn(self, learner: DelayedSurrogate, posterior: HallucinatePosterior, feedback: Feedback) -> HallucinatePosterior:
        chosen, before = posterior.chosen + 1, (posterior.factors, posterior.weights)
        arrived = fold_arrivals(partial(_arrive, learner), before, feedback, self.taken(feedback, chosen), learner.axis)
        return _moved(learner, posterior.belief, feedback.index, arrived, chosen)

    def arrived(self, learner: DelayedSurrogate, posterior: HallucinatePosterior) -> Prediction:
        """Return mean and deviation of what has arrived, at a cost of ``O(M r^2)``; the gain is that of all points chosen."""
        spreads = [form.spread(factor) for form, factor in zip(learner.arrivals.forms, posterior.factors, strict=True)]
        sd = deviation(jnp.stack([spreads[g] for g in learner.arrivals.groups]))
        return replace(self.predict(learner, posterior), sd=sd)


def _arrive(learner: DelayedSurrogate, before: Arrived, points: Array, values: Array, present: Array) -> Arrived:
    """Take in one value of each output that has one: ``weights += u (y - mean - phi.weights) / s``."""
    factors, weights = list(before[0]), list(before[1])
    model = learner.arrivals
    for g, form in enumerate(model.forms):
        first = model.groups.index(g)
        factors[g], phi, u, s = form.absorb(factors[g], points[first], model.noise_at(g, points[first]), present[first])
        for j in [j for j, group in enumerate(model.groups) if group == g]:
            target = jnp.where(present[j], values[j] - model.prior_mean[j], 0)
            weights[j] = weights[j] + u * ((target - jnp.sum(phi * weights[j])) * (1 / s))
    return tuple(factors), tuple(weights)


def _moved(learner: DelayedSurrogate, belief: Posterior, index: Array, arrived: Arrived, chosen: Array) -> HallucinatePosterior:
    """Return the posterior after a point was chosen, whose mean on the grid is that of what has arrived."""
    belief, model, (factors, weights) = learner.chosen.condition_variance(belief, index), learner.arrivals, arrived
    shifts = [model.forms[g].expand(factors[g], weights[j]) for j, g in enumerate(model.groups)]
    return HallucinatePosterior(belief=replace(belief, shift=jnp.stack(shifts)), factors=factors, weights=weights, chosen=chosen)
