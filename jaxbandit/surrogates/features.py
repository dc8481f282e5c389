"""Posteriors of ``r`` feature weights, by the root of their covariance.

The kernel matrix is ``Phi Phi^T``, and the posterior covariance of the weights ``W W^T``, with ``W = I`` before any data. Observing the
point with feature vector ``phi`` under noise variance ``lam`` is Potter's square-root update (Bierman 1977, sec. V.3), which keeps it
positive semi-definite:

    w = W^T phi,   u = W w,   s = lam + w.w,   W <- W - u w^T / (s + sqrt(lam s))

and ``c = Phi u`` is the posterior covariance of every point with the observed one. On product grids with product kernels ``Phi`` is
never formed: ``c`` is computed from a small tensor, one axis at a time. Features are made on the host, in float64.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Generic

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.blocks import by_platform
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import Array, Key, Scalar, T, Table
from jaxbandit.core.fields import Described
from jaxbandit.core.pytree import pytree
from jaxbandit.domains import Domain
from jaxbandit.host.memory import check_fits, host_memory
from jaxbandit.kernels import Kernel
from jaxbandit.kernels.base import covariance_matrices, covariances_with
from jaxbandit.kernels.functions import matmul


class Effort:
    """Limits of a factorisation's work, as measured on a CPU core.

    Attributes:
      max_work: multiply-adds, if the user did not name the form; some ten seconds.
      max_cubes: sum of the cubed sizes of axes whose eigenvectors are computed, if the user did not name the form; about a minute.
      checked_work: points times squared columns above which a factorisation is checked on the way.
      first_check: columns at the first check, enough to have reached the corners of a domain.
      growth_limit: multiple of the allowed rank that the extrapolated rank may have at the first check.
      copies: copies in memory of features, as computed, rotated and squared, and of a kernel matrix with eigenvectors and workspace.
    """

    max_work: float = 2e10
    max_cubes: float = 1.5e11
    checked_work: float = 1e8
    first_check: int = 128
    growth_limit: float = 4.0
    copies: int = 3


def _update(root: Array, phi: Array, noise: Array) -> tuple[Array, Array, Array]:
    w = matmul(phi, root)
    u = matmul(root, w)
    s = noise + matmul(w, w)
    # Multiply by a reciprocal, because XLA would otherwise do r^2 divisions inside the fused outer product.
    return root - u[:, None] * (w * (1 / (s + jnp.sqrt(noise * s))))[None, :], u, s


def _update_on_gpus(root: Array, phi: Array, noise: Array) -> tuple[Array, Array, Array]:
    w = matmul(phi, root)
    # One kernel computes u and w.w.
    products = matmul(jnp.concatenate([root, w[None]]), w)
    u, s = products[:-1], noise + products[-1]
    return root - u[:, None] * w[None, :] * (1 / (s + jnp.sqrt(noise * s))), u, s


# Return the root ``[r, r]`` after an observation at ``phi [r]`` under ``noise []`` by Potter's update, ``u [r]`` and ``s []``.
square_root_update = by_platform(_update, cuda=_update_on_gpus)


class Form(Described, abc.ABC, Generic[T]):
    """Abstract form of the posterior of a group of outputs.

    It has ``rank`` basis functions, ``r``, and computes from the state ``T`` of a trial, with ``trials_per_block`` side by side on a CPU
    core. It is ``refreshable`` if a new computation of the variance costs less than float64 does, and has ``outputs_together`` if the
    outputs of a group, and alike groups, are computed side by side.
    """

    described: ClassVar[str] = "a form of jaxbandit.surrogates"
    name: ClassVar[str]
    refreshable: ClassVar[bool] = True
    outputs_together: ClassVar[bool] = False

    # Subclasses define the properties below as fields or as properties.
    if TYPE_CHECKING:

        @property
        def rank(self) -> int: ...
        @property
        def trials_per_block(self) -> int: ...
        @property
        def prior_variance(self) -> Table: ...  # [M] k(x, x)
        @property
        def residual(self) -> Scalar: ...  # [] largest share left out

    @abc.abstractmethod
    def init(self) -> T:
        """Return the state before any data."""

    @abc.abstractmethod
    def absorb(self, state: T, index: Array, noise: Array, present: Array | None = None) -> tuple[T, Array, Array, Array]:
        """Return the conditioned state, ``phi [r]``, ``u [r]`` and ``s``."""

    @abc.abstractmethod
    def expand(self, state: T, weights: Array) -> Array:
        """Return ``Phi weights [M]``, the function that has ``weights [r]``."""

    @abc.abstractmethod
    def covariance(self, state: T, indices: Array) -> Array:
        """Return the posterior covariance ``[n, M]`` of ``indices [n]`` with all points."""

    @abc.abstractmethod
    def spread(self, state: T) -> Array:
        """Compute the posterior variance ``[M]`` from the state alone."""

    @abc.abstractmethod
    def draw(self, state: T, key: Key) -> Array:
        """Sample the zero-mean posterior at all points jointly, ``[M]``."""

    def observe(self, state: T, index: Array, noise: Array, present: Array | None = None) -> tuple[T, Array, Array, Array]:
        """Condition on one observation at ``index []``.

        Returns the state, ``u [r]``, ``c = Phi u [M]`` and ``s = noise + c[index]``. If ``present []`` is false the state stays the same,
        and ``u`` and ``c`` are 0.
        """
        state, _, u, s = self.absorb(state, index, noise, present)
        return state, u, self.expand(state, u), s


class SquareRoot(Form[Array]):
    """Abstract posterior of feature weights, with state ``W [r, r]``."""

    # Features leave out this part of the prior variance, k(x, x) - sum_r phi^2, and no observation reduces it.
    left_out: Scalar | Table = 0.0  # [M]

    @abc.abstractmethod
    def row(self, state: Array, index: Array) -> Array:
        """Return the feature vector ``[r]`` of the grid point ``index []``."""

    def init(self) -> Array:
        return jnp.eye(self.rank, dtype=jnp.asarray(self.prior_variance).dtype)

    def absorb(self, state: Array, index: Array, noise: Array, present: Array | None = None) -> tuple[Array, Array, Array, Array]:
        phi = self.row(state, index)
        if present is not None:
            # The square-root update at phi = 0 leaves the state the same, exactly.
            phi = jnp.where(present, phi, 0)
        state, u, s = square_root_update(state, phi, noise)
        return state, phi, u, s

    def covariance(self, state: Array, indices: Array) -> Array:
        rows = jax.vmap(self.row, (None, 0))(state, indices)
        return jax.vmap(self.expand, (None, 0))(state, matmul(matmul(rows, state), state.T))

    def spread(self, state: Array) -> Array:
        return jnp.sum(jnp.square(jax.vmap(self.expand, (None, 0))(state, state.T)), axis=0) + self.left_out

    def draw(self, state: Array, key: Key) -> Array:
        return self.expand(state, matmul(state, jax.random.normal(key, state.shape[:1], state.dtype)))


@pytree
class DenseFeatures(SquareRoot):
    """Features as one matrix, for any kernel and any set of points."""

    name: ClassVar[str] = "features"
    # The columns have decreasing norm.
    phi: Table  # [M, r]
    prior_variance: Table = dataclasses.field(repr=False)
    residual: Scalar
    left_out: Scalar | Table = dataclasses.field(default=0.0, repr=False)

    @property
    def rank(self) -> int:
        return int(np.shape(self.phi)[1])

    @property
    def trials_per_block(self) -> int:
        # Many trials share each reading of phi, as long as their factors fit into 200 MB.
        return max(1, min(50, 50_000_000 // self.rank**2))

    def row(self, state: Array, index: Array) -> Array:
        return self.phi[index]

    def expand(self, state: Array, weights: Array) -> Array:
        return matmul(weights, self.phi.T)


@pytree
class ProductFeatures(SquareRoot):
    """Features of a product kernel on a product grid, axis by axis.

    Each kept feature is a product of one-dimensional features, with numbers ``columns``. A product has a position among the kept features
    in ``slots``, which is ``r`` for a dropped product.
    """

    name: ClassVar[str] = "product"
    axes: tuple[Table, ...] = dataclasses.field(repr=False)  # [n_a, q_a] of each axis
    columns: Table  # [d, r]
    slots: Table = dataclasses.field(repr=False)  # [q_1, ..., q_d]
    prior_variance: Table = dataclasses.field(repr=False)
    residual: Scalar
    left_out: Scalar | Table = dataclasses.field(default=0.0, repr=False)

    @property
    def rank(self) -> int:
        return int(np.shape(self.columns)[1])

    @property
    def trials_per_block(self) -> int:
        # The factors of a block fit into half of a second-level cache.
        return max(1, min(10, 110_000 // self.rank**2))

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
    # The grid index is appended. After the last axis the indices are in order, and under vmap no matrix product needs a transposition.
    return jnp.tensordot(table, axis, axes=(0, 1), precision=jax.lax.Precision.HIGHEST)


def _contract_by_sum(table: Array, axis: Array) -> Array:
    # XLA for GPUs fuses a sum with its reader, while a small matrix product takes a kernel, and its transposition another.
    max_summed_features = 64
    if axis.shape[1] > max_summed_features:
        return _contract_by_product(table, axis)
    rows = table.reshape(table.shape[0], -1).T
    return jnp.sum(rows[:, None, :] * axis[None, :, :], axis=-1).reshape(*table.shape[1:], axis.shape[0])


_contract = by_platform(_contract_by_product, cuda=_contract_by_sum)


def _features_by_column(axis: Array, columns: Array, position: Array) -> Array:
    # XLA for GPUs fuses this order with the product over axes.
    return axis[:, columns][position]


# Return the features ``[r]`` of ``axis [n, q]`` with numbers ``columns [r]``, at the point with number ``position []``.
_features_at = by_platform(lambda axis, columns, position: axis[position][columns], cuda=_features_by_column)


def affordable_rank(points: int) -> int:
    """Return the most columns of a pivoted Cholesky factor that time allows."""
    return max(1, int(math.sqrt(2 * Effort.max_work / points)))


def prior_variance(kernel: Kernel, points: Table) -> np.ndarray:
    """Return the diagonal ``[M]`` of the kernel matrix, in float64."""
    return covariances_with(kernel, points, points[0])[1]


def expected_columns(residuals: Sequence[float], tolerance: float) -> float:
    """Extrapolate relative residuals to a lower bound of the columns needed."""
    # The residual of pivoted Cholesky falls ever more slowly, at best exponentially, so that the latest rate gives a lower bound.
    done = len(residuals)
    before, now = residuals[done // 2 - 1], residuals[-1]
    fallen = math.log(before / now) if now > 0 else math.inf
    left = math.log(now / tolerance) if now > tolerance else 0.0
    return done + (done - done // 2) * left / fallen if fallen > 0 else math.inf


def pivots(
    kernel: Kernel, points: Table, tolerance: float, most: int, look: Callable[[float], None] | None = None
) -> tuple[np.ndarray, np.ndarray, float]:
    """Compute a pivoted Cholesky factor of the kernel matrix.

    Returns ``Phi [M, r]`` with ``max_i (K - Phi Phi^T)_ii <= tolerance * max_i K_ii`` if ``most`` columns suffice, its pivots ``[r]``, and
    the relative residual. The pivot is always the point of largest residual variance (Harbrecht, Peters and Schneider 2012). A long
    factorisation is checked at ``first_check`` columns and at each doubling, by ``look`` or else by an extrapolation that can stop it. A
    look gets the number of columns expected, and raises if there is no memory for them.
    """
    points = np.asarray(points, np.float64)
    diagonal = prior_variance(kernel, points)
    scale = float(diagonal.max())
    if not scale > 0:
        raise InvalidArgument(f"kernel: must have a variance > 0 at some of the {len(diagonal)} points, got at most {scale:g}")
    residual, phi = diagonal.copy(), np.zeros((min(most, len(diagonal)), len(diagonal)))
    chosen: list[int] = []
    # These are the largest relative residuals before each column.
    left: list[float] = []
    long = len(diagonal) * len(phi) ** 2 > Effort.checked_work
    for r in range(len(phi)):
        pivot = int(np.argmax(residual))
        if residual[pivot] <= tolerance * scale:
            break
        if long and r >= Effort.first_check and (r & (r - 1)) == 0:
            columns = expected_columns(left, tolerance)
            if look is not None:
                look(min(columns, len(diagonal)))
            elif columns > max(1.0, Effort.growth_limit * Effort.first_check / r) * len(phi):
                break
        left.append(float(residual[pivot]) / scale)
        phi[r] = row = (covariances_with(kernel, points, points[pivot])[0] - phi[:r, pivot] @ phi[:r]) / np.sqrt(residual[pivot])
        chosen.append(pivot)
        residual = np.maximum(residual - row * row, 0.0)
        residual[pivot] = 0.0
    return phi[: len(chosen)].T, np.asarray(chosen, np.int64), float(residual.max()) / scale


def determined(values: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Rotate ``columns [M, r]`` of equal eigenvalues to a unique basis.

    The eigenvalues ``values [r]`` decrease. LAPACK's signs, and its bases of equal eigenvalues, differ between processors, and so would
    draws from features. The rotation makes the products of such columns with some fixed directions a positive triangle.
    """
    directions, bases = np.random.default_rng(0).standard_normal((len(columns), min(columns.shape))), []
    # Eigenvalues are equal if they differ by rounding, as shares of the largest one, unless they are themselves tiny.
    equal, tiny = 2e-14, 1e-12
    apart = (-np.diff(values) > equal * values[0]) | (values[1:] < tiny * values[0])
    for basis in np.split(columns, np.flatnonzero(apart) + 1, axis=1):
        rotation, triangle = np.linalg.qr(basis.T @ directions[:, : basis.shape[1]])
        bases.append(basis @ (rotation * np.where(np.diag(triangle) < 0, -1, 1)))
    return np.concatenate(bases, axis=1)


