"""Programs that play and measure the cells of a study, and the placing of batches on the devices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.stages import Compiled, Lowered
from numpy.typing import ArrayLike

from jaxbandit.core.blocks import mesh_of, place
from jaxbandit.core.pytree import signature
from jaxbandit.engine.programs import advance_all, play_all
from jaxbandit.metrics import Tally, start_tally
from jaxbandit.results.measured import Measuring, measure_all
from jaxbandit.study.plan.planning import Plan
from jaxbandit.study.run.collector import BatchCollector
from jaxbandit.study.run.programs import KEPT, Lower, Programs
from jaxbandit.study.run.progress import Compiling
from jaxbandit.study.specify.run import counted_before


class CellPrograms:
    """Programs of a plan's cells, compiled when they are asked for or beside others before; ``left`` returns the cells still to be run."""

    def __init__(
        self,
        plan: Plan,
        left: Callable[[], Iterable[int]],
        note: Callable[[str], None] = lambda line: None,
        compiling: Callable[[Compiling], None] = lambda compiling: None,
    ) -> None:
        self.plan, self.left = plan, left
        self.mesh = mesh_of(list(plan.devices))
        self.key = jax.random.key(plan.study.seed)
        self.programs = Programs(note, _forget, compiling, KEPT)
        self.before = counted_before(plan.runs)
        self.cell = functools.cache(plan.blocked_cell)
        self.structure = functools.cache(lambda cell: signature(plan.blocked_cell(cell)))

    def place(self, array: ArrayLike) -> jax.Array:
        """Place an array on the devices, sharded over trials, its first axis."""
        return place(array, self.plan.devices)

    def no_tally(self, cell: int) -> Tally:
        """Return the tally of a program's trials before anything is measured."""
        zero = start_tally(self.plan.cells[cell].problem.constraints, (self.plan.program_size(cell),))
        return jax.tree.map(lambda x: self.place(np.asarray(x)), zero)

    def blocks(self, cell: int, trials: int) -> np.int32 | None:
        """Return how many blocks each device plays of so many trials, to be told to a cell's programs; ``None`` where they play all."""
        step = self.cell(cell).block * len(self.plan.devices)
        return np.int32(-(-trials // step)) if self.plan.counts_blocks(cell) else None

    def calls(self, cell: int, numbers: np.ndarray) -> list[tuple[np.ndarray, np.int32 | None, np.ndarray]]:
        """Return what is given to the calls of a cell's programs that play the trials ``numbers [n, 3]`` of a batch.

        That is the numbers of trials, some of them repeated, as many as a program has room for; how many blocks of each device are
        played; and which of the results are those of ``numbers``, in order.
        """
        room, devices, block = self.plan.program_size(cell), len(self.plan.devices), self.cell(cell).block
        found = []
        for own in np.split(numbers, range(room, len(numbers), room)):
            blocks = self.blocks(cell, len(own))
            each = room // devices if blocks is None else int(blocks) * block
            # A device has a row of the table, whose first ``each`` places are played.
            place = np.arange(room).reshape(devices, -1)[:, :each].ravel()[: len(own)]
            pairs = np.repeat(own[-1:], room, axis=0)
            pairs[place] = own
            found.append((pairs, blocks, place))
        return found

    def in_one_part(self, cell: int) -> bool:
        """Say whether the batches of a cell run in one part."""
        return self.plan.part_rounds[cell] == self.plan.study.horizon

    def play(self, cell: int) -> Compiled:
        """Return the program that plays all rounds."""
        return self.programs.get(self._play_name(cell, self.plan.study.horizon), self._later)

    def advance(self, cell: int, rounds: int, given: Sequence[Any]) -> Compiled:
        """Return the program that plays so many rounds, of ``given`` arguments."""
        name, lower = self._play_name(cell, rounds), partial(advance_all.lower, *given, rounds=rounds, **self._recording())
        return self.programs.get(name, partial(self._later, [(name, lower)]))

    def measure(self, cell: int, first: int, rounds: int) -> Compiled:
        """Return the program that measures so many rounds from ``first`` on, from round 1 on with the points before."""
        rounds += self.before if first == 1 else 0
        name = self._measure_name(cell, rounds)
        return self.programs.get(name, partial(self._later, [(name, partial(self._lowered_measure, cell, rounds))]))

    def _recording(self) -> dict[str, Any]:
        """Return the arguments that all programs that play share."""
        return {"record": "values" if self.plan.study.trajectories else "indices", "mesh": self.mesh}

    def _play_name(self, cell: int, rounds: int) -> Hashable:
        """Return the name of the program that plays so many rounds, equal for cells that share it."""
        whole = rounds == self.plan.study.horizon and self.in_one_part(cell)
        return (
            "play" if whole else "advance",
            self.structure(cell),
            self.plan.program_size(cell),
            rounds,
            self.plan.devices,
            *self._recording().values(),
        )

    def _lowered_play(self, cell: int) -> Lowered:
        """Lower the program that plays whole runs of a cell."""
        return play_all.lower(self.cell(cell), self.key, self.place(self._no_pairs(cell)), self.blocks(cell, 0), **self._recording())

    def _measure_name(self, cell: int, rounds: int) -> Hashable:
        """Return the name of the program that measures so many rounds, equal for cells that share it."""
        planned = self.cell(cell)
        return (
            "measure",
            signature(planned.problem),
            self.plan.program_size(cell),
            rounds,
            self.plan.counts_blocks(cell),
            self.plan.devices,
            self._measuring(cell),
        )

    def _lowered_measure(self, cell: int, rounds: int) -> Lowered:
        """Lower the program that measures so many rounds of a cell."""
        planned, pairs = self.cell(cell), self._no_pairs(cell)
        indices = self.place(np.zeros((len(pairs), rounds), np.int32))
        return measure_all.lower(
            planned.problem,
            self.key,
            self.place(pairs),
            self.no_tally(cell),
            indices,
            self.blocks(cell, 0),
            how=self._measuring(cell),
        )

    def _measuring(self, cell: int) -> Measuring:
        """Return how a cell is measured."""
        planned, metrics = self.cell(cell), self.plan.study.metrics
        names = tuple(dict.fromkeys("reward" if metric == "strong_regret" else metric for metric in metrics))
        return Measuring(metrics=names, block=planned.block, common=planned.common, mesh=self.mesh)

    def _no_pairs(self, cell: int) -> np.ndarray:
        """Return the numbers of trials as zeros, of the shape that programs are made for."""
        return np.zeros((self.plan.program_size(cell), 3), np.int32)

    def _later(self, now: Sequence[tuple[Hashable, Lower | None]] = ()) -> list[tuple[Hashable, Lower | None]]:
        """Return the names of the programs that are needed ``now`` and later, with what lowers those of whole runs."""
        found = list(now)
        for cell in self.left():
            for first, rounds in dict.fromkeys((first == 1, rounds) for first, rounds in self.plan.parts(cell)):
                counted, whole = rounds + (self.before if first else 0), self.in_one_part(cell)
                found.append((self._play_name(cell, rounds), partial(self._lowered_play, cell) if whole else None))
                found.append((self._measure_name(cell, counted), partial(self._lowered_measure, cell, counted) if whole else None))
        return found


def empty_batch(plan: Plan, cell: int) -> dict[str, np.ndarray]:
    """Return the arrays of a batch of a cell, without any trial: their names, types and shapes, by tracing alone."""
    made = CellPrograms(plan, lambda: ())
    planned, horizon = made.cell(cell), plan.study.horizon
    pairs = np.zeros((planned.block * len(plan.devices), 3), np.int32)
    tally = start_tally(planned.problem.constraints, (len(pairs),))
    shapes = jax.eval_shape(partial(play_all, **made._recording()), planned, made.key, pairs, None)
    indices = jax.ShapeDtypeStruct((len(pairs), made.before + horizon), np.int32)
    measured = jax.eval_shape(partial(measure_all, how=made._measuring(cell)), planned.problem, made.key, pairs, tally, indices, None)
    (before, seen, ended), (_, curves, facts) = jax.tree.map(lambda x: np.empty((0, *x.shape[1:]), x.dtype), (shapes, measured))
    collector = BatchCollector(plan.study, made.before)
    collector.begin(before["initial_indices"])
    collector.add(1, seen, curves, facts)
    return collector.finished(ended, 0)


def _forget() -> None:
    """Let JAX's own caches drop what is not held here."""
    for function in (play_all, advance_all, measure_all):
        function.clear_cache()  # type: ignore[attr-defined]  # the stub lacks it
