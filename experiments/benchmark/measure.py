"""All measurements of the benchmark, and their figures.

Each runs in a process of its own, one after the other.
"""

from __future__ import annotations

import ctypes
import datetime
import importlib.util
import json
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from experiments.benchmark.child import CAN_PIN, cores, cpu_model
from experiments.benchmark.peers import PEERS
from experiments.common.running import progress

SINGLE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
# Set by the measurements themselves, or left to their defaults.
DROPPED = ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")
# Every file has these; null where the horizon is another, or where a peer was left out.
RATIOS = (
    "numpy_over_feature_T500",
    *(f"sklearn_over_{form}_T{horizon}" for form in ("feature", "dense", "product") for horizon in (200, 500)),
)


class ChildFailed(RuntimeError):
    """The process of a measurement ended with an error."""


def measure(sizes: dict[str, dict[str, Any]], *, peers: bool = True) -> dict[str, Any]:
    """Measure everything and return all figures.

    They are those of the file.

    Args:
      sizes: what each measurement is given, by its name, see ``command.SIZES``.
      peers: whether to time other libraries' loops.

    Raises:
      ChildFailed: when a measurement of the engine fails.
    """
    progress("  looking at the machine")
    machine = run_child({"task": "engine.describe_machine"}, pinned=False)
    pinned, settings = machine["backend"] == "cpu", sizes["engine"]

    def part(name: str, task: str, pinned: bool = pinned) -> dict[str, Any]:
        progress(f"  {name}")
        return run_child({"task": task, **sizes[name]}, pinned=pinned)

    engine = part("engine", "engine.measure_engine")
    figures: dict[str, Any] = dict.fromkeys(RATIOS) | engine_figures(settings, engine)
    figures |= device_figures(_two_devices(settings, engine) if pinned and cores() > 1 else None)
    figures |= {name: machine[name] for name in ("backend", "device")}
    figures |= {"cpu_model": cpu_model(), "cores": cores(), "pinned": pinned and CAN_PIN}
    figures["date"] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    figures["versions"] = {"python": platform.python_version(), "jax": machine["jax"], "numpy": machine["numpy"]}
    for name in ("accuracy", "late", "boxes", "data_rate", "session", "tuning"):
        figures[name] = sizes[name] | part(name, f"{name}.measure_{name}")
    figures["study"] = sizes["study"] | part("study", "study.measure_study", pinned=False)
    with_dask = importlib.util.find_spec("distributed") is not None
    workers = part("cluster", "cluster.measure_cluster", pinned=False) if with_dask else {"note": "not installed"}
    figures["cluster"] = sizes["cluster"] | workers
    figures["peers"] = {name: _peer(name, settings, pinned) for name in PEERS} if peers else {}
    for name, peer in figures["peers"].items():
        figures |= peer_figures(name.replace("-", "_"), peer, figures["own_us"])
        if "version" in peer:
            figures["versions"][name.split("-")[0].removesuffix("32")] = peer["version"]
    return figures


def engine_figures(settings: dict[str, Any], engine: dict[str, Any]) -> dict[str, Any]:
    """Return the settings, and times, ratios, memory and violation of every form."""
    most, long, short = (str(x) for x in (settings["counts"][-1], settings["horizon"], settings["short_horizon"]))
    times = {name.replace("features", "feature"): by_count[most] for name, by_count in engine["us"].items()}
    own = {form: {short: engine["short_us"][form], long: engine["us"][form][most]} for form in ("features", "product")}
    return {
        **settings,
        **{name: value for name, value in engine.items() if name != "short_us"},
        **{f"{name}_us": us for name, us in times.items()},
        **{f"{name}_over_gemm": us / times["gemm"] for name, us in times.items() if name != "gemm"},
        "trials": settings["counts"][-1],
        "compile_s": engine["compile_seconds"]["features"],
        "own_us": own,
    }


