"""Random functions of a known RKHS on ``[0, 1]`` (Zhou and Ji 2022, App. F.1), under a threshold or a binding constraint."""

from __future__ import annotations

from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.codec import nameable
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import between, choice, exactly, finite_numbers, whole
from jaxbandit.core.memory import check_fits
from jaxbandit.core.pytree import float_dtype, pytree, static
from jaxbandit.core.types import Array, Key, Scalar, Table
from jaxbandit.delays import Delay, NoDelay
from jaxbandit.domains import Domain, grid
from jaxbandit.kernels import Kernel, SquaredExponential
from jaxbandit.problems._draws import Count, gram, reject, times
from jaxbandit.problems.base import Family, Problem
from jaxbandit.problems.noise import Gaussian, Noise

__all__ = ["RkhsBinding", "RkhsThreshold", "rkhs_1d", "rkhs_1d_binding"]

BOUNDS = ("norm", "max")
SHARE, SLACK = between(0, 1), between(0, 1, open_low=False)
POINTS = whole(2, 20_000)  # with a kernel matrix of all pairs


def rkhs_function(key: Key, matrix: Table, centres: int) -> tuple[Array, Array]:
    """Draw ``f = sum_i a_i k(., x_i)`` as ``[M]``, with its RKHS norm ``[]``: ``a_i ~ U[-1, 1]``, ``x_i`` uniform, with repeats."""
    where_key, weight_key = jax.random.split(key)
    size = np.shape(matrix)[0]
    where = jax.random.randint(where_key, (centres,), 0, size)
    weights = jax.random.uniform(weight_key, (centres,), float_dtype(), -1, 1)
    coefficients = jnp.zeros((size,), weights.dtype).at[where].add(weights)
    values = times(matrix, coefficients)
    return values, jnp.sqrt(jnp.maximum(jnp.sum(coefficients * values), 0))  # |f|^2 = a^T K a


@pytree
class RkhsThreshold(Family):
    """A family with ``f = sum_i a_i k(., x_i)`` and ``g = -f + h``, ``h = threshold * B``; make one with :func:`rkhs_1d`.

    An instance is drawn again, at most ``attempts`` times, until ``max f >= least_peak * B``. If none is accepted, its constraint is 1
    everywhere: it has no feasible point, and the trial is flagged.

    Attributes:
      domain: the ``M`` points.
      matrix: ``[M, M]`` kernel matrix, computed in float64.
      noise: a noise model, see :mod:`jaxbandit.problems.noise`.
      delay: a delay model, see :mod:`jaxbandit.delays`.
      threshold: threshold relative to the bound, ``h / B``, in ``(0, 1]``.
      least_peak: smallest ``max f / B`` accepted, in ``(0, 1]``.
      bound: definition of ``B``: ``"norm"`` (the RKHS norm of ``f``) or ``"max"`` (``max |f|``).
      centres: number of terms, ``p``.
      attempts: most draws of an instance.
      name: label of the problem in tables, figures and files.
    """

    domain: Domain
    matrix: Table
    noise: Noise = Gaussian()
    delay: Delay = NoDelay()
    threshold: Annotated[Scalar, SHARE] = 0.5
    least_peak: Annotated[Scalar, SHARE] = 0.52
    bound: Annotated[str, choice(*BOUNDS)] = static(default="norm")
    centres: Count = static(default=100)
    attempts: Count = static(default=100)
    name: str = static(default="rkhs_1d")

    @checked
    def sample(self, key: Key) -> Problem:
        """Return the instance that belongs to ``key``; pure, and distinct under ``vmap`` over keys."""
        (reward, norm), accepted = reject(key, self._draw, self._accept, self.attempts)
        cost = jnp.where(accepted, jnp.asarray(self.threshold, reward.dtype) * self._bound(reward, norm) - reward, 1)
        means = jnp.stack([reward, cost])
        return Problem(domain=self.domain, means=means, noise=self.noise, delay=self.delay, norm=norm, name=self.name)

    def _draw(self, key: Key) -> tuple[Array, Array]:
        return rkhs_function(key, self.matrix, self.centres)

    def _bound(self, values: Array, norm: Array) -> Array:
        return norm if self.bound == "norm" else jnp.max(jnp.abs(values))

    def _accept(self, drawn: tuple[Array, Array]) -> Array:
        values, norm = drawn
        return jnp.max(values) >= jnp.asarray(self.least_peak, values.dtype) * self._bound(values, norm)

    def validate(self) -> None:
        super().validate()
        self.require(matrix=finite_numbers.of(exactly(self.domain.size, self.domain.size)))


