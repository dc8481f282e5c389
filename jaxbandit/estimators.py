"""Exploration strategies: what an algorithm believes of reward and constraints this round, bounded or drawn.

Every strategy gives an optimistic reward estimate and optimistic constraint estimates (low, since ``g <= 0`` is feasible); algorithms
take the strategy as a parameter and never look at means and deviations themselves. A strategy also estimates one linear combination
of outputs that share a factor, which is how penalised rewards are treated.
"""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp

from jaxbandit import widths
from jaxbandit.core import checks
from jaxbandit.core.pytree import pytree, static
from jaxbandit.surrogates import Posterior, Prediction, Surrogate

__all__ = ["Bounds", "DiscreteGaussian", "DiscreteUniform", "Estimate", "Gaussian", "Randomised", "Strategy", "Thompson"]

Array = jax.Array


@pytree
class Estimate:
    """What a strategy believes this round; ``m`` constraints, ``M`` points."""

    reward: Array  # [M]
    costs: Array  # [m, M]
    widths: Array  # [1 + m] the beta_t used
    draws: Any = None  # [1 + m] signed multiples of sigma (Randomised), or [1 + m, M] joint draws (Thompson)


class Strategy(Protocol):
    """The protocol of exploration strategies."""

    reward_width: Any
    cost_width: Any

    def estimate(self, surrogate: Surrogate, posterior: Posterior, t: Array, key: Array) -> Estimate:
        """Estimates of every output at every point in round ``t``."""
        ...

    def combination(self, surrogate: Surrogate, posterior: Posterior, weights: Array, t: Array, key: Array) -> Estimate:
        """Optimistic estimate of ``sum_k weights[k] output_k``, ``weights [1 + m]``, as one function with the reward's width."""
        ...

    def validate(self, constraints: int) -> None:
        """Raise ``InvalidArgument`` on parameters outside their range or not matching ``m = constraints``."""
        ...


def _betas(strategy: Any, t: Array, belief: Prediction) -> Array:
    """``[1 + m]`` widths from the reward's and the constraints' schedules."""
    schedules = ((strategy.reward_width, slice(0, 1)), (strategy.cost_width, slice(1, None)))
    recent = [None if belief.recent is None else belief.recent[part] for _, part in schedules]
    betas = [widths.evaluate(width, t, belief.gain[part], r) for (width, part), r in zip(schedules, recent, strict=True)]
    return jnp.concatenate(betas)


def _combined_mean(mean: Array, weights: Array) -> Array:
    return jnp.sum(weights[:, None] * mean, axis=0)


def _validate_widths(strategy: Any, constraints: int) -> None:
    widths.validate("reward_width", strategy.reward_width, 1)
    widths.validate("cost_width", strategy.cost_width, constraints)


@pytree
class Bounds:
    """Confidence bounds: the UCB of the reward, the LCB of every constraint.

    Attributes:
      reward_width: ``beta`` of the reward: a number > 0 or a schedule of :mod:`jaxbandit.widths`.
      cost_width: the same for the constraints: one for all, or ``[m]`` numbers.
    """

    reward_width: Any = 3.0
    cost_width: Any = 3.0

    def estimate(self, surrogate: Surrogate, posterior: Posterior, t: Array, key: Array) -> Estimate:
        belief = surrogate.predict(posterior)
        beta = _betas(self, t, belief)
        return Estimate(
            reward=belief.mean[0] + beta[0] * belief.sd[0],
            costs=belief.mean[1:] - beta[1:, None] * belief.sd[1:],
            widths=beta,
        )

    def combination(self, surrogate: Surrogate, posterior: Posterior, weights: Array, t: Array, key: Array) -> Estimate:
        belief = surrogate.predict(posterior)
        beta = _betas(self, t, belief)
        score = _combined_mean(belief.mean, weights) + beta[0] * belief.sd[0]
        return Estimate(reward=score, costs=belief.mean[1:], widths=beta)

    def validate(self, constraints: int) -> None:
        _validate_widths(self, constraints)


