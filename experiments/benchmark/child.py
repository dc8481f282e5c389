"""One measurement of the benchmark in a process of its own: ``python -m experiments._bench_child SPEC`` prints one line of JSON.

``SPEC`` is JSON: ``task`` names the measurement, ``cores`` how many CPU cores it may use (absent: all), the rest is the task's.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def pin(cores: int) -> None:
    """Keep this process on ``cores`` of the CPU cores it may use; does nothing where the system has no such call."""
    if hasattr(os, "sched_setaffinity"):
        # The last ones: the first core is where a system puts its own work.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])


def measure(spec: dict[str, Any]) -> dict[str, Any]:
    """Run the measurement that ``spec`` names."""
    if "cores" in spec:
        pin(spec["cores"])
    # Imported only now, because thread pools are sized when NumPy and JAX start.
    if spec["task"] == "peer":
        from experiments._bench_peers import measure_peer

        return measure_peer(spec)
    from experiments import _bench_engine as engine
    from experiments import _bench_study as study

    tasks = {
        "engine": engine.measure_engine,
        "devices": engine.measure_devices,
        "data-rate": engine.measure_data_rate,
        "study": study.measure_study,
        "machine": engine.describe_machine,
    }
    return tasks[spec["task"]](spec)


if __name__ == "__main__":
    print("\n" + json.dumps(measure(json.loads(sys.argv[1]))))
