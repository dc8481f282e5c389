"""Batches of a cell: how many trials run at a time, in parts of how many rounds, in how much memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxbandit.core.blocks import equal_blocks, least_block
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.memory import tree_bytes
from jaxbandit.core.pytree import float_dtype
from jaxbandit.core.types import Device
from jaxbandit.engine.footprint import COPIES_OF_CARRY
from jaxbandit.engine.programs import Cell
from jaxbandit.study.plan.memory import Budget
from jaxbandit.study.specify.study import Study

FLAGS_AND_FACTS = 64  # bytes of a trial, whatever its rounds

# A round reads and writes all that a trial carries, at this many bytes a second and device, and takes some time anyway. Measured on CPU
# cores at 2,500 points: 8 us where this gives 14; on rows of 14,641 points, which fill up over the run: 600 to 950 us, this gives 2,000.
# On an accelerator that time is its launches', some twenty, whatever the number of trials.
BYTES_PER_SECOND = {"cpu": 1e10}
BYTES_PER_SECOND_ELSEWHERE = 1e12
MIN_SECONDS_PER_ROUND = 3e-6
SECONDS_OF_LAUNCHES = 6e-5
MAX_SECONDS_WITHOUT_REPORT = 10.0  # by that estimate

# A task of a worker, by the same estimate: so long that handing it out costs next to nothing, so short that little is lost with a worker
# and that the last ones end together. It depends on the cell alone: results have the same bits whatever the number of workers.
LEAST_SECONDS_OF_TASK, MOST_SECONDS_OF_TASK = 1.0, 300.0
USUAL_SECONDS_OF_TASK = 10.0
FEW_TASKS, MANY_TASKS = 16, 16_384

# Room of a program for trials: so large that calling it costs next to nothing, so small that what is left empty costs nothing either.
MAX_BLOCKS_OF_PROGRAM = 16
MAX_BYTES_OF_PROGRAM = 2**24  # of results


def batch_numbers(
    study: Study,
    cell: Cell,
    runs: int,
    carried: int,
    segment: int | None,
    budget: Budget,
    devices: Sequence[Device],
    by_workers: bool = False,
) -> tuple[int, int, int, int, int, int]:
    """Return how a cell is cut into batches, parts and programs, and what it takes.

    The numbers are: trials in a batch, batches, rounds in a part, blocks that a program has room for, bytes of a trial, and bytes that the
    trials of a batch share.

    On CPUs a batch is as small as takes some seconds, blocks being run one after the other anyway, and only where one block on each
    device takes longer it is cut into parts. Elsewhere a batch is as large as fits, all of it side by side.

    Args:
      study: study that is planned.
      cell: one of its cells.
      runs: number of runs in the cell.
      carried: bytes that each trial carries from round to round.
      segment: rounds in a part, if they are given.
      budget: memory that may be used.
      devices: devices that a batch is spread over.
      by_workers: whether batches are tasks of workers.

    Raises:
      InvalidArgument: when not even the smallest batch fits.
    """
    trials, horizon = runs * study.trials, study.horizon
    cpu = devices[0].platform == "cpu"
    step = (cell.block if cpu else 1) * len(devices)
    seconds = seconds_of_trial(carried, horizon, devices)
    wanted = max(step, MAX_SECONDS_WITHOUT_REPORT // seconds) if cpu and segment is None else np.inf
    if by_workers:
        wanted = max(step, trials_of_task(carried, horizon, trials, devices))
    seconds_without_report = np.inf if by_workers else MAX_SECONDS_WITHOUT_REPORT  # a task makes no checkpoints and no reports
    parts = int(np.ceil(seconds_of_batch(carried, horizon, min(wanted, trials), devices) / seconds_without_report))
    rounds = min(segment, horizon) if segment else rounds_of_part(horizon, parts)

    each, shared = _result_bytes(study, cell, rounds), tree_bytes(cell)
    if cpu and rounds == horizon:
        shared += int(COPIES_OF_CARRY * carried * min(step, trials))  # no more than a block carries anything at a time
    else:
        each += int(COPIES_OF_CARRY * carried)
    room, wanted_room = ((allowed - shared) // each for allowed in (budget.limit, budget.wanted))
    least = min(step, len(devices) * -(-trials // len(devices)))
    if room < least:
        raise InvalidArgument(
            f"memory: {budget.limit / 2**20:,.0f} MiB hold {max(room, 0)} trials of {each / 2**20:.2f} MiB beside the"
            f" {shared / 2**20:.1f} MiB that they share, but at least {least} run side by side; allow"
            f" {(least * each + shared) / 2**20:,.0f} MiB or more"
        )
    most = max(int(min(wanted, wanted_room)) // step, 1) * step
    count = -(-trials // most)
    size = _size(-(-trials // count), cell.block if cpu else trials, len(devices), alone=count == 1)
    blocks = min(int(wanted_room), MAX_BYTES_OF_PROGRAM // each) // step
    return size, -(-trials // size), rounds, min(max(blocks, 1), MAX_BLOCKS_OF_PROGRAM), each, shared


def _size(trials: int, block: int, devices: int, *, alone: bool) -> int:
    """Return the size of a batch of so many trials: in equal blocks where it is ``alone`` or small, otherwise in whole ones.

    Whole blocks are the same whatever the number of trials, and so are their programs; only in the last batch one is not full. Equal ones
    of another size need a program of their own: to fill whole blocks up instead would change the last bits of results, and play in vain.
    """
    if not alone and trials >= block * devices:
        return -(-trials // (block * devices)) * block * devices
    blocks, own = equal_blocks(trials, block, devices, least_block(block))
    return devices * blocks * own


def seconds_of_trial(carried: int, horizon: int, devices: Sequence[Device]) -> float:
    """Estimate the seconds that one trial adds to a run on CPUs from the bytes that it carries."""
    return horizon * max(carried / BYTES_PER_SECOND["cpu"], MIN_SECONDS_PER_ROUND) / len(devices)


def trials_of_task(carried: int, horizon: int, trials: int, devices: Sequence[Device]) -> int:
    """Return how many of a cell's trials make a task of a worker."""
    if devices[0].platform == "cpu":
        each, least = seconds_of_trial(carried, horizon, devices), 1.0
    else:  # side by side, and so many that launches do not count
        each, least = horizon * carried / BYTES_PER_SECOND_ELSEWHERE, SECONDS_OF_LAUNCHES * BYTES_PER_SECOND_ELSEWHERE / carried
    usual = min(max(trials * each / MANY_TASKS, USUAL_SECONDS_OF_TASK), MOST_SECONDS_OF_TASK)
    return int(max(min(usual, max(trials * each / FEW_TASKS, LEAST_SECONDS_OF_TASK)) / each, least))


