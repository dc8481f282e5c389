"""Random interpolants of Gaussian-process draws in two dimensions, without constraints (BPE-Delay: Vakili et al. 2023, sec. 7)."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.codec import nameable
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import choice, exactly, finite_numbers, positive, whole
from jaxbandit.core.pytree import canonicalise, float_dtype, pytree, replace, static
from jaxbandit.core.types import Array, Key, Table
from jaxbandit.delays import Delay, NoDelay, Poisson
from jaxbandit.domains import Domain, grid
from jaxbandit.kernels import Kernel, SquaredExponential
from jaxbandit.problems._draws import gram, square_root, times
from jaxbandit.problems.base import Family, Problem
from jaxbandit.problems.noise import Gaussian, Noise

__all__ = ["RKHS_2D_LENGTH_SCALES", "RkhsInterpolants", "rkhs_2d", "rkhs_2d_draws"]

RKHS_2D_LENGTH_SCALES = {"f1": 0.8, "f2": 1.0}  # of the kernels that the two kinds of function are drawn with


POINTS = whole(2, 140)  # with a kernel matrix of all pairs
Seed: TypeAlias = Annotated[int, whole(0, 2**63 - 1)]


@pytree
class RkhsInterpolants(Family):
    """A family with ``f`` the least-norm interpolant of ``y ~ N(0, K)`` at random points; make one with :func:`rkhs_2d_draws`.

    Its squared RKHS norm ``y^T K^{-1} y`` is chi-squared with one degree of freedom for each centre (or the rank of ``K``, if lower).

    Attributes:
      domain: the ``M`` points.
      root: ``[M, r]`` square root of the kernel matrix, computed in float64.
      noise: a noise model, see :mod:`jaxbandit.problems.noise`.
      delay: a delay model, see :mod:`jaxbandit.delays`.
      centres: number of points that are interpolated, at most ``M``.
      shift_to_zero: subtract ``min f`` from ``f``.
      name: label of the problem in tables, figures and files.
    """

    domain: Domain
    root: Table
    noise: Noise = Gaussian()
    delay: Delay = NoDelay()
    centres: int = static(default=100)
    shift_to_zero: bool = static(default=False)
    name: str = static(default="rkhs_2d_draws")

    @property
    def constraints(self) -> int:
        """Number of constraints, ``m = 0``."""
        return 0

    @checked
    def sample(self, key: Key) -> Problem:
        """Return the instance that belongs to ``key``; pure, and distinct under ``vmap`` over keys."""
        where_key, weight_key = jax.random.split(key)
        where = jax.random.choice(where_key, self.domain.size, (self.centres,), replace=False)
        return self._instance(*self._values(where, jax.random.normal(weight_key, (self.centres,), float_dtype())))

    @checked
    def fixed(self, seed: Seed) -> Problem:
        """Return the instance of a seed ``>= 0`` of NumPy's generator, in float64: the same function on every machine."""
        rng = np.random.default_rng(seed)
        where, weights = rng.choice(self.domain.size, self.centres, replace=False), rng.standard_normal(self.centres)
        with jax.enable_x64(True):
            reward, norm = _values(canonicalise(self), where, weights)
            return self._instance(np.asarray(reward), np.asarray(norm).item())

    def _values(self, where: Array, weights: Array) -> tuple[Array, Array]:
        """Return ``f = k(., Z) L^{-T} w`` and its norm ``|w|``, with ``L L^T = k(Z, Z)`` and centres ``Z = points[where]``."""
        # L^T is the triangular factor of root[Z]^T = Q L^T, and so f = root Q w, without solving with a nearly singular matrix.
        basis, triangle = _qr(jnp.asarray(self.root, float_dtype())[where].T)
        signs = jnp.where(jnp.diagonal(triangle) < 0, -1, 1).astype(weights.dtype)
        weights = signs * weights[: signs.shape[0]]  # fewer than centres where the kernel matrix has a lower rank
        reward = times(self.root, times(basis, weights))
        norm = jnp.sqrt(jnp.sum(weights**2))
        return reward - jnp.min(reward) if self.shift_to_zero else reward, norm

    def _instance(self, reward: Table, norm: Array | float) -> Problem:
        return Problem(domain=self.domain, means=reward[None], noise=self.noise, delay=self.delay, norm=norm, name=self.name)

    def validate(self) -> None:
        super().validate()
        self.require(centres=whole(1, self.domain.size))
        self.require(root=finite_numbers.of(exactly(self.domain.size, None, words="one row per point of the domain")))


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
    points_per_axis: Annotated[int, POINTS] = 50,
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

    Raises:
      InvalidArgument: on an unknown variant or a parameter out of range.
    """
    domain = grid([0.0, 0.0], [side, side], points_per_axis)
    whole(1, domain.size)("centres", centres)
    kernel = SquaredExponential(length_scale=RKHS_2D_LENGTH_SCALES[variant]) if kernel is None else kernel
    return RkhsInterpolants(
        domain=domain,
        root=square_root(gram(kernel, domain)),
        noise=Gaussian.from_sd(0.02) if noise is None else noise,
        delay=Poisson(mean=50.0) if delay is None else delay,
        centres=centres,
        shift_to_zero=shift_to_zero,
        name=f"rkhs_2d_draws-{variant}",
    )


@nameable
@checked
def rkhs_2d(
    variant: Annotated[str, choice(*RKHS_2D_LENGTH_SCALES)] = "f1",
    points_per_axis: Annotated[int, POINTS] = 50,
    *,
    seed: Seed = 0,
    **options: Any,
) -> Problem:
    """Make one fixed function of the kind ``f1`` or ``f2`` of BPE-Delay's experiments, a sample of :func:`rkhs_2d_draws`.

    The paper's own functions are not published; a seed gives one like them, the same on every machine.

    Args:
      variant, points_per_axis: as for :func:`rkhs_2d_draws`.
      seed: seed of NumPy's generator, ``>= 0``.
      **options: ``side``, ``kernel``, ``noise``, ``delay``, ``centres`` and ``shift_to_zero``, as for :func:`rkhs_2d_draws`.

    Raises:
      InvalidArgument: on an unknown variant or a parameter out of range.
    """
    return replace(rkhs_2d_draws(variant, points_per_axis, **options), name=f"rkhs_2d-{variant}").fixed(seed)
