"""Random families: draws of a Gaussian process (CONFIG, Xu et al. 2023), kernel expansions on ``[0, 1]`` (Zhou and Ji 2022), and
interpolants on a square (Vakili et al. 2023).

Families that reject instances draw again, at most ``attempts`` times. If no draw is accepted, every constraint of the instance is 1
everywhere: it has no feasible point, and the trial is flagged.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.blocks import one_program
from jaxbandit.core.codec import nameable
from jaxbandit.core.declare import Array, Key, Scalar, Table, checked
from jaxbandit.core.fields import between, choice, finite, finite_numbers, matrix, nothing, positive, whole
from jaxbandit.core.memory import check_fits
from jaxbandit.core.pytree import canonicalise, float_dtype, pytree, replace, static
from jaxbandit.delays import Delay, NoDelay, Poisson
from jaxbandit.domains import Box, Domain, grid
from jaxbandit.kernels import Kernel, Scale, SquaredExponential, check_covariance
from jaxbandit.kernels.base import covariances
from jaxbandit.problems.base import AbstractProblem, Family, Problem, Seed
from jaxbandit.problems.boxes import check_noise
from jaxbandit.problems.drawn import BoxDraw, Waves, at, instance, look_out
from jaxbandit.problems.noise import Gaussian, Noise, Noiseless
from jaxbandit.surrogates.pool import prior_draw

__all__ = ["RKHS_2D_LENGTH_SCALES", "gp_draws", "gp_draws_infeasible", "rkhs_1d", "rkhs_1d_binding", "rkhs_2d", "rkhs_2d_draws"]

T = TypeVar("T")
EXACT = jax.lax.Precision.HIGHEST  # regret is measured against these tables, so no TF32 on accelerators
RKHS_2D_LENGTH_SCALES = {"f1": 0.8, "f2": 1.0}  #: of the kernels that the two kinds of function are drawn with
SHARE = between(0, 1)
CONSTRAINTS = whole(1, 1000)

Count: TypeAlias = Annotated[int, whole(1, 10**6)]  # of centres of a function, or of draws of an instance
Points: TypeAlias = Annotated[int, whole(2, 20_000)]  # on an interval, with a kernel matrix of all pairs
PointsPerAxis: TypeAlias = Annotated[int, whole(2, 140)]  # of a square, with a kernel matrix of all pairs
Root: TypeAlias = Annotated[Table, finite_numbers, matrix("one row per point of the domain")]  # or the kernel matrix itself


def gram(kernel: Kernel, domain: Domain) -> np.ndarray:
    """Return the kernel matrix ``[M, M]`` of the domain, in float64."""
    kernel.check_axes(domain.dimension)
    check_covariance("kernel", kernel, domain.points)
    (covariance,) = covariances([kernel], [domain.points], [domain.points])
    checks.finite("kernel", covariance, remedy="its values on the domain overflow; change its hyper-parameters")
    return (covariance + covariance.T) / 2


def square_root(kernel: Kernel, domain: Domain) -> np.ndarray:
    """Return ``root [M, r]`` with ``root root^T`` the kernel matrix up to ``M 1e-14`` of its largest eigenvalue, in float64."""
    values, vectors = np.linalg.eigh(gram(kernel, domain))
    large = values > 1e-14 * len(values) * values[-1]
    return vectors[:, large] * np.sqrt(values[large])


def times(table: Table, vector: Array) -> Array:
    """Return ``table [n, p] @ vector [p]`` in the engine's floating type and in full precision."""
    return jnp.matmul(jnp.asarray(table, float_dtype()), vector, precision=EXACT)


def reject(key: Key, draw: Callable[[Key], T], accept: Callable[[T], Array], attempts: int) -> tuple[T, Array]:
    """Return the first of at most ``attempts`` draws that is accepted, else the last, and ``[]`` whether it was accepted.

    Attempt ``a`` draws from ``fold_in(key, a)``, so that the result depends on the key alone.
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
    """Abstract base of families of functions that are drawn on a domain; a subclass defines ``sample``."""

    domain: Domain
    noise: Noise = Gaussian()
    delay: Delay = NoDelay()
    name: str = static(default="draws")

    def instance(self, means: Table, norm: Scalar | None = None) -> Problem:
        """Return the problem of the tables ``means [1 + m, M]``, with the family's domain, noise, delay and name."""
        problem = Problem(domain=self.domain, means=means, noise=self.noise, delay=self.delay, norm=norm, name=self.name)
        return _drawing(problem, self.drawn_from)


