"""Sentences of reports say what the numbers of hand-made results show, and nothing where they show nothing."""

import numpy as np
import pytest
import xarray as xr

from jaxbandit.report import findings
from tests.support.synthetic_results import results, swept


def by_hand(violation, regret=None, labels=("A", "B")):
    """Results whose violation ``[algorithm, trial, round]`` is given."""
    violation = np.asarray(violation, float)
    labels = list(labels)[: len(violation)]
    dataset = results(0, labels=labels, trials=violation.shape[1], rounds=violation.shape[2])
    dataset["hard_violation"] = (dataset.hard_violation.dims, violation)
    return dataset if regret is None else dataset.assign(regret=(dataset.regret.dims, np.asarray(regret, float)))


LINEAR = np.arange(1.0, 101.0)
# A's violation is the square root of t in trials 1 and 2 and one more in trial 3; B's is t / 2, but 0 in trial 3.
PAIR = by_hand([[np.sqrt(LINEAR), np.sqrt(LINEAR), np.sqrt(LINEAR) + 1], [LINEAR / 2, LINEAR / 2, 0 * LINEAR]], np.ones((2, 3, 100)))


def test_the_least_mean_is_named_with_its_interval():
    half = 1.96 * np.std([0.1, 0.1, 0.11], ddof=1) / np.sqrt(3)
    assert findings.summary(PAIR)[0] == f"Least violation per round: A, {np.mean([0.1, 0.1, 0.11]):.3g} ± {half:.2g}."
    assert findings.summary(PAIR.isel(algorithm=[0])) == []
    without = findings.summary(PAIR.assign(hard_violation=0 * PAIR.hard_violation))[:-1]  # the last says that all trials begin alike
    assert len(without) == len(findings.summary(PAIR)) - 1 and not any("violation" in sentence for sentence in without)


def test_a_first_point_that_all_trials_share_is_said():
    said = "All trials of A begin at one point, so that intervals over trials leave out what another one would change; an initial design"
    apart = PAIR.assign(regret=PAIR.regret + np.arange(6.0).reshape(2, 3, 1))  # whose third violation of A differs, too
    assert not any("begin" in sentence for sentence in findings.summary(apart))
    alike = by_hand([[LINEAR] * 3, [LINEAR, LINEAR, 2 * LINEAR]], np.ones((2, 3, 100)))
    assert findings.summary(alike)[-1].startswith(said)
    points = xr.DataArray([[[4, 1], [4, 2], [4, 3]], [[0, 1], [5, 1], [0, 1]]], dims=("algorithm", "trial", "played"))
    assert findings.summary(apart.assign(index=points).assign_coords(played=[1, 2]))[-1].startswith(said)
    assert findings.shared_start(alike.sel(round=slice(2, None))) == findings.shared_start(alike.isel(trial=[0])) == []


def test_wins_are_counted_and_ties_are_none():
    assert findings.wins(PAIR) == ["A violates less than B in 2 of 3 trials."]  # regret is the same everywhere


def test_violation_falls_from_a_tenth_of_the_run_to_its_end():
    early = np.mean([np.sqrt(10), np.sqrt(10), np.sqrt(10) + 1]) / 10
    assert findings.curves(PAIR) == [f"Violation per round falls most for A: from {early:.3g} at round 10 to 0.103 at round 100."]
    assert findings.curves(by_hand([[LINEAR, LINEAR]])) == ["No algorithm's violation per round falls between rounds 10 and 100."]
    assert findings.curves(by_hand(np.zeros((2, 3, 100)))) == ["No algorithm violates a constraint in the mean."]


def test_growth_counts_intervals_below_one():
    sentence = "Violation grows slower than linearly for 1 of 2 algorithms; slowest for A, as t^0.50."
    trials = [[np.sqrt(LINEAR) * (1 + 0.01 * n) for n in range(4)], [LINEAR * (1 + 0.01 * n) for n in range(4)]]
    assert findings.growth(by_hand(trials), 0) == [sentence]


def test_spread_names_the_widest_range_of_nine_tenths():
    finals = np.asarray([np.linspace(0, 1, 21), np.linspace(0, 2, 21)])[..., None] * LINEAR
    assert findings.spread(by_hand(finals)) == [
        "Violation per round differs most between trials of B: nine tenths of them lie between 0.1 and 1.9."
    ]


def test_differences_are_corrected_for_their_number():
    random = np.random.default_rng(0)
    noise = random.normal(0, 1, (3, 30, 1))
    dataset = by_hand(np.concatenate([noise[:1], noise[:1] + 2 + 0.1 * noise[1:2], noise[:1] + 0.1 * noise[2:]]), labels="ABC")
    found = findings.differences(dataset, 0)[0]
    assert found == "2 of 3 pairs differ in violation at the 5% level, corrected by Holm's method."
    assert findings.differences(by_hand([[LINEAR], [LINEAR]]), 0) == []  # one trial says nothing


def test_sweeps_name_the_best_value_of_every_family():
    dataset = swept(bases=("RPOL-UCB", "CBO-UCB"), costs=(1.0,))
    said = [line for line in findings.sweep(dataset) if line.startswith("CBO-UCB: least violation")]
    own = dataset.isel(algorithm=np.flatnonzero(dataset.base.values == "CBO-UCB"))
    best = own["estimator.reward_width"].values[np.argmin(own.hard_violation.values[..., -1].mean(axis=1))]
    assert len(said) == 1 and f"at estimator.reward_width {best:g}, " in said[0]


def test_delays_are_those_of_the_arrivals():
    dataset = results(0, late=True)
    dataset["arrival"] = dataset.played + xr.zeros_like(dataset.arrival) + 3
    assert findings.delays(dataset) == [
        "Poisson(mean 7): half of the values that arrived came within 3 rounds, 95% within 3; 5.0% had not arrived at the end."
    ]


@pytest.mark.parametrize("failed", [[(1, n) for n in range(12)], [(a, n) for a in range(3) for n in range(12)]])
def test_failed_trials_say_nothing(failed):
    dataset = results(2, failed=failed, late=True)
    said = [findings.summary, findings.curves, findings.spread, findings.wins, findings.sweep]
    lines = [line for function in said for line in function(dataset)] + findings.differences(dataset, 0) + findings.growth(dataset, 0)
    assert not any("nan" in line for line in lines) and not any("CBO-UCB" in line for line in lines)
