"""State of a session: tickets with values, model, and learner."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.codec import from_fields
from jaxbandit.core.fields import boolean, whole
from jaxbandit.core.status import Status
from jaxbandit.domains import Box
from jaxbandit.host.files import reason_of
from jaxbandit.session.axes import ON_GRID, Place, Spot
from jaxbandit.session.journal import JOURNAL, DamagedSession, Event, Journal, SessionError
from jaxbandit.session.learner import RAN, SAME, Course, PendingRound, Told, is_among, room_for
from jaxbandit.session.models import QUIET, Values, with_runs
from jaxbandit.session.quantities import RUNS, Standard, told_values
from jaxbandit.session.settled import Settlement
from jaxbandit.session.shown import Believed, Shown
from jaxbandit.session.specification import Specification
from jaxbandit.study.runs import Model

# Version of the learner, written with each fit. The first, up to jaxbandit 0.4, wrote no version.
LEARNER = 2


@dataclasses.dataclass(frozen=True)
class Ticket:
    """A point that a session asks to be measured.

    Attributes:
      number: number of the ticket, from 1.
      round: the ticket's round, from 1; 0 for a point of the initial design or a point that was not asked for.
      index: number of the point in the domain.
      point: the point by the names of its coordinates, in the user's units, with the labels of categories.
      status: flags that the algorithm has raised, see :mod:`jaxbandit.status`.
      observed: whether the point was not asked for, see :meth:`Session.observe <jaxbandit.session.Session.observe>`.
      distance: distance of ``point`` from the measured point, as the largest share of an axis; 0 for a point that was asked for.
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
        """Return whether the algorithm has declared the constraints infeasible."""
        return bool(self.status & Status.DECLARED_INFEASIBLE)


@dataclasses.dataclass
class Record:
    """A ticket and its values, with empty ``asked_at`` for observed points.

    Attributes:
      outputs: number of the session's outputs.
      place: on a box the ticket's place in the unit cube.
      over: ``"dropped"``, ``"failed"`` or ``"retry"`` for a run that ended without all values, else empty.
    """

    ticket: Ticket
    asked_at: str
    outputs: int
    place: Place = ()
    values: dict[str, float] = dataclasses.field(default_factory=dict)
    told_at: str = ""
    over: str = ""

    @property
    def state(self) -> str:
        """:attr:`over`, or else ``"complete"``, ``"partial"`` or ``"pending"``."""
        return self.over or ("complete" if len(self.values) == self.outputs else "partial" if self.values else "pending")

    @property
    def spot(self) -> Spot:
        """The ticket's point by number and place."""
        return Spot(self.ticket.index, self.place)


