"""The square-root feature form: the kernel matrix is ``Phi Phi^T``, and the posterior is that of the ``r`` weights of the features.

The posterior covariance of the weights is ``W W^T``, with ``W = I`` before any data. Observing the point with feature vector ``phi``
under noise variance ``lam`` is Potter's square-root update (Bierman 1977, sec. V.3), which keeps it positive semi-definite:

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
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.blocks import by_platform
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import Array, Key, Scalar, Table
from jaxbandit.core.fields import Described
from jaxbandit.core.memory import check_fits, host_memory
from jaxbandit.core.pytree import pytree
from jaxbandit.domains import Domain
from jaxbandit.kernels import Kernel
from jaxbandit.kernels.base import covariances, covariances_with

# Accelerators round the factors of a float32 product to about 10 bits by default, too few for a posterior after many rounds.
EXACT = jax.lax.Precision.HIGHEST
matmul = partial(jnp.matmul, precision=EXACT)
S = TypeVar("S")

# Features of an axis up to which GPUs sum products themselves: so small a matrix product is a kernel, and its transposition another.
MAX_SUMMED_FEATURES = 64

MOST_WORK = 2e10  # multiply-adds of a factorisation that nobody asked for by name: some ten seconds
MOST_CUBES = 1.5e11  # sum of the cubed sizes of axes whose eigenvectors are computed unasked: about a minute on one core
LONG_WORK = 1e8  # points times squared columns of a factorisation that is looked at on the way
FIRST_LOOK = 128  # columns: enough to have gone round a domain's corners
DOUBT = 4.0  # at the first look a factorisation goes on unless it would need so many times the columns that it may have
COPIES = 3  # of features in memory: themselves, rotated, and their squares; of a kernel matrix: itself, its eigenvectors, the solver's own
LANES = 16  # float32 numbers in the widest vector register: rows of W that fill whole registers are cheaper than slightly shorter ones
EQUAL, SMALL = 2e-14, 1e-12  # shares of the largest eigenvalue by which two differ that are equal but for rounding, unless they are less


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


Look = Callable[[float], None]  # takes the number of columns that a factorisation is expected to need; raises where they cannot be had

# Potter's update of ``root [r, r]`` for one observation at ``phi [r]`` under ``noise []``: the new root, ``u [r]`` and ``s []``.
square_root_update = by_platform(_update, cuda=_update_on_gpus)


class Form(Described, abc.ABC, Generic[S]):
    """Form of the posterior of a group of outputs, computed from the state ``S`` of a trial, with ``r`` basis functions; abstract."""

    described: ClassVar[str] = "a form of jaxbandit.surrogates"
    name: ClassVar[str]  # in messages and records
    refreshable: ClassVar[bool] = True  # whether computing the variance anew costs less than float64 does

    if TYPE_CHECKING:  # declared as read-only, for fields and properties of subclasses

        @property
        def rank(self) -> int: ...  # r
        @property
        def trials_per_block(self) -> int: ...  # to run side by side on a CPU core
        @property
        def prior_variance(self) -> Table: ...  # [M] k(x, x)
        @property
        def residual(self) -> Scalar: ...  # [] largest share of prior variance that the form leaves out

    @abc.abstractmethod
    def init(self) -> S:
        """Return the state before any data."""

    @abc.abstractmethod
    def absorb(self, state: S, index: Array, noise: Array, present: Array | None = None) -> tuple[S, Array, Array, Array]:
        """Condition as :meth:`observe` does, without the column; return the state, the point's ``phi [r]``, ``u [r]`` and ``s``."""

    @abc.abstractmethod
    def row(self, state: S, index: Array) -> Array:
        """Return the feature vector ``[r]`` of the grid point ``index []``."""

    @abc.abstractmethod
    def expand(self, state: S, weights: Array) -> Array:
        """Return ``Phi weights [M]``, the function with the given ``weights [r]``."""

    @abc.abstractmethod
    def covariance(self, state: S, indices: Array) -> Array:
        """Return the posterior covariance ``[n, M]`` of the grid points ``indices [n]`` with every point."""

    @abc.abstractmethod
    def spread(self, state: S) -> Array:
        """Compute the posterior variance ``[M]`` from the state alone; the engine updates it incrementally instead."""

    @abc.abstractmethod
    def draw(self, state: S, key: Key) -> Array:
        """Draw from the zero-mean posterior at all points jointly, ``[M]``."""

    def observe(self, state: S, index: Array, noise: Array, present: Array | None = None) -> tuple[S, Array, Array, Array]:
        """Condition on one observation at ``index []``; return the state, ``u [r]``, ``c = Phi u [M]`` and ``s = noise + c[index]``.

        Where ``present []`` is false nothing changes, and ``u`` and ``c`` are 0.
        """
        state, _, u, s = self.absorb(state, index, noise, present)
        return state, u, self.expand(state, u), s


