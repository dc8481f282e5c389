"""Delayed feedback: what is pending, what has arrived, and what a learner believes meanwhile.

Any algorithm runs under any policy: :class:`Wait` for feedback, :class:`Hallucinate` it, or :class:`Censor` it.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from jaxbandit.core.declare import Array, Declared, Key, PerOutput, checked
from jaxbandit.core.fields import MOST_ROUNDS, Letter, finite, whole
from jaxbandit.core.hints import missing
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.domains import Domain
from jaxbandit.surrogates import AbstractSurrogate, BoxSurrogate, Posterior, Prediction, Surrogate
from jaxbandit.surrogates.posterior import Arrived, Belief, deviation

__all__ = ["Censor", "DelayedSurrogate", "Feedback", "Hallucinate", "Pending", "Policy", "Wait"]
__dir__ = __all__.copy  # what completion shows
__getattr__ = missing(__name__, __all__)

T = TypeVar("T")
FAR = 1e4  # times the largest value, or times 1: where points under way lie for whoever chooses
BESIDE = 1e-3  # of the sides of a box: how near to one under way points look as bad


@pytree
class Feedback:
    """Feedback of one round under delay: the point chosen, and the values that arrive at the round's end.

    ``C`` is the buffer's capacity, ``k = 1 + m`` outputs. A slot's entries mean nothing where ``present`` is false.
    """

    index: Array  # [] int32, the point chosen in this round
    own_values: Array  # [k] its values
    own_present: Array  # [k] which of them are there at once
    indices: Array  # [C] int32, points chosen in earlier rounds, and this one
    values: Array  # [C, k]
    ages: Array  # [C] int32, rounds since they were chosen, 0 for this round's
    present: Array  # [C, k] whether a value arrives now

    def total(self) -> Array:
        """Return the sum of the values of each output that arrive in this round, ``[k]``."""
        return jnp.sum(jnp.where(self.present, self.values, 0), axis=0)

    def largest(self) -> Array:
        """Return the largest value of each output that arrives in this round, ``[k]``, ``-inf`` where none does."""
        return jnp.max(jnp.where(self.present, self.values, -jnp.inf), axis=0)

    @property
    def count(self) -> Array:
        """Number of values of each output that arrive in this round, ``[k]``."""
        return jnp.sum(self.present, axis=0).astype(self.values.dtype)

    def map(self, function: Callable[[Array], Array]) -> Feedback:
        """Return the same feedback with ``function`` of every point's values ``[k]``."""
        return replace(self, values=jax.vmap(function)(self.values), own_values=function(self.own_values))


@pytree
class Pending:
    """Feedback that has not arrived: ``C`` slots that are used in turn, so that nothing is lost while delays stay below ``C`` rounds."""

    indices: Array  # [C] int32
    values: Array  # [C, k]
    issued: Array  # [C] int32, the round in which the point was chosen, 0 for a slot never used
    due: Array  # [C, k] int32, the round at whose end each value arrives
    lost: Array  # [k] int32, values overwritten that were to arrive within the horizon

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
        """Put round ``t``'s point into the slot of the oldest one; values still to come there are counted as lost."""
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
        """Return the feedback at the end of round ``t``, whose point has just been pushed."""
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
        """Return the buffer and the feedback at the end of round ``t``, of a learner that learns values when they come.

        Round ``t``'s point takes the slot of the oldest one, and ``values [C, k]`` are written where ``arrived [C, k]`` is true.
        """
        nothing = jnp.zeros_like(self.lost)
        pushed = self.push(t, index, nothing.astype(self.values.dtype), nothing, t)
        after = replace(pushed, values=jnp.where(arrived, values, pushed.values), due=jnp.where(arrived, t, pushed.due))
        slot = (t - 1) % self.indices.shape[0]
        return after, after.arriving(t, index, after.values[slot], after.due[slot])


@pytree
class LatePosterior:
    """Posterior under a policy; that of :class:`Wait`, and base of the others'."""

    belief: Posterior  # that algorithms work with
    chosen: Array  # [] int32, points chosen since the belief was the prior


