"""Progress of a running study, on standard error and in a file."""

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
from jaxbandit.study.files import Names, write_json
from jaxbandit.study.plan import Batch, Plan


@dataclasses.dataclass(frozen=True)
class Progress:
    """Progress of a run after a part of a batch.

    ``done`` and ``work`` count trial-rounds, ``rate`` is in trial-rounds per second, ``left`` in seconds, and ``last`` ends a cell.
    ``lines`` has the mean of ``metric`` at ``round`` over the batch's trials of each run, by label.
    """

    title: str
    cell: int
    cells: int
    batch: int
    batches: int
    round: int
    last: bool
    done: int
    work: int
    seconds: float
    rate: float
    left: float
    metric: str
    lines: Mapping[str, float]

    def __str__(self) -> str:
        """Return a line such as ``[1/3] rpol: round 9: 2 trial-rounds/s, ...``."""
        batch = f", batch {self.batch + 1:,} of {self.batches:,}" if self.batches > 1 else ""
        means = ", ".join(f"{label} {value:.4g}" for label, value in list(self.lines.items())[:3])
        means += f" and {len(self.lines) - 3} more" if len(self.lines) > 3 else ""
        return (
            f"[{self.cell + 1}/{self.cells}] {self.title}: round {self.round:,}{batch}: {self.rate:,.0f} trial-rounds/s,"
            f" {self.left:,.0f} s left; mean {self.metric.replace('_', ' ')}: {means}"
        )


class Reporter:
    """Reporter of progress: a bar on a terminal, plain lines elsewhere.

    The context manager returns the arguments ``report`` and ``note`` of :func:`~jaxbandit.study.run_study`.
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
        if progress.last or (not self.console.is_terminal and now - self.said >= 2):
            self._note(str(progress))
            self.said = now


class SoFar:
    """Reported trial-rounds so far, and moments of finished batches for ``progress.json``."""

    def __init__(self, plan: Plan, report: Callable[[Progress], None], directory: Path | None) -> None:
        self.plan, self.report, self.directory = plan, report, directory
        self.dashboard, self.workers = "", set[str]()
        self.rounds, self.finished = dict[Batch, int](), Counter[int]()
        self.compiling: Callable[[], float] = lambda: 0.0
        self.done = self.skipped = 0
        self.started, self.due = time.perf_counter(), -np.inf
        self.latest: Progress | None = None
        runs, kept = len(plan.runs), len(plan.study.keep.rounds(plan.study.horizon))
        self.trials, self.failed = np.zeros(runs, np.int64), np.zeros(runs, np.int64)
        names = [name for name in plan.study.metrics if name != "strong_regret"]
        self.mean, self.squares = ({name: np.zeros((runs, kept)) for name in names} for _ in range(2))

    def played(self, batch: Batch, last: int, ends: np.ndarray | None = None) -> None:
        """Count and report the rounds of a batch up to ``last``.

        ``ends [n]`` is the first metric of each trial there. Rounds of an earlier process have ``None``, and are not reported.
        """
        cell, horizon, new = batch.cell, self.plan.study.horizon, batch.size * (last - self.rounds.get(batch, 0))
        self.rounds[batch] = last
        self.finished[cell.number] += last == horizon
        self.done += new
        if ends is None:
            self.skipped += new
            return
        seconds, owners = time.perf_counter() - self.started, batch.rows[:, 0]
        rate = (self.done - self.skipped) / max(seconds - self.compiling(), 1e-9)
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
        """Add the moments of healthy trials of a batch, and report it.

        See Chan, Golub and LeVeque (1979), eq. 2.1. A batch that an earlier process finished (``before``) has no report.
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
        # Results turn the rewards into strong regret.
        first = self.plan.study.metrics[0].replace("strong_regret", "reward")
        self.played(batch, self.plan.study.horizon, None if before else arrays[first][:, -1])

    def write(self, *, now: bool = True) -> None:
        """Write ``progress.json`` if a write is due or must be ``now``."""
        start = time.monotonic()
        if self.directory is not None and (now or start >= self.due):
            with contextlib.suppress(CannotWrite):
                write_json(self.directory / Names.progress, self._table())
            end = time.monotonic()
            self.due = end if now else end + max(1.0, (end - start) / 0.02)

    def _table(self) -> dict[str, object]:
        """Return the plain values of ``progress.json``, with deviations between trials."""
        study, latest = self.plan.study, self.latest
        return {
            "study": study.name,
            "trials": study.trials,
            "horizon": study.horizon,
            "rounds": study.keep.rounds(study.horizon).tolist(),
            "counted_before": self.plan.before,
            "runs": [self._run(number) for number in range(len(self.plan.runs))],
            "work": self.plan.work,
            "done": int(self.trials.sum()) * study.horizon,
            "seconds": None if latest is None else latest.seconds,
            "rate": None if latest is None else latest.rate,
            "left": None if latest is None else latest.left,
            "workers": max(len(self.workers), int(latest is not None)),
            "dashboard": self.dashboard,
            "updated": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }

    def _run(self, number: int) -> dict[str, object]:
        """Return the counts of a run, with curves of healthy trials."""
        run, trials, failed = self.plan.runs[number], int(self.trials[number]), int(self.failed[number])
        count = trials - failed
        mean = {name: curves[number].tolist() for name, curves in self.mean.items()} if count else {}
        squares = {name: curves[number] / max(count - 1, 1) for name, curves in self.squares.items()} if count > 1 else {}
        deviation = {name: np.sqrt(variance).tolist() for name, variance in squares.items()}
        names = {"label": run.label, "problem": str(run.problem_label)}
        return {**names, "trials": trials, "failed": failed, "mean": mean, "deviation": deviation}
