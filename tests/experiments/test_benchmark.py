"""The benchmark's file, plan and rehearsal on the CPU."""

import inspect
import json
import re
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit
from experiments import benchmark
from experiments.__main__ import main, parser
from experiments.benchmark import child, cluster, command, device, device_parts, measure, study
from experiments.benchmark.device import Part

TINY = {
    "engine": {"points_per_axis": 5, "repeats": 1},
    "study": {"points_per_axis": 5, "values": 1, "trials": 2, "many": 2, "horizon": 2, "few": 2, "long": 2},
    "accuracy": {"points_per_axis": 5, "horizon": 12},
    "late": {"points_per_axis": 5, "trials": 2, "horizon": 2},
    "boxes": {"horizon": 2, "rival_horizon": 1},
    "session": {"points_per_axis": 5, "tickets": 3},
    "tuning": {"horizon": 2, "refits": True},
    "cluster": {"points_per_axis": 5, "trials": 2, "horizon": 2},
}


# It needs devices of its own.
APART = ("engine.measure_devices",)


def most_here(own_process, spec, *, pinned, cores=1):
    """Measure in this process, except where new devices are needed."""
    if spec["task"] in APART:
        return own_process(spec, pinned=pinned, cores=cores)
    with pytest.MonkeyPatch.context() as patch:
        if spec["task"] == "study.measure_study":
            patch.setattr(jax.config, "update", lambda name, value: None)
        return child.measure(spec)


