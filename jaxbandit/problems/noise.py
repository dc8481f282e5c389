"""Noise models: what is added to the mean values of ``k = 1 + m`` outputs, reward first.

A model works in two steps. ``draw`` makes a round's randomness without knowing which point will be chosen, so that it cannot depend
on the policy and all rounds are drawn at once, outside the loop; ``apply`` turns it into the noise at the chosen point.
"""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.pytree import pytree

__all__ = ["Gaussian", "Noise", "Noiseless"]

Array = jax.Array


class Noise(Protocol):
    """The protocol of noise models."""

    def draw(self, key: Array, outputs: int, dtype: Any) -> Any:
        """A round's randomness, a pytree of arrays."""
        ...

    def apply(self, drawn: Any, index: Array) -> Array:
        """Noise ``[outputs]`` of an observation at grid ``index``."""
        ...

    def validate(self, outputs: int) -> None:
        """Raise ``InvalidArgument`` on parameters outside their range."""
        ...


@pytree
class Gaussian:
    """Independent Gaussian noise of given ``variance >= 0``: one number, or ``[k]``, one per output.

    Papers write ``N(0, 0.05)`` for either; say which you mean by ``Gaussian(variance=...)`` or :meth:`from_sd`.
    """

    variance: Any = 1.0

    @classmethod
    def from_sd(cls, sd: Any) -> Gaussian:
        """Gaussian noise of standard deviation ``sd >= 0``, one number or ``[k]``."""
        checks.nonnegative("sd", sd)
        return cls(variance=np.square(np.asarray(sd, np.float64)))

    def draw(self, key: Array, outputs: int, dtype: Any) -> Array:
        scale = jnp.broadcast_to(jnp.sqrt(jnp.asarray(self.variance, dtype)), (outputs,))
        return scale * jax.random.normal(key, (outputs,), dtype)

    def apply(self, drawn: Array, index: Array) -> Array:
        return drawn

    def validate(self, outputs: int) -> None:
        checks.nonnegative("Gaussian.variance", self.variance)
        if np.shape(self.variance) not in ((), (outputs,)):
            raise checks.InvalidArgument(
                f"Gaussian.variance: expected one number or [{outputs}], got shape {list(np.shape(self.variance))}"
            )


@pytree
class Noiseless:
    """No noise: observations are the mean values."""

    def draw(self, key: Array, outputs: int, dtype: Any) -> Array:
        return jnp.zeros((outputs,), dtype)

    def apply(self, drawn: Array, index: Array) -> Array:
        return drawn

    def validate(self, outputs: int) -> None:
        """Nothing to check."""
