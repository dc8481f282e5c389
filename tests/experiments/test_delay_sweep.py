"""The delay sweep: delays together, and an interrupted run that goes on."""

import dataclasses
import functools
import json

import numpy as np
import pytest
import xarray as xr

import jaxbandit
from experiments import delay_sweep
from experiments.__main__ import main, parser
from experiments.common.experiment import options_from
from experiments.common.running import pick_run
from jaxbandit.core.status import healthy
from jaxbandit.study import make_plan, run_study

MEANS = (8.0, 0.0, 3.0)
SMALL = ["--trials", "4", "--horizon", "30", "--points-per-axis", "10", "--means", *map(str, MEANS)]


@functools.cache
def study():
    options = dataclasses.replace(delay_sweep.EXPERIMENT.quick, trials=4, horizon=30, points_per_axis=10)
    return delay_sweep.build(dataclasses.replace(options, extra={**options.extra, "means": MEANS}))


@functools.cache
def straight():
    return run_study(study())


@pytest.mark.full
def test_delay_sweep_runs_delays_together():
    """As each by itself, as all sweeps over delays are (``engine/test_delayed_feedback.py``)."""
    assert [len(cell.runs) for cell in make_plan(study()).cells] == [1, 2]  # without delay there is no buffer
    data = straight()
    assert (np.diff(data.hard_violation.values, axis=-1) >= 0).all()
    own = np.arange(1, 31)[:, None]
    late = data.arrival.values - own
    assert not late[0].any() and 2 < late[1].mean() < 4 and 6 < late[2].mean() < 10  # 240 Poisson numbers each: 6 standard errors or more
    assert json.loads(data.attrs["delays"])["E[tau] = 3"]["mean"] == 3.0
    assert json.loads(data.attrs["feedback"])["E[tau] = 3"]["type"] == "Wait"
    # The slopes, against least squares in each trial, and what is reported of them.
    above = (data.positive_regret.values[1:, :, -1] - data.positive_regret.values[0, :, -1]).T.astype(np.float64)
    want = np.array([np.linalg.lstsq(np.array([[3.0], [8.0]]), trial, rcond=None)[0][0] for trial in above])
    np.testing.assert_allclose(delay_sweep.slopes(np.array([0.0, 3.0, 8.0]), delay_sweep.excess(data, "positive_regret")), want)
    half = 1.96 * want.std(ddof=1) / 2
    assert any(f"{want.mean():.2f} +- {half:.2f}" in note and "R+(T)" in note for note in delay_sweep.notes(data))


@pytest.mark.full
@pytest.mark.parametrize("name", ["rpol-censored", "gp-ucb-sdf", "gp-ts-sdf"])
def test_algorithms_that_censor_are_played_without_delay_too(name):
    extra = {"algorithm": name, "feedback": None, "means": (0.0, 2.0)}
    options = dataclasses.replace(delay_sweep.EXPERIMENT.quick, trials=2, horizon=3, points_per_axis=10, extra=extra)
    data = run_study(delay_sweep.build(options))
    assert data.sizes["algorithm"] == 2 and healthy(data.status.values).all()


class Stop(Exception):
    """An interruption."""


@pytest.mark.full
def test_an_experiment_goes_on(tmp_path, capsys):
    """After a stop between two cells, to what it would have been, which is shown again; a directory without a run is refused."""

    def report(progress):
        raise Stop

    with pytest.raises(Stop):
        run_study(study(), tmp_path, report=report)
    command = ["delay-sweep", *SMALL, "--out", str(tmp_path), "--resume"]
    assert main(command) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"figure.png", "results.nc", "results.nc.sha256", "summary.csv"}
    data = xr.load_dataset(tmp_path / "results.nc", engine="h5netcdf")
    for name in set(straight().data_vars) - {"run_seconds", "playing_seconds"}:
        np.testing.assert_array_equal(data[name].values, straight()[name].values, err_msg=name)
    assert np.isnan(data.playing_seconds.values).tolist() == [True, False, False]  # the first cell was read
    assert main(command) == 0 and "--force runs again" in capsys.readouterr().out
    (tmp_path / "results.nc").unlink()
    assert main(command) == 2
    assert "holds no run" in capsys.readouterr().err


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
