"""Random families: reward and constraints drawn from a Gaussian process (CONFIG, Xu et al. 2023), and what all families are made with.

Families that reject instances draw again, at most ``attempts`` times. If no draw is accepted, every constraint of the instance is 1
everywhere: it has no feasible point, and the trial is flagged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.codec import nameable
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import choice, exactly, finite, finite_numbers, nothing, positive, whole
from jaxbandit.core.pytree import float_dtype, pytree, replace, static
from jaxbandit.core.types import Array, Key, Scalar, Table
from jaxbandit.delays import Delay, NoDelay
from jaxbandit.domains import Domain, grid
from jaxbandit.kernels import Kernel, Scale, SquaredExponential, check_covariance
from jaxbandit.kernels.base import covariances
from jaxbandit.problems.base import Family, Problem
from jaxbandit.problems.noise import Gaussian, Noise, Noiseless

__all__ = ["GpDraws", "gp_draws", "gp_draws_infeasible"]

T = TypeVar("T")
EXACT = jax.lax.Precision.HIGHEST  # regret is measured against these tables, so no TF32 on accelerators
CONSTRAINTS = whole(1, 1000)

Count: TypeAlias = Annotated[int, whole(1, 10**6)]
"""How many centres a function has, or how often an instance is drawn."""


def gram(kernel: Kernel, domain: Domain) -> np.ndarray:
    """Return the kernel matrix ``[M, M]`` of the domain, in float64."""
    kernel.check_axes(domain.dimension)
    check_covariance("kernel", kernel, domain.points)
    (matrix,) = covariances([kernel], [domain.points], [domain.points])
    checks.finite("kernel", matrix, remedy="its values on the domain overflow; change its hyper-parameters")
    return (matrix + matrix.T) / 2


def square_root(matrix: np.ndarray) -> np.ndarray:
    """Return ``root [M, r]`` with ``root root^T = matrix`` up to ``M 1e-14`` of its largest eigenvalue, from eigenvectors in float64."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > 1e-14 * len(matrix) * values[-1]
    return vectors[:, kept] * np.sqrt(values[kept])


def times(matrix: Table, vector: Array) -> Array:
    """Return ``matrix [n, p] @ vector [p]`` in the engine's floating type and in full precision."""
    return jnp.matmul(jnp.asarray(matrix, float_dtype()), vector, precision=EXACT)


def reject(key: Key, draw: Callable[[Key], T], accept: Callable[[T], Array], attempts: int) -> tuple[T, Array]:
    """Return the first of at most ``attempts`` draws that is accepted, else the last, and ``[]`` whether it was accepted.

    Attempt ``a`` draws from ``fold_in(key, a)``, so that the result depends on the key alone.
    """

    def attempt(carry: tuple[Array, T, Array]) -> tuple[Array, T, Array]:
        candidate = draw(jax.random.fold_in(key, carry[0]))
        return carry[0] + 1, candidate, accept(candidate)

    def go_on(carry: tuple[Array, T, Array]) -> Array:
        return ~carry[2] & (carry[0] < attempts)

    first = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(draw, key))
    _, drawn, accepted = jax.lax.while_loop(go_on, attempt, (jnp.int32(0), first, jnp.asarray(False)))
    return drawn, accepted


@pytree
class Draws(Family):
    """Abstract base of families of functions that are drawn on a domain; a subclass defines ``sample``."""

    domain: Domain
    noise: Noise = Gaussian()
    delay: Delay = NoDelay()
    name: str = static(default="draws")

    def instance(self, means: Table, norm: Scalar | None = None) -> Problem:
        """Return the problem of the tables ``means [1 + m, M]``, with the family's domain, noise, delay and name."""
        return Problem(domain=self.domain, means=means, noise=self.noise, delay=self.delay, norm=norm, name=self.name)


