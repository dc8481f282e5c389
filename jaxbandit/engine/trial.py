"""One trial: a scan over rounds, from a key to a trajectory."""

from __future__ import annotations

import functools
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms.base import Algorithm, Arena, Observation
from jaxbandit.core import checks
from jaxbandit.core.arguments import takes
from jaxbandit.core.declare import Declared, is_foreign
from jaxbandit.core.fields import boolean, optional, points, whole
from jaxbandit.core.fields import key as key_check
from jaxbandit.core.keys import Stream, round_key, stream_key
from jaxbandit.core.pytree import param, pytree, static
from jaxbandit.core.status import Status
from jaxbandit.core.types import Array, Table
from jaxbandit.domains import MOST_POINTS
from jaxbandit.engine.delayed import Delays
from jaxbandit.engine.rounds import (
    choose_point,
    delayed_arena,
    design_key,
    faults,
    flags_raised,
    immediate_arena,
    is_far,
    policy_key,
    start_of,
    surprises_at,
    take_in,
    values_come_together,
)
from jaxbandit.engine.users import blaming_user, check_diagnostics, check_instance, check_learner
from jaxbandit.feedback import Pending
from jaxbandit.fused.choice import Choose, choose_in_kernel, fused_arena
from jaxbandit.fused.deferred import between_rounds
from jaxbandit.problems import AbstractProblem, optimum
from jaxbandit.surrogates import Surrogate


class Informed(Protocol):
    """Function that tells the learner facts of each instance, such as the bound ``B`` on its reward."""

    def __call__(self, instance: Any, algorithm: Any, surrogate: Surrogate) -> tuple[Any, Surrogate]:
        """Return the algorithm and the surrogate to run on ``instance``; pure."""
        ...


@pytree
class InitialDesign(Declared):
    """Points observed before round 1. They condition the surrogate; penalties and dual variables start with round 1.

    Attributes:
      indices: ``[n]`` given points, or ``None`` for random ones.
      random: how many distinct points to draw uniformly in each trial, when ``indices`` is ``None``.
      counted: whether metrics count these observations, as the first ``n`` of ``n + T``.
    """

    described: ClassVar[str] = "an initial design, such as InitialDesign(random=3)"
    indices: Table | None = param(None, check=optional(points))
    random: int = static(default=0, check=whole(0))
    counted: bool = static(default=False, check=boolean)

    @property
    def count(self) -> int:
        """Number of points ``n``."""
        return self.random if self.indices is None else int(np.shape(self.indices)[0])

    @takes(key=key_check, size=whole(1, MOST_POINTS))
    def points(self, key: Array, size: int) -> Array:
        """Return the indices ``[n]`` of one trial, on a domain of ``size`` points."""
        if self.indices is not None:
            return jnp.asarray(self.indices, jnp.int32)
        self.check_size(size)
        return jax.random.choice(key, size, (self.random,), replace=False).astype(jnp.int32)

    @takes(size=whole(1, MOST_POINTS))
    def check_size(self, size: int) -> None:
        """Raise ``InvalidArgument`` on points outside a domain of ``size`` points, or more random points than it has."""
        if self.indices is None and self.random > size:
            raise checks.InvalidArgument(f"initial.random: must be at most {size}, the number of points of the domain, got {self.random}")
        if self.indices is not None and np.any(np.asarray(self.indices) >= size):
            raise checks.InvalidArgument(
                f"initial.indices: must lie in [0, {size - 1}], got {checks.short(np.asarray(self.indices).tolist())}"
            )


@pytree
class Setting:
    """All that stays the same from round to round of one trial, a function of the trial's key."""

    instance: AbstractProblem
    algorithm: Algorithm
    arena: Arena
    key: Array
    delays: Delays | None = None  # None for feedback at once
    joint_arrival: bool = static(default=False)  # whether the values of a point arrive together
    drawn: bool = static(default=False)  # whether the instance was drawn in the trial, so that nobody has looked at its means before
    fused: bool = static(default=False)  # whether choices are made by kernels of jaxbandit.fused


@pytree
class TrialState:
    """All that one trial carries from round to round; a trial goes on from it bit for bit."""

    state: Any  # the algorithm's
    pending: Pending | None  # None for feedback at once
    status: Array  # [] int32
    failed_round: Array  # [] int32
    declared_round: Array  # [] int32
    surprises: tuple[Array, Array, Array]  # [k] int32, values that arrive within the run, those unlikely under the prior, and impossible


