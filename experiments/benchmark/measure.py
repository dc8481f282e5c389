"""Speed and memory of the engine, beside XLA's own matrix product and beside what people use now: ``python -m experiments bench``.

Everything is measured in one run, because only ratios taken side by side mean much. Every measurement has a process of its own, on
one CPU core and one thread (on an accelerator: not pinned), so that no library profits from what another has loaded. A peer's
figure at ``T`` rounds comes from playing all ``T`` rounds of one trial; what it needs for more trials is that many times as much.

The file of ``--json`` is one object. Its keys:

- ``points_per_axis``, ``points``, ``counts`` and ``trials`` (numbers of trials, and the largest), ``horizon``, ``short_horizon``,
  ``repeats``, ``turns``, ``plays``: what was run, on ``sine``; ``rank`` of every form and ``dtype``.
- ``us``: microseconds per trial-round of ``gemm`` and of every form, by number of trials; ``gemm_us``, ``feature_us``, ``product_us``,
  ``rows_us`` are those of the largest number; ``feature_over_gemm``, ``product_over_gemm``, ``rows_over_gemm``; ``rows_matern_us``
  with ``rows_matern_trials``; ``own_us``: of the feature forms at both horizons, which peers are compared with.
- ``compile_s`` (features), ``compile_seconds`` (every form), ``peak_rss_mb`` of the process that ran them, ``violation`` of the points
  they chose.
- ``devices``: microseconds on ``"1"`` and ``"2"`` devices; ``two_device_speedup``, ``two_device_speedup_product``.
- ``peers``: of every peer ``us`` by number of rounds, ``violation`` and ``version``, or a ``note``; and, with the number of rounds at
  the end, ``PEER_us_T*`` and ``PEER_over_{feature,dense,product}_T*``.
- ``data_rate``: the experiment ``data-rate`` in a process of its own on one core: ``points_per_axis``, ``points``, ``rank``,
  ``trials``, ``horizon``, ``repeats``; ``us`` per trial-round and ``compile_s`` of each algorithm, ``build_s`` of problem and surrogate;
  ``built_mb`` and ``peak_rss_mb``: the peak of memory once built and at the end; ``trial_mb``: what the results of a trial hold;
  ``trials_per_block``: how many run side by side. And what that comes to at full size, ``full_trials`` x ``full_horizon``:
  ``full_seconds`` (both algorithms, building and compiling included) and ``full_peak_mb``, null unless grid and horizon are those of
  full size.
- ``study``: studies of RPOL-UCB on all cores: ``points``, ``values`` of a width, ``trials``, ``many``, ``horizon``, ``repeats``,
  ``memory_gib`` (the budget given), ``devices``, ``cells`` and ``lines`` of the sweep; ``us`` per trial-round of a ``single`` value, of
  the ``sweep`` and of ``many`` trials, with ``sweep_over_single`` and ``many_over_few``; ``batches`` and ``parts``: what progress and
  checkpoints cost the run of ``many`` trials, and one of ``few`` trials and ``long`` rounds: seconds in one piece without
  (``whole_s``) and as it is by default (``kept_s``), their ``ratio``, and in how many ``batches`` and ``parts``; ``peak_rss_mb``.
- ``backend``, ``device``, ``cpu_model``, ``cores``, ``pinned``, ``versions``, ``date``, ``seconds`` of the whole run.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from experiments._bench_peers import PEERS
from experiments._bench_table import table

FULL = {"points_per_axis": 50, "trials": 100, "horizon": 500, "repeats": 12, "turns": 2, "plays": 2}
QUICK = {"points_per_axis": 16, "trials": 8, "horizon": 40, "repeats": 2, "turns": 1, "plays": 1}
# All rounds and all points of the experiment, but few of its trials: they are run one after the other, so time grows in proportion.
DATA_RATE_FULL = {"points_per_axis": 11, "trials": 8, "horizon": 350, "repeats": 3}
DATA_RATE_QUICK = {"points_per_axis": 5, "trials": 2, "horizon": 20, "repeats": 1}
STUDY_FULL = {
    "points_per_axis": 50,
    "values": 64,
    "trials": 100,
    "many": 10_000,
    "horizon": 1000,
    "few": 8,
    "long": 400_000,
    "repeats": 2,
    "memory_gib": 4,
}
STUDY_QUICK = {
    "points_per_axis": 10,
    "values": 3,
    "trials": 8,
    "many": 20,
    "horizon": 20,
    "few": 2,
    "long": 50,
    "repeats": 1,
    "memory_gib": 4,
}
SHORT_HORIZON = 200
# Too slow for every round of the long horizon: these play the short one, once.
SHORT_ONLY = ("gpy", "botorch")
SINGLE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
# Set by the measurements themselves, or left to their defaults.
DROPPED = ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")
# Every file has these; null where the horizon is another, or where a peer was left out.
RATIOS = (
    "numpy_over_feature_T500",
    *(f"sklearn_over_{form}_T{horizon}" for form in ("feature", "dense", "product") for horizon in (200, 500)),
)


class ChildFailed(RuntimeError):
    """A measurement's process ended with an error."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the benchmark."""
    parser.add_argument("--trials", type=_positive, metavar="N", help="most trials side by side (default 100, quick 8)")
    parser.add_argument("--horizon", type=_positive, metavar="T", help="rounds per trial (default 500, quick 40)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--force", action="store_true", help="replace a file that is there")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works; the figures mean little")
    parser.add_argument("--skip-peers", action="store_true", help="measure the engine only")


