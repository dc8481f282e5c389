"""StageOpt (Sui, Zhuang, Burdick and Yue 2018, "Stagewise Safe Bayesian Optimization with Gaussian Processes")."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit import safety
from jaxbandit.acquisition import among, pick
from jaxbandit.algorithms.base import Algorithm, Arena, Decision
from jaxbandit.core import checks
from jaxbandit.core.pytree import pytree, static
from jaxbandit.estimators import Bounds
from jaxbandit.safety import Expansion, SafeState

Array = jax.Array


@pytree
class StageOpt(Algorithm):
    r"""StageOpt: expand the safe set for ``T_0`` rounds, then maximise the upper bound of the reward on it.

    .. math::
        x_t = \arg\max_{G_t} \max_k 2 \beta_k \sigma_k(x) / \sigma_{k,0} \;\; (t \le T_0), \qquad
        x_t = \arg\max_{S_t} \mathrm{UCB}_f(x) \;\; (t > T_0)

    with safe set ``S_t``, expanders ``G_t`` and maximisers as in :class:`~jaxbandit.SafeOpt`; in the first stage the widest maximiser
    is chosen while there is no expander. The safe set keeps growing in the second. (The paper also ends the first stage once every
    expander's interval is small; here its length is given.)

    Attributes:
      exploration: ``T_0 >= 0`` rounds.
      estimator, seeds, lipschitz, count, together: as in :class:`~jaxbandit.SafeOpt`.
    """

    name: ClassVar[str] = "stageopt"
    estimator: Any = Bounds()
    seeds: Any = None
    lipschitz: Any = None
    exploration: Any = 50.0
    count: int = static(default=1)
    together: bool = static(default=True)

    def init(self, arena: Arena) -> SafeState:
        return safety.start(arena.surrogate, self.seeds)

    def select(self, arena: Arena, state: SafeState, t: Array, key: Array) -> tuple[Decision, SafeState]:
        known = safety.intervals(arena.surrogate, state.posterior, self.estimator, t, key)
        safe, flags, after = safety.observe_safety(state, known, t, self.count if self.seeds is None else None)
        exploring = jnp.asarray(t, known.sd.dtype) <= self.exploration
        expansion = Expansion(lipschitz=self.lipschitz, together=self.together)
        # Without candidates there is nothing to examine: the second stage costs no matrix product.
        found = expansion.widest(arena.surrogate, state.posterior, known, safe, safe & exploring)
        expander = jnp.arange(safe.shape[0], dtype=jnp.int32) == found
        allowed = jnp.where(jnp.any(expander), expander, safety.maximisers(known, safe))
        index = pick(jnp.where(exploring, among(allowed, known.size), among(safe, known.upper[0])))
        return Decision(index=index, widths=known.widths, flags=flags), after

    def audit_parameters(self, horizon: int) -> dict[str, Any]:
        """The parameters under the papers' letters, for audit traces."""
        listed = {"seeds": self.seeds, "L": self.lipschitz, "T0": self.exploration}
        values = {name: None if value is None else np.asarray(value).tolist() for name, value in listed.items()}
        return {**values, "count": self.count, "together": self.together}

    def validate(self, constraints: int) -> None:
        safety.validate_seeds("StageOpt", self.seeds, self.count, self.estimator, constraints)
        Expansion(lipschitz=self.lipschitz).validate("StageOpt", constraints)
        checks.nonnegative("StageOpt.exploration", self.exploration)
        checks.scalar("StageOpt.exploration", self.exploration)
