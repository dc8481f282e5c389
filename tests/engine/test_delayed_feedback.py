"""Runs with delayed feedback."""

import json
import os
import subprocess
import sys
import warnings
from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit
from jaxbandit import Status, delays, feedback, kernels, metrics, problems
from jaxbandit.core.keys import Stream, round_key, stream_key, trial_key
from jaxbandit.engine import InitialDesign
from jaxbandit.engine.arguments import plan_delays
from jaxbandit.engine.cell import Cell
from jaxbandit.engine.learner import may_be_infinite
from tests.oracles import bandit, delayed_policies
from tests.support.delayed_runs import (
    HORIZON,
    KEY,
    MINIMUM,
    POLICIES,
    RPOL,
    TRIALS,
    WINDOW,
    Faulty,
    assert_same,
    geometric,
    immediate,
    late,
    model,
    problem,
    simulate,
    surrogate,
    traces,
)
from tests.support.paths import ROOT

# Programs.


def learner_of(policy: feedback.Policy, delay: delays.Delay, noise: float = 0.05, **options: Any) -> Any:
    """Return the setting of a run, and the size of a block."""
    sine = problems.sine(50)
    kernel = kernels.SquaredExponential(length_scale=1.0)
    model = jaxbandit.surrogate(sine.domain, kernel, noise_variance=noise, outputs=2, precision="float32")
    given = {"horizon": 200, "feedback": policy, "informed": None} | options
    cell = Cell.ready(sine, [(jaxbandit.Rpol(), model, delay)], InitialDesign(), **given)
    return cell.setting(KEY, np.asarray([0, 0, 1])), cell.block


@pytest.mark.parametrize("policy", [*POLICIES.values(), feedback.Hallucinate()], ids=[*POLICIES, "hallucinate without one root"])
def test_checks_of_a_round_read_no_factor(policy: feedback.Policy) -> None:
    setting, _ = learner_of(policy, delays.Poisson(mean=15.0), noise=0.05 if policy in POLICIES.values() else 1e-4)
    assert sum(x.size for x in may_be_infinite(setting.algorithm.init(setting.arena))) <= 4


def test_one_root_serves_where_all_values_arrive_and_noise_is_resolved() -> None:
    def has_one_root(delay: delays.Delay, noise: float = 0.05, **options: Any) -> bool:
        return learner_of(feedback.Hallucinate(), delay, noise, **options)[0].arena.surrogate.one_root

    poisson = delays.Poisson(mean=15.0)
    assert has_one_root(poisson)
    assert not has_one_root(poisson, noise=5e-4), "rounding"
    assert not has_one_root(poisson, capacity=20), "values may be lost"
    assert not has_one_root(delays.Lossy(delay=poisson, never=0.1)), "some values never arrive"
    assert not has_one_root(delays.Geometric(mean=15.0)), "a root is smaller than the covariances of 200 pending points"


def test_trials_side_by_side_have_room_for_their_factors_in_a_cache() -> None:
    late = delays.Poisson(mean=15.0)
    usual = learner_of(feedback.Censor(), late)[1]
    assert usual >= 4 and learner_of(feedback.Hallucinate(), late)[1] == usual
    assert learner_of(feedback.Wait(), late)[1] == learner_of(feedback.Hallucinate(), late, noise=5e-4)[1] == usual // 2
    assert learner_of(feedback.Wait(), delays.Batches(size=4))[1] == usual, "outputs share a factor"


# Choices under delays of each output's own.


@pytest.mark.parametrize("policy", POLICIES)
def test_every_choice_is_the_best(policy: str) -> None:
    run = late(policy)
    assert np.any(run.arrivals[..., 0] != run.arrivals[..., 1])
    assert max(np.bincount(run.arrivals[b, :, j]).max() for b in range(TRIALS) for j in range(2)) >= 3, "several at once"
    check_choices(run, policy)


def test_every_choice_in_batches_is_the_best() -> None:
    """``Hallucinate`` is GP-BUCB, and batches of one round are no delay."""
    run = simulate(policy="hallucinate", delay=delays.Batches(size=4), capacity=4)
    rounds = np.arange(1, HORIZON + 1)
    np.testing.assert_array_equal(run.arrivals, np.broadcast_to(4 * np.ceil(rounds / 4)[:, None], run.arrivals.shape))
    assert np.all(run.lost == 0)
    check_choices(run, "hallucinate")


