"""A journal that an earlier version wrote opens, and says what it said then."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import jax
import pytest

from jaxbandit import Rpol
from jaxbandit.session import Axis, Session
from jaxbandit.session.journal import APPLICATION, JOURNAL, SCHEMA

AXES = [Axis.between("dose", 0.1, 10.0, 6, "logarithmic"), Axis.between("heat", 20.0, 80.0, 5, unit="°C")]


def played(directory: Path) -> Session:
    """A session without a model: values told before, whole, in parts and out of order; runs dropped, corrected and under way."""
    goals = {"objective": "maximise yield", "constraints": ["cost <= 1.5"], "units": {"yield": "%"}}
    session = Session.create(directory, AXES, Rpol(), key=jax.random.key(3), horizon=12, **goals)
    session.observe({"dose": 0.1, "heat": 20.0}, {"yield": 48.0, "cost": 0.4})
    tickets = session.ask(8)
    for ticket in reversed(tickets[:5]):
        session.tell(ticket, {"yield": 50.0 + ticket.index, "cost": 0.1 * ticket.number})
    session.drop(tickets[5])
    session.tell(tickets[6], {"cost": 1.7})
    session.tell(tickets[0], {"yield": 61.5}, correct=True)
    session.ask()
    return session


def said(session: Session) -> dict[str, Any]:
    """What a user sees of it."""
    return {
        "told": session.told,
        "pending": [[ticket.number, dict(ticket.point)] for ticket in session.pending],
        "kinds": [event.kind for event in session.events],
        "next point": dict(session.ask().point),
    }


@pytest.mark.parametrize("schema", range(1, SCHEMA + 1))
def test_golden_journal(schema: int, tmp_path: Path, golden: Any) -> None:
    journal = golden("journal")
    if journal.write and schema == SCHEMA:  # nobody writes those of earlier versions any more
        played(tmp_path / "made").close()
        connection = sqlite3.connect(tmp_path / "made" / JOURNAL)
        journal.check(f"schema {schema}", list(connection.iterdump()))
        connection.close()
    directory = tmp_path / "old"
    directory.mkdir()
    connection = sqlite3.connect(directory / JOURNAL, isolation_level=None)
    connection.executescript("\n".join(journal.values()[f"schema {schema}"]))
    connection.executescript(f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {schema};")
    connection.close()
    with Session.open(directory) as session:
        journal.check("what it says" if schema == 1 else f"what it says of schema {schema}", said(session))
