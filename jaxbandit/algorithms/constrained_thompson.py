"""Constrained Thompson sampling on the grid, the selection rule of SCBO without its trust region (Eriksson and Poloczek 2021,
"Scalable Constrained Bayesian Optimization")."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp

from jaxbandit.acquisition import pick, restricted_to
from jaxbandit.algorithms.base import Algorithm, Arena, BeliefState, Decision
from jaxbandit.core.pytree import pytree
from jaxbandit.core.types import Array, Key
from jaxbandit.estimators import Strategy, Thompson


@pytree
class ConstrainedThompson(Algorithm[BeliefState]):
    r"""Draw the reward and every constraint; take the best feasible point of the draw, else the least violating one.

    .. math::
        x_t = \arg\max \{ f_t(x) : g_{t,j}(x) \le 0 \;\forall j \}, \quad\text{or}\quad
        \arg\min_x \sum_j g_{t,j}(x)^+ \;\text{ if there is no such point}

    Attributes:
      estimator: the strategy that draws; default joint draws from the posterior.
    """

    name: ClassVar[str] = "constrainedthompson"
    title: ClassVar[str] = "constrained Thompson sampling"
    paper: ClassVar[str] = "Eriksson, Poloczek (2021), *Scalable Constrained Bayesian Optimization*"
    estimator: Strategy = Thompson()

    def select(self, arena: Arena, state: BeliefState, t: Array, key: Key) -> tuple[Decision, BeliefState]:
        drawn = self.estimator.estimate(arena.surrogate, state.posterior, t, key)
        violation = jnp.sum(jnp.maximum(drawn.costs, 0), axis=0)
        feasible = violation <= 0
        score = jnp.where(jnp.any(feasible), restricted_to(feasible, drawn.reward), -violation)
        index = pick(jnp.where(jnp.isnan(violation), jnp.nan, score))
        return Decision(index=index, widths=drawn.widths, draws=drawn.draws), state