def run(args: argparse.Namespace) -> int:
    """Measure, print the table and write the file; returns the exit status, 1 when a measurement failed.

    Raises:
      InvalidArgument: before anything runs, when the file is there already and may not be replaced.
    """
    started = time.perf_counter()
    path = _output(args)
    try:
        sizes = (DATA_RATE_QUICK, STUDY_QUICK) if args.quick else (DATA_RATE_FULL, STUDY_FULL)
        figures = measure(_settings(args), *sizes, peers=not args.skip_peers)
    except ChildFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    figures["seconds"] = time.perf_counter() - started
    print(table(figures))
    if path is not None:
        from jaxbandit.study import write_whole

        text = json.dumps(figures, indent=2, allow_nan=False) + "\n"
        write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
        _progress(f"wrote {path}")
    _progress(f"took {figures['seconds']:.0f} s")
    return 1 if any(peer.get("note") == "failed" for peer in figures["peers"].values()) else 0


def measure(settings: dict[str, Any], data_rate: dict[str, Any], study: dict[str, Any], *, peers: bool = True) -> dict[str, Any]:
    """All figures, as they are written to the file.

    Args:
      settings: ``points_per_axis``, ``counts`` (numbers of trials, ascending), ``horizon``, ``short_horizon``, and how often each
        run is timed (``repeats``), one and two devices take turns (``turns``), and a peer plays its trial (``plays``).
      data_rate: ``points_per_axis``, ``trials``, ``horizon`` and ``repeats`` of the run of ``data-rate``.
      study: ``points_per_axis``, ``values``, ``trials``, ``many``, ``horizon``, ``few``, ``long``, ``repeats`` and ``memory_gib`` of the
        studies.
      peers: whether to time other libraries' loops.

    Raises:
      ChildFailed: when a measurement of the engine fails.
    """
    _progress("looking at the machine")
    machine = _child({"task": "machine"}, pinned=False)
    pinned = machine["backend"] == "cpu"
    _progress("engine")
    engine = _child({"task": "engine", **settings}, pinned=pinned)
    devices = _two_devices(settings) if pinned and _cores() > 1 else None
    rough = _child({"task": "data-rate", **data_rate}, pinned=pinned)
    _progress("studies")
    studies = _child({"task": "study", **study}, pinned=False)
    figures: dict[str, Any] = dict.fromkeys(RATIOS)
    figures |= _engine_figures(settings, engine)
    figures |= _device_figures(devices) | _machine_figures(machine, pinned)
    figures["data_rate"] = _data_rate_figures(data_rate, rough)
    figures["study"] = study | studies
    figures["peers"] = {name: _peer(name, settings, pinned) for name in PEERS} if peers else {}
    for name, peer in figures["peers"].items():
        figures |= _peer_figures(name.replace("-", "_"), peer, figures["own_us"])
        if "version" in peer:
            figures["versions"][name.split("-")[0].removesuffix("32")] = peer["version"]
    return figures


