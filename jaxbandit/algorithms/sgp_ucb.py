"""SGP-UCB (Amani, Alizadeh and Thrampoulidis 2020, "Regret Bound for Safe Gaussian Process Bandit Optimization")."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit import safety
from jaxbandit.acquisition import among, pick, uniform
from jaxbandit.algorithms.base import Algorithm, Arena, Decision
from jaxbandit.core import checks
from jaxbandit.core.pytree import pytree, static
from jaxbandit.estimators import Bounds
from jaxbandit.safety import SafeState

Array = jax.Array


@pytree
class SgpUcb(Algorithm):
    r"""SGP-UCB: ``T'`` rounds uniformly at random in the seed set, then the best upper bound of the reward on the safe set.

    .. math:: x_t \sim \mathrm{Unif}(S_0) \;\; (t \le T'), \qquad x_t = \arg\max_{S_t} \mathrm{UCB}_f(x) \;\; (t > T')

    with the safe set ``S_t`` of :class:`~jaxbandit.SafeOpt`. The paper's width is :func:`jaxbandit.widths.finite_set`.

    Attributes:
      warm_up: ``T' >= 0`` rounds.
      estimator, seeds, count: as in :class:`~jaxbandit.SafeOpt`.
    """

    name: ClassVar[str] = "sgpucb"
    estimator: Any = Bounds()
    seeds: Any = None
    warm_up: Any = 50.0
    count: int = static(default=1)

    def init(self, arena: Arena) -> SafeState:
        return safety.start(arena.surrogate, self.seeds)

    def select(self, arena: Arena, state: SafeState, t: Array, key: Array) -> tuple[Decision, SafeState]:
        known = safety.intervals(arena.surrogate, state.posterior, self.estimator, t, key)
        safe, flags, after = safety.observe_safety(state, known, t, self.count if self.seeds is None else None)
        warming = jnp.asarray(t, known.sd.dtype) <= self.warm_up
        index = jnp.where(warming, uniform(key, after.seeds), pick(among(safe, known.upper[0])))
        return Decision(index=index, widths=known.widths, flags=flags), after

    def audit_parameters(self, horizon: int) -> dict[str, Any]:
        """The parameters under the paper's letters, for audit traces."""
        seeds = None if self.seeds is None else np.asarray(self.seeds).tolist()
        return {"seeds": seeds, "T'": np.asarray(self.warm_up).tolist(), "count": self.count}

    def validate(self, constraints: int) -> None:
        safety.validate_seeds("SgpUcb", self.seeds, self.count, self.estimator, constraints)
        checks.nonnegative("SgpUcb.warm_up", self.warm_up)
        checks.scalar("SgpUcb.warm_up", self.warm_up)
