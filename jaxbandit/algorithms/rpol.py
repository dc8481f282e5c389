"""RPOL, rectified pessimistic-optimistic learning (Guo, Zhu and Liu 2022, sec. 3-4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import jax.numpy as jnp

from jaxbandit.algorithms.base import Arena, DualState, Scored, Seen
from jaxbandit.core.declare import Array, PerConstraint, Scalar
from jaxbandit.core.fields import Letter, positive
from jaxbandit.core.pytree import pytree
from jaxbandit.numerics.ties import weighted_sum
from jaxbandit.rules.estimators import Bounds, Estimate, Strategy
from jaxbandit.rules.scores import Score


@pytree
class Rpol(Scored[DualState]):
    r"""RPOL: a growing penalty on the *positive part* of constraint estimates.

    .. math::
        x_t = \arg\max_x \hat f_t(x) - \sum_j Q_t^j \check g_{t,j}(x)^+, \qquad Q_{t+1} = \max(Q_t + c_t^+, \eta_t)

    with ``Q_1 = 1`` and ``eta_t = sqrt(t)`` (eq. 7 and the penalty update). RPOL-UCB is RPOL with confidence bounds. A run records the
    rectified penalty factors ``Q_t`` as ``multipliers``.

    Attributes:
      estimator: the learning strategy; default UCB of the reward and LCB of the constraints, width 3.
      initial_penalty: ``Q_1 > 0``, one number or ``[m]``.
      penalty_growth: ``eta_t / sqrt(t)``, > 0; 1 in the paper.
    """

    name: ClassVar[str] = "rpol"
    title: ClassVar[str] = "RPOL-UCB"
    papers: ClassVar[Mapping[str, str]] = {"guo2022": "sec. 3-4"}
    shown = ("multipliers",)
    estimator: Strategy = Bounds()
    initial_penalty: Annotated[PerConstraint, positive, Letter("Q1")] = 1.0
    penalty_growth: Annotated[Scalar, positive, Letter("eta_over_sqrt_t")] = 1.0

    def init(self, arena: Arena) -> DualState:
        penalty = jnp.full((arena.constraints,), jnp.asarray(self.initial_penalty), arena.dtype)
        return DualState(posterior=arena.surrogate.init(), multipliers=penalty)

    def score(self, state: DualState, estimate: Estimate) -> Score:
        # Equation (7): the reward less the penalised positive parts of the costs.
        values = estimate.reward - weighted_sum(state.multipliers, jnp.maximum(estimate.costs, 0))
        return Score(values, limited=(estimate.reward, estimate.costs), slopes=state.multipliers)

    def update(self, arena: Arena, state: DualState, observation: Seen, t: Array) -> DualState:
        violation = observation.map(lambda values: jnp.maximum(values, 0)).total()[1:]
        floor = self.penalty_growth * jnp.sqrt(jnp.asarray(t, violation.dtype))
        penalty = jnp.maximum(state.multipliers + violation, floor)
        return DualState(posterior=arena.learn(state.posterior, observation), multipliers=penalty)