P = TypeVar("P", bound=AbstractProblem)


def _drawing(problem: P, kernel: Kernel | None) -> P:
    """Return a problem that knows the kernel that its functions are drawn with; a changed copy of it does not."""
    object.__setattr__(problem, "drawn_from", kernel)
    return problem


@pytree
class FeasibleDraws(Draws):
    """Abstract base of families whose ``f`` and ``g_j`` are independent GP draws, of which only those of ``g`` are rejected."""

    start_level: Annotated[Scalar, finite] = 0.0  # an instance is accepted when all g_j(start) are below
    slack: Annotated[Scalar, positive] | None = None  # eps to shift each g_j by eps - min g_j, which makes the instance infeasible
    start: int | None = static(default=None)  # number of the point that must be well inside; without it some point must be feasible
    constraint_count: Annotated[int, CONSTRAINTS] = static(default=1)
    attempts: Count = static(default=100)

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
    """A family of GP draws on a box: sums of cosines with frequencies drawn from the spectrum of a kernel, which sees the unit cube.

    Given its frequencies a draw is Gaussian; over all draws the covariance is the kernel.
    """

    on_boxes: ClassVar[bool] = True
    domain: Box
    kernel: Kernel
    looked_at: Table = dataclasses.field(
        repr=False
    )  # [L, d] of the unit cube, the candidates first: from the best the optimum is looked for

    @property
    def drawn_from(self) -> Kernel:  # type: ignore[override]  # a field of each
        return self.kernel

    def validate(self) -> None:
        super().validate()
        check_noise(self)

    @checked
    def sample(self, key: Key) -> BoxDraw:
        return _drawing(self._sampled(key), self.kernel)

    @one_program
    def _sampled(self, key: Key) -> BoxDraw:
        points = jnp.asarray(self.looked_at, float_dtype())
        reward_key, costs_key = jax.random.split(key)

        def draw(key: Key) -> tuple[Waves, Array]:  # the reward each time anew, so that one program draws and tabulates all
            keys = jnp.concatenate([reward_key[None], jax.random.split(key, self.constraints)])
            waves = jax.vmap(lambda key: prior_draw(self.kernel, key, points.shape[1], points.dtype))(keys)
            return waves, at(waves, points)

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
    constraints: Annotated[int, CONSTRAINTS] = 1,
    attempts: Count = 100,
) -> FeasibleDraws:
    """Make a family of feasible instances with ``f`` and ``g`` drawn from a GP (CONFIG, sec. 6.1); the paper ran 48 of them.

    ``"recommended"``: 201 points of ``[-5, 5]`` (the paper gives no domain), ``k = 2 exp(-|x - y|^2 / l^2)`` with ``l = 1``, Gaussian
    noise of sd 0.05; ``g`` is drawn again while no point is feasible. ``"code"``, as in the authors' scripts: 100 points of
    ``[-10, 10]``, ``k = 2 exp(-|x - y|^2 / (2 l^2))``, no noise; ``g`` is drawn again until ``g(0) < -0.2``, at the grid's point
    nearest to 0 (-0.101, because 0 is not on an even grid); that point is the field ``start``.

    On a box, ``gp_draws(domain=box({"x": (-5.0, 5.0)}))``, each instance is a function of every point, and knows its best feasible point,
    with a certificate, from ascents in the program that draws it.

    Args:
      variant: ``"recommended"`` or ``"code"``; each of the following arguments replaces a part of it.
      domain: other points, ``[M, d]``, or a box.
      kernel: another kernel, its variance included; on a box a stationary one that sees the unit cube, so that length-scales are shares of
        sides. The default has its length-scale in the units of the axes, which then must be linear.
      noise: another noise model.
      constraints: number of independent constraints, ``m >= 1`` (the paper has one).
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
        looked_at = look_out(domain, [] if start is None else [start])
        return BoxDraws(kernel=kernel, looked_at=looked_at, start=None if start is None else len(looked_at) - 1, **shared)
    family = GpDraws(root=square_root(kernel, domain), start=None if start is None else domain.nearest(start), **shared)
    return _drawing(family, kernel)


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
    """Make a family of infeasible instances: those of :func:`gp_draws` with ``g`` shifted by ``eps - min g`` (CONFIG, sec. 6.1).

    The same key gives the same ``f``, and the same ``g`` before the shift, as :func:`gp_draws`. The paper ran 50 of them.

    Args:
      slack: ``eps > 0``, the least value of each constraint (paper: 0.1).
      variant, domain, kernel, noise, constraints, attempts: as for :func:`gp_draws`.
    """
    base = gp_draws(variant, domain=domain, kernel=kernel, noise=noise, constraints=constraints, attempts=attempts)
    shifted = replace(base, slack=slack, name=base.name.replace("gp_draws", "gp_draws_infeasible"))
    return shifted if isinstance(base, BoxDraws) else _drawing(shifted, base.drawn_from)


def rkhs_function(key: Key, kernel_matrix: Table, centres: int) -> tuple[Array, Array]:
    """Draw ``f = sum_i a_i k(., x_i)`` as ``[M]``, with its RKHS norm ``[]``: ``a_i ~ U[-1, 1]``, ``x_i`` uniform, with repeats."""
    where_key, weight_key = jax.random.split(key)
    size = np.shape(kernel_matrix)[0]
    where = jax.random.randint(where_key, (centres,), 0, size)
    weights = jax.random.uniform(weight_key, (centres,), float_dtype(), -1, 1)
    coefficients = jnp.zeros((size,), weights.dtype).at[where].add(weights)
    values = times(kernel_matrix, coefficients)
    return values, jnp.sqrt(jnp.maximum(jnp.sum(coefficients * values), 0))  # |f|^2 = a^T K a


@pytree
class RkhsThreshold(Draws):
    """A family with ``f = sum_i a_i k(., x_i)`` and ``g = -f + h``, ``h = threshold * B``, drawn until ``max f >= least_peak * B``."""

    matrix: Root
    centres: Count = static(default=100)
    attempts: Count = static(default=100)
    threshold: Annotated[Scalar, SHARE] = 0.5
    least_peak: Annotated[Scalar, SHARE] = 0.52
    bound: Literal["norm", "max"] = static(default="norm")

    @checked
    def sample(self, key: Key) -> Problem:
        def bound(values: Array, norm: Array) -> Array:
            return norm if self.bound == "norm" else jnp.max(jnp.abs(values))

        def accept(drawn: tuple[Array, Array]) -> Array:
            return jnp.max(drawn[0]) >= jnp.asarray(self.least_peak, drawn[0].dtype) * bound(*drawn)

        (reward, norm), accepted = reject(key, lambda key: rkhs_function(key, self.matrix, self.centres), accept, self.attempts)
        cost = jnp.where(accepted, jnp.asarray(self.threshold, reward.dtype) * bound(reward, norm) - reward, 1)
        return self.instance(jnp.stack([reward, cost]), norm)


@pytree
class RkhsBinding(Draws):
    """A family with independent ``f`` and ``g``, drawn until the best ``f`` is infeasible and ``min g <= -least_slack * max |g|``."""

    matrix: Root
    centres: Count = static(default=100)
    attempts: Count = static(default=100)
    least_slack: Annotated[Scalar, between(0, 1, open_low=False)] = 0.25

    @checked
    def sample(self, key: Key) -> Problem:
        def draw(key: Key) -> tuple[Array, Array, Array]:
            (reward, norm), (cost, _) = (rkhs_function(part, self.matrix, self.centres) for part in jax.random.split(key))
            return reward, cost, norm

        def accept(drawn: tuple[Array, Array, Array]) -> Array:
            reward, cost, _ = drawn
            slack = jnp.asarray(self.least_slack, cost.dtype) * jnp.max(jnp.abs(cost))
            return (cost[jnp.argmax(reward)] > 0) & (jnp.min(cost) <= -slack)

        (reward, cost, norm), accepted = reject(key, draw, accept, self.attempts)
        return self.instance(jnp.stack([reward, jnp.where(accepted, cost, 1)]), norm)


@nameable
@checked
def rkhs_1d(
    points_per_axis: Points = 100,
    *,
    threshold: Annotated[Scalar, SHARE] = 0.5,
    bound: Literal["norm", "max"] = "norm",
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
      attempts: most draws of an instance, ``>= 1``; if none is accepted, its constraint is 1 everywhere, and the trial is flagged.
    """
    kernel = SquaredExponential(length_scale=0.2) if kernel is None else kernel
    given = _on_interval(points_per_axis, noise, kernel) | {"centres": centres, "attempts": attempts, "name": "rkhs_1d"}
    return _drawing(RkhsThreshold(**given, threshold=threshold, least_peak=least_peak, bound=bound), kernel)


