"""Exploration strategies: optimistic estimates of the reward and the constraints.

Algorithms have a strategy as a parameter. It also estimates a weighted sum of the outputs, such as a penalised reward.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from jaxbandit.core import checks
from jaxbandit.core.declare import Array, Declared, Key, Scalar
from jaxbandit.core.fields import finite, one_function, per_constraint, positive, whole
from jaxbandit.core.hints import missing
from jaxbandit.core.pytree import float_dtype, pytree, static
from jaxbandit.rules import widths
from jaxbandit.rules.widths import WidthLike
from jaxbandit.surrogates import Belief

__all__ = ["Bounds", "DiscreteGaussian", "DiscreteUniform", "Distribution", "Estimate", "Gaussian", "Randomised", "Strategy", "Thompson"]
__dir__ = __all__.copy
__getattr__ = missing(__name__, __all__)


@pytree
class Estimate:
    """Estimates of one round at ``M`` points.

    ``draws`` are signed multiples of sigma ``[1 + m]`` (Randomised) or joint draws ``[1 + m, M]`` (Thompson). Scores that use means as
    estimates need ``sd``.
    """

    reward: Array  # [M]
    costs: Array  # [m, M]
    widths: Array  # [1 + m] beta_t
    draws: Array | None = None
    sd: Array | None = None  # [1 + m, M]
    noise: Array | None = None  # [] or [M] reward's variance


class Strategy(Declared, abc.ABC):
    """Abstract base of exploration strategies.

    Attributes:
      reward_width: ``beta`` of the reward: a number > 0 or a schedule of :mod:`jaxbandit.widths`.
      cost_width: ``beta`` of the constraints: a number for all, ``[m]`` numbers, or a schedule.
    """

    described: ClassVar[str] = "an exploration strategy of jaxbandit.estimators, such as Bounds()"
    in_files: ClassVar[bool] = True
    reward_width: WidthLike
    cost_width: WidthLike

    @abc.abstractmethod
    def estimate(self, belief: Belief, t: Array, key: Key) -> Estimate:
        """Return estimates of every output at every point in round ``t``."""

    @abc.abstractmethod
    def combination(self, belief: Belief, weights: Array, t: Array, key: Key) -> Estimate:
        """Return the estimate of ``sum_k weights[k] output_k`` with the reward's width."""


def _betas(strategy: Strategy, t: Array, belief: Belief) -> Array:
    """Return the widths ``[1 + m]`` of the reward and the constraints."""
    schedules = ((strategy.reward_width, slice(0, 1)), (strategy.cost_width, slice(1, None)))
    recent = [None if belief.recent is None else belief.recent[part] for _, part in schedules]
    betas = [widths.evaluate(width, t, belief.gain[part], r) for (width, part), r in zip(schedules, recent, strict=True)]
    return jnp.concatenate(betas)


@pytree
class Bounds(Strategy):
    """Confidence bounds: the UCB of the reward, the LCB of every constraint.

    Attributes:
      reward_width: ``beta`` of the reward: a number > 0 or a schedule of :mod:`jaxbandit.widths`.
      cost_width: ``beta`` of the constraints: a number for all, ``[m]`` numbers, or a schedule.
    """

    described: ClassVar[str] = "confidence bounds, estimators.Bounds(...)"
    reward_width: Annotated[WidthLike, one_function] = 3.0
    cost_width: Annotated[WidthLike, per_constraint] = 3.0

    def estimate(self, belief: Belief, t: Array, key: Key) -> Estimate:
        beta = _betas(self, t, belief)
        return Estimate(
            reward=belief.mean[0] + beta[0] * belief.sd[0],
            costs=belief.mean[1:] - beta[1:, None] * belief.sd[1:],
            widths=beta,
        )

    def combination(self, belief: Belief, weights: Array, t: Array, key: Key) -> Estimate:
        beta = _betas(self, t, belief)
        score = jnp.sum(weights[:, None] * belief.mean, axis=0) + beta[0] * belief.sd[0]
        return Estimate(reward=score, costs=belief.mean[1:], widths=beta)


@pytree
class Thompson(Strategy):
    """Thompson sampling (Chowdhury and Gopalan 2017).

    Each output has its own joint draw from ``GP(mu, beta^2 k_t)``. A draw costs ``O(M r)`` in the feature forms. The row cache cannot draw.

    Attributes:
      reward_width, cost_width: the factor ``beta`` on the posterior standard deviation, as in :class:`Bounds`.
    """

    papers: ClassVar[Mapping[str, str]] = {"chowdhury2017": "Algorithm 2"}
    reward_width: Annotated[WidthLike, one_function] = 1.0
    cost_width: Annotated[WidthLike, per_constraint] = 1.0

    def estimate(self, belief: Belief, t: Array, key: Key) -> Estimate:
        beta = _betas(self, t, belief)
        draws = belief.draw(key, beta)
        return Estimate(reward=draws[0], costs=draws[1:], widths=beta, draws=draws)

    def combination(self, belief: Belief, weights: Array, t: Array, key: Key) -> Estimate:
        mean, beta = belief.mean, _betas(self, t, belief)
        score = jnp.sum(weights[:, None] * mean, axis=0) + (belief.draw(key, beta)[0] - mean[0])
        return Estimate(reward=score, costs=mean[1:], widths=beta, draws=score[None])


