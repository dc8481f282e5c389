"""The learner that censors: all points chosen, with the least possible value in place of what has not arrived."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.feedback.buffer import Feedback
from jaxbandit.feedback.learner import Learner
from jaxbandit.surrogates import Posterior, Prediction, Step

Array = jax.Array


@pytree
class CensoringPosterior:
    """The belief under censored targets, and the last points chosen, the oldest first."""

    belief: Posterior
    recent: Array  # [m] int32, the points chosen in the last m rounds, M where there is none yet
    effects: tuple[Array, ...]  # [n, r] per group: what 1 more in the target of each of the last n <= m points adds to the weights
    chosen: Array  # [] int32

    @property
    def mean(self) -> Array:
        """``[k, M]``, under censored targets."""
        return self.belief.mean

    @property
    def gain(self) -> Array:
        """``[G]`` information of all points chosen."""
        return self.belief.gain


@pytree
class Censoring(Learner):
    r"""See :class:`~jaxbandit.feedback.Censor`.

    .. math::
        \mu_t(x) = k_t(x)^T (K_t + \lambda I)^{-1} \tilde y_{1:t}, \qquad
        \tilde y_s = y_s \text{ if it arrived within } m \text{ rounds, else the minimum}

    ``mu`` is linear in the targets, so a value that arrives adds ``(y - minimum)`` times ``P_t phi_s / lambda`` to its weights, ``P_t``
    their covariance. These effects of the targets still open are kept: ``P_t phi_s = P_{t-1} phi_s - u_t c_t(x_s) / s_t``, and
    ``P_t phi_t = u_t lambda / s_t``. A round costs the same however many values arrive.
    """

    window: int = static(default=30)
    capacity: int = static(default=31)
    minimum: Any = 0.0

    def init(self) -> CensoringPosterior:
        """The prior."""
        belief = self.surrogate.init()
        recent = jnp.full((self.window,), self.domain.size, jnp.int32)
        effects = tuple(jnp.zeros((self._open, form.rank), belief.mean.dtype) for form in self.forms)
        return CensoringPosterior(belief=belief, recent=recent, effects=effects, chosen=jnp.int32(0))

    @property
    def _open(self) -> int:
        """How many of the last points can still get a value."""
        return min(self.window, self.capacity - 1)

    def condition(self, posterior: CensoringPosterior, index: Array, values: Array) -> CensoringPosterior:
        """Take in values that are there at once, as those of an initial design."""
        return replace(posterior, belief=self.surrogate.condition(posterior.belief, index, values))

    def learn(self, posterior: CensoringPosterior, feedback: Feedback) -> CensoringPosterior:
        """Take in the point chosen, and what arrives in its round."""
        chosen = posterior.chosen + 1
        target = jnp.where(feedback.own_present, feedback.own_values, self._minimum(feedback.values.dtype))
        belief, steps = self.surrogate.absorb(posterior.belief, feedback.index)
        belief, effects = self.surrogate.moved(belief, steps, feedback.index, target), posterior.effects
        if self._open:
            effects = tuple(self._effects(g, step, posterior) for g, step in enumerate(steps))
            belief = replace(belief, mean=belief.mean + self._corrections(belief, effects, self._excess(feedback, chosen)))
        recent = jnp.append(posterior.recent[1:], feedback.index) if self.window else posterior.recent
        shifted = tuple(_shifted(old, step) for old, step in zip(effects, steps, strict=True))
        return CensoringPosterior(belief=belief, recent=recent, effects=shifted, chosen=chosen)

    def _effects(self, group: int, step: Step, posterior: CensoringPosterior) -> Array:
        """``P_t phi_s / lambda`` of the open targets, the oldest first; what stands where there is no point yet is never used."""
        points = jnp.minimum(posterior.recent[self.window - self._open :], self.domain.size - 1)
        share = step.column[points] * (step.precision * (1 / self.noise_variance[group]))
        return posterior.effects[group] - share[:, None] * step.weights[None, :]

    def _excess(self, feedback: Feedback, chosen: Array) -> Array:
        """What arrives for each open target above the minimum that stood for it, ``[n, k]``."""
        ages = jnp.arange(self._open, 0, -1, dtype=jnp.int32)
        slots = jnp.argmax(feedback.ages[None] == ages[:, None], axis=1)
        here = feedback.present[slots] & (ages < chosen)[:, None]  # a restart forgets older points for good
        return jnp.where(here, feedback.values[slots] - self._minimum(feedback.values.dtype)[None], 0)

    def _corrections(self, belief: Posterior, effects: tuple[Array, ...], excess: Array) -> Array:
        """What the arrivals of a round add to the mean, ``[k, M]``."""
        model, parts = self.surrogate, []
        for j, g in enumerate(model.groups):
            parts.append(model.forms[g].expand(belief.factors[g], jnp.matmul(excess[:, j], effects[g], precision="highest")))
        return jnp.stack(parts)

    def _minimum(self, dtype: Any) -> Array:
        return jnp.broadcast_to(jnp.asarray(self.minimum, dtype), (self.outputs,))

    def predict(self, posterior: CensoringPosterior) -> Prediction:
        """As :meth:`Surrogate.predict <jaxbandit.Surrogate.predict>`, with ``recent``: the deviations at the last ``m`` points, summed."""
        belief = self.surrogate.predict(posterior.belief)
        there = posterior.recent < self.domain.size
        deviations = belief.sd[:, jnp.minimum(posterior.recent, self.domain.size - 1)]
        return replace(belief, recent=jnp.sum(jnp.where(there, deviations, 0), axis=1))

    def draw(self, posterior: CensoringPosterior, key: Array, scale: Array) -> Array:
        """As :meth:`Surrogate.draw <jaxbandit.Surrogate.draw>`, under censored targets."""
        return self.surrogate.draw(posterior.belief, key, scale)

    def covariance(self, posterior: CensoringPosterior, output: int, indices: Array) -> Array:
        """As :meth:`Surrogate.covariance <jaxbandit.Surrogate.covariance>`, of all points chosen."""
        return self.surrogate.covariance(posterior.belief, output, indices)

    def arrived(self, posterior: CensoringPosterior) -> Prediction:
        """What :meth:`predict` gives."""
        return self.predict(posterior)


def _shifted(effects: Array, step: Step) -> Array:
    """The effects ``[n, r]`` of the last targets once the newest, ``u_t / s_t``, has come in and the oldest has gone."""
    return jnp.concatenate([effects[1:], (step.weights * step.precision)[None]]) if len(effects) else effects
