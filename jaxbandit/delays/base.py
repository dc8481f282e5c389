"""The abstract base of delay models, and the fields and methods that most of them share."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Annotated, ClassVar, TypeAlias

import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.declare import Declared, checked
from jaxbandit.core.fields import between, nonnegative, whole
from jaxbandit.core.pytree import pytree, static
from jaxbandit.core.types import Array, Key, Scalar

__all__ = ["LONGEST_DELAY", "NEVER", "POISSON_MEAN", "Delay"]

NEVER = 2**30  # stands for feedback that never arrives; added to a round below 2^30 it stays an int32
LONGEST_DELAY = NEVER // 2  # the longest delay that is drawn; a float32 holds it exactly
POISSON_MEAN = between(0, LONGEST_DELAY / 2, open_low=False)
"""Check of the mean of Poisson delays."""

Outputs: TypeAlias = Annotated[int, whole(1, 1000)]
"""A number of outputs."""

Probability: TypeAlias = Annotated[float, between(0, 1, open_high=True, host=True)]
"""The probability of a quantile."""

SubExponential: TypeAlias = tuple[Scalar, Scalar] | None
"""The pair ``(xi, b)`` of a sub-exponential delay, in rounds; ``None`` where there is none."""


class Delay(Declared, abc.ABC):
    """Abstract base of delay models: pytree dataclasses that draw the delays ``tau >= 0`` of every output, in rounds."""

    described: ClassVar[str] = "a delay model of jaxbandit.delays, such as Poisson(mean=15.0)"
    in_files: ClassVar[bool] = True

    @property
    def proven(self) -> bool:
        """Return whether draws are whole numbers >= 0 by the model's definition, so that none has to be tried out; default: no."""
        return False

    @property
    @abc.abstractmethod
    def mean(self) -> Scalar:
        """``E[tau]`` in rounds, ``inf`` where it is infinite."""

    @property
    def sub_exponential(self) -> SubExponential:
        """``(xi, b)`` with ``E exp(h (tau - E[tau])) <= exp(h^2 xi^2 / 2)`` for ``|h| <= 1 / b``, or ``None``, the default.

        It is what BPE-Delay assumes of delays (Vakili et al. 2023, Assumption 3.3); ``b = 0`` means for all ``h``.
        """
        return None

    @property
    def joint(self) -> bool:
        """Return whether all values of one point surely arrive together; default: no."""
        return False

    @abc.abstractmethod
    def draw(self, key: Key, outputs: Outputs) -> Array:
        """Return delays ``[outputs]`` of one round, int32; ``NEVER`` where nothing will arrive."""

    @abc.abstractmethod
    def quantile(self, q: Probability) -> int:
        """Return the smallest ``n`` with ``P(tau <= n) >= q``, ``0 < q < 1``, given that feedback arrives.

        For a model whose leaves are stacked, as those of a sweep are, it is the largest. It is computed on the host, in float64.

        Raises:
          InvalidArgument: unless ``0 < q < 1``.
        """


@pytree
class Model(Delay):
    """Abstract base of models with a distribution: a model defines ``mean``, ``_sample``, ``_exceeds`` and, if it has one, ``_tail``.

    Attributes:
      shared: whether all outputs of a round get the same draw.
      maximum: longest delay in rounds, or ``None``.
      xi: for ``sub_exponential``, with ``b``; ``None`` for the model's own pair.
      b: see ``xi``.
    """

    shared: bool = static(default=False)
    maximum: Annotated[int, whole(0, LONGEST_DELAY)] | None = static(default=None)
    xi: Annotated[Scalar, nonnegative] | None = None
    b: Annotated[Scalar, nonnegative] | None = None

    @abc.abstractmethod
    def _sample(self, key: Key, size: int) -> Array:
        """Return numbers ``[size]`` whose integer parts are the delays."""

    @abc.abstractmethod
    def _exceeds(self, n: int) -> np.ndarray:
        """Return ``P(tau > n)`` before the cut, in float64."""

    def _tail(self) -> SubExponential:
        """Return the pair ``(xi, b)`` of the distribution, before the cut."""
        return None

    @property
    def _top(self) -> int:
        return LONGEST_DELAY if self.maximum is None else self.maximum

    proven = True  # for each draw is clipped

    @property
    def joint(self) -> bool:
        return self.shared

    @property
    def sub_exponential(self) -> SubExponential:
        return self._tail() if self.xi is None or self.b is None else (self.xi, self.b)

    @checked
    def draw(self, key: Key, outputs: Outputs) -> Array:
        raw = jnp.clip(self._sample(key, 1 if self.shared else outputs), 0, LONGEST_DELAY)
        return jnp.broadcast_to(jnp.minimum(raw.astype(jnp.int32), self._top), (outputs,))

    @checked
    def quantile(self, q: Probability) -> int:
        # By the upper tail, which floating point resolves where P(tau <= n) has rounded to 1; q itself is known to one epsilon.
        rest = 1 - q + float(np.finfo(np.float64).eps)
        low, high = -1, 0
        while high < self._top and np.any(self._exceeds(high) > rest):
            low, high = high, min(2 * high + 1, self._top)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if np.any(self._exceeds(middle) > rest) else (low, middle)
        return high

    def _check(self, name: str, outputs: int | None) -> None:
        if (self.xi is None) != (self.b is None):
            raise checks.InvalidArgument(f"{name}.xi, {name}.b: give both or neither, got xi={self.xi!r}, b={self.b!r}")


def check_count(name: str, models: Sequence[object], outputs: int | None) -> None:
    """Raise ``InvalidArgument`` unless there is a model for each output."""
    if not models:
        raise checks.InvalidArgument(f"{name}: must hold a model for each output, got none")
    if outputs is not None and len(models) != outputs:
        raise checks.InvalidArgument(f"{name}: must hold {outputs} models, one per output, got {len(models)}")


def single_outputs(name: str, doubled: tuple[int, ...], outputs: int | None) -> int | None:
    """Return how many of ``outputs`` there are before some are doubled; raise ``InvalidArgument`` unless those are there, each once."""
    single = None if outputs is None else outputs - len(doubled)
    most = max(doubled, default=-1) + 1 if single is None else single
    if len(set(doubled)) < len(doubled) or any(number >= most for number in doubled):
        allowed = f"different outputs among 0..{most - 1}" if most > 0 else f"fewer than {outputs} different outputs"
        raise checks.InvalidArgument(f"{name}.doubled: must be {allowed}, got {checks.short(list(doubled))}")
    return single
