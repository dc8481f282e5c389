"""Penalty functions and the bookkeeping of epochs, shared by the penalty methods of Shi and Eryilmaz (2022)."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from typing import Any, ClassVar

import jax.numpy as jnp
from jax.typing import DTypeLike

from jaxbandit.core import checks
from jaxbandit.core.declare import Declared, is_foreign
from jaxbandit.core.fields import between, positive
from jaxbandit.core.pytree import param, pytree
from jaxbandit.core.types import Array, Scalar

__all__ = ["EpochSum", "Exponential", "Penalty", "Polynomial"]
__dir__ = __all__.copy  # what completion shows


def _one_each(method: Callable[..., Array]) -> Callable[..., Array]:
    """Return ``psi`` of a class, which for a user's raises ``InvalidArgument`` unless it gives a real number for each entry."""

    @functools.wraps(method)
    def checked(self: Penalty, x: Array) -> Array:
        if not is_foreign(self):
            return method(self, x)
        where = f"psi: {type(self).__name__} must give a real number for every entry of x {list(jnp.shape(x))}"
        with checks.blaming(f"{where}, and JAX must be able to trace it"):
            given = jnp.asarray(method(self, x))
        if given.shape != jnp.shape(x) or not jnp.issubdtype(given.dtype, jnp.floating):
            raise checks.InvalidArgument(f"{where}, got {given.dtype} {list(given.shape)}")
        return given

    return checked


class Penalty(Declared, abc.ABC):
    """Abstract base of penalty functions ``psi``, increasing and 1 for ``x <= 0``."""

    described: ClassVar[str] = "a penalty function of jaxbandit.penalties, such as Exponential()"
    in_files: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__call__" in vars(cls):
            cls.__call__ = _one_each(vars(cls)["__call__"])  # type: ignore[method-assign]

    @abc.abstractmethod
    def __call__(self, x: Array) -> Array:
        """Return ``psi(x)`` for every entry of ``x [...]``."""


@pytree
class Exponential(Penalty):
    """``psi(x) = 1`` for ``x <= 0``, else ``exp(c x)`` (eq. 10): the best rate, and the largest multipliers.

    Attributes:
      c: rate > 0.
    """

    c: Scalar = param(1.0, check=positive, symbol="c")

    def __call__(self, x: Array) -> Array:
        return jnp.exp(self.c * jnp.maximum(x, 0))


@pytree
class Polynomial(Penalty):
    """``psi(x) = 1`` for ``x <= 0``, else ``(c x + 1)^n`` (eq. 9).

    Attributes:
      c: rate > 0.
      n: power >= 1; violation is sublinear only for ``n > 1`` (sec. 5.1).
    """

    c: Scalar = param(1.0, check=positive, symbol="c")
    n: Scalar = param(2.0, check=between(1, float("inf"), open_low=False, open_high=True), symbol="n")

    def __call__(self, x: Array) -> Array:
        return (self.c * jnp.maximum(x, 0) + 1) ** self.n


@pytree
class EpochSum:
    """Sum and number of the values of each constraint that came in during an epoch so far."""

    total: Array  # [m]
    count: Array  # [m]

    @classmethod
    def empty(cls, constraints: int, dtype: DTypeLike) -> EpochSum:
        """Return the sums at the start of an epoch, all 0."""
        return cls(total=jnp.zeros((constraints,), dtype), count=jnp.zeros((constraints,), dtype))

    def add(self, total: Array, count: Array, t: Array, length: int) -> tuple[EpochSum, Array, Array]:
        """Add ``total [m]`` of ``count [m]`` values that come in during round ``t []`` to epochs of ``length`` rounds.

        Returns:
          The new sums (empty after an epoch's last round), the average over the epoch ``[m]`` (0 where nothing came in), and whether
          round ``t`` is its last, when the average is complete.
        """
        total, count = self.total + total, self.count + count
        last = t % length == 0
        sums = EpochSum(total=jnp.where(last, 0, total), count=jnp.where(last, 0, count))
        return sums, total / jnp.maximum(count, 1), last
