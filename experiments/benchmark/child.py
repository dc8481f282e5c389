"""One measurement of the benchmark in a process of its own.

``python -m experiments.benchmark.child SPEC`` prints one line of JSON.

``SPEC`` is JSON: ``task`` names the measurement as a module and its function, ``cores`` how many CPU cores it may use (absent: all), and
the rest is the task's. Imports neither NumPy nor JAX, whose thread pools are sized when they start.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

# MacOS and Windows have no such call.
CAN_PIN = hasattr(os, "sched_setaffinity")


def measure(spec: dict[str, Any]) -> dict[str, Any]:
    """Run the measurement that ``spec`` names and return its figures."""
    # Use the last cores, because a system puts its own work on the first.
    if "cores" in spec and CAN_PIN:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-spec["cores"] :])
    module, name = spec["task"].split(".")
    figures: dict[str, Any] = getattr(importlib.import_module(f"experiments.benchmark.{module}"), name)(spec)
    return figures


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if CAN_PIN else os.cpu_count() or 1


def cpu_model() -> str:
    """Return the name of the processor."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        models = [line.split(":", 1)[1].strip() for line in information.read_text().splitlines() if line.startswith("model name")]
        if models:
            return models[0]
    return platform.processor() or platform.machine()


# Workers load this file again, and must not run this.
if __name__ == "__main__":
    print("\n" + json.dumps(measure(json.loads(sys.argv[1]))))
