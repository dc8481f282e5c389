"""Measurements of every surrogate form of the engine.

Beside them is XLA's own matrix product of the same size.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxbandit
from experiments.common.running import progress
from jaxbandit import kernels

NOISE_VARIANCE = 0.05
LENGTH_SCALE = 1.0
FORMS = ("features", "product", "rows")
# The form `rows` takes many times as long as the others, so it runs in every fourth turn only.
SELDOM = 4
# Range of length-scales of a model of `ranged`. It plays beside the product form at the middle of the range.
RANGE = (0.7, 1.4)
# Length-scales that one program tries.
RANGED_VALUES = 10
# The form `rows` runs trials one by one, so more trials would take longer and say the same.
ROWS_TRIALS = 10


def measure_engine(spec: dict[str, Any]) -> dict[str, Any]:
    """Return times of every form and of the bare GEMM.

    They are at each number of trials, with compile times and peak memory. ``spec`` holds ``points_per_axis``, ``counts`` (numbers of
    trials, the last the largest), ``horizon``, ``short_horizon`` and ``repeats``. Times are the best of the repeats, in microseconds per
    trial-round.
    """
    problem, horizon, most = jaxbandit.problems.sine(spec["points_per_axis"]), spec["horizon"], spec["counts"][-1]
    models = {form: _model(problem, form, horizon) for form in FORMS}
    times: dict[str, dict[str, float]] = {name: {} for name in ("gemm", *FORMS)}
    for count in spec["counts"]:
        progress(f"    {count} x {horizon} rounds: GEMM, {', '.join(FORMS)}")
        runs = {"gemm": _gemm(models["features"], count, horizon)}
        played = dict.fromkeys(FORMS, count) | {"rows": min(count, ROWS_TRIALS)}
        runs |= {form: _run(problem, models[form], played[form], horizon) for form in FORMS}
        if count == most:
            runs |= {f"short {form}": _run(problem, models[form], most, spec["short_horizon"]) for form in FORMS[:2]}
        best, first = interleaved(runs, spec["repeats"])
        for name, by_count in times.items():
            by_count[str(count)] = _per_trial_round(best[name], played.get(name, count), horizon)
    # `best` and `first` are those of the largest count: it is the last.
    found = {
        "us": times,
        "short_us": {form: _per_trial_round(best[f"short {form}"], most, spec["short_horizon"]) for form in FORMS[:2]},
        "compile_seconds": {form: first[form] - best[form] for form in FORMS},
        "peak_rss_mb": peak_memory_mb(),
    }

    ranged, values = _ranged(problem, horizon), min(most, RANGED_VALUES)
    progress(f"    {most} x {horizon} rounds: ranged, {values} length-scales, beside product")
    swept = jaxbandit.sweep(ranged, {"length_scale": np.geomspace(*RANGE, values).tolist()})
    each = most // values
    own, _ = interleaved(
        {"ranged": _run(problem, swept, each, horizon), "product": _run(problem, models["product"], each * values, horizon)},
        spec["repeats"],
    )

    trials = min(most, ROWS_TRIALS)
    progress(f"    {trials} x {horizon} rounds: rows, Matern-5/2")
    rough = _model(problem, "rows", horizon, kernels.Matern52(length_scale=LENGTH_SCALE))
    best, _ = interleaved({"rows": _run(problem, rough, trials, horizon)}, spec["repeats"])
    return found | {
        "ranged_us": _per_trial_round(own["ranged"], each * values, horizon),
        "ranged_over_product": own["ranged"] / own["product"],
        "ranged_rank": ranged.forms[0].rank,
        "ranged_low": RANGE[0],
        "ranged_high": RANGE[1],
        "rows_matern_us": _per_trial_round(best["rows"], trials, horizon),
        "rows_trials": trials,
        "violation": {form: _violation(problem, models[form], played[form], horizon) for form in FORMS},
        "points": problem.domain.size,
        "rank": {form: model.forms[0].rank for form, model in models.items()},
        "dtype": str(models["features"].noise_variance.dtype),
    }


def measure_devices(spec: dict[str, Any]) -> dict[str, Any]:
    """Return microseconds per trial-round of the feature forms."""
    jax.config.update("jax_num_cpu_devices", spec["devices"])
    problem, horizon, count = jaxbandit.problems.sine(spec["points_per_axis"]), spec["horizon"], spec["counts"][-1]
    runs = {form: _run(problem, _model(problem, form, horizon), count, horizon, spec["devices"]) for form in FORMS[:2]}
    best, _ = interleaved(runs, spec["repeats"])
    return {"us": {form: _per_trial_round(seconds, count, horizon) for form, seconds in best.items()}}


def describe_machine(spec: dict[str, Any]) -> dict[str, Any]:
    """Return what JAX runs on here."""
    device = jax.devices()[0]
    return {"backend": jax.default_backend(), "device": device.device_kind, "jax": jax.__version__, "numpy": np.__version__}


def peak_memory_mb() -> float:
    """Return the most memory that this process has held, in MB."""
    # The usual source would be ru_maxrss, but Linux carries it over from the parent process across fork and exec.
    status = Path("/proc/self/status")
    if status.exists():
        return next(float(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) * 1024 / 1e6
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def _model(problem: Any, form: str, horizon: int, kernel: kernels.Kernel | None = None) -> jaxbandit.Surrogate:
    """Return the surrogate in one form, by default with the squared exponential."""
    kernel = kernel or kernels.SquaredExponential(length_scale=LENGTH_SCALE)
    return jaxbandit.surrogate(problem.domain, kernel, noise_variance=NOISE_VARIANCE, form=form, horizon=horizon)


def _ranged(problem: Any, horizon: int) -> jaxbandit.Surrogate:
    """Return the model of all length-scales of ``RANGE``."""
    kernel = kernels.SquaredExponential(length_scale=LENGTH_SCALE)
    return jaxbandit.ranged(problem.domain, kernel, low=RANGE[0], high=RANGE[1], noise_variance=NOISE_VARIANCE, horizon=horizon)


def _run(problem: Any, model: Any, trials: int, horizon: int, devices: int = 1) -> Callable[[], Any]:
    """Return a function that makes a user's whole call of ``simulate``."""
    key = jax.random.key(0)
    return lambda: jaxbandit.simulate(
        problem, jaxbandit.Rpol(), model, horizon=horizon, trials=trials, key=key, record="indices", devices=jax.devices()[:devices]
    )


