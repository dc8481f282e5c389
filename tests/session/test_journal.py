"""Journals: what they hold, what an earlier version wrote, damage, and kills."""

import contextlib
import json
import os
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxbandit import Rpol
from jaxbandit.cli import main
from jaxbandit.report.session import write_session_report
from jaxbandit.session import Axis, Session
from jaxbandit.session.journal import (
    APPLICATION,
    JOURNAL,
    SCHEMA,
    CannotRecord,
    DamagedSession,
    Journal,
    SessionError,
    SessionInUse,
    create_journal,
    open_journal,
    salvage_journal,
)
from tests.session.kill_session import kill_and_compare
from tests.support.users import read_only

SPECIFICATION = {"horizon": 12, "objective": "maximise yield"}


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = create_journal(tmp_path / "session", SPECIFICATION)
    with made.claim():
        made.append("asked", {"ticket": 1, "round": 1, "index": 7, "status": 0})
        made.append("told", {"ticket": 1, "values": {"yield": 0.1 + 0.2}})
    yield made
    made.close()


def changed(journal: Journal, *statements: str) -> Path:
    """The directory of a journal that other hands have changed."""
    journal.close()
    connection = sqlite3.connect(journal.directory / JOURNAL, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()
    return journal.directory


def test_events_come_back_as_they_were_written(journal: Journal) -> None:
    events = list(journal.events)
    journal.close()
    again = open_journal(journal.directory)
    assert again.events == events and [event.kind for event in events] == ["created", "asked", "told"]
    assert again.events[2].body["values"]["yield"] == 0.1 + 0.2
    assert json.loads(events[1].line()) == {"number": 2, "kind": "asked", "at": events[1].at, **events[1].body}
    again.close()


def test_it_is_on_the_disk_when_append_returns(journal: Journal) -> None:
    """A reader sees an event at once, and SQLite syncs every commit."""
    reader = open_journal(journal.directory, read_only=True)
    with journal.claim():
        journal.append("dropped", {"ticket": 1})
        reader.follow()
    assert [event.digest for event in reader.events] == [event.digest for event in journal.events] and len(reader.events) == 4
    settings = {name: journal._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "journal_mode")}
    assert settings == {"synchronous": 2, "journal_mode": "wal"}
    with pytest.raises(SessionError, match="opened for reading only"), reader.claim():
        pass
    reader.close()


def test_events_are_never_changed(journal: Journal) -> None:
    for statement in ("UPDATE events SET body = '{}' WHERE number = 2", "DELETE FROM events WHERE number = 3"):
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            journal._connection.execute(statement)


OTHER_HANDS: dict[str, tuple[tuple[str, ...], str]] = {
    "a changed value": (("DROP TRIGGER events_stay", "UPDATE events SET body = replace(body, '7', '8') WHERE number = 2"), "event 2"),
    "another specification": (("DROP TRIGGER events_stay", "UPDATE events SET body = '{\"horizon\": 13}' WHERE number = 1"), "event 1"),
    "a removed event": (("DROP TRIGGER events_remain", "DELETE FROM events WHERE number = 2"), "event 3"),
    "a last event removed from the middle": (("DROP TRIGGER events_remain", "DELETE FROM events WHERE number = 1"), "event 2"),
    "no JSON": (("DROP TRIGGER events_stay", "UPDATE events SET body = '{' WHERE number = 3"), "event 3 .* cannot be read"),
    "JSON in JSON without end": (
        ("DROP TRIGGER events_stay", f"UPDATE events SET body = '{'[' * 100_000}' WHERE number = 3"),
        "event 3 .* cannot be read: maximum recursion",
    ),
    "no JSON object": (("DROP TRIGGER events_stay", "UPDATE events SET body = '3' WHERE number = 3"), "event 3 .* cannot be read"),
    "no time": (("DROP TRIGGER events_stay", "UPDATE events SET at = 'noon' WHERE number = 3"), "event 3 .* cannot be read"),
    "no event": (("DROP TRIGGER events_remain", "DELETE FROM events"), "holds no event"),
    "no table": (("DROP TABLE events",), "no journal that can be read"),
    "a newer version": (("PRAGMA user_version = 4",), "is of version 4, newer than 3"),
    "another program's": (("PRAGMA application_id = 5",), "a database of another program"),
}


@pytest.mark.parametrize("case", OTHER_HANDS)
def test_a_journal_that_other_hands_have_changed_is_refused(case: str, journal: Journal) -> None:
    statements, words = OTHER_HANDS[case]
    directory = changed(journal, *statements)
    with pytest.raises(DamagedSession, match=words):
        open_journal(directory)
    with pytest.raises(DamagedSession, match=words):
        open_journal(directory, read_only=True)