class SquareRoot(Form[Array]):
    """The posterior of feature weights, whose state is the root ``W [r, r]`` of their covariance; a subclass has ``row`` and ``expand``."""

    left_out: Scalar | Table = 0.0  # [M] prior variance k(x, x) - sum_r phi^2 that the features leave out and no observation takes away

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
    """Features as one matrix, for any kernel and any set of points."""

    name: ClassVar[str] = "features"
    phi: Table  # [M, r], columns of decreasing norm
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
    """Features of a product kernel on a product grid, kept as one small matrix per axis."""

    name: ClassVar[str] = "product"
    axes: tuple[Table, ...] = dataclasses.field(repr=False)  # one-dimensional features [n_a, q_a] of each
    columns: Table  # [d, r] numbers of the one-dimensional features, one on each axis, whose product is a kept feature
    slots: Table = dataclasses.field(repr=False)  # [q_1, ..., q_d] position of a product among the kept ones, r where it was dropped
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
    # The grid index is appended: after a step for each axis they are in order, and under vmap no matrix product needs a transposition.
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


def affordable_rank(points: int) -> int:
    """Return the most columns of a pivoted Cholesky factor that are worth trying on a number of points, by the time that they take."""
    return max(1, int(math.sqrt(2 * MOST_WORK / points)))


def prior_variance(kernel: Kernel, points: Table) -> np.ndarray:
    """Return the diagonal ``[M]`` of the kernel matrix, in float64."""
    return covariances_with(kernel, points, points[0])[1]


