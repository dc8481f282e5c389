"""One trial: a scan over rounds, from a key to a trajectory."""

from __future__ import annotations

import functools
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms.base import Algorithm, Arena, Decision, Observation, posterior_of
from jaxbandit.core import checks
from jaxbandit.core.declare import Array, Declared, Key, Table, checked, in_range
from jaxbandit.core.fields import finite_numbers, how_many_points, points, positive, whole
from jaxbandit.core.keys import Stream, round_key, stream_key
from jaxbandit.core.pytree import pytree, static
from jaxbandit.core.status import Status, healthy
from jaxbandit.delays import NEVER, Failing
from jaxbandit.domains import MOST_POINTS, Box, Contextual, Domain
from jaxbandit.domains.boxes import PartOfBox
from jaxbandit.engine import learner
from jaxbandit.engine.arguments import Delays
from jaxbandit.feedback import Feedback, Pending
from jaxbandit.fused.plan import FusedKernel, play
from jaxbandit.problems import AbstractProblem, optimum
from jaxbandit.surrogates import Surrogate


class Informed(Protocol):
    """Function that gives the learner facts of each instance."""

    def __call__(self, instance: Any, algorithm: Any, surrogate: Surrogate) -> tuple[Any, Surrogate]:
        """Return the algorithm and the surrogate for ``instance``, purely."""


@pytree
class InitialDesign(Declared):
    """Points observed before round 1, to condition only the surrogate.

    Attributes:
      indices: ``[n]`` given points, or ``None`` for random points.
      random: number of distinct points to draw in each trial when ``indices`` is ``None``: uniformly, on a box by a shifted Sobol sequence.
      counted: whether metrics count these observations, as the first ``n`` of ``n + T``.
      repeated_within: distance of the last random point from the first one, as a share of each side of a box, so that values show their
        noise. On a grid the two points are equal. Default ``None``: no point is repeated.
      values: ``[n, 1 + m]`` measured at ``indices``, the reward first. Default ``None``: each trial observes its own values there.
    """

    described: ClassVar[str] = "an initial design, such as InitialDesign(random=3)"
    indices: Annotated[Table, points] | None = None
    random: Annotated[int, how_many_points(0)] = static(default=0)
    counted: bool = static(default=False)
    repeated_within: Annotated[float, positive] | None = static(default=None)
    values: Annotated[Table, finite_numbers] | None = None

    @property
    def count(self) -> int:
        """Number of points ``n``."""
        return self.random if self.indices is None else int(np.shape(self.indices)[0])

    def _check(self, name: str, outputs: int | None) -> None:
        if self.values is not None and (self.indices is None or np.shape(self.values)[:1] != np.shape(self.indices)):
            count = 0 if self.indices is None else len(self.indices)
            raise checks.InvalidArgument(f"{name}.values: must have a row for each of {count} indices, got {list(np.shape(self.values))}")
        if self.values is not None and np.shape(self.values)[1:] != (outputs or np.shape(self.values)[-1],):
            words = f"must have a column for each of the {outputs} functions" if outputs else "must be a table [n, 1 + m]"
            raise checks.InvalidArgument(f"{name}.values: {words}, got shape {list(np.shape(self.values))}")
        if self.indices is not None and self.random:
            raise checks.InvalidArgument(f"{name}.random: give either indices or how many are random, got {self.random} beside indices")
        if self.repeated_within is not None and self.random < 2:
            raise checks.InvalidArgument(f"{name}.repeated_within: needs two random points or more, got {self.random}")
        if self.repeated_within is not None and self.repeated_within > 0.5:
            words = "must be at most half of a side, so that the point lies in the box"
            raise checks.InvalidArgument(f"{name}.repeated_within: {words}, got {self.repeated_within}")

    @checked
    def points(self, key: Key, size: Annotated[int, whole(1, MOST_POINTS)]) -> Array:
        """Return a trial's indices ``[n]`` on a domain of ``size`` points."""
        if self.indices is not None:
            return jnp.asarray(self.indices, jnp.int32)
        self.validate("initial", points=size)
        drawn = jax.random.choice(key, size, (self.random,), replace=False).astype(jnp.int32)
        return drawn.at[-1].set(drawn[0]) if self.repeated_within is not None else drawn

    def places(self, key: Key, domain: Domain) -> Array:
        """Return a trial's indices ``[n]``, or points ``[n, d]`` of a box."""
        if not isinstance(domain, Box):
            return self.points(key, domain.size)
        if self.indices is not None:
            unit: Array = domain.to_unit(jnp.asarray(domain.points)[jnp.asarray(self.indices, jnp.int32)])
            return unit
        dtype = jnp.asarray(domain.points).dtype
        shifted = domain.design(key, self.random, dtype)
        if (within := self.repeated_within) is not None:
            inwards = jnp.asarray(domain.region.middle, dtype) if isinstance(domain, PartOfBox) else 0.5
            shifted = shifted.at[-1].set(shifted[0] + jnp.where(shifted[0] < inwards, within, -within))
        snapped: Array = domain.snapped(shifted)
        return snapped


