"""Primal-dual on observations, the form of CBO that the experiments of Xu et al. (2023) compare CONFIG with."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.acquisition import pick, weighted_sum
from jaxbandit.algorithms.base import Arena, Decision, Observation
from jaxbandit.core import checks
from jaxbandit.core.pytree import pytree, replace
from jaxbandit.estimators import Bounds
from jaxbandit.surrogates import Posterior

Array = jax.Array


@pytree
class PrimalDualState:
    """What the primal-dual method carries."""

    posterior: Posterior
    multipliers: Array  # [m] the dual variables phi_t >= 0


@pytree
class PrimalDual:
    r"""CBO with a dual that the *observed* cost moves, by plain steps, without clips and without a cap.

    .. math::
        x_t = \arg\max_x \mathrm{UCB}_f(x) - \sum_j \phi_t^j \, \mathrm{LCB}_{g_j}(x), \qquad
        \phi_{t+1}^j = (\phi_t^j + \eta \, c_t^j)^+

    with ``eta = 1`` and ``phi_1 = 1``. It differs from :class:`~jaxbandit.Cbo` (Zhou and Ji 2022) in that there the estimate at
    ``x_t`` moves the dual, by ``1 / V``, from 0 and up to ``rho``, and both estimates are clipped.

    Attributes:
      estimator: the exploration strategy; default UCB of the reward and LCB of the constraints, width 3.
      initial_multiplier: ``phi_1 >= 0``, one number or ``[m]``.
      step: ``eta > 0``, one number or ``[m]``.
    """

    name: ClassVar[str] = "primaldual"
    estimator: Any = Bounds()
    initial_multiplier: Any = 1.0
    step: Any = 1.0

    def init(self, arena: Arena) -> PrimalDualState:
        posterior = arena.surrogate.init()
        first = jnp.broadcast_to(jnp.asarray(self.initial_multiplier, posterior.mean.dtype), (arena.constraints,))
        return PrimalDualState(posterior=posterior, multipliers=first)

    def select(self, arena: Arena, state: PrimalDualState, t: Array, key: Array) -> tuple[Decision, PrimalDualState]:
        estimate = self.estimator.estimate(arena.surrogate, state.posterior, t, key)
        index = pick(estimate.reward - weighted_sum(state.multipliers, estimate.costs))
        return Decision(index=index, widths=estimate.widths, draws=estimate.draws), state

    def update(self, arena: Arena, state: PrimalDualState, observation: Observation, t: Array) -> PrimalDualState:
        dual = jnp.maximum(state.multipliers + self.step * observation.total()[1:], 0)
        return replace(state, posterior=arena.learn(state.posterior, observation), multipliers=dual)

    def audit_parameters(self, horizon: int) -> dict[str, Any]:
        """The parameters under the papers' letters, for audit traces."""
        return {"phi1": np.asarray(self.initial_multiplier).tolist(), "eta": np.asarray(self.step).tolist()}

    def validate(self, constraints: int) -> None:
        self.estimator.validate("PrimalDual.estimator", 1 + constraints)
        checks.nonnegative("PrimalDual.initial_multiplier", self.initial_multiplier)
        checks.per_constraint("PrimalDual.initial_multiplier", self.initial_multiplier, constraints)
        checks.positive("PrimalDual.step", self.step)
        checks.per_constraint("PrimalDual.step", self.step, constraints)
