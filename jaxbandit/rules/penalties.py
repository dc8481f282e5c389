"""Penalty functions of the penalty methods of Shi and Eryilmaz (2022)."""

from __future__ import annotations

import abc
from typing import Annotated, ClassVar

import jax.numpy as jnp

from jaxbandit.core import checks
from jaxbandit.core.declare import Array, Declared, Scalar
from jaxbandit.core.fields import Letter, between, positive
from jaxbandit.core.pytree import pytree

__all__ = ["Exponential", "Penalty", "Polynomial"]
__dir__ = __all__.copy


class Penalty(Declared, abc.ABC):
    """Abstract base of increasing functions ``psi`` that are 1 below 0."""

    described: ClassVar[str] = "a penalty function of jaxbandit.penalties, such as Exponential()"
    in_files: ClassVar[bool] = True

    @abc.abstractmethod
    def __call__(self, x: Array) -> Array:
        """Return ``psi(x)`` for every entry of ``x [...]``."""

    def at(self, x: Array) -> Array:
        """Return ``psi(x)``, or raise ``InvalidArgument`` unless ``psi`` returns real numbers."""
        where = f"psi: {type(self).__name__} must give a real number for every entry of x {list(jnp.shape(x))}"
        with checks.blaming(f"{where}, and JAX must be able to trace it"):
            given = jnp.asarray(self(x))
        if given.shape != jnp.shape(x) or not jnp.issubdtype(given.dtype, jnp.floating):
            raise checks.InvalidArgument(f"{where}, got {given.dtype} {list(given.shape)}")
        return given


@pytree
class Exponential(Penalty):
    """Exponential penalty ``psi(x) = exp(c max(x, 0))`` (equation 10).

    It has the best rate and the largest multipliers.

    Attributes:
      c: rate > 0.
    """

    c: Annotated[Scalar, positive, Letter("c")] = 1.0

    def __call__(self, x: Array) -> Array:
        return jnp.exp(self.c * jnp.maximum(x, 0))


@pytree
class Polynomial(Penalty):
    """Polynomial penalty ``psi(x) = (c max(x, 0) + 1)^n`` (equation 9).

    Attributes:
      c: rate > 0.
      n: power >= 1; violation is sublinear only for ``n > 1`` (sec. 5.1).
    """

    c: Annotated[Scalar, positive, Letter("c")] = 1.0
    n: Annotated[Scalar, between(1, float("inf"), open_low=False, open_high=True), Letter("n")] = 2.0

    def __call__(self, x: Array) -> Array:
        return (self.c * jnp.maximum(x, 0) + 1) ** self.n
