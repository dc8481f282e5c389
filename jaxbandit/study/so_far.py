"""Progress and mean curves of a study while it runs, from the batches that are finished, for whoever watches."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from jaxbandit.core.files import CannotWrite
from jaxbandit.core.status import healthy
from jaxbandit.study.files import PROGRESS, Files, write_json
from jaxbandit.study.plan import Batch, Plan, counted_before
from jaxbandit.study.progress import Progress

LEAST_SECONDS_BETWEEN_WRITES = 1.0
SHARE_OF_WRITES = 0.02  # of the time
LEAST_SECONDS = 1e-9  # a clock may stand still


class Meter:
    """Counts the trial-rounds of a run as they are played, and reports them; ``finished`` are batches that were played before.

    Attributes:
      latest: the latest progress, ``None`` before the first.
    """

    def __init__(self, plan: Plan, report: Callable[[Progress], None], finished: Iterable[Batch] = ()) -> None:
        self.plan, self.report = plan, report
        before = list(finished)
        self.finished = Counter(batch.cell for batch in before)
        self.done = self.skipped = sum(batch.size for batch in before) * plan.study.horizon
        self.started = time.perf_counter()
        self.latest: Progress | None = None

    def skip(self, work: int) -> None:
        """Count trial-rounds that need not be played."""
        self.done += work
        self.skipped += work

    def played(
        self, batch: Batch, last: int, rounds: int, seconds: float, means: Mapping[str, Mapping[str, float]], waiting: float = 0.0
    ) -> None:
        """Count and report some rounds of a batch up to ``last``.

        Args:
          batch: batch that was played.
          last: round that was played last.
          rounds: number of rounds.
          seconds: seconds spent on all that was played so far.
          means: mean of each metric in each run of the batch, by its label, after the last round.
          waiting: seconds that compilation may still take.
        """
        cell, work, ended = batch.cell, self.plan.work, last == self.plan.study.horizon
        self.finished[cell] += ended
        self.done += batch.size * rounds
        rate = (self.done - self.skipped) / max(seconds, LEAST_SECONDS)
        before = self.latest.lines if self.latest is not None and self.latest.cell == cell.number else {}
        lines = {**before, **next(iter(means.values()), {})}
        self.latest = Progress(
            title=cell.title,
            cell=cell.number,
            cells=len(self.plan.cells),
            batch=self.finished[cell] - ended,
            batches=cell.count,
            round=last,
            last=ended and self.finished[cell] == cell.count,
            done=self.done,
            work=work,
            seconds=time.perf_counter() - self.started,
            rate=rate,
            left=max(work - self.done, 0) / rate + waiting,
            means={name: float(np.mean(list(own.values()))) for name, own in means.items() if own},
            lines={run.label: lines[run.label] for run in cell.runs.values() if run.label in lines},
        )
        self.report(self.latest)


@dataclasses.dataclass(frozen=True)
class Summary:
    """Moments of the kept curves of a batch, for each of its runs.

    Attributes:
      runs: numbers of the runs in the study, ``[r]``.
      trials, failed: trials of each, and how many of them failed, ``[r]``.
      mean, squares: mean curves of those that did not fail and their sums of squared deviations, ``[r, rounds]``, by metric.
    """

    runs: np.ndarray
    trials: np.ndarray
    failed: np.ndarray
    mean: Mapping[str, np.ndarray]
    squares: Mapping[str, np.ndarray]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return arrays that a file can keep."""
        curves = {f"mean {name}": x for name, x in self.mean.items()} | {f"squares {name}": x for name, x in self.squares.items()}
        return {"runs": self.runs, "trials": self.trials, "failed": self.failed, **curves}

    @staticmethod
    def of_arrays(arrays: Mapping[str, np.ndarray]) -> Summary:
        """Return what :meth:`arrays` has made arrays of, which may have others beside them."""
        mean, squares = ({key.removeprefix(kind): x for key, x in arrays.items() if key.startswith(kind)} for kind in ("mean ", "squares "))
        return Summary(arrays["runs"], arrays["trials"], arrays["failed"], mean, squares)


