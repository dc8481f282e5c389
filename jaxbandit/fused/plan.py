"""Choice and call of a kernel for all rounds of a trial.

The parts of a round are functions of one point. The kernel reads and returns the state of a trial, so that a run may start from an initial
design and continue after a part.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from jaxbandit.algorithms.base import Algorithm, Arena, Observation, S, Scored
from jaxbandit.core.checks import InvalidArgument, is_traced
from jaxbandit.core.declare import Array, checked
from jaxbandit.core.pytree import canonicalise, float_dtype, pytree, replace
from jaxbandit.domains import Contextual, Domain
from jaxbandit.feedback import Policy
from jaxbandit.fused.cells import CALLS, Cells, Rows, Unsupported, Value, boxed, called_by, compute
from jaxbandit.problems import AbstractProblem, FullInformation, Problem
from jaxbandit.surrogates import AbstractSurrogate, Belief, BoxSurrogate, Posterior, RangedSurrogate, Surrogate
from jaxbandit.surrogates.features import ProductFeatures, SquareRoot
from jaxbandit.surrogates.posterior import deviation

if TYPE_CHECKING:
    from jax.extend import core


class FusedKernel(NamedTuple):
    """Kernel that runs all rounds, a part of the compiled program.

    Attributes:
      platform: ``"gpu"``, where a block runs one trial in its shared memory, or ``"tpu"``, where 128 trials stand side by side.
      interpret: whether JAX's interpreter runs the kernel, as on a CPU.
      counts: number of features of the first axis for each feature of the second, in a product form of two axes; else empty.
    """

    platform: str
    interpret: bool
    counts: tuple[int, ...]

    @property
    def in_words(self) -> str:
        return f"one kernel plays all rounds{' (interpreted on a CPU, to check results)' if self.interpret else ''}"


@pytree
class OnePoint(AbstractSurrogate):
    """Model of a single point ``[k, 1]``.

    It stores values as the mean instead of conditioning, and the kernel conditions on them.
    """

    base: Surrogate
    prior_mean: Array  # [k]

    @property
    def model(self) -> Surrogate:
        return self.base

    @property
    def domain(self) -> Domain:
        return self.base.domain

    def condition(self, posterior: Posterior, index: Array, values: Array) -> Posterior:
        return replace(posterior, shift=values[:, None])

    def belief(self, posterior: Posterior) -> Belief:
        mean = self.prior_mean[:, None] + posterior.shift
        sd = jnp.broadcast_to(deviation(posterior.variance), posterior.shift.shape)
        return KernelBelief(mean=mean, sd=sd, gain=jnp.broadcast_to(posterior.gain, (self.outputs,)), model=self.base, posterior=posterior)

    def init(self) -> Posterior:
        raise Unsupported("it forgets what it has learnt")


@pytree
class KernelBelief(Belief):
    """Belief about a single point."""

    def draw(self, key: Array, scale: Array) -> Array:
        raise Unsupported("it draws functions, whose values at all points are drawn together")


def parted(state: S) -> tuple[Posterior, list[Array], Callable[[Posterior, Sequence[Array]], S]]:
    """Return a state's posterior, its other leaves, and their inverse function."""
    leaves, structure = jax.tree.flatten(state, is_leaf=lambda x: isinstance(x, Posterior))
    places = [number for number, leaf in enumerate(leaves) if isinstance(leaf, Posterior)]
    if len(places) != 1:
        raise Unsupported("its state does not hold one posterior")
    [place] = places

    def joined(posterior: Posterior, others: Sequence[Array]) -> S:
        return jax.tree.unflatten(structure, [*others[:place], posterior, *others[place:]])

    return leaves[place], leaves[:place] + leaves[place + 1 :], joined


class Moment(NamedTuple):
    """State of a round in a kernel, as rows or numbers.

    ``means [k]`` are less the prior mean, and ``carry`` is the gain and the leaves of the state.
    """

    means: Sequence[Value]
    variance: Value
    t: Value
    carry: Sequence[Value]
    constants: Sequence[Value]


