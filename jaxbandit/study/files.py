"""The directory of a running study: whose it is meanwhile, and the files from which the run goes on after any interruption.

    run.lock            locked while a run goes on, and freed by the operating system when its holder ends, however it ends
    study.json          the study, versions and batches; written first, and compared when the run is resumed
    parts/C-B.npz       batch B of cell C, finished
    at-work.npz         the last checkpoint of the batch that is played, and its place in the run
    progress.json       what is finished, and the mean curves so far, for whoever watches

Every file appears under its name only once it is whole, and says of which run it is, in which place, with a checksum of what it holds. A
file that does not fit is dropped, and what it held is run again. Who changes numbers and their checksum is noticed where shapes, or ranges
of points and flags, are not those of the study.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from filelock import FileLock, Timeout

from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.codec import digest
from jaxbandit.core.declare import FilePath, checked
from jaxbandit.core.doors import either
from jaxbandit.core.pytree import float_dtype
from jaxbandit.host.executors import surroundings
from jaxbandit.host.files import CannotWrite, ExistingOutput, drop, prepare_directory, reason_of, write_whole

LAYOUT = 9  # of the files; to be raised whenever a checkpoint of the code before cannot go on
WORDS = {
    "layout": "another layout of checkpoints",
    "jaxbandit": "another version of jaxbandit",
    "jax": "another version of JAX",
    "jaxlib": "another version of jaxlib",
    "precision": "another precision",
    "device": "another kind of device",
    "study": "another study",  # last: precision and versions change what a study is made of
}
LOCK, RECORD, PROGRESS, PARTS, AT_WORK = "run.lock", "study.json", "progress.json", "parts", "at-work.npz"
SEAL = "seal"  # name of the array that holds it

Record: TypeAlias = dict[str, Any]
"""What ``study.json`` holds: ``identity`` and ``batches``, as JSON has them."""


class CheckpointMismatch(InvalidArgument):
    """A directory holds the run of something else; the message says what differs."""


class DirectoryInUse(InvalidArgument):
    """A directory belongs to a run that is still going on; the message says whose."""


# Whose a directory is.


class HeldDirectory:
    """A directory at ``path`` that this process holds until :meth:`release`, or until the end of a ``with`` block."""

    def __init__(self, path: Path, lock: FileLock) -> None:
        self.path, self.lock = path, lock

    def release(self) -> None:
        """Give the directory back, for other runs to take."""
        if self.lock.is_locked:
            with contextlib.suppress(OSError):  # removed while it is locked: who waits for it notices that it is another file
                (self.path / LOCK).unlink()
            self.lock.release(force=True)

    def __enter__(self) -> HeldDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@checked
def hold_directory(path: FilePath, *, force: bool = False) -> HeldDirectory:
    """Make a directory ready for a run and hold it: no other run can take it until it is given back, or this process has ended.

    Raises ``DirectoryInUse`` when another run holds it, ``ExistingOutput`` when it is not empty and ``force`` is off, or no directory (the
    message says if it holds a run that can go on), and ``InvalidArgument`` when it cannot be made or written to.
    """
    directory = prepare_directory(path, force=True)
    held = HeldDirectory(directory, _lock_of(directory / LOCK))
    try:
        held.lock.acquire()
    except Timeout as error:
        holder = (directory / LOCK).read_text(encoding="utf-8", errors="replace") or "another process"  # which has only just taken it
        raise DirectoryInUse(f"out: {directory} is in use by {holder}; wait for its end, end it, or choose another directory") from error
    except OSError as error:
        raise InvalidArgument(f"out: {directory} is not writable: {reason_of(error)}") from error
    try:
        if interrupted(directory) and not force:
            raise ExistingOutput(
                f"out: {directory} holds a run that was cut off; go on with {either('resume=True', '--resume')}, or choose another place;"
                f" {either('force=True', '--force')} drops what was done"
            )
        prepare_directory(directory, force=force, besides="*.lock")  # of this one, and of others that run the study, too
        with contextlib.suppress(OSError):  # a full disk: the lock holds all the same, and a message cannot name its holder
            (directory / LOCK).write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
    except BaseException:
        held.release()
        raise
    return held


def interrupted(directory: Path) -> bool:
    """Return whether a directory holds a run that goes on, or was cut off before its results were kept."""
    return (directory / RECORD).exists()


def is_held(path: str | Path) -> bool:
    """Return whether a run that is going on holds a directory; where the file system has no locks, one that was killed seems to."""
    with contextlib.suppress(Timeout, OSError):
        if (Path(path) / LOCK).is_file():
            _lock_of(Path(path) / LOCK).acquire().lock.release()
        return False
    return True


def _lock_of(path: Path) -> FileLock:
    """Return the lock that a file stands for, which any thread may free."""
    return FileLock(path, timeout=0, mode=0o644, thread_local=False)


# What lies in it.


def identity(fingerprint: str, around: Mapping[str, str] | None = None) -> Record:
    """Return what must be equal for a run to go on bit for bit; ``around`` are the workers' surroundings, default those of this process."""
    return {"layout": LAYOUT, "study": fingerprint, "precision": str(float_dtype()), **(surroundings() if around is None else around)}


