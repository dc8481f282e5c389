"""Parts shared by the random families: kernel matrices and their roots in float64 on the host, and rejection sampling under ``vmap``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.fields import whole
from jaxbandit.core.pytree import float_dtype
from jaxbandit.core.types import Array, Key, Table
from jaxbandit.domains import Domain
from jaxbandit.kernels import Kernel, check_covariance
from jaxbandit.kernels.on_host import covariances

T = TypeVar("T")
EXACT = jax.lax.Precision.HIGHEST  # regret is measured against these tables, so no TF32 on accelerators

Count: TypeAlias = Annotated[int, whole(1, 10**6)]
"""How many centres a function has, or how often an instance is drawn."""


def gram(kernel: Kernel, domain: Domain) -> np.ndarray:
    """Return the kernel matrix ``[M, M]`` of the domain, in float64."""
    kernel.check_axes(domain.dimension)
    check_covariance("kernel", kernel, domain.points)
    (matrix,) = covariances([kernel], [domain.points], [domain.points])
    checks.finite("kernel", matrix, remedy="its values on the domain overflow; change its hyper-parameters")
    return (matrix + matrix.T) / 2


def square_root(matrix: np.ndarray) -> np.ndarray:
    """Return ``root [M, r]`` with ``root root^T = matrix`` up to ``M 1e-14`` of its largest eigenvalue, from eigenvectors in float64."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > 1e-14 * len(matrix) * values[-1]
    return vectors[:, kept] * np.sqrt(values[kept])


def times(matrix: Table, vector: Array) -> Array:
    """Return ``matrix [n, p] @ vector [p]`` in the engine's floating type and in full precision."""
    return jnp.matmul(jnp.asarray(matrix, float_dtype()), vector, precision=EXACT)


def reject(key: Key, draw: Callable[[Key], T], accept: Callable[[T], Array], attempts: int) -> tuple[T, Array]:
    """Return the first of at most ``attempts`` draws that is accepted, else the last, and ``[]`` whether it was accepted.

    Attempt ``a`` draws from ``fold_in(key, a)``, so that the result depends on the key alone.
    """

    def attempt(carry: tuple[Array, T, Array]) -> tuple[Array, T, Array]:
        candidate = draw(jax.random.fold_in(key, carry[0]))
        return carry[0] + 1, candidate, accept(candidate)

    def go_on(carry: tuple[Array, T, Array]) -> Array:
        return ~carry[2] & (carry[0] < attempts)

    first = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(draw, key))
    _, found, accepted = jax.lax.while_loop(go_on, attempt, (jnp.int32(0), first, jnp.asarray(False)))
    return found, accepted
