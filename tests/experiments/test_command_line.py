"""The command line as a user meets it: outputs, refusals, and the study's figures at reduced size."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

import jaxbandit
from experiments import delay_sweep
from experiments.__main__ import main, parser, pick_run
from experiments._experiment import options_from
from jaxbandit.study import make_plan, run_study
from tests.support.paths import ROOT

SMALL = ["--trials", "8", "--horizon", "60", "--points-per-axis", "20", "--seed", "3"]


def experiments(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "experiments", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=500)


@pytest.fixture(scope="module")
def small_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("small") / "rpol"
    result = experiments("rpol", *SMALL, "--out", str(out))
    assert result.returncode == 0, result.stderr
    return out, result.stdout


def test_run_writes_dataset_table_and_figure(small_run):
    out, printed = small_run
    assert sorted(path.name for path in out.iterdir()) == ["figure.png", "results.nc", "summary.csv"]
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")
    for label in ("RPOL-UCB", "CBO-UCB", "CONFIG"):
        assert label in printed
    with xr.open_dataset(out / "results.nc", engine="h5netcdf") as data:
        assert dict(data.sizes) == {"algorithm": 3, "trial": 8, "round": 60, "played": 60, "output": 2}
        assert json.loads(data.attrs["algorithms"])["CBO-UCB"]["dual_cap"] == pytest.approx(10.0)
        assert data.attrs["seed"] == 3
        assert np.isfinite(data.regret.values).all()
        assert (np.diff(data.hard_violation.values, axis=-1) >= 0).all()
        # Common random numbers: the noise of a trial is one stream, so observations minus means agree between algorithms.
        assert data.observed.shape == (3, 8, 60, 2)
    header, *lines = (out / "summary.csv").read_text().splitlines()
    assert header.startswith("algorithm,trials,failed,R/t,") and len(lines) == 3


def test_existing_output_is_kept_without_force(small_run):
    out, _ = small_run
    before = (out / "results.nc").read_bytes()
    refused = experiments("rpol", *SMALL, "--out", str(out))
    assert refused.returncode == 2 and "--force" in refused.stderr
    assert (out / "results.nc").read_bytes() == before
    assert not [path for path in out.iterdir() if path.name.startswith(".")]


def test_trace_repeats_the_trial_of_the_study(small_run, tmp_path):
    out, _ = small_run
    file = tmp_path / "trace.npz"
    result = experiments("trace", "rpol", "--algorithm", "cbo-ucb", "--trial", "3", *SMALL, "--out", str(file))
    assert result.returncode == 0, result.stderr
    trace = np.load(file)
    with xr.open_dataset(out / "results.nc", engine="h5netcdf") as data:
        same = data.sel(algorithm="CBO-UCB", trial=3)
        np.testing.assert_array_equal(trace["indices"], same["index"].values)
        np.testing.assert_array_equal(trace["rewards"], same["observed"].values[:, 0])
    assert trace["domain"].shape == (400, 2)
    assert trace["costs"].shape == (60, 1) and trace["multipliers"].shape == (61, 1)
    np.testing.assert_array_equal(trace["arr_r"], np.arange(1, 61))
    np.testing.assert_allclose(trace["beta_g_t"], np.full(60, 3.0))
    meta = json.loads(str(trace["meta"]))
    assert meta["alg"] == "cbo_ucb"
    assert meta["params"]["kernel"] == {"name": "se", "u": 1.0, "var": 1.0}
    assert {"B", "G", "V", "rho", "lam", "lam_g", "T"} <= set(meta["params"])
    assert meta["params"]["V"] == pytest.approx(2.0 * np.sqrt(60) / 10.0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rpol", "--horizon", "0"], "--horizon"),
        (["rpol", "--trials", "0"], "--trials"),
        (["rpol", "--points-per-axis", "1"], "--points-per-axis"),
        (["trace", "rpol", "--algorithm", "nope", "--out", "t.npz"], "cbo-ucb"),
        (["trace", "rpol", "--algorithm", "rpol", "--trial", "100", "--out", "t.npz"], "trial"),
        (["trace", "rpol", "--algorithm", "rpol", "--out", "t.csv"], ".npz"),
    ],
)
def test_bad_arguments_are_named(arguments, words, tmp_path):
    if arguments[0] == "rpol":
        arguments = [*arguments, "--out", str(tmp_path / "out")]
    else:
        arguments = [a if not a.startswith("t.") else str(tmp_path / a) for a in arguments]
    result = experiments(*arguments)
    assert result.returncode == 2
    assert result.stderr.startswith("error:") and words in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_grid_without_feasible_points_runs_and_says_so(tmp_path):
    result = experiments("rpol", "--trials", "2", "--horizon", "20", "--points-per-axis", "3", "--out", str(tmp_path / "out"))
    assert result.returncode == 0, result.stderr
    assert "no grid point is feasible" in result.stdout and "undefined" in result.stdout


def test_list_names_the_experiments():
    assert experiments("list").stdout.split()[0] == "rpol"


def test_delay_sweep_runs_delays_together_as_each_by_itself():
    options = dataclasses.replace(delay_sweep.EXPERIMENT.quick, trials=4, horizon=30, points_per_axis=10)
    study = delay_sweep.build(dataclasses.replace(options, extra={**options.extra, "means": (8.0, 0.0, 3.0)}))
    assert [len(members) for members in make_plan(study).members] == [1, 2]  # without delay there is no buffer
    data = run_study(study)
    own = np.arange(1, 31)[:, None]
    late = data.arrival.values - own
    assert not late[0].any() and 2 < late[1].mean() < 4 and 6 < late[2].mean() < 10  # 240 Poisson numbers each: 6 standard errors or more
    assert json.loads(data.attrs["delays"])["E[tau] = 3"]["mean"] == 3.0
    assert json.loads(data.attrs["feedback"])["E[tau] = 3"]["type"] == "Wait"
    alone = study.trajectory(study.runs[1])
    np.testing.assert_array_equal(alone.indices, data["index"].values[1])
    np.testing.assert_array_equal(alone.arrivals, data.arrival.values[1])
    # The slopes, against least squares in each trial, and what is reported of them.
    above = (data.positive_regret.values[1:, :, -1] - data.positive_regret.values[0, :, -1]).T.astype(np.float64)
    want = np.array([np.linalg.lstsq(np.array([[3.0], [8.0]]), trial, rcond=None)[0][0] for trial in above])
    np.testing.assert_allclose(delay_sweep.slopes(np.array([0.0, 3.0, 8.0]), delay_sweep.excess(data, "positive_regret")), want)
    half = 1.96 * want.std(ddof=1) / 2
    assert any(f"{want.mean():.2f} +- {half:.2f}" in note and "R+(T)" in note for note in delay_sweep.notes(data))


def test_trace_of_a_delay_sweep_names_its_algorithm():
    args = parser().parse_args(["trace", "delay-sweep", "--algorithm", "config", "--means", "4", "--out", "trace.npz"])
    study = delay_sweep.build(options_from(args))
    run = pick_run(study, args.algorithm)
    assert isinstance(run.algorithm, jaxbandit.Config) and run.delay.mean == 4.0


@pytest.mark.parametrize("arguments", [["--algorithm", "nope"], ["--means", "-1"]])
def test_bad_arguments_of_a_delay_sweep_are_named(arguments, tmp_path, capsys):
    assert main(["delay-sweep", *arguments, "--out", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error:") and arguments[0] in printed


@pytest.mark.slow
def test_rpol_study_reproduces_the_expected_figures(tmp_path):
    """Specified at T = 1,000, 50x50: R/t, R+/t, V/t of RPOL -0.13, 0.05, 0.074 and of CBO -0.20, 0.085, 0.155 (two digits)."""
    trials = 40
    assert experiments("rpol", "--trials", str(trials), "--out", str(tmp_path / "out")).returncode == 0
    expected = {"RPOL-UCB": (-0.13, 0.05, 0.074), "CONFIG": (-0.13, 0.05, 0.074), "CBO-UCB": (-0.20, 0.085, 0.155)}
    with xr.open_dataset(tmp_path / "out" / "results.nc", engine="h5netcdf") as data:
        last = data.isel(round=-1)
        for label, values in expected.items():
            for name, value in zip(("regret", "positive_regret", "hard_violation"), values, strict=True):
                sample = last[name].sel(algorithm=label).values / 1000
                # Four standard errors of this run, four of the reference's (20 to 100 trials: as many as ours), and its rounding.
                error = sample.std(ddof=1) / np.sqrt(trials)
                assert abs(sample.mean() - value) < 4 * np.sqrt(2) * error + 0.005, (label, name, sample.mean())
        # The paper's ordering, paired by trial under common random numbers.
        difference = (last.hard_violation.sel(algorithm="CBO-UCB") - last.hard_violation.sel(algorithm="RPOL-UCB")).values
        assert difference.mean() > 5 * difference.std(ddof=1) / np.sqrt(trials)