def check_choices(run: Any, policy: str) -> None:
    """Check choices, multipliers and gain against the reference."""
    nothing = np.zeros(0, int), np.zeros((0, 2))
    for b in range(TRIALS):
        seen = delayed_policies.Late(bandit.Record(run.indices[b], run.values[b], *nothing), run.arrivals[b])
        expected = delayed_policies.rpol(model(), seen, delayed_policies.Policy(policy, WINDOW, MINIMUM))
        assert bandit.score_gaps(expected.scores, run.indices[b]).max() <= 1e-8
        np.testing.assert_allclose(run.multipliers[b], expected.multipliers, rtol=1e-12)
        known = delayed_policies.belief(model(), seen, delayed_policies.Policy(policy, WINDOW, MINIMUM), HORIZON + 1)
        gain = run.information_gain[b]
        np.testing.assert_allclose(gain, known.gain[: len(gain)], rtol=1e-9)


# Zero delay.


@pytest.mark.parametrize(
    "delay",
    [
        delays.NoDelay(),
        delays.Constant(rounds=0),
        delays.Batches(size=1),
        delays.Empirical(values=np.zeros(3, int)),
        delays.Lossy(never=0.0),
        None,
    ],
)
def test_no_delay_is_the_immediate_run(delay: Any) -> None:
    """Both are the same program."""
    expected = immediate()
    for policy, capacity in (("wait", 1), ("censor", 50), ("hallucinate", None)):
        result: list[Any] = []

        def again(result: list[Any] = result, policy: str = policy, capacity: int | None = capacity) -> None:
            result.append(simulate(policy=policy, delay=delay, capacity=capacity))

        assert traces(again) == 0
        assert_same(result[0], expected)
    assert expected.arrivals is None and expected.lost is None


@pytest.mark.parametrize(
    ("policy", "capacity"),
    [("wait", HORIZON), ("wait", 3), ("censor", HORIZON), pytest.param("censor", 1, marks=pytest.mark.full), ("hallucinate", HORIZON)],
)
def test_delays_that_are_zero_change_nothing(policy: str, capacity: int) -> None:
    """The buffer is there because the delays could be 1."""
    run, expected = simulate(policy=policy, delay=geometric(1e-9), capacity=capacity), immediate()
    np.testing.assert_array_equal(run.arrivals, np.broadcast_to(np.arange(1, HORIZON + 1)[:, None], run.arrivals.shape))
    np.testing.assert_array_equal(run.indices, expected.indices)
    np.testing.assert_array_equal(run.values, expected.values)
    np.testing.assert_allclose(run.multipliers, expected.multipliers, rtol=1e-15 * HORIZON)
    np.testing.assert_array_equal(run.status, expected.status)
    assert np.all(run.lost == 0)
    gains = np.broadcast_to(expected.information_gain, run.information_gain.shape)
    np.testing.assert_allclose(run.information_gain, gains, rtol=1e-12)


def test_feedback_that_may_never_come_is_no_zero_delay() -> None:
    """Values of ``Lossy`` come at once or never."""
    run = jax.tree.map(
        np.asarray,
        jaxbandit.simulate(
            problem(), RPOL, surrogate(), horizon=HORIZON, key=KEY, delay=delays.Lossy(never=0.4), feedback=POLICIES["censor"]
        ),
    )
    assert run.values.dtype == np.float32
    rounds = np.arange(1, HORIZON + 1)[:, None]
    never = run.arrivals[0] >= delays.NEVER
    assert 0 < never.mean() < 1
    np.testing.assert_array_equal(run.arrivals[0][~never], np.broadcast_to(rounds, never.shape)[~never])
    assert np.all(run.lost == 0), "what never comes is not lost by the buffer"
    record = bandit.Record(run.indices[0], run.values[0].astype(float), np.zeros(0, int), np.zeros((0, 2)))
    seen = delayed_policies.Late(record, run.arrivals[0].astype(int))
    expected = delayed_policies.rpol(model(), seen, delayed_policies.Policy("censor", WINDOW, MINIMUM))
    assert bandit.score_gaps(expected.scores, run.indices[0]).max() <= 1e-3
    np.testing.assert_allclose(run.multipliers[0], expected.multipliers, rtol=1e-3)


def test_one_round_has_its_delays_too() -> None:
    """No value comes back before the end."""
    [planned] = plan_delays(problem(), [RPOL], [delays.Constant(rounds=5)], None, None, 1)
    assert planned is not None and planned.capacity == 1
    assert plan_delays(problem(), [RPOL], [delays.NoDelay()], None, 7, HORIZON) == [None]


def lost_values(arrivals: np.ndarray, capacity: int) -> np.ndarray:
    """``[trials, k]`` values due within the horizon that a buffer forgets."""
    delay = arrivals - np.arange(1, HORIZON + 1)[:, None]
    return np.sum((delay >= capacity) & (arrivals <= HORIZON), axis=1)


