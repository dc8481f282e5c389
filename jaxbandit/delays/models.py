"""Fixed, random and composed models of delays."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.blocks import one_program
from jaxbandit.core.declare import Array, Declared, Key, Scalar, Table, checked
from jaxbandit.core.fields import From, between, nonnegative, one_function, positive, unknown, vector, whole, whole_numbers
from jaxbandit.core.keys import threefry
from jaxbandit.core.pytree import float_dtype, pytree, static

__all__ = ["LONGEST_DELAY", "NEVER", "POISSON_MEAN", "Batches", "Constant", "Delay", "Empirical", "Failing", "Geometric", "Lossy"]
__all__ += ["LogNormal", "Mirrored", "NoDelay", "Pareto", "PerOutput", "Poisson", "Uniform"]

#: Delay of feedback that never arrives. Added to a round below 2^30 it stays an int32.
NEVER = 2**30
#: The longest delay that is drawn. A float32 represents it exactly.
LONGEST_DELAY = NEVER // 2
#: Check of the mean of Poisson delays.
POISSON_MEAN = between(0, LONGEST_DELAY / 2, open_low=False)
whole_rounds = whole_numbers(0, LONGEST_DELAY, "rounds")

OutputCount: TypeAlias = Annotated[int, whole(1, 1000)]
QuantileLevel: TypeAlias = Annotated[float, between(0, 1, open_high=True, host=True)]
# A delay's pair (xi, b) in rounds, if it has one.
SubExponential: TypeAlias = tuple[Scalar, Scalar] | None


class Delay(Declared, abc.ABC):
    """Abstract base of models of the delays ``tau`` of every output."""

    described: ClassVar[str] = "a delay model of jaxbandit.delays, such as Poisson(mean=15.0)"
    in_files: ClassVar[bool] = True

    @property
    @abc.abstractmethod
    def mean(self) -> Scalar:
        """``E[tau]`` in rounds, perhaps infinite."""

    @property
    def sub_exponential(self) -> SubExponential:
        """Sub-exponential parameters ``(xi, b)``, by default ``None``.

        They satisfy ``E exp(h (tau - E[tau])) <= exp(h^2 xi^2 / 2)`` for ``|h| <= 1 / b``, with ``b = 0`` for all ``h``. BPE-Delay needs
        them (Vakili et al. 2023, Assumption 3.3).
        """
        return None

    @property
    def joint(self) -> bool:
        """Return whether all values of a point surely arrive together."""
        return False

    @abc.abstractmethod
    def draw(self, key: Key, outputs: OutputCount) -> Array:
        """Return delays ``[outputs]`` of one round, int32, ``NEVER`` for lost values."""

    def draw_in_round(self, key: Key, outputs: OutputCount, t: Array) -> Array:
        """Return the delays ``[outputs]`` of round ``t >= 1``.

        By default every round has the same distribution.
        """
        return self.draw(key, outputs)

    @abc.abstractmethod
    def quantile(self, q: QuantileLevel) -> int:
        """Return the smallest ``n`` with ``P(tau <= n) >= q``, without losses.

        A model with stacked leaves, as in a sweep, returns the largest quantile. The computation is on the host, in float64.

        Raises:
          InvalidArgument: unless ``0 < q < 1``.
        """


@pytree
class NoDelay(Delay):
    """No delay: feedback arrives in its own round."""

    mean = 0.0
    sub_exponential = (0.0, 0.0)
    joint = True

    @checked
    def draw(self, key: Key, outputs: OutputCount) -> Array:
        return jnp.zeros((outputs,), jnp.int32)

    @checked
    def quantile(self, q: QuantileLevel) -> int:
        return 0


@pytree
class Batches(Delay):
    """Batches of rounds, with all values after the batch's last round.

    The values of rounds ``k size + 1`` to ``(k + 1) size`` arrive at the end of round ``(k + 1) size``. The policy
    :class:`feedback.Hallucinate <jaxbandit.feedback.Hallucinate>` is then GP-BUCB (Desautels, Krause and Burdick 2014). ``draw`` has
    the delay of a random place in a batch.

    Attributes:
      size: number of rounds in a batch, a whole number >= 1.
    """

    size: Annotated[Scalar, whole_numbers(1, LONGEST_DELAY, "rounds")] = 4

    joint = True

    @property
    def mean(self) -> Scalar:
        return (self.size - 1) / 2

    @property
    def sub_exponential(self) -> SubExponential:
        return _hoeffding(self.size - 1)

    @checked
    def draw(self, key: Key, outputs: OutputCount) -> Array:
        return jnp.broadcast_to(jax.random.randint(key, (), 0, jnp.asarray(self.size).astype(jnp.int32)), (outputs,))

    def draw_in_round(self, key: Key, outputs: OutputCount, t: Array) -> Array:
        size = jnp.asarray(self.size).astype(jnp.int32)
        return jnp.broadcast_to(size - 1 - (t - 1) % size, (outputs,))

    @checked
    def quantile(self, q: QuantileLevel) -> int:
        # The probability q is exact to one epsilon.
        return max(math.ceil((q - float(np.finfo(np.float64).eps)) * float(np.max(np.asarray(self.size)))) - 1, 0)


@pytree
class DistributionModel(Delay):
    """Abstract base of models with a distribution.

    A subclass defines ``mean``, ``_sample``, ``_exceeds`` and perhaps ``_tail``. ``mean`` and ``sub_exponential`` are the values before the
    cut to ``maximum``. The cut can only lower the mean, and the pair stays valid: ``min(x, c)`` is increasing and 1-Lipschitz in ``x``, so
    ``tau - E[tau]`` after the cut is smaller in convex order.

    Attributes:
      shared: whether all outputs of a round have the same draw. They are independent otherwise.
      maximum: whole number to which longer draws are cut; default ``LONGEST_DELAY``.
      xi, b: the pair that ``sub_exponential`` returns instead of the model's own; both or neither.
    """

    shared: bool = static(default=False)
    maximum: Annotated[int, whole(0, LONGEST_DELAY)] | None = static(default=None)
    xi: Annotated[Scalar, nonnegative] | None = None
    b: Annotated[Scalar, nonnegative] | None = None

    @abc.abstractmethod
    def _sample(self, key: Key, size: int) -> Array:
        """Return draws ``[size]`` whose integer parts are the delays."""

    @abc.abstractmethod
    def _exceeds(self, n: int) -> np.ndarray:
        """Return ``P(tau > n)`` before the cut, in float64."""

    def _tail(self) -> SubExponential:
        """Return the pair ``(xi, b)`` of the distribution, before the cut."""
        return None

    @property
    def joint(self) -> bool:
        return self.shared

    @property
    def sub_exponential(self) -> SubExponential:
        return self._tail() if self.xi is None or self.b is None else (self.xi, self.b)

    @checked
    def draw(self, key: Key, outputs: OutputCount) -> Array:
        raw = jnp.clip(self._sample(key, 1 if self.shared else outputs), 0, LONGEST_DELAY).astype(jnp.int32)
        return jnp.broadcast_to(jnp.minimum(raw, LONGEST_DELAY if self.maximum is None else self.maximum), (outputs,))

    @checked
    def quantile(self, q: QuantileLevel) -> int:
        # Use the upper tail, because P(tau <= n) may round to 1. The probability q is exact to one epsilon.
        rest, top = 1 - q + float(np.finfo(np.float64).eps), LONGEST_DELAY if self.maximum is None else self.maximum
        low, high = -1, 0
        while high < top and np.any(self._exceeds(high) > rest):
            low, high = high, min(2 * high + 1, top)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if np.any(self._exceeds(middle) > rest) else (low, middle)
        return high

    def _check(self, name: str, outputs: int | None) -> None:
        if (self.xi is None) != (self.b is None):
            raise checks.InvalidArgument(f"{name}.xi, {name}.b: give both or neither, got xi={self.xi!r}, b={self.b!r}")


@pytree
class Constant(DistributionModel):
    """Constant delay of ``rounds``, a whole number >= 0."""

    rounds: Annotated[Scalar, whole_rounds] = 1

    @property
    def mean(self) -> Scalar:
        return self.rounds

    def _sample(self, key: Key, size: int) -> Array:
        return jnp.broadcast_to(jnp.asarray(self.rounds), (size,))

    def _exceeds(self, n: int) -> np.ndarray:
        return np.where(n < np.asarray(self.rounds), 1.0, 0.0)

    def _tail(self) -> SubExponential:
        return 0.0, 0.0


@pytree
class Poisson(DistributionModel):
    """Poisson delays with a ``mean >= 0`` in rounds.

    ``log E exp(h (tau - mean)) = mean (e^h - 1 - h)``, and ``(e^h - 1 - h) / h^2`` increases in ``h``. So for ``|h| <= 1 / b = 1`` the
    logarithm is at most ``(e - 2) mean h^2``, with ``xi^2 = 2 (e - 2) mean`` and ``b = 1``. At mean 50, ``xi = 8.5``; Vakili et al. use 9.
    """

    mean: Annotated[Scalar, POISSON_MEAN] = 1.0

    def _sample(self, key: Key, size: int) -> Array:
        return jax.random.poisson(threefry(key), jnp.asarray(self.mean, float_dtype()), (size,), jnp.int32)

    def _exceeds(self, n: int) -> np.ndarray:
        # The import is here because it would slow down start-up.
        from scipy.special import gammainc

        return gammainc(n + 1.0, np.asarray(self.mean, np.float64))

    def _tail(self) -> SubExponential:
        return (2 * (math.e - 2) * self.mean) ** 0.5, 1.0


@pytree
class Geometric(DistributionModel):
    """Number of failures before a success, with a ``mean >= 0``.

    ``P(tau > n) = (mean / (1 + mean))^(n + 1)``. The function ``L(h) = log E exp(h (tau - mean))`` has ``L'' = mean (1 + mean) e^h / (1 +
    mean - mean e^h)^2``, which increases in ``h``. With ``b = 1 / log(1 + 1 / (2 mean))`` the denominator is at least 1/4 for ``h <= 1 /
    b``, so ``L(h) <= h^2 xi^2 / 2`` with ``xi^2 = 4 (mean + 1/2) (mean + 1)``.
    """

    mean: Annotated[Scalar, between(0, LONGEST_DELAY, open_low=False)] = 1.0

    def _sample(self, key: Key, size: int) -> Array:
        # The integer part of an exponential with this rate is geometric.
        rate = jnp.log1p(1 / jnp.asarray(self.mean, float_dtype()))
        return jax.random.exponential(key, (size,), rate.dtype) / rate

    def _exceeds(self, n: int) -> np.ndarray:
        mean = np.asarray(self.mean, np.float64)
        return np.exp(-(n + 1.0) * np.log1p(1 / np.maximum(mean, np.finfo(np.float64).tiny)))

    @one_program
    def _tail(self) -> SubExponential:
        mean = jnp.asarray(self.mean, float_dtype())
        return 2 * jnp.sqrt((mean + 0.5) * (mean + 1)), 1 / jnp.log1p(0.5 / mean)


@pytree
class Uniform(DistributionModel):
    """Uniform whole numbers from ``low`` to ``high``, ends included."""

    low: Annotated[Scalar, whole_rounds] = 0
    high: Annotated[Scalar, whole_rounds, From("low")] = 10

    @property
    def mean(self) -> Scalar:
        return (self.low + self.high) / 2

    def _sample(self, key: Key, size: int) -> Array:
        low, high = (jnp.asarray(end).astype(jnp.int32) for end in (self.low, self.high))
        return jax.random.randint(key, (size,), low, high + 1)

    def _exceeds(self, n: int) -> np.ndarray:
        low, high = np.asarray(self.low, np.float64), np.asarray(self.high, np.float64)
        return np.clip((high - n) / (high - low + 1), 0, 1)

    def _tail(self) -> SubExponential:
        return _hoeffding(self.high - self.low)


@pytree
class LogNormal(DistributionModel):
    """Integer part of ``median exp(sigma Z)`` with standard normal ``Z``.

    ``median > 0`` is in rounds and ``sigma > 0``. The delays are not sub-exponential.
    """

    median: Annotated[Scalar, positive] = 10.0
    sigma: Annotated[Scalar, positive] = 1.0

    @property
    @one_program
    def mean(self) -> Scalar:
        """``sum_{n >= 1} P(X >= n)``, its tail by Euler and Maclaurin."""
        last = 4096
        median, sigma = (jnp.asarray(value, float_dtype()) for value in (self.median, self.sigma))
        cdf, z = jax.scipy.stats.norm.cdf, jnp.log(median / last) / sigma
        head = jnp.sum(cdf(jnp.log(median / jnp.arange(1, last, dtype=median.dtype)) / sigma))
        integral = median * jnp.exp(sigma**2 / 2) * cdf(z + sigma) - last * cdf(z)
        return head + integral + cdf(z) / 2 + jax.scipy.stats.norm.pdf(z) / (12 * last * sigma)

    def _sample(self, key: Key, size: int) -> Array:
        median, sigma = (jnp.asarray(value, float_dtype()) for value in (self.median, self.sigma))
        return median * jnp.exp(sigma * jax.random.normal(key, (size,), median.dtype))

    def _exceeds(self, n: int) -> np.ndarray:
        from scipy.special import ndtr

        return ndtr(np.log(np.asarray(self.median, np.float64) / (n + 1.0)) / np.asarray(self.sigma, np.float64))


@pytree
class Pareto(DistributionModel):
    """Integer part of ``X`` with ``P(X > x) = (scale / x)^shape``.

    The delays are not sub-exponential. In float32 a draw is at most ``scale 2^(23 / shape)``, exceeded with probability 1e-7.

    Attributes:
      shape: tail index > 0; the mean is infinite up to 1.
      scale: the least ``X``, > 0, in rounds.
    """

    shape: Annotated[Scalar, positive] = 1.5
    scale: Annotated[Scalar, positive] = 1.0

    @property
    @one_program
    def mean(self) -> Scalar:
        """``sum_{n >= 1} P(X >= n)``, by a Hurwitz zeta function."""
        shape, scale = (jnp.asarray(value, float_dtype()) for value in (self.shape, self.scale))
        whole = jnp.floor(scale)
        tail = scale**shape * jax.scipy.special.zeta(jnp.maximum(shape, 1), whole + 1)
        return jnp.where(shape > 1, whole + tail, jnp.inf)

    def _sample(self, key: Key, size: int) -> Array:
        shape, scale = (jnp.asarray(value, float_dtype()) for value in (self.shape, self.scale))
        return scale * jnp.exp(jax.random.exponential(key, (size,), shape.dtype) / shape)

    def _exceeds(self, n: int) -> np.ndarray:
        return np.minimum(np.asarray(self.scale, np.float64) / (n + 1.0), 1.0) ** np.asarray(self.shape, np.float64)


@pytree
class Empirical(DistributionModel):
    """Delays resampled from ``values [n]``, whole numbers >= 0 of rounds."""

    values: Annotated[Table | list[int], whole_rounds, vector("one number per observed delay")]

    @property
    def mean(self) -> Scalar:
        return jnp.mean(jnp.asarray(self.values).astype(float_dtype()))

    def _sample(self, key: Key, size: int) -> Array:
        values = jnp.asarray(self.values)
        return values[jax.random.randint(key, (size,), 0, values.shape[0])]

    def _exceeds(self, n: int) -> np.ndarray:
        return np.mean(np.asarray(self.values) > n, axis=-1)

    def _tail(self) -> SubExponential:
        values = jnp.asarray(self.values).astype(float_dtype())
        return _hoeffding(jnp.max(values) - jnp.min(values))


def _hoeffding(width: Scalar) -> SubExponential:
    """Return the pair of a delay in an interval of this width.

    Any ``b`` is valid for ``xi = width / 2``. Vakili et al. bound ``tau - E[tau]`` by ``min(sqrt(2 xi^2 L), 2 b L)`` with
    ``L = log(3 t / (2 delta))`` (eq. 5). For ``L >= 1/2`` and ``b = xi`` this is the square root, the right bound.
    """
    return width / 2, width / 2


class Composed(Delay):
    """Abstract base of delay models that are made of others."""

    @abc.abstractmethod
    def _draw(self, key: Key, outputs: int, draw: Callable[[Delay, Key, int], Array]) -> Array:
        """Return delays ``[outputs]``, given a function that draws a part's."""

    @checked
    def draw(self, key: Key, outputs: OutputCount) -> Array:
        return self._draw(key, outputs, lambda part, key, outputs: part.draw(key, outputs))

    def draw_in_round(self, key: Key, outputs: OutputCount, t: Array) -> Array:
        return self._draw(key, outputs, lambda part, key, outputs: part.draw_in_round(key, outputs, t))


