"""Primal-dual on observations, the form of CBO that the experiments of Xu et al. (2023) compare CONFIG with."""

from __future__ import annotations

from typing import Annotated, ClassVar

import jax.numpy as jnp

from jaxbandit.acquisition import weighted_sum
from jaxbandit.algorithms.base import Arena, DualState, Score, Scored, Seen
from jaxbandit.core.fields import Letter, nonnegative, positive
from jaxbandit.core.pytree import pytree
from jaxbandit.core.types import Array, PerConstraint
from jaxbandit.estimators import Bounds, Estimate, Strategy


@pytree
class PrimalDual(Scored[DualState]):
    r"""CBO with a dual that the *observed* cost moves, by plain steps, without clips and without a cap.

    .. math::
        x_t = \arg\max_x \mathrm{UCB}_f(x) - \sum_j \phi_t^j \, \mathrm{LCB}_{g_j}(x), \qquad
        \phi_{t+1}^j = (\phi_t^j + \eta \, c_t^j)^+

    with ``eta = 1`` and ``phi_1 = 1``. It differs from :class:`~jaxbandit.Cbo` (Zhou and Ji 2022) in that there the estimate at
    ``x_t`` moves the dual, by ``1 / V``, from 0 and up to ``rho``, and both estimates are clipped.

    Attributes:
      estimator: the exploration strategy; default UCB of the reward and LCB of the constraints, width 3.
      initial_multiplier: ``phi_1 >= 0``, one number or ``[m]``.
      step: ``eta > 0``, one number or ``[m]``.
    """

    name: ClassVar[str] = "primaldual"
    title: ClassVar[str] = "primal-dual on observations"
    paper: ClassVar[str] = "CBO with a dual that the observed cost moves, as in the experiments of Xu et al. (2023)"
    shown = ("multipliers",)  # the dual variables phi_t >= 0
    estimator: Strategy = Bounds()
    initial_multiplier: Annotated[PerConstraint, nonnegative, Letter("phi1")] = 1.0
    step: Annotated[PerConstraint, positive, Letter("eta")] = 1.0

    def init(self, arena: Arena) -> DualState:
        first = jnp.broadcast_to(jnp.asarray(self.initial_multiplier, arena.dtype), (arena.constraints,))
        return DualState(posterior=arena.surrogate.init(), multipliers=first)

    def score(self, state: DualState, estimate: Estimate) -> Score:
        return Score(estimate.reward - weighted_sum(state.multipliers, estimate.costs))

    def update(self, arena: Arena, state: DualState, observation: Seen, t: Array) -> DualState:
        dual = jnp.maximum(state.multipliers + jnp.asarray(self.step) * observation.total()[1:], 0)
        return DualState(posterior=arena.learn(state.posterior, observation), multipliers=dual)
