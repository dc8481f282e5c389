"""Features whose length-scale is known only inside the program: per axis of a product grid, the kernel at fixed pivots.

On axis ``a`` the features of the one-dimensional kernel ``k`` are ``K(x, z) (K(z, z) + jitter I)^(-T/2) Q``, with pivots ``z`` chosen once
for the shortest length-scale (Nystroem's method, Williams and Seeger 2001) and a fixed rotation ``Q`` that puts most of the variance into
few columns. Products of them are features on the grid, see :mod:`jaxbandit.surrogates.features`. All is smooth in the length-scale.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.core.types import Array, Scalar, Table
from jaxbandit.domains import Domain
from jaxbandit.kernels import Kernel, OnAxes
from jaxbandit.kernels.on_host import covariances
from jaxbandit.surrogates.features import EXACT, ProductFeatures, SquareRoot, contract, kept_products, matmul, outer
from jaxbandit.surrogates.lowrank import pivots, prior_variance
from jaxbandit.surrogates.outlook import for_a_range, tell_of_products

# Added to K(z, z), in shares of the prior variance: what a Cholesky factorisation in the arithmetic of the run needs.
JITTER = {"float32": 3e-7, "float64": 1e-13}

SHARE_OF_PIVOTS = 0.1  # of the tolerance, that the pivots may leave out on an axis; the rest is for the products that are dropped
LENGTH_SCALES_TRIED = 9  # over the range, for the sizes of features
MOST_COMBINATIONS = 81  # of length-scales on several axes, over which the residual is measured


@pytree
class NystroemFeatures(SquareRoot):
    """Features of a product kernel on a product grid for every length-scale of a range; :meth:`at` computes them for one.

    Attributes:
      kernel: the kernel; its length-scale is replaced by the one given.
      coordinates: points ``[n_a]`` of each axis.
      pivots: numbers ``[q_a]`` of the points of each axis that are pivots.
      rotations: ``[q_a, p_a]`` orthonormal columns that one-dimensional features are multiplied by.
      columns, slots: the products that are kept, as in :class:`~jaxbandit.surrogates.features.ProductFeatures`.
      kernel_variance: ``[M]`` prior variances of the kernel.
      residual: ``[]`` largest share of prior variance left out over the range.
      features: the features of one length-scale, ``None`` before :meth:`at`.
      jitter: share of prior variance that is added to the kernel matrix of the pivots.
    """

    name: ClassVar[str] = "nystroem"
    kernel: Kernel
    coordinates: tuple[Table, ...] = dataclasses.field(repr=False)
    pivots: tuple[Table, ...] = dataclasses.field(repr=False)
    rotations: tuple[Table, ...] = dataclasses.field(repr=False)
    columns: Table
    slots: Table = dataclasses.field(repr=False)
    kernel_variance: Table = dataclasses.field(repr=False)
    residual: Scalar
    features: ProductFeatures | None = None
    jitter: float = static(repr=False)

    @property
    def rank(self) -> int:
        """Number of products kept as features, ``r``."""
        return int(np.shape(self.columns)[1])

    @property
    def trials_per_block(self) -> int:
        """Number of trials to run side by side on a CPU core: as many as keep their factors in half of a second-level cache."""
        return max(1, min(10, 110_000 // self.rank**2))

    def at(self, length_scale: Array, variance: Array) -> NystroemFeatures:
        """Return the features for ``length_scale [d]`` and for ``variance []`` times the kernel, both of which may be traced."""
        parts = with_length_scale(self.kernel, length_scale).along_axes(len(self.coordinates)) or ()
        axes = [
            matmul(_axis(part, jnp.asarray(points), jnp.asarray(chosen), self.jitter), jnp.asarray(rotation))
            for part, points, chosen, rotation in zip(parts, self.coordinates, self.pivots, self.rotations, strict=True)
        ]
        axes[0] = axes[0] * jnp.sqrt(variance)
        table = (jnp.asarray(self.slots) < self.rank).astype(axes[0].dtype)
        for axis in axes:
            table = jnp.tensordot(table, axis * axis, axes=(0, 1), precision=EXACT)
        made = ProductFeatures(
            axes=tuple(axes), columns=self.columns, slots=self.slots, prior_variance=table.reshape(-1), residual=self.residual
        )
        return replace(self, features=made)

    @property
    def prior_variance(self) -> Table:
        """Prior variances ``[M]`` under the features of the length-scale in force."""
        return self._made().prior_variance

    def init(self) -> Array:
        """Return the root ``W [r, r]`` of the weights' prior covariance, the identity."""
        return self._made().init()

    def row(self, root: Array, index: Array) -> Array:
        return self._made().row(root, index)

    def expand(self, root: Array, weights: Array) -> Array:
        return self._made().expand(root, weights)

    def _made(self) -> ProductFeatures:
        if self.features is None:
            raise TypeError("NystroemFeatures: compute the features for one length-scale by at(...) first")
        return self.features


