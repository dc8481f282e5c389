"""Tickets of a session: what was asked for, and what has been told of it. Every event of the journal is applied here first."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.status import Status
from jaxbandit.session.journal import Event, SessionError


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
      round, index, status: as those of :class:`Ticket`.
      asked_at: when it was asked for.
      values: values told so far, by the names of the outputs.
      told_at: when the last of them was told.
      dropped: whether the run failed.
    """

    round: int
    index: int
    status: Status
    asked_at: str
    values: dict[str, float] = dataclasses.field(default_factory=dict)
    told_at: str = ""
    dropped: bool = False

    def state(self, outputs: int) -> str:
        """Return ``"dropped"``, ``"complete"``, ``"partial"`` or ``"pending"``."""
        if self.dropped:
            return "dropped"
        return "complete" if len(self.values) == outputs else "partial" if self.values else "pending"


def records_of(events: Iterable[Event]) -> dict[int, Record]:
    """Return all tickets after some events, by number, with the values that corrections have left."""
    records: dict[int, Record] = {}
    for event in events:
        note(records, event)
    return records


def note(records: dict[int, Record], event: Event) -> None:
    """Enter an event into the tickets that it concerns."""
    body = event.body
    if event.kind == "asked":
        records[body["ticket"]] = Record(body["round"], body["index"], Status(body["status"]), event.at)
    elif event.kind in ("told", "corrected"):
        record = records[body["ticket"]]
        record.values |= body["values"]
        record.told_at, record.dropped = event.at, False
    elif event.kind == "dropped":
        records[body["ticket"]].dropped = True


def rounds_begun(records: Mapping[int, Record], *, at_once: bool) -> int:
    """Return the number of rounds whose tickets were asked for; with values ``at_once`` a ticket that is dropped gives its round back."""
    last = records.get(len(records))
    return 0 if last is None else last.round - (at_once and last.dropped and last.round > 0)


def number_of(ticket: Ticket | int, records: Mapping[int, Record]) -> int:
    """Return the number of a ticket; raises ``InvalidArgument`` on one that was never asked for."""
    number = ticket.number if isinstance(ticket, Ticket) else ticket
    if isinstance(number, bool) or not isinstance(number, int) or number not in records:
        known = f"1 to {len(records)}" if records else "none yet"
        raise InvalidArgument(f"ticket: must be one that was asked for ({known}), got {short(ticket)}")
    return number


def check_tellable(number: int, record: Record, changed: Mapping[str, float], *, correct: bool, at_once: bool, begun: bool) -> None:
    """Raise ``SessionError`` where values of a ticket cannot be told.

    Args:
      number, record: the ticket.
      changed: values that are not those that were told before, by the names of the outputs.
      correct: whether such values replace those.
      at_once: whether values come before the next round, so that the round of a dropped ticket was repeated.
      begun: whether the initial design has been used.
    """
    if record.dropped and at_once:
        raise SessionError(f"ticket {number}: was dropped, and its round repeated; its values cannot be used any more")
    if record.dropped and record.round == 0 and begun:
        raise SessionError(f"ticket {number}: was dropped, and the initial design has been used without it")
    if record.dropped and not correct:
        raise SessionError(f"ticket {number}: was dropped; tell(..., correct=True) takes that back")
    if changed and not correct:
        before = {name: record.values[name] for name in changed}
        raise SessionError(f"ticket {number}: was told {short(before)}, got {short(dict(changed))}; tell(..., correct=True) replaces it")
