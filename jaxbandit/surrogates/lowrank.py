"""Host-side factorisation of a kernel on a finite domain, ``K ~ Phi Phi^T``, in float64 whatever the engine's precision.

Pivoted Cholesky finds a basis in ``O(M r^2)`` from ``r`` kernel columns, without ever forming ``K [M, M]``; an eigendecomposition of
the small ``Phi^T Phi`` then drops what the tolerance allows.
"""

from __future__ import annotations

import math

import numpy as np

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.memory import host_memory
from jaxbandit.core.types import Table
from jaxbandit.kernels import Kernel
from jaxbandit.kernels.on_host import covariances_with
from jaxbandit.surrogates.outlook import COPIES, GoOn, look_ahead, looks

MOST_WORK = 2e10  # multiply-adds of a factorisation that nobody asked for by name: some ten seconds


def affordable_rank(points: int) -> int:
    """Return the most columns of a pivoted Cholesky factor that are worth trying on a number of points, by the time that they take."""
    return max(1, int(math.sqrt(2 * MOST_WORK / points)))


def prior_variance(kernel: Kernel, points: Table) -> np.ndarray:
    """Return the diagonal ``[M]`` of the kernel matrix, in float64."""
    return covariances_with(kernel, points, points[0])[1]


def pivoted_cholesky(kernel: Kernel, points: Table, tolerance: float, most: int, goes_on: GoOn | None = None) -> tuple[np.ndarray, float]:
    """Compute ``Phi [M, r]`` with ``max_i (K - Phi Phi^T)_ii <= tolerance * max_i K_ii``, or its first columns.

    Args:
      kernel: the kernel.
      points: the points ``[M, d]``.
      tolerance: largest share of prior variance to leave out.
      most: most columns.
      goes_on: decides on the way whether to go on; default: always.

    Returns:
      ``Phi`` and the relative residual reached.
    """
    phi, _, residual = pivots(kernel, points, tolerance, most, goes_on)
    return phi, residual


def pivots(kernel: Kernel, points: Table, tolerance: float, most: int, goes_on: GoOn | None = None) -> tuple[np.ndarray, np.ndarray, float]:
    """Return what :func:`pivoted_cholesky` does, and between the two the points ``[r]`` that were chosen as pivots.

    The pivot is always the point of largest residual variance (Harbrecht, Peters and Schneider 2012).
    """
    points = np.asarray(points, np.float64)
    diagonal = prior_variance(kernel, points)
    scale = float(diagonal.max())
    if not scale > 0:
        raise InvalidArgument(f"kernel: must have a variance > 0 at some of the {len(diagonal)} points, got at most {scale:g}")
    residual, phi = diagonal.copy(), np.zeros((min(most, len(diagonal)), len(diagonal)))
    chosen: list[int] = []
    left: list[float] = []  # largest residual before each column
    at = set() if goes_on is None else looks(len(diagonal), len(phi))
    for r in range(len(phi)):
        pivot = int(np.argmax(residual))
        if residual[pivot] <= tolerance * scale:
            break
        if goes_on is not None and r in at and not goes_on(look_ahead(len(diagonal), len(phi), left, tolerance)):
            break
        left.append(float(residual[pivot]) / scale)
        row = (covariances_with(kernel, points, points[pivot])[0] - phi[:r, pivot] @ phi[:r]) / np.sqrt(residual[pivot])
        phi[r] = row
        chosen.append(pivot)
        residual = np.maximum(residual - row * row, 0.0)
        residual[pivot] = 0.0
    return phi[: len(chosen)].T, np.asarray(chosen, np.int64), float(residual.max()) / scale


def compressed(phi: np.ndarray, kernel_diagonal: np.ndarray, tolerance: float) -> tuple[np.ndarray, float]:
    """Rotate ``phi [M, q]`` to its principal directions and keep the fewest whose residual is within the tolerance.

    Returns:
      ``Phi [M, r]``, columns of decreasing norm, and the relative residual of the diagonal.
    """
    values, vectors = np.linalg.eigh(phi.T @ phi)
    rotated = phi @ vectors[:, np.argsort(values)[::-1]]
    residual = rotated**2
    np.cumsum(residual, axis=1, out=residual)
    np.subtract(kernel_diagonal[:, None], residual, out=residual)  # in place: of many points it is the largest array of all
    relative = np.maximum(residual.max(axis=0), 0.0) / float(kernel_diagonal.max())
    enough = np.flatnonzero(relative <= tolerance)
    rank = int(enough[0]) + 1 if enough.size else rotated.shape[1]
    return rotated[:, :rank], float(relative[rank - 1])


def features(kernel: Kernel, points: Table, tolerance: float, most: int, goes_on: GoOn | None = None) -> tuple[np.ndarray, float]:
    """Return features ``Phi [M, r]`` of the kernel on the points, with at most ``most`` columns, and the relative residual reached.

    ``goes_on`` decides on the way whether to go on, see :mod:`jaxbandit.surrogates.outlook`.
    """
    # The basis is computed a hundred times more accurately than asked, so that the rotation, not the pivot order, decides the rank.
    most = min(most, max(host_memory() // (COPIES * 8 * len(points)), 1))  # as many as fit beside their rotation and its squares
    basis, residual = pivoted_cholesky(kernel, points, tolerance / 100, most, goes_on)
    if residual > tolerance:  # no rotation leaves out less than all of the basis does
        return basis, residual
    return compressed(basis, prior_variance(kernel, points), tolerance)
