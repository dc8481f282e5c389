"""Tests of arrivals in one round, of their order, and of what the buffer keeps."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxbandit import delays
from jaxbandit.feedback import Feedback, Pending
from tests.support.delayed_runs import (
    HORIZON,
    POLICIES,
    surrogate,
)

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
    learner = POLICIES[policy].bind(surrogate(), separate_outputs=True, capacity=40, axis=None)
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


@pytest.mark.full
@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=25)
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
    np.testing.assert_array_equal(seen.map(lambda x: jnp.maximum(x, 0)).total(), [1, 2, 0])
    np.testing.assert_array_equal(seen.count, [2, 1, 0])
    np.testing.assert_array_equal(seen.largest(), [1, 2, -np.inf])
    np.testing.assert_array_equal(seen.map(jnp.negative).largest(), [4, -2, -np.inf])
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


late_by = st.one_of(st.integers(0, 15), st.just(int(delays.NEVER)), st.just(int(delays.LONGEST_DELAY)))


@settings(max_examples=60)
@given(
    taus=st.lists(st.tuples(late_by, late_by), min_size=HORIZON, max_size=HORIZON),
    capacity=st.sampled_from([1, 2, 5, HORIZON, HORIZON + 4]),
    beyond=st.integers(0, 3),
)
def test_every_value_arrives_once_or_is_counted_as_lost(taus: list[tuple[int, int]], capacity: int, beyond: int) -> None:
    rounds, horizon = np.arange(1, HORIZON + 1), HORIZON + beyond  # a horizon may be longer than what is run
    due = rounds[:, None] + np.array(taus)
    pending, seen = jax.device_get(through_the_buffer(due.astype(np.int32), np.int32(horizon), capacity=capacity))
    arrived: dict[tuple[int, int], int] = {}
    for t in rounds:
        present, ages, values, points = (x[t - 1] for x in (seen.present, seen.ages, seen.values, seen.indices))
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
