"""The plan of a study: cells of runs, and batches of trials."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence
from typing import Annotated, TypeAlias

import jax
import numpy as np

from jaxbandit.core.blocks import equal_blocks, least_block
from jaxbandit.core.checks import InvalidArgument, naming, short
from jaxbandit.core.declare import Device, checked
from jaxbandit.core.doors import either
from jaxbandit.core.fields import whole
from jaxbandit.core.pytree import float_dtype, replace
from jaxbandit.domains import Box
from jaxbandit.engine.arguments import different_devices
from jaxbandit.engine.cell import Cell, Variant
from jaxbandit.engine.simulation import COPIES_OF_CARRY, carried_bytes
from jaxbandit.host.memory import device_memory, host_memory, in_units, tree_bytes
from jaxbandit.study.files import Names
from jaxbandit.study.runs import Run
from jaxbandit.study.study import Study, cell_of, common_needs, in_its_arithmetic


@dataclasses.dataclass(frozen=True)
class Machine:
    """The speed of a device, within an order of magnitude."""

    bytes_per_second: float
    # A round takes this time at least: for each trial, or for all trials together if they run side by side.
    round_seconds: float
    side_by_side: bool

    @classmethod
    def of(cls, devices: Sequence[Device]) -> Machine:
        """Return the estimate for devices."""
        if devices[0].platform == "cpu":
            # We estimated these numbers on 2026-11-21 for one core of a server of two cores.
            return cls(bytes_per_second=1e10, round_seconds=3e-6, side_by_side=False)
        # We estimated these numbers on 2026-11-22, before the first run on a GPU (an H100) on 2026-11-26.
        return cls(bytes_per_second=1e12, round_seconds=6e-5, side_by_side=True)

    def trial_seconds(self, carried: int, horizon: int, devices: Sequence[Device]) -> float:
        """Return the seconds that a trial adds to a batch."""
        seconds = carried / self.bytes_per_second
        return horizon * (seconds if self.side_by_side else max(seconds, self.round_seconds)) / len(devices)


class Limits:
    """Sizes of batches and programs, for two cores in November 2026."""

    memory_share, batch_seconds = 0.5, 10.0
    # Only CPUs have the limit in bytes. A worker's task lasts a second at least in cells with fewer tasks than ``tasks``.
    batch_bytes, task_seconds, tasks = 2**30, 1.0, 16
    # Calls of a program with this room cost little, and so does empty room.
    program_blocks, program_bytes = 16, 2**24
    # A user may allow a plan this much memory.
    allowed_bytes = 2**62


@dataclasses.dataclass(frozen=True, eq=False)
class PlannedCell:
    """Runs that share one program, with batches of their trials.

    ``runs`` have their numbers in the study, and ``trials`` trials each. Batches of ``size`` trials take them in the order of runs. All
    batches, and all their parts of ``rounds`` rounds, share programs; the last may be smaller. On CPUs a batch in one part calls a program
    with room for ``program_blocks`` blocks on each device.
    """

    number: int
    cell: Cell
    runs: dict[int, Run]
    trials: int
    size: int
    rounds: int
    program_blocks: int
    trial_bytes: int
    shared_bytes: int
    devices: tuple[Device, ...]

    @property
    def count(self) -> int:
        """Number of batches."""
        return -(-len(self.runs) * self.trials // self.size)

    def batch(self, number: int) -> Batch:
        """Return a batch by its number."""
        return Batch(self, number, number * self.size, min(self.size, len(self.runs) * self.trials - number * self.size))

    @property
    def parts(self) -> list[tuple[int, int]]:
        """First round and number of rounds of every part of a batch."""
        horizon = self.cell.horizon
        return [(first, min(self.rounds, horizon - first + 1)) for first in range(1, horizon + 1, self.rounds)]

    @property
    def in_one_part(self) -> bool:
        """True if a batch has one part only."""
        return self.rounds == self.cell.horizon

    @property
    def counts_blocks(self) -> bool:
        """True if programs have an argument for the number of blocks."""
        return self.devices[0].platform == "cpu" and self.in_one_part

    @property
    def step(self) -> int:
        """Trials in a block on each device."""
        return self.cell.block * len(self.devices)

    @property
    def room(self) -> int:
        """Number of trials with room in one call of a program."""
        if self.counts_blocks:
            return self.step * (1 if self.size == self.step else self.program_blocks)
        return -(-self.size // self.step) * self.step

    @property
    def batch_bytes(self) -> int:
        """Memory of one batch."""
        return max(self.size, self.room) * self.trial_bytes + self.shared_bytes

    @property
    def title(self) -> str:
        """Name in messages, such as ``RPOL and 3 like it``."""
        first, *others = (run.label for run in self.runs.values())
        return first + (f" and {len(others)} like it" if others else "")

    def cut(self, size: int, rounds: int, block: int) -> PlannedCell:
        """Return the cell with batches of other sizes."""
        return dataclasses.replace(self, size=size, rounds=rounds, cell=replace(self.cell, block=block))


@dataclasses.dataclass(frozen=True)
class Batch:
    """The ``size`` trials of a cell from number ``first`` on."""

    cell: PlannedCell
    number: int
    first: int
    size: int

    @property
    def place(self) -> tuple[int, int]:
        """Numbers of the cell and of the batch in the cell."""
        return self.cell.number, self.number

    @property
    def file(self) -> str:
        """Name of the batch's file in the directory of a run."""
        return f"{Names.parts}/{self.cell.number}-{self.number}.npz"

    @property
    def pairs(self) -> np.ndarray:
        """Trials ``[n, 3]``: cell's run, trial, study's run from 1."""
        variant, trial = np.divmod(np.arange(self.first, self.first + self.size), self.cell.trials)
        return np.stack([variant, trial, np.asarray(list(self.cell.runs))[variant] + 1], axis=1).astype(np.int32)

    @property
    def rows(self) -> np.ndarray:
        """Numbers ``[n, 2]`` of run and trial in the study."""
        return self.pairs[:, [2, 1]] - [1, 0]

    def __str__(self) -> str:
        return f"batch {self.number + 1} of cell {self.cell.number + 1}"


