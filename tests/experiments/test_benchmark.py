"""The benchmark: what it writes is what it documents, and what it makes of a short measurement."""

import json
import re
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from experiments import benchmark
from experiments.__main__ import main
from experiments.benchmark import child, command, device, measure
from experiments.benchmark.figures import data_rate_figures
from jaxbandit.study import end_with_parent

MEASURED = {
    "us": {"one": 200.0, "other": 300.0},
    "compile_s": {"one": 2.0, "other": 3.0},
    "build_s": 1.0,
    "built_mb": 300.0,
    "peak_rss_mb": 500.0,
    "trial_mb": 0.5,
    "trials_per_block": 1,
    "points": 14_641,
    "rank": 448,
}
SETTINGS = {"points_per_axis": 11, "trials": 4, "horizon": 350, "repeats": 1}


def test_full_size_is_in_proportion_to_the_trials():
    figures = data_rate_figures(SETTINGS, MEASURED)
    assert (figures["full_trials"], figures["full_horizon"]) == (100, 350)
    assert figures["full_seconds"] == pytest.approx(1 + 5 + 500e-6 * 35_000)
    assert figures["full_peak_mb"] == pytest.approx(500 + 96 * 0.5)
    assert figures | SETTINGS | MEASURED == figures


@pytest.mark.parametrize("changed", [{"points_per_axis": 10}, {"horizon": 349}, {"trials_per_block": 8}])
def test_nothing_is_said_of_full_size_from_what_does_not_scale(changed):
    settings = SETTINGS | {k: v for k, v in changed.items() if k in SETTINGS}
    figures = data_rate_figures(settings, MEASURED | {k: v for k, v in changed.items() if k in MEASURED})
    assert figures["full_seconds"] is None and figures["full_peak_mb"] is None


TINY = {
    "engine": {"points_per_axis": 5, "repeats": 1},
    "study": {"points_per_axis": 5, "values": 2, "trials": 2, "many": 2, "horizon": 2, "few": 2, "long": 2},
    "data-rate": {"trials": 2, "horizon": 2},
    "accuracy": {"points_per_axis": 5, "horizon": 12},
    "session": {"points_per_axis": 5, "tickets": 3},
    "tuning": {"horizon": 2, "refits": True},
    "cluster": {"points_per_axis": 5, "trials": 2, "horizon": 2},
}


def most_here(own_process, spec, *, pinned, cores=1):
    """Measure in a process of its own what needs devices of its own, and all else in this one, which has started already."""
    return own_process(spec, pinned=pinned, cores=cores) if spec["task"] in ("devices", "study", "cluster") else child.measure(spec)


@pytest.mark.full
def test_every_key_of_the_file_is_documented(tmp_path, monkeypatch, capsys):
    """At sizes at which the figures mean nothing: most measurements share their programs, and processes compile quickly."""
    for part, sizes in TINY.items():
        for name, size in sizes.items():
            monkeypatch.setitem(command.QUICK[part], name, size)
    monkeypatch.setattr(measure, "DROPPED", ("JAX_NUM_CPU_DEVICES",))
    monkeypatch.setattr(measure, "_child", partial(most_here, measure._child))
    file = tmp_path / "figures.json"
    assert main(["bench", "--quick", "--skip-peers", "--trials", "2", "--horizon", "1", "--json", str(file)]) == 0
    printed, figures = capsys.readouterr().out, json.loads(file.read_text())
    documented = set(re.findall("``([a-z0-9_]+)``", benchmark.__doc__))
    keys = {key for key in figures if not re.search(r"_T\d+$", key)}  # a peer's have its name and the number of rounds in them
    assert keys <= documented
    assert set(figures["cluster"]) <= documented and figures["cluster"]["tasks_a_second"] > 0
    studies = figures["study"]
    assert set(studies) | set(studies["us"]) <= documented
    assert (
        studies["model_sweep_over_sweep"] == studies["us"]["model_sweep"] / studies["us"]["sweep"] and studies["model_sweep_limit"] == 1.1
    )
    rough = figures["data_rate"]
    assert set(rough) <= documented
    assert rough["points"] == 5**4 and rough["peak_rss_mb"] >= rough["built_mb"] > 0
    assert all(us > 0 for us in rough["us"].values()) and len(rough["us"]) == 2
    assert "data-rate, 5^4 = 625 points" in printed and "not estimated" in printed
    asked = figures["session"]
    assert set(asked) <= documented and asked["events"] == 1 + 2 * asked["tickets"] and "ask and tell:" in printed
    assert 0 < asked["ask_tell_ms"] <= asked["ask_tell_worst_ms"] and asked["open_s"] > 0
    tuned = figures["tuning"]
    assert set(tuned) | {key for found in tuned["gradients"].values() for key in found} <= documented
    assert [found["parameters"] for found in tuned["gradients"].values()] == [4] and "smoothed gradients" in printed
    assert all(-1 <= found["cosine"] <= 1 and 0 <= found["coverage"] <= 1 for found in tuned["gradients"].values())
    assert tuned["gradient_over_plain"] > 0 and len(tuned["gradient_mb"]) == 2 and tuned["refitted_round_us"] > 0
    levels = figures["accuracy"]["levels"]
    assert {key for level in levels.values() for key in level} <= documented
    assert all(0 < level["mean_error"] <= 0.1 and 0 < level["sd_error"] <= 0.1 for level in levels.values())
    assert {level["precision"] for level in levels.values()} == {"float32", "float64"} and "in sd" in printed


def test_sizes_of_the_usual_the_full_and_the_quick_benchmark(capsys):
    assert {name: set(sizes) for name, sizes in command.USUAL.items()} == {name: set(sizes) for name, sizes in command.FULL.items()}
    for name, sizes in command.USUAL.items():
        for size, number in sizes.items():
            assert command.QUICK[name][size] <= number <= command.FULL[name][size], (name, size)
    assert main(["bench", "--full", "--quick"]) == 2
    assert "error: --full: everything at full size, but --quick asks for small sizes" in capsys.readouterr().err


def test_measurements_end_when_the_benchmark_is_ended(monkeypatch):
    """However it ends: what it starts asks the operating system for that."""
    asked = []

    def run(command, **options):
        asked.append(options["preexec_fn"])
        return subprocess.CompletedProcess(command, 0, stdout="{}\n", stderr="")

    monkeypatch.setattr(subprocess, "run", run)
    assert measure._child({"task": "machine"}, pinned=False) == {}
    assert device._played(next(iter(device.PARTS.values())), device.REHEARSAL, 1.0, True) == {}
    assert asked == [end_with_parent, end_with_parent]


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's end")
def test_a_process_ends_with_its_parent(tmp_path):
    parent = f"""
import subprocess, sys
from jaxbandit.study import end_with_parent
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], preexec_fn=end_with_parent)
open({str(tmp_path / "child")!r}, "w").write(str(child.pid))
print("started", flush=True)
child.wait()
"""
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout.readline() == "started\n"
        child = Path("/proc") / (tmp_path / "child").read_text()
        assert child.exists()
        started.kill()
    for _ in range(100):
        if not child.exists() or "Z" in (child / "stat").read_text().split()[2]:
            return
        time.sleep(0.05)
    raise AssertionError("it goes on")