def _axis(kernel: Kernel, points: Array, chosen: Array, jitter: float) -> Array:
    """Return one-dimensional features ``[n, q]``, ``K(x, z) L^-T`` with ``L L^T = K(z, z) + jitter I``.

    Rows of ``L^-1 K(z, x)`` are computed one after the other. Cholesky factorisations of LAPACK under ``vmap`` inside a loop can wait for
    each other for ever on CPUs (jaxlib 0.10.2), and the pivots are few.
    """
    matrix = kernel(points[chosen][:, None], points[:, None])  # [q, n]
    count = matrix.shape[0]
    added = jitter * jnp.max(matrix)

    def one(number: Array, rows: Array) -> Array:
        pivot = chosen[number]
        known = rows[:, pivot]  # row ``number`` of L, zeros from its diagonal on
        left = jnp.maximum(matrix[number, pivot] + added - jnp.sum(known * known), 0.5 * added)  # rounding can leave less
        return rows.at[number].set((matrix[number] - matmul(known, rows)) / jnp.sqrt(left))

    return jax.lax.fori_loop(0, count, one, jnp.zeros_like(matrix)).T


def with_length_scale(kernel: Kernel, length_scale: Any) -> Kernel:
    """Return the kernel with another length-scale, one number or one per axis, in the one part that has one."""
    if isinstance(kernel, OnAxes):
        given = length_scale if isinstance(length_scale, jax.Array) else np.asarray(length_scale, np.float64)
        own = given[np.asarray(kernel.axes)] if np.ndim(given) else given
        return replace(kernel, kernel=with_length_scale(kernel.kernel, own))
    if "length_scale" in _fields(kernel):
        return replace(kernel, length_scale=length_scale)
    inner = {name: getattr(kernel, name) for name in _fields(kernel) if isinstance(getattr(kernel, name), Kernel)}
    return replace(kernel, **{name: with_length_scale(part, length_scale) for name, part in inner.items()})


def length_scales(kernel: Kernel) -> list[Any]:
    """Return the length-scales of a kernel and of its parts."""
    own = [kernel.length_scale] if "length_scale" in _fields(kernel) else []  # type: ignore[attr-defined]
    inner = [getattr(kernel, name) for name in _fields(kernel)]
    return own + [scale for part in inner if isinstance(part, Kernel) for scale in length_scales(part)]


def _fields(kernel: Kernel) -> list[str]:
    return [field.name for field in dataclasses.fields(kernel)]  # type: ignore[arg-type]  # every kernel is a dataclass


