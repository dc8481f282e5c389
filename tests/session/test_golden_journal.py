"""A journal that an earlier version wrote opens, and says what it said then."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import jax

from jaxbandit import InitialDesign, Rpol, feedback, kernels
from jaxbandit.session import Axis, Model, Session
from jaxbandit.session.journal import APPLICATION, JOURNAL, SCHEMA

AXES = [Axis.between("dose", 0.1, 10.0, 6, "logarithmic"), Axis.between("heat", 20.0, 80.0, 5)]


def played(directory: Path) -> Session:
    """A session with an initial design, tickets told whole, in parts and out of order, one dropped, one corrected, one under way."""
    session = Session.create(
        directory,
        AXES,
        Rpol(penalty_growth=0.5),
        Model(kernel=kernels.Scale(kernel=kernels.Matern52(length_scale=0.5), variance=2.0), noise_variance=0.05, form="features"),
        key=jax.random.key(3),
        horizon=12,
        objective="maximise yield",
        constraints=["cost <= 1.5", "purity >= 0.2"],
        initial=InitialDesign(random=2),
        feedback=feedback.Wait(),
    )
    first, second = session.ask(), session.ask()
    session.tell(second, {"yield": 0.4, "cost": 1.0, "purity": 0.3})
    session.tell(first, {"yield": 0.1 + 0.2, "cost": 1.75, "purity": 0.1})
    third = session.ask()
    session.tell(third, {"yield": 0.9})
    fourth = session.ask()
    session.drop(fourth)
    session.tell(third, {"cost": 0.5, "purity": 0.6})
    session.tell(first, {"yield": 0.35}, correct=True)
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


def test_golden_journal(tmp_path: Path, golden: Any) -> None:
    journal = golden("journal")
    if journal.write:
        played(tmp_path / "made").close()
        connection = sqlite3.connect(tmp_path / "made" / JOURNAL)
        journal.check("schema 1", list(connection.iterdump()))
        connection.close()
    directory = tmp_path / "old"
    directory.mkdir()
    connection = sqlite3.connect(directory / JOURNAL, isolation_level=None)
    connection.executescript("\n".join(journal.values()["schema 1"]))
    connection.executescript(f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {SCHEMA};")
    connection.close()
    with Session.open(directory) as session:
        journal.check("what it says", said(session))