@pytree
class Setting:
    """Everything about a trial that does not change between rounds."""

    instance: AbstractProblem
    algorithm: Algorithm
    arena: Arena
    key: Array
    delays: Delays | None = None
    joint_arrival: bool = static(default=False)
    kernel: FusedKernel | None = static(default=None)
    # True if a user's function set hyper-parameters in the trial, unchecked.
    unchecked: bool = static(default=False)


Surprises: TypeAlias = tuple[Array, Array, Array]
Record: TypeAlias = dict[str, Any]


@pytree
class TrialState:
    """State of a trial between rounds, enough to continue exactly."""

    state: object
    pending: Pending | None
    status: Array  # [] int32
    failed_round: Array  # [] int32
    declared_round: Array  # [] int32
    surprises: Surprises  # [k] int32: all, unlikely, impossible


def begin(setting: Setting, initial: InitialDesign) -> tuple[TrialState, Record]:
    """Return the state before round 1, and the initial design."""
    instance, algorithm, arena = setting.instance, setting.algorithm, setting.arena
    dtype, box = arena.dtype, instance.domain if isinstance(instance.domain, Box) else None

    def learn(state: object, seen: tuple[Array, Array]) -> tuple[object, Array]:
        place, values = seen
        index, state = (place, state) if box is None else algorithm.place(arena, state, place)
        return algorithm.learn(arena, state, Observation(index=index, values=values)), index

    with learner.blaming_class(algorithm, "algorithm: {name}.init must return a state, a pytree of arrays, for an arena"):
        state = jax.tree.map(jnp.asarray, algorithm.init(arena))
        learner.check_diagnostics(algorithm, arena, state)
    if initial.count:
        key = stream_key(setting.key, Stream.DESIGN)
        places = initial.places(learner.design_key(setting.key), instance.domain)
        drawn = jax.vmap(lambda n: instance.draw(round_key(key, n)))(jnp.arange(1, initial.count + 1, dtype=jnp.int32))
        observed = jax.vmap(instance.observe)(places, drawn)
        values = observed if initial.values is None else jnp.asarray(initial.values, observed.dtype)
        with learner.blaming_class(algorithm, "algorithm: {name}.learn must return a state like the one it is given"):
            known = values
            if setting.delays is not None and isinstance(setting.delays.model, Failing):
                # NaN stands for a value that never arrives.
                due = jax.vmap(setting.delays.model.arriving)(jnp.zeros(values.shape, jnp.int32), values)
                known = jnp.where(due < NEVER, values, jnp.nan)
            state, points = jax.lax.scan(learn, state, (places, known))
        with learner.blaming_class(algorithm, "algorithm: {name}.begin must return a state like the one it is given"):
            state = algorithm.begin(arena, state)
        far = jax.vmap(functools.partial(learner.surprises_at, arena.surrogate.model))(points, known)
    else:
        points, values = jnp.zeros((0,), jnp.int32), jnp.zeros((0, arena.constraints + 1), dtype)
        places = points if box is None else jnp.zeros((0, box.dimension), dtype)
        far = (jnp.zeros(values.shape, bool),) * 3
    means = jnp.asarray(instance.means)
    raised = {
        Status.NO_FEASIBLE_POINT: ~instance.has_feasible_point(),
        Status.NONFINITE_FEEDBACK: ~jnp.all(jnp.isfinite(values)),
        Status.NONFINITE_TRUTH: ~jnp.all(jnp.isfinite(means)),
    }
    if setting.unchecked:
        raised[Status.OUT_OF_RANGE] = ~jnp.asarray(in_range(algorithm))
    started = TrialState(
        state=state,
        pending=None if setting.delays is None else Pending.empty(setting.delays.capacity, arena.surrogate.outputs, dtype),
        status=learner.with_flags(jnp.int32(0), raised),
        failed_round=jnp.int32(0),
        declared_round=jnp.int32(0),
        surprises=jax.tree.map(lambda which: jnp.sum(which, axis=0, dtype=jnp.int32), far),
    )
    record = {"initial_indices": points, "initial_values": values}
    return started, record if box is None else record | {"initial_points": box.from_unit(places)}


class Given(NamedTuple):
    """Inputs of a round that do not depend on the chosen point."""

    number: Array  # [] int32, t
    key: Array
    noise: Any
    due: Array | None  # [k] rounds of arrival
    early: Array | None  # [] bool, negative delay
    context: Array | None = None  # [] int32


