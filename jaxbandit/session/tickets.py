"""Tickets of a session: what was asked for, and what has been told of it. Every event of the journal is entered here."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.codec import from_fields
from jaxbandit.core.fields import whole
from jaxbandit.core.files import reason_of
from jaxbandit.core.status import Status
from jaxbandit.session.journal import JOURNAL, DamagedSession, Event, Journal
from jaxbandit.session.outputs import told_values
from jaxbandit.session.specification import Specification
from jaxbandit.study.model import Model

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
      scaled: the same as the model sees it.
      status: flags that the algorithm has raised, see :mod:`jaxbandit.status`.
    """

    number: int
    round: int
    index: int
    point: Mapping[str, float | str]
    scaled: Mapping[str, float]
    status: Status = Status.OK

    @property
    def declared_infeasible(self) -> bool:
        """Return whether the algorithm has declared that no point satisfies the constraints."""
        return bool(self.status & Status.DECLARED_INFEASIBLE)


@dataclasses.dataclass
class Record:
    """Facts of a ticket that are known so far.

    Attributes:
      outputs: number of values of a complete ticket.
      round, index, status: as those of :class:`Ticket`.
      asked_at: when it was asked for.
      values: values told so far, by the names of the outputs.
      told_at: when the last of them was told.
      dropped: whether the run failed.
    """

    outputs: int
    round: int
    index: int
    status: Status
    asked_at: str
    values: dict[str, float] = dataclasses.field(default_factory=dict)
    told_at: str = ""
    dropped: bool = False

    @property
    def state(self) -> str:
        """``"dropped"``, ``"complete"``, ``"partial"`` or ``"pending"``."""
        if self.dropped:
            return "dropped"
        return "complete" if len(self.values) == self.outputs else "partial" if self.values else "pending"


class Tickets(dict[int, Record]):
    """All tickets of a session by their numbers, with the values that corrections have left."""

    def __init__(self, specification: Specification) -> None:
        super().__init__()
        self.specification = specification

    @classmethod
    def read(cls, specification: Specification, journal: Journal) -> Tickets:
        """Return all tickets of a journal.

        Raises:
          DamagedSession: on an event that a session of this specification has not written; the message says which, and why not.
        """
        tickets = cls(specification)
        for event in journal.events[1:]:
            try:
                tickets.enter(event)
            except (InvalidArgument, RecursionError) as error:
                where = f"event {event.number} of {journal.directory / JOURNAL}, {event.kind!r},"
                raise DamagedSession(f"directory: {where} does not fit its session: {reason_of(error)}") from error
        return tickets

    def enter(self, event: Event) -> None:
        """Enter an event into the ticket that it concerns; raises ``InvalidArgument`` on what no event of this session holds."""
        body, outputs = event.body, self.specification.outputs
        if body.keys() != BODIES[event.kind]:
            raise InvalidArgument(f"must hold {', '.join(sorted(BODIES[event.kind]))}, got {short(sorted(body))}")
        if event.kind == "asked":
            for name, least, most in (
                ("ticket", len(self) + 1, len(self) + 1),
                ("round", 0, self.specification.horizon),
                ("index", 0, self.specification.space.domain.size - 1),
                ("status", 0, 2 * max(Status) - 1),
            ):
                whole(least, most)(name, body[name])
            self[body["ticket"]] = Record(len(outputs.names), body["round"], body["index"], Status(body["status"]), event.at)
        elif event.kind == "fitted":
            from_fields(Model, body["model"], "model").validate("model")
        else:
            record = self[self.number_of(body["ticket"])]
            record.dropped = event.kind == "dropped"
            if not record.dropped:
                record.values |= told_values(outputs, body["values"]) if body["values"] else {}
                record.told_at = event.at

    @property
    def complete(self) -> int:
        """Number of tickets all of whose values have been told."""
        return sum(record.state == "complete" for record in self.values())

    def number_of(self, ticket: Ticket | int) -> int:
        """Return the number of a ticket; raises ``InvalidArgument`` on one that was never asked for."""
        number = ticket.number if isinstance(ticket, Ticket) else ticket
        if isinstance(number, bool) or not isinstance(number, int) or number not in self:
            known = f"1 to {len(self)}" if self else "none yet"
            raise InvalidArgument(f"ticket: must be one that was asked for ({known}), got {short(ticket)}")
        return number
