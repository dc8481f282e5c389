"""GP models whose length-scales can be traced, swept, differentiated and fitted.

Their features are, per axis of a product grid, polynomials in the logarithm of the length-scale.

On axis ``a`` the features of the one-dimensional kernel ``k`` are ``K(x, z) R^-1 O`` with fixed pivots ``z`` and ``R^T R = K(z, z)``
(Nystroem's method, Williams and Seeger 2001). The rotation ``O`` makes them smooth in the length-scale. The host computes them in float64
at Chebyshev points of the range, and the program adds up the polynomials through them (Trefethen 2013, ch. 3).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.blocks import numpy_of
from jaxbandit.core.checks import InvalidArgument, is_traced, short
from jaxbandit.core.declare import Array, Numbers, PerAxis, Table, checked
from jaxbandit.core.fields import Above, AtLeast, between, choice, finite_numbers, per_output, positive_numbers, whole
from jaxbandit.core.pytree import float_dtype, pytree, remember, replace, static
from jaxbandit.domains import Box, Domain
from jaxbandit.host.memory import check_fits
from jaxbandit.kernels import Kernel, OnAxes, Scale, same
from jaxbandit.kernels.base import covariance_matrices, parts, unscaled
from jaxbandit.surrogates import precision as rules
from jaxbandit.surrogates.choose import OutputKernels, Variance, one_per_output, points_and_values, variance_or_function
from jaxbandit.surrogates.features import ProductFeatures, contract, kept_products, outer, pivots, prior_variance
from jaxbandit.surrogates.groups import Grouped
from jaxbandit.surrogates.posterior import Surrogate
from jaxbandit.surrogates.precision import PRECISIONS, arithmetic


class RangeRules:
    """Rules for features of a range of length-scales.

    Attributes:
      share_of_pivots: share of the tolerance that the pivots of an axis may leave out. The rest is for dropped products.
      tried: number of length-scales at which the sizes of features, and their distance from the polynomials, are measured.
      slack: share by which a length-scale may lie outside the range, as after rounding to float32.
    """

    share_of_pivots: float = 0.1
    tried: int = 9
    slack: float = 1e-5


@pytree
class NystroemFeatures(ProductFeatures):
    """Features of a product kernel for length-scales from ``low`` to ``high``.

    :meth:`at` computes ``axes`` for a length-scale, by polynomials in its logarithm. The residual is the largest over the range, and
    includes the rounding and the errors of the polynomials.
    """

    name: ClassVar[str] = "nystroem"
    kernel: Kernel
    coordinates: tuple[Table, ...] = dataclasses.field(repr=False)  # [n_a] of each axis
    low: Table  # [d]
    high: Table  # [d]
    coefficients: tuple[Table, ...] = dataclasses.field(repr=False)  # [N_a, n_a, p_a] of each axis
    kernel_variance: Table = dataclasses.field(repr=False)  # [M] at the shortest length-scale

    def at(self, length_scale: Array, variance: Array) -> NystroemFeatures:
        """Return the features for ``length_scale [d]`` and ``variance []``, traced or not."""
        ends = zip(self.coefficients, length_scale, jnp.asarray(self.low), jnp.asarray(self.high), strict=True)
        axes = [_polynomials(jnp.asarray(coefficients), scale, low, high) for coefficients, scale, low, high in ends]
        axes[0] = axes[0] * jnp.sqrt(variance)
        along = with_length_scale(self.kernel, length_scale).along_axes(len(self.coordinates)) or ()
        # The variance comes from the kernel itself, so that equal variances are equal to the last digit.
        prior = variance
        for part, points in zip(along, self.coordinates, strict=True):
            prior = jnp.multiply.outer(prior, part.diag(jnp.asarray(points)[:, None]))
        return replace(self, axes=tuple(axes), prior_variance=prior.reshape(-1))


def _polynomials(coefficients: Table, length_scale: Table, low: Table, high: Table) -> Table:
    """Sum Chebyshev polynomials to one-dimensional features ``[..., n, p]``."""
    numpy = numpy_of(coefficients)
    place = 2 * numpy.log(length_scale / low) / numpy.log(high / low) - 1
    rows = [numpy.ones_like(place), place]
    for _ in range(2, len(coefficients)):
        rows.append(2 * place * rows[-1] - rows[-2])
    exact = {"precision": jax.lax.Precision.HIGHEST} if numpy is jnp else {}
    return numpy.tensordot(numpy.stack(rows, axis=-1), coefficients, axes=1, **exact)


def with_length_scale(kernel: Kernel, length_scale: PerAxis) -> Kernel:
    """Return the kernel with another length-scale in the part that has it."""
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
    """Build at most ``most`` features for length-scales from ``low`` to ``high``."""
    shortest = with_length_scale(kernel, np.asarray(low))
    if shortest.along_axes(domain.dimension) is None or not domain.axes:
        raise InvalidArgument(
            f"kernel: a length-scale is traced axis by axis; needs a product grid and a kernel that factorises over its axes, got"
            f" {type(kernel).__name__} on {'a product grid' if domain.axes else 'a bare set of points'}; use jaxbandit.surrogate for each"
            " length-scale, which a study does for a sweep over model.kernel.length_scale"
        )
    with arithmetic([precision]):
        axes = [_Axis.of(kernel, number, domain, low[number], high[number], tolerance) for number in range(domain.dimension)]
    sizes = outer([np.max([np.max(a * a, axis=0) for a, _ in axis.tried], axis=0) for axis in axes])
    # The residual is measured at combinations of the ends and the middle of each range, if there are few enough.
    some, max_combinations = [axis.tried[:: (RangeRules.tried - 1) // 2] for axis in axes], 81
    few = len(some[0]) ** len(some) <= max_combinations
    combinations = list(itertools.product(*some) if few else zip(*(axis.tried for axis in axes), strict=True))
    moved = sum(axis.distance for axis in axes) ** 2

    def residual_of(kept: np.ndarray) -> float:
        left = 0.0
        for combination in combinations:
            variance = outer([own for _, own in combination])
            left = max(left, float(np.max(variance - contract([a * a for a, _ in combination], kept))) / float(variance.max()))
        return left + moved

    shape = tuple(axis.coefficients.shape[2] for axis in axes)
    columns, slots = kept_products(sizes, shape, residual_of, tolerance, most)
    kept = np.zeros(shape)
    kept[tuple(columns)] = 1.0
    variance = outer([axis.tried[0][1] for axis in axes])
    return NystroemFeatures(
        axes=(),
        prior_variance=variance,
        kernel=shortest,
        coordinates=tuple(np.asarray(points) for points in domain.axes),
        low=np.asarray(low),
        high=np.asarray(high),
        coefficients=tuple(axis.coefficients[:, :, :used] for axis, used in zip(axes, slots.shape, strict=True)),
        columns=columns,
        slots=slots,
        kernel_variance=variance,
        residual=np.float64(residual_of(kept)),
    )


class _Axis(NamedTuple):
    """Features of one axis, and their polynomials, over the range."""

    coefficients: np.ndarray  # [N, n, q]
    # Features and prior variances are sorted from the shortest length-scale to the longest.
    tried: list[tuple[np.ndarray, np.ndarray]]  # [n, q], [n]
    # The polynomials are this far from the features, in prior deviations at the worst point and length-scale.
    distance: float

    @classmethod
    def of(cls, kernel: Kernel, number: int, domain: Domain, low: float, high: float, tolerance: float) -> _Axis:
        """Compute the features of an axis and enough polynomials for them."""
        points = np.asarray(domain.axes[number], np.float64)[:, None]

        def part(length_scale: float) -> Kernel:
            return (with_length_scale(kernel, np.full(domain.dimension, length_scale)).along_axes(domain.dimension) or ())[number]

        features = functools.cache(_features_on_pivots(part, points, low, tolerance))
        # The places are both ends and irregular numbers between them, multiples of the golden ratio without their whole parts.
        places = np.sort(np.append(np.modf(np.arange(1, RangeRules.tried - 1) * 0.5 * (np.sqrt(5) - 1))[0], [0.0, 1.0]))
        scales = low * (high / low) ** places
        tried = [(features(scale), prior_variance(part(scale), points)) for scale in scales]
        deviations = [np.sqrt(float(variance.max())) for _, variance in tried]

        def distance_of(coefficients: np.ndarray) -> float:
            # The host computes this, because a program would be compiled for each axis and each number of nodes.
            computed = _polynomials(*(np.asarray(x, float_dtype()) for x in (coefficients, scales, low, high)))
            moved = [np.linalg.norm(own - exact, axis=1).max() for own, (exact, _) in zip(computed, tried, strict=True)]
            return float(np.max(np.divide(moved, deviations)))

        # Polynomials may be off by a thousandth of the tolerance.
        enough = max(1e-3 * tolerance, 16 * float(np.finfo(float_dtype()).eps))
        best, least = np.zeros(0), np.inf
        # The Chebyshev points of a number of nodes are among the points of the next number.
        for nodes in (9, 17, 33, 65):
            at = np.cos(np.pi * np.arange(nodes) / (nodes - 1)).round(15)
            values = np.stack([features(low * (high / low) ** ((place + 1) / 2)) for place in at])
            coefficients = np.tensordot(np.linalg.inv(np.polynomial.chebyshev.chebvander(at, nodes - 1)), values, axes=1)
            distance, before = distance_of(coefficients), least
            if distance < least:
                best, least = coefficients, distance
            # More polynomials would follow the rounding.
            if least <= enough or (least**2 <= RangeRules.share_of_pivots * tolerance and distance > before / 2):
                break
        return cls(best, tried, least)


def _features_on_pivots(part: Callable[[float], Kernel], points: np.ndarray, low: float, tolerance: float) -> Callable[[float], np.ndarray]:
    """Return the float64 features ``[n, q]`` of an axis by length-scale.

    With ``F = K(x, z) R^-1`` for a root ``R``, the features at the shortest length-scale are ``F V``. Its columns are the principal
    directions under weights by leverage, because an end of an axis needs more features than its middle, and the worst point determines a
    residual. For any other length-scale the first columns of ``F O`` and of ``K(x, z) R_low^-1 V`` span the same space.
    """

    def check(columns: float) -> None:
        what = f"the {columns:,.0f} features or more that these length-scales need on an axis of {len(points):,} points"
        # About 40 tables of features are in memory, one for each Chebyshev point of the range.
        tables = 40
        check_fits("domain", int(tables * 8 * columns * len(points)), what, "give fewer points, a larger low= or a smoother kernel")

    min_jitter = 1e-14
    _, chosen, _ = pivots(part(low), points, RangeRules.share_of_pivots * max(tolerance, min_jitter), len(points), check)

    def nystroem(length_scale: float) -> tuple[np.ndarray, np.ndarray]:
        (matrix,) = covariance_matrices([part(length_scale)], [points], [points[chosen]])  # [n, q]
        # The jitter is a thousandth of the tolerance, or the least share of the prior variance that a factorisation needs.
        jitter = max(1e-3 * tolerance, min_jitter)
        while jitter < 1:
            try:
                root = np.linalg.cholesky(matrix[chosen] + jitter * np.max(matrix[chosen]) * np.eye(len(chosen)))
            except np.linalg.LinAlgError:
                jitter *= 10
            else:
                return np.linalg.solve(root, matrix.T).T, root.T
        raise InvalidArgument("kernel: must be a covariance for all length-scales from low to high")

    shortest, root = nystroem(low)
    leverage = np.sum(np.linalg.qr(shortest)[0] ** 2, axis=1)
    basis = np.linalg.solve(root, np.linalg.eigh(shortest.T @ (leverage[:, None] * shortest))[1][:, ::-1])

    def features(length_scale: float) -> np.ndarray:
        own, root = nystroem(length_scale)
        rotation, triangle = np.linalg.qr(root @ basis)
        return np.asarray(own @ (rotation * np.where(np.diag(triangle) < 0, -1, 1)))

    return features


@pytree
class RangedSurrogate(Surrogate):
    """Gaussian-process model whose length-scale is a leaf.

    :func:`jaxbandit.ranged` makes this model. ``jaxbandit.replace(model, length_scale=...)`` sets the length-scale, to a traced number too.
    Programs compute the features once, by :meth:`factorised`, before the first round; the methods of a model that is not factorised compute
    them anew in every call. A traced length-scale outside the range gives NaN, and so flags a trial.

    Attributes:
      length_scale: one number for all axes and outputs, one for each axis ``[d]``, or for each group of outputs and axis ``[G, d]``.
      variance: ``[G]`` factor on the kernel of each group, the prior variance under a kernel with variance 1.
      low, high: ends of the range of length-scales on each axis.
    """

    by_group: ClassVar[Mapping[str, int]] = {"noise_variance": 1, "variance": 1, "length_scale": 2}
    forms: Annotated[tuple[NystroemFeatures, ...], AtLeast(1)]
    length_scale: Table
    variance: Table
    low: tuple[float, ...] = static()
    high: tuple[float, ...] = static()

    def factorised(self) -> RangedSurrogate:
        """Return the model with the features of its length-scale and variance."""
        scales = jnp.broadcast_to(jnp.asarray(self.length_scale), (len(self.forms), self.domain.dimension))
        inside = (scales >= jnp.asarray(self.low)[None] * (1 - RangeRules.slack)) & (
            scales <= jnp.asarray(self.high)[None] * (1 + RangeRules.slack)
        )
        variance = jnp.where(jnp.all(inside, axis=1), jnp.asarray(self.variance), jnp.nan)
        return replace(self, forms=tuple(form.at(scales[g], variance[g]) for g, form in enumerate(self.forms)))

    @property
    def kernels_in_force(self) -> tuple[Kernel, ...]:
        """Kernel of each output at the length-scale and variance of the model."""
        scale, variance = np.asarray(self.length_scale, np.float64), np.asarray(self.variance, np.float64)
        kernels = []
        # A model in a program has no kernels.
        for kernel, group in zip(self.kernels, self.groups, strict=False):
            own = with_length_scale(unscaled(kernel)[0], scale[group] if scale.ndim == 2 else scale)
            kernels.append(own if variance[group] == 1 else Scale(kernel=own, variance=float(variance[group])))
        return tuple(kernels)

    @property
    def grouped(self) -> Grouped:
        grouped = super().grouped
        is_ready = all(form.axes for form in self.forms)
        return grouped if is_ready else grouped._replace(batched=lambda: self.factorised().grouped.batched())

    def largest_variances(self) -> list[float]:
        own = np.asarray(self.variance, np.float64)
        return [float(own[g] * np.max(np.asarray(form.kernel_variance, np.float64))) for g, form in enumerate(self.forms)]

    def describe(self) -> str:
        ends = [f"[{low:g}, {high:g}]" for low, high in zip(self.low, self.high, strict=True)]
        ranges = ends[0] if len(set(ends)) == 1 else " x ".join(ends)
        return f"{super().describe()}\nlength-scale {short(np.asarray(self.length_scale).tolist())} of {ranges}"

    def validate(self) -> None:
        """Raise ``InvalidArgument`` on a wrong field or a length-scale out of range."""
        super().validate()
        axes, name = len(self.low), "surrogate.length_scale"
        if checks.shape_of(name, self.length_scale) not in ((), (axes,), (len(self.forms), axes)):
            raise InvalidArgument(
                f"{name}: expected one number, one for each of the {axes} axes, or [{len(self.forms)}, {axes}], got shape"
                f" {list(np.shape(self.length_scale))}"
            )
        if not is_traced(self.length_scale):
            given = checks.numbers(name, self.length_scale)
            if not np.all(
                (given >= np.asarray(self.low) * (1 - RangeRules.slack)) & (given <= np.asarray(self.high) * (1 + RangeRules.slack))
            ):
                raise InvalidArgument(
                    f"{name}: must lie between low {short(list(self.low))} and high {short(list(self.high))}, for which the model was"
                    f" built, got {short(self.length_scale)}"
                )
        checks.positive("surrogate.variance", self.variance)
        checks.shape("surrogate.variance", self.variance, (len(self.forms),))


def _largest_variance(kernel: Kernel, domain: Domain) -> float:
    """Return the largest prior variance on a domain."""
    # A product is computed axis by axis, by the programs of its features.
    parts = kernel.along_axes(domain.dimension) if domain.axes else None
    tables = [domain.points] if parts is None else [np.asarray(axis)[:, None] for axis in domain.axes]
    return math.prod(float(np.max(prior_variance(part, points))) for part, points in zip(parts or [kernel], tables, strict=True))


def _factors(kernel: Kernel, dimension: int) -> tuple[Kernel, float, np.ndarray]:
    """Return the unscaled kernel, its variance and its only length-scale."""
    base, variance = unscaled(kernel)
    scales = length_scales(base)
    if len(scales) != 1:
        raise InvalidArgument(f"kernel: must have one length-scale, got {type(base).__name__} with {len(scales)}")
    scale = np.asarray(scales[0], np.float64)
    if scale.shape not in ((), (dimension,)):
        raise InvalidArgument(f"kernel: a kernel of some axes must have one length-scale for all of them, got {short(scale.tolist())}")
    return base, float(np.asarray(variance)), scale


@checked
def ranged(
    domain: Domain,
    kernel: Kernel | Sequence[Kernel],
    *,
    low: Annotated[PerAxis, positive_numbers],
    high: Annotated[PerAxis, positive_numbers, Above("low")],
    noise_variance: Annotated[Variance, variance_or_function],
    outputs: Annotated[int, whole(1, 1000)] = 2,
    prior_mean: Annotated[float | Sequence[float], finite_numbers, per_output] = 0.0,
    tolerance: Annotated[float, between(0, 1, open_high=True, host=True)] | None = None,
    rank: Annotated[int, whole(1)] | None = None,
    horizon: Annotated[int, whole(1)] | None = None,
    precision: Annotated[str, choice(*PRECISIONS)] = "auto",
    fit_to: Annotated[tuple[Numbers, Numbers], points_and_values] | None = None,
) -> RangedSurrogate:
    """Return a GP model with any length-scale from ``low`` to ``high``.

    Otherwise the model is like a model of :func:`jaxbandit.surrogate`. The field ``length_scale`` starts at the kernel's; a program can
    replace it, sweep it and differentiate by it. Nystroem's method computes the features on each axis, as polynomials in the logarithm of
    the length-scale, with fixed pivots. ``describe`` returns the number of features, and the share of prior variance that they miss over
    the whole range in the arithmetic of the model. The shortest length-scale determines their number, so a range of a factor of two or so
    is best.

    Args:
      domain: the ``M`` points, a product grid.
      kernel: one kernel, or one per output; a product over axes, such as ``SquaredExponential`` (any kernel on one axis is one), with one
        length-scale. The variance of a scaled kernel becomes the field ``variance``. Matern kernels are no products on several axes:
        build a :func:`jaxbandit.surrogate` for each of their length-scales, or let a study sweep ``"model.kernel.length_scale"``. A kernel
        of some axes (``OnAxes``) has one length-scale for all of them.
      low, high: shortest and longest length-scale, ``0 < low < high``; one number, or one per axis.
      noise_variance, outputs, prior_mean: as for :func:`jaxbandit.surrogate`.
      tolerance: largest share of prior variance that features may miss, at the worst length-scale; default a tenth of
        ``noise_variance / (horizon prior_variance)``, at most 1e-4.
      rank: most features allowed; a residual above ``tolerance`` is then an error.
      horizon: number of rounds to come, for the tolerance and the choice of precision (default 1000).
      precision: as for :func:`jaxbandit.surrogate`; ``"auto"`` is float64, too, if float32 misses the tolerance.
      fit_to: points ``[n, d]`` and values ``[n]`` or ``[n, 1 + m]``, from which length-scale, variance and noise variance are fitted first,
        as for :func:`jaxbandit.surrogate`; the length-scale stays between ``low`` and ``high``.

    Raises:
      InvalidArgument: as :func:`jaxbandit.surrogate` does, and on ``low >= high``, a kernel that is no product or does not have exactly one
        length-scale, or a length-scale outside the range.
    """
    if isinstance(domain, Box):
        words = "the model of a box has any length-scale; vary that of the kernel, in a study by a sweep over model.kernel.length_scale"
        raise checks.InvalidArgument(f"domain: must be a product grid, for {words}, got {checks.short(domain)}")
    for name, value in (("low", low), ("high", high)):
        if np.shape(value) not in ((), (domain.dimension,)):
            allowed_shape = f"one number, or one for each of the {domain.dimension} axes"
            raise InvalidArgument(f"{name}: expected {allowed_shape}, got shape {list(np.shape(value))}")
    shortest, longest = (tuple(np.broadcast_to(np.asarray(end, np.float64), (domain.dimension,)).tolist()) for end in (low, high))
    ends = shortest, longest
    if fit_to is not None:
        for own in one_per_output("kernel", kernel, outputs):
            _factors(own, domain.dimension)
    given = OutputKernels.of(domain, kernel, noise_variance, prior_mean, outputs, fit_to, ends)
    bases, variances, scales = zip(*(_factors(own, domain.dimension) for own in given.members), strict=True)
    largest = [variance * _largest_variance(base, domain) for base, variance in zip(bases, variances, strict=True)]
    facts, rounds = (largest, rules.least_variances(given.noise), given.means), horizon or rules.RoundingLimits.unknown_horizon
    need = rules.needed(*facts, rounds, refreshable=True)
    first = rules.chosen_precision(precision, need)
    rules.check_float64_suffices(*facts, rounds)
    rules.warn_of_float32(first, need)
    # On 90 random models these tolerances left beliefs off by at most 0.06 deviations at the end of the horizon.
    allowed = min(1e-4, 0.1 * need.least_variance) if tolerance is None else tolerance
    for chosen in dict.fromkeys((first, "float64") if precision == "auto" else (first,)):
        forms: list[NystroemFeatures] = []
        # Equal kernels share their features.
        for base in bases:
            twin = [form for form in forms if same(form.kernel, with_length_scale(base, np.asarray(ends[0])))]
            most = domain.size if rank is None else rank
            forms.append(twin[0] if twin else nystroem_features(base, domain, *ends, allowed, most, chosen))
        missed = max(float(form.residual) for form in forms)
        if missed <= allowed:
            break
    else:
        remedies = ["loosen tolerance", "narrow the range"]
        remedies += ["raise rank"] if rank is not None else []
        remedies += ["use precision='float64'"] if chosen == "float32" else ["raise noise_variance"]
        raise InvalidArgument(
            f"tolerance: {allowed:.0e} cannot be met{'' if rank is None else f' with rank={rank}'}: in {chosen} the features miss"
            f" {missed:.1e} of the prior variance at the worst length-scale; {', or '.join(remedies)}"
        )
    shared = all(np.array_equal(scale, scales[0]) for scale in scales[1:])
    own_scales = scales[0] if shared else np.stack([np.broadcast_to(scale, (domain.dimension,)) for scale in scales])
    scaled = {"length_scale": own_scales, "variance": np.asarray(variances), "low": ends[0], "high": ends[1]}
    built = given.model(RangedSurrogate, need, chosen, forms=tuple(forms), **scaled)
    asked = {"length_scale_range": (low, high), "tolerance": tolerance, "rank": rank, "precision": precision, "fit_to": fit_to}
    return remember(built, made_from={"kernel": kernel, "noise_variance": noise_variance, "prior_mean": prior_mean, **asked})
