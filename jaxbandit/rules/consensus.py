"""Alternating direction method of multipliers (ADMM) for the consensus ``x = z_j``.

It solves ``min F(x) + sum_j H_j(z_j)`` subject to ``x = z_j`` with multipliers ``y_j``. The x-step minimises
``F(x) + (m rho / 2) |x - mean_j(z_j - y_j / rho)|^2``, and each z-step minimises ``H_j(z) + (rho / 2) |x - z + y_j / rho|^2`` and sets
``y_j += rho (x - z_j)`` (Boyd et al. 2011, sec. 3 and 7).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import jax.numpy as jnp

from jaxbandit.core.declare import Array, Declared, Scalar
from jaxbandit.core.fields import Letter, positive
from jaxbandit.core.pytree import pytree, replace
from jaxbandit.numerics.ties import squared_distance

__all__ = ["Agreement", "Consensus"]
__dir__ = __all__.copy


@pytree
class Agreement(Declared):
    """Tolerances of ADMM's stopping rule (Boyd et al. 2011, sec. 3.3.1).

    Attributes:
      absolute: ``eps_abs > 0``, in the units of the variables.
      relative: ``eps_rel > 0``, relative to the size of the variables.
      relaxation: factor > 0 on ``eps_rel``.
    """

    described: ClassVar[str] = "tolerances, consensus.Agreement(...)"
    in_files: ClassVar[bool] = True

    papers: ClassVar[Mapping[str, str]] = {"boyd2011": "sec. 3.3.1 and 3.4.1"}
    absolute: Annotated[Scalar, positive, Letter("eps_abs")] = 0.05
    relative: Annotated[Scalar, positive, Letter("eps_rel")] = 0.05
    relaxation: Annotated[Scalar, positive, Letter("relaxation")] = 1.5


@pytree
class Consensus:
    """Variables of ADMM: ``x``, its copies ``z_j`` and their multipliers ``y_j``."""

    x: Array  # [d]
    z: Array  # [m, d]
    z_before: Array  # [m, d] previous outer iteration
    y: Array  # [m, d]
    rho: Array  # []

    @classmethod
    def start(cls, point: Array, copies: int, rho: Array) -> Consensus:
        """Return variables that all equal ``point [d]``, with multipliers 0."""
        z = jnp.broadcast_to(point[None], (copies, point.shape[0]))
        return cls(x=point, z=z, z_before=z, y=jnp.zeros_like(z), rho=rho)

    def x_pull(self, points: Array) -> Array:
        """Return the quadratic term ``[M]`` of the x-step at ``points [M, d]``."""
        target = jnp.mean(self.z - self.y / self.rho, axis=0)
        return (0.5 * self.z.shape[0]) * self.rho * squared_distance(points, target)

    def z_pull(self, points: Array, j: Array) -> Array:
        """Return the quadratic term ``[M]`` of z-step ``j`` (from 0)."""
        return 0.5 * self.rho * squared_distance(points, self.x + self.y[j] / self.rho)

    def with_z(self, point: Array, j: Array) -> Consensus:
        """Return the variables after z-step ``j`` (from 0) found ``point [d]``."""
        mine = (jnp.arange(self.z.shape[0], dtype=jnp.int32) == j)[:, None]
        moved = self.y + self.rho * (self.x - point)[None]
        return replace(self, z=jnp.where(mine, point[None], self.z), y=jnp.where(mine, moved, self.y))

    def close(self, rules: Agreement) -> tuple[Consensus, Array]:
        """Return the variables after an outer iteration, and whether they agree.

        They agree when for all ``j`` the primal residual ``|x - z_j|`` is below ``sqrt(d) eps_abs + relaxation eps_rel max(|x|, |z_j|)``
        and the dual residual ``rho |z_j - z_j^before|`` is below ``sqrt(d) eps_abs + relaxation eps_rel rho |y_j|``. ``rho`` doubles when
        the mean primal residual exceeds ten times the mean dual residual, and halves in the reverse case.
        """
        primal, dual = _norm(self.x[None] - self.z), self.rho * _norm(self.z - self.z_before)
        base, slope = self.x.shape[0] ** 0.5 * rules.absolute, rules.relaxation * rules.relative
        near = primal < base + slope * jnp.maximum(_norm(self.x), _norm(self.z))
        still = dual < base + slope * self.rho * _norm(self.y)
        first, second = jnp.mean(primal), jnp.mean(dual)
        rho = jnp.where(first > 10 * second, 2 * self.rho, jnp.where(second > 10 * first, self.rho / 2, self.rho))
        return replace(self, z_before=self.z, rho=rho), jnp.all(near & still)


def _norm(vectors: Array) -> Array:
    """Return the Euclidean norm along the last axis."""
    return jnp.sqrt(jnp.sum(jnp.square(vectors), axis=-1))