def _engine_figures(settings: dict[str, Any], engine: dict[str, Any]) -> dict[str, Any]:
    most, long, short = (str(x) for x in (settings["counts"][-1], settings["horizon"], settings["short_horizon"]))
    times = {name: by_count[most] for name, by_count in engine["us"].items()}
    own = {form: {short: engine["short_us"][form], long: times[form]} for form in ("features", "product")}
    return {
        **settings,
        "trials": settings["counts"][-1],
        "gemm_us": times["gemm"],
        "feature_us": times["features"],
        "product_us": times["product"],
        "rows_us": times["rows"],
        "feature_over_gemm": times["features"] / times["gemm"],
        "product_over_gemm": times["product"] / times["gemm"],
        "rows_over_gemm": times["rows"] / times["gemm"],
        "rows_matern_us": engine["matern_us"],
        "rows_matern_trials": engine["matern_trials"],
        "compile_s": engine["compile_s"]["features"],
        "compile_seconds": engine["compile_s"],
        "own_us": own,
        **{key: engine[key] for key in ("us", "violation", "peak_rss_mb", "points", "rank", "dtype")},
    }


def _device_figures(devices: dict[str, Any] | None) -> dict[str, Any]:
    def speedup(form: str) -> float | None:
        return None if devices is None else devices["1"][form] / devices["2"][form]

    return {"devices": devices, "two_device_speedup": speedup("features"), "two_device_speedup_product": speedup("product")}


def _data_rate_figures(settings: dict[str, Any], measured: dict[str, Any]) -> dict[str, Any]:
    """What was measured of ``data-rate``, and what it comes to at the experiment's full size.

    Trials run in blocks of a fixed size, one after the other: time grows in proportion, memory by what their results hold. A row of
    the cache costs more the later it comes, so nothing is said when other rounds, or another grid, or less than a block were run.
    """
    from experiments.data_rate import EXPERIMENT

    full = EXPERIMENT.defaults
    seconds = peak = None
    same = (settings["points_per_axis"], settings["horizon"]) == (full.points_per_axis, full.horizon)
    if same and settings["trials"] % measured["trials_per_block"] == 0:
        rounds = full.trials * full.horizon
        seconds = measured["build_s"] + sum(measured["compile_s"].values()) + sum(measured["us"].values()) * rounds / 1e6
        peak = measured["peak_rss_mb"] + measured["trial_mb"] * (full.trials - settings["trials"])
    projected = {"full_trials": full.trials, "full_horizon": full.horizon, "full_seconds": seconds, "full_peak_mb": peak}
    return settings | measured | projected


def _machine_figures(machine: dict[str, Any], pinned: bool) -> dict[str, Any]:
    return {
        "backend": machine["backend"],
        "device": machine["device"],
        "cpu_model": _cpu_model(),
        "cores": _cores(),
        "pinned": pinned and hasattr(os, "sched_setaffinity"),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), "jax": machine["jax"], "numpy": machine["numpy"]},
    }