def test_a_damaged_file_is_refused(journal: Journal) -> None:
    with journal.claim():
        for number in range(200):
            journal.append("dropped", {"ticket": number})
    journal.close()
    path = journal.directory / JOURNAL
    whole = path.read_bytes()
    for damage, words in (
        (whole[: len(whole) // 2], "damaged|no journal that can be read|not as it was"),
        (whole[:8192] + b"\x00" * 4096 + whole[12288:], "damaged|no journal that can be read|not as it was"),
        (b"not a database at all" * 100, "no journal that can be read"),
        (b"", "another program"),
    ):
        path.write_bytes(damage)
        with pytest.raises(DamagedSession, match=words):
            open_journal(journal.directory)
    path.write_bytes(whole)
    open_journal(journal.directory).close()


def test_there_is_one_writer_at_a_time(journal: Journal) -> None:
    impatient, patient = (open_journal(journal.directory, wait=wait) for wait in (0.0, 10.0))
    holds, done = threading.Event(), threading.Event()

    def hold() -> None:
        with journal.claim():
            journal.append("dropped", {"ticket": 1})
            holds.set()
            done.wait(10.0)

    holder = threading.Thread(target=hold)
    holder.start()
    assert holds.wait(10.0)
    with pytest.raises(SessionInUse, match="in use by a call that takes longer than 0 s"), impatient.claim():
        pass
    threading.Timer(0.2, done.set).start()
    started = time.monotonic()
    with patient.claim():
        assert 0.05 < time.monotonic() - started < 9
        assert patient.events == journal.events
        patient.append("told", {"ticket": 1, "values": {}})
    holder.join()
    with impatient.claim():
        assert [event.kind for event in impatient.events[3:]] == ["dropped", "told"]
    impatient.close()
    patient.close()


def test_what_others_have_damaged_is_noticed_by_those_who_have_it_open(journal: Journal) -> None:
    other = open_journal(journal.directory)
    changed(journal, "INSERT INTO events VALUES (4, 'dropped', '2026-01-01T00:00:00.000+00:00', '{}', 'none')")
    for _ in range(2):
        with pytest.raises(DamagedSession, match=r"event 4 .* is not as it was written"), other.claim():
            pass
    other.close()


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "lustre", "fuse.sshfs", "9p", "ext4"])
def test_a_network_file_system_is_refused_by_name(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "a share" / "session"
    create_journal(place, SPECIFICATION).close()
    mounts = tmp_path / "mounts"
    shared = str(tmp_path.resolve() / "a share").replace(" ", "\\040")
    mounts.write_text(f"disk / ext4 rw 0 0\nserver:/ {shared} {kind} rw 0 0\nother:/ {tmp_path.resolve()} nfs rw 0 0\n")
    monkeypatch.setattr("jaxbandit.session.journal.MOUNTS", mounts)
    if kind == "ext4":
        open_journal(place).close()
        return
    for make in (open_journal, lambda place: create_journal(place / "new", SPECIFICATION)):
        with pytest.raises(SessionError, match=rf"on a network file system, {kind}, .*jaxbandit.optuna.Sampler"):
            make(place)
    open_journal(place, read_only=True).close()


def test_a_session_is_not_begun_twice(journal: Journal, tmp_path: Path) -> None:
    journal.close()
    with pytest.raises(SessionError, match="holds a session already"):
        create_journal(journal.directory, SPECIFICATION)
    (tmp_path / "file").write_text("")
    with pytest.raises(SessionError, match="cannot make"):
        create_journal(tmp_path / "file", SPECIFICATION)
    with pytest.raises(SessionError, match="holds no session"):
        open_journal(tmp_path)
    (journal.directory / "session.lock").unlink(missing_ok=True)
    (journal.directory / "session.lock").mkdir()
    again = open_journal(journal.directory)
    with pytest.raises(SessionError, match=r"cannot open .*session.lock, by which a call holds the session"), again.claim():
        pass
    again.close()


def test_a_journal_where_nothing_can_be_written_is_read(journal: Journal) -> None:
    path, events = journal.directory / JOURNAL, list(journal.events)
    log, shared = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    with read_only(path, log, shared) as directory:
        reader = open_journal(directory, read_only=True)
        assert reader.events == events
        reader.close()
    with read_only(path, log) as directory, pytest.raises(SessionError, match=rf"cannot be written to and lacks {shared.name}"):
        open_journal(directory, read_only=True)
    journal.close()
    with read_only(path) as directory:
        reader = open_journal(directory, read_only=True)
        assert reader.events == events
        with pytest.raises(SessionError, match="reading only"), reader.claim():
            pass
        reader.close()
        with pytest.raises(SessionError, match="cannot be written to; open the session for reading only"):
            open_journal(directory)


def test_a_disk_that_is_full_leaves_no_half_of_a_journal(tmp_path: Path) -> None:
    """The disk has room for no page up to all but one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    refused = 0
    for size in range(1024, 64 * 1024, 2048):
        directory = tmp_path / str(size)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            create_journal(directory, SPECIFICATION).close()
        except CannotRecord:
            refused += 1
            assert {file.name for file in directory.iterdir()} <= {"session.lock"}
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        if refused and not (directory / JOURNAL).exists():
            create_journal(directory, SPECIFICATION).close()
        open_journal(directory).close()
    assert 3 <= refused < 32


def test_a_new_name_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the directory is synced once the journal has its name."""
    synced: list[tuple[int, bool]] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append((os.fstat(handle).st_ino, (tmp_path / JOURNAL).exists())))
    create_journal(tmp_path, SPECIFICATION).close()
    assert synced == [(tmp_path.stat().st_ino, True)]


