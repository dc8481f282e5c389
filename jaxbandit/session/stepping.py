"""Rounds of a real experiment: the functions of :mod:`jaxbandit.engine.rounds`, compiled once for each shape, on feedback that users tell.

A round begins when a point is asked for and ends when the next one is. What is told in between arrives at its end, so that a session which
is told what a simulation observes, when it observes it, makes the same choices.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms.base import Algorithm, Arena, Observation
from jaxbandit.core.keys import trial_key
from jaxbandit.core.pytree import as_argument, canonicalise, pytree, static
from jaxbandit.core.status import Status
from jaxbandit.core.types import Array, Key
from jaxbandit.engine import InitialDesign
from jaxbandit.engine.rounds import (
    choose_point,
    delayed_arena,
    design_key,
    faults,
    flags_raised,
    immediate_arena,
    is_far,
    may_be_infinite,
    policy_key,
    surprises,
    take_in,
    values_come_together,
)
from jaxbandit.feedback import Pending, Policy
from jaxbandit.surrogates import Prediction, Surrogate, arithmetic


@pytree
class Learner:
    """All of a session's learner that stays the same from round to round.

    Attributes:
      algorithm: the algorithm, which knows what it may of the delays.
      arena: what it sees of the world.
      root: key of the session, that of a simulation.
      trial: trial of the simulation that has its random numbers, ``[]`` (int32).
      capacity: rounds for which a value may be late; ``None`` for values that come before the next round.
      together: whether values of a point are taken in together, once all are there.
    """

    algorithm: Algorithm
    arena: Arena
    root: Array
    trial: Array | int
    capacity: int | None = static(default=None)
    together: bool = static(default=True)


def make_learner(
    algorithm: Algorithm,
    surrogate: Surrogate,
    root: Key,
    *,
    horizon: int,
    policy: Policy | None,
    capacity: int,
    joint: bool = False,
    trial: int = 0,
) -> Learner:
    """Return a learner in arrays of the engine's types.

    Args:
      algorithm: the algorithm, which knows what it may of the delays.
      surrogate: the model of the outputs.
      root: key of the session, that of a simulation.
      horizon: most rounds.
      policy: feedback policy; ``None`` for values that come before the next round.
      capacity: rounds for which a value may be late.
      joint: whether the values of a point surely arrive together.
      trial: trial of the simulation that has the session's random numbers.
    """
    algorithm, surrogate, number = (
        canonicalise(algorithm),
        canonicalise(surrogate.without_kernels()),
        as_argument(np.asarray(trial, np.int32)),
    )
    if policy is None:
        return Learner(algorithm=algorithm, arena=immediate_arena(surrogate, horizon), root=root, trial=number)
    together = values_come_together(algorithm, surrogate)
    separate = not (together or joint)
    arena = delayed_arena(surrogate, horizon, canonicalise(policy), separate_outputs=separate, capacity=capacity, axis=None)
    return Learner(algorithm=algorithm, arena=arena, root=root, trial=number, capacity=capacity, together=not separate)


class Asked(NamedTuple):
    """The choice of a round, on the host."""

    round: int
    point: int
    status: Status


@jax.jit
def _start(learner: Learner) -> tuple[Any, Pending | None]:
    """Return the algorithm's state and the buffer of pending feedback before any observation."""
    arena, pending = learner.arena, None
    if learner.capacity is not None:
        pending = Pending.empty(learner.capacity, arena.surrogate.outputs, arena.dtype)
    return learner.algorithm.init(arena), pending


@jax.jit
def _learn(learner: Learner, state: Any, index: Array, values: Array) -> Any:
    """Return the state that has taken in ``values [k]`` of a point of the initial design."""
    return learner.algorithm.learn(learner.arena, state, Observation(index=index, values=values))


@jax.jit
def _begin(learner: Learner, state: Any) -> Any:
    """Return the state before round 1, once a whole initial design has been taken in."""
    return learner.algorithm.begin(learner.arena, state)


@jax.jit
def _choose(learner: Learner, state: Any, t: Array) -> tuple[Array, Any]:
    """Return the point and the status of round ``t``, ``[2]`` (int32), and the state after the choice."""
    algorithm, arena = learner.algorithm, learner.arena
    choice = choose_point(algorithm, arena, state, t, policy_key(trial_key(learner.root, learner.trial), t))
    status = flags_raised(algorithm, choice.decision, choice.state)
    for flag, raised in faults(arena, choice, choice.state, may_be_infinite(algorithm.init(arena))).items():
        status = status | jnp.where(raised, int(flag), 0)
    return jnp.stack([choice.point, status.astype(jnp.int32)]), choice.state