@dataclasses.dataclass(frozen=True, repr=False)
class Plan:
    """All decisions before a study runs.

    Attributes:
      study: study to run.
      runs: its runs with all labels.
      cells: cells in the order of their first runs.
    """

    study: Study
    runs: tuple[Run, ...]
    cells: tuple[PlannedCell, ...]

    def __repr__(self) -> str:
        cells, size = len(self.cells), in_units(self.result_bytes)
        return f"Plan({self.study!r}; cells: {cells}, batches: {len(self.batches)}, results: {size}, devices: {len(self.devices)})"

    @functools.cached_property
    def batches(self) -> tuple[Batch, ...]:
        """Batches of all cells, in order."""
        return tuple(cell.batch(number) for cell in self.cells for number in range(cell.count))

    @functools.cached_property
    def before(self) -> int:
        """Number of points before round 1 that metrics count."""
        return counted_before(self.runs)

    @property
    def devices(self) -> tuple[Device, ...]:
        """Devices that share the trials of a batch."""
        return self.cells[0].devices

    @property
    def work(self) -> int:
        """Number of all trial-rounds."""
        return len(self.runs) * self.study.trials * self.study.horizon

    @property
    def result_bytes(self) -> int:
        """Size of all results, uncompressed."""
        return sum(len(cell.runs) * self.study.trials * kept_bytes(self.study, cell.cell) for cell in self.cells)

    @property
    def layout(self) -> list[list[int]]:
        """Batches' size and number, parts' rounds and block size, to repeat exactly."""
        return [[cell.size, cell.count, cell.rounds, cell.cell.block] for cell in self.cells]

    def with_layout(self, layout: Sequence[Sequence[int]]) -> Plan:
        """Return the plan with other batches, in the form of :attr:`layout`."""
        cells = zip(self.cells, layout, strict=True)
        return dataclasses.replace(self, cells=tuple(cell.cut(size, rounds, block) for cell, (size, _, rounds, block) in cells))


Memory: TypeAlias = str | Annotated[int, whole(1, 2**63)]
"""Memory for the results of a batch, in bytes or as text such as "2 GiB"."""
Segment: TypeAlias = Annotated[int, whole(1)]
"""Rounds between two checkpoints."""


