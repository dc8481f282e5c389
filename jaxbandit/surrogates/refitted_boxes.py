"""A model of a box that fits a length-scale for each axis, variance, noise variance and mean of each output to the data as they come in."""

from __future__ import annotations

import math
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.blocks import one_program
from jaxbandit.core.declare import Array, Key
from jaxbandit.core.pytree import pytree, replace
from jaxbandit.core.status import Status
from jaxbandit.domains import Domain
from jaxbandit.kernels import Kernel, Scale
from jaxbandit.surrogates.alike import of
from jaxbandit.surrogates.boxes import BoxSurrogate
from jaxbandit.surrogates.evidence.density import Collapsed
from jaxbandit.surrogates.evidence.fitting import AT_BOUND, Search, maximise, paths
from jaxbandit.surrogates.pool import Pool, PoolState, added
from jaxbandit.surrogates.posterior import Prediction
from jaxbandit.surrogates.ranges import length_scales, with_length_scale
from jaxbandit.surrogates.refitted import NOISE, VARIANCE, HyperParameters, Refits, RefittedPosterior

__all__ = ["RefittedBox"]

SHORTEST, LONGEST = 0.05, 100.0  # length-scales that fits may find, in sides of the box
SHORT = 0.3  # where a fit's second search starts
LEAST_NOISE = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-7}  # noise variance in units of the values' variance
ALIKE = 64  # observations that fits have slots for even where there is less room, so that room changes no bit
RESOLVED = 0.01  # nats that a search does not go on for
MEAN = 1.0  # prior variance of what an output is about, in units of the values' variance


@pytree
class BoxPosterior(RefittedPosterior):
    """Posterior of a :class:`RefittedBox`."""

    values: Array  # [k, N] as they were observed, in the order of the observations of each output
    prior_mean: Array  # [k] in force


