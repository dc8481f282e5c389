"""The check of feedback policies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit import domains
from jaxbandit.core.declare import Array
from jaxbandit.core.pytree import canonicalise
from jaxbandit.feedback import DelayedSurrogate, Pending, Policy, Wait
from jaxbandit.kernels import SquaredExponential
from jaxbandit.surrogates import Surrogate, surrogate
from jaxbandit.testing.common import ensure, made, near, survives


def check_policy(policy: Policy | Callable[[], Policy], *, late: int = 1, equals_wait: bool = True) -> Policy:
    """Check that a feedback policy uses arrived values only, in float64.

    Without delay its beliefs must be those of :class:`~jaxbandit.feedback.Wait`. A pending value must not change any belief, whatever its
    slot contains. Once a value has arrived, the mean of its output must follow the value.

    Args:
      policy: the policy.
      late: delay of the late values in rounds, ``>= 1``. The policy must use values of that delay.
      equals_wait: whether beliefs are those of ``Wait`` once no value is pending. False for a policy that weighs values by their age.

    Raises:
      AssertionError: if the policy breaks a promise.
    """
    policy = made(policy, Policy)
    name = survives(policy, outputs=2)
    with jax.enable_x64(True):
        rng, rounds = np.random.default_rng(0), late + 3
        domain = domains.product([np.linspace(0, 1, 4), np.linspace(0, 1, 3)])
        model = surrogate(domain, SquaredExponential(length_scale=0.4), noise_variance=0.1, outputs=2, form="features")
        # The model may have a low rank, therefore beliefs are compared at the observed points.
        chosen, values = rng.permutation(domain.size)[:rounds], rng.normal(size=(rounds, 2))
        at_once = np.tile(np.arange(1, rounds + 1)[:, None], (1, 2))
        # All values of the first rounds arrive in round ``1 + late``. Later values arrive at once.
        delayed = np.maximum(at_once, 1 + late)
        play = _player(canonicalise(model), chosen, rounds + 1)
        wait, own = play(Wait(), values, at_once), play(policy, values, at_once)
        for t in range(rounds + 1):
            for what, mine, theirs in zip(("mean", "deviation"), own, wait, strict=True):
                near(name, f"without delay is Wait: {what} after round {t}", mine[t], theirs[t], 1e-8)
        belief, other = play(policy, values, delayed), play(Wait(), values, delayed)
        if equals_wait:
            for what, mine, theirs in zip(("mean", "deviation"), belief, other, strict=True):
                near(name, f"is Wait once nothing is under way: {what}", mine[late + 1 :], theirs[late + 1 :], 1e-8)
        for output in range(2):
            changed = values.copy()
            changed[0, output] += 1.0
            for words, due, before in (("at once", at_once, 1), (f"{late} rounds late", delayed, 1 + late)):
                first, second = play(policy, values, due)[0], play(policy, changed, due)[0]
                for t in range(before):
                    near(name, f"knows nothing that is under way: mean after round {t}, value {words}", second[t], first[t], 0)
                for t in range(before, rounds + 1):
                    moved = second[t, output, chosen[0]] - first[t, output, chosen[0]]
                    words_of = f"output {output} raised by 1 that arrives {words} must raise its mean after round {t}"
                    ensure(bool(moved > 1e-3), name, f"learns what arrives: a value of {words_of}, got a change of {moved:.3g}")
                    rest = np.delete(second[t] - first[t], output, axis=0)
                    near(name, f"keeps outputs apart: mean after round {t}, value {words}", rest, 0 * rest, 1e-9)
        never = np.where(np.arange(2) == 1, 10**6, delayed)
        near(name, "masks what never arrives: mean", play(policy, np.where([True, False], values, np.nan), never)[0],
              play(policy, np.where([True, False], values, 3.0), never)[0], 0)  # fmt: skip
    return policy


def _player(model: Surrogate, chosen: np.ndarray, capacity: int) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """Return a function of policy, values and arrivals that returns beliefs."""

    @jax.jit
    def play(policy: Policy, values: Array, due: Array) -> tuple[Array, Array]:
        learner: DelayedSurrogate = policy.bind(model, separate_outputs=True, capacity=capacity, axis=None)
        rounds = len(chosen)

        def believed(posterior: Any) -> tuple[Array, Array]:
            belief = learner.belief(posterior)
            return belief.mean, belief.sd

        def one(carry: tuple[object, Pending], given: tuple[Array, ...]) -> tuple[tuple[object, Pending], tuple[Array, Array]]:
            (posterior, pending), (t, index, value, when) = carry, given
            pending = pending.push(t, index, value, when, jnp.int32(rounds))
            posterior = policy.learn(learner, posterior, pending.arriving(t, index, value, when))
            return (posterior, pending), believed(posterior)

        # An initial design of one point precedes round 1.
        begun = policy.condition(learner, policy.init(learner), jnp.int32(chosen[-1]), jnp.asarray([0.7, -0.4]))
        start = begun, Pending.empty(capacity, 2, values.dtype)
        rows = jnp.arange(1, rounds + 1, dtype=jnp.int32), jnp.asarray(chosen, jnp.int32), values, due.astype(jnp.int32)
        _, after = jax.lax.scan(one, start, rows)
        mean, sd = (jnp.concatenate([a[None], b]) for a, b in zip(believed(start[0]), after, strict=True))
        return mean, sd

    def played(policy: Policy, values: np.ndarray, due: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, sd = play(canonicalise(policy), values, due)
        return np.asarray(mean), np.asarray(sd)

    return played