class Policy(Declared, abc.ABC):
    """Rule for what a learner believes while feedback is on its way; abstract.

    A policy is a pytree of its parameters. It works on a :class:`DelayedSurrogate`, which holds the Gaussian-process model, and on a
    posterior, a ``LatePosterior`` that ``init`` makes. Algorithms see neither: they ask the surrogate, which asks the policy.
    """

    described: ClassVar[str] = "a policy of jaxbandit.feedback, such as Wait()"
    called: ClassVar[str] = "feedback"
    in_files: ClassVar[bool] = True
    name: ClassVar[str]

    @checked
    def bind(
        self, surrogate: Surrogate, *, separate_outputs: bool, capacity: Annotated[int, whole(1, MOST_ROUNDS)], axis: str | None
    ) -> DelayedSurrogate:
        """Return the surrogate that algorithms see; with ``separate_outputs`` the values of a point may arrive in different rounds."""
        arrivals = surrogate.separate() if separate_outputs else surrogate
        return DelayedSurrogate(chosen=surrogate, arrivals=arrivals, policy=self, capacity=capacity, axis=axis)

    @abc.abstractmethod
    def init(self, learner: DelayedSurrogate) -> Belief:
        """Return the posterior before any observation."""

    @abc.abstractmethod
    def condition(self, learner: DelayedSurrogate, posterior: Belief, index: Array, values: Array) -> Belief:
        """Return the posterior that has taken in values which are there at once, such as those of an initial design; NaN is not there."""

    @abc.abstractmethod
    def learn(self, learner: DelayedSurrogate, posterior: Belief, feedback: Feedback) -> Belief:
        """Return the posterior at the end of a round: a point was chosen, and some values have arrived."""

    def taken(self, feedback: Feedback, chosen: Array) -> Array:
        """Return which values ``[C, k]`` a belief takes in, ``chosen`` rounds after the prior; default: all that arrive from then."""
        return feedback.present & (feedback.ages < chosen)[:, None]

    def model_of(self, learner: DelayedSurrogate) -> Surrogate:
        """Return the model of the posterior that algorithms work with; by default that of the points chosen."""
        return learner.chosen

    def predict(self, learner: DelayedSurrogate, posterior: Belief) -> Prediction:
        """Return the mean and standard deviation that algorithms work with."""
        return self.model_of(learner).predict(posterior.belief)

    def predict_at(self, learner: DelayedSurrogate, posterior: Belief, points: Array) -> Prediction:
        """Return what :meth:`predict` does, at ``points [n, d]`` of the unit cube of a box."""
        return self.model_of(learner).predict_at(posterior.belief, points)

    def draw_at(self, learner: DelayedSurrogate, posterior: Belief, key: Key, scale: Array, points: Array) -> Array:
        """Return the values ``[k, n]`` at ``points [n, d]`` of the unit cube of the functions drawn by ``key``."""
        return self.model_of(learner).draw_at(posterior.belief, key, scale, points)

    def place(self, learner: DelayedSurrogate, posterior: Belief, point: Array) -> tuple[Array, Belief]:
        """Return the index ``[]`` that ``point [d]`` of the unit cube gets, and the posterior that knows it by that."""
        index, belief = self.model_of(learner).place(posterior.belief, point)
        return index, replace(posterior, belief=belief)

    def arrived(self, learner: DelayedSurrogate, posterior: Belief) -> Prediction:
        """Return the prediction from the values that have arrived alone."""
        return self.predict(learner, posterior)

    def arrived_at(self, learner: DelayedSurrogate, posterior: Belief, points: Array) -> Prediction:
        """Return what :meth:`arrived` does, at ``points [n, d]`` of the unit cube of a box."""
        return self.predict_at(learner, posterior, points)


