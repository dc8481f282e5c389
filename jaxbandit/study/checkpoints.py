"""What a running study leaves on disk, so that it can go on after any interruption: its identity, finished batches, the one at work.

    study.json          what is run, by which versions and how; written first, and compared when the run is resumed
    parts/C-B.npz       batch B of cell C, finished
    at-work-P/N         an orbax checkpoint of the batch that process P is at
    at-work-P/now.json  which of them is the last whole one, and where in the run it is

Every file appears under its name only once it is whole.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxbandit
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.pytree import float_dtype
from jaxbandit.study.files import CannotWrite, write_whole

WORDS = {
    "study": "another study",
    "jaxbandit": "another version of jaxbandit",
    "jax": "another version of JAX",
    "precision": "another precision",
    "platform": "another kind of device",
    "devices": "another number of devices",
    "processes": "another number of processes",
}


class CheckpointMismatch(InvalidArgument):
    """A directory holds the run of something else; the message says what differs."""


def identity(fingerprint: str, devices: int) -> dict[str, Any]:
    """What must be equal for a run to go on bit for bit."""
    return {
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
    """Where in a run a checkpoint is: the cell, the batch, and the next round."""

    cell: int
    batch: int
    next_round: int


class Store:
    """The directory of a run; see the module's text."""

    def __init__(self, directory: Path, process: int = 0) -> None:
        self.directory = directory
        self.parts, self.at_work = directory / "parts", directory / f"at-work-{process}"

    def start(self, record: Mapping[str, Any]) -> None:
        """Clear what an earlier run left and write down what is run; raises ``CannotWrite``."""
        with _disk(self.parts):
            self.clear()
            self.parts.mkdir(parents=True)
        write_json(self.directory / "study.json", record)

    def resume(self, expected: Mapping[str, Any]) -> dict[str, Any]:
        """What was written down at the start.

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
        """Whether a batch is finished."""
        return (self.parts / f"{cell}-{batch}.npz").exists()

    def part(self, cell: int, batch: int) -> dict[str, np.ndarray] | None:
        """A finished batch, ``None`` when there is none."""
        if not self.has(cell, batch):
            return None
        with np.load(self.parts / f"{cell}-{batch}.npz") as arrays:
            return dict(arrays)

    def finish(self, cell: int, batch: int, part: Mapping[str, np.ndarray]) -> None:
        """Keep a finished batch; raises ``CannotWrite``."""
        write_whole(self.parts / f"{cell}-{batch}.npz", lambda path: np.savez(path, allow_pickle=False, **part))

    def save(self, place: Place, leaves: Mapping[str, np.ndarray]) -> None:
        """Write a checkpoint beside the last one, which goes once the new one is whole; raises ``CannotWrite`` when it cannot."""
        with _disk(self.at_work):
            self.at_work.mkdir(exist_ok=True)
        last = self._now()
        number = 1 + (last["number"] if last else 0)
        target = (self.at_work / str(number)).absolute()
        shutil.rmtree(target, ignore_errors=True)  # of a run that was cut off while it wrote
        with _disk(target), _orbax() as writer:
            writer.save(target, {name: array for name, array in leaves.items() if array.size})  # orbax keeps no empty arrays
        write_json(self.at_work / "now.json", {"number": number, **dataclasses.asdict(place)})
        for other in self.at_work.iterdir():
            if other.is_dir() and other.name != str(number):
                shutil.rmtree(other, ignore_errors=True)

    def load(self) -> tuple[Place, dict[str, np.ndarray]] | None:
        """The last whole checkpoint, ``None`` when there is none."""
        last = self._now()
        if last is None:
            return None
        with _orbax() as reader:
            leaves = reader.restore((self.at_work / str(last.pop("number"))).absolute())
        return Place(**last), {name: np.asarray(array) for name, array in leaves.items()}

    def clear(self) -> None:
        """Drop all that the run has left."""
        (self.directory / "study.json").unlink(missing_ok=True)
        for directory in (self.parts, *self.directory.glob("at-work-*")):
            shutil.rmtree(directory, ignore_errors=True)

    def _now(self) -> dict[str, Any] | None:
        path = self.at_work / "now.json"
        return json.loads(path.read_text()) if path.exists() else None


@contextlib.contextmanager
def _disk(path: Path) -> Iterator[None]:
    """Turn what goes wrong while a checkpoint is written, which orbax says at length and in many types, into one error."""
    log = logging.getLogger("absl")
    quiet = log.disabled
    log.disabled = True
    try:
        yield
    except Exception as error:
        raise CannotWrite(path, error) from error
    finally:
        log.disabled = quiet


def _orbax() -> Any:
    """A checkpointer of this process alone: others are elsewhere in their own batches."""
    import orbax.checkpoint

    own = jax.process_index()
    alone = orbax.checkpoint.options.MultiprocessingOptions(
        primary_host=own, active_processes={own}, barrier_sync_key_prefix=f"process-{own}"
    )
    return orbax.checkpoint.StandardCheckpointer(multiprocessing_options=alone)


def write_json(path: Path, value: Any) -> None:
    """Write JSON whole or not at all."""
    write_whole(path, lambda temporary: temporary.write_text(json.dumps(value, indent=1) + "\n"))
