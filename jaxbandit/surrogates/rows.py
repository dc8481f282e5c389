"""The Cholesky row cache: exact for rough kernels, whose matrix on the grid is not low-rank.

The basis grows with the data. Every point that is visited for the first time becomes a pivot: its row of ``L^-1 K(pivots, grid)`` is
appended to the cache, after which it is represented exactly, so nothing of the posterior is lost. The posterior itself is the
square-root form of ``features`` on those rows. A point visited again costs no row, and a matrix ``K + lam I`` with many equal points,
which float32 cannot factorise, never appears.

A few rows are there from the start, the same for every trial: greedy pivots spread over the domain, in float64. Without them the
first rows come from wherever the algorithm looks first, and extrapolating a smooth kernel from a cluster amplifies rounding without
bound; with them every later row interpolates. A kernel that is low-rank after all needs no further rows.

Rows are stored in blocks. A block that holds no row yet is not multiplied, which is what makes early rounds cheap.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.pytree import float_dtype, pytree, static
from jaxbandit.domains import Domain
from jaxbandit.kernels import Kernel
from jaxbandit.surrogates.features import matmul
from jaxbandit.surrogates.lowrank import pivoted_cholesky

Array = jax.Array
T = TypeVar("T")

SEEDS = 64  # greedy pivots given to a rough kernel: enough to cover a domain, few beside the rows of a run
MOST_ROWS_PER_BLOCK = 128


@pytree
class RowState:
    """What a trial carries: ``S`` rows per block, ``N`` seeds and rows in all."""

    rows: tuple[Array, ...]  # each [S, M]: L^-1 K(pivots, grid)
    root: tuple[Array, ...]  # [seeds, N], then each [S, N]: rows of W, W W^T the posterior covariance of the basis weights
    residual: Array  # [M] prior variance that the basis does not explain yet, 0 at visited points
    pivots: Array  # [] int32 rows in use
    rounds: Array  # [] int32 observations taken in, the same for every trial of a batch


class Pivot(NamedTuple):
    """A point about to be observed, and the row it adds if it is ``fresh``."""

    fresh: Array  # []
    here: Array  # [N] where its row goes
    step: Array  # [] its own entry of that row
    present: Array | None  # [] whether it is observed at all

    def of(self, known: Array) -> Array:
        """Its basis weights ``[N]`` with the new row's own."""
        phi = jnp.where(self.here, self.step, known)
        return phi if self.present is None else jnp.where(self.present, phi, 0)

    def row(self, rest: Array) -> Array:
        """The new row ``[M]`` from the prior's unexplained ``rest``, zeros when there is none."""
        return jnp.where(self.fresh, rest / self.step, 0)