@checked
@in_its_arithmetic
def make_plan(
    study: Study,
    *,
    memory: Memory | None = None,
    segment: Segment | None = None,
    devices: Annotated[Sequence[Device], different_devices] | None = None,
    streamed: bool = False,
    by_workers: bool = False,
) -> Plan:
    """Plan the cells and batches of a study.

    Args:
      study: study to run.
      memory: upper bound such as ``"4GiB"``; default half of the devices' memory, of which CPUs use only as much as they need. On CPUs
        the bound includes the results unless they are streamed, but never the compiler's memory: on CPUs we measured 100 MiB for the first
        program and 10 to 25 MiB for each further program, beside 220 MiB of the process itself.
      segment: rounds in a part; by default as many as take some seconds.
      devices: devices to share the trials; default all local devices.
      streamed: whether results go to a file batch by batch, so that they need not fit memory all at once.
      by_workers: whether batches are tasks of workers with one device each. Such batches are shorter and more numerous.

    Raises:
      InvalidArgument: on a study that cannot run, before anything compiles.
    """
    used = tuple(jax.local_devices()[: 1 if by_workers else None] if devices is None else devices)
    on_cpu, allowed, runs = used[0].platform == "cpu", allowed_bytes(memory), study.named_runs()
    counted_before(runs)
    groups = group_runs(study, runs, used[0])
    results = 0 if streamed else sum(len(group) * study.trials * kept_bytes(study, cell) for cell, group in groups)
    most = allowed if on_cpu else host_memory()
    if results >= most:
        raise InvalidArgument(
            f"memory: the results alone take {in_units(results)} of the {in_units(most)} allowed;"
            f" {either('have them written to a file batch by batch (results=PATH), ', '')}keep fewer rounds (keep) or metrics, or"
            " allow more"
        )
    cells = []
    for number, (cell, group) in enumerate(groups):
        room = allowed - results if on_cpu else allowed
        cells.append(_planned(study, number, cell, group, memory=room, segment=segment, devices=used, by_workers=by_workers))
    return Plan(study, runs, tuple(cells))


def allowed_bytes(memory: object) -> int:
    """Return the bytes of ``"4GiB"``, ``"800M"`` or a number, or the default."""
    if memory is None:
        return int(Limits.memory_share * device_memory())
    units = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
    if isinstance(memory, int) and not isinstance(memory, bool):
        amount: float = memory
    else:
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([kmgt]?)(i?b)?\s*", memory.lower()) if isinstance(memory, str) else None
        if not match:
            raise InvalidArgument(f"memory: expected an amount such as 4GiB or 800M, got {short(memory)}")
        amount = float(match[1]) * units[match[2]]
    if not 1 <= amount <= Limits.allowed_bytes:
        raise InvalidArgument(f"memory: must be from one byte to {in_units(Limits.allowed_bytes)}, got {short(memory)}")
    return int(amount)


def counted_before(runs: Sequence[Run]) -> int:
    """Return the runs' common number of counted initial points, or raise ``InvalidArgument``."""
    counts = sorted({run.initial.count if run.initial.counted else 0 for run in runs})
    if len(counts) > 1:
        raise InvalidArgument(f"initial: all runs of a study count equally many points before round 1, got {counts}")
    return counts[0] if counts else 0


def group_runs(study: Study, runs: Sequence[Run], device: Device) -> list[tuple[Cell, dict[int, Run]]]:
    """Return a study's cells on a device, with runs by number."""
    groups: list[tuple[Cell, list[Variant], dict[int, Run]]] = []
    shared = common_needs(study)
    for number, run in enumerate(runs):
        with naming(f"run {run.label!r}"):
            if isinstance(run.problem.domain, Box) and "strong_regret" in study.metrics:
                raise InvalidArgument("metrics: 'strong_regret' needs a table of means, which no problem on a box has; leave it out")
            cell = cell_of(study, run, device, **shared)
        alike = (group for group in groups if runs[min(group[2])].problem is run.problem and group[0].shares_a_program(cell))
        first, variants, members = next(alike, (cell, [], {}))
        if first is cell:
            groups.append((cell, variants, members))
        variants.append(cell.variants.pick(0))
        members[number] = run
    if study.fused is True and not any(cell.kernel for cell, _, _ in groups):
        raise InvalidArgument(f"fused: no kernel can play the rounds of any run; {runs[0].label!r}: {study.describe_choices(runs[0])}")
    return [(cell.joined(variants), members) for cell, variants, members in groups]


