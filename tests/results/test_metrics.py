"""Measures of runs against NumPy."""

import itertools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import jaxbandit
from jaxbandit import Status, Trajectory, delays, domains, kernels, metrics, problems
from jaxbandit.problems import best_mixed_policy

compiled_curves, compiled_delay_counts = jax.jit(metrics.curves), jax.jit(metrics.delay_counts)
compiled_healthy = jax.jit(lambda several: list(map(metrics.healthy, several)))
SETTINGS = settings(max_examples=40, derandomize=True, database=None)
ROUNDS, POINTS = 25, 12


# On the host: every operation on a JAX array is a program.
def curves_of(problem, indices, mixed_value=None):
    return jax.tree.map(np.asarray, compiled_curves(problem, indices, mixed_value=mixed_value))


def delay_counts(arrivals, window=None, lost=None):
    return jax.tree.map(np.asarray, compiled_delay_counts(arrivals, window=window, lost=lost))


def make(means):
    """Return a problem whose tables are exact in both precisions."""
    means = np.asarray(means, np.float32).astype(np.float64)
    return problems.from_tables(domains.arms(means.shape[1]), means[0], means[1:])


def random_case(constraints, seed=0):
    """Return tables with a feasible point, and indices ``[3 trials, T]``."""
    random = np.random.default_rng([seed, constraints])
    means = random.normal(size=(1 + constraints, POINTS))
    means[1:, 4] = -np.abs(means[1:, 4])
    return make(means), random.integers(0, POINTS, (3, ROUNDS))


def by_hand(means, indices, mixed_value):
    """Every curve of one trial, from the definitions, with loops."""
    reward, costs = means[0], means[1:]
    feasible = [i for i in range(means.shape[1]) if all(costs[j, i] <= 0 for j in range(len(costs)))]
    best = max((reward[i] for i in feasible), default=float("nan"))
    curves = {name: [] for name in ("regret", "positive_regret", "hard_violation", "soft_violation", "violating_rounds")}
    curves |= {"best_constrained_regret": [], "strong_regret": []}
    regret = positive = hard = strong = 0.0
    violating, least = 0, float("inf")
    totals = [0.0] * len(costs)
    for i in indices:
        gap, excess = best - reward[i], sum(max(c, 0.0) for c in costs[:, i])
        regret, hard, strong = regret + gap, hard + excess, strong + mixed_value - reward[i]
        positive += max(gap, 0.0)
        totals = [total + c for total, c in zip(totals, costs[:, i], strict=True)]
        violating += any(c > 0 for c in costs[:, i])
        least = min(least, max(gap, 0.0) + excess)
        curves["regret"].append(regret)
        curves["positive_regret"].append(positive)
        curves["hard_violation"].append(hard)
        curves["soft_violation"].append(sum(max(total, 0.0) ** 2 for total in totals) ** 0.5)
        curves["violating_rounds"].append(violating)
        curves["best_constrained_regret"].append(least)
        curves["strong_regret"].append(strong)
    return curves


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("constraints", [1, 2, 3])
def test_curves_match_loops_over_rounds(constraints, dtype):
    problem, indices = random_case(constraints)
    mixed_value, _ = best_mixed_policy(problem)
    with jax.enable_x64(dtype == np.float64):
        got = curves_of(problem, indices, mixed_value=mixed_value)
        for name, curve in by_hand(problem.means, indices[0], mixed_value).items():
            result = getattr(got, name)
            assert result.shape == (3, ROUNDS), name
            # 25 sums of terms below 6: each rounds by half an ulp of at most 150.
            atol = ROUNDS * 75 * float(np.finfo(dtype).eps)
            np.testing.assert_allclose(result[0].astype(np.float64), curve, rtol=0, atol=atol, err_msg=name)
        assert np.issubdtype(got.violating_rounds.dtype, np.integer)


def test_rounds_in_two_parts_have_the_curves_of_all():
    """Whatever the measure, by what is kept after the first part."""
    problem, indices = random_case(2)
    indices = indices[:, :24]
    kept, first = metrics.extend_tally(problem, metrics.start_tally(2, (3,)), indices[:, :12])
    _, second = metrics.extend_tally(problem, kept, indices[:, 12:])
    whole = curves_of(problem, indices)
    for name, curve in vars(whole).items():
        if curve is not None:
            parts = np.concatenate([getattr(first, name), getattr(second, name)], axis=-1)
            # The sums have another order.
            np.testing.assert_allclose(parts, curve, rtol=1e-5, atol=1e-5, err_msg=name)
    best = whole.best_feasible_value
    assert np.any((best[:, 12] == best[:, 11]) & (best[:, 11] > best[:, 0])), "the best of the first part stays the best for a while"


