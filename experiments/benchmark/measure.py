"""All measurements of the benchmark, each in a process of its own, one after the other."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from experiments.benchmark.figures import RATIOS, data_rate_figures, device_figures, engine_figures, machine_figures, peer_figures
from experiments.benchmark.machine import cores
from experiments.benchmark.peers import PEERS
from experiments.common.running import progress
from jaxbandit.study import end_with_parent

# Too slow for every round of the long horizon: these play the short one, once.
SHORT_ONLY = ("gpy", "botorch")
SINGLE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
# Set by the measurements themselves, or left to their defaults.
DROPPED = ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")


class ChildFailed(RuntimeError):
    """The process of a measurement ended with an error."""


def measure(
    settings: dict[str, Any],
    data_rate: dict[str, Any],
    study: dict[str, Any],
    accuracy: dict[str, Any],
    session: dict[str, Any],
    tuning: dict[str, Any],
    *,
    cluster: dict[str, Any],
    peers: bool = True,
) -> dict[str, Any]:
    """Measure everything and return all figures, as they are written to the file.

    Args:
      settings: ``points_per_axis``, ``counts`` (numbers of trials, ascending), ``horizon``, ``short_horizon``, and how often each
        run is timed (``repeats``), one and two devices take turns (``turns``), and a peer plays its trial (``plays``).
      data_rate: ``points_per_axis``, ``trials``, ``horizon`` and ``repeats`` of the run of ``data-rate``.
      study: ``points_per_axis``, ``values``, ``trials``, ``many``, ``horizon``, ``few``, ``long``, ``repeats`` and ``memory_gib`` of the
        studies.
      accuracy: ``points_per_axis`` and ``horizon`` of the comparison with a dense solve.
      session: ``points_per_axis`` and ``tickets`` of the session, and ``ax_trials`` of Ax beside it.
      tuning: ``settings``, ``descents``, ``points_per_axis``, ``horizon``, ``keys``, ``wide_keys``, ``fits``, ``fit_points``,
        ``precisions``, ``refits`` and ``repeats`` of gradients and fits.
      cluster: ``tasks`` without work, ``points_per_axis``, ``trials``, ``horizon`` and ``repeats`` of a study, and ``dask``, the cluster.
      peers: whether to time other libraries' loops.

    Raises:
      ChildFailed: when a measurement of the engine fails.
    """
    progress("  looking at the machine")
    machine = _child({"task": "machine"}, pinned=False)
    pinned = machine["backend"] == "cpu"
    progress("  engine")
    engine = _child({"task": "engine", **settings}, pinned=pinned)
    devices = _two_devices(settings, engine) if pinned and cores() > 1 else None
    rough = _child({"task": "data-rate", **data_rate}, pinned=pinned)
    progress("  accuracy")
    exact = _child({"task": "accuracy", **accuracy}, pinned=pinned)
    progress("  session")
    asked = _child({"task": "session", **session}, pinned=pinned)
    progress("  gradients and fits")
    tuned = _child({"task": "tuning", **tuning}, pinned=pinned)
    progress("  studies")
    studies = _child({"task": "study", **study}, pinned=False)
    progress("  workers")
    installed = importlib.util.find_spec("distributed") is not None
    shared = _child({"task": "cluster", **cluster}, pinned=False) if installed else {"note": "not installed"}
    figures: dict[str, Any] = dict.fromkeys(RATIOS)
    figures |= engine_figures(settings, engine)
    figures |= device_figures(devices) | machine_figures(machine, pinned)
    figures["data_rate"] = data_rate_figures(data_rate, rough)
    figures["study"] = study | studies
    figures["accuracy"] = accuracy | exact
    figures["session"] = session | asked
    figures["tuning"] = tuning | tuned
    figures["cluster"] = cluster | shared
    figures["peers"] = {name: _peer(name, settings, pinned) for name in PEERS} if peers else {}
    for name, peer in figures["peers"].items():
        figures |= peer_figures(name.replace("-", "_"), peer, figures["own_us"])
        if "version" in peer:
            figures["versions"][name.split("-")[0].removesuffix("32")] = peer["version"]
    return figures


def _two_devices(settings: dict[str, Any], engine: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return the best times of the feature forms on one core with one device, and on two cores with a device each.

    Where they take one turn only, those on one core are the ``engine``'s.
    """
    turns, most = settings["turns"], str(settings["counts"][-1])
    own = {form: by_count[most] for form, by_count in engine["us"].items() if form in ("features", "product")}
    best: dict[str, dict[str, float]] = {"1": own if turns == 1 else {}, "2": {}}
    for _ in range(turns):
        for number in (1, 2) if turns > 1 else (2,):
            progress(f"  {number} device{'s' if number > 1 else ''}")
            spec = {"task": "devices", "devices": number, **settings, "repeats": settings["repeats"] // settings["turns"]}
            times = _child(spec, pinned=True, cores=number)["us"]
            kept = best[str(number)]
            best[str(number)] = {form: min(us, kept.get(form, us)) for form, us in times.items()}
    return best


def _peer(name: str, settings: dict[str, Any], pinned: bool) -> dict[str, Any]:
    """Return a peer's figures, or ``{"note": why there are none}``; no peer stops the others."""
    slow = name in SHORT_ONLY
    marks = [settings["short_horizon"]] if slow else [settings["short_horizon"], settings["horizon"]]
    progress(f"  {name}, one trial of {marks[-1]} rounds")
    spec = {"task": "peer", "peer": name, "points_per_axis": settings["points_per_axis"], "marks": marks}
    spec["plays"] = 1 if slow else settings["plays"]
    try:
        result = _child(spec, pinned=pinned)
    except ChildFailed as error:
        progress(f"  {error}")
        return {"note": "failed"}
    return {"note": "not installed"} if "missing" in result else result


def _child(spec: dict[str, Any], *, pinned: bool, cores: int = 1) -> dict[str, Any]:
    """Run a measurement in its own process and return what it prints."""
    # A compilation cache on disk would hide the compile times.
    environment = {name: value for name, value in os.environ.items() if name not in DROPPED}
    environment["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    if pinned:
        spec, environment = spec | {"cores": cores}, environment | SINGLE_THREAD  # JAX has threads of its own, one per core
    command = [sys.executable, "-W", "ignore", "-m", "experiments.benchmark.child", json.dumps(spec)]
    root = Path(__file__).resolve().parents[2]
    child = subprocess.run(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True, check=False, preexec_fn=end_with_parent)
    if child.returncode != 0:
        raise ChildFailed(f"the process that measures {spec.get('peer', spec['task'])!r} ended with status {child.returncode}")
    result: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return result
