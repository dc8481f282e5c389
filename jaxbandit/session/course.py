"""The learner of a session: the rounds of :mod:`jaxbandit.engine.rounds`, compiled once for each shape, on values that users tell.

A round begins when a point is asked for and ends when the next one is. What is told in between arrives at its end, so that a session which
is told what a simulation observes, when it observes it, makes the same choices.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit._version import __version__
from jaxbandit.algorithms.base import Observation
from jaxbandit.core.status import Status
from jaxbandit.core.types import Array
from jaxbandit.engine.rounds import choose_point, faults, flags_raised, is_far, may_be_infinite, policy_key, surprises
from jaxbandit.engine.trial import Setting
from jaxbandit.feedback import Pending
from jaxbandit.surrogates import Posterior, Prediction, arithmetic

MAKER = f"jaxbandit {__version__}, jax {jax.__version__}"
"""Programs that write a snapshot and may read it again; others replay the events."""

Carry: TypeAlias = tuple[object, Pending | None]
"""The algorithm's state and the buffer of pending feedback, ``None`` where values come before the next round."""

Told: TypeAlias = tuple[int, Mapping[int, float]]
"""A point, and values of modelled functions there by number."""


@jax.jit
def _start(setting: Setting) -> Carry:
    """Return state and buffer before any observation."""
    arena, delays = setting.arena, setting.delays
    pending = None if delays is None else Pending.empty(delays.capacity, arena.surrogate.outputs, arena.dtype)
    return setting.algorithm.init(arena), pending


@jax.jit
def _learn(setting: Setting, state: object, index: Array, values: Array) -> object:
    """Return the state that has taken in ``values [k]`` of a point of the initial design."""
    return setting.algorithm.learn(setting.arena, state, Observation(index=index, values=values))


@jax.jit
def _begin(setting: Setting, state: object) -> object:
    """Return the state before round 1, once an initial design has been taken in."""
    return setting.algorithm.begin(setting.arena, state)


@jax.jit
def _choose(setting: Setting, state: object, t: Array) -> tuple[Array, object]:
    """Return the point and the status of round ``t``, ``[2]`` (int32), and the state after the choice."""
    algorithm, arena = setting.algorithm, setting.arena
    choice = choose_point(algorithm, arena, state, t, policy_key(setting.key, t))
    status = flags_raised(algorithm, choice.decision, choice.state)
    for flag, raised in faults(arena, choice, choice.state, may_be_infinite(algorithm.init(arena))).items():
        status = status | jnp.where(raised, int(flag), 0)
    return jnp.stack([choice.point, status.astype(jnp.int32)]), choice.state


@jax.jit
def _end(setting: Setting, state: object, t: Array, index: Array, values: Array) -> object:
    """Return the state at the end of round ``t``, with all ``values [k]`` of its point."""
    return setting.algorithm.update(setting.arena, state, Observation(index=index, values=values), t)


@jax.jit
def _end_late(setting: Setting, state: object, pending: Pending, t: Array, index: Array, values: Array, arrived: Array) -> Carry:
    """Return state and buffer at the end of round ``t``, at which ``values [C, k]`` arrive where ``arrived [C, k]`` is true."""
    pending = pending.reserve(t, index).fill(t, values, arrived)
    return setting.algorithm.update(setting.arena, state, pending.arrived(t), t), pending


@jax.jit
def _predict(setting: Setting, state: object) -> Prediction:
    """Return mean and deviation ``[k, M]`` given all that has arrived."""
    return setting.arena.surrogate.arrived(setting.algorithm.belief(state))


@jax.jit
def _condition(setting: Setting, posterior: Posterior | None, index: Array, values: Array, arrived: Array) -> Posterior:
    """Return a posterior with a factor for each output that has taken in ``values [k]`` of a point where ``arrived [k]`` is true."""
    model = setting.arena.surrogate.model.separate()
    posterior = model.init() if posterior is None else posterior
    return model.condition(posterior, jnp.broadcast_to(index, values.shape), values, arrived)


@jax.jit
def _predict_separately(setting: Setting, posterior: Posterior | None) -> Prediction:
    """Return mean and deviation ``[k, M]`` of a posterior of :func:`_condition`, or of the prior where there is none."""
    model = setting.arena.surrogate.model.separate()
    return model.predict(model.init() if posterior is None else posterior)


