"""Journal of a session: its events in an append-only SQLite file.

An event is on the disk before the call that made it returns. The digest of an event covers all earlier events, too, and reveals damage and
changes by other programs. A second file has the number and the digest of the last event. It reveals when SQLite has dropped the end of a
damaged write-ahead log, or an older copy has replaced the journal.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import itertools
import json
import os
import re
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from filelock import FileLock, Timeout

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.doors import either
from jaxbandit.host.files import move_over, reason_of

JOURNAL = "session.sqlite"
# Version of new journals. Journals of version 1 keep theirs until an event of a later kind is appended.
SCHEMA = 2
# The letters "JXBS" in the file's header.
APPLICATION = 0x4A584253
# Seconds that a call waits for another call on the session.
WAIT = 30.0
MOUNTS = Path("/proc/self/mounts")

Body: TypeAlias = Mapping[str, Any]
"""An event as plain values."""


class SessionError(InvalidArgument):
    """Error of a session with an unchanged journal."""


class SessionInUse(SessionError):
    """Timeout of a call that waited for another call on the session."""


class DamagedSession(SessionError):
    """Error of a foreign, newer, damaged or changed journal."""


class CannotRecord(RuntimeError):
    """Failure to write an event, for lack of space or permission."""


@dataclasses.dataclass(frozen=True)
class Event:
    """Event of a session, numbered from 1, at an ISO 8601 time."""

    number: int
    kind: str
    at: str
    body: Body = dataclasses.field(repr=False)
    digest: str = dataclasses.field(repr=False)

    @classmethod
    def after(cls, before: Event | None, kind: str, body: Body, at: str = "") -> Event:
        """Return the next or first event, by default of now."""
        at = at or datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        number, digest = (1, "") if before is None else (before.number + 1, before.digest)
        text = json.dumps([digest, number, kind, at, body], sort_keys=True, ensure_ascii=False)
        return cls(number, kind, at, body, hashlib.sha256(text.encode()).hexdigest())

    def line(self) -> str:
        """Return the event as a line of JSON."""
        return json.dumps({"number": self.number, "kind": self.kind, "at": self.at, **self.body}, ensure_ascii=False)


class Journal:
    """Open journal, appended to by one process at a time."""

    def __init__(self, directory: Path, connection: sqlite3.Connection, lock: FileLock | None, wait: float) -> None:
        self.directory, self.file, self.events = directory, JournalFile.of(directory), list[Event]()
        self._connection, self._lock, self._wait, self._is_open = connection, lock, wait, True
        self.follow()

    def follow(self) -> None:
        """Read events that other processes have appended, or raise ``DamagedSession``."""
        # Read again if another process may have been writing.
        for is_last in (False, True):
            if not self._is_open:
                return
            # More events may follow after the head is read.
            head = self.file.head()
            try:
                rows = self._connection.execute(self.file.newer, [len(self.events)]).fetchall()
            except sqlite3.Error as error:
                raise self.file.unreadable(error) from error
            for row in rows:
                self.events.append(self.file.checked(self.events[-1] if self.events else None, *row))
            if head is None or not self.events or head in [(one.number, one.digest) for one in self.events[head[0] - 1 : head[0]]]:
                return
            if is_last:
                words = f"holds {len(self.events)} events that are as they were written, and is not the journal of {head[0]}"
                cause = "it was damaged, or an older copy is in its place"
                raise DamagedSession(
                    f"directory: {self.file.path} {words} that {self.file.head_path.name} knows: {cause}; {self.file.way_out}"
                )

    @contextlib.contextmanager
    def claim(self) -> Iterator[None]:
        """Lock the journal until the block ends, or raise ``SessionInUse``."""
        if self._lock is None or not self._is_open:
            raise SessionError("session: is closed, or was opened for reading only; open it to go on with it")
        with self.file.held(self._lock, self._wait):
            self.follow()
            yield

    def append(self, kind: str, body: Body) -> Event:
        """Append an event, or raise ``CannotRecord`` with an unchanged journal."""
        assert self._lock is not None and self._lock.is_locked, "an event is appended within a claim"
        event = Event.after(self.events[-1], kind, body)
        try:
            self.file.write(self._connection, [event])
        except sqlite3.Error as error:
            raise CannotRecord(f"cannot write {self.file.path}: {error}; the event has not happened") from error
        self.events.append(event)
        self.file.write_head(event)
        return event

    def close(self) -> None:
        """Close the file and keep the events in memory."""
        self._connection.close()
        self._is_open = False


class Unwritten(Journal):
    """Journal in memory that ends with the process."""

    def __init__(self, specification: Body, further: Sequence[tuple[str, Body]] = ()) -> None:
        self.directory, self.events = Path(), [Event.after(None, "created", specification)]
        for kind, body in further:
            self.append(kind, body)

    def follow(self) -> None:
        pass

    @contextlib.contextmanager
    def claim(self) -> Iterator[None]:
        yield

    def append(self, kind: str, body: Body) -> Event:
        self.events.append(Event.after(self.events[-1], kind, body))
        return self.events[-1]

    def close(self) -> None:
        pass


@dataclasses.dataclass(frozen=True)
class JournalFile:
    """File of a journal, with its head and its lock beside it."""

    # Version of journals with a failed run.
    newest: ClassVar[int] = 3
    # Kinds of events that version 1 did not have.
    later_kinds: ClassVar[tuple[str, ...]] = ("observed", "settled", "failed")
    newer: ClassVar[str] = "SELECT number, kind, at, body, digest FROM events WHERE number > ? ORDER BY number"
    way_out: ClassVar[str] = (
        "restore a copy of all files of the session, or go on with the events before the damage: python -m jaxbandit session salvage"
    )
    path: Path

    @classmethod
    def of(cls, directory: Path) -> JournalFile:
        """Return the file in a directory, with links resolved."""
        return cls((directory / JOURNAL).resolve())

    @property
    def head_path(self) -> Path:
        """Path of the file that knows the last event."""
        return self.path.with_suffix(".head")

    @property
    def lock(self) -> FileLock:
        """New lock of the journal."""
        return FileLock(self.path.with_suffix(".lock"), thread_local=False)

    @property
    def has_names(self) -> bool:
        """Return whether the file has several names (hard links)."""
        return self.path.exists() and self.path.stat().st_nlink > 1

    def head(self) -> tuple[int, str] | None:
        """Return number and digest of the last event, ``None`` without a head."""
        try:
            found = re.fullmatch(rb" *(\d+) ([0-9a-f]{64})\n", self.head_path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SessionError(f"directory: cannot read {self.head_path}: {reason_of(error)}") from error
        if found is None or not int(found[1]):
            raise DamagedSession(f"directory: {self.head_path}, which knows the last event, is damaged; {self.way_out}")
        return int(found[1]), found[2].decode()

    def write_head(self, event: Event) -> None:
        """Write number and digest of the last event to the disk."""
        try:
            handle = os.open(self.head_path, os.O_WRONLY | os.O_CREAT | (0 if sys.platform == "win32" else os.O_DSYNC), 0o644)
            try:
                # All heads have the same length, so no old end stays.
                os.write(handle, f"{event.number:12d} {event.digest}\n".encode())
            finally:
                os.close(handle)
        except OSError as error:
            words = "the event has happened, and its loss would not be noticed"
            raise CannotRecord(f"cannot write {self.head_path}: {reason_of(error)}; {words}") from error

    def write_all(self, events: Sequence[Event]) -> None:
        """Write a whole journal of events, or leave no file."""
        beginning = f"""
        CREATE TABLE events (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, at TEXT NOT NULL, body TEXT NOT NULL, digest TEXT NOT NULL);
        CREATE TRIGGER events_stay BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;
        CREATE TRIGGER events_remain BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events are never removed'); END;
        PRAGMA application_id = {APPLICATION};
        PRAGMA user_version = {SCHEMA};
        PRAGMA journal_mode = WAL;
        """
        try:
            with tempfile.TemporaryDirectory(prefix=".", dir=self.path.parent) as folder:
                new = JournalFile(Path(folder) / JOURNAL)
                with contextlib.closing(new.connected()) as connection:
                    connection.executescript(beginning)
                    self.write(connection, events)
                # The head of an earlier, removed session may be left.
                self.head_path.unlink(missing_ok=True)
                move_over(new.path, self.path)
        except (sqlite3.Error, OSError) as error:
            raise CannotRecord(f"cannot write {self.path}: {error}; there is no session") from error
        self.write_head(events[-1])

    @staticmethod
    def write(connection: sqlite3.Connection, events: Sequence[Event]) -> None:
        """Write events, in a version of the journal that they need."""
        # Earlier versions of jaxbandit then refuse the journal and do not call it damaged.
        has_failed = any(event.kind == "failed" or any("failed" in row for row in event.body.get("rows", ())) for event in events)
        if events[0].kind in ("created", *JournalFile.later_kinds):
            [before] = connection.execute("PRAGMA user_version").fetchone()
            connection.execute(f"PRAGMA user_version = {max(before, JournalFile.newest if has_failed else SCHEMA)}")
        for event in events:
            text = json.dumps(event.body, sort_keys=True, ensure_ascii=False)
            connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", (event.number, event.kind, event.at, text, event.digest))

    def connected(self, mode: str = "mode=rwc") -> sqlite3.Connection:
        """Return a connection that commits every statement to the disk."""
        connection = sqlite3.connect(f"{self.path.absolute().as_uri()}?{mode}", uri=True, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    @contextlib.contextmanager
    def held(self, lock: FileLock, wait: float) -> Iterator[None]:
        """Lock the journal until the block or the process ends."""
        until = time.monotonic() + wait
        with contextlib.ExitStack() as stack:
            try:
                lock.acquire(timeout=wait)
                stack.callback(lock.release)
                # Every name has its own lock file, so lock the file itself, too.
                if self.has_names:
                    import fcntl

                    handle = os.open(self.path, os.O_RDONLY)
                    stack.callback(os.close, handle)
                    while True:
                        try:
                            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                            break
                        except BlockingIOError as error:
                            # Another name of the file has it.
                            if time.monotonic() > until:
                                raise Timeout(str(self.path)) from error
                            # Seconds between two attempts to lock a file.
                            time.sleep(0.02)
            except Timeout as error:
                words = f"is in use by a call that takes longer than {wait:g} s; wait for its end, or open it for reading only"
                raise SessionInUse(f"directory: the session in {self.path.parent} {words}") from error
            except OSError as error:
                words = f"cannot open {lock.lock_file}, by which a call holds the session: {reason_of(error)}"
                raise SessionError(f"directory: {words}") from error
            yield

    def check_names(self, connection: sqlite3.Connection) -> None:
        """Turn off the write-ahead log of a journal with several names."""
        if self.has_names:
            try:
                if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
                    connection.execute("PRAGMA journal_mode = DELETE")
            except sqlite3.OperationalError as error:
                words = "has several names (hard links), and cannot be opened by this one while it is open by another, or for reading only"
                raise SessionError(f"directory: {self.path} {words}; close it there and open it once to go on with it") from error

    def check_local(self) -> None:
        """Raise ``SessionError`` on a network file system with unreliable locks."""
        network = {"afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "smb3", "smbfs", "9p"}
        network |= {f"fuse.{name}" for name in ("sshfs", "glusterfs", "ceph", "ceph-fuse", "juicefs", "s3fs", "rclone", "gcsfuse")}
        # Systems without this table, such as macOS, pass.
        with contextlib.suppress(OSError):
            rows = [line.split() for line in MOUNTS.read_text(encoding="utf-8").splitlines()]
            # The table writes a space as \040.
            mounted = {Path(re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), row[1])): row[2] for row in rows}
            kind = next((mounted[above] for above in self.path.parents if above in mounted), "")
            if kind in network:
                words = "whose locks and memory maps the journal of a session cannot rely upon"
                out = "choose a disk of this machine's own, or share a study of Optuna between machines: jaxbandit.optuna.Sampler"
                raise SessionError(f"directory: {self.path.parent} is on a network file system, {kind}, {words}; {out}")

    def check_whole(self, connection: sqlite3.Connection) -> None:
        """Raise ``DamagedSession`` unless the file is a sound, readable journal."""
        names, path = ("application_id", "user_version", "integrity_check"), self.path
        application, schema, sound = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
        if application != APPLICATION:
            raise DamagedSession(f"directory: {path} is a database of another program, no journal of a session")
        if schema > JournalFile.newest:
            words = f"newer than {JournalFile.newest}, which this jaxbandit knows; update jaxbandit"
            raise DamagedSession(f"directory: {path} is of version {schema}, {words}")
        if sound != "ok":
            raise DamagedSession(f"directory: {path} is damaged: {sound.splitlines()[0]}; {self.way_out}")

    def unreadable(self, error: sqlite3.Error) -> DamagedSession:
        """Return the error of a file that SQLite cannot read."""
        return DamagedSession(f"directory: {self.path} is no journal that can be read: {error}; {self.way_out}")

    def checked(self, before: Event | None, number: int, kind: str, at: str, text: str, digest: str) -> Event:
        """Return a row's event, or raise ``DamagedSession`` if it has changed."""
        try:
            event = Event.after(before, kind, dict(json.loads(text)), at)
            if datetime.datetime.fromisoformat(at).utcoffset() != datetime.timedelta(0):
                raise ValueError(f"its time, {at}, is not in UTC")
        except (ValueError, TypeError, RecursionError) as error:
            raise DamagedSession(f"directory: event {number} of {self.path} cannot be read: {reason_of(error)}; {self.way_out}") from error
        kinds = ("created", "asked", "told", "dropped", "corrected", "fitted", *JournalFile.later_kinds)
        if event.digest != digest or event.number != number or kind not in kinds or (kind == "created") != (number == 1):
            raise DamagedSession(f"directory: event {number} of {self.path} is not as it was written; {self.way_out}")
        return event