def _planned(
    study: Study,
    number: int,
    cell: Cell,
    runs: dict[int, Run],
    *,
    memory: int,
    segment: int | None,
    devices: tuple[Device, ...],
    by_workers: bool,
) -> PlannedCell:
    """Return a cell with its batches and parts.

    On CPUs a batch takes some seconds, because blocks run one after the other anyway, and has parts only if one block on each device takes
    longer. On accelerators a batch is as large as fits, all side by side. The size of a worker's task depends on the cell alone, so that
    results have the same bits whatever the number of workers.
    """
    with naming(f"run {next(iter(runs.values())).label!r}"):
        carried = carried_bytes(cell)
    trials, horizon, on_cpu = len(runs) * study.trials, study.horizon, devices[0].platform == "cpu"
    step = (cell.block if on_cpu else 1) * len(devices)
    machine = Machine.of(devices)
    each_seconds = machine.trial_seconds(carried, horizon, devices)
    if by_workers:
        # Enough trials that the time of launches is negligible.
        least = machine.round_seconds * machine.bytes_per_second / carried if machine.side_by_side else 1.0
        wanted = max(min(Limits.batch_seconds, max(trials * each_seconds / Limits.tasks, Limits.task_seconds)) // each_seconds, least)
    else:
        wanted = Limits.batch_seconds // each_seconds if on_cpu and segment is None else np.inf
    wanted = max(step, wanted)
    seconds = seconds_of_batch(carried, horizon, min(wanted, trials), devices)
    parts = 1 if by_workers else int(np.ceil(seconds / Limits.batch_seconds))
    rounds = min(segment, horizon) if segment else rounds_of_part(horizon, parts)

    # A running trial has curves and trajectory of a part twice, beside its results.
    part = float_dtype().itemsize * len(study.metrics) + _seen_bytes(study, cell)
    each, shared = 2 * part * rounds + kept_bytes(study, cell), tree_bytes(cell)
    if on_cpu and rounds == horizon:
        # Only the trials of a block have a state at a time.
        shared += int(COPIES_OF_CARRY * carried * min(step, trials))
    else:
        each += int(COPIES_OF_CARRY * carried)
    most_bytes = min(memory, Limits.batch_bytes) if on_cpu else memory
    room, wanted_room = ((allowed - shared) // each for allowed in (memory, most_bytes))
    least = min(step, len(devices) * -(-trials // len(devices)))
    if room < least:
        raise InvalidArgument(
            f"memory: {memory / 2**20:,.0f} MiB hold {max(room, 0)} trials of {each / 2**20:.2f} MiB beside the"
            f" {shared / 2**20:.1f} MiB that they share, but at least {least} run side by side; allow"
            f" {(least * each + shared) / 2**20:,.0f} MiB or more"
        )
    most = max(int(min(wanted, wanted_room)) // step, 1) * step
    count = -(-trials // most)
    size, block = _size_and_block(-(-trials // count), cell.block if on_cpu else trials, len(devices), alone=count == 1)
    blocks = min(max(min(int(wanted_room), Limits.program_bytes // each) // step, 1), Limits.program_blocks)
    return PlannedCell(number, replace(cell, block=block), runs, study.trials, size, rounds, blocks, each, shared, devices)


def _size_and_block(trials: int, block: int, devices: int, *, alone: bool) -> tuple[int, int]:
    """Return the sizes of a batch and of its blocks.

    Blocks of a batch that is ``alone`` or small are equal. Full blocks would change the last bits of results, and compute in vain.
    """
    if not alone and trials >= block * devices:
        size = -(-trials // (block * devices)) * block * devices
    else:
        blocks, equal = equal_blocks(trials, block, devices, least_block(block))
        size = devices * blocks * equal
    local = size // devices
    return size, next(size for size in range(min(block, local), 0, -1) if local % size == 0)


def seconds_of_batch(carried: int, horizon: int, trials: float, devices: Sequence[Device]) -> float:
    """Estimate the seconds of a batch, at least those of launches."""
    machine = Machine.of(devices)
    seconds = trials * machine.trial_seconds(carried, horizon, devices)
    return max(seconds, horizon * machine.round_seconds) if machine.side_by_side else seconds


def rounds_of_part(horizon: int, parts: int) -> int:
    """Return the rounds of ``parts`` parts, or of more equal parts."""
    # A shorter last part would need its own program.
    most = max(1, horizon // max(parts, 1))
    return next((rounds for rounds in range(most, most // 2, -1) if horizon % rounds == 0), most)


def kept_bytes(study: Study, cell: Cell) -> int:
    """Return the bytes of one trial's results."""
    # Flags and facts of a trial have 64 bytes.
    rounds = len(study.keep.rounds(study.horizon)) + (cell.initial.count if cell.initial.counted else 0)
    return float_dtype().itemsize * rounds * len(study.metrics) + _seen_bytes(study, cell) * study.horizon + 64


def _seen_bytes(study: Study, cell: Cell) -> int:
    """Return the bytes of a trajectory's round: point, values and arrivals."""
    point = 4 + (float_dtype().itemsize * cell.problem.domain.dimension if isinstance(cell.problem.domain, Box) else 0)
    return point + (4 + float_dtype().itemsize) * cell.problem.outputs if study.trajectories else 0
