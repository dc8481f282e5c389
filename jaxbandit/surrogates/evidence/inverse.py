"""Inverse and log-determinant of ``B = I + A``, ``A`` positive semi-definite, without LAPACK.

LAPACK's factorisations of a batch of matrices inside a compiled loop can wait for each other for ever on CPU; products of matrices and
element-wise sums cannot.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.types import Array, Scalar

WHOLE = 56  # rows up to which all are eliminated at once, in place: two such matrices of float64 fit into the fastest cache of a core
BLOCK, LARGE_BLOCK = 16, 32  # rows that are eliminated at once of more; measured on CPU, the larger one from LARGE rows on
LARGE = 400


@jax.custom_jvp
def inverse(matrix: Array) -> tuple[Array, Array]:
    """Return ``B^-1 [n, n]`` and ``log det B []`` of a symmetric ``B [n, n]`` whose eigenvalues are at least 1.

    Cholesky's factorisation ``B = L L^T``, a block of rows at a time, which eliminates ``[B, I]`` to ``[L^T, L^-1]``; then
    ``B^-1 = L^-T L^-1``. Both halves share one array, for a column of ``L^-1`` begins where that of ``B`` ends. No pivot of such a matrix
    is below 1: rounding alone makes one smaller, and it is set to 1, or to what rounding leaves of its entry, which keeps float32
    usable down to noise variances of 1e-6 of the kernel's.
    """
    size = matrix.shape[0]
    blocks = 1 if size <= WHOLE else -(-size // (BLOCK if size < LARGE else LARGE_BLOCK))
    block = -(-size // blocks)  # as equal as can be, so that little is padded
    padded = blocks * block
    rows = jnp.arange(padded)
    start = jnp.pad(matrix, (0, padded - size)) + jnp.diag((rows >= size).astype(matrix.dtype)) if padded > size else matrix

    floors = jnp.maximum(1, size * float(np.finfo(matrix.dtype).eps) * jnp.diagonal(start))

    def eliminate(number: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        both, logdet = carry
        first = number * block
        own_floors = jax.lax.dynamic_slice(floors, (first,), (block,))
        panel, part = _eliminated(jax.lax.dynamic_slice(both, (first, 0), (block, padded)), first, own_floors)
        own, after = (rows >= first) & (rows < first + block), rows >= first + block
        below = jnp.where(after[None], panel, 0)  # L^T of the rows that follow
        reduced = jnp.where(own[None] & (rows[None] > (first + jnp.arange(block))[:, None]), 0, panel)
        both = jnp.where(after[:, None] & own[None], 0, both) - jnp.matmul(below.T, reduced, precision="highest")
        return jax.lax.dynamic_update_slice(both, panel, (first, 0)), logdet + part

    if blocks == 1:
        both, logdet = _eliminated(start, 0, floors)
    else:
        both, logdet = jax.lax.fori_loop(0, blocks, eliminate, (start, jnp.zeros((), matrix.dtype)))
    root = jnp.tril(both[:size, :size])
    return jnp.matmul(root.T, root, precision="highest"), logdet


@inverse.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (matrix,), (change,) = primals, tangents
    inverted, logdet = inverse(matrix)
    turned = -jnp.matmul(jnp.matmul(inverted, change, precision="highest"), inverted, precision="highest")
    return (inverted, logdet), (turned, jnp.sum(inverted * change))


def _eliminated(rows: Array, first: Scalar, floors: Array) -> tuple[Array, Array]:
    """Return ``L^T`` and ``L^-1`` in the place of ``rows [b, p]``, and ``log det(L L^T)``.

    From column ``first`` on ``rows`` are ``L L^T [b, b]`` and what follows it, and then ``L^T``; up to each row's diagonal they are then
    ``L^-1``, times what stands before column ``first``. Pivots below ``floors [b]`` are set to them.
    """
    size, width = rows.shape
    numbers, columns = jnp.arange(size), jnp.arange(width)

    def eliminate(number: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        rows, logdet = carry
        row, own = rows[number], columns == first + number
        column = jax.lax.dynamic_slice(row, (first,), (size,))  # by symmetry
        pivot = jnp.maximum(column[number], floors[number])
        after, unit = jnp.where(numbers > number, column / pivot, 0), jnp.where(own, 1, row)
        left = jnp.where(own[None] & (numbers > number)[:, None], 0, rows) - after[:, None] * unit[None]
        return jnp.where((numbers == number)[:, None], (unit / jnp.sqrt(pivot))[None], left), logdet + jnp.log(pivot)

    done: tuple[Array, Array] = jax.lax.fori_loop(0, size, eliminate, (rows, jnp.zeros((), rows.dtype)))
    return done


def inverse_diagonal(matrix: Array) -> Array:
    """Return the diagonal ``[b]`` of the inverse of a symmetric matrix with a diagonal of ones; NaN where it is not positive definite."""
    floor = float(np.finfo(matrix.dtype).eps) * matrix.shape[0]
    root = jnp.tril(_eliminated(matrix, 0, jnp.full(matrix.shape[0], floor, matrix.dtype))[0])
    definite = jnp.all(jnp.diagonal(root) < 1 / math.sqrt(2 * floor))
    return jnp.where(definite, jnp.sum(root * root, axis=0), jnp.nan)
