"""The state of a running study on the host: compiled programs, and what has been done."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import numpy as np

from jaxbandit.engine.programs import begin_all, conclude_all
from jaxbandit.metrics import Tally
from jaxbandit.study.plan.planning import Plan
from jaxbandit.study.run.cell_programs import CellPrograms
from jaxbandit.study.run.checkpoints import Place, Store
from jaxbandit.study.run.collector import BatchCollector
from jaxbandit.study.run.progress import Compiling, Progress

CHECKPOINT_SHARE = 0.04  # of the time that checkpoints may take

LEAST_SECONDS = 1e-9  # a clock may stand still

T = TypeVar("T")


class Runner:
    """Runs batches of a plan; see :func:`~jaxbandit.study.run_study` for its arguments."""

    def __init__(
        self,
        plan: Plan,
        store: Store | None = None,
        report: Callable[[Progress], None] = lambda progress: None,
        note: Callable[[str], None] = lambda line: None,
        checkpoint_share: float = CHECKPOINT_SHARE,
        compiling: Callable[[Compiling], None] = lambda compiling: None,
    ) -> None:
        self.plan, self.store, self.report, self.note, self.share = plan, store, report, note, checkpoint_share
        self.made = CellPrograms(plan, self._left, note, compiling)
        self.started = time.perf_counter()
        self.done = self.skipped = 0
        self.playing = 0.0  # seconds, without compilation
        self.lines: dict[str, float] = {}  # of the cell that is played: the latest number of each run
        self.clock: dict[tuple[int, int], np.ndarray] = {}  # seconds of batches that were run here, with and without compilation
        self.saved = self.started
        self.saving = 0.0  # seconds that the last checkpoint took
        self.resumed = None if store is None else store.load()

    def batch(self, cell: int, batch: int) -> dict[str, np.ndarray]:
        """Play a batch and return its results."""
        return self.play(cell, batch, self.plan.numbers_of(cell, batch))

    def _left(self) -> list[int]:
        """Return the cells of which some batch is still to be run here."""
        places = [place for place in self.plan.places if place not in self.clock and not (self.store and self.store.has(*place))]
        return list(dict.fromkeys(cell for cell, _ in places))

    def _padded(self, cell: int, numbers: np.ndarray) -> jax.Array:
        """Place the numbers of a batch's trials on the devices, the last one repeated until the batch is full."""
        missing = self.plan.program_size(cell) - len(numbers)
        return self.made.place(np.concatenate([numbers, np.repeat(numbers[-1:], missing, axis=0)]))

    def play(self, cell: int, batch: int, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """Return the results of the trials ``numbers [n, 3]`` of a batch."""
        before = self._clocks()
        resumed = self._resumes(cell, batch)
        finished = (self._at_once if self.made.in_one_part(cell) else self._in_parts)(cell, batch, numbers)
        if not resumed:
            self.clock[cell, batch] = self._clocks() - before
        return finished

    def _resumes(self, cell: int, batch: int) -> bool:
        """Say whether the last checkpoint is of this batch."""
        return self.resumed is not None and (self.resumed[0].cell, self.resumed[0].batch) == (cell, batch)

    def _clocks(self) -> np.ndarray:
        """Return the seconds so far, with the compilation of what has been played; and without any."""
        return np.asarray([time.perf_counter() - self.made.programs.waited + self.made.programs.charged, self.playing])

    def _at_once(self, cell: int, batch: int, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """Play all rounds by one program, called as often as it takes."""
        horizon, collector = self.plan.study.horizon, BatchCollector(self.plan.study, self.made.before)
        play, measure = self.made.play(cell), self.made.measure(cell, 1, horizon)
        planned, key, no_tally = self.made.cell(cell), self.made.key, self.made.no_tally(cell)
        begun = time.perf_counter()
        played = []
        for pairs, blocks, place in self.made.calls(cell, numbers):
            own = self.made.place(pairs)
            before, seen, ended = play(planned, key, own, blocks)
            counted = [np.asarray(before["initial_indices"])] if self.made.before else []
            indices = self.made.place(np.concatenate([*counted, np.asarray(seen["indices"])], axis=1))
            _, curves, facts = measure(planned.problem, key, own, no_tally, indices, blocks)
            found = (before, seen, ended, curves, facts)
            played.append(jax.tree.map(lambda x, place=place: np.asarray(x)[place], found))
        before, seen, ended, curves, facts = jax.tree.map(lambda *x: x[0] if len(x) == 1 else np.concatenate(x), *played)
        collector.begin(before["initial_indices"])
        collector.add(1, seen, curves, facts)
        finished = collector.finished(ended, len(numbers))
        self._played(cell, batch, horizon, len(numbers) * horizon, begun, collector, len(numbers))
        return finished

    def _in_parts(self, cell: int, batch: int, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """Play some rounds at a time, with checkpoints."""
        planned, count = self.made.cell(cell), len(numbers)
        pairs = self._padded(cell, numbers)
        progress, before = begin_all(planned, self.made.key, pairs, mesh=self.made.mesh)
        tally, next_round = self.made.no_tally(cell), 1
        collector = BatchCollector(self.plan.study, self.made.before)
        collector.begin(before["initial_indices"])
        if self.resumed is not None and self._resumes(cell, batch):
            place, saved = self.resumed
            leaves = {name: _of_rows(array, len(pairs)) for name, array in saved.items()}
            (progress, tally), next_round = self._restored((progress, tally), leaves), place.next_round
            collector.restore(leaves)
            self.skip(count * (next_round - 1))
            self.note(f"resumed at round {next_round} of batch {batch + 1} of cell {cell + 1}")
        for first, rounds in self.plan.parts(cell):
            if first < next_round:
                continue
            given = (planned, self.made.key, progress, pairs, np.int32(first))
            advance, _ = self.made.advance(cell, rounds, given), self.made.measure(cell, first, rounds)
            begun = time.perf_counter()
            progress, seen = advance(*given)
            tally = self._collect(cell, collector, first, pairs, tally, seen)
            self._played(cell, batch, first + rounds - 1, count * rounds, begun, collector, count)
            self._checkpoint(Place(cell=cell, batch=batch, next_round=first + rounds), (progress, tally), collector)
        ended = conclude_all(planned, self.made.key, progress, pairs, mesh=self.made.mesh)
        return collector.finished(ended, count)

    def _collect(
        self, cell: int, collector: BatchCollector, first: int, pairs: jax.Array, before: Tally, seen: dict[str, jax.Array]
    ) -> Tally:
        """Measure and keep what was seen from a round on, from round 1 on with the points before it; returns the tally so far."""
        indices = np.asarray(seen["indices"])
        if first == 1 and self.made.before:
            indices = np.concatenate([*collector.pieces["before_index"], indices], axis=1)
        measure = self.made.measure(cell, first, seen["indices"].shape[1])
        tally, curves, facts = measure(self.made.cell(cell).problem, self.made.key, pairs, before, self.made.place(indices), None)
        collector.add(first, seen, curves, facts)
        return tally

    def _restored(self, carry: T, leaves: Mapping[str, np.ndarray]) -> T:
        """Return what trials carry, with the arrays of a checkpoint in place of its own."""
        flat, structure = jax.tree.flatten(carry)
        return jax.tree.unflatten(structure, [self.made.place(leaves[f"c{i}"]) if x.size else x for i, x in enumerate(flat)])

    def _checkpoint(self, place: Place, carry: Any, collector: BatchCollector) -> None:
        """Leave a checkpoint, unless it would take more than its share of the time."""
        start = time.perf_counter()
        dear = self.share * (start - self.saved) < (1 - self.share) * self.saving
        if self.store is None or dear or place.next_round > self.plan.study.horizon:
            return
        leaves = {f"c{i}": np.asarray(x) for i, x in enumerate(jax.tree.leaves(carry))}
        self.store.save(place, leaves | collector.arrays())
        self.saved = time.perf_counter()
        self.saving = self.saved - start

    def skip(self, work: int) -> None:
        """Count trial-rounds that need not be played."""
        self.done += work
        self.skipped += work

    def _played(self, cell: int, batch: int, last: int, work: int, begun: float, collector: BatchCollector, count: int) -> None:
        """Count and report rounds up to ``last``, which were begun at a time, of the first ``count`` trials of a batch."""
        now, plan, batches = time.perf_counter(), self.plan, self.plan.batch_counts[cell]
        own = [plan.runs[number].label for number in plan.members[cell]]
        runs = [plan.runs[number].label for number in plan.trials_of(cell, batch)[:count, 0]]
        self.lines = {label: value for label, value in self.lines.items() if label in own} | collector.lines(runs)
        self.done += work
        self.playing += now - begun
        rate = (self.done - self.skipped) / max(self.playing, LEAST_SECONDS)
        self.report(
            Progress(
                title=plan.title(cell),
                cell=cell,
                cells=len(plan.cells),
                batch=batch,
                batches=batches,
                round=last,
                last=batch + 1 == batches and last == plan.study.horizon,
                done=self.done,
                seconds=now - self.started,
                rate=rate,
                work=plan.work,
                left=max(plan.work - self.done, 0) / rate + self.made.programs.seconds_left,
                means=collector.means(count),
                lines={label: self.lines[label] for label in own if label in self.lines},
            )
        )


def _of_rows(array: np.ndarray, rows: int) -> np.ndarray:
    """Return an array of a full batch with so many rows: on another number of devices the last trial is repeated more or less often."""
    return array if len(array) == rows else array[np.minimum(np.arange(rows), len(array) - 1)]