@nameable
@checked
def rkhs_1d_binding(
    points_per_axis: Points = 100,
    *,
    least_slack: Annotated[Scalar, between(0, 1, open_low=False)] = 0.25,
    noise: Noise | None = None,
    kernel: Kernel | None = None,
    centres: Count = 100,
    attempts: Count = 100,
) -> RkhsBinding:
    """Make a family of functions as in :func:`rkhs_1d` with an independent, binding constraint; ours, to show the trade-off with cost.

    ``f`` and ``g`` are two independent draws; an instance counts when the best point of ``f`` alone violates ``g`` and the Slater slack
    is at least a quarter of ``max |g|``.

    Args:
      least_slack: smallest Slater slack accepted, as a share of ``max |g|``, in ``[0, 1]``.
      points_per_axis, noise, kernel, centres, attempts: as for :func:`rkhs_1d`.
    """
    kernel = SquaredExponential(length_scale=0.2) if kernel is None else kernel
    given = _on_interval(points_per_axis, noise, kernel)
    return _drawing(RkhsBinding(**given, least_slack=least_slack, centres=centres, attempts=attempts, name="rkhs_1d_binding"), kernel)


def _on_interval(points_per_axis: int, noise: Noise | None, kernel: Kernel) -> dict[str, Any]:
    """Return the domain, the kernel matrix and the noise of a family on ``[0, 1]``."""
    size = checks.short(points_per_axis)
    check_fits("points_per_axis", 3 * 8 * int(points_per_axis) ** 2, f"the kernel matrix of {size} points and its factors", "take fewer")
    domain = grid([0.0], [1.0], points_per_axis)
    return {"domain": domain, "matrix": gram(kernel, domain), "noise": Gaussian.from_sd(0.1) if noise is None else noise}


