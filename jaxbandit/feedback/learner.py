"""Pending and arriving feedback, the delayed surrogate, and the base of policies."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Annotated, ClassVar, cast

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from jaxbandit.core.blocks import repeated
from jaxbandit.core.declare import Array, Declared, Key, T, checked
from jaxbandit.core.fields import MOST_ROUNDS, whole
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.domains import Box, Domain
from jaxbandit.surrogates import AbstractSurrogate, Belief, BoxSurrogate, Posterior, Prediction, Surrogate
from jaxbandit.surrogates.boxes.posterior import in_turn
from jaxbandit.surrogates.posterior import AnyPosterior

__all__ = ["DelayedSurrogate", "Feedback", "Pending", "Policy"]

# Points also look worse within this share of a box's sides of a point under way.
BESIDE = 1e-3


@pytree
class Feedback:
    """Feedback of one round under delay.

    ``C`` is the buffer's capacity, and there are ``k = 1 + m`` outputs. A slot's entries mean nothing unless ``present``.
    """

    index: Array  # [] int32, this round's point
    own_values: Array  # [k] at this point
    own_present: Array  # [k] arriving at once
    indices: Array  # [C] int32, all points
    values: Array  # [C, k]
    ages: Array  # [C] int32, rounds since choice
    present: Array  # [C, k] arriving now

    def total(self) -> Array:
        """Return the sum of each output's arriving values, ``[k]``."""
        return jnp.sum(jnp.where(self.present, self.values, 0), axis=0)

    def largest(self) -> Array:
        """Return each output's largest arriving value, ``[k]``, or minus infinity."""
        return jnp.max(jnp.where(self.present, self.values, -jnp.inf), axis=0)

    @property
    def count(self) -> Array:
        """Number of each output's arriving values, ``[k]``."""
        return jnp.sum(self.present, axis=0).astype(self.values.dtype)

    def map(self, function: Callable[[Array], Array]) -> Feedback:
        """Return the feedback with ``function`` of every point's values ``[k]``."""
        return replace(self, values=jax.vmap(function)(self.values), own_values=function(self.own_values))


@pytree
class Pending:
    """Ring buffer of pending feedback, without losses for delays below ``C``.

    ``issued`` is the round of a point's choice, ``due`` the round at whose end a value arrives, and ``lost`` the number of overwritten
    values that were due within the horizon.
    """

    indices: Array  # [C] int32
    values: Array  # [C, k]
    issued: Array  # [C] int32, 0 if unused
    due: Array  # [C, k] int32
    lost: Array  # [k] int32

    @classmethod
    def empty(cls, capacity: int, outputs: int, dtype: DTypeLike) -> Pending:
        """Return a buffer of ``capacity`` free slots."""
        return cls(
            indices=jnp.zeros((capacity,), jnp.int32),
            values=jnp.zeros((capacity, outputs), dtype),
            issued=jnp.zeros((capacity,), jnp.int32),
            due=jnp.zeros((capacity, outputs), jnp.int32),
            lost=jnp.zeros((outputs,), jnp.int32),
        )

    def push(self, t: Array, index: Array, values: Array, due: Array, horizon: Array) -> Pending:
        """Store round ``t``'s point in the oldest slot, and count lost values."""
        slot = (t - 1) % self.indices.shape[0]
        overwritten = (self.due[slot] >= t) & (self.due[slot] <= horizon)
        return Pending(
            indices=self.indices.at[slot].set(index),
            values=self.values.at[slot].set(values),
            issued=self.issued.at[slot].set(t),
            due=self.due.at[slot].set(due),
            lost=self.lost + overwritten.astype(jnp.int32),
        )

    def arriving(self, t: Array, index: Array, values: Array, due: Array) -> Feedback:
        """Return the feedback at the end of round ``t``, after :meth:`push`."""
        return Feedback(
            index=index,
            own_values=values,
            own_present=due == t,
            indices=self.indices,
            values=self.values,
            ages=t - self.issued,
            present=self.due == t,
        )

    def received(self, t: Array, index: Array, values: Array, arrived: Array) -> tuple[Pending, Feedback]:
        """Return the buffer and the feedback of round ``t`` for real arrivals.

        The oldest slot stores round ``t``'s point. Slots store ``values [C, k]`` where ``arrived [C, k]`` is true.
        """
        nothing = jnp.zeros_like(self.lost)
        pushed = self.push(t, index, nothing.astype(self.values.dtype), nothing, t)
        after = replace(pushed, values=jnp.where(arrived, values, pushed.values), due=jnp.where(arrived, t, pushed.due))
        slot = (t - 1) % self.indices.shape[0]
        return after, after.arriving(t, index, after.values[slot], after.due[slot])


