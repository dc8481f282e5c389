"""Factorisations of a kernel on a finite domain on the host, ``K ~ Phi Phi^T``, in float64 whatever the engine's precision.

Pivoted Cholesky finds a basis in ``O(M r^2)`` from ``r`` kernel columns, without ever forming ``K [M, M]``; an eigendecomposition of
the small ``Phi^T Phi`` then drops what the tolerance allows. On product grids products of the eigenvectors of each axis do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.memory import check_fits, host_memory
from jaxbandit.core.types import Table
from jaxbandit.domains import Domain
from jaxbandit.kernels import Kernel
from jaxbandit.kernels.base import covariances, covariances_with
from jaxbandit.surrogates.features import DenseFeatures, ProductFeatures

MOST_WORK = 2e10  # multiply-adds of a factorisation that nobody asked for by name: some ten seconds
MOST_CUBES = 1.5e11  # sum of the cubed sizes of axes whose eigenvectors are computed unasked: about a minute on one core
LONG_WORK = 1e8  # points times squared columns of a factorisation that is looked at on the way
FIRST_LOOK = 128  # columns: enough to have gone round a domain's corners
DOUBT = 4.0  # at the first look a factorisation goes on unless it would need so many times the columns that it may have
COPIES = 3  # of features in memory: themselves, rotated, and their squares; of a kernel matrix: itself, its eigenvectors, the solver's own
LANES = 16  # float32 numbers in the widest vector register: rows of W that fill whole registers are cheaper than slightly shorter ones

Look = Callable[[float], None]  # takes the number of columns that a factorisation is expected to need, and raises where they cannot be had


def affordable_rank(points: int) -> int:
    """Return the most columns of a pivoted Cholesky factor that are worth trying on a number of points, by the time that they take."""
    return max(1, int(math.sqrt(2 * MOST_WORK / points)))


def prior_variance(kernel: Kernel, points: Table) -> np.ndarray:
    """Return the diagonal ``[M]`` of the kernel matrix, in float64."""
    return covariances_with(kernel, points, points[0])[1]


def expected_columns(residuals: Sequence[float], tolerance: float) -> float:
    """Return the fewest columns that can be expected to reach the tolerance, from the relative residual before each column so far.

    The residual of pivoted Cholesky falls ever more slowly for rough kernels, like a power of the number of columns, and at best
    exponentially; so going on at the latest rate gives the fewest. They are infinite where the residual does not fall.
    """
    done = len(residuals)
    before, now = residuals[done // 2 - 1], residuals[-1]
    fallen = math.log(before / now) if now > 0 else math.inf
    left = math.log(now / tolerance) if now > tolerance else 0.0
    return done + (done - done // 2) * left / fallen if fallen > 0 else math.inf


def out_of_reach(columns: float, done: int, most: int) -> bool:
    """Return whether a factorisation that is expected to need so many columns is given up; doubt falls with the number ``done``."""
    return columns > max(1.0, DOUBT * FIRST_LOOK / done) * most


def pivots(kernel: Kernel, points: Table, tolerance: float, most: int, look: Look | None = None) -> tuple[np.ndarray, np.ndarray, float]:
    """Return ``Phi [M, r]`` with ``max_i (K - Phi Phi^T)_ii <= tolerance * max_i K_ii``, its pivots ``[r]``, and the residual reached.

    The pivot is always the point of largest residual variance (Harbrecht, Peters and Schneider 2012). There are at most ``most`` columns.
    A long factorisation is looked at after ``FIRST_LOOK`` columns and whenever their number has doubled: by ``look``, or, without it, to
    end where the tolerance is out of reach.
    """
    points = np.asarray(points, np.float64)
    diagonal = prior_variance(kernel, points)
    scale = float(diagonal.max())
    if not scale > 0:
        raise InvalidArgument(f"kernel: must have a variance > 0 at some of the {len(diagonal)} points, got at most {scale:g}")
    residual, phi = diagonal.copy(), np.zeros((min(most, len(diagonal)), len(diagonal)))
    chosen: list[int] = []
    left: list[float] = []  # largest residual before each column
    long = len(diagonal) * len(phi) ** 2 > LONG_WORK
    for r in range(len(phi)):
        pivot = int(np.argmax(residual))
        if residual[pivot] <= tolerance * scale:
            break
        if long and r >= FIRST_LOOK and (r & (r - 1)) == 0:
            columns = expected_columns(left, tolerance)
            if look is not None:
                look(min(columns, len(diagonal)))
            elif out_of_reach(columns, r, len(phi)):
                break
        left.append(float(residual[pivot]) / scale)
        row = (covariances_with(kernel, points, points[pivot])[0] - phi[:r, pivot] @ phi[:r]) / np.sqrt(residual[pivot])
        phi[r] = row
        chosen.append(pivot)
        residual = np.maximum(residual - row * row, 0.0)
        residual[pivot] = 0.0
    return phi[: len(chosen)].T, np.asarray(chosen, np.int64), float(residual.max()) / scale


def features(kernel: Kernel, points: Table, tolerance: float, most: int, look: Look | None = None) -> tuple[np.ndarray, float]:
    """Return features ``Phi [M, r]`` of the kernel on the points, columns of decreasing norm, and the relative residual reached."""
    # The basis is computed a hundred times more accurately than asked, so that the rotation, not the pivot order, decides the rank.
    most = min(most, max(host_memory() // (COPIES * 8 * len(points)), 1))  # as many as fit beside their rotation and its squares
    basis, _, reached = pivots(kernel, points, tolerance / 100, most, look)
    if reached > tolerance:  # no rotation leaves out less than all of the basis does
        return basis, reached
    values, vectors = np.linalg.eigh(basis.T @ basis)
    rotated, diagonal = basis @ vectors[:, np.argsort(values)[::-1]], prior_variance(kernel, points)
    residual = rotated**2
    np.cumsum(residual, axis=1, out=residual)
    np.subtract(diagonal[:, None], residual, out=residual)  # in place: of many points it is the largest array of all
    relative = np.maximum(residual.max(axis=0), 0.0) / float(diagonal.max())
    enough = np.flatnonzero(relative <= tolerance)
    rank = int(enough[0]) + 1 if enough.size else rotated.shape[1]
    return rotated[:, :rank], float(relative[rank - 1])


def dense_features(kernel: Kernel, domain: Domain, tolerance: float, most: int, *, asked: bool) -> DenseFeatures:
    """Build :class:`DenseFeatures` with at most ``most`` columns; fewer where nobody ``asked`` and more would not suffice."""

    def look(columns: float) -> None:
        words = f"the {columns:,.0f} features or more that 'features' needs on {domain.size:,} points"
        check_fits(
            "form", int(COPIES * 8 * columns * domain.size), words, "use form='rows' with horizon=, fewer points, or a smoother kernel"
        )

    phi, residual = features(kernel, domain.points, tolerance, min(most, domain.size), look if asked else None)
    variance = prior_variance(kernel, domain.points)
    return DenseFeatures(phi=phi, prior_variance=variance, residual=np.float64(residual), left_out=variance - np.sum(phi * phi, axis=1))


def product_features(kernel: Kernel, domain: Domain, tolerance: float, most: int, *, asked: bool) -> ProductFeatures | None:
    """Build :class:`ProductFeatures` with at most ``most`` columns; ``None`` when kernel or domain is no product.

    ``None``, too, where nobody ``asked`` and an axis has so many points that its eigenvectors take long or do not fit memory.
    """
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
        axes.append(vectors[:, resolved] * np.sqrt(values[resolved]))
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
    """Return ``columns`` and ``slots`` of :class:`ProductFeatures`: the fewest of the largest products within the tolerance.

    Products have squared norms ``sizes``, with the last axis of ``shape`` varying fastest; ``residual_of`` a table of zeros and ones, of
    that shape, is the share of prior variance left out when it says which are kept.
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
