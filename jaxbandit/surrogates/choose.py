"""Building a surrogate: which outputs share a factor, and which form of the posterior is cheapest at the accuracy asked for."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated, TypeAlias

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.codec import remember
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import between, choice, finite_numbers, per_output, whole
from jaxbandit.core.memory import check_fits
from jaxbandit.core.pytree import float_dtype
from jaxbandit.core.types import Numbers
from jaxbandit.domains import Domain
from jaxbandit.kernels import Kernel, same
from jaxbandit.surrogates import precision as rules
from jaxbandit.surrogates.features import DenseFeatures, ProductFeatures
from jaxbandit.surrogates.lowrank import affordable_rank, dense_features, prior_variance, product_features
from jaxbandit.surrogates.outputs import DATA, VARIANCE, Outputs, Variance
from jaxbandit.surrogates.posterior import Surrogate
from jaxbandit.surrogates.precision import HORIZON_IF_UNKNOWN, PRECISIONS, SHARE_LEFT_OUT, arithmetic, in_force, warn_of_float32
from jaxbandit.surrogates.rows import RowCache, row_cache

__all__ = ["surrogate"]

Built: TypeAlias = DenseFeatures | ProductFeatures | RowCache
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
    fit_to: Annotated[tuple[Numbers, Numbers], DATA] | None = None,
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
    given = Outputs.of(domain, kernel, noise_variance, prior_mean, outputs, fit_to)

    @functools.cache  # the second pass below often asks for the same
    def factorised(tolerance: float, double: bool) -> tuple[Built, ...]:
        built: list[Built] = []
        for own in given.members:  # groups that differ only in noise share the factorisation of their kernel
            twin = [form for form, other in zip(built, given.members, strict=False) if same(own, other)]
            built.append(twin[0] if twin else _build(own, domain, form, tolerance, rank, horizon))
        return tuple(built)

    variances = [float(np.max(prior_variance(own, domain.points))) for own in given.members]
    facts, rounds = (variances, rules.least(given.noise), given.means), horizon or HORIZON_IF_UNKNOWN
    rules.check_float64_suffices(*facts, rounds)
    for refreshable in (form != "rows", False):  # which form is cheapest is known once it is built, and rows need float64 sooner
        need = rules.needed(*facts, rounds, refreshable=refreshable)
        chosen = in_force(precision, need)
        usual = need.tolerance if chosen == "float32" else SHARE_LEFT_OUT[np.dtype(np.float64)]
        with arithmetic([chosen]):
            forms = factorised(usual if tolerance is None else tolerance, float_dtype() == np.float64)
        if chosen == "float64" or need.refresh == 0 or all(built.name != "rows" for built in forms):
            break
    warn_of_float32(chosen, need)
    asked = {"form": form, "tolerance": tolerance, "rank": rank, "precision": precision, "fit_to": fit_to}
    built = given.model(Surrogate, need, chosen, forms=forms)
    return remember(built, {"kernel": kernel, "noise_variance": noise_variance, "prior_mean": prior_mean, **asked})


def estimated_cost(form: Built, size: int, horizon: int) -> float:
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


def _build(kernel: Kernel, domain: Domain, form: str, tolerance: float, rank: int | None, horizon: int | None) -> Built:
    """Return the form asked for, or for ``"auto"`` the cheapest of those that reach the tolerance."""
    size, most, rounds = domain.size, domain.size if rank is None else rank, horizon or HORIZON_IF_UNKNOWN
    candidates: list[Built] = [] if form in ("features", "product") else [row_cache(kernel, domain, tolerance, horizon or size)]
    product = None if form in ("features", "rows") else product_features(kernel, domain, tolerance, most, asked=form == "product")
    if product is not None and (form == "product" or float(product.residual) <= tolerance):
        candidates.append(product)
    elif form == "product":
        raise checks.InvalidArgument(
            f"form: 'product' needs a product grid and a kernel that factorises over its axes, got {type(kernel).__name__} on"
            f" {'a product grid' if domain.axes else 'a bare set of points'}; use 'features', 'rows' or 'auto'"
        )
    elif form == "features":
        candidates.append(dense_features(kernel, domain, tolerance, most, asked=True))
    elif form == "auto":
        # A rank at which features cost as much as rows is not worth finding: stop the factorisation there.
        worthwhile = int(np.sqrt(estimated_cost(candidates[0], size, rounds) / PER_FACTOR_ENTRY)) + 1
        dense = dense_features(kernel, domain, tolerance, min(most, worthwhile, affordable_rank(size)), asked=False)
        candidates += [dense] if float(dense.residual) <= tolerance else []
    built = min(candidates, key=lambda each: estimated_cost(each, size, rounds))
    if isinstance(built, RowCache):
        remedy = f"give horizon=, the number of rounds (now {built.capacity:,} rows), fewer points, or a smoother kernel"
        check_fits("form", built.trial_bytes, f"the rows of one trial on {size:,} points", remedy)
    elif float(built.residual) > tolerance:
        limit = f" with rank={rank}" if rank is not None else ""
        raise checks.InvalidArgument(
            f"form: {built.name!r}{limit} leaves out {float(built.residual):.2e} of the prior variance, above tolerance={tolerance:.0e};"
            " raise rank, loosen tolerance, or use form='rows', which is exact"
        )
    return built
