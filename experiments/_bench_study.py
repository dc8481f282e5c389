"""What the benchmark measures of studies: sweeps beside single values, many trials beside few, and what progress and checkpoints cost."""

from __future__ import annotations

import dataclasses
import itertools
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxbandit
from experiments._bench_engine import NOISE_VARIANCE, peak_memory_mb
from jaxbandit.study import Keep, Model, Reporter, Study, grid, make_plan, run_study, use_all_cores

LEAST, MOST = 1.0, 4.0  # of the widths that are swept


def measure_study(spec: dict[str, Any]) -> dict[str, Any]:
    """Times and memory of studies on all cores, RPOL-UCB on ``sine``.

    ``spec`` holds ``points_per_axis``, ``values`` (of the width that is swept), ``trials``, ``many`` (trials of the largest run),
    ``horizon``, ``few`` (trials of a run of ``long`` rounds), ``memory_gib`` and ``repeats``. Times are the best of the repeats, in
    microseconds per trial-round and without compilation; what batches, parts, progress and checkpoints cost is a ratio of whole runs,
    whose programs come from a cache.
    """
    use_all_cores()
    with tempfile.TemporaryDirectory() as folder:  # compilation is not measured here, so every program is made once
        jax.config.update("jax_enable_compilation_cache", True)
        jax.config.update("jax_compilation_cache_dir", str(Path(folder) / "programs"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        return _measured(spec, Path(folder) / "run")


def _measured(spec: dict[str, Any], out: Path) -> dict[str, Any]:
    single, swept, large = (_study(spec, values, trials) for values, trials in _sizes(spec))
    plan, limit = make_plan(swept), f"{spec['memory_gib']}GiB"
    us = {"single": np.inf, "sweep": np.inf, "many": np.inf}
    for _ in range(spec["repeats"]):
        for name, study in (("single", single), ("sweep", swept), ("many", large)):
            us[name] = min(us[name], _us(study, limit))
    return {
        "cells": len(plan.cells),
        "lines": len(plan.runs),
        "points": spec["points_per_axis"] ** 2,
        "devices": jax.local_device_count(),
        "us": us,
        "sweep_over_single": us["sweep"] / us["single"],
        "many_over_few": us["many"] / us["single"],
        "peak_rss_mb": peak_memory_mb(),
        "batches": _overhead(large, out, spec["repeats"]),
        "parts": _overhead(dataclasses.replace(single, trials=spec["few"], horizon=spec["long"]), out, spec["repeats"]),
    }


def _sizes(spec: dict[str, Any]) -> list[tuple[int, int]]:
    return [(1, spec["trials"]), (spec["values"], spec["trials"]), (1, spec["many"])]


def _study(spec: dict[str, Any], values: int, trials: int) -> Study:
    widths = np.linspace(LEAST, MOST, values).tolist() if values > 1 else [(LEAST + MOST) / 2]
    return Study(
        name="bench",
        runs=grid(
            problems={"sine": jaxbandit.problems.sine(spec["points_per_axis"])},
            algorithms={"rpol": jaxbandit.Rpol()},
            sweeps={"rpol": {"estimator.reward_width": widths}},
            model=Model(kernel=jaxbandit.kernels.SquaredExponential(length_scale=1.0), noise_variance=NOISE_VARIANCE),
            horizon=spec["horizon"],
        ),
        trials=trials,
        horizon=spec["horizon"],
        keep=Keep(log_spaced=100),
    )


def _us(study: Study, memory: str) -> float:
    """Microseconds per trial-round of a run."""
    dataset = run_study(study, memory=memory)
    assert dataset is not None  # it runs in one process
    rounds = dataset.sizes["algorithm"] * study.trials * study.horizon
    return float(dataset.playing_seconds.sum()) / rounds * 1e6


def _overhead(study: Study, out: Path, repeats: int) -> dict[str, Any]:
    """A run as it is by default, with progress and checkpoints, beside the same in one piece without any; the first of each compiles."""
    plan = make_plan(study)
    best = {"whole_s": np.inf, "kept_s": np.inf}
    for _, name in itertools.product(range(repeats), best):
        start = time.perf_counter()
        if name == "whole_s":
            run_study(study, segment=study.horizon)
        else:
            with Reporter() as (report, note):
                run_study(study, out, report=report, note=note)
        best[name] = min(best[name], time.perf_counter() - start)
    return best | {
        "trials": study.trials,
        "horizon": study.horizon,
        "batches": plan.batch_counts[0],
        "parts": len(plan.parts(0)),
        "ratio": best["kept_s"] / best["whole_s"],
    }