@pytree
class LatePosterior:
    """Posterior of :class:`Wait`, and base of other policies' posteriors."""

    belief: Posterior
    chosen: Array  # [] int32 points since prior

    @property
    def gain(self) -> Array:
        """Information gain ``[G]`` of the belief."""
        return self.belief.gain


class Policy(Declared, abc.ABC):
    """Abstract base of rules for beliefs while feedback is pending.

    A policy is a pytree of its parameters. It works on a :class:`DelayedSurrogate`, which has the Gaussian-process model, and on a
    ``LatePosterior`` from ``init``. Algorithms call the surrogate, and the surrogate calls the policy.
    """

    described: ClassVar[str] = "a policy of jaxbandit.feedback, such as Wait()"
    called: ClassVar[str] = "feedback"
    # Posteriors have a factor for each group of outputs that arrive together, unless one root serves all.
    has_factors_of_arrivals: ClassVar[bool] = True
    in_files: ClassVar[bool] = True
    name: ClassVar[str]
    # True if the belief is the model's own as long as no value is late.
    matters_only_late: ClassVar[bool] = False

    @checked
    def bind(
        self, surrogate: Surrogate, *, separate_outputs: bool, capacity: Annotated[int, whole(1, MOST_ROUNDS)], axis: str | None
    ) -> DelayedSurrogate:
        """Return the surrogate, with separate arrivals of outputs if ``separate_outputs``."""
        arrivals = surrogate.separate() if separate_outputs else surrogate
        return DelayedSurrogate(chosen=surrogate, arrivals=arrivals, policy=self, capacity=capacity, axis=axis)

    @abc.abstractmethod
    def init(self, learner: DelayedSurrogate) -> AnyPosterior:
        """Return the posterior before any observation."""

    @abc.abstractmethod
    def condition(self, learner: DelayedSurrogate, posterior: AnyPosterior, index: Array, values: Array) -> AnyPosterior:
        """Return the posterior conditioned on a point's values, NaN if missing."""

    @abc.abstractmethod
    def learn(self, learner: DelayedSurrogate, posterior: AnyPosterior, feedback: Feedback) -> AnyPosterior:
        """Return the posterior at the end of a round."""

    def conditioned(self, learner: DelayedSurrogate, indices: Array, places: Array, values: Array, count: Array) -> AnyPosterior:
        """Return the posterior conditioned on many values on a box's exact model."""
        return in_turn(learner, indices, places, values, count)

    def taken(self, feedback: Feedback, chosen: Array) -> Array:
        """Return the mask ``[C, k]`` of values to condition on.

        By default these are the arriving values of the ``chosen`` points since the belief was the prior.
        """
        return feedback.present & (feedback.ages < chosen)[:, None]

    def allows_one_root(self, model: Surrogate, capacity: int) -> bool:
        """Return whether one root serves chosen and arrived values of ``model``."""
        return False

    def model_of(self, learner: DelayedSurrogate) -> Surrogate:
        """Return the model of the algorithms' posterior, by default ``chosen``."""
        return learner.chosen

    def belief(self, learner: DelayedSurrogate, posterior: AnyPosterior) -> Belief:
        """Return the belief for algorithms."""
        return self.model_of(learner).belief(posterior.belief)

    def place(self, learner: DelayedSurrogate, posterior: AnyPosterior, point: Array) -> tuple[Array, AnyPosterior]:
        """Return the index of ``point [d]``, and the posterior with it."""
        index, belief = cast(BoxSurrogate, self.model_of(learner)).place(posterior.belief, point)
        return index, replace(posterior, belief=belief)


