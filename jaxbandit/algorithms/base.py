"""What an algorithm is: three pure functions over an immutable state, and all that it may know.

An algorithm sees an :class:`Arena`, never the problem, so it cannot look at the truth. The same ``select`` and ``update`` serve a
simulation and a real experiment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.pytree import pytree, replace
from jaxbandit.feedback import Feedback

Array = jax.Array


@pytree
class Arena:
    """All a learner may know: the GP model of the functions and the number of rounds.

    Under delay ``surrogate`` is a learner of :mod:`jaxbandit.feedback`, which has the same interface.
    """

    surrogate: Any
    horizon: Any  # [] T; a leaf, so that a wrapper can run an algorithm over stretches of growing length

    @property
    def constraints(self) -> int:
        """``m``."""
        return self.surrogate.constraints

    def learn(self, posterior: Any, observation: Observation | Feedback) -> Any:
        """The posterior that has taken in what ``observation`` brings."""
        if isinstance(observation, Observation):
            return self.surrogate.condition(posterior, observation.index, observation.values)
        return self.surrogate.learn(posterior, observation)


@pytree
class Decision:
    """The point chosen for a round, and what led to it. Diagnostics are recorded, never read back."""

    index: Array  # [] int32, a row of the domain's points; M marks a NaN score
    widths: Array  # [1 + m] beta_t of the reward and of each constraint
    flags: Array | int = 0  # [] int32 bits of core.status.Status that this round raises, such as a declared infeasibility
    draws: Any = None  # what a randomised strategy drew: [1 + m] multiples of sigma, or [1 + m, M] joint draws


@pytree
class Observation:
    """Noisy values seen at once at a point: the reward, then each constraint (``<= 0`` is feasible).

    Algorithms ask it what :class:`~jaxbandit.feedback.Feedback` can answer, too, and so run under delay.
    """

    index: Array  # [] int32
    values: Array  # [1 + m]

    def total(self, function: Callable[[Array], Array] | None = None) -> Array:
        """``sum of function(values)`` over the values of each output that came in this round, ``[1 + m]``; default: of themselves."""
        return self.values if function is None else function(self.values)

    def largest(self, function: Callable[[Array], Array] | None = None) -> Array:
        """The largest ``function(values)`` of each output that came in this round, ``[1 + m]``."""
        return self.total(function)

    @property
    def count(self) -> Array:
        """How many values of each output came in this round, ``[1 + m]``."""
        return jnp.ones_like(self.values)

    def map(self, function: Callable[[Array], Array]) -> Observation:
        """The same with ``function`` of the values ``[1 + m]``."""
        return replace(self, values=function(self.values))


class Algorithm(Protocol):
    """The protocol. Implementations are pytree dataclasses whose default construction is valid.

    A state is a pytree dataclass that holds ``posterior`` and, where the algorithm has some, ``multipliers [m]``: the penalty
    factors, dual variables or virtual queues in force for the coming round; ``flags []``, if there, holds status bits raised so far.

    ``update`` conditions by ``arena.learn`` and takes sums over what came in by ``observation.total``; that is all it takes to run under
    delay. ``feedback``, a class attribute, names the policy that an algorithm runs under by default, :class:`~jaxbandit.feedback.Wait`
    unless given; ``whole_observations`` asks for points whose values have all arrived; ``told(delay) -> algorithm`` takes what the
    algorithm may know of the delays.

    An algorithm for stochastic full information also has ``reveal(arena, state, sample, t) -> state``, called before ``select`` with
    the round's noisy constraint functions ``[m, M]``. One whose surrogate models other values than those observed has
    ``learn(arena, posterior, observation) -> posterior``, which an initial design uses, too.
    """

    name: ClassVar[str]

    def init(self, arena: Arena) -> Any:
        """The state before the first observation."""
        ...

    def select(self, arena: Arena, state: Any, t: Array, key: Array) -> tuple[Decision, Any]:
        """Choose the point of round ``t`` (counted from 1)."""
        ...

    def update(self, arena: Arena, state: Any, observation: Observation | Feedback, t: Array) -> Any:
        """Take in what round ``t`` brings: the observation made, or under delay what arrives at its end."""
        ...

    def validate(self, constraints: int) -> None:
        """Raise ``InvalidArgument`` on hyper-parameters outside their range, or not matching ``m = constraints``."""
        ...


def unwrapped(algorithm: Any) -> Any:
    """The algorithm that a wrapper wraps, or the algorithm itself."""
    return unwrapped(algorithm.algorithm) if hasattr(algorithm, "algorithm") else algorithm


def sees_samples(algorithm: Any) -> bool:
    """Whether the algorithm is for stochastic full information, and wants ``reveal`` called before ``select``."""
    return hasattr(unwrapped(algorithm), "reveal")


def shared_factor(arena: Arena, name: str) -> Any:
    """The arena's surrogate, if all outputs share one factor; algorithms that model a combination of outputs need that.

    Raises:
      InvalidArgument: when outputs differ in kernel or noise variance.
    """
    if len(arena.surrogate.forms) != 1:
        raise InvalidArgument(f"surrogate: {name} models a combination of outputs; give all of them one kernel and noise_variance")
    return arena.surrogate
