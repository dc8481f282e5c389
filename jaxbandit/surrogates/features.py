"""The square-root feature form: the kernel matrix is ``Phi Phi^T``, and the posterior lives in the ``r`` weights of the features.

The posterior covariance of the weights is ``W W^T``, with ``W = I`` before any data. Observing the point with feature vector ``phi``
under noise variance ``lam`` is Potter's square-root update (Bierman 1977, sec. V.3), which keeps it positive semi-definite:

    w = W^T phi,   u = W w,   s = lam + w.w,   W <- W - u w^T / (s + sqrt(lam s))

and ``c = Phi u`` is the posterior covariance of every point with the observed one. On product grids with product kernels ``Phi`` is
never formed: its columns are products of one-dimensional features, and ``c`` is a small tensor contracted one axis at a time.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.pytree import pytree
from jaxbandit.domains import Domain
from jaxbandit.kernels import Kernel
from jaxbandit.surrogates.lowrank import features as low_rank_features

Array = jax.Array

# Accelerators round the factors of a float32 product to 10 bits or so by default; a posterior of many rounds does not survive that.
EXACT = jax.lax.Precision.HIGHEST
matmul = partial(jnp.matmul, precision=EXACT)

LANES = 16  # float32 numbers in the widest vector register: rows of W in whole registers are cheaper than a few columns less


def square_root_update(root: Array, phi: Array, noise: Array) -> tuple[Array, Array, Array]:
    """Potter's update of ``root [r, r]`` for one observation at ``phi [r]``; returns the root, ``u [r]`` and ``s []``."""
    w = matmul(phi, root)
    u = matmul(root, w)
    s = noise + matmul(w, w)
    # One reciprocal, not r^2 divisions: XLA would divide inside the fused outer product.
    return root - u[:, None] * (w * (1 / (s + jnp.sqrt(noise * s))))[None, :], u, s


class SquareRoot:
    """What the feature forms share: all that happens in the space of weights. A form adds ``row`` and ``expand``."""

    def observe(self, root: Array, index: Array, noise: Array, present: Array | None = None) -> tuple[Array, Array, Array, Array]:
        """Take in one observation at grid ``index``: the root, ``u [r]``, the column ``c = Phi u [M]`` and ``s = noise + c[index]``.

        Nothing changes where ``present []`` is false: ``u`` and ``c`` are 0 then.
        """
        root, _, u, s = self.absorb(root, index, noise, present)
        return root, u, self.expand(root, u), s

    def absorb(self, root: Array, index: Array, noise: Array, present: Array | None = None) -> tuple[Array, Array, Array, Array]:
        """As :meth:`observe`, but stays in the space of weights: returns the root, ``phi [r]`` of the point, ``u [r]`` and ``s``."""
        phi = self.row(root, index)
        if present is not None:
            phi = jnp.where(present, phi, 0)  # of which the square-root update is exactly no update
        root, u, s = square_root_update(root, phi, noise)
        return root, phi, u, s

    def covariance(self, root: Array, indices: Array) -> Array:
        """Posterior covariance ``[n, M]`` of the points at grid ``indices [n]`` with every point."""
        rows = jax.vmap(self.row, (None, 0))(root, indices)
        return jax.vmap(self.expand, (None, 0))(root, matmul(matmul(rows, root), root.T))

    def spread(self, root: Array) -> Array:
        """Posterior variance ``[M]`` from the root alone, ``O(M r^2)``; for those who do not keep it up to date."""
        return jnp.sum(jnp.square(jax.vmap(self.expand, (None, 0))(root, root.T)), axis=0)

    def draw(self, root: Array, key: Array) -> Array:
        """A joint draw ``[M]`` from the zero-mean posterior, ``Phi W z``: ``O(M r)``."""
        return self.expand(root, matmul(root, jax.random.normal(key, root.shape[:1], root.dtype)))

    def row(self, root: Array, index: Array) -> Array:
        """The feature vector ``[r]`` of one grid point."""
        raise TypeError(f"{type(self).__name__} must define row")

    def expand(self, root: Array, weights: Array) -> Array:
        """``Phi weights [M]``, the function that ``weights [r]`` stand for."""
        raise TypeError(f"{type(self).__name__} must define expand")


