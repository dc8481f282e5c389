"""A journal that an earlier version wrote opens, and says what it said then."""

from __future__ import annotations

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
