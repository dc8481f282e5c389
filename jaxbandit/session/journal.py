"""The journal of a session: its events in the order in which they happened, in one SQLite file that is never rewritten.

An event is on the disk before the call that made it returns. Every event holds a digest of itself and of all before it, so that damage and
changes by other hands are noticed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import json
import os
import re
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from filelock import FileLock, Timeout

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.files import reason_of, replace

JOURNAL, LOCK = "session.sqlite", "session.lock"
SCHEMA = 2  # of new journals; those of version 1, which lack events in ADDED, are read, and written on as they are until one happens
APPLICATION = 0x4A584253  # "JXBS" in the file's header
WAIT = 30.0  # seconds that a call waits for another one on the same session
MOUNTS = Path("/proc/self/mounts")  # the file systems of Linux, by where they are mounted
NETWORK = {"afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "smb3", "smbfs", "9p"}
NETWORK |= {f"fuse.{name}" for name in ("sshfs", "glusterfs", "ceph", "ceph-fuse", "juicefs", "s3fs", "rclone", "gcsfuse")}
ADDED = ("observed",)
KINDS = ("created", "asked", "told", "dropped", "corrected", "fitted", *ADDED)
BEGINNING = f"""
CREATE TABLE events (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, at TEXT NOT NULL, body TEXT NOT NULL, digest TEXT NOT NULL);
CREATE TRIGGER events_stay BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;
CREATE TRIGGER events_remain BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events are never removed'); END;
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {SCHEMA};
PRAGMA journal_mode = WAL;
"""
NEWER = "SELECT number, kind, at, body, digest FROM events WHERE number > ? ORDER BY number"

Body: TypeAlias = Mapping[str, Any]
"""An event as plain values."""


class SessionError(InvalidArgument):
    """A session that cannot be used as asked; its journal is as it was."""


class SessionInUse(SessionError):
    """A call on the session, of another process or object, takes longer than this one waits."""


class DamagedSession(SessionError):
    """A journal that cannot be trusted: no session's, of a newer version, damaged, or changed by other hands."""