class FlatNumbers(NamedTuple):
    """Arrays of known shapes and types as numbers one after the other."""

    avals: tuple[jax.ShapeDtypeStruct, ...]

    @classmethod
    def of(cls, leaves: Sequence[Array]) -> FlatNumbers:
        return cls(tuple(jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves))

    @property
    def size(self) -> int:
        return sum(aval.size for aval in self.avals)

    @property
    def places(self) -> list[np.ndarray]:
        """Places of the numbers of each array."""
        return np.split(np.arange(self.size), np.cumsum([aval.size for aval in self.avals], dtype=int))[:-1]

    def boxes(self, flat: Sequence[Value]) -> list[Cells]:
        """Return the arrays as cells, from a kernel's values in any type."""
        pairs = zip(self.places, self.avals, strict=True)
        return [boxed([_typed(flat[n], aval.dtype) for n in places], aval.shape) for places, aval in pairs]

    def flat(self, arrays: Sequence[Cells]) -> list[Value]:
        """Return the numbers of cells as a kernel's values in their types."""
        return [_typed(x, aval.dtype) for cells, aval in zip(arrays, self.avals, strict=True) for x in cells.flat]

    def arrays(self, table: Array) -> list[Array]:
        """Return the arrays with leading axes, from float32 numbers ``[..., n]``."""
        pairs = zip(self.places, self.avals, strict=True)
        return [table[..., places].reshape(*table.shape[:-1], *aval.shape).astype(aval.dtype) for places, aval in pairs]


def _typed(x: Value, dtype: np.dtype) -> Value:
    is_mask = np.issubdtype(jnp.result_type(x), np.bool_)
    return x > np.float32(0.5) if np.issubdtype(dtype, np.bool_) and not is_mask else jnp.asarray(x).astype(dtype)


class RoundParts(NamedTuple):
    """Parts of a round, traced at one point by :func:`round_parts`.

    The masks of a score raise ``flags``; ``leaves`` are of the state, without its posterior, and ``constants`` of the algorithm.
    """

    choose: core.ClosedJaxpr
    learn: core.ClosedJaxpr
    flags: tuple[int, ...]
    leaves: FlatNumbers
    constants: FlatNumbers
    outputs: int

    @property
    def width(self) -> int:
        """Length of a round's record: index, bits, gain, widths and leaves."""
        return 3 + self.outputs + self.leaves.size

    def start(self, numbers: Sequence[Value]) -> tuple[Value, Value, list[Value], Sequence[Value], Sequence[Value]]:
        """Return first round, noise variance, carry, constants and prior mean ``[k]``."""
        first, noise_variance, gain, *rest = numbers
        leaves, constants = rest[: self.leaves.size], rest[self.leaves.size :]
        carry = [gain, *self.leaves.flat(self.leaves.boxes(leaves))]
        return first.astype(np.int32), noise_variance, carry, constants, constants[-self.outputs :]

    def chosen(self, rows: Rows, now: Moment) -> tuple[Value, Value]:
        """Return the index as float32, ``M`` if NaN, and status bits."""
        score, *rest = [cells.item() for cells in compute(self.choose, self._given(now), rows)]
        masks, otherwise = rest[: len(self.flags)], rest[len(self.flags) :]
        bits: Value = np.int32(0)
        for mask, flag in zip(masks, self.flags, strict=True):
            raised = rows.everywhere(mask)
            bits = bits | jnp.where(raised, np.int32(flag), np.int32(0))
            score = rows.select(raised, otherwise[0], score) if otherwise else score
        return rows.pick(score), bits

    def learnt(self, rows: Rows, now: Moment, point: Value, values: Sequence[Value]) -> tuple[list[Value], list[Value], list[Value]]:
        """Return widths ``[k]``, conditioned values ``[k]`` and leaves after a round."""
        given = [*self._given(now), boxed([point], ()), boxed(values, (self.outputs,))]
        widths, learnt, *after = compute(self.learn, given, rows)
        return list(widths.flat), list(learnt.flat), self.leaves.flat(after)

    def _given(self, now: Moment) -> list[Cells]:
        (gain, *leaves), no_key = now.carry, boxed([None], ())
        belief = [boxed(now.means, (self.outputs, 1)), boxed([now.variance], (1, 1)), boxed([gain], (1,))]
        return [*belief, boxed([now.t], ()), no_key, *self.leaves.boxes(leaves), *self.constants.boxes(now.constants)]


