"""Simulation of many trials and variants in one program."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import jax
import numpy as np

from jaxbandit.algorithms.base import Algorithm
from jaxbandit.core.blocks import equal_blocks, least_block, mesh_of, place
from jaxbandit.core.checks import InvalidArgument, check_not_forked, is_traced
from jaxbandit.core.declare import Device, KeyOrSeed, checked
from jaxbandit.core.doors import setting, warn
from jaxbandit.core.fields import Rounds, Trials, choice, of_class, whole
from jaxbandit.core.keys import typed
from jaxbandit.core.pytree import float_dtype, remember, replace
from jaxbandit.core.status import Status, status_in_words
from jaxbandit.core.sweep import Sweep
from jaxbandit.delays import Delay
from jaxbandit.engine.arguments import Telling, different_devices
from jaxbandit.engine.cell import Cell
from jaxbandit.engine.programs import begin_all, play_all
from jaxbandit.engine.trial import InitialDesign, Record
from jaxbandit.feedback import Policy
from jaxbandit.host.memory import Programs, device_memory, tree_bytes
from jaxbandit.host.progress import shown
from jaxbandit.problems import AbstractProblem
from jaxbandit.results.summary import Made
from jaxbandit.results.trajectory import Trajectory
from jaxbandit.surrogates import Surrogate, arithmetic

# A device stores about this number of copies of the trials' state: before and after a part, and within a block.
COPIES_OF_CARRY = 2.5


@checked
def simulate(
    problem: AbstractProblem,
    algorithm: Annotated[Algorithm, of_class(Algorithm)] | Sweep,
    surrogate: Surrogate | Sweep,
    *,
    horizon: Rounds,
    key: KeyOrSeed,
    trials: Trials = 1,
    initial: InitialDesign | None = None,
    informed: Telling | None = None,
    delay: Delay | Sweep | None = None,
    feedback: Policy | None = None,
    capacity: Rounds | None = None,
    record: Annotated[str, choice("all", "audit", "indices")] = "all",
    block: Annotated[int, whole(1)] | None = None,
    devices: Annotated[Sequence[Device], different_devices] | None = None,
    fused: Literal["auto", True, False] = "auto",
) -> Trajectory:
    """Run ``trials`` independent trials of an algorithm on a problem.

    A new hyper-parameter value, seed or table of the same shape reuses the compiled program. Trials have common random numbers: trial ``i``
    has the same noise whatever the algorithm and the number of trials.

    Args:
      problem: a :class:`~jaxbandit.problems.Problem`, or a family with ``sample(key)`` that gives every trial its own.
      algorithm: an algorithm, or a :func:`~jaxbandit.sweep` of one.
      surrogate: the GP model, or a sweep of it; several sweeps are paired element by element.
      horizon: ``T >= 1`` rounds. A longer run on a box begins with the same rounds, see :class:`~jaxbandit.surrogates.BoxSurrogate`.
      key: a JAX PRNG key (``jax.random.key(seed)``).
      trials: number of trials, or the numbers of the trials to run (to repeat some of a larger study).
      initial: points observed before round 1; default no points.
      informed: gives the learner facts of each random instance, such as the bound ``B`` on its reward. It is a pure function of
        ``(instance, algorithm, surrogate)`` that returns the algorithm and the surrogate to run. Define it at module level: each new
        function object compiles again.
      delay: a model of feedback's delay from :mod:`jaxbandit.delays`, or a sweep of one; default the problem's own. Delays are common
        random numbers, as noise is.
      feedback: a policy of :mod:`jaxbandit.feedback` for pending values; default the algorithm's own. A run without delay ignores it.
      capacity: rounds of pending feedback in the buffer; by default enough to lose nothing, by the delays' quantile and the horizon. A
        lost value flags the trial and warns.
      record: ``"all"``; ``"indices"`` for the chosen points and flags of each trial only; ``"audit"`` also for the draws of a randomised
        strategy, which can be ``M`` numbers a round.
      block: trials run side by side on a device; by default as many as fit a CPU's cache, or half of an accelerator's memory. It changes
        results by rounding only.
      devices: devices to share the trials between; default all of JAX's default backend.
      fused: whether one kernel of :mod:`jaxbandit.fused` runs all rounds (``True``) or XLA does (``False``). On CPUs JAX's interpreter runs
        the kernel, slowly, to check results. ``"auto"`` takes the kernel where measurements found it faster: on an H100, in runs long
        enough to pay for its compilation. It changes results by rounding only.

    Returns:
      A :class:`Trajectory` with leading axes ``[trials]``, or ``[variants, trials]`` for a sweep. The call waits for its trials and warns
      of every flag that some trial has, see :class:`~jaxbandit.Status`. Under ``jit``, ``vmap`` and other transformations it does not warn.

    Raises:
      InvalidArgument: before compilation, on arguments out of range or unfit for each other, and on ``fused=True`` without a kernel.
    """
    check_not_forked()
    initial = InitialDesign() if initial is None else initial
    key, horizon = typed(key), int(horizon)
    if not is_traced((key, problem, algorithm, surrogate)):
        Programs.bound()
    late = problem.delay if delay is None else delay
    swept, variants = _variants(algorithm=algorithm, surrogate=surrogate, delay=late)
    count = len(variants) * (int(trials) if isinstance(trials, int | np.integer) else len(trials))
    _check_memory(count, horizon, problem.outputs, record)
    numbers = np.arange(trials) if isinstance(trials, int | np.integer) else np.asarray(trials)
    used = list(jax.devices() if devices is None else devices)

    with arithmetic(model.precision for _, model, _ in variants if isinstance(model, Surrogate)) as switched:
        cell = Cell.ready(problem, variants, initial, horizon=horizon, feedback=feedback, capacity=capacity, informed=informed, block=block)
        cell, (learner, _, planned) = cell.on(used[0], fused, count * horizon), cell.variants.pick(0)
        if fused is True and cell.kernel is None:
            words, leave = f"no kernel can play the rounds of {type(learner).__name__}", f"leave them to XLA by {setting('fused', False)}"
            raise InvalidArgument(f"fused: {words}, {cell.by_xla}; {leave}")
        wanted = default_block(cell, count, used) if block is None else block
        pairs, block = _padded_pairs(len(variants), numbers, wanted, 1 if block else least_block(wanted), len(used))
        cell = replace(cell, block=block)
        work = SimpleNamespace(stage="compiling")
        with shown(lambda seconds: f"simulate: {work.stage} {count:,} trials of {horizon:,} rounds of {learner.label}, {seconds:.0f} s"):
            before, seen, ended = play_all(cell, key, place(pairs, used), record=record, mesh=mesh_of(used))
            work.stage = "playing"
            if not is_traced(ended) and ended["status"].is_fully_addressable:
                jax.block_until_ready(ended["status"])
        result, shape = before | seen | ended, (swept, len(numbers)) if swept else (len(numbers),)
        result = result if shape == (len(pairs),) else _shaped(result, count, shape, used)
        played = Trajectory(**result, initial_counted=initial.counted)
    _warn_of_flags(played.status, played.lost, 0 if planned is None else planned.capacity)
    # JAX would round its own arrays in float32.
    played = jax.tree.map(np.asarray, played) if switched else played
    if is_traced((key, played.status)):
        return played
    own, tried = problem.delay if isinstance(late, Sweep) else late, _tried({"": algorithm, "model.": surrogate, "delay.": late})
    made = Made(problem, learner.label, key, numbers.tolist(), own, (learner, None if planned is None else planned.policy), tried)
    return remember(played, made=made)


def _shaped(result: Record, count: int, shape: tuple[int, ...], devices: Sequence[Device]) -> Record:
    """Return the first ``count`` pairs, with leading axes ``shape``."""
    by_program = len(devices) > 1 or devices[0].platform != "cpu" or is_traced(result)
    shaped: Record = (
        _shaped_by_program(result, count=count, shape=shape)
        if by_program
        else jax.device_put(_cut(jax.tree.map(np.asarray, result), count, shape), devices[0])
    )
    return shaped


def _cut(result: Record, count: int, shape: tuple[int, ...]) -> Record:
    cut: Record = jax.tree.map(lambda x: x[:count].reshape(shape + x.shape[1:]), result)
    return cut


# One program shapes all arrays, because several programs on arrays that devices share can wait for each other.
_shaped_by_program = jax.jit(_cut, static_argnames=("count", "shape"))


def _variants(**items: Any) -> tuple[int, list[tuple[Any, ...]]]:
    """Return the number of swept variants, or 0, and all variants."""
    sizes = {item.size for item in items.values() if isinstance(item, Sweep)}
    if len(sizes) > 1:
        raise InvalidArgument(f"{', '.join(items)}: sweeps of different sizes {sorted(sizes)}; pair them one to one")
    swept = sizes.pop() if sizes else 0
    each = (item.unstack() if isinstance(item, Sweep) else [item] * max(swept, 1) for item in items.values())
    return swept, list(zip(*each, strict=True))


def _tried(items: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the swept values of every variant by their paths."""
    swept = [
        [{start + path: value for path, value in each.items()} for each in item.tried]
        for start, item in items.items()
        if isinstance(item, Sweep)
    ]
    return [functools.reduce(operator.or_, each) for each in zip(*swept, strict=False)]


