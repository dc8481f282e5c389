"""The journal of a session: append-only, checked when it is opened, held by one process at a time."""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxbandit.session.journal import (
    JOURNAL,
    LOCK,
    CannotRecord,
    DamagedSession,
    Journal,
    SessionError,
    SessionInUse,
    create_journal,
    open_journal,
)
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
    """A process that only reads sees it at once, while another holds the session; and SQLite syncs every commit."""
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
    """Each sees what the others have written; who waits too long is told."""
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
    """Its name is that of the file system mounted nearest above the directory; what is there can be read."""
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
    (journal.directory / LOCK).unlink(missing_ok=True)
    (journal.directory / LOCK).mkdir()
    again = open_journal(journal.directory)
    with pytest.raises(SessionError, match=rf"cannot open .*{LOCK}, by which a call holds the session"), again.claim():
        pass
    again.close()


def test_a_journal_where_nothing_can_be_written_is_read(journal: Journal) -> None:
    path, events = journal.directory / JOURNAL, list(journal.events)
    log, shared = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    with read_only(path, log, shared) as directory:  # as a process that was killed leaves them
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
    """Whatever fits: less than a page, the file without its tables, or all but the last page."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    refused = 0
    for size in range(1024, 64 * 1024, 2048):
        directory = tmp_path / str(size)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            create_journal(directory, SPECIFICATION).close()
        except CannotRecord:
            refused += 1
            assert {file.name for file in directory.iterdir()} <= {LOCK}
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        if refused and not (directory / JOURNAL).exists():
            create_journal(directory, SPECIFICATION).close()  # there is room again
        open_journal(directory).close()
    assert 3 <= refused < 32


def test_a_new_name_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the directory is synced once the journal has its name."""
    synced: list[tuple[int, bool]] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append((os.fstat(handle).st_ino, (tmp_path / JOURNAL).exists())))
    create_journal(tmp_path, SPECIFICATION).close()
    assert synced == [(tmp_path.stat().st_ino, True)]


def test_an_event_that_cannot_be_written_has_not_happened(journal: Journal) -> None:
    journal._connection.execute("PRAGMA max_page_count = 1")  # as a full disk
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