class Distribution(Declared, abc.ABC):
    """Abstract base of distributions of the factor ``Z / beta`` of :class:`Randomised`."""

    described: ClassVar[str] = "a distribution of jaxbandit.estimators, such as Gaussian()"
    in_files: ClassVar[bool] = True

    @abc.abstractmethod
    def sample(self, key: Key, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Return independent draws of ``Z / beta``."""


@pytree
class Gaussian(Distribution):
    """``Z / beta ~ N(0, 1)`` (Zhou and Ji 2022, Corollary 3)."""

    def sample(self, key: Key, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        return jax.random.normal(key, shape, dtype)


@pytree
class DiscreteUniform(Distribution):
    """Uniform distribution on evenly spaced values of ``[0, 2]``.

    See Zhou and Ji (2022, App. D.4).

    Attributes:
      points: number of values, from 2 to a million, because every round tabulates them.
    """

    points: Annotated[int, whole(2, 10**6)] = static(default=20)

    def sample(self, key: Key, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        return jax.random.randint(key, shape, 0, self.points).astype(dtype) * (2.0 / (self.points - 1))


@pytree
class DiscreteGaussian(Distribution):
    """Gaussian on evenly spaced values (Zhou and Ji 2022, Appendix D.4).

    Value ``z`` has probability proportional to ``exp(-z^2 / (2 sd^2))``. See also Vaswani (2020).

    Attributes:
      low: the least value, less than ``high``.
      high: the largest value, > 0, because without a positive value the estimate would never be optimistic.
      sd: standard deviation > 0 before the cut.
      points: number of values, from 2 to a million, because every round tabulates them.
    """

    low: Annotated[Scalar, finite] = 0.0
    high: Annotated[Scalar, positive] = 2.0
    sd: Annotated[Scalar, positive] = 1.0
    points: Annotated[int, whole(2, 10**6)] = static(default=20)

    def sample(self, key: Key, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        share = jnp.arange(self.points, dtype=dtype) * (1.0 / (self.points - 1))
        values = self.low + share * (self.high - self.low)
        return values[jax.random.categorical(key, -0.5 * jnp.square(values / self.sd), shape=shape)]

    def _check(self, name: str, outputs: int | None) -> None:
        if not checks.is_traced((self.low, self.high)):
            low, high = (np.asarray(value, float_dtype()) for value in (self.low, self.high))
            # The check below refuses a difference that overflows to infinity.
            with np.errstate(over="ignore"):
                span = high - low
            checks.positive(f"{name}.high - low", span, remedy="give bounds with low < high")


@pytree
class Randomised(Strategy):
    """RandGP-UCB, Definition 2 of Zhou and Ji (2022).

    The reward's estimate is ``mu + Z sigma`` and each constraint's ``mu - Z sigma``, with one scalar ``Z`` for each output and round. For
    constraints the sign changes nothing if ``Z`` is symmetric, and makes the estimates optimistic if ``Z`` is positive.

    Attributes:
      reward_width, cost_width: the factor ``beta_t`` of ``Z``, as in :class:`Bounds`.
      distribution: the distribution of ``Z / beta``: :class:`Gaussian`, :class:`DiscreteUniform` or :class:`DiscreteGaussian`.
    """

    papers: ClassVar[Mapping[str, str]] = {"zhou2022": "Def. 2"}
    reward_width: Annotated[WidthLike, one_function] = 1.0
    cost_width: Annotated[WidthLike, per_constraint] = 1.0
    distribution: Distribution = Gaussian()

    def estimate(self, belief: Belief, t: Array, key: Key) -> Estimate:
        beta = _betas(self, t, belief)
        z = beta * self.distribution.sample(key, beta.shape, beta.dtype)
        draws = jnp.append(z[:1], -z[1:])
        values = belief.mean + draws[:, None] * belief.sd
        return Estimate(reward=values[0], costs=values[1:], widths=beta, draws=draws)

    def combination(self, belief: Belief, weights: Array, t: Array, key: Key) -> Estimate:
        beta = _betas(self, t, belief)
        z = beta[0] * self.distribution.sample(key, (), beta.dtype)
        score = jnp.sum(weights[:, None] * belief.mean, axis=0) + z * belief.sd[0]
        return Estimate(reward=score, costs=belief.mean[1:], widths=beta, draws=z[None])
