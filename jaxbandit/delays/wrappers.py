"""Delays made of other delays: feedback that may never arrive, and a model for each output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import between, one_function, unknown, whole
from jaxbandit.core.pytree import float_dtype, pytree, static
from jaxbandit.core.types import Array, Key, Scalar
from jaxbandit.delays.base import NEVER, Delay, Outputs, Probability, SubExponential
from jaxbandit.delays.distributions import NoDelay

__all__ = ["Lossy", "Mirrored", "PerOutput"]


@pytree
class Lossy(Delay):
    """A delay model some of whose feedback does not arrive at all, for each output by itself.

    The mean is infinite unless ``never = 0``, and there is no sub-exponential pair; ``quantile`` is that of what arrives.

    Attributes:
      delay: the model of what arrives.
      never: probability in [0, 1] that a value does not arrive.
      shared: whether all outputs of a round are lost together.
    """

    delay: Delay = NoDelay()
    never: Annotated[Scalar, between(0, 1, open_low=False)] = 0.1
    shared: bool = static(default=False)

    @property
    def mean(self) -> Scalar:
        return jnp.where(jnp.asarray(self.never) > 0, jnp.inf, jnp.asarray(self.delay.mean, float_dtype()))

    @property
    def joint(self) -> bool:
        return self.shared and self.delay.joint

    @property
    def proven(self) -> bool:
        return self.delay.proven

    @checked
    def draw(self, key: Key, outputs: Outputs) -> Array:
        delay_key, loss_key = jax.random.split(key)
        never = jnp.asarray(self.never, float_dtype())
        lost = jax.random.bernoulli(loss_key, never, (1 if self.shared else outputs,))
        return jnp.where(lost, NEVER, self.delay.draw(delay_key, outputs))

    @checked
    def quantile(self, q: Probability) -> int:
        return self.delay.quantile(q)


@pytree
class PerOutput(Delay):
    """A model of its own for every output: ``PerOutput(delays=(Poisson(mean=15.0), NoDelay()))``.

    ``mean``, ``quantile`` and the numbers of ``sub_exponential`` are the largest among the models', which hold for every output.

    Attributes:
      delays: the models, reward first, as many as outputs.
    """

    delays: Annotated[Sequence[Delay], one_function]

    @property
    def mean(self) -> Scalar:
        return _largest([delay.mean for delay in self.delays])

    @property
    def sub_exponential(self) -> SubExponential:
        pairs = [pair for delay in self.delays if (pair := delay.sub_exponential) is not None]
        if len(pairs) < len(self.delays):
            return None
        return _largest([pair[0] for pair in pairs]), _largest([pair[1] for pair in pairs])

    @property
    def proven(self) -> bool:
        return all(delay.proven for delay in self.delays)

    @checked
    def draw(self, key: Key, outputs: Outputs) -> Array:
        self._check_count("PerOutput", outputs)
        keys = jax.random.split(key, outputs)
        return jnp.concatenate([delay.draw(keys[number], 1) for number, delay in enumerate(self.delays)])

    @checked
    def quantile(self, q: Probability) -> int:
        return max(delay.quantile(q) for delay in self.delays)

    def _check(self, name: str, outputs: int | None) -> None:
        if not self.delays:
            raise checks.InvalidArgument(f"{name}.delays: must hold a model for each output, got none")
        if outputs is not None:
            self._check_count(name, outputs)

    def _check_count(self, name: str, outputs: int) -> None:
        if len(self.delays) != outputs:
            raise checks.InvalidArgument(f"{name}.delays: must hold {outputs} models, one per output, got {len(self.delays)}")


@pytree
class Mirrored(Delay):
    """A delay model some of whose outputs are doubled, both copies with one delay, as two inequalities that share a reading.

    Attributes:
      delay: the model of the ``k - e`` outputs before any is doubled.
      doubled: ``e`` of those outputs, by number from 0; each is followed by its copy.
    """

    delay: Annotated[Delay, unknown] = NoDelay()
    doubled: tuple[Annotated[int, whole(0)], ...] = static(default=())

    @property
    def mean(self) -> Scalar:
        return self.delay.mean

    @property
    def sub_exponential(self) -> SubExponential:
        return self.delay.sub_exponential

    @property
    def joint(self) -> bool:
        return self.delay.joint

    @property
    def proven(self) -> bool:
        return self.delay.proven

    @checked
    def draw(self, key: Key, outputs: Outputs) -> Array:
        single = outputs - len(self.doubled)
        copies = np.array([1 + (number in self.doubled) for number in range(single)])
        return self.delay.draw(key, single)[np.repeat(np.arange(single), copies)]

    @checked
    def quantile(self, q: Probability) -> int:
        return self.delay.quantile(q)

    def _check(self, name: str, outputs: int | None) -> None:
        single = None if outputs is None else outputs - len(self.doubled)
        most = max(self.doubled, default=-1) + 1 if single is None else single
        if len(set(self.doubled)) < len(self.doubled) or any(number >= most for number in self.doubled):
            allowed = f"different outputs among 0..{most - 1}" if most > 0 else f"fewer than {outputs} different outputs"
            raise checks.InvalidArgument(f"{name}.doubled: must be {allowed}, got {checks.short(list(self.doubled))}")
        self.delay.validate(f"{name}.delay", single)


def _largest(values: list[Scalar]) -> Array:
    return jnp.max(jnp.stack([jnp.asarray(value, float_dtype()) for value in values]))
