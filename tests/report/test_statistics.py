"""Statistics and tables of reports."""

import io

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.status import Status
from jaxbandit.report import tables
from jaxbandit.report.statistics import (
    elapsed,
    final_values,
    growth_exponent,
    healthy_trials,
    holm,
    over_trials,
    paired_differences,
    paired_final_values,
    problem_groups,
    resampling,
    shared_start,
    win_matrix,
)
from jaxbandit.study.progress import Progress
from tests.support.synthetic_results import LABELS, results

FAILED = ((0, 3), (0, 5), (2, 3))


def curves_of(values, *, labels=None, rounds=None):
    """Return a dataset whose regret is ``values [algorithm, trial, round]``."""
    size, trials, count = values.shape
    labels = [f"a{n}" for n in range(size)] if labels is None else labels
    return xr.Dataset(
        {"regret": (("algorithm", "trial", "round"), values), "status": (("algorithm", "trial"), np.zeros((size, trials), int))},
        coords={"algorithm": labels, "round": np.arange(1, count + 1) if rounds is None else rounds},
    )


def finals(*columns):
    return curves_of(np.asarray(columns, float)[:, :, None])


def test_averages_are_those_of_numpy_over_the_trials_that_count():
    dataset = results(1, failed=FAILED)
    found = over_trials(dataset, "regret", averaged=True)
    for a, label in enumerate(LABELS):
        left = [n for n in range(12) if (a, n) not in FAILED]
        values = dataset.regret.values[a, left] / np.arange(1, 61)
        one = found.sel(algorithm=label)
        np.testing.assert_allclose(one["mean"], values.mean(axis=0))
        np.testing.assert_allclose(one.sd, values.std(axis=0, ddof=1))
        standard_error = scipy.stats.sem(values, axis=0)
        np.testing.assert_allclose(one.high - one["mean"], 1.96 * standard_error)
        np.testing.assert_allclose(one["mean"] - one.low, 1.96 * standard_error)
        assert one["count"] == len(left) and one.undefined == 0


def test_few_trials_and_undefined_values_give_nan_and_counts():
    dataset = results(2, trials=3, rounds=5, failed=[(0, 0), (0, 1), (0, 2), (1, 0), (1, 2)])
    # The instance has no feasible point, so it is no failure.
    dataset.regret.values[2, 1] = np.nan
    found = over_trials(dataset, "regret")
    assert found["count"].values.tolist() == [0, 1, 3] and found.undefined.values.tolist() == [0, 0, 1]
    assert np.isnan(found["mean"].values[[0, 2]]).all() and np.isnan(found.sd.values).all() and np.isnan(found.low.values).all()
    np.testing.assert_allclose(found["mean"].values[1], dataset.regret.values[1, 1])


def test_rounds_before_the_first_count_and_thinned_rounds_know_their_number():
    dataset = results(3, before=4)
    assert elapsed(dataset)[[0, -1]].tolist() == [1, 64]
    thinned = dataset.isel(round=[9, 33, 63]).assign_attrs(counted_before=4)
    assert thinned["round"].values.tolist() == [6, 30, 60] and elapsed(thinned).tolist() == [10, 34, 64]
    xr.testing.assert_allclose(
        over_trials(thinned, "regret", averaged=True), over_trials(dataset, "regret", averaged=True).isel(round=[9, 33, 63])
    )
    averaged = {"seed": 0, "averaged": True}
    xr.testing.assert_allclose(paired_differences(thinned, "regret", **averaged), paired_differences(dataset, "regret", **averaged))
    xr.testing.assert_identical(win_matrix(thinned, "regret"), win_matrix(dataset, "regret"))
    drop = "us per trial-round, compiling included"
    for few, all_of_them in zip(tables.summary_rows(thinned), tables.summary_rows(dataset), strict=True):
        assert few.pop(drop) is not None and all_of_them.pop(drop) is not None
        np.testing.assert_equal(few, all_of_them)


