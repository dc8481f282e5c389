"""Playing the batches of a study in this process: programs, parts, checkpoints, and what is kept of each batch."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Compiled
from numpy.typing import ArrayLike

from jaxbandit.core.blocks import mesh_of, place
from jaxbandit.core.pytree import canonicalise, signature
from jaxbandit.engine.programs import advance_all, begin_all, conclude_all, play_all
from jaxbandit.metrics import Tally, start_tally
from jaxbandit.problems import best_mixed_policy
from jaxbandit.results.dataset import pieces_of
from jaxbandit.results.measured import Measuring, measure_all
from jaxbandit.results.regions import fill_regions
from jaxbandit.results.schema import MIXED, Arrays, Variable
from jaxbandit.study.dataset import contents_of, run_of
from jaxbandit.study.files import Files, Place
from jaxbandit.study.plan import Batch, Options, Plan, PlannedCell, counted_before
from jaxbandit.study.programs import Lower, Programs
from jaxbandit.study.so_far import Meter, Summary, summarise
from jaxbandit.study.specify.study import Study, in_its_arithmetic, sampled

PROBED_ROUNDS = 100
PROBE_REPEATS = 3

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Played:
    """Results of a batch.

    Attributes:
      arrays: what a run keeps of the batch: its arrays, or what is left of them where regions of the results have the rest.
      summary: moments of its curves.
      seconds: seconds it took, with and without compilation ``[2]``; NaN if an earlier process played some of it.
    """

    arrays: Arrays
    summary: Summary
    seconds: np.ndarray


class Player:
    """Plays batches of a plan, on its devices.

    Attributes:
      seconds: seconds of the batch played last ``[2]``, with and without compilation; NaN if an earlier process played some of it.
    """

    def __init__(
        self,
        plan: Plan,
        options: Options = Options(),
        meter: Meter | None = None,
        files: Files | None = None,
        left: Callable[[], Iterable[Batch]] = lambda: (),
    ) -> None:
        self.plan, self.options, self.files, self.left = plan, options, files, left
        self.meter = Meter(plan, options.report) if meter is None else meter
        self.mesh = mesh_of(list(plan.devices))
        self.key = jax.random.key(plan.study.seed)
        self.before = counted_before(plan.runs)
        self.programs = Programs(options.note, options.compiling)
        self.playing = 0.0  # seconds, without compilation
        self.seconds = np.full(2, np.nan)
        self.saved, self.saving = time.perf_counter(), 0.0  # when the last checkpoint was written, and the seconds that it took
        self.resumed = None if files is None else files.load()
        self.mixed: dict[Hashable, dict[int, float]] = {}  # rewards of best mixed policies by trial, of each stream of instances

    @functools.cached_property
    def variables(self) -> dict[str, Variable]:
        """Variables of the results."""
        return contents_of(self.plan).variables([self.empty(cell) for cell in self.plan.cells])

    @functools.cached_property
    def run(self) -> dict[str, str]:
        """Attributes of the results that tell runs apart."""
        return run_of(self.plan)

    def result(self, batch: Batch, regions: Path | None = None) -> Played:
        """Return the results of a batch, whose regions are filled in a Zarr directory if there is one."""
        arrays: Arrays = self.play(batch)
        summary = summarise(self.plan, batch, arrays)
        if regions is not None:
            arrays = fill_regions(regions, pieces_of(self.variables, batch.cell.number, arrays, batch.rows), self.run)
        return Played(arrays, summary, self.seconds)

    def play(self, batch: Batch) -> dict[str, np.ndarray]:
        """Return the arrays of a batch."""
        before = self._clocks()
        resumed = self.resumed is not None and (self.resumed[0].cell, self.resumed[0].batch) == batch.place
        arrays = self._at_once(batch) if batch.cell.in_one_part else self._in_parts(batch, self.resumed if resumed else None)
        if "strong_regret" in self.plan.study.metrics:
            arrays[f"fact_{MIXED}"] = self._best_mixed(batch)
        self.seconds = np.full(2, np.nan) if resumed else self._clocks() - before
        return arrays

    def empty(self, cell: PlannedCell) -> dict[str, np.ndarray]:
        """Return the arrays of a batch without any trial: their names, types and shapes, by tracing alone."""
        pairs = np.zeros((cell.step, 3), np.int32)
        tally = start_tally(cell.cell.problem.constraints, (cell.step,))
        played = jax.eval_shape(partial(play_all, **self._recording()), cell.cell, self.key, pairs, None)
        indices = jax.ShapeDtypeStruct((cell.step, self.before + cell.cell.horizon), np.int32)
        measured = jax.eval_shape(partial(measure_all, how=self._measuring(cell)), cell.cell.problem, self.key, pairs, tally, indices, None)
        (before, seen, ended), (_, curves, facts) = jax.tree.map(lambda x: np.empty((0, *x.shape[1:]), x.dtype), (played, measured))
        arrays = collected(self.plan.study, [self._kept(1, before, seen, curves, facts)], ended, 0)
        return arrays | ({f"fact_{MIXED}": np.empty(0)} if "strong_regret" in self.plan.study.metrics else {})

    def _clocks(self) -> np.ndarray:
        """Return the seconds so far, with the compilation of what has been played; and without any."""
        return np.asarray([time.perf_counter() - self.programs.waited + self.programs.charged, self.playing])

    def _at_once(self, batch: Batch) -> dict[str, np.ndarray]:
        """Play all rounds by one program, called as often as it takes."""
        cell, horizon = batch.cell, batch.cell.cell.horizon
        play, measure = self._program(self._play_program(cell, horizon)), self._program(self._measure_program(cell, horizon, first=1))
        no_tally = self._no_tally(cell)
        begun = time.perf_counter()
        played = []
        for numbers, blocks, positions in self._calls(batch):
            pairs = self._place(numbers)
            before, seen, ended = play(cell.cell, self.key, pairs, blocks)
            counted = [np.asarray(before["initial_indices"])] if self.before else []
            indices = self._place(np.concatenate([*counted, np.asarray(seen["indices"])], axis=1))
            _, curves, facts = measure(cell.cell.problem, self.key, pairs, no_tally, indices, blocks)
            found = (before, seen, ended, curves, facts)
            played.append(jax.tree.map(lambda x, positions=positions: np.asarray(x)[positions], found))
        before, seen, ended, curves, facts = jax.tree.map(lambda *x: x[0] if len(x) == 1 else np.concatenate(x), *played)
        arrays = collected(self.plan.study, [self._kept(1, before, seen, curves, facts)], ended, batch.size)
        self._report(batch, horizon, horizon, begun, curves)
        return arrays

    def _calls(self, batch: Batch) -> Iterator[tuple[np.ndarray, np.int32 | None, np.ndarray]]:
        """Return what is given to the calls of a cell's programs that play the trials of a batch.

        That is the numbers of trials, some of them repeated, as many as a program has room for; how many blocks of each device are
        played; and which of the results are those of the batch, in order.
        """
        cell = batch.cell
        devices = len(cell.devices)
        for own in np.split(batch.pairs, range(cell.room, batch.size, cell.room)):
            blocks = self._blocks(cell, len(own))
            each = cell.room // devices if blocks is None else int(blocks) * cell.cell.block
            # A device has a row of the table, whose first ``each`` places are played.
            positions = np.arange(cell.room).reshape(devices, -1)[:, :each].ravel()[: len(own)]
            pairs = np.repeat(own[-1:], cell.room, axis=0)
            pairs[positions] = own
            yield pairs, blocks, positions

    def _in_parts(self, batch: Batch, resumed: tuple[Place, Arrays] | None) -> dict[str, np.ndarray]:
        """Play some rounds at a time, with checkpoints, from the one ``resumed`` on."""
        cell, count = batch.cell, batch.size
        numbers = batch.pairs
        pairs = self._place(np.concatenate([numbers, np.repeat(numbers[-1:], cell.room - count, axis=0)]))
        progress, before = begin_all(cell.cell, self.key, pairs, mesh=self.mesh)
        tally, next_round = self._no_tally(cell), 1
        kept: list[dict[str, np.ndarray]] = []
        if resumed is not None:
            where, leaves = resumed[0], {name: _of_rows(array, len(pairs)) for name, array in resumed[1].items()}
            (progress, tally), next_round = self._restored((progress, tally), leaves), where.next_round
            kept = [{name.removeprefix("g_"): array for name, array in leaves.items() if name.startswith("g_")}]
            self.meter.skip(count * (next_round - 1))
            self.options.note(f"resumed at round {next_round} of {batch}")
        for first, rounds in cell.parts:
            if first < next_round:
                continue
            given = (cell.cell, self.key, progress, pairs, np.int32(first))
            advance = self._program(self._play_program(cell, rounds, given))
            measure = self._program(self._measure_program(cell, rounds, first))
            begun = time.perf_counter()
            progress, seen = advance(*given)
            indices = np.asarray(seen["indices"])
            if first == 1 and self.before:
                indices = np.concatenate([np.asarray(before["initial_indices"]), indices], axis=1)
            tally, curves, facts = measure(cell.cell.problem, self.key, pairs, tally, self._place(indices), None)
            kept.append(self._kept(first, before, seen, curves, facts))
            self._report(batch, first + rounds - 1, rounds, begun, curves)
            self._checkpoint(Place(*batch.place, first + rounds), (progress, tally), kept)
        ended = conclude_all(cell.cell, self.key, progress, pairs, mesh=self.mesh)
        return collected(self.plan.study, kept, ended, count)

    def _kept(
        self, first: int, before: Mapping[str, Any], seen: Mapping[str, Any], curves: Mapping[str, Any], facts: Mapping[str, Any]
    ) -> dict[str, np.ndarray]:
        """Return what is kept of the rounds from ``first`` on; the curves of round 1 begin with the points before it that count."""
        study, early = self.plan.study, self.before if first == 1 else 0
        rounds = study.keep.rounds(study.horizon)
        kept: dict[str, Any] = {"before_index": before["initial_indices"]} if early else {}
        for name, values in curves.items():
            curve = np.asarray(values)
            if early:
                kept[f"before_{name}"] = curve[:, :early]
            last = first + curve.shape[1] - early
            inside = rounds[(rounds >= first) & (rounds < last)] - first + early
            kept[name] = curve if len(inside) == curve.shape[1] else curve[:, inside]
        kept |= {f"seen_{name}": values for name, values in seen.items() if study.trajectories}
        kept |= {f"fact_{name}": values for name, values in facts.items() if first == 1}
        return {name: np.asarray(values) for name, values in kept.items()}

    def _restored(self, carry: T, leaves: Arrays) -> T:
        """Return what trials carry, with the arrays of a checkpoint in place of its own."""
        flat, structure = jax.tree.flatten(carry)
        return jax.tree.unflatten(structure, [self._place(leaves[f"c{i}"]) if x.size else x for i, x in enumerate(flat)])

    def _checkpoint(self, where: Place, carry: Any, kept: list[dict[str, np.ndarray]]) -> None:
        """Leave a checkpoint, unless it would take more than its share of the time."""
        start, share = time.perf_counter(), self.options.checkpoint_share
        dear = share * (start - self.saved) < (1 - share) * self.saving
        if self.files is None or dear or where.next_round > self.plan.study.horizon:
            return
        leaves = {f"c{i}": np.asarray(x) for i, x in enumerate(jax.tree.leaves(carry))}
        self.files.save(where, leaves | {f"g_{name}": array for name, array in joined(kept).items()})
        self.saved = time.perf_counter()
        self.saving = self.saved - start

    def _report(self, batch: Batch, last: int, rounds: int, begun: float, curves: Mapping[str, Any]) -> None:
        """Report rounds up to ``last``, which were begun at a time."""
        self.playing += time.perf_counter() - begun
        labels = np.asarray([self.plan.runs[number].label for number in batch.rows[:, 0]])
        ends = {name: np.asarray(curves[name])[: batch.size, -1] for name in self.plan.study.metrics if name in curves}
        means = {name: {label: float(np.mean(end[labels == label])) for label in dict.fromkeys(labels)} for name, end in ends.items()}
        self.meter.played(batch, last, rounds, self.playing, means, self.programs.seconds_left)

    # Programs.

    def _program(self, named: tuple[Hashable, Lower | None]) -> Compiled:
        """Return a program, compiled with others that batches to come need."""

        def later() -> Iterator[tuple[Hashable, Lower | None]]:
            yield named
            for cell in dict.fromkeys(batch.cell for batch in self.left()):
                for first, rounds in dict.fromkeys((min(first, 2), rounds) for first, rounds in cell.parts):
                    for name, lower in (self._play_program(cell, rounds), self._measure_program(cell, rounds, first)):
                        yield name, lower if cell.in_one_part else None

        return self.programs.get(named[0], later)

    def _play_program(self, cell: PlannedCell, rounds: int, given: Sequence[Any] | None = None) -> tuple[Hashable, Lower | None]:
        """Return the name of the program that plays so many rounds, equal for cells that share it, and what lowers it.

        Without ``given`` arguments one that plays a part cannot be lowered.
        """
        if cell.in_one_part:
            pairs = np.zeros((cell.room, 3), np.int32)
            lower: Lower | None = lambda: play_all.lower(  # noqa: E731
                cell.cell, self.key, self._place(pairs), self._blocks(cell, 0), **self._recording()
            )
        else:
            lower = None if given is None else partial(advance_all.lower, *given, rounds=rounds, **self._recording())
        return (cell.in_one_part, cell.structure, cell.room, rounds, cell.devices, *self._recording().values()), lower

    def _measure_program(self, cell: PlannedCell, rounds: int, first: int) -> tuple[Hashable, Lower]:
        """Return the name of the program that measures so many rounds from ``first`` on, and what lowers it."""
        rounds += self.before if first == 1 else 0
        problem, how = cell.cell.problem, self._measuring(cell)

        def lower() -> jax.stages.Lowered:
            pairs, indices = (self._place(np.zeros((cell.room, size), np.int32)) for size in (3, rounds))
            return measure_all.lower(problem, self.key, pairs, self._no_tally(cell), indices, self._blocks(cell, 0), how=how)

        return (signature(problem), cell.room, rounds, cell.counts_blocks, cell.devices, how), lower

    def _recording(self) -> dict[str, Any]:
        """Return the arguments that all programs that play share."""
        return {"record": "values" if self.plan.study.trajectories else "indices", "mesh": self.mesh}

    def _measuring(self, cell: PlannedCell) -> Measuring:
        """Return how a cell is measured."""
        names = tuple(dict.fromkeys("reward" if metric == "strong_regret" else metric for metric in self.plan.study.metrics))
        return Measuring(metrics=names, block=cell.cell.block, common=cell.cell.common, mesh=self.mesh)

    def _place(self, array: ArrayLike) -> jax.Array:
        """Place an array on the devices, sharded over trials, its first axis."""
        return place(array, self.plan.devices)

    def _no_tally(self, cell: PlannedCell) -> Tally:
        """Return the tally of a program's trials before anything is measured."""
        return jax.tree.map(lambda x: self._place(np.asarray(x)), start_tally(cell.cell.problem.constraints, (cell.room,)))

    def _blocks(self, cell: PlannedCell, trials: int) -> np.int32 | None:
        """Return how many blocks each device plays of so many trials, to be told to a cell's programs; ``None`` where they play all."""
        return np.int32(-(-trials // cell.step)) if cell.counts_blocks else None

    # Strong regret.

    def _best_mixed(self, batch: Batch) -> np.ndarray:
        """Return the reward ``[n]`` of the best mixed policy in each trial: one linear programme for each instance, on the host."""
        rewards, rows = np.empty(batch.size), batch.rows
        for run in np.unique(rows[:, 0]):
            problem = self.plan.runs[run].problem
            # Without common random numbers a random family gives every run its own instances.
            stream = 0 if self.plan.study.common_random_numbers or not problem.is_random else int(run) + 1
            known, own = self.mixed.setdefault((id(problem), stream), {}), rows[:, 0] == run
            trials = rows[own, 1].tolist() if problem.is_random else [0] * np.count_nonzero(own)
            missing = [trial for trial in dict.fromkeys(trials) if trial not in known]
            if problem.is_random and missing:
                root = jax.random.fold_in(self.key, stream) if stream else self.key
                many = jax.tree.map(np.asarray, sampled(canonicalise(problem), root, jnp.asarray(missing, jnp.int32)))
            for number, trial in enumerate(missing):
                instance = jax.tree.map(lambda x, number=number: x[number], many) if problem.is_random else problem
                known[trial] = best_mixed_policy(instance)[0]
            rewards[own] = [known[trial] for trial in trials]
        return rewards


def joined(kept: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the arrays of parts joined along the rounds; what is known of trials comes with the first part."""
    names = dict.fromkeys(name for part in kept for name in part)
    pieces = {name: [part[name] for part in kept if name in part] for name in names}
    return {name: own[0] if len(own) == 1 else np.concatenate(own, axis=1) for name, own in pieces.items()}


def collected(study: Study, kept: Sequence[Mapping[str, np.ndarray]], ended: Mapping[str, Any], count: int) -> dict[str, np.ndarray]:
    """Return all that is kept of the first ``count`` trials of a batch, given what was known of them when they ended."""
    arrays = joined(kept) | {f"end_{name}": np.asarray(values) for name, values in ended.items()}
    return {name: array[:count] for name, array in arrays.items()}


def _of_rows(array: np.ndarray, rows: int) -> np.ndarray:
    """Return an array of a full batch with so many rows: on another number of devices the last trial is repeated more or less often."""
    return array if len(array) == rows else array[np.minimum(np.arange(rows), len(array) - 1)]


@in_its_arithmetic
def seconds_per_round(study: Study, cell: PlannedCell) -> float:
    """Measure the seconds of one round of one trial of a cell: a block on each device plays some rounds, and the fastest time counts."""
    key, mesh, rounds = jax.random.key(study.seed), mesh_of(list(cell.devices)), min(PROBED_ROUNDS, study.horizon)
    pairs = place(np.tile(next(cell.batches).pairs[:1], (cell.step, 1)), cell.devices)
    carry, _ = begin_all(cell.cell, key, pairs, mesh=mesh)
    best = np.inf
    for _ in range(1 + PROBE_REPEATS):  # the first compiles
        start = time.perf_counter()
        carry, *_ = jax.block_until_ready(
            advance_all(cell.cell, key, carry, pairs, np.int32(1), rounds=rounds, record="indices", mesh=mesh)
        )
        best = min(best, time.perf_counter() - start)
    return best / (rounds * cell.step)