def _peer_figures(name: str, peer: dict[str, Any], own: dict[str, dict[str, float]]) -> dict[str, Any]:
    """A peer's times and its ratios to the engine, with the number of rounds in each key.

    ``over_feature`` is to the feature form in the faster of its two versions, as users get it; ``over_dense`` and ``over_product`` are
    to each version.
    """
    result: dict[str, Any] = {}
    for mark, value in peer.get("us", {}).items():
        dense, product = own["features"][mark], own["product"][mark]
        result[f"{name}_us_T{mark}"] = value
        result[f"{name}_over_feature_T{mark}"] = value / min(dense, product)
        result[f"{name}_over_dense_T{mark}"] = value / dense
        result[f"{name}_over_product_T{mark}"] = value / product
    return result


def _two_devices(settings: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Best times of the feature forms on one core with one device, and on two cores with a device each."""
    best: dict[str, dict[str, float]] = {"1": {}, "2": {}}
    for _ in range(settings["turns"]):
        for cores in (1, 2):
            _progress(f"{cores} device{'s' if cores > 1 else ''}")
            spec = {"task": "devices", "devices": cores, **settings, "repeats": settings["repeats"] // settings["turns"]}
            times = _child(spec, pinned=True, cores=cores)["us"]
            kept = best[str(cores)]
            best[str(cores)] = {form: min(us, kept.get(form, us)) for form, us in times.items()}
    return best


def _peer(name: str, settings: dict[str, Any], pinned: bool) -> dict[str, Any]:
    """A peer's figures, or ``{"note": why there are none}``; no peer stops the others."""
    slow = name in SHORT_ONLY
    marks = [settings["short_horizon"]] if slow else [settings["short_horizon"], settings["horizon"]]
    _progress(f"{name}, one trial of {marks[-1]} rounds")
    spec = {"task": "peer", "peer": name, "points_per_axis": settings["points_per_axis"], "marks": marks}
    spec["plays"] = 1 if slow else settings["plays"]
    try:
        result = _child(spec, pinned=pinned)
    except ChildFailed as error:
        _progress(str(error))
        return {"note": "failed"}
    return {"note": "not installed"} if "missing" in result else result


def _child(spec: dict[str, Any], *, pinned: bool, cores: int = 1) -> dict[str, Any]:
    """Run a measurement in its own process and return what it prints."""
    # A compilation cache on disk would hide the compile times.
    environment = {name: value for name, value in os.environ.items() if name not in DROPPED}
    environment["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    if pinned:
        spec, environment = spec | {"cores": cores}, environment | SINGLE_THREAD  # JAX has threads of its own, one per core
    command = [sys.executable, "-W", "ignore", "-m", "experiments._bench_child", json.dumps(spec)]
    root = Path(__file__).resolve().parent.parent
    child = subprocess.run(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if child.returncode != 0:
        raise ChildFailed(f"the process that measures {spec.get('peer', spec['task'])!r} ended with status {child.returncode}")
    result: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return result


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    defaults = QUICK if args.quick else FULL
    trials, horizon = args.trials or defaults["trials"], args.horizon or defaults["horizon"]
    return {
        "points_per_axis": defaults["points_per_axis"],
        "counts": [trials] if args.quick else sorted({min(count, trials) for count in (1, 10, trials)}),
        "horizon": horizon,
        "short_horizon": SHORT_HORIZON if horizon > SHORT_HORIZON else max(1, horizon * 2 // 5),
        **{name: defaults[name] for name in ("repeats", "turns", "plays")},
    }


def _output(args: argparse.Namespace) -> Path | None:
    if args.json is None:
        return None
    from jaxbandit.study import prepare_file

    return prepare_file(args.json, force=args.force)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_model() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        models = [line.split(":", 1)[1].strip() for line in information.read_text().splitlines() if line.startswith("model name")]
        if models:
            return models[0]
    return platform.processor() or platform.machine()


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def _progress(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def main() -> int:
    """``python -m experiments.bench``."""
    from jaxbandit import InvalidArgument

    parser = argparse.ArgumentParser(prog="python -m experiments.bench", description=__doc__)
    add_arguments(parser)
    try:
        return run(parser.parse_args())
    except InvalidArgument as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
