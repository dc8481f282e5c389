"""Inverse and log-determinant of ``B = I + A``, ``A`` positive semi-definite, without LAPACK.

LAPACK's factorisations of a batch of matrices inside a compiled loop can wait for each other for ever on CPU; products of matrices and
element-wise sums cannot.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from jaxbandit.core.types import Array, Scalar

BLOCK, LARGE_BLOCK = 16, 32  # rows that are eliminated at once; measured on CPU, the larger one from LARGE rows on
LARGE = 400


@jax.custom_jvp
def inverse(matrix: Array) -> tuple[Array, Array]:
    """Return ``B^-1 [n, n]`` and ``log det B []`` of a symmetric ``B [n, n]`` whose eigenvalues are at least 1.

    Cholesky's factorisation ``B = L L^T``, a block of rows at a time, which eliminates ``[B, I]`` to ``[L^T, L^-1]``; then
    ``B^-1 = L^-T L^-1``. No pivot of such a matrix is below 1: rounding alone makes one smaller, and it is set to 1, or to what rounding
    leaves of the largest entry, which keeps float32 usable down to noise variances of 1e-6 of the kernel's.
    """
    size = matrix.shape[0]
    blocks = -(-size // (BLOCK if size < LARGE else LARGE_BLOCK))
    block = -(-size // blocks)  # as equal as can be, so that little is padded
    padded = blocks * block
    floor = jnp.maximum(1, size * float(jnp.finfo(matrix.dtype).eps) * jnp.max(jnp.diagonal(matrix)))
    rows = jnp.arange(padded)
    left = jnp.pad(matrix, (0, padded - size)) + jnp.diag((rows >= size).astype(matrix.dtype))

    def eliminate(number: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        left, right, logdet = carry
        first = number * block
        both = [jax.lax.dynamic_slice(half, (first, 0), (block, padded)) for half in (left, right)]
        panel, part = _eliminated(jnp.concatenate(both, axis=1), first, floor)
        below, reduced = jnp.where((rows >= first + block)[None], panel[:, :padded], 0), panel[:, padded:]
        left = left - jnp.matmul(below.T, below, precision="highest")
        right = right - jnp.matmul(below.T, reduced, precision="highest")
        return left, jax.lax.dynamic_update_slice(right, reduced, (first, 0)), logdet + part

    start = (left, jnp.eye(padded, dtype=matrix.dtype), jnp.zeros((), matrix.dtype))
    _, root, logdet = jax.lax.fori_loop(0, blocks, eliminate, start)
    root = root[:size, :size]
    return jnp.matmul(root.T, root, precision="highest"), logdet


@inverse.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (matrix,), (change,) = primals, tangents
    inverted, logdet = inverse(matrix)
    turned = -jnp.matmul(jnp.matmul(inverted, change, precision="highest"), inverted, precision="highest")
    return (inverted, logdet), (turned, jnp.sum(inverted * change))


def _eliminated(rows: Array, first: Scalar, floor: Scalar) -> tuple[Array, Array]:
    """Return ``L^-1 rows`` and ``log det(L L^T)`` of ``rows [b, p]``, where ``L L^T`` are their columns from ``first`` on.

    Pivots below ``floor`` are set to it.
    """
    size = rows.shape[0]
    numbers = jnp.arange(size)

    def eliminate(number: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        rows, logdet = carry
        row = rows[number]
        column = jax.lax.dynamic_slice(row, (first,), (size,))  # by symmetry
        pivot = jnp.maximum(column[number], floor)
        after = jnp.where(numbers > number, column, 0)
        left = rows - after[:, None] * (row / pivot)[None]
        return jnp.where((numbers == number)[:, None], (row / jnp.sqrt(pivot))[None], left), logdet + jnp.log(pivot)

    return jax.lax.fori_loop(0, size, eliminate, (rows, jnp.zeros((), rows.dtype)))


def inverse_diagonal(matrix: Array) -> Array:
    """Return the diagonal ``[b]`` of the inverse of a symmetric matrix with a diagonal of ones; NaN where it is not positive definite."""
    size, floor = matrix.shape[0], float(jnp.finfo(matrix.dtype).eps) * matrix.shape[0]
    both, _ = _eliminated(jnp.concatenate([matrix, jnp.eye(size, dtype=matrix.dtype)], axis=1), 0, floor)
    root = both[:, size:]
    definite = jnp.all(jnp.diagonal(root) < 1 / math.sqrt(2 * floor))
    return jnp.where(definite, jnp.sum(root * root, axis=0), jnp.nan)
