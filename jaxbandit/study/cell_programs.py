"""The programs that play and measure the cells of a study, and how batches lie on the devices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jaxbandit.core.pytree import signature
from jaxbandit.metrics import tally
from jaxbandit.simulate.pairs import MESH_AXIS, mesh_of
from jaxbandit.simulate.segments import advance_all, measure_all, play_all
from jaxbandit.study.lines import counted_before
from jaxbandit.study.planning import Plan
from jaxbandit.study.programs import Programs


class CellPrograms:
    """Makes programs when they are asked for, or beside others before; ``left`` gives the cells that are still to be run."""

    def __init__(self, plan: Plan, left: Callable[[], Iterable[int]], note: Callable[[str], None]) -> None:
        self.plan, self.left = plan, left
        self.mesh = mesh_of(list(plan.devices))
        self.key = jax.random.key(plan.study.seed)
        self.programs = Programs(note, _forget)
        self.before = counted_before(plan.lines)
        self.sized = functools.cache(plan.sized)
        self.structure = functools.cache(lambda cell: signature(plan.sized(cell)))

    def place(self, array: np.ndarray) -> Any:
        """On the devices, spread over them."""
        if self.mesh is None:
            return jax.device_put(array, self.plan.devices[0])
        return jax.device_put(array, NamedSharding(self.mesh, PartitionSpec(MESH_AXIS)))

    def no_tally(self, cell: int) -> Any:
        """Of a batch, before anything is measured."""
        zero = tally(self.plan.cells[cell].cell.problem.constraints, (self.plan.batches[cell].size,))
        return jax.tree.map(lambda x: self.place(np.asarray(x)), zero)

    def whole(self, cell: int) -> bool:
        """Whether a cell runs in one part."""
        return self.plan.batches[cell].rounds == self.plan.study.horizon

    def play(self, cell: int) -> Any:
        """The program that plays all rounds."""
        return self.programs.get(self._play_name(cell, self.plan.study.horizon), self._later)

    def advance(self, cell: int, rounds: int, given: Sequence[Any]) -> Any:
        """The program that plays so many rounds, of ``given`` arguments."""
        name, lower = self._play_name(cell, rounds), partial(advance_all.lower, *given, rounds=rounds, **self._recording())
        return self.programs.get(name, partial(self._later, [(name, lower)]))

    def measure(self, cell: int, first: int, rounds: int) -> Any:
        """The program that measures so many rounds from ``first`` on, from round 1 on with the points before."""
        rounds += self.before if first == 1 else 0
        name = self._measure_name(cell, rounds)
        return self.programs.get(name, partial(self._later, [(name, partial(self._lowered_measure, cell, rounds))]))

    def _recording(self) -> dict[str, Any]:
        """What all programs that play share."""
        return {"record": "all" if self.plan.study.trajectories else "indices", "mesh": self.mesh}

    def _play_name(self, cell: int, rounds: int) -> Any:
        """Equal for cells that share the program that plays so many rounds."""
        return "play", self.structure(cell), self.plan.batches[cell].size, rounds

    def _lowered_play(self, cell: int) -> Any:
        """The program that plays whole runs of a cell."""
        return play_all.lower(self.sized(cell), self.key, self.place(self._no_pairs(cell)), **self._recording())

    def _measure_name(self, cell: int, rounds: int) -> Any:
        """Equal for cells that share the program that measures so many rounds."""
        planned = self.sized(cell)
        return "measure", signature(planned.problem), planned.block, self.plan.batches[cell].size, rounds

    def _lowered_measure(self, cell: int, rounds: int) -> Any:
        planned, study, pairs = self.sized(cell), self.plan.study, self._no_pairs(cell)
        indices = self.place(np.zeros((len(pairs), rounds), np.int32))
        return measure_all.lower(
            planned.problem,
            self.key,
            self.place(pairs),
            self.no_tally(cell),
            indices,
            common=planned.common,
            metrics=tuple(dict.fromkeys("reward" if metric == "strong_regret" else metric for metric in study.metrics)),
            block=planned.block,
            mesh=self.mesh,
        )

    def _no_pairs(self, cell: int) -> np.ndarray:
        """As many as a batch has, for programs to be made for."""
        return np.zeros((self.plan.batches[cell].size, 3), np.int32)

    def _later(self, now: Sequence[Any] = ()) -> list[tuple[Any, Any]]:
        """Names of the programs that are needed ``now`` and later, and what lowers those of whole runs."""
        found, horizon = list(now), self.plan.study.horizon
        for cell in self.left():
            for first, rounds in dict.fromkeys((first == 1, rounds) for first, rounds in self.plan.batches[cell].parts(horizon)):
                counted, whole = rounds + (self.before if first else 0), self.whole(cell)
                found.append((self._play_name(cell, rounds), partial(self._lowered_play, cell) if whole else None))
                found.append((self._measure_name(cell, counted), partial(self._lowered_measure, cell, counted) if whole else None))
        return found


def _forget() -> None:
    """Let JAX's own caches drop what is not held here."""
    for function in (play_all, advance_all, measure_all):
        function.clear_cache()  # type: ignore[attr-defined]  # the stub lacks it
