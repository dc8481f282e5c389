"""Batches of a study as tasks of workers: what a worker does, and how a run waits for it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.executors import AnyExecutor, TaskFailed, spread
from jaxbandit.study.plan import Batch, Options, Plan, make_plan
from jaxbandit.study.play import Played, Player
from jaxbandit.study.specify.study import Study, in_its_arithmetic


class BatchFailed(RuntimeError):
    """A batch failed in every attempt; the message names run, cell and batch. What is finished is kept, and ``resume`` goes on."""


@dataclasses.dataclass(frozen=True)
class Work:
    """Work of a worker: cut a study into batches by its memory and its kind of device, or play a batch.

    Attributes:
      study: study that is run.
      memory, segment: as for :func:`~jaxbandit.study.make_plan`.
      layout: batches that all workers have, as :attr:`~jaxbandit.study.Plan.layout`.
      regions: Zarr directory of the results, whose regions are filled.
    """

    study: Study
    memory: str | int | None
    segment: int | None
    layout: list[list[int]] | None = None
    regions: Path | None = None

    def __call__(self, place: tuple[int, int] | None) -> Any:
        """Return the layout that this worker would choose, or the results of the batch with these numbers of its cell and of itself."""
        return self.plan.layout if place is None else _played(self.study, self, place)

    @functools.cached_property
    def plan(self) -> Plan:
        """Plan of the study in this worker."""
        plan = make_plan(self.study, memory=self.memory, segment=self.segment, streamed=True, by_workers=True)
        return plan if self.layout is None else plan.with_layout(self.layout)

    @functools.cached_property
    def player(self) -> Player:
        """Player of all batches."""
        return Player(self.plan)

    @functools.cached_property
    def batches(self) -> dict[tuple[int, int], Batch]:
        """Batches by the numbers of their cell and of themselves."""
        return {batch.place: batch for batch in self.plan.batches}


@in_its_arithmetic
def _played(study: Study, work: Work, place: tuple[int, int]) -> Played:
    """Play a batch, in the arithmetic of the study."""
    batch = work.batches[place]
    work.player.left = lambda: [batch]
    return work.player.result(batch, work.regions)


def cut_by_worker(plan: Plan, executor: AnyExecutor, options: Options) -> tuple[Plan, Mapping[str, str]]:
    """Return the plan with the batches that a worker would have, and what its results depend on beside the program."""
    try:
        [(_, answer)] = spread(executor, Work(plan.study, options.memory, options.segment), [None], note=options.note)
    except TaskFailed as error:
        raise InvalidArgument(f"executor: a worker cannot plan the study: {error.reason}") from error
    return plan.with_layout(answer.result), answer.surroundings
