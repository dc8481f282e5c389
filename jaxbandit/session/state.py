"""State of a session: what its events amount to, tickets with the values told and the learner in its rounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.codec import from_fields
from jaxbandit.core.fields import whole
from jaxbandit.core.files import reason_of
from jaxbandit.core.status import Status
from jaxbandit.session.course import Course, Told
from jaxbandit.session.journal import JOURNAL, DamagedSession, Event, Journal
from jaxbandit.session.quantities import told_values
from jaxbandit.session.specification import Specification
from jaxbandit.study.runs import Model

BODIES = {
    "asked": {"ticket", "round", "index", "status"},
    "told": {"ticket", "values"},
    "corrected": {"ticket", "values"},
    "dropped": {"ticket"},
    "fitted": {"model", "told"},
}


@dataclasses.dataclass(frozen=True)
class Ticket:
    """A point that a session asks to be measured.

    Attributes:
      number: number of the ticket, from 1, by which it is told.
      round: the round that it belongs to, from 1; 0 for a point of the initial design.
      index: number of the point in the domain.
      point: the point by the names of its coordinates, in the user's units; of categories their labels.
      status: flags that the algorithm has raised, see :mod:`jaxbandit.status`.
    """

    number: int
    round: int
    index: int
    point: Mapping[str, float | str]
    status: Status = Status.OK

    @property
    def declared_infeasible(self) -> bool:
        """Return whether the algorithm has declared that no point satisfies the constraints."""
        return bool(self.status & Status.DECLARED_INFEASIBLE)


@dataclasses.dataclass
class Record:
    """A ticket, and what has been told of it."""

    ticket: Ticket
    asked_at: str
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
        self.specification, self.design, self.model = specification, specification.design(), specification.model
        self.fitted_at = 0  # number of complete tickets to which the model was fitted
        self.records: dict[int, Record] = {}
        self.course = Course(specification.setting)

    @classmethod
    def replayed(cls, specification: Specification, journal: Journal) -> State:
        """Return the state to which a journal leads; raises ``DamagedSession`` on an event that does not follow on those before."""
        state = cls(specification)
        for event in journal.events[1:]:
            try:
                state.enter(event)
            except (InvalidArgument, RecursionError) as error:
                where = f"event {event.number} of {journal.directory / JOURNAL}, {event.kind!r},"
                raise DamagedSession(f"directory: {where} does not fit its session: {reason_of(error)}") from error
        state.learn_anew()
        return state

    def enter(self, event: Event, after: object = None) -> None:
        """Let an event happen; ``after`` is the algorithm's state after its choice of a point that is asked for."""
        body = event.body
        if body.keys() != BODIES[event.kind]:
            raise InvalidArgument(f"must hold {', '.join(sorted(BODIES[event.kind]))}, got {short(sorted(body))}")
        match event.kind:
            case "asked":
                self._ask(event, after)
            case "fitted":
                self.model = from_fields(Model, body["model"], "model")
                self.model.validate("model")
                _check_equal("told", body["told"], self.complete)
                self.fitted_at = self.complete
            case "dropped":
                self._drop(self.record(body["ticket"]))
            case _:
                self._tell(self.record(body["ticket"]), event)

    def _ask(self, event: Event, after: object) -> None:
        body, space = event.body, self.specification.space
        for name, expected in self.next().items():
            _check_equal(name, body[name], expected)
        whole(0, space.domain.size - 1)("index", body["index"])
        whole(0, 2 * max(Status) - 1)("status", body["status"])
        number, index = body["ticket"], body["index"]
        ticket = Ticket(number, body["round"], index, space.point(index), Status(body["status"]))
        self.records[number] = Record(ticket, event.at, len(self.specification.outputs.names))
        if ticket.round:
            self.course.asked(index, after)

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
            known = [record for record in self.records.values() if record.ticket.round == 0 and record.state == "complete"]
            self.course.begin([self.told(record) for record in known])
        elif is_correction:
            self.course.correct(record.ticket.round, outputs.inward(values))
        elif not self.course.together:
            self.course.tell(record.ticket.round, outputs.inward(values))
        elif record.state == "complete" and values:
            self.course.tell(record.ticket.round, outputs.inward(record.values))

    def _drop(self, record: Record) -> None:
        if record.state in ("complete", "dropped"):
            raise InvalidArgument(f"ticket: must be one that could be dropped, got {record.ticket.number}, which is {record.state}")
        record.dropped = True
        if self.specification.at_once and record.ticket.round == len(self.course.rounds) > 0:
            self.course.take_back()

    def next(self) -> dict[str, int]:
        """Return number and round of the next ticket, and the point of one of the initial design."""
        number = len(self.records) + 1
        if number <= len(self.design):
            return {"ticket": number, "round": 0, "index": self.design[number - 1]}
        return {"ticket": number, "round": len(self.course.rounds) + 1}

    def learn_anew(self) -> None:
        """Let the learner play all rounds under the model in force."""
        if self.model is not self.specification.model:
            self.course.learn_under(self.specification.setting_with(self.model))

    def told(self, record: Record) -> Told:
        """Return the point of a ticket with the values told there, as the model sees them."""
        return record.ticket.index, self.specification.outputs.inward(record.values)

    @property
    def begun(self) -> bool:
        """Return whether a round has ever begun, with which the initial design is used."""
        return bool(self.records) and self.records[len(self.records)].ticket.round > 0

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
