"""One trial: a scan over rounds, from a key to a trajectory."""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms.base import Arena, Observation, sees_samples, unwrapped
from jaxbandit.core import checks
from jaxbandit.core.keys import Stream, round_key, stream_key
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.core.status import Status
from jaxbandit.feedback import Pending
from jaxbandit.simulate.delayed import Delays
from jaxbandit.surrogates import Surrogate

Array = jax.Array


class Informed(Protocol):
    """What a study tells the learner of each instance, such as the bound ``B`` on its reward."""

    def __call__(self, instance: Any, algorithm: Any, surrogate: Surrogate) -> tuple[Any, Surrogate]:
        """The algorithm and the surrogate to run on ``instance``; pure."""
        ...


@pytree
class InitialDesign:
    """Points observed before round 1. They condition the surrogate; penalties and dual variables start with round 1.

    Attributes:
      indices: ``[n]`` given points, or ``None`` for random ones.
      random: how many distinct points to draw uniformly in each trial, when ``indices`` is ``None``.
      counted: whether metrics include these observations, as the first ``n`` of ``n + T``.
    """

    indices: Any = None
    random: int = static(default=0)
    counted: bool = static(default=False)

    @property
    def count(self) -> int:
        """``n``."""
        return self.random if self.indices is None else int(np.shape(self.indices)[0])

    def points(self, key: Array, size: int) -> Array:
        """The indices ``[n]`` of one trial."""
        if self.indices is not None:
            return jnp.asarray(self.indices, jnp.int32)
        return jax.random.choice(key, size, (self.random,), replace=False).astype(jnp.int32)

    def validate(self, size: int) -> None:
        """Raise ``InvalidArgument`` on points outside a domain of ``size`` points, or more random points than it has."""
        if self.indices is None:
            checks.integer("initial.random", self.random, least=0)
            if self.random > size:
                raise checks.InvalidArgument(f"initial.random: {self.random} distinct points asked of a domain of {size}")
            return
        given = np.asarray(self.indices)
        if given.ndim != 1 or (given.size and not np.issubdtype(given.dtype, np.integer)):
            raise checks.InvalidArgument(f"initial.indices: expected a list of point numbers, got {self.indices!r}")
        if np.any((given < 0) | (given >= size)):
            raise checks.InvalidArgument(f"initial.indices: must lie in [0, {size - 1}], got {given.tolist()}")


@pytree
class Trajectory:
    """What happened in one trial, or in many with leading axes ``[trials]`` or ``[variants, trials]``.

    Rounds are counted from 1; arrays hold round ``t`` at ``t - 1``. With ``record="indices"`` the optional fields are ``None``.
    """

    indices: Array  # [T] int32, the points chosen
    status: Array  # [] int32, bits of core.status.Status
    failed_round: Array  # [] int32, first round with a failure flag, 0 for none
    declared_round: Array  # [] int32, first round in which infeasibility was declared, 0 for none
    information_gain: Array  # [G] realised, at the end, per group of outputs
    initial_indices: Array  # [n] int32
    initial_values: Array  # [n, 1 + m]
    values: Any = None  # [T, 1 + m] noisy rewards and costs
    multipliers: Any = None  # [T + 1, m] in force at rounds 1..T+1, zero for algorithms without
    widths: Any = None  # [T, 1 + m] beta_t
    draws: Any = None  # [T, 1 + m] or [T, 1 + m, M] what a randomised strategy drew; with record="audit" only
    arrivals: Any = None  # [T, 1 + m] int32, round at whose end each value arrives (see delays.NEVER); with delayed feedback only
    lost: Any = None  # [1 + m] int32, values that the buffer had no place for; with delayed feedback only
    candidates: Any = None  # [M] bool, points not struck out by the end; of algorithms that eliminate only
    initial_counted: bool = static(default=False)

    @property
    def scored_indices(self) -> Array:
        """The points that metrics count: the rounds', after the initial design's where the study counts it."""
        return jnp.concatenate([self.initial_indices, self.indices], axis=-1) if self.initial_counted else self.indices


@pytree
class Setting:
    """What one trial is played in: all that stays as it is from round to round, a function of the trial's key."""

    instance: Any  # the problem
    algorithm: Any
    arena: Arena
    key: Array
    delays: Any = None  # simulate.delayed.Delays, or None for feedback at once
    whole: bool = static(default=False)  # whether the values of a point arrive together


