"""All rounds of a trial in one block of a GPU: the posterior stays in shared memory from the first round to the last.

A warpgroup of Mosaic GPU plays one trial. The root ``W [R, R]`` and the functions of the grid, laid out as ``[N1, N2]``, are cut into tiles
of 16 x 32 numbers, 4 to a thread and a row to 8 threads: sums along rows and down columns both stay cheap, and every access to shared
memory is 16 bytes wide without conflicts. Potter's update reads ``W`` twice and writes it once. The compiler puts a barrier before and
after every write to shared memory; nothing here leaves them out.
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

from jaxbandit.fused.equations import Unsupported
from jaxbandit.fused.rounds import Form, Steps, boxed, evaluated
from jaxbandit.fused.rows import Rows
from jaxbandit.surrogates import Surrogate
from jaxbandit.surrogates.features import ProductFeatures

Array = jax.Array
HIGH, WIDE = 16, 32  # of the smallest tile
CHUNK = 32  # rows of W that are in registers at once
SHARED = 227 * 2**10  # bytes of shared memory that a block of an H100 may have
RESERVED = 3 * 2**10  # bytes of it that the compiler takes for sums across warps


def up(length: int, unit: int) -> int:
    """Return the smallest multiple of a unit that is no less than a length."""
    return -(-length // unit) * unit


class Cut(NamedTuple):
    """The grid as a table ``[N1, N2]`` of cells.

    Attributes:
      repeats: ``[N1, N2]`` the point of each cell.
      width: number of cells of a row that are points of their own; cells beyond repeat others.
      rows: number of rows of such cells.
      size: number of points.
    """

    repeats: np.ndarray
    width: int
    rows: int
    size: int

    @classmethod
    def of(cls, size: int, axes: tuple[int, int] | None) -> Cut:
        """Return the table of a grid of two axes, or of any points in their order."""
        rows, width = axes or (-(-size // WIDE), WIDE)
        high, wide = np.ogrid[: up(rows, HIGH), : up(width, WIDE)]
        repeats = np.minimum(np.minimum(high, rows - 1) * width + np.minimum(wide, width - 1), size - 1)
        return cls(repeats, width, rows, size)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the table, ``(N1, N2)``."""
        return self.repeats.shape

    @property
    def places(self) -> np.ndarray:
        """Numbers of the points, ``M`` more in cells that repeat one."""
        high, wide = np.ogrid[: self.shape[0], : self.shape[1]]
        own = (high < self.rows) & (wide < self.width) & (high * self.width + wide < self.size)
        return np.where(own, self.repeats, self.repeats + self.size).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class Tiles:
    """Values in tiles: how they are read, spread and summed. Under the interpreter they are plain arrays."""

    interpret: bool

    def cast(self, x: Any, axis: int | None = None) -> Any:
        """Say that a value is laid out as tiles ``[n, m]``, or as what is left of them when ``axis`` has been summed."""
        if self.interpret:
            return x
        # Warps and then lanes divide the rows; 8 lanes of 4 numbers lie along a row.
        tiles = plgpu.Layout.TILED(plgpu.Tiling(((HIGH, WIDE), (4, WIDE), (4,))), warp_dims=(-5,), lane_dims=(-3, -2), vector_dim=-1)
        return plgpu.layout_cast(x, tiles if axis is None else tiles.reduce((axis,)))

    def load(self, ref: Any, axis: int | None = None) -> Any:
        """Return an array as tiles, or a vector as what is left of tiles when ``axis`` has been summed."""
        if self.interpret:
            return ref[...]
        indexers: Any = () if jax.__version_info__ >= (0, 11) else ((),)  # an argument that JAX 0.11 has dropped
        return self.cast(plgpu.load(ref, *indexers, optimized=False), axis)

    def across(self, x: Any, shape: tuple[int, int]) -> Any:
        """Return a table of some shape whose every column is the vector ``x``."""
        return self.cast(jax.lax.broadcast_in_dim(x, shape, (0,)))

    def down(self, x: Any, shape: tuple[int, int]) -> Any:
        """Return a table of some shape whose every row is the vector ``x``."""
        return self.cast(jax.lax.broadcast_in_dim(x, shape, (1,)))

    def full(self, x: Any, shape: tuple[int, int]) -> Any:
        """Return a table of one number."""
        return self.cast(jnp.broadcast_to(x, shape))


