"""How long a study will take, by playing a little of it."""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np

from jaxbandit.simulate.segments import advance_all, begin_all
from jaxbandit.study.planning import Plan
from jaxbandit.study.runner import Runner

ROUNDS = 100
REPEATS = 3


def seconds_per_round(plan: Plan, cell: int) -> float:
    """Seconds for each round of one trial of a cell: a block on each device is begun and plays some rounds, the fastest time counts."""
    runner = Runner(plan)
    planned = plan.sized(cell)
    size = planned.block * len(plan.devices)
    first = plan.cells[cell].lines[0]
    pairs = runner.made.place(np.tile(np.asarray([[0, 0, first + 1]], np.int32), (size, 1)))
    rounds = min(ROUNDS, plan.study.horizon)
    carry, _ = begin_all(planned, runner.made.key, pairs, mesh=runner.made.mesh)
    options: dict[str, Any] = {"rounds": rounds, "record": "indices", "mesh": runner.made.mesh}
    best = np.inf
    for _ in range(1 + REPEATS):  # the first compiles
        start = time.perf_counter()
        carry, *_ = jax.block_until_ready(advance_all(planned, runner.made.key, carry, pairs, np.int32(1), **options))
        best = min(best, time.perf_counter() - start)
    return best / (rounds * size)
