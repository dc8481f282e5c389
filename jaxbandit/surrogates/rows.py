"""Cholesky row cache, exact for rough kernels of no low rank.

Every point visited for the first time becomes a pivot, whose row of ``L^-1 K(pivots, grid)`` is appended to the basis. A few rows, the
seeds, exist from the start: without seeds, extrapolating a smooth kernel from a cluster of points amplifies rounding without bound. Rows
are stored in blocks, and empty blocks are not multiplied; on accelerators, where branches cost more, all rows are in one block.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.declare import Array, Key, Scalar, T, Table
from jaxbandit.core.pytree import float_dtype, pytree, replace, static
from jaxbandit.domains import Domain
from jaxbandit.kernels import Kernel
from jaxbandit.kernels.functions import matmul
from jaxbandit.surrogates.features import Form, affordable_rank, pivots, prior_variance


@pytree
class RowState:
    """Row cache of one trial, with ``S`` rows per block.

    There are ``N`` rows with the seeds. ``W W^T`` is the posterior covariance of the basis weights. The number of rounds is the same for
    every trial of a batch.
    """

    rows: tuple[Array, ...]  # [S, M] of L^-1 K(pivots, grid)
    root: tuple[Array, ...]  # [seeds, N], [S, N], ... of W
    residual: Array  # [M] unexplained prior variance
    pivots: Array  # [] int32 rows in use
    rounds: Array  # [] int32 observations so far


@pytree
class RowCache(Form[RowState]):
    """Form whose basis are kernel rows, computed as points are visited.

    A trial can observe ``capacity`` distinct points, in ``blocks`` of ``block`` rows; products leave out an empty block if it ``skips``.
    """

    name: ClassVar[str] = "rows"
    refreshable: ClassVar[bool] = False
    kernel: Kernel
    points: Table = dataclasses.field(repr=False)  # [M, d]
    seeds: Table = dataclasses.field(repr=False)  # [seeds, M] shared by trials
    prior_variance: Table = dataclasses.field(repr=False)
    # The basis explains a point whose residual is below this share of prior variance.
    residual: Scalar
    capacity: int = static()
    blocks: int = static(repr=False)
    block: int = static(repr=False)
    skips: bool = static(default=True, repr=False)

    def in_one_block(self) -> RowCache:
        """Return the form with one block and no branches, for accelerators."""
        return replace(self, blocks=min(self.blocks, 1), block=max(self.blocks, 1) * self.block, skips=False)

    @property
    def rank(self) -> int:
        return int(np.shape(self.seeds)[0]) + self.blocks * self.block

    @property
    def trials_per_block(self) -> int:
        # The rows of one trial fill the CPU's caches, and only unbatched trials skip empty blocks. Trials share the seeds.
        return 1 if self.blocks else 50

    @property
    def trial_bytes(self) -> int:
        """Bytes of one trial's rows and factor, all rows in use."""
        return float_dtype().itemsize * (self.blocks * self.block * int(np.shape(self.points)[0]) + self.rank**2)

    def init(self) -> RowState:
        (seeds, size), dtype = np.shape(self.seeds), jnp.asarray(self.points).dtype
        starts = [seeds + number * self.block for number in range(self.blocks)]
        blocks = (jnp.eye(self.block, self.rank, k=start, dtype=dtype) for start in starts)
        return RowState(
            rows=tuple(jnp.zeros((self.block, size), dtype) for _ in starts),
            root=(jnp.eye(seeds, self.rank, dtype=dtype), *blocks),
            residual=jnp.maximum(self.prior_variance - jnp.sum(jnp.square(self.seeds), axis=0), 0),
            pivots=jnp.int32(0),
            rounds=jnp.int32(0),
        )

    def observe(self, state: RowState, index: Array, noise: Array, present: Array | None = None) -> tuple[RowState, Array, Array, Array]:
        state, _, u, s, column = self._absorbed(state, index, noise, present, with_column=True)
        return state, u, column, s

    def absorb(self, state: RowState, index: Array, noise: Array, present: Array | None = None) -> tuple[RowState, Array, Array, Array]:
        return self._absorbed(state, index, noise, present, with_column=False)[:4]

    def spread(self, state: RowState) -> Array:
        return state.residual + jnp.sum(jnp.square(self.expand(state, jnp.concatenate(state.root).T)), axis=0)

    def _absorbed(
        self, state: RowState, index: Array, noise: Array, present: Array | None, *, with_column: bool
    ) -> tuple[RowState, Array, Array, Array, Array]:
        """Absorb an observation, and return its column too if ``with_column``."""
        # The point has these basis weights on the seeds and the rows so far. A point that they do not explain adds a row.
        known = jnp.concatenate([self.seeds[:, index], *(rows[:, index] for rows in state.rows)])
        unexplained = state.residual[index]
        fresh = (unexplained > self.residual * self.prior_variance[index]) & (state.pivots < self.blocks * self.block)
        fresh = fresh if present is None else fresh & present
        at = (jnp.arange(self.rank, dtype=jnp.int32) == np.shape(self.seeds)[0] + state.pivots) & fresh
        step = jnp.sqrt(jnp.where(fresh, unexplained, 1))
        phi = jnp.where(at, step, known)
        phi = phi if present is None else jnp.where(present, phi, 0)
        root, u, s = self._update_root(state, phi, noise)
        # One reading of the rows gives the parts of the new row and of the column that the rows explain.
        explained, column = self.expand(state, jnp.stack([known, u])) if with_column else (self.expand(state, known), u)
        row = self.kernel(self.points[index][None, :], self.points)[0]
        new = jnp.where(fresh, (row - explained) / step, 0)
        residual = jnp.maximum(state.residual - new * new, 0)
        residual = residual.at[index].set(jnp.where(fresh, 0, residual[index]))
        pivots, rows = state.pivots + fresh.astype(jnp.int32), self._write(state, new, fresh)
        state = RowState(rows=rows, root=root, residual=residual, pivots=pivots, rounds=state.rounds + 1)
        return state, phi, u, s, column + jnp.sum(jnp.where(at, u, 0)) * new if with_column else column

    def draw(self, state: RowState, key: Key) -> Array:
        # A joint draw would need the part of the prior that the visited points do not explain.
        raise checks.InvalidArgument("form 'rows' has no joint draws; build the surrogate with form='features'")

    def covariance(self, state: RowState, indices: Array) -> Array:
        # It is the prior covariance less the part that the basis explains, plus the posterior covariance of that part, in O(n M N).
        basis, root = jnp.concatenate([self.seeds, *state.rows]), jnp.concatenate(state.root)
        known = basis[:, indices].T  # [n, N]
        return self.kernel(self.points[indices], self.points) + matmul(matmul(matmul(known, root), root.T) - known, basis)

    def _if_used(self, state: RowState, number: int, run: Callable[[], T], unused: T) -> T:
        """Return ``run()`` if block ``number`` may have a row, else ``unused``."""
        if not self.skips:
            return run()
        # There are two conditions, because under vmap the pivots differ between trials and need a select, while rounds stay a branch.
        start = number * self.block
        return jax.lax.cond(state.rounds >= start, lambda: jax.lax.cond(state.pivots >= start, run, lambda: unused), lambda: unused)

    def _parts(self, vector: Array) -> list[Array]:
        # Split a vector [..., N] into the part of the seeds and a part per block.
        first = np.shape(self.seeds)[0]
        return jnp.split(vector, [first + number * self.block for number in range(self.blocks)], axis=-1)

    def expand(self, state: RowState, weights: Array) -> Array:
        # This is the product of weights [..., N] with [seeds; rows] [N, M], over the blocks in use.
        first, *parts = self._parts(weights)
        # XLA for GPUs would fuse the split with the products, and fails at that on jaxlib 0.10.
        if not self.skips:
            first, *parts = jax.lax.optimization_barrier([first, *parts])
        total = matmul(first, self.seeds)
        for number, (part, rows) in enumerate(zip(parts, state.rows, strict=True)):
            total = self._if_used(state, number, partial(_plus, total, part, rows), total)
        return total

    def _update_root(self, state: RowState, phi: Array, noise: Array) -> tuple[tuple[Array, ...], Array, Array]:
        """Apply Potter's update, see ``features``, by blocks."""
        first, *parts = self._parts(phi)
        w = matmul(first, state.root[0])
        for number, (part, root) in enumerate(zip(parts, state.root[1:], strict=True)):
            w = self._if_used(state, number, partial(_plus, w, part, root), w)
        s = noise + jnp.sum(w * w)
        scaled = w * (1 / (s + jnp.sqrt(noise * s)))

        def update(part: Array) -> tuple[Array, Array]:
            u = matmul(part, w)
            return part - u[:, None] * scaled[None, :], u

        # An unused block of W stays that of the identity.
        updated = [update(state.root[0])]
        for number, root in enumerate(state.root[1:]):
            unused = (root, jnp.zeros((self.block,), root.dtype))
            updated.append(self._if_used(state, number, partial(update, root), unused))
        return tuple(root for root, _ in updated), jnp.concatenate([u for _, u in updated]), s

    def _write(self, state: RowState, new: Array, fresh: Array) -> tuple[Array, ...]:
        """Write the new row into its block."""
        # Every other block rewrites one of its rows unchanged, so that XLA updates all blocks in place.
        written = []
        for number, rows in enumerate(state.rows):
            place = state.pivots - number * self.block
            inside = fresh & (place >= 0) & (place < self.block)
            place = jnp.clip(place, 0, self.block - 1)
            written.append(rows.at[place].set(jnp.where(inside, new, rows[place])))
        return tuple(written)