@pytree
class DelayedSurrogate(AbstractSurrogate):
    """Surrogate that conditions on delayed feedback under a policy.

    Attributes:
      chosen: the model of the chosen points, with a factor for each group of outputs that share kernel and noise variance.
      arrivals: the model of the arrived values, with a factor for each group of outputs that arrive together.
      policy: a policy of :mod:`jaxbandit.feedback`.
      capacity: number of rounds of pending feedback in the buffer.
      axis: name of the batch axis of trials, ``None`` for a single trial.
      one_root: whether the policy keeps one root for all chosen points, because every value arrives while the buffer has its point.
      key: random numbers of a policy that draws values, within ``select``.
      under_way: ``[M]`` booleans, points under way or failed, or ``None``. Predictions make these points, and points beside them on a box,
        look worst to an algorithm.
    """

    chosen: Surrogate
    arrivals: Surrogate
    policy: Policy
    capacity: int = static()
    axis: str | None = static(default=None)
    one_root: bool = static(default=False)
    under_way: Array | None = None
    key: Key | None = None

    @property
    def model(self) -> Surrogate:
        """The algorithms' Gaussian-process model."""
        return self.policy.model_of(self).model

    @property
    def domain(self) -> Domain:
        """The ``M`` points."""
        return self.chosen.domain

    @property
    def size(self) -> int:
        """Number of points ``M`` of a prediction."""
        return self.chosen.size

    def init(self) -> AnyPosterior:
        return self.policy.init(self)

    def condition(self, posterior: AnyPosterior, index: Array, values: Array) -> AnyPosterior:
        return self.policy.condition(self, posterior, index, values)

    def conditioned(self, indices: Array, places: Array, values: Array, count: Array) -> AnyPosterior:
        """Return the posterior of ``in_turn``, up to rounding."""
        if isinstance(self.arrivals, BoxSurrogate) and self.arrivals.is_exact:
            return self.policy.conditioned(self, indices, places, values, count)
        return in_turn(self, indices, places, values, count)

    def learn(self, posterior: AnyPosterior, feedback: Feedback) -> AnyPosterior:
        """Return the posterior at the end of a round with ``feedback``."""
        return self.policy.learn(self, posterior, feedback)

    def belief(self, posterior: AnyPosterior) -> Belief:
        belief = self.policy.belief(self, posterior)
        return belief if self.under_way is None else Shunning.of(belief, self.under_way)

    def place(self, posterior: AnyPosterior, point: Array) -> tuple[Array, AnyPosterior]:
        """Return the index of ``point [d]``, and the posterior with it."""
        return self.policy.place(self, posterior, point)


@pytree
class Shunning(Belief):
    """Belief that makes points under way look worst to an algorithm."""

    seen: Belief
    under_way: Array  # [M]
    beside: Array  # [M] or [n]

    @classmethod
    def of(cls, seen: Belief, under_way: Array) -> Shunning:
        """Return the belief that shuns ``under_way [M]`` and points beside these."""
        beside = under_way
        if seen.points is not None:
            near = cast(Box, seen.domain).are_near(seen.pool[None], seen.points, BESIDE)
            beside = jnp.any(near & under_way[None], axis=1)
        worst = {"mean": _shunned(seen.mean, beside), "sd": jnp.where(beside[None], 0, seen.sd)}
        return seen.extended(cls, **worst, seen=seen, under_way=under_way, beside=beside)

    @property
    def arrived(self) -> Prediction:
        return self.seen.arrived

    def at(self, points: Array) -> Shunning:
        return Shunning.of(self.seen.at(points), self.under_way)

    def draw(self, key: Key, scale: Array) -> Array:
        return _shunned(self.seen.draw(key, scale), self.beside)


def _shunned(values: Array, under_way: Array) -> Array:
    """Return values ``[k, M]``, with low rewards and high costs at ``under_way``."""
    # Points under way look worse than the largest value by this factor.
    far = 1e4
    worst = far * jnp.max(jnp.abs(values), axis=1, keepdims=True) + far
    return jnp.where(under_way[None], worst.at[0].multiply(-1), values)


def fold_arrivals(step: Callable[[T, Array, Array, Array], T], carry: T, feedback: Feedback, mask: Array, axis: str | None) -> T:
    """Return the carry after steps over the arrivals in ``mask [C, k]``.

    ``step(carry, points [k], values [k], present [k])`` has the next arrival of every output; ``present`` is false for outputs without
    another arrival.
    """
    outputs = jnp.arange(mask.shape[1], dtype=jnp.int32)

    def of_slots(carry: T, slots: Array, present: Array) -> T:
        return step(carry, feedback.indices[slots], feedback.values[slots, outputs], present)

    return in_turn_of_slots(of_slots, carry, mask.T, axis)


def in_turn_of_slots(step: Callable[[T, Array, Array], T], carry: T, mask: Array, axis: str | None) -> T:
    """Return the carry after a step for each slot in ``mask``.

    A step, ``step(carry, slots [k], present [k])``, has the next slot of every output in ``mask [k, C]``. Under ``vmap`` over ``axis`` the
    number of steps is the largest among the trials, so that the loop has one exit for all trials and XLA updates its carry in place.
    """
    count = jnp.max(jnp.sum(mask, axis=1, dtype=jnp.int32))

    def one(state: tuple[T, Array]) -> tuple[T, Array]:
        carry, mask = state
        first = jnp.argmax(mask, axis=1).astype(jnp.int32)
        carry = step(carry, first, jnp.any(mask, axis=1))
        return carry, mask & (jnp.arange(mask.shape[1], dtype=jnp.int32)[None] != first[:, None])

    if axis is None:
        return jax.lax.fori_loop(0, count, lambda _, state: one(state), (carry, mask))[0]
    return repeated(one, (carry, mask), jax.lax.pmax(count, axis), mask.shape[1])[0]