@pytree
class Thompson:
    """Thompson sampling: independent joint draws from ``GP(mu, beta^2 k_t)`` for reward and constraints (Chowdhury and Gopalan 2017).

    A draw costs ``O(M r)`` in the feature forms; the row cache has none.

    Attributes:
      reward_width, cost_width: the factor ``beta`` on the posterior standard deviation, as in :class:`Bounds`.
    """

    reward_width: Any = 1.0
    cost_width: Any = 1.0

    def estimate(self, surrogate: Surrogate, posterior: Posterior, t: Array, key: Array) -> Estimate:
        beta = _betas(self, t, surrogate.predict(posterior))
        draws = surrogate.draw(posterior, key, beta)
        return Estimate(reward=draws[0], costs=draws[1:], widths=beta, draws=draws)

    def combination(self, surrogate: Surrogate, posterior: Posterior, weights: Array, t: Array, key: Array) -> Estimate:
        belief = surrogate.predict(posterior)
        beta = _betas(self, t, belief)
        mean = belief.mean
        score = _combined_mean(mean, weights) + (surrogate.draw(posterior, key, beta)[0] - mean[0])
        return Estimate(reward=score, costs=mean[1:], widths=beta, draws=score[None])

    def validate(self, constraints: int) -> None:
        _validate_widths(self, constraints)


@pytree
class Gaussian:
    """``Z ~ N(0, 1)``, in units of ``beta`` (Zhou and Ji 2022, Corollary 3)."""

    def sample(self, key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
        return jax.random.normal(key, shape, dtype)

    def validate(self) -> None:
        """Nothing to check."""


@pytree
class DiscreteUniform:
    """``Z`` uniform on ``points`` evenly spaced values of ``[0, 2]``, in units of ``beta`` (Zhou and Ji 2022, App. D.4)."""

    points: int = static(default=20)

    def sample(self, key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
        return jax.random.randint(key, shape, 0, self.points).astype(dtype) * (2.0 / (self.points - 1))

    def validate(self) -> None:
        checks.integer("DiscreteUniform.points", self.points, least=2)


@pytree
class DiscreteGaussian:
    """A Gaussian discretised to ``points`` evenly spaced values of ``[low, high]``, in units of ``beta`` (App. D.4; Vaswani 2020).

    Value ``z`` has probability proportional to ``exp(-z^2 / (2 sd^2))``.
    """

    low: Any = 0.0
    high: Any = 2.0
    sd: Any = 1.0
    points: int = static(default=20)

    def sample(self, key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
        share = jnp.arange(self.points, dtype=dtype) * (1.0 / (self.points - 1))
        values = self.low + share * (self.high - self.low)
        return values[jax.random.categorical(key, -0.5 * jnp.square(values / self.sd), shape=shape)]

    def validate(self) -> None:
        checks.integer("DiscreteGaussian.points", self.points, least=2)
        for name, value in (("low", self.low), ("high", self.high), ("sd", self.sd)):
            checks.scalar(f"DiscreteGaussian.{name}", value)
        checks.finite("DiscreteGaussian.low", self.low)
        checks.finite("DiscreteGaussian.high", self.high)
        checks.positive("DiscreteGaussian.high - low", self.high - self.low, remedy="give bounds with low < high")
        checks.positive("DiscreteGaussian.high", self.high, remedy="with no positive value the estimate is never optimistic")
        checks.positive("DiscreteGaussian.sd", self.sd)


@pytree
class Randomised:
    """RandGP-UCB: ``mu + Z sigma`` with one scalar ``Z`` a round for the reward and one for each constraint (Zhou and Ji 2022, Def. 2).

    Constraints take ``mu - Z sigma``: the same law for a symmetric ``Z``, and optimistic for a one-sided one.

    Attributes:
      reward_width, cost_width: the ``beta_t`` that scales ``Z``, as in :class:`Bounds`.
      distribution: the law of ``Z / beta``: :class:`Gaussian`, :class:`DiscreteUniform` or :class:`DiscreteGaussian`.
    """

    reward_width: Any = 1.0
    cost_width: Any = 1.0
    distribution: Any = Gaussian()

    def estimate(self, surrogate: Surrogate, posterior: Posterior, t: Array, key: Array) -> Estimate:
        belief = surrogate.predict(posterior)
        beta = _betas(self, t, belief)
        z = beta * self.distribution.sample(key, beta.shape, beta.dtype)
        draws = jnp.append(z[:1], -z[1:])
        values = belief.mean + draws[:, None] * belief.sd
        return Estimate(reward=values[0], costs=values[1:], widths=beta, draws=draws)

    def combination(self, surrogate: Surrogate, posterior: Posterior, weights: Array, t: Array, key: Array) -> Estimate:
        belief = surrogate.predict(posterior)
        beta = _betas(self, t, belief)
        z = beta[0] * self.distribution.sample(key, (), beta.dtype)
        score = _combined_mean(belief.mean, weights) + z * belief.sd[0]
        return Estimate(reward=score, costs=belief.mean[1:], widths=beta, draws=z[None])

    def validate(self, constraints: int) -> None:
        _validate_widths(self, constraints)
        self.distribution.validate()
