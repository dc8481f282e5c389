"""An estimate of how long a study will take, from playing a few rounds of it."""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np

from jaxbandit.engine.programs import advance_all, begin_all
from jaxbandit.study.plan.planning import Plan
from jaxbandit.study.run.cell_programs import CellPrograms
from jaxbandit.study.specify.study import Study, in_its_arithmetic

PROBED_ROUNDS = 100
PROBE_REPEATS = 3


def seconds_per_round(plan: Plan, cell: int) -> float:
    """Measure the seconds of one round of one trial of a cell: a block on each device plays some rounds, and the fastest time counts."""
    return _measured(plan.study, plan, cell)


@in_its_arithmetic
def _measured(study: Study, plan: Plan, cell: int) -> float:
    """Return what :func:`seconds_per_round` returns."""
    made = CellPrograms(plan, lambda: ())
    planned = plan.blocked_cell(cell)
    size = planned.block * len(plan.devices)
    first = plan.members[cell][0]
    pairs = made.place(np.tile(np.asarray([[0, 0, first + 1]], np.int32), (size, 1)))
    rounds = min(PROBED_ROUNDS, plan.study.horizon)
    carry, _ = begin_all(planned, made.key, pairs, mesh=made.mesh)
    options: dict[str, Any] = {"rounds": rounds, "record": "indices", "mesh": made.mesh}
    best = np.inf
    for _ in range(1 + PROBE_REPEATS):  # the first compiles
        start = time.perf_counter()
        carry, *_ = jax.block_until_ready(advance_all(planned, made.key, carry, pairs, np.int32(1), **options))
        best = min(best, time.perf_counter() - start)
    return best / (rounds * size)
