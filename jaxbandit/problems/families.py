"""Random families of draws of a Gaussian process.

The draws are on the points of a domain, or on a box (CONFIG, Xu et al. 2023). Families that reject instances draw again, at most
``attempts`` times. If no draw is accepted, every constraint of the instance is 1 everywhere: it has no feasible point, and the trial is
flagged.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.blocks import one_program
from jaxbandit.core.codec import nameable
from jaxbandit.core.declare import Array, Key, Scalar, T, Table, checked
from jaxbandit.core.fields import choice, finite, finite_numbers, matrix, nothing, positive, whole
from jaxbandit.core.pytree import float_dtype, pytree, remember, replace, static
from jaxbandit.delays import Delay, NoDelay
from jaxbandit.domains import Box, Domain, grid
from jaxbandit.kernels import Kernel, Scale, SquaredExponential, check_covariance
from jaxbandit.kernels.base import covariance_matrices
from jaxbandit.problems.base import Family, Problem
from jaxbandit.problems.boxes import check_noise
from jaxbandit.problems.drawn import BoxDraw, Waves, instance, search_points, values_of
from jaxbandit.problems.noise import Gaussian, Noise, Noiseless
from jaxbandit.surrogates.boxes.pool import prior_draw

__all__ = ["gp_draws", "gp_draws_infeasible"]

ConstraintCount: TypeAlias = Annotated[int, whole(1, 1000)]
DrawCount: TypeAlias = Annotated[int, whole(1, 10**6)]
"""Number of centres of a function, or of draws of an instance."""
Root: TypeAlias = Annotated[Table, finite_numbers, matrix("one row per point of the domain")]
"""Square root of the kernel matrix, or the kernel matrix itself."""


def gram(kernel: Kernel, domain: Domain) -> np.ndarray:
    """Return the kernel matrix ``[M, M]`` of the domain, in float64."""
    kernel.check_axes(domain.dimension)
    check_covariance("kernel", kernel, domain.points)
    (covariance,) = covariance_matrices([kernel], [domain.points], [domain.points])
    checks.finite("kernel", covariance, remedy="its values on the domain overflow; change its hyper-parameters")
    return (covariance + covariance.T) / 2


def square_root(kernel: Kernel, domain: Domain) -> np.ndarray:
    """Return the kernel matrix's ``root [M, r]``, in float64 to ``M 1e-14``."""
    values, vectors = np.linalg.eigh(gram(kernel, domain))
    large = values > 1e-14 * len(values) * values[-1]
    return vectors[:, large] * np.sqrt(values[large])


def times(table: Table, vector: Array) -> Array:
    """Return ``table [n, p] @ vector [p]`` in the engine's floating type."""
    # Regret is measured against these tables, so they have full precision, without TF32 on accelerators.
    return jnp.matmul(jnp.asarray(table, float_dtype()), vector, precision=jax.lax.Precision.HIGHEST)


def reject(key: Key, draw: Callable[[Key], T], accept: Callable[[T], Array], attempts: int) -> tuple[T, Array]:
    """Return the first accepted draw, and ``[]`` whether there was one.

    After ``attempts`` draws without success it is the last. Attempt ``a`` draws from ``fold_in(key, a)``, so that the result depends on the
    key alone.
    """

    def attempt(carry: tuple[Array, T, Array]) -> tuple[Array, T, Array]:
        candidate = draw(jax.random.fold_in(key, carry[0]))
        return carry[0] + 1, candidate, accept(candidate)

    first = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(draw, key))
    start = (jnp.int32(0), first, jnp.asarray(False))
    _, drawn, accepted = jax.lax.while_loop(lambda carry: ~carry[2] & (carry[0] < attempts), attempt, start)
    return drawn, accepted


@pytree
class Draws(Family):
    """Abstract base of families of functions drawn on a domain."""

    domain: Domain
    noise: Noise = Gaussian()
    delay: Delay = NoDelay()
    name: str = static(default="draws")

    def instance(self, means: Table, norm: Scalar | None = None) -> Problem:
        """Return the family's problem of the tables ``means [1 + m, M]``."""
        problem = Problem(domain=self.domain, means=means, noise=self.noise, delay=self.delay, norm=norm, name=self.name)
        return remember(problem, drawn_from=self.drawn_from)


