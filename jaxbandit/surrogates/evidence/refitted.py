"""GP model that refits its hyper-parameters by maximum posterior between rounds.

The fits are part of the compiled program. The data are counts, means and spreads at the points of the domain. When the hyper-parameters
change, the program computes the features anew and conditions the posterior on every visited point once.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.blocks import one_program
from jaxbandit.core.declare import Array, Scalar, Table, checked
from jaxbandit.core.fields import Described
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.core.status import Status
from jaxbandit.domains import Domain
from jaxbandit.kernels import Scale
from jaxbandit.surrogates.evidence.density import LEARNED, NOISE, Collapsed, Prior, learned
from jaxbandit.surrogates.evidence.fitting import Bounds, Fit, Search, maximise, paths
from jaxbandit.surrogates.evidence.ranges import NystroemFeatures, RangedSurrogate, length_scales, with_length_scale
from jaxbandit.surrogates.posterior import AbstractSurrogate, Belief, Posterior, Surrogate
from jaxbandit.surrogates.precision import in_step

P = TypeVar("P", bound="RefittedPosterior")


@pytree
class HyperParameters:
    """Hyper-parameters of ``G`` groups, with one length-scale or one per axis."""

    length_scale: Array  # [G, d] or [G, 1]
    variance: Array  # [G]
    noise_variance: Array  # [G]


@pytree
class DataSummary:
    """Counts, means and spreads of all values, 0 at unvisited points."""

    counts: Array  # [G, M]
    means: Array  # [k, M] less the prior mean
    within: Array  # [k, M] squared deviations, summed

    def add(self, groups: Sequence[int], points: Array, values: Array, observed: Array) -> DataSummary:
        """Add ``values [k]``, less the prior mean, where ``observed``, by Welford's recursion."""
        # The first output of a group represents the group.
        outputs, first = np.arange(len(groups)), np.asarray([groups.index(g) for g in range(max(groups) + 1)])
        counts = self.counts.at[np.arange(len(first)), points[first]].add(observed[first].astype(self.counts.dtype))
        away = jnp.where(observed, values - self.means[outputs, points], 0)
        moved = away / jnp.maximum(counts[np.asarray(groups), points], 1)
        means = self.means.at[outputs, points].add(moved)
        return DataSummary(counts=counts, means=means, within=self.within.at[outputs, points].add(away * (away - moved)))


@pytree
class RefittedPosterior(Described):
    """Belief under fitted hyper-parameters.

    The number of ``rounds``, points of the initial design included, is the same for every trial of a batch.
    """

    described: ClassVar[str] = Posterior.described
    belief: Posterior
    hyper_parameters: HyperParameters
    prior_mean: Array  # [k]
    flags: Array  # [] int32 bits of Status
    rounds: Array  # [] int32

    @property
    def gain(self) -> Array:
        """Information gain ``[G]`` of the data under the fitted hyper-parameters."""
        return self.belief.gain


@pytree
class RangedPosterior(RefittedPosterior):
    """Posterior of a :class:`RefittedSurrogate`."""

    seen: DataSummary
    # Each group has features [n_a, q_a] on each axis, and prior variances [M].
    features: tuple[tuple[tuple[Table, ...], Table], ...]


