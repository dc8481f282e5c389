"""Directories that belong to one run at a time: a lock that the operating system frees when its holder ends, however it ends.

The file ``run.lock`` is locked, not just there: one that a killed process has left holds nothing.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shlex
import socket
import sys
import warnings
from pathlib import Path
from types import TracebackType

from filelock import FileLock, Timeout

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import checked
from jaxbandit.core.files import ExistingOutput, prepare_directory, reason_of
from jaxbandit.core.types import FilePath
from jaxbandit.study.files import interrupted

LOCK = "run.lock"
LONGEST_COMMAND = 200  # characters of the holder's command in a message


class DirectoryInUse(InvalidArgument):
    """A directory belongs to a run that is still going on; the message says whose."""


class HeldDirectory:
    """A directory that this process holds until :meth:`release`, or until the end of a ``with`` block; :func:`hold_directory` makes it.

    Attributes:
      path: path of the directory.
    """

    def __init__(self, path: Path, lock: FileLock) -> None:
        self.path, self._lock = path, lock

    def release(self) -> None:
        """Give the directory back, for other runs to take."""
        if self._lock.is_locked:
            with contextlib.suppress(OSError):  # removed while it is locked: who waits for it notices that it is another file
                (self.path / LOCK).unlink()
            self._lock.release(force=True)

    def __enter__(self) -> HeldDirectory:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


@checked
def hold_directory(path: FilePath, *, force: bool = False) -> HeldDirectory:
    """Make a directory ready for a run and hold it: no other run can take it until it is given back, or this process has ended.

    Args:
      path: path of the directory, which is made unless it is there.
      force: take a directory that is not empty, to replace what it holds or to go on with it.

    Raises:
      DirectoryInUse: when another run holds it; the message says which process, where, since when and what it runs.
      ExistingOutput: when it is not empty and ``force`` is off, or no directory; the message says if it holds a run that can go on.
      InvalidArgument: when it cannot be made or written to.
    """
    directory = prepare_directory(path, force=True)
    held = HeldDirectory(directory, _locked(directory / LOCK))
    try:
        if interrupted(directory) and not force:
            raise ExistingOutput(
                f"out: {directory} holds a run that was cut off; go on with --resume, or choose another place; --force drops what was done"
            )
        prepare_directory(directory, force=force, besides="*.lock")  # of this one, and of others that run the study, too
        _sign(directory / LOCK)
    except BaseException:
        held.release()
        raise
    return held


def _lock_of(path: Path) -> FileLock:
    """Return the lock that a file stands for, which any thread may free."""
    return FileLock(path, timeout=0, mode=0o644, thread_local=False)


def _locked(path: Path) -> FileLock:
    """Return the lock of a file, held; raises ``DirectoryInUse`` when another process holds it."""
    lock = _lock_of(path)
    try:
        lock.acquire()
    except Timeout as error:
        raise DirectoryInUse(
            f"out: {path.parent} is in use by {_holder(path)}; wait for its end, end it, or choose another directory"
        ) from error
    except OSError as error:
        if not path.exists():
            raise InvalidArgument(f"out: {path.parent} is not writable: {reason_of(error)}") from error
        warnings.warn(
            f"out: {path.parent} lies on a file system without locks ({reason_of(error)}); let no other run use it meanwhile",
            stacklevel=4,
        )
    return lock


def is_held(path: str | Path) -> bool:
    """Return whether a run that is going on holds a directory; where the file system has no locks, one that was killed seems to."""
    file = Path(path) / LOCK
    if not file.is_file():
        return False
    lock = _lock_of(file)
    try:
        lock.acquire()
    except (Timeout, OSError):
        return True
    lock.release()
    return False


def _sign(path: Path) -> None:
    """Write down who holds the lock, if there is room."""
    now = datetime.datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    own = {"pid": os.getpid(), "host": socket.gethostname(), "since": now, "command": shlex.join(sys.orig_argv)}
    with contextlib.suppress(OSError):  # a full disk: the lock holds all the same, and a message cannot name its holder
        path.write_text(json.dumps(own), encoding="utf-8")


def _holder(path: Path) -> str:
    """Return who holds a lock, in words."""
    try:
        own = json.loads(path.read_text(encoding="utf-8"))
        command = " ".join(str(own["command"]).split())
        command = command if len(command) <= LONGEST_COMMAND else command[: LONGEST_COMMAND - 3] + "..."
        return f"process {own['pid']} on {own['host']} since {own['since']} ({command})"
    except (OSError, ValueError, KeyError, TypeError):  # it has only just taken it
        return "another process"
