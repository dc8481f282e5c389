"""The protocol of delay models, and what the models have in common."""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.pytree import pytree, static

__all__ = ["LONGEST", "NEVER", "Delay", "Model"]

Array = jax.Array
NEVER = 2**30  # stands for feedback that never arrives; added to a round below 2^30 it stays an int32
LONGEST = NEVER // 2  # the longest delay that is drawn; a float32 holds it exactly


class Delay(Protocol):
    """The protocol of delay models."""

    @property
    def mean(self) -> Any:
        """``E[tau]`` in rounds, ``inf`` where it is infinite."""
        ...

    @property
    def sub_exponential(self) -> tuple[Any, Any] | None:
        """``(xi, b)`` with ``E exp(h (tau - E[tau])) <= exp(h^2 xi^2 / 2)`` for ``|h| <= 1 / b``, or ``None``.

        It is what BPE-Delay assumes of delays (Vakili et al. 2023, Assumption 3.3); ``b = 0`` means for all ``h``.
        """
        ...

    def draw(self, key: Array, outputs: int) -> Array:
        """Delays ``[outputs]`` of one round, int32; ``NEVER`` where nothing will arrive."""
        ...

    def quantile(self, q: float) -> int:
        """The smallest ``n`` with ``P(tau <= n) >= q``, ``0 < q < 1``, given that feedback arrives.

        Of a model whose leaves are stacked, as those of a sweep are: the largest. On the host, in float64.
        """
        ...

    def validate(self, outputs: int | None = None) -> None:
        """Raise ``InvalidArgument`` on parameters outside their range, or when made for another number of outputs."""
        ...


@pytree
class Model:
    """What models share; abstract. A model defines ``_sample``, ``_exceeds``, ``_check``, ``mean`` and, if it has one, ``_tail``.

    Attributes:
      shared: whether all outputs of a round get the same draw.
      maximum: longest delay, or ``None``.
      xi: for ``sub_exponential``, with ``b``; ``None`` for the model's own pair.
      b: see ``xi``.
    """

    shared: bool = static(default=False)
    maximum: int | None = static(default=None)
    xi: Any = None
    b: Any = None

    def _sample(self, key: Array, size: int) -> Array:
        """Numbers ``[size]`` whose integer parts are the delays."""
        raise TypeError(f"{type(self).__name__} must define _sample")

    def _exceeds(self, n: int) -> Any:
        """``P(tau > n)`` before the cut, in float64."""
        raise TypeError(f"{type(self).__name__} must define _exceeds")

    def _tail(self) -> tuple[Any, Any] | None:
        """The pair ``(xi, b)`` of the model, before the cut."""
        return None

    def _check(self, name: str) -> None:
        """Raise ``InvalidArgument`` on the model's own parameters."""
        raise TypeError(f"{type(self).__name__} must define _check")

    @property
    def _top(self) -> int:
        return LONGEST if self.maximum is None else self.maximum

    @property
    def sub_exponential(self) -> tuple[Any, Any] | None:
        return self._tail() if self.xi is None else (self.xi, self.b)

    def draw(self, key: Array, outputs: int) -> Array:
        raw = jnp.clip(self._sample(key, 1 if self.shared else outputs), 0, LONGEST)
        return jnp.broadcast_to(jnp.minimum(raw.astype(jnp.int32), self._top), (outputs,))

    def quantile(self, q: float) -> int:
        checks.within("q", q, 0, 1, open_high=True)
        # By the upper tail, which floating point resolves where P(tau <= n) has rounded to 1; q itself is known to one epsilon.
        rest = 1 - q + float(np.finfo(np.float64).eps)
        low, high = -1, 0
        while high < self._top and np.any(self._exceeds(high) > rest):
            low, high = high, min(2 * high + 1, self._top)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if np.any(self._exceeds(middle) > rest) else (low, middle)
        return high

    def validate(self, outputs: int | None = None) -> None:
        name = type(self).__name__
        if self.maximum is not None and checks.integer(f"{name}.maximum", self.maximum, least=0) > LONGEST:
            raise checks.InvalidArgument(f"{name}.maximum: must be at most {LONGEST}, got {self.maximum}")
        if (self.xi is None) != (self.b is None):
            raise checks.InvalidArgument(f"{name}.xi, {name}.b: give both or neither, got xi={self.xi!r}, b={self.b!r}")
        if self.xi is not None:
            checks.nonnegative(f"{name}.xi", self.xi)
            checks.nonnegative(f"{name}.b", self.b)
        self._check(name)