@pytree
class Refits(AbstractSurrogate):
    """Abstract model that refits length-scale, variance and noise variance.

    Attributes:
      prior, span, every, first, points, steps, fit_noise: fields of :class:`jaxbandit.Refitted`.
      fits: whether fits follow rounds; without fits a program that only conditions on data is smaller.
    """

    prior: Prior
    span: Scalar
    every: int | None = static()
    first: int = static()
    points: int = static()
    steps: int = static()
    fit_noise: bool = static()
    fits: bool = static(default=True)

    @abc.abstractmethod
    def in_force(self, posterior: Any) -> Surrogate:
        """Return the model with the hyper-parameters of the posterior."""

    @abc.abstractmethod
    def observe(self, posterior: Any, index: Array, values: Array, present: Array | None = None) -> Any:
        """Condition without :meth:`refreshed`, to be called after the round's last value."""

    @abc.abstractmethod
    def fitted(self, posterior: Any) -> Any:
        """Fit the hyper-parameters to all values, and condition anew."""

    def condition(self, posterior: P, index: Array, values: Array, present: Array | None = None) -> P:
        after: P = self.observe(posterior, index, values, present)
        return self.refreshed(after)

    def refreshed(self, posterior: P) -> P:
        """Return the posterior after a round, refitted if a fit is due."""
        belief = self.in_force(posterior).refreshed(posterior.belief)
        posterior = replace(posterior, belief=belief, rounds=posterior.rounds + 1)
        if not self.fits:
            return posterior
        # The number of rounds is the same in all trials, so that this stays a branch.
        return jax.lax.cond(self._is_due(in_step(posterior.rounds)), self.fitted, lambda same: same, posterior)

    def best(self, kernel: Scale, noise_variance: Array, data: Collapsed, extent: Array | float, bounds: Bounds) -> Fit[Scale]:
        """Fit standardised values in the ranges of :func:`learned` and ``bounds``."""
        # The arithmetic resolves no smaller noise variance of standardised values.
        resolved = {np.dtype(np.float32): 1e-3, np.dtype(np.float64): 0.0}[self.dtype]
        names = [*paths(kernel), NOISE]
        own = 1.0 if self.prior.scale is None else self.prior.scale
        prior = replace(self.prior, extent=extent if self.prior.extent is None else self.prior.extent, scale=own)
        ranges, starts = learned(names, jnp.exp(jnp.mean(jnp.log(jnp.asarray(extent, self.dtype)))))
        least = max(ranges[NOISE][0], resolved)
        ranges |= {"variance": (1 / self.span, self.span), NOISE: (least, ranges[NOISE][1]), **bounds}
        if self.fit_noise:
            noise_variance = jnp.maximum(noise_variance, least)
        else:
            del ranges[NOISE]
        # The search ends if its next step promises less than 1e-3 nats, and computes information anew after 4 steps.
        search = Search(starts, 1, self.steps, errors=False, tolerance=1e-3, informed=4)
        fixed = tuple(name for name in names if name not in ranges)
        return maximise(kernel, noise_variance, data, prior=prior, fixed=fixed, bounds=ranges, search=search)

    def _is_due(self, rounds: Array) -> Array:
        if self.every is not None:
            return (rounds >= self.first) & (rounds % self.every == 0)
        times = rounds // self.first
        return (rounds % self.first == 0) & (times > 0) & ((times & (times - 1)) == 0)

    def belief(self, posterior: RefittedPosterior) -> Belief:
        return self.in_force(posterior).belief(posterior.belief)