@pytree
class FeasibleDraws(Draws):
    """Abstract base of families of independent GP draws ``f`` and ``g_j``.

    Only draws of ``g`` are rejected.

    Attributes:
      start_level: an instance is accepted if all ``g_j(start)`` are below.
      slack: ``eps``; each ``g_j`` is shifted by ``eps - min g_j``, which makes the instance infeasible.
      start: number of the point that must be well inside; without it some point must be feasible.
      constraint_count: number of constraints.
      attempts: most draws of ``g`` for an instance.
    """

    start_level: Annotated[Scalar, finite] = 0.0
    slack: Annotated[Scalar, positive] | None = None
    start: int | None = static(default=None)
    constraint_count: ConstraintCount = static(default=1)
    attempts: DrawCount = static(default=100)

    @property
    def constraints(self) -> int:
        return self.constraint_count

    def accept(self, costs: Array) -> Array:
        """Return whether a draw of ``costs [m, M]`` is accepted, ``[]``."""
        if self.start is None:
            return jnp.any(jnp.all(costs <= 0, axis=0))
        return jnp.all(costs[:, self.start] < jnp.asarray(self.start_level, costs.dtype))


@pytree
class GpDraws(FeasibleDraws):
    """A family of GP draws on the points of a domain."""

    root: Root

    @checked
    def sample(self, key: Key) -> Problem:
        def draw(key: Key) -> Array:
            return times(self.root, jax.random.normal(key, (np.shape(self.root)[1],), float_dtype()))

        def draw_costs(key: Key) -> Array:
            return jnp.stack([draw(part) for part in jax.random.split(key, self.constraints)])

        reward_key, costs_key = jax.random.split(key)
        reward = draw(reward_key)
        costs, accepted = reject(costs_key, draw_costs, self.accept, self.attempts)
        if self.slack is not None:
            costs = costs - jnp.min(costs, axis=1, keepdims=True) + jnp.asarray(self.slack, costs.dtype)
        return self.instance(jnp.concatenate([reward[None], jnp.where(accepted, costs, 1)]))

    def validate(self) -> None:
        super().validate()
        (whole(0, self.domain.size - 1) | nothing)("GpDraws.start", self.start)


@pytree
class BoxDraws(FeasibleDraws):
    """A family of GP draws on a box, sums of cosines.

    Their frequencies are drawn from the spectrum of a kernel on the unit cube. Given its frequencies a draw is Gaussian; over all draws the
    covariance is the kernel.
    """

    on_boxes: ClassVar[bool] = True
    domain: Box
    kernel: Kernel
    # Points of the unit cube, the candidates first. The search for the optimum starts from the best of them.
    looked_at: Table = dataclasses.field(repr=False)  # [L, d]

    @property
    def drawn_from(self) -> Kernel:  # type: ignore[override]
        return self.kernel

    def validate(self) -> None:
        super().validate()
        check_noise(self)

    @checked
    def sample(self, key: Key) -> BoxDraw:
        return remember(self._sampled(key), drawn_from=self.kernel)

    @one_program
    def _sampled(self, key: Key) -> BoxDraw:
        points = jnp.asarray(self.looked_at, float_dtype())
        reward_key, costs_key = jax.random.split(key)

        def draw(key: Key) -> tuple[Waves, Array]:
            # Each attempt draws the reward, too, so that one program draws and tabulates all functions.
            keys = jnp.concatenate([reward_key[None], jax.random.split(key, self.constraints)])
            waves = jax.vmap(lambda key: prior_draw(self.kernel, key, points.shape[1], points.dtype))(keys)
            return waves, values_of(waves, points)

        (waves, table), accepted = reject(costs_key, draw, lambda drawn: self.accept(drawn[1][1:]), self.attempts)
        known = {"noise": self.noise, "delay": self.delay, "name": self.name}
        return instance(self.domain, waves, points, table, accepted=accepted, slack=self.slack, **known)


