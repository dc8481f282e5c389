"""Delays made of other delays: feedback that may never arrive, and a model for each output."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.pytree import float_dtype, pytree, static
from jaxbandit.delays.base import NEVER
from jaxbandit.delays.distributions import NoDelay

__all__ = ["Lossy", "Mirrored", "PerOutput"]

Array = jax.Array


@pytree
class Lossy:
    """``delay``, but with probability ``never`` in ``[0, 1]`` feedback does not arrive at all, for each output by itself.

    The mean is infinite unless ``never = 0``, and there is no sub-exponential pair; ``quantile`` is that of what arrives. With
    ``shared`` all outputs of a round are lost together.
    """

    delay: Any = NoDelay()
    never: Any = 0.1
    shared: bool = static(default=False)

    @property
    def mean(self) -> Any:
        return jnp.where(jnp.asarray(self.never) > 0, jnp.inf, jnp.asarray(self.delay.mean, float_dtype()))

    @property
    def sub_exponential(self) -> None:
        return None

    def draw(self, key: Array, outputs: int) -> Array:
        delay_key, loss_key = jax.random.split(key)
        never = jnp.asarray(self.never, float_dtype())
        lost = jax.random.bernoulli(loss_key, never, (1 if self.shared else outputs,))
        return jnp.where(lost, NEVER, self.delay.draw(delay_key, outputs))

    def quantile(self, q: float) -> int:
        return self.delay.quantile(q)

    def validate(self, outputs: int | None = None) -> None:
        checks.within("Lossy.never", self.never, 0, 1, open_low=False)
        checks.scalar("Lossy.never", self.never)
        self.delay.validate(outputs)


@pytree
class PerOutput:
    """A model of its own for every output: ``PerOutput(delays=(Poisson(mean=15.0), NoDelay()))``, reward first.

    ``mean``, ``quantile`` and the numbers of ``sub_exponential`` are the largest among the models', which hold for every output.
    """

    delays: tuple[Any, ...]

    @property
    def mean(self) -> Any:
        return _largest([delay.mean for delay in self.delays])

    @property
    def sub_exponential(self) -> tuple[Any, Any] | None:
        pairs = [delay.sub_exponential for delay in self.delays]
        if any(pair is None for pair in pairs):
            return None
        return _largest([pair[0] for pair in pairs]), _largest([pair[1] for pair in pairs])

    def draw(self, key: Array, outputs: int) -> Array:
        self._check_count(outputs)
        keys = jax.random.split(key, outputs)
        return jnp.concatenate([delay.draw(keys[number], 1) for number, delay in enumerate(self.delays)])

    def quantile(self, q: float) -> int:
        return max(delay.quantile(q) for delay in self.delays)

    def validate(self, outputs: int | None = None) -> None:
        if not self.delays:
            raise checks.InvalidArgument("PerOutput.delays: no models; give one per output")
        if outputs is not None:
            self._check_count(outputs)
        for delay in self.delays:
            delay.validate(1)

    def _check_count(self, outputs: int) -> None:
        if len(self.delays) != outputs:
            raise checks.InvalidArgument(f"PerOutput.delays: {len(self.delays)} models for {outputs} outputs; give one per output")


@pytree
class Mirrored:
    """Some outputs twice with one delay, as two inequalities that share a reading see it.

    Attributes:
      delay: the model of the ``k - e`` outputs before any is doubled.
      doubled: ``e`` of those outputs, by number from 0; each is followed by its copy.
    """

    delay: Any = NoDelay()
    doubled: tuple[int, ...] = static(default=())

    @property
    def mean(self) -> Any:
        return self.delay.mean

    @property
    def sub_exponential(self) -> tuple[Any, Any] | None:
        return self.delay.sub_exponential

    def draw(self, key: Array, outputs: int) -> Array:
        single = outputs - len(self.doubled)
        copies = np.array([1 + (number in self.doubled) for number in range(single)])
        return self.delay.draw(key, single)[np.repeat(np.arange(single), copies)]

    def quantile(self, q: float) -> int:
        return self.delay.quantile(q)

    def validate(self, outputs: int | None = None) -> None:
        single = None if outputs is None else outputs - len(self.doubled)
        most = max(self.doubled, default=-1) + 1 if single is None else single
        if len(set(self.doubled)) < len(self.doubled) or any(not 0 <= number < most for number in self.doubled):
            raise checks.InvalidArgument(f"Mirrored.doubled: must be different outputs among 0..{most - 1}, got {list(self.doubled)}")
        self.delay.validate(single)


def _largest(values: list[Any]) -> Any:
    return jnp.max(jnp.stack([jnp.asarray(value, float_dtype()) for value in values]))
