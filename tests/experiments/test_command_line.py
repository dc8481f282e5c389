"""Commands in processes of their own, as users start them."""

import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

from experiments.__main__ import main
from tests.support.paths import ROOT

TRIALS, HORIZON = 40, 1000
SIZE = ["--trials", str(TRIALS), "--seed", "3"]


# ``python -m experiments`` with the first list of arguments given on the command line, and in the same process the command of the second.
COMMANDS = """
import json, runpy, sys
first, second = json.loads(sys.argv[1])
sys.argv = ["experiments", *first]
try:
    runpy.run_module("experiments", run_name="__main__", alter_sys=True)
except SystemExit as end:
    print(f"== {end.code}", flush=True)
from experiments.__main__ import main
print(f"== {main(second)}")
"""


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """Return a study's results, a trace and printed lines, from one process."""
    folder = tmp_path_factory.mktemp("reduced")
    out, file = folder / "rpol", folder / "trace.npz"
    trace = ["trace", "rpol", "--algorithm", "cbo-ucb", "--trial", "3", *SIZE, "--out", str(file)]
    program = [sys.executable, "-c", COMMANDS, json.dumps([["rpol", *SIZE, "--out", str(out)], trace])]
    # This level of XLA compiles and runs programs of this size in the least time: 11 CPU s, and other levels 13 and 19.
    environment = os.environ | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=1".strip()}
    result = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500)
    assert result.returncode == 0, result.stderr
    assert re.findall(r"^== (.*)$", result.stdout, re.MULTILINE) == ["0", "0"], result.stderr
    return out, file, result.stdout.split("== 0\n")[0]


@pytest.fixture(scope="module")
def reduced_run(commands):
    return commands[0], commands[2]


@pytest.mark.full
def test_run_writes_dataset_table_and_figure(reduced_run):
    out, printed = reduced_run
    assert sorted(path.name for path in out.iterdir()) == ["figure.png", "results.nc", "results.nc.sha256", "summary.csv"]
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")
    for label in ("RPOL-UCB", "CBO-UCB", "CONFIG"):
        assert label in printed
    with xr.open_dataset(out / "results.nc", engine="h5netcdf") as data:
        assert dict(data.sizes) == {"algorithm": 3, "trial": TRIALS, "round": HORIZON, "played": HORIZON, "output": 2}
        assert json.loads(data.attrs["algorithms"])["CBO-UCB"]["dual_cap"] == pytest.approx(10.0)
        assert data.attrs["seed"] == 3
        assert np.isfinite(data.regret.values).all()
        violation = data.hard_violation.values
        # The tolerance is that of float32 sums by halves of a thousand rounds.
        rounding = 10 * np.finfo(np.float32).eps * violation[..., 1:]
        assert (np.diff(violation, axis=-1) >= -rounding).all()
        # Common random numbers: the noise of a trial is one stream, so observations minus means agree between algorithms.
        assert data.observed.shape == (3, TRIALS, HORIZON, 2)
    header, *lines = (out / "summary.csv").read_text().splitlines()
    assert header.startswith("algorithm,trials,failed,R/t,") and len(lines) == 3


@pytest.mark.full
def test_the_same_command_shows_what_it_made(reduced_run, capsys):
    out, printed = reduced_run
    before = (out / "results.nc").read_bytes()
    assert main(["rpol", *SIZE, "--out", str(out)]) == 0
    table, _, ending = capsys.readouterr().out.rpartition(f"{out}/results.nc")
    assert table and table == printed.rpartition(f"{out}/results.nc")[0]
    assert re.search(rf"{out}/figure.png: made \d{{4}}-\d\d-\d\dT\S+; --force runs again$", " ".join(ending.split()))
    assert (out / "results.nc").read_bytes() == before
    for other in (["--seed", "4"], ["--horizon", "999"], ["--parameters", "paper"]):
        assert main(["rpol", *SIZE, *other, "--out", str(out)]) == 2 and "not empty" in capsys.readouterr().err
    assert not [path for path in out.iterdir() if path.name.startswith(".")]


