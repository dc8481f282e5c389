"""The square-root feature form: the kernel matrix is ``Phi Phi^T``, and the posterior is that of the ``r`` weights of the features.

The posterior covariance of the weights is ``W W^T``, with ``W = I`` before any data. Observing the point with feature vector ``phi``
under noise variance ``lam`` is Potter's square-root update (Bierman 1977, sec. V.3), which keeps it positive semi-definite:

    w = W^T phi,   u = W w,   s = lam + w.w,   W <- W - u w^T / (s + sqrt(lam s))

and ``c = Phi u`` is the posterior covariance of every point with the observed one. On product grids with product kernels ``Phi`` is
never formed: its columns are products of one-dimensional features, so ``c`` is computed from a small tensor, one axis at a time.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.fields import Described
from jaxbandit.core.memory import check_fits, host_memory
from jaxbandit.core.platforms import by_platform
from jaxbandit.core.pytree import pytree
from jaxbandit.core.types import Array, Key, Scalar, Table
from jaxbandit.domains import Domain
from jaxbandit.kernels import Kernel
from jaxbandit.kernels.base import covariances
from jaxbandit.surrogates.lowrank import COPIES, prior_variance
from jaxbandit.surrogates.lowrank import features as low_rank_features

# Accelerators round the factors of a float32 product to about 10 bits by default, too few for a posterior after many rounds.
EXACT = jax.lax.Precision.HIGHEST
matmul = partial(jnp.matmul, precision=EXACT)
S = TypeVar("S")

MOST_CUBES = 1.5e11  # sum of the cubed sizes of axes whose eigenvectors are computed unasked: about a minute on one core

# Features of an axis up to which GPUs sum products themselves: so small a matrix product is a kernel, and its transposition another.
MAX_SUMMED_FEATURES = 64
LANES = 16  # float32 numbers in the widest vector register: rows of W that fill whole registers are cheaper than slightly shorter ones


def _update(root: Array, phi: Array, noise: Array) -> tuple[Array, Array, Array]:
    w = matmul(phi, root)
    u = matmul(root, w)
    s = noise + matmul(w, w)
    # Multiply by one reciprocal: XLA would otherwise do r^2 divisions inside the fused outer product.
    return root - u[:, None] * (w * (1 / (s + jnp.sqrt(noise * s))))[None, :], u, s


def _update_on_gpus(root: Array, phi: Array, noise: Array) -> tuple[Array, Array, Array]:
    w = matmul(phi, root)
    products = matmul(jnp.concatenate([root, w[None]]), w)  # u and w.w by one kernel
    u, s = products[:-1], noise + products[-1]
    return root - u[:, None] * w[None, :] * (1 / (s + jnp.sqrt(noise * s))), u, s


# Potter's update of ``root [r, r]`` for one observation at ``phi [r]`` under ``noise []``: the new root, ``u [r]`` and ``s []``.
square_root_update = by_platform(_update, cuda=_update_on_gpus)


class Form(Described, Generic[S]):
    """Form of a posterior of one group of outputs, made of the state ``S`` of a trial; abstract.

    Attributes:
      name: of the form, as messages and records have it.
      rank: number of basis functions, ``r``.
      trials_per_block: number of trials to run side by side on a CPU core.
      prior_variance: ``[M]`` prior variances ``k(x, x)``.
      residual: ``[]`` largest share of prior variance that the form leaves out.
    """

    described: ClassVar[str] = "a form of jaxbandit.surrogates"
    name: ClassVar[str]

    if TYPE_CHECKING:  # declared as read-only, for fields and properties of subclasses

        @property
        def rank(self) -> int: ...
        @property
        def trials_per_block(self) -> int: ...
        @property
        def prior_variance(self) -> Table: ...
        @property
        def residual(self) -> Scalar: ...

    def init(self) -> S:
        """Return the state before any data."""
        raise TypeError(f"{type(self).__name__} must define init")

    def observe(self, state: S, index: Array, noise: Array, present: Array | None = None) -> tuple[S, Array, Array, Array]:
        """Condition on one observation at the grid point ``index []`` with noise variance ``noise []``.

        Where ``present []`` is false nothing changes, and ``u`` and ``c`` are 0.

        Returns:
          The state, ``u [r]``, the column ``c = Phi u [M]`` and ``s = noise + c[index]``.
        """
        state, _, u, s = self.absorb(state, index, noise, present)
        return state, u, self.expand(state, u), s

    def absorb(self, state: S, index: Array, noise: Array, present: Array | None = None) -> tuple[S, Array, Array, Array]:
        """Condition as :meth:`observe` does without computing the column; return the state, the point's ``phi [r]``, ``u [r]``, ``s``."""
        raise TypeError(f"{type(self).__name__} must define absorb")

    def row(self, state: S, index: Array) -> Array:
        """Return the feature vector ``[r]`` of the grid point ``index []``."""
        raise TypeError(f"{type(self).__name__} must define row")

    def expand(self, state: S, weights: Array) -> Array:
        """Return ``Phi weights [M]``, the function with the given ``weights [r]``."""
        raise TypeError(f"{type(self).__name__} must define expand")

    def covariance(self, state: S, indices: Array) -> Array:
        """Return the posterior covariance ``[n, M]`` of the grid points ``indices [n]`` with every point."""
        raise TypeError(f"{type(self).__name__} must define covariance")

    def spread(self, state: S) -> Array:
        """Compute the posterior variance ``[M]`` from the state alone, in ``O(M r^2)``; the engine updates it incrementally instead."""
        raise TypeError(f"{type(self).__name__} must define spread")

    def draw(self, state: S, key: Key) -> Array:
        """Draw from the zero-mean posterior at all points jointly, ``[M]``."""
        raise TypeError(f"{type(self).__name__} must define draw")