@pytest.mark.full
def test_every_key_of_the_file_is_documented(tmp_path, monkeypatch, capsys):
    """Sizes are tiny, so that most measurements share programs.

    On a box random points are played, by a small program; the learner need only be made.
    """
    from distributed import LocalCluster

    for part, sizes in TINY.items():
        for name, size in sizes.items():
            monkeypatch.setitem(command.QUICK[part], name, size)
    monkeypatch.setattr(measure, "DROPPED", ("JAX_NUM_CPU_DEVICES",))
    for part in (cluster, study):
        # This process has started its devices.
        monkeypatch.setattr(part, "use_all_cores", lambda: None)
    monkeypatch.setattr(cluster, "WARMING", 2)
    cei, refitted = jaxbandit.Cei, jaxbandit.Refitted
    monkeypatch.setattr(jaxbandit, "Cei", lambda: cei() and jaxbandit.RandomSearch())
    monkeypatch.setattr(jaxbandit, "Refitted", lambda **given: refitted(**given).algorithm)
    monkeypatch.setattr(measure, "run_child", partial(most_here, measure.run_child))
    file, options = tmp_path / "figures.json", {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(processes=False, **options) as own:
        where = ["--dask", own.scheduler_address, "--json", str(file)]
        assert main(["bench", "--quick", "--skip-peers", "--trials", "2", "--horizon", "1", *where]) == 0
    printed, figures = capsys.readouterr().out, json.loads(file.read_text())
    documented = set(re.findall("``([a-z0-9_]+)``", benchmark.__doc__))
    # A peer's keys contain its name and the number of rounds.
    keys = {key for key in figures if not re.search(r"_T\d+$", key)}
    assert keys <= documented
    assert set(figures["cluster"]) <= documented and figures["cluster"]["tasks_a_second"] > 0
    studies = figures["study"]
    assert set(studies) | set(studies["us"]) <= documented
    assert (
        studies["model_sweep_over_sweep"] == studies["us"]["model_sweep"] / studies["us"]["sweep"] and studies["model_sweep_limit"] == 1.1
    )
    asked = figures["session"]
    assert set(asked) <= documented and asked["events"] == 1 + 2 * asked["tickets"] and "ask_tell_ms" in printed
    assert 0 < asked["ask_tell_ms"] <= asked["ask_tell_worst_ms"] and asked["open_s"] > 0
    tuned = figures["tuning"]
    assert set(tuned) <= documented
    assert tuned["gradient_over_plain"] > 0 and len(tuned["gradient_mb"]) == 2 and tuned["refitted_round_us"] > 0
    late = figures["late"]
    assert set(late) | {key for policy in late["policies"].values() for key in policy} <= documented
    assert late["policies"]["none"]["work_over_none"] == 1 < late["policies"]["censor"]["work_over_none"] and "over_none" in printed
    boxes = figures["boxes"]
    assert set(boxes) | set(boxes["us"]) <= documented and boxes["us"]["fixed"] > 0 and boxes["us"]["fitted"] > 0
    levels = figures["accuracy"]["levels"]
    assert {key for level in levels.values() for key in level} <= documented
    assert all(0 < level["mean_error"] <= 0.1 and 0 < level["sd_error"] <= 0.1 for level in levels.values())
    assert {level["precision"] for level in levels.values()} == {"float32", "float64"} and "mean_error" in printed


def test_sizes_of_the_usual_the_full_and_the_quick_benchmark(capsys):
    for name, sizes in command.USUAL.items():
        for size, number in sizes.items():
            assert command.QUICK[name][size] <= number <= command.FULL[name][size], (name, size)
    assert command._sizes(parser().parse_args(["bench"]))["cluster"]["dask"] == "local", "workers are processes"
    assert main(["bench", "--full", "--quick"]) == 2
    assert "error: --full: everything at full size, but --quick asks for small sizes" in capsys.readouterr().err


def test_measurements_end_when_the_benchmark_is_ended(monkeypatch):
    """However it ends: what it starts asks the operating system for that."""
    asked = []

    def run(command, **options):
        asked.append(options["preexec_fn"])
        return subprocess.CompletedProcess(command, 0, stdout="{}\n", stderr="")

    monkeypatch.setattr(subprocess, "run", run)
    assert measure.run_child({"task": "engine.describe_machine"}, pinned=False) == {}
    assert device._played(next(iter(device.PARTS.values())), device.REHEARSAL, 1.0, True) == {}
    assert asked == 2 * [measure.end_with_parent]


@pytest.mark.parametrize(
    ("printed", "status", "kept"),
    [
        ("\n{}\n", 0, {}),
        ('\n{"a": 1}\n\n{"a": 1, "b": 2}\n\n{"a": 1, "b"', 1, {"a": 1, "b": 2}),
        ("", 1, {}),
        ('{"a": 1}\n{"a', None, {"a": 1}),
    ],
)
def test_a_part_that_fails_or_takes_too_long_keeps_what_it_has_measured(monkeypatch, printed: str, status: int | None, kept: dict) -> None:
    def run(command, **options):
        if status is None:
            raise subprocess.TimeoutExpired(command, options["timeout"], output=printed.encode())
        return subprocess.CompletedProcess(command, status, stdout=printed, stderr="why")

    monkeypatch.setattr(subprocess, "run", run)
    found = device._played(device.Part("limits", 60), device.REHEARSAL, 7.0, True)
    assert found.pop("error", None) == {0: None, 1: "status 1: why", None: "took more than 7 s"}[status]
    assert found == kept


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's end")
def test_a_process_ends_with_its_parent(tmp_path):
    parent = f"""
import ctypes, signal, subprocess, sys
{inspect.getsource(measure.end_with_parent)}
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


DEVICE_TINY = {**device.REHEARSAL, "points_per_axis": 5, "choice_rounds": 8}


def test_every_part_has_its_measurement_and_all_end_in_nine_minutes() -> None:
    assert all(callable(getattr(device_parts, part.task)) for part in device.PARTS.values())
    assert device.SECONDS_IN_ALL <= 540


@pytest.mark.full
def test_a_part_that_fails_or_takes_too_long_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = {"limits": Part("limits", 120), "slow": Part("speed", 0.05), "broken": Part("nothing", 120)}
    for module in (device, command):
        monkeypatch.setattr(module, "PARTS", parts)

    def started(spec: dict[str, Any], *arguments: Any, **options: Any) -> Any:
        # A process that fails need not load JAX first.
        without_jax = {"task": "nothing.part"} if spec["part"] == "nothing" else {}
        return measure.start_child(spec | without_jax, *arguments, **options)

    monkeypatch.setattr(device, "start_child", started)
    monkeypatch.setattr(device, "REHEARSAL", DEVICE_TINY)
    file = tmp_path / "device.json"
    assert main(["bench", "--device", "--cpu-rehearsal", "--json", str(file)]) == 1
    printed, figures = capsys.readouterr().out, json.loads(file.read_text())
    assert figures["limits"]["copy_gb_per_s"] > 0 and figures["limits"]["launch_us"] != 0
    assert figures["slow"]["error"] == "took more than 0 s" and re.search("^status 1: (.|\n)*nothing", figures["broken"]["error"])
    assert "a rehearsal on the CPU: its figures mean nothing" in printed and "took more than" in printed


def test_without_an_accelerator_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(device, "_played", lambda *arguments: {"platform": "cpu"})
    assert main(["bench", "--device"]) == 2
    assert "JAX sees no accelerator here; --cpu-rehearsal" in capsys.readouterr().err


@pytest.mark.full
def test_choices_are_compared_with_a_dense_reference() -> None:
    found = dict(device_parts.choices(DEVICE_TINY))
    assert len(found) == 3
    for form in found:
        assert found[form]["largest_gap"] < 1e-5 and found[form]["same_as_cpu"] == found[form]["trials_alike"] == 1
    problem = device_parts._problem(DEVICE_TINY)
    run = jaxbandit.simulate(
        problem,
        jaxbandit.Rpol(),
        device_parts._model(problem, "product"),
        horizon=8,
        trials=4,
        key=jax.random.key(0),
        devices=jax.devices(),
    )
    wrong = jaxbandit.replace(run, indices=(np.asarray(run.indices) + 7) % 25)
    assert device_parts._largest_gap(problem, wrong, 0) > 0.1
