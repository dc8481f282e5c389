"""Measurements of a cluster of Dask.

They are the cost of handing out a task, and workers of one core each beside one process on all cores.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from experiments.benchmark.engine import peak_memory_mb
from experiments.benchmark.study import one_value
from jaxbandit.study import connected, run_study, spread, use_all_cores

# Number of tasks before any is timed.
WARMING = 200


class Nothing:
    """Work without any."""

    def __call__(self, number: int) -> int:
        """Return the number of the task."""
        return number


def measure_cluster(spec: dict[str, Any]) -> dict[str, Any]:
    """Return times of empty tasks and of a study.

    The study runs by workers and by this process, on a cluster of this machine or another. ``spec`` holds ``tasks``, ``points_per_axis``,
    ``trials``, ``horizon``, ``repeats`` and ``dask``, the cluster. Times of the study are whole runs whose programs are compiled, planning
    and gathering included, the best of the repeats.
    """
    use_all_cores()
    study = one_value(spec, spec["trials"])
    with connected(spec["dask"]) as client:
        assert client is not None
        for _ in spread(client, Nothing(), range(WARMING)):
            pass
        before, start = peak_memory_mb(), time.perf_counter()
        for _ in spread(client, Nothing(), range(spec["tasks"])):
            pass
        idle, grown, workers = time.perf_counter() - start, peak_memory_mb() - before, len(client.nthreads())
        best = {"here_s": np.inf, "workers_s": np.inf}
        # The first run compiles.
        for turn in range(1 + spec["repeats"]):
            for name, executor in (("here_s", None), ("workers_s", client)):
                start = time.perf_counter()
                run_study(study, executor=executor)
                if turn:
                    best[name] = min(best[name], time.perf_counter() - start)
    return {
        "workers": workers,
        "tasks_a_second": spec["tasks"] / idle,
        "task_ms": idle / spec["tasks"] * 1e3,
        "grown_mb": grown,
        **best,
        "workers_over_here": best["workers_s"] / best["here_s"],
    }
