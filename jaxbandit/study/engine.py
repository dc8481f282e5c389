"""Running a study: cell by cell, batch by batch, in parts of some rounds, with progress and checkpoints."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jaxbandit.core import checks
from jaxbandit.simulate.pairs import MESH_AXIS, mesh_of
from jaxbandit.simulate.segments import advance_all, begin_all, conclude_all
from jaxbandit.study.cells import PlannedCell, gather
from jaxbandit.study.checkpoints import Place, Store, identity
from jaxbandit.study.hosts import Hosts, ProcessLost, this_process
from jaxbandit.study.planning import BatchPlan, memory_budget, plan_batches, segment_rounds
from jaxbandit.study.results import gather_results
from jaxbandit.study.spec import Line, Study

CHECKPOINT_SHARE = 0.04  # of the time that checkpoints may take


@dataclasses.dataclass(frozen=True)
class Plan:
    """All that is decided before a study runs."""

    study: Study
    lines: tuple[Line, ...]
    cells: tuple[PlannedCell, ...]
    batches: tuple[BatchPlan, ...]
    rounds: int  # in a part
    devices: tuple[Any, ...]
    hosts: Hosts = Hosts()

    @property
    def work(self) -> int:
        """Trial-rounds in all."""
        return len(self.lines) * self.study.trials * self.study.horizon

    def parts(self) -> list[tuple[int, int]]:
        """First round and number of rounds of every part; all but the last are equal."""
        horizon = self.study.horizon
        return [(first, min(self.rounds, horizon - first + 1)) for first in range(1, horizon + 1, self.rounds)]


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a run is, after a part."""

    cell: int
    batch: int
    round: int
    done: int  # trial-rounds
    seconds: float  # since the start, or since it was resumed
    rate: float  # trial-rounds a second
    left: float  # seconds
    means: dict[str, float]  # of the batch's curves now


def make_plan(
    study: Study,
    *,
    memory: str | int | None = None,
    segment: int | None = None,
    devices: Sequence[jax.Device] | None = None,
) -> Plan:
    """Lines, cells and batches of a study.

    Args:
      study: what to run.
      memory: budget, such as ``"4GiB"``; default half of the devices' memory.
      segment: rounds in a part; default a tenth of the horizon.
      devices: to spread trials over; default all local ones.

    Raises:
      InvalidArgument: on anything in the study that cannot run, before anything compiles.
    """
    if segment is not None:
        checks.integer("segment", segment, least=1)
    used = tuple(jax.local_devices() if devices is None else devices)
    lines = tuple(study.lines())
    cells = tuple(gather(study, lines))
    rounds, budget, hosts = segment_rounds(study, segment), memory_budget(memory), this_process()
    batches = tuple(plan_batches(study, cell, rounds, budget, len(used), hosts.count) for cell in cells)
    return Plan(study=study, lines=lines, cells=cells, batches=batches, rounds=rounds, devices=used, hosts=hosts)


