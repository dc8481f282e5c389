"""Files of a running study, from which it goes on after any interruption: its identity, finished batches, and the batch at work.

    study.json          the study, versions and batches; written first, and compared when the run is resumed
    parts/C-B.npz       batch B of cell C, finished
    at-work.npz         the last checkpoint of the batch that is played, and its place in the run
    progress.json       what is finished, and the mean curves so far, for whoever watches

Every file appears under its name only once it is whole. All of them carry a seal: of which run they are, in which place, and a checksum
of what they hold. A file whose seal does not fit is dropped, and what it held is run again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.files import CannotWrite, reason_of, write_whole
from jaxbandit.core.pytree import float_dtype
from jaxbandit.core.workers import surroundings

LAYOUT = 5  # of the files; to be raised whenever a checkpoint of the code before cannot go on

WORDS = {
    "layout": "another layout of checkpoints",
    "jaxbandit": "another version of jaxbandit",
    "jax": "another version of JAX",
    "jaxlib": "another version of jaxlib",
    "precision": "another precision",
    "device": "another kind of device",
    "study": "another study",  # last: precision and versions change what a study is made of
}


SEAL = "seal"  # name of the array that holds it
RECORD = "study.json"
PROGRESS = "progress.json"


class CheckpointMismatch(InvalidArgument):
    """A directory holds the run of something else; the message says what differs."""


def identity(fingerprint: str, around: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return what must be equal for a run to go on bit for bit; ``around`` are the workers' surroundings, default those of this process."""
    return {"layout": LAYOUT, "study": fingerprint, "precision": str(float_dtype()), **(surroundings() if around is None else around)}


def interrupted(directory: Path) -> bool:
    """Return whether a directory holds a run that goes on, or was cut off before its results were kept."""
    return (directory / RECORD).exists()


@dataclasses.dataclass(frozen=True)
class Place:
    """Place of a checkpoint in a run: the cell, the batch, and the next round."""

    cell: int
    batch: int
    next_round: int


