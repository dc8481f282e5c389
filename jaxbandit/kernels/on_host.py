"""Covariances of kernels on the host, in float64 whatever the engine's precision, by one compiled program each.

Called by itself a kernel compiles one program for each of its operations. Kernels of one structure share programs on equally many points,
whether their numbers are Python's or NumPy's.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from jaxbandit.core.pytree import as_argument, canonicalise
from jaxbandit.core.types import Array, Table
from jaxbandit.kernels.base import Kernel


def covariances_with(kernel: Kernel, points: Table, point: Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the covariances ``[M]`` of ``points [M, d]`` with one ``point [d]``, and the prior variances ``[M]``."""
    with jax.enable_x64(True):
        column, variances = _covariances_with(canonicalise(kernel), *(as_argument(np.asarray(x, np.float64)) for x in (points, point)))
        return np.asarray(column, np.float64), np.asarray(variances, np.float64)


def covariances(kernels: Sequence[Kernel], x: Sequence[Table], y: Sequence[Table]) -> list[np.ndarray]:
    """Return for each of ``kernels`` the covariances ``[n, p]`` of its own points, ``[n, d]`` of ``x`` and ``[p, d]`` of ``y``."""
    with jax.enable_x64(True):
        given = [[as_argument(np.asarray(points, np.float64)) for points in side] for side in (x, y)]
        return [np.asarray(matrix, np.float64) for matrix in _covariances(tuple(map(canonicalise, kernels)), *given)]


@jax.jit
def _covariances_with(kernel: Kernel, points: Array, point: Array) -> tuple[Array, Array]:
    return kernel(points, point[None, :])[:, 0], kernel.diag(points)


@jax.jit
def _covariances(kernels: tuple[Kernel, ...], x: list[Array], y: list[Array]) -> list[Array]:
    return [kernel(own, other) for kernel, own, other in zip(kernels, x, y, strict=True)]
