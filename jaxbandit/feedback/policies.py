"""Policies for beliefs about points whose values have not arrived."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.declare import Array, Key, PerOutput
from jaxbandit.core.doors import setting
from jaxbandit.core.fields import MOST_ROUNDS, Letter, finite, whole
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.feedback.learner import DelayedSurrogate, Feedback, LatePosterior, Policy, fold_arrivals, in_turn_of_slots
from jaxbandit.kernels.functions import matmul
from jaxbandit.surrogates import Belief, BoxSurrogate, Posterior, Prediction, Surrogate
from jaxbandit.surrogates.boxes.pool import insert_column
from jaxbandit.surrogates.features import SquareRoot
from jaxbandit.surrogates.posterior import Arrived, deviation
from jaxbandit.surrogates.precision import least_variances

__all__ = ["Believe", "Censor", "Hallucinate", "Wait"]


@pytree
class Wait(Policy):
    """Condition on arrived values alone, the naive use under delay.

    A round costs one update of the posterior for every arrival, and nothing for pending values.
    """

    name: ClassVar[str] = "wait"
    matters_only_late: ClassVar[bool] = True

    def init(self, learner: DelayedSurrogate) -> LatePosterior:
        return LatePosterior(belief=learner.arrivals.init(), chosen=jnp.int32(0))

    def condition(self, learner: DelayedSurrogate, posterior: LatePosterior, index: Array, values: Array) -> LatePosterior:
        return replace(posterior, belief=learner.arrivals.condition(posterior.belief, index, values, ~jnp.isnan(values)))

    def conditioned(self, learner: DelayedSurrogate, indices: Array, places: Array, values: Array, count: Array) -> LatePosterior:
        return LatePosterior(belief=cast(BoxSurrogate, learner.arrivals).conditioned(indices, places, values, count), chosen=jnp.int32(0))

    def learn(self, learner: DelayedSurrogate, posterior: LatePosterior, feedback: Feedback) -> LatePosterior:
        chosen = posterior.chosen + 1
        belief = _observed(learner, posterior.belief, feedback, self.taken(feedback, chosen))
        return LatePosterior(belief=learner.arrivals.refreshed(belief), chosen=chosen)

    def model_of(self, learner: DelayedSurrogate) -> Surrogate:
        """Return the model of arrived values."""
        return learner.arrivals


def _observed(learner: DelayedSurrogate, belief: Posterior, feedback: Feedback, taken: Array) -> Posterior:
    """Return the belief given the arriving values in ``taken [C, k]``."""
    model = learner.arrivals
    is_one = learner.axis is None or isinstance(model, BoxSurrogate) or not isinstance(model, Surrogate) or len(model.forms) == 1
    if is_one:
        return fold_arrivals(model.observe, belief, feedback, taken, learner.axis)
    # In a batch each group has its own loop, because values arrive in different rounds. A lone trial has a smaller program.
    groups = np.asarray(model.groups)
    parts, members = [], [np.flatnonzero(groups == g) for g in range(len(model.forms))]
    for g, own in enumerate(members):
        factor, variance, gain = belief.factors[g : g + 1], belief.variance[g : g + 1], belief.gain[g : g + 1]
        part = replace(belief, factors=factor, shift=belief.shift[own], variance=variance, gain=gain)
        arriving = replace(feedback, values=feedback.values[:, own])
        alone = model.regrouped([g], (0,) * len(own), prior_mean=model.prior_mean[own], kernels=())
        parts.append(fold_arrivals(alone.observe, part, arriving, taken[:, own], learner.axis))
    return replace(
        belief,
        factors=tuple(part.factors[0] for part in parts),
        shift=jnp.concatenate([part.shift for part in parts])[np.argsort(np.concatenate(members))],
        variance=jnp.concatenate([part.variance for part in parts]),
        gain=jnp.concatenate([part.gain for part in parts]),
    )


@pytree
class HallucinatePosterior(LatePosterior):
    """Deviations of chosen points, with factors and weights of arrived values.

    There is a factor for each group of outputs that arrive together. An output's weights give its mean less the prior mean.
    """

    factors: tuple[object, ...]
    weights: tuple[Array, ...]  # [r]


@pytree
class OneRootPosterior(LatePosterior):
    """Belief about chosen points, with moments of the pending points.

    The moments are of the functions at the points of ``C`` slots, given the arrived values of the output alone. ``effects`` are the
    derivatives of each group's weights by the targets at these points, and ``weights`` have the targets that arrived.
    """

    effects: tuple[Array, ...]  # [C, r]
    weights: tuple[Array, ...]  # [r]
    means: Array  # [k, C] less the prior mean
    covariances: Array  # [k, C, C]
    pending: Array  # [k, C]
    points: Array  # [C] int32


@pytree
class OneRootBelief(Belief):
    """Mean of arrived values, with the deviation of all chosen points."""

    state: OneRootPosterior

    @property
    def arrived(self) -> Prediction:
        # The variance has k C functions on the grid more than that of all chosen points.
        model, state, deviations = self.model, self.state, []
        for j, g in enumerate(model.groups):
            form, factor = model.grouped.of_group(self.posterior.factors, g)
            effects = jnp.where(state.pending[j][:, None], state.effects[g], 0)
            noise = jnp.broadcast_to(model.noise_at(g, state.points), state.points.shape)
            turned = matmul(state.covariances[j], effects) + noise[:, None] * effects
            one, other = (jax.vmap(form.expand, (None, 0))(factor, rows) for rows in (effects, turned))
            deviations.append(deviation(self.posterior.variance[g] + jnp.sum(one * other, axis=0)))
        return replace(self.prediction, sd=jnp.stack(deviations))


@pytree
class HallucinateBelief(Belief):
    """Mean of arrived values, with the deviation of all chosen points.

    On a box the weights of the chosen points' posterior stay 0. Its means are the prior's, and the means of arrived values are added.
    """

    arrivals: Surrogate
    factors: tuple[object, ...]
    weights: tuple[Array, ...]  # [r]

    def _moments(self, points: Array) -> tuple[Array, Array]:
        """Return means less prior means, and variances, of arrived values at points."""
        return cast(BoxSurrogate, self.arrivals).moments(self.factors, jnp.stack(self.weights), points)

    @property
    def arrived(self) -> Prediction:
        # On a finite domain this costs O(M r^2).
        variance = self.arrivals.grouped.spread(self.factors) if self.points is None else self._moments(self.points)[1]
        return replace(self.prediction, sd=deviation(variance)[np.asarray(self.arrivals.groups)])

    # XLA rounds by the order of traces, so that the means of arrived values are traced last.

    def at(self, points: Array) -> Self:
        there = super().at(points)
        return replace(there, mean=there.mean + self._moments(points)[0])

    def draw(self, key: Key, scale: Array) -> Array:
        drawn = super().draw(key, scale)
        return drawn if self.points is None else drawn + self._moments(self.points)[0]


@pytree
class Hallucinate(Policy):
    """Mean of arrived values, with the deviation of all chosen points.

    This is GP-BUCB (Desautels, Krause and Burdick 2014). Arrivals change only the weights of the mean. A round evaluates functions on the
    grid once, for any number of arrivals.

    The mean is the mean of all chosen points if every pending value is the mean of its point, so that a model with one root computes it
    from the pending points' moments, given arrived values. If ``c [p]`` are the covariances of a new point with the pending points, given
    all chosen points, then given arrived values they are ``c + S c / lambda``, where ``S [p, p]`` are covariances of the pending points.
    """

    name: ClassVar[str] = "hallucinate"
    matters_only_late: ClassVar[bool] = True
    papers: ClassVar[Mapping[str, str]] = {"desautels2014": ""}

    def allows_one_root(self, model: Surrogate, capacity: int) -> bool:
        if isinstance(model, BoxSurrogate) or not all(isinstance(form, SquareRoot) for form in model.forms):
            return False
        pairs = zip(least_variances(model.noise_variance), model.largest_variances(), strict=True)
        # With less noise means from one root are off by more than 0.006 deviations in float32.
        return capacity <= min(form.rank for form in model.forms) and all(noise >= 1e-3 * variance for noise, variance in pairs)

    def init(self, learner: DelayedSurrogate) -> HallucinatePosterior | OneRootPosterior:
        if learner.one_root:
            return _one_root(learner)
        model, belief = learner.arrivals, learner.chosen.init()
        factors = tuple(batch.init() for batch in model.grouped.batched())
        weights = tuple(jnp.zeros((model.forms[g].rank,), belief.shift.dtype) for g in model.groups)
        return HallucinatePosterior(belief=belief, factors=factors, weights=weights, chosen=jnp.int32(0))

    def condition(self, learner: DelayedSurrogate, posterior: Any, index: Array, values: Array) -> HallucinatePosterior | OneRootPosterior:
        if learner.one_root:
            return _with_value(learner, posterior, index, values)
        points, present = jnp.broadcast_to(index, (learner.outputs,)), ~jnp.isnan(values)
        arrived = learner.arrivals.arrive((posterior.factors, posterior.weights), points, values, present)
        return _moved(learner, posterior.belief, index, arrived, posterior.chosen)

    def conditioned(self, learner: DelayedSurrogate, indices: Array, places: Array, values: Array, count: Array) -> HallucinatePosterior:
        arrived = cast(BoxSurrogate, learner.arrivals).conditioned(indices, places, values, count)
        chosen = cast(BoxSurrogate, learner.chosen).conditioned(indices, places, jnp.zeros_like(values), count)
        assert arrived.weights is not None and chosen.weights is not None
        belief = replace(chosen, shift=arrived.shift, weights=jnp.zeros_like(chosen.weights))
        return HallucinatePosterior(belief=belief, factors=arrived.factors, weights=tuple(arrived.weights), chosen=jnp.int32(0))

    def learn(self, learner: DelayedSurrogate, posterior: Any, feedback: Feedback) -> HallucinatePosterior | OneRootPosterior:
        if learner.one_root:
            return _with_feedback(learner, posterior, feedback, self.taken(feedback, posterior.chosen + 1))
        chosen, before = posterior.chosen + 1, (posterior.factors, posterior.weights)
        arrived = fold_arrivals(learner.arrivals.arrive, before, feedback, self.taken(feedback, chosen), learner.axis)
        return _moved(learner, posterior.belief, feedback.index, arrived, chosen)

    def belief(self, learner: DelayedSurrogate, posterior: Any) -> Belief:
        if learner.one_root:
            return super().belief(learner, posterior).extended(OneRootBelief, state=posterior)
        late = {"arrivals": learner.arrivals, "factors": posterior.factors, "weights": posterior.weights}
        return super().belief(learner, posterior).extended(HallucinateBelief, **late)

    def place(self, learner: DelayedSurrogate, posterior: HallucinatePosterior, point: Array) -> tuple[Array, HallucinatePosterior]:
        arrivals = cast(BoxSurrogate, learner.arrivals)
        index, belief = cast(BoxSurrogate, learner.chosen).place(posterior.belief, point)
        moments = arrivals.moments(posterior.factors, jnp.stack(posterior.weights), point[None])
        shift = insert_column(belief.shift, index, moments[0][:, 0])
        factors = tuple(batch.place(factor, point)[0] for batch, factor in arrivals.grouped.pairs(posterior.factors))
        return index, replace(posterior, belief=replace(belief, shift=shift), factors=factors)


def _moved(learner: DelayedSurrogate, belief: Posterior, index: Array, arrived: Arrived, chosen: Array) -> HallucinatePosterior:
    """Return the posterior after a choice, with the mean of arrived values."""
    factors, weights = arrived
    belief = learner.chosen.refreshed(learner.chosen.absorb(belief, index)[0])
    belief = replace(belief, shift=learner.arrivals.grouped.expand(factors, weights))
    return HallucinatePosterior(belief=belief, factors=factors, weights=weights, chosen=chosen)


def _one_root(learner: DelayedSurrogate) -> OneRootPosterior:
    """Return the posterior before any observation."""
    model, slots, outputs = learner.chosen, learner.capacity, learner.outputs
    belief = model.init()
    dtype = belief.shift.dtype
    return OneRootPosterior(
        belief=belief,
        chosen=jnp.int32(0),
        effects=tuple(jnp.zeros((slots, form.rank), dtype) for form in model.forms),
        weights=tuple(jnp.zeros((model.forms[g].rank,), dtype) for g in model.groups),
        means=jnp.zeros((outputs, slots), dtype),
        covariances=jnp.zeros((outputs, slots, slots), dtype),
        pending=jnp.zeros((outputs, slots), bool),
        points=jnp.zeros((slots,), jnp.int32),
    )


def _with_value(learner: DelayedSurrogate, posterior: OneRootPosterior, index: Array, values: Array) -> OneRootPosterior:
    """Return the posterior given a point's values, while no value is pending."""
    model, before = learner.chosen, posterior.belief
    belief, moves = model.absorb(before, index)
    belief, steps = model.refreshed(model.moved(belief, moves, index, values)), model.grouped.by_group(moves)
    away = values - jnp.asarray(model.prior_mean, values.dtype) - before.shift[:, index]
    groups = zip(posterior.weights, model.groups, away, strict=True)
    return replace(posterior, belief=belief, weights=tuple(w + steps[g].weights * (steps[g].precision * own) for w, g, own in groups))