@nameable
@checked
def gp_draws(
    variant: Annotated[str, choice("recommended", "code")] = "recommended",
    *,
    domain: Domain | None = None,
    kernel: Kernel | None = None,
    noise: Noise | None = None,
    constraints: ConstraintCount = 1,
    attempts: DrawCount = 100,
) -> FeasibleDraws:
    """Make a family of feasible instances drawn from a GP.

    The paper ran 48 instances (CONFIG, sec. 6.1). ``"recommended"``: 201 points of ``[-5, 5]`` (the paper gives no domain), ``k = 2 exp(-|x
    - y|^2 / l^2)`` with ``l = 1``, Gaussian noise of sd 0.05; ``g`` is drawn again while no point is feasible. ``"code"``, as in the
    authors' scripts: 100 points of ``[-10, 10]``, ``k = 2 exp(-|x - y|^2 / (2 l^2))``, no noise; ``g`` is drawn again until ``g(0) <
    -0.2``, at the grid's point nearest to 0 (-0.101, because 0 is not on an even grid); that point is the field ``start``.

    On a box, ``gp_draws(domain=box({"x": (-5.0, 5.0)}))``, each instance is a function of every point. The program that draws it finds its
    best feasible point by ascents, with a certificate.

    Args:
      variant: ``"recommended"`` or ``"code"``; each of the following arguments replaces a part of it.
      domain: other points, ``[M, d]``, or a box.
      kernel: another kernel, including its variance; on a box a stationary kernel on the unit cube, so that length-scales are shares of
        sides. The default has its length-scale in the units of the axes, so the axes must be linear.
      noise: another noise model.
      constraints: number of independent constraints, ``m >= 1`` (paper: 1).
      attempts: most draws of ``g`` for an instance, ``>= 1``.
    """
    code, sides = variant == "code", domain.sides if isinstance(domain, Box) else ()
    if kernel is None and any(side.scale != "linear" for side in sides):
        words = "must be given on a box with sides that are not linear, with length-scales as shares of sides"
        raise checks.InvalidArgument(f"kernel: {words}, such as kernels.Matern52(length_scale=0.3), got None")
    if domain is None:
        domain = grid([-10.0], [10.0], 100) if code else grid([-5.0], [5.0], 201)
    if kernel is None:
        length_scale: Any = 1.0 if code else 1.0 / math.sqrt(2.0)
        if sides:
            length_scale = length_scale / np.asarray([side.high - side.low for side in sides])
        kernel = Scale(kernel=SquaredExponential(length_scale=length_scale), variance=2.0)
    if noise is None:
        noise = Noiseless() if code else Gaussian.from_sd(0.05)
    start = np.zeros(domain.dimension) if code else None
    shared: dict[str, Any] = {
        "domain": domain,
        "noise": noise,
        "start_level": -0.2 if code else 0.0,
        "constraint_count": constraints,
        "attempts": attempts,
        "name": "gp_draws-code" if code else "gp_draws",
    }
    if isinstance(domain, Box):
        kernel.check_axes(domain.dimension)
        with checks.blaming("kernel: must have a spectrum, as SquaredExponential and the Matern kernels have, on a box"):
            jax.eval_shape(lambda key: prior_draw(kernel, key, domain.dimension, float_dtype()), jax.random.key(0))
        if start is not None:
            start = np.clip(domain.to_unit(start), 0, 1)
        looked_at = search_points(domain, [] if start is None else [start])
        return BoxDraws(kernel=kernel, looked_at=looked_at, start=None if start is None else len(looked_at) - 1, **shared)
    # On symmetric domains eigenvalues are equal, and their eigenvectors differ between numbers of BLAS threads. So instances come from the
    # principal root V sqrt(w) V^T of the kernel matrix V w V^T, which is unique.
    root = square_root(kernel, domain)
    half = root / np.sqrt(np.linalg.norm(root, axis=0))
    family = GpDraws(root=half @ half.T, start=None if start is None else domain.nearest(start), **shared)
    return remember(family, drawn_from=kernel)


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
) -> FeasibleDraws:
    """Make a family of infeasible instances: :func:`gp_draws` with ``g`` shifted.

    The shift is ``eps - min g`` (CONFIG, sec. 6.1). The same key gives the same ``f``, and the same ``g`` before the shift, as
    :func:`gp_draws`. The paper ran 50 instances.

    Args:
      slack: ``eps > 0``, the least value of each constraint (paper: 0.1).
      variant, domain, kernel, noise, constraints, attempts: as for :func:`gp_draws`.
    """
    base = gp_draws(variant, domain=domain, kernel=kernel, noise=noise, constraints=constraints, attempts=attempts)
    shifted = replace(base, slack=slack, name=base.name.replace("gp_draws", "gp_draws_infeasible"))
    return shifted if isinstance(base, BoxDraws) else remember(shifted, drawn_from=base.drawn_from)