@pytree
class Progress:
    """What one trial carries from round to round; a trial goes on from it bit for bit."""

    state: Any  # the algorithm's
    pending: Any  # feedback.Pending, or None for feedback at once
    status: Array  # [] int32
    failed_round: Array  # [] int32
    declared_round: Array  # [] int32


def prepare(
    problem: Any,
    algorithm: Any,
    surrogate: Surrogate,
    key: Array,
    *,
    horizon: int,
    informed: Informed | None = None,
    delays: Delays | None = None,
    axis: str | None = None,
) -> Setting:
    """The instance of a trial and the learner on it; ``axis`` names the batch axis of trials, if there is one."""
    instance = problem.sample(stream_key(key, Stream.PROBLEM))
    if informed is not None:
        algorithm, surrogate = informed(instance, algorithm, surrogate)
    whole = False
    if delays is not None:
        whole = surrogate.outputs == 1 or getattr(unwrapped(algorithm), "whole_observations", False)
        surrogate = delays.policy.bind(surrogate, apart=not (whole or delays.together), capacity=delays.capacity, axis=axis)
    arena = Arena(surrogate=surrogate, horizon=jnp.int32(horizon))
    return Setting(instance=instance, algorithm=algorithm, arena=arena, key=key, delays=delays, whole=whole)


def begin(setting: Setting, initial: InitialDesign) -> tuple[Progress, Observation]:
    """What a trial carries before round 1, and the observations ``[n]`` of the initial design."""
    state, status, before = _start(setting.instance, setting.algorithm, setting.arena, initial, stream_key(setting.key, Stream.DESIGN))
    pending = None
    if setting.delays is not None:
        pending = Pending.empty(setting.delays.capacity, setting.arena.surrogate.outputs, state.posterior.mean.dtype)
    zero = jnp.int32(0)
    return Progress(state=state, pending=pending, status=status, failed_round=zero, declared_round=zero), before


def advance(setting: Setting, progress: Progress, first: Array | int, rounds: int, *, record: str) -> tuple[Progress, dict[str, Any]]:
    """Play rounds ``first .. first + rounds - 1``; what was seen in each has them as leading axis."""
    numbers = jnp.asarray(first, jnp.int32) + jnp.arange(rounds, dtype=jnp.int32)
    instance, algorithm, arena = setting.instance, setting.algorithm, setting.arena
    due: Any = None
    if setting.delays is not None:
        key = stream_key(setting.key, Stream.DELAY)
        due = setting.delays.draw(key, numbers, arena.surrogate.outputs, whole=setting.whole)
    policy_keys = jax.vmap(round_key, (None, 0))(stream_key(setting.key, Stream.POLICY), numbers)
    noise = jax.vmap(lambda t: instance.draw(round_key(stream_key(setting.key, Stream.NOISE), t)))(numbers)
    size = arena.surrogate.domain.size

    def one_round(now: Progress, given: tuple[Array, Array, Any, Any]) -> tuple[Progress, dict[str, Any]]:
        t, policy_key, drawn, arrives = given
        state, pending = now.state, now.pending
        multipliers = multipliers_of(state, arena)
        if sees_samples(algorithm):
            state = algorithm.reveal(arena, state, instance.constraint_sample(drawn), t)
        decision, state = algorithm.select(arena, state, t, policy_key)
        index = jnp.minimum(decision.index, size - 1)  # the size itself marks a NaN score
        values = instance.observe(index, drawn)
        observation: Any = Observation(index=index, values=values)
        if pending is not None:
            pending = pending.push(t, index, values, arrives, arena.horizon)
            observation = pending.arriving(t, index, values, arrives)
        state = algorithm.update(arena, state, observation, t)

        nan_score, nan_feedback = decision.index >= size, ~jnp.all(jnp.isfinite(values))
        flags = jnp.asarray(decision.flags, jnp.int32) | getattr(getattr(state, "inner", state), "flags", jnp.int32(0))
        infeasible = (flags & int(Status.DECLARED_INFEASIBLE)) != 0
        seen: dict[str, Any] = {"indices": index}
        if record != "indices":
            seen |= {"values": values, "multipliers": multipliers, "widths": decision.widths}
        if record == "audit":
            seen["draws"] = decision.draws
        after = Progress(
            state=state,
            pending=pending,
            status=now.status
            | flags
            | jnp.where(nan_score, int(Status.NONFINITE_SCORE), 0)
            | jnp.where(nan_feedback, int(Status.NONFINITE_FEEDBACK), 0),
            failed_round=jnp.where((now.failed_round == 0) & (nan_score | nan_feedback), t, now.failed_round),
            declared_round=jnp.where((now.declared_round == 0) & infeasible, t, now.declared_round),
        )
        return after, seen

    progress, seen = jax.lax.scan(one_round, progress, (numbers, policy_keys, noise, due))
    return progress, seen | ({} if record == "indices" else {"arrivals": due})