def nystroem_features(
    kernel: Kernel, domain: Domain, low: Sequence[float], high: Sequence[float], tolerance: float, most: int, precision: str
) -> NystroemFeatures:
    """Build :class:`NystroemFeatures` on the host for length-scales from ``low [d]`` to ``high [d]``, with at most ``most`` products.

    Raises:
      InvalidArgument: when the kernel does not factorise over the axes of the domain, or the domain is no product grid.
    """
    jitter = JITTER[precision]
    parts = with_length_scale(kernel, np.asarray(low)).along_axes(domain.dimension)
    if parts is None or not domain.axes:
        raise InvalidArgument(
            f"kernel: a length-scale is traced axis by axis; needs a product grid and a kernel that factorises over its axes, got"
            f" {type(kernel).__name__} on {'a product grid' if domain.axes else 'a bare set of points'}; use jaxbandit.surrogate for each"
            " length-scale, which a study does for a sweep over model.kernel.length_scale"
        )
    axes = [_Axis.of(kernel, number, domain, low[number], high[number], tolerance, jitter) for number in range(domain.dimension)]
    sizes = outer([np.max([np.sum(a * a, axis=0) for a in axis.tried], axis=0) for axis in axes])
    combinations = _combinations([axis.tried for axis in axes])
    tell_of_products("ranged", domain.grid_shape, [axis.tried[0].shape[1] for axis in axes], len(combinations))
    variance = prior_variance(kernel, domain.points)

    def residual_of(kept: np.ndarray) -> float:
        explained = (contract([a * a for a in combination], kept) for combination in combinations)
        return max(float(np.max(variance - found)) for found in explained) / float(variance.max())

    shape = tuple(axis.tried[0].shape[1] for axis in axes)
    columns, slots = kept_products(sizes, shape, residual_of, tolerance, most)
    kept = np.zeros(shape)
    kept[tuple(columns)] = 1.0
    return NystroemFeatures(
        kernel=with_length_scale(kernel, np.asarray(low)),
        coordinates=tuple(np.asarray(points) for points in domain.axes),
        pivots=tuple(axis.pivots.astype(np.int32) for axis in axes),
        rotations=tuple(axis.rotation[:, :used] for axis, used in zip(axes, slots.shape, strict=True)),
        columns=columns,
        slots=slots,
        kernel_variance=variance,
        residual=np.float64(max(residual_of(kept), 0.0)),
        jitter=jitter,
    )


class _Axis(NamedTuple):
    """Pivots and rotation of one axis, fixed at build time, and the features that they give for some length-scales of the range."""

    pivots: np.ndarray  # [q]
    rotation: np.ndarray  # [q, q]
    tried: list[np.ndarray]  # each [n, q], from the shortest length-scale to the longest

    @classmethod
    def of(cls, kernel: Kernel, number: int, domain: Domain, low: float, high: float, tolerance: float, jitter: float) -> _Axis:
        """Choose pivots and rotation of axis ``number`` for the shortest length-scale, which needs the most features."""
        points = np.asarray(domain.axes[number], np.float64)[:, None]

        def features(length_scale: float) -> np.ndarray:
            (matrix,) = covariances([part(length_scale)], [points[chosen]], [points])
            root = np.linalg.cholesky(matrix[:, chosen] + jitter * np.max(matrix) * np.eye(len(chosen)))
            return np.linalg.solve(root, matrix).T

        def part(length_scale: float) -> Kernel:
            parts = with_length_scale(kernel, np.full(domain.dimension, length_scale)).along_axes(domain.dimension)
            return (parts or ())[number]

        _, chosen, _ = pivots(part(low), points, SHARE_OF_PIVOTS * tolerance, len(points), for_a_range)
        shortest = features(low)
        _, vectors = np.linalg.eigh(shortest.T @ shortest)
        rotation = vectors[:, ::-1]
        return cls(chosen, rotation, [features(scale) @ rotation for scale in np.geomspace(low, high, LENGTH_SCALES_TRIED)])


def _combinations(tried: list[list[np.ndarray]]) -> list[tuple[np.ndarray, ...]]:
    """Return features of all axes for length-scales that differ between axes: the ends and the middle of each range where that is few."""
    some = [axis[:: (LENGTH_SCALES_TRIED - 1) // 2] for axis in tried]
    if len(some[0]) ** len(some) <= MOST_COMBINATIONS:
        return list(itertools.product(*some))
    return list(zip(*tried, strict=True))
