"""State of a session: tickets with the values told, and the learner in its rounds, those of :mod:`jaxbandit.engine.rounds`.

A round begins when a point is asked for and ends when the next one is. What is told in between arrives at its end, so that a session which
is told what a simulation observes, when it observes it, makes the same choices.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms.base import Observation, Seen
from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.codec import from_fields
from jaxbandit.core.declare import Array
from jaxbandit.core.fields import whole
from jaxbandit.core.files import reason_of
from jaxbandit.core.pytree import replace
from jaxbandit.core.status import Status, healthy
from jaxbandit.engine.rounds import choose_point, faults, flags_raised, is_far, may_be_infinite, policy_key, surprises_at
from jaxbandit.engine.trial import Setting, Surprises
from jaxbandit.feedback import DelayedSurrogate, Pending
from jaxbandit.session.journal import JOURNAL, DamagedSession, Event, Journal
from jaxbandit.session.quantities import Standard, told_values
from jaxbandit.session.specification import Specification
from jaxbandit.study.runs import Model
from jaxbandit.surrogates import Prediction, arithmetic

ATTEMPTS = 3  # at a point that is not under way
Units: TypeAlias = tuple[np.ndarray, np.ndarray]
"""Shift and scale ``[k]`` of modelled functions, see :meth:`Outputs.units <jaxbandit.session.quantities.Outputs.units>`."""
Told: TypeAlias = tuple[int, Mapping[int, float]]
"""A point, and values of modelled functions there by number."""


class Carry(NamedTuple):
    """All that a round leaves to the next one."""

    state: object
    pending: Pending | None  # feedback on its way; None where values come before the next round
    far: Surprises  # how many values that have arrived are unlikely under the prior


@jax.jit
def _start(setting: Setting, indices: Array, values: Array, count: Array) -> Carry:
    """Return what leads to round 1, before which the first ``count`` of ``values [n, k]`` at points ``indices [n]`` are learnt."""
    algorithm, arena, delays = setting.algorithm, setting.arena, setting.delays

    def learn(row: Array, state: object) -> object:
        return algorithm.learn(arena, state, Observation(index=indices[row], values=values[row]))

    state = algorithm.init(arena)
    if len(indices):
        state = algorithm.begin(arena, jax.lax.fori_loop(0, count, learn, state))
    pending = None if delays is None else Pending.empty(delays.capacity, arena.surrogate.outputs, arena.dtype)
    return Carry(state, pending, _far(setting, indices, values))


def _far(setting: Setting, indices: Array, values: Array) -> Surprises:
    """Return how many of ``values [n, k]`` at points are unlikely, see :func:`~jaxbandit.engine.rounds.surprises_at`; NaN is not there."""
    each = jax.vmap(functools.partial(surprises_at, setting.arena.surrogate.model))(indices, values)
    counts: Surprises = jax.tree.map(lambda which: jnp.sum(which, axis=0, dtype=jnp.int32), each)
    return counts


@jax.jit
def _choose(setting: Setting, far: Surprises, t: Array, state: object, under_way: Array | None = None, attempt: Array | None = None) -> Any:
    """Return the point and the status of round ``t``, ``[2]`` (int32), and the state after the choice.

    Points ``under_way [M]`` look worst to the algorithm, which draws other random numbers at each further ``attempt``.
    """
    algorithm, arena, key = setting.algorithm, setting.arena, policy_key(setting.key, t)
    if under_way is not None and attempt is not None:
        arena, key = replace(arena, surrogate=replace(arena.surrogate, under_way=under_way)), jax.random.fold_in(key, attempt)
    choice = choose_point(algorithm, arena, state, t, key)
    raised = faults(arena, choice, choice.state, may_be_infinite(algorithm.init(arena)))
    if algorithm.traits.learns:
        raised |= {Status.FAR_FROM_PRIOR: is_far(far)}
    status = flags_raised(algorithm, choice.decision, choice.state)
    for flag, is_raised in raised.items():
        status = status | jnp.where(is_raised, int(flag), 0)
    return jnp.stack([choice.point, status.astype(jnp.int32)]), choice.state


@jax.jit
def _end(setting: Setting, carry: Carry, t: Array, index: Array, values: Array) -> Carry:
    """Return what the end of round ``t`` leaves, whose point is ``index``.

    ``values [C, k]`` are those that arrive from each of the last ``C`` rounds, NaN for none; where none is late ``C`` is 1.
    """
    algorithm, arena, pending = setting.algorithm, setting.arena, carry.pending
    if pending is None:
        seen: Seen = Observation(index=index, values=values[0])
        far = _far(setting, index[None], values)
    else:
        pending, seen = pending.received(t, index, values, ~jnp.isnan(values))
        far = _far(setting, pending.indices, values)
    state = algorithm.update(arena, carry.state, seen, t)
    if not algorithm.traits.learns:  # for beliefs alone: such an algorithm looks at no posterior
        state = algorithm.learn(arena, state, seen)
    return Carry(state, pending, jax.tree.map(jnp.add, carry.far, far))


@jax.jit
def _predict(setting: Setting, state: object) -> Prediction:
    """Return mean and deviation ``[k, M]`` given all that has arrived."""
    return setting.arena.surrogate.arrived(setting.algorithm.belief(state))


@dataclasses.dataclass
class Round:
    """The point of a round, and the values that arrive at its end, by round and output."""

    index: int
    under_way: tuple[int, ...] = ()  # points that were not to be chosen
    arrivals: dict[tuple[int, int], float] = dataclasses.field(default_factory=dict)


def room_for(count: int) -> int:
    """Return for how many points known before round 1 there is room, so that few programs are compiled: a power of two, or 0 for none."""
    return max(16, 1 << (count - 1).bit_length()) if count else 0


class Course:
    """The learner in the course of its rounds: what was asked and told, and the state to which that leads, computed when it is needed."""

    def __init__(self, make: Callable[[], Setting], units: Units | None = None) -> None:
        self.rounds: list[Round] = []  # those that have begun; the last one has not ended
        self._known: list[Told] = []
        self.learn_under(make, units)

    def learn_under(self, make: Callable[[], Setting], units: Units | None = None) -> None:
        """Play all rounds anew under the setting that ``make`` returns, when they are next needed: telling a value builds no model.

        The model sees values in ``units``, by default as they are.
        """
        self._make, self._units = make, units
        self._setting: Setting | None = None  # once it has been needed
        self._play_anew()

    @property
    def setting(self) -> Setting:
        """All that stays the same from round to round."""
        if self._setting is None:
            self._setting = self._make()
        return self._setting

    def _play_anew(self) -> None:
        """Play all rounds anew, when they are next needed."""
        self._carry: Carry | None = None  # at the end of round `_played`, before round 1 for 0
        self._played = 0
        self._after: object = None  # the state after the choice of the last round, once that has been made
        self._now: Carry | None = None  # the result of `settled`, until something happens

    def begin(self, known: list[Told]) -> None:
        """Take in before round 1, in place of what was, an initial design, or what was measured before."""
        if known != self._known:
            self._known = known
            self._play_anew()

    def choose(self, under_way: Sequence[int] = ()) -> tuple[int, Status, object]:
        """Return point and status of the next round, which :meth:`asked` begins, and the algorithm's state after the choice.

        It is a point not ``under_way`` wherever the algorithm finds one.
        """
        with self._arithmetic():
            return self._choice(self.settled(), len(self.rounds) + 1, under_way)

    def _choice(self, carry: Carry, t: int, under_way: Sequence[int]) -> tuple[int, Status, object]:
        setting, domain = self.setting, self.setting.arena.surrogate.domain

        def attempt(*more: object) -> tuple[int, Status, object]:
            chosen, after = _choose(setting, carry.far, np.int32(t), carry.state, *more)
            index, status = np.asarray(chosen).tolist()
            return index, Status(status), after

        first = attempt()
        if first[0] in under_way and isinstance(setting.arena.surrogate, DelayedSurrogate):
            mask = np.isin(np.arange(domain.size), under_way)
            for number in range(1, ATTEMPTS + 1):
                index, status, after = attempt(mask, np.int32(number))
                if index not in under_way and healthy(np.asarray(int(status))):
                    return index, first[1], after  # the flags of the first, for points under way only look bad
        return first

    def asked(self, index: int, after: object = None, under_way: Sequence[int] = ()) -> None:
        """Begin the next round, whose point is ``index``; ``after`` is the state after that choice if :meth:`choose` has just made it."""
        if after is not None:
            self._carry, self._played = self._now, len(self.rounds)
        self.rounds.append(Round(index, tuple(under_way)))
        self._after, self._now = after, None

    def tell(self, number: int, values: Mapping[int, float]) -> None:
        """Let ``values``, by output, of the point of round ``number`` arrive."""
        self.rounds[-1].arrivals |= {(number, output): value for output, value in values.items()}
        self._now = None

    def correct(self, number: int, values: Mapping[int, float]) -> None:
        """Put ``values`` in the place of those that have arrived of the point of round ``number``."""
        for one in self.rounds:
            one.arrivals |= {(number, output): value for output, value in values.items() if (number, output) in one.arrivals}
        self._play_anew()

    def take_back(self) -> None:
        """Go back before the last choice; only where values come before the next round."""
        self.rounds.pop()
        self._after = self._now = None

    @property
    def complete(self) -> bool:
        """Return whether the values of the last round that the algorithm needs before the next one are there."""
        return not self.rounds or self.setting.delays is not None or len(self.rounds[-1].arrivals) == self.setting.arena.surrogate.outputs

    def settled(self) -> Carry:
        """Return what the end of the last round leaves, were it to end now; that of the round before where its values are not complete."""
        if self._now is None:
            self._carry = self._carry or self.start()
            with self._arithmetic():
                while self._played < len(self.rounds) - 1:
                    self._carry, self._played = self._ended(self._carry), self._played + 1
                self._now = self._ended(self._carry) if self._played < len(self.rounds) and self.complete else self._carry
        return self._now

    def start(self) -> Carry:
        """Return what leads to round 1; raises what the algorithm raises where it cannot begin."""
        arena, count = self.setting.arena, len(self._known)
        points, rows = np.zeros(room_for(count), np.int32), np.full((room_for(count), arena.surrogate.outputs), np.nan, arena.dtype)
        for number, (index, values) in enumerate(self._known):
            points[number] = index
            for output, value in values.items():
                rows[number, output] = self._seen(output, value)
        with self._arithmetic():
            return _start(self.setting, points, rows, np.int32(count))

    def _ended(self, carry: Carry) -> Carry:
        """Return what the end of the round leaves that follows on ``carry``."""
        arena, t, ended = self.setting.arena, np.int32(self._played + 1), self.rounds[self._played]
        if self._after is not None:
            carry = carry._replace(state=self._after)
        elif self.choosing_matters:
            carry = carry._replace(state=self._choice(carry, self._played + 1, ended.under_way)[2])
        room = 1 if carry.pending is None else len(carry.pending.values)
        values = np.full((room, arena.surrogate.outputs), np.nan, arena.dtype)
        for (number, output), value in ended.arrivals.items():
            if number > t - room:  # otherwise its place in the buffer is another round's
                values[(number - 1) % room, output] = self._seen(output, value)
        return _end(self.setting, carry, t, np.int32(ended.index), values)

    def _seen(self, output: int, value: float) -> float:
        """Return a value of a modelled function as the model sees it."""
        if self._units is None:
            return value
        shift, scale = self._units
        return float((value - shift[output]) / scale[output])

    @functools.cached_property
    def choosing_matters(self) -> bool:
        """Return whether a choice changes the algorithm's state; else playing rounds again makes none, and compiles no program for it."""
        state, _, far = self.start()
        with self._arithmetic():
            graph = _choose.trace(self.setting, far, np.int32(1), state).jaxpr.jaxpr
        before, after = graph.invars[-len(jax.tree.leaves(state)) :], graph.outvars[1:]
        return any(one is not other for one, other in zip(before, after, strict=True))

    def predict(self) -> Prediction:
        """Return mean and deviation ``[k, M]`` given all that has arrived, as NumPy arrays."""
        state = self.settled().state
        with self._arithmetic():
            return jax.tree.map(np.asarray, _predict(self.setting, state))

    def _arithmetic(self) -> contextlib.AbstractContextManager[bool]:
        """Return the context in which the model has its precision."""
        return arithmetic([self.setting.arena.surrogate.model.precision])


