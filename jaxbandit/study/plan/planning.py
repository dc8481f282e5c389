"""The plan of a study: its cells, the batches that each cell runs in, and where they run."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.arguments import takes
from jaxbandit.core.fields import boolean, of_class, optional, text, whole
from jaxbandit.core.memory import in_units
from jaxbandit.core.pytree import signature
from jaxbandit.core.types import Device
from jaxbandit.engine.footprint import carried_bytes
from jaxbandit.engine.inputs import DEVICES
from jaxbandit.engine.programs import Cell, laid_out_for
from jaxbandit.study.plan.batches import batch_numbers, kept_bytes
from jaxbandit.study.plan.cells import group_runs
from jaxbandit.study.plan.memory import memory_budget
from jaxbandit.study.specify.run import Run, counted_before
from jaxbandit.study.specify.study import Study, in_its_arithmetic

MAX_PARTS = 1_000_000  # of a batch


@dataclasses.dataclass(frozen=True, repr=False)
class Plan:
    """All that is decided before a study runs.

    A cell holds runs that share one program. It is played in batches of trials of its runs, the last one filled up with repetitions, and
    a batch in parts of some rounds. On CPUs a batch in one part is played by calls of a program that has room for some blocks and plays
    as many of them as it is told. All tuples of numbers have one entry for each cell.

    Attributes:
      study: study that is planned.
      runs: its runs, with all labels filled in.
      cells: cells in the order of their first runs.
      members: numbers of each cell's runs in the study.
      batch_sizes: trials in a batch.
      batch_counts: number of batches.
      part_rounds: rounds in a part; the last part of a batch may be shorter.
      program_blocks: blocks of each device that a program which plays whole runs has room for.
      trial_bytes: memory of one trial.
      shared_bytes: memory that the trials of a batch share.
      result_bytes: size of all results, uncompressed.
      devices: devices that batches are spread over.
      blocks: trials in a block; results round alike where blocks have one size, whatever the number of devices.
    """

    study: Study
    runs: tuple[Run, ...]
    cells: tuple[Cell, ...]
    members: tuple[tuple[int, ...], ...]
    batch_sizes: tuple[int, ...]
    batch_counts: tuple[int, ...]
    part_rounds: tuple[int, ...]
    program_blocks: tuple[int, ...]
    trial_bytes: tuple[int, ...]
    shared_bytes: tuple[int, ...]
    result_bytes: int
    devices: tuple[Device, ...]
    blocks: tuple[int, ...]

    def __repr__(self) -> str:
        cells, batches = len(self.cells), sum(self.batch_counts)
        size, devices = in_units(self.result_bytes), len(self.devices)
        return f"Plan({self.study!r}; cells: {cells}, batches: {batches}, results: {size}, devices: {devices})"

    @property
    def work(self) -> int:
        """Trial-rounds in all."""
        return len(self.runs) * self.study.trials * self.study.horizon

    @property
    def batches(self) -> list[list[int]]:
        """Size and number of each cell's batches, rounds of a part, and size of a block: all that a run must keep to give the same bits."""
        return [list(numbers) for numbers in zip(self.batch_sizes, self.batch_counts, self.part_rounds, self.blocks, strict=True)]

    def with_batches(self, batches: Sequence[Sequence[int]]) -> Plan:
        """Return the plan with other batches, in the form of :attr:`batches`."""
        sizes, counts, rounds, blocks = (tuple(numbers) for numbers in zip(*batches, strict=True))
        return dataclasses.replace(self, batch_sizes=sizes, batch_counts=counts, part_rounds=rounds, blocks=blocks)

    def batch_bytes(self, cell: int) -> int:
        """Return the memory of one batch of a cell."""
        return max(self.batch_sizes[cell], self.program_size(cell)) * self.trial_bytes[cell] + self.shared_bytes[cell]

    def disk_bytes(self, streamed: bool) -> int:
        """Return what a run may take on the disk of its directory: finished batches, checkpoints, and the results if they are streamed."""
        in_parts = [self.batch_bytes(cell) for cell, rounds in enumerate(self.part_rounds) if rounds < self.study.horizon]
        return (1 + streamed) * self.result_bytes + 2 * max(in_parts, default=0)  # an old checkpoint and a new one

    def of_one_trial(self) -> Plan:
        """Return the plan of the same runs with one trial, whose results have the same names, labels and attributes."""
        return dataclasses.replace(self, study=dataclasses.replace(self.study, trials=1))

    def parts(self, cell: int) -> list[tuple[int, int]]:
        """Return the first round and the number of rounds of every part of a cell's batches."""
        horizon, rounds = self.study.horizon, self.part_rounds[cell]
        return [(first, min(rounds, horizon - first + 1)) for first in range(1, horizon + 1, rounds)]

    @property
    def places(self) -> list[tuple[int, int]]:
        """All batches, as pairs of a cell and a batch of it."""
        return [(cell, batch) for cell, count in enumerate(self.batch_counts) for batch in range(count)]

    def counts_blocks(self, cell: int) -> bool:
        """Say whether the programs of a cell are told how many blocks to play: on CPUs, where blocks run one after the other."""
        return self.devices[0].platform == "cpu" and self.part_rounds[cell] == self.study.horizon

    def program_size(self, cell: int) -> int:
        """Return the number of trials that one call of a cell's programs has room for.

        Where programs are told how many blocks to play, it depends on the size of a block only, unless all trials fit in one: another
        number of trials needs no new program as long as its equal blocks have the same size.
        """
        block = self.blocks[cell]
        step = block * len(self.devices)
        if not self.counts_blocks(cell):
            return -(-self.batch_sizes[cell] // step) * step
        small = self.batch_sizes[cell] == step and block < self.cells[cell].block
        return step * (1 if small else self.program_blocks[cell])

    def trials_of(self, cell: int, batch: int) -> np.ndarray:
        """Return the runs and trials that a batch plays, ``[n, 2]``: each run's number in the study, and the trial's."""
        members, trials, size = self.members[cell], self.study.trials, self.batch_sizes[cell]
        variant, trial = np.divmod(np.arange(batch * size, min((batch + 1) * size, len(members) * trials)), trials)
        return np.stack([np.asarray(members)[variant], trial], axis=1)

    def numbers_of(self, cell: int, batch: int) -> np.ndarray:
        """Return ``[n, 3]``: the run's number within the cell, the trial, and the run's number within the study counted from 1."""
        run, trial = self.trials_of(cell, batch).T
        return np.stack([np.searchsorted(np.asarray(self.members[cell]), run), trial, run + 1], axis=1).astype(np.int32)

    def blocked_cell(self, cell: int) -> Cell:
        """Return a cell in blocks as the plan has them."""
        return dataclasses.replace(self.cells[cell], block=self.blocks[cell])

    def title(self, cell: int) -> str:
        """Return the name of a cell in messages: ``RPOL and 3 like it``."""
        first, *others = self.members[cell]
        return self.runs[first].label + (f" and {len(others)} like it" if others else "")

    def only_cell(self, cell: int) -> Plan:
        """Return the plan of one cell of the study alone."""
        return dataclasses.replace(
            self.with_batches([self.batches[cell]]),
            cells=(self.cells[cell],),
            members=(self.members[cell],),
            program_blocks=(self.program_blocks[cell],),
            trial_bytes=(self.trial_bytes[cell],),
            shared_bytes=(self.shared_bytes[cell],),
        )


@takes(
    study=of_class(Study, "a Study"),
    memory=optional(text | whole(1, 2**63)),
    segment=optional(whole(1)),
    devices=optional(DEVICES),
    streamed=boolean,
    by_workers=boolean,
)
@in_its_arithmetic
def make_plan(
    study: Study,
    *,
    memory: str | int | None = None,
    segment: int | None = None,
    devices: Sequence[Device] | None = None,
    streamed: bool = False,
    by_workers: bool = False,
) -> Plan:
    """Plan the cells and batches of a study.

    Args:
      study: study to run.
      memory: never exceeded, such as ``"4GiB"``; default half of the devices' memory, of which CPUs take no more than they need. On
        CPUs it holds the results, too, unless they are streamed. It does not bound what the compiler takes: on CPUs we measured
        100 MiB for the first program and 10 to 25 MiB for each further one, beside 220 MiB of the process itself.
      segment: rounds in a part; default all of a run of some seconds, otherwise as few as take some seconds.
      devices: devices to spread trials over; default all local ones.
      streamed: whether results go to a file batch by batch, so that they need not fit memory all at once.
      by_workers: whether batches are tasks of workers, of one device each; they are shorter then, and many.

    Raises:
      InvalidArgument: on anything in the study that cannot run, before anything compiles.
    """
    if segment is not None:
        checks.integer("segment", segment, least=1)
    used = tuple(jax.local_devices()[: 1 if by_workers else None] if devices is None else devices)
    runs = study.named_runs()
    if segment is not None and study.horizon > segment * MAX_PARTS:
        least = -(-study.horizon // MAX_PARTS)
        raise checks.InvalidArgument(f"segment: {segment} of {study.horizon:,} rounds would be too many parts; take {least} or more")
    counted_before(runs)
    groups = [(laid_out_for(used[0].platform, cell), members) for cell, members in group_runs(study, runs)]
    results = sum(len(members) * study.trials * kept_bytes(study, cell) for cell, members in groups)
    budget = memory_budget(memory, used[0].platform)
    if not streamed:
        budget = budget.beside(results, used[0].platform)
    kinds = {signature(cell): (cell, runs[members[0]].label) for cell, members in groups}
    carried = {kind: _carried(*own) for kind, own in kinds.items()}  # once of each kind: it takes a while
    numbers = [
        batch_numbers(study, cell, len(members), carried[signature(cell)], segment, budget, used, by_workers) for cell, members in groups
    ]
    cells, members = zip(*groups, strict=True)
    sizes, counts, rounds, blocks, trial_bytes, shared_bytes = zip(*numbers, strict=True)
    return Plan(
        study=study,
        runs=runs,
        cells=cells,
        members=members,
        batch_sizes=sizes,
        batch_counts=counts,
        part_rounds=rounds,
        program_blocks=blocks,
        trial_bytes=trial_bytes,
        shared_bytes=shared_bytes,
        result_bytes=results,
        devices=used,
        blocks=tuple(block_of(cell, size, used) for cell, size in zip(cells, sizes, strict=True)),
    )


def block_of(cell: Cell, size: int, devices: Sequence[Device]) -> int:
    """Return the size of the blocks of batches: as equal as can be; all of a batch side by side on an accelerator."""
    local = size // len(devices)
    most = min(cell.block if devices[0].platform == "cpu" else local, local)
    return next(size for size in range(most, 0, -1) if local % size == 0)


def _carried(cell: Cell, label: str) -> int:
    """Return the bytes that a trial of a cell carries; raise ``InvalidArgument``, with the label of a run, where it cannot begin."""
    try:
        return carried_bytes(cell)
    except checks.InvalidArgument as error:
        raise checks.InvalidArgument(f"run {label!r}: {error}") from error
