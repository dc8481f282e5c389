"""Linear, constant and white kernels."""

from __future__ import annotations

from typing import Annotated

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from jaxbandit.core.declare import checked
from jaxbandit.core.fields import nonnegative, positive
from jaxbandit.core.pytree import pytree
from jaxbandit.core.types import Array, PerAxis, Scalar
from jaxbandit.kernels.base import Axes, Kernel, on_points


@pytree
class Linear(Kernel):
    """Linear, ``k = b + sum_a x_a y_a / l_a^2`` with ``bias`` ``b >= 0``: not stationary, its variance grows with the input."""

    length_scale: Annotated[PerAxis, positive] = 1.0
    bias: Annotated[Scalar, nonnegative] = 0.0

    @on_points
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        scale = jnp.broadcast_to(jnp.asarray(self.length_scale), (1, jnp.shape(x)[-1]))
        product = jnp.matmul(jnp.asarray(x) / scale, (jnp.asarray(y) / scale).T, precision=jax.lax.Precision.HIGHEST)
        return jnp.asarray(self.bias) + product


@pytree
class Constant(Kernel):
    """Constant, ``k = variance``: an unknown offset shared by all inputs."""

    variance: Annotated[Scalar, positive] = 1.0

    @on_points
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        return jnp.broadcast_to(jnp.asarray(self.variance, jnp.asarray(x).dtype), (jnp.shape(x)[0], jnp.shape(y)[0]))

    @checked
    def along_axes(self, dimension: Axes) -> tuple[Kernel, ...]:
        return (self, *(Constant(variance=1.0) for _ in range(dimension - 1)))


@pytree
class White(Kernel):
    """White noise in the function itself, ``k = variance`` where ``x == y`` and 0 elsewhere (not observation noise)."""

    variance: Annotated[Scalar, positive] = 1.0

    @on_points
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        equal = jnp.all(jnp.asarray(x)[:, None, :] == jnp.asarray(y)[None, :, :], axis=-1)
        return jnp.where(equal, jnp.asarray(self.variance, jnp.asarray(x).dtype), 0)