@pytree
class RefittedSurrogate(Refits):
    """Model of :func:`jaxbandit.ranged` that :class:`jaxbandit.Refitted` refits.

    Attributes:
      ranged: model with the hyper-parameters before the first fit; each group of outputs has its own fit.
    """

    ranged: RangedSurrogate

    @property
    def model(self) -> Surrogate:
        return self.ranged

    @property
    def domain(self) -> Domain:
        return self.ranged.domain

    def init(self) -> RangedPosterior:
        model, size, groups = self.ranged, self.domain.size, len(self.ranged.forms)
        scale = jnp.asarray(model.length_scale, self.dtype)
        counts, means, within = (jnp.zeros((count, size), self.dtype) for count in (groups, self.outputs, self.outputs))
        parameters = HyperParameters(
            length_scale=jnp.broadcast_to(scale, (groups, 1 if scale.ndim == 0 else self.domain.dimension)),
            variance=jnp.asarray(model.variance, self.dtype),
            noise_variance=jnp.asarray(model.noise_variance, self.dtype),
        )
        return RangedPosterior(
            belief=model.init(),
            seen=DataSummary(counts=counts, means=means, within=within),
            hyper_parameters=parameters,
            prior_mean=self._own_mean(),
            features=tuple((form.axes, form.prior_variance) for form in model.forms),
            flags=jnp.int32(0),
            rounds=jnp.int32(0),
        )

    def observe(self, posterior: RangedPosterior, index: Array, values: Array, present: Array | None = None) -> RangedPosterior:
        observed = jnp.ones((self.outputs,), bool) if present is None else present
        belief = self.in_force(posterior).observe(posterior.belief, index, values, present)
        values = values - self._own_mean()
        seen = posterior.seen.add(self.ranged.groups, jnp.broadcast_to(index, (self.outputs,)), values, observed)
        return replace(posterior, belief=belief, seen=seen)

    def _own_mean(self) -> Array:
        """Return the prior means ``[k]`` before the first fit."""
        return jnp.broadcast_to(jnp.asarray(self.ranged.prior_mean, self.dtype), (self.outputs,))

    @one_program
    def fitted(self, posterior: RangedPosterior) -> RangedPosterior:
        standards = [self._standard(posterior, group) for group in range(len(self.ranged.forms))]
        (best, at_bound), seen = self._fits(posterior, standards), posterior.seen
        unit = jnp.stack([own.unit for own in standards])
        best = replace(best, variance=best.variance * unit, noise_variance=best.noise_variance * unit)
        model = replace(
            self.ranged,
            length_scale=jnp.broadcast_to(best.length_scale, (len(self.ranged.forms), self.domain.dimension)),
            variance=best.variance,
            noise_variance=best.noise_variance,
        ).factorised()
        # The posterior is conditioned on each visited point once, because c values under noise variance lam equal their mean under lam / c.
        roots, variances, gains = [], [], []
        shifts: dict[int, Array] = {}
        means: dict[int, Array] = {}
        for group, (form, own) in enumerate(zip(model.forms, standards, strict=True)):
            root, weights, constants, gain = _conditioned(form, best.noise_variance[group], seen.counts[group], own.centred, own.unit)
            roots.append(root)
            variances.append(form.spread(root))
            gains.append(gain)
            shifts |= {int(j): form.expand(root, weights[place]) for place, j in enumerate(own.members)}
            means |= {int(j): own.mean[place] + constants[place] for place, j in enumerate(own.members)}
        shift, mean = (jnp.stack([parts[j] for j in range(model.outputs)]) for parts in (shifts, means))
        return replace(
            posterior,
            belief=replace(posterior.belief, factors=tuple(roots), shift=shift, variance=jnp.stack(variances), gain=jnp.stack(gains)),
            hyper_parameters=best,
            prior_mean=self._own_mean() + mean,
            flags=posterior.flags | jnp.where(jnp.any(at_bound), int(Status.FIT_AT_BOUND), 0),
            features=tuple((form.axes, form.prior_variance) for form in model.forms),
        )

    @checked
    def in_force(self, posterior: RangedPosterior) -> RangedSurrogate:
        given = zip(self.ranged.forms, posterior.features, strict=True)
        forms = tuple(replace(form, axes=axes, prior_variance=variance) for form, (axes, variance) in given)
        return replace(self.ranged, forms=forms, noise_variance=posterior.hyper_parameters.noise_variance, prior_mean=posterior.prior_mean)

    def _standard(self, posterior: RangedPosterior, group: int) -> _Standard:
        members, seen = np.flatnonzero(np.asarray(self.ranged.groups) == group), posterior.seen
        counts, means = seen.counts[group], seen.means[members]
        number = jnp.maximum(jnp.sum(counts), 1)
        mean = jnp.sum(counts[None] * means, axis=1) / number
        centred = jnp.where(counts[None] > 0, means - mean[:, None], 0)
        squares = jnp.sum(counts[None] * jnp.square(centred)) + jnp.sum(seen.within[members])
        unit = jnp.where(squares > 0, squares / (number * len(members)), posterior.hyper_parameters.variance[group])
        return _Standard(members=members, mean=mean, centred=centred, unit=unit)

    def _fits(self, posterior: RangedPosterior, standards: Sequence[_Standard]) -> tuple[HyperParameters, Array]:
        """Fit every group of outputs, and return also flags ``[G]`` of bounds."""
        # One program fits the groups that differ in numbers only, side by side.
        batches: dict[object, list[int]] = {}
        for group, form in enumerate(self.ranged.forms):
            batches.setdefault((jax.tree.structure(form.kernel), len(standards[group].members)), []).append(group)
        fits: dict[int, tuple[HyperParameters, Array]] = {}
        for groups in batches.values():
            given = [self._start(posterior, group, standards[group]) for group in groups]
            together = jax.vmap(self._fit)(*jax.tree.map(lambda *parts: jnp.stack(parts), *given))
            fits |= {group: jax.tree.map(lambda x, place=place: x[place], together) for place, group in enumerate(groups)}
        return jax.tree.map(lambda *parts: jnp.stack(parts), *(fits[group] for group in range(len(fits))))

    def _start(self, posterior: RangedPosterior, group: int, own: _Standard) -> tuple[Collapsed, Scale, Array]:
        model, seen, now = self.ranged, posterior.seen, posterior.hyper_parameters
        _, chosen = jax.lax.top_k(seen.counts[group], min(self.points, self.domain.size))
        data = Collapsed(
            points=jnp.asarray(self.domain.points, self.dtype)[chosen],
            counts=seen.counts[group][chosen],
            means=own.centred[:, chosen] / jnp.sqrt(own.unit),
            within=jnp.sum(seen.within[own.members][:, chosen], axis=1) / own.unit,
            constant=jnp.asarray(LEARNED.mean, self.dtype),
        )
        scale = now.length_scale[group]
        kernel = with_length_scale(model.forms[group].kernel, scale[0] if len(scale) == 1 else scale)
        return data, Scale(kernel=kernel, variance=now.variance[group] / own.unit), now.noise_variance[group] / own.unit

    def _fit(self, data: Collapsed, kernel: Scale, noise_variance: Array) -> tuple[HyperParameters, Array]:
        """Fit standardised values, and return also whether a range's end is reached."""
        low, high = jnp.asarray(self.ranged.low, self.dtype), jnp.asarray(self.ranged.high, self.dtype)
        # A length-scale of all axes stays within the ranges of all axes.
        if np.ndim(length_scales(kernel)[0]) == 0:
            low, high = jnp.max(low), jnp.min(high)
        scale = next(name for name in paths(kernel) if name.endswith("length_scale"))
        sides = jnp.stack([jnp.asarray(axis[-1] - axis[0], self.dtype) for axis in self.domain.axes])
        best = self.best(kernel, noise_variance, data, jnp.where(sides > 0, sides, 1), {scale: (low, high)})
        # Values without noise have the least noise variance, so that this is no bound.
        at_bound = jnp.stack([jnp.any(at) for name, at in best.at_bound.items() if name != NOISE])
        return hyper_parameters_of(best), jnp.any(at_bound)