def round_parts(algorithm: Scored[S], arena: Arena, state: S, points: int = 1) -> RoundParts:
    """Return the parts of a round, traced at one point or more."""
    (_, leaves_of_state, joined), model = parted(state), arena.surrogate.model
    if any(jnp.shape(leaf)[-1:] == (arena.size,) for leaf in leaves_of_state):
        raise Unsupported("its state holds a number for every point")
    constants, structure = jax.tree.flatten((algorithm, arena.horizon, jnp.asarray(model.prior_mean, arena.dtype)))
    leaves, numbers = FlatNumbers.of(leaves_of_state), FlatNumbers.of(constants)
    # Each number of an algorithm and its state is a scalar of the kernel.
    if leaves.size + numbers.size > (most := 256):
        raise Unsupported(f"it holds {leaves.size + numbers.size:,} numbers beside what is believed, and a kernel takes {most}")
    flags: list[tuple[int, ...]] = []

    def opened(shift: Array, variance: Array, gain: Array, t: Array, key: Array, others: list[Array], constants: list[Array]) -> Any:
        algorithm, horizon, prior_mean = jax.tree.unflatten(structure, constants)
        at_point = Arena(surrogate=OnePoint(base=model, prior_mean=prior_mean), horizon=horizon)
        state = joined(Posterior(factors=(), shift=shift, variance=variance, gain=gain), others)
        return algorithm, at_point, state, algorithm.estimate(at_point, state, t, key)

    def choose(*given: Any) -> Any:
        algorithm, at_point, state, estimate = opened(*given)
        score = algorithm.score(algorithm.shared(at_point, state, estimate), estimate)
        flags.append(tuple(int(flag) for _, flag in score.flags))
        return score.values, [mask for mask, _ in score.flags], score.otherwise

    def learn(*given: Any) -> Any:
        *before, index, values = given
        algorithm, at_point, state, estimate = opened(*before)
        # The estimate has one column, so the point is number 0.
        state = algorithm.after_choice(at_point, state, estimate, 0)
        learnt, after, _ = parted(algorithm.update(at_point, state, Observation(index=index, values=values), before[3]))
        return estimate.widths, learnt.shift[:, 0], after

    k, shape = model.outputs, jax.ShapeDtypeStruct
    t, key = shape((), np.int32), jax.eval_shape(lambda: jax.random.key(0))
    belief = [shape(axes, arena.dtype) for axes in ((k, points), (1, points), (1,))]
    given = (*belief, t, key, list(leaves.avals), list(numbers.avals))
    return RoundParts(
        jax.make_jaxpr(choose)(*given), jax.make_jaxpr(learn)(*given, t, shape((k,), arena.dtype)), flags[0], leaves, numbers, k
    )


class KernelInputs(NamedTuple):
    """Arrays of ``B`` trials for a kernel.

    ``numbers`` has the items of :meth:`RoundParts.start`.
    """

    means: Array  # [B or 1, k, M]
    noise: Array  # [B, T, k]
    numbers: Array  # [B, 3 + n + c] float32
    root: Array  # [B, r, r]
    shift: Array  # [B, k, M]
    variance: Array  # [B, M]


class KernelOutputs(NamedTuple, Generic[S]):
    """Rounds ``[T, ...]`` of a kernel, and the state after them.

    Attributes:
      indices: ``[T]`` int32, ``M`` if a score is NaN.
      bits: ``[T]`` int32 status bits of the choices.
      widths: ``[T, k]``.
      before, after: states before and after each round; of the posterior they have only the gain.
      last: state after the last round.
    """

    indices: Array
    bits: Array
    widths: Array
    before: S
    after: S
    last: S


