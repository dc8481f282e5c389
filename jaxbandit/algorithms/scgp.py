"""SCGP-UCB, for constraints seen as noisy functions before acting (Zhou and Ji 2022, "On Kernelized Multi-Armed Bandits with
Constraints", Algorithm 2 and Theorems 3-4)."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.acquisition import clipped, pick, weighted_sum
from jaxbandit.algorithms.base import Arena, Decision, Observation
from jaxbandit.core import checks
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.estimators import Bounds
from jaxbandit.surrogates import Posterior

Array = jax.Array


@pytree
class ScgpState:
    """What SCGP-UCB carries."""

    posterior: Posterior
    multipliers: Array  # [m] the virtual queues Q(t)
    sample: Array  # [m, M] the constraint functions g_t(.) revealed for the coming choice


@pytree
class Scgp:
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
    estimator: Any = Bounds()
    reward_clip: Any = 1.0
    slater: Any = 0.5
    schedule: int = static(default=1)

    def init(self, arena: Arena) -> ScgpState:
        posterior = arena.surrogate.init()
        dtype = posterior.mean.dtype
        return ScgpState(
            posterior=posterior,
            multipliers=jnp.zeros((arena.constraints,), dtype),
            sample=jnp.zeros((arena.constraints, arena.surrogate.domain.size), dtype),
        )

    def reveal(self, arena: Arena, state: ScgpState, sample: Array, t: Array) -> ScgpState:
        """Take in ``g_t(.)`` as ``sample [m, M]``, before the choice of round ``t`` (line 4)."""
        return replace(state, sample=sample)

    def select(self, arena: Arena, state: ScgpState, t: Array, key: Array) -> tuple[Decision, ScgpState]:
        estimate = self.estimator.estimate(arena.surrogate, state.posterior, t, key)
        reward, flags = clipped(estimate.reward, self.reward_clip)
        push, divisor = self._schedules(jnp.asarray(t, reward.dtype))
        index = pick(reward - weighted_sum(state.multipliers / divisor, state.sample))  # line 5
        queue = jnp.maximum(state.multipliers + state.sample[:, index] + push, 0)  # line 7
        return Decision(index=index, widths=estimate.widths, flags=flags, draws=estimate.draws), replace(state, multipliers=queue)

    def update(self, arena: Arena, state: ScgpState, observation: Observation, t: Array) -> ScgpState:
        return replace(state, posterior=arena.learn(state.posterior, observation))

    def _schedules(self, t: Array) -> tuple[Array, Array]:
        """``eps_t`` and ``V_t``."""
        root = jnp.sqrt(t)
        if self.schedule == 1:
            return 1 / root, self.slater * root / (8 * self.reward_clip)
        return self.slater / (2 * root), self.slater**2 * root / (16 * self.reward_clip)

    def audit_parameters(self, horizon: int) -> dict[str, Any]:
        """The parameters under the paper's letters, for audit traces."""
        return {
            "B": np.asarray(self.reward_clip).tolist(),
            "delta": np.asarray(self.slater).tolist(),
            "schedule": self.schedule,
        }

    def validate(self, constraints: int) -> None:
        self.estimator.validate("Scgp.estimator", 1 + constraints)
        checks.positive("Scgp.reward_clip", self.reward_clip)
        checks.scalar("Scgp.reward_clip", self.reward_clip)
        checks.within("Scgp.slater", self.slater, 0.0, 1.0)
        checks.scalar("Scgp.slater", self.slater)
        checks.one_of("Scgp.schedule", self.schedule, (1, 2))