def rotated(
    kernel: Kernel, points: Table, tolerance: float, most: int, look: Callable[[float], None] | None = None
) -> tuple[np.ndarray, float]:
    """Return features ``Phi [M, r]`` of decreasing norm, and their relative residual."""
    # Only as many columns are computed as fit into memory beside their rotation and its squares.
    most = min(most, max(host_memory() // (Effort.copies * 8 * len(points)), 1))
    # The basis is a hundred times more accurate than asked, so that the rotation, not the pivot order, decides the rank.
    basis, _, reached = pivots(kernel, points, tolerance / 100, most, look)
    # No rotation leaves out less than the whole basis does.
    if reached > tolerance:
        return basis, reached
    values, vectors = (part[..., ::-1] for part in np.linalg.eigh(basis.T @ basis))
    rotated, diagonal = determined(values, basis @ vectors), prior_variance(kernel, points)
    residual = rotated**2
    np.cumsum(residual, axis=1, out=residual)
    # For many points this is the largest array, so it is computed in place.
    np.subtract(diagonal[:, None], residual, out=residual)
    relative = np.maximum(residual.max(axis=0), 0.0) / float(diagonal.max())
    enough = np.flatnonzero(relative <= tolerance)
    rank = int(enough[0]) + 1 if enough.size else rotated.shape[1]
    return rotated[:, :rank], float(relative[rank - 1])


def dense_features(kernel: Kernel, domain: Domain, tolerance: float, most: int, *, asked: bool) -> DenseFeatures:
    """Build at most ``most`` features, or fewer if not ``asked`` for."""

    def look(columns: float) -> None:
        words, remedy = f"the {columns:,.0f} features or more that 'features' needs on {domain.size:,} points", "or a smoother kernel"
        check_fits("form", int(Effort.copies * 8 * columns * domain.size), words, f"use form='rows' with horizon=, fewer points, {remedy}")

    phi, residual = rotated(kernel, domain.points, tolerance, min(most, domain.size), look if asked else None)
    variance = prior_variance(kernel, domain.points)
    return DenseFeatures(phi=phi, prior_variance=variance, residual=np.float64(residual), left_out=variance - np.sum(phi * phi, axis=1))


def product_features(kernel: Kernel, domain: Domain, tolerance: float, most: int, *, asked: bool) -> ProductFeatures | None:
    """Build at most ``most`` features, or return ``None``.

    The kernel or the domain may be no product, and axes may be too long for a form that the user has not ``asked`` for.
    """
    parts = kernel.along_axes(domain.dimension)
    if parts is None or not domain.axes:
        return None
    largest = max(domain.grid_shape)
    needed = Effort.copies * 8 * largest**2
    if asked:
        words = f"the eigenvectors of an axis of {largest:,} points that 'product' needs"
        check_fits("form", needed, words, "use form='rows' with horizon=, or fewer points")
    elif needed > host_memory() or sum(float(size) ** 3 for size in domain.grid_shape) > Effort.max_cubes:
        return None
    points = [np.asarray(axis)[:, None] for axis in domain.axes]
    axes = []
    for matrix in covariance_matrices(parts, points, points):
        values, vectors = (part[..., ::-1] for part in np.linalg.eigh(matrix))
        # Float64 resolves no smaller eigenvalues.
        resolved = values > 1e-15 * values[0]
        axes.append(determined(values, vectors)[:, resolved] * np.sqrt(values[resolved]))
    shape, sizes = tuple(axis.shape[1] for axis in axes), outer([np.sum(axis * axis, axis=0) for axis in axes])
    variance_of_all = outer([np.sum(axis * axis, axis=1) for axis in axes])

    def residual_of(kept: np.ndarray) -> float:
        missing = variance_of_all - contract([axis * axis for axis in axes], kept)
        return float(np.max(missing)) / float(variance_of_all.max())

    columns, slots = kept_products(sizes, shape, residual_of, tolerance, most)
    axes = [axis[:, :used] for axis, used in zip(axes, slots.shape, strict=True)]
    variance = prior_variance(kernel, domain.points)
    left_out = variance - contract([axis * axis for axis in axes], (slots < columns.shape[1]).astype(np.float64))
    residual = np.float64(max(float(np.max(left_out)) / float(variance.max()), 0.0))
    return ProductFeatures(axes=tuple(axes), columns=columns, slots=slots, prior_variance=variance, residual=residual, left_out=left_out)


def kept_products(
    sizes: np.ndarray, shape: tuple[int, ...], residual_of: Callable[[np.ndarray], float], tolerance: float, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Choose the fewest products within the tolerance, the largest first.

    Returns ``columns`` and ``slots`` of :class:`ProductFeatures`. Products have squared norms ``sizes``. ``residual_of`` returns the share
    of prior variance that is left out, from a table with 1 for every kept product and 0 elsewhere.
    """
    # Where axes are alike some products are equal but for rounding of float64, so sort them in float32.
    order = np.argsort(-np.float32(sizes), kind="stable")
    ranks = np.argsort(order, kind="stable").reshape(shape)
    low, high = 1, min(most, sizes.size)
    # The residual falls as products are added, so bisect.
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if residual_of((ranks < middle).astype(np.float64)) <= tolerance else (middle + 1, high)
    # Rows of W that fill whole vector registers, of 16 float32 numbers, are cheaper than slightly shorter rows.
    lanes = 16
    low = min(-(-low // lanes) * lanes, most, sizes.size)
    columns = np.stack(np.unravel_index(order[:low], shape)).astype(np.int32)
    slots = np.full(columns.max(axis=1) + 1, low, np.int32)
    slots[tuple(columns)] = np.arange(low, dtype=np.int32)
    return columns, slots


def outer(vectors: list[np.ndarray]) -> np.ndarray:
    """Return the flattened outer product, with the last vector's index fastest."""
    return functools.reduce(np.multiply.outer, vectors, np.ones(())).ravel()


def contract(axes: list[np.ndarray], table: np.ndarray) -> np.ndarray:
    """Return ``sum_ab.. A_ia B_jb .. table_ab..`` flattened to ``[M]``."""
    # Each step contracts the leading index and appends the grid index, so that after d steps the axes are in order.
    for axis in axes:
        table = np.tensordot(table, axis, axes=(0, 1))
    return table.reshape(-1)