@pytree
class GpDraws(Draws):
    """A family whose ``f`` and ``g_j`` are independent GP draws on a domain; make one with :func:`gp_draws`.

    Attributes:
      domain, noise, delay, name: as of :class:`~jaxbandit.problems.Problem`.
      root: ``[M, r]`` square root of the kernel matrix, computed in float64.
      start_level: an instance is accepted when all ``g_j(start) < start_level``; without ``start``, when some point is feasible.
      slack: ``eps > 0`` to shift each ``g_j`` by ``eps - min g_j`` and so make the instance infeasible; ``None`` for no shift.
      start: index of the point that must be well inside the constraints, or ``None``.
      constraint_count: number of constraints, ``m >= 1``.
      attempts: most draws of the constraints, ``f`` being drawn once; if none is accepted, the trial is flagged as infeasible.
    """

    root: Table
    start_level: Annotated[Scalar, finite] = 0.0
    slack: Annotated[Scalar, positive] | None = None
    start: int | None = static(default=None)
    constraint_count: Annotated[int, CONSTRAINTS] = static(default=1)
    attempts: Count = static(default=100)

    @property
    def constraints(self) -> int:
        return self.constraint_count

    @checked
    def sample(self, key: Key) -> Problem:
        reward_key, costs_key = jax.random.split(key)
        reward = self._draw(reward_key)
        costs, accepted = reject(costs_key, self._draw_costs, self._accept, self.attempts)
        if self.slack is not None:
            costs = costs - jnp.min(costs, axis=1, keepdims=True) + jnp.asarray(self.slack, costs.dtype)
        return self.instance(jnp.concatenate([reward[None], jnp.where(accepted, costs, 1)]))

    def _draw(self, key: Key) -> Array:
        return times(self.root, jax.random.normal(key, (np.shape(self.root)[1],), float_dtype()))

    def _draw_costs(self, key: Key) -> Array:
        return jnp.stack([self._draw(part) for part in jax.random.split(key, self.constraints)])

    def _accept(self, costs: Array) -> Array:
        if self.start is None:
            return jnp.any(jnp.all(costs <= 0, axis=0))
        return jnp.all(costs[:, self.start] < jnp.asarray(self.start_level, costs.dtype))

    def validate(self) -> None:
        super().validate()
        self.require(root=finite_numbers.of(exactly(self.domain.size, None, words="one row per point of the domain")))
        self.require(start=whole(0, self.domain.size - 1) | nothing)


@nameable
@checked
def gp_draws(
    variant: Annotated[str, choice("recommended", "code")] = "recommended",
    *,
    domain: Domain | None = None,
    kernel: Kernel | None = None,
    noise: Noise | None = None,
    constraints: Annotated[int, CONSTRAINTS] = 1,
    attempts: Count = 100,
) -> GpDraws:
    """Make a family of feasible instances with ``f`` and ``g`` drawn from a GP (CONFIG, sec. 6.1); the paper ran 48 of them.

    ``"recommended"``: 201 points of ``[-5, 5]`` (the paper gives no domain), ``k = 2 exp(-|x - y|^2 / l^2)`` with ``l = 1``, Gaussian
    noise of sd 0.05; ``g`` is drawn again while no point is feasible. ``"code"``, as in the authors' scripts: 100 points of
    ``[-10, 10]``, ``k = 2 exp(-|x - y|^2 / (2 l^2))``, no noise; ``g`` is drawn again until ``g(0) < -0.2``, at the grid's point
    nearest to 0 (-0.101, because 0 is not on an even grid); that point is the field ``start``.

    Args:
      variant: ``"recommended"`` or ``"code"``; each of the following arguments replaces a part of it.
      domain: other points, ``[M, d]``.
      kernel: another kernel, its variance included.
      noise: another noise model.
      constraints: number of independent constraints, ``m >= 1`` (the paper has one).
      attempts: most draws of ``g`` for an instance, ``>= 1``.
    """
    code = variant == "code"
    if domain is None:
        domain = grid([-10.0], [10.0], 100) if code else grid([-5.0], [5.0], 201)
    if kernel is None:
        kernel = Scale(kernel=SquaredExponential(length_scale=1.0 if code else 1.0 / math.sqrt(2.0)), variance=2.0)
    if noise is None:
        noise = Noiseless() if code else Gaussian.from_sd(0.05)
    return GpDraws(
        domain=domain,
        root=square_root(gram(kernel, domain)),
        noise=noise,
        start_level=-0.2 if code else 0.0,
        start=domain.nearest(np.zeros(domain.dimension)) if code else None,
        constraint_count=constraints,
        attempts=attempts,
        name="gp_draws-code" if code else "gp_draws",
    )


@nameable
@checked
def gp_draws_infeasible(
    variant: str = "recommended",
    *,
    slack: Annotated[Scalar, positive] = 0.1,
    domain: Domain | None = None,
    kernel: Kernel | None = None,
    noise: Noise | None = None,
    constraints: int = 1,
    attempts: int = 100,
) -> GpDraws:
    """Make a family of infeasible instances: those of :func:`gp_draws` with ``g`` shifted by ``eps - min g`` (CONFIG, sec. 6.1).

    The same key gives the same ``f``, and the same ``g`` before the shift, as :func:`gp_draws`. The paper ran 50 of them.

    Args:
      slack: ``eps > 0``, the least value of each constraint (paper: 0.1).
      variant, domain, kernel, noise, constraints, attempts: as for :func:`gp_draws`.
    """
    base = gp_draws(variant, domain=domain, kernel=kernel, noise=noise, constraints=constraints, attempts=attempts)
    return replace(base, slack=slack, name=base.name.replace("gp_draws", "gp_draws_infeasible"))
