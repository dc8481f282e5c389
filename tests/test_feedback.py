"""The engine of delayed feedback: the buffer, arrivals, zero delay, invariances, loss, flags and bad input."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
import reference_delayed
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxbandit
from jaxbandit import InvalidArgument, Status, delays, domains, estimators, feedback, kernels, metrics, problems, widths
from jaxbandit.core.keys import Stream, round_key, stream_key, trial_key
from jaxbandit.feedback import Feedback, Pending
from jaxbandit.simulate import batch
from jaxbandit.simulate.delayed import plan

HORIZON, TRIALS, NOISE, LENGTH_SCALE = 12, 5, 0.05, 0.3
KEY = jax.random.key(3)
WINDOW, MINIMUM = 2, -1.0
POLICIES = {"wait": feedback.Wait(), "hallucinate": feedback.Hallucinate(), "censor": feedback.Censor(window=WINDOW, minimum=MINIMUM)}
WIDTHS = (1.5, 1.0)


@jaxbandit.pytree
class Faulty(problems.Noise):
    """Gaussian noise that is NaN for the constraint in some rounds of some trials; ``rate`` is data, so one program serves all."""

    rate: Any = 0.0

    def draw(self, key: jax.Array, outputs: int, dtype: Any) -> jax.Array:
        noise = np.sqrt(NOISE) * jax.random.normal(key, (outputs,), dtype)
        return noise.at[1].set(jnp.where(self.strikes(key), jnp.nan, noise[1]))

    def strikes(self, key: jax.Array) -> jax.Array:
        return jax.random.uniform(jax.random.fold_in(key, 1), dtype=jnp.float32) < jnp.asarray(self.rate, jnp.float32)

    def apply(self, drawn: jax.Array, index: jax.Array) -> jax.Array:
        return drawn


@functools.cache
def tables() -> tuple[domains.Domain, np.ndarray]:
    rng = np.random.default_rng(0)
    domain = domains.product([np.sort(rng.random(6)), np.sort(rng.random(5))])
    means = rng.standard_normal((2, domain.size))
    return domain, np.stack([means[0], means[1] + 0.3])


def problem(rate: float = 0.0) -> problems.Problem:
    domain, means = tables()
    return problems.from_tables(domain, means[0], means[1:], noise=Faulty(rate=rate))


def surrogate() -> jaxbandit.Surrogate:
    kernel = kernels.SquaredExponential(length_scale=LENGTH_SCALE)
    return jaxbandit.surrogate(tables()[0], kernel, noise_variance=NOISE, outputs=2, form="features")


RPOL = jaxbandit.Rpol(estimator=estimators.Bounds(reward_width=WIDTHS[0], cost_width=WIDTHS[1]))


def simulate(*, rate: float = 0.0, algorithm: Any = RPOL, policy: str = "wait", **options: Any) -> Any:
    """A run in float64, side by side unless told otherwise."""
    options = {"trials": TRIALS, "block": TRIALS, "feedback": POLICIES[policy], **options}
    with jax.enable_x64(True):
        run = jaxbandit.simulate(problem(rate), algorithm, surrogate(), horizon=HORIZON, key=KEY, **options)
        return jax.tree.map(np.asarray, run)


def geometric(mean: float) -> delays.Geometric:
    """``P(delay > n) = (mean / (1 + mean))^(n + 1)``: of mean 1e-9 it can be 1, and in no run is."""
    return delays.Geometric(mean=mean)


@functools.cache
def late(policy: str) -> Any:
    """The run that most tests look at, with a slot for every round; other tests run its program on other data."""
    return simulate(policy=policy, delay=geometric(2.0), capacity=HORIZON)


@functools.cache
def immediate() -> Any:
    return simulate()


def traces(run: Callable[[], Any]) -> int:
    before = batch._run._cache_size()
    run()
    return batch._run._cache_size() - before


def assert_same(a: Any, b: Any, *, tolerance: float = 0.0) -> None:
    """Equal integers, and floats within ``tolerance``."""
    left, right = jax.tree_util.tree_leaves_with_path(a), jax.tree_util.tree_leaves_with_path(b)
    assert [path for path, _ in left] == [path for path, _ in right]
    for (path, x), (_, y) in zip(left, right, strict=True):
        label = jax.tree_util.keystr(path)
        assert x.dtype == y.dtype, label
        if np.issubdtype(x.dtype, np.integer) or tolerance == 0:
            np.testing.assert_array_equal(x, y, err_msg=label)
        else:
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance, err_msg=label)


def model() -> reference_delayed.Model:
    """What the learner believes, for the reference."""
    points = tables()[0].points
    gram = reference.squared_exponential(points, points, LENGTH_SCALE)
    return reference_delayed.Model(np.stack([gram] * 2), np.full(2, NOISE), np.zeros(2), lambda t, gain, recent: np.array(WIDTHS))


# Choices under delays of each output's own.


@pytest.mark.parametrize("policy", POLICIES)
def test_every_choice_is_the_best(policy: str) -> None:
    run, nothing = late(policy), (np.zeros(0, int), np.zeros((0, 2)))
    assert np.any(run.arrivals[..., 0] != run.arrivals[..., 1])
    assert max(np.bincount(run.arrivals[b, :, j]).max() for b in range(TRIALS) for j in range(2)) >= 3, "several at once"
    for b in range(TRIALS):
        seen = reference_delayed.Late(reference.Record(run.indices[b], run.values[b], *nothing), run.arrivals[b])
        expected = reference_delayed.rpol(model(), seen, reference_delayed.Policy(policy, WINDOW, MINIMUM))
        assert reference.score_gaps(expected.scores, run.indices[b]).max() <= 1e-8
        np.testing.assert_allclose(run.multipliers[b], expected.multipliers, rtol=1e-12)
        known = reference_delayed.belief(model(), seen, reference_delayed.Policy(policy, WINDOW, MINIMUM), HORIZON + 1)
        gain = run.information_gain[b]
        np.testing.assert_allclose(gain, known.gain[: len(gain)], rtol=1e-9)


# Zero delay.


@pytest.mark.parametrize(
    "delay", [delays.NoDelay(), delays.Constant(rounds=0), delays.Empirical(values=np.zeros(3, int)), delays.Lossy(never=0.0), None]
)
def test_no_delay_is_the_immediate_run(delay: Any) -> None:
    """Bit for bit, as it is the same program, whatever the buffer and the policy."""
    expected = immediate()
    for policy, capacity in (("wait", 1), ("censor", 50), ("hallucinate", None)):
        result: list[Any] = []

        def again(result: list[Any] = result, policy: str = policy, capacity: int | None = capacity) -> None:
            result.append(simulate(policy=policy, delay=delay, capacity=capacity))

        assert traces(again) == 0
        assert_same(result[0], expected)
    assert expected.arrivals is None and expected.lost is None


@pytest.mark.parametrize(
    ("policy", "capacity"), [("wait", HORIZON), ("wait", 3), ("censor", HORIZON), ("censor", 1), ("hallucinate", HORIZON)]
)
def test_delays_that_are_zero_change_nothing(policy: str, capacity: int) -> None:
    """They could be 1, so the buffer is there; a buffer with one slot is enough for this round's own values."""
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
    """``Lossy`` without any other delay: what comes, comes at once, and the rest not at all. In float32."""
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
    record = reference.Record(run.indices[0], run.values[0].astype(float), np.zeros(0, int), np.zeros((0, 2)))
    seen = reference_delayed.Late(record, run.arrivals[0].astype(int))
    expected = reference_delayed.rpol(model(), seen, reference_delayed.Policy("censor", WINDOW, MINIMUM))
    assert reference.score_gaps(expected.scores, run.indices[0]).max() <= 1e-3
    np.testing.assert_allclose(run.multipliers[0], expected.multipliers, rtol=1e-3)


