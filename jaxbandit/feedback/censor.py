"""The policy that censors: all points chosen, with the least possible value in place of what has not arrived."""

from __future__ import annotations

from typing import Annotated, ClassVar

import jax.numpy as jnp

from jaxbandit.core.fields import MOST_ROUNDS, Letter, finite, whole
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.core.types import Array, PerOutput
from jaxbandit.feedback.buffer import Feedback
from jaxbandit.feedback.policies import DelayedSurrogate, LatePosterior, Policy
from jaxbandit.surrogates import Posterior, Prediction, Step, Surrogate


@pytree
class CensorPosterior(LatePosterior):
    """Belief under censored targets, and the last points chosen, the oldest first."""

    recent: Array  # [w] int32, the points chosen in the last w rounds, M where there is none yet
    effects: tuple[Array, ...]  # [n, r] for each group: what 1 more in the target of each of the last n <= w points adds to the weights


@pytree
class Censor(Policy[CensorPosterior]):
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
    posteriors: ClassVar[type] = CensorPosterior
    window: Annotated[int, whole(0, MOST_ROUNDS), Letter("m")] = static(default=30)
    minimum: Annotated[PerOutput, finite, Letter("min")] = 0.0

    def init(self, learner: DelayedSurrogate) -> CensorPosterior:
        model = learner.chosen
        belief = model.init()
        recent = jnp.full((self.window,), model.domain.size, jnp.int32)
        effects = tuple(jnp.zeros((self._open(learner), form.rank), belief.shift.dtype) for form in model.forms)
        return CensorPosterior(belief=belief, recent=recent, effects=effects, chosen=jnp.int32(0))

    def condition(self, learner: DelayedSurrogate, posterior: CensorPosterior, index: Array, values: Array) -> CensorPosterior:
        return replace(posterior, belief=learner.chosen.condition(posterior.belief, index, values))

    def learn(self, learner: DelayedSurrogate, posterior: CensorPosterior, feedback: Feedback) -> CensorPosterior:
        model, chosen = learner.chosen, posterior.chosen + 1
        target = jnp.where(feedback.own_present, feedback.own_values, self._minimum(learner, feedback))
        belief, steps = model.absorb(posterior.belief, feedback.index)
        belief, effects = model.moved(belief, steps, feedback.index, target), posterior.effects
        if self._open(learner):
            effects = tuple(self._effects(learner, g, step, posterior) for g, step in enumerate(steps))
            excess = self._excess(learner, feedback, chosen)
            belief = replace(belief, shift=belief.shift + _corrections(model, belief, effects, excess))
        recent = jnp.append(posterior.recent[1:], feedback.index) if self.window else posterior.recent
        shifted = tuple(_shifted(old, step) for old, step in zip(effects, steps, strict=True))
        return CensorPosterior(belief=model.refreshed(belief), recent=recent, effects=shifted, chosen=chosen)

    def predict(self, learner: DelayedSurrogate, posterior: CensorPosterior) -> Prediction:
        """Return mean and deviation under censored targets, with ``recent``: the deviations at the last ``w`` points, summed."""
        belief = super().predict(learner, posterior)
        size = learner.domain.size
        deviations = belief.sd[:, jnp.minimum(posterior.recent, size - 1)]
        return replace(belief, recent=jnp.sum(jnp.where(posterior.recent < size, deviations, 0), axis=1))

    def _open(self, learner: DelayedSurrogate) -> int:
        """Return how many of the last points can still get a value."""
        return min(self.window, learner.capacity - 1)

    def _effects(self, learner: DelayedSurrogate, group: int, step: Step, posterior: CensorPosterior) -> Array:
        """Return ``P_t phi_s / lambda`` of the open targets, the oldest first; entries without a point yet are never used."""
        points = jnp.minimum(posterior.recent[self.window - self._open(learner) :], learner.domain.size - 1)
        share = step.column[points] * (step.precision * (1 / learner.chosen.noise_at(group, points)))
        return posterior.effects[group] - share[:, None] * step.weights[None, :]

    def _excess(self, learner: DelayedSurrogate, feedback: Feedback, chosen: Array) -> Array:
        """Return how far the values that arrive lie above the minimum that stood for them, ``[n, k]`` over the open targets."""
        ages = jnp.arange(self._open(learner), 0, -1, dtype=jnp.int32)
        slots = jnp.argmax(feedback.ages[None] == ages[:, None], axis=1)
        present = feedback.present[slots] & (ages < chosen)[:, None]  # a restart forgets older points for good
        return jnp.where(present, feedback.values[slots] - self._minimum(learner, feedback)[None], 0)

    def _minimum(self, learner: DelayedSurrogate, feedback: Feedback) -> Array:
        return jnp.broadcast_to(jnp.asarray(self.minimum, feedback.values.dtype), (learner.outputs,))


def _corrections(model: Surrogate, belief: Posterior, effects: tuple[Array, ...], excess: Array) -> Array:
    """Return what the arrivals of a round add to the mean, ``[k, M]``."""
    moved = [jnp.matmul(excess[:, j], effects[g], precision="highest") for j, g in enumerate(model.groups)]
    return jnp.stack([model.forms[g].expand(belief.factors[g], moved[j]) for j, g in enumerate(model.groups)])


def _shifted(effects: Array, step: Step) -> Array:
    """Return the effects ``[n, r]`` of the last targets once the newest, ``u_t / s_t``, has come in and the oldest has gone."""
    return jnp.concatenate([effects[1:], (step.weights * step.precision)[None]]) if len(effects) else effects