def summarise(plan: Plan, batch: Batch, arrays: Mapping[str, np.ndarray]) -> Summary:
    """Return the moments of a batch."""
    owners = batch.rows[:, 0]
    runs, usable = np.unique(owners), healthy(arrays["end_status"])
    chosen = [(owners == run) & usable for run in runs]
    curves = {name: np.asarray(arrays[name], np.float64) for name in plan.study.metrics if name in arrays}  # strong regret comes at the end
    mean = {name: np.stack([_mean(curve[own]) for own in chosen]) for name, curve in curves.items()}
    squares = {
        name: np.stack([np.sum((curve[own] - centre) ** 2, axis=0) for own, centre in zip(chosen, mean[name], strict=True)])
        for name, curve in curves.items()
    }
    trials = np.asarray([np.count_nonzero(owners == run) for run in runs])
    return Summary(runs, trials, trials - np.asarray([np.count_nonzero(own) for own in chosen]), mean, squares)


def _mean(curves: np.ndarray) -> np.ndarray:
    """Return the mean curve, zero of none."""
    return curves.mean(axis=0) if len(curves) else np.zeros(curves.shape[1:])


class SoFar:
    """Moments of all batches that are finished; written to the directory of the run, if there is one."""

    def __init__(self, plan: Plan, files: Files | None) -> None:
        self.plan, self.files, self.dashboard = plan, files, ""
        runs, kept = len(plan.runs), plan.study.keep.rounds(plan.study.horizon)
        self.rounds = kept
        self.trials, self.failed = np.zeros(runs, np.int64), np.zeros(runs, np.int64)
        names = [name for name in plan.study.metrics if name != "strong_regret"]
        self.mean = {name: np.zeros((runs, len(kept))) for name in names}
        self.squares = {name: np.zeros((runs, len(kept))) for name in names}
        self.due = -np.inf  # when it may be written again
        self.progress: Progress | None = None
        self.workers = 0

    def add(self, found: Summary) -> None:
        """Add a batch (Chan, Golub and LeVeque 1979, eq. 2.1)."""
        own, new = (self.trials - self.failed)[found.runs, None], (found.trials - found.failed)[:, None]
        share = new / np.maximum(own + new, 1)
        for name, mean in found.mean.items():
            apart = mean - self.mean[name][found.runs]
            self.squares[name][found.runs] += found.squares[name] + apart**2 * own * share
            self.mean[name][found.runs] += apart * share
        self.trials[found.runs] += found.trials
        self.failed[found.runs] += found.failed

    def tell(self, progress: Progress | None, workers: int) -> None:
        """Write the latest progress to ``progress.json``, unless that was written a moment ago."""
        self.progress, self.workers = progress, workers
        if time.monotonic() >= self.due:
            start = time.monotonic()
            self.write()
            end = time.monotonic()
            self.due = end + max(LEAST_SECONDS_BETWEEN_WRITES, (end - start) / SHARE_OF_WRITES)

    def write(self) -> None:
        """Write ``progress.json`` now, where there is a directory."""
        if self.files is not None:
            with contextlib.suppress(CannotWrite):  # no run ends for want of it
                write_json(self.files.directory / PROGRESS, self._table())

    def _table(self) -> dict[str, Any]:
        """Return what ``progress.json`` holds: plain values, curves of deviations being those of trials, not of means."""
        progress = self.progress
        study, counts = self.plan.study, self.trials - self.failed
        deviation = {name: np.sqrt(squares / np.maximum(counts - 1, 1)[:, None]) for name, squares in self.squares.items()}
        runs = [
            {
                "label": run.label,
                "problem": str(run.problem_label),
                "trials": int(self.trials[number]),
                "failed": int(self.failed[number]),
                "mean": {name: mean[number].tolist() for name, mean in self.mean.items()} if counts[number] else {},
                "deviation": {name: own[number].tolist() for name, own in deviation.items()} if counts[number] > 1 else {},
            }
            for number, run in enumerate(self.plan.runs)
        ]
        return {
            "study": study.name,
            "trials": study.trials,
            "horizon": study.horizon,
            "rounds": self.rounds.tolist(),
            "counted_before": counted_before(self.plan.runs),
            "runs": runs,
            "work": self.plan.work,  # trial-rounds in all
            "done": int(self.trials.sum()) * study.horizon,
            "seconds": None if progress is None else progress.seconds,
            "rate": None if progress is None else progress.rate,  # trial-rounds a second
            "left": None if progress is None else progress.left,  # seconds
            "workers": self.workers,
            "dashboard": self.dashboard,
            "updated": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