@pytree
class DenseFeatures(SquareRoot):
    """Features as one matrix ``phi [M, r]``; for any kernel and any point set.

    Attributes:
      phi: ``[M, r]`` features, columns of decreasing norm.
      prior_variance: ``[M]`` variances of the features themselves, ``sum_r phi^2``.
      residual: ``[]`` largest share of prior variance that the features leave out.
    """

    name: ClassVar[str] = "features"
    phi: Any
    prior_variance: Any
    residual: Any

    @property
    def rank(self) -> int:
        """``r``."""
        return int(np.shape(self.phi)[1])

    @property
    def trials_per_block(self) -> int:
        """How many trials to run side by side on a CPU core: enough to read ``phi`` once for many, within 200 MB of factors."""
        return max(1, min(50, 50_000_000 // self.rank**2))

    def init(self) -> Array:
        """The root ``W [r, r]`` of the weights' prior covariance."""
        return jnp.eye(self.rank, dtype=jnp.asarray(self.phi).dtype)

    def row(self, root: Array, index: Array) -> Array:
        return self.phi[index]

    def expand(self, root: Array, weights: Array) -> Array:
        return matmul(weights, self.phi.T)


@pytree
class ProductFeatures(SquareRoot):
    """Features of a product kernel on a product grid, kept as one small matrix per axis.

    Attributes:
      axes: per axis ``[n_a, q_a]`` one-dimensional features.
      columns: ``[d, r]`` which one-dimensional feature of each axis a kept product is made of.
      slots: ``[q_1, ..., q_d]`` position of a product among the kept ones, ``r`` where it was dropped.
      prior_variance: ``[M]``; residual: ``[]``, as in :class:`DenseFeatures`.
    """

    name: ClassVar[str] = "product"
    axes: tuple[Any, ...]
    columns: Any
    slots: Any
    prior_variance: Any
    residual: Any

    @property
    def rank(self) -> int:
        """``r``, the number of products kept."""
        return int(np.shape(self.columns)[1])

    @property
    def trials_per_block(self) -> int:
        """How many trials to run side by side on a CPU core: as many as keep their factors in half of a second-level cache."""
        return max(1, min(10, 110_000 // self.rank**2))

    def init(self) -> Array:
        """The root ``W [r, r]`` of the weights' prior covariance."""
        return jnp.eye(self.rank, dtype=jnp.asarray(self.axes[0]).dtype)

    def row(self, root: Array, index: Array) -> Array:
        shape = [np.shape(axis)[0] for axis in self.axes]
        row = jnp.ones((self.rank,), jnp.asarray(self.axes[0]).dtype)
        for a, (axis, columns) in enumerate(zip(self.axes, self.columns, strict=True)):
            position = index // math.prod(shape[a + 1 :]) % shape[a]
            row = row * axis[position][columns]
        return row

    def expand(self, root: Array, weights: Array) -> Array:
        table = jnp.append(weights, jnp.zeros((1,), weights.dtype))[self.slots]
        for axis in self.axes:
            # Contract the leading feature index and append the grid index: after d steps the order is restored, and under vmap
            # every step is one matrix product whose result needs no transposition.
            table = jnp.tensordot(table, axis, axes=(0, 1), precision=EXACT)
        return table.reshape(-1)


def dense_features(kernel: Kernel, domain: Domain, tolerance: float, most: int) -> DenseFeatures:
    """Build :class:`DenseFeatures` on the host, with at most ``most`` columns."""
    phi, residual = low_rank_features(kernel, domain.points, tolerance, min(most, domain.size))
    return DenseFeatures(phi=phi, prior_variance=np.sum(phi * phi, axis=1), residual=np.float64(residual))


def product_features(kernel: Kernel, domain: Domain, tolerance: float, most: int) -> ProductFeatures | None:
    """Build :class:`ProductFeatures` on the host; ``None`` when the kernel or the domain is no product."""
    parts = kernel.along_axes(domain.dimension)
    if parts is None or not domain.axes:
        return None
    axes = [_axis_features(part, axis) for part, axis in zip(parts, domain.axes, strict=True)]
    shape = tuple(axis.shape[1] for axis in axes)
    sizes = _outer([np.sum(axis * axis, axis=0) for axis in axes])
    order = np.argsort(-sizes, kind="stable")
    whole = _outer([np.sum(axis * axis, axis=1) for axis in axes])

    def leftover(count: int) -> float:
        kept = np.zeros(sizes.size)
        kept[order[:count]] = 1.0
        return float(np.max(whole - _contract([axis * axis for axis in axes], kept.reshape(shape)))) / float(whole.max())

    low, high = 1, min(most, sizes.size)
    while low < high:  # the residual falls as products are added: bisect for the fewest within tolerance
        middle = (low + high) // 2
        low, high = (low, middle) if leftover(middle) <= tolerance else (middle + 1, high)
    low = min(-(-low // LANES) * LANES, most, sizes.size)
    columns = np.stack(np.unravel_index(order[:low], shape)).astype(np.int32)
    axes = [axis[:, : used + 1] for axis, used in zip(axes, columns.max(axis=1), strict=True)]
    slots = np.full([axis.shape[1] for axis in axes], low, np.int32)
    slots[tuple(columns)] = np.arange(low, dtype=np.int32)
    variance = _contract([axis * axis for axis in axes], (slots < low).astype(np.float64))
    return ProductFeatures(
        axes=tuple(axes),
        columns=columns,
        slots=slots,
        prior_variance=variance,
        residual=np.float64(max(float(np.max(whole - variance)) / float(whole.max()), 0.0)),
    )


def _axis_features(kernel: Kernel, axis: Any) -> np.ndarray:
    """One-dimensional features ``[n_a, q_a]``, all that float64 resolves."""
    with jax.enable_x64(True):
        column = np.asarray(axis, np.float64)[:, None]
        matrix = np.asarray(kernel(column, column), np.float64)
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
    keep = values > 1e-15 * values[0]
    return vectors[:, keep] * np.sqrt(values[keep])


def _outer(vectors: list[np.ndarray]) -> np.ndarray:
    """The products of one entry per vector, flattened with the last varying fastest."""
    result = np.ones(1)
    for vector in vectors:
        result = np.multiply.outer(result, vector).ravel()
    return result


def _contract(axes: list[np.ndarray], table: np.ndarray) -> np.ndarray:
    """``sum_ab.. A_ia B_jb .. table_ab..`` flattened to ``[M]``."""
    for axis in axes:  # contract the leading index, append the grid index: after d steps the order is restored
        table = np.tensordot(table, axis, axes=(0, 1))
    return table.reshape(-1)
