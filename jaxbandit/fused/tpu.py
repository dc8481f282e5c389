"""All rounds of 128 trials in one kernel of a TPU.

Only noise and records pass through the device's memory meanwhile. Trials are the 128 lanes: a root ``W`` is ``[r, r, 128]`` and a function
of the grid ``[M, 128]``, and all of it stays in the memory beside the cores (VMEM). Under JAX's interpreter there are as many lanes as
trials.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from jaxbandit.core.declare import Array
from jaxbandit.fused.cells import Ref, Rows, Unsupported, Value
from jaxbandit.fused.plan import FusedKernel, KernelInputs, Moment, RoundParts

# A core has noise and records of 128 rounds beside it at once.
PART_ROUNDS = 128


def run_on_tpu(plan: FusedKernel, parts: RoundParts, form: Any, size: int, given: KernelInputs) -> tuple[Array, Array, Array, Array]:
    """Return records ``[B, T, w]`` and, after all rounds, roots, means, variances."""
    trials, rounds, outputs = given.noise.shape
    # Vector registers have 8 sublanes.
    rank = -(-form.rank // 8) * 8
    # A row of vector registers has 128 lanes.
    lane_width = 128
    lanes = trials if plan.interpret else lane_width
    beyond, more = -trials % lanes, rank - form.rank
    part = min(PART_ROUNDS, rounds)
    phi = jnp.pad(jax.vmap(form.row, (None, 0))(form.init(), jnp.arange(size, dtype=jnp.int32)), ((0, 0), (0, more)))

    def in_lanes(x: Array) -> Array:
        return jnp.pad(jnp.moveaxis(x, 0, -1), ((0, 0),) * (x.ndim - 1) + ((0, beyond),))

    states = [in_lanes(x) for x in (jnp.pad(given.root, ((0, 0), (0, more), (0, more))), given.shift, given.variance)]
    noise, numbers = in_lanes(jnp.pad(given.noise, ((0, 0), (0, -rounds % part), (0, 0)))), in_lanes(given.numbers)
    shared = len(given.means) == 1
    means = jnp.moveaxis(given.means, 0, -1) if shared else in_lanes(given.means)

    def all_of(shape: tuple[int, ...]) -> pl.BlockSpec:
        return pl.BlockSpec(shape, lambda b, _: (0,) * len(shape))

    def of_lanes(shape: tuple[int, ...]) -> pl.BlockSpec:
        return pl.BlockSpec((*shape[:-1], lanes), lambda b, _: (*(0,) * (len(shape) - 1), b))

    def of_part(width: int) -> pl.BlockSpec:
        return pl.BlockSpec((part, width, lanes), lambda b, p: (p, 0, b))

    shapes = ((len(noise), parts.width, trials + beyond), *(x.shape for x in states))
    # A kernel may take 110 MiB of memory beside a core.
    vmem_bytes = 110 * 2**20
    if not plan.interpret:
        # Arguments and results are there twice, for the running trials and for the next trials. A row has 128 numbers.
        rows = sum(int(np.prod(x.shape[:-1])) for x in (*states, *states, means, numbers))
        taken = 2 * 4 * lane_width * (rows + part * (outputs + parts.width) + size * -(-rank // lane_width))
        if taken > vmem_bytes:
            raise Unsupported(f"{lane_width} trials take {taken:,} bytes of the memory beside a core, of which a kernel has {vmem_bytes:,}")
    record, *after = pl.pallas_call(
        _lane_kernel(parts, size, rounds, part, rank, lanes),
        grid=((trials + beyond) // lanes, len(noise) // part),
        in_specs=[
            *(all_of(phi.shape), (all_of if shared else of_lanes)(means.shape), of_part(outputs)),
            *(of_lanes(x.shape) for x in (numbers, *states)),
        ],
        out_specs=[of_part(parts.width), *(of_lanes(x.shape) for x in states)],
        out_shape=[jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes],
        scratch_shapes=[pltpu.VMEM(shape, np.dtype(np.float32)) for shape in ((rank, lanes), (1 + parts.leaves.size, lanes))],
        interpret=plan.interpret,
        name="all_rounds",
        compiler_params=None
        if plan.interpret
        else pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary"), vmem_limit_bytes=vmem_bytes),
    )(phi, means, noise, numbers, *states)
    record = record[:rounds]
    record, root, shift, variance = (jnp.moveaxis(x[..., :trials], -1, 0) for x in (record, *after))
    return record, root[:, : form.rank, : form.rank], shift, variance


def _lane_kernel(parts: RoundParts, size: int, rounds: int, part: int, rank: int, lanes: int) -> Callable[..., None]:
    """Return the kernel: the rounds of a trial in every lane."""
    rows = Rows(size=size, shape=(size, lanes))
    outputs = range(parts.outputs)

    def number(x: Value, kind: type | np.dtype) -> Value:
        return jnp.broadcast_to(jnp.asarray(x).astype(kind), (1, lanes))

    def kernel(phi: Ref, means: Ref, noise: Ref, numbers: Ref, *refs: Ref) -> None:
        *before, record, root, shift, variance, u, carried = refs
        done = part * pl.program_id(1)
        first, lam, start, constants, prior_mean = parts.start([numbers[n : n + 1, :] for n in range(len(numbers))])

        def keep(carry: Sequence[Value]) -> None:
            for place, x in enumerate(carry):
                carried[place : place + 1, :] = number(x, np.float32)

        @pl.when(done == 0)
        def _() -> None:
            for after, given in zip((root, shift, variance), before, strict=True):
                after[...] = given[...]
            keep(start)

        def one_round(n: Value, carry: tuple[Value, ...]) -> tuple[Value, ...]:
            now = Moment([shift[j] for j in outputs], variance[...], first + done + n, carry, constants)
            index, bits = parts.chosen(rows, now)
            point = number(jnp.minimum(index, np.float32(size - 1)), np.int32)
            is_point = jax.lax.broadcasted_iota(jnp.int32, rows.shape, 0) == point

            def at_point(row: Value) -> Value:
                return rows.reduce(jnp.sum, jnp.where(is_point, rows.full(row), np.float32(0)))

            seen = [at_point(shift[j]) for j in outputs]
            values = [at_point(means[j]) + noise[n, j : j + 1, :] for j in outputs]
            widths, learnt, leaves = parts.learnt(rows, now._replace(means=seen, variance=at_point(variance[...])), point, values)
            s = _potter_in_lanes(phi, is_point, lam, root, u, rank, lanes)
            # HIGHEST: a TPU multiplies float32 in bfloat16 by default.
            column = jax.lax.dot_general(
                phi[...], u[...], (((1,), (0,)), ((), ())), precision=jax.lax.Precision.HIGHEST, preferred_element_type=np.float32
            )
            precision = 1 / s
            variance[...] = variance[...] - column * column * precision
            for j in outputs:
                shift[j] = shift[j] + column * ((learnt[j] - prior_mean[j] - seen[j]) * precision)
            gain = carry[0] + np.float32(0.5) * jnp.log(s * (1 / lam))
            leaves = [number(x, x.dtype) for x in leaves]
            for place, x in enumerate((index, bits, gain, *widths, *leaves)):
                record[n, place : place + 1, :] = number(x, np.float32)
            return gain, *leaves

        gain, *leaves = (carried[place : place + 1, :] for place in range(1 + parts.leaves.size))
        leaves = parts.leaves.flat(parts.leaves.boxes(leaves))
        ended = jax.lax.fori_loop(0, jnp.minimum(part, rounds - done), one_round, (gain, *leaves))
        keep(ended)

    return kernel


def _potter_in_lanes(phi: Ref, is_point: Value, lam: Value, root: Ref, u: Ref, rank: int, lanes: int) -> Value:
    """Apply Potter's update to ``root``, store ``u``, and return ``s [1, 128]``.

    The root is ``[r, r, 128]``. ``u [r, 128]`` stores the features of the trials' points first. No operation mixes lanes.
    """
    onehot = jnp.where(is_point, np.float32(1), np.float32(0))
    u[...] = jax.lax.dot_general(
        phi[...], onehot, (((0,), (0,)), ((), ())), precision=jax.lax.Precision.HIGHEST, preferred_element_type=np.float32
    )
    zeros = jnp.zeros((rank, lanes), np.float32)
    w = jax.lax.fori_loop(0, rank, lambda i, w: w + u[pl.ds(i, 1), :] * root[i], zeros)
    s = lam + jnp.sum(w * w, axis=0, keepdims=True)
    scaled = w * (1 / (s + jnp.sqrt(lam * s)))

    def update(i: Value, _: int) -> int:
        row = root[i]
        product = jnp.sum(row * w, axis=0, keepdims=True)
        u[pl.ds(i, 1), :] = product
        root[i] = row - product * scaled
        return 0

    jax.lax.fori_loop(0, rank, update, 0)
    return s