def seconds_of_batch(carried: int, horizon: int, trials: float, devices: Sequence[Device]) -> float:
    """Estimate the seconds of a batch: on CPUs the sum of its trials', elsewhere launches for all of them and what each carries."""
    if devices[0].platform == "cpu":
        return trials * seconds_of_trial(carried, horizon, devices)
    return horizon * max(trials * carried / BYTES_PER_SECOND_ELSEWHERE / len(devices), SECONDS_OF_LAUNCHES)


def rounds_of_part(horizon: int, parts: int) -> int:
    """Return the rounds of each of ``parts`` parts, or of some more if then all are equal: a shorter last part needs its own program."""
    most = max(1, horizon // max(parts, 1))
    return next((rounds for rounds in range(most, most // 2, -1) if horizon % rounds == 0), most)


def kept_bytes(study: Study, cell: Cell) -> int:
    """Return the bytes of one trial's results as they are kept."""
    number = float_dtype().itemsize
    rounds = study.keep.count(study.horizon) + (cell.initial.count if cell.initial.counted else 0)
    return number * rounds * len(study.metrics) + _seen_bytes(study, cell) * study.horizon + FLAGS_AND_FACTS


def _result_bytes(study: Study, cell: Cell, rounds: int) -> int:
    """Return the bytes of one trial's results while it runs: curves and trajectory of a part, twice, and what is kept of them."""
    part = float_dtype().itemsize * len(study.metrics) + _seen_bytes(study, cell)
    return 2 * part * rounds + kept_bytes(study, cell)


def _seen_bytes(study: Study, cell: Cell) -> int:
    """Return the bytes of a round of a trajectory: the point, and for each output a value and when it arrives."""
    return 4 + (4 + float_dtype().itemsize) * cell.problem.outputs if study.trajectories else 0