@jax.jit
def _end_late(learner: Learner, state: Any, pending: Pending, t: Array, index: Array, values: Array, here: Array) -> tuple[Any, Pending]:
    """Return state and buffer at the end of round ``t``, at which ``values [C, k]`` arrive where ``here [C, k]`` says so."""
    pending = pending.reserve(t, index).fill(t, values, here)
    return take_in(learner.algorithm, learner.arena, state, pending.arrived(t), t), pending


@jax.jit
def _end(learner: Learner, state: Any, t: Array, index: Array, values: Array) -> Any:
    """Return the state at the end of round ``t``, with all ``values [k]`` of its point."""
    return take_in(learner.algorithm, learner.arena, state, Observation(index=index, values=values), t)


@jax.jit
def _predict(learner: Learner, state: Any) -> Prediction:
    """Return mean and deviation ``[k, M]`` of what has arrived."""
    return learner.arena.surrogate.arrived(learner.algorithm.belief(state))


@jax.jit
def _prior(learner: Learner) -> Any:
    """Return the posterior before any value, with a factor for each output."""
    return learner.arena.surrogate.model.separate().init()


@jax.jit
def _take_in(learner: Learner, posterior: Any, index: Array, values: Array, here: Array) -> Any:
    """Return a posterior of :func:`_prior` that has taken in ``values [k]`` of a point where ``here [k]`` says so."""
    return learner.arena.surrogate.model.separate().condition(posterior, jnp.broadcast_to(index, values.shape), values, here)


@jax.jit
def _predict_told(learner: Learner, posterior: Any) -> Prediction:
    """Return mean and deviation ``[k, M]`` of a posterior of :func:`_prior`."""
    return learner.arena.surrogate.model.separate().predict(posterior)