def run_study(
    study: Study,
    directory: str | Path | None = None,
    *,
    resume: bool = False,
    memory: str | int | None = None,
    segment: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    checkpoint_share: float = CHECKPOINT_SHARE,
    report: Callable[[Progress], None] = lambda progress: None,
    note: Callable[[str], None] = lambda line: None,
) -> Any:
    """Run a study and gather its results: an ``xarray.Dataset``, or ``None`` in all but the first of several processes.

    Args:
      study: what to run.
      directory: where checkpoints and finished batches go, and stay until :func:`forget`; default nowhere.
      resume: go on with the run that the directory holds, to the results it would have had without interruption, bit for bit.
      memory, segment, devices: as for :func:`make_plan`; a run that is resumed keeps its own.
      checkpoint_share: of the time that checkpoints may take, in (0, 1]; they are left out where they would take more.
      report: called after each part.
      note: called with a line of text when something is compiled, resumed or done.

    Raises:
      InvalidArgument: on a study that cannot run, or a directory that holds the run of another.
      ProcessLost: when another process of the study has gone.
    """
    checks.within("checkpoint_share", checkpoint_share, 0.0, 1.0)
    plan = make_plan(study, memory=memory, segment=segment, devices=devices)
    hosts = plan.hosts
    if directory is None and hosts.count > 1:
        raise checks.InvalidArgument(f"directory: {hosts.count} processes meet in a directory that all of them see; give one")
    store = None if directory is None else Store(Path(directory), hosts.index)
    if store is not None:
        plan = _prepared(plan, store, resume)
    runner = Runner(plan, store, report, note, checkpoint_share)
    numbered = enumerate((c, b) for c, batch in enumerate(plan.batches) for b in range(batch.batches))
    parts = {place: runner.batch(*place) for number, place in numbered if hosts.owns(number)}
    hosts.meet("every batch is finished")
    if not hosts.first:
        return None
    whole = [[parts[c, b] if (c, b) in parts else runner.read(c, b) for b in range(batch.batches)] for c, batch in enumerate(plan.batches)]
    return gather_results(plan, whole)


def forget(directory: str | Path) -> None:
    """Drop the checkpoints and batches of a run, once its results are kept elsewhere."""
    Store(Path(directory)).clear()


def _prepared(plan: Plan, store: Store, resume: bool) -> Plan:
    """The plan, as it was when the run was begun if it is resumed."""
    own = identity(plan.study.fingerprint(), len(plan.devices))
    if not resume and plan.hosts.first:
        sizes = [[batch.size, batch.batches] for batch in plan.batches]
        store.start({"identity": own, "rounds": plan.rounds, "batches": sizes})
    plan.hosts.meet("the run is written down")
    if not resume and plan.hosts.first:
        return plan
    record = store.resume(own)
    batches = [dataclasses.replace(b, size=size, batches=n) for b, (size, n) in zip(plan.batches, record["batches"], strict=True)]
    return dataclasses.replace(plan, rounds=record["rounds"], batches=tuple(batches))