def create_journal(directory: Path, specification: Body, further: Sequence[tuple[str, Body]] = (), *, wait: float = WAIT) -> Journal:
    """Write the ``specification`` and ``further`` events to a new journal, or nothing."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise SessionError(f"directory: cannot make {str(directory)!r}: {error}") from error
    file = JournalFile.of(directory)
    file.check_local()
    with file.held(file.lock, wait):
        if file.path.exists():
            raise SessionError(f"directory: {directory} holds a session already; open it, or choose another place")
        file.write_all(Unwritten(specification, further).events)
    return open_journal(directory, wait=wait)


def salvage_journal(directory: Path, *, wait: float = WAIT) -> tuple[int, Path | None]:
    """Restore a damaged journal up to its first damaged event.

    Returns the number of restored events and the directory of the damaged journal's files, ``None`` without damage. Raises
    ``DamagedSession`` if the first event cannot be read.
    """
    try:
        with contextlib.closing(open_journal(directory, wait=wait)) as journal:
            return len(journal.events), None
    except DamagedSession as error:
        reason, file, events = error, JournalFile.of(directory), list[Event]()
    path = file.path
    with file.held(file.lock, wait):
        # All events before the first error are whole.
        with contextlib.suppress(sqlite3.Error, DamagedSession), contextlib.closing(sqlite3.connect(path)) as connection:
            # With this setting SQLite also reads a truncated file.
            connection.execute("PRAGMA writable_schema = ON")
            for row in connection.execute(file.newer, [0]):
                events.append(file.checked(events[-1] if events else None, *row))
        if not events:
            words = "cannot be read, not even its first event; restore a copy of all files of the session"
            raise DamagedSession(f"directory: {path} {words}") from reason
        aside = next(place for number in itertools.count(1) if not (place := path.with_name(f"damaged-{number}")).exists())
        try:
            aside.mkdir()
            for name in (*(f"{path.name}{end}" for end in ("-wal", "-shm", "-journal", "")), file.head_path.name):
                if path.with_name(name).exists():
                    path.with_name(name).rename(aside / name)
        except OSError as error:
            raise CannotRecord(f"cannot put the damaged journal into {aside}: {reason_of(error)}") from error
        file.write_all(events)
    return len(events), aside


def open_journal(directory: Path, *, read_only: bool = False, wait: float = WAIT) -> Journal:
    """Open and check a session's journal, with the errors of ``Session.open``."""
    file = JournalFile.of(directory)
    path = file.path
    if not path.is_file():
        raise SessionError(f"directory: {directory} holds no session; {either('Session.create', 'session new')} makes one")
    is_writable = os.access(path.parent, os.W_OK)
    if not (read_only or is_writable):
        raise SessionError(f"directory: {directory} cannot be written to; open the session for reading only, or a copy of it")
    if not read_only:
        file.check_local()
    log = path.with_name(f"{JOURNAL}-wal")
    if not is_writable and log.exists() and log.stat().st_size and not (shared := path.with_name(f"{JOURNAL}-shm")).exists():
        words = f"lacks {shared.name}, without which the events in {log.name} cannot be read; copy all of it to where one can write"
        raise SessionError(f"directory: {directory} cannot be written to and {words}, and open the copy")
    # SQLite opens a file in a read-only directory only as immutable.
    mode = "mode=ro&immutable=1" if not is_writable and not (log.exists() and log.stat().st_size) else "mode=ro" if read_only else "mode=rw"
    lock = None if read_only else file.lock
    with contextlib.ExitStack() as stack:
        try:
            # Processes open a journal with several names in turn, because SQLite cannot change its mode while another has it open.
            with file.held(lock, wait) if lock is not None and file.has_names else contextlib.nullcontext():
                connection = stack.enter_context(contextlib.closing(file.connected(mode)))
                file.check_names(connection)
            file.check_whole(connection)
            journal = Journal(directory, connection, lock, wait)
        except sqlite3.Error as error:
            raise file.unreadable(error) from error
        if not journal.events:
            raise DamagedSession(f"directory: {path} holds no event, not even its beginning")
        stack.pop_all()
        return journal