def _with_feedback(learner: DelayedSurrogate, posterior: OneRootPosterior, feedback: Feedback, taken: Array) -> OneRootPosterior:
    """Return the posterior after a round that takes ``taken [C, k]``."""
    model, before, points, own = learner.chosen, posterior.belief, feedback.indices, feedback.ages == 0
    belief, moves = model.absorb(before, feedback.index)
    steps, effects, columns, noises = model.grouped.by_group(moves), [], [], []
    for g, step in enumerate(steps):
        noise = jnp.broadcast_to(model.noise_at(g, points), points.shape)
        columns.append(step.column[points])
        noises.append(noise)
        moved = posterior.effects[g] - (columns[g] * step.precision * (1 / noise))[:, None] * step.weights[None]
        effects.append(jnp.where(own[:, None], (step.weights * step.precision)[None], moved))
    groups, outputs = np.asarray(model.groups), np.arange(model.outputs)
    column, noise = (jnp.stack(parts)[groups] for parts in (columns, noises))  # [k, C]
    before_now = posterior.pending & ~own[None]
    # The new point has these covariances with the pending points, and this variance, given arrived values.
    shares = jnp.where(before_now, column / noise, 0)
    known = jnp.where(before_now[:, :, None] & before_now[:, None, :], posterior.covariances, 0)
    new = jnp.where(before_now, column, 0) + jnp.sum(known * shares[:, None, :], axis=2)
    variance = jnp.stack([step.column[feedback.index] for step in steps])[groups] + jnp.sum(new * shares, axis=1)
    new = jnp.where(own[None], variance[:, None], new)
    known = jnp.where(own[None, :, None], new[:, None, :], jnp.where(own[None, None, :], new[:, :, None], known))
    means = jnp.where(own[None], before.shift[:, feedback.index][:, None], posterior.means)
    pending, taken = before_now | own[None], taken.T & (before_now | own[None])
    targets = (feedback.values - jnp.asarray(model.prior_mean, feedback.values.dtype)[None]).T  # [k, C]

    def condition(moments: tuple[Array, Array], slot: Array, present: Array) -> tuple[Array, Array]:
        means, known = moments
        column = known[outputs, slot]
        gain = jnp.where(present, 1 / (noise[outputs, slot] + column[outputs, slot]), 0)[:, None] * column
        away = targets[outputs, slot] - means[outputs, slot]
        return means + gain * away[:, None], known - gain[:, :, None] * column[:, None, :]

    means, known = in_turn_of_slots(condition, (means, known), taken, learner.axis)
    pending, weights, shifted = pending & ~taken, [], []
    seen, believed = jnp.where(taken, targets, 0), jnp.where(pending, means, 0)
    for j, g in enumerate(model.groups):
        step, now = steps[g], posterior.weights[j]
        phi = model.forms[g].row(belief.factors[g], feedback.index)
        now = now - step.weights * (jnp.sum(phi * now) * step.precision) + matmul(seen[j], effects[g])
        weights.append(now)
        shifted.append(now + matmul(believed[j], effects[g]))
    belief = replace(model.refreshed(belief), shift=model.grouped.expand(belief.factors, shifted))
    return OneRootPosterior(
        belief=belief,
        chosen=posterior.chosen + 1,
        effects=tuple(effects),
        weights=tuple(weights),
        means=means,
        covariances=known,
        pending=pending,
        points=points,
    )