def prepare(
    problem: AbstractProblem,
    algorithm: Algorithm,
    surrogate: Surrogate,
    key: Array,
    *,
    horizon: int,
    informed: Informed | None = None,
    delays: Delays | None = None,
    axis: str | None = None,
    fused: bool = False,
) -> Setting:
    """Return the instance of a trial and the learner on it; ``axis`` names the batch axis of trials, if there is one."""
    with blaming_user(problem, "problem: {name}.sample must return an instance for a key"):
        instance = problem.sample(stream_key(key, Stream.PROBLEM))
    drawn = problem.is_random or is_foreign(problem)
    if drawn:
        check_instance(instance, problem)
    if informed is not None:
        with checks.blaming("informed: must be a function of (instance, algorithm, surrogate) that JAX can trace"):
            algorithm, surrogate = check_learner(informed(instance, algorithm, surrogate))
    surrogate = surrogate.factorised()  # once, before the rounds: a length-scale may be traced
    if delays is None:
        arena = immediate_arena(surrogate, horizon)
        arena = fused_arena(arena) if fused else arena
        return Setting(instance=instance, algorithm=algorithm, arena=arena, key=key, drawn=drawn, fused=fused)
    joint = values_come_together(algorithm, surrogate)
    separate = not (joint or delays.model.joint)
    arena = delayed_arena(surrogate, horizon, delays.policy, separate_outputs=separate, capacity=delays.capacity, axis=axis)
    return Setting(
        instance=instance, algorithm=algorithm, arena=arena, key=key, delays=delays, joint_arrival=joint, drawn=drawn, fused=fused
    )


def begin(setting: Setting, initial: InitialDesign) -> tuple[TrialState, Observation]:
    """Return the state of a trial before round 1, and the observations ``[n]`` of its initial design."""
    instance, algorithm, arena = setting.instance, setting.algorithm, setting.arena
    key, dtype = stream_key(setting.key, Stream.DESIGN), arena.dtype
    points = initial.points(design_key(setting.key), arena.size)
    drawn = jax.vmap(lambda n: instance.draw(round_key(key, n)))(jnp.arange(1, initial.count + 1, dtype=jnp.int32))
    values = jax.vmap(instance.observe)(points, drawn) if initial.count else jnp.zeros((0, arena.constraints + 1), dtype)
    observations = Observation(index=points, values=values)

    def learn(state: Any, seen: Observation) -> tuple[Any, None]:
        return algorithm.learn(arena, state, seen), None

    with blaming_user(algorithm, "algorithm: {name}.init must return a state, a pytree of arrays, for an arena"):
        state = algorithm.init(arena)
        if is_foreign(algorithm):
            jax.tree.map(jnp.asarray, state)
            check_diagnostics(algorithm, arena, state)
    with blaming_user(algorithm, "algorithm: {name}.learn must return a state like the one it is given"):
        state, _ = jax.lax.scan(learn, state, observations)
    if initial.count:
        with blaming_user(algorithm, "algorithm: {name}.begin must return a state like the one it is given"):
            state = algorithm.begin(arena, state)
    feasible = jnp.any(jnp.all(jnp.asarray(instance.means)[1:] <= 0, axis=0))
    status = jnp.where(feasible, 0, int(Status.NO_FEASIBLE_POINT)) | jnp.where(
        jnp.all(jnp.isfinite(values)), 0, int(Status.NONFINITE_FEEDBACK)
    )
    if setting.drawn:
        status = status | jnp.where(jnp.all(jnp.isfinite(jnp.asarray(instance.means))), 0, int(Status.NONFINITE_TRUTH))
    pending = None
    if setting.delays is not None:
        pending = Pending.empty(setting.delays.capacity, arena.surrogate.outputs, dtype)
    zero = jnp.int32(0)
    far = jax.vmap(functools.partial(surprises_at, arena.surrogate.model))(points, values)
    started = TrialState(
        state=state,
        pending=pending,
        status=status.astype(jnp.int32),
        failed_round=zero,
        declared_round=zero,
        surprises=jax.tree.map(lambda which: jnp.sum(which, axis=0, dtype=jnp.int32), far),
    )
    return started, observations


