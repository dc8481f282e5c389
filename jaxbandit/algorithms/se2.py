"""GP-UCB with noiseless constraints (Shi and Eryilmaz 2022, "A Bayesian Approach for Stochastic Continuum-armed Bandit with Long-term
Constraints", Algorithm 2)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp

from jaxbandit.algorithms.base import Arena, DualState, Score, Scored, Seen, Traits, shared_factor
from jaxbandit.core.fields import Letter, between, whole
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.core.status import Status
from jaxbandit.core.types import Array, Key, Scalar
from jaxbandit.estimators import Bounds, Estimate, Strategy
from jaxbandit.penalties import EpochSum, Exponential, Penalty


@pytree
class Se2State(DualState):
    """State of Algorithm 2: the posterior of the outputs ``(r, psi(g_j) - 1)``, ``kappa`` of the current epoch, and sums over it."""

    epoch: EpochSum  # of the g_j seen over the epoch so far
    flags: Array  # [] status bits: whether a penalty has reached its cap


@pytree
class Se2(Scored[Se2State]):
    r"""Multiplicative penalties in epochs of ``S`` rounds, for constraints observed without noise.

    .. math::
        x_t = \arg\max_x \mathrm{UCB}_{F_l}(x), \quad F_l = f - \sum_j \kappa_l^j (\psi(g_j) - 1), \qquad
        \kappa_{l+1}^j = \kappa_l^j \, \psi\!\left(\tfrac{1}{S} \sum_{s} g_j(x_l^s)\right)

    with ``kappa_1 = 1``. Reward and penalty are observed apart, so earlier epochs serve under the new ``kappa`` at no cost: the
    surrogate learns ``(r, psi(g_j) - 1)`` and the mean of ``F_l`` is their combination. The paper's text starts every epoch afresh
    (``restart=True``), with which its figures do not come out. The outputs must share kernel and noise variance.

    Attributes:
      estimator: strategy for ``F_l``, by its reward width; default UCB of width 1. GP-TS is ``Thompson`` (Remark 1).
      psi: penalty function, ``Exponential`` or ``Polynomial``.
      epoch: ``S >= 1`` rounds.
      penalty_cap: largest ``kappa`` and ``psi``; reaching it flags the trial, for ``exp`` can overflow.
      restart: forget the data of earlier epochs.
    """

    name: ClassVar[str] = "se2"
    title: ClassVar[str] = "GP-UCB with noiseless constraints"
    paper: ClassVar[str] = (
        "Shi, Eryilmaz (2022), *A Bayesian Approach for Stochastic Continuum-armed Bandit with Long-term Constraints*, Algorithm 2"
    )
    shown = ("multipliers", "flags")
    estimator: Strategy = Bounds(reward_width=1.0, cost_width=1.0)
    psi: Annotated[Penalty, Letter("psi")] = Exponential()
    penalty_cap: Annotated[Scalar, between(1, float("inf"), open_high=True), Letter("cap")] = 1e6
    epoch: Annotated[int, whole(1), Letter("S")] = static(default=20)
    restart: Annotated[bool, Letter("restart")] = static(default=False)

    traits = Traits(joint_arrival=True)  # outputs that share a factor must arrive together

    def init(self, arena: Arena) -> Se2State:
        return Se2State(
            posterior=shared_factor(arena, self.name).init(),
            multipliers=jnp.ones((arena.constraints,), arena.dtype),
            epoch=EpochSum.empty(arena.constraints, arena.dtype),
            flags=jnp.int32(0),
        )

    def estimate(self, arena: Arena, state: Se2State, t: Array, key: Key) -> Estimate:
        weights = jnp.append(jnp.ones((1,), state.multipliers.dtype), -state.multipliers)
        return self.estimator.combination(arena.surrogate, state.posterior, weights, t, key)

    def score(self, state: Se2State, estimate: Estimate) -> Score:
        return Score(estimate.reward)

    def update(self, arena: Arena, state: Se2State, observation: Seen, t: Array) -> Se2State:
        posterior = self.learn(arena, state, observation).posterior
        sums, average, last = state.epoch.add(observation.total()[1:], observation.count[1:], t, self.epoch)
        kappa = jnp.where(last, jnp.minimum(state.multipliers * self._psi(average), self.penalty_cap), state.multipliers)
        if self.restart:  # at the end of an epoch, so that an initial design serves the first one
            posterior = jax.lax.cond(last, arena.surrogate.init, lambda: posterior)
        largest = jnp.max(jnp.append(kappa, observation.largest(self._psi)[1:]), initial=0)
        flags = state.flags | jnp.where(largest >= self.penalty_cap, int(Status.PENALTY_CAPPED), 0)
        return Se2State(posterior=posterior, multipliers=kappa, epoch=sums, flags=flags)

    def learn(self, arena: Arena, state: Se2State, observation: Seen) -> Se2State:
        """Condition on ``(r, psi(c_j) - 1)``, the values that the surrogate models here."""
        modelled = observation.map(lambda values: jnp.append(values[:1], self._psi(values[1:]) - 1))
        return replace(state, posterior=arena.learn(state.posterior, modelled))

    def _psi(self, costs: Array) -> Array:
        return jnp.minimum(self.psi.at(costs), self.penalty_cap)