@pytree
class Lossy(Composed):
    """Delay model with values that never arrive, for each output independently.

    The mean is infinite unless ``never = 0``, and there is no sub-exponential pair. ``quantile`` is about arriving values.

    Attributes:
      delay: the model of arriving values.
      never: probability in [0, 1] that a value does not arrive.
      shared: whether all outputs of a round are lost together.
    """

    delay: Delay = NoDelay()
    never: Annotated[Scalar, between(0, 1, open_low=False)] = 0.1
    shared: bool = static(default=False)

    @property
    def mean(self) -> Scalar:
        # NumPy compiles no programs on the host.
        module = jnp if checks.is_traced(self) else np
        return module.where(module.asarray(self.never) > 0, module.inf, module.asarray(self.delay.mean, float_dtype()))

    sub_exponential = None

    @property
    def joint(self) -> bool:
        return self.shared and self.delay.joint

    def _draw(self, key: Key, outputs: int, draw: Callable[[Delay, Key, int], Array]) -> Array:
        delay_key, loss_key = jax.random.split(key)
        lost = jax.random.bernoulli(loss_key, jnp.asarray(self.never, float_dtype()), (1 if self.shared else outputs,))
        return jnp.where(lost, NEVER, draw(self.delay, delay_key, outputs))

    @checked
    def quantile(self, q: QuantileLevel) -> int:
        return self.delay.quantile(q)