def expected_columns(residuals: Sequence[float], tolerance: float) -> float:
    """Return the fewest columns that can be expected to reach the tolerance, from the relative residual before each column so far."""
    # The residual of pivoted Cholesky falls ever more slowly, at best exponentially, so going on at the latest rate gives the fewest.
    done = len(residuals)
    before, now = residuals[done // 2 - 1], residuals[-1]
    fallen = math.log(before / now) if now > 0 else math.inf
    left = math.log(now / tolerance) if now > tolerance else 0.0
    return done + (done - done // 2) * left / fallen if fallen > 0 else math.inf


def pivots(kernel: Kernel, points: Table, tolerance: float, most: int, look: Look | None = None) -> tuple[np.ndarray, np.ndarray, float]:
    """Return ``Phi [M, r]`` with ``max_i (K - Phi Phi^T)_ii <= tolerance * max_i K_ii``, its pivots ``[r]``, and the residual reached.

    The pivot is always the point of largest residual variance (Harbrecht, Peters and Schneider 2012). There are at most ``most`` columns.
    A long one is looked at after ``FIRST_LOOK`` columns and whenever they have doubled: by ``look``, or to end where there is no hope.
    """
    points = np.asarray(points, np.float64)
    diagonal = prior_variance(kernel, points)
    scale = float(diagonal.max())
    if not scale > 0:
        raise InvalidArgument(f"kernel: must have a variance > 0 at some of the {len(diagonal)} points, got at most {scale:g}")
    residual, phi = diagonal.copy(), np.zeros((min(most, len(diagonal)), len(diagonal)))
    chosen: list[int] = []
    left: list[float] = []  # largest relative residual before each column
    long = len(diagonal) * len(phi) ** 2 > LONG_WORK
    for r in range(len(phi)):
        pivot = int(np.argmax(residual))
        if residual[pivot] <= tolerance * scale:
            break
        if long and r >= FIRST_LOOK and (r & (r - 1)) == 0:
            columns = expected_columns(left, tolerance)
            if look is not None:
                look(min(columns, len(diagonal)))
            elif columns > max(1.0, DOUBT * FIRST_LOOK / r) * len(phi):
                break
        left.append(float(residual[pivot]) / scale)
        phi[r] = row = (covariances_with(kernel, points, points[pivot])[0] - phi[:r, pivot] @ phi[:r]) / np.sqrt(residual[pivot])
        chosen.append(pivot)
        residual = np.maximum(residual - row * row, 0.0)
        residual[pivot] = 0.0
    return phi[: len(chosen)].T, np.asarray(chosen, np.int64), float(residual.max()) / scale


def determined(values: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the columns ``[M, r]`` of decreasing eigenvalues ``values [r]``, those of equal ones rotated so that nothing is left open.

    LAPACK's signs, and its bases of equal eigenvalues, differ between processors, and so would draws from features. Here the products of
    such columns with the first of some fixed directions are a positive triangle.
    """
    directions, bases = np.random.default_rng(0).standard_normal((len(columns), min(columns.shape))), []
    apart = (-np.diff(values) > EQUAL * values[0]) | (values[1:] < SMALL * values[0])
    for basis in np.split(columns, np.flatnonzero(apart) + 1, axis=1):
        rotation, triangle = np.linalg.qr(basis.T @ directions[:, : basis.shape[1]])
        bases.append(basis @ (rotation * np.where(np.diag(triangle) < 0, -1, 1)))
    return np.concatenate(bases, axis=1)


def rotated(kernel: Kernel, points: Table, tolerance: float, most: int, look: Look | None = None) -> tuple[np.ndarray, float]:
    """Return features ``Phi [M, r]`` of the kernel on the points, columns of decreasing norm, and the relative residual reached."""
    # The basis is computed a hundred times more accurately than asked, so that the rotation, not the pivot order, decides the rank.
    most = min(most, max(host_memory() // (COPIES * 8 * len(points)), 1))  # as many as fit beside their rotation and its squares
    basis, _, reached = pivots(kernel, points, tolerance / 100, most, look)
    if reached > tolerance:  # no rotation leaves out less than all of the basis does
        return basis, reached
    values, vectors = (part[..., ::-1] for part in np.linalg.eigh(basis.T @ basis))
    rotated, diagonal = determined(values, basis @ vectors), prior_variance(kernel, points)
    residual = rotated**2
    np.cumsum(residual, axis=1, out=residual)
    np.subtract(diagonal[:, None], residual, out=residual)  # in place: of many points it is the largest array of all
    relative = np.maximum(residual.max(axis=0), 0.0) / float(diagonal.max())
    enough = np.flatnonzero(relative <= tolerance)
    rank = int(enough[0]) + 1 if enough.size else rotated.shape[1]
    return rotated[:, :rank], float(relative[rank - 1])


def dense_features(kernel: Kernel, domain: Domain, tolerance: float, most: int, *, asked: bool) -> DenseFeatures:
    """Build features with at most ``most`` columns; fewer where nobody ``asked`` and more would not suffice."""

    def look(columns: float) -> None:
        words, remedy = f"the {columns:,.0f} features or more that 'features' needs on {domain.size:,} points", "or a smoother kernel"
        check_fits("form", int(COPIES * 8 * columns * domain.size), words, f"use form='rows' with horizon=, fewer points, {remedy}")

    phi, residual = rotated(kernel, domain.points, tolerance, min(most, domain.size), look if asked else None)
    variance = prior_variance(kernel, domain.points)
    return DenseFeatures(phi=phi, prior_variance=variance, residual=np.float64(residual), left_out=variance - np.sum(phi * phi, axis=1))


def product_features(kernel: Kernel, domain: Domain, tolerance: float, most: int, *, asked: bool) -> ProductFeatures | None:
    """Build features with at most ``most`` columns; ``None`` where kernel or domain is no product, or unasked axes are too long."""
    parts = kernel.along_axes(domain.dimension)
    if parts is None or not domain.axes:
        return None
    largest = max(domain.grid_shape)
    needed = COPIES * 8 * largest**2
    if asked:
        words = f"the eigenvectors of an axis of {largest:,} points that 'product' needs"
        check_fits("form", needed, words, "use form='rows' with horizon=, or fewer points")
    elif needed > host_memory() or sum(float(size) ** 3 for size in domain.grid_shape) > MOST_CUBES:
        return None
    points = [np.asarray(axis)[:, None] for axis in domain.axes]
    axes = []
    for matrix in covariances(parts, points, points):
        values, vectors = (part[..., ::-1] for part in np.linalg.eigh(matrix))
        resolved = values > 1e-15 * values[0]  # as many as float64 resolves
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
    """Return ``columns`` and ``slots`` of :class:`ProductFeatures`: the fewest of the largest products within the tolerance.

    Products have squared norms ``sizes``; ``residual_of`` tells the share of prior variance left out from a table, 1 for what is kept.
    """
    order = np.argsort(-np.float32(sizes), kind="stable")  # where axes are alike products are equal but for rounding of float64
    ranks = np.argsort(order, kind="stable").reshape(shape)
    low, high = 1, min(most, sizes.size)
    while low < high:  # the residual falls as products are added: bisect for the fewest within tolerance
        middle = (low + high) // 2
        low, high = (low, middle) if residual_of((ranks < middle).astype(np.float64)) <= tolerance else (middle + 1, high)
    low = min(-(-low // LANES) * LANES, most, sizes.size)
    columns = np.stack(np.unravel_index(order[:low], shape)).astype(np.int32)
    slots = np.full(columns.max(axis=1) + 1, low, np.int32)
    slots[tuple(columns)] = np.arange(low, dtype=np.int32)
    return columns, slots


def outer(vectors: list[np.ndarray]) -> np.ndarray:
    """Return all products of one entry from each vector, flattened with the last vector's index varying fastest."""
    return functools.reduce(np.multiply.outer, vectors, np.ones(())).ravel()


def contract(axes: list[np.ndarray], table: np.ndarray) -> np.ndarray:
    """Return ``sum_ab.. A_ia B_jb .. table_ab..`` flattened to ``[M]``."""
    for axis in axes:  # contract the leading index, append the grid index: after d steps the axes are in order
        table = np.tensordot(table, axis, axes=(0, 1))
    return table.reshape(-1)
