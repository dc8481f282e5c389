"""Whole runs compile for an H100 and a TPU v5e by the vendors' compilers, without a device. Skipped where those are not installed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from tests.support.compiled import ENVIRONMENT, is_installed
from tests.support.paths import ROOT

OWN = {"XLA_FLAGS": ""}  # flags for CPUs would end libtpu's process


@pytest.mark.parametrize("platform", ["gpu", "tpu"])
def test_whole_runs_compile(platform: str) -> None:
    if not is_installed(platform):
        pytest.skip("the compilers are not here; pip install 'jaxbandit[accelerator-tests]' has them")
    command = [sys.executable, "-m", "tests.support.compiled_whole_runs", platform]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | ENVIRONMENT | OWN, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(said) == 4 and [program["rank"] for program in said] == [160, 160, 160, 155]
    assert max(program["temporary"] for program in said) < 4 * 2**20, said  # the state of no trial is in the device's memory
    if platform == "gpu":
        assert re.findall(r"(\d+) bytes spill", done.stdout) == ["0", "0"] * 4, done.stdout
