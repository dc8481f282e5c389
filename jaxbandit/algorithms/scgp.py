"""SCGP-UCB, for constraints seen as noisy functions before acting (Zhou and Ji 2022, "On Kernelized Multi-Armed Bandits with
Constraints", Algorithm 2 and Theorems 3-4)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import jax.numpy as jnp

from jaxbandit.acquisition import pick, weighted_sum
from jaxbandit.algorithms.base import Algorithm, Arena, Decision, DualState, Traits
from jaxbandit.core.fields import Letter, between, positive
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.core.status import Status
from jaxbandit.core.types import Array, Key, Scalar
from jaxbandit.estimators import Bounds, Strategy


@pytree
class ScgpState(DualState):
    """State of SCGP-UCB, whose multipliers are the virtual queues ``Q(t)``."""

    sample: Array  # [m, M] the constraint functions g_t(.) revealed for the coming choice


@pytree
class Scgp(Algorithm[ScgpState]):
    r"""SCGP-UCB: a virtual queue per constraint, pushed up a little every round so that violations are paid back.

    .. math::
        x_t = \arg\max_x \bar f_t(x) - \tfrac{1}{V_t} \sum_j Q_j(t) g_{t,j}(x), \qquad
        Q_j(t+1) = (Q_j(t) + g_{t,j}(x_t) + \epsilon_t)^+

    Schedule 1: ``eps_t = 1 / sqrt t``, ``V_t = delta sqrt t / (8 B)``. Schedule 2: ``eps_t = delta / (2 sqrt t)``,
    ``V_t = delta^2 sqrt t / (16 B)``.

    Attributes:
      estimator: strategy for the reward; default UCB of width 3.
      reward_clip: ``B > 0``.
      slater: Slater constant ``delta`` in (0, 1].
      schedule: 1 or 2.
    """

    name: ClassVar[str] = "scgp"
    title: ClassVar[str] = "SCGP-UCB"
    paper: ClassVar[str] = "Zhou, Ji (2022), *On Kernelized Multi-Armed Bandits with Constraints*, Algorithm 2"
    shown = ("multipliers",)
    estimator: Strategy = Bounds()
    reward_clip: Annotated[Scalar, positive, Letter("B")] = 1.0
    slater: Annotated[Scalar, between(0, 1), Letter("delta")] = 0.5
    schedule: Annotated[Literal[1, 2], Letter("schedule")] = static(default=1)

    traits = Traits(sees_constraints=True)

    def init(self, arena: Arena) -> ScgpState:
        return ScgpState(
            posterior=arena.surrogate.init(),
            multipliers=jnp.zeros((arena.constraints,), arena.dtype),
            sample=jnp.zeros((arena.constraints, arena.size), arena.dtype),
        )

    def reveal(self, arena: Arena, state: ScgpState, sample: Array, t: Array) -> ScgpState:
        """Take in ``g_t(.)`` before the choice of round ``t`` (line 4)."""
        return replace(state, sample=sample)

    def select(self, arena: Arena, state: ScgpState, t: Array, key: Key) -> tuple[Decision, ScgpState]:
        estimate = self.estimator.estimate(arena.surrogate, state.posterior, t, key)
        bound = jnp.asarray(self.reward_clip)
        reward = jnp.clip(estimate.reward, -bound, bound)
        everywhere = (jnp.min(estimate.reward) >= bound) | (jnp.max(estimate.reward) <= -bound)
        flags = jnp.where(everywhere, int(Status.ALL_CLIPPED), 0)
        push, divisor = self._schedules(jnp.asarray(t, reward.dtype))
        index = pick(reward - weighted_sum(state.multipliers / divisor, state.sample))  # line 5
        queue = jnp.maximum(state.multipliers + state.sample[:, index] + push, 0)  # line 7
        return Decision(index=index, widths=estimate.widths, flags=flags, draws=estimate.draws), replace(state, multipliers=queue)

    def _schedules(self, t: Array) -> tuple[Array, Array]:
        """Return ``eps_t`` and ``V_t``."""
        root = jnp.sqrt(t)
        if self.schedule == 1:
            return 1 / root, self.slater * root / (8 * self.reward_clip)
        return self.slater / (2 * root), self.slater**2 * root / (16 * self.reward_clip)