BODIES = {
    "asked": {"ticket", "round", "index", "status"},
    "observed": {"ticket", "rows"},
    "told": {"ticket", "values"},
    "corrected": {"ticket", "values"},
    "dropped": {"ticket"},
    "fitted": {"told"},
}
STANDARD = {"location", "scale"}  # further keys of a fit from version 2 on, which has no model where only outputs are standardised anew
ROW = {"index", "point", "values"}  # of what is observed


@dataclasses.dataclass(frozen=True)
class Ticket:
    """A point that a session asks to be measured.

    Attributes:
      number: number of the ticket, from 1, by which it is told.
      round: the round that it belongs to, from 1; 0 for a point of the initial design, and for one that was not asked for.
      index: number of the point in the domain.
      point: the point by the names of its coordinates, in the user's units; of categories their labels.
      status: flags that the algorithm has raised, see :mod:`jaxbandit.status`.
      observed: whether it was told without being asked for, see :meth:`Session.observe <jaxbandit.session.Session.observe>`.
      distance: how far ``point`` is from where it was measured, as the largest share of an axis; 0 for a point that was asked for.
    """

    number: int
    round: int
    index: int
    point: Mapping[str, float | str]
    status: Status = Status.OK
    observed: bool = False
    distance: float = 0.0

    @property
    def declared_infeasible(self) -> bool:
        """Return whether the algorithm has declared that no point satisfies the constraints."""
        return bool(self.status & Status.DECLARED_INFEASIBLE)