class Choice(NamedTuple):
    """The choice of a round, and the algorithm's state after it."""

    point: int
    status: Status
    after: object


@dataclasses.dataclass
class Round:
    """The point of a round, and the values that arrive at its end, by round and output."""

    index: int
    arrivals: dict[tuple[int, int], float] = dataclasses.field(default_factory=dict)


class Course:
    """The learner in the course of its rounds: what was asked and told, and the state to which that leads, computed when it is needed.

    Attributes:
      setting: what stays the same from round to round.
      rounds: the rounds that have begun; the last one has not ended.
      begun: whether a round has ever begun, with which the initial design is used.
      told: number of values told of each ticket.
      told: number of values told of each ticket.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting, self.begun = setting, False
        self.rounds: list[Round] = []
        self.told: Counter[int] = Counter()
        self._design: list[Told] = []
        self._carry: Carry | None = None  # at the end of round `_played`, before round 1 for 0; None before it is needed
        self._played = 0
        self._after: object = None  # the state after the choice of the last round, once that has been made
        self._now: Carry | None = None  # what `settled` has found since something happened

    def start(self) -> Carry:
        """Return state and buffer before any observation; raises what the algorithm raises where it cannot begin."""
        with self._arithmetic():
            return _start(self.setting)

    def begin(self, design: list[Told]) -> None:
        """Take in an initial design, in place of an earlier one."""
        if design != self._design:
            self._design, self._carry, self._now = design, None, None

    def choose(self) -> Choice:
        """Return the choice of the next round, which :meth:`asked` begins."""
        state, _ = self.settled()
        with self._arithmetic():
            chosen, after = _choose(self.setting, state, np.int32(len(self.rounds) + 1))
            index, status = (int(number) for number in np.asarray(chosen))
        return Choice(index, Status(status), after)

    def asked(self, index: int, after: object = None) -> None:
        """Begin the next round, whose point is ``index``; ``after`` is the state after that choice if :meth:`choose` has just made it."""
        if after is not None:
            self._carry, self._played = self._now, len(self.rounds)
        self.rounds.append(Round(index))
        self.begun, self._after, self._now = True, after, None

    def tell(self, number: int, values: Mapping[int, float]) -> None:
        """Let ``values``, by output, of the point of round ``number`` arrive."""
        self.rounds[-1].arrivals |= {(number, output): value for output, value in values.items()}
        self._now = None

    def take_back(self) -> None:
        """Go back before the last choice; only where values come before the next round."""
        self.rounds.pop()
        self._after = self._now = None

    @property
    def together(self) -> bool:
        """Return whether late values of a point are taken in together, once all are there."""
        delays = self.setting.delays
        return delays is not None and (self.setting.joint_arrival or delays.model.joint)

    @property
    def complete(self) -> bool:
        """Return whether the values of the last round that the algorithm needs before the next one are there."""
        return not self.rounds or self.setting.delays is not None or len(self.rounds[-1].arrivals) == self._outputs

    def settled(self) -> Carry:
        """Return state and buffer at the end of the last round, were it to end now; before it where its values are not complete."""
        if self._now is None:
            with self._arithmetic():
                self._carry = self._carry or self._first()
                while self._played < len(self.rounds) - 1:
                    self._carry, self._played = self._ended(self._carry), self._played + 1
                self._now = self._ended(self._carry) if self._played < len(self.rounds) and self.complete else self._carry
        return self._now

    def _first(self) -> Carry:
        """Return state and buffer before round 1."""
        state, pending = _start(self.setting)
        for index, values in self._design:
            state = _learn(self.setting, state, np.int32(index), self._row(values))
        return (_begin(self.setting, state) if self._design else state), pending

    def _ended(self, carry: Carry) -> Carry:
        """Return state and buffer at the end of the round that follows on those given."""
        (state, pending), t, ended = carry, np.int32(self._played + 1), self.rounds[self._played]
        if self._after is not None:
            state = self._after
        elif self.choosing_matters:
            state = _choose(self.setting, state, t)[1]
        if pending is None:
            row = self._row({output: value for (_, output), value in ended.arrivals.items()})
            return _end(self.setting, state, t, np.int32(ended.index), row), None
        values, arrived = np.zeros(pending.values.shape, self._dtype), np.zeros(pending.values.shape, bool)
        for (number, output), value in ended.arrivals.items():
            if number > t - len(values):  # otherwise its place in the buffer is another round's
                values[(number - 1) % len(values), output], arrived[(number - 1) % len(values), output] = value, True
        return _end_late(self.setting, state, pending, t, np.int32(ended.index), values, arrived)

    @functools.cached_property
    def choosing_matters(self) -> bool:
        """Return whether a choice changes the algorithm's state; else playing rounds again makes none, and compiles no program for it."""
        state, _ = self.start()
        with self._arithmetic():
            graph = _choose.trace(self.setting, state, np.int32(1)).jaxpr.jaxpr
        count = len(jax.tree.leaves(state))
        before = graph.invars[len(graph.invars) - 1 - count : -1]  # the setting's leaves, the state's, the round
        return any(one is not other for one, other in zip(before, graph.outvars[1:], strict=True))

    def predict(self) -> Prediction:
        """Return mean and deviation ``[k, M]`` given all that has arrived, as NumPy arrays."""
        state, _ = self.settled()
        with self._arithmetic():
            return jax.tree.map(np.asarray, _predict(self.setting, state))

    def predict_from(self, told: Iterable[Told]) -> Prediction:
        """Return mean and deviation ``[k, M]`` under the model given values told at points: where an algorithm learns nothing."""
        posterior: Posterior | None = None
        with self._arithmetic():
            for index, values in told:
                row, arrived = np.zeros(self._outputs, self._dtype), np.zeros(self._outputs, bool)
                row[list(values)], arrived[list(values)] = list(values.values()), True
                posterior = _condition(self.setting, posterior, np.int32(index), row, arrived)
            return jax.tree.map(np.asarray, _predict_separately(self.setting, posterior))

    def far_from_prior(self, told: Iterable[Told]) -> bool:
        """Return whether values told at points lie so far from the prior mean that the model calls them impossible."""
        points = list(told)
        rows = np.full((len(points), self._outputs), np.nan)
        for row, (_, values) in zip(rows, points, strict=True):
            row[list(values)] = list(values.values())
        model = self.setting.arena.surrogate.model
        groups, noise = list(model.groups), np.asarray(model.noise_variance)
        noise = noise[:, [index for index, _ in points]].T if model.noise_differs else noise
        variance = np.asarray(model.largest_variances())[groups] + noise[..., groups]
        found = surprises(rows, np.asarray(model.prior_mean), variance)
        return bool(is_far(tuple(part.sum(axis=0) for part in found)))

    def snapshot(self) -> bytes | None:
        """Return the state before the last round as bytes, ``None`` before round 1."""
        if not self.begun:
            return None
        self.settled()
        file = io.BytesIO()
        np.savez(file, *map(np.asarray, jax.tree.leaves(self._carry)), played=np.asarray(self._played))
        return file.getvalue()

    def restore(self, state: bytes) -> bool:
        """Take over a state that :meth:`snapshot` has written; return whether it is one of this learner."""
        with self._arithmetic():
            wanted, structure = jax.tree.flatten(jax.eval_shape(_start, self.setting))
        try:
            with np.load(io.BytesIO(state), allow_pickle=False) as file:
                played, leaves = int(file["played"]), [file[f"arr_{number}"] for number in range(len(file.files) - 1)]
        except Exception:  # what NumPy raises is not documented; all that a snapshot holds can be had from the events
            return False
        if [(leaf.shape, leaf.dtype) for leaf in leaves] != [(leaf.shape, leaf.dtype) for leaf in wanted]:
            return False
        self._carry, self._played = jax.tree.unflatten(structure, leaves), played
        return True

    @property
    def _outputs(self) -> int:
        return self.setting.arena.surrogate.outputs

    @property
    def _dtype(self) -> np.dtype:
        return self.setting.arena.dtype

    def _row(self, values: Mapping[int, float]) -> np.ndarray:
        """Return all values of a point, ``[k]``."""
        return np.asarray([values[output] for output in range(self._outputs)], self._dtype)

    def _arithmetic(self) -> contextlib.AbstractContextManager[bool]:
        """Return the context in which the model has its precision."""
        return arithmetic([self.setting.arena.surrogate.model.precision])
