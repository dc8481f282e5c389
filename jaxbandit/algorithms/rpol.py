"""RPOL, rectified pessimistic-optimistic learning (Guo, Zhu and Liu 2022, "Rectified Pessimistic-Optimistic Learning for Stochastic
Continuum-armed Bandit with Constraints", sec. 3-4)."""

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
class RpolState:
    """What RPOL carries."""

    posterior: Posterior
    multipliers: Array  # [m] the rectified penalty factors Q_t


@pytree
class Rpol:
    r"""RPOL: a penalty on the *positive part* of optimistic constraint estimates, growing at least like ``sqrt(t)``.

    .. math::
        x_t = \arg\max_x \hat f_t(x) - \sum_j Q_t^j \check g_{t,j}(x)^+, \qquad Q_{t+1} = \max(Q_t + c_t^+, \eta_t)

    with ``Q_1 = 1`` and ``eta_t = sqrt(t)`` (eq. 7 and the penalty update). RPOL-UCB is RPOL with confidence bounds.

    Attributes:
      estimator: the learning strategy; default UCB of the reward and LCB of the constraints, width 3.
      initial_penalty: ``Q_1 > 0``.
      penalty_growth: ``eta_t / sqrt(t)``, > 0; 1 in the paper.
    """

    name: ClassVar[str] = "rpol"
    estimator: Any = Bounds()
    initial_penalty: Any = 1.0
    penalty_growth: Any = 1.0

    def init(self, arena: Arena) -> RpolState:
        posterior = arena.surrogate.init()
        penalty = jnp.full((arena.constraints,), self.initial_penalty, posterior.mean.dtype)
        return RpolState(posterior=posterior, multipliers=penalty)

    def select(self, arena: Arena, state: RpolState, t: Array, key: Array) -> tuple[Decision, RpolState]:
        estimate = self.estimator.estimate(arena.surrogate, state.posterior, t, key)
        index = pick(estimate.reward - weighted_sum(state.multipliers, jnp.maximum(estimate.costs, 0)))  # eq. (7)
        return Decision(index=index, widths=estimate.widths, draws=estimate.draws), state

    def update(self, arena: Arena, state: RpolState, observation: Observation, t: Array) -> RpolState:
        violation = observation.total(lambda values: jnp.maximum(values, 0))[1:]
        floor = self.penalty_growth * jnp.sqrt(jnp.asarray(t, violation.dtype))  # eta_t
        penalty = jnp.maximum(state.multipliers + violation, floor)
        posterior = arena.learn(state.posterior, observation)
        return replace(state, posterior=posterior, multipliers=penalty)

    def audit_parameters(self, horizon: int) -> dict[str, Any]:
        """The parameters under the paper's letters, for audit traces."""
        return {"Q1": np.asarray(self.initial_penalty).tolist(), "eta_over_sqrt_t": np.asarray(self.penalty_growth).tolist()}

    def validate(self, constraints: int) -> None:
        self.estimator.validate("Rpol.estimator", 1 + constraints)
        checks.positive("Rpol.initial_penalty", self.initial_penalty)
        checks.per_constraint("Rpol.initial_penalty", self.initial_penalty, constraints)
        checks.positive("Rpol.penalty_growth", self.penalty_growth)
        checks.scalar("Rpol.penalty_growth", self.penalty_growth)
