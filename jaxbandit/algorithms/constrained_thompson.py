"""Constrained Thompson sampling on the grid, the selection rule of SCBO without its trust region (Eriksson and Poloczek 2021,
"Scalable Constrained Bayesian Optimization")."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxbandit.acquisition import among, pick
from jaxbandit.algorithms.base import Arena, Decision, Observation
from jaxbandit.core.pytree import pytree, replace
from jaxbandit.estimators import Thompson
from jaxbandit.surrogates import Posterior

Array = jax.Array


@pytree
class ConstrainedThompsonState:
    """What constrained Thompson sampling carries."""

    posterior: Posterior


@pytree
class ConstrainedThompson:
    r"""Draw the reward and every constraint; take the best feasible point of the draw, else the least violating one.

    .. math::
        x_t = \arg\max \{ f_t(x) : g_{t,j}(x) \le 0 \;\forall j \}, \quad\text{or}\quad
        \arg\min_x \sum_j g_{t,j}(x)^+ \;\text{ if there is no such point}

    Attributes:
      estimator: what is drawn; default joint draws from the posterior.
    """

    name: ClassVar[str] = "constrainedthompson"
    estimator: Any = Thompson()

    def init(self, arena: Arena) -> ConstrainedThompsonState:
        return ConstrainedThompsonState(posterior=arena.surrogate.init())

    def select(self, arena: Arena, state: ConstrainedThompsonState, t: Array, key: Array) -> tuple[Decision, ConstrainedThompsonState]:
        drawn = self.estimator.estimate(arena.surrogate, state.posterior, t, key)
        violation = jnp.sum(jnp.maximum(drawn.costs, 0), axis=0)
        feasible = violation <= 0
        score = jnp.where(jnp.any(feasible), among(feasible, drawn.reward), -violation)
        index = pick(jnp.where(jnp.isnan(violation), jnp.nan, score))
        return Decision(index=index, widths=drawn.widths, draws=drawn.draws), state

    def update(self, arena: Arena, state: ConstrainedThompsonState, observation: Observation, t: Array) -> ConstrainedThompsonState:
        return replace(state, posterior=arena.learn(state.posterior, observation))

    def validate(self, constraints: int) -> None:
        self.estimator.validate("ConstrainedThompson.estimator", 1 + constraints)
