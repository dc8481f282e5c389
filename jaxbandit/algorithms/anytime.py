"""The anytime wrapper: the doubling trick for algorithms with parameters that depend on the horizon (Zhou and Ji 2022, Remark 1)."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxbandit.algorithms.base import Arena, Decision, Observation
from jaxbandit.core.pytree import pytree, replace, static

Array = jax.Array


@pytree
class AnytimeState:
    """What the wrapper carries: the wrapped algorithm's state."""

    inner: Any

    @property
    def posterior(self) -> Any:
        """The wrapped algorithm's posterior."""
        return self.inner.posterior


@pytree
class Anytime:
    """Run ``algorithm`` over stretches of 1, 2, 4, ... rounds, each with its own length for horizon.

    Stretch ``i`` covers rounds ``2^i .. 2^(i+1) - 1``. At its first round the algorithm starts again: penalties, dual variables and
    round count; data too unless ``keep_data``. (Round 1 starts with the initial design, if there is one.)

    Attributes:
      algorithm: any algorithm.
      keep_data: carry the posterior over (the theory starts afresh; practice gains by keeping it).
    """

    name: ClassVar[str] = "anytime"
    algorithm: Any
    keep_data: bool = static(default=False)

    def init(self, arena: Arena) -> AnytimeState:
        return AnytimeState(inner=self.algorithm.init(replace(arena, horizon=jnp.int32(1))))

    def select(self, arena: Arena, state: AnytimeState, t: Array, key: Array) -> tuple[Decision, AnytimeState]:
        own, start = self._stretch(arena, t)
        decision, inner = self.algorithm.select(own, state.inner, t - start + 1, key)
        return decision, AnytimeState(inner=inner)

    def update(self, arena: Arena, state: AnytimeState, observation: Observation, t: Array) -> AnytimeState:
        own, start = self._stretch(arena, t)
        inner = self.algorithm.update(own, state.inner, observation, t - start + 1)
        # The restart belongs to the end of a stretch, so that the state always holds the multipliers of the coming round.
        following, next_start = self._stretch(arena, t + 1)
        return AnytimeState(inner=jax.lax.cond(t + 1 == next_start, self._restarted, _kept, following, inner))

    def reveal(self, arena: Arena, state: AnytimeState, sample: Array, t: Array) -> AnytimeState:
        """Show the sample to an algorithm for full information."""
        own, start = self._stretch(arena, t)
        return AnytimeState(inner=self.algorithm.reveal(own, state.inner, sample, t - start + 1))

    def _stretch(self, arena: Arena, t: Array) -> tuple[Arena, Array]:
        """The arena of round ``t``'s stretch and the round at which the stretch starts, the largest power of 2 up to ``t``."""
        start = jnp.left_shift(jnp.int32(1), 31 - jax.lax.clz(jnp.asarray(t, jnp.int32)))
        return replace(arena, horizon=start), start

    def _restarted(self, arena: Arena, inner: Any) -> Any:
        fresh = self.algorithm.init(arena)
        return replace(fresh, posterior=inner.posterior) if self.keep_data else fresh

    def told(self, delay: Any, policy: Any) -> Anytime:
        """The wrapped algorithm told what it may know of the delays."""
        return replace(self, algorithm=self.algorithm.told(delay, policy)) if hasattr(self.algorithm, "told") else self

    def audit_parameters(self, horizon: int) -> dict[str, Any]:
        """The wrapped algorithm's parameters over the last full stretch, for audit traces."""
        inner: Any = getattr(self.algorithm, "audit_parameters", lambda horizon: {})
        return {"anytime": True, "keep_data": self.keep_data, **inner(1 << (horizon.bit_length() - 1))}

    def validate(self, constraints: int) -> None:
        self.algorithm.validate(constraints)


def _kept(arena: Arena, inner: Any) -> Any:
    return inner