def test_leading_axes_and_vmap_give_what_single_trials_give():
    problem, indices = random_case(2)
    whole = curves_of(problem, np.stack([indices, indices[::-1]]))  # [variants, trials, T]
    mapped = jax.jit(jax.vmap(lambda row: metrics.curves(problem, row)))(indices)
    for trial in range(3):
        alone = curves_of(problem, indices[trial])
        for name in ("regret", "hard_violation", "soft_violation", "violating_rounds", "best_constrained_regret"):
            np.testing.assert_array_equal(getattr(whole, name)[0, trial], getattr(alone, name))
            np.testing.assert_array_equal(getattr(whole, name)[1, 2 - trial], getattr(alone, name))
            np.testing.assert_array_equal(np.asarray(getattr(mapped, name))[trial], getattr(alone, name))


def test_without_a_mixed_value_there_is_no_strong_regret():
    problem = make([[1.0, 2.0, 3.0], [-1.0, 0.5, 1.0]])
    assert curves_of(problem, np.array([0, 1, 2])).strong_regret is None


def test_no_feasible_point_gives_nan_regret_and_finite_violation():
    problem = make([[1.0, 2.0, 3.0], [0.5, 0.25, 1.0]])
    got = curves_of(problem, np.array([0, 1, 2]))
    for name in ("regret", "positive_regret", "best_constrained_regret"):
        assert np.all(np.isnan(getattr(got, name))), name
    np.testing.assert_array_equal(got.hard_violation, [0.5, 0.75, 1.75])
    np.testing.assert_array_equal(got.soft_violation, [0.5, 0.75, 1.75])
    np.testing.assert_array_equal(got.violating_rounds, [1, 2, 3])


def test_a_point_on_the_boundary_is_feasible_and_violates_nothing():
    problem = make([[1.0, 5.0, 5.0], [0.0, 0.5, 0.5]])
    got = curves_of(problem, np.array([0, 0, 0]))
    np.testing.assert_array_equal(got.regret, [0.0, 0.0, 0.0])
    np.testing.assert_array_equal(got.violating_rounds, [0, 0, 0])


def test_without_constraints_nothing_is_violated():
    problem = problems.from_tables(domains.arms(3), [1.0, 4.0, 2.0], np.zeros((0, 3)))
    got = curves_of(problem, np.array([0, 1, 2]))
    np.testing.assert_array_equal(got.regret, [3.0, 3.0, 5.0])
    for name in ("hard_violation", "soft_violation", "violating_rounds"):
        np.testing.assert_array_equal(getattr(got, name), [0, 0, 0])


@pytest.mark.parametrize("counted", [False, True])
def test_the_initial_design_counts_when_the_study_says_so(counted):
    empty = np.zeros((2,), np.int32)
    trajectory = Trajectory(
        indices=np.array([[1, 2], [3, 4]]),
        status=empty,
        failed_round=empty,
        declared_round=empty,
        information_gain=np.zeros((2, 1)),
        initial_indices=np.array([[7], [8]]),
        initial_values=np.zeros((2, 1, 2)),
        initial_counted=counted,
    )
    np.testing.assert_array_equal(trajectory.scored_indices, [[7, 1, 2], [8, 3, 4]] if counted else [[1, 2], [3, 4]])


# Delayed feedback.


def some_arrivals(outputs, seed=0):
    """Return rounds of arrival ``[3, T, k]``, some late or never."""
    random = np.random.default_rng([seed, outputs])
    late = random.choice([0, 1, 3, 8, 40], (3, ROUNDS, outputs))
    return np.where(random.random(late.shape) < 0.1, delays.NEVER, np.arange(1, ROUNDS + 1)[:, None] + late).astype(np.int32)


@pytest.mark.parametrize("window", [None, 0, 3, 7])
def test_delay_counts_match_loops_over_values(window):
    arrivals = some_arrivals(2)
    got = delay_counts(arrivals, window=window)
    for trial in range(3):
        for j in range(2):
            when = arrivals[trial, :, j]
            late = [w - s for s, w in enumerate(when, start=1) if w <= ROUNDS]
            assert int(got.arrived[trial, j]) == len(late)
            assert int(got.pending[trial, j]) == ROUNDS - len(late)
            assert int(got.never[trial, j]) == sum(w >= delays.NEVER for w in when)
            assert int(got.censored[trial, j]) == (0 if window is None else sum(d > window for d in late))
            assert int(got.lost[trial, j]) == 0
    assert got.censored.dtype == np.int32


