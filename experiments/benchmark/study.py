"""Measurements of studies.

They are sweeps beside single values, many trials beside few, and the cost of progress and checkpoints.
"""

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
from experiments.benchmark.engine import NOISE_VARIANCE, peak_memory_mb
from jaxbandit.study import Keep, Model, Reporter, Study, grid, make_plan, run_study, use_all_cores

# Paths that are swept, by the sweep's name: a hyper-parameter of the algorithm and one of the model, with the least and the greatest value.
SWEPT = {"sweep": ("estimator.reward_width", 1.0, 4.0), "model_sweep": ("model.noise_variance", NOISE_VARIANCE / 2, NOISE_VARIANCE * 2)}
# Largest ratio of the time per trial-round of a sweep of the model to one of the algorithm.
MODEL_SWEEP_LIMIT = 1.1


def measure_study(spec: dict[str, Any]) -> dict[str, Any]:
    """Return times and memory of studies on all cores, RPOL-UCB on ``sine``.

    ``spec`` holds ``points_per_axis``, ``values`` (of each sweep, of a width and of the model's noise variance), ``trials``, ``many``
    (trials of the largest run), ``horizon``, ``few`` (trials of a run of ``long`` rounds), ``memory_gib`` and ``repeats``. Times are the
    best of the repeats, in microseconds per trial-round and without compilation; what batches, parts, progress and checkpoints cost is a
    ratio of whole runs, whose programs come from a cache.
    """
    use_all_cores()
    # Compilation is not measured here, so every program is made once.
    with tempfile.TemporaryDirectory() as folder:
        jax.config.update("jax_enable_compilation_cache", True)
        jax.config.update("jax_compilation_cache_dir", str(Path(folder) / "programs"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        return _measured(spec, Path(folder) / "run")


def _measured(spec: dict[str, Any], out: Path) -> dict[str, Any]:
    studies = {
        "single": one_value(spec, spec["trials"]),
        "sweep": _study(spec, spec["trials"], "sweep", spec["values"]),
        "model_sweep": _study(spec, spec["trials"], "model_sweep", spec["values"]),
        "many": one_value(spec, spec["many"]),
    }
    plan, limit = make_plan(studies["sweep"]), f"{spec['memory_gib']}GiB"
    us = dict.fromkeys(studies, np.inf)
    # Run in turns, so that a change in the machine's speed meets all of them.
    for _ in range(spec["repeats"]):
        for name, study in studies.items():
            us[name] = min(us[name], _us(study, limit))
    many, long = studies["many"], dataclasses.replace(studies["single"], trials=spec["few"], horizon=spec["long"])
    return {
        "cells": len(plan.cells),
        "lines": len(plan.runs),
        "points": spec["points_per_axis"] ** 2,
        "devices": jax.local_device_count(),
        "us": us,
        "sweep_over_single": us["sweep"] / us["single"],
        "model_sweep_over_sweep": us["model_sweep"] / us["sweep"],
        "model_sweep_limit": MODEL_SWEEP_LIMIT,
        "many_over_few": us["many"] / us["single"],
        "peak_rss_mb": peak_memory_mb(),
        "batches": _overhead(many, out, spec["repeats"]),
        "parts": _overhead(long, out, spec["repeats"]),
    }


def one_value(spec: dict[str, Any], trials: int) -> Study:
    """Return a study of RPOL-UCB with one width, on ``sine``.

    It has ``spec["points_per_axis"]`` points per axis and ``spec["horizon"]`` rounds.
    """
    return _study(spec, trials, "sweep", 1)


def _study(spec: dict[str, Any], trials: int, sweep: str, count: int) -> Study:
    """Return a study of so many swept values, or the middle."""
    path, least, most = SWEPT[sweep]
    values = [(least + most) / 2] if count == 1 else np.linspace(least, most, count).tolist()
    return Study(
        name="bench",
        runs=grid(
            problems={"sine": jaxbandit.problems.sine(spec["points_per_axis"])},
            algorithms={"rpol": jaxbandit.Rpol()},
            sweeps={"rpol": {path: values}},
            model=Model(kernel=jaxbandit.kernels.SquaredExponential(length_scale=1.0), noise_variance=NOISE_VARIANCE),
            horizon=spec["horizon"],
        ),
        trials=trials,
        horizon=spec["horizon"],
        keep=Keep(log_spaced=100),
    )


def _us(study: Study, memory: str) -> float:
    """Return the microseconds per trial-round of a study, without compilation."""
    dataset = run_study(study, memory=memory)
    rounds = dataset.sizes["algorithm"] * study.trials * study.horizon
    return float(dataset.playing_seconds.sum()) / rounds * 1e6


def _overhead(study: Study, out: Path, repeats: int) -> dict[str, Any]:
    """Return the seconds of a study with and without parts.

    By default it has progress and checkpoints. The other runs in one piece. The first run of each compiles and is not timed.
    """
    plan = make_plan(study)
    best = {"whole_s": np.inf, "kept_s": np.inf}
    for turn, name in itertools.product(range(1 + repeats), best):
        start = time.perf_counter()
        if name == "whole_s":
            run_study(study, segment=study.horizon)
        else:
            with Reporter() as (report, note):
                run_study(study, out, report=report, note=note)
        if turn:
            best[name] = min(best[name], time.perf_counter() - start)
    return best | {
        "trials": study.trials,
        "horizon": study.horizon,
        "batches": plan.cells[0].count,
        "parts": len(plan.cells[0].parts),
        "ratio": best["kept_s"] / best["whole_s"],
    }