@pytree
class RkhsInterpolants(Draws):
    """A family with ``f`` the least-norm interpolant of ``y ~ N(0, K)`` at random points.

    Its squared RKHS norm ``y^T K^{-1} y`` is chi-squared with one degree of freedom for each centre (or the rank of ``K``, if lower).
    """

    root: Root
    centres: int = static(default=100)
    shift_to_zero: bool = static(default=False)

    constraints = 0

    @checked
    def sample(self, key: Key) -> Problem:
        where_key, weight_key = jax.random.split(key)
        where = jax.random.choice(where_key, self.domain.size, (self.centres,), replace=False)
        reward, norm = self._values(where, jax.random.normal(weight_key, (self.centres,), float_dtype()))
        return self.instance(reward[None], norm)

    @checked
    def fixed(self, seed: Seed) -> Problem:
        """Return the instance of a seed ``>= 0`` of NumPy's generator, in float64: the same function on every machine."""
        rng = np.random.default_rng(seed)
        where, weights = rng.choice(self.domain.size, self.centres, replace=False), rng.standard_normal(self.centres)
        with jax.enable_x64(True):
            reward, norm = _values(canonicalise(self), where, weights)
            return self.instance(np.asarray(reward)[None], np.asarray(norm).item())

    def _values(self, where: Array, weights: Array) -> tuple[Array, Array]:
        """Return ``f = k(., Z) L^{-T} w`` and its norm ``|w|``, with ``L L^T = k(Z, Z)`` and centres ``Z = points[where]``."""
        # L^T is the triangular factor of root[Z]^T = Q L^T, and so f = root Q w, without solving with a nearly singular matrix.
        basis, triangle = _qr(jnp.asarray(self.root, float_dtype())[where].T)
        signs = jnp.where(jnp.diagonal(triangle) < 0, -1, 1).astype(weights.dtype)
        weights = signs * weights[: signs.shape[0]]  # fewer than centres where the kernel matrix has a lower rank
        reward = times(self.root, times(basis, weights))
        norm = jnp.sqrt(jnp.sum(weights**2))
        return reward - jnp.min(reward) if self.shift_to_zero else reward, norm


