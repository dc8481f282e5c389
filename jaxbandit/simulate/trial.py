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
    initial_counted: bool = static(default=False)

    @property
    def scored_indices(self) -> Array:
        """The points that metrics count: the rounds', after the initial design's where the study counts it."""
        return jnp.concatenate([self.initial_indices, self.indices], axis=-1) if self.initial_counted else self.indices


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
    instance = problem.sample(stream_key(key, Stream.PROBLEM))
    if informed is not None:
        algorithm, surrogate = informed(instance, algorithm, surrogate)
    rounds = jnp.arange(1, horizon + 1, dtype=jnp.int32)
    outputs = surrogate.outputs
    due: Any = None
    pending: Any = None
    if delays is not None:
        whole = outputs == 1 or getattr(unwrapped(algorithm), "whole_observations", False)
        due = delays.draw(stream_key(key, Stream.DELAY), rounds, outputs, whole=whole)
        surrogate = delays.policy.bind(surrogate, apart=not (whole or delays.together), axis=axis)
    arena = Arena(surrogate=surrogate, horizon=jnp.int32(horizon))
    policy_keys = jax.vmap(round_key, (None, 0))(stream_key(key, Stream.POLICY), rounds)
    noise = jax.vmap(lambda t: instance.draw(round_key(stream_key(key, Stream.NOISE), t)))(rounds)
    state, status, before = _start(instance, algorithm, arena, initial, stream_key(key, Stream.DESIGN))
    if delays is not None:
        pending = Pending.empty(delays.capacity, outputs, state.posterior.mean.dtype)
    size = arena.surrogate.domain.size

    def one_round(carry: tuple[Any, ...], given: tuple[Array, Array, Any, Any]) -> tuple[Any, dict[str, Array]]:
        state, pending, status, failed, declared = carry
        t, policy_key, drawn, arrives = given
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
        status = (
            status
            | flags
            | jnp.where(nan_score, int(Status.NONFINITE_SCORE), 0)
            | jnp.where(nan_feedback, int(Status.NONFINITE_FEEDBACK), 0)
        )
        failed = jnp.where((failed == 0) & (nan_score | nan_feedback), t, failed)
        declared = jnp.where((declared == 0) & infeasible, t, declared)
        seen: dict[str, Any] = {"indices": index}
        if record != "indices":
            seen |= {"values": values, "multipliers": multipliers, "widths": decision.widths}
        if record == "audit":
            seen["draws"] = decision.draws
        return (state, pending, status, failed, declared), seen

    zero = jnp.int32(0)
    given = (rounds, policy_keys, noise, due)
    (state, pending, status, failed, declared), seen = jax.lax.scan(one_round, (state, pending, status, zero, zero), given)
    if record != "indices":
        seen["multipliers"] = jnp.concatenate([seen["multipliers"], multipliers_of(state, arena)[None]])
        seen["arrivals"] = due
    if pending is not None:
        status = status | jnp.where(jnp.any(pending.lost > 0), int(Status.FEEDBACK_LOST), 0)
        seen["lost"] = pending.lost
    return Trajectory(
        **seen,
        status=status,
        failed_round=failed,
        declared_round=declared,
        information_gain=state.posterior.gain,
        initial_indices=before.index,
        initial_values=before.values,
        initial_counted=initial.counted,
    )


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