@pytree
class DelayedSurrogate(AbstractSurrogate):
    """Surrogate that delayed feedback teaches, under a policy.

    Attributes:
      chosen: the model that takes in the points chosen, one factor for each group of outputs that share kernel and noise variance.
      arrivals: the model that takes in values as they arrive, with a factor for each group of outputs that arrive together.
      policy: a policy of :mod:`jaxbandit.feedback`.
      capacity: rounds of pending feedback that are kept.
      axis: name of the batch axis of trials, ``None`` for a trial by itself.
      under_way: ``[M]`` booleans, points that are to look worst to whoever chooses, on a box with what lies beside them, or ``None`` where
        all count as they are believed.
    """

    chosen: Surrogate
    arrivals: Surrogate
    policy: Policy
    capacity: int = static()
    axis: str | None = static(default=None)
    under_way: Array | None = None

    @property
    def model(self) -> Surrogate:
        """The Gaussian-process model that algorithms work with."""
        return self.policy.model_of(self).model

    @property
    def domain(self) -> Domain:
        """The ``M`` points."""
        return self.chosen.domain

    @property
    def size(self) -> int:
        """Number of points ``M`` of a prediction."""
        return self.chosen.size

    def init(self) -> Belief:
        return self.policy.init(self)

    def condition(self, posterior: Belief, index: Array, values: Array) -> Belief:
        return self.policy.condition(self, posterior, index, values)

    def learn(self, posterior: Belief, feedback: Feedback) -> Belief:
        """Return the posterior at the end of a round, with what ``feedback`` brings."""
        return self.policy.learn(self, posterior, feedback)

    def predict(self, posterior: Belief) -> Prediction:
        return self._shunning(self.policy.predict(self, posterior), self.under_way)

    def arrived(self, posterior: Belief) -> Prediction:
        return self.policy.arrived(self, posterior)

    def arrived_at(self, posterior: Belief, points: Array) -> Prediction:
        return self.policy.arrived_at(self, posterior, points)

    def gain(self, posterior: LatePosterior) -> Array:
        return posterior.belief.gain

    def draw(self, posterior: Belief, key: Key, scale: Array) -> Array:
        drawn = self.policy.model_of(self).draw(posterior.belief, key, scale)
        return drawn if self.under_way is None else _shunned(drawn, self.under_way)

    def covariance(self, posterior: Belief, output: int, indices: Array) -> Array:
        return self.policy.model_of(self).covariance(posterior.belief, output, indices)

    def predict_at(self, posterior: Belief, points: Array) -> Prediction:
        return self._shunning(self.policy.predict_at(self, posterior, points), self._beside(posterior, points))

    def draw_at(self, posterior: Belief, key: Key, scale: Array, points: Array) -> Array:
        drawn, beside = self.policy.draw_at(self, posterior, key, scale, points), self._beside(posterior, points)
        return drawn if beside is None else _shunned(drawn, beside)

    def _shunning(self, belief: Prediction, under_way: Array | None) -> Prediction:
        if under_way is None:
            return belief
        return replace(belief, mean=_shunned(belief.mean, under_way), sd=jnp.where(under_way[None], 0, belief.sd))

    def _beside(self, posterior: Belief, points: Array) -> Array | None:
        """Return which of ``points [n, d]`` of the unit cube lie beside one under way, ``[n]``."""
        if self.under_way is None:
            return None
        apart = jnp.max(jnp.abs(points[:, None] - self.pool(posterior)[None]), axis=-1)
        return jnp.any((apart < BESIDE) & self.under_way[None], axis=1)

    def place(self, posterior: Belief, point: Array) -> tuple[Array, Belief]:
        return self.policy.place(self, posterior, point)

    def pool(self, posterior: Belief) -> Array:
        return self.policy.model_of(self).pool(posterior.belief)


def _shunned(values: Array, under_way: Array) -> Array:
    """Return ``values [k, M]`` of which those under way are worse than any other: low rewards, high costs."""
    worst = FAR * jnp.max(jnp.abs(values), axis=1, keepdims=True) + FAR
    return jnp.where(under_way[None], worst.at[0].multiply(-1), values)


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
class Wait(Policy):
    """The posterior holds what has arrived, and nothing else: the naive use of an algorithm under delay.

    A round costs one update of the posterior for every arrival, and nothing for what is pending.
    """

    name: ClassVar[str] = "wait"

    def init(self, learner: DelayedSurrogate) -> LatePosterior:
        return LatePosterior(belief=learner.arrivals.init(), chosen=jnp.int32(0))

    def condition(self, learner: DelayedSurrogate, posterior: LatePosterior, index: Array, values: Array) -> LatePosterior:
        return replace(posterior, belief=learner.arrivals.condition(posterior.belief, index, values, ~jnp.isnan(values)))

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