def play(
    plan: FusedKernel, algorithm: Algorithm[S], arena: Arena, state: S, means: Array, noise: Array, first: Array | int
) -> KernelOutputs[S]:
    """Run the rounds from ``first`` on of a trial by one kernel.

    One call runs all trials of a batch. ``noise [T, k]`` is added to the functions' ``means [k, M]`` at the chosen point.
    """
    # Other algorithms have no kernel.
    assert isinstance(algorithm, Scored)
    (before, others, joined), model = parted(state), arena.surrogate.model
    parts, [form] = round_parts(algorithm, arena, state), model.forms
    constants = jax.tree.leaves((algorithm, arena.horizon, model.prior_mean))
    flat = [first, model.noise_variance, before.gain, *others, *constants]
    numbers = jnp.concatenate([jnp.ravel(jnp.asarray(x)).astype(np.float32) for x in flat])
    given = KernelInputs(means, noise, numbers, before.factors[0], before.shift, before.variance[0])
    # This loads the compilers of kernels of one platform.
    module = importlib.import_module(f"jaxbandit.fused.{plan.platform}")
    run = module.run_on_gpu if plan.platform == "gpu" else module.run_on_tpu

    @custom_vmap
    def kernel(form: Any, given: KernelInputs) -> list[Array]:
        return jax.tree.map(lambda x: x[0], run(plan, parts, form, arena.size, jax.tree.map(lambda x: x[None], given)))

    @kernel.def_vmap
    def _(trials: int, batched: tuple[Any, KernelInputs], form: Any, given: KernelInputs) -> tuple[Any, Any]:
        if any(jax.tree.leaves(batched[0])):
            raise InvalidArgument("fused: models that run side by side must share their features; leave them to XLA by fused=False")
        arrays = [x if is_own else x[None] for x, is_own in zip(given, batched[1], strict=True)]
        arrays[1:] = [jnp.broadcast_to(x, (trials, *x.shape[1:])) for x in arrays[1:]]
        results = run(plan, parts, form, arena.size, KernelInputs(*arrays))
        return results, jax.tree.map(lambda _: True, results)

    record, root, shift, variance = kernel(form, given)
    indices, bits = record[:, 0].astype(jnp.int32), record[:, 1].astype(jnp.int32)
    widths, others_after = record[:, 3 : 3 + parts.outputs], record[:, 3 + parts.outputs :]
    after = [record[:, 2:3], *parts.leaves.arrays(others_after)]
    earlier = [jnp.concatenate([jnp.asarray(x)[None], many[:-1]]) for x, many in zip((before.gain, *others), after, strict=True)]

    def state_of(gain: Array, *others: Array) -> S:
        no_rows: Any = None
        return joined(Posterior(factors=(), shift=no_rows, variance=no_rows, gain=gain), others)

    last = replace(before, factors=(root,), shift=shift, variance=variance[None], gain=after[0][-1])
    return KernelOutputs(indices, bits, widths, state_of(*earlier), state_of(*after), joined(last, [x[-1] for x in after[1:]]))


@checked
def describe(algorithm: Algorithm, surrogate: Surrogate, feedback: Policy | None = None) -> str:
    """Return a line on an algorithm's kernel, or why XLA runs it.

    The kernel runs all rounds under ``fused=True``.

    Args:
      algorithm: an algorithm.
      surrogate: the GP model that it runs with.
      feedback: policy under which it runs with late feedback; default: feedback comes at once.

    Raises:
      InvalidArgument: on objects of other classes, and where the algorithm cannot run with the model.
    """
    try:
        return plan_of(algorithm, surrogate, None, feedback, jax.default_backend()).in_words
    except Unsupported as reason:
        return f"by XLA, because {reason}"