class Round:
    """One round of a trial, from choice to record."""

    def __init__(self, setting: Setting, record: str) -> None:
        every = ("indices", "points", "values", "multipliers", "widths", "length_scales")
        recorded = {"indices": every[:2], "values": every[:3], "all": every, "audit": (*every, "draws")}
        self.setting, self.recorded = setting, recorded[record]
        self.infinite = learner.may_be_infinite(setting.algorithm.init(setting.arena))

    def __call__(self, now: TrialState, given: Given) -> tuple[TrialState, Record]:
        """Return the state after a round, and the round's record."""
        setting, algorithm, arena, t = self.setting, self.setting.algorithm, self.setting.arena, given.number
        shown, state, pending = self.shown(now.state), now.state, now.pending
        if algorithm.traits.sees_constraints:
            state = algorithm.reveal(arena, state, setting.instance.constraint_sample(given.noise), t)
        choice = learner.choose_point(algorithm, arena, state, t, given.key, given.context)
        point = choice.point
        drawn = values = setting.instance.observe(choice.place, given.noise)
        if (outputs := choice.decision.outputs) is not None:
            values = jnp.where(outputs, drawn, jnp.nan)
        observation: Observation | Feedback = Observation(index=point, values=values, present=outputs)
        if pending is not None and given.due is not None:
            due = self.arrivals(given.due, values)
            given = given._replace(due=due)
            pending = pending.push(t, point, values, due, arena.horizon)
            observation = pending.arriving(t, point, values, due)
        state = algorithm.update(arena, choice.state, observation, t)
        status, failed, infeasible = self.flags(now.status, state, choice, drawn, given)
        timely = values if given.due is None else jnp.where(given.due <= arena.horizon, values, jnp.nan)
        far = learner.surprises_at(arena.surrogate.model, point, timely)
        after = TrialState(
            state=state,
            pending=pending,
            status=status,
            failed_round=jnp.where((now.failed_round == 0) & failed, t, now.failed_round),
            declared_round=jnp.where((now.declared_round == 0) & infeasible, t, now.declared_round),
            surprises=jax.tree.map(lambda count, which: count + which.astype(jnp.int32), now.surprises, far),
        )
        return after, self.record(shown, choice, values)

    def arrivals(self, due: Array, values: Array) -> Array:
        """Return the rounds ``[k]`` when a point's values arrive."""
        if self.setting.algorithm.traits.decoupled:
            return jnp.where(jnp.isnan(values), NEVER, due)
        delays = self.setting.delays
        return delays.model.arriving(due, values) if delays is not None and isinstance(delays.model, Failing) else due

    def shown(self, state: object) -> Record:
        """Return the recorded diagnostics of the state before a round."""
        algorithm = self.setting.algorithm
        multipliers = multipliers_of(algorithm, state, self.setting.arena)
        return {"multipliers": multipliers, "length_scales": algorithm.diagnose(state).get("length_scales")}

    def record(self, shown: Record, choice: learner.Choice, values: Array) -> Record:
        """Return the recorded arrays of a round."""
        decision, domain = choice.decision, self.setting.instance.domain
        named = {"indices": choice.point, "values": values, "widths": decision.widths, "draws": decision.draws, **shown}
        named["points"] = domain.from_unit(decision.point) if isinstance(domain, Box) and decision.point is not None else None
        return {name: named[name] for name in self.recorded if named[name] is not None}

    def flags(self, status: Array, state: object, choice: learner.Choice, values: Array, given: Given) -> tuple[Array, Array, Array]:
        """Return the flags, whether the round failed, and whether it declared infeasibility."""
        # A GPU would run a reduction in a kernel of its own.
        others = {Status.NONFINITE_FEEDBACK: ~functools.reduce(jnp.logical_and, list(jnp.isfinite(values)))}
        if given.early is not None:
            others |= {Status.NEGATIVE_DELAY: given.early}
        failures = learner.faults(self.setting.arena, choice, state, self.infinite, others, before=~healthy(status))
        failed = functools.reduce(jnp.logical_or, failures.values())
        flags = learner.flags_raised(self.setting.algorithm, choice.decision, state)
        return learner.with_flags(status | flags, failures), failed, (flags & int(Status.DECLARED_INFEASIBLE)) != 0

    def play(self, trial: TrialState, given: Given) -> tuple[TrialState, Record]:
        """Run rounds one after the other, and return state and records."""
        with learner.blaming_class(self.setting.algorithm, "algorithm: {name}.update must return a state like the one it is given"):
            after, seen = jax.lax.scan(self, trial, given)
        return after, seen


