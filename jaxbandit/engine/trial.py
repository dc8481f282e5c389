"""One trial: a scan over rounds, from a key to a trajectory."""

from __future__ import annotations

import functools
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms.base import Algorithm, Arena, Decision, Observation
from jaxbandit.core import checks
from jaxbandit.core.declare import Declared, checked, in_range
from jaxbandit.core.fields import how_many_points, points, whole
from jaxbandit.core.keys import Stream, round_key, stream_key
from jaxbandit.core.pytree import pytree, static
from jaxbandit.core.status import Status, healthy
from jaxbandit.core.types import Array, Key, Table
from jaxbandit.domains import MOST_POINTS
from jaxbandit.engine.delayed import AnyAlgorithm, Delays
from jaxbandit.engine.rounds import (
    SYMPTOMS,
    Choice,
    arena_of,
    blaming,
    check_diagnostics,
    check_instance,
    choose_point,
    design_key,
    faults,
    flags_raised,
    is_far,
    may_be_infinite,
    policy_key,
    surprises_at,
    values_come_together,
)
from jaxbandit.feedback import Feedback, Pending
from jaxbandit.fused.rounds import Plan as KernelPlan
from jaxbandit.fused.rounds import play
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
    indices: Annotated[Table, points] | None = None
    random: Annotated[int, how_many_points(0)] = static(default=0)
    counted: bool = static(default=False)

    @property
    def count(self) -> int:
        """Number of points ``n``."""
        return self.random if self.indices is None else int(np.shape(self.indices)[0])

    def _check(self, name: str, outputs: int | None) -> None:
        if self.indices is not None and self.random:
            raise checks.InvalidArgument(f"{name}.random: give either indices or how many are random, got {self.random} beside indices")

    @checked
    def points(self, key: Key, size: Annotated[int, whole(1, MOST_POINTS)]) -> Array:
        """Return the indices ``[n]`` of one trial, on a domain of ``size`` points."""
        if self.indices is not None:
            return jnp.asarray(self.indices, jnp.int32)
        self.validate("initial", points=size)
        return jax.random.choice(key, size, (self.random,), replace=False).astype(jnp.int32)


@pytree
class Setting:
    """All that stays the same from round to round of one trial, a function of the trial's key."""

    instance: AbstractProblem
    algorithm: AnyAlgorithm
    arena: Arena
    key: Array
    delays: Delays | None = None  # None for feedback at once
    joint_arrival: bool = static(default=False)  # whether the values of a point arrive together
    kernel: KernelPlan | None = static(default=None)  # that plays the rounds, None where XLA plays them
    unchecked: bool = static(
        default=False
    )  # whether a user's function set hyper-parameters in the trial, so that nobody has looked at them


Surprises: TypeAlias = tuple[Array, Array, Array]
Record: TypeAlias = dict[str, Any]
"""Arrays, or trees of such, by the names of the fields of :class:`~jaxbandit.Trajectory`."""


@pytree
class TrialState:
    """All that one trial carries from round to round; a trial goes on from it bit for bit."""

    state: object  # the algorithm's
    pending: Pending | None  # None for feedback at once
    status: Array  # [] int32
    failed_round: Array  # [] int32
    declared_round: Array  # [] int32
    surprises: Surprises  # [k] int32, values that arrive within the run, those unlikely under the prior, and impossible


def prepare(
    problem: AbstractProblem,
    algorithm: AnyAlgorithm,
    surrogate: Surrogate,
    key: Array,
    *,
    horizon: int,
    informed: Informed | None = None,
    delays: Delays | None = None,
    axis: str | None = None,
    kernel: KernelPlan | None = None,
    unchecked: bool = False,
) -> Setting:
    """Return the instance of a trial and the learner on it; ``axis`` names the batch axis of trials, if there is one."""
    with blaming(problem, "problem: {name}.sample must return an instance for a key"):
        instance = problem.sample(stream_key(key, Stream.PROBLEM))
    check_instance(instance, problem)
    if informed is not None:
        with checks.blaming("informed: must be a function of (instance, algorithm, surrogate) that JAX can trace"):
            learner = informed(instance, algorithm, surrogate)
        is_pair = isinstance(learner, tuple) and len(learner) == 2
        if not is_pair or not isinstance(learner[0], Algorithm) or not isinstance(learner[1], Surrogate):
            raise checks.InvalidArgument(f"informed: must return (algorithm, surrogate), got {checks.short(learner)}")
        algorithm, surrogate = learner
    surrogate = surrogate.factorised()  # once, before the rounds: a length-scale may be traced
    policy, capacity, joint, separate = None, 1, False, False
    if delays is not None:
        policy, capacity, joint = delays.policy, delays.capacity, values_come_together(algorithm, surrogate)
        separate = not (joint or delays.model.joint)
    return Setting(
        instance=instance,
        algorithm=algorithm,
        arena=arena_of(surrogate, horizon, policy, separate_outputs=separate, capacity=capacity, axis=axis),
        key=key,
        delays=delays,
        joint_arrival=joint,
        kernel=kernel,
        unchecked=unchecked or informed is not None,
    )


