"""GP-UCB with noisy constraints (Shi and Eryilmaz 2022, "A Bayesian Approach for Stochastic Continuum-armed Bandit with Long-term
Constraints", Algorithm 3)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp

from jaxbandit import widths
from jaxbandit.algorithms.base import Arena, DualState, Score, Scored, Seen, Traits, shared_factor
from jaxbandit.core.fields import Letter, positive, whole
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.core.types import Array, Key, Scalar
from jaxbandit.estimators import Bounds, Estimate, Strategy
from jaxbandit.penalties import EpochSum


@pytree
class Se3State(DualState):
    """State of Algorithm 3: the posterior of the outputs ``(r, c_j)``, ``kappa`` of the current epoch, and sums over it."""

    epoch: EpochSum  # of the c_j observed over the epoch so far


@pytree
class Se3(Scored[Se3State]):
    r"""Additive penalties in epochs of ``S`` rounds, for constraints observed with noise.

    .. math::
        x_t = \arg\max_x \mathrm{UCB}_{G_l}(x), \quad G_l = f - \sum_j \kappa_l^j g_j, \qquad
        \kappa_{l+1}^j = \left(\kappa_l^j + \mu \tfrac{1}{S} \sum_{s} c_j^s\right)^+

    with ``kappa_1 = 0``. A theory width takes the noise of the combination, ``R sqrt(1 + sum_j kappa_j^2)``. Data of earlier epochs
    are used again unless ``restart``, as in :class:`~jaxbandit.algorithms.se2.Se2`. The outputs must share kernel and noise variance.

    Attributes:
      estimator: strategy for ``G_l``, by its reward width; default UCB of width 3.
      step: ``mu > 0``, of order ``1 / sqrt(L)`` for ``L`` epochs.
      epoch: ``S >= 1`` rounds.
      restart: forget the data of earlier epochs.
    """

    name: ClassVar[str] = "se3"
    title: ClassVar[str] = "GP-UCB with noisy constraints"
    paper: ClassVar[str] = (
        "Shi, Eryilmaz (2022), *A Bayesian Approach for Stochastic Continuum-armed Bandit with Long-term Constraints*, Algorithm 3"
    )
    shown = ("multipliers",)
    estimator: Strategy = Bounds()
    step: Annotated[Scalar, positive, Letter("mu")] = 0.5
    epoch: Annotated[int, whole(1), Letter("S")] = static(default=20)
    restart: Annotated[bool, Letter("restart")] = static(default=False)

    traits = Traits(joint_arrival=True)  # outputs that share a factor must arrive together

    def init(self, arena: Arena) -> Se3State:
        posterior = shared_factor(arena, self.name).init()
        sums = EpochSum.empty(arena.constraints, arena.dtype)
        return Se3State(posterior=posterior, multipliers=jnp.zeros((arena.constraints,), arena.dtype), epoch=sums)

    def estimate(self, arena: Arena, state: Se3State, t: Array, key: Key) -> Estimate:
        noise_factor = jnp.sqrt(1 + jnp.sum(jnp.square(state.multipliers)))
        scaled = replace(self.estimator, reward_width=widths.with_noise(self.estimator.reward_width, noise_factor))
        weights = jnp.append(jnp.ones((1,), state.multipliers.dtype), -state.multipliers)
        return scaled.combination(arena.surrogate, state.posterior, weights, t, key)

    def score(self, state: Se3State, estimate: Estimate) -> Score:
        return Score(estimate.reward)

    def update(self, arena: Arena, state: Se3State, observation: Seen, t: Array) -> Se3State:
        posterior = arena.learn(state.posterior, observation)
        sums, average, last = state.epoch.add(observation.total()[1:], observation.count[1:], t, self.epoch)
        moved = jnp.maximum(state.multipliers + self.step * average, 0)
        if self.restart:  # at the end of an epoch, so that an initial design serves the first one
            posterior = jax.lax.cond(last, arena.surrogate.init, lambda: posterior)
        return Se3State(posterior=posterior, multipliers=jnp.where(last, moved, state.multipliers), epoch=sums)
