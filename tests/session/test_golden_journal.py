"""A journal that an earlier version wrote opens, and says what it said then."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

from jaxbandit.session import Session
from jaxbandit.session.journal import APPLICATION, JOURNAL


def said(session: Session) -> dict[str, Any]:
    """What a user sees of it."""
    return {
        "told": session.told,
        "pending": [[ticket.number, dict(ticket.point)] for ticket in session.pending],
        "kinds": [event.kind for event in session.events],
        "next point": dict(session.ask().point),
    }


def test_golden_journal(tmp_path: Path, golden: Any) -> None:
    journal = golden("journal")
    directory = tmp_path / "old"
    directory.mkdir()
    connection = sqlite3.connect(directory / JOURNAL, isolation_level=None)
    connection.executescript("\n".join(journal.values()["schema 1"]))
    connection.executescript(f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = 1;")
    connection.close()
    with Session.open(directory) as session:
        journal.check("what it says", said(session))
        assert version_of(directory) == 1, "asking is nothing new"
        session.observe({"dose": 0.1, "heat": 20.0}, {"yield": 0.4, "purity": 0.3})
        assert version_of(directory) == 2, "which version 1 does not know"
        believed = session.belief()
    with Session.open(directory, read_only=True) as session:
        assert session.belief().equals(believed) and session.events[-1].kind == "observed"


def version_of(directory: Path) -> int:
    """The version that a journal says."""
    with contextlib.closing(sqlite3.connect(directory / JOURNAL)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])