def test_one_round_has_its_delays_too() -> None:
    """In a run of one round nothing comes back before the end, which is no zero delay."""
    planned, _ = plan(2, RPOL, delays.Constant(rounds=5), None, None, 1)
    assert planned is not None and planned.capacity == 1
    assert plan(2, RPOL, delays.NoDelay(), None, 7, HORIZON)[0] is None


# Arrivals of one round.


def some_feedback(rng: np.random.Generator, capacity: int, outputs: int) -> dict[str, np.ndarray]:
    """Arrivals of a round in which the point 3 was chosen."""
    ages = rng.permutation(capacity)
    return {
        "indices": np.where(ages == 0, 3, rng.integers(0, 30, capacity)),
        "values": rng.standard_normal((capacity, outputs)),
        "ages": ages,
        "present": rng.random((capacity, outputs)) < 0.6,
    }


@functools.cache
def learning(policy: str) -> tuple[Any, Any, Any]:
    """A learner with some history, and its compiled ``learn``."""
    learner = POLICIES[policy].bind(surrogate(), apart=True, capacity=40, axis=None)
    step = jax.jit(learner.learn)
    posterior, rng = jax.jit(learner.init)(), np.random.default_rng(5)
    for _ in range(9):
        posterior = step(posterior, as_feedback(some_feedback(rng, 7, 2)))
    return learner, step, posterior