def advance(setting: Setting, trial: TrialState, first: Array | int, rounds: int, *, record: str) -> tuple[TrialState, dict[str, Any]]:
    """Play rounds ``first .. first + rounds - 1``; returns the state after them and the record of each, with rounds as leading axis."""
    numbers = jnp.asarray(first, jnp.int32) + jnp.arange(rounds, dtype=jnp.int32)
    instance, algorithm, arena = setting.instance, setting.algorithm, setting.arena
    start = start_of(algorithm, arena)
    due: Any = None
    early: Any = None  # [T] whether a delay of the round is negative, where a user's model draws them
    if setting.delays is not None:
        key = stream_key(setting.key, Stream.DELAY)
        due, early = setting.delays.draw(key, numbers, arena.surrogate.outputs, joint=setting.joint_arrival)
    policy_keys = jax.vmap(policy_key, (None, 0))(setting.key, numbers)
    noise = jax.vmap(lambda t: instance.draw(round_key(stream_key(setting.key, Stream.NOISE), t)))(numbers)

    choose: Choose = choose_point
    if setting.fused:
        choose = functools.partial(choose_in_kernel, choose_point, draws="draws" in RECORDED[record])

    def one_round(now: TrialState, given: tuple[Array, Array, Any, Any, Any]) -> tuple[TrialState, dict[str, Any]]:
        t, own_key, drawn, arrives, too_early = given
        state, pending = now.state, now.pending
        multipliers, length_scales = multipliers_of(algorithm, state, arena), algorithm.diagnose(state).length_scales
        if algorithm.sees_constraints:
            state = algorithm.reveal(arena, state, instance.constraint_sample(drawn), t)
        index, decision, state = choose(algorithm, arena, state, t, own_key)
        values = instance.observe(index, drawn)
        observation: Any = Observation(index=index, values=values)
        if pending is not None:
            pending = pending.push(t, index, values, arrives, arena.horizon)
            observation = pending.arriving(t, index, values, arrives)
        state = take_in(algorithm, arena, state, observation, t)
        if setting.fused:
            state = between_rounds(arena.surrogate, state)

        failures = faults(algorithm, arena, decision, state, start) | {Status.NONFINITE_FEEDBACK: ~_all_finite(values)}
        if too_early is not None:
            failures |= {Status.NEGATIVE_DELAY: too_early}
        failed = functools.reduce(jnp.logical_or, failures.values())
        flags = flags_raised(algorithm, decision, state)
        infeasible = (flags & int(Status.DECLARED_INFEASIBLE)) != 0
        timely = values if arrives is None else jnp.where(arrives <= arena.horizon, values, jnp.nan)
        far = surprises_at(arena.surrogate.model, index, timely)
        after = TrialState(
            state=state,
            pending=pending,
            status=functools.reduce(
                jnp.bitwise_or, [jnp.where(raised, int(bit), 0) for bit, raised in failures.items()], now.status | flags
            ),
            failed_round=jnp.where((now.failed_round == 0) & failed, t, now.failed_round),
            declared_round=jnp.where((now.declared_round == 0) & infeasible, t, now.declared_round),
            surprises=jax.tree.map(lambda count, which: count + which.astype(jnp.int32), now.surprises, far),
        )
        seen = {
            "indices": index,
            "values": values,
            "multipliers": multipliers,
            "widths": decision.widths,
            "draws": decision.draws,
            "length_scales": length_scales,
        }
        return after, {name: seen[name] for name in RECORDED[record]}

    with blaming_user(algorithm, "algorithm: {name}.update must return a state like the one it is given"):
        trial, seen = jax.lax.scan(one_round, trial, (numbers, policy_keys, noise, due, early))
    return trial, seen | ({} if record == "indices" else {"arrivals": due})


def _all_finite(values: Array) -> Array:
    """Return whether all ``values [k]`` are finite; without a reduction, which a GPU does in a kernel of its own."""
    return functools.reduce(jnp.logical_and, list(jnp.isfinite(values)))


# Arrays of every round that a record keeps, by its name.
RECORDED = {
    "indices": ("indices",),
    "values": ("indices", "values"),
    "all": ("indices", "values", "multipliers", "widths", "length_scales"),
    "audit": ("indices", "values", "multipliers", "widths", "length_scales", "draws"),
}


def conclude(setting: Setting, trial: TrialState) -> dict[str, Any]:
    """Return the quantities of a trial that has ended, by the names of :class:`~jaxbandit.Trajectory`; those that it lacks are left out."""
    lost = None if trial.pending is None else trial.pending.lost
    status = trial.status
    if setting.algorithm.learns:
        status = status | jnp.where(is_far(trial.surprises), int(Status.FAR_FROM_PRIOR), 0)
    if lost is not None:
        status = status | jnp.where(jnp.any(lost > 0), int(Status.FEEDBACK_LOST), 0)
    shown = setting.algorithm.diagnose(trial.state)
    ended = {
        "status": status,
        "failed_round": trial.failed_round,
        "declared_round": trial.declared_round,
        "information_gain": setting.arena.surrogate.gain(setting.algorithm.belief(trial.state)),
        "lost": lost,
        "evaluations": shown.evaluations,
        "fitted_length_scales": shown.length_scales,
    }
    if shown.candidates is not None:
        ended |= {
            "candidates": shown.candidates,
            "candidate_count": jnp.sum(shown.candidates, dtype=jnp.int32),
            "optimum_kept": shown.candidates[optimum(setting.instance).index],
        }
    return {name: value for name, value in ended.items() if value is not None}


def multipliers_of(algorithm: Algorithm, state: Any, arena: Arena) -> Array:
    """Return the penalty factors or dual variables ``[m]`` in force, zeros for an algorithm that has none."""
    shown = algorithm.diagnose(state).multipliers
    return jnp.zeros((arena.constraints,), arena.dtype) if shown is None else shown
