"""Memory and disk that a study may use."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path

from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.memory import device_memory, host_memory, in_units

DEFAULT_SHARE = 0.5  # of the devices' memory that may be used when nothing is said
MAX_BATCH_BYTES_ON_CPU = 2**30  # when nothing is said: batches of equal size share their program, so that larger ones gain nothing
MAX_BYTES = 2**62
UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


@dataclasses.dataclass(frozen=True)
class Budget:
    """Bytes of a batch: ``wanted`` are used where they suffice, ``limit`` is never exceeded."""

    wanted: int
    limit: int

    def beside(self, results: int, platform: str) -> Budget:
        """Return what is left for a batch beside results of so many bytes, which lie in the host's memory: on CPUs that of the batches.

        Raises:
          InvalidArgument: when the results leave nothing.
        """
        most = self.limit if platform == "cpu" else host_memory()
        if results >= most:
            raise InvalidArgument(
                f"memory: the results alone take {in_units(results)} of the {in_units(most)} allowed; have them written to a file batch by"
                " batch (results=PATH), keep fewer rounds (keep) or metrics, or allow more"
            )
        return Budget(min(self.wanted, self.limit - results), self.limit - results) if platform == "cpu" else self


def memory_budget(text: str | int | None, platform: str) -> Budget:
    """Return the budget that ``"4GiB"``, ``"800M"`` or a number of bytes stands for; by the devices' memory when nothing is said.

    Raises:
      InvalidArgument: on what is no amount of memory.
    """
    if text is None:
        limit = int(DEFAULT_SHARE * device_memory())
        return Budget(wanted=min(limit, MAX_BATCH_BYTES_ON_CPU) if platform == "cpu" else limit, limit=limit)
    if isinstance(text, int) and not isinstance(text, bool):
        amount: float = text
    else:
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([kmgt]?)(i?b)?\s*", text.lower()) if isinstance(text, str) else None
        if not match:
            raise InvalidArgument(f"memory: expected an amount such as 4GiB or 800M, got {short(text)}")
        amount = float(match[1]) * UNITS[match[2]]
    if not 1 <= amount <= MAX_BYTES:
        raise InvalidArgument(f"memory: must be from one byte to {in_units(MAX_BYTES)}, got {short(text)}")
    return Budget(wanted=int(amount), limit=int(amount))


def check_disk(directory: Path, needed: int) -> None:
    """Raise ``InvalidArgument`` unless the disk of a directory, which need not be there yet, has so many bytes free."""
    there = next(place for place in (directory, *directory.absolute().parents) if place.exists())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise InvalidArgument(
            f"out: the results may take {in_units(needed)} while they are gathered, and {directory} has {in_units(free)} free; keep fewer"
            " rounds (keep), metrics or trials, no trajectories, or choose another disk"
        )