@pytree
class RowCache:
    """Rows of the kernel matrix computed as points are visited.

    Attributes:
      kernel, points: the covariance function and the grid ``[M, d]``; kernel rows are computed as they are needed.
      seeds: ``[seeds, M]`` rows shared by all trials.
      prior_variance: ``[M]``.
      residual: ``[]`` share of prior variance below which a point counts as already explained.
      capacity: most distinct points that can be taken in; blocks: number of blocks; block: ``S``, rows in each.
    """

    name: ClassVar[str] = "rows"
    kernel: Kernel
    points: Any
    seeds: Any
    prior_variance: Any
    residual: Any
    capacity: int = static()
    blocks: int = static()
    block: int = static()

    @property
    def rank(self) -> int:
        """``N``, seeds and the most rows that the cache can hold."""
        return int(np.shape(self.seeds)[0]) + self.blocks * self.block

    @property
    def trials_per_block(self) -> int:
        """One: the cache of a single trial fills the CPU's caches, and only unbatched trials skip unused blocks."""
        return 1 if self.blocks else 50  # seeds alone are shared, as dense features are

    def init(self) -> RowState:
        """A cache that holds the seeds only."""
        (seeds, size), dtype = np.shape(self.seeds), jnp.asarray(self.points).dtype
        starts = [seeds + number * self.block for number in range(self.blocks)]
        return RowState(
            rows=tuple(jnp.zeros((self.block, size), dtype) for _ in starts),
            root=(
                jnp.eye(seeds, self.rank, dtype=dtype),
                *(jnp.eye(self.block, self.rank, k=start, dtype=dtype) for start in starts),
            ),
            residual=jnp.maximum(self.prior_variance - jnp.sum(jnp.square(self.seeds), axis=0), 0),
            pivots=jnp.int32(0),
            rounds=jnp.int32(0),
        )

    def observe(self, state: RowState, index: Array, noise: Array, present: Array | None = None) -> tuple[RowState, Array, Array, Array]:
        """As :meth:`SquareRoot.observe <jaxbandit.surrogates.features.SquareRoot.observe>`."""
        known, pivot = self.row(state, index), self._pivot(state, index, present)
        root, u, s = self._update_root(state, pivot.of(known), noise)
        sums = self._accumulate(state, jnp.stack([known, u]))
        new = pivot.row(self._prior(index) - sums[0])
        column = sums[1] + jnp.sum(jnp.where(pivot.here, u, 0)) * new
        return self._next(state, index, root, new, pivot.fresh), u, column, s

    def absorb(self, state: RowState, index: Array, noise: Array, present: Array | None = None) -> tuple[RowState, Array, Array, Array]:
        """As :meth:`SquareRoot.absorb <jaxbandit.surrogates.features.SquareRoot.absorb>`."""
        known, pivot = self.row(state, index), self._pivot(state, index, present)
        phi = pivot.of(known)
        root, u, s = self._update_root(state, phi, noise)
        new = pivot.row(self._prior(index) - self._accumulate(state, known))
        return self._next(state, index, root, new, pivot.fresh), phi, u, s

    def row(self, state: RowState, index: Array) -> Array:
        """The basis weights ``[N]`` of one grid point, as far as the cache explains it."""
        return jnp.concatenate([self.seeds[:, index], *(rows[:, index] for rows in state.rows)])

    def expand(self, state: RowState, weights: Array) -> Array:
        """``weights @ [seeds; rows] [M]``, the function that ``weights [N]`` stand for."""
        return self._accumulate(state, weights)

    def spread(self, state: RowState) -> Array:
        """Posterior variance ``[M]``: what the basis leaves unexplained, and what the data leave of the rest."""
        roots = jnp.concatenate(state.root)
        return state.residual + jnp.sum(jnp.square(self._accumulate(state, roots.T)), axis=0)

    def _prior(self, index: Array) -> Array:
        """The kernel's row ``[M]`` of one grid point."""
        return self.kernel(self.points[index][None, :], self.points)[0]

    def _pivot(self, state: RowState, index: Array, present: Array | None) -> Pivot:
        """Whether, where and with what step the point becomes a pivot."""
        left = state.residual[index]
        fresh = (left > self.residual * self.prior_variance[index]) & (state.pivots < self.blocks * self.block)
        fresh = fresh if present is None else fresh & present
        place = np.shape(self.seeds)[0] + state.pivots
        here = (jnp.arange(self.rank, dtype=jnp.int32) == place) & fresh
        return Pivot(fresh=fresh, here=here, step=jnp.sqrt(jnp.where(fresh, left, 1)), present=present)

    def _next(self, state: RowState, index: Array, root: tuple[Array, ...], new: Array, fresh: Array) -> RowState:
        residual = jnp.maximum(state.residual - new * new, 0)
        residual = residual.at[index].set(jnp.where(fresh, 0, residual[index]))
        return RowState(
            rows=self._write(state, new, fresh),
            root=root,
            residual=residual,
            pivots=state.pivots + fresh.astype(jnp.int32),
            rounds=state.rounds + 1,
        )

    def draw(self, state: RowState, key: Array) -> Array:
        """Not offered: a joint draw needs the part of the prior that the visited points do not explain."""
        raise checks.InvalidArgument("form 'rows' has no joint draws; build the surrogate with form='features'")

    def covariance(self, state: RowState, indices: Array) -> Array:
        """As :meth:`DenseFeatures.covariance <jaxbandit.surrogates.features.DenseFeatures.covariance>`; ``O(n M N)``.

        The prior covariance less what the basis explains of it, plus what is left of that after the data.
        """
        basis, root = jnp.concatenate([self.seeds, *state.rows]), jnp.concatenate(state.root)
        known = basis[:, indices].T  # [n, N]
        return self.kernel(self.points[indices], self.points) + matmul(matmul(matmul(known, root), root.T) - known, basis)

    def _active(self, state: RowState, number: int, run: Callable[[], Any], skip: Callable[[], Any]) -> Any:
        """``run()`` when block ``number`` holds a row or is about to, else ``skip()``.

        Two conditions, because under ``vmap`` one that differs between trials becomes a select of both sides, while the round
        count is common to all and keeps its branch.
        """
        start = number * self.block
        return jax.lax.cond(state.rounds >= start, lambda: jax.lax.cond(state.pivots >= start, run, skip), skip)

    def _parts(self, vector: Array) -> list[Array]:
        """``vector [..., N]`` cut into the seeds' part and one part per block."""
        first = np.shape(self.seeds)[0]
        return jnp.split(vector, [first + number * self.block for number in range(self.blocks)], axis=-1)

    def _accumulate(self, state: RowState, weights: Array) -> Array:
        """``weights [..., N] @ [seeds; rows] [N, M]`` over the blocks in use."""
        first, *parts = self._parts(weights)
        total = matmul(first, self.seeds)
        for number, (part, rows) in enumerate(zip(parts, state.rows, strict=True)):
            total = self._active(state, number, partial(_add_product, total, part, rows), partial(_keep, total))
        return total

    def _update_root(self, state: RowState, phi: Array, noise: Array) -> tuple[tuple[Array, ...], Array, Array]:
        """Potter's update (see ``features``) block by block; an unused block of ``W`` is the identity's and stays so."""
        first, *parts = self._parts(phi)
        w = matmul(first, state.root[0])
        for number, (part, root) in enumerate(zip(parts, state.root[1:], strict=True)):
            w = self._active(state, number, partial(_add_product, w, part, root), partial(_keep, w))
        s = noise + jnp.sum(w * w)
        scaled = w * (1 / (s + jnp.sqrt(noise * s)))

        def update(part: Array) -> tuple[Array, Array]:
            u = matmul(part, w)
            return part - u[:, None] * scaled[None, :], u

        updated = [update(state.root[0])]
        for number, root in enumerate(state.root[1:]):
            unused = (root, jnp.zeros((self.block,), root.dtype))
            updated.append(self._active(state, number, partial(update, root), partial(_keep, unused)))
        return tuple(root for root, _ in updated), jnp.concatenate([u for _, u in updated]), s

    def _write(self, state: RowState, new: Array, fresh: Array) -> tuple[Array, ...]:
        """Put the new row in its place; every other block rewrites a row with itself, so that all updates are in place."""
        written = []
        for number, rows in enumerate(state.rows):
            place = state.pivots - number * self.block
            inside = fresh & (place >= 0) & (place < self.block)
            place = jnp.clip(place, 0, self.block - 1)
            written.append(rows.at[place].set(jnp.where(inside, new, rows[place])))
        return tuple(written)