def outcome(progress: Progress) -> dict[str, Any]:
    """What is known of a trial when it ends, by the names of :class:`Trajectory`."""
    lost = None if progress.pending is None else progress.pending.lost
    status = progress.status
    if lost is not None:
        status = status | jnp.where(jnp.any(lost > 0), int(Status.FEEDBACK_LOST), 0)
    return {
        "status": status,
        "failed_round": progress.failed_round,
        "declared_round": progress.declared_round,
        "information_gain": progress.state.posterior.gain,
        "lost": lost,
        "candidates": getattr(getattr(progress.state, "inner", progress.state), "alive", None),
    }


def run_trial(
    problem: Any,
    algorithm: Any,
    surrogate: Surrogate,
    initial: InitialDesign,
    key: Array,
    *,
    horizon: int,
    record: str,
    informed: Informed | None = None,
    delays: Delays | None = None,
    axis: str | None = None,
) -> Trajectory:
    """Run one trial of ``horizon`` rounds; pure, to be batched by ``vmap`` (over ``axis``, if it has a name) and compiled by the caller."""
    setting = prepare(problem, algorithm, surrogate, key, horizon=horizon, informed=informed, delays=delays, axis=axis)
    progress, before = begin(setting, initial)
    progress, seen = advance(setting, progress, 1, horizon, record=record)
    ended = outcome(progress)
    if record == "indices":
        ended["candidates"] = None
    else:
        seen["multipliers"] = jnp.concatenate([seen["multipliers"], multipliers_of(progress.state, setting.arena)[None]])
    return Trajectory(**seen, **ended, initial_indices=before.index, initial_values=before.values, initial_counted=initial.counted)


def multipliers_of(state: Any, arena: Arena) -> Array:
    """The state's penalty factors or dual variables ``[m]``, zeros for an algorithm that has none."""
    state = getattr(state, "inner", state)  # a wrapper's own are those of what it wraps
    return getattr(state, "multipliers", jnp.zeros((arena.constraints,), state.posterior.mean.dtype))


def with_posterior(state: Any, posterior: Any) -> Any:
    """The state with its posterior replaced, inside a wrapper's too."""
    if hasattr(state, "inner"):
        return replace(state, inner=with_posterior(state.inner, posterior))
    return replace(state, posterior=posterior)


def _start(problem: Any, algorithm: Any, arena: Arena, initial: InitialDesign, key: Array) -> tuple[Any, Array, Observation]:
    """The state after the initial design, the status so far, and the observations ``[n]`` made."""
    state = algorithm.init(arena)
    dtype = state.posterior.mean.dtype
    points = initial.points(round_key(key, 0), arena.surrogate.domain.size)
    drawn = jax.vmap(lambda n: problem.draw(round_key(key, n)))(jnp.arange(1, initial.count + 1, dtype=jnp.int32))
    values = jax.vmap(problem.observe)(points, drawn) if initial.count else jnp.zeros((0, arena.constraints + 1), dtype)

    inner = unwrapped(algorithm)

    def learn(posterior: Any, seen: Observation) -> tuple[Any, None]:
        if hasattr(inner, "learn"):
            return inner.learn(arena, posterior, seen), None
        return arena.learn(posterior, seen), None

    observations = Observation(index=points, values=values)
    posterior, _ = jax.lax.scan(learn, state.posterior, observations)
    feasible = jnp.any(jnp.all(jnp.asarray(problem.means)[1:] <= 0, axis=0))
    status = jnp.where(feasible, 0, int(Status.NO_FEASIBLE_POINT)) | jnp.where(
        jnp.all(jnp.isfinite(values)), 0, int(Status.NONFINITE_FEEDBACK)
    )
    return with_posterior(state, posterior), status.astype(jnp.int32), observations
