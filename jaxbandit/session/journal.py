"""The journal of a session: its events in the order in which they happened, in one SQLite file that is never rewritten.

An event is on the disk before the call that made it returns. Every event holds a digest of itself and of all before it, so that damage and
changes by other hands are noticed. A snapshot beside the events makes opening faster; it is used only if it was made from these events.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import json
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.files import reason_of, replace

JOURNAL, LOCK = "session.sqlite", "lock.sqlite"
SCHEMA = 1
APPLICATION = 0x4A584253  # "JXBS" in the file's header
LONGEST_WAIT = 1e6  # seconds for another process, which SQLite can count in milliseconds
KINDS = ("created", "asked", "told", "dropped", "corrected", "fitted")
TABLES = (
    "CREATE TABLE events (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, at TEXT NOT NULL, body TEXT NOT NULL, digest TEXT NOT NULL)",
    "CREATE TRIGGER events_stay BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events are never changed'); END",
    "CREATE TRIGGER events_remain BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events are never removed'); END",
    "CREATE TABLE snapshots (one INTEGER PRIMARY KEY CHECK (one = 1), digest TEXT NOT NULL, maker TEXT NOT NULL, state BLOB NOT NULL)",
)


Body: TypeAlias = Mapping[str, Any]
"""An event as plain values."""


class SessionError(InvalidArgument):
    """A session that cannot be used as asked; its journal is as it was."""


class SessionInUse(SessionError):
    """Another process holds the session."""


class DamagedSession(SessionError):
    """A journal that cannot be trusted: no session's, of a newer version, damaged, or changed by other hands."""