def device_figures(devices: dict[str, Any] | None) -> dict[str, Any]:
    """Return times on one and two devices, with ratios or null."""
    names = {"two_device_speedup": "features", "two_device_speedup_product": "product"}
    speedups = {name: None if devices is None else devices["1"][form] / devices["2"][form] for name, form in names.items()}
    return {"devices": devices, **speedups}


def peer_figures(name: str, peer: dict[str, Any], own: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Return a peer's times and its ratios to the engine.

    Each key has the number of rounds. ``over_feature`` is to the feature form in the faster of its two versions, as users get it;
    ``over_dense`` and ``over_product`` are to each version.
    """
    figures: dict[str, Any] = {}
    for mark, us in peer.get("us", {}).items():
        dense, product = own["features"][mark], own["product"][mark]
        figures[f"{name}_us_T{mark}"] = us
        beside = {"feature": min(dense, product), "dense": dense, "product": product}
        figures |= {f"{name}_over_{form}_T{mark}": us / ours for form, ours in beside.items()}
    return figures


def _two_devices(settings: dict[str, Any], engine: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return the best times of the feature forms.

    They are on one core with one device, and on two cores with a device each. Where they take one turn only, those on one core are the
    ``engine``'s.
    """
    turns, most = settings["turns"], str(settings["counts"][-1])
    own = {form: engine["us"][form][most] for form in ("features", "product")}
    best: dict[str, dict[str, float]] = {"1": own if turns == 1 else {}, "2": {}}
    for _ in range(turns):
        for number in (1, 2) if turns > 1 else (2,):
            progress(f"  {number} device{'s' if number > 1 else ''}")
            spec = {"task": "engine.measure_devices", "devices": number, **settings, "repeats": settings["repeats"] // settings["turns"]}
            times, before = run_child(spec, pinned=True, cores=number)["us"], best[str(number)]
            best[str(number)] = {form: min(us, before.get(form, us)) for form, us in times.items()}
    return best


def _peer(name: str, settings: dict[str, Any], pinned: bool) -> dict[str, Any]:
    """Return a peer's figures, or ``{"note": reason}`` for a peer that failed."""
    progress(f"  {name}, one trial of {settings['horizon']} rounds")
    spec = {"task": "peers.measure_peer", "peer": name, "marks": [settings["short_horizon"], settings["horizon"]]}
    try:
        result = run_child(spec | {part: settings[part] for part in ("points_per_axis", "plays")}, pinned=pinned)
    except ChildFailed as error:
        progress(f"  {error}")
        return {"note": "failed"}
    return {"note": "not installed"} if "missing" in result else result


def run_child(spec: dict[str, Any], *, pinned: bool, cores: int = 1) -> dict[str, Any]:
    """Run a measurement in its own process and return what it prints."""
    environment = {name: value for name, value in os.environ.items() if name not in DROPPED}
    if pinned:
        # JAX has threads of its own, one per core.
        spec, environment = spec | {"cores": cores}, environment | SINGLE_THREAD
    child = start_child(spec, environment, stdout=subprocess.PIPE)
    if child.returncode != 0:
        raise ChildFailed(f"the process that measures {spec.get('peer', spec['task'])!r} ended with status {child.returncode}")
    return figures_of(child)


def start_child(spec: dict[str, Any], environment: dict[str, str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a measurement's process, without a cache that would hide compile times."""
    command = [sys.executable, "-W", "ignore", "-m", "experiments.benchmark.child", json.dumps(spec)]
    environment = environment | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    root = Path(__file__).resolve().parents[2]
    return subprocess.run(command, cwd=root, env=environment, text=True, check=False, preexec_fn=end_with_parent, **options)


def end_with_parent() -> None:
    """Ask Linux to kill this process with its parent, as ``preexec_fn``."""
    if sys.platform == "linux":
        # The number 1 is PR_SET_PDEATHSIG.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def figures_of(child: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return what a measurement has printed."""
    figures: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return figures
