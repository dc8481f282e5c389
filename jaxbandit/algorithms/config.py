"""CONFIG, constrained efficient global optimisation (Xu, Jiang, Svetozarevic and Jones 2023, "Constrained Efficient Global
Optimization of Expensive Black-box Functions", Algorithm 1)."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp

from jaxbandit.algorithms.base import BeliefState, Score, Scored
from jaxbandit.core.pytree import pytree
from jaxbandit.core.status import Status
from jaxbandit.estimators import Bounds, Estimate, Strategy


@pytree
class Config(Scored[BeliefState]):
    r"""CONFIG: the best upper bound of the reward among points whose constraints can still hold.

    .. math:: x_t = \arg\max_x \mathrm{UCB}_f(x) \quad\text{s.t.}\quad \mathrm{LCB}_{g_j}(x) \le 0 \;\; \forall j

    When no point satisfies every lower bound the problem is declared infeasible (line 4; a constraint with
    ``min_x LCB > 0`` is a special case). The run goes on, at the point of least worst-case lower bound, so that arrays keep one
    shape; the trial carries the flag and the round of the first declaration. An equality is two inequalities.

    Attributes:
      estimator: default UCB of the reward and LCB of the constraints, width 3, as in the paper's experiments.
    """

    name: ClassVar[str] = "config"
    title: ClassVar[str] = "CONFIG"
    paper: ClassVar[str] = (
        "Xu, Jiang, Svetozarevic, Jones (2023), *Constrained Efficient Global Optimization of Expensive Black-box Functions*, Algorithm 1"
    )
    estimator: Strategy = Bounds()

    def score(self, state: BeliefState, estimate: Estimate) -> Score:
        worst = jnp.max(estimate.costs, axis=0, initial=-jnp.inf)  # without constraints every point is feasible
        optimistic = jnp.where(worst > 0, -jnp.inf, jnp.where(worst <= 0, estimate.reward, jnp.nan))
        # Infeasible where it is > 0 everywhere, not where it is <= 0 nowhere: a NaN declares nothing.
        return Score(optimistic, flags=((worst > 0, Status.DECLARED_INFEASIBLE),), otherwise=-worst)
