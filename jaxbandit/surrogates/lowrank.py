"""Host-side factorisation of a kernel on a finite domain, ``K ~ Phi Phi^T``, in float64 whatever the engine's precision.

Pivoted Cholesky finds a basis in ``O(M r^2)`` from ``r`` kernel columns, without ever forming ``K [M, M]``; an eigendecomposition of
the small ``Phi^T Phi`` then drops what the tolerance allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.memory import host_memory
from jaxbandit.core.types import Table
from jaxbandit.kernels import Kernel
from jaxbandit.kernels.base import covariances_with

MOST_WORK = 2e10  # multiply-adds of a factorisation that nobody asked for by name: some ten seconds
LONG_WORK = 1e8  # points times squared columns of a factorisation that is looked at on the way
FIRST_LOOK = 128  # columns: enough to have gone round a domain's corners
DOUBT = 4.0  # at the first look a factorisation goes on unless it would need so many times the columns that it may have
COPIES = 3  # of features in memory: themselves, rotated, and their squares; of a kernel matrix: itself, its eigenvectors, the solver's own


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


def pivots(
    kernel: Kernel, points: Table, tolerance: float, most: int, check: Callable[[float], None] | None = None
) -> tuple[np.ndarray, np.ndarray, float]:
    """Compute ``Phi [M, r]`` with ``max_i (K - Phi Phi^T)_ii <= tolerance * max_i K_ii``, or its first columns.

    The pivot is always the point of largest residual variance (Harbrecht, Peters and Schneider 2012). A long factorisation is looked at
    after ``FIRST_LOOK`` columns and whenever their number has doubled.

    Args:
      kernel: the kernel.
      points: the points ``[M, d]``.
      tolerance: largest share of prior variance to leave out.
      most: most columns.
      check: takes the number of columns expected at a look, and raises where they cannot be had; without it a factorisation ends there
        if the tolerance is out of reach.

    Returns:
      ``Phi``, the points ``[r]`` that were chosen as pivots, and the relative residual reached.
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
            if check is not None:
                check(min(columns, len(diagonal)))
            elif out_of_reach(columns, r, len(phi)):
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


def features(
    kernel: Kernel, points: Table, tolerance: float, most: int, check: Callable[[float], None] | None = None
) -> tuple[np.ndarray, float]:
    """Return features ``Phi [M, r]`` of the kernel on the points, with at most ``most`` columns, and the relative residual reached."""
    # The basis is computed a hundred times more accurately than asked, so that the rotation, not the pivot order, decides the rank.
    most = min(most, max(host_memory() // (COPIES * 8 * len(points)), 1))  # as many as fit beside their rotation and its squares
    basis, _, residual = pivots(kernel, points, tolerance / 100, most, check)
    if residual > tolerance:  # no rotation leaves out less than all of the basis does
        return basis, residual
    return compressed(basis, prior_variance(kernel, points), tolerance)
