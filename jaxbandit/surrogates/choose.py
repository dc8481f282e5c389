"""Building a surrogate: which outputs share a factor, and which form of the posterior is cheapest at the accuracy asked for."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated, Any

import jax
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.codec import remember
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import between, choice, finite_numbers, per_output, whole
from jaxbandit.core.memory import check_fits
from jaxbandit.core.pytree import canonicalise, float_dtype, replace
from jaxbandit.core.types import Table
from jaxbandit.domains import Domain
from jaxbandit.kernels import Categorical, Constant, Gram, Kernel, White, check_covariance, parts_on_axes, same
from jaxbandit.surrogates.features import DenseFeatures, ProductFeatures, dense_features, product_features
from jaxbandit.surrogates.fitted import DATA, fitted
from jaxbandit.surrogates.lowrank import affordable_rank, prior_variance
from jaxbandit.surrogates.noise import VARIANCE, Variance, least, stacked, variance_of_outputs
from jaxbandit.surrogates.posterior import Surrogate
from jaxbandit.surrogates.precision import (
    HORIZON_IF_UNKNOWN,
    PRECISIONS,
    SHARE_LEFT_OUT,
    arithmetic,
    check_float64_suffices,
    in_force,
    needed,
    refuse_float32_in_float64,
    warn_of_float32,
)
from jaxbandit.surrogates.rows import RowCache, row_cache

FORMS = ("auto", "features", "product", "rows")

# Estimated microseconds per trial-round on one CPU core, fitted to the benchmark's figures; only their ratios matter.
PER_MULTIPLY = 1.0e-5  # one multiply-add inside a matrix product that many trials share
PER_FACTOR_ENTRY = 3.0e-4  # one entry of W: read three times, written once
PER_CACHED_ENTRY = 6.0e-5  # one entry of the row cache, read once from memory
PER_ROW_ROUND = 20.0  # a round of the row cache, whose trials run one by one, whatever its size


@checked
def surrogate(
    domain: Domain,
    kernel: Kernel | Sequence[Kernel],
    *,
    noise_variance: Annotated[Variance, VARIANCE],
    outputs: Annotated[int, whole(1, 1000)] = 2,
    prior_mean: Annotated[float | Sequence[float], finite_numbers, per_output] = 0.0,
    form: Annotated[str, choice(*FORMS)] = "auto",
    tolerance: Annotated[float, between(0, 1, open_high=True, host=True)] | None = None,
    rank: Annotated[int, whole(1)] | None = None,
    horizon: Annotated[int, whole(1)] | None = None,
    precision: Annotated[str, choice(*PRECISIONS)] = "auto",
    fit_to: Annotated[tuple[Any, Any], DATA] | None = None,
) -> Surrogate:
    """Return a GP model of ``outputs = 1 + m`` functions (reward, then constraints) on ``domain``.

    Outputs with equal kernel and noise variance share one factor; others get their own.

    Args:
      domain: the ``M`` points.
      kernel: one kernel, or one per output.
      noise_variance: the regulariser ``lambda`` in ``(K + lambda I)``, a variance > 0; one number or one per output. Noise that differs
        between points is a table ``[M]``, or ``[1 + m, M]`` per output, or a function of a point ``x [d]``, or a list of them, one per
        output; ``1 + m`` numbers are one per output where there are as many points.
      outputs: ``1 + m``; 1 is an unconstrained problem.
      prior_mean: constant prior mean, one number or one per output.
      form: ``"features"`` (square-root features), ``"product"`` (the same per axis, for product kernels on product grids),
        ``"rows"`` (Cholesky row cache, exact for rough kernels) or ``"auto"``: the cheapest by estimated cost.
      tolerance: largest share of prior variance that features may leave out; default 1e-13 in float64, and in float32 1e-6, or less at low
        noise: a hundredth of ``noise_variance / (horizon prior_variance)``.
      rank: most features allowed; a residual above ``tolerance`` is then an error.
      horizon: number of rounds to come, for the choice of form and precision (default 1000), and for the capacity of ``rows`` (default:
        every point of the domain).
      precision: ``"float32"``, ``"float64"`` or ``"auto"``: float64 where float32 would put a mean off by more than a tenth of a
        posterior deviation, or a deviation off by a tenth of itself, as at low noise and over long horizons. Runs of a model in float64
        are in float64 whatever ``jax_enable_x64`` says; where it is on, all models are in float64.
      fit_to: points ``[n, d]`` and values ``[n]`` or ``[n, 1 + m]``, from which kernel and noise variance are fitted first, starting from
        those given, as by :func:`~jaxbandit.surrogates.fit` with its prior in units of the domain: one kernel and one noise variance for
        all outputs, or one each where either is given per output. Prior means stay, and so do Gram matrices.

    Raises:
      InvalidArgument: on hyper-parameters out of range, lists that do not match ``outputs``, an unknown form, a form that the
        kernel or domain does not allow, features that miss the tolerance, or a prior mean beside which float64 has no digits left.
    """
    kernels = one_per_output("kernel", kernel, outputs)
    noises = variance_of_outputs(noise_variance, outputs, domain)
    means = [float(v) for v in one_per_output("prior_mean", prior_mean, outputs)]
    refuse_float32_in_float64(precision)
    if fit_to is not None:
        kernels, noises = fitted(kernel, noises, means, fit_to, domain)

    groups, members = grouped(kernels, noises, domain)

    @functools.cache  # the second pass below often asks for the same
    def factorised(tolerance: float, double: bool) -> list[Any]:
        built: list[Any] = []
        for k, _ in members:  # groups that differ only in noise share the factorisation of their kernel
            twin = [b for b, (other, _) in zip(built, members, strict=False) if same(k, other)]
            built.append(twin[0] if twin else _build(k, domain, form, tolerance, rank, horizon))
        return built

    table = stacked([noise for _, noise in members])
    lambdas = least(table)
    variances = [float(np.max(prior_variance(k, domain.points))) for k, _ in members]
    check_float64_suffices(variances, lambdas, means, horizon or HORIZON_IF_UNKNOWN)
    for refreshable in (form != "rows", False):  # which form is cheapest is known once it is built, and rows need float64 sooner
        need = needed(variances, lambdas, means, horizon or HORIZON_IF_UNKNOWN, refreshable=refreshable)
        chosen = in_force(precision, need)
        usual = need.tolerance if chosen == "float32" else SHARE_LEFT_OUT[np.dtype(np.float64)]
        with arithmetic([chosen]):
            forms = factorised(usual if tolerance is None else tolerance, float_dtype() == np.float64)
        if chosen == "float64" or need.refresh == 0 or all(built.name != "rows" for built in forms):
            break
    warn_of_float32(chosen, need, stacklevel=3)
    model = Surrogate(
        domain=domain,
        forms=tuple(forms),
        noise_variance=table,
        prior_mean=np.asarray(means),
        groups=tuple(groups),
        precision=chosen,
        refresh=need.refresh if chosen == "float32" else 0,
    )
    with arithmetic([chosen]):
        built = replace(jax.device_put(canonicalise(model)), kernels=tuple(kernels))  # as they were given: no trial needs them
    asked = {"form": form, "tolerance": tolerance, "rank": rank, "precision": precision, "fit_to": fit_to}
    return remember(built, {"kernel": kernel, "noise_variance": noise_variance, "prior_mean": prior_mean, **asked})


def grouped(
    kernels: Sequence[Kernel], noises: Sequence[float | Table], domain: Domain
) -> tuple[list[int], list[tuple[Kernel, float | Table]]]:
    """Return the number of each output's group, and the kernel and noise variance of each group."""
    groups: list[int] = []
    members: list[tuple[Kernel, float | Table]] = []
    for k, noise in zip(kernels, noises, strict=True):
        match = [g for g, (other, lam) in enumerate(members) if np.array_equal(lam, noise) and same(k, other)]
        if not match:
            k.check_axes(domain.dimension)
            _check_parts(k, domain)
            check_covariance("kernel", k, domain.points)
            members.append((k, noise))
        groups.append(match[0] if match else len(members) - 1)
    return groups, members