@dataclasses.dataclass(frozen=True)
class TiledRows(Rows):
    """Functions of the grid as tables in tiles."""

    tiles: Tiles = Tiles(interpret=True)

    def iota(self, dtype: Any) -> Any:
        return jnp.where(self.places >= self.size, self.places - np.float32(self.size), self.places).astype(dtype)

    def reduce(self, function: Callable[..., Any], x: Any) -> Any:
        # Mosaic GPU: "Multi-axis reductions not supported".
        return function(function(self.tiles.cast(self.full(x)), axis=1), axis=0)


class Expansion(NamedTuple):
    """How a function is computed from the weights of features.

    Attributes:
      tables: arrays that it reads from the device's memory.
      scratch: shape of the table that it keeps in shared memory, or ``None``.
      beyond: number of zeros that it reads behind the weights.
      run: the function itself, of the tiles, the tables, the table kept and the weights.
      order: ``[r]`` features in the order in which it wants their weights.
    """

    tables: list[np.ndarray]
    scratch: tuple[int, int] | None
    beyond: int
    run: Callable[[Tiles, Sequence[Any], Any, Any], Any]
    order: np.ndarray


def dense(phi: np.ndarray, cut: Cut, rank: int) -> Expansion:
    """Return the expansion by features ``phi [M, r]`` that are read anew in every round."""
    features = np.zeros((rank, *cut.shape), np.float32)
    features[: phi.shape[1]] = phi.T[:, cut.repeats]

    def run(tiles: Tiles, tables: Sequence[Any], _: Any, u: Any) -> Any:
        def four(i: Any, column: Any) -> Any:
            for more in range(4):
                column = column + u[4 * i + more] * tiles.load(tables[0].at[4 * i + more])
            return column

        return jax.lax.fori_loop(0, rank // 4, four, tiles.full(np.float32(0), cut.shape))

    return Expansion([features], None, 0, run, np.arange(phi.shape[1]))


def along_two_axes(form: ProductFeatures, cut: Cut) -> Expansion:
    """Return the expansion by features of two axes, one axis after the other.

    Weights are ordered by their features on the second axis and then by those on the first, so that those of one ``j`` on the second axis
    are neighbours: ``T[i] = sum_j U[i, j] A2[j]``, and ``c[a] = sum_i A1[a, i] T[i]``.

    Raises:
      Unsupported: unless the features kept with each ``j`` are the first of the other axis.
    """
    first, second = np.asarray(form.columns)
    order = np.lexsort((first, second))
    counts = np.bincount(second)
    if not np.array_equal(first[order], np.concatenate([np.arange(count) for count in counts])):
        raise Unsupported("its products of features leave out one before the last of an axis")
    starts = np.cumsum(counts) - counts
    high = up(int(counts.max()), HIGH)
    a1, a2 = (np.asarray(axis, np.float32).T for axis in form.axes)
    a1 = np.pad(a1, ((0, 0), (0, cut.shape[0] - a1.shape[1])), mode="edge")
    a2 = np.pad(a2, ((0, 0), (0, cut.shape[1] - a2.shape[1])), mode="edge")
    kept = (np.arange(high) < counts[:, None]).astype(np.float32)

    def run(tiles: Tiles, tables: Sequence[Any], table: Any, u: Any) -> Any:
        on_first, on_second, is_kept = tables
        shape = (high, cut.shape[1])
        inner = tiles.full(np.float32(0), shape)
        for j, start in enumerate(starts):
            weights = tiles.load(u.at[pl.ds(int(start), high)], 1) * tiles.load(is_kept.at[j], 1)
            inner = inner + tiles.across(weights, shape) * tiles.down(tiles.load(on_second.at[j], 0), shape)
        table[...] = inner
        column = tiles.full(np.float32(0), cut.shape)
        for i in range(int(counts.max())):
            column = column + tiles.across(tiles.load(on_first.at[i], 1), cut.shape) * tiles.down(tiles.load(table.at[i], 0), cut.shape)
        return column

    return Expansion([a1, a2, kept], (high, cut.shape[1]), high, run, order)


def shared_memory(rank: int, cut: Cut, outputs: int, expansion: Expansion) -> int:
    """Return the bytes of shared memory that a trial takes."""
    numbers = rank * rank + (outputs + 1) * cut.repeats.size + rank + expansion.beyond
    return 4 * (numbers + int(np.prod(expansion.scratch or (0,)))) + RESERVED


def run(steps: Steps, surrogate: Surrogate, form: Form, means: Array, noise: Array, *, interpret: bool) -> tuple[Array, Array]:
    """Return the points chosen ``[trials, T]``, and the leaves of the states after the last round, flat ``[trials, n]``.

    Raises:
      Unsupported: when the numbers of a trial are more than a block's shared memory holds, or are no float32.
    """
    rounds, outputs, trials = noise.shape
    size = surrogate.domain.size
    if noise.dtype != np.float32:
        raise Unsupported("kernels of a GPU compute in float32")
    with jax.ensure_compile_time_eval():
        phi = np.asarray(jax.vmap(form.row, (None, 0))(form.init(), jnp.arange(size, dtype=jnp.int32)))
    rank = up(phi.shape[1], WIDE)
    if isinstance(form, ProductFeatures) and len(form.axes) == 2:
        cut = Cut.of(size, (np.shape(form.axes[0])[0], np.shape(form.axes[1])[0]))
        expansion = along_two_axes(form, cut)
    else:
        cut = Cut.of(size, None)
        expansion = dense(phi, cut, rank)
    needed = shared_memory(rank, cut, outputs, expansion)
    if needed > SHARED:
        raise Unsupported(f"a trial takes {needed:,} bytes of shared memory, of which a block has {SHARED:,}")
    phi = np.pad(phi[:, expansion.order], ((0, 0), (0, rank - phi.shape[1])))
    constants = jnp.stack([jnp.asarray(surrogate.noise_variance)[0], *jnp.asarray(surrogate.prior_mean)]).astype(np.float32)
    arguments = (
        phi,
        jnp.eye(rank, dtype=np.float32),
        jnp.asarray(means, np.float32),
        np.asarray(form.prior_variance, np.float32)[cut.repeats],
        cut.places,
        constants,
        jnp.transpose(noise, (2, 0, 1)),
        *expansion.tables,
    )
    results = (jax.ShapeDtypeStruct((trials, rounds), np.int32), jax.ShapeDtypeStruct((trials, steps.numbers), np.float32))
    shapes = [(rank, rank), (outputs, *cut.shape), cut.shape, (rank + expansion.beyond,), expansion.scratch or (1, 1)]
    scratch = [plgpu.SMEM(shape, np.float32) for shape in shapes]
    body = _body(steps, cut, expansion, rank, rounds, outputs, Tiles(interpret=interpret))
    if interpret:
        kernel = pl.pallas_call(
            lambda *refs: body(pl.program_id(0), *refs),
            grid=(trials,),
            out_shape=results,
            scratch_shapes=scratch,
            interpret=True,
            name="whole_run",
        )
    else:
        kernel = plgpu.kernel(
            lambda *refs: body(jax.lax.axis_index("trial"), *refs),
            out_type=results,
            scratch_types=scratch,
            grid=(trials,),
            grid_names=("trial",),
        )
    return kernel(*arguments)


def _body(steps: Steps, cut: Cut, expansion: Expansion, rank: int, rounds: int, outputs: int, tiles: Tiles) -> Callable[..., None]:
    """Return the kernel: the rounds of one trial."""

    def kernel(trial: Any, phi: Any, unit: Any, means: Any, prior: Any, places: Any, constants: Any, noise: Any, *refs: Any) -> None:
        tables, (chosen, ended, root, shift, variance, u, table) = refs[: len(expansion.tables)], refs[len(expansion.tables) :]
        rows = TiledRows(size=cut.size, shape=cut.shape, axis=None, places=tiles.load(places), tiles=tiles)
        lam = constants[0]
        for j in range(outputs):
            shift[j] = tiles.full(np.float32(0), cut.shape)
        variance[...] = tiles.load(prior)
        for at in range(0, rank, CHUNK):
            root[at : at + CHUNK, :] = tiles.load(unit.at[pl.ds(at, CHUNK)])
        for at in range(rank, rank + expansion.beyond, HIGH):
            u[at : at + HIGH] = tiles.load(unit.at[0, pl.ds(rank - HIGH, HIGH)], 1)

        def one_round(before: Any, carry: tuple[Any, ...]) -> tuple[Any, ...]:
            gain, *state = carry
            shifts = [tiles.load(shift.at[j]) for j in range(outputs)]
            belief = [boxed(shifts, (outputs,)), boxed([tiles.load(variance)], (1,)), boxed([gain], (1,))]
            t = before + 1
            index, *leaves = evaluated(steps.select, [*belief, *steps.leaves_in(state), boxed([t], ()), boxed([0], ())], rows)
            point = jnp.asarray(index[()]).astype(np.int32)
            chosen[trial, before] = point
            high, wide = jax.lax.div(point, np.int32(cut.width)), jax.lax.rem(point, np.int32(cut.width))
            seen = [shift[j, high, wide] for j in range(outputs)]
            values = [means[j, point] + noise[trial, before, j] for j in range(outputs)]
            learnt, *leaves = evaluated(steps.update, [boxed([point], ()), boxed(values, (outputs,)), *leaves, boxed([t], ())], rows)
            s = _potter(tiles, phi, point, lam, root, u, rank, rows)
            column = expansion.run(tiles, tables, table, u)
            precision = 1 / s
            variance[...] = tiles.load(variance) - column * column * precision
            for j in range(outputs):
                moved = (learnt[j] - constants[1 + j] - seen[j]) * precision
                shift[j] = tiles.load(shift.at[j]) + column * moved
            return gain + np.float32(0.5) * jnp.log(s * (1 / lam)), *steps.flat(leaves, _number)

        start = [_number(leaf[place], leaf.dtype) for leaf in steps.start for place in np.ndindex(leaf.shape)]
        end = jax.lax.fori_loop(0, rounds, one_round, (jnp.float32(0), *start))
        for n, x in enumerate(end[1:]):
            ended[trial, n] = x.astype(np.float32)

    return kernel


def _number(x: Any, kind: Any) -> Any:
    return jnp.asarray(x).astype(kind)


def _potter(tiles: Tiles, phi: Any, point: Any, lam: Any, root: Any, u: Any, rank: int, rows: Rows) -> Any:
    """Apply Potter's update to ``root`` at a point; leave ``u`` and return ``s``."""
    shape = (CHUNK, rank)
    total = tiles.full(np.float32(0), shape)
    for at in range(0, rank, CHUNK):
        features = tiles.load(phi.at[point, pl.ds(at, CHUNK)], 1)
        total = total + tiles.across(features, shape) * tiles.load(root.at[pl.ds(at, CHUNK)])
    w = jnp.sum(total, axis=0)
    s = lam + jnp.sum(w * w)
    scaled = w * (1 / (s + rows.sqrt(lam * s)))
    for at in range(0, rank, CHUNK):
        part = tiles.load(root.at[pl.ds(at, CHUNK)])
        product = jnp.sum(part * tiles.down(w, shape), axis=1)
        u[at : at + CHUNK] = product
        root[at : at + CHUNK, :] = part - tiles.across(product, shape) * tiles.down(scaled, shape)
    return s