def as_feedback(given: dict[str, np.ndarray]) -> Feedback:
    own = int(np.argmin(given["ages"]))
    return Feedback(
        index=jnp.int32(3),
        own_values=jnp.asarray(given["values"][own]),
        own_present=jnp.asarray(given["present"][own]),
        indices=jnp.asarray(given["indices"], jnp.int32),
        values=jnp.asarray(given["values"]),
        ages=jnp.asarray(given["ages"], jnp.int32),
        present=jnp.asarray(given["present"]),
    )


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rubbish=st.sampled_from([np.nan, np.inf, 1e30]))
def test_the_order_of_arrivals_within_a_round_does_not_matter(policy: str, seed: int, rubbish: float) -> None:
    """Nor do the values of slots that do not arrive, whatever they hold."""
    rng = np.random.default_rng(seed)
    with jax.enable_x64(True):
        learner, step, before = learning(policy)
        arrivals = some_feedback(rng, 7, 2)
        order = rng.permutation(7)
        shuffled = {name: x[order] for name, x in arrivals.items()}
        shuffled["values"] = np.where(shuffled["present"], shuffled["values"], rubbish)
        a, b = (learner.predict(step(before, as_feedback(x))) for x in (arrivals, shuffled))
    np.testing.assert_allclose(a.mean, b.mean, rtol=0, atol=1e-11)
    np.testing.assert_allclose(a.sd, b.sd, rtol=0, atol=1e-11)
    np.testing.assert_allclose(a.gain, b.gain, rtol=1e-12)


def test_sums_over_arrivals() -> None:
    present = np.array([[True, False, False], [True, True, False], [False, False, False]])
    values = np.where(present, np.array([[1.0, np.nan, 9], [-4, 2, 9], [np.nan, 7, 9]]), np.nan)
    seen = as_feedback({"indices": np.array([3, 1, 2]), "values": values, "ages": np.array([0, 1, 2]), "present": present})
    np.testing.assert_array_equal(seen.total(), [-3, 2, 0])
    np.testing.assert_array_equal(seen.total(lambda x: jnp.maximum(x, 0)), [1, 2, 0])
    np.testing.assert_array_equal(seen.count, [2, 1, 0])
    np.testing.assert_array_equal(seen.largest(), [1, 2, -np.inf])
    np.testing.assert_array_equal(seen.largest(jnp.negative), [4, -2, -np.inf])
    doubled = seen.map(lambda x: 2 * x)
    np.testing.assert_array_equal(doubled.total(), [-6, 4, 0])
    np.testing.assert_array_equal(doubled.own_values, 2 * values[0])


# The buffer.


