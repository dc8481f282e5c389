"""Playing the batches of a study in this process: programs, parts, checkpoints, and what is kept of each batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

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
from jaxbandit.results.measured import Measuring, measure_all
from jaxbandit.results.schema import MIXED, Arrays
from jaxbandit.study.files import Files, Place
from jaxbandit.study.plan import Batch, Plan, PlannedCell
from jaxbandit.study.programs import Lower, compiled
from jaxbandit.study.progress import SoFar, moments
from jaxbandit.study.study import Study, in_its_arithmetic, sampled

CHECKPOINT_SHARE = 0.04  # of the time that checkpoints may take
PROBED_ROUNDS = 100
PROBE_REPEATS = 3

Played: TypeAlias = tuple[Arrays, np.ndarray]
"""What a run keeps of a batch: its arrays and moments; and the seconds that it took, with and without compilation ``[2]``, NaN if an
earlier process played some of it."""
T = TypeVar("T")


class Player:
    """Plays batches of a plan, on its devices.

    It tells ``so_far`` of every part, and leaves checkpoints in ``files`` that take no more than a ``share`` of the time; programs of the
    batches that are ``left`` are compiled together.
    """

    def __init__(
        self,
        plan: Plan,
        so_far: SoFar | None = None,
        files: Files | None = None,
        *,
        note: Callable[[str], None] = lambda line: None,
        share: float = CHECKPOINT_SHARE,
        left: Callable[[], Iterable[Batch]] = lambda: (),
    ) -> None:
        self.plan, self.files, self.note, self.share, self.left = plan, files, note, share, left
        self.so_far = SoFar(plan, lambda progress: None, None) if so_far is None else so_far
        self.mesh, self.key = mesh_of(list(plan.devices)), jax.random.key(plan.study.seed)
        self.recording = {"record": "values" if plan.study.trajectories else "indices", "mesh": self.mesh}
        self.playing = 0.0  # seconds, without compilation
        self.saved, self.saving = time.perf_counter(), 0.0  # when the last checkpoint was written, and the seconds that it took
        self.resumed = None if files is None else files.load()
        self.mixed: dict[Hashable, float] = {}  # rewards of best mixed policies by instance

    def result(self, batch: Batch) -> Played:
        """Return the results of a batch."""
        begun, playing = time.perf_counter(), self.playing
        arrays = self.play(batch)
        seconds = np.asarray([time.perf_counter() - begun, self.playing - playing])
        return {**arrays, **moments(self.plan, batch, arrays)}, seconds if self._checkpoint_of(batch) is None else np.full(2, np.nan)

    def play(self, batch: Batch) -> dict[str, np.ndarray]:
        """Return the arrays of a batch."""
        arrays = self._at_once(batch) if batch.cell.in_one_part else self._in_parts(batch)
        if "strong_regret" in self.plan.study.metrics:
            arrays[f"fact_{MIXED}"] = np.asarray([self._best_mixed(run, trial) for run, trial in batch.rows.tolist()])
        return arrays

    def _at_once(self, batch: Batch) -> dict[str, np.ndarray]:
        """Play all rounds by one program, called as often as it takes."""
        cell, horizon, tally = batch.cell, batch.cell.cell.horizon, self._no_tally(batch.cell)
        play, measure = self._program(self._play_program(cell, horizon)), self._program(self._measure_program(cell, horizon, first=1))
        begun = time.perf_counter()
        calls = []
        for numbers, blocks, positions in self._calls(batch):
            pairs = self._place(numbers)
            before, seen, ended = play(cell.cell, self.key, pairs, blocks)
            _, curves, facts = measure(cell.cell.problem, self.key, pairs, tally, self._indices(1, before, seen), blocks)
            calls.append(jax.tree.map(lambda x, positions=positions: np.asarray(x)[positions], (before, seen, ended, curves, facts)))
        before, seen, ended, curves, facts = jax.tree.map(lambda *x: x[0] if len(x) == 1 else np.concatenate(x), *calls)
        arrays = _collected([self._kept(1, before, seen, curves, facts)], ended, batch.size)
        self._report(batch, horizon, horizon, begun, curves)
        return arrays

    def _calls(self, batch: Batch) -> Iterator[tuple[np.ndarray, np.int32 | None, np.ndarray]]:
        """Return what is given to the calls of a cell's programs that play the trials of a batch.

        That is the numbers of trials, some of them repeated, as many as a program has room for; how many blocks of each device are
        played; and which of the results are those of the batch, in order.
        """
        cell = batch.cell
        devices = len(cell.devices)
        for trials in np.split(batch.pairs, range(cell.room, batch.size, cell.room)):
            blocks = self._blocks(cell, len(trials))
            each = cell.room // devices if blocks is None else int(blocks) * cell.cell.block
            # A device has a row of the table, whose first ``each`` places are played.
            positions = np.arange(cell.room).reshape(devices, -1)[:, :each].ravel()[: len(trials)]
            pairs = np.repeat(trials[-1:], cell.room, axis=0)
            pairs[positions] = trials
            yield pairs, blocks, positions

    def _in_parts(self, batch: Batch) -> dict[str, np.ndarray]:
        """Play some rounds at a time, with checkpoints, from the one of an earlier process on."""
        cell, numbers = batch.cell, batch.pairs
        pairs = self._place(np.concatenate([numbers, np.repeat(numbers[-1:], cell.room - batch.size, axis=0)]))
        states, before = begin_all(cell.cell, self.key, pairs, mesh=self.mesh)
        tally, next_round = self._no_tally(cell), 1
        kept: list[dict[str, np.ndarray]] = []
        checkpoint = self._checkpoint_of(batch)
        if checkpoint is not None:
            leaves, next_round = {name: _of_rows(array, len(pairs)) for name, array in checkpoint[1].items()}, checkpoint[0].next_round
            states, tally = self._restored((states, tally), leaves)
            kept = [{name.removeprefix("g_"): array for name, array in leaves.items() if name.startswith("g_")}]
            self.so_far.skip(batch, next_round - 1)
            self.note(f"resumed at round {next_round} of {batch}")
        for first, rounds in ((first, rounds) for first, rounds in cell.parts if first >= next_round):
            given = (cell.cell, self.key, states, pairs, np.int32(first))
            advance = self._program(self._play_program(cell, rounds, partial(advance_all.lower, *given, rounds=rounds, **self.recording)))
            measure = self._program(self._measure_program(cell, rounds, first))
            begun = time.perf_counter()
            states, seen = advance(*given)
            tally, curves, facts = measure(cell.cell.problem, self.key, pairs, tally, self._indices(first, before, seen), None)
            kept.append(self._kept(first, before, seen, curves, facts))
            self._report(batch, first + rounds - 1, rounds, begun, curves)
            self._checkpoint(Place(*batch.place, first + rounds), (states, tally), kept)
        return _collected(kept, conclude_all(cell.cell, self.key, states, pairs, mesh=self.mesh), batch.size)

    def _indices(self, first: int, before: Arrays, seen: Arrays) -> jax.Array:
        """Return the points that are measured: those chosen from round ``first`` on, in round 1 after those before it that count."""
        early = [before["initial_indices"]] if first == 1 and self.plan.before else []
        return self._place(np.concatenate([np.asarray(indices) for indices in (*early, seen["indices"])], axis=1))

    def _kept(self, first: int, before: Arrays, seen: Arrays, curves: Arrays, facts: Arrays) -> dict[str, np.ndarray]:
        """Return what is kept of the rounds from ``first`` on; the curves of round 1 begin with the points before it that count."""
        study, early = self.plan.study, self.plan.before if first == 1 else 0
        rounds = study.keep.rounds(study.horizon)
        kept: dict[str, ArrayLike] = {"before_index": before["initial_indices"]} if early else {}
        for name, curve in ((name, np.asarray(values)) for name, values in curves.items()):
            if early:
                kept[f"before_{name}"] = curve[:, :early]
            inside = rounds[(rounds >= first) & (rounds < first + curve.shape[1] - early)] - first + early
            kept[name] = curve if len(inside) == curve.shape[1] else curve[:, inside]
        kept |= {f"seen_{name}": values for name, values in seen.items() if study.trajectories}
        kept |= {f"fact_{name}": values for name, values in facts.items() if first == 1}
        return {name: np.asarray(values) for name, values in kept.items()}

    def _report(self, batch: Batch, last: int, rounds: int, begun: float, curves: Arrays) -> None:
        """Report rounds up to ``last``, which were begun at a time."""
        self.playing += time.perf_counter() - begun
        owners, ends = batch.rows[:, 0], np.asarray(curves[self._metrics[0]])[: batch.size, -1]
        self.so_far.played(batch, last, rounds, self.playing, {run: np.mean(ends[owners == run]) for run in np.unique(owners).tolist()})

    # Checkpoints.

    def _checkpoint_of(self, batch: Batch) -> tuple[Place, Arrays] | None:
        """Return the checkpoint that an earlier process left, if it is of a batch."""
        resumed = self.resumed
        return resumed if resumed is not None and (resumed[0].cell, resumed[0].batch) == batch.place else None

    def _restored(self, carry: T, leaves: Arrays) -> T:
        """Return what trials carry, with the arrays of a checkpoint in place of its own."""
        flat, structure = jax.tree.flatten(carry)
        return jax.tree.unflatten(structure, [self._place(leaves[f"c{i}"]) if x.size else x for i, x in enumerate(flat)])

    def _checkpoint(self, where: Place, carry: object, kept: Sequence[Arrays]) -> None:
        """Leave a checkpoint, unless it would take more than its share of the time."""
        start = time.perf_counter()
        dear = self.share * (start - self.saved) < (1 - self.share) * self.saving
        if self.files is None or dear or where.next_round > self.plan.study.horizon:
            return
        leaves = {f"c{i}": np.asarray(x) for i, x in enumerate(jax.tree.leaves(carry))}
        self.files.save(where, leaves | {f"g_{name}": array for name, array in _joined(kept).items()})
        self.saved = time.perf_counter()
        self.saving = self.saved - start

    # Programs.

    def _program(self, named: tuple[Hashable, Lower | None]) -> Compiled:
        """Return a program, compiled with others that batches to come need."""

        def later() -> Iterator[tuple[Hashable, Lower | None]]:
            yield named
            for cell in dict.fromkeys(batch.cell for batch in self.left()):
                for first, rounds in dict.fromkeys((min(first, 2), rounds) for first, rounds in cell.parts):
                    if cell.in_one_part:
                        yield from (self._play_program(cell, rounds), self._measure_program(cell, rounds, first))

        return compiled(named[0], later, self.note)

    def _play_program(self, cell: PlannedCell, rounds: int, lower: Lower | None = None) -> tuple[Hashable, Lower]:
        """Return the name of the program that plays so many rounds, equal for cells that share it, and what lowers it."""

        def play() -> jax.stages.Lowered:
            pairs = self._place(np.zeros((cell.room, 3), np.int32))
            return play_all.lower(cell.cell, self.key, pairs, self._blocks(cell, 0), **self.recording)

        return (cell.in_one_part, cell.structure, cell.room, rounds, cell.devices, *self.recording.values()), lower or play

    def _measure_program(self, cell: PlannedCell, rounds: int, first: int) -> tuple[Hashable, Lower]:
        """Return the name of the program that measures so many rounds from ``first`` on, and what lowers it."""
        rounds += self.plan.before if first == 1 else 0
        problem, how = cell.cell.problem, self._measuring(cell)

        def lower() -> jax.stages.Lowered:
            pairs, indices = (self._place(np.zeros((cell.room, size), np.int32)) for size in (3, rounds))
            return measure_all.lower(problem, self.key, pairs, self._no_tally(cell), indices, self._blocks(cell, 0), how=how)

        return (signature(problem), cell.room, rounds, cell.counts_blocks, cell.devices, how), lower

    @property
    def _metrics(self) -> tuple[str, ...]:
        """Metrics that are measured: in place of strong regret the reward, of which it is made in the end."""
        return tuple(dict.fromkeys("reward" if metric == "strong_regret" else metric for metric in self.plan.study.metrics))

    def _measuring(self, cell: PlannedCell) -> Measuring:
        """Return how a cell is measured."""
        return Measuring(metrics=self._metrics, block=cell.cell.block, common=cell.cell.common, mesh=self.mesh)

    def _place(self, array: ArrayLike) -> jax.Array:
        """Place an array on the devices, sharded over trials, its first axis."""
        return place(array, self.plan.devices)

    def _no_tally(self, cell: PlannedCell) -> Tally:
        """Return the tally of a program's trials before anything is measured."""
        return jax.tree.map(lambda x: self._place(np.asarray(x)), start_tally(cell.cell.problem.constraints, (cell.room,)))

    def _blocks(self, cell: PlannedCell, trials: int) -> np.int32 | None:
        """Return how many blocks each device plays of so many trials, to be told to a cell's programs; ``None`` where they play all."""
        return np.int32(-(-trials // cell.step)) if cell.counts_blocks else None

    def _best_mixed(self, run: int, trial: int) -> float:
        """Return the reward of the best mixed policy in a trial: one linear programme for each instance, on the host."""
        problem = self.plan.runs[run].problem
        # Without common random numbers a random family gives every run its own instances.
        stream = 0 if self.plan.study.common_random_numbers else run + 1
        instance: Hashable = (id(problem), stream, trial) if problem.is_random else id(problem)
        if instance not in self.mixed:
            if problem.is_random:
                root = jax.random.fold_in(self.key, stream) if stream else self.key
                problem = jax.tree.map(lambda x: np.asarray(x)[0], sampled(canonicalise(problem), root, jnp.asarray([trial], jnp.int32)))
            self.mixed[instance] = best_mixed_policy(problem)[0]
        return self.mixed[instance]


def _joined(kept: Sequence[Arrays]) -> dict[str, np.ndarray]:
    """Return the arrays of parts joined along the rounds; what is known of trials comes with the first part."""
    names = dict.fromkeys(name for part in kept for name in part)
    pieces = {name: [part[name] for part in kept if name in part] for name in names}
    return {name: arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=1) for name, arrays in pieces.items()}


def _collected(kept: Sequence[Arrays], ended: Mapping[str, ArrayLike], count: int) -> dict[str, np.ndarray]:
    """Return all that is kept of the first ``count`` trials of a batch, given what was known of them when they ended."""
    arrays = _joined(kept) | {f"end_{name}": np.asarray(values) for name, values in ended.items()}
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
