"""What the random families share: kernel matrices and their roots in float64 on the host, and sampling by rejection under ``vmap``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.pytree import float_dtype
from jaxbandit.domains import Domain
from jaxbandit.kernels import Kernel

Array = jax.Array
EXACT = jax.lax.Precision.HIGHEST  # tables are truth: no TF32 on accelerators


def gram(kernel: Kernel, domain: Domain) -> np.ndarray:
    """The kernel matrix ``[M, M]`` of the domain, in float64."""
    kernel.validate(domain.dimension)
    with jax.enable_x64(True):
        points = jnp.asarray(domain.points, np.float64)
        matrix = np.asarray(kernel(points, points))
    return (matrix + matrix.T) / 2


def square_root(matrix: np.ndarray) -> np.ndarray:
    """``root [M, r]`` with ``root root^T = matrix`` to ``M 1e-14`` of its largest eigenvalue, from an eigendecomposition in float64."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > 1e-14 * len(matrix) * values[-1]
    return vectors[:, kept] * np.sqrt(values[kept])


def times(matrix: Any, vector: Array) -> Array:
    """``matrix [n, p] @ vector [p]`` in the engine's type and in full precision."""
    return jnp.matmul(jnp.asarray(matrix, float_dtype()), vector, precision=EXACT)


def reject(key: Array, draw: Callable[[Array], Any], accept: Callable[[Any], Array], attempts: int) -> tuple[Any, Array]:
    """The first of at most ``attempts`` draws that ``accept`` likes, and whether there was one (otherwise the last draw).

    Attempt ``a`` draws from ``fold_in(key, a)``: the outcome is a function of the key alone, whatever runs beside it.
    """

    def attempt(carry: tuple[Array, Any, Array]) -> tuple[Array, Any, Array]:
        candidate = draw(jax.random.fold_in(key, carry[0]))
        return carry[0] + 1, candidate, accept(candidate)

    def go_on(carry: tuple[Array, Any, Array]) -> Array:
        return ~carry[2] & (carry[0] < attempts)

    first = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(draw, key))
    _, found, accepted = jax.lax.while_loop(go_on, attempt, (jnp.int32(0), first, jnp.asarray(False)))
    return found, accepted