def _gemm(model: Any, trials: int, horizon: int) -> Callable[[], Any]:
    """Return a function that repeats a matrix product in one program.

    It multiplies ``[trials, r] x [r, M]`` ``horizon`` times. Feedback keeps every product alive.
    """
    table = jnp.asarray(np.ascontiguousarray(np.asarray(model.forms[0].phi).T))  # [r, M]
    rank, start = table.shape[0], jnp.ones((trials, table.shape[0]), table.dtype)

    @jax.jit
    def loop(weights: jax.Array, table: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, horizon, lambda _, x: 0.999 * x + 1e-6 * (x @ table)[:, :rank], weights)

    return lambda: loop(start, table)


def interleaved(runs: Mapping[str, Callable[[], Any]], repeats: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return each run's best time, and its first, in seconds.

    The best time is of the calls after the first. The runs take turns, so that a change in the machine's speed meets all of them.
    """
    first = {name: _seconds(run) for name, run in runs.items()}
    best = dict.fromkeys(runs, float("inf"))
    for turn in range(repeats):
        for name, run in runs.items():
            if name == "rows" and turn % SELDOM:
                continue
            best[name] = min(best[name], _seconds(run))
    return best, first


def _seconds(run: Callable[[], Any]) -> float:
    """Return how long a call takes, its results waited for."""
    start = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - start


def _per_trial_round(seconds: float, trials: int, horizon: int) -> float:
    """Return microseconds per trial and round."""
    return seconds / trials / horizon * 1e6


def _violation(problem: Any, model: Any, trials: int, horizon: int) -> float:
    """Return the mean violation where chosen, equal for equal games."""
    indices = np.asarray(_run(problem, model, trials, horizon)().indices)
    return float(np.maximum(np.asarray(problem.means)[1][indices], 0).mean())