def test_paired_differences_by_hand_and_by_scipy():
    dataset = results(5, trials=30, failed=FAILED)
    found = paired_differences(dataset, "regret", seed=0, resamples=20000)
    left = [n for n in range(30) if n not in (3, 5)]
    differences = (dataset.regret.values[0] - dataset.regret.values[1])[left, -1]
    pair = found.sel(algorithm=LABELS[0], versus=LABELS[1])
    assert pair["count"] == 28 and pair["mean"] == pytest.approx(differences.mean())
    theirs = scipy.stats.bootstrap((differences,), np.mean, n_resamples=20000, method="percentile", rng=1).confidence_interval
    # The tolerance is a few standard errors of a bootstrap quantile.
    error = 4 * differences.std() / np.sqrt(28) / np.sqrt(20000 * 0.05)
    assert float(pair.low) == pytest.approx(theirs.low, abs=error) and float(pair.high) == pytest.approx(theirs.high, abs=error)
    reverse = found.sel(algorithm=LABELS[1], versus=LABELS[0])
    assert float(reverse["mean"]) == -float(pair["mean"]) and float(reverse.low) == pytest.approx(-float(pair.high))
    assert found["mean"].values.diagonal().tolist() == [0.0, 0.0, 0.0]
    xr.testing.assert_identical(found, paired_differences(dataset, "regret", seed=0, resamples=20000))
    assert float(paired_differences(dataset, "regret", seed=1).low[0, 1]) != float(paired_differences(dataset, "regret", seed=2).low[0, 1])


def test_p_values_are_those_of_scipy_and_holm_is_by_hand():
    dataset = results(5, trials=30, failed=FAILED)
    found = paired_differences(dataset, "regret", seed=0, resamples=1)
    final, left = dataset.regret.values[..., -1], [n for n in range(30) if n not in (3, 5)]
    assert float(found.p[0, 1]) == pytest.approx(scipy.stats.ttest_rel(final[0][left], final[1][left]).pvalue, rel=1e-9, abs=0)
    assert float(found.p[1, 0]) == float(found.p[0, 1]) and found.p.values.diagonal().tolist() == [1.0] * 3
    # Sorted .01 .02 .03 .04, times 4, 3, 2, 1, never falling: .04, .06, .06, .06.
    np.testing.assert_allclose(holm([[0.04, 0.01], [np.nan, 0.03], [0.02, np.nan]]), [[0.06, 0.04], [np.nan, 0.06], [0.06, np.nan]])
    assert holm([0.9, 0.8]).tolist() == [1.0, 1.0] and holm([]).shape == (0,)
    with pytest.raises(InvalidArgument, match=r"p: must lie in \[0, 1\] or be NaN, got \[1\.5\]"):
        holm([1.5])


@pytest.mark.full
def test_the_intervals_of_differences_cover():
    """At least 88% of 150 intervals at 95% must cover.

    The margin is four standard errors.
    """
    random = np.random.default_rng(6)
    shared = random.normal(0, 3.0, (150, 40))
    first, second = shared + random.gamma(2.0, 1.0, (150, 40)), shared + random.gamma(4.0, 1.0, (150, 40))
    inside = 0
    for a, b in zip(first, second, strict=True):
        pair = paired_differences(finals(a, b), "regret", seed=0, resamples=200).isel(algorithm=0, versus=1)
        inside += bool(pair.low <= -2.0 <= pair.high)
        # Unpaired intervals would be 4 wide.
        assert pair.high - pair.low < 2.5
    assert inside >= (0.95 - 4 * np.sqrt(0.95 * 0.05 / 150)) * 150


def test_what_was_run_on_other_problems_is_not_compared():
    dataset = results(7).assign_coords(problem=("algorithm", ["sine", "sine", "queue"]))
    assert problem_groups(dataset) == [["RPOL-UCB", "CBO-UCB"], ["CONFIG"]]
    found = paired_differences(dataset, "regret", seed=0)
    assert not found.comparable[0, 2] and np.isnan(found["mean"][0, 2]) and found["count"][0, 2] == 0
    assert np.isfinite(found["mean"][0, 1]) and np.isnan(win_matrix(dataset, "regret")[2, 0])
    assert problem_groups(results(7)) == [["RPOL-UCB", "CBO-UCB", "CONFIG"]]


