"""One measurement of the benchmark in a process of its own: ``python -m experiments.benchmark.child SPEC`` prints one line of JSON.

``SPEC`` is JSON: ``task`` names the measurement, ``cores`` how many CPU cores it may use (absent: all), the rest is the task's.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from experiments.benchmark.machine import pin


def measure(spec: dict[str, Any]) -> dict[str, Any]:
    """Run the measurement that ``spec`` names and return its figures."""
    if "cores" in spec:
        pin(spec["cores"])
    # Imported only now, because thread pools are sized when NumPy and JAX start.
    if spec["task"] == "peer":
        from experiments.benchmark.peers import measure_peer

        return measure_peer(spec)
    if spec["task"] == "device":
        from experiments.benchmark import device_parts

        result: dict[str, Any] = getattr(device_parts, spec["part"])(spec["sizes"])
        return result
    from experiments.benchmark import accuracy, cluster, engine, session, study, tuning

    tasks = {
        "engine": engine.measure_engine,
        "devices": engine.measure_devices,
        "data-rate": engine.measure_data_rate,
        "study": study.measure_study,
        "cluster": cluster.measure_cluster,
        "accuracy": accuracy.measure_accuracy,
        "session": session.measure_session,
        "tuning": tuning.measure_tuning,
        "machine": engine.describe_machine,
    }
    return tasks[spec["task"]](spec)


if __name__ == "__main__":  # not so in workers, which load this file again
    print("\n" + json.dumps(measure(json.loads(sys.argv[1]))))
