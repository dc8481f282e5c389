"""The check of kernels."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import Array
from jaxbandit.core.pytree import canonicalise
from jaxbandit.kernels import Kernel
from jaxbandit.kernels.functions import Stationary
from jaxbandit.testing.common import ensure, made, near, survives


def check_kernel(
    kernel: Kernel | Callable[[], Kernel],
    *,
    points: np.ndarray | None = None,
    formula: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
) -> Kernel:
    """Check that a kernel is a covariance function, in float64.

    It must be symmetric and positive semi-definite, also at points close together and far apart. ``diag`` and ``along_axes`` must agree
    with it, and its gradients with finite differences. It must be a pytree, and return float32 for float32.

    Args:
      kernel: the kernel, of any number of axes unless ``points`` are given.
      points: ``[n, d]`` points to evaluate, such as the arm numbers of a ``Gram``; default sets of points on one axis and on two.
      formula: the covariances ``[n, p]`` of points ``[n, d]`` and ``[p, d]`` in NumPy, written without the kernel. Give it, because a
        kernel with a wrong factor may still be a covariance function. If a kernel declares a ``spectrum``, its integral is the default.

    Raises:
      AssertionError: if the kernel breaks a promise.
    """
    kernel = made(kernel, Kernel)
    name = survives(kernel)
    sets = _points_of(kernel) if points is None else [np.asarray(points, np.float64)]
    if formula is None and isinstance(kernel, Stationary) and kernel.spectrum is not None:
        formula = _stationary(kernel)
    with jax.enable_x64(True):
        whole = canonicalise(kernel)
        for x in sets:
            half, axes = x[: 1 + len(x) // 2], x.shape[1]
            parts = kernel.along_axes(axes)
            ensure(parts is None or len(parts) == axes, name, f"along_axes({axes}) must give {axes} kernels, or None, got {parts!r}")

            @jax.jit
            def evaluated(own: Kernel, parts: Sequence[Kernel] | None, x: Array, half: Array) -> Any:
                product = None if parts is None else [part(x[:, a, None], x[:, a, None]) for a, part in enumerate(parts)]
                return own(x, x), own(half, x), own.diag(x), product

            matrix, rows, diagonal, product = jax.tree.map(np.asarray, evaluated(whole, canonicalise(parts), x, half))
            ensure(
                matrix.shape == (len(x),) * 2 and matrix.dtype == np.float64,
                name,
                f"must give float64 {[len(x)] * 2}, got {matrix.dtype} {list(matrix.shape)}",
            )
            ensure(bool(np.all(np.isfinite(matrix))), name, "must give finite covariances")
            size = float(np.abs(matrix).max())
            near(name, "is symmetric", matrix, matrix.T, 1e-13 * size)
            near(name, "gives the same rows for fewer points", rows, matrix[: len(half)], 1e-12 * size)
            near(name, "diag is the diagonal", diagonal, np.diagonal(matrix), 1e-12 * size)
            least = float(np.linalg.eigvalsh((matrix + matrix.T) / 2)[0])
            # Every entry has rounding errors, and an eigenvalue changes at most by their sum over a row.
            ensure(least >= -1e-13 * size * len(x), name, f"must be positive semi-definite, got a least eigenvalue of {least:.3g}")
            if product is not None:
                near(name, "is the product of along_axes", matrix, np.prod(product, axis=0), 1e-12 * size)
            if formula is not None:
                near(name, "is its formula", matrix, formula(x, x), 1e-11 * max(size, 1))
        _check_gradients(name, whole, sets[-1])
    one, x = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), whole), np.asarray(sets[-1], np.float32)
    ensure(jax.eval_shape(one, x, x).dtype == np.float32, name, "must give float32 covariances of float32 points")
    return kernel


def _points_of(kernel: Kernel) -> list[np.ndarray]:
    """Return points ``[n, d]`` on one axis and two, near and far."""
    rng = np.random.default_rng(0)
    line = np.concatenate([np.linspace(-2, 2, 33), 0.3 + np.geomspace(1e-3, 1.0, 12), [0.0, 0.0]])[:, None]
    plane = np.concatenate([rng.uniform(-2, 2, (24, 2)), 0.05 * rng.uniform(-2, 2, (12, 2)), np.ones((2, 2)), [[0.0, 1.0], [0.0, -1.0]]])
    found = []
    for points in (line, plane):
        with contextlib.suppress(InvalidArgument):
            kernel.check_axes(points.shape[1])
            found.append(points)
    ensure(bool(found), type(kernel).__name__, "takes neither one axis nor two; give points [n, d]")
    return found


def _stationary(kernel: Stationary) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Return the covariances with a spectral density of Student's t."""
    from scipy.special import gamma, kv

    def formula(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        scaled = (x[:, None] - y[None]) / np.asarray(kernel.length_scale, np.float64)
        r, nu = np.sqrt(np.sum(scaled**2, axis=-1)), float(kernel.spectrum or 0) / 2
        if math.isinf(nu):
            return np.exp(-(r**2) / 2)
        z = np.sqrt(2 * nu) * np.where(r > 0, r, 1)
        return np.where(r > 0, 2 ** (1 - nu) / gamma(nu) * z**nu * kv(nu, z), 1.0)

    return formula


def _check_gradients(name: str, kernel: Kernel, x: np.ndarray) -> None:
    """Check that gradients are finite and near central differences."""
    weights, h = np.random.default_rng(1).normal(size=(len(x), len(x))), 1e-6
    leaves, structure = jax.tree.flatten(kernel)
    real = [number for number, leaf in enumerate(leaves) if jnp.issubdtype(jnp.result_type(leaf), jnp.floating)]
    ours = [jnp.asarray(leaves[number]) for number in real]

    def total(given: Sequence[Array], x: Array, y: Array) -> Array:
        parts = list(leaves)
        for number, leaf in zip(real, given, strict=True):
            parts[number] = leaf
        return jnp.sum(weights * jax.tree.unflatten(structure, parts)(x, y))

    def scaled(number: int, factor: float) -> list[Array]:
        return [*ours[:number], ours[number] * factor, *ours[number + 1 :]]

    # All points differ, because a kernel may have a corner where two points meet.
    y, way = x + 0.0317, np.random.default_rng(2).normal(size=x.shape)

    @jax.jit
    def slopes(ours: Sequence[Array], x: Array, y: Array) -> Any:
        def central(*ends: Array) -> Array:
            return (ends[0] - ends[1]) / (2 * h)

        by_leaf = [central(*(total(scaled(number, factor), x, y) for factor in (1 + h, 1 - h))) for number in range(len(ours))]
        by_point = central(total(ours, x + h * way, y), total(ours, x - h * way, y))
        return jax.grad(total, (0, 1))(ours, x, y), jax.grad(total, (0, 1, 2))(ours, x, x), by_leaf, by_point

    (by_leaf, by_point), at_itself, leaf_expected, point_expected = jax.tree.map(np.asarray, slopes(ours, x, y))
    finite = all(np.all(np.isfinite(part)) for part in jax.tree.leaves((by_leaf, by_point, at_itself)))
    ensure(finite, name, "must have finite gradients, also where points are equal")
    for number, (leaf, slope, expected) in enumerate(zip(ours, by_leaf, leaf_expected, strict=True)):
        tolerance = 1e-6 * (1 + float(np.abs(weights).sum()) + abs(expected))
        near(name, f"gradient by hyper-parameter {number}, times its value", np.sum(slope * leaf), expected, tolerance)
    if np.array_equal(x, np.round(x)):
        # Whole numbers are arms or categories, without a derivative.
        return
    near(name, "gradient by points", np.sum(by_point * way), point_expected, 1e-4 * (1 + abs(point_expected)))