class SquareRoot(Form[Array]):
    """The posterior in the space of feature weights, whose state is the root ``W [r, r]`` of their covariance; abstract.

    A subclass defines ``row`` and ``expand``.
    """

    left_out: Scalar | Table = 0.0  # [M] prior variance that the features leave out, which no observation takes away

    def init(self) -> Array:
        return jnp.eye(self.rank, dtype=jnp.asarray(self.prior_variance).dtype)

    def absorb(self, state: Array, index: Array, noise: Array, present: Array | None = None) -> tuple[Array, Array, Array, Array]:
        phi = self.row(state, index)
        if present is not None:
            phi = jnp.where(present, phi, 0)  # the square-root update at phi = 0 changes nothing, exactly
        state, u, s = square_root_update(state, phi, noise)
        return state, phi, u, s

    def covariance(self, state: Array, indices: Array) -> Array:
        rows = jax.vmap(self.row, (None, 0))(state, indices)
        return jax.vmap(self.expand, (None, 0))(state, matmul(matmul(rows, state), state.T))

    def spread(self, state: Array) -> Array:
        return jnp.sum(jnp.square(jax.vmap(self.expand, (None, 0))(state, state.T)), axis=0) + self.left_out

    def draw(self, state: Array, key: Key) -> Array:  # Phi W z, in O(M r)
        return self.expand(state, matmul(state, jax.random.normal(key, state.shape[:1], state.dtype)))


