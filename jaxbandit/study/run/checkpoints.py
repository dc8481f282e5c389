"""Files of a running study, from which it goes on after any interruption: its identity, finished batches, and the batch at work.

    study.json          the study, versions and batches; written first, and compared when the run is resumed
    parts/C-B.npz       batch B of cell C, finished
    at-work-P.npz       the last checkpoint of the batch that process P plays, and its place in the run

Every file appears under its name only once it is whole.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxbandit
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.pytree import float_dtype
from jaxbandit.study.run.files import CannotWrite, write_whole

LAYOUT = 2  # of the files; to be raised whenever a checkpoint of the code before cannot go on

WORDS = {
    "layout": "another layout of checkpoints",
    "jaxbandit": "another version of jaxbandit",
    "jax": "another version of JAX",
    "precision": "another precision",
    "platform": "another kind of device",
    "devices": "another number of devices",
    "processes": "another number of processes",
    "study": "another study",  # last: precision and versions change what a study is made of
}


class CheckpointMismatch(InvalidArgument):
    """A directory holds the run of something else; the message says what differs."""


def identity(fingerprint: str, devices: int) -> dict[str, Any]:
    """Return what must be equal for a run to go on bit for bit."""
    return {
        "layout": LAYOUT,
        "study": fingerprint,
        "jaxbandit": jaxbandit.__version__,
        "jax": jax.__version__,
        "precision": str(float_dtype()),
        "platform": jax.default_backend(),
        "devices": devices,
        "processes": jax.process_count(),
    }


@dataclasses.dataclass(frozen=True)
class Place:
    """Place of a checkpoint in a run: the cell, the batch, and the next round."""

    cell: int
    batch: int
    next_round: int


class Store:
    """Directory of a run with the files that the module's text names; ``process`` is the number of this process."""

    def __init__(self, directory: Path, process: int = 0) -> None:
        self.directory = directory
        self.parts, self.at_work = directory / "parts", directory / f"at-work-{process}.npz"

    def start(self, record: Mapping[str, Any]) -> None:
        """Clear what an earlier run left and write down what is run; raises ``CannotWrite``."""
        self.clear()
        try:
            self.parts.mkdir(parents=True)
        except OSError as error:
            raise CannotWrite(self.parts, error) from error
        write_json(self.directory / "study.json", record)

    def resume(self, expected: Mapping[str, Any]) -> dict[str, Any]:
        """Return what was written down at the start.

        Raises:
          CheckpointMismatch: when the directory holds no run, or one of something else than ``expected``.
        """
        path = self.directory / "study.json"
        try:
            record = json.loads(path.read_text())
            found = record["identity"]
        except (OSError, ValueError, KeyError) as error:
            raise CheckpointMismatch(f"resume: {self.directory} holds no run that can go on ({path.name}: {error})") from error
        for name, words in WORDS.items():
            if found.get(name) != expected[name]:
                raise CheckpointMismatch(
                    f"resume: {self.directory} holds a run of {words} ({found.get(name)}, now {expected[name]}); run without --resume into"
                    " another directory, or as it was"
                )
        self.parts.mkdir(exist_ok=True)
        return record

    def has(self, cell: int, batch: int) -> bool:
        """Say whether a batch is finished."""
        return (self.parts / f"{cell}-{batch}.npz").exists()

    def part(self, cell: int, batch: int) -> dict[str, np.ndarray] | None:
        """Return a finished batch, ``None`` when it is not finished."""
        if not self.has(cell, batch):
            return None
        with np.load(self.parts / f"{cell}-{batch}.npz") as arrays:
            return dict(arrays)

    def finish(self, cell: int, batch: int, part: Mapping[str, np.ndarray]) -> None:
        """Keep a finished batch; raises ``CannotWrite``."""
        write_whole(self.parts / f"{cell}-{batch}.npz", lambda path: np.savez(path, allow_pickle=False, **part))

    def save(self, place: Place, leaves: Mapping[str, np.ndarray]) -> None:
        """Write a checkpoint in place of the last one; raises ``CannotWrite``, and then that one stays."""
        where = {f"place_{name}": np.asarray(number) for name, number in dataclasses.asdict(place).items()}
        write_whole(self.at_work, lambda path: np.savez(path, allow_pickle=False, **where, **leaves))

    def load(self) -> tuple[Place, dict[str, np.ndarray]] | None:
        """Return the last checkpoint, ``None`` when there is none."""
        if not self.at_work.exists():
            return None
        with np.load(self.at_work) as arrays:
            leaves = dict(arrays)
        return Place(**{f.name: int(leaves.pop(f"place_{f.name}")) for f in dataclasses.fields(Place)}), leaves

    def clear(self) -> None:
        """Drop all files that the run has left, half-written ones too."""
        shutil.rmtree(self.parts, ignore_errors=True)
        for name in ("study.json", "at-work-*.npz", ".at-work-*.npz", ".study-*.json", ".results-*.nc"):
            for file in self.directory.glob(name):
                file.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write JSON whole or not at all."""
    write_whole(path, lambda temporary: temporary.write_text(json.dumps(value, indent=1) + "\n"))