@pytree
class Mirrored(Composed):
    """Delay model with copied outputs, such as two inequalities of one reading.

    Attributes:
      delay: the model of the ``k - e`` outputs without copies.
      doubled: numbers (from 0) of ``e`` of these outputs. A copy with the same delay follows each.
    """

    delay: Annotated[Delay, unknown] = NoDelay()
    doubled: tuple[Annotated[int, whole(0)], ...] = static(default=())

    def _draw(self, key: Key, outputs: int, draw: Callable[[Delay, Key, int], Array]) -> Array:
        single = outputs - len(self.doubled)
        return draw(self.delay, key, single)[np.sort(np.append(np.arange(single), self.doubled).astype(int))]

    @property
    def mean(self) -> Scalar:
        return self.delay.mean

    @property
    def sub_exponential(self) -> SubExponential:
        return self.delay.sub_exponential

    @property
    def joint(self) -> bool:
        return self.delay.joint

    @checked
    def quantile(self, q: QuantileLevel) -> int:
        return self.delay.quantile(q)

    def _check(self, name: str, outputs: int | None) -> None:
        self.delay.validate(f"{name}.delay", single_outputs(name, self.doubled, outputs))


@pytree
class Failing(Composed):
    """Delay model with one more output, for runs that may fail.

    The last output says whether a run failed, and arrives with the last of the others. Where it is > 0 the run has failed, and the others
    never arrive: the mean is infinite. :func:`problems.with_failures <jaxbandit.problems.with_failures>` makes such outputs.

    Attributes:
      delay: the model of the ``k - 1`` other outputs.
    """

    in_files = False
    delay: Annotated[Delay, unknown] = NoDelay()

    mean = float("inf")
    sub_exponential = None

    def _draw(self, key: Key, outputs: int, draw: Callable[[Delay, Key, int], Array]) -> Array:
        drawn = draw(self.delay, key, outputs - 1)
        return jnp.append(drawn, jnp.max(drawn))

    @checked
    def quantile(self, q: QuantileLevel) -> int:
        return self.delay.quantile(q)

    def arriving(self, due: Array, values: Array) -> Array:
        """Return the rounds of arrival ``[k]`` from those drawn and the values.

        Except for the last value, the ``values [k]`` of a failed run never arrive.
        """
        arrives = (values[-1] <= 0) | (jnp.arange(len(values)) == len(values) - 1)
        return jnp.where(arrives, due, NEVER)

    def _check(self, name: str, outputs: int | None) -> None:
        if outputs == 1:
            raise checks.InvalidArgument(f"{name}: needs a further output, which says whether a run failed, got one output")
        self.delay.validate(f"{name}.delay", None if outputs is None else outputs - 1)


