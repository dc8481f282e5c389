"""How a study will run: in which batches of trials, in how many parts, in how much memory."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.pytree import signature
from jaxbandit.simulate.pairs import not_alone, shares
from jaxbandit.simulate.segments import Cell, begin_all
from jaxbandit.study.cells import PlannedCell, gather
from jaxbandit.study.hosts import Hosts, this_process
from jaxbandit.study.lines import Line, Specification, counted_before

SHARE = 0.5  # of the memory that may be used when nothing is said
ENOUGH = 2**30  # bytes on CPUs: batches of equal size share their program, so that larger ones gain nothing
COPIES = 2.5  # of what trials carry: before and after a part, and what a block works on
UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}

# A round reads and writes all that a trial carries, at this many bytes a second and device, and takes some time anyway. Measured on CPU
# cores at 2,500 points: 8 us where this gives 14; on rows of 14,641 points, which fill up over the run: 600 to 950 us, this gives 2,000.
SPEED = {"cpu": 1e10}
SPEED_ELSEWHERE = 1e12
LEAST_SECONDS = 3e-6
LONGEST = 10.0  # seconds, by that estimate, without news of a run


@dataclasses.dataclass(frozen=True)
class BatchPlan:
    """How one cell runs: ``size`` trials of variants at a time, the last batch filled up with repetitions, in parts of ``rounds``."""

    size: int
    batches: int
    rounds: int
    bytes_per_pair: int
    shared_bytes: int

    @property
    def bytes(self) -> int:
        """Memory of a batch."""
        return int(self.size * self.bytes_per_pair) + self.shared_bytes

    def parts(self, horizon: int) -> list[tuple[int, int]]:
        """First round and number of rounds of every part; all but the last are equal."""
        return [(first, min(self.rounds, horizon - first + 1)) for first in range(1, horizon + 1, self.rounds)]


@dataclasses.dataclass(frozen=True)
class Plan:
    """All that is decided before a study runs."""

    study: Specification
    lines: tuple[Line, ...]
    cells: tuple[PlannedCell, ...]
    batches: tuple[BatchPlan, ...]
    devices: tuple[Any, ...]
    hosts: Hosts = Hosts()

    @property
    def work(self) -> int:
        """Trial-rounds in all."""
        return len(self.lines) * self.study.trials * self.study.horizon

    def owned(self) -> list[tuple[int, int]]:
        """Cells and batches that this process runs."""
        every = [(c, b) for c, batch in enumerate(self.batches) for b in range(batch.batches)]
        return [place for number, place in enumerate(every) if self.hosts.owns(number)]

    def sized(self, cell: int) -> Cell:
        """A cell with blocks as equal as can be within a batch; all of a batch side by side on an accelerator."""
        planned = self.cells[cell].cell
        local = self.batches[cell].size // len(self.devices)
        block = planned.block if self.devices[0].platform == "cpu" else local
        block = next(size for size in range(min(block, local), 0, -1) if local % size == 0)
        return dataclasses.replace(planned, block=block)

    def title(self, cell: int) -> str:
        """What a cell is called: ``RPOL and 3 like it``."""
        first, *others = self.cells[cell].lines
        return self.lines[first].entry.label + (f" and {len(others)} like it" if others else "")


@dataclasses.dataclass(frozen=True)
class Budget:
    """Bytes: those that suffice, and those that must not be exceeded."""

    enough: int
    limit: int


def make_plan(
    study: Specification,
    *,
    memory: str | int | None = None,
    segment: int | None = None,
    devices: Sequence[jax.Device] | None = None,
) -> Plan:
    """Lines, cells and batches of a study.

    Args:
      study: what to run.
      memory: never exceeded, such as ``"4GiB"``; default half of the devices' memory, of which CPUs take no more than they need.
      segment: rounds in a part; default all of a run of some seconds, otherwise as few as take some seconds.
      devices: to spread trials over; default all local ones.

    Raises:
      InvalidArgument: on anything in the study that cannot run, before anything compiles.
    """
    if segment is not None:
        checks.integer("segment", segment, least=1)
    used = tuple(jax.local_devices() if devices is None else devices)
    lines = tuple(study.lines())
    counted_before(lines)
    cells = tuple(gather(study, lines))
    budget, hosts = memory_budget(memory, used[0].platform), this_process()
    kinds = {signature(planned.cell): planned.cell for planned in cells}
    carried = {kind: carried_bytes(cell) for kind, cell in kinds.items()}  # once of each kind: it takes a while
    batches = tuple(plan_batches(study, cell, carried[signature(cell.cell)], segment, budget, used, hosts.count) for cell in cells)
    return Plan(study=study, lines=lines, cells=cells, batches=batches, devices=used, hosts=hosts)


def memory_budget(text: str | int | None, platform: str) -> Budget:
    """From ``"4GiB"``, ``"800M"`` or a number of bytes; by the devices' memory when nothing is said.

    Raises:
      InvalidArgument: on what is no amount of memory.
    """
    if text is None:
        limit = int(SHARE * device_memory())
        return Budget(enough=min(limit, ENOUGH) if platform == "cpu" else limit, limit=limit)
    if isinstance(text, int):
        amount = float(text)
    else:
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([kmgt]?)(i?b)?\s*", text.lower())
        if not match:
            raise InvalidArgument(f"memory: expected an amount such as 4GiB or 800M, got {text!r}")
        amount = float(match[1]) * UNITS[match[2]]
    if amount < 1:
        raise InvalidArgument(f"memory: must be at least one byte, got {text!r}")
    return Budget(enough=int(amount), limit=int(amount))


def device_memory() -> int:
    """Bytes of all local devices' memory: of the machine for CPUs."""
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    limits = [stat.get("bytes_limit", 0) for stat in stats]
    return sum(limits) if all(limits) else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def plan_batches(
    study: Specification,
    planned: PlannedCell,
    carried: int,
    segment: int | None,
    budget: Budget,
    devices: Sequence[Any],
    processes: int = 1,
) -> BatchPlan:
    """The batches of a cell that fit a budget, and its parts; raises ``InvalidArgument`` when not even the smallest batch fits.

    Each trial has ``carried`` bytes from round to round.

    On CPUs a batch is as small as takes some seconds, blocks being run one after the other anyway, and only where one block on each
    device takes longer it is cut into parts. Elsewhere a batch is as large as fits, all of it side by side.
    """
    cell, pairs, horizon = planned.cell, len(planned.lines) * study.trials, study.horizon
    cpu = devices[0].platform == "cpu"
    step = (cell.block if cpu else 1) * len(devices)
    seconds = seconds_of_pair(carried, horizon, devices)
    wanted = max(step, LONGEST // seconds) if cpu and segment is None else np.inf
    rounds = min(segment, horizon) if segment else part_rounds(horizon, int(np.ceil(min(wanted, pairs) * seconds / LONGEST)))

    each, shared = _result_bytes(study, cell, rounds), tree_bytes(cell)
    if cpu and rounds == horizon:
        shared += int(COPIES * carried * min(step, pairs))  # no more than a block carries anything at a time
    else:
        each += int(COPIES * carried)
    room, roomy = ((bytes - shared) // each for bytes in (budget.limit, budget.enough))
    least = min(step, len(devices) * -(-pairs // len(devices)))
    if room < least:
        raise InvalidArgument(
            f"memory: {budget.limit / 2**20:,.0f} MiB hold {max(room, 0)} trials of {each / 2**20:.2f} MiB beside the"
            f" {shared / 2**20:.1f} MiB that they share, but at least {least} run side by side; allow"
            f" {(least * each + shared) / 2**20:,.0f} MiB or more"
        )
    most = max(int(min(wanted, roomy)) // step, 1) * step
    batches = max(-(-pairs // most), min(processes, -(-pairs // least)))  # something for every process
    size = _size(-(-pairs // batches), cell.block if cpu else pairs, len(devices))
    return BatchPlan(size=size, batches=-(-pairs // size), rounds=rounds, bytes_per_pair=each, shared_bytes=shared)


def _size(pairs: int, block: int, devices: int) -> int:
    """Of a batch that holds so many pairs, in equal blocks."""
    blocks, own = shares(pairs, block, devices, not_alone(block))
    return devices * blocks * own


def seconds_of_pair(carried: int, horizon: int, devices: Sequence[Any]) -> float:
    """A guess at the seconds that one trial adds to a run, by the bytes that it carries."""
    speed = SPEED.get(devices[0].platform, SPEED_ELSEWHERE)
    return horizon * max(carried / speed, LEAST_SECONDS) / len(devices)


def part_rounds(horizon: int, parts: int) -> int:
    """Rounds in each of so many parts or some more, if then all are equal: the last part needs a program of its own otherwise."""
    most = max(1, horizon // max(parts, 1))
    return next((rounds for rounds in range(most, most // 2, -1) if horizon % rounds == 0), most)


def carried_bytes(cell: Cell) -> int:
    """Memory that one trial of one variant carries from round to round."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    pairs = jax.ShapeDtypeStruct((cell.block, 3), jnp.int32)
    carry, _ = jax.eval_shape(lambda c, k, p: begin_all(c, k, p, mesh=None), cell, key, pairs)
    return -(-tree_bytes(carry) // cell.block)


def _result_bytes(study: Specification, cell: Cell, rounds: int) -> int:
    """Memory for what one trial of one variant gives: curves and trajectory of a part, twice, and what is kept of them."""
    seen = 1 + 2 * cell.problem.outputs if study.trajectories else 0
    kept = len(study.keep.rounds(study.horizon)) * len(study.metrics) + study.horizon * seen
    return 4 * (2 * (len(study.metrics) + seen) * rounds + kept) + 1


def tree_bytes(tree: Any) -> int:
    """Bytes of all arrays of a tree, which may be abstract."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "dtype")]
    sized = [leaf for leaf in leaves if not jnp.issubdtype(leaf.dtype, jax.dtypes.extended)]
    return int(sum(int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize for leaf in sized))
