"""Confidence intervals and the expansion of safe sets, for safe algorithms."""

from __future__ import annotations

from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp

from jaxbandit.core.declare import Array, Declared, Key, PerConstraint
from jaxbandit.core.fields import positive, whole
from jaxbandit.core.pytree import pytree, static
from jaxbandit.numerics.ties import nearly_best, restricted_to
from jaxbandit.rules.estimators import Bounds
from jaxbandit.surrogates import Belief, Prediction, Surrogate

__all__ = ["Expansion", "Intervals", "intervals", "maximisers"]
__dir__ = __all__.copy


@pytree
class Intervals:
    """Intervals ``mean +- widths sd`` of the ``k`` outputs."""

    mean: Array  # [k, M]
    sd: Array  # [k, M]
    widths: Array  # [k]
    prior_sd: Array  # [k] largest over the points
    arrived: Prediction  # [k, M] from arrived values alone

    @property
    def lower(self) -> Array:
        """Lower bounds ``[k, M]``."""
        return self.mean - self.widths[:, None] * self.sd

    @property
    def upper(self) -> Array:
        """Upper bounds ``[k, M]``."""
        return self.mean + self.widths[:, None] * self.sd

    @property
    def worst(self) -> Array:
        """``max_j UCB_gj [M]`` from arrived values, minus infinity without constraints."""
        return jnp.max((self.arrived.mean + self.widths[:, None] * self.arrived.sd)[1:], axis=0, initial=-jnp.inf)

    @property
    def is_violated(self) -> Array:
        """Mask ``[M]`` of points where ``LCB_gj > 0`` from arrived values."""
        return jnp.any((self.arrived.mean - self.widths[:, None] * self.arrived.sd)[1:] > 0, axis=0)

    @property
    def size(self) -> Array:
        """Length ``[M]`` of the widest interval, in prior standard deviations."""
        return jnp.max(2 * (self.widths / self.prior_sd)[:, None] * self.sd, axis=0)


def intervals(model: Surrogate, belief: Belief, estimator: Bounds, t: Array, key: Key) -> Intervals:
    """Return the intervals of round ``t``, given the unfitted ``model``."""
    prior = jnp.stack([jnp.max(jnp.asarray(model.forms[g].prior_variance)) for g in model.groups])
    widths = estimator.estimate(belief, t, key).widths
    return Intervals(mean=belief.mean, sd=belief.sd, widths=widths, prior_sd=jnp.sqrt(prior), arrived=belief.arrived)


def maximisers(known: Intervals, safe: Array) -> Array:
    """Return the mask ``[M]`` of possible maximisers, ``UCB_f(x) >= max_S LCB_f``."""
    return safe & (known.upper[0] >= jnp.max(restricted_to(safe, known.lower[0])))


@pytree
class Expansion(Declared):
    """Rule for expanders: safe points whose observation could enlarge the safe set.

    Without a Lipschitz constant, ``x`` is an expander if a fictitious observation of ``LCB_gj(x)`` at ``x`` would give ``UCB_gj <= 0`` at
    some point outside. With ``c = k_t(x, x')`` and ``s = sigma^2(x) + lambda`` this observation is the rank-one update ``mu' = mu(x') +
    c (LCB(x) - mu(x)) / s``, ``var' = var(x') - c^2 / s``, computed for a block of points ``x`` and all ``x'`` at once. With a Lipschitz
    constant, ``x`` is an expander if ``LCB_gj(x) + L_j |x - x'| <= 0`` for some point ``x'`` outside.

    Attributes:
      lipschitz: ``L > 0``, one number or ``[m]``, or ``None``.
      together: whether one point outside has to satisfy all constraints, and would so be certified. Otherwise a different point outside
        may satisfy each constraint, as in the ``safeopt`` package. It matters for several constraints without a Lipschitz constant only.
      often: number >= 1 of fictitious observations. It matters without a Lipschitz constant only.
    """

    described: ClassVar[str] = "a rule of expansion, safety.Expansion(...)"
    lipschitz: Annotated[PerConstraint, positive] | None = None
    together: bool = static(default=True)
    often: Annotated[int, whole(1)] = static(default=1)

    def widest(self, model: Surrogate, belief: Belief, known: Intervals, safe: Array, candidates: Array) -> Array:
        """Return the index of the candidate expander of largest ``known.size``, else ``M``.

        The search examines blocks of ``candidates [M]``, widest first, and stops at the first block with an expander.
        """
        size = safe.shape[0]
        # A product [32, r] x [r, M] examines 32 candidates at once, few enough for the search to stop early.
        block = min(32, size)
        left = jnp.where(candidates, known.size, -jnp.inf)

        def more(carry: tuple[Array, Array]) -> Array:
            left, expander = carry
            return (jnp.max(left) > -jnp.inf) & (expander == size)

        def examine(carry: tuple[Array, Array]) -> tuple[Array, Array]:
            left, _ = carry
            level = jnp.where(nearly_best(left), jnp.max(left), left)
            # A full sort would take fifty times as long.
            widest, points = jax.lax.top_k(level, block)
            good = self.expands(model, belief, known, safe, points) & (widest > -jnp.inf)
            tied = good & nearly_best(jnp.where(good, widest, -jnp.inf))
            return left.at[points].set(-jnp.inf), jnp.min(jnp.where(tied, points.astype(jnp.int32), size))

        return jax.lax.while_loop(more, examine, (left, jnp.int32(size)))[1]

    def expands(self, model: Surrogate, belief: Belief, known: Intervals, safe: Array, points: Array) -> Array:
        """Return the mask ``[n]`` of expanders among the safe ``points [n]``."""
        if known.mean.shape[0] == 1:
            return jnp.zeros(points.shape, bool)
        if self.lipschitz is not None:
            slack = -known.lower[1:, points] / jnp.broadcast_to(jnp.asarray(self.lipschitz), (known.mean.shape[0] - 1,))[:, None]
            table = jnp.asarray(model.domain.points)
            squares = sum(jnp.square(table[points, a][:, None] - table[:, a][None, :]) for a in range(table.shape[1]))
            # The distance to the nearest point outside is infinite if all points are safe.
            outside = jnp.sqrt(jnp.min(jnp.where(safe[None, :], jnp.inf, squares), axis=-1))
            return outside <= jnp.min(slack, axis=0)
        columns: dict[int, Array] = {}
        reached = []
        for j, group in enumerate(model.groups):
            if j == 0:
                continue
            if group not in columns:
                columns[group] = belief.covariance(j, points)  # [n, M]
            s = jnp.square(known.sd[j, points]) + model.noise_at(group, points) / self.often
            # Test UCB' = mu' + beta sd' <= 0 in squares, without roots of [n, M] numbers.
            room = (known.widths[j] * known.sd[j, points] / s)[:, None] * columns[group] - known.mean[j][None, :]
            left = jnp.square(known.sd[j])[None, :] - jnp.square(columns[group]) * (1 / s)[:, None]
            reached.append((room >= 0) & (jnp.square(known.widths[j]) * left <= jnp.square(room)) & ~safe[None, :])
        if self.together:
            return jnp.any(jnp.all(jnp.stack(reached), axis=0), axis=-1)
        return jnp.all(jnp.any(jnp.stack(reached), axis=-1), axis=0)