def _plus(total: Array, vector: Array, matrix: Array) -> Array:
    return total + matmul(vector, matrix)


def row_cache(kernel: Kernel, domain: Domain, tolerance: float, capacity: int) -> RowCache:
    """Build a :class:`RowCache` on the host, for at most ``capacity`` observations."""
    # The greedy pivots of a rough kernel are enough to cover a domain, and few compared with the rows of a run.
    most_seeds, max_rows_per_block = 64, 128
    tolerance = max(tolerance, 8 * float(np.finfo(float_dtype()).eps))
    # A low-rank kernel has few pivots compared with the points, and no more than the rows that a run could fill.
    low_rank = min(max(32, domain.size // 4), capacity + most_seeds, affordable_rank(domain.size))
    seeds, _, residual = pivots(kernel, domain.points, tolerance, low_rank)
    if residual > tolerance:
        seeds = seeds[:, :most_seeds]
    rows = min(capacity, domain.size - seeds.shape[1]) if residual > tolerance else 0
    # There are about 8 blocks, unless a block has its largest size.
    block = min(max_rows_per_block, 16 * -(-rows // max_rows_per_block))
    return RowCache(
        kernel=kernel,
        points=np.asarray(domain.points),
        seeds=seeds.T,
        prior_variance=prior_variance(kernel, domain.points),
        residual=np.float64(tolerance),
        capacity=min(capacity, domain.size),
        blocks=-(-rows // block) if rows else 0,
        block=block,
    )
