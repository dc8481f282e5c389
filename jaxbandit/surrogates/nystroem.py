"""Features whose length-scale is known only inside the program: per axis of a product grid, polynomials in its logarithm.

On axis ``a`` the features of the one-dimensional kernel ``k`` are ``K(x, z) R^-1 O`` with pivots ``z``, chosen once for the shortest
length-scale, and ``R^T R = K(z, z)`` (Nystroem's method, Williams and Seeger 2001). The rotation ``O`` makes them smooth in the
length-scale and puts most of the variance into few columns. The host computes them in float64 at Chebyshev points of the range, and the
program adds up the Chebyshev polynomials through them (Trefethen 2013, ch. 3). So float32 rounds features, and factorises nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.polynomial import chebyshev

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.memory import check_fits
from jaxbandit.core.pytree import canonicalise, float_dtype, pytree, replace
from jaxbandit.core.types import Array, PerAxis, Table
from jaxbandit.domains import Domain
from jaxbandit.kernels import Kernel, OnAxes
from jaxbandit.kernels.base import covariances, parts
from jaxbandit.surrogates.features import EXACT, ProductFeatures
from jaxbandit.surrogates.lowrank import contract, kept_products, outer, pivots, prior_variance
from jaxbandit.surrogates.precision import arithmetic

# Shares of the tolerance: what the pivots of an axis may leave out, the rest being for the products that are dropped; what is added to
# K(z, z) for its factorisation, at least LEAST_JITTER of the prior variance; and how far polynomials may be from features.
SHARE_OF_PIVOTS, SHARE_OF_JITTER, SHARE_OF_DISTANCE = 0.1, 1e-3, 1e-3
LEAST_JITTER = 1e-14
TABLES = 40  # in memory, of the features of an axis over a range, of which there are as many as it has Chebyshev points

NODES = (9, 17, 33, 65)  # Chebyshev points of the range; those of one number are among those of the next
LENGTH_SCALES_TRIED = 9  # over the range, for the sizes of features and their distance from the polynomials
MOST_COMBINATIONS = 81  # of length-scales on several axes, over which the residual is measured


@pytree
class NystroemFeatures(ProductFeatures):
    """Features of a product kernel on a product grid for every length-scale of a range; :meth:`at` computes them for one.

    Attributes:
      axes, columns, slots, prior_variance: as in :class:`~jaxbandit.surrogates.features.ProductFeatures`, of the length-scale in force;
        ``axes`` are empty before :meth:`at`.
      kernel: the kernel; its length-scale is replaced by the one given.
      coordinates: points ``[n_a]`` of each axis.
      low, high: ends ``[d]`` of the range of length-scales on each axis.
      coefficients: ``[N_a, n_a, p_a]`` of the polynomials that one-dimensional features are in the logarithm of the length-scale.
      kernel_variance: ``[M]`` prior variances of the kernel at the shortest length-scale.
      residual: ``[]`` largest share of prior variance over the range that features leave out, or that rounding and polynomials move.
    """

    name: ClassVar[str] = "nystroem"
    kernel: Kernel
    coordinates: tuple[Table, ...] = dataclasses.field(repr=False)
    low: Table
    high: Table
    coefficients: tuple[Table, ...] = dataclasses.field(repr=False)
    kernel_variance: Table = dataclasses.field(repr=False)

    def at(self, length_scale: Array, variance: Array) -> NystroemFeatures:
        """Return the features for ``length_scale [d]`` and for ``variance []`` times the kernel, both of which may be traced."""
        ends = zip(self.coefficients, length_scale, jnp.asarray(self.low), jnp.asarray(self.high), strict=True)
        axes = [_polynomials(jnp.asarray(coefficients), scale, low, high) for coefficients, scale, low, high in ends]
        axes[0] = axes[0] * jnp.sqrt(variance)
        along = with_length_scale(self.kernel, length_scale).along_axes(len(self.coordinates)) or ()
        prior = variance  # of the kernel itself, so that equal variances are equal to the last digit
        for part, points in zip(along, self.coordinates, strict=True):
            prior = jnp.multiply.outer(prior, part.diag(jnp.asarray(points)[:, None]))
        return replace(self, axes=tuple(axes), prior_variance=prior.reshape(-1))


def _polynomials(coefficients: Array, length_scale: Array, low: Array, high: Array) -> Array:
    """Return one-dimensional features ``[n, p]``, sums of Chebyshev polynomials with ``coefficients [N, n, p]``."""
    place = 2 * jnp.log(length_scale / low) / jnp.log(high / low) - 1
    rows = [jnp.ones_like(place), place]
    for _ in range(2, len(coefficients)):
        rows.append(2 * place * rows[-1] - rows[-2])
    return jnp.tensordot(jnp.stack(rows), coefficients, axes=1, precision=EXACT)


_polynomials_of_many = jax.jit(jax.vmap(_polynomials, (None, 0, None, None)))


def with_length_scale(kernel: Kernel, length_scale: PerAxis) -> Kernel:
    """Return the kernel with another length-scale, one number or one per axis, in the one part that has one."""
    if isinstance(kernel, OnAxes):
        given = length_scale if isinstance(length_scale, jax.Array) else np.asarray(length_scale, np.float64)
        return replace(kernel, kernel=with_length_scale(kernel.kernel, given[np.asarray(kernel.axes)] if np.ndim(given) else given))
    if length_scales(kernel, inner=False):
        return replace(kernel, length_scale=length_scale)
    return replace(kernel, **{name: with_length_scale(part, length_scale) for name, part in parts(kernel).items()})


def length_scales(kernel: Kernel, *, inner: bool = True) -> list[PerAxis]:
    """Return the length-scales of a kernel and of its ``inner`` parts."""
    own = [getattr(kernel, field.name) for field in dataclasses.fields(kernel) if field.name == "length_scale"]  # type: ignore[arg-type]
    return own + [scale for part in parts(kernel).values() if inner for scale in length_scales(part)]


def nystroem_features(
    kernel: Kernel, domain: Domain, low: Sequence[float], high: Sequence[float], tolerance: float, most: int, precision: str
) -> NystroemFeatures:
    """Build :class:`NystroemFeatures` for length-scales from ``low [d]`` to ``high [d]``, with at most ``most`` products."""
    if with_length_scale(kernel, np.asarray(low)).along_axes(domain.dimension) is None or not domain.axes:
        raise InvalidArgument(
            f"kernel: a length-scale is traced axis by axis; needs a product grid and a kernel that factorises over its axes, got"
            f" {type(kernel).__name__} on {'a product grid' if domain.axes else 'a bare set of points'}; use jaxbandit.surrogate for each"
            " length-scale, which a study does for a sweep over model.kernel.length_scale"
        )
    with arithmetic([precision]):
        axes = [_Axis.of(kernel, number, domain, low[number], high[number], tolerance) for number in range(domain.dimension)]
    sizes = outer([np.max([np.max(a * a, axis=0) for a, _ in axis.tried], axis=0) for axis in axes])
    some = [axis.tried[:: (LENGTH_SCALES_TRIED - 1) // 2] for axis in axes]  # the ends and the middle of each range, where that is few
    few = len(some[0]) ** len(some) <= MOST_COMBINATIONS
    combinations = list(itertools.product(*some) if few else zip(*(axis.tried for axis in axes), strict=True))
    shape = tuple(axis.coefficients.shape[2] for axis in axes)
    moved = sum(axis.distance for axis in axes) ** 2

    def residual_of(kept: np.ndarray) -> float:
        left = 0.0
        for combination in combinations:
            variance = outer([own for _, own in combination])
            left = max(left, float(np.max(variance - contract([a * a for a, _ in combination], kept))) / float(variance.max()))
        return left + moved

    columns, slots = kept_products(sizes, shape, residual_of, tolerance, most)
    kept = np.zeros(shape)
    kept[tuple(columns)] = 1.0
    variance = outer([axis.tried[0][1] for axis in axes])
    return NystroemFeatures(
        axes=(),
        prior_variance=variance,
        kernel=with_length_scale(kernel, np.asarray(low)),
        coordinates=tuple(np.asarray(points) for points in domain.axes),
        low=np.asarray(low),
        high=np.asarray(high),
        coefficients=tuple(axis.coefficients[:, :, :used] for axis, used in zip(axes, slots.shape, strict=True)),
        columns=columns,
        slots=slots,
        kernel_variance=variance,
        residual=np.float64(residual_of(kept)),
    )


Tried = tuple[np.ndarray, np.ndarray]  # features [n, q] for one length-scale, and prior variances [n]


class _Axis(NamedTuple):
    """Features of one axis over the range."""

    coefficients: np.ndarray  # [N, n, q]
    tried: list[Tried]  # from the shortest length-scale to the longest
    distance: float  # of those that a program computes from features, in prior deviations, at the worst point and length-scale

    @classmethod
    def of(cls, kernel: Kernel, number: int, domain: Domain, low: float, high: float, tolerance: float) -> _Axis:
        """Compute the features of axis ``number`` and enough polynomials for them, in the arithmetic in force."""
        points = np.asarray(domain.axes[number], np.float64)[:, None]

        def part(length_scale: float) -> Kernel:
            return (with_length_scale(kernel, np.full(domain.dimension, length_scale)).along_axes(domain.dimension) or ())[number]

        features = functools.cache(_features_on_pivots(part, points, low, tolerance))
        # Both ends, and between them irregular places: multiples of the golden ratio without their whole parts.
        places = np.sort(np.append(np.modf(np.arange(1, LENGTH_SCALES_TRIED - 1) * 0.5 * (np.sqrt(5) - 1))[0], [0.0, 1.0]))
        scales = low * (high / low) ** places
        tried = [(features(scale), prior_variance(part(scale), points)) for scale in scales]
        deviations = [np.sqrt(float(variance.max())) for _, variance in tried]

        def distance_of(coefficients: np.ndarray) -> float:
            given = canonicalise((coefficients, scales, np.float64(low), np.float64(high)))
            played = np.asarray(_polynomials_of_many(*given), np.float64)
            moved = [np.linalg.norm(own - exact, axis=1).max() for own, (exact, _) in zip(played, tried, strict=True)]
            return float(np.max(np.divide(moved, deviations)))

        enough = max(SHARE_OF_DISTANCE * tolerance, 16 * float(np.finfo(float_dtype()).eps))
        best, least = np.zeros(0), np.inf
        for nodes in NODES:
            at = np.cos(np.pi * np.arange(nodes) / (nodes - 1)).round(15)
            values = np.stack([features(low * (high / low) ** ((place + 1) / 2)) for place in at])
            coefficients = np.tensordot(np.linalg.inv(chebyshev.chebvander(at, nodes - 1)), values, axes=1)
            distance, before = distance_of(coefficients), least
            if distance < least:
                best, least = coefficients, distance
            if least <= enough or (least**2 <= SHARE_OF_PIVOTS * tolerance and distance > before / 2):  # more would follow its rounding
                break
        return cls(best, tried, least)


def _features_on_pivots(part: Callable[[float], Kernel], points: np.ndarray, low: float, tolerance: float) -> Callable[[float], np.ndarray]:
    """Return the function that computes features ``[n, q]`` of an axis for a length-scale, in float64.

    With ``F = K(x, z) R^-1`` for a root ``R``, the features at the shortest length-scale are ``F V``, whose columns are the principal
    directions under weights by leverage: an end of an axis needs more features than its middle, and a residual is that of the worst point.
    For any other length-scale ``F O`` spans by its first columns what those of ``K(x, z) R_low^-1 V`` span.
    """

    def check(columns: float) -> None:
        what = f"the {columns:,.0f} features or more that these length-scales need on an axis of {len(points):,} points"
        check_fits("domain", int(TABLES * 8 * columns * len(points)), what, "give fewer points, a larger low= or a smoother kernel")

    _, chosen, _ = pivots(part(low), points, SHARE_OF_PIVOTS * max(tolerance, LEAST_JITTER), len(points), check)
    jitter = max(SHARE_OF_JITTER * tolerance, LEAST_JITTER)

    def nystroem(length_scale: float) -> tuple[np.ndarray, np.ndarray]:
        (matrix,) = covariances([part(length_scale)], [points], [points[chosen]])  # [n, q]
        root = _root(matrix[chosen], jitter)
        return np.linalg.solve(root, matrix.T).T, root.T

    shortest, root = nystroem(low)
    leverage = np.sum(np.linalg.qr(shortest)[0] ** 2, axis=1)
    basis = np.linalg.solve(root, np.linalg.eigh(shortest.T @ (leverage[:, None] * shortest))[1][:, ::-1])

    def features(length_scale: float) -> np.ndarray:
        own, root = nystroem(length_scale)
        rotation, triangle = np.linalg.qr(root @ basis)
        return np.asarray(own @ (rotation * np.where(np.diag(triangle) < 0, -1, 1)))

    return features


def _root(matrix: np.ndarray, jitter: float) -> np.ndarray:
    """Return the Cholesky factor of a matrix with the least jitter, in shares of its largest entry, from ``jitter`` on that it needs."""
    if not jitter < 1:
        raise InvalidArgument("kernel: must be a covariance for all length-scales from low to high")
    try:
        return np.linalg.cholesky(matrix + jitter * np.max(matrix) * np.eye(len(matrix)))
    except np.linalg.LinAlgError:
        return _root(matrix, 10 * jitter)
