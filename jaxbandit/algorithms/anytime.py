"""The anytime wrapper: the doubling trick for algorithms with parameters that depend on the horizon (Zhou and Ji 2022, Remark 1)."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxbandit.algorithms.base import Algorithm, Arena, Decision, Seen, Shown, Wrapper, posterior_of
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.core.types import Array, Key


@pytree
class AnytimeState:
    """State of the wrapper: the wrapped algorithm's state, and what it showed in earlier stretches."""

    inner: object
    flags: Array  # [] int32, bits raised in earlier stretches
    evaluations: Array  # [] int32, of earlier stretches; of algorithms that stop by themselves


@pytree
class Anytime(Wrapper[AnytimeState]):
    """Run ``algorithm`` over stretches of 1, 2, 4, ... rounds, each with its own length for horizon.

    Stretch ``i`` covers rounds ``2^i .. 2^(i+1) - 1``. At its first round the algorithm starts again: penalties, dual variables and
    round count; data too unless ``keep_data``. (Round 1 starts with the initial design, if there is one.)

    Attributes:
      algorithm: any algorithm.
      keep_data: carry the posterior over (the theory starts afresh; practice gains by keeping it).
    """

    name: ClassVar[str] = "anytime"
    title: ClassVar[str] = "doubling trick"
    paper: ClassVar[str] = "Zhou, Ji (2022), *On Kernelized Multi-Armed Bandits with Constraints*, Remark 1"
    algorithm: Algorithm[Any]
    keep_data: bool = static(default=False)

    def init(self, arena: Arena) -> AnytimeState:
        return _at_start(self.algorithm.init(replace(arena, horizon=jnp.int32(1))))

    def select(self, arena: Arena, state: AnytimeState, t: Array, key: Key) -> tuple[Decision, AnytimeState]:
        stretch, start = _stretch(arena, t)
        decision, inner = self.algorithm.select(stretch, state.inner, t - start + 1, key)
        return decision, replace(state, inner=inner)

    def update(self, arena: Arena, state: AnytimeState, observation: Seen, t: Array) -> AnytimeState:
        stretch, start = _stretch(arena, t)
        inner = self.algorithm.update(stretch, state.inner, observation, t - start + 1)
        # The restart belongs to the end of a stretch, so that the state always holds the multipliers of the coming round.
        following, next_start = _stretch(arena, t + 1)
        after: AnytimeState = jax.lax.cond(
            t + 1 == next_start, self._restarted, lambda _, state: state, following, replace(state, inner=inner)
        )
        return after

    def learn(self, arena: Arena, state: AnytimeState, observation: Seen) -> AnytimeState:
        return replace(state, inner=self.algorithm.learn(arena, state.inner, observation))

    def begin(self, arena: Arena, state: AnytimeState) -> AnytimeState:
        return replace(state, inner=self.algorithm.begin(arena, state.inner))

    def reset(self, arena: Arena, state: AnytimeState) -> AnytimeState:
        return _at_start(self.algorithm.reset(replace(arena, horizon=jnp.int32(1)), state.inner))

    def belief(self, state: AnytimeState) -> object:
        return self.algorithm.belief(posterior_of(state, "inner"))

    def diagnose(self, state: AnytimeState) -> Shown:
        shown = self.algorithm.diagnose(state.inner)
        before = {"evaluations": state.evaluations + shown["evaluations"]} if "evaluations" in shown else {}
        return {**shown, "flags": state.flags | jnp.asarray(shown.get("flags", 0), jnp.int32), **before}

    def reveal(self, arena: Arena, state: AnytimeState, sample: Array, t: Array) -> AnytimeState:
        stretch, start = _stretch(arena, t)
        return replace(state, inner=self.algorithm.reveal(stretch, state.inner, sample, t - start + 1))

    def _restarted(self, arena: Arena, state: AnytimeState) -> AnytimeState:
        """Return the state at the start of the stretch of ``arena``."""
        shown = self.diagnose(state)
        fresh = self.algorithm.reset(arena, state.inner) if self.keep_data else self.algorithm.init(arena)
        return AnytimeState(inner=fresh, flags=shown["flags"], evaluations=shown.get("evaluations", state.evaluations))

    def symbols_in_force(self, horizon: int) -> dict[str, object]:
        """Return the letters of the wrapped algorithm over the last full stretch."""
        last = 1 << (horizon.bit_length() - 1)
        return {"anytime": True, "keep_data": self.keep_data, **self.algorithm.symbols_in_force(last)}


def _stretch(arena: Arena, t: Array) -> tuple[Arena, Array]:
    """Return the arena of round ``t``'s stretch and the round at which the stretch starts, the largest power of 2 up to ``t``."""
    start = jnp.left_shift(jnp.int32(1), 31 - jax.lax.clz(jnp.asarray(t, jnp.int32)))
    return replace(arena, horizon=start), start


def _at_start(inner: object) -> AnytimeState:
    return AnytimeState(inner=inner, flags=jnp.int32(0), evaluations=jnp.int32(0))
