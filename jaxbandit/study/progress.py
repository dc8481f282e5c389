"""Progress of a study while it runs: what is said on standard error, and mean curves so far in a file for whoever watches."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np

from jaxbandit.core.files import CannotWrite
from jaxbandit.core.status import healthy
from jaxbandit.study.files import PROGRESS, write_json
from jaxbandit.study.plan import Batch, Plan

SECONDS_BETWEEN_LINES = 2.0  # where lines are plain
LEAST_SECONDS_BETWEEN_WRITES = 1.0
SHARE_OF_WRITES = 0.02  # of the time
LEAST_SECONDS = 1e-9  # a clock may stand still
MOST_MEANS = 6  # in a line


@dataclasses.dataclass(frozen=True)
class Progress:
    """Progress of a run after a part of a batch."""

    title: str  # of the cell
    cell: int
    cells: int
    batch: int  # among those of its cell
    batches: int
    round: int  # that was played last
    last: bool  # whether the cell is done
    done: int  # trial-rounds
    work: int  # trial-rounds in all
    seconds: float  # since the start, or since it was resumed
    rate: float  # trial-rounds a second
    left: float  # seconds
    metric: str  # the first one
    lines: Mapping[str, float]  # mean of it at that round in each run of the cell, by label, over the run's latest trials

    def __str__(self) -> str:
        """``[1/3] rpol: round 1,000, batch 2 of 4: 200,000 trial-rounds/s, 3 s left; mean regret: rpol 12.5``."""
        batch = f", batch {self.batch + 1:,} of {self.batches:,}" if self.batches > 1 else ""
        means = ", ".join(f"{label} {value:.4g}" for label, value in list(self.lines.items())[-MOST_MEANS:])
        return (
            f"[{self.cell + 1}/{self.cells}] {self.title}: round {self.round:,}{batch}: {self.rate:,.0f} trial-rounds/s,"
            f" {self.left:,.0f} s left; mean {self.metric.replace('_', ' ')}: {means}"
        )


Told: TypeAlias = tuple[Callable[[Progress], None], Callable[[str], None]]
"""Functions that :func:`~jaxbandit.study.run_study` takes as ``report`` and ``note``."""


class Reporter:
    """Reporter of progress: a bar on a terminal; elsewhere plain lines now and then, the last of each cell always.

    As a context manager it returns the functions that :func:`~jaxbandit.study.run_study` takes as ``report`` and ``note``.
    """

    def __enter__(self) -> Told:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False)
        self.console = Console(stderr=True)
        self.bar = Bar(*columns, console=self.console, transient=True, disable=not self.console.is_terminal)
        self.bar.start()
        self.task = self.bar.add_task("starting", total=None)
        self.said = time.perf_counter()
        return self._report, self._note

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def _note(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _report(self, progress: Progress) -> None:
        self.bar.update(self.task, completed=progress.done, total=progress.work, description=str(progress))
        now = time.perf_counter()
        if progress.last or (not self.console.is_terminal and now - self.said >= SECONDS_BETWEEN_LINES):
            self._note(str(progress))
            self.said = now


def moments(plan: Plan, batch: Batch, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the moments of the kept curves of a batch, for each of its runs.

    These are ``runs``, their numbers in the study, ``trials`` and ``failed``, how many of each, ``[r]``; and for every metric the mean
    curve of the trials that did not fail and their sums of squared deviations, ``[r, rounds]``.
    """
    owners = batch.rows[:, 0]
    runs, trials = np.unique(owners, return_counts=True)
    usable = [(owners == run) & healthy(arrays["end_status"]) for run in runs]
    found = {"runs": runs, "trials": trials, "failed": trials - np.asarray([np.count_nonzero(these) for these in usable])}
    for name in (metric for metric in plan.study.metrics if metric in arrays):  # strong regret comes at the end
        curves = [np.asarray(arrays[name][these], np.float64) for these in usable]
        means = [curve.mean(axis=0) if len(curve) else np.zeros(curve.shape[1:]) for curve in curves]
        found[f"mean {name}"] = np.stack(means)
        found[f"squares {name}"] = np.stack([np.sum((curve - mean) ** 2, axis=0) for curve, mean in zip(curves, means, strict=True)])
    return found