class _Standard(NamedTuple):
    """Units that standardise the values of a group of ``j`` outputs."""

    members: np.ndarray  # [j] numbers of outputs
    mean: Array  # [j] less the prior mean
    centred: Array  # [j, M] 0 at unvisited points
    unit: Array  # [] variance of the values


def hyper_parameters_of(best: Fit[Scale]) -> HyperParameters:
    """Return the hyper-parameters of a fit."""
    return HyperParameters(
        length_scale=jnp.atleast_1d(jnp.asarray(length_scales(best.kernel)[0])),
        variance=jnp.asarray(best.kernel.variance),
        noise_variance=jnp.asarray(best.noise_variance),
    )


def _conditioned(form: NystroemFeatures, noise: Array, counts: Array, means: Array, unit: Array) -> tuple[Array, Array, Array, Array]:
    """Condition a form on ``means [j, M]`` of ``counts [M]`` values.

    Returns the factor, weights ``[j, r]``, constants ``[j]`` and information gain ``[]``. The constant ``c ~ N(0, v unit)`` beside the
    kernel has the expectation ``1^T V^-1 y / (1^T V^-1 1 + 1 / (v unit))`` (Rasmussen and Williams 2006, eq. 2.41), where ``v`` is the
    ``mean`` of ``LEARNED``, and the weights explain the values less the constant.
    """
    # Visited points come first.
    order = jnp.argsort(-counts)
    together = jnp.concatenate([means, jnp.ones_like(means[:1])])

    def one(number: Array, carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        root, weights, products, gain = carry
        index = order[number]
        count = counts[index]
        own = noise / jnp.maximum(count, 1)
        root, phi, u, s = form.absorb(root, index, own, count > 0)
        away = together[:, index] - jnp.sum(weights * phi[None], axis=1)
        products += jnp.where(count > 0, away * away[-1] / s, 0)
        return root, weights + u[None] * (away / s)[:, None], products, gain + jnp.where(count > 0, 0.5 * jnp.log(s / own), 0)

    nothing = jnp.zeros((len(together), form.rank), counts.dtype), jnp.zeros((len(together),), counts.dtype), jnp.zeros((), counts.dtype)
    # This is the largest number of any trial, so that the loop has one end for all trials.
    visited = in_step(jnp.sum(counts > 0, dtype=jnp.int32))
    root, weights, products, gain = jax.lax.fori_loop(0, visited, one, (form.init(), *nothing))
    constants = products[:-1] / (products[-1] + 1 / (LEARNED.mean * unit))
    return root, weights[:-1] - constants[:, None] * weights[-1:], constants, gain
