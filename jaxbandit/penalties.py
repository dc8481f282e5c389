"""Penalty functions and the bookkeeping of epochs, shared by the penalty methods of Shi and Eryilmaz (2022)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxbandit.core import checks
from jaxbandit.core.pytree import pytree

__all__ = ["EpochSum", "Exponential", "Polynomial"]

Array = jax.Array


@pytree
class Exponential:
    """``psi(x) = 1`` for ``x <= 0``, else ``exp(c x)``, with ``c > 0`` (eq. 10): the best rate, and the largest multipliers."""

    c: Any = 1.0

    def __call__(self, x: Array) -> Array:
        return jnp.exp(self.c * jnp.maximum(x, 0))

    def validate(self) -> None:
        """Raise ``InvalidArgument`` unless ``c > 0``."""
        checks.positive("Exponential.c", self.c)
        checks.scalar("Exponential.c", self.c)


@pytree
class Polynomial:
    """``psi(x) = 1`` for ``x <= 0``, else ``(c x + 1)^n``, with ``c > 0`` and ``n >= 1`` (eq. 9).

    Violation is sublinear only for ``n > 1`` (sec. 5.1).
    """

    c: Any = 1.0
    n: Any = 2.0

    def __call__(self, x: Array) -> Array:
        return (self.c * jnp.maximum(x, 0) + 1) ** self.n

    def validate(self) -> None:
        """Raise ``InvalidArgument`` unless ``c > 0`` and ``n >= 1``."""
        checks.positive("Polynomial.c", self.c)
        checks.scalar("Polynomial.c", self.c)
        checks.scalar("Polynomial.n", self.n)
        checks.within("Polynomial.n", self.n, 1.0, float("inf"), open_low=False, open_high=True)


@pytree
class EpochSum:
    """What came in during an epoch so far, of each constraint."""

    total: Array  # [m]
    count: Array  # [m]

    @classmethod
    def empty(cls, constraints: int, dtype: Any) -> EpochSum:
        """Nothing yet."""
        return cls(total=jnp.zeros((constraints,), dtype), count=jnp.zeros((constraints,), dtype))

    def add(self, total: Array, count: Array, t: Array, length: int) -> tuple[EpochSum, Array, Array]:
        """Add ``total [m]`` of ``count [m]`` values.

        Returns the new sums (empty after an epoch's last round), the average over the epoch (0 where nothing came in), and whether
        round ``t`` is its last, when the average is complete.
        """
        total, count = self.total + total, self.count + count
        last = t % length == 0
        sums = EpochSum(total=jnp.where(last, 0, total), count=jnp.where(last, 0, count))
        return sums, total / jnp.maximum(count, 1), last