def test_a_full_buffer_is_flagged_counted_and_warned_of() -> None:
    expected = lost_values(late("wait").arrivals, 3)
    assert np.any(expected.sum(1) > 0)
    with pytest.warns(UserWarning, match=f"{expected.sum()} values .* buffer of 3 rounds"):
        run = simulate(delay=geometric(2.0), capacity=3)
    np.testing.assert_array_equal(run.arrivals, late("wait").arrivals)
    np.testing.assert_array_equal(run.lost, expected)
    np.testing.assert_array_equal((run.status & Status.FEEDBACK_LOST) != 0, expected.sum(1) > 0)
    assert np.all(np.isfinite(run.values)) and np.all(run.failed_round == 0)
    assert np.all(metrics.healthy(run.status)), "a trial that lost feedback still means something"
    assert "no place in the buffer" in jaxbandit.explain(int(run.status.max()))


def test_a_large_buffer_loses_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = simulate(delay=geometric(2.0), capacity=HORIZON)
    assert np.all(run.lost == 0) and np.all(run.status & Status.FEEDBACK_LOST == 0)


HEAVY = [
    delays.Pareto(shape=0.6),
    delays.LogNormal(median=5.0, sigma=3.0),
    delays.Lossy(delay=delays.Constant(rounds=4), never=0.3),
    delays.Poisson(mean=1e-9),
    delays.PerOutput(delays=(delays.NoDelay(), delays.Constant(rounds=7))),
    delays.Empirical(values=np.array([0, 2])),
]


@pytest.mark.parametrize("delay", HEAVY, ids=lambda delay: type(delay).__name__)
def test_the_default_capacity_covers_the_delays(delay: Any) -> None:
    """One slot more than the longest delay, and never more than rounds."""
    [planned] = plan_delays(problem(), [RPOL], [delay], None, None, HORIZON)
    assert planned is not None
    expected = {"Poisson": 2, "Empirical": 3, "PerOutput": 8, "Lossy": 5, "Pareto": HORIZON, "LogNormal": HORIZON}
    assert planned.capacity == expected[type(delay).__name__]


def test_variants_share_a_buffer_that_covers_the_longest_delay() -> None:
    """One program runs all delays and policies."""
    variants = [delays.NoDelay(), delays.Constant(rounds=3), delays.Poisson(mean=1e-9)]
    algorithms = [RPOL, jaxbandit.Bpe(), RPOL]
    planned = [late for late in plan_delays(problem(), algorithms, variants, None, None, HORIZON) if late is not None]
    assert [one.capacity for one in planned] == [4, 4, 4]
    assert [one.model for one in planned] == variants
    assert [type(one.policy) for one in planned] == [feedback.Wait, feedback.Hallucinate, feedback.Wait]
    for algorithm, own, mean in zip(algorithms[1:], planned[1:], (3, None), strict=True):
        variants_of_one = [(algorithm, surrogate(), own)]
        learner, _, _ = Cell.of(problem(), variants_of_one, InitialDesign(), horizon=HORIZON, room=HORIZON).variants.pick(0)
        assert getattr(learner, "mean_delay", None) == mean, "an algorithm is told the delays of its own variant"


# Invariances.


@pytest.mark.full
@pytest.mark.parametrize(("policy", "block"), [("wait", 1), ("hallucinate", 2), ("censor", 1)])
def test_side_by_side_equals_one_by_one(policy: str, block: int) -> None:
    """Trials with few arrivals wait in the loop for the others."""
    alone = simulate(policy=policy, delay=geometric(2.0), capacity=HORIZON, block=block)
    assert_same(alone, late(policy), tolerance=1e-9)


@pytest.mark.full
def test_a_sweep_over_delays_equals_its_runs() -> None:
    means: list[float] = [1e-9, 2.0, 1000.0]
    result: list[Any] = []
    swept = jaxbandit.sweep(delays.Geometric(), {"mean": means})
    assert traces(lambda: result.append(simulate(delay=swept, capacity=HORIZON))) == 1
    assert result[0].indices.shape == (3, TRIALS, HORIZON)
    late("wait")
    for number, mean in enumerate(means):
        alone: list[Any] = []
        assert traces(lambda mean=mean, alone=alone: alone.append(simulate(delay=geometric(mean), capacity=HORIZON))) == 0
        assert_same(jax.tree.map(lambda x, i=number: x[i], result[0]), alone[0], tolerance=1e-9)
    assert np.mean(result[0].arrivals[2] > HORIZON) > 0.95
    assert not np.array_equal(result[0].indices[0], result[0].indices[2]), "the delay matters"