def test_no_common_trial_and_undefined_values_leave_pairs_open():
    dataset = results(8, trials=2, failed=[(0, 0), (1, 1)])
    found = paired_differences(dataset, "regret", seed=0)
    assert found["count"].values.tolist() == [[1, 0, 1], [0, 1, 1], [1, 1, 2]]
    assert np.isnan(found["mean"][0, 1]) and np.isfinite(found["mean"][0, 2]) and np.isnan(found.low[0, 2])
    assert np.isnan(win_matrix(dataset, "regret")[0, 1])
    dataset = results(8)
    dataset.regret.values[1, 4, -1] = np.nan
    found = paired_differences(dataset, "regret", seed=0)
    assert found.undefined[0, 1] == 1 and np.isnan(found["mean"][0, 1]) and np.isnan(win_matrix(dataset, "regret")[0, 1])


def test_win_matrix_by_hand():
    wins = win_matrix(finals([1, 2, 3, 4], [1, 3, 2, 5]), "regret")
    np.testing.assert_allclose(wins, [[0.5, 0.625], [0.375, 0.5]])


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 4))
def test_wins_and_losses_sum_to_one_and_trials_have_no_order(seed, trials, size):
    random = np.random.default_rng(seed)
    dataset = curves_of(random.integers(0, 4, (size, trials, 3)).astype(float))
    dataset.status.values[:] = np.where(random.random((size, trials)) < 0.2, int(Status.NONFINITE_SCORE), 0)
    shuffled = dataset.isel(trial=random.permutation(trials))
    wins = win_matrix(dataset, "regret").values
    known = np.isfinite(wins)
    np.testing.assert_allclose((wins + wins.T)[known], 1.0)
    assert (known == known.T).all()
    np.testing.assert_array_equal(wins, win_matrix(shuffled, "regret").values)
    xr.testing.assert_allclose(over_trials(dataset, "regret"), over_trials(shuffled, "regret"))
    one, other = (paired_differences(d, "regret", seed=0, resamples=20) for d in (dataset, shuffled))
    for name in ("mean", "count", "undefined"):
        np.testing.assert_allclose(one[name], other[name])


@settings(max_examples=25)
@given(st.floats(0.1, 1.5), st.floats(0.01, 100.0), st.integers(0, 2**32 - 1))
def test_growth_exponents_of_power_laws_are_exact(power, scale, seed):
    factors = np.random.default_rng(seed).gamma(3.0, scale, (1, 5, 1))
    values = factors * np.arange(1, 201.0) ** power
    found = growth_exponent(curves_of(values), "regret", seed=0, resamples=50)
    assert float(found.exponent[0]) == pytest.approx(power, rel=1e-9) and found.reason.item() == ""
    assert float(found.low[0]) == pytest.approx(power, rel=1e-9) and float(found.high[0]) == pytest.approx(power, rel=1e-9)
    kept = np.unique(np.geomspace(1, 200, 30).astype(int))
    thinned = curves_of(values[:, :, kept - 1], rounds=kept)
    assert float(growth_exponent(thinned, "regret", seed=0, resamples=50).exponent[0]) == pytest.approx(power, rel=1e-9)


def test_growth_exponents_look_at_the_later_rounds_and_have_intervals():
    random = np.random.default_rng(9)
    t = np.arange(1, 1001.0)
    # The curve is linear and then sqrt(t).
    early = np.minimum(t, 100.0)
    walks = np.cumsum(random.gamma(1.0, 1.0, (1, 60, 1000)) * 0.5 / np.sqrt(t), axis=-1)
    found = growth_exponent(curves_of(np.concatenate([10 * np.sqrt(t * early / 100) + 0 * walks, walks])), "regret", seed=0)
    assert float(found.exponent[0]) == pytest.approx(0.5, abs=0.01)
    assert found.attrs == {"measure": "regret", "first_round": 250, "last_round": 1000}
    low, middle, high = (float(found[name][1]) for name in ("low", "exponent", "high"))
    assert low < middle < high and low <= 0.5 + 0.02 and high >= 0.5 - 0.02 and high - low < 0.05