@pytree
class BelieveBelief(Belief):
    """Belief given drawn values of pending points."""

    seen: Belief

    @property
    def arrived(self) -> Prediction:
        return self.seen.arrived


@pytree
class Believe(Hallucinate):
    r"""Believe pending values drawn from the posterior, the kriging believer.

    In every round the values at the pending points ``P`` are drawn jointly and without noise, and taken for observed:

    .. math::
        h \sim N(\mu_P, \Sigma_{PP}), \qquad \mu(x) + \Sigma_{xP} (\Sigma_{PP} + \lambda I)^{-1} (h - \mu_P)

    where ``mu`` and ``Sigma`` are given the arrived values, with the deviation of all chosen points. The draw is fresh for each choice.
    Without ``random`` it is ``h = mu_P``, which is :class:`Hallucinate`. The random form is for models of features on finite domains whose
    noise variance is at least 1e-3 of the prior's, where every value arrives and fewer are pending than the model has features.

    Attributes:
      random: whether values are drawn, instead of the means.
    """

    name: ClassVar[str] = "believe"
    papers: ClassVar[Mapping[str, str]] = {"sugiura2026": "the random form"}
    random: bool = static(default=True)

    def belief(self, learner: DelayedSurrogate, posterior: Any) -> Belief:
        belief = super().belief(learner, posterior)
        if not self.random or learner.key is None:
            return belief
        if not learner.one_root:
            words = "needs a model of features on a finite domain, noise of 1e-3 of the prior variance, and values that all arrive"
            raise InvalidArgument(f"feedback: {short(self)} {words}; take {setting('feedback', Hallucinate())}")
        model, pending = learner.chosen, posterior.pending
        known = jnp.where(pending[:, :, None] & pending[:, None, :], posterior.covariances, 0)
        # A point that is pending twice makes the covariance singular.
        jitter = 10 * jnp.finfo(known.dtype).eps * (1 + jnp.trace(known, axis1=1, axis2=2))
        root = jnp.linalg.cholesky(known + jitter[:, None, None] * jnp.eye(known.shape[1], dtype=known.dtype)[None])
        drawn = matmul(root, jax.random.normal(learner.key, pending.shape, known.dtype)[..., None])[..., 0]
        moved = [matmul(jnp.where(pending[j], drawn[j], 0), posterior.effects[g]) for j, g in enumerate(model.groups)]
        return belief.extended(BelieveBelief, mean=belief.mean + model.grouped.expand(posterior.belief.factors, moved), seen=belief)


