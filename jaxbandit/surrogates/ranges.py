"""GP models whose length-scales are hyper-parameters like any other: traced, swept in one program, differentiated, fitted on the way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, is_traced, short
from jaxbandit.core.codec import remember
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import AtLeast, between, choice, finite_numbers, per_output, positive_numbers, whole
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.core.types import Array, Numbers, PerAxis, Scalar, Table
from jaxbandit.domains import Domain
from jaxbandit.kernels import Kernel, Scale, same
from jaxbandit.surrogates.lowrank import prior_variance
from jaxbandit.surrogates.nystroem import NystroemFeatures, length_scales, nystroem_features, with_length_scale
from jaxbandit.surrogates.outputs import DATA, VARIANCE, Outputs, Variance, one_per_output
from jaxbandit.surrogates.posterior import Surrogate
from jaxbandit.surrogates.precision import HORIZON_IF_UNKNOWN, PRECISIONS, check_float64_suffices, in_force, least, needed, warn_of_float32

__all__ = ["RangedSurrogate", "ranged"]

# Most that features may miss: share of the prior variance, and of that to which a point falls that is observed in every round. Beliefs on
# 90 models at random were off by 0.06 deviations at most when the horizon was up.
MOST_MISSED, SHARE_OF_FALLEN = 1e-4, 0.1
SLACK = 1e-5  # share by which a length-scale may lie outside the range, as after rounding to float32


@pytree
class RangedSurrogate(Surrogate):
    """A GP model whose length-scale is a leaf; make one with :func:`jaxbandit.ranged`.

    ``jaxbandit.replace(model, length_scale=...)`` sets it, to a traced number too. Programs compute its features once, by
    :meth:`factorised`, before the first round; called on the model itself, the methods of a posterior compute them anew every time. A
    traced length-scale outside the range gives NaN, which flags a trial.

    Attributes:
      length_scale: one number for all axes and outputs, one for each axis ``[d]``, or for each group of outputs and axis ``[G, d]``.
      variance: ``[G]`` factor on the kernel of each group, its prior variance where the kernel's is 1.
      low, high: ends of the range of length-scales on each axis.
    """

    forms: Annotated[tuple[NystroemFeatures, ...], AtLeast(1)]
    length_scale: Table
    variance: Table
    low: tuple[float, ...] = static()
    high: tuple[float, ...] = static()

    @property
    def is_factorised(self) -> bool:
        """Return whether the features of the length-scale in force have been computed."""
        return all(form.axes for form in self.forms)

    def factorised(self) -> RangedSurrogate:
        """Return the model with the features of its length-scale and variance."""
        scales = self.scale_of_groups()
        inside = jnp.all(
            (scales >= jnp.asarray(self.low)[None] * (1 - SLACK)) & (scales <= jnp.asarray(self.high)[None] * (1 + SLACK)), axis=1
        )
        variance = jnp.where(inside, jnp.asarray(self.variance), jnp.nan)
        return replace(self, forms=tuple(form.at(scales[g], variance[g]) for g, form in enumerate(self.forms)))

    def scale_of_groups(self) -> Array:
        """Return the length-scale ``[G, d]`` of each group of outputs on each axis."""
        return jnp.broadcast_to(jnp.asarray(self.length_scale), (len(self.forms), self.domain.dimension))

    @property
    def kernels_in_force(self) -> tuple[Kernel, ...]:
        """Kernel of each output at the length-scale and variance of the model."""
        scale, variance = np.asarray(self.length_scale, np.float64), np.asarray(self.variance, np.float64)
        kernels = []
        for kernel, group in zip(self.kernels, self.groups, strict=False):  # there are none after without_kernels
            own = with_length_scale(base_and_variance(kernel)[0], scale[group] if scale.ndim == 2 else scale)
            kernels.append(own if variance[group] == 1 else Scale(kernel=own, variance=float(variance[group])))
        return tuple(kernels)

    @property
    def forms_in_force(self) -> tuple[NystroemFeatures, ...]:
        return self.forms if self.is_factorised else self.factorised().forms

    def separate(self) -> RangedSurrogate:
        groups, scale = np.asarray(self.groups), jnp.asarray(self.length_scale)
        apart = {"length_scale": scale[groups] if scale.ndim == 2 else scale, "variance": jnp.asarray(self.variance)[groups]}
        return replace(self, **self._apart(jnp.asarray(self.noise_variance)), **apart)

    def largest_variances(self) -> list[float]:
        own = np.asarray(self.variance, np.float64)
        return [float(own[g] * np.max(np.asarray(form.kernel_variance, np.float64))) for g, form in enumerate(self.forms)]

    def describe(self) -> str:
        ends = [f"[{low:g}, {high:g}]" for low, high in zip(self.low, self.high, strict=True)]
        ranges = ends[0] if len(set(ends)) == 1 else " x ".join(ends)
        return f"{super().describe()}\nlength-scale {short(np.asarray(self.length_scale).tolist())} of {ranges}"

    def validate(self) -> None:
        """Raise ``InvalidArgument`` on what :class:`Surrogate` refuses, and on a length-scale or variance out of range."""
        super().validate()
        self._check_length_scale()
        checks.positive("surrogate.variance", self.variance)
        checks.shape("surrogate.variance", self.variance, (len(self.forms),))

    def _check_length_scale(self) -> None:
        """Raise ``InvalidArgument`` on a length-scale of a wrong shape, and where it can be looked at on one outside the range."""
        axes = len(self.low)
        if checks.shape_of("surrogate.length_scale", self.length_scale) not in ((), (axes,), (len(self.forms), axes)):
            raise InvalidArgument(
                f"surrogate.length_scale: expected one number, one for each of the {axes} axes, or [{len(self.forms)}, {axes}], got shape"
                f" {list(np.shape(self.length_scale))}"
            )
        if is_traced(self.length_scale):
            return
        given = checks.numbers("surrogate.length_scale", self.length_scale)
        if not np.all((given >= np.asarray(self.low) * (1 - SLACK)) & (given <= np.asarray(self.high) * (1 + SLACK))):
            raise InvalidArgument(
                f"surrogate.length_scale: must lie between low {short(list(self.low))} and high {short(list(self.high))}, for which the"
                f" model was built, got {short(self.length_scale)}"
            )


def base_and_variance(kernel: Kernel) -> tuple[Kernel, Scalar]:
    """Return the kernel inside a scaled one and its variance; any other kernel with the variance 1."""
    return (kernel.kernel, kernel.variance) if isinstance(kernel, Scale) else (kernel, 1.0)


@checked
def ranged(
    domain: Domain,
    kernel: Kernel | Sequence[Kernel],
    *,
    low: Annotated[PerAxis, positive_numbers],
    high: Annotated[PerAxis, positive_numbers],
    noise_variance: Annotated[Variance, VARIANCE],
    outputs: Annotated[int, whole(1, 1000)] = 2,
    prior_mean: Annotated[float | Sequence[float], finite_numbers, per_output] = 0.0,
    tolerance: Annotated[float, between(0, 1, open_high=True, host=True)] | None = None,
    rank: Annotated[int, whole(1)] | None = None,
    horizon: Annotated[int, whole(1)] | None = None,
    precision: Annotated[str, choice(*PRECISIONS)] = "auto",
    fit_to: Annotated[tuple[Numbers, Numbers], DATA] | None = None,
) -> RangedSurrogate:
    """Return a GP model as :func:`jaxbandit.surrogate` does, whose length-scale can be any number from ``low`` to ``high``.

    The field ``length_scale`` starts as the kernel's; it can be replaced, swept in one program and differentiated. Features are those of
    Nystroem's method on each axis, with pivots that are fixed when the model is built, as polynomials in the logarithm of the length-scale;
    ``describe`` says how many, and the share of prior variance that they miss in the arithmetic of the model, over the whole range. There
    are as many as the shortest length-scale needs: a model serves best over a factor of two or so.

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
      precision: as for :func:`jaxbandit.surrogate`; ``"auto"`` is float64, too, where float32 misses the tolerance.
      fit_to: points ``[n, d]`` and values ``[n]`` or ``[n, 1 + m]``, from which length-scale, variance and noise variance are fitted first,
        as for :func:`jaxbandit.surrogate`; the length-scale stays between ``low`` and ``high``.

    Raises:
      InvalidArgument: as :func:`jaxbandit.surrogate` does, and on ``low >= high``, a kernel that is no product or has not exactly one
        length-scale, or one whose length-scale lies outside the range.
    """
    ends = _ends(low, high, domain.dimension)
    if fit_to is not None:
        for own in one_per_output("kernel", kernel, outputs):
            _only_length_scale(base_and_variance(own)[0], domain.dimension)
    given = Outputs.of(domain, kernel, noise_variance, prior_mean, outputs, fit_to, ends)
    bases = [base_and_variance(own) for own in given.members]
    scales = [_only_length_scale(base, domain.dimension) for base, _ in bases]
    variances = [float(np.asarray(variance)) for _, variance in bases]
    largest = [variance * _largest_variance(base, domain) for (base, _), variance in zip(bases, variances, strict=True)]
    facts, rounds = (largest, least(given.noise), given.means), horizon or HORIZON_IF_UNKNOWN
    need = needed(*facts, rounds, refreshable=True)
    first = in_force(precision, need)
    check_float64_suffices(*facts, rounds)
    warn_of_float32(first, need)
    allowed = min(MOST_MISSED, SHARE_OF_FALLEN * need.least_variance) if tolerance is None else tolerance
    for chosen in dict.fromkeys((first, "float64") if precision == "auto" else (first,)):
        forms: list[NystroemFeatures] = []
        for base, _ in bases:  # equal kernels share their features
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
    return remember(built, {"kernel": kernel, "noise_variance": noise_variance, "prior_mean": prior_mean, **asked})


def _largest_variance(kernel: Kernel, domain: Domain) -> float:
    """Return the largest prior variance on a domain; axis by axis where the kernel is a product, by the programs of its features."""
    parts = kernel.along_axes(domain.dimension) if domain.axes else None
    if parts is None:
        return float(np.max(prior_variance(kernel, domain.points)))
    axes = [np.asarray(points)[:, None] for points in domain.axes]
    return math.prod(float(np.max(prior_variance(part, points))) for part, points in zip(parts, axes, strict=True))


def _ends(low: PerAxis, high: PerAxis, dimension: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the ends of the range on each axis; raise ``InvalidArgument`` unless the lower one is below the upper one."""
    ends = []
    for name, value in (("low", low), ("high", high)):
        given = np.asarray(value, np.float64)
        if given.shape not in ((), (dimension,)):
            raise InvalidArgument(f"{name}: expected one number, or one for each of the {dimension} axes, got shape {list(given.shape)}")
        ends.append(tuple(float(v) for v in np.broadcast_to(given, (dimension,))))
    if any(a >= b for a, b in zip(*ends, strict=True)):
        raise InvalidArgument(f"low: must be less than high, got low={short(low)} and high={short(high)}")
    return ends[0], ends[1]


def _only_length_scale(kernel: Kernel, dimension: int) -> np.ndarray:
    """Return the length-scale of a kernel; raise ``InvalidArgument`` unless it has exactly one."""
    scales = length_scales(kernel)
    if len(scales) != 1:
        raise InvalidArgument(f"kernel: must have one length-scale, got {type(kernel).__name__} with {len(scales)}")
    scale = np.asarray(scales[0], np.float64)
    if scale.shape not in ((), (dimension,)):
        raise InvalidArgument(f"kernel: a kernel of some axes must have one length-scale for all of them, got {short(scale.tolist())}")
    return scale
