"""EPBO, exact-penalty Bayesian optimisation (Lu and Paulson 2022, "No-regret Bayesian Optimization with Unknown Equality and
Inequality Constraints using Exact Penalty Functions")."""

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
class EpboState:
    """What EPBO carries."""

    posterior: Posterior


@pytree
class Epbo:
    r"""EPBO: a fixed penalty on the positive part of optimistic constraint estimates.

    .. math:: x_t = \arg\max_x \mathrm{UCB}_f(x) - \rho \sum_j \mathrm{LCB}_{g_j}(x)^+

    Attributes:
      estimator: default UCB of the reward and LCB of the constraints, width 3.
      penalty: ``rho >= 0``, one number or ``[m]``.
    """

    name: ClassVar[str] = "epbo"
    estimator: Any = Bounds()
    penalty: Any = 1.0

    def init(self, arena: Arena) -> EpboState:
        return EpboState(posterior=arena.surrogate.init())

    def select(self, arena: Arena, state: EpboState, t: Array, key: Array) -> tuple[Decision, EpboState]:
        estimate = self.estimator.estimate(arena.surrogate, state.posterior, t, key)
        penalty = jnp.broadcast_to(jnp.asarray(self.penalty, estimate.reward.dtype), (arena.constraints,))
        index = pick(estimate.reward - weighted_sum(penalty, jnp.maximum(estimate.costs, 0)))
        return Decision(index=index, widths=estimate.widths, draws=estimate.draws), state

    def update(self, arena: Arena, state: EpboState, observation: Observation, t: Array) -> EpboState:
        return replace(state, posterior=arena.learn(state.posterior, observation))

    def audit_parameters(self, horizon: int) -> dict[str, Any]:
        """The parameters under the paper's letters, for audit traces."""
        return {"rho": np.asarray(self.penalty).tolist()}

    def validate(self, constraints: int) -> None:
        self.estimator.validate("Epbo.estimator", 1 + constraints)
        checks.nonnegative("Epbo.penalty", self.penalty, remedy="rho is a penalty >= 0")
        checks.per_constraint("Epbo.penalty", self.penalty, constraints)
