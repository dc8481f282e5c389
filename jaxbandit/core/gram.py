"""Checks of matrices of covariances: finite, symmetric and positive semi-definite."""

from __future__ import annotations

import numpy as np

from jaxbandit.core import checks


def check_gram(name: str, matrix: np.ndarray, tolerance: float) -> None:
    """Raise ``InvalidArgument`` unless ``matrix`` is finite, symmetric and positive semi-definite, up to a share of its largest entry."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise checks.InvalidArgument(f"{name}: expected a square [M, M] matrix, got shape {list(matrix.shape)}")
    checks.finite(name, matrix)
    scale = float(np.abs(matrix).max()) or 1.0
    skew = float(np.abs(matrix - matrix.T).max())
    if skew > tolerance * scale:
        raise checks.InvalidArgument(f"{name}: must be symmetric, got entries {skew:.3g} apart; symmetrise it with (K + K.T) / 2")
    margin = tolerance * scale * len(matrix)
    symmetric = (matrix + matrix.T) / 2
    try:  # far cheaper than eigenvalues, and it succeeds when they are above -margin
        np.linalg.cholesky(symmetric + margin * np.eye(len(matrix)))
    except np.linalg.LinAlgError:
        least = float(np.linalg.eigvalsh(symmetric)[0])
        if least < -margin:
            raise checks.InvalidArgument(
                f"{name}: must be positive semi-definite, got a least eigenvalue of {least:.3g}; clip its eigenvalues at 0 first"
            ) from None


def check_called(name: str, kernel: str, matrix: np.ndarray, diagonal: np.ndarray, size: int) -> None:
    """Raise ``InvalidArgument`` unless a user's ``kernel`` gave real covariances ``matrix`` of ``size`` points, and their ``diagonal``."""
    for part, want in ((matrix, (size, size)), (diagonal, (size,))):
        if part.shape != want or part.dtype.kind != "f":
            raise checks.InvalidArgument(
                f"{name}: {kernel} must give real covariances of shape {list(want)}, got {part.dtype} {list(part.shape)}"
            )
    check_gram(f"{name}: the matrix of {kernel}", matrix, 1e-6)
    if not np.allclose(np.diagonal(matrix), diagonal, rtol=1e-6, atol=1e-6 * float(np.abs(matrix).max())):
        raise checks.InvalidArgument(f"{name}: {kernel}.diag must give the diagonal of the matrix, got {checks.short(diagonal)}")
