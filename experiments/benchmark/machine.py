"""The machine that the benchmark runs on: its processor, and which of its cores a process may use. Imports neither NumPy nor JAX."""

from __future__ import annotations

import os
import platform
from pathlib import Path

CAN_PIN = hasattr(os, "sched_setaffinity")  # macOS and Windows have no such call


def pin(cores: int) -> None:
    """Keep this process on ``cores`` of the CPU cores that it may use; does nothing where the system has no such call."""
    if CAN_PIN:
        # The last ones: the first core is where a system puts its own work.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])


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