class Runner:
    """The state of a run on the host: compiled programs, and what has been done."""

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
        self.programs: dict[Any, Any] = {}
        self.started = time.perf_counter()
        self.done = self.skipped = 0
        self.playing = 0.0  # seconds, without compilation
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
        study, planned = self.plan.study, self.sized(cell)
        carry, opening = begin_all(planned, self.key, pairs, mesh=self.mesh)
        gathered = _Gathered(study, opening)
        next_round = 1
        if self.resumed is not None and (self.resumed[0].cell, self.resumed[0].batch) == (cell, batch):
            place, leaves = self.resumed
            carry, next_round = self._restored(carry, leaves), place.next_round
            gathered.restore(leaves)
            self._skip(count * (next_round - 1))
            self.note(f"resumed at round {next_round} of batch {batch + 1} of cell {cell + 1}")
        for first, rounds in self.plan.parts():
            if first < next_round:
                continue
            advance = self._program(planned, carry, pairs, rounds)
            begun = time.perf_counter()
            carry, curves, seen = advance(planned, self.key, carry, pairs, np.int32(first))
            gathered.add(first, curves, seen)  # waits for the devices
            self.done += count * rounds
            self.playing += time.perf_counter() - begun
            self._report(cell, batch, first + rounds - 1, {name: np.asarray(curve)[:count, -1] for name, curve in curves.items()})
            self._checkpoint(Place(cell=cell, batch=batch, next_round=first + rounds), carry, gathered)
        ended = conclude_all(carry, block=planned.block, mesh=self.mesh)
        return gathered.part(ended, count)

    def sized(self, cell: int) -> Any:
        """The cell with blocks as equal as can be within a batch; all of a batch side by side on an accelerator."""
        planned = self.plan.cells[cell].cell
        local = self.plan.batches[cell].size // len(self.plan.devices)
        block = planned.block if self.plan.devices[0].platform == "cpu" else local
        block = next(size for size in range(min(block, local), 0, -1) if local % size == 0)
        return dataclasses.replace(planned, block=block)

    def _program(self, cell: Any, carry: Any, pairs: Any, rounds: int) -> Any:
        """The compiled program of a part; cells of one structure share it."""
        shapes = tuple((np.shape(x), str(x.dtype)) for x in jax.tree.leaves((cell, carry, pairs)))
        name = (jax.tree.structure((cell, carry)), shapes, rounds)
        if name not in self.programs:
            study, start = self.plan.study, time.perf_counter()
            record = "all" if study.trajectories else "indices"
            metrics = tuple(dict.fromkeys("regret" if metric == "strong_regret" else metric for metric in study.metrics))
            options = {"rounds": rounds, "metrics": metrics, "record": record, "mesh": self.mesh}
            self.programs[name] = advance_all.lower(cell, self.key, carry, pairs, np.int32(1), **options).compile()
            self.note(f"compiled {rounds} rounds of {len(pairs)} trials in {time.perf_counter() - start:.1f} s")
        return self.programs[name]

    def _restored(self, carry: Any, leaves: dict[str, np.ndarray]) -> Any:
        flat, structure = jax.tree.flatten(carry)
        return jax.tree.unflatten(structure, [self.place(leaves[f"c{i}"]) if x.size else x for i, x in enumerate(flat)])

    def _checkpoint(self, place: Place, carry: Any, gathered: _Gathered) -> None:
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

    def _report(self, cell: int, batch: int, last: int, last_values: dict[str, np.ndarray]) -> None:
        seconds = time.perf_counter() - self.started
        rate = (self.done - self.skipped) / self.playing
        means = {name: float(np.mean(values)) for name, values in last_values.items()}
        left = max(self.plan.work / self.plan.hosts.count - self.done, 0) / rate
        self.report(Progress(cell, batch, last, self.done, seconds, rate, left, means))


class _Gathered:
    """The curves of a batch, thinned, as they come."""

    def __init__(self, study: Study, opening: Any) -> None:
        self.study, self.opening = study, opening
        self.kept = study.keep.rounds(study.horizon)
        self.pieces: dict[str, list[np.ndarray]] = {}

    def add(self, first: int, curves: dict[str, Any], seen: dict[str, Any]) -> None:
        """Curves and what was seen in the rounds from ``first`` on."""
        for name, curve in curves.items():
            inside = self.kept[(self.kept >= first) & (self.kept < first + curve.shape[1])] - first
            self.pieces.setdefault(name, []).append(np.asarray(curve)[:, inside])
        for name, values in seen.items():
            self.pieces.setdefault(f"seen_{name}", []).append(np.asarray(values))

    def arrays(self) -> dict[str, np.ndarray]:
        """What has come so far, for a checkpoint."""
        return {f"g_{name}": np.concatenate(pieces, axis=1) for name, pieces in self.pieces.items()}

    def restore(self, leaves: dict[str, np.ndarray]) -> None:
        """Go on from a checkpoint."""
        self.pieces = {name.removeprefix("g_"): [array] for name, array in leaves.items() if name.startswith("g_")}

    def part(self, ended: dict[str, Any], count: int) -> dict[str, np.ndarray]:
        """All that is known of the first ``count`` trials of the batch."""
        return {name: np.asarray(array)[:count] for name, array in self._items(ended)}

    def _items(self, ended: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        for name, pieces in self.pieces.items():
            yield name, np.concatenate(pieces, axis=1)
        for name, array in ended.items():
            yield f"end_{name}", array
        best = self.opening.optimum
        for name in ("value", "feasible_fraction", "slater_slack"):
            yield f"optimum_{name}", getattr(best, name)
        if self.opening.curves is not None:
            for name in self.pieces:
                if hasattr(self.opening.curves, name):
                    yield f"before_{name}", getattr(self.opening.curves, name)