@pytree
class PerOutput(Composed):
    """Model for every output, reward first.

    An example is ``PerOutput(delays=(Poisson(mean=15.0), NoDelay()))``. ``mean``, ``quantile`` and the ``sub_exponential`` pair are the
    largest of all models, so that they are valid for every output.
    """

    delays: Annotated[Sequence[Delay], one_function]

    @property
    def mean(self) -> Scalar:
        return _largest_of([delay.mean for delay in self.delays])

    @property
    def sub_exponential(self) -> SubExponential:
        pairs = [pair for delay in self.delays if (pair := delay.sub_exponential) is not None]
        return None if len(pairs) < len(self.delays) else (_largest_of([xi for xi, _ in pairs]), _largest_of([b for _, b in pairs]))

    def _draw(self, key: Key, outputs: int, draw: Callable[[Delay, Key, int], Array]) -> Array:
        check_count("PerOutput.delays", self.delays, outputs)
        keys = jax.random.split(key, outputs)
        return jnp.concatenate([draw(delay, keys[number], 1) for number, delay in enumerate(self.delays)])

    @checked
    def quantile(self, q: QuantileLevel) -> int:
        return max(delay.quantile(q) for delay in self.delays)

    def _check(self, name: str, outputs: int | None) -> None:
        check_count(f"{name}.delays", self.delays, outputs)