class CannotRecord(RuntimeError):
    """An event could not be written down, for want of space or of permission; it has not happened."""


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that happened in a session."""

    number: int  # its place in the journal, from 1
    kind: str  # one of KINDS
    at: str  # when, in UTC, as ISO 8601 writes it
    body: Body = dataclasses.field(repr=False)  # what, as plain values
    digest: str = dataclasses.field(repr=False)  # SHA-256 of this event and of all before it

    @classmethod
    def after(cls, before: Event | None, kind: str, at: str, body: Body) -> Event:
        """Return the event that follows another, or the first."""
        number, digest = (1, "") if before is None else (before.number + 1, before.digest)
        text = json.dumps([digest, number, kind, at, body], sort_keys=True, ensure_ascii=False)
        return cls(number, kind, at, body, hashlib.sha256(text.encode()).hexdigest())

    def line(self) -> str:
        """Return the event as a line of JSON."""
        return json.dumps({"number": self.number, "kind": self.kind, "at": self.at, **self.body}, ensure_ascii=False)


class Journal:
    """An open journal and its events; :func:`create_journal` and :func:`open_journal` make one.

    Any number of processes may have it open. Events are appended within a :meth:`claim`, which one of them has at a time.
    """

    def __init__(self, directory: Path, connection: sqlite3.Connection, lock: FileLock | None, wait: float) -> None:
        self.directory, self.events = directory, list[Event]()
        self._connection, self._lock, self._wait, self._is_open = connection, lock, wait, True
        self.follow()

    def follow(self) -> None:
        """Take in the events that others have appended since the last look; raises ``DamagedSession`` as opening does."""
        try:
            rows = self._connection.execute(NEWER, [len(self.events)]).fetchall() if self._is_open else []
        except sqlite3.Error as error:
            raise _unreadable(self.directory / JOURNAL, error) from error
        for row in rows:
            self.events.append(_checked(self.directory / JOURNAL, self.events[-1] if self.events else None, *row))

    @contextlib.contextmanager
    def claim(self) -> Iterator[None]:
        """Hold the journal, with all that others have appended, for as long as the block takes; raises ``SessionInUse``."""
        if self._lock is None or not self._is_open:
            raise SessionError("session: is closed, or was opened for reading only; open it to go on with it")
        with _held(self._lock, self.directory, self._wait):
            self.follow()
            yield

    def append(self, kind: str, body: Body) -> Event:
        """Write an event down within a :meth:`claim`, on the disk before this returns.

        Raises ``CannotRecord`` when it cannot be, and nothing has happened.
        """
        assert self._lock is not None and self._lock.is_locked, "an event is appended within a claim"
        event = Event.after(self.events[-1], kind, _now(), body)
        try:
            if kind in ADDED:
                self._connection.execute(f"PRAGMA user_version = {SCHEMA}")
            _write(self._connection, event)
        except sqlite3.Error as error:
            raise CannotRecord(f"cannot write {self.directory / JOURNAL}: {error}; the event has not happened") from error
        self.events.append(event)
        return event

    def close(self) -> None:
        """Close the file; what has been read stays."""
        self._connection.close()
        self._is_open = False


class Unwritten(Journal):
    """A journal in memory, of a session that ends with the process, or that can be made again from what others keep."""

    def __init__(self, specification: Body, further: Sequence[tuple[str, Body]] = ()) -> None:
        self.directory, self.events = Path(), [Event.after(None, "created", _now(), specification)]
        for kind, body in further:
            self.append(kind, body)

    def follow(self) -> None:
        pass

    @contextlib.contextmanager
    def claim(self) -> Iterator[None]:
        yield

    def append(self, kind: str, body: Body) -> Event:
        self.events.append(Event.after(self.events[-1], kind, _now(), body))
        return self.events[-1]

    def close(self) -> None:
        pass


def create_journal(directory: Path, specification: Body, further: Sequence[tuple[str, Body]] = (), *, wait: float = WAIT) -> Journal:
    """Make the journal of a new session; nothing is left of one that cannot be written.

    Its first event holds the ``specification``; ``further`` ones, each a kind and a body, follow.
    """
    path = directory / JOURNAL
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise SessionError(f"directory: cannot make {str(directory)!r}: {error}") from error
    _check_local(directory)
    with _held(_lock_of(directory), directory, wait):
        if path.exists():
            raise SessionError(f"directory: {directory} holds a session already; open it, or choose another place")
        try:
            with tempfile.TemporaryDirectory(prefix=".", dir=directory) as folder:  # a process that dies leaves no half of a journal
                with contextlib.closing(_connected(Path(folder) / JOURNAL)) as connection:
                    connection.executescript(BEGINNING)
                    event = None
                    for kind, body in (("created", specification), *further):
                        event = Event.after(event, kind, _now(), body)
                        _write(connection, event)
                replace(Path(folder) / JOURNAL, path)
        except (sqlite3.Error, OSError) as error:
            raise CannotRecord(f"cannot write {path}: {error}; there is no session") from error
    return open_journal(directory, wait=wait)


def open_journal(directory: Path, *, read_only: bool = False, wait: float = WAIT) -> Journal:
    """Open the journal of a session and check all of it; raises what ``Session.open`` does. It is held by claims alone."""
    path = directory / JOURNAL
    if not path.is_file():
        raise SessionError(f"directory: {directory} holds no session; session.Session.create makes one")
    is_writable = os.access(directory, os.W_OK)
    if not (read_only or is_writable):
        raise SessionError(f"directory: {directory} cannot be written to; open the session for reading only, or a copy of it")
    if not read_only:
        _check_local(directory)
    log = path.with_name(f"{JOURNAL}-wal")  # of events that are not in the file yet
    if not is_writable and log.exists() and log.stat().st_size and not (shared := path.with_name(f"{JOURNAL}-shm")).exists():
        words = f"lacks {shared.name}, without which the events in {log.name} cannot be read; copy all of it to where one can write"
        raise SessionError(f"directory: {directory} cannot be written to and {words}, and open the copy")
    # SQLite reads a directory that it cannot write to only if told that nobody else writes there either.
    mode = "mode=ro&immutable=1" if not is_writable and not (log.exists() and log.stat().st_size) else "mode=ro" if read_only else "mode=rw"
    with contextlib.ExitStack() as stack:
        try:
            connection = stack.enter_context(contextlib.closing(_connected(path, mode)))
            _check_whole(path, connection)
            journal = Journal(directory, connection, None if read_only else _lock_of(directory), wait)
        except sqlite3.Error as error:  # of a file that is no database, or that cannot be read
            raise _unreadable(path, error) from error
        if not journal.events:
            raise DamagedSession(f"directory: {path} holds no event, not even its beginning")
        stack.pop_all()
        return journal


def _unreadable(path: Path, error: sqlite3.Error) -> DamagedSession:
    return DamagedSession(f"directory: {path} is no journal that can be read: {error}")


def _connected(path: Path, mode: str = "mode=rwc") -> sqlite3.Connection:
    """Return a connection each of whose statements is committed, and on the disk, when it returns."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _lock_of(directory: Path) -> FileLock:
    return FileLock(directory / LOCK, thread_local=False)