@dataclasses.dataclass
class Files:
    """Files of a run in its directory, as the module's text names them; ``note`` is told in a line of a file that is dropped."""

    directory: Path
    note: Callable[[str], object] = str
    run: str = ""  # digest of the record of the run, which all files hold

    def start(self, record: Record) -> None:
        """Clear what an earlier run left and write down what is run; raises ``CannotWrite``."""
        self.clear()
        self._begin(record)
        write_json(self.directory / RECORD, {**record, SEAL: self.run})

    def _begin(self, record: Record) -> None:
        try:
            (self.directory / PARTS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotWrite(self.directory / PARTS, error) from error
        self.run = digest(record)

    def record(self) -> Record:
        """Return what was written down at the start; raises ``CheckpointMismatch`` when there is nothing, or it was damaged."""
        path = self.directory / RECORD
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if not (isinstance(record, dict) and isinstance(record.get("identity"), dict)):
                raise ValueError("it is damaged")
        except (OSError, ValueError, RecursionError) as error:
            raise CheckpointMismatch(f"resume: {self.directory} holds no run that can go on ({path.name}: {reason_of(error)})") from error
        return record

    def resume(self, expected: Mapping[str, object]) -> Record:
        """Go on with the run that was written down, and return what that was."""
        record = self.record()
        found, seal = record["identity"], record.pop(SEAL, None)
        for name, words in WORDS.items():
            if found.get(name) != expected[name]:
                raise CheckpointMismatch(
                    f"resume: {self.directory} holds a run of {words} ({short(found.get(name))}, now {expected[name]}); run without"
                    " --resume into another directory, or as it was"
                )
        if seal != digest(record):
            raise CheckpointMismatch(f"resume: {self.directory} holds no run that can go on ({RECORD} was altered since it was written)")
        self._begin(record)
        return record

    def is_there(self) -> bool:
        """Return whether this process sees the run, and no other one in its place."""
        with contextlib.suppress(CheckpointMismatch):
            return self.record().get(SEAL) == self.run
        return False

    def write(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Write arrays whole or not at all, with a seal; raises ``CannotWrite``."""
        seal = np.asarray(self._seal(name, arrays))
        write_whole(self.directory / name, lambda temporary: np.savez(temporary, allow_pickle=False, **arrays, **{SEAL: seal}))

    def _seal(self, name: str, arrays: Mapping[str, np.ndarray]) -> str:
        """Return what a file says of itself: its run, its place, and what it holds."""
        held = hashlib.sha256()
        for key, array in sorted((key, np.asarray(array)) for key, array in arrays.items()):
            held.update(f"{key} {array.dtype.str} {array.shape} ".encode() + array.tobytes())
        return f"{self.run}, {name}, {held.hexdigest()}"

    def read(self, name: str, misfit: Callable[[dict[str, np.ndarray]], str] = lambda arrays: "") -> dict[str, np.ndarray] | None:
        """Return the arrays of a file; ``None`` when it is not there, or does not fit and has been dropped.

        It does not fit where ``misfit`` of its arrays says why, either.
        """
        path = self.directory / name
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as held:
                arrays = dict(held)
            if str(arrays.pop(SEAL)) != self._seal(name, arrays):
                reason = "it is of another run, in another place, or was altered since it was written"
            elif not (reason := misfit(arrays)):
                return arrays
        except Exception as error:  # what the readers of a damaged file raise is not documented
            reason = reason_of(error)
        self.note(f"{path} does not fit ({reason}); what it held is run again")
        path.unlink(missing_ok=True)
        return None

    def clear(self) -> None:
        """Drop all files that the run has left, half-written ones too; raises ``CannotWrite``."""
        half_written = (".results.zarr", ".at-work-*.npz", ".study-*.json", ".progress-*.json", ".results-*.nc")
        for name in (RECORD, PROGRESS, PARTS, AT_WORK, *half_written):
            for file in self.directory.glob(name):
                drop(file)


def write_json(path: Path, value: object) -> None:
    """Write JSON whole or not at all."""
    write_whole(path, lambda temporary: temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8"))