@dataclasses.dataclass(frozen=True)
class Rounds:
    """A learner in the course of its rounds. Methods return another one; nothing changes in place.

    Attributes:
      learner: what stays the same.
      carry: the algorithm's state after the last choice, and the buffer of pending feedback before it.
      round: the last round that was asked for, 0 before the first.
      index: its point.
      arrivals: values told since, by round and output.
      before: the carry before the last choice, where values come before the next round; else ``None``.
      open: whether the last round has not ended.
      begun: whether the initial design has been taken in.
    """

    learner: Learner
    carry: tuple[Any, Pending | None]
    round: int = 0
    index: int = 0
    arrivals: Mapping[tuple[int, int], float] = dataclasses.field(default_factory=dict)
    before: Any = None
    open: bool = False
    begun: bool = False

    @classmethod
    def start(cls, learner: Learner) -> Rounds:
        """Return the learner before any observation."""
        with _arithmetic(learner):
            return cls(learner=learner, carry=_start(learner))

    def begin(self, design: Iterable[tuple[int, Mapping[int, float]]]) -> Rounds:
        """Return the learner before round 1 that has taken in an initial design, given by points and all their values."""
        state, pending = self.carry
        points = tuple(design)
        with _arithmetic(self.learner):
            for index, values in points:
                state = _learn(self.learner, state, np.int32(index), self._row(values))
            state = _begin(self.learner, state) if points else state
        return dataclasses.replace(self, carry=(state, pending), begun=True)

    def ask(self) -> tuple[Rounds, Asked]:
        """Return the learner in its next round, and the choice of that."""
        state, pending = self.settled
        t = self.round + 1
        with _arithmetic(self.learner):
            chosen, after = _choose(self.learner, state, np.int32(t))
            index, status = (int(number) for number in np.asarray(chosen))
        return self._moved(state, after, pending, index), Asked(t, index, Status(status))

    def _moved(self, state: Any, after: Any, pending: Pending | None, index: int) -> Rounds:
        """Return the learner in its next round, in which it has chosen ``index`` in ``state``, which has become ``after``."""
        before = (state, pending) if self.learner.capacity is None else None
        return dataclasses.replace(
            self, carry=(after, pending), round=self.round + 1, index=index, arrivals={}, before=before, open=True, begun=True
        )

    def choose_again(self, index: int, *, choosing_matters: bool) -> Rounds:
        """Return the learner in its next round, in which it has chosen ``index`` before, whatever it would choose itself.

        Args:
          index: the point.
          choosing_matters: what :meth:`choosing_matters` says; without it nothing is computed for the choice.
        """
        state, pending = self.settled
        after = state
        if choosing_matters:
            with _arithmetic(self.learner):
                _, after = _choose(self.learner, state, np.int32(self.round + 1))
        return self._moved(state, after, pending, index)

    def choosing_matters(self) -> bool:
        """Return whether a choice changes the algorithm's state; found by tracing it, once for a learner."""
        with _arithmetic(self.learner):
            graph = _choose.trace(self.learner, self.carry[0], np.int32(1)).jaxpr.jaxpr
        count = len(jax.tree.leaves(self.carry[0]))
        before = graph.invars[len(graph.invars) - 1 - count : -1]  # the learner's leaves, the state's, the round
        return any(own is not other for own, other in zip(before, graph.outvars[1:], strict=True))

    def tell(self, number: int, values: Mapping[int, float]) -> Rounds:
        """Return the learner at which ``values``, by output, of the point of round ``number`` have arrived."""
        return dataclasses.replace(self, arrivals={**self.arrivals, **{(number, output): value for output, value in values.items()}})

    def take_back(self) -> Rounds:
        """Return the learner before its last choice; only where values come before the next round."""
        return dataclasses.replace(self, carry=self.before, round=self.round - 1, arrivals={}, before=None, open=False)

    def still_fits(self, number: int) -> bool:
        """Return whether a value of round ``number`` that arrives now has a place in the buffer."""
        return self.learner.capacity is None or number > self.round - self.learner.capacity

    @property
    def complete(self) -> bool:
        """Return whether the values of the last round that the algorithm needs before the next one are there."""
        return not self.open or self.learner.capacity is not None or len(self.arrivals) == self._outputs

    @functools.cached_property
    def settled(self) -> tuple[Any, Pending | None]:
        """State and buffer at the end of the last round, were it to end now; as before it where its values are not complete."""
        state, pending = self.carry
        if not self.open:
            return self.carry
        if not self.complete:
            return self.before
        with _arithmetic(self.learner):
            t, index = np.int32(self.round), np.int32(self.index)
            if pending is None:
                row = self._row({output: value for (_, output), value in self.arrivals.items()})
                return _end(self.learner, state, t, index, row), None
            return _end_late(self.learner, state, pending, t, index, *self._arriving(pending.values.shape))

    def predict(self) -> Prediction:
        """Return mean and deviation ``[k, M]`` from all that has arrived, as NumPy arrays."""
        with _arithmetic(self.learner):
            return jax.tree.map(np.asarray, _predict(self.learner, self.settled[0]))

    def predict_from(self, told: Iterable[tuple[int, Mapping[int, float]]]) -> Prediction:
        """Return mean and deviation ``[k, M]`` under the model from values told at points, by output: where an algorithm learns nothing."""
        with _arithmetic(self.learner):
            posterior = _prior(self.learner)
            for index, values in told:
                row, here = np.zeros(self._outputs, self._dtype), np.zeros(self._outputs, bool)
                row[list(values)], here[list(values)] = list(values.values()), True
                posterior = _take_in(self.learner, posterior, np.int32(index), row, here)
            return jax.tree.map(np.asarray, _predict_told(self.learner, posterior))

    def far_from_prior(self, told: Iterable[tuple[int, Mapping[int, float]]]) -> bool:
        """Return whether values told at points, by output, lie so far from the prior mean that the model calls them impossible."""
        points = list(told)
        rows = np.full((len(points), self._outputs), np.nan)
        for row, (_, values) in zip(rows, points, strict=True):
            row[list(values)] = list(values.values())
        model = self.learner.arena.surrogate.model
        groups, noise = list(model.groups), np.asarray(model.noise_variance)
        noise = noise[:, [index for index, _ in points]].T if model.noise_differs else noise
        variance = np.asarray(model.largest_variances())[groups] + noise[..., groups]
        found = surprises(rows, np.asarray(model.prior_mean), variance)
        return bool(is_far(tuple(part.sum(axis=0) for part in found)))

    @property
    def _outputs(self) -> int:
        return self.learner.arena.surrogate.outputs

    @property
    def _dtype(self) -> np.dtype:
        return self.learner.arena.dtype

    def _row(self, values: Mapping[int, float]) -> np.ndarray:
        """Return all values of a point, ``[k]``."""
        return np.asarray([values[output] for output in range(self._outputs)], self._dtype)

    def _arriving(self, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Return the values ``[C, k]`` that arrive in this round, and where."""
        values, here = np.zeros(shape, self._dtype), np.zeros(shape, bool)
        for (number, output), value in self.arrivals.items():
            if self.still_fits(number):
                place = (number - 1) % shape[0], output
                values[place], here[place] = value, True
        return values, here


def design_points(initial: InitialDesign, key: Key, size: int) -> list[int]:
    """Return the points of an initial design, those of a simulated trial of the same key."""
    return [int(index) for index in np.asarray(initial.points(design_key(key), size))]


def _arithmetic(learner: Learner) -> Any:
    """Return the context in which a learner's model has its precision."""
    return arithmetic([learner.arena.surrogate.model.precision])


def initial_shapes(learner: Learner) -> Any:
    """Return the shapes and types of a learner's carry, which stay the same from round to round."""
    with _arithmetic(learner):
        return jax.eval_shape(_start, learner)
