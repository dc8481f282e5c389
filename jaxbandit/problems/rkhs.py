"""Random families in reproducing kernel Hilbert spaces.

They are kernel expansions on ``[0, 1]`` (Zhou and Ji 2022), and interpolants on a square (Vakili et al. 2023).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.codec import nameable
from jaxbandit.core.declare import Array, Key, Scalar, Table, checked
from jaxbandit.core.fields import between, choice, positive, whole
from jaxbandit.core.pytree import canonicalise, float_dtype, pytree, remember, replace, static
from jaxbandit.delays import Delay, Poisson
from jaxbandit.domains import grid
from jaxbandit.host.memory import check_fits
from jaxbandit.kernels import Kernel, SquaredExponential
from jaxbandit.problems.base import Problem, Seed
from jaxbandit.problems.families import DrawCount, Draws, Root, gram, reject, square_root, times
from jaxbandit.problems.noise import Gaussian, Noise

__all__ = ["RKHS_2D_LENGTH_SCALES", "rkhs_1d", "rkhs_1d_binding", "rkhs_2d", "rkhs_2d_draws"]

#: Length-scales of the kernels that the two kinds of function are drawn with.
RKHS_2D_LENGTH_SCALES = {"f1": 0.8, "f2": 1.0}

Share: TypeAlias = Annotated[Scalar, between(0, 1)]
# A kernel matrix of all pairs limits the numbers of points on an interval and of points on each axis of a square.
PointCount: TypeAlias = Annotated[int, whole(2, 20_000)]
PointsPerAxis: TypeAlias = Annotated[int, whole(2, 140)]


def rkhs_function(key: Key, kernel_matrix: Table, centres: int) -> tuple[Array, Array]:
    """Draw ``f [M] = sum_i a_i k(., x_i)``, and its norm ``[]``."""
    where_key, weight_key = jax.random.split(key)
    size = np.shape(kernel_matrix)[0]
    where = jax.random.randint(where_key, (centres,), 0, size)
    weights = jax.random.uniform(weight_key, (centres,), float_dtype(), -1, 1)
    coefficients = jnp.zeros((size,), weights.dtype).at[where].add(weights)
    values = times(kernel_matrix, coefficients)
    # The norm is |f|^2 = a^T K a.
    return values, jnp.sqrt(jnp.maximum(jnp.sum(coefficients * values), 0))


@pytree
class RkhsThreshold(Draws):
    """Family of kernel expansions ``f`` and ``g = -f + h``.

    ``f = sum_i a_i k(., x_i)``, ``h = threshold * B``, and functions are drawn until ``max f >= least_peak * B``.
    """

    matrix: Root
    centres: DrawCount = static(default=100)
    attempts: DrawCount = static(default=100)
    threshold: Share = 0.5
    least_peak: Share = 0.52
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
    """Family with independent ``f`` and ``g``, drawn until ``g`` binds.

    The best ``f`` is infeasible then, and ``min g <= -least_slack * max |g|``.
    """

    matrix: Root
    centres: DrawCount = static(default=100)
    attempts: DrawCount = static(default=100)
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
    points_per_axis: PointCount = 100,
    *,
    threshold: Share = 0.5,
    bound: Literal["norm", "max"] = "norm",
    least_peak: Share = 0.52,
    noise: Noise | None = None,
    kernel: Kernel | None = None,
    centres: DrawCount = 100,
    attempts: DrawCount = 100,
) -> RkhsThreshold:
    """Make the family of random ``f`` in an RKHS, at least ``h``.

    The aim is the best point of ``{f >= h}`` on ``[0, 1]`` (Zhou and Ji 2022, App. F.1). ``f = sum_{i=1}^{p} a_i k(., x_i)``, ``a_i ~
    U[-1, 1]``, ``x_i`` uniform on the grid with repeats (not stated in the paper), and ``g = -f + h``. The paper does not define ``B``
    either: here it is the RKHS norm, or ``max |f|``. Instances with ``max f < 0.52 B`` are drawn again (our addition: ``{f >= h}`` is often
    empty otherwise); 57% of draws pass with the norm, 64% with the maximum. The constraint does not bind: the best point is also the
    safest.

    Args:
      points_per_axis: ``M >= 2`` evenly spaced points, ends included (paper: 100).
      threshold: ``h / B`` in ``(0, 1]`` (paper: 1/4 and 1/2); above ``least_peak`` instances may be infeasible.
      bound: ``"norm"`` or ``"max"``.
      least_peak: smallest ``max f / B`` accepted, in ``(0, 1]``.
      noise: noise model; default Gaussian of sd ``R = 0.1`` on reward and cost.
      kernel: default squared exponential, ``l = 0.2``.
      centres: number of terms, ``p >= 1`` (paper: 100).
      attempts: most draws of an instance, ``>= 1``. Without an accepted draw its constraint is 1 everywhere, and the trial is flagged.
    """
    kernel = SquaredExponential(length_scale=0.2) if kernel is None else kernel
    given = _on_interval(points_per_axis, noise, kernel) | {"centres": centres, "attempts": attempts, "name": "rkhs_1d"}
    return remember(RkhsThreshold(**given, threshold=threshold, least_peak=least_peak, bound=bound), drawn_from=kernel)


@nameable
@checked
def rkhs_1d_binding(
    points_per_axis: PointCount = 100,
    *,
    least_slack: Annotated[Scalar, between(0, 1, open_low=False)] = 0.25,
    noise: Noise | None = None,
    kernel: Kernel | None = None,
    centres: DrawCount = 100,
    attempts: DrawCount = 100,
) -> RkhsBinding:
    """Make a family as :func:`rkhs_1d`, with an independent, binding constraint.

    The family is ours, to show the trade-off with cost. ``f`` and ``g`` are two independent draws; an instance counts when the best point
    of ``f`` alone violates ``g`` and the Slater slack is at least a quarter of ``max |g|``.

    Args:
      least_slack: smallest Slater slack accepted, as a share of ``max |g|``, in ``[0, 1]``.
      points_per_axis, noise, kernel, centres, attempts: as for :func:`rkhs_1d`.
    """
    kernel = SquaredExponential(length_scale=0.2) if kernel is None else kernel
    given = _on_interval(points_per_axis, noise, kernel)
    family = RkhsBinding(**given, least_slack=least_slack, centres=centres, attempts=attempts, name="rkhs_1d_binding")
    return remember(family, drawn_from=kernel)


def _on_interval(points_per_axis: int, noise: Noise | None, kernel: Kernel) -> dict[str, Any]:
    """Return domain, kernel matrix and noise of a family on ``[0, 1]``."""
    size = checks.short(points_per_axis)
    check_fits("points_per_axis", 3 * 8 * int(points_per_axis) ** 2, f"the kernel matrix of {size} points and its factors", "take fewer")
    domain = grid([0.0], [1.0], points_per_axis)
    return {"domain": domain, "matrix": gram(kernel, domain), "noise": Gaussian.from_sd(0.1) if noise is None else noise}


@pytree
class RkhsInterpolants(Draws):
    """Family of least-norm interpolants ``f`` of random values at random points.

    The values are ``y ~ N(0, K)``. The squared RKHS norm ``y^T K^{-1} y`` is chi-squared; its degrees of freedom are the rank of ``K``, at
    most the number of centres.
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
        """Return a seed's instance, in float64, equal on every machine."""
        rng = np.random.default_rng(seed)
        where, weights = rng.choice(self.domain.size, self.centres, replace=False), rng.standard_normal(self.centres)
        with jax.enable_x64(True):
            reward, norm = _values(canonicalise(self), where, weights)
            return self.instance(np.asarray(reward)[None], np.asarray(norm).item())

    def _values(self, where: Array, weights: Array) -> tuple[Array, Array]:
        """Return ``f = k(., Z) L^{-T} w`` and its norm ``|w|``.

        ``L L^T = k(Z, Z)``, with centres ``Z = points[where]``.
        """
        # L^T is the triangular factor of root[Z]^T = Q L^T, and so f = root Q w, without solving with a nearly singular matrix.
        basis, triangle = _qr(jnp.asarray(self.root, float_dtype())[where].T)
        signs = jnp.where(jnp.diagonal(triangle) < 0, -1, 1).astype(weights.dtype)
        # There are fewer weights than centres if the kernel matrix has a lower rank.
        weights = signs * weights[: signs.shape[0]]
        reward = times(self.root, times(basis, weights))
        norm = jnp.sqrt(jnp.sum(weights**2))
        return reward - jnp.min(reward) if self.shift_to_zero else reward, norm


