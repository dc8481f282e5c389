"""Unconstrained learners: IGP-UCB and GP-TS (Chowdhury and Gopalan 2017, Algorithms 1 and 2), RandGP-UCB (Zhou and Ji 2022, Def. 2).

They are one rule under three strategies; on a constrained problem they ignore the constraints.
"""

from __future__ import annotations

from typing import ClassVar

from jaxbandit.algorithms.base import BeliefState, Score, Scored
from jaxbandit.core.pytree import pytree
from jaxbandit.estimators import Bounds, Estimate, Strategy


@pytree
class Unconstrained(Scored[BeliefState]):
    r"""The point with the best reward estimate, ``x_t = argmax_x f_t(x)``.

    IGP-UCB with ``Bounds``, GP-TS with ``Thompson``, RandGP-UCB with ``Randomised``.

    Attributes:
      estimator: the exploration strategy; default UCB of width 3.
    """

    name: ClassVar[str] = "unconstrained"
    title: ClassVar[str] = "IGP-UCB"
    paper: ClassVar[str] = "Chowdhury, Gopalan (2017), *On Kernelized Multi-armed Bandits*, Algorithms 1-2"
    estimator: Strategy = Bounds()

    def score(self, state: BeliefState, estimate: Estimate) -> Score:
        return Score(estimate.reward)
