"""Batches of a study as tasks of workers: what a worker does, and what comes back."""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from jaxbandit.results.regions import fill_regions
from jaxbandit.results.schema import Variable
from jaxbandit.study.plan.planning import Plan, make_plan
from jaxbandit.study.run.cell_programs import empty_batch
from jaxbandit.study.run.dataset import contents_of, pieces, run_of
from jaxbandit.study.run.runner import Runner
from jaxbandit.study.run.so_far import Summary, summarise
from jaxbandit.study.specify.study import Study, in_its_arithmetic

CELLS_KEPT = 8  # in a worker, with their programs: those played last


class BatchFailed(RuntimeError):
    """A batch failed in every attempt; the message names run, cell and batch. What is finished is kept, and ``resume`` goes on."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """Task of a worker: a batch of a cell, with the rewards ``[n]`` of the best mixed policies of its trials where variables need them."""

    cell: int
    batch: int
    mixed: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Played:
    """Results of a batch: its arrays, or what is left of them where the worker has filled regions of the results with them.

    Attributes:
      arrays: what the run's directory keeps of the batch.
      summary: moments of its curves.
      seconds: seconds it took, with and without compilation, ``[2]``.
    """

    arrays: Mapping[str, np.ndarray]
    summary: Summary
    seconds: np.ndarray


@dataclasses.dataclass(frozen=True)
class PlanBatches:
    """Work of a worker: plan a study's batches by its memory and its kind of device."""

    study: Study
    memory: str | int | None
    segment: int | None

    def __call__(self, _: None) -> list[list[int]]:
        """Return the numbers of :attr:`~jaxbandit.study.Plan.batches`."""
        return _planned(self.study, self.memory, self.segment).batches


@dataclasses.dataclass(frozen=True)
class PlayBatches:
    """Work of a worker: play batches of a study, and fill their regions of the results if these are a Zarr directory."""

    study: Study
    memory: str | int | None
    segment: int | None
    batches: list[list[int]]
    results: Path | None

    def __call__(self, batch: Batch) -> Played:
        """Return the results of a batch."""
        return _played(self.study, self, batch)

    @functools.cached_property
    def plan(self) -> Plan:
        """Plan of the study with the batches that all workers have."""
        return _planned(self.study, self.memory, self.segment).with_batches(self.batches)

    @functools.cached_property
    def runners(self) -> OrderedDict[int, Runner]:
        """Runners of single cells, those used last at the end."""
        return OrderedDict()

    @functools.cached_property
    def empty(self) -> list[dict[str, np.ndarray]]:
        """Arrays of each cell, without trials."""
        return [empty_batch(self.plan, cell) for cell in range(len(self.plan.cells))]

    @functools.cached_property
    def run(self) -> dict[str, str]:
        """Attributes of the results that tell runs apart."""
        return run_of(self.plan)

    def variables(self, mixed: np.ndarray | None) -> dict[str, Variable]:
        """Return the variables of the results, for a batch with these rewards of the best mixed policies."""
        return contents_of(self.plan).variables(self.empty, None if mixed is None else lambda rows: mixed[: len(rows)])


def _planned(study: Study, memory: str | int | None, segment: int | None) -> Plan:
    return make_plan(study, memory=memory, segment=segment, streamed=True, by_workers=True)


@in_its_arithmetic
def _played(study: Study, work: PlayBatches, task: Batch) -> Played:
    """Play a batch, in the arithmetic of the study."""
    runner = work.runners.pop(task.cell, None) or Runner(work.plan.only_cell(task.cell))
    work.runners[task.cell] = runner
    while len(work.runners) > CELLS_KEPT:
        work.runners.popitem(last=False)
    arrays = runner.batch(0, task.batch)
    seconds = runner.clock.pop((0, task.batch))
    summary = summarise(work.plan, task.cell, task.batch, arrays)
    if work.results is not None:
        held = pieces(work.plan, work.variables(task.mixed), task.cell, task.batch, arrays)
        arrays = fill_regions(work.results, held, work.run)
    return Played(arrays, summary, seconds)
