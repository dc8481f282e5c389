"""Directions of the steps that a smoothed gradient takes: rows of two-level factorial designs.

Rows of a Hadamard matrix without its column of ones are orthogonal, so that no parameter's effect is mistaken for another's, and sum to
zero, so that none is mistaken for a shift (Plackett and Burman 1946). Columns and signs are drawn anew for every copy of the design, which
spreads the effects of interactions, not estimated, evenly over the parameters.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.types import Array, Key


def design_size(parameters: int) -> int:
    """Return the number of rows of the design for a number of parameters: the least power of two above it."""
    return 1 << int(parameters).bit_length()


def hadamard(size: int) -> np.ndarray:
    """Return Sylvester's Hadamard matrix ``[size, size]``, whose first column is ones; ``size`` is a power of two."""
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


def directions(key: Key, pairs: int, parameters: int) -> Array:
    """Return directions ``[pairs, parameters]`` of -1 and 1: copies of a design, each with columns and signs of its own.

    ``pairs`` is a multiple of :func:`design_size`; within a copy columns are orthogonal and sum to zero.
    """
    size = design_size(parameters)
    matrix = jnp.asarray(hadamard(size), jnp.int8)

    def copy(key: Key) -> Array:
        columns_key, signs_key = jax.random.split(key)
        columns = jax.random.permutation(columns_key, jnp.arange(1, size, dtype=jnp.int32))[:parameters]
        return matrix[:, columns] * jax.random.rademacher(signs_key, (1, parameters), jnp.int8)

    return jax.vmap(copy)(jax.random.split(key, pairs // size)).reshape(pairs, parameters)