def test_growth_exponents_say_why_there_is_none():
    t = np.arange(1, 41.0)
    rows = [np.tile(t, (4, 1)), np.tile(20 - t, (4, 1)), np.stack([t, 0 * t, 0 * t, 0 * t]), np.tile(t, (4, 1)), np.tile(t, (4, 1))]
    dataset = curves_of(np.stack(rows))
    dataset.regret.values[3, 2, 30] = np.nan
    dataset.status.values[4] = int(Status.NONFINITE_SCORE)
    found = growth_exponent(dataset, "regret", seed=0)
    exact, negative, seldom, undefined, failed = (found.isel(algorithm=a) for a in range(5))
    assert exact.reason == "" and exact.exponent == pytest.approx(1.0)
    assert np.isnan(negative.exponent) and negative.reason.item() == "the mean is not positive (first seen at round 20)"
    assert seldom.exponent == pytest.approx(1.0) and np.isnan(seldom.low)
    # Resamples without the one violating trial count.
    share = np.mean(resampling(4, 1000, 0)[:, 0] == 0)
    assert seldom.reason.item() == f"no interval: the mean is not positive in {share:.1%} of the resamples"
    assert undefined.reason.item() == "undefined in 1 of 4 trials" and failed.reason.item() == "no trial without failure"
    assert growth_exponent(curves_of(np.ones((1, 2, 2))), "regret", seed=0).reason.item().startswith("only 2 rounds")
    assert growth_exponent(curves_of(t[None, None]), "regret", seed=0).reason.item() == "no interval: a single trial"


def test_a_first_point_that_all_trials_share_is_said():
    t, ones = np.arange(1.0, 101.0), np.ones((2, 3, 100))

    def by_hand(violation, regret):
        dataset = results(0, labels="AB", trials=3, rounds=100)
        return dataset.assign(hard_violation=(dataset.regret.dims, violation), regret=(dataset.regret.dims, regret))

    said = "All trials of A begin at one point, so that intervals over trials leave out what another one would change; an initial design"
    alike = by_hand(np.asarray([[t] * 3, [t, t, 2 * t]]), ones)
    apart = by_hand(np.asarray([[t] * 3, [t] * 3]), ones + np.arange(6.0).reshape(2, 3, 1))
    assert shared_start(apart) == [] and shared_start(alike)[0].startswith(said)
    points = xr.DataArray([[[4, 1], [4, 2], [4, 3]], [[0, 1], [5, 1], [0, 1]]], dims=("algorithm", "trial", "played"))
    assert shared_start(apart.assign(index=points).assign_coords(played=[1, 2]))[0].startswith(said)
    assert shared_start(alike.sel(round=slice(2, None))) == shared_start(alike.isel(trial=[0])) == []


@pytest.fixture
def dataset():
    regret = np.random.default_rng(1).normal(size=(2, 4, 5)).astype(np.float32)
    status = np.zeros((2, 4), np.int32)
    status[0, 1], status[1, 3] = int(Status.NONFINITE_SCORE), int(Status.NONFINITE_FEEDBACK)
    status[0, 2] = int(Status.DECLARED_INFEASIBLE)
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
    np.testing.assert_array_equal(healthy_trials(dataset), want)
    np.testing.assert_array_equal(healthy_trials(dataset.transpose("round", "trial", "algorithm")), want)


def test_unknown_measures_are_refused(dataset):
    with pytest.raises(InvalidArgument, match="measure"):
        final_values(dataset.sel(algorithm="a"), "status")


WIDTHS = range(1, 10)
RUNS = [
    (base, width, problem) for problem in ("sine", "plant_2") for base, width in [*(("rpol", width) for width in WIDTHS), ("CONFIG", 0)]
]


