"""M-SafeOpt, for constraints that grow along one axis."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, ClassVar

import jax.numpy as jnp

from jaxbandit.algorithms.base import Arena, Traits
from jaxbandit.algorithms.safe_sets import Safe, SafeState
from jaxbandit.core.declare import Array, Key, Scalar
from jaxbandit.core.fields import Letter, label, nonnegative, whole
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.numerics.ties import pick
from jaxbandit.rules.safety import Intervals, number_of_axis
from jaxbandit.surrogates import Belief


@pytree
class MSafeOpt(Safe):
    r"""M-SafeOpt: expand the safe set along an axis where it can pay.

    Every constraint grows along the axis ``s``, and the least value of ``s`` is safe in every column, that is for all values ``x`` of the
    other axes. With the largest safe value :math:`\bar s(x)` of a column and the best sure value
    :math:`\ell = \max_{S_t} \mathrm{LCB}_f`, a column may expand if

    .. math:: V(x) = \mathrm{UCB}_f(\bar s, x) + L_f \max \{s' - \bar s : \mathrm{LCB}_{g_j}(\bar s, x) + l_g (s' - \bar s) \le 0\} > \ell

    and is alive if that holds or :math:`U(x) = \max_s \mathrm{UCB}_f(s, x) > \ell` over its safe points. Candidates are the best point of
    each alive column, with the score :math:`\beta_f \sigma_f`, and the boundary :math:`(\bar s, x)` of each expanding column, with
    :math:`\max(\beta_f \sigma_f, \max_j \beta_j \sigma_{g_j})`. The largest score is chosen, the first of ties, and the first safe point
    without a candidate. For several constraints every one has to hold and the worst one counts, which is our reading; the paper has one.

    Attributes:
      axis: number of the axis ``s``, from 0, or its name where the domain names its axes. The domain is a product grid.
      rise: ``L_f >= 0``, how fast the reward can rise along ``s``.
      slope: ``l_g >= 0``, least slope of each constraint along ``s``; 0 is always right, and slow.
      each: whether to look for the best ``s`` of every column, the paper's second form: no column is dropped, and ``l`` is its own.
      seeds: points known to be safe; default all points of the least ``s``.
      estimator, count, allowed, safety: as in :class:`~jaxbandit.SafeOpt`.
    """

    name: ClassVar[str] = "msafeopt"
    title: ClassVar[str] = "M-SafeOpt"
    papers: ClassVar[Mapping[str, str]] = {"losalka2024": ""}
    axis: Annotated[int, whole(0)] | Annotated[str, label] = static(default=0)
    rise: Annotated[Scalar, nonnegative, Letter("L_f")] = 1.0
    slope: Annotated[Scalar, nonnegative, Letter("l_g")] = 0.0
    each: bool = static(default=False)
    # Its seeds are on an axis of the whole domain.
    on_contexts = False

    @property
    def traits(self) -> Traits:
        return dataclasses.replace(super().traits, lacks="")

    def init(self, arena: Arena) -> SafeState:
        number, state = number_of_axis("MSafeOpt.axis", self.axis, arena.domain), super().init(arena)
        if self.seeds is not None or self.count is not None:
            return state
        axis = jnp.asarray(arena.domain.axes[number])
        return replace(state, seeds=jnp.asarray(arena.domain.points)[:, number] == axis[0])

    def choose(self, arena: Arena, state: SafeState, belief: Belief, known: Intervals, safe: Array, t: Array, key: Key) -> Array:
        domain, dtype = arena.domain, known.sd.dtype
        number = number_of_axis("MSafeOpt.axis", self.axis, domain)
        values, shape = jnp.asarray(domain.axes[number], dtype), domain.grid_shape

        def columns(table: Array) -> Array:
            """Return a table ``[M]`` as ``[S, X]``, a column for each ``x``."""
            return jnp.moveaxis(table.reshape(shape), number, 0).reshape(len(values), -1)

        here, upper, lower = columns(safe), columns(known.upper[0]), columns(known.lower[0])
        numbers, scores = jnp.arange(len(values), dtype=jnp.int32)[:, None], known.widths[:, None] * known.sd
        edge = jnp.max(jnp.where(here, numbers, 0), axis=0)  # [X]
        is_edge = (numbers == edge[None]) & here
        sure = jnp.where(here, lower, -jnp.inf)
        best_sure = jnp.max(sure, axis=0 if self.each else None)
        best = jnp.where(here, upper, -jnp.inf)
        cost = jnp.max(jnp.stack([jnp.sum(jnp.where(is_edge, columns(row), 0), axis=0) for row in known.lower]).at[0].set(-jnp.inf), axis=0)
        steps = values[:, None] - values[edge][None]
        reach = jnp.max(jnp.where(cost[None] + self.slope * steps <= 0, steps, -jnp.inf), axis=0)
        promise = jnp.sum(jnp.where(is_edge, upper, 0), axis=0) + self.rise * jnp.where(reach > -jnp.inf, reach, 0)
        expands = (promise > best_sure) & (reach > -jnp.inf)
        alive = (jnp.max(best, axis=0) > best_sure) | expands | self.each
        top = (numbers == jnp.argmax(best, axis=0).astype(jnp.int32)[None]) & here & alive[None]
        score = jnp.where(top, columns(scores[0]), -jnp.inf)
        score = jnp.where(is_edge & expands[None], jnp.maximum(score, columns(jnp.max(scores, axis=0))), score)
        moved = [size for axis, size in enumerate(shape) if axis != number]
        table = jnp.moveaxis(score.reshape(len(values), *moved), 0, number).reshape(-1)
        # A NaN belief must show in the scores.
        table = jnp.where(jnp.isnan(known.upper[0]), jnp.nan, table)
        return jnp.where(jnp.max(table) <= 0, jnp.argmax(safe).astype(jnp.int32), pick(table))