@pytree
class RkhsBinding(Family):
    """A family with independent ``f`` and ``g`` and a binding constraint; make one with :func:`rkhs_1d_binding`.

    An instance is drawn again, at most ``attempts`` times, until the unconstrained maximiser is infeasible and
    ``min g <= -least_slack * max |g|``. If none is accepted, its constraint is 1 everywhere: it has no feasible point, and the trial
    is flagged.

    Attributes:
      domain: the ``M`` points.
      matrix: ``[M, M]`` kernel matrix, computed in float64.
      noise: a noise model, see :mod:`jaxbandit.problems.noise`.
      delay: a delay model, see :mod:`jaxbandit.delays`.
      least_slack: smallest Slater slack accepted, as a share of ``max |g|``, in ``[0, 1]``.
      centres: number of terms, ``p``.
      attempts: most draws of an instance.
      name: label of the problem in tables, figures and files.
    """

    domain: Domain
    matrix: Table
    noise: Noise = Gaussian()
    delay: Delay = NoDelay()
    least_slack: Annotated[Scalar, SLACK] = 0.25
    centres: Count = static(default=100)
    attempts: Count = static(default=100)
    name: str = static(default="rkhs_1d_binding")

    @checked
    def sample(self, key: Key) -> Problem:
        """Return the instance that belongs to ``key``; pure, and distinct under ``vmap`` over keys."""
        (reward, cost, norm), accepted = reject(key, self._draw, self._accept, self.attempts)
        means = jnp.stack([reward, jnp.where(accepted, cost, 1)])
        return Problem(domain=self.domain, means=means, noise=self.noise, delay=self.delay, norm=norm, name=self.name)

    def _draw(self, key: Key) -> tuple[Array, Array, Array]:
        (reward, norm), (cost, _) = (rkhs_function(part, self.matrix, self.centres) for part in jax.random.split(key))
        return reward, cost, norm

    def _accept(self, drawn: tuple[Array, Array, Array]) -> Array:
        reward, cost, _ = drawn
        slack = jnp.asarray(self.least_slack, cost.dtype) * jnp.max(jnp.abs(cost))
        return (cost[jnp.argmax(reward)] > 0) & (jnp.min(cost) <= -slack)

    def validate(self) -> None:
        super().validate()
        self.require(matrix=finite_numbers.of(exactly(self.domain.size, self.domain.size)))


@nameable
@checked
def rkhs_1d(
    points_per_axis: Annotated[int, POINTS] = 100,
    *,
    threshold: Annotated[Scalar, SHARE] = 0.5,
    bound: Annotated[str, choice(*BOUNDS)] = "norm",
    least_peak: Annotated[Scalar, SHARE] = 0.52,
    noise: Noise | None = None,
    kernel: Kernel | None = None,
    centres: Count = 100,
    attempts: Count = 100,
) -> RkhsThreshold:
    """Make the family that asks for the best point of ``{f >= h}``, ``f`` random in an RKHS on ``[0, 1]`` (Zhou and Ji 2022, App. F.1).

    ``f = sum_{i=1}^{p} a_i k(., x_i)``, ``a_i ~ U[-1, 1]``, ``x_i`` uniform on the grid with repeats (the paper does not say), and
    ``g = -f + h``. The paper does not define ``B`` either: here it is the RKHS norm, or ``max |f|``. Instances with
    ``max f < 0.52 B`` are drawn again (our addition: ``{f >= h}`` is often empty otherwise); 57% of draws pass with the norm, 64% with
    the maximum. The constraint does not bind: the best point is also the safest.

    Args:
      points_per_axis: ``M >= 2`` evenly spaced points, ends included (paper: 100).
      threshold: ``h / B`` in ``(0, 1]`` (paper: 1/4 and 1/2); above ``least_peak`` instances may be infeasible.
      bound: ``"norm"`` or ``"max"``.
      least_peak: smallest ``max f / B`` accepted, in ``(0, 1]``.
      noise: noise model; default Gaussian of sd ``R = 0.1`` on reward and cost.
      kernel: default squared exponential, ``l = 0.2``.
      centres: number of terms, ``p >= 1`` (paper: 100).
      attempts: most draws of an instance, ``>= 1``.

    Raises:
      InvalidArgument: on a parameter out of range.
    """
    domain, matrix = _interval(points_per_axis, kernel)
    return RkhsThreshold(
        domain=domain,
        matrix=matrix,
        noise=Gaussian.from_sd(0.1) if noise is None else noise,
        threshold=threshold,
        least_peak=least_peak,
        bound=bound,
        centres=centres,
        attempts=attempts,
    )


@nameable
@checked
def rkhs_1d_binding(
    points_per_axis: Annotated[int, POINTS] = 100,
    *,
    least_slack: Annotated[Scalar, SLACK] = 0.25,
    noise: Noise | None = None,
    kernel: Kernel | None = None,
    centres: Count = 100,
    attempts: Count = 100,
) -> RkhsBinding:
    """Make a family of functions as in :func:`rkhs_1d` with an independent, binding constraint; ours, to show the trade-off with cost.

    ``f`` and ``g`` are two independent draws; an instance counts when the best point of ``f`` alone violates ``g`` and the Slater slack
    is at least a quarter of ``max |g|``.

    Args:
      points_per_axis: ``M >= 2`` evenly spaced points of ``[0, 1]``.
      least_slack: smallest Slater slack accepted, as a share of ``max |g|``, in ``[0, 1]``.
      noise: noise model; default Gaussian of sd 0.1 on reward and cost.
      kernel: default squared exponential, ``l = 0.2``.
      centres: number of terms, ``p >= 1``.
      attempts: most draws of an instance, ``>= 1``.

    Raises:
      InvalidArgument: on a parameter out of range.
    """
    domain, matrix = _interval(points_per_axis, kernel)
    return RkhsBinding(
        domain=domain,
        matrix=matrix,
        noise=Gaussian.from_sd(0.1) if noise is None else noise,
        least_slack=least_slack,
        centres=centres,
        attempts=attempts,
    )


def _interval(points_per_axis: int, kernel: Kernel | None) -> tuple[Domain, np.ndarray]:
    """Return the grid on ``[0, 1]`` and its kernel matrix ``[M, M]``."""
    size = checks.short(points_per_axis)
    check_fits("points_per_axis", 3 * 8 * int(points_per_axis) ** 2, f"the kernel matrix of {size} points and its factors", "take fewer")
    domain = grid([0.0], [1.0], points_per_axis)
    return domain, gram(SquaredExponential(length_scale=0.2) if kernel is None else kernel, domain)