def test_new_delays_and_new_minima_do_not_compile_again() -> None:
    late("wait"), late("censor")
    options = {"capacity": HORIZON, "policy": "wait"}
    assert traces(lambda: simulate(delay=geometric(0.5), **options)) == 0
    assert traces(lambda: simulate(delay=geometric(3), **options)) == 0
    changed = feedback.Censor(window=WINDOW, minimum=np.float32(0.5))
    result: list[Any] = []
    assert traces(lambda: result.append(simulate(delay=geometric(2.0), capacity=HORIZON, feedback=changed))) == 0
    assert not np.array_equal(result[0].indices, late("censor").indices), "the minimum acts"
    np.testing.assert_array_equal(result[0].arrivals, late("censor").arrivals)


@pytest.mark.full
def test_delays_are_common_random_numbers() -> None:
    expected = late("wait").arrivals
    for policy in POLICIES:
        np.testing.assert_array_equal(late(policy).arrivals, expected)
    other = simulate(algorithm=jaxbandit.RandomSearch(), delay=geometric(2.0), capacity=HORIZON, record="all", trials=[3], block=1)
    np.testing.assert_array_equal(other.arrivals[0], expected[3])
    assert len(np.unique(expected.reshape(TRIALS, -1), axis=0)) == TRIALS
    with jax.enable_x64(True):
        stream = stream_key(trial_key(KEY, 1), Stream.DELAY)
        rounds = np.arange(1, HORIZON + 1)
        drawn = jax.jit(jax.vmap(lambda t: geometric(2.0).draw(round_key(stream, t), 2)))(rounds)
    np.testing.assert_array_equal(rounds[:, None] + np.asarray(drawn), expected[1])
    for policy in ("hallucinate", "censor"):
        assert not np.array_equal(late(policy).indices, late("wait").indices), "policies do differ"


SHARDED = """
import json
import jax
import numpy as np
from tests.support import delayed_runs as runs
assert len(jax.devices()) == 4
run = runs.simulate(delay=runs.geometric(2.0), capacity=runs.HORIZON)
fields = jax.tree_util.tree_leaves_with_path(run)
print(json.dumps({jax.tree_util.keystr(path): np.asarray(x).tolist() for path, x in fields}))
"""


@pytest.mark.full
def test_sharded_equals_unsharded() -> None:
    """The loop's steps are those of each device's busiest trial."""
    flags = " ".join([os.environ.get("XLA_FLAGS", ""), "--xla_force_host_platform_device_count=4"]).strip()
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "JAX_NUMPY_DTYPE_PROMOTION": "strict"}
    done = subprocess.run(
        [sys.executable, "-c", SHARDED], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    expected = {jax.tree_util.keystr(path): x for path, x in jax.tree_util.tree_leaves_with_path(late("wait"))}
    assert report.keys() == expected.keys()
    for path, array in expected.items():
        seen = np.asarray(report[path], array.dtype).reshape(array.shape)
        tolerance = 0 if np.issubdtype(array.dtype, np.integer) else 1e-9
        np.testing.assert_allclose(seen, array, rtol=tolerance, atol=tolerance, err_msg=path)


# Feedback that is not finite.


@pytest.mark.parametrize("policy", POLICIES)
def test_nan_feedback_flags_its_trial_only(policy: str) -> None:
    """It fails in the value's round, and learns alike until then."""
    rate = 0.03
    run, well = simulate(rate=rate, policy=policy, delay=geometric(2.0), capacity=HORIZON), late(policy)
    with jax.enable_x64(True):
        streams = [stream_key(trial_key(KEY, trial), Stream.NOISE) for trial in range(TRIALS)]
        struck = np.array([[bool(Faulty(rate=rate).strikes(round_key(s, t))) for t in range(1, HORIZON + 1)] for s in streams])
    failed = struck.any(1)
    assert 0 < failed.sum() < TRIALS, "the rate must spoil some trials and spare some"
    np.testing.assert_array_equal(run.failed_round, np.where(failed, struck.argmax(1) + 1, 0))
    np.testing.assert_array_equal((run.status & Status.NONFINITE_FEEDBACK) != 0, failed)
    for field in ("indices", "values", "multipliers", "widths", "arrivals", "lost", "information_gain"):
        np.testing.assert_array_equal(getattr(run, field)[~failed], getattr(well, field)[~failed], err_msg=field)
    for trial in np.flatnonzero(failed):
        first = min(run.arrivals[trial, np.flatnonzero(struck[trial]), 1].min(), HORIZON)
        np.testing.assert_array_equal(run.indices[trial, :first], well.indices[trial, :first])
        assert np.all((run.indices[trial] >= 0) & (run.indices[trial] < 30))
