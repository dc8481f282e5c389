"""Studies of which some model needs float64: all runs are in float64, and trials can be played again from the results."""

import jax
import numpy as np
import pytest

from jaxbandit.study import from_table, make_plan, rerun, run_study

TABLE = {
    "name": "low-noise",
    "trials": 3,
    "horizon": 4,
    "metrics": ["regret"],
    "trajectories": True,
    "model": {"kernel": {"type": "SquaredExponential", "length_scale": 1.0}, "noise_variance": 1e-6},
    "problem": {"sine": {"type": "sine", "points_per_axis": 5, "noise_variance": 1e-6}},
    "algorithm": {"low": {"type": "Rpol"}, "usual": {"type": "Rpol", "model": {"noise_variance": 0.05}}},
}


@pytest.mark.full
def test_a_study_is_in_one_precision() -> None:
    study = from_table(TABLE)
    assert [run.model.precision for run in study.runs] == ["float64", "float32"]
    assert study.precision == "float64" and not jax.config.jax_enable_x64
    results = run_study(study)
    assert results is not None
    assert results.attrs["precision"] == "float64" and results.attrs["jax_enable_x64"] == "False"
    assert results["observed"].dtype == np.float64
    again = rerun(results, 2, label="usual")
    np.testing.assert_array_equal(again["observed"].squeeze(), results["observed"].sel(algorithm="usual", trial=2).squeeze())
    np.testing.assert_array_equal(again["regret"].squeeze(), results["regret"].sel(algorithm="usual", trial=2).squeeze())


def test_the_precision_of_a_file_can_be_overruled() -> None:
    noisy = {**TABLE, "model": {**TABLE["model"], "noise_variance": 0.05, "precision": "float64"}}
    assert from_table(noisy).precision == "float64"
    assert from_table(noisy, precision="float32").precision == "float32"
    assert {run.model.precision for run in make_plan(from_table(noisy)).runs} == {"float64", "float32"}
