"""How a study will run: in which batches of trials, in how many parts, in how much memory."""

from __future__ import annotations

import dataclasses
import os
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.simulate.segments import Cell, begin_all
from jaxbandit.study.cells import PlannedCell
from jaxbandit.study.spec import Study

SHARE = 0.5  # of the memory that is used when nothing is said
PARTS = 10  # a run is cut into, when nothing is said
COPIES = 2.5  # of what trials carry: before and after a part, and what a block works on
UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


@dataclasses.dataclass(frozen=True)
class BatchPlan:
    """How one cell runs. ``size`` trials of variants at a time, whose last batch is filled up with repetitions."""

    size: int
    batches: int
    bytes_per_pair: int
    shared_bytes: int

    @property
    def bytes(self) -> int:
        """Memory of a batch."""
        return int(self.size * self.bytes_per_pair) + self.shared_bytes


def memory_budget(text: str | int | None) -> int:
    """Bytes from ``"4GiB"``, ``"800M"`` or a number; of the devices' memory when nothing is said.

    Raises:
      InvalidArgument: on what is no amount of memory.
    """
    if text is None:
        return int(SHARE * device_memory())
    if isinstance(text, int):
        amount = float(text)
    else:
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([kmgt]?)(i?b)?\s*", text.lower())
        if not match:
            raise InvalidArgument(f"memory: expected an amount such as 4GiB or 800M, got {text!r}")
        amount = float(match[1]) * UNITS[match[2]]
    if amount < 1:
        raise InvalidArgument(f"memory: must be at least one byte, got {text!r}")
    return int(amount)


def device_memory() -> int:
    """Bytes of all local devices' memory: of the machine for CPUs."""
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    limits = [stat.get("bytes_limit", 0) for stat in stats]
    return sum(limits) if all(limits) else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def segment_rounds(study: Study, asked: int | None) -> int:
    """Rounds in a part."""
    return min(asked or -(-study.horizon // PARTS), study.horizon)


def plan_batches(study: Study, planned: PlannedCell, rounds: int, budget: int, devices: int, processes: int = 1) -> BatchPlan:
    """The batches of a cell that fit a budget; raises ``InvalidArgument`` when not even the smallest one does."""
    cell, pairs = planned.cell, len(planned.lines) * study.trials
    shared = tree_bytes(cell)
    each = bytes_per_pair(study, cell, rounds)
    step = cell.block * devices
    room = (budget - shared) // each
    least = min(step, devices * (-(-pairs // devices)))
    if room < least:
        raise InvalidArgument(
            f"memory: {budget / 2**20:,.0f} MiB hold {max(room, 0)} trials of {each / 2**20:.2f} MiB beside the {shared / 2**20:.1f} MiB"
            f" that they share, but at least {least} run side by side; allow {(least * each + shared) / 2**20:,.0f} MiB or more"
        )
    batches = max(-(-pairs // (max(room // step, 1) * step)), min(processes, -(-pairs // least)))  # something for every process
    size = -(-pairs // batches)
    size = -(-size // step) * step if size > step else -(-size // devices) * devices
    return BatchPlan(size=size, batches=-(-pairs // size), bytes_per_pair=each, shared_bytes=shared)


def bytes_per_pair(study: Study, cell: Cell, rounds: int) -> int:
    """Memory that one trial of one variant needs: what it carries, several times, its curves of a part and what is kept of them."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    pairs = jax.ShapeDtypeStruct((cell.block, 3), jnp.int32)
    carry, _ = jax.eval_shape(lambda c, k, p: begin_all(c, k, p, mesh=None), cell, key, pairs)
    carried = tree_bytes(carry) / cell.block
    values = len(study.metrics) + (1 + 2 * cell.problem.outputs if study.trajectories else 0)
    kept = len(study.keep.rounds(study.horizon)) * len(study.metrics)
    whole = study.horizon * (1 + 2 * cell.problem.outputs) if study.trajectories else 0
    return int(COPIES * carried + 4 * (2 * values * rounds + kept + whole)) + 1


def tree_bytes(tree: Any) -> int:
    """Bytes of all arrays of a tree, which may be abstract."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "dtype")]
    sized = [leaf for leaf in leaves if not jnp.issubdtype(leaf.dtype, jax.dtypes.extended)]
    return int(sum(int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize for leaf in sized))
