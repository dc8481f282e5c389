"""Algorithms that maximise an upper bound of the reward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import jax.numpy as jnp

from jaxbandit.algorithms.base import BeliefState, Scored
from jaxbandit.core.declare import PerConstraint
from jaxbandit.core.fields import Letter, nonnegative
from jaxbandit.core.pytree import pytree
from jaxbandit.core.status import Status
from jaxbandit.numerics.ties import weighted_sum
from jaxbandit.rules.estimators import Bounds, Estimate, Strategy
from jaxbandit.rules.scores import Score


@pytree
class Unconstrained(Scored[BeliefState]):
    r"""Point with the best reward estimate, ``x_t = argmax_x f_t(x)``.

    It is IGP-UCB with ``Bounds`` and GP-TS with ``Thompson`` (Chowdhury and Gopalan 2017, Algorithms 1 and 2), and RandGP-UCB with
    ``Randomised`` (Zhou and Ji 2022, Def. 2). On a constrained problem it ignores the constraints.

    Attributes:
      estimator: the exploration strategy; default UCB of width 3.
    """

    name: ClassVar[str] = "unconstrained"
    title: ClassVar[str] = "IGP-UCB"
    papers: ClassVar[Mapping[str, str]] = {"chowdhury2017": "Algorithms 1-2"}
    estimator: Strategy = Bounds()

    def score(self, state: BeliefState, estimate: Estimate) -> Score:
        return Score(estimate.reward)


@pytree
class Config(Scored[BeliefState]):
    r"""CONFIG: the best upper bound among points whose constraints can hold.

    .. math:: x_t = \arg\max_x \mathrm{UCB}_f(x) \quad\text{s.t.}\quad \mathrm{LCB}_{g_j}(x) \le 0 \;\; \forall j

    When no point satisfies every lower bound the algorithm declares the problem infeasible (line 4; a constraint with ``min_x LCB > 0`` is
    a special case). The run goes on, at the point of least worst-case lower bound, so that arrays keep their shape. The trial records the
    flag and the round of the first declaration. Write an equality as two inequalities.

    Attributes:
      estimator: default UCB of the reward and LCB of the constraints, width 3, as in the paper's experiments.
    """

    name: ClassVar[str] = "config"
    title: ClassVar[str] = "CONFIG"
    papers: ClassVar[Mapping[str, str]] = {"xu2023": "Algorithm 1"}
    estimator: Strategy = Bounds()

    def score(self, state: BeliefState, estimate: Estimate) -> Score:
        worst = jnp.max(estimate.costs, axis=0, initial=-jnp.inf)
        optimistic = jnp.where(worst > 0, -jnp.inf, jnp.where(worst <= 0, estimate.reward, jnp.nan))
        # The problem is infeasible if the worst cost is > 0 everywhere. A NaN declares nothing.
        limited = (estimate.reward, estimate.costs)
        return Score(optimistic, flags=((worst > 0, Status.DECLARED_INFEASIBLE),), otherwise=-worst, limited=limited)


@pytree
class Epbo(Scored[BeliefState]):
    r"""EPBO: a fixed penalty on the positive part of constraint estimates.

    .. math:: x_t = \arg\max_x \mathrm{UCB}_f(x) - \rho \sum_j \mathrm{LCB}_{g_j}(x)^+

    Attributes:
      estimator: default UCB of the reward and LCB of the constraints, width 3.
      penalty: ``rho >= 0``, one number or ``[m]``.
    """

    name: ClassVar[str] = "epbo"
    title: ClassVar[str] = "EPBO"
    papers: ClassVar[Mapping[str, str]] = {"lu2022": ""}
    estimator: Strategy = Bounds()
    penalty: Annotated[PerConstraint, nonnegative, Letter("rho")] = 1.0

    def score(self, state: BeliefState, estimate: Estimate) -> Score:
        penalty = jnp.broadcast_to(jnp.asarray(self.penalty, estimate.reward.dtype), (len(estimate.costs),))
        values = estimate.reward - weighted_sum(penalty, jnp.maximum(estimate.costs, 0))
        return Score(values, limited=(estimate.reward, estimate.costs), slopes=penalty)