class FusedRound(Round):
    """A round that a kernel runs together with all others."""

    def play(self, trial: TrialState, given: Given) -> tuple[TrialState, Record]:
        """Run rounds by a kernel, and compute everything else at once."""
        setting, instance, algorithm, arena = self.setting, self.setting.instance, self.setting.algorithm, self.setting.arena
        assert setting.kernel is not None
        # Kernels require noise that is the same at every point.
        noise = jax.vmap(lambda drawn: instance.noise.apply(drawn, jnp.int32(0)))(given.noise)
        played = play(setting.kernel, algorithm, arena, trial.state, jnp.asarray(instance.means), noise, given.number[0])

        def of_round(before: Any, after: Any, index: Array, bits: Array, widths: Array, given: Given) -> Any:
            point = jnp.minimum(index, arena.size - 1)
            values = instance.observe(point, given.noise)
            choice = learner.Choice(point, Decision(index=index, widths=widths, flags=bits), after)
            far, seen = learner.surprises_at(arena.surrogate.model, point, values), self.record(self.shown(before), choice, values)
            return self.flags(jnp.int32(0), after, choice, values, given), far, seen

        of_rounds = jax.vmap(of_round)(played.before, played.after, played.indices, played.bits, played.widths, given)
        (status, failed, infeasible), far, seen = of_rounds

        later = given.number > jnp.where(jnp.any(failed), given.number[jnp.argmax(failed)], given.number[-1])
        symptoms = int(Status.NEGATIVE_WIDTH | Status.NONFINITE_STATE)
        status = jnp.where(later | ~healthy(trial.status), status & ~symptoms, status)

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
        ), seen


def advance(setting: Setting, trial: TrialState, first: Array | int, count: int, *, record: str) -> tuple[TrialState, Record]:
    """Run ``count`` rounds and return state and records ``[count, ...]``."""
    numbers = jnp.asarray(first, jnp.int32) + jnp.arange(count, dtype=jnp.int32)
    rounds = (Round if setting.kernel is None else FusedRound)(setting, record)
    due = early = None
    if setting.delays is not None:
        key = stream_key(setting.key, Stream.DELAY)
        due, early = setting.delays.draw(key, numbers, setting.arena.surrogate.outputs, joint=setting.joint_arrival)
    keys = jax.vmap(learner.policy_key, (None, 0))(setting.key, numbers)
    noise = jax.vmap(lambda t: setting.instance.draw(round_key(stream_key(setting.key, Stream.NOISE), t)))(numbers)
    contexts = None
    if isinstance(domain := setting.instance.domain, Contextual):
        contexts = jax.vmap(lambda t: domain.draw(round_key(stream_key(setting.key, Stream.CONTEXT), t), t))(numbers)
    trial, seen = rounds.play(trial, Given(numbers, keys, noise, due, early, contexts))
    if due is None or record == "indices":
        return trial, seen
    return trial, seen | {"arrivals": jax.vmap(rounds.arrivals)(due, seen["values"])}


def conclude(setting: Setting, trial: TrialState, *, whole: bool = False) -> Record:
    """Return a trial's final quantities, with large arrays if ``whole``."""
    lost = None if trial.pending is None else trial.pending.lost
    raised = learner.far_from_prior(setting.algorithm, setting.arena.surrogate.model, trial.surprises)
    if lost is not None:
        raised[Status.FEEDBACK_LOST] = jnp.any(lost > 0)
    shown = setting.algorithm.diagnose(trial.state)
    further = shown.keys() - {"multipliers", "flags", "length_scales", "candidates", "evaluations"} if whole else ()
    ended = {
        "status": learner.with_flags(trial.status, raised),
        "failed_round": trial.failed_round,
        "declared_round": trial.declared_round,
        "information_gain": posterior_of(setting.algorithm.posterior(trial.state), "gain"),
        "lost": lost,
        "evaluations": shown.get("evaluations"),
        "fitted_length_scales": shown.get("length_scales"),
        "shown": {name: jnp.asarray(value) for name, value in shown.items() if name in further} or None,
    }
    if "candidates" in shown:
        candidates = jnp.asarray(shown["candidates"])
        ended |= {
            "candidates": candidates if whole else None,
            "candidate_count": jnp.sum(candidates, dtype=jnp.int32),
            "optimum_kept": candidates[optimum(setting.instance).index],
        }
    return {name: value for name, value in ended.items() if value is not None}


def multipliers_of(algorithm: Algorithm, state: object, arena: Arena) -> Array:
    """Return the penalty factors or dual variables ``[m]``, or zeros."""
    shown = algorithm.diagnose(state)
    return shown["multipliers"] if "multipliers" in shown else jnp.zeros((arena.constraints,), arena.dtype)