class CannotRecord(RuntimeError):
    """An event could not be written down, for want of space or of permission; it has not happened."""


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that happened in a session.

    Attributes:
      number: its place in the journal, from 1.
      kind: one of ``KINDS``.
      at: when, in UTC, as ISO 8601 writes it.
      body: what, as plain values.
      digest: SHA-256 of this event and of all before it.
    """

    number: int
    kind: str
    at: str
    body: Body = dataclasses.field(repr=False)
    digest: str = dataclasses.field(repr=False)

    def line(self) -> str:
        """Return the event as a line of JSON."""
        return json.dumps({"number": self.number, "kind": self.kind, "at": self.at, **self.body}, ensure_ascii=False)


class Journal:
    """An open journal. :func:`create_journal` and :func:`open_journal` make one.

    Attributes:
      directory: where it lies.
      events: all that has happened so far.
    """

    def __init__(self, directory: Path, connection: sqlite3.Connection, lock: sqlite3.Connection | None, events: list[Event]) -> None:
        self.directory, self.events = directory, events
        self._connection, self._lock = connection, lock

    @property
    def writable(self) -> bool:
        """Return whether this process may add events."""
        return self._lock is not None

    def append(self, kind: str, body: Body) -> Event:
        """Write an event down, on the disk before this returns.

        Raises:
          SessionError: where the journal was opened for reading.
          CannotRecord: when it cannot be written; nothing has happened then.
        """
        if not self.writable:
            raise SessionError("session: was opened for reading only; open it without read_only to go on with it")
        event = _event(len(self.events) + 1, kind, _now(), body, self.events[-1].digest if self.events else "")
        try:
            self._connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", _row(event))
        except sqlite3.Error as error:
            raise CannotRecord(f"cannot write {self.directory / JOURNAL}: {error}; the event has not happened") from error
        self.events.append(event)
        return event

    def keep_snapshot(self, maker: str, state: bytes) -> None:
        """Keep a state that the events so far lead to, behind its SHA-256; a snapshot that cannot be written is left out."""
        sealed = hashlib.sha256(state).digest() + state
        with contextlib.suppress(sqlite3.Error):  # such as a full disk: the events are kept, and without a snapshot opening is slower
            self._connection.execute("INSERT OR REPLACE INTO snapshots VALUES (1, ?, ?, ?)", (self.events[-1].digest, maker, sealed))

    def snapshot(self, maker: str) -> tuple[int, bytes] | None:
        """Return the number of events that lead to the snapshot, and its state.

        It is ``None`` where there is none of these events and ``maker``, or one that is damaged: all it holds can be had from the events.
        """
        try:
            row = self._connection.execute("SELECT digest, maker, state FROM snapshots").fetchone()
        except sqlite3.Error:
            return None
        places = {event.digest: event.number for event in self.events}
        if row is None or row[1] != maker or row[0] not in places or not isinstance(row[2], bytes):
            return None
        digest, state = row[2][:32], row[2][32:]
        return (places[row[0]], state) if digest == hashlib.sha256(state).digest() else None

    def close(self) -> None:
        """Let go of the journal, for others to take."""
        self._connection.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def create_journal(directory: Path, specification: Body) -> Journal:
    """Make the journal of a new session, whose first event holds its specification; nothing is left of one that cannot be written.

    Raises:
      SessionError: where there is one already, or the directory cannot be written to.
    """
    path, temporary = directory / JOURNAL, directory / f".{JOURNAL}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise SessionError(f"directory: cannot make {str(directory)!r}: {error}") from error
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(contextlib.closing(_locked(directory, wait=0.0)))
        if path.exists():
            raise SessionError(f"directory: {directory} holds a session already; open it, or choose another place")
        created = _event(1, "created", _now(), specification, "")
        try:
            temporary.unlink(missing_ok=True)
            with contextlib.closing(_connected(temporary)) as connection:
                connection.execute("BEGIN")
                for statement in TABLES:
                    connection.execute(statement)
                connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", _row(created))
                connection.execute(f"PRAGMA application_id = {APPLICATION}")
                connection.execute(f"PRAGMA user_version = {SCHEMA}")
                connection.execute("COMMIT")
                connection.execute("PRAGMA journal_mode = WAL")  # not before: what a log holds comes into the file when there is room
            replace(temporary, path)  # a process that dies before leaves no half of a journal
            connection = _connected(path)
        except BaseException as error:
            for name in (temporary.name, path.name):
                for end in ("", "-journal", "-wal", "-shm"):
                    path.with_name(name + end).unlink(missing_ok=True)
            if isinstance(error, sqlite3.Error | OSError):
                raise CannotRecord(f"cannot write {path}: {error}; there is no session") from error
            raise
        stack.pop_all()
        return Journal(directory, connection, lock, [created])


def open_journal(directory: Path, *, read_only: bool = False, wait: float = 0.0) -> Journal:
    """Open the journal of a session and check all of it.

    Args:
      directory: where it lies.
      read_only: look at it without holding it, while another process may.
      wait: seconds to wait for a process that holds it.

    Raises:
      SessionError: where there is none, or it cannot be written to, unless it is to be read only.
      SessionInUse: when another process holds it.
      DamagedSession: when it is no journal, of a newer version, damaged, or changed by other hands.
    """
    path = directory / JOURNAL
    if not path.is_file():
        raise SessionError(f"directory: {directory} holds no session; session.Session.create makes one")
    if not (read_only or os.access(directory, os.W_OK)):
        raise SessionError(f"directory: {directory} cannot be written to; open the session for reading only, or a copy of it")
    with contextlib.ExitStack() as stack:
        lock = None if read_only else stack.enter_context(contextlib.closing(_locked(directory, wait=wait)))
        try:
            connection = stack.enter_context(contextlib.closing(_connected(path, _mode(path) if read_only else "mode=rwc")))
            _check_header(path, connection)
            events = _read(path, connection)
        except sqlite3.Error as error:  # of a file that is no database, or that cannot be read
            raise DamagedSession(f"directory: {path} is no journal that can be read: {error}") from error
        stack.pop_all()
        return Journal(directory, connection, lock, events)


def _mode(path: Path) -> str:
    """Return how SQLite is to open a journal for reading only.

    Raises:
      SessionError: when events wait in a log that cannot be read where nothing can be written.
    """
    log, shared = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    if os.access(path.parent, os.W_OK):
        return "mode=ro"
    if not (log.exists() and log.stat().st_size):
        return "mode=ro&immutable=1"  # without which SQLite makes files of its own to read it
    if not shared.exists():
        raise SessionError(
            f"directory: {path.parent} cannot be written to and lacks {shared.name}, without which the events in {log.name} cannot be read;"
            " copy all of it to where one can write, and open the copy"
        )
    return "mode=ro"


def _connected(path: Path, mode: str = "mode=rwc") -> sqlite3.Connection:
    """Return a connection each of whose statements is committed, and on the disk, when it returns."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _locked(directory: Path, *, wait: float) -> sqlite3.Connection:
    """Return a connection that holds the directory until it is closed or its process ends, however that ends.

    The lock is SQLite's own, on a database that holds nothing: the journal itself stays readable for others.
    """
    path = directory / LOCK
    try:
        lock = sqlite3.connect(path, timeout=min(wait, LONGEST_WAIT), isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:  # such as for a directory of that name
        raise SessionError(f"directory: cannot open {path}, by which a process holds the session: {error}") from error
    try:
        lock.execute("BEGIN EXCLUSIVE")
        return lock
    except sqlite3.DatabaseError as error:
        lock.close()
        if not isinstance(error, sqlite3.OperationalError):
            raise DamagedSession(
                f"directory: {path} is no lock of a session ({error}); remove it if no process uses the session"
            ) from error
        if "locked" not in str(error):
            raise SessionError(f"directory: cannot hold {directory}: {error}") from error
        raise SessionInUse(
            f"directory: the session in {directory} is in use by another process; wait for its end, or open it for reading only"
        ) from error


def _check_header(path: Path, connection: sqlite3.Connection) -> None:
    """Raise ``DamagedSession`` unless the file is a whole journal of this version."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    schema = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION:
        raise DamagedSession(f"directory: {path} is a database of another program, no journal of a session")
    if schema > SCHEMA:
        raise DamagedSession(f"directory: {path} is of version {schema}, newer than {SCHEMA}, which this jaxbandit knows; update jaxbandit")
    found = connection.execute("PRAGMA integrity_check").fetchone()[0]
    if found != "ok":
        raise DamagedSession(f"directory: {path} is damaged: {found.splitlines()[0]}")


def _read(path: Path, connection: sqlite3.Connection) -> list[Event]:
    """Return all events; raises ``DamagedSession`` where one is missing, changed or of an unknown kind."""
    events: list[Event] = []
    for number, kind, at, text, digest in connection.execute("SELECT number, kind, at, body, digest FROM events ORDER BY number"):
        try:
            event = _event(number, kind, at, dict(json.loads(text)), events[-1].digest if events else "")
            if datetime.datetime.fromisoformat(at).utcoffset() != datetime.timedelta(0):
                raise ValueError(f"its time, {at}, is not in UTC")
        except (ValueError, TypeError, RecursionError) as error:
            raise DamagedSession(f"directory: event {number} of {path} cannot be read: {reason_of(error)}") from error
        if event.digest != digest or number != len(events) + 1 or kind not in KINDS or (kind == "created") != (number == 1):
            raise DamagedSession(f"directory: event {number} of {path} is not as it was written; restore the file from a copy")
        events.append(event)
    if not events:
        raise DamagedSession(f"directory: {path} holds no event, not even its beginning")
    return events


def _event(number: int, kind: str, at: str, body: Body, before: str) -> Event:
    text = json.dumps([before, number, kind, at, body], sort_keys=True, ensure_ascii=False)
    return Event(number, kind, at, body, hashlib.sha256(text.encode()).hexdigest())


def _row(event: Event) -> tuple[object, ...]:
    return event.number, event.kind, event.at, json.dumps(event.body, sort_keys=True, ensure_ascii=False), event.digest


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