def _padded_pairs(variants: int, numbers: np.ndarray, block: int, least: int, devices: int) -> tuple[np.ndarray, int]:
    """Return pairs ``[P, 3]`` in whole blocks, and the blocks' size."""
    variant, trial = (axis.ravel() for axis in np.meshgrid(np.arange(variants), numbers, indexing="ij"))
    pairs = np.stack([variant, trial, variant + 1], axis=1).astype(np.int32)
    blocks, block = equal_blocks(len(pairs), block, devices, least)
    return np.concatenate([pairs, np.repeat(pairs[-1:], devices * blocks * block - len(pairs), axis=0)]), block


def _check_memory(trials: int, horizon: int, outputs: int, record: str) -> None:
    """Raise ``InvalidArgument`` unless results fit the memory of the machine or accelerators."""
    each_trial = 64 + horizon * (4 if record == "indices" else 4 + float_dtype().itemsize * (3 * outputs - 1))
    have = device_memory()
    if trials * each_trial > have:
        raise InvalidArgument(
            f"trials, horizon: must fit the memory of {have / 2**30:.1f} GiB, holding {have // each_trial:,} trials of {horizon:,} rounds,"
            f" got {trials:,} trials of {horizon:,} rounds, which take {trials * each_trial / 2**30:,.1f} GiB; give fewer, or run a study,"
            " which keeps its results by batch"
        )


