"""Progress of a study while it runs: what is said on standard error, and mean curves so far in a file for whoever watches."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from jaxbandit.core.status import healthy
from jaxbandit.host.files import CannotWrite
from jaxbandit.results.dataset import Arrays
from jaxbandit.study.files import PROGRESS, write_json
from jaxbandit.study.plan import Batch, Plan

SECONDS_BETWEEN_LINES = 2.0  # where lines are plain
LEAST_SECONDS_BETWEEN_WRITES = 1.0
SHARE_OF_WRITES = 0.02  # of the time
LEAST_SECONDS = 1e-9  # a clock may stand still
MOST_MEANS = 3  # in a line


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
    lines: Mapping[str, float]  # mean of it at that round over the trials of each run in the batch, by label

    def __str__(self) -> str:
        """``[1/3] rpol: round 1,000, batch 2 of 4: 200,000 trial-rounds/s, 3 s left; mean regret: rpol 12.5``."""
        batch = f", batch {self.batch + 1:,} of {self.batches:,}" if self.batches > 1 else ""
        means = ", ".join(f"{label} {value:.4g}" for label, value in list(self.lines.items())[:MOST_MEANS])
        means += f" and {len(self.lines) - MOST_MEANS} more" if len(self.lines) > MOST_MEANS else ""
        return (
            f"[{self.cell + 1}/{self.cells}] {self.title}: round {self.round:,}{batch}: {self.rate:,.0f} trial-rounds/s,"
            f" {self.left:,.0f} s left; mean {self.metric.replace('_', ' ')}: {means}"
        )


class Reporter:
    """Reporter of progress: a bar on a terminal; elsewhere plain lines now and then, the last of each cell always.

    As a context manager it returns the functions that :func:`~jaxbandit.study.run_study` takes as ``report`` and ``note``.
    """

    def __enter__(self) -> tuple[Callable[[Progress], None], Callable[[str], None]]:
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


class SoFar:
    """Trial-rounds that are played, which it reports, and moments of finished batches, which it writes to ``progress.json``."""

    def __init__(self, plan: Plan, report: Callable[[Progress], None], directory: Path | None) -> None:
        self.plan, self.report, self.directory = plan, report, directory
        self.dashboard, self.workers = "", set[str]()  # address of the workers' page, and the names of those that have played
        self.rounds, self.finished = dict[Batch, int](), Counter[int]()  # rounds played of each batch, and finished batches of each cell
        self.compiling: Callable[[], float] = lambda: 0.0  # seconds that no rate counts
        self.done = self.skipped = 0  # trial-rounds, and those that an earlier process has played
        self.started, self.due = time.perf_counter(), -np.inf  # when the run began, and when the file may be written again
        self.latest: Progress | None = None
        runs, kept = len(plan.runs), len(plan.study.keep.rounds(plan.study.horizon))
        self.trials, self.failed = np.zeros(runs, np.int64), np.zeros(runs, np.int64)
        names = [name for name in plan.study.metrics if name != "strong_regret"]
        self.mean, self.squares = ({name: np.zeros((runs, kept)) for name in names} for _ in range(2))

    def played(self, batch: Batch, last: int, ends: np.ndarray | None = None) -> None:
        """Count the rounds of a batch up to ``last``, and report them.

        ``ends [n]`` is the first metric of each trial there, ``None`` for rounds of an earlier process, which are only counted.
        """
        cell, horizon, new = batch.cell, self.plan.study.horizon, batch.size * (last - self.rounds.get(batch, 0))
        self.rounds[batch] = last
        self.finished[cell.number] += last == horizon
        self.done += new
        if ends is None:
            self.skipped += new
            return
        seconds, owners = time.perf_counter() - self.started, batch.rows[:, 0]
        rate = (self.done - self.skipped) / max(seconds - self.compiling(), LEAST_SECONDS)
        self.latest = Progress(
            title=cell.title,
            cell=cell.number,
            cells=len(self.plan.cells),
            batch=self.finished[cell.number] - (last == horizon),
            batches=cell.count,
            round=last,
            last=self.finished[cell.number] == cell.count,
            done=self.done,
            work=self.plan.work,
            seconds=seconds,
            rate=rate,
            left=(self.plan.work - self.done) / rate,
            metric=self.plan.study.metrics[0],
            lines={self.plan.runs[run].label: float(np.mean(ends[owners == run])) for run in np.unique(owners).tolist()},
        )
        self.report(self.latest)

    def finish(self, batch: Batch, arrays: Arrays, *, before: bool = False) -> None:
        """Add the moments of a finished batch, over trials that did not fail (Chan, Golub and LeVeque 1979, eq. 2.1), and report it.

        A batch that an earlier process has finished ``before`` is only counted.
        """
        owners, usable = batch.rows[:, 0], healthy(arrays["end_status"])
        for run in np.unique(owners).tolist():
            these, known = usable & (owners == run), self.trials[run] - self.failed[run]
            new, trials = np.count_nonzero(these), np.count_nonzero(owners == run)
            self.trials[run] += trials
            self.failed[run] += trials - new
            for name, mean in self.mean.items() if new else ():
                curves = np.asarray(arrays[name][these], np.float64)
                apart = curves.mean(axis=0) - mean[run]
                share = new / (known + new)
                self.squares[name][run] += np.sum((curves - curves.mean(axis=0)) ** 2, axis=0) + apart**2 * known * share
                mean[run] += apart * share
        first = self.plan.study.metrics[0].replace("strong_regret", "reward")  # of which it is made in the end
        self.played(batch, self.plan.study.horizon, None if before else arrays[first][:, -1])

    def write(self, *, now: bool = True) -> None:
        """Write ``progress.json`` where there is a directory, unless that was done a moment ago and need not be ``now``."""
        start = time.monotonic()
        if self.directory is not None and (now or start >= self.due):
            with contextlib.suppress(CannotWrite):  # no run ends for want of it
                write_json(self.directory / PROGRESS, self._table())
            end = time.monotonic()
            self.due = end if now else end + max(LEAST_SECONDS_BETWEEN_WRITES, (end - start) / SHARE_OF_WRITES)

    def _table(self) -> dict[str, object]:
        """Return what ``progress.json`` holds: plain values, curves of deviations being those of trials, not of means."""
        study, latest = self.plan.study, self.latest
        return {
            "study": study.name,
            "trials": study.trials,
            "horizon": study.horizon,
            "rounds": study.keep.rounds(study.horizon).tolist(),
            "counted_before": self.plan.before,
            "runs": [self._run(number) for number in range(len(self.plan.runs))],
            "work": self.plan.work,  # trial-rounds in all
            "done": int(self.trials.sum()) * study.horizon,
            "seconds": None if latest is None else latest.seconds,
            "rate": None if latest is None else latest.rate,  # trial-rounds a second
            "left": None if latest is None else latest.left,  # seconds
            "workers": max(len(self.workers), int(latest is not None)),
            "dashboard": self.dashboard,
            "updated": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }

    def _run(self, number: int) -> dict[str, object]:
        """Return what is known of a run, curves only where there are trials to tell them from."""
        run, trials, failed = self.plan.runs[number], int(self.trials[number]), int(self.failed[number])
        count = trials - failed
        mean = {name: curves[number].tolist() for name, curves in self.mean.items()} if count else {}
        squares = {name: curves[number] / max(count - 1, 1) for name, curves in self.squares.items()} if count > 1 else {}
        deviation = {name: np.sqrt(variance).tolist() for name, variance in squares.items()}
        names = {"label": run.label, "problem": str(run.problem_label)}
        return {**names, "trials": trials, "failed": failed, "mean": mean, "deviation": deviation}