@pytest.mark.full
def test_an_interrupted_run_is_told_to_go_on(reduced_run, tmp_path, capsys):
    """Also where it was to replace the results of the same."""
    shutil.copytree(reduced_run[0], tmp_path, dirs_exist_ok=True)
    (tmp_path / "study.json").write_text("{}")
    assert main(["rpol", *SIZE, "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert 0 < said.index("--resume") < said.index("--force")


@pytest.mark.full
def test_all_goes_on_with_what_is_missing(tmp_path, monkeypatch):
    for name, file in (("rpol", "results.nc"), ("bpe", "study.json"), ("hyperparameters", "sessions")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).touch()
    asked = {}
    monkeypatch.setattr("experiments.__main__.run_experiment", lambda experiment, *given, **how: asked.update({experiment.name: how}))
    assert main(["all", "--no-cache", "--out", str(tmp_path)]) == 0
    assert asked["rpol"] == asked["scgp"] == {"force": False, "resume": False, "executor": None} and asked["bpe"] == {
        "force": False,
        "resume": True,
        "executor": None,
    }
    assert asked["hyperparameters"] == {"force": True, "resume": False, "executor": None}, "which cannot be resumed"


@pytest.mark.full
def test_trace_repeats_the_trial_of_the_study(commands):
    out, file, _ = commands
    trace = np.load(file)
    with xr.open_dataset(out / "results.nc", engine="h5netcdf") as data:
        same = data.sel(algorithm="CBO-UCB", trial=3)
        np.testing.assert_array_equal(trace["indices"], same["index"].values)
        np.testing.assert_array_equal(trace["rewards"], same["observed"].values[:, 0])
    assert trace["domain"].shape == (2500, 2)
    assert trace["costs"].shape == (HORIZON, 1) and trace["multipliers"].shape == (HORIZON + 1, 1)
    np.testing.assert_array_equal(trace["arr_r"], np.arange(1, HORIZON + 1))
    np.testing.assert_allclose(trace["beta_g_t"], np.full(HORIZON, 3.0))
    meta = json.loads(str(trace["meta"]))
    assert meta["alg"] == "cbo_ucb"
    assert meta["params"]["kernel"] == {"name": "se", "u": 1.0, "var": 1.0}
    assert {"B", "G", "V", "rho", "lam", "lam_g", "T"} <= set(meta["params"])
    assert meta["params"]["V"] == pytest.approx(2.0 * np.sqrt(HORIZON) / 10.0)


@pytest.mark.full
def test_rpol_study_reproduces_the_expected_figures(reduced_run):
    """R/t, R+/t and V/t are specified to two digits.

    On 50x50 points they are -0.13, 0.05 and 0.074 of RPOL, and -0.20, 0.085 and 0.155 of CBO.
    """
    out, _ = reduced_run
    expected = {"RPOL-UCB": (-0.13, 0.05, 0.074), "CONFIG": (-0.13, 0.05, 0.074), "CBO-UCB": (-0.20, 0.085, 0.155)}
    with xr.open_dataset(out / "results.nc", engine="h5netcdf") as data:
        last = data.isel(round=-1)
        for label, values in expected.items():
            for name, value in zip(("regret", "positive_regret", "hard_violation"), values, strict=True):
                sample = last[name].sel(algorithm=label).values / HORIZON
                # Four standard errors of this run, four of the reference's (20 to 100 trials: as many as ours), and its rounding.
                error = sample.std(ddof=1) / np.sqrt(TRIALS)
                assert abs(sample.mean() - value) < 4 * np.sqrt(2) * error + 0.005, (label, name, sample.mean())
        # The paper's ordering, paired by trial under common random numbers.
        difference = (last.hard_violation.sel(algorithm="CBO-UCB") - last.hard_violation.sel(algorithm="RPOL-UCB")).values
        assert difference.mean() > 5 * difference.std(ddof=1) / np.sqrt(TRIALS)
