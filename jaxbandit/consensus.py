"""The alternating direction method of multipliers on ``x = z_j``: what the steps are pulled towards, and when they agree.

For ``min F(x) + sum_j H_j(z_j)`` subject to ``x = z_j`` with multipliers ``y_j``, the x-step minimises
``F(x) + (m rho / 2) |x - mean_j(z_j - y_j / rho)|^2``, the z-steps ``H_j(z) + (rho / 2) |x - z + y_j / rho|^2``; then
``y_j += rho (x - z_j)`` (Boyd et al. 2011, sec. 3 and 7).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxbandit.acquisition import squared_distance
from jaxbandit.core import checks
from jaxbandit.core.pytree import pytree, replace

__all__ = ["Agreement", "Consensus"]

Array = jax.Array


@pytree
class Agreement:
    """When the variables count as agreed, and how ``rho`` follows the residuals (Boyd et al. 2011, sec. 3.3.1 and 3.4.1).

    Attributes:
      absolute, relative: ``eps_abs``, ``eps_rel`` > 0.
      relaxation: factor > 0 on ``eps_rel``.
    """

    absolute: Any = 0.05
    relative: Any = 0.05
    relaxation: Any = 1.5

    def validate(self, name: str) -> None:
        """Raise ``InvalidArgument`` on a tolerance that is not positive."""
        for field in ("absolute", "relative", "relaxation"):
            checks.positive(f"{name}.{field}", getattr(self, field))
            checks.scalar(f"{name}.{field}", getattr(self, field))


@pytree
class Consensus:
    """The variables; ``m`` copies of ``d`` coordinates."""

    x: Array  # [d]
    z: Array  # [m, d]
    z_before: Array  # [m, d] at the end of the previous outer iteration
    y: Array  # [m, d]
    rho: Array  # []

    @classmethod
    def start(cls, point: Array, copies: int, rho: Array) -> Consensus:
        """All variables at one point, without multipliers."""
        z = jnp.broadcast_to(point[None], (copies, point.shape[0]))
        return cls(x=point, z=z, z_before=z, y=jnp.zeros_like(z), rho=rho)

    def x_pull(self, points: Array) -> Array:
        """``(m rho / 2) |x - mean_j(z_j - y_j / rho)|^2`` at ``points [M, d]``, ``[M]``."""
        target = jnp.mean(self.z - self.y / self.rho, axis=0)
        return (0.5 * self.z.shape[0]) * self.rho * squared_distance(points, target)

    def z_pull(self, points: Array, j: Array) -> Array:
        """``(rho / 2) |x - z + y_j / rho|^2`` at ``points [M, d]``, ``[M]``; ``j`` from 0."""
        return 0.5 * self.rho * squared_distance(points, self.x + self.y[j] / self.rho)

    def with_x(self, point: Array) -> Consensus:
        """After an x-step."""
        return replace(self, x=point)

    def with_z(self, point: Array, j: Array) -> Consensus:
        """After the z-step of copy ``j`` (from 0), its multiplier moved."""
        mine = (jnp.arange(self.z.shape[0], dtype=jnp.int32) == j)[:, None]
        moved = self.y + self.rho * (self.x - point)[None]
        return replace(self, z=jnp.where(mine, point[None], self.z), y=jnp.where(mine, moved, self.y))

    def close(self, rules: Agreement) -> tuple[Consensus, Array]:
        """The variables after an outer iteration, ``rho`` adapted, and whether they agreed.

        They agree when for all ``j`` the residuals ``|x - z_j|`` and ``rho |z_j - z_j^before|`` are below ``sqrt(d) eps_abs +
        relaxation eps_rel max(|x|, |z_j|)`` and ``sqrt(d) eps_abs + relaxation eps_rel rho |y_j|``. ``rho`` doubles when the mean primal
        residual exceeds ten times the mean dual one, and halves in the reverse case.
        """
        primal, dual = _norm(self.x[None] - self.z), self.rho * _norm(self.z - self.z_before)
        base, slope = self.x.shape[0] ** 0.5 * rules.absolute, rules.relaxation * rules.relative
        near = primal < base + slope * jnp.maximum(_norm(self.x), _norm(self.z))
        still = dual < base + slope * self.rho * _norm(self.y)
        first, second = jnp.mean(primal), jnp.mean(dual)
        rho = jnp.where(first > 10 * second, 2 * self.rho, jnp.where(second > 10 * first, self.rho / 2, self.rho))
        return replace(self, z_before=self.z, rho=rho), jnp.all(near & still)


def _norm(vectors: Array) -> Array:
    return jnp.sqrt(jnp.sum(jnp.square(vectors), axis=-1))
