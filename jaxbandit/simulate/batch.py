"""Many trials, and many hyper-parameter values, in one compiled program. The only place that compiles."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from jaxbandit.algorithms.base import sees_samples, unwrapped
from jaxbandit.core import checks
from jaxbandit.core.keys import trial_key
from jaxbandit.core.pytree import Sweep, canonicalise, replace, unstack
from jaxbandit.delays import NoDelay
from jaxbandit.domains import Domain
from jaxbandit.simulate.delayed import Delays, plan, warn_of_loss
from jaxbandit.simulate.pairs import axis_of, mesh_of, not_alone, over_pairs, shares
from jaxbandit.simulate.trial import Informed, InitialDesign, Trajectory, run_trial
from jaxbandit.surrogates import Surrogate

Array = jax.Array
RECORDS = ("all", "audit", "indices")


def simulate(
    problem: Any,
    algorithm: Any,
    surrogate: Surrogate | Sweep,
    *,
    horizon: int,
    key: Array,
    trials: int | Sequence[int] = 1,
    initial: InitialDesign | None = None,
    informed: Informed | None = None,
    delay: Any = None,
    feedback: Any = None,
    capacity: int | None = None,
    record: str = "all",
    block: int | None = None,
    devices: Sequence[jax.Device] | None = None,
) -> Trajectory:
    """Run an algorithm on a problem: ``trials`` independent trials of ``horizon`` rounds, compiled once.

    A new hyper-parameter value, seed or table of the same shape reuses the compiled program. Trials use common random numbers:
    trial ``i`` sees the same noise stream whatever the algorithm, and however many trials run beside it.

    Args:
      problem: a :class:`~jaxbandit.problems.Problem`, or a family with ``sample(key)`` that gives every trial its own.
      algorithm: an algorithm, or a :func:`~jaxbandit.sweep` of one.
      surrogate: the GP model, or a sweep of it; several sweeps are paired element by element.
      horizon: ``T >= 1`` rounds.
      key: a JAX PRNG key (``jax.random.key(seed)``).
      trials: how many, or the numbers of the trials to run (to repeat some of a larger study).
      initial: points observed before round 1; default none.
      informed: for what a learner is told of each random instance, such as the bound ``B`` on its reward: a pure function of
        ``(instance, algorithm, surrogate)`` that gives the algorithm and the surrogate to run. Name it at module level: a new function
        object is a new compilation.
      delay: how late feedback comes, a model of :mod:`jaxbandit.delays` or a sweep of one; default: the problem's own. Delays are
        common random numbers, as noise is.
      feedback: what the learner does meanwhile, a policy of :mod:`jaxbandit.feedback`; default: the algorithm's own, which is to wait
        unless it says otherwise. Without delay no policy is needed, and none is used.
      capacity: rounds of pending feedback that are kept; default: as many as lose nothing, by the delays' quantile and the horizon.
        What is lost flags the trial and warns.
      record: ``"all"``; ``"indices"`` to keep only the chosen points and flags of each trial; ``"audit"`` to keep also what a
        randomised strategy drew, which can be ``M`` numbers a round.
      block: trials run side by side on a device; default: what fits a CPU's cache, or all of them on an accelerator. It changes
        results by rounding only.
      devices: devices to share the trials between; default all of JAX's default backend.

    Returns:
      A :class:`Trajectory` with leading axes ``[trials]``, or ``[variants, trials]`` for a sweep.

    Raises:
      InvalidArgument: before anything compiles, on any argument out of range or any two that do not fit each other.
    """
    initial = InitialDesign() if initial is None else initial
    horizon = checks.integer("horizon", horizon, least=1)
    numbers = _trial_numbers(trials)
    delay = getattr(problem, "delay", NoDelay()) if delay is None else delay
    variants = check(problem, algorithm, surrogate, delay, horizon, initial, record)
    delays, algorithm = plan(problem.outputs, algorithm, delay, feedback, capacity, horizon)
    if block is not None:
        checks.integer("block", block, least=1)
    used = list(jax.devices() if devices is None else devices)
    if not used:
        raise checks.InvalidArgument("devices: the list is empty; give at least one, or None for all")
    least = 1
    if block is None:
        model = surrogate.stacked if isinstance(surrogate, Sweep) else surrogate
        block = model.trials_per_block if used[0].platform == "cpu" else len(numbers) * (variants or 1)
        least = not_alone(block)

    pairs = np.stack(np.meshgrid(np.arange(variants or 1), numbers, indexing="ij"), axis=-1).reshape(-1, 2).astype(np.int32)
    padded, block = _pad(pairs, block, least, len(used))
    result = _run(
        *canonicalise((problem, algorithm, surrogate, initial, delays)),
        key,
        padded,
        horizon=horizon,
        record=record,
        informed=informed,
        block=block,
        mesh=mesh_of(used),
    )
    if delays is not None:
        warn_of_loss(result.lost, delays.capacity, horizon)
    shape = (variants, len(numbers)) if variants else (len(numbers),)
    return _shaped(result, count=len(pairs), shape=shape)


@partial(jax.jit, static_argnames=("count", "shape"))
def _shaped(result: Trajectory, *, count: int, shape: tuple[int, ...]) -> Trajectory:
    """The first ``count`` pairs, with leading axes ``shape``. One program: many small ones on shared arrays can wait for each other."""
    return jax.tree.map(lambda x: x[:count].reshape(shape + x.shape[1:]), result)


@partial(jax.jit, static_argnames=("horizon", "record", "informed", "block", "mesh"))
def _run(
    problem: Any,
    algorithm: Any,
    surrogate: Any,
    initial: InitialDesign,
    delays: Delays | None,
    key: Array,
    pairs: Array,
    *,
    horizon: int,
    record: str,
    informed: Informed | None,
    block: int,
    mesh: Mesh | None,
) -> Trajectory:
    """Every ``(variant, trial)`` of ``pairs [P, 2]``, in blocks, spread over the mesh."""

    def variant(item: Any, number: Array) -> Any:
        return jax.tree.map(lambda x: x[number], item.stacked) if isinstance(item, Sweep) else item

    def one(shared: Any, pair: Array) -> Trajectory:
        problem, algorithm, surrogate, initial, delays, key = shared
        late = None if delays is None else replace(delays, model=variant(delays.model, pair[0]))
        return run_trial(
            problem,
            variant(algorithm, pair[0]),
            variant(surrogate, pair[0]),
            initial,
            trial_key(key, pair[1]),
            horizon=horizon,
            record=record,
            informed=informed,
            delays=late,
            axis=axis_of(block),
        )

    return over_pairs(one, (problem, algorithm, surrogate, initial, delays, key), pairs, block=block, mesh=mesh)


def _pad(pairs: np.ndarray, block: int, least: int, devices: int) -> tuple[np.ndarray, int]:
    """Repeat the last pair until devices and blocks, of ``least`` or more, divide the work, with blocks as equal as can be."""
    blocks, block = shares(len(pairs), block, devices, least)
    missing = devices * blocks * block - len(pairs)
    return np.concatenate([pairs, np.repeat(pairs[-1:], missing, axis=0)]), block


def _trial_numbers(trials: int | Sequence[int]) -> np.ndarray:
    if np.ndim(trials) == 0:
        return np.arange(checks.integer("trials", trials, least=1))
    numbers = [checks.integer("trials", n, least=0) for n in trials]  # type: ignore[union-attr]
    if not numbers:
        raise checks.InvalidArgument("trials: the list of trial numbers is empty")
    return np.asarray(numbers)


def _same_points(a: Domain, b: Domain) -> bool:
    """Whether two domains have the same points, to float32's rounding of their extent."""
    x, y = np.asarray(a.points, np.float64), np.asarray(b.points, np.float64)
    return x.shape == y.shape and bool(np.all(np.abs(x - y) <= 1e-6 * np.max(np.abs(x), initial=0.0)))


