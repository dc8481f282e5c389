"""The square-root feature form: the kernel matrix is ``Phi Phi^T``, and the posterior is that of the ``r`` weights of the features.

The posterior covariance of the weights is ``W W^T``, with ``W = I`` before any data. Observing the point with feature vector ``phi``
under noise variance ``lam`` is Potter's square-root update (Bierman 1977, sec. V.3), which keeps it positive semi-definite:

    w = W^T phi,   u = W w,   s = lam + w.w,   W <- W - u w^T / (s + sqrt(lam s))

and ``c = Phi u`` is the posterior covariance of every point with the observed one. On product grids with product kernels ``Phi`` is
never formed: its columns are products of one-dimensional features, so ``c`` is computed from a small tensor, one axis at a time.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.blocks import by_platform
from jaxbandit.core.fields import Described
from jaxbandit.core.pytree import pytree
from jaxbandit.core.types import Array, Key, Scalar, Table

# Accelerators round the factors of a float32 product to about 10 bits by default, too few for a posterior after many rounds.
EXACT = jax.lax.Precision.HIGHEST
matmul = partial(jnp.matmul, precision=EXACT)
S = TypeVar("S")

# Features of an axis up to which GPUs sum products themselves: so small a matrix product is a kernel, and its transposition another.
MAX_SUMMED_FEATURES = 64


def _update(root: Array, phi: Array, noise: Array) -> tuple[Array, Array, Array]:
    w = matmul(phi, root)
    u = matmul(root, w)
    s = noise + matmul(w, w)
    # Multiply by one reciprocal: XLA would otherwise do r^2 divisions inside the fused outer product.
    return root - u[:, None] * (w * (1 / (s + jnp.sqrt(noise * s))))[None, :], u, s


def _update_on_gpus(root: Array, phi: Array, noise: Array) -> tuple[Array, Array, Array]:
    w = matmul(phi, root)
    products = matmul(jnp.concatenate([root, w[None]]), w)  # u and w.w by one kernel
    u, s = products[:-1], noise + products[-1]
    return root - u[:, None] * w[None, :] * (1 / (s + jnp.sqrt(noise * s))), u, s


# Potter's update of ``root [r, r]`` for one observation at ``phi [r]`` under ``noise []``: the new root, ``u [r]`` and ``s []``.
square_root_update = by_platform(_update, cuda=_update_on_gpus)


class Form(Described, abc.ABC, Generic[S]):
    """Form of the posterior of a group of outputs, computed from the state ``S`` of a trial; abstract.

    Attributes:
      name: of the form, as messages and records have it.
      rank: number of basis functions, ``r``.
      trials_per_block: number of trials to run side by side on a CPU core.
      prior_variance: ``[M]`` prior variances ``k(x, x)``.
      residual: ``[]`` largest share of prior variance that the form leaves out.
    """

    described: ClassVar[str] = "a form of jaxbandit.surrogates"
    name: ClassVar[str]

    if TYPE_CHECKING:  # declared as read-only, for fields and properties of subclasses

        @property
        def rank(self) -> int: ...
        @property
        def trials_per_block(self) -> int: ...
        @property
        def prior_variance(self) -> Table: ...
        @property
        def residual(self) -> Scalar: ...

    @abc.abstractmethod
    def init(self) -> S:
        """Return the state before any data."""

    @abc.abstractmethod
    def absorb(self, state: S, index: Array, noise: Array, present: Array | None = None) -> tuple[S, Array, Array, Array]:
        """Condition as :meth:`observe` does, without the column; return the state, the point's ``phi [r]``, ``u [r]`` and ``s``."""

    @abc.abstractmethod
    def row(self, state: S, index: Array) -> Array:
        """Return the feature vector ``[r]`` of the grid point ``index []``."""

    @abc.abstractmethod
    def expand(self, state: S, weights: Array) -> Array:
        """Return ``Phi weights [M]``, the function with the given ``weights [r]``."""

    @abc.abstractmethod
    def covariance(self, state: S, indices: Array) -> Array:
        """Return the posterior covariance ``[n, M]`` of the grid points ``indices [n]`` with every point."""

    @abc.abstractmethod
    def spread(self, state: S) -> Array:
        """Compute the posterior variance ``[M]`` from the state alone; the engine updates it incrementally instead."""

    @abc.abstractmethod
    def draw(self, state: S, key: Key) -> Array:
        """Draw from the zero-mean posterior at all points jointly, ``[M]``."""

    def observe(self, state: S, index: Array, noise: Array, present: Array | None = None) -> tuple[S, Array, Array, Array]:
        """Condition on one observation at the grid point ``index []`` with noise variance ``noise []``.

        Returns the state, ``u [r]``, the column ``c = Phi u [M]`` and ``s = noise + c[index]``. Where ``present []`` is false nothing
        changes, and ``u`` and ``c`` are 0.
        """
        state, _, u, s = self.absorb(state, index, noise, present)
        return state, u, self.expand(state, u), s