@functools.partial(jax.jit, static_argnames="capacity")
def through_the_buffer(due: jax.Array, horizon: jax.Array, *, capacity: int) -> tuple[Pending, Feedback]:
    """``HORIZON`` rounds; the point of round ``t`` is ``10 t``, its values are ``t`` and ``-t``."""

    def step(pending: Pending, now: tuple[jax.Array, jax.Array]) -> tuple[Pending, Feedback]:
        t, arrives = now
        index, own = 10 * t, jnp.stack([t, -t]).astype(jnp.float32)
        pending = pending.push(t, index, own, arrives, horizon)
        return pending, pending.arriving(t, index, own, arrives)

    rounds = jnp.arange(1, due.shape[0] + 1, dtype=jnp.int32)
    return jax.lax.scan(step, Pending.empty(capacity, 2, jnp.float32), (rounds, due))


late_by = st.one_of(st.integers(0, 15), st.just(int(delays.NEVER)), st.just(int(delays.LONGEST)))


@settings(max_examples=60, deadline=None)
@given(
    taus=st.lists(st.tuples(late_by, late_by), min_size=HORIZON, max_size=HORIZON),
    capacity=st.sampled_from([1, 2, 5, HORIZON, HORIZON + 4]),
    beyond=st.integers(0, 3),
)
def test_every_value_arrives_once_or_is_counted_as_lost(taus: list[tuple[int, int]], capacity: int, beyond: int) -> None:
    rounds, horizon = np.arange(1, HORIZON + 1), HORIZON + beyond  # a horizon may be longer than what is run
    due = rounds[:, None] + np.array(taus)
    pending, seen = through_the_buffer(jnp.asarray(due, jnp.int32), jnp.int32(horizon), capacity=capacity)
    arrived: dict[tuple[int, int], int] = {}
    for t in rounds:
        present, ages, values, points = (np.asarray(x[t - 1]) for x in (seen.present, seen.ages, seen.values, seen.indices))
        for slot, output in np.argwhere(present):
            s = t - int(ages[slot])
            assert points[slot] == 10 * s and values[slot, output] == (s if output == 0 else -s)
            assert (s, int(output)) not in arrived, "once only"
            arrived[s, int(output)] = int(t)
        np.testing.assert_array_equal(seen.own_present[t - 1], due[t - 1] == t)
        assert int(seen.index[t - 1]) == 10 * t and int(seen.own_values[t - 1, 0]) == t
    lost = [0, 0]
    for s in rounds:
        for output in range(2):
            when = due[s - 1, output]
            in_time = when <= HORIZON and when < s + capacity  # round s + capacity takes the slot
            assert arrived.get((s, output)) == (when if in_time else None)
            lost[output] += bool(s + capacity <= HORIZON and s + capacity <= when <= horizon)
    np.testing.assert_array_equal(pending.lost, lost)
    if capacity > max(min(tau, HORIZON) for pair in taus for tau in pair):
        assert len(arrived) == np.sum(due <= HORIZON) and lost == [0, 0]


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
    planned, _ = plan(2, RPOL, delay, None, None, HORIZON)
    assert planned is not None
    expected = {"Poisson": 2, "Empirical": 3, "PerOutput": 8, "Lossy": 5, "Pareto": HORIZON, "LogNormal": HORIZON}
    assert planned.capacity == expected[type(delay).__name__]


# Invariances.


@pytest.mark.parametrize(("policy", "block"), [("wait", 1), ("hallucinate", 2), ("censor", 1)])
def test_side_by_side_equals_one_by_one(policy: str, block: int) -> None:
    """The loop over arrivals has as many steps as the trial with most arrivals needs; in the others it idles. Two a block need padding."""
    alone = simulate(policy=policy, delay=geometric(2.0), capacity=HORIZON, block=block)
    assert_same(alone, late(policy), tolerance=1e-9)


def test_a_sweep_over_delays_equals_its_runs() -> None:
    means: list[float] = [1e-9, 2.0, 1000.0]
    result: list[Any] = []
    swept = jaxbandit.sweep(delays.Geometric(), mean=means)
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