def begin(setting: Setting, initial: InitialDesign) -> tuple[TrialState, Observation]:
    """Return the state of a trial before round 1, and the observations ``[n]`` of its initial design."""
    instance, algorithm, arena = setting.instance, setting.algorithm, setting.arena
    key, dtype = stream_key(setting.key, Stream.DESIGN), arena.dtype
    points = initial.points(design_key(setting.key), arena.size)
    drawn = jax.vmap(lambda n: instance.draw(round_key(key, n)))(jnp.arange(1, initial.count + 1, dtype=jnp.int32))
    values = jax.vmap(instance.observe)(points, drawn) if initial.count else jnp.zeros((0, arena.constraints + 1), dtype)
    observations = Observation(index=points, values=values)

    def learn(state: object, seen: Observation) -> tuple[object, None]:
        return algorithm.learn(arena, state, seen), None

    with blaming(algorithm, "algorithm: {name}.init must return a state, a pytree of arrays, for an arena"):
        state = algorithm.init(arena)
        jax.tree.map(jnp.asarray, state)
        check_diagnostics(algorithm, arena, state)
    with blaming(algorithm, "algorithm: {name}.learn must return a state like the one it is given"):
        state, _ = jax.lax.scan(learn, state, observations)
    if initial.count:
        with blaming(algorithm, "algorithm: {name}.begin must return a state like the one it is given"):
            state = algorithm.begin(arena, state)
    means = jnp.asarray(instance.means)
    unless = {
        Status.NO_FEASIBLE_POINT: jnp.any(jnp.all(means[1:] <= 0, axis=0)),
        Status.NONFINITE_FEEDBACK: jnp.all(jnp.isfinite(values)),
        Status.NONFINITE_TRUTH: jnp.all(jnp.isfinite(means)),
    }
    if setting.unchecked:
        unless[Status.OUT_OF_RANGE] = jnp.asarray(in_range(algorithm))
    status = functools.reduce(jnp.bitwise_or, [jnp.where(is_so, 0, int(bit)) for bit, is_so in unless.items()])
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


class Given(NamedTuple):
    """Facts of a round that do not depend on what is chosen, all rounds together with a leading axis ``[T]``."""

    number: Array  # t, int32
    key: Array  # of the algorithm's own random numbers
    noise: Any  # as the problem draws it
    due: Array | None  # [k] rounds at whose ends values arrive, None for feedback at once
    early: Array | None  # whether a delay is negative, None for feedback at once


class Chosen(NamedTuple):
    """A chosen point and what was shown when it was chosen."""

    choice: Choice[object]
    multipliers: Array
    length_scales: Array | None


