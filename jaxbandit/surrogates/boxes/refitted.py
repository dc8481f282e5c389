"""Model of a box that refits each output's hyper-parameters between rounds."""

from __future__ import annotations

import math
from typing import Any, cast

import jax
import jax.numpy as jnp

from jaxbandit.core.blocks import one_program
from jaxbandit.core.declare import Array
from jaxbandit.core.pytree import pytree, replace
from jaxbandit.core.status import Status
from jaxbandit.domains import Domain
from jaxbandit.kernels import Kernel, Scale
from jaxbandit.kernels.base import unscaled
from jaxbandit.surrogates.boxes.pool import Pool, PoolState, added
from jaxbandit.surrogates.boxes.posterior import BoxSurrogate
from jaxbandit.surrogates.evidence.density import LEARNED, Collapsed
from jaxbandit.surrogates.evidence.fitting import SEARCHES
from jaxbandit.surrogates.evidence.ranges import length_scales, with_length_scale
from jaxbandit.surrogates.evidence.refitted import HyperParameters, Refits, RefittedPosterior, hyper_parameters_of
from jaxbandit.surrogates.groups import of


@pytree
class BoxPosterior(RefittedPosterior):
    """Posterior of a :class:`RefittedBox`."""

    # The observed values are in the order of the observations of each output.
    values: Array  # [k, N]


