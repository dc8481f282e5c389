"""The benchmark of accelerators, rehearsed on the CPU."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit
from experiments.__main__ import main
from experiments.benchmark import command, device, device_parts, measure
from experiments.benchmark.device import Part

TINY = {**device.REHEARSAL, "points_per_axis": 5, "choice_rounds": 8}


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
        without_jax = {"task": "nothing.part"} if spec["part"] == "nothing" else {}  # a process that fails need not load JAX first
        return measure.start_child(spec | without_jax, *arguments, **options)

    monkeypatch.setattr(device, "start_child", started)
    monkeypatch.setattr(device, "REHEARSAL", TINY)
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
    found = dict(device_parts.choices(TINY))
    assert len(found) == 3
    for form in found:
        assert found[form]["largest_gap"] < 1e-5 and found[form]["same_as_cpu"] == found[form]["trials_alike"] == 1
    problem = device_parts._problem(TINY)
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