@pytree
class Hallucinate(Policy):
    """The mean of what has arrived, with the deviation of all points chosen, as GP-BUCB (Desautels, Krause and Burdick 2014).

    Arrivals move the weights of the mean only; functions on the grid are made once a round, however many values arrive.
    """

    name: ClassVar[str] = "hallucinate"
    papers: ClassVar[Mapping[str, str]] = {"desautels2014": ""}

    def init(self, learner: DelayedSurrogate) -> HallucinatePosterior:
        model, belief = learner.arrivals, learner.chosen.init()
        factors = tuple(form.init() for form in model.forms_in_force)
        weights = tuple(jnp.zeros((model.forms[g].rank,), belief.shift.dtype) for g in model.groups)
        return HallucinatePosterior(belief=belief, factors=factors, weights=weights, chosen=jnp.int32(0))

    def condition(self, learner: DelayedSurrogate, posterior: HallucinatePosterior, index: Array, values: Array) -> HallucinatePosterior:
        points, present = jnp.broadcast_to(index, (learner.outputs,)), ~jnp.isnan(values)  # NaN is under way
        arrived = learner.arrivals.arrive((posterior.factors, posterior.weights), points, values, present)
        return _moved(learner, posterior.belief, index, arrived, posterior.chosen)

    def learn(self, learner: DelayedSurrogate, posterior: HallucinatePosterior, feedback: Feedback) -> HallucinatePosterior:
        chosen, before = posterior.chosen + 1, (posterior.factors, posterior.weights)
        arrived = fold_arrivals(learner.arrivals.arrive, before, feedback, self.taken(feedback, chosen), learner.axis)
        return _moved(learner, posterior.belief, feedback.index, arrived, chosen)

    def arrived(self, learner: DelayedSurrogate, posterior: HallucinatePosterior) -> Prediction:
        """Return mean and deviation of what has arrived, at a cost of ``O(M r^2)``; the gain is that of all points chosen."""
        sd = deviation(learner.arrivals.spread(posterior.factors))[np.asarray(learner.arrivals.groups)]
        return replace(self.predict(learner, posterior), sd=sd)

    # On a box the weights of the chosen points' model stay 0: to its means, the prior's, those of what has arrived are added.

    def predict_at(self, learner: DelayedSurrogate, posterior: HallucinatePosterior, points: Array) -> Prediction:
        belief = super().predict_at(learner, posterior, points)
        return replace(belief, mean=belief.mean + _moments(learner, posterior, points)[0])

    def arrived_at(self, learner: DelayedSurrogate, posterior: HallucinatePosterior, points: Array) -> Prediction:
        sd = deviation(_moments(learner, posterior, points)[1])[np.asarray(learner.arrivals.groups)]
        return replace(self.predict_at(learner, posterior, points), sd=sd)

    def draw_at(self, learner: DelayedSurrogate, posterior: HallucinatePosterior, key: Key, scale: Array, points: Array) -> Array:
        return super().draw_at(learner, posterior, key, scale, points) + _moments(learner, posterior, points)[0]

    def place(self, learner: DelayedSurrogate, posterior: HallucinatePosterior, point: Array) -> tuple[Array, HallucinatePosterior]:
        index, belief = learner.chosen.place(posterior.belief, point)
        pairs = zip(learner.arrivals.forms_in_force, posterior.factors, strict=True)
        shift = belief.shift.at[:, index].set(_moments(learner, posterior, point[None])[0][:, 0])
        factors = tuple(form.place(factor, point)[0] for form, factor in pairs)
        return index, replace(posterior, belief=replace(belief, shift=shift), factors=factors)


def _moments(learner: DelayedSurrogate, posterior: HallucinatePosterior, points: Array) -> tuple[Array, Array]:
    """Return means ``[k, n]``, less the prior means, and variances ``[G, n]`` of what has arrived, at points of the unit cube of a box."""
    return cast(BoxSurrogate, learner.arrivals).moments(posterior.factors, jnp.stack(posterior.weights), points)


def _moved(learner: DelayedSurrogate, belief: Posterior, index: Array, arrived: Arrived, chosen: Array) -> HallucinatePosterior:
    """Return the posterior after a point was chosen, whose mean on the grid is that of what has arrived."""
    belief, (factors, weights) = learner.chosen.condition_variance(belief, index), arrived
    belief = replace(belief, shift=learner.arrivals.expand(factors, weights))
    return HallucinatePosterior(belief=belief, factors=factors, weights=weights, chosen=chosen)


@pytree
class CensorPosterior(LatePosterior):
    """Belief under censored targets, and the last points chosen, the oldest first."""

    recent: Array  # [w] int32, the points chosen in the last w rounds, M where there is none yet
    effects: tuple[Array, ...]  # [n, r] for each group: what 1 more in the target of each of the last n <= w points adds to the weights