def carried_bytes(cell: Cell) -> int:
    """Return the bytes that one trial carries from round to round."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    pairs = jax.ShapeDtypeStruct((cell.block, 3), np.int32)
    carry, _ = jax.eval_shape(lambda c, k, p: begin_all(c, k, p, mesh=None), cell, key, pairs)
    return -(-tree_bytes(carry) // cell.block)


def default_block(cell: Cell, trials: int, devices: Sequence[Device]) -> int:
    """Return the number of trials side by side on a device."""
    if devices[0].platform == "cpu":
        return cell.block
    each = COPIES_OF_CARRY * carried_bytes(replace(cell, block=2))
    # Results and the compiler's buffers get half of an accelerator's memory.
    room = int(device_memory() / 2 / len(jax.local_devices()) / each)
    return max(min(-(-trials // len(devices)), room), 1)


def _warn_of_flags(status: jax.Array, lost: jax.Array | None, capacity: int) -> None:
    """Wait for the run, and warn of each flag of ``status [...]``."""
    if is_traced(status) or not status.is_fully_addressable:
        return
    bits = np.asarray(status)
    for line in status_in_words(bits & ~int(Status.FEEDBACK_LOST)):
        warn(f"simulate: {line}")
    for line in status_in_words(bits & int(Status.FEEDBACK_LOST)):
        warn(f"simulate: {np.sum(np.asarray(lost))} values were lost by a buffer of {capacity} rounds; {line}")
