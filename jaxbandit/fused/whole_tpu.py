"""All rounds of 128 trials in one kernel of a TPU: nothing but the noise and the points chosen passes through the device's memory.

Trials are the 128 lanes: a root ``W`` is ``[r, r, 128]`` and a function of the grid ``[M, 128]``, and all of it stays in the memory beside
the cores (VMEM). The algorithm's own ``select`` and ``update`` run inside, row by row, and Potter's update between them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from jaxbandit.fused.rounds import Form, Steps, boxed, evaluated
from jaxbandit.fused.rows import Rows
from jaxbandit.surrogates import Surrogate
from jaxbandit.surrogates.features import EXACT

Array = jax.Array
LANES, SUBLANES = 128, 8
MEMORY = 110 * 2**20  # bytes beside a core that a kernel may take


def run(steps: Steps, surrogate: Surrogate, form: Form, means: Array, noise: Array, *, interpret: bool) -> tuple[Array, Array]:
    """Return the points chosen ``[trials, T]``, and the leaves of the states after the last round, flat ``[trials, n]``."""
    rounds, outputs, trials = noise.shape
    size, dtype = surrogate.domain.size, noise.dtype
    phi = jax.vmap(form.row, (None, 0))(form.init(), jnp.arange(size, dtype=jnp.int32))
    rank = -(-phi.shape[1] // SUBLANES) * SUBLANES
    phi = jnp.pad(phi, ((0, 0), (0, rank - phi.shape[1])))
    padded = -(-trials // LANES) * LANES
    noise = jnp.pad(noise, ((0, 0), (0, 0), (0, padded - trials)))
    constants = jnp.stack([jnp.asarray(surrogate.noise_variance, dtype)[0], *jnp.asarray(surrogate.prior_mean, dtype)])[:, None]

    def whole(*shape: int) -> pl.BlockSpec:
        return pl.BlockSpec(shape, lambda b: (0,) * len(shape))

    indices, ended = pl.pallas_call(
        _body(steps, size, outputs, rounds, rank, np.dtype(dtype)),
        grid=(padded // LANES,),
        in_specs=[
            whole(size, rank),
            whole(outputs, size, 1),
            whole(size, 1),
            whole(1 + outputs, 1),
            pl.BlockSpec((rounds, outputs, LANES), lambda b: (0, 0, b)),
        ],
        out_specs=[pl.BlockSpec((rounds, LANES), lambda b: (0, b)), pl.BlockSpec((steps.numbers, LANES), lambda b: (0, b))],
        out_shape=[jax.ShapeDtypeStruct((rounds, padded), jnp.int32), jax.ShapeDtypeStruct((steps.numbers, padded), dtype)],
        scratch_shapes=[
            pltpu.VMEM((outputs, size, LANES), dtype),
            pltpu.VMEM((size, LANES), dtype),
            pltpu.VMEM((rank, rank, LANES), dtype),
            pltpu.VMEM((rank, LANES), dtype),
        ],
        interpret=interpret,
        name="whole_run",
        compiler_params=None if interpret else pltpu.CompilerParams(dimension_semantics=("parallel",), vmem_limit_bytes=MEMORY),
    )(phi, jnp.asarray(means, dtype)[:, :, None], jnp.asarray(form.prior_variance, dtype)[:, None], constants, noise)
    return indices[:, :trials].T, ended[:, :trials].T


def _body(steps: Steps, size: int, outputs: int, rounds: int, rank: int, dtype: np.dtype) -> Callable[..., None]:
    """Return the kernel: the rounds of 128 trials."""
    rows = Rows(size=size, shape=(size, LANES), axis=0)

    def number(x: Any, kind: Any) -> Any:
        return jnp.broadcast_to(jnp.asarray(x).astype(kind), (1, LANES))

    def kernel(
        phi: Any, means: Any, prior: Any, constants: Any, noise: Any, chosen: Any, ended: Any, shift: Any, variance: Any, root: Any, u: Any
    ) -> None:
        lam = constants[0:1, :]
        shift[...] = jnp.zeros((outputs, size, LANES), dtype)
        variance[...] = jnp.broadcast_to(prior[...], (size, LANES))

        def unit(i: Any, _: int) -> int:
            root[i] = jnp.where(jax.lax.broadcasted_iota(jnp.int32, (rank, LANES), 0) == i, np.ones((), dtype), np.zeros((), dtype))
            return 0

        jax.lax.fori_loop(0, rank, unit, 0)

        def one_round(before: Any, carry: tuple[Any, ...]) -> tuple[Any, ...]:
            gain, *state = carry
            t = jnp.full((1, LANES), before + 1, jnp.int32)
            belief = [boxed([shift[j] for j in range(outputs)], (outputs,)), boxed([variance[...]], (1,)), boxed([gain], (1,))]
            index, *leaves = evaluated(steps.select, [*belief, *steps.leaves_in(state), boxed([t], ()), boxed([0], ())], rows)
            point = number(index[()], jnp.int32)
            chosen[pl.ds(before, 1), :] = point
            here = rows.first(point)
            seen = [rows.at(shift[j], point) for j in range(outputs)]
            values = [rows.at(means[j], point) + noise[before, j : j + 1, :] for j in range(outputs)]
            learnt, *leaves = evaluated(
                steps.update,
                [boxed([point], ()), boxed(values, (outputs,)), *steps.leaves_in(steps.flat(leaves, number)), boxed([t], ())],
                rows,
            )
            s = _potter(phi, here, lam, root, u, rank, dtype)
            # HIGHEST: a TPU multiplies float32 in bfloat16 by default.
            column = jax.lax.dot_general(phi[...], u[...], (((1,), (0,)), ((), ())), precision=EXACT, preferred_element_type=dtype)
            precision = 1 / s
            variance[...] = variance[...] - column * column * precision
            for j in range(outputs):
                shift[j] = shift[j] + column * ((learnt[j] - constants[1 + j : 2 + j, :] - seen[j]) * precision)
            return gain + dtype.type(0.5) * jnp.log(s * (1 / lam)), *steps.flat(leaves, number)

        start = [number(leaf[place], leaf.dtype) for leaf in steps.start for place in np.ndindex(leaf.shape)]
        end = jax.lax.fori_loop(0, rounds, one_round, (jnp.zeros((1, LANES), dtype), *start))
        ended[...] = jnp.zeros(ended.shape, dtype)
        for n, x in enumerate(end[1:]):
            ended[n : n + 1, :] = x.astype(dtype)

    return kernel


def _potter(phi: Any, here: Any, lam: Any, root: Any, u: Any, rank: int, dtype: np.dtype) -> Any:
    """Apply Potter's update to ``root [r, r, 128]`` at each trial's point; leave ``u [r, 128]`` and return ``s [1, 128]``.

    Nothing crosses the lanes. ``u`` holds the features of the points first.
    """
    onehot = jnp.where(here, np.ones((), dtype), np.zeros((), dtype))
    u[...] = jax.lax.dot_general(phi[...], onehot, (((0,), (0,)), ((), ())), precision=EXACT, preferred_element_type=dtype)
    zeros = jnp.zeros((rank, LANES), dtype)
    w = jax.lax.fori_loop(0, rank, lambda i, w: w + u[pl.ds(i, 1), :] * root[i], zeros)
    s = lam + jnp.sum(w * w, axis=0, keepdims=True)
    scaled = w * (1 / (s + jnp.sqrt(lam * s)))

    def update(i: Any, _: int) -> int:
        row = root[i]
        product = jnp.sum(row * w, axis=0, keepdims=True)
        u[pl.ds(i, 1), :] = product
        root[i] = row - product * scaled
        return 0

    jax.lax.fori_loop(0, rank, update, 0)
    return s
