"""Model of a box, with posteriors at any of its points."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.blocks import one_program
from jaxbandit.core.declare import Array, Key, checked
from jaxbandit.core.fields import each_axis, numbers, table_of_points
from jaxbandit.core.pytree import pytree, replace
from jaxbandit.domains import Box
from jaxbandit.surrogates.boxes.pool import Pool, PoolState, added, insert_column, with_next
from jaxbandit.surrogates.features import prior_variance
from jaxbandit.surrogates.groups import FormBatch, Grouped, in_order, of
from jaxbandit.surrogates.posterior import (
    AbstractSurrogate,
    AnyPosterior,
    Belief,
    Posterior,
    Prediction,
    Surrogate,
    deviation,
)
from jaxbandit.surrogates.precision import require

At: TypeAlias = Annotated[Array, numbers, table_of_points]
"""Points ``[n, d]``."""


@pytree
class BoxSurrogate(Surrogate):
    """Gaussian-process model on a :class:`~jaxbandit.domains.Box`.

    :func:`jaxbandit.surrogate` makes this model for a box. Its posteriors are exact, or use features that any point has. They store
    ``M = C + N`` points of the unit cube: the ``C`` candidates of the box, and room for ``N`` points that a trial chooses. A simulation
    makes as much room as it needs, in steps of 64 points. Groups of outputs whose forms differ in numbers only are computed side by side.

    The amount of room changes no bit of a trial's choices, except in these cases:

    - On CPUs jaxlib 0.10 leaves sums of more than some 4,000 numbers to a library (YNNPACK) that adds in another order. In six dimensions
      the sums of the first steps of ascents are so large with room for 128 points, and not with room for 64. With
      ``XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type=`` in the environment jaxlib keeps the order, at the same speed.
    - A fit of :class:`~jaxbandit.Refitted` that may use more than 64 points uses no more points than there is room for.
    - Draws on fewer than 512 points, the trial's points included, are summed in another order than draws on more points.

    Attributes:
      alike: forms with fitted hyper-parameters; empty if ``forms`` have the hyper-parameters.
    """

    alike: tuple[FormBatch, ...] = dataclasses.field(default=(), repr=False)

    @property
    def size(self) -> int:
        """Number of points ``M`` of a posterior."""
        return self.domain.size + self.room

    @property
    def room(self) -> int:
        """Number of points ``N`` that a trial can add."""
        return int(self.forms[0].room)

    def with_room(self, room: int) -> BoxSurrogate:
        """Return the model with room for ``room`` points and observations."""
        return replace(self, forms=tuple(replace(form, room=room) for form in self.forms))

    def largest_variances(self) -> list[float]:
        return [float(np.max(prior_variance(form.kernel, np.asarray(form.candidates)))) for form in self.forms]

    @checked
    def holding(self, points: At) -> tuple[BoxSurrogate, Posterior, Array]:
        """Return a model with room for ``points``, its prior, and their indices.

        The points ``[n, d]`` are in the units of the axes, and the prior includes them, with indices ``[n]``.
        """
        model = self.with_room(np.shape(points)[0])

        def place(posterior: Posterior, point: Array) -> tuple[Posterior, Array]:
            index, placed = model.place(posterior, point)
            return placed, index

        posterior, indices = jax.lax.scan(place, model.init(), cast(Box, self.domain).to_unit(jnp.asarray(points, self.dtype)))
        return model, posterior, indices

    @property
    def is_exact(self) -> bool:
        """Return whether the posteriors are exact, without features."""
        return all(isinstance(form, Pool) for form in self.forms)

    @property
    def grouped(self) -> Grouped:
        numbers = tuple(batch.groups for batch in self.alike)
        return Grouped(self.groups, numbers, lambda: self.alike) if self.alike else super().grouped

    @one_program
    def init(self) -> Posterior:
        require(self.precision)
        factors = tuple(batch.init() for batch in self.grouped.batched())
        return Posterior(
            factors=factors,
            shift=jnp.zeros((self.outputs, self.size), self.dtype),
            variance=self.grouped.spread(factors),
            gain=jnp.zeros((len(self.forms),), self.dtype),
            rounds=jnp.int32(0) if self.refresh else None,
            weights=jnp.zeros((self.outputs, self.forms[0].rank), self.dtype),
        )

    def conditioned(self, indices: Array, places: Array, values: Array, count: Array) -> Posterior:
        """Return the posterior of ``in_turn``, up to rounding."""
        if not self.is_exact:
            return in_turn(self, indices, places, values, count)
        first, is_row = self.init(), jnp.arange(len(indices), dtype=jnp.int32) < count
        at, placed = jnp.where(is_row, indices, self.size), indices[count - 1] - self.domain.size + 1
        seen = (is_row[:, None] & ~jnp.isnan(values)).T
        target = jnp.where(seen, values.T - jnp.asarray(self.prior_mean, values.dtype)[:, None], 0)

        def of_group(form: Pool, state: PoolState, noise: Array, seen: Array, target: Array) -> tuple[PoolState, tuple[Array, ...]]:
            # Values that are not missing come first, in their order.
            slots, total = jnp.arange(form.room, dtype=jnp.int32), jnp.sum(seen, dtype=jnp.int32)
            order = jnp.argsort(~seen, stable=True)[jnp.minimum(slots, len(seen) - 1)]
            observed = jnp.where((slots < total)[None], state.axes[:, indices[order]], 0.5)
            state = replace(state, observed_axes=observed, count=total)
            anew, weights, gain = form.conditioned(state, noise, target[:, order])
            return anew, (weights, gain, form.expand(anew, weights), form.spread(anew))

        factors, found, outputs, grouped = [], [], [], self.grouped
        for batch, prior in grouped.pairs(first.factors):
            own = replace(prior, axes=prior.axes.at[:, at].set(places.T, mode="drop"), placed=placed)
            given = batch.noises(self.noise_variance, at), seen[batch.first], of(target, batch.outputs)
            factor, parts = batch.each(of_group, own, *given, in_turn=True)
            factors.append(factor)
            found.append(parts)
            outputs.append(batch.outputs)
        weights, gains, shifts, variances = zip(*found, strict=True)
        return replace(
            first,
            factors=tuple(factors),
            shift=in_order([part.reshape(-1, self.size) for part in shifts], outputs),
            variance=grouped.joined(variances),
            gain=grouped.joined(gains),
            weights=in_order([part.reshape(-1, self.room) for part in weights], outputs),
        )

    @checked
    def predict_at(self, posterior: Posterior, points: At) -> Prediction:
        """Predict ``[k, n]`` at ``points [n, d]`` of the unit cube."""
        shifts, variances = self.moments(posterior.factors, _weights_of(posterior), jnp.asarray(points))
        mean = jnp.asarray(self.prior_mean, shifts.dtype)[:, None] + shifts
        return Prediction(mean=mean, sd=self.grouped.of_outputs(deviation(variances)), gain=posterior.gain[jnp.asarray(self.groups)])

    def moments(self, factors: Sequence[Any], weights: Array, points: Array, parts: Sequence[Array] | None = None) -> tuple[Array, Array]:
        """Return shifts ``[k, n]`` and variances ``[G, n]`` at ``points [n, d]``.

        The shifts are the means of ``weights [k, r]`` less the prior means. ``parts`` are the features ``[B, n, r]`` of the points for each
        form, if they were computed before.
        """
        shifts, variances, outputs, grouped = [], [], [], self.grouped
        if parts is None:
            parts = [batch.each(lambda form, own: form.weights_at(own, points), factor) for batch, factor in grouped.pairs(factors)]

        def of_group(form: Any, state: Any, v: Array, own: Array) -> tuple[Array, Array]:
            *sums, more = added(jnp.stack([*(each[None] * v for each in own), form.terms(state, v)]))
            return jnp.stack(sums), form.variances_at(points) + more

        for (batch, factor), v in zip(grouped.pairs(factors), parts, strict=True):
            shift, variance = batch.each(of_group, factor, v, of(weights, batch.outputs))
            shifts.append(shift.reshape(-1, len(points)))
            variances.append(variance)
            outputs.append(batch.outputs)
        return in_order(shifts, outputs), grouped.joined(variances)

    @checked
    def draw_at(self, posterior: Posterior, key: Key, scale: Array, points: At) -> Array:
        """Sample :meth:`Belief.draw`'s functions for ``key`` at ``points [n, d]``, as ``[k, n]``."""
        keys, weights = jax.random.split(key, self.outputs), _weights_of(posterior)

        def one(form: Any, state: Any, key: Key, weights: Array, size: Array) -> Array:
            return form.draw_at(state, key, points, weights, size)

        size = jnp.broadcast_to(jnp.asarray(scale, weights.dtype), (self.outputs,))
        return jnp.asarray(self.prior_mean, weights.dtype)[:, None] + self.grouped.each_output(one, posterior.factors, keys, weights, size)

    @checked
    def place(self, posterior: Posterior, point: Annotated[Array, numbers, each_axis]) -> tuple[Array, Posterior]:
        """Return the index ``[]`` of an added ``point [d]``, and the posterior."""
        point = jnp.asarray(point)
        placed = [batch.place(factor, point) for batch, factor in self.grouped.pairs(posterior.factors)]
        index = placed[0][1]
        shifts, variances = self.moments(posterior.factors, _weights_of(posterior), point[None], [v[:, None] for _, _, v in placed])
        return index, replace(
            posterior,
            factors=tuple(factor for factor, _, _ in placed),
            shift=insert_column(posterior.shift, index, shifts[:, 0]),
            variance=insert_column(posterior.variance, index, variances[:, 0]),
        )

    def pool(self, posterior: Posterior) -> Array:
        """Return the points ``[M, d]`` of the unit cube, by index."""
        return posterior.factors[0].points