_values = jax.jit(RkhsInterpolants._values)


@jax.custom_batching.sequential_vmap
def _qr(matrix: Array) -> tuple[Array, Array]:
    """Return the reduced QR factors, one instance at a time under ``vmap``: a batched QR on several CPU devices can hang in jaxlib 0.10."""
    basis, triangle = jnp.linalg.qr(matrix)
    return basis, triangle


@nameable
@checked
def rkhs_2d_draws(
    variant: Annotated[str, choice(*RKHS_2D_LENGTH_SCALES)] = "f1",
    points_per_axis: PointsPerAxis = 50,
    *,
    side: Annotated[float, positive] = 10.0,
    kernel: Kernel | None = None,
    noise: Noise | None = None,
    delay: Delay | None = None,
    centres: Annotated[int, whole(1)] = 100,
    shift_to_zero: bool = False,
) -> RkhsInterpolants:
    """Make the family of random functions of BPE-Delay (Vakili et al. 2023, sec. 7), a new one for every trial; no constraints.

    ``f`` interpolates 100 values of a Gaussian process at random points of the grid. Its RKHS norm, the ``norm`` of an instance, is
    10 on average with a standard deviation of 0.7. The paper does not state the domain (its published code: a square of side 10), the
    number of points or their places.

    Args:
      variant: ``"f1"`` or ``"f2"``, squared exponential of length-scale 0.8 or 1.
      points_per_axis: grid resolution ``n >= 2``, ``M = n^2`` (paper: 50).
      side: side ``> 0`` of the domain ``[0, side]^2``.
      kernel: another kernel.
      noise: noise model; default Gaussian of sd 0.02.
      delay: delay model; default Poisson of mean 50.
      centres: number of points that are interpolated, 1 to ``M``.
      shift_to_zero: subtract ``min f`` from ``f``, as learners that read 0 for missing feedback need; ``norm`` is that of ``f`` before.
    """
    domain = grid([0.0, 0.0], [side, side], points_per_axis)
    whole(1, domain.size)("centres", centres)
    kernel = SquaredExponential(length_scale=RKHS_2D_LENGTH_SCALES[variant]) if kernel is None else kernel
    family = RkhsInterpolants(
        domain=domain,
        root=square_root(kernel, domain),
        noise=Gaussian.from_sd(0.02) if noise is None else noise,
        delay=Poisson(mean=50.0) if delay is None else delay,
        centres=centres,
        shift_to_zero=shift_to_zero,
        name=f"rkhs_2d_draws-{variant}",
    )
    return _drawing(family, kernel)


@nameable
@checked
def rkhs_2d(
    variant: Annotated[str, choice(*RKHS_2D_LENGTH_SCALES)] = "f1", points_per_axis: PointsPerAxis = 50, *, seed: Seed = 0, **options: Any
) -> Problem:
    """Make one fixed function of the kind ``f1`` or ``f2`` of BPE-Delay's experiments, a sample of :func:`rkhs_2d_draws`.

    The paper's own functions are not published; a seed gives one like them, the same on every machine.

    Args:
      variant, points_per_axis: as for :func:`rkhs_2d_draws`.
      seed: seed of NumPy's generator, ``>= 0``.
      **options: ``side``, ``kernel``, ``noise``, ``delay``, ``centres`` and ``shift_to_zero``, as for :func:`rkhs_2d_draws`.
    """
    family = rkhs_2d_draws(variant, points_per_axis, **options)
    return _drawing(replace(family, name=f"rkhs_2d-{variant}").fixed(seed), family.drawn_from)
