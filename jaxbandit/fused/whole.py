"""All rounds of many trials in one kernel of a TPU: nothing but the noise and the points chosen passes through the device's memory.

Trials are the 128 lanes: a root ``W`` is ``[r, r, 128]`` and a function of the grid ``[M, 128]``, and all of it stays in the memory beside
the cores (VMEM). The algorithm's own ``select`` and ``update`` run inside, row by row, and Potter's update between them. It has been run by
JAX's interpreter and lowered for TPUs; on no device has it been measured, so that nothing uses it by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from jaxbandit.algorithms.base import Algorithm, Arena, Observation
from jaxbandit.core.arguments import takes
from jaxbandit.core.fields import boolean, exactly, numbers, of_class
from jaxbandit.core.pytree import canonicalise, pytree, replace
from jaxbandit.domains import Domain
from jaxbandit.fused.equations import Name, Operand, Program, Unsupported, check_axes, divide, needed, traced
from jaxbandit.fused.rows import Cells, Rows, cells_of, compute
from jaxbandit.surrogates import AbstractSurrogate, Posterior, Prediction, Surrogate
from jaxbandit.surrogates.features import EXACT, SquareRoot

Array = jax.Array
LANES, SUBLANES = 128, 8
MEMORY = 110 * 2**20  # bytes beside a core that a kernel may take


@pytree
class Listener(AbstractSurrogate):
    """Surrogate that learns nothing: it keeps the values of an observation in place of the mean, and the kernel learns from them."""

    base: Surrogate

    @property
    def model(self) -> Surrogate:
        """The Gaussian-process model."""
        return self.base

    @property
    def domain(self) -> Domain:
        """The ``M`` points."""
        return self.base.domain

    def init(self) -> Posterior:
        return self.base.init()

    def condition(self, posterior: Posterior, index: Array, values: Array) -> Posterior:
        return replace(posterior, shift=jnp.broadcast_to(values[:, None], posterior.shift.shape))  # which a kernel keeps as numbers

    def predict(self, posterior: Posterior) -> Prediction:
        return self.base.predict(posterior)

    def gain(self, posterior: Posterior) -> Array:
        return posterior.gain

    def draw(self, posterior: Posterior, key: Array, scale: Array) -> Array:
        return self.base.draw(posterior, key, scale)

    def covariance(self, posterior: Posterior, output: int, indices: Array) -> Array:
        return self.base.covariance(posterior, output, indices)


class State(NamedTuple):
    """A state of an algorithm in two parts: its belief, and all other leaves."""

    leaves: list[Any]
    place: int  # of the belief among the leaves
    structure: Any

    @classmethod
    def of(cls, state: Any) -> State:
        """Return the parts of a state that holds one posterior.

        Raises:
          Unsupported: on a state that holds none, or several.
        """
        leaves, structure = jax.tree.flatten(state, is_leaf=lambda x: isinstance(x, Posterior))
        places = [number for number, leaf in enumerate(leaves) if isinstance(leaf, Posterior)]
        if len(places) != 1:
            raise Unsupported("its state does not hold one posterior")
        return cls(leaves, places[0], structure)

    @property
    def belief(self) -> Posterior:
        """The posterior."""
        belief: Posterior = self.leaves[self.place]
        return belief

    @property
    def others(self) -> list[Any]:
        """All other leaves."""
        return self.leaves[: self.place] + self.leaves[self.place + 1 :]

    def joined(self, belief: Posterior, others: Sequence[Any]) -> Any:
        """Return a state with another belief and other leaves."""
        return jax.tree.unflatten(self.structure, [*others[: self.place], belief, *others[self.place :]])


class Steps(NamedTuple):
    """The parts of a round by an algorithm, traced, and the leaves of its state before round 1."""

    select: Program
    update: Program
    start: list[np.ndarray]
    structure: Any  # of the leaves of the state but its belief


def steps_of(algorithm: Algorithm, surrogate: Surrogate, horizon: int) -> Steps:
    """Return the traced parts of a round.

    Raises:
      Unsupported: when a kernel cannot play them, with the reason.
    """
    form = surrogate.forms[0]
    if len(surrogate.forms) != 1 or not isinstance(form, SquareRoot):
        raise Unsupported("its outputs do not share one root of features")
    if surrogate.noise_differs:
        raise Unsupported("points have noise variances of their own")
    if surrogate.refresh:
        raise Unsupported("its variance is computed anew after some rounds")
    arena = Arena(surrogate=Listener(base=surrogate), horizon=np.int32(horizon))  # type: ignore[arg-type]  # a constant of the kernel
    with jax.ensure_compile_time_eval():  # as is the first state
        start = State.of(algorithm.init(arena))
    size = surrogate.domain.size
    if any(np.shape(leaf)[-1:] == (size,) for leaf in start.others):
        raise Unsupported("its state holds functions of the grid beside its belief")

    def belief(shift: Array, variance: Any, gain: Array) -> Posterior:
        return Posterior(factors=start.belief.factors, shift=shift, variance=variance, gain=gain)

    def select(shift: Array, variance: Array, gain: Array, others: list[Array], t: Array, key: Array) -> Any:
        decision, after = algorithm.select(arena, start.joined(belief(shift, variance, gain), others), t, key)
        return jnp.minimum(decision.index, size - 1), State.of(after).others

    def update(index: Array, values: Array, others: list[Array], t: Array) -> Any:
        empty = jax.tree.map(jnp.zeros_like, start.belief)
        after = State.of(algorithm.update(arena, start.joined(empty, others), Observation(index=index, values=values), t))
        return after.belief.shift, after.others

    known = start.belief
    key, t = jax.random.key(0), np.int32(1)
    selected, _ = traced(select, (known.shift, known.variance, known.gain, start.others, t, key))
    updated, _ = traced(update, (t, known.shift[:, 0], start.others, t))
    for program in (selected, updated):
        used = {operand for equation in needed(program.equations, program.results) for operand in equation.inputs}
        if any(isinstance(x, Name) and x in used and jnp.issubdtype(x.aval.dtype, jax.dtypes.prng_key) for x in program.arguments):
            raise Unsupported("it draws random numbers in every round")
        division = divide(program, [True] * len(program.arguments), size)
        check_axes(division, size)
    leaves = [np.asarray(leaf) for leaf in start.others]
    return Steps(selected, updated, leaves, jax.tree.structure(start.others))


@takes(
    algorithm=of_class(Algorithm),
    surrogate=of_class(Surrogate),
    means=numbers.of(exactly(None, None, words="one row per function, one column per point")),
    noise=numbers.of(exactly(None, None, None, words="[rounds, functions, trials]")),
    interpret=boolean,
)
def whole_run(
    algorithm: Algorithm, surrogate: Surrogate, means: Array, noise: Array, *, interpret: bool = False
) -> tuple[Array, list[Array]]:
    """Play all rounds of all trials in one kernel; feedback comes at once.

    Args:
      algorithm: an algorithm that draws no random numbers of its own and keeps one posterior.
      surrogate: a model in a feature form, whose outputs share one root.
      means: ``[k, M]`` mean values of the functions.
      noise: ``[T, k, trials]`` what is added to them.
      interpret: whether JAX's interpreter plays the kernel, as on a CPU.

    Returns:
      The points chosen ``[trials, T]``, and the leaves of the algorithm's state but its belief after the last round, with a leading axis of
      trials.

    Raises:
      InvalidArgument: on objects of other classes and arrays of other shapes.
      Unsupported: when a kernel cannot play the algorithm, with the reason.
    """
    algorithm, surrogate = canonicalise((algorithm, surrogate.without_kernels()))
    rounds, outputs, trials = noise.shape
    steps = steps_of(algorithm, surrogate, rounds)
    size, form, dtype = surrogate.domain.size, surrogate.forms[0], noise.dtype
    phi = jax.vmap(form.row, (None, 0))(form.init(), jnp.arange(size, dtype=jnp.int32))
    rank = -(-phi.shape[1] // SUBLANES) * SUBLANES
    phi = jnp.pad(phi, ((0, 0), (0, rank - phi.shape[1])))
    padded = -(-trials // LANES) * LANES
    noise = jnp.pad(noise, ((0, 0), (0, 0), (0, padded - trials)))
    count = max(1, sum(leaf.size for leaf in steps.start))
    constants = jnp.stack([jnp.asarray(surrogate.noise_variance, dtype)[0], *jnp.asarray(surrogate.prior_mean, dtype)])[:, None]

    def whole(*shape: int) -> pl.BlockSpec:
        return pl.BlockSpec(shape, lambda b: (0,) * len(shape))

    indices, ended = pl.pallas_call(
        _body(steps, surrogate, rounds, rank, np.dtype(dtype)),
        grid=(padded // LANES,),
        in_specs=[
            whole(size, rank),
            whole(outputs, size, 1),
            whole(size, 1),
            whole(1 + outputs, 1),
            pl.BlockSpec((rounds, outputs, LANES), lambda b: (0, 0, b)),
        ],
        out_specs=[pl.BlockSpec((rounds, LANES), lambda b: (0, b)), pl.BlockSpec((count, LANES), lambda b: (0, b))],
        out_shape=[jax.ShapeDtypeStruct((rounds, padded), jnp.int32), jax.ShapeDtypeStruct((count, padded), dtype)],
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
    after, at = [], 0
    for leaf in steps.start:
        part = ended[at : at + leaf.size, :trials].T.reshape(trials, *leaf.shape)
        after.append(part.astype(leaf.dtype))
        at += leaf.size
    return indices[:, :trials].T, after


def _body(steps: Steps, surrogate: Surrogate, rounds: int, rank: int, dtype: np.dtype) -> Callable[..., None]:
    """Return the kernel: the rounds of 128 trials."""
    size, outputs = surrogate.domain.size, surrogate.outputs
    rows = Rows(size=size, shape=(size, LANES), axis=0)

    def number(x: Any, kind: Any) -> Any:
        return jnp.broadcast_to(jnp.asarray(x).astype(kind), (1, LANES))

    def leaves_in(flat: Sequence[Any]) -> list[Cells]:
        found, at = [], 0
        for leaf in steps.start:
            found.append(boxed(flat[at : at + leaf.size], leaf.shape))
            at += leaf.size
        return found

    def flat(leaves: Sequence[Cells]) -> list[Any]:
        own = zip(leaves, steps.start, strict=True)
        return [number(cells[place], leaf.dtype) for cells, leaf in own for place in np.ndindex(leaf.shape)]

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
            index, *leaves = evaluated(steps.select, [*belief, *leaves_in(state), boxed([t], ()), boxed([0], ())], rows)
            point = number(index[()], jnp.int32)
            chosen[pl.ds(before, 1), :] = point
            here = rows.first(point)
            seen = [rows.at(shift[j], point) for j in range(outputs)]
            values = [rows.at(means[j], point) + noise[before, j : j + 1, :] for j in range(outputs)]
            learnt, *leaves = evaluated(
                steps.update, [boxed([point], ()), boxed(values, (outputs,)), *leaves_in(flat(leaves)), boxed([t], ())], rows
            )
            s = _potter(phi, here, lam, root, u, rank, dtype)
            # HIGHEST: a TPU multiplies float32 in bfloat16 by default.
            column = jax.lax.dot_general(phi[...], u[...], (((1,), (0,)), ((), ())), precision=EXACT, preferred_element_type=dtype)
            precision = 1 / s
            variance[...] = variance[...] - column * column * precision
            for j in range(outputs):
                shift[j] = shift[j] + column * ((learnt[j] - constants[1 + j : 2 + j, :] - seen[j]) * precision)
            return gain + dtype.type(0.5) * jnp.log(s * (1 / lam)), *flat(leaves)

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


def boxed(values: Sequence[Any], shape: tuple[int, ...]) -> Cells:
    """Return values of a kernel as cells of some shape."""
    cells = np.empty(shape, object)
    for place, value in zip(np.ndindex(shape), values, strict=True):
        cells[place] = value
    return cells


def evaluated(program: Program, arguments: Sequence[Cells], rows: Rows) -> list[Cells]:
    """Return the results of a program on cells."""
    known: dict[Operand, Cells] = dict(zip(program.arguments, arguments, strict=True))
    compute(needed(program.equations, program.results), known, rows)
    return [known[result] if isinstance(result, Name) else cells_of(result.value) for result in program.results]