@pytree
class RefittedBox(Refits):
    """Model of a box that :class:`jaxbandit.Refitted` refits.

    Each fit is to values less their mean, in units of their standard deviation, with a constant of prior variance 1 beside the
    kernel. The prior mean of the belief becomes the expectation of the constant. Values have weight by their information: many points close
    to each other have the weight of one point, and do not move the mean elsewhere to their common value.

    Attributes:
      box: model with the hyper-parameters before the first fit, and with a factor for each output.
    """

    box: BoxSurrogate

    @property
    def model(self) -> BoxSurrogate:
        return self.box

    @property
    def domain(self) -> Domain:
        """The box."""
        return self.box.domain

    @property
    def size(self) -> int:
        return self.box.size

    def init(self) -> BoxPosterior:
        model = self.box
        base, variances = zip(*(unscaled(form.kernel) for form in model.forms), strict=True)
        scales = [jnp.broadcast_to(jnp.asarray(length_scales(kernel)[0], self.dtype), (self.domain.dimension,)) for kernel in base]
        parameters = HyperParameters(
            length_scale=jnp.stack(scales),
            variance=jnp.stack([jnp.asarray(variance, self.dtype) for variance in variances]),
            noise_variance=jnp.asarray(model.noise_variance, self.dtype),
        )
        return BoxPosterior(
            belief=model.init(),
            hyper_parameters=parameters,
            flags=jnp.int32(0),
            rounds=jnp.int32(0),
            values=jnp.zeros((self.outputs, model.room), self.dtype),
            prior_mean=jnp.asarray(model.prior_mean, self.dtype),
        )

    def in_force(self, posterior: BoxPosterior) -> BoxSurrogate:
        return self._with(posterior.hyper_parameters, posterior.prior_mean)

    def _with(self, given: HyperParameters, prior_mean: Array) -> BoxSurrogate:
        def kernel(own: Kernel, length_scale: Array, variance: Array) -> Scale:
            return Scale(kernel=with_length_scale(unscaled(own)[0], length_scale), variance=variance)

        numbers = given.length_scale, given.variance
        forms = [batch.with_kernels(kernel, *(of(x, batch.groups) for x in numbers)) for batch in self.box.grouped.batched()]
        return replace(self.box, alike=tuple(forms), noise_variance=given.noise_variance, prior_mean=prior_mean)

    def observe(self, posterior: BoxPosterior, index: Array, values: Array, present: Array | None = None) -> BoxPosterior:
        observed = jnp.ones((self.outputs,), bool) if present is None else present
        counts, outputs = self._counts(posterior), jnp.arange(self.outputs, dtype=jnp.int32)
        kept = jnp.where(observed, values, posterior.values[outputs, counts])
        belief = self.in_force(posterior).observe(posterior.belief, index, values, present)
        return replace(posterior, belief=belief, values=posterior.values.at[outputs, counts].set(kept))

    def _counts(self, posterior: BoxPosterior) -> Array:
        """Return the numbers of observations ``[k]``."""
        return self.box.grouped.by_output([factor.count.reshape(-1) for factor in posterior.belief.factors])

    @one_program
    def fitted(self, posterior: BoxPosterior) -> BoxPosterior:
        factors, now = posterior.belief.factors, posterior.hyper_parameters
        seen = jnp.arange(self.box.room, dtype=jnp.int32)[None] < self._counts(posterior)[:, None]  # [k, N]
        counts = jnp.maximum(jnp.sum(seen, axis=1, dtype=self.dtype), 1)
        mean = added(jnp.where(seen, posterior.values, 0)[None])[0] / counts
        centred = jnp.where(seen, posterior.values - mean[:, None], 0)
        variance = added(jnp.square(centred)[None])[0] / counts
        unit = jnp.where(variance > 0, variance, now.variance)  # [k]
        standardised = centred / jnp.sqrt(unit)[:, None]
        start = self._with(replace(now, variance=now.variance / unit, noise_variance=now.noise_variance / unit), posterior.prior_mean)

        def fit(form: Pool, state: PoolState, values: Array, noise_variance: Array) -> tuple[HyperParameters, Array]:
            return self._fit(self._data(state, values), cast(Scale, form.kernel), noise_variance)

        given = standardised, jnp.asarray(start.noise_variance)
        found = [
            batch.each(fit, factor, *(of(x, batch.groups) for x in given), in_turn=True) for batch, factor in start.grouped.pairs(factors)
        ]
        best, at_bound = jax.tree.map(lambda *parts: self.box.grouped.by_output(parts), *found)
        best = replace(best, variance=best.variance * unit, noise_variance=best.noise_variance * unit)

        def conditioned(form: Pool, state: PoolState, noise: Array, values: Array, seen: Array, unit: Array) -> tuple[Any, ...]:
            anew, (white, one), gain = form.conditioned(state, noise, jnp.stack([values, seen]))
            # The constant c ~ N(0, s) beside K has expectation 1^T K^-1 y / (1^T K^-1 1 + 1 / s) (Rasmussen and Williams 2006, eq. 2.41).
            constant = jnp.sum(one * white) / (jnp.sum(one * one) + 1 / (LEARNED.mean * unit))
            weights = white - constant * one
            return anew, (weights, constant, gain, form.expand(anew, weights), form.spread(anew))

        own = best.noise_variance, centred, seen.astype(self.dtype), unit
        anew = [
            batch.each(conditioned, factor, *(of(x, batch.groups) for x in own), in_turn=True)
            for batch, factor in self._with(best, mean).grouped.pairs(factors)
        ]
        weights, constant, gain, shift, variance = (
            self.box.grouped.by_output(parts) for parts in zip(*(rest for _, rest in anew), strict=True)
        )
        factors = tuple(state for state, _ in anew)
        belief = replace(posterior.belief, factors=factors, shift=shift, variance=variance, gain=gain, weights=weights)
        flags = posterior.flags | jnp.where(jnp.any(at_bound), int(Status.FIT_AT_BOUND), 0)
        return replace(posterior, belief=belief, hyper_parameters=best, prior_mean=mean + constant, flags=flags)

    def _data(self, state: PoolState, values: Array) -> Collapsed:
        """Return the observations of an output with ``values [N]``, thinned evenly."""
        # A fit has at least 64 slots even if there is less room, so that room changes no bit.
        slots = jnp.arange(min(self.points, max(self.box.room, 64)), dtype=jnp.int32)
        which = jnp.where(state.count > len(slots), slots * state.count // len(slots), slots)
        counts = (which < state.count).astype(self.dtype)
        within, constant = jnp.zeros((1,), self.dtype), jnp.asarray(LEARNED.mean, self.dtype)
        return Collapsed(points=state.observed[which], counts=counts, means=values[which][None], within=within, constant=constant)

    def _fit(self, data: Collapsed, kernel: Scale, noise_variance: Array) -> tuple[HyperParameters, Array]:
        """Fit standardised values, and return also whether a length-scale is the least."""
        found = hyper_parameters_of(self.best(kernel, noise_variance, data, 1.0, {}))
        return found, jnp.any(found.length_scale <= LEARNED.sides[0] * math.exp(SEARCHES.at_bound))

    def place(self, posterior: BoxPosterior, point: Array) -> tuple[Array, BoxPosterior]:
        """Return the index of ``point [d]``, and the posterior with it."""
        index, belief = self.in_force(posterior).place(posterior.belief, point)
        return index, replace(posterior, belief=belief)