@pytest.mark.full
def test_delay_counts_of_a_run_whose_buffer_is_too_small():
    """Values late by the capacity or more, and due, are lost."""
    capacity, window = 5, 3
    problem = make([[1.0, 2.0, 3.0], [-1.0, 0.5, 1.0]])
    surrogate = jaxbandit.surrogate(problem.domain, kernels.SquaredExponential(length_scale=1.0), noise_variance=0.1)
    delay = delays.Empirical(values=[0, 1, 4, 6])
    options = {"horizon": ROUNDS, "trials": 3, "key": jax.random.key(1), "block": 1}
    with pytest.warns(UserWarning, match="lost"):
        run = jaxbandit.simulate(problem, jaxbandit.Rpol(), surrogate, delay=delay, capacity=capacity, **options)
    late = np.asarray(run.arrivals) - np.arange(1, ROUNDS + 1)[:, None]
    due = np.asarray(run.arrivals) <= ROUNDS
    got = delay_counts(run.arrivals, window=window, lost=run.lost)
    kept = due & (late < capacity)
    np.testing.assert_array_equal(got.lost, (due & (late >= capacity)).sum(axis=1))
    np.testing.assert_array_equal(got.arrived, kept.sum(axis=1))
    np.testing.assert_array_equal(got.censored, (kept & (late > window)).sum(axis=1))
    np.testing.assert_array_equal(got.arrived + got.pending + got.lost, np.full((3, 2), ROUNDS))
    assert np.any(got.lost) and np.any(got.censored)


# The best mixed policy.


def two_point_optimum(reward, cost):
    """Return the best mixture of at most two points, for one constraint."""
    best = -np.inf
    for i, j in itertools.product(range(len(reward)), repeat=2):
        if cost[i] <= 0:
            best = max(best, reward[i])
        if cost[i] < 0 < cost[j]:
            # It is the weight of j, so that the mean cost is 0.
            weight = -cost[i] / (cost[j] - cost[i])
            best = max(best, weight * reward[j] + (1 - weight) * reward[i])
    return best


