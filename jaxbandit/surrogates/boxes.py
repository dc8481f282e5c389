"""The model of a box: a posterior on a pool of candidates and of points of the trial's own, which can be read at any other point, too."""

from __future__ import annotations

from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.declare import Array, Key
from jaxbandit.core.pytree import pytree, replace
from jaxbandit.domains import Box
from jaxbandit.surrogates.features import prior_variance
from jaxbandit.surrogates.pool import added
from jaxbandit.surrogates.posterior import AbstractSurrogate, Belief, Posterior, Prediction, Surrogate, deviation

__all__ = ["BoxSurrogate", "Elsewhere"]


@pytree
class BoxSurrogate(Surrogate):
    """A GP model of reward and constraints on a :class:`~jaxbandit.domains.Box`; :func:`jaxbandit.surrogate` makes one of a box.

    Its posteriors are exact, or those of features that are computed at every point. They hold ``M = C + N`` points of the unit cube: the
    box's ``C`` candidates, and the ``N`` that a trial has chosen or is to choose. A simulation makes as much room as it needs, in steps of
    64 points.

    How much room there is changes no bit of what a trial chooses, but for these cases:

    - On CPUs jaxlib 0.10 leaves sums of more than some 4,000 numbers to a library (YNNPACK) that adds in another order: in six dimensions
      those of the first steps of ascents, where there is room for 128 points, and not where there is room for 64. With
      ``XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type=`` in the environment it does not, at the same speed.
    - A fit of :class:`~jaxbandit.Refitted` that is to look at more than 64 points looks at no more than there is room for.
    - Draws on fewer than 512 points, those of the trial included, are summed otherwise than on more.
    """

    @property
    def size(self) -> int:
        """Number of points ``M`` of a posterior."""
        return self.domain.size + self.room

    @property
    def room(self) -> int:
        """Number of points of its own, ``N``, that a trial has room for."""
        return int(self.forms[0].room)

    def with_room(self, room: int) -> BoxSurrogate:
        """Return the model with room for ``room`` points of a trial's own, and as many observations."""
        return replace(self, forms=tuple(replace(form, room=room) for form in self.forms))

    def largest_variances(self) -> list[float]:
        return [float(np.max(prior_variance(form.kernel, np.asarray(form.candidates)))) for form in self.forms]

    def holding(self, points: Array) -> tuple[BoxSurrogate, Posterior, Array]:
        """Return the model with room for ``points [n, d]``, in the units of the axes, its prior with them, and their indices ``[n]``."""
        model = self.with_room(points.shape[0])

        def place(posterior: Posterior, point: Array) -> tuple[Posterior, Array]:
            index, placed = model.place(posterior, point)
            return placed, index

        posterior, indices = jax.lax.scan(place, model.init(), cast(Box, self.domain).to_unit(jnp.asarray(points, self.dtype)))
        return model, posterior, indices

    def init(self) -> Posterior:
        base = super().init()
        variance = jnp.stack([form.spread(factor) for form, factor in zip(self.forms_in_force, base.factors, strict=True)])
        shift = jnp.zeros((self.outputs, self.size), self.dtype)
        return replace(base, shift=shift, variance=variance, weights=jnp.zeros((self.outputs, self.forms[0].rank), self.dtype))

    def predict_at(self, posterior: Posterior, points: Array) -> Prediction:
        parts = [form.weights_at(factor, points) for form, factor in zip(self.forms_in_force, posterior.factors, strict=True)]
        shifts, variances = self.moments(posterior, parts, points)
        mean = jnp.asarray(self.prior_mean, shifts.dtype)[:, None] + shifts
        return Prediction(mean=mean, sd=self._by_output(list(deviation(variances))), gain=posterior.gain[jnp.asarray(self.groups)])

    def moments(self, posterior: Posterior, parts: list[Array], points: Array) -> tuple[Array, Array]:
        """Return means ``[k, n]``, less the prior's, and variances ``[G, n]``, from ``v [n, r]`` of each group."""
        weights, shifts, variances = _known(posterior), dict[int, Array](), []
        for g, (form, v) in enumerate(zip(self.forms_in_force, parts, strict=True)):
            outputs = [j for j, group in enumerate(self.groups) if group == g]
            *sums, more = added(jnp.stack([*(weights[j][None] * v for j in outputs), form.terms(posterior.factors[g], v)]))
            shifts.update(zip(outputs, sums, strict=True))
            variances.append(form.variances_at(points) + more)
        return jnp.stack([shifts[j] for j in range(self.outputs)]), jnp.stack(variances)

    def draw_at(self, posterior: Posterior, key: Key, scale: Array, points: Array) -> Array:
        keys, forms, weights = jax.random.split(key, self.outputs), self.forms_in_force, _known(posterior)
        size = jnp.broadcast_to(jnp.asarray(scale, weights.dtype), (self.outputs,))
        drawn = [forms[g].draw_at(posterior.factors[g], keys[j], points, weights[j], size[j]) for j, g in enumerate(self.groups)]
        return jnp.asarray(self.prior_mean, weights.dtype)[:, None] + jnp.stack(drawn)

    def place(self, posterior: Posterior, point: Array) -> tuple[Array, Posterior]:
        placed = [form.place(factor, point) for form, factor in zip(self.forms_in_force, posterior.factors, strict=True)]
        index = placed[0][1]
        shifts, variances = self.moments(posterior, [v[None] for _, _, v in placed], point[None])
        return index, replace(
            posterior,
            factors=tuple(factor for factor, _, _ in placed),
            shift=posterior.shift.at[:, index].set(shifts[:, 0]),
            variance=posterior.variance.at[:, index].set(variances[:, 0]),
        )

    def pool(self, posterior: Posterior) -> Array:
        points: Array = posterior.factors[0].points
        return points


def _known(posterior: Posterior) -> Array:
    if posterior.weights is None:
        raise TypeError("a posterior of a box has weights")
    return posterior.weights


@pytree
class Elsewhere(AbstractSurrogate):
    """A model of a box as it is read at other points than its pool's: predictions and draws are those at ``points [n, d]``."""

    surrogate: AbstractSurrogate
    points: Array

    @property
    def model(self) -> Surrogate:
        return self.surrogate.model

    @property
    def domain(self) -> Box:
        """The box."""
        return cast(Box, self.surrogate.domain)

    @property
    def size(self) -> int:
        """Number of points ``n``."""
        return int(np.shape(self.points)[0])

    def predict(self, posterior: Belief) -> Prediction:
        return self.surrogate.predict_at(posterior, self.points)

    def draw(self, posterior: Belief, key: Key, scale: Array) -> Array:
        return self.surrogate.draw_at(posterior, key, scale, self.points)
