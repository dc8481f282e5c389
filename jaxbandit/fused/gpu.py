"""All rounds of a trial in one block of a GPU.

The posterior stays in shared memory from the first round to the last. A warpgroup of Mosaic GPU runs one trial. The root ``W [R, R]`` and
the functions of the grid ``[N1, N2]`` are cut into tiles of 16 x 32 numbers, 4 to a thread and a row to 8 threads, so that sums along rows
and down columns are cheap and without conflicts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from jaxbandit.core.declare import Array
from jaxbandit.fused.cells import Operation, Ref, Rows, Unsupported, Value, as_numbers
from jaxbandit.fused.plan import FusedKernel, KernelInputs, Moment, RoundParts
from jaxbandit.surrogates.features import ProductFeatures


class Tiles:
    """Sizes of a block's parts, measured on an H100."""

    # The smallest tile has 16 rows and 32 columns.
    rows: int = 16
    columns: int = 32
    # Registers have 32 rows of W at once.
    chunk_rows: int = 32
    # A sum has 2 terms side by side. Eight are 6% faster on an H100, and take twice as long to compile.
    unrolled_terms: int = 2
    # A block of an H100 has 227 kB of shared memory.
    shared_bytes: int = 227 * 2**10


def up(length: int, unit: int) -> int:
    """Return a length, rounded up to a multiple of a unit."""
    return -(-length // unit) * unit


class Cut(NamedTuple):
    """Table ``[N1, N2]`` of the grid.

    ``repeats`` has the point of each cell and ``size`` is the number of points. The first ``width`` cells of a row are distinct points;
    further cells repeat some of them.
    """

    repeats: np.ndarray  # [N1, N2]
    width: int
    size: int

    @classmethod
    def of(cls, size: int, axes: tuple[int, int] | None) -> Cut:
        """Return the table of two axes, or of points in their order."""
        rows, width = axes or (-(-size // Tiles.columns), Tiles.columns)
        high, wide = np.ogrid[: up(rows, Tiles.rows), : up(width, Tiles.columns)]
        repeats = np.minimum(np.minimum(high, rows - 1) * width + np.minimum(wide, width - 1), size - 1)
        return cls(repeats, width, size)

    @property
    def shape(self) -> tuple[int, int]:
        return self.repeats.shape


@dataclasses.dataclass(frozen=True)
class TiledRows(Rows):
    """Functions of the grid as tables in tiles.

    ``numbers`` is the float32 row of the points' numbers, because a kernel cannot count. Under the interpreter tables are plain arrays.
    """

    numbers: Value = None
    interpret: bool = True

    def cast(self, x: Value, axis: int | None = None) -> Value:
        """Return a value as tiles, or as tiles summed over ``axis``."""
        if self.interpret:
            return x
        # Warps and then lanes divide the rows; 8 lanes of 4 numbers lie along a row.
        tiles = plgpu.Layout.TILED(
            plgpu.Tiling(((Tiles.rows, Tiles.columns), (4, Tiles.columns), (4,))), warp_dims=(-5,), lane_dims=(-3, -2), vector_dim=-1
        )
        return plgpu.layout_cast(x, tiles if axis is None else tiles.reduce((axis,)))

    def load(self, ref: Ref, axis: int | None = None) -> Value:
        """Return an array as :meth:`cast` lays it out."""
        if self.interpret:
            return ref[...]
        # JAX 0.11 has dropped this argument.
        indexers: Value = () if jax.__version_info__ >= (0, 11) else ((),)
        return self.cast(plgpu.load(ref, *indexers, optimized=False), axis)

    def across(self, x: Value, shape: tuple[int, int]) -> Value:
        """Return a table whose every column is the vector ``x``."""
        return self.cast(jax.lax.broadcast_in_dim(x, shape, (0,)))

    def down(self, x: Value, shape: tuple[int, int]) -> Value:
        """Return a table whose every row is the vector ``x``."""
        return self.cast(jax.lax.broadcast_in_dim(x, shape, (1,)))

    def zeros(self, shape: tuple[int, int]) -> Value:
        return self.cast(jnp.broadcast_to(np.float32(0), shape))

    def points(self) -> Value:
        return self.numbers

    def reduce(self, function: Operation, x: Value) -> Value:
        # Mosaic GPU: "Multi-axis reductions not supported".
        return function(function(self.cast(self.full(x)), axis=1), axis=0)

    def sqrt(self, x: Value) -> Value:
        if jax.__version_info__ >= (0, 11):
            return jnp.sqrt(x)
        # Before, Mosaic GPU has no root. Take x (1 / sqrt(x)) with a step of Newton's method.
        inverse = jax.lax.rsqrt(jnp.maximum(x, np.float32(np.finfo(np.float32).tiny)))
        root = x * inverse
        nonpositive = self.select(x < 0, np.float32(np.nan), x)
        return self.select(x > 0, root + np.float32(0.5) * inverse * (x - root * root), nonpositive)

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        if any(np.shape(x) == self.shape for x in (condition, yes, no)):
            # Mosaic GPU: "Implicit broadcast not implemented with warpgroup semantics".
            if np.shape(condition) != self.shape:
                condition = self.full(as_numbers(condition)) > np.float32(0.5)
            dtype = jnp.result_type(yes, no)
            if not np.issubdtype(dtype, np.bool_):
                yes, no = (self.full(jnp.asarray(x, dtype)) for x in (yes, no))
        return jnp.where(condition, yes, no)


class FeatureExpansion(NamedTuple):
    """Computation of a function from the weights of features.

    Attributes:
      tables: arrays that it reads from the device's memory.
      scratch: shape of its table in shared memory.
      beyond: number of zeros that it reads behind the weights.
      run: function of the rows, the tables, the table in shared memory and the weights.
      order: ``[r]`` features in the order of their weights.
    """

    tables: list[Array | np.ndarray]
    scratch: tuple[int, int]
    beyond: int
    run: Callable[[TiledRows, Sequence[Ref], Ref, Ref], Value]
    order: Array


def dense(phi: Array, cut: Cut, rank: int) -> FeatureExpansion:
    """Return the expansion by features ``phi [M, r]``, read in every round."""
    features = jnp.pad(phi.T[:, cut.repeats], ((0, rank - phi.shape[1]), (0, 0), (0, 0)))

    def run(rows: TiledRows, tables: Sequence[Ref], _: Ref, u: Ref) -> Value:
        return _sum(rank, lambda i: u[i] * rows.load(tables[0].at[i]), rows.zeros(cut.shape))

    return FeatureExpansion([features], (1, 1), 0, run, jnp.arange(phi.shape[1]))


def _sum(length: int, term: Callable[[Value], Value], zero: Value) -> Value:
    """Return the sum of ``term(i)`` over ``i``, some terms side by side."""

    def some(i: Value, total: Value) -> Value:
        for more in range(Tiles.unrolled_terms):
            total = total + term(Tiles.unrolled_terms * i + more)
        return total

    total = jax.lax.fori_loop(0, length // Tiles.unrolled_terms, some, zero)
    for i in range(length - length % Tiles.unrolled_terms, length):
        total = total + term(np.int32(i))
    return total


def along_two_axes(form: ProductFeatures, cut: Cut, counts: np.ndarray) -> FeatureExpansion:
    """Return the expansion by features of two axes, axis by axis.

    The weights of a feature ``j`` of the second axis, with the first ``counts[j]`` features of the first axis, are neighbours:
    ``T[i] = sum_j U[i, j] A2[j]``, and ``c[a] = sum_i A1[a, i] T[i]``.
    """
    starts = np.cumsum(counts) - counts
    high = up(int(counts.max()), Tiles.rows)
    a1, a2 = (jnp.asarray(axis, np.float32).T for axis in form.axes)
    a1 = jnp.pad(a1, ((0, 0), (0, cut.shape[0] - a1.shape[1])), mode="edge")
    a2 = jnp.pad(a2, ((0, 0), (0, cut.shape[1] - a2.shape[1])), mode="edge")
    is_kept = (np.arange(high) < counts[:, None]).astype(np.float32)
    order = jnp.asarray(form.slots)[np.concatenate([np.arange(count) for count in counts]), np.repeat(np.arange(len(counts)), counts)]

    def run(rows: TiledRows, tables: Sequence[Ref], table: Ref, u: Ref) -> Value:
        on_first, on_second, is_kept, starts = tables
        shape = (high, cut.shape[1])

        def inner(j: Value) -> Value:
            weights = rows.load(u.at[pl.ds(starts[j], high)], 1) * rows.load(is_kept.at[j], 1)
            return rows.across(weights, shape) * rows.down(rows.load(on_second.at[j], 0), shape)

        table[...] = _sum(len(counts), inner, rows.zeros(shape))

        def outer(i: Value) -> Value:
            return rows.across(rows.load(on_first.at[i], 1), cut.shape) * rows.down(rows.load(table.at[i], 0), cut.shape)

        return _sum(int(counts.max()), outer, rows.zeros(cut.shape))

    return FeatureExpansion([a1, a2, is_kept, starts.astype(np.int32)], (high, cut.shape[1]), high, run, order)


def run_on_gpu(plan: FusedKernel, parts: RoundParts, form: Any, size: int, given: KernelInputs) -> tuple[Array, Array, Array, Array]:
    """Return records ``[B, T, w]`` and, after all rounds, roots, means, variances."""
    trials, rounds, outputs = given.noise.shape
    rank, more = up(form.rank, Tiles.columns), up(form.rank, Tiles.columns) - form.rank
    phi = jax.vmap(form.row, (None, 0))(form.init(), jnp.arange(size, dtype=jnp.int32))
    if plan.counts and isinstance(form, ProductFeatures):
        cut = Cut.of(size, (np.shape(form.axes[0])[0], np.shape(form.axes[1])[0]))
        expansion = along_two_axes(form, cut, np.asarray(plan.counts))
    else:
        cut = Cut.of(size, None)
        expansion = dense(phi, cut, rank)
    order = expansion.order
    shapes = [(rank, rank), (outputs, *cut.shape), cut.shape, (rank + expansion.beyond,), expansion.scratch]
    # The compiler takes 3 kB of shared memory for sums across warps.
    needed = 4 * sum(int(np.prod(shape)) for shape in shapes) + 3 * 2**10
    if needed > Tiles.shared_bytes:
        raise Unsupported(f"a trial takes {needed:,} bytes of shared memory, of which a block has {Tiles.shared_bytes:,}")
    phi = jnp.pad(phi[:, order], ((0, 0), (0, more)))
    root = jnp.pad(given.root[:, order], ((0, 0), (0, more), (0, more)))
    states = (root, given.shift[..., cut.repeats], given.variance[..., cut.repeats])
    arguments = (given.numbers, phi, given.means, given.noise, cut.repeats.astype(np.float32), np.zeros(Tiles.rows, np.float32), *states)
    results = [jax.ShapeDtypeStruct(shape, np.float32) for shape in ((trials, rounds, parts.width), *(x.shape for x in states))]
    scratch = [plgpu.SMEM(shape, np.float32) for shape in shapes]
    body = _block_kernel(parts, cut, expansion, rank, rounds, plan.interpret)
    if plan.interpret:
        kernel = pl.pallas_call(
            lambda *refs: body(pl.program_id(0), *refs), grid=(trials,), out_shape=results, scratch_shapes=scratch, interpret=True
        )
    else:
        kernel = plgpu.kernel(
            lambda *refs: body(jax.lax.axis_index("trial"), *refs),
            out_type=results,
            scratch_types=scratch,
            grid=(trials,),
            grid_names=("trial",),
        )
    record, root, shift, variance = kernel(*arguments, *expansion.tables)
    root = root[:, jnp.argsort(order), : form.rank]
    # These are the cells of the points in the table.
    at = np.divmod(np.arange(size), cut.width)
    return record, root, shift[..., *at], variance[..., *at]


def _block_kernel(parts: RoundParts, cut: Cut, expansion: FeatureExpansion, rank: int, rounds: int, interpret: bool) -> Callable[..., None]:
    """Return the kernel: the rounds of one trial."""
    outputs = range(parts.outputs)

    def kernel(trial: Value, numbers: Ref, phi: Ref, means: Ref, noise: Ref, points: Ref, zeros: Ref, *refs: Ref) -> None:
        *before, record, root_out, shift_out, variance_out, root, shift, variance, u, table = refs
        (root_in, shift_in, variance_in), tables = before[:3], before[3:]
        rows = TiledRows(size=cut.size, shape=cut.shape, interpret=interpret)
        rows = dataclasses.replace(rows, numbers=rows.load(points))
        first, lam, start, constants, prior_mean = parts.start([numbers[trial, n] for n in range(numbers.shape[1])])
        truth = trial if means.shape[0] > 1 else 0
        for j in outputs:
            shift[j] = rows.load(shift_in.at[trial, j])
        variance[...] = rows.load(variance_in.at[trial])
        for at in range(0, rank, Tiles.chunk_rows):
            root[at : at + Tiles.chunk_rows, :] = rows.load(root_in.at[trial, pl.ds(at, Tiles.chunk_rows)])
        for at in range(rank, rank + expansion.beyond, Tiles.rows):
            u[at : at + Tiles.rows] = rows.load(zeros, 1)

        def one_round(n: Value, carry: tuple[Value, ...]) -> tuple[Value, ...]:
            now = Moment([rows.load(shift.at[j]) for j in outputs], rows.load(variance), first + n, carry, constants)
            index, bits = parts.chosen(rows, now)
            point = jnp.minimum(index, np.float32(cut.size - 1)).astype(np.int32)
            high, wide = jax.lax.div(point, np.int32(cut.width)), jax.lax.rem(point, np.int32(cut.width))
            seen = [shift[j, high, wide] for j in outputs]
            values = [means[truth, j, point] + noise[trial, n, j] for j in outputs]
            widths, learnt, leaves = parts.learnt(rows, now._replace(means=seen, variance=variance[high, wide]), point, values)
            s = _potter_in_block(rows, phi, point, lam, root, u, rank)
            column = expansion.run(rows, tables, table, u)
            precision = 1 / s
            variance[...] = rows.load(variance) - column * column * precision
            for j in outputs:
                moved = (learnt[j] - prior_mean[j] - seen[j]) * precision
                shift[j] = rows.load(shift.at[j]) + column * moved
            gain = carry[0] + np.float32(0.5) * jnp.log(s * (1 / lam))
            for place, x in enumerate((index, bits, gain, *widths, *leaves)):
                is_mask = np.issubdtype(jnp.result_type(x), np.bool_)
                record[trial, n, place] = as_numbers(x) if is_mask else jnp.asarray(x).astype(np.float32)
            return gain, *leaves

        jax.lax.fori_loop(0, rounds, one_round, tuple(start))
        for j in outputs:
            shift_out[trial, j] = rows.load(shift.at[j])
        variance_out[trial] = rows.load(variance)
        for at in range(0, rank, Tiles.chunk_rows):
            root_out[trial, at : at + Tiles.chunk_rows] = rows.load(root.at[pl.ds(at, Tiles.chunk_rows)])

    return kernel


def _potter_in_block(rows: TiledRows, phi: Ref, point: Value, lam: Value, root: Ref, u: Ref, rank: int) -> Value:
    """Apply Potter's update to ``root``, store ``u``, and return ``s``."""
    shape = (Tiles.chunk_rows, rank)
    total = rows.zeros(shape)
    for at in range(0, rank, Tiles.chunk_rows):
        features = rows.load(phi.at[point, pl.ds(at, Tiles.chunk_rows)], 1)
        total = total + rows.across(features, shape) * rows.load(root.at[pl.ds(at, Tiles.chunk_rows)])
    w = jnp.sum(total, axis=0)
    s = lam + jnp.sum(w * w)
    scaled = w * (1 / (s + rows.sqrt(lam * s)))
    for at in range(0, rank, Tiles.chunk_rows):
        part = rows.load(root.at[pl.ds(at, Tiles.chunk_rows)])
        product = jnp.sum(part * rows.down(w, shape), axis=1)
        u[at : at + Tiles.chunk_rows] = product
        root[at : at + Tiles.chunk_rows, :] = part - rows.across(product, shape) * rows.down(scaled, shape)
    return s