def studied():
    """Return a sweep on two problems with a failure.

    Another trial never was at a feasible point.
    """
    labels = [f"{base} width={width} on {problem}" if width else f"{base} on {problem}" for base, width, problem in RUNS]
    dataset = results(labels=labels, trials=4, rounds=5, failed=[(1, 2)])
    best = np.ones((len(labels), 4, 5))
    best[2, 3] = np.nan
    columns = dict(zip(("base", "width", "problem"), (("algorithm", list(column)) for column in zip(*RUNS, strict=True)), strict=True))
    return dataset.assign(best_feasible_value=(dataset.regret.dims, best)).assign_coords(columns).assign_attrs(swept='["width"]')


def test_text_fits_a_terminal_in_groups_and_says_what_its_letters_mean():
    text = tables.text_table(studied())
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80 and lines == [line.rstrip() for line in lines]
    assert lines[2:5] == ["rpol on sine", lines[3], lines[4]] and lines[3].startswith("  width=1  ") and "width=2 (1 failed)" in lines[4]
    assert lines[12] == "on sine" and lines[13].startswith("  CONFIG") and text.count("rpol on plant_2") == text.count("\nalgorithm") + 1
    assert (
        "1.000 +- 0.000 (3/4)" in text
        and "undefined" not in text
        and "V violation, soft V" in " ".join(text.split())
        and "strong" not in text
    )
    assert "best feasible" in tables.text_table(studied(), width=300).splitlines()[0]
    few = tables.text_table(studied().isel(algorithm=[0, 10]), width=40)
    assert max(map(len, few.splitlines())) <= 40 and "rpol on" not in few and few.splitlines()[2].startswith("rpol width=1 on ")


def test_latex_of_several_problems_has_a_column_for_each_and_the_best_in_bold():
    rows = tables.summary_rows(studied())
    lines = tables.latex_table(rows, measures=["V/t", "best_feasible_value"]).splitlines()
    assert (
        lines[2] == r"algorithm & sine & plant\_2 \\" and lines[4] == r"\multicolumn{3}{l}{$V/t$} \\" and len(lines) == 3 + 2 + 2 * 10 + 3
    )
    for column, problem in enumerate(("sine", "plant_2"), start=1):
        cells = {line.split(" & ")[0]: line.removesuffix(r" \\").split(" & ")[column] for line in lines[5:15]}
        means = {row["algorithm"].removesuffix(f" on {problem}"): row["V/t"] for row in rows if row["problem"] == problem}
        assert [name for name, cell in cells.items() if "mathbf" in cell] == [min(means, key=means.get)]
        halves = {row["algorithm"].removesuffix(f" on {problem}"): row["V/t +-"] for row in rows if row["problem"] == problem}
        assert all(tables.with_half(means[name], halves[name], r" \pm ") in cell for name, cell in cells.items())
    assert "(1 failed)" in lines[6] and "(3/4)" in lines[18] and sum("mathbf" in line for line in lines[16:26]) == 10
    assert [tables.with_half(0.12345, half) for half in (0.0213, 4.0, np.nan)] == ["0.123 ± 0.021", "0.1 ± 4.0", "0.123"]
    with pytest.raises(InvalidArgument, match=r"measures\[0\]"):
        tables.latex_table(rows, measures=["regrets"])
    table = io.StringIO()
    tables.write_csv(rows, table)
    assert list(pd.read_csv(io.StringIO(table.getvalue()))["problem"]) == [problem for *_, problem in RUNS]


def test_progress_names_three_runs():
    numbers = {"cell": 0, "cells": 1, "batch": 0, "batches": 1, "round": 5, "last": True, "done": 5, "work": 5}
    progress = Progress("rpol", **numbers, seconds=1.0, rate=5.0, left=0.0, metric="regret", lines={f"r{n}": 1.0 for n in range(5)})
    assert str(progress).endswith("mean regret: r0 1, r1 1, r2 1 and 2 more")
