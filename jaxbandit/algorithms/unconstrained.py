"""Unconstrained learners: IGP-UCB and GP-TS (Chowdhury and Gopalan 2017, Algorithms 1 and 2), RandGP-UCB (Zhou and Ji 2022, Def. 2).

They are one rule under three strategies; on a constrained problem they ignore the constraints.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax

from jaxbandit.acquisition import pick
from jaxbandit.algorithms.base import Arena, Decision, Observation
from jaxbandit.core.pytree import pytree, replace
from jaxbandit.estimators import Bounds
from jaxbandit.surrogates import Posterior

Array = jax.Array


@pytree
class UnconstrainedState:
    """What an unconstrained learner carries."""

    posterior: Posterior


@pytree
class Unconstrained:
    r"""The point with the best reward estimate, ``x_t = argmax_x f_t(x)``.

    IGP-UCB with ``Bounds``, GP-TS with ``Thompson``, RandGP-UCB with ``Randomised``.

    Attributes:
      estimator: the exploration strategy; default UCB of width 3.
    """

    name: ClassVar[str] = "unconstrained"
    estimator: Any = Bounds()

    def init(self, arena: Arena) -> UnconstrainedState:
        return UnconstrainedState(posterior=arena.surrogate.init())

    def select(self, arena: Arena, state: UnconstrainedState, t: Array, key: Array) -> tuple[Decision, UnconstrainedState]:
        estimate = self.estimator.estimate(arena.surrogate, state.posterior, t, key)
        return Decision(index=pick(estimate.reward), widths=estimate.widths, draws=estimate.draws), state

    def update(self, arena: Arena, state: UnconstrainedState, observation: Observation, t: Array) -> UnconstrainedState:
        return replace(state, posterior=arena.learn(state.posterior, observation))

    def validate(self, constraints: int) -> None:
        self.estimator.validate("Unconstrained.estimator", 1 + constraints)