def moments_alone(part: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the moments among all that is kept of a batch."""
    return {name: array for name, array in part.items() if name in ("runs", "trials", "failed") or name.startswith(("mean ", "squares "))}


class SoFar:
    """Trial-rounds that are played, which it reports, and moments of finished batches, which it writes to ``progress.json``."""

    def __init__(self, plan: Plan, report: Callable[[Progress], None], directory: Path | None) -> None:
        self.plan, self.report, self.directory = plan, report, directory
        self.dashboard, self.workers = "", set[str]()  # address of the workers' page, and the names of those that have played
        self.finished = Counter[int]()  # batches of each cell
        self.done = self.skipped = 0  # trial-rounds
        self.started = time.perf_counter()
        self.latest: Progress | None = None
        self.due = -np.inf  # when the file may be written again
        runs, kept = len(plan.runs), len(plan.study.keep.rounds(plan.study.horizon))
        self.trials, self.failed = np.zeros(runs, np.int64), np.zeros(runs, np.int64)
        names = [name for name in plan.study.metrics if name != "strong_regret"]
        self.mean, self.squares = ({name: np.zeros((runs, kept)) for name in names} for _ in range(2))

    def skip(self, batch: Batch, rounds: int) -> None:
        """Count rounds of a batch that were played before."""
        self.done += batch.size * rounds
        self.skipped += batch.size * rounds
        self.finished[batch.cell.number] += rounds == self.plan.study.horizon

    def played(self, batch: Batch, last: int, rounds: int, seconds: float, means: Mapping[int, float]) -> None:
        """Count and report some rounds of a batch.

        Args:
          batch: batch that was played.
          last: round that was played last.
          rounds: number of rounds.
          seconds: seconds spent on all that was played so far.
          means: mean of the first metric after the last round in each run of the batch, by its number in the study.
        """
        cell, work, ended = batch.cell, self.plan.work, last == self.plan.study.horizon
        self.finished[cell.number] += ended
        self.done += batch.size * rounds
        rate = (self.done - self.skipped) / max(seconds, LEAST_SECONDS)
        lines = dict(self.latest.lines) if self.latest is not None and self.latest.cell == cell.number else {}
        lines |= {self.plan.runs[run].label: float(mean) for run, mean in means.items()}
        self.latest = Progress(
            title=cell.title,
            cell=cell.number,
            cells=len(self.plan.cells),
            batch=self.finished[cell.number] - ended,
            batches=cell.count,
            round=last,
            last=ended and self.finished[cell.number] == cell.count,
            done=self.done,
            work=work,
            seconds=time.perf_counter() - self.started,
            rate=rate,
            left=max(work - self.done, 0) / rate,
            metric=self.plan.study.metrics[0],
            lines={run.label: lines[run.label] for run in cell.runs.values() if run.label in lines},
        )
        self.report(self.latest)

    def add(self, found: Mapping[str, np.ndarray]) -> None:
        """Add the moments of a finished batch (Chan, Golub and LeVeque 1979, eq. 2.1)."""
        runs = found["runs"]
        before, new = (self.trials - self.failed)[runs, None], (found["trials"] - found["failed"])[:, None]
        share = new / np.maximum(before + new, 1)
        for name, mean in self.mean.items():
            apart = found[f"mean {name}"] - mean[runs]
            self.squares[name][runs] += found[f"squares {name}"] + apart**2 * before * share
            mean[runs] += apart * share
        self.trials[runs] += found["trials"]
        self.failed[runs] += found["failed"]

    def write_now_and_then(self) -> None:
        """Write ``progress.json``, unless that was done a moment ago."""
        start = time.monotonic()
        if start >= self.due:
            self.write()
            end = time.monotonic()
            self.due = end + max(LEAST_SECONDS_BETWEEN_WRITES, (end - start) / SHARE_OF_WRITES)

    def write(self) -> None:
        """Write ``progress.json`` now, where there is a directory."""
        if self.directory is not None:
            with contextlib.suppress(CannotWrite):  # no run ends for want of it
                write_json(self.directory / PROGRESS, self._table())

    def _table(self) -> dict[str, object]:
        """Return what ``progress.json`` holds: plain values, curves of deviations being those of trials, not of means."""
        study, latest = self.plan.study, self.latest
        return {
            "study": study.name,
            "trials": study.trials,
            "horizon": study.horizon,
            "rounds": study.keep.rounds(study.horizon).tolist(),
            "counted_before": self.plan.before,
            "runs": list(self._runs()),
            "work": self.plan.work,  # trial-rounds in all
            "done": int(self.trials.sum()) * study.horizon,
            "seconds": None if latest is None else latest.seconds,
            "rate": None if latest is None else latest.rate,  # trial-rounds a second
            "left": None if latest is None else latest.left,  # seconds
            "workers": max(len(self.workers), int(latest is not None)),
            "dashboard": self.dashboard,
            "updated": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }

    def _runs(self) -> Iterator[dict[str, object]]:
        """Return what is known of each run, curves only where there are trials to tell them from."""
        for number, run in enumerate(self.plan.runs):
            count = int(self.trials[number] - self.failed[number])
            mean = {name: curves[number].tolist() for name, curves in self.mean.items()} if count else {}
            squares = {name: curves[number] / max(count - 1, 1) for name, curves in self.squares.items()} if count > 1 else {}
            yield {
                "label": run.label,
                "problem": str(run.problem_label),
                "trials": int(self.trials[number]),
                "failed": int(self.failed[number]),
                "mean": mean,
                "deviation": {name: np.sqrt(variance).tolist() for name, variance in squares.items()},
            }
