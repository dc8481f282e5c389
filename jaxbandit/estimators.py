"""Exploration strategies: what an algorithm believes of reward and constraints this round, drawn or bounded.

Every strategy gives an optimistic reward estimate and optimistic constraint estimates (low, since ``g <= 0`` is feasible); algorithms
take the strategy as a parameter and never look at means and deviations themselves.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxbandit import widths
from jaxbandit.core.pytree import pytree
from jaxbandit.surrogates import Posterior, Surrogate

__all__ = ["Bounds", "Estimate"]

Array = jax.Array


@pytree
class Estimate:
    """What a strategy believes this round; ``m`` constraints, ``M`` points."""

    reward: Array  # [M]
    costs: Array  # [m, M]
    widths: Array  # [1 + m] the beta_t used


@pytree
class Bounds:
    """Confidence bounds: the UCB of the reward, the LCB of every constraint.

    Attributes:
      reward_width: ``beta`` of the reward: a number > 0 or a schedule of :mod:`jaxbandit.widths`.
      cost_width: the same for the constraints: one for all, or ``[m]`` numbers.
    """

    reward_width: Any = 3.0
    cost_width: Any = 3.0

    def estimate(self, surrogate: Surrogate, posterior: Posterior, t: Array, key: Array) -> Estimate:
        """Bounds ``mu + beta sigma`` and ``mu - beta sigma`` at every point in round ``t``."""
        belief = surrogate.predict(posterior)
        reward_beta = widths.evaluate(self.reward_width, t, belief.gain[0])
        cost_beta = widths.evaluate(self.cost_width, t, belief.gain[1:])
        return Estimate(
            reward=belief.mean[0] + reward_beta * belief.sd[0],
            costs=belief.mean[1:] - cost_beta[:, None] * belief.sd[1:],
            widths=jnp.append(reward_beta, cost_beta),
        )

    def validate(self) -> None:
        """Raise ``InvalidArgument`` on a width that is not positive."""
        widths.validate("reward_width", self.reward_width)
        widths.validate("cost_width", self.cost_width)