_values = jax.jit(RkhsInterpolants._values)


@jax.custom_batching.sequential_vmap
def _qr(matrix: Array) -> tuple[Array, Array]:
    """Return QR factors in turn, because batches can hang in jaxlib 0.10."""
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
    """Make the family of random functions of BPE-Delay, without constraints.

    It is of Vakili et al. (2023, sec. 7), with a new function for every trial. ``f`` interpolates 100 values of a Gaussian process at
    random points of the grid. Its RKHS norm, the ``norm`` of an instance, is 10 on average with a standard deviation of 0.7. The paper does
    not state the domain (its published code: a square of side 10), the number of points or their places.

    Args:
      variant: ``"f1"`` or ``"f2"``, squared exponential of length-scale 0.8 or 1.
      points_per_axis: grid resolution ``n >= 2``, ``M = n^2`` (paper: 50).
      side: side ``> 0`` of the domain ``[0, side]^2``.
      kernel: another kernel.
      noise: noise model; default Gaussian of sd 0.02.
      delay: delay model; default Poisson of mean 50.
      centres: number of points that are interpolated, 1 to ``M``.
      shift_to_zero: subtract ``min f`` from ``f`` for learners that replace missing feedback by 0; ``norm`` is the norm before the shift.
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
    return remember(family, drawn_from=kernel)


@nameable
@checked
def rkhs_2d(
    variant: Annotated[str, choice(*RKHS_2D_LENGTH_SCALES)] = "f1", points_per_axis: PointsPerAxis = 50, *, seed: Seed = 0, **options: Any
) -> Problem:
    """Make one fixed function like those of BPE-Delay's experiments.

    It is a sample of :func:`rkhs_2d_draws`, of the kind ``f1`` or ``f2``, because the paper's own functions are not published. A seed
    determines the function on every machine.

    Args:
      variant, points_per_axis: as for :func:`rkhs_2d_draws`.
      seed: seed of NumPy's generator, ``>= 0``.
      **options: ``side``, ``kernel``, ``noise``, ``delay``, ``centres`` and ``shift_to_zero``, as for :func:`rkhs_2d_draws`.
    """
    family = rkhs_2d_draws(variant, points_per_axis, **options)
    return remember(replace(family, name=f"rkhs_2d-{variant}").fixed(seed), drawn_from=family.drawn_from)
