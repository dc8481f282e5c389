"""Primal-dual contextual Bayesian optimisation (Xu et al. 2023, CDC)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import jax.numpy as jnp

from jaxbandit.algorithms.base import Arena, DualState, Scored, Seen
from jaxbandit.core.declare import Array, PerConstraint, Scalar
from jaxbandit.core.fields import Letter, nonnegative, positive
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.numerics.ties import weighted_sum
from jaxbandit.rules.estimators import Bounds, Estimate, Strategy
from jaxbandit.rules.scores import Score


@pytree
class PdcboState(DualState):
    """State of PDCBO."""

    costs: Array  # [m] estimates at the last choice


@pytree
class Pdcbo(Scored[PdcboState]):
    r"""PDCBO: optimistic Lagrangian of a context, for constraints on average.

    .. math::
        x_t = \arg\max_{x \in A(z_t)} \mathrm{UCB}_f(x) - \sum_j \phi_t^j \, \mathrm{LCB}_{g_j}(x), \\
        \phi_{t+1}^j = (\phi_t^j + \eta_t \, (d_t^j + \epsilon))^+, \qquad \eta_t = \eta_0 t^{-p}

    where ``A(z_t)`` are the actions of the context, or all points without contexts. ``d_t`` is the observed cost ``c_t``, as in the
    authors' code, or the estimate ``LCB_gj(x_t)`` before the observation, as in their method for several agents. Estimates are not
    clipped, and the dual variable has no cap. Under late feedback an observed cost moves the dual variable when it arrives, by the step of
    that round, and an estimate at once. A run records ``phi_t`` as ``multipliers``.

    Attributes:
      estimator: the exploration strategy; default UCB of the reward and LCB of the constraints, width 3.
      initial_multiplier: ``phi_1 >= 0``, one number or ``[m]``; default 1, as in the authors' code.
      step: ``eta_0 > 0``, one number or ``[m]``.
      decay: ``p >= 0``; 0 is a constant step, 0.5 is ``eta_0 / sqrt(t)``.
      tightening: ``epsilon >= 0``, one number or ``[m]``, added to each cost; 0 in the authors' code.
      dual: ``"observed"`` costs move the dual variable, or the ``"estimate"``.
    """

    name: ClassVar[str] = "pdcbo"
    title: ClassVar[str] = "PDCBO"
    papers: ClassVar[Mapping[str, str]] = {"xu2023cdc": "the authors' code"}
    shown = ("multipliers",)
    estimator: Strategy = Bounds()
    initial_multiplier: Annotated[PerConstraint, nonnegative, Letter("phi1")] = 1.0
    step: Annotated[PerConstraint, positive, Letter("eta0")] = 1.0
    decay: Annotated[Scalar, nonnegative, Letter("p")] = 0.0
    tightening: Annotated[PerConstraint, nonnegative, Letter("eps")] = 0.0
    dual: Annotated[Literal["observed", "estimate"], Letter("dual")] = static(default="observed")

    def init(self, arena: Arena) -> PdcboState:
        first = jnp.broadcast_to(jnp.asarray(self.initial_multiplier, arena.dtype), (arena.constraints,))
        return PdcboState(posterior=arena.surrogate.init(), multipliers=first, costs=jnp.zeros_like(first))

    def score(self, state: PdcboState, estimate: Estimate) -> Score:
        return Score(estimate.reward - weighted_sum(state.multipliers, estimate.costs))

    def after_choice(self, arena: Arena, state: PdcboState, estimate: Estimate, index: Array) -> PdcboState:
        return replace(state, costs=estimate.costs[:, index])

    def update(self, arena: Arena, state: PdcboState, observation: Seen, t: Array) -> PdcboState:
        costs, count = (state.costs, 1) if self.dual == "estimate" else (observation.total()[1:], observation.count[1:])
        step = jnp.asarray(self.step) * jnp.asarray(t, costs.dtype) ** -jnp.asarray(self.decay)
        dual = jnp.maximum(state.multipliers + step * (costs + count * jnp.asarray(self.tightening)), 0)
        return replace(state, posterior=arena.learn(state.posterior, observation), multipliers=dual)