class SquareRoot(Form[Array]):
    """The posterior in the space of feature weights, whose state is the root ``W [r, r]`` of their covariance; abstract.

    A subclass defines ``row`` and ``expand``.
    """

    left_out: Scalar | Table = 0.0  # [M] prior variance that the features leave out, which no observation takes away

    def init(self) -> Array:
        return jnp.eye(self.rank, dtype=jnp.asarray(self.prior_variance).dtype)

    def absorb(self, state: Array, index: Array, noise: Array, present: Array | None = None) -> tuple[Array, Array, Array, Array]:
        phi = self.row(state, index)
        if present is not None:
            phi = jnp.where(present, phi, 0)  # the square-root update at phi = 0 changes nothing, exactly
        state, u, s = square_root_update(state, phi, noise)
        return state, phi, u, s

    def covariance(self, state: Array, indices: Array) -> Array:
        rows = jax.vmap(self.row, (None, 0))(state, indices)
        return jax.vmap(self.expand, (None, 0))(state, matmul(matmul(rows, state), state.T))

    def spread(self, state: Array) -> Array:
        return jnp.sum(jnp.square(jax.vmap(self.expand, (None, 0))(state, state.T)), axis=0) + self.left_out

    def draw(self, state: Array, key: Key) -> Array:  # Phi W z, in O(M r)
        return self.expand(state, matmul(state, jax.random.normal(key, state.shape[:1], state.dtype)))


@pytree
class DenseFeatures(SquareRoot):
    """Features as one matrix ``phi [M, r]``, for any kernel and any set of points.

    Attributes:
      phi: ``[M, r]`` features, columns of decreasing norm.
      prior_variance: ``[M]`` prior variances ``k(x, x)``, equal where the kernel's are.
      residual: ``[]`` largest share of prior variance that the features leave out.
      left_out: ``[M]`` prior variance that they leave out, ``k(x, x) - sum_r phi^2``.
    """

    name: ClassVar[str] = "features"
    phi: Table
    prior_variance: Table = dataclasses.field(repr=False)
    residual: Scalar
    left_out: Scalar | Table = dataclasses.field(default=0.0, repr=False)

    @property
    def rank(self) -> int:
        return int(np.shape(self.phi)[1])

    @property
    def trials_per_block(self) -> int:
        return max(1, min(50, 50_000_000 // self.rank**2))  # many, to share each reading of phi, within 200 MB of factors

    def row(self, state: Array, index: Array) -> Array:
        return self.phi[index]

    def expand(self, state: Array, weights: Array) -> Array:
        return matmul(weights, self.phi.T)


@pytree
class ProductFeatures(SquareRoot):
    """Features of a product kernel on a product grid, kept as one small matrix per axis.

    Attributes:
      axes: one-dimensional features ``[n_a, q_a]`` of each axis.
      columns: ``[d, r]`` numbers of the one-dimensional features, one on each axis, whose product is a kept feature.
      slots: ``[q_1, ..., q_d]`` position of a product among the kept ones, ``r`` where it was dropped.
      prior_variance, residual, left_out: as in :class:`DenseFeatures`.
    """

    name: ClassVar[str] = "product"
    axes: tuple[Table, ...] = dataclasses.field(repr=False)
    columns: Table
    slots: Table = dataclasses.field(repr=False)
    prior_variance: Table = dataclasses.field(repr=False)
    residual: Scalar
    left_out: Scalar | Table = dataclasses.field(default=0.0, repr=False)

    @property
    def rank(self) -> int:
        return int(np.shape(self.columns)[1])

    @property
    def trials_per_block(self) -> int:
        return max(1, min(10, 110_000 // self.rank**2))  # as many as keep their factors in half of a second-level cache

    def row(self, state: Array, index: Array) -> Array:
        shape = [np.shape(axis)[0] for axis in self.axes]
        row = jnp.ones((self.rank,), jnp.asarray(self.axes[0]).dtype)
        for a, (axis, columns) in enumerate(zip(self.axes, self.columns, strict=True)):
            position = index // math.prod(shape[a + 1 :]) % shape[a]
            row = row * _features_at(axis, columns, position)
        return row

    def expand(self, state: Array, weights: Array) -> Array:
        table = jnp.append(weights, jnp.zeros((1,), weights.dtype))[self.slots]
        for axis in self.axes:
            table = _contract(table, jnp.asarray(axis))
        return table.reshape(-1)


def _contract_by_product(table: Array, axis: Array) -> Array:
    """Contract the leading feature index of ``table [q, ...]`` with ``axis [n, q]`` and append the grid index: ``[..., n]``.

    After a step for each axis the axes are in order, and under vmap every step is one matrix product whose result needs no transposition.
    """
    return jnp.tensordot(table, axis, axes=(0, 1), precision=EXACT)


def _contract_by_sum(table: Array, axis: Array) -> Array:  # which XLA for GPUs fuses with what reads it
    if axis.shape[1] > MAX_SUMMED_FEATURES:
        return _contract_by_product(table, axis)
    rows = table.reshape(table.shape[0], -1).T
    return jnp.sum(rows[:, None, :] * axis[None, :, :], axis=-1).reshape(*table.shape[1:], axis.shape[0])


_contract = by_platform(_contract_by_product, cuda=_contract_by_sum)


def _features_by_column(axis: Array, columns: Array, position: Array) -> Array:  # which XLA for GPUs fuses with the product over axes
    return axis[:, columns][position]


# The features ``[r]`` of ``axis [n, q]`` that ``columns [r]`` name, at one of its points.
_features_at = by_platform(lambda axis, columns, position: axis[position][columns], cuda=_features_by_column)
