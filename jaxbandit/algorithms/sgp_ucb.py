"""SGP-UCB (Amani, Alizadeh and Thrampoulidis 2020, "Regret Bound for Safe Gaussian Process Bandit Optimization")."""

from __future__ import annotations

from typing import Annotated, ClassVar

import jax.numpy as jnp

from jaxbandit import safety
from jaxbandit.acquisition import draw_uniformly, pick, restricted_to
from jaxbandit.algorithms.base import Algorithm, Arena, Decision
from jaxbandit.core.fields import Letter, how_many_points, nonnegative, points
from jaxbandit.core.pytree import pytree, static
from jaxbandit.core.types import Array, Indices, Key, Scalar
from jaxbandit.estimators import Bounds
from jaxbandit.safety import SafeState


@pytree
class SgpUcb(Algorithm[SafeState]):
    r"""SGP-UCB: ``T'`` rounds uniformly at random in the seed set, then the best upper bound of the reward on the safe set.

    .. math:: x_t \sim \mathrm{Unif}(S_0) \;\; (t \le T'), \qquad x_t = \arg\max_{S_t} \mathrm{UCB}_f(x) \;\; (t > T')

    with the safe set ``S_t`` of :class:`~jaxbandit.SafeOpt`. The paper's width is :func:`jaxbandit.widths.finite_set`.

    Attributes:
      warm_up: ``T' >= 0`` rounds.
      estimator, seeds, count: as in :class:`~jaxbandit.SafeOpt`.
    """

    name: ClassVar[str] = "sgpucb"
    title: ClassVar[str] = "SGP-UCB"
    paper: ClassVar[str] = "Amani, Alizadeh, Thrampoulidis (2020), *Regret Bound for Safe Gaussian Process Bandit Optimization*"
    estimator: Bounds = Bounds()
    seeds: Annotated[Indices, points, safety.SEEDS, Letter("seeds")] | None = None
    warm_up: Annotated[Scalar, nonnegative, Letter("T'")] = 50.0
    count: Annotated[int, how_many_points(), Letter("count")] | None = static(default=None)

    def init(self, arena: Arena) -> SafeState:
        return safety.start(arena.surrogate, self.seeds, self.count, type(self).__name__)

    def select(self, arena: Arena, state: SafeState, t: Array, key: Key) -> tuple[Decision, SafeState]:
        known = safety.intervals(arena.surrogate, state.posterior, self.estimator, t, key)
        safe, flags, after = safety.observe_safety(state, known, t, self.count if self.seeds is None else None)
        warming = jnp.asarray(t, known.sd.dtype) <= self.warm_up
        index = jnp.where(warming, draw_uniformly(key, after.seeds), pick(restricted_to(safe, known.upper[0])))
        return Decision(index=index, widths=known.widths, flags=flags), after
