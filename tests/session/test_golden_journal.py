"""A journal that an earlier version wrote opens, and says what it said then."""

from __future__ import annotations

import sqlite3
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxbandit import Rpol
from jaxbandit.cli import main
from jaxbandit.report.session import write_session_report
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


def test_a_journal_of_an_earlier_learner_says_once_from_where_on_it_changed(tmp_path: Path, golden: Any, capsys: Any) -> None:
    """In a warning at the first fit, and in what a user looks at from then on; points and values stay as they were."""
    connection = sqlite3.connect(tmp_path / JOURNAL, isolation_level=None)
    connection.executescript("\n".join(golden("journal").values()["schema 2"]))
    connection.executescript(f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {SCHEMA};")
    connection.close()
    with Session.open(tmp_path, read_only=True) as session:
        before, points = session.columns(), len(session.columns()["ticket"])
        assert session.learner_changed_at is None and any(event.kind == "fitted" for event in session.events)
    with warnings.catch_warnings(record=True) as caught, Session.open(tmp_path) as session:
        warnings.simplefilter("always")
        session.fit()
        session.fit()
    said = [str(one.message) for one in caught if "learner" in str(one.message)]
    words = f"from ticket {points + 1} on points are those of the learner of a later version of jaxbandit"
    assert said == [f"fit: {words}; all points and values stay as they are"]
    with Session.open(tmp_path, read_only=True) as session:
        assert session.learner_changed_at == points + 1 and words in session._repr_html_()
        for name, column in before.items():
            np.testing.assert_array_equal(session.columns()[name], column)
    assert main(["session", "status", str(tmp_path)]) == 0 and f"learner changed at ticket  {points + 1}" in capsys.readouterr().out
    write_session_report(tmp_path)
    assert f"from ticket {points + 1} on by the learner" in (tmp_path / "report.html").read_text()


def test_a_session_of_this_version_has_had_one_learner(tmp_path: Path) -> None:
    with played(tmp_path) as session:
        session.fit()
        assert session.learner_changed_at is None
