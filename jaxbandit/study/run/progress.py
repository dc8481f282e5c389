"""Progress of a run on standard error."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

SECONDS_BETWEEN_LINES = 2.0  # where lines are plain
MAX_MEANS_IN_LINE = 3


@dataclasses.dataclass(frozen=True)
class Progress:
    """Progress of a run after a part of a batch."""

    title: str  # of the cell
    cell: int
    cells: int
    batch: int
    batches: int
    round: int
    last: bool  # whether the cell is done
    done: int  # trial-rounds
    seconds: float  # since the start, or since it was resumed
    rate: float  # trial-rounds a second
    left: float  # seconds
    means: dict[str, float]  # of the batch's curves now


class Reporter:
    """Reporter of progress: a live line on a terminal; elsewhere plain lines now and then, the last of each cell always.

    As a context manager it returns the functions that :func:`~jaxbandit.study.run_study` takes as ``report`` and ``note``.
    """

    def __enter__(self) -> tuple[Callable[[Progress], None], Callable[[str], None]]:
        from rich.console import Console

        self.console = Console(stderr=True)
        self.status = self.console.status("starting") if self.console.is_terminal else None
        self.said = time.perf_counter()
        if self.status is not None:
            self.status.start()
        return self._report, self._note

    def __exit__(self, *_: Any) -> None:
        if self.status is not None:
            self.status.stop()

    def _note(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _report(self, progress: Progress) -> None:
        now = time.perf_counter()
        if self.status is not None:
            from rich.text import Text  # labels may hold what looks like markup

            self.status.update(Text(line_of(progress)))
        if progress.last or (self.status is None and now - self.said >= SECONDS_BETWEEN_LINES):
            self._note(line_of(progress))
            self.said = now


def line_of(progress: Progress) -> str:
    """Return ``[1/3] rpol: round 1,000, batch 2 of 4: 200,000 trial-rounds/s, 3 s left; mean regret 12.5``."""
    batch = f", batch {progress.batch + 1:,} of {progress.batches:,}" if progress.batches > 1 else ""
    means = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in list(progress.means.items())[:MAX_MEANS_IN_LINE])
    return (
        f"[{progress.cell + 1}/{progress.cells}] {progress.title}: round {progress.round:,}{batch}:"
        f" {progress.rate:,.0f} trial-rounds/s, {progress.left:,.0f} s left; mean {means}"
    )