@pytree
class RefittedBox(Refits):
    """A model of a box whose hyper-parameters are fitted anew from time to time; see :class:`jaxbandit.Refitted`.

    Each fit is one of values less their mean, in units of their standard deviation, with a constant of prior variance ``MEAN`` beside the
    kernel. Prior mean of the belief becomes what the fit expects of that constant, to which values count by what each tells: where an
    algorithm has chosen many points in one place they are one, and do not draw the mean elsewhere to what they have in common.

    Attributes:
      box: the model, with the hyper-parameters before the first fit and a factor for each output.
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
        base, variances = zip(*(_taken_apart(form.kernel) for form in model.forms), strict=True)
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
        numbers = given.length_scale, given.variance
        forms = [form.with_kernels(_kernel, *(of(x, form.groups) for x in numbers)) for form in self.box.forms_in_force]
        return replace(self.box, alike=tuple(forms), noise_variance=given.noise_variance, prior_mean=prior_mean)

    def observe(self, posterior: BoxPosterior, index: Array, values: Array, present: Array | None = None) -> BoxPosterior:
        observed = jnp.ones((self.outputs,), bool) if present is None else present
        counts, outputs = self._counts(posterior), jnp.arange(self.outputs, dtype=jnp.int32)
        kept = jnp.where(observed, values, posterior.values[outputs, counts])
        belief = self.in_force(posterior).observe(posterior.belief, index, values, present)
        return replace(posterior, belief=belief, values=posterior.values.at[outputs, counts].set(kept))

    def _counts(self, posterior: BoxPosterior) -> Array:
        """Return the numbers of observations ``[k]``."""
        return self.box.by_output([factor.count.reshape(-1) for factor in posterior.belief.factors])

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
        own_noise = jnp.asarray(self.box.noise_variance, self.dtype) / unit
        # The second search seldom finds more than the first once there are data: the first, second, fourth, eighth ... of equal times.
        number = posterior.rounds // (self.every or self.first)
        again = (number & (number - 1)) == 0
        start = self._with(replace(now, variance=now.variance / unit, noise_variance=now.noise_variance / unit), posterior.prior_mean)

        def fit(form: Pool, state: PoolState, values: Array, *noises: Array) -> tuple[HyperParameters, Array]:
            return self._fit(again, self._data(state, values), cast(Scale, form.kernel), *noises)

        given = standardised, jnp.asarray(start.noise_variance), own_noise
        found = [
            form.each(fit, factor, *(of(x, form.groups) for x in given), in_turn=True)
            for form, factor in zip(start.forms_in_force, factors, strict=True)
        ]
        best, at_bound = jax.tree.map(lambda *parts: self.box.by_output(parts), *found)
        best = replace(best, variance=best.variance * unit, noise_variance=best.noise_variance * unit)

        def conditioned(form: Pool, state: PoolState, noise: Array, values: Array, seen: Array, unit: Array) -> tuple[Any, ...]:
            anew, (white, one), gain = form.conditioned(state, noise, jnp.stack([values, seen]))
            # The constant c ~ N(0, s) beside K expects 1^T K^-1 y / (1^T K^-1 1 + 1 / s) (Rasmussen and Williams 2006, eq. 2.41).
            constant = jnp.sum(one * white) / (jnp.sum(one * one) + 1 / (MEAN * unit))
            weights = white - constant * one
            return anew, (weights, constant, gain, form.expand(anew, weights), form.spread(anew))

        own = best.noise_variance, centred, seen.astype(self.dtype), unit
        anew = [
            form.each(conditioned, factor, *(of(x, form.groups) for x in own), in_turn=True)
            for form, factor in zip(self._with(best, mean).forms_in_force, factors, strict=True)
        ]
        weights, constant, gain, shift, variance = (self.box.by_output(parts) for parts in zip(*(rest for _, rest in anew), strict=True))
        factors = tuple(state for state, _ in anew)
        belief = replace(posterior.belief, factors=factors, shift=shift, variance=variance, gain=gain, weights=weights)
        flags = posterior.flags | jnp.where(jnp.any(at_bound), int(Status.FIT_AT_BOUND), 0)
        return replace(posterior, belief=belief, hyper_parameters=best, prior_mean=mean + constant, flags=flags)

    def _data(self, state: PoolState, values: Array) -> Collapsed:
        """Return the observations of an output, with ``values [N]``; of more than a fit looks at, some evenly spaced in time."""
        slots = jnp.arange(min(self.points, max(self.box.room, ALIKE)), dtype=jnp.int32)
        which = jnp.where(state.count > len(slots), slots * state.count // len(slots), slots)
        counts = (which < state.count).astype(self.dtype)
        within, constant = jnp.zeros((1,), self.dtype), jnp.asarray(MEAN, self.dtype)
        return Collapsed(points=state.observed[which], counts=counts, means=values[which][None], within=within, constant=constant)

    def _fit(self, again: Array, data: Collapsed, kernel: Scale, noise_variance: Array, own_noise: Array) -> tuple[HyperParameters, Array]:
        """Return the hyper-parameters of maximum posterior of standardised values, and whether a length-scale is the least allowed."""
        scale = next(name for name in paths(kernel) if name.endswith("length_scale"))
        own_noise = jnp.maximum(own_noise, LEAST_NOISE[self.dtype])
        fitted = {scale: (SHORTEST, LONGEST), VARIANCE: (1 / self.span, self.span)}
        if self.fit_noise:
            fitted[NOISE] = jnp.maximum(own_noise / self.span, LEAST_NOISE[self.dtype]), own_noise * self.span
        # In units of the cube and of the values' variance; the noise is about what the model takes it for.
        extent, unit, noise = self.prior.extent, self.prior.scale, self.prior.noise_variance
        prior = replace(
            self.prior,
            extent=1.0 if extent is None else extent,
            scale=1.0 if unit is None else unit,
            noise_variance=None if noise is None else replace(noise, median=own_noise),
        )
        best = maximise(
            kernel,
            jnp.maximum(noise_variance, LEAST_NOISE[self.dtype]),
            data,
            prior=prior,
            fixed=tuple(name for name in (*paths(kernel), NOISE) if name not in fitted),
            bounds=fitted,
            search=Search(
                {scale: SHORT, VARIANCE: 1.0, NOISE: own_noise}, 1, self.steps, errors=False, tolerance=RESOLVED, again=again, informed=4
            ),
        )
        found = jnp.asarray(length_scales(best.kernel)[0])
        parameters = HyperParameters(
            length_scale=found, variance=jnp.asarray(best.kernel.variance), noise_variance=jnp.asarray(best.noise_variance)
        )
        return parameters, jnp.any(found <= SHORTEST * math.exp(AT_BOUND))

    def predict_at(self, posterior: BoxPosterior, points: Array) -> Prediction:
        return self.in_force(posterior).predict_at(posterior.belief, points)

    def draw_at(self, posterior: BoxPosterior, key: Key, scale: Array, points: Array) -> Array:
        return self.in_force(posterior).draw_at(posterior.belief, key, scale, points)

    def place(self, posterior: BoxPosterior, point: Array) -> tuple[Array, BoxPosterior]:
        index, belief = self.in_force(posterior).place(posterior.belief, point)
        return index, replace(posterior, belief=belief)

    def pool(self, posterior: BoxPosterior) -> Array:
        return self.box.pool(posterior.belief)


def _taken_apart(kernel: Kernel) -> tuple[Kernel, Any]:
    """Return the kernel inside a scaled one, and its variance or 1."""
    return (kernel.kernel, kernel.variance) if isinstance(kernel, Scale) else (kernel, 1.0)


def _kernel(kernel: Kernel, length_scale: Array, variance: Array) -> Scale:
    """Return a kernel with other hyper-parameters."""
    return Scale(kernel=with_length_scale(_taken_apart(kernel)[0], length_scale), variance=variance)
