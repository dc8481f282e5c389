"""Kernels of points without an order: categories by whether they differ, arms by their Gram matrix."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxbandit.core import checks
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import between, exactly, finite_numbers, numbers_from, positive
from jaxbandit.core.gram import check_gram
from jaxbandit.core.pytree import pytree
from jaxbandit.core.types import Array, Numbers, PerAxis, Table
from jaxbandit.kernels.base import Axes, Kernel, on_points, ones, scale_per_axis


@pytree
class Categorical(Kernel):
    """Categories without an order, ``k = exp(-sum_a [x_a != y_a] / l_a)``, by how many axes two points differ on (Hamming distance).

    Two categories of one axis have the correlation ``exp(-1 / l)``, all pairs the same; :class:`Gram` gives each pair its own.
    ``length_scale`` is ``l``, scalar or ``[d]``, without a unit. Use :class:`OnAxes` where other axes hold numbers.
    """

    length_scale: Annotated[PerAxis, positive] = 1.0

    @classmethod
    @checked
    def from_correlation(cls, correlation: Annotated[PerAxis, numbers_from(1e-6, 1 - 1e-6)]) -> Categorical:
        """Return the kernel in which points that differ on one axis have this correlation, in (0, 1): one number, or one per axis."""
        return cls(length_scale=-1 / np.log(np.asarray(correlation, np.float64)))

    @on_points
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        differ = jnp.asarray(x)[:, None, :] != jnp.asarray(y)[None, :, :]
        inverse = 1 / jnp.broadcast_to(jnp.asarray(self.length_scale, jnp.asarray(x).dtype), (1, 1, jnp.shape(x)[-1]))
        return jnp.exp(-jnp.sum(jnp.where(differ, inverse, 0), axis=-1))

    @on_points
    def diag(self, x: ArrayLike) -> Array:
        return ones(x)

    @checked
    def along_axes(self, dimension: Axes) -> tuple[Kernel, ...]:
        return tuple(Categorical(length_scale=s) for s in scale_per_axis(self.length_scale, dimension))


@pytree
class Gram(Kernel):
    """Explicit Gram matrix ``matrix [M, M]`` for finite arms; inputs are arm numbers ``[n, 1]`` (see ``domains.arms``).

    It is also the factor of an axis of categories, see :class:`OnAxes` and ``domains.mixed``; its rows are then in the order of these.

    Use :meth:`checked` on a matrix of your own: it refuses one that is not square, symmetric and positive semi-definite.
    """

    matrix: Annotated[Table, finite_numbers, exactly(None, None, words="one row and one column per arm")]

    @checked
    def check_axes(self, dimension: Axes) -> None:
        if dimension != 1:
            raise checks.InvalidArgument(
                f"Gram: a Gram matrix needs a domain of arm numbers (domains.arms), got d = {dimension}; see OnAxes"
            )

    @classmethod
    @checked
    def checked(
        cls, matrix: Annotated[Numbers, finite_numbers], *, tolerance: Annotated[float, between(0, 1, open_low=False, host=True)] = 1e-8
    ) -> Gram:
        """Make a Gram kernel from ``matrix [M, M]``; raises ``InvalidArgument`` unless it is finite, symmetric and PSD."""
        table = np.asarray(matrix, np.float64)
        check_gram("Gram.matrix", table, tolerance)
        return cls(matrix=table)

    @on_points
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        rows, columns = jnp.asarray(x)[:, 0].astype(jnp.int32), jnp.asarray(y)[:, 0].astype(jnp.int32)
        return jnp.asarray(self.matrix)[rows[:, None], columns[None, :]]

    def _check(self, name: str, outputs: int | None) -> None:
        if not checks.is_traced(self.matrix):
            check_gram(f"{name}.matrix", np.asarray(self.matrix, np.float64), 1e-6)