def test_delays_are_common_random_numbers() -> None:
    """The same in every trial whatever the algorithm, the policy and the buffer; and those of the model under the stream's keys."""
    expected = late("wait").arrivals
    for policy in POLICIES:
        np.testing.assert_array_equal(late(policy).arrivals, expected)
    other = simulate(algorithm=jaxbandit.Unconstrained(), delay=geometric(2.0), capacity=HORIZON, record="all", trials=[3], block=1)
    np.testing.assert_array_equal(other.arrivals[0], expected[3])
    assert len(np.unique(expected.reshape(TRIALS, -1), axis=0)) == TRIALS
    with jax.enable_x64(True):
        stream = stream_key(trial_key(KEY, 1), Stream.DELAY)
        drawn = [np.asarray(geometric(2.0).draw(round_key(stream, t), 2)) + t for t in range(1, HORIZON + 1)]
    np.testing.assert_array_equal(np.stack(drawn), expected[1])
    for policy in ("hallucinate", "censor"):
        assert not np.array_equal(late(policy).indices, late("wait").indices), "policies do differ"


SHARDED = """
import json, sys
import jax
import numpy as np
sys.path.insert(0, {tests!r})
import test_feedback as t
assert len(jax.devices()) == 4
run = t.simulate(delay=t.geometric(2.0), capacity=t.HORIZON)
fields = jax.tree_util.tree_leaves_with_path(run)
print(json.dumps({{jax.tree_util.keystr(path): np.asarray(x).tolist() for path, x in fields}}))
"""


@pytest.mark.slow
def test_sharded_equals_unsharded() -> None:
    """The loop over arrivals has as many steps as the busiest trial of its own device needs."""
    tests = str(Path(__file__).parent)
    flags = " ".join([os.environ.get("XLA_FLAGS", ""), "--xla_force_host_platform_device_count=4"]).strip()
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "JAX_NUMPY_DTYPE_PROMOTION": "strict"}
    script = SHARDED.format(tests=tests)
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=900, check=False)
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
    """In the round in which it was issued, arrived or not; until it arrives the trial is as it would have been."""
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


# Bad input.


@jaxbandit.pytree
class Impostor:
    mean: Any = 1.0


def bad(**options: Any) -> Any:
    model = jaxbandit.surrogate(tables()[0], kernels.SquaredExponential(), noise_variance=NOISE, outputs=2, form="features")
    options = {"horizon": 4, "key": KEY, "algorithm": RPOL, **options}
    return jaxbandit.simulate(problem(), options.pop("algorithm"), model, **options)


