"""The learner that censors: all points chosen, with the least possible value in place of what has not arrived."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.feedback.buffer import Feedback
from jaxbandit.feedback.learner import Learner, fold, fresh, taken
from jaxbandit.surrogates import Posterior, Prediction

Array = jax.Array


@pytree
class CensoringPosterior:
    """The belief under censored targets, and the last points chosen."""

    belief: Posterior
    recent: Array  # [m] int32, the points chosen in the last m rounds, M where there is none yet
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

    ``mu`` is linear in the targets, so a value that arrives adds ``W W^T phi (y - minimum) / lambda`` to its weights: all arrivals of
    a round together cost two products with ``W`` and one function on the grid.
    """

    window: int = static(default=30)
    minimum: Any = 0.0

    def init(self) -> CensoringPosterior:
        """The prior."""
        recent = jnp.full((self.window,), self.domain.size, jnp.int32)
        return CensoringPosterior(belief=self.surrogate.init(), recent=recent, chosen=jnp.int32(0))

    def condition(self, posterior: CensoringPosterior, index: Array, values: Array) -> CensoringPosterior:
        """Take in values that are there at once, as those of an initial design."""
        return replace(posterior, belief=self.surrogate.condition(posterior.belief, index, values))

    def learn(self, posterior: CensoringPosterior, feedback: Feedback) -> CensoringPosterior:
        """Take in the point chosen, and what arrives in its round."""
        chosen = posterior.chosen + 1
        target = jnp.where(feedback.own_present, feedback.own_values, self._minimum(feedback.values.dtype))
        belief = self.surrogate.condition(posterior.belief, feedback.index, target)
        late = (feedback.ages >= 1) & (feedback.ages <= self.window) & fresh(feedback, chosen)
        belief = replace(belief, mean=self._corrected(belief, feedback, feedback.present & late[:, None]))
        recent = jnp.append(posterior.recent[1:], feedback.index) if self.window else posterior.recent
        return CensoringPosterior(belief=belief, recent=recent, chosen=chosen)

    def _corrected(self, belief: Posterior, feedback: Feedback, mask: Array) -> Array:
        """The mean ``[k, M]`` once the values in ``mask`` have taken the place of the minimum."""
        model, minimum = self.surrogate, self._minimum(belief.mean.dtype)
        rows = [model.forms[g].row(belief.factors[g], feedback.index) for g in model.groups]

        def step(sums: tuple[Array, ...], slots: Array, here: Array) -> tuple[Array, ...]:
            points, values = taken(feedback, slots)
            excess = jnp.where(here, values - minimum, 0)
            return tuple(
                total + excess[j] * model.forms[g].row(belief.factors[g], points[j])
                for j, (total, g) in enumerate(zip(sums, model.groups, strict=True))
            )

        sums = fold(self, step, tuple(jnp.zeros_like(row) for row in rows), mask)
        moved = []
        for total, g in zip(sums, model.groups, strict=True):
            form, factor = model.forms[g], belief.factors[g]
            moved.append(form.expand(factor, form.apply(factor, total) * (1 / model.noise_variance[g])))
        return belief.mean + jnp.stack(moved)

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
