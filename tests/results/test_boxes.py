"""Results of runs on a box: points by the names of its axes, and the best feasible value so far."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit.core.checks import InvalidArgument
from tests.support import box_runs


def test_a_run_is_labelled_with_points_and_measured_by_them() -> None:
    problem, initial = box_runs.valley(), jb.InitialDesign(random=2, counted=True)
    run = jb.simulate(problem, jb.RandomSearch(), box_runs.model(), horizon=5, key=jax.random.key(3), trials=2, initial=initial)
    dataset = run.to_xarray(problem)
    assert dataset.point.dims == ("algorithm", "trial", "round", "coordinate") and dataset.coordinate.values.tolist() == ["dose", "rate"]
    points = np.concatenate([run.initial_points, run.points], axis=1)
    np.testing.assert_array_equal(dataset.point.values[0], points)
    assert "index" not in dataset  # which would number the points of a pool that nobody has
    reward, cost = box_runs.values(points)
    best = np.maximum.accumulate(np.where(cost <= 0, reward, -np.inf), axis=1)
    np.testing.assert_allclose(dataset.best_feasible_value.values[0], np.where(np.isinf(best), np.nan, best), rtol=1e-5)
    np.testing.assert_allclose(dataset.hard_violation.values[0], np.cumsum(np.maximum(cost, 0), axis=1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(dataset.regret.values[0], np.cumsum(-0.28125 - reward, axis=1), rtol=1e-4, atol=1e-5)
    [row] = run.summary(problem).rows
    assert row["best feasible"] == pytest.approx(best[:, -1].mean() if np.isfinite(best[:, -1]).all() else np.nan, rel=1e-5, nan_ok=True)

    table = run.to_dataframe(problem)
    last = table[(table["trial"] == 1) & (table["round"] == 5)].iloc[0]
    np.testing.assert_array_equal([last["point.dose"], last["point.rate"]], points[1, -1])

    again = jb.metrics.curves(problem, run.scored_points)
    np.testing.assert_allclose(again.best_feasible_value, dataset.best_feasible_value.values[0], rtol=1e-5)
    for wrong, words in (
        (np.zeros((3, 4)), r"indices: expected shape \[\.\.\., T, 2\], one point for each round, got shape \[3, 4\]"),
        (np.zeros(2), r"got shape \[2\]"),
        (np.full((3, 2), np.nan), "indices: .*NaN"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            jb.metrics.curves(problem, wrong)


def test_the_best_feasible_value_on_a_finite_domain_is_undefined_before_a_feasible_point() -> None:
    problem = jb.problems.from_tables(jb.domains.arms(4), [3.0, 1.0, 2.0, 5.0], [[1.0, -1.0, -1.0, 1.0]])
    measured = jb.metrics.curves(problem, np.asarray([[0, 1, 2, 1, 3], [0, 3, 0, 0, 2]]))
    np.testing.assert_array_equal(measured.best_feasible_value, [[np.nan, 1, 2, 2, 2], [np.nan, np.nan, np.nan, np.nan, 2]])
    with pytest.raises(InvalidArgument, match="indices: must be whole numbers"):
        jb.metrics.curves(problem, np.zeros((3, 1)))