@pytree
class DenseFeatures(SquareRoot):
    """Features as one matrix ``phi [M, r]``, for any kernel and any set of points.

    Attributes:
      phi: ``[M, r]`` features, columns of decreasing norm.
      prior_variance: ``[M]`` prior variances ``k(x, x)``, equal where the kernel's are.
      residual: ``[]`` largest share of prior variance that the features leave out.
      left_out: ``[M]`` prior variance that they leave out, ``k(x, x) - sum_r phi^2``.
    """

    name: ClassVar[str] = "features"
    phi: Table
    prior_variance: Table = dataclasses.field(repr=False)
    residual: Scalar
    left_out: Scalar | Table = dataclasses.field(default=0.0, repr=False)

    @property
    def rank(self) -> int:
        return int(np.shape(self.phi)[1])

    @property
    def trials_per_block(self) -> int:
        return max(1, min(50, 50_000_000 // self.rank**2))  # many, to share each reading of phi, within 200 MB of factors

    def row(self, state: Array, index: Array) -> Array:
        return self.phi[index]

    def expand(self, state: Array, weights: Array) -> Array:
        return matmul(weights, self.phi.T)


@pytree
class ProductFeatures(SquareRoot):
    """Features of a product kernel on a product grid, kept as one small matrix per axis.

    Attributes:
      axes: one-dimensional features ``[n_a, q_a]`` of each axis.
      columns: ``[d, r]`` numbers of the one-dimensional features, one on each axis, whose product is a kept feature.
      slots: ``[q_1, ..., q_d]`` position of a product among the kept ones, ``r`` where it was dropped.
      prior_variance, residual, left_out: as in :class:`DenseFeatures`.
    """

    name: ClassVar[str] = "product"
    axes: tuple[Table, ...] = dataclasses.field(repr=False)
    columns: Table
    slots: Table = dataclasses.field(repr=False)
    prior_variance: Table = dataclasses.field(repr=False)
    residual: Scalar
    left_out: Scalar | Table = dataclasses.field(default=0.0, repr=False)

    @property
    def rank(self) -> int:
        return int(np.shape(self.columns)[1])

    @property
    def trials_per_block(self) -> int:
        return max(1, min(10, 110_000 // self.rank**2))  # as many as keep their factors in half of a second-level cache

    def row(self, state: Array, index: Array) -> Array:
        shape = [np.shape(axis)[0] for axis in self.axes]
        row = jnp.ones((self.rank,), jnp.asarray(self.axes[0]).dtype)
        for a, (axis, columns) in enumerate(zip(self.axes, self.columns, strict=True)):
            position = index // math.prod(shape[a + 1 :]) % shape[a]
            row = row * _features_at(axis, columns, position)
        return row

    def expand(self, state: Array, weights: Array) -> Array:
        table = jnp.append(weights, jnp.zeros((1,), weights.dtype))[self.slots]
        for axis in self.axes:
            table = _contract(table, jnp.asarray(axis))
        return table.reshape(-1)


def _contract_by_product(table: Array, axis: Array) -> Array:
    """Contract the leading feature index of ``table [q, ...]`` with ``axis [n, q]`` and append the grid index: ``[..., n]``.

    After a step for each axis the axes are in order, and under vmap every step is one matrix product whose result needs no transposition.
    """
    return jnp.tensordot(table, axis, axes=(0, 1), precision=EXACT)


def _contract_by_sum(table: Array, axis: Array) -> Array:  # which XLA for GPUs fuses with what reads it
    if axis.shape[1] > MAX_SUMMED_FEATURES:
        return _contract_by_product(table, axis)
    rows = table.reshape(table.shape[0], -1).T
    return jnp.sum(rows[:, None, :] * axis[None, :, :], axis=-1).reshape(*table.shape[1:], axis.shape[0])


_contract = by_platform(_contract_by_product, cuda=_contract_by_sum)


def _features_by_column(axis: Array, columns: Array, position: Array) -> Array:  # which XLA for GPUs fuses with the product over axes
    return axis[:, columns][position]


# The features ``[r]`` of ``axis [n, q]`` that ``columns [r]`` name, at one of its points.
_features_at = by_platform(lambda axis, columns, position: axis[position][columns], cuda=_features_by_column)


def dense_features(kernel: Kernel, domain: Domain, tolerance: float, most: int, *, asked: bool) -> DenseFeatures:
    """Build :class:`DenseFeatures` on the host, with at most ``most`` columns; fewer where nobody ``asked`` and more would not suffice.

    Raises:
      InvalidArgument: when features that were asked for do not fit memory.
    """

    def check(columns: float) -> None:
        what = f"the {columns:,.0f} features or more that 'features' needs on {domain.size:,} points"
        remedy = "use form='rows' with horizon=, fewer points, or a smoother kernel"
        check_fits("form", int(COPIES * 8 * columns * domain.size), what, remedy)

    phi, residual = low_rank_features(kernel, domain.points, tolerance, min(most, domain.size), check if asked else None)
    variance = prior_variance(kernel, domain.points)
    return DenseFeatures(phi=phi, prior_variance=variance, residual=np.float64(residual), left_out=variance - np.sum(phi * phi, axis=1))


def product_features(kernel: Kernel, domain: Domain, tolerance: float, most: int, *, asked: bool) -> ProductFeatures | None:
    """Build :class:`ProductFeatures` on the host, with at most ``most`` columns; ``None`` when kernel or domain is no product.

    ``None``, too, where nobody ``asked`` and an axis has so many points that its eigenvectors take long or do not fit memory.

    Raises:
      InvalidArgument: when eigenvectors that were asked for do not fit memory.
    """
    parts = kernel.along_axes(domain.dimension)
    if parts is None or not domain.axes:
        return None
    largest = max(domain.grid_shape)
    needed = COPIES * 8 * largest**2
    if asked:
        what = f"the eigenvectors of an axis of {largest:,} points that 'product' needs"
        check_fits("form", needed, what, "use form='rows' with horizon=, or fewer points")
    elif needed > host_memory() or sum(float(size) ** 3 for size in domain.grid_shape) > MOST_CUBES:
        return None
    points = [np.asarray(axis)[:, None] for axis in domain.axes]
    axes = [_axis_features(matrix) for matrix in covariances(parts, points, points)]
    shape = tuple(axis.shape[1] for axis in axes)
    sizes = outer([np.sum(axis * axis, axis=0) for axis in axes])
    variance_of_all = outer([np.sum(axis * axis, axis=1) for axis in axes])

    def residual_of(kept: np.ndarray) -> float:
        missing = variance_of_all - contract([axis * axis for axis in axes], kept)
        return float(np.max(missing)) / float(variance_of_all.max())

    columns, slots = kept_products(sizes, shape, residual_of, tolerance, most)
    axes = [axis[:, :used] for axis, used in zip(axes, slots.shape, strict=True)]
    variance = prior_variance(kernel, domain.points)
    left_out = variance - contract([axis * axis for axis in axes], (slots < columns.shape[1]).astype(np.float64))
    return ProductFeatures(
        axes=tuple(axes),
        columns=columns,
        slots=slots,
        prior_variance=variance,
        residual=np.float64(max(float(np.max(left_out)) / float(variance.max()), 0.0)),
        left_out=left_out,
    )


def kept_products(
    sizes: np.ndarray, shape: tuple[int, ...], residual_of: Callable[[np.ndarray], float], tolerance: float, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Choose the products of one-dimensional features that are kept: the fewest of the largest within the tolerance, at most ``most``.

    Args:
      sizes: squared norm of every product, flattened with the last axis varying fastest.
      shape: number of one-dimensional features on each axis.
      residual_of: share of prior variance that is left out when a table of zeros and ones, of that shape, says which products are kept.
      tolerance: largest share allowed.
      most: most products allowed.

    Returns:
      ``columns [d, r]`` and ``slots [q_1, ..., q_d]`` of :class:`ProductFeatures`.
    """
    order = np.argsort(-sizes, kind="stable")

    def residual_with(count: int) -> float:
        kept = np.zeros(sizes.size)
        kept[order[:count]] = 1.0
        return residual_of(kept.reshape(shape))

    low, high = 1, min(most, sizes.size)
    while low < high:  # the residual falls as products are added: bisect for the fewest within tolerance
        middle = (low + high) // 2
        low, high = (low, middle) if residual_with(middle) <= tolerance else (middle + 1, high)
    low = min(-(-low // LANES) * LANES, most, sizes.size)
    columns = np.stack(np.unravel_index(order[:low], shape)).astype(np.int32)
    slots = np.full(columns.max(axis=1) + 1, low, np.int32)
    slots[tuple(columns)] = np.arange(low, dtype=np.int32)
    return columns, slots


def _axis_features(matrix: np.ndarray) -> np.ndarray:
    """Return one-dimensional features ``[n_a, q_a]`` of the covariances of an axis, as many as float64 resolves."""
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
    keep = values > 1e-15 * values[0]
    return vectors[:, keep] * np.sqrt(values[keep])


def outer(vectors: list[np.ndarray]) -> np.ndarray:
    """Return all products of one entry from each vector, flattened with the last vector's index varying fastest."""
    result = np.ones(1)
    for vector in vectors:
        result = np.multiply.outer(result, vector).ravel()
    return result


def contract(axes: list[np.ndarray], table: np.ndarray) -> np.ndarray:
    """Return ``sum_ab.. A_ia B_jb .. table_ab..`` flattened to ``[M]``."""
    for axis in axes:  # contract the leading index, append the grid index: after d steps the axes are in order
        table = np.tensordot(table, axis, axes=(0, 1))
    return table.reshape(-1)