def test_an_event_that_cannot_be_written_has_not_happened(journal: Journal) -> None:
    # SQLite treats this as a full disk.
    journal._connection.execute("PRAGMA max_page_count = 1")
    before = list(journal.events)
    with pytest.raises(CannotRecord, match="the event has not happened"), journal.claim():
        for _ in range(100):
            before = list(journal.events)
            journal.append("told", {"ticket": 1, "values": {"yield": 0.5}, "long": "x" * 10_000})
    assert journal.events == before
    journal.close()
    again = open_journal(journal.directory)
    assert again.events == before
    again.close()


AXES = [Axis.between("dose", 0.1, 10.0, 6, "logarithmic"), Axis.between("heat", 20.0, 80.0, 5, unit="°C")]


def played(directory: Path) -> Session:
    """Return a session with values early, late, partial, corrected and under way."""
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
    """Return everything that a user sees of a session."""
    return {
        "told": session.told,
        "pending": [[ticket.number, dict(ticket.point)] for ticket in session.pending],
        "kinds": [event.kind for event in session.events],
        "next point": dict(session.ask().point),
    }


@pytest.mark.parametrize("schema", range(1, SCHEMA + 1))
def test_golden_journal(schema: int, tmp_path: Path, golden: Any) -> None:
    journal = golden("journal")
    # Nobody writes journals of earlier versions any more.
    if journal.write and schema == SCHEMA:
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
    """A warning at the first fit and every later look say it."""
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


@pytest.mark.full
def test_a_session_of_this_version_has_had_one_learner(tmp_path: Path) -> None:
    with played(tmp_path) as session:
        session.fit()
        assert session.learner_changed_at is None


@pytest.mark.full
def test_nothing_told_is_lost_and_the_choices_are_the_same() -> None:
    said: list[str] = []
    assert kill_and_compare(kills=1, last=40, seconds=0.1, seed=0, report=said.append, begun=30) == 0, "\n".join(said)


EVENTS = 24
BODY = {"ticket": 1, "values": {"yield": 0.1 + 0.2}}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a killed process's files, with events in the write-ahead log."""
    live, left = tmp_path_factory.mktemp("live"), tmp_path_factory.mktemp("left") / "session"
    with contextlib.closing(create_journal(live, {"horizon": 12})) as journal:
        filled(journal, EVENTS - 1)
        shutil.copytree(live, left)
    assert {file.name for file in left.iterdir()} == {JOURNAL, f"{JOURNAL}-wal", f"{JOURNAL}-shm", "session.head", "session.lock"}
    with contextlib.closing(open_journal(shutil.copytree(left, left.with_name("whole")))) as journal:
        assert len(journal.events) == EVENTS
    return left


@pytest.fixture(scope="module")
def closed(killed: Path) -> Path:
    """The files of the same session once a process has closed it."""
    place = shutil.copytree(killed, killed.with_name("closed"))
    open_journal(place).close()
    assert not (place / f"{JOURNAL}-wal").exists()
    return place


def filled(journal: object, count: int) -> None:
    with journal.claim():  # type: ignore[attr-defined]
        for _ in range(count):
            journal.append("told", BODY)  # type: ignore[attr-defined]


