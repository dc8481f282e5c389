"""Delays from the usual distributions, and from data."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.pytree import float_dtype, pytree
from jaxbandit.delays.base import LONGEST, Model

__all__ = ["Constant", "Empirical", "Geometric", "LogNormal", "NoDelay", "Pareto", "Poisson", "Uniform"]

Array = jax.Array


@pytree
class NoDelay:
    """Feedback arrives in its own round."""

    @property
    def mean(self) -> float:
        return 0.0

    @property
    def sub_exponential(self) -> tuple[float, float]:
        return 0.0, 0.0

    def draw(self, key: Array, outputs: int) -> Array:
        return jnp.zeros((outputs,), jnp.int32)

    def quantile(self, q: float) -> int:
        checks.within("q", q, 0, 1, open_high=True)
        return 0

    def validate(self, outputs: int | None = None) -> None:
        """Nothing to check."""


@pytree
class Constant(Model):
    """Always ``rounds >= 0`` rounds, a whole number."""

    rounds: Any = 1

    @property
    def mean(self) -> Any:
        return self.rounds

    def _sample(self, key: Array, size: int) -> Array:
        return jnp.broadcast_to(jnp.asarray(self.rounds), (size,))

    def _exceeds(self, n: int) -> Any:
        return np.where(n < np.asarray(self.rounds), 1.0, 0.0)

    def _tail(self) -> tuple[Any, Any]:
        return 0.0, 0.0

    def _check(self, name: str) -> None:
        _whole(f"{name}.rounds", self.rounds)


@pytree
class Poisson(Model):
    """Poisson delays of given ``mean >= 0``. Needs JAX's default PRNG (threefry).

    ``log E exp(h (tau - mean)) = mean (e^h - 1 - h)``, and ``(e^h - 1 - h) / h^2`` increases in ``h``; so for ``|h| <= 1 / b = 1`` it
    is at most ``(e - 2) mean h^2``: ``xi^2 = 2 (e - 2) mean``, ``b = 1``. At mean 50 that is ``xi = 8.5``; Vakili et al. use 9.
    """

    mean: Any = 1.0

    def _sample(self, key: Array, size: int) -> Array:
        return jax.random.poisson(key, jnp.asarray(self.mean, float_dtype()), (size,), jnp.int32)

    def _exceeds(self, n: int) -> Any:
        from scipy.special import gammainc  # comes with JAX; imported here because start-up should not pay for it

        return gammainc(n + 1.0, np.asarray(self.mean, np.float64))

    def _tail(self) -> tuple[Any, Any]:
        return (2 * (math.e - 2) * self.mean) ** 0.5, 1.0

    def _check(self, name: str) -> None:
        checks.within(f"{name}.mean", self.mean, 0, LONGEST / 2, open_low=False)
        checks.scalar(f"{name}.mean", self.mean)


@pytree
class Geometric(Model):
    """Failures before a success: ``P(tau > n) = (mean / (1 + mean))^(n + 1)``, from 0, of given ``mean >= 0``.

    ``L(h) = log E exp(h (tau - mean))`` has ``L'' = mean (1 + mean) e^h / (1 + mean - mean e^h)^2``, which increases in ``h``. With
    ``b = 1 / log(1 + 1 / (2 mean))`` the denominator is at least 1/4 for ``h <= 1 / b``, so
    ``L(h) <= h^2 xi^2 / 2`` with ``xi^2 = 4 (mean + 1/2) (mean + 1)``.
    """

    mean: Any = 1.0

    def _sample(self, key: Array, size: int) -> Array:
        rate = jnp.log1p(1 / jnp.asarray(self.mean, float_dtype()))  # of an exponential whose integer part is geometric
        return jax.random.exponential(key, (size,), rate.dtype) / rate

    def _exceeds(self, n: int) -> Any:
        mean = np.asarray(self.mean, np.float64)
        return np.exp(-(n + 1.0) * np.log1p(1 / np.maximum(mean, np.finfo(np.float64).tiny)))

    def _tail(self) -> tuple[Any, Any]:
        mean = jnp.asarray(self.mean, float_dtype())
        return 2 * jnp.sqrt((mean + 0.5) * (mean + 1)), 1 / jnp.log1p(0.5 / mean)

    def _check(self, name: str) -> None:
        checks.within(f"{name}.mean", self.mean, 0, LONGEST, open_low=False)
        checks.scalar(f"{name}.mean", self.mean)


@pytree
class Uniform(Model):
    """Whole numbers from ``low >= 0`` to ``high``, both included, equally likely."""

    low: Any = 0
    high: Any = 10

    @property
    def mean(self) -> Any:
        return (self.low + self.high) / 2

    def _sample(self, key: Array, size: int) -> Array:
        low, high = (jnp.asarray(end).astype(jnp.int32) for end in (self.low, self.high))
        return jax.random.randint(key, (size,), low, high + 1)

    def _exceeds(self, n: int) -> Any:
        low, high = np.asarray(self.low, np.float64), np.asarray(self.high, np.float64)
        return np.clip((high - n) / (high - low + 1), 0, 1)

    def _tail(self) -> tuple[Any, Any]:
        return _hoeffding(self.high - self.low)

    def _check(self, name: str) -> None:
        _whole(f"{name}.low", self.low)
        _whole(f"{name}.high", self.high)
        if not checks.is_traced((self.low, self.high)) and np.any(np.asarray(self.high) < np.asarray(self.low)):
            raise checks.InvalidArgument(f"{name}.high: must be >= low = {self.low}, got {self.high}")


@pytree
class LogNormal(Model):
    """Integer part of ``median exp(sigma Z)``, ``Z`` standard normal; ``median > 0`` rounds, ``sigma > 0``. Not sub-exponential."""

    median: Any = 10.0
    sigma: Any = 1.0

    @property
    def mean(self) -> Any:
        """``sum_{n >= 1} P(X >= n)``: terms to ``last``, then their integral with two terms of Euler and Maclaurin."""
        last = 4096
        median, sigma = (jnp.asarray(value, float_dtype()) for value in (self.median, self.sigma))
        cdf, z = jax.scipy.stats.norm.cdf, jnp.log(median / last) / sigma
        head = jnp.sum(cdf(jnp.log(median / jnp.arange(1, last, dtype=median.dtype)) / sigma))
        integral = median * jnp.exp(sigma**2 / 2) * cdf(z + sigma) - last * cdf(z)
        return head + integral + cdf(z) / 2 + jax.scipy.stats.norm.pdf(z) / (12 * last * sigma)

    def _sample(self, key: Array, size: int) -> Array:
        median, sigma = (jnp.asarray(value, float_dtype()) for value in (self.median, self.sigma))
        return median * jnp.exp(sigma * jax.random.normal(key, (size,), median.dtype))

    def _exceeds(self, n: int) -> Any:
        from scipy.special import ndtr  # as in Poisson

        return ndtr(np.log(np.asarray(self.median, np.float64) / (n + 1.0)) / np.asarray(self.sigma, np.float64))

    def _check(self, name: str) -> None:
        for field, value in (("median", self.median), ("sigma", self.sigma)):
            checks.positive(f"{name}.{field}", value)
            checks.scalar(f"{name}.{field}", value)


@pytree
class Pareto(Model):
    """Integer part of ``X`` with ``P(X > x) = (scale / x)^shape``, ``x >= scale > 0``, ``shape > 0``; mean infinite for ``shape <= 1``.

    Not sub-exponential. In float32 a draw is at most ``scale 2^(23 / shape)``, exceeded with probability 1e-7.
    """

    shape: Any = 1.5
    scale: Any = 1.0

    @property
    def mean(self) -> Any:
        """``sum_{n >= 1} P(X >= n)``: one for each ``n <= scale``, then a Hurwitz zeta function."""
        shape, scale = (jnp.asarray(value, float_dtype()) for value in (self.shape, self.scale))
        whole = jnp.floor(scale)
        tail = scale**shape * jax.scipy.special.zeta(jnp.maximum(shape, 1), whole + 1)
        return jnp.where(shape > 1, whole + tail, jnp.inf)

    def _sample(self, key: Array, size: int) -> Array:
        shape, scale = (jnp.asarray(value, float_dtype()) for value in (self.shape, self.scale))
        return scale * jnp.exp(jax.random.exponential(key, (size,), shape.dtype) / shape)

    def _exceeds(self, n: int) -> Any:
        return np.minimum(np.asarray(self.scale, np.float64) / (n + 1.0), 1.0) ** np.asarray(self.shape, np.float64)

    def _check(self, name: str) -> None:
        for field, value in (("shape", self.shape), ("scale", self.scale)):
            checks.positive(f"{name}.{field}", value)
            checks.scalar(f"{name}.{field}", value)


@pytree
class Empirical(Model):
    """Resampled from observed delays ``values [n]``, whole numbers ``>= 0``, all equally likely."""

    values: Any

    @property
    def mean(self) -> Any:
        return jnp.mean(jnp.asarray(self.values).astype(float_dtype()))

    def _sample(self, key: Array, size: int) -> Array:
        values = jnp.asarray(self.values)
        return values[jax.random.randint(key, (size,), 0, values.shape[0])]

    def _exceeds(self, n: int) -> Any:
        return np.mean(np.asarray(self.values) > n, axis=-1)

    def _tail(self) -> tuple[Any, Any]:
        values = jnp.asarray(self.values).astype(float_dtype())
        return _hoeffding(jnp.max(values) - jnp.min(values))

    def _check(self, name: str) -> None:
        checks.shape(f"{name}.values", self.values, (None,), remedy="one number per observed delay")
        if not np.size(self.values):
            raise checks.InvalidArgument(f"{name}.values: no delays; give at least one")
        _whole(f"{name}.values", self.values)


def _whole(name: str, value: Any) -> None:
    """Raise unless every number of ``value`` is a whole number from 0 to ``LONGEST``; a float such as 3.0 is one."""
    checks.within(name, value, 0, LONGEST, open_low=False)
    if not checks.is_traced(value) and np.any(np.asarray(value, np.float64) % 1):
        raise checks.InvalidArgument(f"{name}: must be whole numbers of rounds, got {value!r}")


def _hoeffding(width: Any) -> tuple[Any, Any]:
    """The pair of a delay within an interval of given width: ``xi = width / 2``, and any ``b``.

    Vakili et al. bound ``tau - E[tau]`` by ``min(sqrt(2 xi^2 L), 2 b L)`` with ``L = log(3 t / (2 delta))`` (eq. 5). ``b = xi`` makes
    that the first, which is right, for ``L >= 1/2``.
    """
    return width / 2, width / 2
