"""EPBO, exact-penalty Bayesian optimisation (Lu and Paulson 2022, "No-regret Bayesian Optimization with Unknown Equality and
Inequality Constraints using Exact Penalty Functions")."""

from __future__ import annotations

from typing import Annotated, ClassVar

import jax.numpy as jnp

from jaxbandit.acquisition import weighted_sum
from jaxbandit.algorithms.base import BeliefState, Score, Scored
from jaxbandit.core.fields import Letter, nonnegative
from jaxbandit.core.pytree import pytree
from jaxbandit.core.types import PerConstraint
from jaxbandit.estimators import Bounds, Estimate, Strategy


@pytree
class Epbo(Scored[BeliefState]):
    r"""EPBO: a fixed penalty on the positive part of optimistic constraint estimates.

    .. math:: x_t = \arg\max_x \mathrm{UCB}_f(x) - \rho \sum_j \mathrm{LCB}_{g_j}(x)^+

    Attributes:
      estimator: default UCB of the reward and LCB of the constraints, width 3.
      penalty: ``rho >= 0``, one number or ``[m]``.
    """

    name: ClassVar[str] = "epbo"
    title: ClassVar[str] = "EPBO"
    paper: ClassVar[str] = (
        "Lu, Paulson (2022), *No-regret Bayesian Optimization with Unknown Equality and Inequality Constraints using Exact "
        "Penalty Functions*"
    )
    estimator: Strategy = Bounds()
    penalty: Annotated[PerConstraint, nonnegative, Letter("rho")] = 1.0

    def score(self, state: BeliefState, estimate: Estimate) -> Score:
        penalty = jnp.broadcast_to(jnp.asarray(self.penalty, estimate.reward.dtype), (len(estimate.costs),))
        return Score(estimate.reward - weighted_sum(penalty, jnp.maximum(estimate.costs, 0)))