class Files:
    """Files of a run in its directory, as the module's text names them.

    Attributes:
      directory: path of the directory.
      note: called with a line of text when a file does not fit and is dropped.
    """

    def __init__(self, directory: Path, note: Callable[[str], None] = lambda line: None) -> None:
        self.directory, self.note = directory, note
        self.parts, self.at_work = directory / "parts", directory / "at-work.npz"
        self.run = ""  # of the record of the run: what seals begin with

    def start(self, record: Mapping[str, Any]) -> None:
        """Clear what an earlier run left and write down what is run; raises ``CannotWrite``."""
        self.clear()
        try:
            self.parts.mkdir(parents=True)
        except OSError as error:
            raise CannotWrite(self.parts, error) from error
        self.run = digest(record)
        write_json(self.directory / RECORD, {**record, SEAL: self.run})

    def record(self) -> dict[str, Any]:
        """Return what was written down at the start; raises ``CheckpointMismatch`` when there is nothing, or it was damaged."""
        path = self.directory / RECORD
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if not (isinstance(record, dict) and isinstance(record.get("identity"), dict)):
                raise ValueError("it is damaged")
        except (OSError, ValueError, RecursionError) as error:
            raise CheckpointMismatch(f"resume: {self.directory} holds no run that can go on ({path.name}: {reason_of(error)})") from error
        return record

    def resume(self, expected: Mapping[str, Any]) -> dict[str, Any]:
        """Go on with the run that was written down, and return what that was.

        Raises:
          CheckpointMismatch: when the directory holds no run, one of something else than ``expected``, or one whose record was damaged.
        """
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
        try:
            self.parts.mkdir(exist_ok=True)
        except OSError as error:
            raise CannotWrite(self.parts, error) from error
        self.run = digest(record)
        return record

    def forget_parts(self) -> None:
        """Drop all finished batches."""
        shutil.rmtree(self.parts, ignore_errors=True)
        self.parts.mkdir(parents=True)

    def part(self, cell: int, batch: int) -> dict[str, np.ndarray] | None:
        """Return a finished batch, ``None`` when it is not finished; one that does not fit is dropped."""
        return self._read(self._part(cell, batch), f"part {cell}-{batch}", f"batch {batch + 1} of cell {cell + 1} is run again")

    def verified(self, cell: int, batch: int) -> int:
        """Return the size of a finished batch's file, 0 when it is not finished; one that does not fit is dropped."""
        return self._part(cell, batch).stat().st_size if self.part(cell, batch) is not None else 0

    def finish(self, cell: int, batch: int, part: Mapping[str, np.ndarray]) -> None:
        """Keep a finished batch; raises ``CannotWrite``."""
        self._write(self._part(cell, batch), f"part {cell}-{batch}", part)

    def save(self, place: Place, leaves: Mapping[str, np.ndarray]) -> None:
        """Write a checkpoint in place of the last one; raises ``CannotWrite``, and then that one stays."""
        where = {f"place_{name}": np.asarray(number) for name, number in dataclasses.asdict(place).items()}
        self._write(self.at_work, "checkpoint", {**where, **leaves})

    def load(self) -> tuple[Place, dict[str, np.ndarray]] | None:
        """Return the last checkpoint, ``None`` when there is none; one that does not fit is dropped."""
        leaves = self._read(self.at_work, "checkpoint", "its batch is run from its first round on")
        if leaves is None:
            return None
        return Place(**{f.name: int(leaves.pop(f"place_{f.name}")) for f in dataclasses.fields(Place)}), leaves

    def _part(self, cell: int, batch: int) -> Path:
        return self.parts / f"{cell}-{batch}.npz"

    def _write(self, path: Path, place: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Write arrays and their seal whole or not at all."""
        seal = np.asarray(self._seal(place, arrays))
        write_whole(path, lambda temporary: np.savez(temporary, allow_pickle=False, **arrays, **{SEAL: seal}))

    def _read(self, path: Path, place: str, otherwise: str) -> dict[str, np.ndarray] | None:
        """Return the arrays of a file; ``None`` when it is not there, or does not fit and has been dropped."""
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as held:
                arrays = dict(held)
            fits = str(arrays.pop(SEAL)) == self._seal(place, arrays)
            reason = "it is of another run, in another place, or was altered"
        except Exception as error:  # what the readers of a damaged file raise is not documented
            fits, reason = False, reason_of(error)
        if fits:
            return arrays
        self.note(f"{path} does not fit ({reason}); {otherwise}")
        path.unlink(missing_ok=True)
        return None

    def _seal(self, place: str, arrays: Mapping[str, np.ndarray]) -> str:
        return f"{self.run}, {place}: {checksum(arrays):08x}"

    def clear(self) -> None:
        """Drop all files that the run has left, half-written ones too; raises ``CannotWrite``."""
        shutil.rmtree(self.parts, ignore_errors=True)
        shutil.rmtree(self.directory / ".results.zarr", ignore_errors=True)
        for name in (RECORD, PROGRESS, "at-work.npz", ".at-work-*.npz", ".study-*.json", ".progress-*.json", ".results-*.nc"):
            for file in self.directory.glob(name):
                try:
                    file.unlink(missing_ok=True)
                except OSError as error:
                    raise CannotWrite(file, error) from error


def digest(record: Mapping[str, Any]) -> str:
    """Return a hash of the record of a run, equal for equal ones."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def checksum(arrays: Mapping[str, np.ndarray]) -> int:
    """Return the CRC-32 of the names, types, shapes and contents of arrays."""
    total = 0
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        total = zlib.crc32(f"{name} {array.dtype.str} {array.shape};".encode(), total)
        total = zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8), total)
    return total


def write_json(path: Path, value: Any) -> None:
    """Write JSON whole or not at all."""
    write_whole(path, lambda temporary: temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8"))