@dataclasses.dataclass
class Record:
    """A ticket, and what has been told of it."""

    ticket: Ticket
    asked_at: str  # nothing where it was not asked for
    outputs: int  # number of values of a complete ticket
    values: dict[str, float] = dataclasses.field(default_factory=dict)  # by the names of the outputs, as corrections have left them
    told_at: str = ""  # when the last of them was told
    dropped: bool = False  # whether the run failed

    @property
    def state(self) -> str:
        """``"dropped"``, ``"complete"``, ``"partial"`` or ``"pending"``."""
        if self.dropped:
            return "dropped"
        return "complete" if len(self.values) == self.outputs else "partial" if self.values else "pending"


class State:
    """All that the events of a session amount to: its tickets by number, the model in force, and the learner."""

    def __init__(self, specification: Specification) -> None:
        self.specification, self.design, (self.model, self.standard) = specification, specification.design_points(), specification.first
        self.fitted_at = self.standardised_at = 0  # numbers of complete tickets at the last fit, and the last standard
        self.records: dict[int, Record] = {}
        self.course = Course(lambda: specification.setting, self.units)
        self.entered = 1  # number of events that have happened; the first one holds the specification

    def follow(self, journal: Journal) -> None:
        """Let the events of a journal happen that have not yet; raises ``DamagedSession`` on one that does not follow on those before."""
        newer = journal.events[self.entered :]
        for event in newer:
            try:
                self.enter(event)
            except (InvalidArgument, RecursionError) as error:
                where = f"event {event.number} of {journal.directory / JOURNAL}, {event.kind!r},"
                raise DamagedSession(f"directory: {where} does not fit its session: {reason_of(error)}") from error
        if any(event.kind == "fitted" for event in newer):
            self.learn_anew()

    def enter(self, event: Event, after: object = None) -> None:
        """Let an event happen; ``after`` is the algorithm's state after its choice of a point that is asked for."""
        body, keys = event.body, BODIES[event.kind]
        if event.kind == "fitted":
            keys = keys | ({"model"} if self.specification.schema == 1 else STANDARD | (body.keys() & {"model"}))
        if body.keys() != keys:
            raise InvalidArgument(f"must hold {', '.join(sorted(keys))}, got {short(sorted(body))}")
        match event.kind:
            case "asked":
                self._ask(event, after)
            case "observed":
                self._observe(event)
            case "fitted":
                _check_equal("told", body["told"], self.complete)
                if "model" in body:
                    self.model = from_fields(Model, body["model"], "model")
                    self.model.validate("model")
                    self.fitted_at = self.complete
                if keys >= STANDARD:
                    self.standard = Standard(body["location"], body["scale"])
                    checks.shape("location", self.standard.location, (len(self.specification.outputs.names),))
                    checks.shape("scale", self.standard.scale, (len(self.specification.outputs.names),))
                    self.standardised_at = self.complete
            case "dropped":
                record = self.record(body["ticket"])
                if record.state in ("complete", "dropped"):
                    raise InvalidArgument(f"ticket: must be one that could be dropped, got {record.ticket.number}, which is {record.state}")
                record.dropped = True
                if record.ticket.round == 0:
                    self._begin()
                if self.specification.at_once and record.ticket.round == len(self.course.rounds) > 0:
                    self.course.take_back()
            case _:
                self._tell(self.record(body["ticket"]), event)
        self.entered = event.number

    def _ask(self, event: Event, after: object) -> None:
        body, space = event.body, self.specification.space
        for name, expected in self.next().items():
            _check_equal(name, body[name], expected)
        whole(0, space.domain.size - 1)("index", body["index"])
        whole(0, 2 * max(Status) - 1)("status", body["status"])
        number, index, under_way, room = body["ticket"], body["index"], self.under_way, self.room
        ticket = Ticket(number, body["round"], index, space.point(index), Status(body["status"]))
        self.records[number] = Record(ticket, event.at, len(self.specification.outputs.names))
        if ticket.round:
            self.course.asked(index, after, under_way)
        else:
            self._begin()
        if self.room != room:
            self.learn_anew()

    def _observe(self, event: Event) -> None:
        space, outputs, room = self.specification.space, self.specification.outputs, self.room
        rows = event.body["rows"]
        if not isinstance(rows, list) or any(not isinstance(row, dict) or row.keys() != ROW for row in rows):
            raise InvalidArgument(f"rows: must be a list of tables of {', '.join(sorted(ROW))}, got {short(rows)}")
        _check_equal("ticket", event.body["ticket"], len(self.records) + 1)
        for number, row in enumerate(rows, start=len(self.records) + 1):
            index, values = row["index"], row["values"] and told_values(outputs, row["values"])
            whole(0, space.domain.size - 1)("index", index)
            ticket = Ticket(number, 0, index, space.point(index), observed=True, distance=space.distance(row["point"], index))
            self.records[number] = Record(ticket, "", len(outputs.names), dict(values), event.at if values else "")
        if self.room != room:
            self.learn_anew()
        self._begin()

    def _tell(self, record: Record, event: Event) -> None:
        outputs, values, is_correction = self.specification.outputs, event.body["values"], event.kind == "corrected"
        if values or is_correction or not record.dropped:  # telling nothing takes back that a ticket was dropped
            values = told_values(outputs, values)
        for name in values:
            if (name in record.values) != is_correction:
                been = "was" if name in record.values else "had not been"
                raise InvalidArgument(f"values: {name} of ticket {record.ticket.number} {been} told before")
        record.dropped, record.told_at = False, event.at
        record.values |= values
        if record.ticket.round == 0:
            self._begin()
        elif is_correction:
            self.course.correct(record.ticket.round, outputs.inward(values))
        elif not self.specification.together:
            self.course.tell(record.ticket.round, outputs.inward(values))
        elif record.state == "complete" and values:
            self.course.tell(record.ticket.round, outputs.inward(record.values))

    def next(self) -> dict[str, int]:
        """Return number and round of the next ticket, and the point of one of the initial design."""
        number, left = len(self.records) + 1, self.left_of_design
        if left:
            return {"ticket": number, "round": 0, "index": self.design[-left]}
        return {"ticket": number, "round": len(self.course.rounds) + 1}

    @property
    def left_of_design(self) -> int:
        """Number of points of the initial design that have not been asked for."""
        return len(self.design) - sum(one.ticket.round == 0 and not one.ticket.observed for one in self.records.values())

    def _begin(self) -> None:
        """Let the learner begin with what is known before round 1, and unless values come at once with what is under way."""
        parts, told = self.specification, list[Told]()
        for record in self.records.values():
            is_whole = record.state == "complete"
            is_dropped = record.dropped and not (record.ticket.observed and record.values)
            if record.ticket.round == 0 and not is_dropped and (is_whole or not parts.at_once):
                told.append((record.ticket.index, parts.outputs.inward(record.values if is_whole or not parts.together else {})))
        self.course.begin(told)

    def learn_anew(self) -> None:
        """Let the learner play all rounds under the model in force."""
        self.course.learn_under(functools.partial(self.specification.setting_with, self.model, self.standard, self.room), self.units)

    @property
    def room(self) -> int:
        """Number of observations that the model has room for."""
        return self.specification.room(len(self.records), room_for(sum(record.ticket.observed for record in self.records.values())))

    @property
    def units(self) -> Units | None:
        """Shift and scale of the modelled functions, as the model in force sees them; ``None`` in the outputs' units."""
        return None if self.standard is None else self.specification.outputs.units(self.standard)

    @property
    def under_way(self) -> list[int]:
        """Points that have been asked for, or observed, and lack values; of these alone those of which nothing was told.

        There are none in journals of version 1, whose sessions did not heed them.
        """
        waiting = [one for one in self.records.values() if one.state == "pending" or (one.state == "partial" and not one.ticket.observed)]
        return [record.ticket.index for record in waiting] if self.specification.schema > 1 else []

    def due(self, *, asking: bool) -> bool | None:
        """Return whether outputs are to be standardised anew before anything else happens (else ``None``), and the model to be refitted.

        That is due after ``fit_every`` complete tickets, when a point of a round is asked for, and at doubling numbers of complete tickets,
        of which the first is that of the initial design, or of what has been told of it when more is asked for.
        """
        parts, complete = self.specification, self.complete
        if parts.fit_every is not None and asking and complete >= self.fitted_at + parts.fit_every:
            return True
        first = 1 if asking or self.course.rounds else len(self.design) - sum(record.dropped for record in self.records.values())
        if parts.standardise and complete >= max(1, first, 2 * self.standardised_at):
            return parts.model is None and parts.fit_every is None
        return None

    @property
    def complete(self) -> int:
        """Number of tickets all of whose values have been told."""
        return sum(record.state == "complete" for record in self.records.values())

    def record(self, ticket: Ticket | int) -> Record:
        """Return the record of a ticket or of its number; raises ``InvalidArgument`` on one that was never asked for."""
        number = ticket.number if isinstance(ticket, Ticket) else ticket
        if isinstance(number, bool) or not isinstance(number, int) or number not in self.records:
            known = f"1 to {len(self.records)}" if self.records else "none yet"
            raise InvalidArgument(f"ticket: must be one that was asked for ({known}), got {short(ticket)}")
        return self.records[number]


def _check_equal(name: str, value: object, expected: int) -> None:
    """Raise ``InvalidArgument`` unless a value is the whole number that follows from the events before."""
    if type(value) is not int or value != expected:
        raise InvalidArgument(f"{name}: must be {expected} after the events before, got {short(value)}")
