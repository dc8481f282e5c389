"""GP-UCB with penalties constant over epochs (Shi and Eryilmaz 2022)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

import jax
import jax.numpy as jnp

from jaxbandit.algorithms.base import Arena, DualState, Scored, Seen, Traits
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import Array, Key, Scalar
from jaxbandit.core.fields import Letter, between, positive, whole
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.core.status import Status
from jaxbandit.rules import widths
from jaxbandit.rules.estimators import Bounds, Estimate, Strategy
from jaxbandit.rules.penalties import Exponential, Penalty
from jaxbandit.rules.scores import Score


@pytree
class EpochState(DualState):
    """State with the current epoch's ``kappa`` as multipliers, and its sums."""

    total: Array  # [m] epoch's sum of costs
    count: Array  # [m] epoch's number of costs

    @classmethod
    def start(cls, arena: Arena, kappa: float, name: str, **more: Array) -> Self:
        """Return the state before round 1, if all outputs share a factor."""
        if len(arena.surrogate.model.forms) != 1:
            raise InvalidArgument(f"surrogate: {name} models a combination of outputs; give all of them one kernel and noise_variance")
        return cls(
            posterior=arena.surrogate.init(),
            multipliers=jnp.full((arena.constraints,), kappa, arena.dtype),
            total=jnp.zeros((arena.constraints,), arena.dtype),
            count=jnp.zeros((arena.constraints,), arena.dtype),
            **more,
        )

    def after(self, arena: Arena, observation: Seen, t: Array, *, length: int, restart: bool) -> tuple[Self, Array, Array]:
        """Return the state, average costs ``[m]`` and whether the epoch is over."""
        total, count = self.total + observation.total()[1:], self.count + observation.count[1:]
        last, posterior = t % length == 0, self.posterior
        # A restart is at the end of an epoch, so that the first epoch uses an initial design.
        if restart:
            posterior = jax.lax.cond(last, arena.surrogate.init, lambda: self.posterior)
        state = replace(self, posterior=posterior, total=jnp.where(last, 0, total), count=jnp.where(last, 0, count))
        return state, total / jnp.maximum(count, 1), last

    def estimate(self, arena: Arena, strategy: Strategy, t: Array, key: Key) -> Estimate:
        """Return the estimate of ``f - sum_j kappa_j h_j``."""
        weights = jnp.append(jnp.ones((1,), self.multipliers.dtype), -self.multipliers)
        return strategy.combination(arena.belief(self), weights, t, key)


@pytree
class Se2State(EpochState):
    """State of Algorithm 2, for the outputs ``(r, psi(g_j) - 1)``."""

    flags: Array  # [] status bits