@one_program
def _largest_of(values: list[Scalar]) -> Array:
    return jnp.max(jnp.stack([jnp.asarray(value, float_dtype()) for value in values]))


def unproven(delay: Delay) -> list[Delay]:
    """Return a user's models inside ``delay``, whose draws may be invalid."""
    inside = jax.tree.leaves(delay, is_leaf=lambda part: isinstance(part, Delay) and not isinstance(part, Composed))
    return [part for part in inside if isinstance(part, Delay) and not isinstance(part, DistributionModel | NoDelay | Batches)]


def check_count(name: str, models: Sequence[object], outputs: int | None) -> None:
    """Raise ``InvalidArgument`` unless there is a model for each output."""
    if not models or (outputs is not None and len(models) != outputs):
        wanted = f"{outputs} models, one per output" if models else "a model for each output"
        raise checks.InvalidArgument(f"{name}: must hold {wanted}, got {len(models) or 'none'}")


def single_outputs(name: str, doubled: tuple[int, ...], outputs: int | None) -> int | None:
    """Return the number of outputs without copies, or raise ``InvalidArgument``."""
    single = None if outputs is None else outputs - len(doubled)
    most = max(doubled, default=-1) + 1 if single is None else single
    if len(set(doubled)) < len(doubled) or any(number >= most for number in doubled):
        allowed = f"different outputs among 0..{most - 1}" if most > 0 else f"fewer than {outputs} different outputs"
        raise checks.InvalidArgument(f"{name}.doubled: must be {allowed}, got {checks.short(list(doubled))}")
    return single
