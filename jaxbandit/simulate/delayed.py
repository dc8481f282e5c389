"""How a simulation delays feedback: which model, which policy, how large a buffer."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms.base import unwrapped
from jaxbandit.core import checks
from jaxbandit.core.keys import round_key
from jaxbandit.core.pytree import Sweep, pytree, stack, static, unstack
from jaxbandit.feedback import Wait

Array = jax.Array

ALMOST_SURELY = 1 - 1e-12  # the quantile of a delay that a buffer is made for


@pytree
class Delays:
    """How feedback comes: the delays of values, and what the learner does meanwhile.

    Attributes:
      model: a delay model of :mod:`jaxbandit.delays`, or a sweep of one.
      policy: a policy of :mod:`jaxbandit.feedback`.
      capacity: slots of the buffer of pending feedback.
    """

    model: Any
    policy: Any
    capacity: int = static()

    @property
    def together(self) -> bool:
        """Whether all values of a point surely arrive together."""
        return _together(self.model.stacked if isinstance(self.model, Sweep) else self.model)

    def draw(self, key: Array, rounds: Array, outputs: int, *, whole: bool) -> Array:
        """The rounds at whose ends values arrive, ``[T, k]``; with ``whole`` those of a point arrive together, with the last."""
        due = rounds[:, None] + jax.vmap(lambda t: self.model.draw(round_key(key, t), outputs))(rounds)
        return jnp.broadcast_to(jnp.max(due, axis=1, keepdims=True), due.shape) if whole else due


def plan(outputs: int, algorithm: Any, delay: Any, feedback: Any, capacity: int | None, horizon: int) -> tuple[Delays | None, Any]:
    """How feedback comes, ``None`` for at once, and the algorithm told what it may know of it.

    Raises:
      InvalidArgument: on what is no delay model or policy, on their parameters, on a capacity below 1, or when the algorithm cannot
        work with such delays.
    """
    chosen = algorithm.stacked if isinstance(algorithm, Sweep) else algorithm
    model = delay.stacked if isinstance(delay, Sweep) else delay
    if isinstance(model, type) or not hasattr(model, "quantile"):
        raise checks.InvalidArgument(f"delay: expected a model of jaxbandit.delays, such as Poisson(mean=15.0), got {model!r}")
    models = unstack(delay) if isinstance(delay, Sweep) else [delay]
    for one in models:
        one.validate(outputs=outputs)
    policy = getattr(unwrapped(chosen), "feedback", Wait()) if feedback is None else feedback
    if isinstance(policy, type) or not hasattr(policy, "bind"):
        raise checks.InvalidArgument(f"feedback: expected a policy of jaxbandit.feedback, such as Wait(), got {policy!r}")
    policy.validate(outputs)
    if capacity is not None:
        checks.integer("capacity", capacity, least=1)
    longest = model.quantile(ALMOST_SURELY)  # of what arrives; a mean is infinite where some may not
    if longest == 0 and all(np.isfinite(one.mean) for one in models):
        return None, algorithm
    if hasattr(chosen, "told"):
        algorithm = _told(algorithm, delay, policy)
    return Delays(model=delay, policy=policy, capacity=capacity or min(horizon - 1, longest) + 1), algorithm


def _together(model: Any) -> bool:
    return getattr(model, "shared", False) and (not hasattr(model, "delay") or _together(model.delay))


def _told(algorithm: Any, delay: Any, policy: Any) -> Any:
    """The algorithm, or the sweep of it, that knows its delays."""
    sizes = [item.size for item in (algorithm, delay) if isinstance(item, Sweep)]
    if not sizes:
        return algorithm.told(delay, policy)
    algorithms, models = ([*unstack(item)] if isinstance(item, Sweep) else [item] * sizes[0] for item in (algorithm, delay))
    return Sweep(stacked=stack([a.told(d, policy) for a, d in zip(algorithms, models, strict=True)]), size=sizes[0])


def warn_of_loss(lost: Array, capacity: int, horizon: int) -> None:
    """Warn when a buffer smaller than the horizon lost feedback; this waits for the run to end."""
    count = 0 if capacity >= horizon else int(np.sum(np.asarray(lost)))
    if count:
        warnings.warn(
            f"simulate: {count} values of delayed feedback found no place in a buffer of {capacity} rounds and were lost; raise capacity"
            " (the trials concerned are flagged)",
            stacklevel=3,
        )
