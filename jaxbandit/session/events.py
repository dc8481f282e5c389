"""Events of a journal, checked against the specification of its session as they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.codec import from_fields
from jaxbandit.core.fields import whole
from jaxbandit.core.files import reason_of
from jaxbandit.core.status import Status
from jaxbandit.session.journal import JOURNAL, DamagedSession, Journal
from jaxbandit.session.outputs import told_values
from jaxbandit.session.specification import Specification
from jaxbandit.session.tickets import Record, check_tellable, note, number_of, rounds_begun
from jaxbandit.study.model import Model

BODIES = {
    "asked": {"ticket", "round", "index", "status"},
    "told": {"ticket", "values"},
    "corrected": {"ticket", "values"},
    "dropped": {"ticket"},
    "fitted": {"model", "told"},
}
LARGEST = float(np.finfo(np.float64).max) / 4


def checked_records(specification: Specification, design: Sequence[int], journal: Journal) -> dict[int, Record]:
    """Return all tickets of a journal by number, with the values that corrections have left; ``design`` are the points before round 1.

    Raises:
      DamagedSession: on an event that a session of this specification has not written; the message says which, and why not.
    """
    records: dict[int, Record] = {}
    for event in journal.events[1:]:
        try:
            if event.body.keys() != BODIES[event.kind]:
                raise InvalidArgument(f"must hold {', '.join(sorted(BODIES[event.kind]))}, got {short(sorted(event.body))}")
            if event.kind == "asked":
                _check_asked(specification, design, records, event.body)
            elif event.kind == "fitted":
                from_fields(Model, event.body["model"], "model").validate("model")
                count = len(specification.outputs.names)
                _check_equal("told", event.body["told"], sum(record.state(count) == "complete" for record in records.values()))
            else:
                _check_told(specification, records, event.kind, event.body)
        except (InvalidArgument, RecursionError) as error:
            where = f"event {event.number} of {journal.directory / JOURNAL}, {event.kind!r},"
            raise DamagedSession(f"directory: {where} does not fit its session: {reason_of(error)}") from error
        note(records, event)
    return records


def _check_asked(specification: Specification, design: Sequence[int], records: Mapping[int, Record], body: Mapping[str, Any]) -> None:
    """Raise ``InvalidArgument`` unless the next ticket is one that could have been asked for."""
    number, at_once = len(records) + 1, specification.at_once
    round_ = 0 if number <= len(design) else rounds_begun(records, at_once=at_once) + 1
    _check_equal("ticket", body["ticket"], number)
    _check_equal("round", body["round"], round_)
    whole(0, specification.space.domain.size - 1)("index", body["index"])
    whole(0, 2 * max(Status) - 1)("status", body["status"])
    if not round_:
        _check_equal("index", body["index"], design[number - 1])
    if round_ > specification.horizon:
        raise InvalidArgument(f"round: must be at most {specification.horizon}, the horizon, got {round_}")
    # Of later rounds the last ticket is enough: those before it have been looked at when it was asked for.
    before = list(records) if round_ == 1 else [number - 1] if at_once and round_ else []
    waiting = [own for own in before if records[own].state(len(specification.outputs.names)) in ("pending", "partial")]
    if waiting:
        raise InvalidArgument(f"ticket: must follow the values of ticket {waiting[0]}, which are not there yet")


def _check_told(specification: Specification, records: Mapping[int, Record], kind: str, body: Mapping[str, Any]) -> None:
    """Raise ``InvalidArgument`` unless values of a ticket could have been told or corrected, or the ticket dropped."""
    number = number_of(body["ticket"], records)
    record, count = records[number], len(specification.outputs.names)
    if kind == "dropped":
        if record.state(count) in ("complete", "dropped"):
            raise InvalidArgument(f"ticket: must be one that could be dropped, got {number}, which is {record.state(count)}")
        return
    values = body["values"]
    if values != {} or kind == "corrected" or not record.dropped:
        told_values(specification.outputs, values, None, None, LARGEST)
    begun = records[len(records)].round > 0
    check_tellable(number, record, {}, correct=True, at_once=specification.at_once, begun=begun)
    for name in values:
        if (name in record.values) != (kind == "corrected"):
            raise InvalidArgument(f"values: {name} of ticket {number} {'was' if name in record.values else 'had not been'} told before")


def _check_equal(name: str, value: Any, expected: int) -> None:
    """Raise ``InvalidArgument`` unless a value is the whole number that follows from the events before."""
    if type(value) is not int or value != expected:
        raise InvalidArgument(f"{name}: must be {expected} after the events before, got {short(value)}")
