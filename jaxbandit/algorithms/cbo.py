"""CBO, primal-dual constrained kernelized bandits, elsewhere called CKB (Zhou and Ji 2022, "On Kernelized Multi-Armed Bandits with
Constraints", Algorithm 1)."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.acquisition import clipped, pick, weighted_sum
from jaxbandit.algorithms.base import Arena, Decision, Observation
from jaxbandit.core import checks
from jaxbandit.core.pytree import float_dtype, pytree, replace
from jaxbandit.estimators import Bounds
from jaxbandit.surrogates import Posterior

Array = jax.Array


@pytree
class CboState:
    """What CBO carries."""

    posterior: Posterior
    multipliers: Array  # [m] the dual variables phi_t, each in [0, rho]


@pytree
class Cbo:
    r"""CBO: the best point of an optimistic Lagrangian, then a projected dual step along the *estimated* cost there.

    .. math::
        x_t = \arg\max_x \bar f_t(x) - \sum_j \phi_t^j \bar g_{t,j}(x), \qquad
        \phi_{t+1}^j = \mathrm{Proj}_{[0,\rho]}(\phi_t^j + \bar g_{t,j}(x_t) / V)

    with ``f_bar = Proj_[-B,B]``, ``g_bar = Proj_[-G,G]`` of the strategy's estimates and ``phi_1 = 0``. CBO-UCB is CBO with
    confidence bounds.

    Attributes:
      estimator: the exploration strategy; default UCB of the reward and LCB of the constraints, width 3.
      reward_clip: ``B > 0``.
      cost_clip: ``G > 0``, one number or ``[m]``.
      dual_cap: ``rho > 0``, one number or ``[m]``; the theory asks for ``rho >= 4 B / delta`` with Slater slack ``delta``.
      step_divisor: ``V > 0``; default ``G sqrt(T) / rho``, the theory's choice.
    """

    name: ClassVar[str] = "cbo"
    estimator: Any = Bounds()
    reward_clip: Any = 1.0
    cost_clip: Any = 1.0
    dual_cap: Any = 10.0
    step_divisor: Any = None

    def init(self, arena: Arena) -> CboState:
        posterior = arena.surrogate.init()
        return CboState(posterior=posterior, multipliers=jnp.zeros((arena.constraints,), posterior.mean.dtype))

    def select(self, arena: Arena, state: CboState, t: Array, key: Array) -> tuple[Decision, CboState]:
        estimate = self.estimator.estimate(arena.surrogate, state.posterior, t, key)
        reward, flags = clipped(estimate.reward, self.reward_clip)
        clip = jnp.broadcast_to(self.cost_clip, (arena.constraints,))
        costs = jnp.clip(estimate.costs, -clip[:, None], clip[:, None])
        index = pick(reward - weighted_sum(state.multipliers, costs))
        # Line 7 of Algorithm 1: the estimate at x_t moves the dual, not the observation.
        dual = jnp.clip(state.multipliers + costs[:, index] / self.divisor(arena.horizon), 0, self.dual_cap)
        return Decision(index=index, widths=estimate.widths, flags=flags, draws=estimate.draws), replace(state, multipliers=dual)

    def update(self, arena: Arena, state: CboState, observation: Observation, t: Array) -> CboState:
        return replace(state, posterior=arena.learn(state.posterior, observation))

    def divisor(self, horizon: Any) -> Array:
        """``V`` in force over ``horizon`` rounds, per constraint where ``G`` is."""
        if self.step_divisor is not None:
            return self.step_divisor
        cap = jnp.asarray(self.dual_cap, float_dtype())
        return jnp.asarray(self.cost_clip, cap.dtype) * jnp.sqrt(jnp.asarray(horizon, cap.dtype)) / cap

    def audit_parameters(self, horizon: int) -> dict[str, Any]:
        """The parameters under the paper's letters, for audit traces."""
        values = {"B": self.reward_clip, "G": self.cost_clip, "V": self.divisor(horizon), "rho": self.dual_cap}
        return {name: np.asarray(value).tolist() for name, value in values.items()}

    def validate(self, constraints: int) -> None:
        self.estimator.validate("Cbo.estimator", 1 + constraints)
        checks.positive("Cbo.reward_clip", self.reward_clip)
        checks.scalar("Cbo.reward_clip", self.reward_clip)
        checks.positive("Cbo.cost_clip", self.cost_clip)
        checks.per_constraint("Cbo.cost_clip", self.cost_clip, constraints)
        checks.positive("Cbo.dual_cap", self.dual_cap)
        checks.per_constraint("Cbo.dual_cap", self.dual_cap, constraints)
        if self.step_divisor is not None:
            checks.positive("Cbo.step_divisor", self.step_divisor)
            checks.per_constraint("Cbo.step_divisor", self.step_divisor, constraints)
