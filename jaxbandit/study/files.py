"""The directory of a running study, and the files that resume it.

    run.lock            locked while a process runs the study; the operating system frees it when that process ends, however it ends
    study.json          the study, versions and batches; written first, and compared when a process resumes the run
    parts/C-B.npz       finished batch B of cell C
    at-work.npz         the last checkpoint of the unfinished batch, and its place in the run
    progress.json       finished trials and mean curves so far, for a watcher

Every file appears under its name only once it is whole, and contains its run, its place and a checksum of its contents. A run drops a file
that does not fit, and computes its contents again. A change of numbers together with their checksum is noticed where shapes, or ranges of
points and flags, do not fit the study.
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


class Names:
    """Names in the directory of a run."""

    lock, record, progress = "run.lock", "study.json", "progress.json"
    parts, at_work = "parts", "at-work.npz"
    # This key of every file has its checksum.
    seal = "seal"


StoredRun: TypeAlias = dict[str, Any]
"""Contents of ``study.json``: ``identity`` and ``batches`` in JSON."""


class CheckpointMismatch(InvalidArgument):
    """Error for a directory with another run, naming the difference."""


class DirectoryInUse(InvalidArgument):
    """Error for a directory of a running study, naming its holder."""


class HeldDirectory:
    """A directory that this process locks until :meth:`release`."""

    def __init__(self, path: Path, lock: FileLock) -> None:
        self.path, self.lock = path, lock

    def release(self) -> None:
        """Release the directory for other runs."""
        if self.lock.is_locked:
            # Removal precedes the release, so that a waiting process notices that its file is another one.
            with contextlib.suppress(OSError):
                (self.path / Names.lock).unlink()
            self.lock.release(force=True)

    def __enter__(self) -> HeldDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@checked
def hold_directory(path: FilePath, *, force: bool = False) -> HeldDirectory:
    """Prepare a directory for a run and lock it against other runs.

    Raises ``DirectoryInUse`` when another run has locked it, ``ExistingOutput`` when it is not empty and ``force`` is off, or it is no
    directory (the message names a run to resume), and ``InvalidArgument`` when it cannot be made or written to.
    """
    directory = prepare_directory(path, force=True)
    held = HeldDirectory(directory, _file_lock(directory / Names.lock))
    try:
        held.lock.acquire()
    except Timeout as error:
        holder = (directory / Names.lock).read_text(encoding="utf-8", errors="replace") or "another process"
        raise DirectoryInUse(f"out: {directory} is in use by {holder}; wait for its end, end it, or choose another directory") from error
    except OSError as error:
        raise InvalidArgument(f"out: {directory} is not writable: {reason_of(error)}") from error
    try:
        if interrupted(directory) and not force:
            raise ExistingOutput(
                f"out: {directory} holds a run that was cut off; go on with {either('resume=True', '--resume')}, or choose another place;"
                f" {either('force=True', '--force')} drops what was done"
            )
        prepare_directory(directory, force=force, besides="*.lock")
        # On a full disk the lock works all the same, and a message cannot name its holder.
        with contextlib.suppress(OSError):
            (directory / Names.lock).write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
    except BaseException:
        held.release()
        raise
    return held


def interrupted(directory: Path) -> bool:
    """Return whether a directory has a running or interrupted run."""
    return (directory / Names.record).exists()


def is_held(path: str | Path) -> bool:
    """Return whether a process has locked a directory."""
    # On a file system without locks a killed process seems to have locked it.
    with contextlib.suppress(Timeout, OSError):
        if (Path(path) / Names.lock).is_file():
            _file_lock(Path(path) / Names.lock).acquire().lock.release()
        return False
    return True


def _file_lock(path: Path) -> FileLock:
    """Return the lock of a file, for any thread to release."""
    return FileLock(path, timeout=0, mode=0o644, thread_local=False)


def identity(fingerprint: str, around: Mapping[str, str] | None = None) -> StoredRun:
    """Return the facts that must be equal to resume a run exactly."""
    # Raise this version of the files whenever the code cannot resume earlier checkpoints.
    return {"layout": 9, "study": fingerprint, "precision": str(float_dtype()), **(surroundings() if around is None else around)}


@dataclasses.dataclass
class Files:
    """Files of a run, with ``note`` for lines on dropped files."""

    directory: Path
    note: Callable[[str], object] = str
    run: str = ""

    def start(self, record: StoredRun) -> None:
        """Clear earlier files and write the record, or raise ``CannotWrite``."""
        self.clear()
        self._begin(record)
        write_json(self.directory / Names.record, {**record, Names.seal: self.run})

    def _begin(self, record: StoredRun) -> None:
        try:
            (self.directory / Names.parts).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotWrite(self.directory / Names.parts, error) from error
        self.run = digest(record)

    def record(self) -> StoredRun:
        """Return the record of the start, or raise ``CheckpointMismatch``."""
        path = self.directory / Names.record
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if not (isinstance(record, dict) and isinstance(record.get("identity"), dict)):
                raise ValueError("it is damaged")
        except (OSError, ValueError, RecursionError) as error:
            raise CheckpointMismatch(f"resume: {self.directory} holds no run that can go on ({path.name}: {reason_of(error)})") from error
        return record

    def resume(self, expected: Mapping[str, object]) -> StoredRun:
        """Resume the recorded run and return its record."""
        record = self.record()
        found, seal = record["identity"], record.pop(Names.seal, None)
        differences = {
            "layout": "another layout of checkpoints",
            "jaxbandit": "another version of jaxbandit",
            "jax": "another version of JAX",
            "jaxlib": "another version of jaxlib",
            "precision": "another precision",
            "device": "another kind of device",
            # The study stands last, because precision and versions change its fingerprint.
            "study": "another study",
        }
        for name, words in differences.items():
            if found.get(name) != expected[name]:
                raise CheckpointMismatch(
                    f"resume: {self.directory} holds a run of {words} ({short(found.get(name))}, now {expected[name]}); run without"
                    " --resume into another directory, or as it was"
                )
        if seal != digest(record):
            raise CheckpointMismatch(
                f"resume: {self.directory} holds no run that can go on ({Names.record} was altered since it was written)"
            )
        self._begin(record)
        return record

    def is_there(self) -> bool:
        """Return whether this process sees the run in its directory."""
        with contextlib.suppress(CheckpointMismatch):
            return self.record().get(Names.seal) == self.run
        return False

    def write(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Write sealed arrays whole, or raise ``CannotWrite``."""
        seal = np.asarray(self._seal(name, arrays))
        write_whole(self.directory / name, lambda temporary: np.savez(temporary, allow_pickle=False, **arrays, **{Names.seal: seal}))

    def _seal(self, name: str, arrays: Mapping[str, np.ndarray]) -> str:
        """Return the seal of a file: run, place and hash of contents."""
        held = hashlib.sha256()
        for key, array in sorted((key, np.asarray(array)) for key, array in arrays.items()):
            held.update(f"{key} {array.dtype.str} {array.shape} ".encode() + array.tobytes())
        return f"{self.run}, {name}, {held.hexdigest()}"

    def read(self, name: str, misfit: Callable[[dict[str, np.ndarray]], str] = lambda arrays: "") -> dict[str, np.ndarray] | None:
        """Return the arrays of a file, or drop it and return ``None``.

        A file is dropped if its seal is wrong or ``misfit`` of its arrays returns a reason.
        """
        path = self.directory / name
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as held:
                arrays = dict(held)
            if str(arrays.pop(Names.seal)) != self._seal(name, arrays):
                reason = "it is of another run, in another place, or was altered since it was written"
            elif not (reason := misfit(arrays)):
                return arrays
        # NumPy does not document the errors of reading a damaged file.
        except Exception as error:
            reason = reason_of(error)
        self.note(f"{path} does not fit ({reason}); what it held is run again")
        path.unlink(missing_ok=True)
        return None

    def clear(self) -> None:
        """Drop all files of the run, half-written files too, or raise ``CannotWrite``."""
        half_written = (".results.zarr", ".at-work-*.npz", ".study-*.json", ".progress-*.json", ".results-*.nc")
        for name in (Names.record, Names.progress, Names.parts, Names.at_work, *half_written):
            for file in self.directory.glob(name):
                drop(file)


def write_json(path: Path, value: object) -> None:
    """Write JSON whole or not at all."""
    write_whole(path, lambda temporary: temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8"))