class State:
    """Result of a session's events: tickets by number, model, and learner."""

    def __init__(self, specification: Specification) -> None:
        self.specification, (self.model, self.standard), self.space = specification, specification.first, specification.space
        # The specification of the modelled outputs: after the first failure with one more, if the learner supports it.
        self.modelled = specification
        # These count the complete tickets at the last fit and the last standardisation.
        self.fitted_at = self.standardised_at = 0
        self.learner = LEARNER
        # The result of the last rule that ended the session, None after the session continued.
        self.settlement: Settlement | None = None
        # The first ticket after the last change of the learner.
        self.learner_changed_at: int | None = None
        self.records: dict[int, Record] = {}
        undelayed = specification.undelayed
        seen = functools.partial(specification.outputs.seen, self.standard)
        self.course = Course(lambda: specification.setting, seen, None if undelayed is None else lambda: undelayed.setting)
        self.course.at_once = specification.at_once
        self.course.readable = self.space.readable
        # These cache `allowed`, and `shown` with its number of events.
        self._reached: tuple[frozenset[int], np.ndarray] = (frozenset(), np.zeros(self.space.size, bool))
        self._shown: tuple[int, Shown] | None = None
        # The first event has the specification.
        self.entered = 1

    def follow(self, journal: Journal) -> None:
        """Apply a journal's new events, or raise ``DamagedSession`` for invalid events."""
        for event in journal.events[self.entered :]:
            try:
                self.enter(event)
            except (InvalidArgument, RecursionError) as error:
                where = f"event {event.number} of {journal.directory / JOURNAL}, {event.kind!r},"
                raise DamagedSession(f"directory: {where} does not fit its session: {reason_of(error)}") from error

    def enter(self, event: Event, after: object = None) -> None:
        """Apply an event, with the algorithm's state ``after`` its choice if known."""
        bodies = {
            "asked": {"ticket", "round", "status"},
            "observed": {"ticket", "rows"},
            "told": {"ticket", "values"},
            "corrected": {"ticket", "values"},
            "dropped": {"ticket"},
            "failed": {"ticket", "retry"},
            "fitted": {"told"},
            "settled": {"ticket", "within", "probability", "gain"},
        }
        body, keys = event.body, bodies[event.kind] | ({*self.space.keys} if event.kind == "asked" else set())
        if event.kind == "observed":
            keys = keys | (body.keys() & {"initial"})
        # Further keys of events. A fit since version 2 has a location and scale, and no model if it only standardised the outputs. A first
        # observation that replaces the default initial design has 0, the points left of the design. A request on a box has the point's
        # place. An observed row of a failed run has ``failed``.
        standard = {"location", "scale"}
        if event.kind == "fitted":
            keys = keys | ({"model"} if self.specification.schema == 1 else standard | (body.keys() & {"model", "bend", "learner"}))
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
                    learner = body.get("learner", 1)
                    whole(1)("learner", learner)
                    if self.fitted_at and learner != self.learner:
                        self.learner_changed_at = len(self.records) + 1
                    self.fitted_at, self.learner = self.complete, learner
                if keys >= standard:
                    self.standard = Standard(body["location"], body["scale"], body.get("bend"))
                    checks.shape("location", self.standard.location, (len(self.modelled.outputs.names),))
                    checks.shape("scale", self.standard.scale, (len(self.modelled.outputs.names),))
                    self.standardised_at = self.complete
                self.learn_anew()
            case "settled":
                _check_equal("ticket", body["ticket"], len(self.records))
                self.settlement = Settlement(**{name: body[name] for name in ("probability", "gain", "within")})
            case "dropped":
                record = self.record(body["ticket"])
                if record.state not in ("pending", "partial"):
                    raise InvalidArgument(f"ticket: must be one that could be dropped, got {record.ticket.number}, which is {record.state}")
                record.over = "dropped"
                if record.ticket.round == 0:
                    self._begin()
                if self.specification.at_once and record.ticket.round == len(self.course.rounds) > 0:
                    self.course.take_back()
            case "failed":
                self._fail(self.record(body["ticket"]), event)
            case _:
                self._tell(self.record(body["ticket"]), event)
        self.entered = event.number

    def _ask(self, event: Event, after: object) -> None:
        body, self.settlement = event.body, None
        asked, room = self.round_at(), self.room
        # The point has its context.
        number, index = body["ticket"], body["index"]
        expected = self.next(self.space.context_of(index))
        if expected["round"] == 0 and self.has_failed(spot_of(expected)):
            # Another point replaces a failed point of the initial design.
            expected.pop(self.space.keys[-1])
        for name, value in expected.items():
            _check_equal(name, body[name], value)
        self.space, place = self.space.entered(body.get("place", ()))
        whole(0, self.space.size - 1)("index", index)
        whole(0, 2 * max(Status) - 1)("status", body["status"])
        ticket = Ticket(number, body["round"], index, self.space.point(index), Status(body["status"]))
        self.records[number] = Record(ticket, event.at, len(self.specification.outputs.names), place)
        if ticket.round:
            self.course.asked(dataclasses.replace(asked, index=index, place=place), after)
        else:
            self._begin()
        if self.room != room:
            self.learn_anew()

    def _observe(self, event: Event) -> None:
        outputs, room = self.specification.outputs, self.room
        rows, entries = event.body["rows"], ("index", "point", "values")
        if not isinstance(rows, list) or any(not isinstance(row, dict) or row.keys() - {"failed"} != {*entries} for row in rows):
            raise InvalidArgument(f"rows: must be a list of tables of {', '.join(entries)}, got {short(rows)}")
        _check_equal("ticket", event.body["ticket"], len(self.records) + 1)
        if "initial" in event.body:
            _check_equal("initial", event.body["initial"], 0)
            self.design = ()
        for number, row in enumerate(rows, start=len(self.records) + 1):
            index, values = row["index"], row["values"] and told_values(outputs, row["values"])
            for name, value in self.space.event().items():
                _check_equal(name, index, value)
            self.space, place = self.space.entered(self.space.place(row["point"]))
            whole(0, self.space.size - 1)("index", index)
            distance = self.space.distance(row["point"], index)
            ticket = Ticket(number, 0, index, self.space.point(index), observed=True, distance=distance)
            _check_equal("failed", row.get("failed", True), True)
            failed = "failed" if "failed" in row else ""
            if failed and values:
                raise InvalidArgument(f"values: must be none of a run that failed, got {short(values)}")
            at = event.at if values or failed else ""
            self.records[number] = Record(ticket, "", len(outputs.names), place, dict(values), at, failed)
            if failed:
                self._learn_runs()
        if self.room != room:
            self.learn_anew()
        self._begin()

    def _tell(self, record: Record, event: Event) -> None:
        outputs, values, is_correction = self.specification.outputs, event.body["values"], event.kind == "corrected"
        had_failed = record.over == "failed"
        # Without values the event only undoes a drop or a failure.
        if values or is_correction or not record.over:
            values = told_values(outputs, values)
        for name in values:
            if (name in record.values) != is_correction:
                been = "was" if name in record.values else "had not been"
                raise InvalidArgument(f"values: {name} of ticket {record.ticket.number} {been} told before")
        record.over, record.told_at = "", event.at
        record.values |= values
        if record.ticket.round == 0:
            self._begin()
            return
        if had_failed:
            self.course.withdraw(record.ticket.round)
        ran = {RAN: -1.0} if record.state == "complete" else {}
        if is_correction:
            self.course.correct(record.ticket.round, outputs.inward(values))
        elif not self.specification.together:
            self.course.tell(record.ticket.round, outputs.inward(values) | ran)
        elif ran and values:
            self.course.tell(record.ticket.round, outputs.inward(record.values) | ran)

    def _fail(self, record: Record, event: Event) -> None:
        retry = event.body["retry"]
        boolean("retry", retry)
        failed, before, number = "retry" if retry else "failed", record.over, record.ticket.round
        if record.state in ("complete", failed):
            raise InvalidArgument(f"ticket: must be one that could fail, got {record.ticket.number}, which is {record.state}")
        record.over, record.told_at = failed, event.at
        if not retry:
            self._learn_runs()
        is_learnt = not retry and self.modelled.learns_runs
        if number == 0:
            self._begin()
        elif is_learnt:
            self.course.tell(number, {RAN: 1.0})
        elif before == "failed":
            self.course.withdraw(number)
        if not is_learnt and self.specification.at_once and number == len(self.course.rounds) > 0:
            self.course.take_back()

    def _learn_runs(self) -> None:
        """Model from now on whether runs give values, if the learner can."""
        parts = self.specification.with_runs
        if parts is not None and self.modelled is self.specification:
            parts_of = self.specification.alone, self.model, self.standard
            self.model, self.standard = with_runs(self.modelled.outputs, *parts_of, self.space.domain.size)
            self.modelled = parts
            self.learn_anew()

    @functools.cached_property
    def design(self) -> Sequence[int | Place]:
        """Points of the initial design: numbers, or places on a box."""
        return self.specification.design_points()

    def next(self, context: int | None = None) -> dict[str, Any]:
        """Return what the next ticket's event says, in a ``context``."""
        number, left = len(self.records) + 1, self.left_of_design
        if not left:
            return {"ticket": number, "round": len(self.course.rounds) + 1, **self.space.event()}
        return {"ticket": number, "round": 0, **self.space.event(self.space.in_context(self.design[-left], context))}

    @property
    def left_of_design(self) -> int:
        """Number of points of the initial design without a ticket."""
        return len(self.design) - sum(one.ticket.round == 0 and not one.ticket.observed for one in self.records.values())

    def _begin(self) -> None:
        """Pass the learner the points (with delays also pending) before round 1."""
        parts, told = self.specification, list[Told]()
        for record in self.records.values():
            is_whole, has_failed = record.state == "complete", record.over == "failed" and self.modelled.learns_runs
            if record.ticket.round == 0 and (is_whole or has_failed or not parts.at_once):
                values = parts.outputs.inward(record.values if is_whole or not parts.together else {})
                ran = {RAN: 1.0 if has_failed else -1.0} if is_whole or has_failed else {}
                told.append((*record.spot, values | ran))
        self.course.begin(told)

    def learn_anew(self) -> None:
        """Make the learner rerun all rounds under the current model."""
        parts, made = self.modelled, (self.model, self.standard, self.room)
        setting = functools.partial(parts.setting_with, *made)
        undelayed = None if parts.undelayed is None else functools.partial(parts.undelayed.setting_with, *made)
        self.course.learn_under(setting, functools.partial(parts.outputs.seen, self.standard), undelayed, learns_runs=parts.learns_runs)

    @property
    def shown(self) -> Shown | None:
        """Beliefs of a fitted model, ``None`` without values or fits."""
        parts, told = self.specification, self.told
        if self.standard is None or parts.is_guarded or not told or (parts.model is not None and parts.fit_every is None):
            return None
        if self._shown is None or self._shown[0] != self.entered:
            forms = parts.model is None
            self._shown = self.entered, Shown.fitted(self.modelled.outputs, self.space, self.model, self.standard, told, forms=forms)
        return self._shown[1]

    @property
    def believed(self) -> Shown:
        """Beliefs :attr:`shown`, or else those of the given model."""
        return self.shown or Shown.stated(self.modelled.outputs, self.space, self.model, self.standard, self.told)

    def belief_at(self, place: Place = (), *, at: np.ndarray | slice = slice(None)) -> Believed:
        """Return shown beliefs at points ``at``, or at a ``place``."""
        count, points = len(self.specification.outputs.names), self.space.modelled
        if self.shown is None:
            mean, sd, feasible = (part[..., at] for part in self.predicted(place))
        else:
            mean, sd, feasible = self.shown.at(np.asarray([place]) if place else points[at])
        return mean[:count], sd[:count], feasible

    def predicted(self, place: Place = ()) -> Believed:
        """Return the learner's beliefs at all points, or at a ``place``."""
        predicted, outputs = self.course.predict(place), self.modelled.outputs
        # The model of a box may have free places, too.
        mean, sd = (np.asarray(table, np.float64)[:, : 1 if place else self.space.size] for table in (predicted.mean, predicted.sd))
        mean, sd = outputs.outward(mean, sd, self.standard)
        return mean, sd, outputs.probability_of_feasibility(mean, sd)

    @property
    def told(self) -> Values:
        """Points by number, with their values, and whether runs there failed."""
        records, ran = self.records.values(), {"complete": {RUNS: 1.0}, "failed": {RUNS: -1.0}} if self.modelled.learns_runs else {}
        known = [(record.ticket.index, record.values | ran.get(record.state, {})) for record in records]
        return [(index, values) for index, values in known if values]

    @property
    def room(self) -> int:
        """Capacity of the model in observations."""
        return self.specification.room(len(self.records), room_for(sum(record.ticket.observed for record in self.records.values())))

    @property
    def under_way(self) -> list[Spot]:
        """Points asked for with missing values, or observed without values."""
        waiting = [one for one in self.records.values() if one.state == "pending" or (one.state == "partial" and not one.ticket.observed)]
        return [one.spot for one in waiting] if self.specification.schema > 1 else []

    @property
    def avoided(self) -> list[Spot]:
        """Points to choose last: under way, or measured with certainty.

        If the fit has found no noise, another value is useless at all complete points, otherwise at points with the same values twice.
        """
        complete = [one for one in self.records.values() if one.state == "complete"]
        if self.specification.model is not None or float(np.max(self.model.noise_variance)) >= QUIET:
            # On a box a repeated point has two numbers.
            where = [(one.spot.point, *one.values.values()) for one in complete]
            seen = collections.Counter(where if self.specification.schema > 1 else [])
            complete = [one for one, it in zip(complete, where, strict=True) if seen[it] > 1]
        return [*self.under_way, *(one.spot for one in complete)]

    @property
    def failed(self) -> list[Spot]:
        """Points of failed and dropped runs, empty for journals of version 1."""
        over = [one.spot for one in self.records.values() if one.over in ("dropped", "failed")]
        return over if self.specification.schema > 1 else []

    def to_retry(self, context: int | None = None) -> Spot | None:
        """Return the first point to retry in a context without later ticket."""
        last = {one.spot.point: one for one in self.records.values()}
        again = [one.spot for one in last.values() if one.over == "retry" and self.space.context_of(one.ticket.index) == context]
        return None if self.specification.is_guarded or not again else again[0]

    @property
    def allowed(self) -> np.ndarray | None:
        """Points ``[M]`` within ``max_step`` of a measured safe point, or ``None``."""
        steps = self.specification.max_step
        if steps is None:
            return None
        told = [(one.ticket.index, one.values) for one in self.records.values() if one.values and one.ticket.distance <= ON_GRID]
        hold = self.specification.outputs.hold
        held = {index for index, values in told if hold(values)} - {index for index, values in told if hold(values) is False}
        # A correction may make a safe point unsafe.
        if not held >= self._reached[0]:
            self._reached = frozenset(), np.zeros(self.space.size, bool)
        known, reached = self._reached
        for index in held - known:
            columns = ((column, steps[name]) for name, column in self.space.columns.items() if name in steps)
            near = [np.abs(column - column[index]) <= step * (1 + ON_GRID) for column, step in columns]
            reached = reached | np.logical_and.reduce(near)
        self._reached = frozenset(held), reached
        return reached

    def round_at(self, index: int = 0) -> PendingRound:
        """Return the next round, with the points that it avoids."""
        return PendingRound(index, (), self.avoided, self.failed, self.allowed)

    def has_failed(self, point: Spot) -> bool:
        """Return whether a run failed or was dropped at a point."""
        return is_among(self.space.domain, point, self.failed)

    @property
    def unfit(self) -> np.ndarray:
        """Points ``[M]`` with dropped and no complete runs, or outside, never recommended."""
        unfit = np.logical_or.reduce([np.zeros(self.space.size, bool), *map(self.space.near, self.failed)])
        unfit[[one.ticket.index for one in self.records.values() if one.state == "complete"]] = False
        return unfit | self.space.outside

    def not_failed(self, point: Spot, number: int) -> Spot:
        """Return the nearest point without a dropped run for round ``number``.

        If possible it is not :attr:`avoided`. A point of a box counts as avoided after rounding, but one of the initial design stays.
        Raises ``SessionError`` if no point is left, or the algorithm certifies points, because the result would not be certified.
        """
        domain, failed, avoided = self.space.domain, self.failed, self.avoided
        is_avoided = number > 0 and point.place and is_among(domain, point, avoided, SAME)
        if not is_avoided and not self.has_failed(point):
            return point
        if point.place and self.modelled.learns_runs and self.left_of_design == 1 and (repeated := self._repeated):
            return Spot(domain.size, repeated)
        free = "a run that did end after all is told as a correction, which frees its point"
        if self.specification.algorithm.traits.certifies:
            kind = type(self.specification.algorithm).__name__
            raise SessionError(f"ask: {kind} finds no point but those that have failed, and no other is certified; {free}")
        places = self.space.modelled[: domain.size]
        sides = np.where(np.ptp(places, axis=0) > 0, np.ptp(places, axis=0), 1)
        apart = np.linalg.norm((places - self.space.modelled_at(point)) / sides, axis=1)
        apart[~self.space.of_context(self.space.context_of(point.number))[: domain.size]] = np.inf
        waiting = None
        for index in [at for at in np.argsort(apart, kind="stable").tolist() if apart[at] < np.inf]:
            other = Spot(index, self.course.readable(places[index].tolist()) if point.place else ())
            if not is_among(domain, other, failed):
                if not is_among(domain, other, avoided, SAME):
                    return other
                waiting = waiting or other
        if waiting is None:
            raise SessionError(f"ask: the runs at all points have failed, and none is left to ask for; {free}")
        return waiting

    @property
    def _repeated(self) -> Place:
        """A place beside the first successful one, to show the noise."""
        ran = [one for one in self.records.values() if one.state == "complete" and one.ticket.round == 0 and not one.ticket.observed]
        if (within := self.specification.design.repeated_within) is None or not ran:
            return ()
        box, place = cast(Box, self.space.domain), np.asarray(ran[0].place)
        beside = np.asarray(box.snapped(np.where(place < 0.5, place + within, place - within)), np.float64)
        return self.course.readable(beside.tolist())

    def due(self, *, asking: bool) -> bool | None:
        """Return True for a due fit, False for due standardisation, else ``None``.

        A fit is due ``fit_every`` complete tickets after the last, when a point of a round is asked for. Without a given model the first
        fit uses the initial design (when more points are asked for: its values so far), and the next fit is due a few complete tickets
        later. Outputs are standardised with every fit, and whenever the number of complete tickets has doubled. An algorithm that certifies
        points has one fit, after the initial design is complete or dropped, and no fit with a given model.
        """
        parts, complete = self.specification, self.complete
        if parts.is_guarded:
            return True if complete and not self.unmeasured and parts.model is None and not self.fitted_at else None
        if parts.fit_every is not None and asking and complete >= self.fitted_at + parts.fit_every:
            return True
        over = len([one for one in self.records.values() if one.over and not self._is_counted(one)])
        first = 1 if asking or self.course.rounds else len(self.design) - over
        by_default = parts.standardise and parts.model is None and parts.fit_every is None
        further = max(4, self.fitted_at // 10) if self.fitted_at else 0
        if by_default and complete >= max(1, first, self.fitted_at + further):
            return True
        return False if parts.standardise and complete >= max(1, 2 * self.standardised_at) else None

    @property
    def unmeasured(self) -> list[int]:
        """Numbers of incomplete tickets of the initial design, future tickets included."""
        first = [one for one in self.records.values() if one.ticket.round == 0 and not one.ticket.observed]
        lacking = [one.ticket.number for one in first if one.state in ("pending", "partial")]
        return lacking + [len(self.records) + 1 + place for place in range(self.left_of_design)]

    @property
    def complete(self) -> int:
        """Number of complete or modelled failed tickets, 0 without values."""
        return sum(map(self._is_counted, self.records.values())) if any(record.values for record in self.records.values()) else 0

    def _is_counted(self, record: Record) -> bool:
        return record.state == "complete" or (record.over == "failed" and self.modelled.learns_runs)

    def record(self, ticket: Ticket | int) -> Record:
        """Return a ticket's record, or raise ``InvalidArgument`` if it is unknown."""
        number = ticket.number if isinstance(ticket, Ticket) else ticket
        if isinstance(number, bool) or not isinstance(number, int) or number not in self.records:
            known = f"1 to {len(self.records)}" if self.records else "none yet"
            raise InvalidArgument(f"ticket: must be one that was asked for ({known}), got {short(ticket)}")
        own = self.records[number]
        if isinstance(ticket, Ticket) and ticket.point != own.ticket.point:
            words = f"must be one of this session, whose ticket {number} is at {short(own.ticket.point)}"
            raise InvalidArgument(f"ticket: {words}, got one at {short(ticket.point)}")
        return own


def spot_of(body: Mapping[str, Any]) -> Spot:
    """Return the point of an event ``"asked"``."""
    return Spot(body["index"], tuple(body.get("place", ())))


def _check_equal(name: str, value: object, expected: object) -> None:
    """Raise ``InvalidArgument`` unless a value and its type are the expected."""
    if type(value) is not type(expected) or value != expected:
        raise InvalidArgument(f"{name}: must be {expected} after the events before, got {short(value)}")