def damages(seed: int, count: int, files: list[Path]) -> Iterator[tuple[str, Callable[[Path], object]]]:
    """Yield random damages by disks, careless copies or broken tools, with words."""
    draw = random.Random(seed)
    for _ in range(count):
        file = draw.choice(files)
        size, kind = file.stat().st_size, draw.choice(("flip", "flip", "cut", "insert", "zero", "remove", "swap"))
        place, length = draw.randrange(max(size, 1)), draw.choice((1, 3, 24, 512, 4096))
        bits, garbage = 1 << draw.randrange(8), draw.randbytes(length)

        def harm(
            path: Path, kind: str = kind, place: int = place, length: int = length, bits: int = bits, garbage: bytes = garbage
        ) -> None:
            whole = path.read_bytes()
            match kind:
                case "flip":
                    found = whole[:place] + bytes([whole[place] ^ bits] if whole else []) + whole[place + 1 :]
                case "cut":
                    found = whole[:place]
                case "insert":
                    found = whole[:place] + garbage + whole[place:]
                case "zero":
                    found = whole[:place] + bytes(len(whole[place : place + length])) + whole[place + length :]
                case "swap":
                    found = whole[:place] + garbage[: len(whole) - place] + whole[place + length :]
                case _:
                    path.unlink()
                    return
            path.write_bytes(found)

        yield f"{kind} of {file.name} at {place} of {size}, {length} bytes", lambda folder, file=file, harm=harm: harm(folder / file.name)


