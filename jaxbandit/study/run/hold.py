"""Directories that belong to one run at a time: a lock that the operating system frees when its holder ends, however it ends.

The file ``run.lock`` is locked, not just there: one that a killed process has left holds nothing.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import os
import shlex
import socket
import sys
import warnings
from pathlib import Path
from types import TracebackType

from jaxbandit.core.arguments import takes
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.fields import boolean
from jaxbandit.core.fields import path as path_check
from jaxbandit.core.files import ExistingOutput, prepare_directory, reason_of
from jaxbandit.study.run.checkpoints import interrupted

LOCK = "run.lock"
LONGEST_COMMAND = 200  # characters of the holder's command in a message

if sys.platform == "win32":
    import msvcrt

    FREE_BYTE = 2**30  # far behind what the file says, which others can read

    def lock_now(handle: int) -> None:
        """Lock an open file, or raise ``OSError`` at once when another process has locked it."""
        os.lseek(handle, FREE_BYTE, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def lock_now(handle: int) -> None:
        """Lock an open file, or raise ``OSError`` at once when another process has locked it."""
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


class DirectoryInUse(InvalidArgument):
    """A directory belongs to a run that is still going on; the message says whose."""


class HeldDirectory:
    """A directory that this process holds until :meth:`release`, or until the end of a ``with`` block; :func:`hold_directory` makes it.

    Attributes:
      path: path of the directory.
    """

    def __init__(self, path: Path, handle: int) -> None:
        self.path, self._handle = path, handle

    def release(self) -> None:
        """Give the directory back, for other runs to take."""
        if self._handle < 0:
            return
        with contextlib.suppress(OSError):  # removed while it is locked: who waits for it notices that it is another file
            (self.path / LOCK).unlink()
        os.close(self._handle)
        self._handle = -1

    def __enter__(self) -> HeldDirectory:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


@takes(path=path_check, force=boolean)
def hold_directory(path: str | Path, *, force: bool = False) -> HeldDirectory:
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
        _sign(held._handle)
    except BaseException:
        held.release()
        raise
    return held


def _locked(path: Path) -> int:
    """Return the handle of a lock file, locked; raises ``DirectoryInUse`` when another process has locked it."""
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise InvalidArgument(f"out: {path.parent} is not writable: {reason_of(error)}") from error
        try:
            lock_now(handle)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
                warnings.warn(
                    f"out: {path.parent} lies on a file system without locks ({reason_of(error)}); let no other run use it meanwhile",
                    stacklevel=4,
                )
                return handle
            os.close(handle)
            raise DirectoryInUse(
                f"out: {path.parent} is in use by {_holder(path)}; wait for its end, end it, or choose another directory"
            ) from error
        if _is_still(handle, path):
            return handle
        os.close(handle)  # its holder has removed it between our opening and our locking it


def is_held(path: str | Path) -> bool:
    """Say whether a run that is going on holds a directory; where the file system has no locks, one that was killed seems to."""
    try:
        handle = os.open(Path(path) / LOCK, os.O_RDWR)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        lock_now(handle)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def _is_still(handle: int, path: Path) -> bool:
    """Say whether an open file still is the one under its name."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _sign(handle: int) -> None:
    """Write down who holds the lock, if there is room."""
    now = datetime.datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    own = {"pid": os.getpid(), "host": socket.gethostname(), "since": now, "command": shlex.join(sys.orig_argv)}
    with contextlib.suppress(OSError):  # a full disk: the lock holds all the same, and a message cannot name its holder
        os.ftruncate(handle, 0)
        os.lseek(handle, 0, os.SEEK_SET)
        os.write(handle, json.dumps(own).encode())


def _holder(path: Path) -> str:
    """Return who holds a lock, in words."""
    try:
        own = json.loads(path.read_text(encoding="utf-8"))
        command = " ".join(str(own["command"]).split())
        command = command if len(command) <= LONGEST_COMMAND else command[: LONGEST_COMMAND - 3] + "..."
        return f"process {own['pid']} on {own['host']} since {own['since']} ({command})"
    except (OSError, ValueError, KeyError, TypeError):  # it has only just taken it
        return "another process"
