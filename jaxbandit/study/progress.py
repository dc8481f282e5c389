"""Progress of a run on standard error."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from rich.console import RenderableType

SECONDS_BETWEEN_LINES = 2.0  # where lines are plain
FRAMES_PER_SECOND = 4
MAX_MEANS_IN_LINE = 3
MAX_LINES = 12  # of a cell's runs, in the live display
WIDTH_OF_BAR = 24


@dataclasses.dataclass(frozen=True)
class Compiling:
    """Programs that are about to be compiled: those numbered ``first`` to ``last`` of ``total``, counted from 1."""

    first: int
    last: int
    total: int


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
    work: int  # trial-rounds in all
    seconds: float  # since the start, or since it was resumed
    rate: float  # trial-rounds a second
    left: float  # seconds, with those of the programs that are still to be compiled
    means: Mapping[str, float]  # of the batch's curves now
    lines: Mapping[str, float]  # the first of them for each run of the cell, of its latest trials


Told: TypeAlias = tuple[Callable[[Progress], None], Callable[[str], None], Callable[[Compiling], None]]
"""Functions that :func:`~jaxbandit.study.run_study` takes as ``report``, ``note`` and ``compiling``."""


class Reporter:
    """Reporter of progress: a live display on a terminal; elsewhere plain lines now and then, the last of each cell always.

    As a context manager it returns the functions that :func:`~jaxbandit.study.run_study` takes as ``report``, ``note`` and ``compiling``.
    """

    def __enter__(self) -> Told:
        from rich.console import Console
        from rich.live import Live

        self.console = Console(stderr=True)
        self.said = time.perf_counter()
        self.latest: Progress | None = None
        self.compiling: Compiling | None = None
        self.since = self.said  # when that began
        self.live: Live | None = None
        if self.console.is_terminal:
            self.live = Live(console=self.console, get_renderable=self._display, refresh_per_second=FRAMES_PER_SECOND, transient=True)
            self.live.start()
        return self._report, self._noted, self._compiling

    def __exit__(self, *_: Any) -> None:
        if self.live is not None:
            self.live.stop()

    def _note(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _noted(self, line: str) -> None:
        self.compiling = None  # a line is said when it has ended
        if self.live is not None:
            self.live.refresh()
        self._note(line)

    def _compiling(self, compiling: Compiling) -> None:
        self.compiling, self.since = compiling, time.perf_counter()
        if self.live is None:
            self._note(words_of(compiling))
        else:
            self.live.refresh()

    def _report(self, progress: Progress) -> None:
        now = time.perf_counter()
        self.latest, self.compiling = progress, None
        if progress.last or (self.live is None and now - self.said >= SECONDS_BETWEEN_LINES):
            self._note(line_of(progress))
            self.said = now

    def _display(self) -> RenderableType:
        """Return what the terminal shows now; it is asked for again and again, so that clocks go on."""
        from rich.text import Text  # labels may hold what looks like markup

        return Text("\n".join(display(self.latest, self.compiling, time.perf_counter() - self.since)))


def display(progress: Progress | None, compiling: Compiling | None, seconds: float) -> list[str]:
    """Return the lines of the live display: a bar, what is done now, and a number for each run of the cell.

    Args:
      progress: the latest, ``None`` before the first.
      compiling: what is being compiled, ``None`` when nothing is.
      seconds: how long that has taken so far.
    """
    shown = [] if progress is None else [bar_of(progress) + " " + line_of(progress, short=True)]
    if compiling is not None:
        shown.append(f"{words_of(compiling)}: {seconds:,.0f} s")
    lines = [] if progress is None else list(progress.lines.items())
    shown += [f"  {label}: {_metric(progress)} {value:.4g}" for label, value in lines[-MAX_LINES:] if progress is not None]
    return shown or ["starting"]


def words_of(compiling: Compiling) -> str:
    """Return ``compiling 2 of 5``, or ``compiling 2 to 3 of 5`` for programs that are made together."""
    return f"compiling {compiling.first}{f' to {compiling.last}' if compiling.last > compiling.first else ''} of {compiling.total}"


def bar_of(progress: Progress) -> str:
    """Return a bar of the share of trial-rounds that are done, and the share in per cent."""
    share = min(progress.done / max(progress.work, 1), 1.0)
    full = math.floor(share * WIDTH_OF_BAR)
    return f"[{'=' * full}{' ' * (WIDTH_OF_BAR - full)}] {share:.0%}"


def line_of(progress: Progress, *, short: bool = False) -> str:
    """Return ``[1/3] rpol: round 1,000, batch 2 of 4: 200,000 trial-rounds/s, 3 s left; mean regret 12.5``.

    Of a cell of several runs it ends with the mean of each; ``short`` leaves the means out.
    """
    batch = f", batch {progress.batch + 1:,} of {progress.batches:,}" if progress.batches > 1 else ""
    said = (
        f"[{progress.cell + 1}/{progress.cells}] {progress.title}: round {progress.round:,}{batch}:"
        f" {progress.rate:,.0f} trial-rounds/s, {progress.left:,.0f} s left"
    )
    if short:
        return said
    if len(progress.lines) > 1:
        return f"{said}; mean {_metric(progress)}: " + ", ".join(f"{label} {value:.4g}" for label, value in progress.lines.items())
    means = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in list(progress.means.items())[:MAX_MEANS_IN_LINE])
    return f"{said}; mean {means}"


def _metric(progress: Progress) -> str:
    """Return the name of the metric of the lines."""
    return next(iter(progress.means), "").replace("_", " ")