class Round:
    """One round of a trial: choose a point, observe its values, learn from what arrives, and record."""

    def __init__(self, setting: Setting, record: str) -> None:
        self.setting, self.recorded = setting, RECORDED[record]
        self.infinite = may_be_infinite(setting.algorithm.init(setting.arena))

    def __call__(self, now: TrialState, given: Given) -> tuple[TrialState, Record]:
        """Return the state of the trial after a round, and the record of the round."""
        algorithm, arena = self.setting.algorithm, self.setting.arena
        chosen = self.choose(now.state, given)
        point, pending = chosen.choice.point, now.pending
        values = self.setting.instance.observe(point, given.noise)
        observation: Observation | Feedback = Observation(index=point, values=values)
        if pending is not None and given.due is not None:
            pending = pending.push(given.number, point, values, given.due, arena.horizon)
            observation = pending.arriving(given.number, point, values, given.due)
        state = algorithm.update(arena, chosen.choice.state, observation, given.number)
        status, failed, infeasible = self.flags(now.status, state, chosen, values, given)
        after = TrialState(
            state=state,
            pending=pending,
            status=status,
            failed_round=jnp.where((now.failed_round == 0) & failed, given.number, now.failed_round),
            declared_round=jnp.where((now.declared_round == 0) & infeasible, given.number, now.declared_round),
            surprises=self.surprises(now.surprises, point, values, given.due),
        )
        return after, self.shown(chosen, values)

    def choose(self, state: object, given: Given) -> Chosen:
        """Return the algorithm's choice, with its state after that, and what it showed before."""
        algorithm, arena = self.setting.algorithm, self.setting.arena
        multipliers, length_scales = multipliers_of(algorithm, state, arena), algorithm.diagnose(state).get("length_scales")
        if algorithm.traits.sees_constraints:
            state = algorithm.reveal(arena, state, self.setting.instance.constraint_sample(given.noise), given.number)
        return Chosen(choose_point(algorithm, arena, state, given.number, given.key), multipliers, length_scales)

    def shown(self, chosen: Chosen, values: Array) -> Record:
        """Return what is kept of a round."""
        choice = chosen.choice
        named = {"indices": choice.point, "values": values, "multipliers": chosen.multipliers, "length_scales": chosen.length_scales}
        named |= {"widths": choice.decision.widths, "draws": choice.decision.draws}
        return {name: named[name] for name in self.recorded}

    def flags(self, status: Array, state: object, chosen: Chosen, values: Array, given: Given) -> tuple[Array, Array, Array]:
        """Return the trial's flags with those of the round, whether the round failed, and whether the instance was declared infeasible."""
        arena, choice = self.setting.arena, chosen.choice
        others = {Status.NONFINITE_FEEDBACK: ~_all_finite(values)}
        if given.early is not None:
            others |= {Status.NEGATIVE_DELAY: given.early}
        failures = faults(arena, choice, state, self.infinite, others, before=~healthy(status))
        failed = functools.reduce(jnp.logical_or, failures.values())
        flags = flags_raised(self.setting.algorithm, choice.decision, state)
        raised = [is_so.astype(jnp.int32) * int(bit) for bit, is_so in failures.items()]
        return functools.reduce(jnp.bitwise_or, raised, status | flags), failed, (flags & int(Status.DECLARED_INFEASIBLE)) != 0

    def surprises(self, before: Surprises, index: Array, values: Array, due: Array | None) -> Surprises:
        """Return the counts of unlikely values with those of the round that arrive within the run."""
        timely = values if due is None else jnp.where(due <= self.setting.arena.horizon, values, jnp.nan)
        far = surprises_at(self.setting.arena.surrogate.model, index, timely)
        after: Surprises = jax.tree.map(lambda count, which: count + which.astype(jnp.int32), before, far)
        return after


def advance(setting: Setting, trial: TrialState, first: Array | int, rounds: int, *, record: str) -> tuple[TrialState, Record]:
    """Play rounds ``first .. first + rounds - 1``; returns the state after them and the record of each, with rounds as leading axis."""
    numbers = jnp.asarray(first, jnp.int32) + jnp.arange(rounds, dtype=jnp.int32)
    one_round = Round(setting, record)
    due = early = None
    if setting.delays is not None:
        key = stream_key(setting.key, Stream.DELAY)
        due, early = setting.delays.draw(key, numbers, setting.arena.surrogate.outputs, joint=setting.joint_arrival)
    keys = jax.vmap(policy_key, (None, 0))(setting.key, numbers)
    noise = jax.vmap(lambda t: setting.instance.draw(round_key(stream_key(setting.key, Stream.NOISE), t)))(numbers)
    given = Given(numbers, keys, noise, due, early)
    if setting.kernel is not None:
        return _played_by_kernel(setting.kernel, setting, trial, given, one_round)
    with blaming(setting.algorithm, "algorithm: {name}.update must return a state like the one it is given"):
        trial, seen = jax.lax.scan(one_round, trial, given)
    return trial, seen | ({} if record == "indices" else {"arrivals": due})


