"""The benchmark of an accelerator, part by part.

The command is ``python -m experiments bench --device``. It takes at most nine minutes.

Every part runs in a process of its own with a time limit; one that fails or takes too long keeps what it measured before, and the next one
begins.
The file of ``--json`` is written anew after each. Without an accelerator ``--cpu-rehearsal`` plays all of it small, to see that it works.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from experiments.benchmark.child import cpu_model
from experiments.benchmark.measure import start_child
from experiments.benchmark.table import sections
from experiments.common.running import progress

SECONDS_IN_ALL = 530.0
# Sizes of a rehearsal, and in full.
SIZES: dict[str, tuple[Any, Any]] = {
    "points_per_axis": (8, 50),
    "horizon": (10, 1000),
    "trials": ([1, 4], [1, 100, 1000, 10_000]),
    "trial_rounds": (40, 3_000_000),
    "choice_rounds": (20, 200),
    "fused_algorithms": (1, 4),
    "copied": (2**16, 2**28),
    "product_side": (64, 8192),
    "box_trials": ([1], [100, 1000]),
    "box_horizon": (3, 50),
}
REHEARSAL, FULL = ({name: size[n] for name, size in SIZES.items()} for n in range(2))


class Part(NamedTuple):
    """One part of the benchmark of an accelerator.

    It has the function of ``device_parts`` that measures it, its time limit in seconds, and flags for XLA.
    """

    task: str
    limit: float
    flags: str = ""


PARTS = {
    "limits": Part("limits", 60),
    "choices": Part("choices", 90),
    "speed": Part("speed", 180),
    "fused against XLA": Part("fused_rounds", 180),
    "algorithms": Part("algorithms", 150),
    "delays": Part("late", 60),
    "boxes": Part("boxes", 120),
    "delays without CUDA graphs": Part("late", 60, "--xla_gpu_enable_command_buffer="),
    "delays without Triton products": Part("late", 60, "--xla_gpu_enable_triton_gemm=false"),
}


class NoAccelerator(RuntimeError):
    """JAX sees no accelerator."""


def measure_device(rehearsal: bool, written: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Measure every part and return the figures by part.

    ``written`` is called with the figures so far after each part.

    Raises:
      NoAccelerator: when there is none and this is no rehearsal.
    """
    sizes, started = REHEARSAL if rehearsal else FULL, time.monotonic()
    found: dict[str, Any] = {"date": datetime.date.today().isoformat(), "cpu_model": cpu_model(), "rehearsal": rehearsal}
    for name, part in PARTS.items():
        left = SECONDS_IN_ALL - (time.monotonic() - started)
        if part.flags and rehearsal:
            # Flags of the GPU compiler.
            continue
        progress(f"  {name}")
        begun = time.monotonic()
        found[name] = _played(part, sizes, min(part.limit, left), rehearsal) if left > 0 else {"error": "no time left"}
        found[name]["seconds"] = round(time.monotonic() - begun, 1)
        written(found)
        if name == "limits" and not rehearsal and found[name].get("platform") == "cpu":
            raise NoAccelerator("device: JAX sees no accelerator here; --cpu-rehearsal plays the parts small on the CPU")
    return found


def _played(part: Part, sizes: dict[str, Any], limit: float, rehearsal: bool) -> dict[str, Any]:
    """Return one part's figures, or why its process failed."""
    environment = os.environ | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {part.flags}".strip()}
    environment |= {"JAX_PLATFORMS": "cpu"} if rehearsal else {}
    try:
        spec = {"task": "device_parts.part", "part": part.task, **sizes}
        child = start_child(spec, environment, capture_output=True, timeout=limit)
    except subprocess.TimeoutExpired as late:
        printed = bytes(late.stdout or b"").decode()
        return _last_of(printed) | {"error": f"took more than {limit:.0f} s"}
    if child.returncode != 0:
        return _last_of(child.stdout) | {"error": f"status {child.returncode}: {child.stderr.strip()[-600:]}"}
    return _last_of(child.stdout)


def _last_of(printed: str) -> dict[str, Any]:
    """Return the figures of a part's last whole line."""
    lines = [line for line in printed.split("\n")[:-1] if line.startswith("{")]
    figures: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    return figures


def device_table(found: dict[str, Any]) -> str:
    """Return the figures as text, a line for each measurement."""
    limits = found["limits"]
    lines = [f"RPOL-UCB on sine unless said, {limits.get('device', 'device unknown')}, {found['cpu_model']}, {found['date']}"]
    lines += ["a rehearsal on the CPU: its figures mean nothing"] if found["rehearsal"] else []
    return "\n".join([*lines, "", sections({name: found[name] for name in PARTS if name in found})])