def check(problem: Any, algorithm: Any, surrogate: Any, delay: Any, horizon: int, initial: InitialDesign, record: str) -> int:
    """Check every argument and every pair that must fit; returns the number of variants, 0 when nothing is swept."""
    checks.one_of("record", record, RECORDS)
    sizes = {item.size for item in (algorithm, surrogate, delay) if isinstance(item, Sweep)}
    if len(sizes) > 1:
        raise checks.InvalidArgument(f"algorithm, surrogate, delay: sweeps of different sizes {sorted(sizes)}; pair them one to one")
    for model in unstack(surrogate) if isinstance(surrogate, Sweep) else [surrogate]:
        if not isinstance(model, Surrogate):
            raise checks.InvalidArgument(f"surrogate: expected jaxbandit.surrogate(...), got {type(model).__name__}")
        model.validate()
    if not hasattr(problem, "sample") or not hasattr(problem, "observe"):
        raise checks.InvalidArgument(f"problem: expected a problem of jaxbandit.problems, got {type(problem).__name__}")
    problem.validate()
    if problem.outputs != model.outputs:
        raise checks.InvalidArgument(
            f"surrogate: models {model.outputs} outputs, but problem {problem.name!r} has {problem.outputs}"
            f" (reward and m = {problem.constraints} constraints); build it with outputs={problem.outputs}"
        )
    if not _same_points(problem.domain, model.domain):
        raise checks.InvalidArgument(
            f"surrogate: built on other points ({model.domain.size}) than problem {problem.name!r} has"
            f" ({problem.domain.size}); build it on problem.domain"
        )
    chosen = algorithm.stacked if isinstance(algorithm, Sweep) else algorithm
    if isinstance(chosen, type) or not hasattr(chosen, "select"):
        what = f"the class {chosen.__name__}; make an instance" if isinstance(chosen, type) else type(chosen).__name__
        raise checks.InvalidArgument(f"algorithm: expected an algorithm of jaxbandit, got {what}")
    if sees_samples(chosen) and not problem.reveals_constraints:
        raise checks.InvalidArgument(
            f"problem: {type(unwrapped(chosen)).__name__} sees a noisy constraint function before it chooses, which problem"
            f" {problem.name!r} does not give; wrap it by problems.full_information"
        )
    for candidate in unstack(algorithm) if isinstance(algorithm, Sweep) else [algorithm]:
        candidate.validate(problem.constraints)
    initial.validate(problem.domain.size)
    if model.capacity is not None and horizon + initial.count > model.capacity:
        raise checks.InvalidArgument(
            f"horizon: {horizon} rounds and {initial.count} initial points, but the surrogate's row cache holds"
            f" {model.capacity}; build it with horizon={horizon + initial.count}"
        )
    return sizes.pop() if sizes else 0
