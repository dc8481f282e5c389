"""Time and memory of Algorithm 3 in the experiment ``data-rate``.

It has a rough kernel on a grid of four dimensions, by the row cache.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import jax

import jaxbandit as jb
from experiments.benchmark.engine import interleaved, peak_memory_mb
from experiments.shi_eryilmaz_2022 import shared
from experiments.shi_eryilmaz_2022.data_rate import COST_HALF_WIDTH


def measure_data_rate(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of Algorithm 3.

    ``spec`` holds ``points_per_axis``, ``trials``, ``horizon`` and ``repeats``.
    """
    start, rounds = time.perf_counter(), spec["trials"] * spec["horizon"]
    problem = jb.problems.data_rate(spec["points_per_axis"], noise_variance=shared.NOISE_VARIANCE, cost_half_width=COST_HALF_WIDTH)
    model = shared.model(problem, spec["horizon"], form="rows")
    built, algorithm = time.perf_counter() - start, jb.Se3(step=shared.STEP, epoch=shared.EPOCH)
    how = {"horizon": spec["horizon"], "trials": spec["trials"], "key": jax.random.key(0), "record": "indices"}
    best, first = interleaved({"us": partial(jb.simulate, problem, algorithm, model, **how)}, spec["repeats"])
    figures = {"us": 1e6 * best["us"] / rounds, "build_s": built, "compile_s": first["us"] - best["us"], "peak_rss_mb": peak_memory_mb()}
    return figures | {"points": problem.domain.size, "rank": model.forms[0].rank}
