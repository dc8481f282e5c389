"""The state of a running study on the host: compiled programs, and what has been done."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jaxbandit.metrics import tally
from jaxbandit.simulate.pairs import MESH_AXIS, mesh_of
from jaxbandit.simulate.segments import advance_all, begin_all, conclude_all, measure_all, play_all
from jaxbandit.study.checkpoints import Place, Store
from jaxbandit.study.gathered import Gathered
from jaxbandit.study.hosts import ProcessLost
from jaxbandit.study.lines import counted_before
from jaxbandit.study.planning import Plan
from jaxbandit.study.programs import Programs

CHECKPOINT_SHARE = 0.04  # of the time that checkpoints may take


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a run is, after a part."""

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


class Runner:
    """Runs batches of a plan; see :func:`~jaxbandit.study.run_study` for its arguments."""

    def __init__(
        self,
        plan: Plan,
        store: Store | None = None,
        report: Callable[[Progress], None] = lambda progress: None,
        note: Callable[[str], None] = lambda line: None,
        checkpoint_share: float = CHECKPOINT_SHARE,
    ) -> None:
        self.plan, self.store, self.report, self.note, self.share = plan, store, report, note, checkpoint_share
        self.mesh = mesh_of(list(plan.devices))
        self.key = jax.random.key(plan.study.seed)
        self.programs = Programs(note, _forget_programs)
        self.before = counted_before(plan.lines)
        self.sized = functools.cache(plan.sized)
        self.structure = functools.cache(lambda cell: _structure(plan.sized(cell)))
        self.started = time.perf_counter()
        self.done = self.skipped = 0
        self.playing = 0.0  # seconds, without compilation
        self.clock: dict[tuple[int, int], np.ndarray] = {}  # seconds of batches that were run here, with and without compilation
        self.saved = self.started
        self.saving = 0.0  # seconds that the last checkpoint took
        self.resumed = None if store is None else store.load()

    def read(self, cell: int, batch: int) -> dict[str, np.ndarray]:
        """The results of a batch that another process has run."""
        found = None if self.store is None else self.store.part(cell, batch)
        if found is None:
            raise ProcessLost(f"batch {batch + 1} of cell {cell + 1} is missing in {self.store and self.store.parts}")
        return found

    def batch(self, cell: int, batch: int) -> dict[str, np.ndarray]:
        """The results of a batch, run or read."""
        numbers = self._numbers(cell, batch)
        found = None if self.store is None else self.store.part(cell, batch)
        if found is not None:
            self._skip(len(numbers) * self.plan.study.horizon)
            return found
        part = self.play(cell, batch, self._padded(cell, numbers), len(numbers))
        if self.store is not None:
            self.store.finish(cell, batch, part)
        return part

    def seconds(self, cell: int) -> tuple[float, float]:
        """What each line of a cell took, with and without compilation; NaN unless all of it was run here."""
        found = [self.clock.get((cell, batch), np.full(2, np.nan)) for batch in range(self.plan.batches[cell].batches)]
        whole, playing = np.sum(found, axis=0) / len(self.plan.cells[cell].lines)
        return float(whole), float(playing)

    def _numbers(self, cell: int, batch: int) -> np.ndarray:
        """``[n, 3]``: the line within the cell, the trial, and the line within the study counted from 1."""
        planned, trials, size = self.plan.cells[cell], self.plan.study.trials, self.plan.batches[cell].size
        every = np.arange(batch * size, min((batch + 1) * size, len(planned.lines) * trials))
        variant, trial = np.divmod(every, trials)
        return np.stack([variant, trial, np.asarray(planned.lines)[variant] + 1], axis=1).astype(np.int32)

    def _padded(self, cell: int, numbers: np.ndarray) -> Any:
        missing = self.plan.batches[cell].size - len(numbers)
        return self.place(np.concatenate([numbers, np.repeat(numbers[-1:], missing, axis=0)]))

    def place(self, array: np.ndarray) -> Any:
        """On the devices, spread over them."""
        if self.mesh is None:
            return jax.device_put(array, self.plan.devices[0])
        return jax.device_put(array, NamedSharding(self.mesh, PartitionSpec(MESH_AXIS)))

    def play(self, cell: int, batch: int, pairs: Any, count: int) -> dict[str, np.ndarray]:
        """The results of a batch of ``pairs``, of which the first ``count`` matter."""
        before = self._clocks()
        resumed = self.resumed is not None and (self.resumed[0].cell, self.resumed[0].batch) == (cell, batch)
        part = (self._at_once if self._whole(cell) else self._in_parts)(cell, batch, pairs, count)
        if not resumed:
            self.clock[cell, batch] = self._clocks() - before
        return part

    def _clocks(self) -> np.ndarray:
        """Seconds so far, with the compilation of what has been played; and without any."""
        return np.asarray([time.perf_counter() - self.programs.waited + self.programs.charged, self.playing])

    def _whole(self, cell: int) -> bool:
        """Whether a cell runs in one part."""
        return self.plan.batches[cell].rounds == self.plan.study.horizon

    def _at_once(self, cell: int, batch: int, pairs: Any, count: int) -> dict[str, np.ndarray]:
        """All rounds by one program."""
        horizon, gathered = self.plan.study.horizon, Gathered(self.plan.study, self.before)
        play = self.programs.get(self._play_name(cell, horizon), partial(self._later, cell))
        self._measure(cell, 1, horizon)
        begun = time.perf_counter()
        before, seen, ended = play(self.sized(cell), self.key, pairs)
        gathered.begin(before)
        self._gather(cell, gathered, 1, pairs, self._no_tally(cell), seen)
        part = gathered.part(ended, count)
        self._played(cell, batch, horizon, count * horizon, begun, gathered.means(count))
        return part

    def _in_parts(self, cell: int, batch: int, pairs: Any, count: int) -> dict[str, np.ndarray]:
        """Some rounds at a time, with checkpoints."""
        study, planned = self.plan.study, self.sized(cell)
        progress, before = begin_all(planned, self.key, pairs, mesh=self.mesh)
        tally, next_round = self._no_tally(cell), 1
        gathered = Gathered(study, self.before)
        gathered.begin(before)
        if self.resumed is not None and (self.resumed[0].cell, self.resumed[0].batch) == (cell, batch):
            place, leaves = self.resumed
            (progress, tally), next_round = self._restored((progress, tally), leaves), place.next_round
            gathered.restore(leaves)
            self._skip(count * (next_round - 1))
            self.note(f"resumed at round {next_round} of batch {batch + 1} of cell {cell + 1}")
        for first, rounds in self.plan.batches[cell].parts(study.horizon):
            if first < next_round:
                continue
            given = (planned, self.key, progress, pairs, np.int32(first))
            name, lower = self._play_name(cell, rounds), partial(advance_all.lower, *given, rounds=rounds, **self._recording())
            advance = self.programs.get(name, partial(self._later, cell, [(name, lower)]))
            self._measure(cell, first, rounds)
            begun = time.perf_counter()
            progress, seen = advance(*given)
            tally = self._gather(cell, gathered, first, pairs, tally, seen)
            self._played(cell, batch, first + rounds - 1, count * rounds, begun, gathered.means(count))
            self._checkpoint(Place(cell=cell, batch=batch, next_round=first + rounds), (progress, tally), gathered)
        ended = conclude_all(planned, self.key, progress, pairs, mesh=self.mesh)
        return gathered.part(ended, count)

    def _gather(self, cell: int, gathered: Gathered, first: int, pairs: Any, before: Any, seen: dict[str, Any]) -> Any:
        """Measure and keep what was seen from a round on, from round 1 on with the points before; returns what measures come to."""
        indices = np.asarray(seen["indices"])
        if first == 1 and self.before:
            indices = np.concatenate([*gathered.pieces["before_index"], indices], axis=1)
        measure = self._measure(cell, first, seen["indices"].shape[1])
        tally, curves, facts = measure(self.sized(cell).problem, self.key, pairs, before, self.place(indices))
        gathered.add(first, seen, curves, facts)
        return tally

    def _no_tally(self, cell: int) -> Any:
        """Of a batch, before anything is measured."""
        zero = tally(self.plan.cells[cell].cell.problem.constraints, (self.plan.batches[cell].size,))
        return jax.tree.map(lambda x: self.place(np.asarray(x)), zero)

    def _recording(self) -> dict[str, Any]:
        """What all programs that play share."""
        return {"record": "all" if self.plan.study.trajectories else "indices", "mesh": self.mesh}

    def _play_name(self, cell: int, rounds: int) -> Any:
        """Equal for cells that share the program that plays so many rounds."""
        return "play", self.structure(cell), self.plan.batches[cell].size, rounds

    def _lowered_play(self, cell: int) -> Any:
        """The program that plays whole runs of a cell."""
        return play_all.lower(self.sized(cell), self.key, self.place(self._no_pairs(cell)), **self._recording())

    def _measure(self, cell: int, first: int, rounds: int) -> Any:
        """The program that measures so many rounds, from round 1 on with the points before."""
        rounds += self.before if first == 1 else 0
        name = self._measure_name(cell, rounds)
        return self.programs.get(name, partial(self._later, cell, [(name, partial(self._lowered_measure, cell, rounds))]))

    def _measure_name(self, cell: int, rounds: int) -> Any:
        """Equal for cells that share the program that measures so many rounds."""
        planned = self.sized(cell)
        return "measure", _structure(planned.problem), planned.block, self.plan.batches[cell].size, rounds

    def _lowered_measure(self, cell: int, rounds: int) -> Any:
        planned, study, pairs = self.sized(cell), self.plan.study, self._no_pairs(cell)
        indices = self.place(np.zeros((len(pairs), rounds), np.int32))
        return measure_all.lower(
            planned.problem,
            self.key,
            self.place(pairs),
            self._no_tally(cell),
            indices,
            common=planned.common,
            metrics=tuple(dict.fromkeys("reward" if metric == "strong_regret" else metric for metric in study.metrics)),
            block=planned.block,
            mesh=self.mesh,
        )

    def _no_pairs(self, cell: int) -> np.ndarray:
        """As many as a batch has, for programs to be made for."""
        return np.zeros((self.plan.batches[cell].size, 3), np.int32)

    def _later(self, cell: int, now: Sequence[Any] = ()) -> list[tuple[Any, Any]]:
        """Names of the programs that are needed, ``now`` and from a cell on, and what lowers those of whole runs."""
        found, horizon = list(now), self.plan.study.horizon
        for c in dict.fromkeys(c for c, b in self.plan.owned() if c >= cell and not (self.store and self.store.has(c, b))):
            for first, rounds in dict.fromkeys((first == 1, rounds) for first, rounds in self.plan.batches[c].parts(horizon)):
                counted = rounds + (self.before if first else 0)
                found.append((self._play_name(c, rounds), partial(self._lowered_play, c) if self._whole(c) else None))
                found.append((self._measure_name(c, counted), partial(self._lowered_measure, c, counted) if self._whole(c) else None))
        return found

    def _restored(self, carry: Any, leaves: dict[str, np.ndarray]) -> Any:
        flat, structure = jax.tree.flatten(carry)
        return jax.tree.unflatten(structure, [self.place(leaves[f"c{i}"]) if x.size else x for i, x in enumerate(flat)])

    def _checkpoint(self, place: Place, carry: Any, gathered: Gathered) -> None:
        """Leave a checkpoint, unless it would take more than its share of the time."""
        start = time.perf_counter()
        dear = self.share * (start - self.saved) < (1 - self.share) * self.saving
        if self.store is None or dear or place.next_round > self.plan.study.horizon:
            return
        leaves = {f"c{i}": np.asarray(x) for i, x in enumerate(jax.tree.leaves(carry))}
        self.store.save(place, leaves | gathered.arrays())
        self.saved = time.perf_counter()
        self.saving = self.saved - start

    def _skip(self, work: int) -> None:
        self.done += work
        self.skipped += work

    def _played(self, cell: int, batch: int, last: int, work: int, begun: float, means: dict[str, float]) -> None:
        """Count and report rounds up to ``last``, which were begun at a time."""
        now, plan, batches = time.perf_counter(), self.plan, self.plan.batches[cell].batches
        self.done += work
        self.playing += now - begun
        rate = (self.done - self.skipped) / self.playing
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
                left=max(plan.work / plan.hosts.count - self.done, 0) / rate,
                means=means,
            )
        )


def _structure(tree: Any) -> Any:
    """Equal for trees that programs take for each other."""
    return jax.tree.structure(tree), tuple((np.shape(x), str(x.dtype)) for x in jax.tree.leaves(tree))


def _forget_programs() -> None:
    """Let JAX's own caches drop what is not held here."""
    for function in (play_all, advance_all, measure_all):
        function.clear_cache()  # type: ignore[attr-defined]  # the stub lacks it