@pytree
class CensorPosterior(LatePosterior):
    """Belief under censored targets, and the last ``w`` points, the oldest first.

    ``effects`` are the derivatives of each group's weights by the targets of the last ``n <= w`` points.
    """

    recent: Array  # [w] int32, M if none
    effects: tuple[Array, ...]  # [n, r]


@pytree
class Censor(Policy):
    r"""Condition on ``minimum`` in place of missing values.

    .. math::
        \mu_t(x) = k_t(x)^T (K_t + \lambda I)^{-1} \tilde y_{1:t}, \\
        \tilde y_s = y_s \text{ if it arrived within } w \text{ rounds, else the minimum}

    See Verma et al. (2022) and RPOL (Guo et al. 2022, sec. 5). ``mu`` is linear in the targets, so an arriving value adds ``(y - minimum)
    P_t phi_s / lambda`` to its weights, where ``P_t`` is the weights' covariance. The posterior stores these effects of open targets: ``P_t
    phi_s = P_{t-1} phi_s - u_t c_t(x_s) / s_t``, and ``P_t phi_t = u_t lambda / s_t``. A round costs the same for any number of arrivals. A
    value that takes more than ``window`` rounds is never used.

    Attributes:
      window: ``w >= 0`` rounds (the papers' ``m``).
      minimum: target for a missing value, the least possible value; one number or ``[1 + m]``.
    """

    name: ClassVar[str] = "censor"
    has_factors_of_arrivals: ClassVar[bool] = False
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

    def conditioned(self, learner: DelayedSurrogate, indices: Array, places: Array, values: Array, count: Array) -> CensorPosterior:
        known = jnp.where(jnp.isnan(values), jnp.asarray(self.minimum, values.dtype), values)
        return replace(self.init(learner), belief=cast(BoxSurrogate, learner.chosen).conditioned(indices, places, known, count))

    def learn(self, learner: DelayedSurrogate, posterior: CensorPosterior, feedback: Feedback) -> CensorPosterior:
        model, chosen, still_open = learner.chosen, posterior.chosen + 1, self._open(learner)
        minimum = jnp.broadcast_to(jnp.asarray(self.minimum, feedback.values.dtype), (learner.outputs,))
        target = jnp.where(feedback.own_present, feedback.own_values, minimum)
        belief, moves = model.absorb(posterior.belief, feedback.index)
        belief, effects = model.moved(belief, moves, feedback.index, target), posterior.effects
        steps = model.grouped.by_group(moves)
        if still_open:
            # Update P_t phi_s / lambda of the open targets. Entries without a point are never used.
            points = jnp.minimum(posterior.recent[self.window - still_open :], learner.size - 1)
            shares = [step.column[points] * (step.precision * (1 / model.noise_at(g, points))) for g, step in enumerate(steps)]
            pairs = zip(effects, shares, steps, strict=True)
            effects = tuple(old - share[:, None] * step.weights[None, :] for old, share, step in pairs)
            # Add the effects of arriving values less their minimum, [n, k]. A restart forgets older points for good.
            ages = jnp.arange(still_open, 0, -1, dtype=jnp.int32)
            slots = jnp.argmax(feedback.ages[None] == ages[:, None], axis=1)
            present = feedback.present[slots] & (ages < chosen)[:, None]
            excess = jnp.where(present, feedback.values[slots] - minimum[None], 0)
            moved = [jnp.matmul(excess[:, j], effects[g], precision="highest") for j, g in enumerate(model.groups)]
            weights = belief.weights if belief.weights is None else belief.weights + jnp.stack(moved)
            belief = replace(belief, shift=belief.shift + model.grouped.expand(belief.factors, moved), weights=weights)
        recent = jnp.append(posterior.recent[1:], feedback.index) if self.window else posterior.recent
        # Append the newest effect, u_t / s_t, and drop the oldest.
        if still_open:
            newest = [(step.weights * step.precision)[None] for step in steps]
            effects = tuple(jnp.concatenate([old[1:], new]) for old, new in zip(effects, newest, strict=True))
        return CensorPosterior(belief=model.refreshed(belief), recent=recent, effects=effects, chosen=chosen)

    def belief(self, learner: DelayedSurrogate, posterior: CensorPosterior) -> Belief:
        """Return the belief, with ``recent``, the last ``w`` points' summed deviations."""
        belief = super().belief(learner, posterior)
        size = learner.size
        deviations = belief.sd[:, jnp.minimum(posterior.recent, size - 1)]
        return replace(belief, recent=jnp.sum(jnp.where(posterior.recent < size, deviations, 0), axis=1))

    def _open(self, learner: DelayedSurrogate) -> int:
        """Return the number of last points that may still receive a value."""
        return min(self.window, learner.capacity - 1)
