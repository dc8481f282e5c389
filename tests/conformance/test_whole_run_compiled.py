"""Whole runs compile for an H100 and a TPU v5e by the vendors' compilers, without a device. Skipped where those are not installed."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys

import pytest

from tests.support.compiled_whole_runs import ENVIRONMENT
from tests.support.paths import ROOT

NEEDED = {"gpu": ("jax_cuda12_plugin", "absl"), "tpu": ("libtpu",)}  # of packages


@pytest.mark.parametrize("platform", ["gpu", "tpu"])
def test_whole_runs_compile(platform: str) -> None:
    absent = [package for package in NEEDED[platform] if importlib.util.find_spec(package) is None]
    if absent:
        pytest.skip(f"not installed: {', '.join(absent)}")
    command = [sys.executable, "-m", "tests.support.compiled_whole_runs", platform]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | ENVIRONMENT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(said) == 4 and [program["rank"] for program in said] == [160, 160, 160, 155]
    assert max(program["temporary"] for program in said) < 4 * 2**20, said  # the state of no trial is in the device's memory
    if platform == "gpu":
        assert re.findall(r"(\d+) bytes spill", done.stdout) == ["0", "0"] * 4, done.stdout
        assert all(int(used) <= 255 for used in re.findall(r"Used (\d+) registers", done.stdout))