def _weights_of(posterior: Posterior) -> Array:
    if posterior.weights is None:
        raise TypeError("a posterior of a box has weights")
    return posterior.weights


def in_turn(learner: Any, indices: Array, places: Array, values: Array, count: Array) -> AnyPosterior:
    """Return the posterior given the first ``count []`` of ``values [n, k]``.

    They were observed at points ``places [n, d]`` with ``indices [n]``; NaN stands for a missing value. The model of a box, delayed or not,
    adds the points and conditions on the values one after the other.
    """

    def take(row: Array, posterior: AnyPosterior) -> AnyPosterior:
        posterior = learner.place(with_next(posterior, indices[row] - learner.domain.size), places[row])[1]
        return learner.condition(posterior, indices[row], values[row])

    return jax.lax.fori_loop(0, count, take, learner.init())


@pytree
class Notes:
    """Values in order of observation, before any posterior is conditioned on them."""

    indices: Array  # [n] int32
    values: Array  # [n, k]
    count: Array  # [] int32


@pytree
class Noting(AbstractSurrogate):
    """Model of a box that notes values, and conditions when it must."""

    surrogate: AbstractSurrogate
    places: Array  # [n, d]

    @property
    def model(self) -> Surrogate:
        return self.surrogate.model

    @property
    def domain(self) -> Box:
        """The box."""
        return cast(Box, self.surrogate.domain)

    @property
    def size(self) -> int:
        return self.surrogate.size

    def init(self) -> Notes:
        count = len(self.places)
        values = jnp.full((count, self.outputs), jnp.nan, self.dtype)
        return Notes(indices=jnp.zeros((count,), jnp.int32), values=values, count=jnp.int32(0))

    def condition(self, posterior: Notes, index: Array, values: Array) -> Notes:
        count = posterior.count
        indices = posterior.indices.at[count].set(index)
        return Notes(indices=indices, values=posterior.values.at[count].set(values), count=count + 1)

    def read(self, posterior: Notes) -> AnyPosterior:
        """Return the posterior given the notes."""
        return cast(BoxSurrogate, self.surrogate).conditioned(posterior.indices, self.places, posterior.values, posterior.count)

    def belief(self, posterior: Notes) -> Belief:
        return self.surrogate.belief(self.read(posterior))