@pytree
class Censor(Policy):
    r"""All points chosen, with ``minimum`` in place of values that have not arrived (Verma et al. 2022; Guo et al. 2022, RPOL, sec. 5).

    .. math::
        \mu_t(x) = k_t(x)^T (K_t + \lambda I)^{-1} \tilde y_{1:t}, \qquad
        \tilde y_s = y_s \text{ if it arrived within } w \text{ rounds, else the minimum}

    ``mu`` is linear in the targets, so a value that arrives adds ``(y - minimum)`` times ``P_t phi_s / lambda`` to its weights, where
    ``P_t`` is their covariance. These effects of the targets still open are kept: ``P_t phi_s = P_{t-1} phi_s - u_t c_t(x_s) / s_t``, and
    ``P_t phi_t = u_t lambda / s_t``. A round costs the same however many values arrive. A value that takes more than ``window`` rounds is
    never used.

    Attributes:
      window: ``w >= 0`` rounds (the papers' ``m``).
      minimum: value that stands for a missing one, the least possible; one number or ``[1 + m]``.
    """

    name: ClassVar[str] = "censor"
    papers: ClassVar[Mapping[str, str]] = {"verma2022": ""}
    window: Annotated[int, whole(0, MOST_ROUNDS), Letter("m")] = static(default=30)
    minimum: Annotated[PerOutput, finite, Letter("min")] = 0.0

    def init(self, learner: DelayedSurrogate) -> CensorPosterior:
        model = learner.chosen
        belief = model.init()
        recent = jnp.full((self.window,), model.size, jnp.int32)
        effects = tuple(jnp.zeros((self._open(learner), form.rank), belief.shift.dtype) for form in model.forms)
        return CensorPosterior(belief=belief, recent=recent, effects=effects, chosen=jnp.int32(0))

    def condition(self, learner: DelayedSurrogate, posterior: CensorPosterior, index: Array, values: Array) -> CensorPosterior:
        known = jnp.where(jnp.isnan(values), jnp.asarray(self.minimum, values.dtype), values)
        return replace(posterior, belief=learner.chosen.condition(posterior.belief, index, known))

    def learn(self, learner: DelayedSurrogate, posterior: CensorPosterior, feedback: Feedback) -> CensorPosterior:
        model, chosen, still_open = learner.chosen, posterior.chosen + 1, self._open(learner)
        minimum = jnp.broadcast_to(jnp.asarray(self.minimum, feedback.values.dtype), (learner.outputs,))
        target = jnp.where(feedback.own_present, feedback.own_values, minimum)
        belief, moves = model.absorb(posterior.belief, feedback.index)
        belief, effects = model.moved(belief, moves, feedback.index, target), posterior.effects
        steps = model.by_group(moves)
        if still_open:
            # P_t phi_s / lambda of the open targets; entries without a point yet are never used.
            points = jnp.minimum(posterior.recent[self.window - still_open :], learner.size - 1)
            shares = [step.column[points] * (step.precision * (1 / model.noise_at(g, points))) for g, step in enumerate(steps)]
            pairs = zip(effects, shares, steps, strict=True)
            effects = tuple(old - share[:, None] * step.weights[None, :] for old, share, step in pairs)
            # How far the values that arrive lie above the minimum that stood for them, [n, k].
            ages = jnp.arange(still_open, 0, -1, dtype=jnp.int32)
            slots = jnp.argmax(feedback.ages[None] == ages[:, None], axis=1)
            present = feedback.present[slots] & (ages < chosen)[:, None]  # a restart forgets older points for good
            excess = jnp.where(present, feedback.values[slots] - minimum[None], 0)
            moved = [jnp.matmul(excess[:, j], effects[g], precision="highest") for j, g in enumerate(model.groups)]
            weights = belief.weights if belief.weights is None else belief.weights + jnp.stack(moved)
            belief = replace(belief, shift=belief.shift + model.expand(belief.factors, moved), weights=weights)
        recent = jnp.append(posterior.recent[1:], feedback.index) if self.window else posterior.recent
        if still_open:  # the newest effect, u_t / s_t, comes in and the oldest goes
            newest = [(step.weights * step.precision)[None] for step in steps]
            effects = tuple(jnp.concatenate([old[1:], new]) for old, new in zip(effects, newest, strict=True))
        return CensorPosterior(belief=model.refreshed(belief), recent=recent, effects=effects, chosen=chosen)

    def predict(self, learner: DelayedSurrogate, posterior: CensorPosterior) -> Prediction:
        """Return mean and deviation under censored targets, with ``recent``: the deviations at the last ``w`` points, summed."""
        belief = super().predict(learner, posterior)
        size = learner.size
        deviations = belief.sd[:, jnp.minimum(posterior.recent, size - 1)]
        return replace(belief, recent=jnp.sum(jnp.where(posterior.recent < size, deviations, 0), axis=1))

    def predict_at(self, learner: DelayedSurrogate, posterior: CensorPosterior, points: Array) -> Prediction:
        return replace(super().predict_at(learner, posterior, points), recent=self.predict(learner, posterior).recent)

    def _open(self, learner: DelayedSurrogate) -> int:
        """Return how many of the last points can still get a value."""
        return min(self.window, learner.capacity - 1)