def estimated_cost(form: Any, size: int, horizon: int) -> float:
    """Return the estimated microseconds per trial-round of a built form on ``size`` points; a guide for the choice, not a measurement."""
    if isinstance(form, DenseFeatures):
        return PER_MULTIPLY * size * form.rank + PER_FACTOR_ENTRY * form.rank**2
    if isinstance(form, ProductFeatures):
        widths, heights = [a.shape[1] for a in form.axes], [a.shape[0] for a in form.axes]
        # Contracting axis after axis: the table grows from the feature widths to the grid heights.
        multiplies = sum(np.prod(heights[: a + 1]) * np.prod(widths[a:]) for a in range(len(widths)))
        return float(PER_MULTIPLY * multiplies + PER_FACTOR_ENTRY * form.rank**2)
    rows = form.rank
    return PER_ROW_ROUND + PER_CACHED_ENTRY * size * rows / 2 + PER_FACTOR_ENTRY * rows**2 / 2


def _build(kernel: Kernel, domain: Domain, form: str, tolerance: float, rank: int | None, horizon: int | None) -> Any:
    """Return the form asked for, or for ``"auto"`` the cheapest of those that reach the tolerance."""
    size = domain.size
    most = size if rank is None else rank
    if form == "rows":
        return _that_fits(row_cache(kernel, domain, tolerance, horizon or size), size)
    if form == "features":
        return _within_tolerance(dense_features(kernel, domain, tolerance, most, asked=True), tolerance, rank)
    product = product_features(kernel, domain, tolerance, most, asked=form == "product")
    if form == "product":
        if product is None:
            raise checks.InvalidArgument(
                f"form: 'product' needs a product grid and a kernel that factorises over its axes, got {type(kernel).__name__} on"
                f" {'a product grid' if domain.axes else 'a bare set of points'}; use 'features', 'rows' or 'auto'"
            )
        return _within_tolerance(product, tolerance, rank)

    rows = row_cache(kernel, domain, tolerance, horizon or size)
    budget = estimated_cost(rows, size, horizon or HORIZON_IF_UNKNOWN)
    candidates: list[Any] = [rows]
    if product is not None and float(product.residual) <= tolerance:
        candidates.append(product)
    else:
        # A rank at which features cost as much as rows is not worth finding: stop the factorisation there.
        worthwhile = int(np.sqrt(budget / PER_FACTOR_ENTRY)) + 1
        dense = dense_features(kernel, domain, tolerance, min(most, worthwhile, affordable_rank(size)), asked=False)
        if float(dense.residual) <= tolerance:
            candidates.append(dense)
    return _that_fits(min(candidates, key=lambda c: estimated_cost(c, size, horizon or HORIZON_IF_UNKNOWN)), size)


