"""Arguments that simulations share with studies: devices, facts and delays."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms.base import Algorithm
from jaxbandit.core import checks
from jaxbandit.core.declare import Array
from jaxbandit.core.fields import Place, each, function, of_class
from jaxbandit.core.keys import round_key
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.delays import Delay, Failing
from jaxbandit.delays.models import unproven
from jaxbandit.feedback import Policy
from jaxbandit.problems import AbstractProblem
from jaxbandit.surrogates import Surrogate

ALMOST_SURELY = 1 - 1e-12


def _check_different(name: str, value: Any, place: Place) -> None:
    some_devices.verify(name, value, place)
    if len(set(value)) < len(value):
        raise checks.InvalidArgument(f"{name}: must be different devices, got {checks.short(value)}")


some_devices = each(of_class(jax.Device, "a device, such as jax.devices()[0]"), least=1)
different_devices = dataclasses.replace(some_devices, allowed=f"{some_devices.allowed}, none twice", verify=_check_different)
told_facts = function("(instance, algorithm, surrogate)")

Telling: TypeAlias = Annotated[Callable[..., Any], told_facts]


@pytree
class Delays:
    """Delays, the policy until values arrive, and the capacity of the buffer."""

    model: Delay
    policy: Policy
    capacity: int = static()
    one_root: bool = static(default=False)

    def draw(self, key: Array, rounds: Array, outputs: int, *, joint: bool) -> tuple[Array, Array]:
        """Return arrival rounds ``[T, k]``, and whether a delay is negative ``[T]``."""
        waits = jax.vmap(lambda t: self.model.draw_in_round(round_key(key, t), outputs, t))(rounds)
        negative = jnp.any(waits < 0, axis=1)
        due = rounds[:, None] + waits
        return jnp.broadcast_to(jnp.max(due, axis=1, keepdims=True), due.shape) if joint else due, negative


def plan_delays(
    problem: AbstractProblem,
    algorithms: Sequence[Algorithm],
    delays: Sequence[Delay],
    feedback: Policy | None,
    capacity: int | None,
    horizon: int,
) -> list[Delays] | list[None]:
    """Return the checked delays of variants, ``None`` without any delay."""
    for delay in delays:
        if isinstance(problem.delay, Failing) and not isinstance(delay, Failing):
            raise checks.InvalidArgument(f"delay: runs of this problem may fail; give delays.Failing(delay=...), got {checks.short(delay)}")
        delay.validate(outputs=problem.outputs)
        for model in unproven(delay):
            _try_out(model, problem.outputs)
    policies = [feedback or algorithm.traits.feedback for algorithm in algorithms]
    for policy in policies:
        policy.validate(outputs=problem.outputs)
    if at_once(delays):
        return [None] * len(policies)
    longest = max(delay.quantile(ALMOST_SURELY) for delay in delays)
    slots = min(horizon - 1, longest) + 1 if capacity is None else capacity
    return [Delays(model=delay, policy=policy, capacity=slots) for delay, policy in zip(delays, policies, strict=True)]


def with_one_root(planned: Sequence[Delays], models: Sequence[Surrogate], horizon: int) -> list[Delays]:
    """Return the delays, with one root if all models allow it."""
    allowed = not checks.is_traced([model.noise_variance for model in models]) and all(
        own.policy.allows_one_root(model, own.capacity)
        and own.capacity > min(horizon - 1, own.model.quantile(ALMOST_SURELY))
        and np.all(np.isfinite(own.model.mean))
        for own, model in zip(planned, models, strict=True)
    )
    return [replace(own, one_root=allowed) for own in planned]


def at_once(delays: Sequence[Delay]) -> bool:
    """Return whether all feedback arrives in its own round."""
    # The quantile is that of arriving values, and the mean is infinite if some value may never arrive.
    longest = max(delay.quantile(ALMOST_SURELY) for delay in delays)
    return longest == 0 and all(np.isfinite(delay.mean) for delay in delays)


def _try_out(delay: Delay, outputs: int) -> None:
    """Raise ``InvalidArgument`` unless a user's model draws delays ``[k]`` of whole rounds."""
    where = f"delay: {type(delay).__name__}"
    words = f"{where}.draw must return whole numbers [{outputs}], int32"
    with checks.blaming(f"{where}.draw must return delays [{outputs}] for a key"):
        given = delay.draw(jax.random.key(0), outputs)
        drawn = np.asarray(given)
    if drawn.shape != (outputs,) or drawn.dtype.kind not in "iu":
        raise checks.InvalidArgument(f"{words}, got {drawn.dtype} {list(drawn.shape)}")
    if not isinstance(given, np.ndarray | jax.Array) or np.any(drawn > np.iinfo(np.int32).max):
        raise checks.InvalidArgument(f"{words}, got {checks.short(given)}")
    checks.nonnegative(f"{where}.draw", drawn, remedy="a delay is a number of rounds >= 0")
    with checks.blaming(f"{where}.quantile must return a whole number of rounds for a probability, and mean a number"):
        quantile, mean = delay.quantile(ALMOST_SURELY), np.asarray(delay.mean, np.float64)
    checks.integer(f"{where}.quantile(q)", quantile, least=0)
    if not np.all(mean >= 0):
        raise checks.InvalidArgument(f"{where}.mean: must be a number of rounds >= 0, got {checks.short(delay.mean)}")
