"""COBAR (Zhang et al. 2023): active learning of unknown constraints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp

from jaxbandit.algorithms.base import Algorithm, Arena, BeliefState, Decision, Traits
from jaxbandit.core.declare import Array, Key
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.core.status import Status
from jaxbandit.numerics.ties import pick
from jaxbandit.rules.estimators import Bounds
from jaxbandit.rules.safety import intervals


@pytree
class CobarState(BeliefState):
    """State of COBAR, with the intersections of all intervals so far."""

    lower: Array  # [1 + m, M]
    upper: Array  # [1 + m, M]


@pytree
class Cobar(Algorithm[CobarState]):
    r"""COBAR: the most promising reward or the least known constraint.

    With the intersections ``[lo, hi]`` of all intervals so far, the sure set ``S`` where every ``hi_gj <= 0``, and the best sure value
    :math:`\ell = \max_S lo_f`, minus infinity if ``S`` is empty, the region of interest is

    .. math:: X = \{x : hi_f(x) \ge \ell, \; lo_{g_j}(x) \le 0 \;\forall j\}.

    The reward proposes the point of ``X`` with the largest :math:`hi_f - \ell`, or ``hi_f - lo_f`` while there is no sure point. Each
    constraint proposes the point of the largest ``hi_gj - lo_gj`` among the points of ``X`` where it is undecided, ``hi_gj > 0``. The
    proposal of the largest value is chosen, the reward's on ties. If ``X`` is empty, which the paper does not treat, the choice is the
    point of least ``max_j lo_gj`` and the trial declares the problem infeasible, which is our reading. Too narrow intervals empty ``X``.
    Lengths are compared, so that rewards and constraints need comparable scales.

    Attributes:
      estimator: confidence bounds of width 3 by default; the paper's grow with the number of points, see
        :func:`jaxbandit.widths.finite_set`.
      decoupled: whether a round evaluates only the function whose proposal is chosen, instead of all. Under late feedback the policy is
        then ``Wait``.
    """

    name: ClassVar[str] = "cobar"
    title: ClassVar[str] = "COBAR"
    papers: ClassVar[Mapping[str, str]] = {"zhang2023": "as its reviews quote it"}
    estimator: Bounds = Bounds()
    decoupled: bool = static(default=False)

    @property
    def traits(self) -> Traits:
        return Traits(decoupled=self.decoupled)

    def init(self, arena: Arena) -> CobarState:
        endless = jnp.full((1 + arena.constraints, arena.size), jnp.inf, arena.dtype)
        return CobarState(posterior=arena.surrogate.init(), lower=-endless, upper=endless)

    def select(self, arena: Arena, state: CobarState, t: Array, key: Key) -> tuple[Decision, CobarState]:
        belief = arena.belief(state)
        known = intervals(belief.model, belief, self.estimator, t, key)
        lower, upper = jnp.maximum(state.lower, known.lower), jnp.minimum(state.upper, known.upper)
        undecided = upper[1:] > 0
        level = jnp.max(jnp.where(jnp.any(undecided, axis=0), -jnp.inf, lower[0]))
        region = (upper[0] >= level) & jnp.all(lower[1:] <= 0, axis=0)
        allowed = jnp.concatenate([region[None], region[None] & undecided])
        values = (upper - lower).at[0].set(upper[0] - jnp.where(level > -jnp.inf, level, lower[0]))
        is_empty = ~jnp.any(region)
        values = jnp.where(is_empty, jnp.concatenate([jnp.full_like(lower[:1], -jnp.inf), lower[1:]]), jnp.where(allowed, values, -jnp.inf))
        worst = -jnp.max(lower[1:], axis=0, initial=-jnp.inf)
        proposed = jnp.argmax(jnp.max(values, axis=1))
        index = pick(jnp.where(is_empty, worst, values[proposed]))
        here = jnp.where(is_empty, jnp.argmax(values[:, jnp.minimum(index, arena.size - 1)]), proposed).astype(jnp.int32)
        decision = Decision(
            index=index,
            widths=known.widths,
            flags=jnp.where(is_empty, int(Status.DECLARED_INFEASIBLE), 0),
            outputs=jnp.arange(len(values), dtype=jnp.int32) == here if self.decoupled else None,
        )
        return decision, replace(state, lower=lower, upper=upper)