def _played_by_kernel(kernel: KernelPlan, setting: Setting, trial: TrialState, given: Given, one_round: Round) -> tuple[TrialState, Record]:
    """Do as :func:`advance` does by a kernel, on whose choices everything else is computed for all rounds at once."""
    instance, algorithm, arena = setting.instance, setting.algorithm, setting.arena
    noise = jax.vmap(lambda drawn: instance.noise.apply(drawn, jnp.int32(0)))(given.noise)  # the same at every point
    played = play(kernel, algorithm, arena, trial.state, jnp.asarray(instance.means), noise, given.number[0])

    def of_round(before: Any, after: Any, index: Array, bits: Array, widths: Array, given: Given) -> Any:
        point = jnp.minimum(index, arena.size - 1)
        values = instance.observe(point, given.noise)
        choice = Choice(point, Decision(index=index, widths=widths, flags=bits), after)
        chosen = Chosen(choice, multipliers_of(algorithm, before, arena), algorithm.diagnose(before).get("length_scales"))
        far = surprises_at(arena.surrogate.model, point, values)
        return one_round.flags(jnp.int32(0), after, chosen, values, given), far, one_round.shown(chosen, values)

    of_rounds = jax.vmap(of_round)(played.before, played.after, played.indices, played.bits, played.widths, given)
    (status, failed, infeasible), far, seen = of_rounds

    later = given.number > jnp.where(jnp.any(failed), given.number[jnp.argmax(failed)], given.number[-1])
    status = jnp.where(later | ~healthy(trial.status), status & ~SYMPTOMS, status)

    def first(before: Array, of_rounds: Array) -> Array:
        number = given.number[jnp.argmax(of_rounds)]
        return jnp.where((before == 0) & jnp.any(of_rounds), number, before)

    return TrialState(
        state=played.last,
        pending=None,
        status=trial.status | jnp.bitwise_or.reduce(status),
        failed_round=first(trial.failed_round, failed),
        declared_round=first(trial.declared_round, infeasible),
        surprises=jax.tree.map(lambda count, which: count + jnp.sum(which, axis=0, dtype=jnp.int32), trial.surprises, far),
    ), seen | ({} if one_round.recorded == RECORDED["indices"] else {"arrivals": None})


def _all_finite(values: Array) -> Array:
    """Return whether all ``values [k]`` are finite; without a reduction, which a GPU does in a kernel of its own."""
    finite: Array = functools.reduce(jnp.logical_and, list(jnp.isfinite(values)))
    return finite


# Arrays of every round that a record keeps, by its name.
RECORDED = {
    "indices": ("indices",),
    "values": ("indices", "values"),
    "all": ("indices", "values", "multipliers", "widths", "length_scales"),
    "audit": ("indices", "values", "multipliers", "widths", "length_scales", "draws"),
}


KNOWN = ("multipliers", "flags", "length_scales", "candidates", "evaluations")  # to records, of what algorithms show


def conclude(setting: Setting, trial: TrialState) -> Record:
    """Return the quantities of a trial that has ended, by the names of :class:`~jaxbandit.Trajectory`; those that it lacks are left out."""
    lost = None if trial.pending is None else trial.pending.lost
    status = trial.status
    if setting.algorithm.traits.learns:
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
        "evaluations": shown.get("evaluations"),
        "fitted_length_scales": shown.get("length_scales"),
        "shown": {name: jnp.asarray(value) for name, value in shown.items() if name not in KNOWN} or None,
    }
    if "candidates" in shown:
        candidates = jnp.asarray(shown["candidates"])
        ended |= {
            "candidates": candidates,
            "candidate_count": jnp.sum(candidates, dtype=jnp.int32),
            "optimum_kept": candidates[optimum(setting.instance).index],
        }
    return {name: value for name, value in ended.items() if value is not None}


def multipliers_of(algorithm: AnyAlgorithm, state: object, arena: Arena) -> Array:
    """Return the penalty factors or dual variables ``[m]`` in force, zeros for an algorithm that has none."""
    shown = algorithm.diagnose(state)
    return shown["multipliers"] if "multipliers" in shown else jnp.zeros((arena.constraints,), arena.dtype)
