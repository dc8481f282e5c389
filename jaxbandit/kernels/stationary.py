"""Kernels of the difference of two points: squared exponential, Matern, rational quadratic, periodic."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxbandit.core.declare import checked
from jaxbandit.core.fields import positive
from jaxbandit.core.pytree import pytree
from jaxbandit.core.types import Array, PerAxis, Scalar
from jaxbandit.kernels.base import Axes, Kernel, on_points, ones, scale_per_axis

SQRT3, SQRT5 = math.sqrt(3.0), math.sqrt(5.0)


@pytree
class SquaredExponential(Kernel):
    """Squared exponential, ``k(x, y) = exp(-|x - y|^2 / (2 l^2))``; ``length_scale`` is ``l``, scalar or ``[d]``.

    For the convention without the 2, ``exp(-|x - y|^2 / b^2)``, use :meth:`from_bandwidth`.
    """

    short_name: ClassVar[str] = "se"
    length_scale: Annotated[PerAxis, positive] = 1.0

    @classmethod
    @checked
    def from_bandwidth(cls, bandwidth: Annotated[PerAxis, positive]) -> SquaredExponential:
        """Return ``k(x, y) = exp(-|x - y|^2 / b^2)``, the convention of CONFIG (Xu et al. 2023, sec. 6.1): ``l = b / sqrt(2)``."""
        return cls(length_scale=np.asarray(bandwidth) / math.sqrt(2.0))

    @on_points
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        return jnp.exp(-0.5 * squared_distance(x, y, self.length_scale))

    @on_points
    def diag(self, x: ArrayLike) -> Array:
        return ones(x)

    @checked
    def along_axes(self, dimension: Axes) -> tuple[Kernel, ...]:
        return tuple(SquaredExponential(length_scale=s) for s in scale_per_axis(self.length_scale, dimension))


@pytree
class Matern12(Kernel):
    """Matern 1/2 (exponential), ``k = exp(-r)`` with ``r = |(x - y) / l|``."""

    length_scale: Annotated[PerAxis, positive] = 1.0

    @on_points
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        return jnp.exp(-distance(x, y, self.length_scale))

    @on_points
    def diag(self, x: ArrayLike) -> Array:
        return ones(x)


@pytree
class Matern32(Kernel):
    """Matern 3/2, ``k = (1 + sqrt(3) r) exp(-sqrt(3) r)`` with ``r = |(x - y) / l|``."""

    length_scale: Annotated[PerAxis, positive] = 1.0

    @on_points
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        r = SQRT3 * distance(x, y, self.length_scale)
        return (1 + r) * jnp.exp(-r)

    @on_points
    def diag(self, x: ArrayLike) -> Array:
        return ones(x)


@pytree
class Matern52(Kernel):
    """Matern 5/2, ``k = (1 + sqrt(5) r + 5 r^2 / 3) exp(-sqrt(5) r)`` with ``r = |(x - y) / l|``."""

    length_scale: Annotated[PerAxis, positive] = 1.0

    @on_points
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        r = SQRT5 * distance(x, y, self.length_scale)
        return (1 + r + r * r / 3) * jnp.exp(-r)

    @on_points
    def diag(self, x: ArrayLike) -> Array:
        return ones(x)


@pytree
class RationalQuadratic(Kernel):
    """Rational quadratic, ``k = (1 + r^2 / (2 alpha))^-alpha`` with ``r = |(x - y) / l|``; ``alpha > 0`` mixes length-scales."""

    short_name: ClassVar[str] = "rq"
    length_scale: Annotated[PerAxis, positive] = 1.0
    alpha: Annotated[Scalar, positive] = 1.0

    @on_points
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        return (1 + squared_distance(x, y, self.length_scale) / (2 * jnp.asarray(self.alpha))) ** -jnp.asarray(self.alpha)

    @on_points
    def diag(self, x: ArrayLike) -> Array:
        return ones(x)


@pytree
class Periodic(Kernel):
    """Periodic (MacKay 1998), ``k = exp(-2 sum_a sin^2(pi (x_a - y_a) / p_a) / l_a^2)``; ``length_scale`` has no unit.

    Both hyper-parameters are scalars or ``[d]``; ``period`` is in input units. On several axes it is the product of one-dimensional
    kernels: the same formula on the Euclidean distance would not be positive semi-definite.
    """

    length_scale: Annotated[PerAxis, positive] = 1.0
    period: Annotated[PerAxis, positive] = 1.0

    @on_points
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        axes = (1, 1, jnp.shape(x)[-1])
        difference = jnp.asarray(x)[:, None, :] - jnp.asarray(y)[None, :, :]
        phase = jnp.sin(math.pi * difference / jnp.broadcast_to(jnp.asarray(self.period), axes))
        scaled = phase / jnp.broadcast_to(jnp.asarray(self.length_scale), axes)
        return jnp.exp(-2 * jnp.sum(scaled * scaled, axis=-1))

    @on_points
    def diag(self, x: ArrayLike) -> Array:
        return ones(x)

    @checked
    def along_axes(self, dimension: Axes) -> tuple[Kernel, ...]:
        scales, periods = scale_per_axis(self.length_scale, dimension), scale_per_axis(self.period, dimension)
        return tuple(Periodic(length_scale=s, period=p) for s, p in zip(scales, periods, strict=True))


def squared_distance(x: ArrayLike, y: ArrayLike, length_scale: PerAxis) -> Array:
    """Return ``sum_a ((x_a - y_a) / l_a)^2`` as ``[n, p]``, from differences: the expanded square loses digits for near points."""
    scale = jnp.broadcast_to(jnp.asarray(length_scale), (1, 1, jnp.shape(x)[-1]))
    difference = (jnp.asarray(x)[:, None, :] - jnp.asarray(y)[None, :, :]) / scale
    return jnp.sum(difference * difference, axis=-1)


def distance(x: ArrayLike, y: ArrayLike, length_scale: PerAxis) -> Array:
    """Return the scaled distance ``[n, p]``, whose gradient is zero, not NaN, at coinciding points."""
    squared = squared_distance(x, y, length_scale)
    apart = squared > 0
    return jnp.where(apart, jnp.sqrt(jnp.where(apart, squared, 1)), 0)