def _add_product(total: Array, vector: Array, matrix: Array) -> Array:
    return total + matmul(vector, matrix)


def _keep(value: T) -> T:
    return value


def row_cache(kernel: Kernel, domain: Domain, tolerance: float, capacity: int) -> RowCache:
    """Build a :class:`RowCache` for at most ``capacity`` observations, on the host."""
    tolerance = max(tolerance, 8 * float(np.finfo(float_dtype()).eps))
    # A kernel counts as low-rank when its pivots are few beside the points, and no more than the rows that a run could fill anyway.
    low_rank = min(max(32, domain.size // 4), capacity + SEEDS)
    seeds, residual = pivoted_cholesky(kernel, domain.points, tolerance, low_rank)
    if residual > tolerance:  # rough
        seeds = seeds[:, :SEEDS]
    rows = min(capacity, domain.size - seeds.shape[1]) if residual > tolerance else 0
    block = min(MOST_ROWS_PER_BLOCK, 16 * -(-rows // MOST_ROWS_PER_BLOCK))  # about 8 blocks while they are small
    with jax.enable_x64(True):
        variance = np.asarray(kernel.diag(np.asarray(domain.points)), np.float64)
    return RowCache(
        kernel=kernel,
        points=np.asarray(domain.points),
        seeds=seeds.T,
        prior_variance=variance,
        residual=np.float64(tolerance),
        capacity=min(capacity, domain.size),
        blocks=-(-rows // block) if rows else 0,
        block=block,
    )