def _that_fits(built: Any, size: int) -> Any:
    """Return a built form; raise ``InvalidArgument`` where the rows of one trial would not fit the machine's memory."""
    if isinstance(built, RowCache):
        remedy = f"give horizon=, the number of rounds (now {built.capacity:,} rows), fewer points, or a smoother kernel"
        check_fits("form", built.trial_bytes, f"the rows of one trial on {size:,} points", remedy)
    return built


def _within_tolerance(built: DenseFeatures | ProductFeatures, tolerance: float, rank: int | None) -> Any:
    if float(built.residual) <= tolerance:
        return built
    limit = f" with rank={rank}" if rank is not None else ""
    raise checks.InvalidArgument(
        f"form: {built.name!r}{limit} leaves out {float(built.residual):.2e} of the prior variance, above tolerance={tolerance:.0e};"
        " raise rank, loosen tolerance, or use form='rows', which is exact"
    )


def _check_parts(kernel: Kernel, domain: Domain) -> None:
    """Raise unless each part of ``kernel`` suits the axes that it sees: Gram matrices numbers from 0, distances no categories."""
    for part, axes in parts_on_axes(kernel, tuple(range(domain.dimension))):
        named = [domain.name_of(axis) for axis in axes if domain.is_categorical(axis)]
        if named and not isinstance(part, Gram | Categorical | Constant | White):
            raise checks.InvalidArgument(
                f"kernel: {type(part).__name__} takes the categories of axis {named[0]!r} for numbers; give that axis a kernel of its own,"
                " as in OnAxes(kernel=..., axes=(0,)) * OnAxes(kernel=Categorical(), axes=(1,))"
            )
        if not isinstance(part, Gram):
            continue
        rows, numbers = len(part.matrix), np.unique(np.asarray(domain.points)[:, axes[0]])
        if domain.dimension == 1 and rows != domain.size:
            raise checks.InvalidArgument(f"Gram.matrix: of {rows} arms, but the domain has {domain.size} points")
        if not np.all(np.isin(numbers, np.arange(rows))) or (domain.axes and len(numbers) != rows):
            where = f"axis {domain.name_of(axes[0])!r} of the domain"
            raise checks.InvalidArgument(
                "Gram: the domain's points are no arm numbers; build it with domains.arms(M)"
                if domain.dimension == 1
                else f"Gram.matrix: of {rows} arms, numbered from 0, but {where} holds {checks.short(numbers.tolist())}"
            )


def one_per_output(name: str, value: Any, outputs: int) -> list[Any]:
    """Return one value per output, from one for all of them or a list of one for each."""
    if isinstance(value, Kernel) or np.ndim(value) == 0:
        return [value] * outputs
    values = list(value)
    if len(values) != outputs:
        raise checks.InvalidArgument(f"{name}: expected one for all, or one for each of the {outputs} outputs, got {len(values)}")
    return values


__all__ = ["FORMS", "RowCache", "estimated_cost", "surrogate"]