@pytree
class Se2(Scored[Se2State]):
    r"""Multiplicative penalties in epochs of ``S`` rounds, for constraints observed without noise.

    .. math::
        x_t = \arg\max_x \mathrm{UCB}_{F_l}(x), \quad F_l = f - \sum_j \kappa_l^j (\psi(g_j) - 1), \\
        \kappa_{l+1}^j = \kappa_l^j \, \psi\!\left(\tfrac{1}{S} \sum_{s} g_j(x_l^s)\right)

    with ``kappa_1 = 1``. The surrogate models reward and penalties apart, as ``(r, psi(g_j) - 1)``, and the mean of ``F_l`` is their
    weighted sum, so that data of earlier epochs serve under a new ``kappa`` at no cost. The paper's text starts every epoch afresh
    (``restart=True``), but this does not reproduce its figures. The outputs must share kernel and noise variance.

    Attributes:
      estimator: strategy for ``F_l``, by its reward width; default UCB of width 1. GP-TS is ``Thompson`` (Remark 1).
      psi: penalty function, ``Exponential`` or ``Polynomial``.
      epoch: ``S >= 1`` rounds.
      penalty_cap: largest ``kappa`` and ``psi``. Reaching it flags the trial, because ``exp`` can overflow.
      restart: forget the data of earlier epochs.
    """

    name: ClassVar[str] = "se2"
    title: ClassVar[str] = "GP-UCB with noiseless constraints"
    papers: ClassVar[Mapping[str, str]] = {"shi2022": "Algorithm 2"}
    shown = ("multipliers", "flags")
    estimator: Strategy = Bounds(reward_width=1.0, cost_width=1.0)
    psi: Annotated[Penalty, Letter("psi")] = Exponential()
    penalty_cap: Annotated[Scalar, between(1, float("inf"), open_high=True), Letter("cap")] = 1e6
    epoch: Annotated[int, whole(1), Letter("S")] = static(default=20)
    restart: Annotated[bool, Letter("restart")] = static(default=False)

    # Outputs that share a factor must arrive together.
    traits = Traits(joint_arrival=True)

    def init(self, arena: Arena) -> Se2State:
        return Se2State.start(arena, 1.0, self.name, flags=jnp.int32(0))

    def estimate(self, arena: Arena, state: Se2State, t: Array, key: Key) -> Estimate:
        return state.estimate(arena, self.estimator, t, key)

    def score(self, state: Se2State, estimate: Estimate) -> Score:
        return Score(estimate.reward)

    def update(self, arena: Arena, state: Se2State, observation: Seen, t: Array) -> Se2State:
        learnt = self.learn(arena, state, observation)
        state, average, last = learnt.after(arena, observation, t, length=self.epoch, restart=self.restart)
        kappa = jnp.where(last, jnp.minimum(state.multipliers * self._psi(average), self.penalty_cap), state.multipliers)
        largest = jnp.max(jnp.append(kappa, observation.map(self._psi).largest()[1:]), initial=0)
        flags = state.flags | jnp.where(largest >= self.penalty_cap, int(Status.PENALTY_CAPPED), 0)
        return replace(state, multipliers=kappa, flags=flags)

    def learn(self, arena: Arena, state: Se2State, observation: Seen) -> Se2State:
        """Condition on ``(r, psi(c_j) - 1)``, the outputs of the surrogate."""
        modelled = observation.map(lambda values: jnp.append(values[:1], self._psi(values[1:]) - 1))
        return replace(state, posterior=arena.learn(state.posterior, modelled))

    def _psi(self, costs: Array) -> Array:
        return jnp.minimum(self.psi.at(costs), self.penalty_cap)


@pytree
class Se3(Scored[EpochState]):
    r"""Additive penalties in epochs of ``S`` rounds, for constraints observed with noise.

    .. math::
        x_t = \arg\max_x \mathrm{UCB}_{G_l}(x), \quad G_l = f - \sum_j \kappa_l^j g_j, \qquad
        \kappa_{l+1}^j = \left(\kappa_l^j + \mu \tfrac{1}{S} \sum_{s} c_j^s\right)^+

    with ``kappa_1 = 0``. A theory width uses the noise of the combination, ``R sqrt(1 + sum_j kappa_j^2)``. Data of earlier epochs
    are used again unless ``restart``, as in :class:`~jaxbandit.Se2`. The outputs must share kernel and noise variance.

    Attributes:
      estimator: strategy for ``G_l``, by its reward width; default UCB of width 3.
      step: ``mu > 0``, of order ``1 / sqrt(L)`` for ``L`` epochs.
      epoch: ``S >= 1`` rounds.
      restart: forget the data of earlier epochs.
    """

    name: ClassVar[str] = "se3"
    title: ClassVar[str] = "GP-UCB with noisy constraints"
    papers: ClassVar[Mapping[str, str]] = {"shi2022": "Algorithm 3"}
    shown = ("multipliers",)
    estimator: Strategy = Bounds()
    step: Annotated[Scalar, positive, Letter("mu")] = 0.5
    epoch: Annotated[int, whole(1), Letter("S")] = static(default=20)
    restart: Annotated[bool, Letter("restart")] = static(default=False)

    traits = Traits(joint_arrival=True)

    def init(self, arena: Arena) -> EpochState:
        return EpochState.start(arena, 0.0, self.name)

    def estimate(self, arena: Arena, state: EpochState, t: Array, key: Key) -> Estimate:
        noise_factor = jnp.sqrt(1 + jnp.sum(jnp.square(state.multipliers)))
        scaled = replace(self.estimator, reward_width=widths.with_noise(self.estimator.reward_width, noise_factor))
        return state.estimate(arena, scaled, t, key)

    def score(self, state: EpochState, estimate: Estimate) -> Score:
        return Score(estimate.reward)

    def update(self, arena: Arena, state: EpochState, observation: Seen, t: Array) -> EpochState:
        learnt = self.learn(arena, state, observation)
        state, average, last = learnt.after(arena, observation, t, length=self.epoch, restart=self.restart)
        moved = jnp.maximum(state.multipliers + self.step * average, 0)
        return replace(state, multipliers=jnp.where(last, moved, state.multipliers))