def plan_of(
    algorithm: Algorithm, surrogate: Surrogate, problem: AbstractProblem | None, feedback: Policy | None, platform: str
) -> FusedKernel:
    """Return the kernel of an algorithm on a platform of JAX.

    Raises :class:`Unsupported` with the reason if there is no kernel. The problem may be ``None`` if its values are means with noise, and
    the policy if feedback arrives at once.
    """
    if not isinstance(algorithm, Scored):
        raise Unsupported(f"{type(algorithm).__name__} declares no score of single points")
    if feedback is not None:
        raise Unsupported("its feedback is late")
    if isinstance(surrogate, BoxSurrogate):
        raise Unsupported("its domain is a box, and kernels play on points")
    if isinstance(surrogate.domain, Contextual):
        raise Unsupported("its domain has contexts, and kernels choose among all points")
    if float_dtype() != np.float32 or surrogate.precision != "float32":
        raise Unsupported("kernels compute in float32")
    counts = _counts(surrogate)
    if problem is not None:
        jax.eval_shape(lambda key: _check_noise(problem.sample(key)), jax.random.key(0))
    plan = FusedKernel({"cpu": "tpu", "cuda": "gpu"}.get(platform, platform), platform == "cpu", counts)
    _trace_one_round.eval_shape(plan, *canonicalise((algorithm, replace(surrogate, kernels=()))))
    return plan


# Under jit JAX stores each trace.
@partial(jax.jit, static_argnames="plan")
def _trace_one_round(plan: FusedKernel, algorithm: Scored, model: Surrogate) -> int:
    """Trace a kernel of one round, or raise :class:`Unsupported`."""
    arena = Arena(surrogate=model, horizon=jnp.int32(1))
    state = algorithm.init(arena)
    # No other axis has this length.
    points = 7919
    many = round_parts(algorithm, arena, state, points=points)
    _check_equations(many.choose, points)
    _check_equations(many.learn, None)
    play(plan, algorithm, arena, state, jnp.zeros((model.outputs, arena.size)), jnp.zeros((1, model.outputs)), 1)
    return 0


def _counts(surrogate: Surrogate) -> tuple[int, ...]:
    """Return ``FusedKernel.counts`` of a model."""
    if isinstance(surrogate, RangedSurrogate):
        raise Unsupported("its model is one of jaxbandit.ranged, whose features are computed in the run")
    form = surrogate.forms[0]
    if len(surrogate.forms) != 1 or not isinstance(form, SquareRoot):
        raise Unsupported("its outputs do not share one root of features")
    if is_traced(surrogate):
        raise Unsupported("its model is traced")
    if np.ndim(surrogate.noise_variance) == 2:
        raise Unsupported("points have different noise variances")
    if surrogate.refresh:
        raise Unsupported("its variance is computed anew after some rounds")
    if not isinstance(form, ProductFeatures) or len(form.axes) != 2:
        return ()
    first, second = np.asarray(form.columns)
    counts = np.bincount(second)
    if not np.array_equal(first[np.lexsort((first, second))], np.concatenate([np.arange(count) for count in counts])):
        # The features leave out a product before the last of an axis.
        return ()
    return tuple(counts.tolist())


def _check_noise(instance: AbstractProblem) -> int:
    if not isinstance(instance, Problem | FullInformation):
        raise Unsupported("its problem has values of another kind than means with noise")
    drawn = instance.draw(jax.random.key(0))
    noise = jax.make_jaxpr(lambda index: instance.noise.apply(drawn, index))(jnp.int32(0)).jaxpr
    if any(noise.invars[0] in equation.invars for equation in noise.eqns):
        raise Unsupported("its noise depends on the point")
    return 0


def _check_equations(closed: core.ClosedJaxpr, points: int | None) -> None:
    """Raise :class:`Unsupported` if a function draws, loops or mixes ``points``."""
    for equation in closed.jaxpr.eqns:
        name, inputs, outputs = equation.primitive.name, [x.aval for x in equation.invars], [x.aval for x in equation.outvars]
        if name in CALLS:
            _check_equations(called_by(equation), points)
            continue
        if any(jnp.issubdtype(aval.dtype, jax.dtypes.prng_key) for aval in inputs):
            raise Unsupported("it draws random numbers in every round")
        if name in ("while", "scan", "cond"):
            raise Unsupported(f"it loops or branches ({name})")
        of_points, in_outputs = any(points in aval.shape for aval in inputs), [points in aval.shape for aval in outputs]
        if (of_points and not all(in_outputs)) or (name == "iota" and any(in_outputs)):
            raise Unsupported(f"the score of a point depends on other points ({name})")
