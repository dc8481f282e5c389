"""The interface of feedback policies, and the surrogate that algorithms see while feedback is late."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar

import jax
import jax.numpy as jnp

from jaxbandit.core.declare import Declared, checked
from jaxbandit.core.fields import MOST_ROUNDS, of_class, whole
from jaxbandit.core.pytree import pytree, static
from jaxbandit.core.types import Key
from jaxbandit.domains import Domain
from jaxbandit.feedback.buffer import Feedback
from jaxbandit.surrogates import AbstractSurrogate, Posterior, Prediction, Surrogate
from jaxbandit.surrogates.posterior import Number, Points, Scale, Several, Values

Array = jax.Array
Capacity: TypeAlias = Annotated[int, whole(1, MOST_ROUNDS)]
"""Rounds of pending feedback that are kept."""
T = TypeVar("T")


class Policy(Declared, abc.ABC):
    """Rule for what a learner believes while feedback is on its way; abstract.

    A policy is a pytree of its parameters. It works on a :class:`DelayedSurrogate`, which holds the Gaussian-process model, and on a
    posterior of its own, a pytree that ``init`` makes. Algorithms see neither: they ask the surrogate, which asks the policy.
    """

    described: ClassVar[str] = "a policy of jaxbandit.feedback, such as Wait()"
    called: ClassVar[str] = "feedback"
    in_files: ClassVar[bool] = True
    name: ClassVar[str]
    posteriors: ClassVar[type] = object  # class of its posteriors

    @checked
    def bind(
        self,
        surrogate: Surrogate,
        *,
        separate_outputs: bool,
        capacity: Capacity,
        axis: str | None,
    ) -> DelayedSurrogate:
        """Return the surrogate that algorithms see under this policy.

        Args:
          surrogate: the Gaussian-process model.
          separate_outputs: whether the values of one point may arrive in different rounds.
          capacity: rounds of pending feedback that are kept.
          axis: name of the batch axis of trials, ``None`` for a trial by itself.
        """
        arrivals = surrogate.separate() if separate_outputs else surrogate
        return DelayedSurrogate(chosen=surrogate, arrivals=arrivals, policy=self, capacity=capacity, axis=axis)

    @abc.abstractmethod
    def init(self, learner: DelayedSurrogate) -> Any:
        """Return the posterior before any observation."""

    @abc.abstractmethod
    def condition(self, learner: DelayedSurrogate, posterior: Any, index: Array, values: Array) -> Any:
        """Return the posterior that has taken in values which are there at once, such as those of an initial design."""

    @abc.abstractmethod
    def learn(self, learner: DelayedSurrogate, posterior: Any, feedback: Feedback) -> Any:
        """Return the posterior at the end of a round: a point was chosen, and some values have arrived."""

    def taken(self, feedback: Feedback, chosen: Array) -> Array:
        """Return which values ``[C, k]`` a belief takes in at the end of a round, ``chosen`` rounds after it was the prior.

        By default these are all that arrive, but for points from before a restart, which forgets them for good.
        """
        return feedback.present & (feedback.ages < chosen)[:, None]

    def believed(self, posterior: Any) -> Posterior:
        """Return the posterior that algorithms work with, one of the model that :meth:`model_of` returns."""
        return posterior.belief

    def model_of(self, learner: DelayedSurrogate) -> Surrogate:
        """Return the model of the posterior that algorithms work with; by default that of the points chosen."""
        return learner.chosen

    def predict(self, learner: DelayedSurrogate, posterior: Any) -> Prediction:
        """Return the mean and standard deviation that algorithms work with."""
        return self.model_of(learner).predict(self.believed(posterior))

    def arrived(self, learner: DelayedSurrogate, posterior: Any) -> Prediction:
        """Return the prediction from the values that have arrived alone."""
        return self.predict(learner, posterior)

    def gain(self, posterior: Any) -> Array:
        """Return the information gain ``[G]`` of each group of outputs, from all that the deviations take in."""
        return self.believed(posterior).gain

    def draw(self, learner: DelayedSurrogate, posterior: Any, key: Array, scale: Array) -> Array:
        """Return joint draws ``[k, M]`` of the functions, as :meth:`Surrogate.draw <jaxbandit.Surrogate.draw>` does."""
        return self.model_of(learner).draw(self.believed(posterior), key, scale)

    def covariance(self, learner: DelayedSurrogate, posterior: Any, output: int, indices: Array) -> Array:
        """Return posterior covariances ``[n, M]``, as :meth:`Surrogate.covariance <jaxbandit.Surrogate.covariance>` does."""
        return self.model_of(learner).covariance(self.believed(posterior), output, indices)


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
    policy: Policy
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

    def _own(self, posterior: Any) -> Any:
        """Return a posterior; raise ``InvalidArgument`` on one that the policy has not made."""
        of_class(self.policy.posteriors, f"a posterior of a surrogate under {type(self.policy).__name__}, such as surrogate.init()")(
            "posterior", posterior
        )
        return posterior

    def init(self) -> Any:
        return self.policy.init(self)

    @checked
    def condition(self, posterior: Any, index: Points, values: Values) -> Any:
        return self.policy.condition(self, self._own(posterior), jnp.asarray(index), jnp.asarray(values))

    @checked
    def learn(self, posterior: Any, feedback: Feedback) -> Any:
        """Return the posterior at the end of a round, with what ``feedback`` brings."""
        return self.policy.learn(self, self._own(posterior), feedback)

    def predict(self, posterior: Any) -> Prediction:
        return self.policy.predict(self, self._own(posterior))

    def arrived(self, posterior: Any) -> Prediction:
        return self.policy.arrived(self, self._own(posterior))

    def gain(self, posterior: Any) -> Array:
        return self.policy.gain(self._own(posterior))

    @checked
    def draw(self, posterior: Any, key: Key, scale: Scale) -> Array:
        return self.policy.draw(self, self._own(posterior), key, jnp.asarray(scale))

    @checked
    def covariance(self, posterior: Any, output: Number, indices: Several) -> Array:
        return self.policy.covariance(self, self._own(posterior), output, indices)


def fold_arrivals(step: Callable[[T, Array, Array], T], carry: T, mask: Array, axis: str | None) -> T:
    """Take in arrivals one by one: ``carry = step(carry, slots [k], here [k])`` until ``mask [C, k]`` is used up.

    In each step every output takes its next arrival; ``here`` says whether it has one left. Under ``vmap`` over ``axis`` the number of
    steps is the largest among the trials, so that the loop has one exit for all and its carry is updated in place.
    """
    count = jnp.max(jnp.sum(mask, axis=0, dtype=jnp.int32))
    if axis is not None:
        count = jax.lax.pmax(count, axis)
    places = jnp.arange(mask.shape[0], dtype=jnp.int32)[:, None]

    def one(_: Array, state: tuple[T, Array]) -> tuple[T, Array]:
        carry, mask = state
        slots = jnp.argmax(mask, axis=0).astype(jnp.int32)
        carry = step(carry, slots, jnp.any(mask, axis=0))
        return carry, mask & (places != slots[None, :])

    return jax.lax.fori_loop(0, count, one, (carry, mask))[0]


def points_and_values(feedback: Feedback, slots: Array) -> tuple[Array, Array]:
    """Return the points ``[k]`` and the values ``[k]`` in each output's slot."""
    outputs = jnp.arange(slots.shape[0])
    return feedback.indices[slots], feedback.values[slots, outputs]
