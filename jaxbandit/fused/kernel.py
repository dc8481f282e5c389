"""The kernel of one round: all that depends on functions of the grid, in one pass over them.

On TPUs and under the interpreter eight trials stand beside one another, a row is ``[8, M]`` and a number ``[8, 1]``. On GPUs a
warpgroup of Mosaic GPU has one trial, a row is ``[M / 128, 128]``, padded by its last point, and a number is a scalar.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.experimental.pallas import tpu as pltpu

from jaxbandit.fused.equations import Division, Name
from jaxbandit.fused.packing import Slots, load_rows, rows_in, split_names, stored
from jaxbandit.fused.rows import Cells, Rows, as_numbers, compute, is_boolean

Array = jax.Array
SUBLANES, LANES = 8, 128
THREADS, VECTOR = 128, 4  # of a warpgroup, and the numbers that each reads at once
GPU_COPY = 32  # numbers to which the packed ones are padded: Mosaic GPU copies 16 bytes or a multiple


@dataclasses.dataclass(frozen=True)
class Parts:
    """The arguments and results of a kernel: functions of the grid, and numbers."""

    division: Division
    size: int
    tables: tuple[Name, ...]  # that it reads
    numbers: Slots
    made_tables: tuple[Name, ...]  # that it writes
    made_numbers: Slots

    @classmethod
    def of(cls, division: Division, size: int) -> Parts:
        """Return the parts of a division on ``size`` points."""
        tables, numbers = split_names(division.needs, size)
        made_tables, made_numbers = split_names(division.made, size)
        return cls(division, size, tuple(tables), Slots.of(numbers), tuple(made_tables), Slots.of(made_numbers))

    def compute(self, known: dict[Any, Cells], rows: Rows) -> None:
        """Compute all equations of the kernel."""
        compute(self.division.inside, known, rows)

    def row_out(self, known: dict[Any, Cells], name: Name, rows: Rows) -> list[Any]:
        """Return the rows of a result as they are stored."""
        return [rows.full(as_numbers(x) if is_boolean(x) else jnp.asarray(x)) for x in known[name].reshape(-1)]

    def aliases(self, first: int, batched: Sequence[bool]) -> dict[int, int]:
        """Return which argument each written table takes the place of; ``first`` is the number of the first table."""
        taken: dict[int, int] = {}
        for result, made in enumerate(self.made_tables):
            for number, read in enumerate(self.tables):
                if (
                    batched[number]
                    and number + first not in taken
                    and read.aval.shape == made.aval.shape
                    and read.aval.dtype == made.aval.dtype
                ):
                    taken[number + first] = result
                    break
        return taken


def run_anywhere(parts: Parts, values: Sequence[Array], batched: Sequence[bool], trials: int) -> list[Array]:
    """Return the results of the kernel for the platform that a program is compiled for, see :func:`run`; a CPU interprets it."""

    def on(gpu: bool, interpret: bool) -> Callable[..., list[Array]]:
        return lambda *values: run(parts, values, batched, trials, gpu=gpu, interpret=interpret)

    found: list[Array] = jax.lax.platform_dependent(*values, cpu=on(False, True), cuda=on(True, False), tpu=on(False, False))
    return found


def run(parts: Parts, values: Sequence[Array], batched: Sequence[bool], trials: int, *, gpu: bool, interpret: bool) -> list[Array]:
    """Return the results of the kernel in the order of ``parts.division.made``, each with a leading axis of trials.

    Args:
      parts: what the kernel computes.
      values: arguments in the order of ``parts.division.needs``; those that are ``batched`` have a leading axis of trials.
      batched: which arguments differ from trial to trial.
      trials: number of trials.
      gpu: whether rows are laid out for Mosaic GPU, else for TPUs.
      interpret: whether the kernel is interpreted by XLA, as on a CPU.
    """
    given = {name: value if own else value[None] for name, value, own in zip(parts.division.needs, values, batched, strict=True)}
    own = dict(zip(parts.division.needs, batched, strict=True))
    is_batched = [own[name] for name in parts.tables]
    tables = [given[name].reshape(given[name].shape[0], rows_in(name, parts.size), parts.size) for name in parts.tables]
    tables = [table.astype(stored(table.dtype)) for table in tables]
    packed = parts.numbers.pack(given, trials)
    call = _on_gpu if gpu else _on_tpu
    written, numbers = call(parts, tables, is_batched, packed, trials, interpret)
    found = {
        name: table.reshape(trials, *name.aval.shape).astype(name.aval.dtype)
        for name, table in zip(parts.made_tables, written, strict=True)
    }
    return [found[name] if name in found else parts.made_numbers.unpack(numbers, name) for name in parts.division.made]


def _on_tpu(
    parts: Parts, tables: list[Array], batched: list[bool], packed: list[Array], trials: int, interpret: bool
) -> tuple[list[Array], list[Array]]:
    """Run the kernel with trials as sublanes: tables ``[n, trials, M]``, numbers ``[trials, width]``."""
    size, together = parts.size, min(SUBLANES, trials)
    rows = Rows(size=size, shape=(together, size), axis=-1)
    tables = [jnp.swapaxes(table, 0, 1) for table in tables]

    def table_spec(count: int, own: bool) -> pl.BlockSpec:
        return pl.BlockSpec((count, together if own else 1, size), (lambda i: (0, i, 0)) if own else (lambda i: (0, 0, 0)))

    def number_spec(width: int) -> pl.BlockSpec:
        return pl.BlockSpec((together, width), lambda i: (i, 0))

    made = [(rows_in(name, size), stored(name.aval.dtype)) for name in parts.made_tables]
    shapes = [jax.ShapeDtypeStruct((count, trials, size), dtype) for count, dtype in made]
    shapes += [jax.ShapeDtypeStruct((trials, width), kind) for kind, width in parts.made_numbers.widths.items()]

    def body(*refs: Any) -> None:
        read, numbers = refs[: len(tables)], refs[len(tables) : len(tables) + len(packed)]
        written = refs[len(tables) + len(packed) :]
        out_tables, out_numbers = written[: len(made)], written[len(made) :]
        known: dict[Any, Cells] = {}
        for name, ref in zip(parts.tables, read, strict=True):
            load_rows(name, size, functools.partial(lambda ref, n: rows.full(ref[n]), ref), known)
        parts.numbers.load(lambda array, place: numbers[array][:, place : place + 1], known)
        parts.compute(known, rows)
        for name, ref in zip(parts.made_tables, out_tables, strict=True):
            for n, row in enumerate(parts.row_out(known, name, rows)):
                ref[n] = row

        def write(array: int, place: int, x: Any) -> None:
            out_numbers[array][:, place : place + 1] = jnp.broadcast_to(x, (together, 1))

        parts.made_numbers.store(write, known)

    found = pl.pallas_call(
        body,
        grid=(pl.cdiv(trials, together),),
        in_specs=[table_spec(t.shape[0], own) for t, own in zip(tables, batched, strict=True)] + [number_spec(p.shape[1]) for p in packed],
        out_specs=[table_spec(count, True) for count, _ in made] + [number_spec(w) for w in parts.made_numbers.widths.values()],
        out_shape=shapes,
        input_output_aliases=parts.aliases(0, batched),
        interpret=interpret,
        name="fused_choice",
        compiler_params=None if interpret else pltpu.CompilerParams(dimension_semantics=("parallel",)),
    )(*tables, *packed)
    return [jnp.swapaxes(table, 0, 1) for table in found[: len(made)]], list(found[len(made) :])


class _TrialRef:
    """The part of an array that belongs to one trial; ``[n]`` is its ``n``-th row or number."""

    def __init__(self, ref: Any, trial: Any, layout: Any) -> None:
        self.ref, self.trial, self.layout = ref, trial, layout

    def __getitem__(self, n: int) -> Any:
        if self.layout is None:
            return self.ref[self.trial, n]
        return plgpu.load(self.ref.at[self.trial, n], (), layout=self.layout, optimized=False)

    def __setitem__(self, n: int, x: Any) -> None:
        self.ref[self.trial, n] = x


def _on_gpu(
    parts: Parts, tables: list[Array], batched: list[bool], packed: list[Array], trials: int, interpret: bool
) -> tuple[list[Array], list[Array]]:
    """Run the kernel with a warpgroup for each trial: tables ``[trials, n, M / 128, 128]``, numbers ``[trials, width]``."""
    size = parts.size
    blocks = -(-size // (THREADS * VECTOR)) * THREADS * VECTOR // LANES
    shape = (blocks, LANES)
    layout = None if interpret else plgpu.Layout.WG_STRIDED(shape, vec_size=VECTOR)

    def padded(table: Array) -> Array:
        table = jnp.pad(table, ((0, 0), (0, 0), (0, blocks * LANES - size)), mode="edge")
        return table.reshape(*table.shape[:2], *shape)

    def wide(width: int) -> int:
        return -(-width // GPU_COPY) * GPU_COPY

    points = jnp.arange(blocks * LANES, dtype=jnp.float32).reshape(1, 1, *shape)
    tables = [points, *(padded(table) for table in tables)]
    packed = [jnp.pad(p, ((0, 0), (0, wide(p.shape[1]) - p.shape[1]))) for p in packed]
    made = [(rows_in(name, size), stored(name.aval.dtype)) for name in parts.made_tables]
    shapes = [jax.ShapeDtypeStruct((trials, count, *shape), dtype) for count, dtype in made]
    shapes += [jax.ShapeDtypeStruct((trials, wide(width)), kind) for kind, width in parts.made_numbers.widths.items()]

    def body(trial: Any, refs: Sequence[Any]) -> None:
        own = [False, *batched]
        read = [_TrialRef(ref, trial if mine else 0, layout) for ref, mine in zip(refs, own, strict=False)]
        numbers = [_TrialRef(ref, trial, None) for ref in refs[len(tables) : len(tables) + len(packed)]]
        written = [_TrialRef(ref, trial, None) for ref in refs[len(tables) + len(packed) :]]
        rows = Rows(size=size, shape=shape, axis=None, places=read[0][0])
        known: dict[Any, Cells] = {}
        for name, ref in zip(parts.tables, read[1:], strict=True):
            load_rows(name, size, ref.__getitem__, known)
        parts.numbers.load(lambda array, place: numbers[array][place], known)
        parts.compute(known, rows)
        for name, ref in zip(parts.made_tables, written[: len(made)], strict=True):
            for n, row in enumerate(parts.row_out(known, name, rows)):
                ref[n] = row
        parts.made_numbers.store(lambda array, place, x: written[len(made) + array].__setitem__(place, x), known)

    if interpret:
        found = pl.pallas_call(
            lambda *refs: body(pl.program_id(0), refs), grid=(trials,), out_shape=shapes, interpret=True, name="fused_choice"
        )(*tables, *packed)
    else:
        found = plgpu.kernel(
            lambda *refs: body(jax.lax.axis_index("trial"), refs), out_type=tuple(shapes), grid=(trials,), grid_names=("trial",)
        )(*tables, *packed)
    unpadded = [table.reshape(trials, table.shape[1], -1)[..., :size] for table in found[: len(made)]]
    return unpadded, list(found[len(made) :])