SOME = delays.Constant(rounds=2)
BAD: list[tuple[str, dict[str, Any], str]] = [
    ("negative delay", {"delay": delays.Constant(rounds=-1)}, "Constant.rounds: must lie in [0, "),
    ("half a round", {"delay": delays.Constant(rounds=1.5)}, "Constant.rounds: must be whole numbers"),
    ("negative observed delay", {"delay": delays.Empirical(values=np.array([0, -2]))}, "Empirical.values: must lie in [0, "),
    ("half an observed delay", {"delay": delays.Empirical(values=np.array([0.5, 2.0]))}, "Empirical.values: must be whole"),
    (
        "no observed delay",
        {"delay": delays.Empirical(values=np.zeros(0, int))},
        "Empirical.values: expected shape [n] with n >= 1, one number per observed delay, got shape [0]",
    ),
    ("negative mean", {"delay": delays.Poisson(mean=-1.0)}, "Poisson.mean: must lie in [0, "),
    ("NaN mean", {"delay": delays.Geometric(mean=float("nan"))}, "Geometric.mean: "),
    ("a bad one in a sweep", {"delay": jaxbandit.sweep(delays.Poisson(), mean=[1.0, -1.0])}, "Poisson.mean: must lie in [0, "),
    ("reversed", {"delay": delays.Uniform(low=3, high=1)}, "Uniform.high: must be >= low"),
    ("a probability above 1", {"delay": delays.Lossy(never=1.5)}, "Lossy.never: must lie in [0, 1]"),
    ("models for other outputs", {"delay": delays.PerOutput(delays=(SOME, SOME, SOME))}, "PerOutput.delays: 3 models for 2 outputs"),
    ("a number for a delay", {"delay": 3}, "delay: expected a model of jaxbandit.delays"),
    ("a policy for a delay", {"delay": feedback.Wait()}, "delay: expected a model of jaxbandit.delays"),
    ("a class for a delay", {"delay": delays.Poisson}, "delay: expected a model of jaxbandit.delays"),
    ("an impostor", {"delay": Impostor()}, "delay: expected a model of jaxbandit.delays"),
    ("a name for a policy", {"delay": SOME, "feedback": "wait"}, "feedback: expected a policy of jaxbandit.feedback"),
    ("a class for a policy", {"delay": SOME, "feedback": feedback.Censor}, "feedback: expected a policy of jaxbandit.feedback"),
    ("a delay for a policy", {"delay": SOME, "feedback": SOME}, "feedback: expected a policy of jaxbandit.feedback"),
    ("a negative window", {"delay": SOME, "feedback": feedback.Censor(window=-1)}, "Censor.window: must be a whole number >= 0"),
    ("half a window", {"delay": SOME, "feedback": feedback.Censor(window=1.5)}, "Censor.window: must be a whole number >= 0"),  # type: ignore[arg-type]
    ("a NaN minimum", {"delay": SOME, "feedback": feedback.Censor(minimum=float("nan"))}, "Censor.minimum: 1 of 1 values are NaN"),
    ("three minima", {"delay": SOME, "feedback": feedback.Censor(minimum=[0.0, 0.0, 0.0])}, "Censor.minimum: expected one number"),
    ("one minimum in a list", {"delay": SOME, "feedback": feedback.Censor(minimum=[0.0])}, "Censor.minimum: expected one number"),
    ("a bad policy without delay", {"feedback": feedback.Censor(window=-1)}, "Censor.window: must be a whole number >= 0"),
    ("no capacity", {"delay": SOME, "capacity": 0}, "capacity: must be a whole number >= 1"),
    ("negative capacity", {"delay": SOME, "capacity": -3}, "capacity: must be a whole number >= 1"),
    ("half a capacity", {"delay": SOME, "capacity": 2.5}, "capacity: must be a whole number >= 1"),
    ("no capacity without delay", {"capacity": 0}, "capacity: must be a whole number >= 1"),
    (
        "sweeps of different sizes",
        {"delay": jaxbandit.sweep(delays.Poisson(), mean=[1.0, 2.0]), "algorithm": jaxbandit.sweep(RPOL, initial_penalty=[1.0, 2.0, 3.0])},
        "algorithm, surrogate, delay: sweeps of different sizes",
    ),
]


@pytest.mark.parametrize(("options", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input_is_refused_before_anything_compiles(options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("nothing may compile")

    monkeypatch.setattr(batch, "_run", stop)
    with pytest.raises(InvalidArgument) as error:
        bad(**options)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("options", [{"delay": SOME}, {"delay": SOME, "feedback": feedback.Hallucinate()}, {}])
def test_a_censored_width_is_for_censored_feedback(options: dict[str, Any]) -> None:
    algorithm = jaxbandit.Rpol(estimator=estimators.Bounds(reward_width=widths.Censored()))
    with pytest.raises(InvalidArgument, match=r"widths\.Censored"):
        bad(algorithm=algorithm, **options)


def test_a_bad_problems_own_delay() -> None:
    with pytest.raises(InvalidArgument, match=r"^Constant\.rounds: must lie in"):
        jaxbandit.simulate(jaxbandit.replace(problem(), delay=delays.Constant(rounds=-1)), RPOL, surrogate(), horizon=3, key=KEY)