@contextlib.contextmanager
def _held(lock: FileLock, directory: Path, wait: float) -> Iterator[None]:
    """Hold the directory, until the block or the process ends, however that ends."""
    try:
        lock.acquire(timeout=wait)
    except Timeout as error:
        words = f"is in use by a call that takes longer than {wait:g} s; wait for its end, or open it for reading only"
        raise SessionInUse(f"directory: the session in {directory} {words}") from error
    except OSError as error:
        words = f"cannot open {directory / LOCK}, by which a call holds the session: {reason_of(error)}"
        raise SessionError(f"directory: {words}") from error
    try:
        yield
    finally:
        lock.release()


def _check_local(directory: Path) -> None:
    """Raise ``SessionError`` on a file system that machines share, where SQLite's log and locks cannot be relied upon."""
    with contextlib.suppress(OSError):  # where there is no such table, as on macOS, nothing is known
        rows = [line.split() for line in MOUNTS.read_text(encoding="utf-8").splitlines()]
        mounted = {Path(re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), row[1])): row[2] for row in rows}  # \040 is a space
        place = directory.resolve()
        kind = next((mounted[above] for above in (place, *place.parents) if above in mounted), "")
        if kind in NETWORK:
            words = "whose locks and memory maps the journal of a session cannot rely upon"
            out = "choose a disk of this machine's own, or share a study of Optuna between machines: jaxbandit.optuna.Sampler"
            raise SessionError(f"directory: {directory} is on a network file system, {kind}, {words}; {out}")


def _check_whole(path: Path, connection: sqlite3.Connection) -> None:
    """Raise ``DamagedSession`` unless the file is a whole database, of a session, of this version."""
    names = ("application_id", "user_version", "integrity_check")
    application, schema, sound = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
    if application != APPLICATION:
        raise DamagedSession(f"directory: {path} is a database of another program, no journal of a session")
    if schema > SCHEMA:
        raise DamagedSession(f"directory: {path} is of version {schema}, newer than {SCHEMA}, which this jaxbandit knows; update jaxbandit")
    if sound != "ok":
        raise DamagedSession(f"directory: {path} is damaged: {sound.splitlines()[0]}")


def _checked(path: Path, before: Event | None, number: int, kind: str, at: str, text: str, digest: str) -> Event:
    """Return the event that a row holds; raises ``DamagedSession`` unless it is as it was written, after the one ``before``."""
    try:
        event = Event.after(before, kind, at, dict(json.loads(text)))
        if datetime.datetime.fromisoformat(at).utcoffset() != datetime.timedelta(0):
            raise ValueError(f"its time, {at}, is not in UTC")
    except (ValueError, TypeError, RecursionError) as error:
        raise DamagedSession(f"directory: event {number} of {path} cannot be read: {reason_of(error)}") from error
    if event.digest != digest or event.number != number or kind not in KINDS or (kind == "created") != (number == 1):
        raise DamagedSession(f"directory: event {number} of {path} is not as it was written; restore the file from a copy")
    return event


def _write(connection: sqlite3.Connection, event: Event) -> None:
    text = json.dumps(event.body, sort_keys=True, ensure_ascii=False)
    connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", (event.number, event.kind, event.at, text, event.digest))


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