def test_mixed_policy_of_a_tiny_problem():
    """Half of each point has mean cost 0 and mean reward 5."""
    value, policy = best_mixed_policy(make([[1.0, 9.0, -20.0], [-1.0, 1.0, -3.0]]))
    # The optimum is a vertex, so it is right to rounding.
    assert value == pytest.approx(5.0, abs=1e-9)
    np.testing.assert_allclose(policy, [0.5, 0.5, 0.0], atol=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_mixed_policy_matches_all_two_point_mixtures(seed):
    random = np.random.default_rng(seed)
    means = random.normal(size=(2, 7))
    # Instances go from mostly feasible to mostly infeasible.
    means[1] += seed / 6 - 1
    means[1, 0] = -np.abs(means[1, 0])
    problem = make(means)
    value, policy = best_mixed_policy(problem)
    # The tolerance is that of HiGHS for feasibility.
    assert value == pytest.approx(two_point_optimum(*problem.means), abs=1e-7)
    assert policy.min() >= 0 and policy.sum() == pytest.approx(1, abs=1e-9)
    assert problem.means[1] @ policy <= 1e-7
    assert problem.means[0] @ policy == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("constraints", [2, 3])
def test_mixed_policy_is_feasible_and_meets_the_dual_bound(constraints):
    problem, _ = random_case(constraints)
    value, policy = best_mixed_policy(problem)
    reward, costs = problem.means[0], problem.means[1:]
    assert np.all(costs @ policy <= 1e-7) and reward @ policy == pytest.approx(value, abs=1e-9)
    assert value >= float(problems.optimum(problem).value) - 1e-6
    # Any prices bound the value from above, and the best prices meet it: a grid of prices comes within its spacing.
    prices = np.stack(np.meshgrid(*[np.linspace(0, 3, 61)] * constraints), axis=-1).reshape(-1, constraints)
    bounds = np.max(reward - prices @ costs, axis=1)
    assert bounds.min() >= value - 1e-7
    # The bound is half a spacing of 0.05 in each price.
    assert bounds.min() <= value + 0.025 * np.abs(costs).max() * constraints


def test_mixed_policy_of_an_impossible_problem_is_nan():
    value, policy = best_mixed_policy(make([[1.0, 2.0], [0.5, 0.1]]))
    assert np.isnan(value)
    np.testing.assert_array_equal(policy, [0.0, 0.0])


def test_mixed_policy_without_constraints_is_the_best_point():
    value, policy = best_mixed_policy(problems.from_tables(domains.arms(3), [1.0, 4.0, 2.0], np.zeros((0, 3))))
    assert value == 4.0
    np.testing.assert_array_equal(policy, [0.0, 1.0, 0.0])


# Properties.

# Multiples of 1/8 in a small range: every sum over 12 rounds is exact in float32, so the properties hold without tolerance.
eighths = st.integers(-24, 24).map(lambda n: n / 8)
chosen = arrays(np.int32, (12,), elements=st.integers(0, 5))


@SETTINGS
@given(means=arrays(np.float64, (2, 6), elements=eighths), indices=chosen)
def test_properties_with_one_constraint(means, indices):
    got = curves_of(make(means), indices)
    # The root of x^2 in float32 may be one rounding of 36 off.
    assert np.all(got.hard_violation >= got.soft_violation - 4e-6)
    # No cost is above 3.
    assert np.all(got.hard_violation <= 3 * got.violating_rounds)
    if np.any(means[1] <= 0):
        feasible_rounds = means[1][indices] <= 0
        gaps = np.diff(got.regret, prepend=0.0)
        # Only infeasible points beat the optimum.
        assert np.all(gaps[feasible_rounds] >= 0)
    else:
        assert np.all(np.isnan(got.regret))


@SETTINGS
@given(means=arrays(np.float64, (3, 6), elements=eighths), indices=chosen)
def test_properties_with_two_constraints(means, indices):
    means[1:, 0] = -np.abs(means[1:, 0])
    problem = make(means)
    got = curves_of(problem, indices)
    for name in ("positive_regret", "hard_violation", "violating_rounds"):
        assert np.all(np.diff(getattr(got, name)) >= 0), name
        assert getattr(got, name)[0] >= 0, name
    assert np.all(np.diff(got.best_constrained_regret) <= 0)
    assert np.all(got.best_constrained_regret >= 0)
    assert np.all(got.positive_regret >= got.regret)
    # The norm of the parts is at most their sum, and each part at most the hard violation of its constraint.
    assert np.all(got.soft_violation <= got.hard_violation * (1 + 1e-6))
    assert np.all(got.violating_rounds <= np.arange(1, 13))
    best = int(problems.optimum(problem).index)
    at_best = curves_of(problem, np.full(12, best))
    for name in ("regret", "positive_regret", "hard_violation", "soft_violation", "violating_rounds", "best_constrained_regret"):
        np.testing.assert_array_equal(getattr(at_best, name), np.zeros(12), err_msg=name)


@SETTINGS
@given(means=arrays(np.float64, (3, 6), elements=eighths), indices=chosen, order=st.permutations(range(12)))
def test_final_values_do_not_depend_on_the_order_of_rounds(means, indices, order):
    means[1:, 0] = -np.abs(means[1:, 0])
    problem = make(means)
    one, other = curves_of(problem, indices), curves_of(problem, indices[list(order)])
    for name in ("regret", "positive_regret", "hard_violation", "soft_violation", "violating_rounds", "best_constrained_regret"):
        assert getattr(one, name)[-1] == getattr(other, name)[-1], name


@pytest.mark.parametrize(
    ("status", "want"),
    [
        (Status.OK, True),
        (Status.DECLARED_INFEASIBLE, True),
        (Status.NO_FEASIBLE_POINT, True),
        (Status.NONFINITE_FEEDBACK, False),
        (Status.NONFINITE_SCORE, False),
        (Status.NONFINITE_SCORE | Status.DECLARED_INFEASIBLE, False),
    ],
)
def test_healthy(status, want):
    several = [np.int32(int(status)), np.full((2, 3), int(status), np.int32)]
    for one, found, compiled in zip(several, map(metrics.healthy, several), compiled_healthy(several), strict=True):
        np.testing.assert_array_equal(found, np.full(one.shape, want))
        np.testing.assert_array_equal(compiled, np.full(one.shape, want))


def test_tables_far_from_zero_are_measured_in_float64_where_they_are_in_float64() -> None:
    """A reward of 1e6 has steps of 0.06 in float32."""
    rng = np.random.default_rng(5)
    means = np.stack([1e6 + rng.random(30), rng.random(30) - 0.5])
    problem = problems.from_tables(domains.arms(30), *means)
    indices = rng.integers(0, 30, (3, 400)).astype(np.int32)
    best = means[0][means[1] <= 0].max()
    regret, violation = np.cumsum(best - means[0][indices], axis=1), np.cumsum(np.maximum(means[1][indices], 0), axis=1)
    found = metrics.curves(problem, indices)
    assert float(problems.optimum(problem).value) == best and found.regret.dtype == np.float64
    np.testing.assert_allclose(found.regret, regret, rtol=1e-9)
    np.testing.assert_allclose(found.hard_violation, violation, rtol=1e-12)
    inside = jax.jit(lambda indices: metrics.curves(problem, indices).regret + 0 * problems.optimum(problem).value)(indices)
    assert inside.dtype == (np.float64 if jax.config.read("jax_enable_x64") else np.float32)
