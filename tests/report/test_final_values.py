"""Measures after the last round: of one algorithm's healthy trials, and of the trials that failed for no algorithm."""

import numpy as np
import pytest
import xarray as xr

from jaxbandit import InvalidArgument, Status
from jaxbandit.report.statistics import final_values, healthy, paired_final_values


@pytest.fixture
def dataset():
    regret = np.random.default_rng(1).normal(size=(2, 4, 5)).astype(np.float32)
    status = np.zeros((2, 4), np.int32)
    status[0, 1], status[1, 3] = int(Status.NONFINITE_SCORE), int(Status.NONFINITE_FEEDBACK)
    status[0, 2] = int(Status.DECLARED_INFEASIBLE)  # no failure
    return xr.Dataset(
        {"regret": (("algorithm", "trial", "round"), regret), "status": (("algorithm", "trial"), status)},
        coords={"algorithm": ["a", "b"], "round": [1, 2, 4, 8, 10]},
    )


def test_final_values_are_of_the_last_round_in_healthy_trials(dataset):
    found = final_values(dataset.sel(algorithm="a"), "regret")
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, dataset.regret.values[0, [0, 2, 3], -1])
    np.testing.assert_allclose(final_values(dataset.sel(algorithm="a"), "regret", averaged=True), found / 10)


def test_rounds_before_the_first_count(dataset):
    part = dataset.assign_attrs(counted_before=2).sel(algorithm="b")
    np.testing.assert_allclose(final_values(part, "regret", averaged=True), final_values(part, "regret") / 12)


def test_paired_values_leave_out_trials_that_failed_for_any_algorithm(dataset):
    np.testing.assert_array_equal(paired_final_values(dataset, "regret"), dataset.regret.values[:, [0, 2], -1])
    order = dataset.sel(algorithm=["b", "a"])
    np.testing.assert_array_equal(paired_final_values(order, "regret"), order.regret.values[:, [0, 2], -1])
    one = dataset.sel(algorithm=["a"])
    np.testing.assert_array_equal(paired_final_values(one, "regret")[0], final_values(dataset.sel(algorithm="a"), "regret"))


def test_health_is_of_each_trial_whatever_the_order_of_dimensions(dataset):
    want = [[True, False, True, True], [True, True, True, False]]
    np.testing.assert_array_equal(healthy(dataset), want)
    np.testing.assert_array_equal(healthy(dataset.transpose("round", "trial", "algorithm")), want)


def test_unknown_measures_are_refused(dataset):
    with pytest.raises(InvalidArgument, match="measure"):
        final_values(dataset.sel(algorithm="a"), "status")