@pytest.mark.parametrize("state", ["killed", "closed"])
def test_no_damage_at_random_loses_an_event_without_a_word(state: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    source = request.getfixturevalue(state)
    files = sorted(file for file in source.iterdir() if file.name != "session.lock")
    said, silent = 0, list[str]()
    for number, (words, harm) in enumerate(damages(seed=len(files), count=200, files=files)):
        folder = shutil.copytree(source, tmp_path / str(number))
        harm(folder)
        try:
            with contextlib.closing(open_journal(folder)) as journal:
                if len(journal.events) != EVENTS:
                    silent.append(words)
        except SessionError as error:
            said += 1
            assert "\n" not in str(error)
        shutil.rmtree(folder)
    assert not silent and said > 50


@pytest.mark.parametrize("state", ["killed", "closed"])
def test_an_older_copy_is_noticed(state: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder = shutil.copytree(request.getfixturevalue(state), tmp_path / "session")
    older = shutil.copytree(folder, tmp_path / "older")
    with contextlib.closing(open_journal(folder)) as journal:
        filled(journal, 3)
    newer = shutil.copytree(folder, tmp_path / "newer")
    for name in (JOURNAL, f"{JOURNAL}-wal"):
        if (older / name).exists():
            shutil.copy(older / name, newer / name)
    with pytest.raises(DamagedSession, match=r"holds 24 events .* is not the journal of 27 that session.head knows"):
        open_journal(newer)
    with pytest.raises(DamagedSession, match=r"is not the journal of 27"):
        open_journal(newer, read_only=True)
    with contextlib.closing(open_journal(older)) as journal:
        assert len(journal.events) == EVENTS


def test_another_journal_of_as_many_events_is_noticed(closed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(closed, tmp_path / "session")
    with contextlib.closing(create_journal(tmp_path / "other", {"horizon": 12})) as journal:
        filled(journal, EVENTS + 5)
    shutil.copy(tmp_path / "other" / JOURNAL, folder / JOURNAL)
    with pytest.raises(DamagedSession, match="is not the journal of 24"):
        open_journal(folder)


def test_a_journal_of_an_earlier_version_is_opened_and_guarded_from_then_on(closed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(closed, tmp_path / "session")
    (folder / "session.head").unlink()
    with contextlib.closing(open_journal(folder)) as journal:
        assert len(journal.events) == EVENTS
        filled(journal, 1)
    shutil.copy(closed / JOURNAL, folder / JOURNAL)
    with pytest.raises(DamagedSession, match="is not the journal of 25"):
        open_journal(folder)


def test_what_is_left_of_a_damaged_journal_is_gone_on_with(killed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(killed, tmp_path / "session")
    log = folder / f"{JOURNAL}-wal"
    log.write_bytes(log.read_bytes()[:-20_000])
    with pytest.raises(DamagedSession, match=r"python -m jaxbandit session salvage"):
        open_journal(folder)
    kept, aside = salvage_journal(folder)
    assert 0 < kept < EVENTS and aside == folder / "damaged-1" and {JOURNAL, "session.head"} <= {file.name for file in aside.iterdir()}
    with contextlib.closing(open_journal(folder)) as journal:
        assert len(journal.events) == kept
        filled(journal, 1)
    assert salvage_journal(folder) == (kept + 1, None), "nothing is damaged"
    (folder / JOURNAL).write_bytes(b"nothing of it is left")
    with pytest.raises(DamagedSession, match="not even its first event"):
        salvage_journal(folder)
    assert not (folder / "damaged-2").exists()


def test_what_is_left_of_a_journal_that_was_cut_off_is_gone_on_with(tmp_path: Path) -> None:
    with contextlib.closing(create_journal(tmp_path, {"horizon": 12})) as journal:
        filled(journal, 200)
    path = tmp_path / JOURNAL
    for size, least in ((path.stat().st_size - 9_000, 50), (path.stat().st_size // 2, 20)):
        os.truncate(path, size)
        with pytest.raises(DamagedSession, match="malformed"):
            open_journal(tmp_path)
        kept, aside = salvage_journal(tmp_path)
        assert least < kept < 201 and aside is not None
        open_journal(tmp_path).close()


def test_a_new_session_where_an_earlier_one_was_removed(closed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(closed, tmp_path / "session")
    (folder / JOURNAL).unlink()
    with contextlib.closing(create_journal(folder, {"horizon": 13})) as journal:
        assert len(journal.events) == 1


def test_a_head_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from jaxbandit.session.journal import CannotRecord

    with contextlib.closing(create_journal(tmp_path, {"horizon": 12})) as journal:
        (tmp_path / "session.head").unlink()
        (tmp_path / "session.head").mkdir()
        with pytest.raises(SessionError, match=r"cannot read .*session.head"), journal.claim():
            pass
        (tmp_path / "session.head").rmdir()
        with journal.claim(), pytest.raises(CannotRecord, match="the event has happened, and its loss would not be noticed"):
            (tmp_path / "session.head").mkdir()
            journal.append("told", BODY)
        (tmp_path / "session.head").rmdir()
        with journal.claim():
            assert len(journal.events) == 2


NAMES: dict[str, Callable[[Path, Path], object]] = {
    "a link to the directory": lambda folder, other: other.symlink_to(folder),
    "a link to the journal": lambda folder, other: (other.mkdir(), (other / JOURNAL).symlink_to(folder / JOURNAL)),
    "a hard link to the journal": lambda folder, other: (other.mkdir(), os.link(folder / JOURNAL, other / JOURNAL)),
}
WRITER = """
import sys
import time
from pathlib import Path
from jaxbandit.session.journal import open_journal
print("ready", flush=True)
start = float(sys.stdin.readline())
while time.time() < start:
    pass
journal = open_journal(Path(sys.argv[1]))
for _ in range(40):
    with journal.claim():
        number = sum(event.kind == "asked" for event in journal.events) + 1
        journal.append("asked", {"ticket": number})
        print(number, flush=True)
journal.close()
"""


@pytest.mark.full(but=("a link to the journal",))
@pytest.mark.parametrize("kind", NAMES)
def test_a_session_reached_by_two_paths_has_one_writer(kind: str, tmp_path: Path) -> None:
    """Two processes ask at once, each by its own path."""
    folder, other = tmp_path / "session", tmp_path / "other"
    create_journal(folder, {"horizon": 12}).close()
    NAMES[kind](folder, other)
    command = [sys.executable, "-c", WRITER]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    writers = [subprocess.Popen([*command, str(place)], **pipes) for place in (folder, other)]
    assert [writer.stdout.readline() for writer in writers] == ["ready\n"] * 2
    start = time.time() + 0.2
    for writer in writers:
        writer.stdin.write(f"{start}\n")
        writer.stdin.flush()
    tickets = [list(map(int, writer.communicate()[0].split())) for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0]
    assert sorted(tickets[0] + tickets[1]) == list(range(1, 81))
    for place in (folder, other):
        with contextlib.closing(open_journal(place, read_only=True)) as journal:
            assert [event.body["ticket"] for event in journal.events[1:]] == list(range(1, 81))


def test_a_hard_link_to_a_journal_that_is_open_is_refused_until_it_is_closed(tmp_path: Path) -> None:
    folder, other = tmp_path / "session", tmp_path / "other"
    with contextlib.closing(create_journal(folder, {"horizon": 12})) as journal:
        filled(journal, 2)
        other.mkdir()
        os.link(folder / JOURNAL, other / JOURNAL)
        with pytest.raises(SessionError, match="has several names"):
            open_journal(other)
    with pytest.raises(SessionError, match="has several names"):
        open_journal(other, read_only=True)
    with contextlib.closing(open_journal(other)) as journal:
        assert len(journal.events) == 3
