"""Building of surrogates, from users' arguments to groups of outputs and forms."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeAlias, TypeVar

import jax
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.declare import Array, Numbers, T, Table, checked
from jaxbandit.core.fields import (
    Check,
    Place,
    Shape,
    between,
    choice,
    finite_numbers,
    function,
    per_output,
    positive_numbers,
    table_of_points,
    whole,
)
from jaxbandit.core.pytree import canonicalise, float_dtype, remember, replace
from jaxbandit.domains import Box, Domain, tabulate
from jaxbandit.host.memory import check_fits
from jaxbandit.kernels import Categorical, Constant, Gram, Kernel, White, check_covariance, parts_on_axes, same
from jaxbandit.surrogates import precision as rules
from jaxbandit.surrogates.boxes.features import BoxFeatures, box_features
from jaxbandit.surrogates.boxes.pool import Pool
from jaxbandit.surrogates.boxes.posterior import BoxSurrogate
from jaxbandit.surrogates.evidence import Prior, fit
from jaxbandit.surrogates.evidence.fitting import paths, with_arrays
from jaxbandit.surrogates.features import DenseFeatures, ProductFeatures, affordable_rank, dense_features, prior_variance, product_features
from jaxbandit.surrogates.posterior import Surrogate
from jaxbandit.surrogates.precision import (
    PRECISIONS,
    Need,
    arithmetic,
    chosen_precision,
    warn_of_float32,
)
from jaxbandit.surrogates.rows import RowCache, row_cache

__all__ = ["surrogate"]

Model = TypeVar("Model", bound=Surrogate)
# Users give a noise variance in these forms, see jaxbandit.surrogate.
Variance: TypeAlias = float | Callable[[Array], object] | Sequence[object] | Table
# These are the shortest and the longest length-scale on each axis.
Ends: TypeAlias = tuple[Sequence[float], Sequence[float]]

# The noise variance of a model in a file cannot be a function.
variance_in_files = positive_numbers.of(
    Shape(
        "one number, [1 + m] with one for each output, a table [M] over the points, or one [1 + m, M] for each output",
        lambda actual, n: len(actual) <= 2 and 0 not in actual,
    )
)
noise_function = function("(x [d])")


def _verify_variance(name: str, value: Any, place: Place) -> None:
    if isinstance(value, list | tuple) and any(callable(item) or isinstance(item, np.ndarray) for item in value):
        for number, item in enumerate(value):
            variance_or_function(f"{name}[{number}]", item)
    else:
        (noise_function if noise_function.takes(value) else variance_in_files).verify(name, value, place)


variance_or_function = Check(
    f"{variance_in_files.allowed}; or a function of one point x [d], or a list of one for each output",
    lambda value: variance_in_files.takes(value) or noise_function.takes(value),
    _verify_variance,
)


def _verify_data(name: str, value: Any, place: Place) -> None:
    for part, given, ranks in zip(("points", "values"), value, ((2,), (1, 2)), strict=True):
        table = checks.numbers(f"{name}: {part}", given)
        if table.ndim not in ranks or not table.size:
            raise checks.InvalidArgument(f"{name}: must be {points_and_values.allowed}, got {part} of shape {list(table.shape)}")
        checks.finite(f"{name}: {part}", table)


# A model is fitted to these data.
points_and_values = Check(
    "two arrays, points [n, d] and values [n] or [n, 1 + m], of finite numbers",
    lambda value: isinstance(value, tuple | list) and len(value) == 2,
    _verify_data,
)
Built: TypeAlias = DenseFeatures | ProductFeatures | RowCache
FormName: TypeAlias = Annotated[str, choice("auto", "features", "product", "rows")]


class RoundCosts:
    """Microseconds of a trial-round on a CPU core, fitted to the benchmark.

    Only the ratios matter.

    Attributes:
      multiply: one multiply-add in a matrix product that many trials share.
      factor_entry: one entry of ``W``, read three times and written once.
      cached_entry: one entry of the row cache, read once from memory.
      row_round: a round of the row cache of any size, whose trials run one by one.
    """

    multiply: float = 1.0e-5
    factor_entry: float = 3.0e-4
    cached_entry: float = 6.0e-5
    row_round: float = 20.0


@checked
def surrogate(
    domain: Domain,
    kernel: Kernel | Sequence[Kernel],
    *,
    noise_variance: Annotated[Variance, variance_or_function],
    outputs: Annotated[int, whole(1, 1000)] = 2,
    prior_mean: Annotated[float | Sequence[float], finite_numbers, per_output] = 0.0,
    form: FormName = "auto",
    tolerance: Annotated[float, between(0, 1, open_high=True, host=True)] | None = None,
    rank: Annotated[int, whole(1)] | None = None,
    horizon: Annotated[int, whole(1)] | None = None,
    precision: Annotated[str, choice(*PRECISIONS)] = "auto",
    fit_to: Annotated[tuple[Numbers, Numbers], points_and_values] | None = None,
) -> Surrogate:
    """Return a GP model of functions on ``domain``.

    Of the ``outputs = 1 + m`` functions the first one is the reward, and the others are constraints. Outputs with equal kernel and noise
    variance share a factor.

    Args:
      domain: the ``M`` points.
      kernel: one kernel, or one per output.
      noise_variance: the regulariser ``lambda`` in ``(K + lambda I)``, a variance > 0; one number or one per output. Noise that differs
        between points is a table ``[M]``, or ``[1 + m, M]`` per output, or a function of a point ``x [d]``, or a list of them, one per
        output; ``1 + m`` numbers are one per output even if there are as many points.
      outputs: ``1 + m``; 1 is an unconstrained problem.
      prior_mean: constant prior mean, one number or one per output.
      form: ``"features"`` (square-root features), ``"product"`` (the same per axis, for product kernels on product grids),
        ``"rows"`` (Cholesky row cache, exact for rough kernels) or ``"auto"``: the cheapest by estimated cost. On a box ``"auto"`` is
        exact, and a round costs as much as the square of the number of observations; ``"features"``, of at most a quarter of the
        candidates, cost the same in every round, for long runs under smooth kernels in few dimensions.
      tolerance: largest share of prior variance that features may leave out; default 1e-13 in float64, and in float32 1e-6, or on a finite
        domain less at low noise: a hundredth of ``noise_variance / (horizon prior_variance)``. On a box it holds at the candidates.
      rank: most features allowed; a residual above ``tolerance`` is then an error.
      horizon: number of rounds to come, for the choice of form and precision (default 1000), and for the capacity of ``rows`` (default:
        every point of the domain).
      precision: ``"float32"``, ``"float64"`` or ``"auto"``: float64 if in float32 a mean would be off by more than a tenth of a
        posterior deviation, or a deviation by a tenth of itself, as at low noise and over long horizons. Runs of a model in float64
        are in float64 without ``jax_enable_x64``; with ``jax_enable_x64`` all models are in float64.
      fit_to: points ``[n, d]`` and values ``[n]`` or ``[n, 1 + m]``, from which kernel and noise variance are fitted first, starting from
        the arguments, as by :func:`~jaxbandit.surrogates.fit` with its prior in units of the domain: one kernel and one noise variance
        for all outputs, or for each output if either is given per output. Prior means and Gram matrices stay.

    Raises:
      InvalidArgument: on hyper-parameters out of range, lists that do not match ``outputs``, an unknown form, a form that the
        kernel or domain does not allow, features that miss the tolerance, or a prior mean too large for float64 to resolve values.
    """
    checks.check_not_forked()
    if isinstance(domain, Box):
        asked = {"form": form, "tolerance": tolerance, "rank": rank, "precision": precision, "fit_to": fit_to}
        return _of_box(domain, kernel, noise_variance, prior_mean, outputs, horizon or rules.RoundingLimits.unknown_horizon, asked)
    given = OutputKernels.of(domain, kernel, noise_variance, prior_mean, outputs, fit_to)

    # The second pass below often needs the same forms.
    @functools.cache
    def factorised(tolerance: float, double: bool) -> tuple[Built, ...]:
        built: list[Built] = []
        # Groups that differ only in noise share the factorisation of their kernel.
        for own in given.members:
            twin = [form for form, other in zip(built, given.members, strict=False) if same(own, other)]
            built.append(twin[0] if twin else _build(own, domain, form, tolerance, rank, horizon))
        return tuple(built)

    variances = [float(np.max(prior_variance(own, domain.points))) for own in given.members]
    facts, rounds = (variances, rules.least_variances(given.noise), given.means), horizon or rules.RoundingLimits.unknown_horizon
    rules.check_float64_suffices(*facts, rounds)
    # The cheapest form is known once it is built, and rows need float64 sooner than features do.
    for refreshable in (form != "rows", False):
        need = rules.needed(*facts, rounds, refreshable=refreshable)
        chosen = chosen_precision(precision, need)
        usual = need.tolerance if chosen == "float32" else rules.RoundingLimits.share_left_out[1]
        with arithmetic([chosen]):
            forms = factorised(usual if tolerance is None else tolerance, float_dtype() == np.float64)
        if chosen == "float64" or need.refresh == 0 or all(built.name != "rows" for built in forms):
            break
    warn_of_float32(chosen, need)
    asked = {"form": form, "tolerance": tolerance, "rank": rank, "precision": precision, "fit_to": fit_to}
    built = given.model(Surrogate, need, chosen, forms=forms)
    return remember(built, made_from={"kernel": kernel, "noise_variance": noise_variance, "prior_mean": prior_mean, **asked})


def _of_box(
    box: Box,
    kernel: Kernel | Sequence[Kernel],
    noise_variance: Variance,
    prior_mean: float | Sequence[float],
    outputs: int,
    horizon: int,
    asked: dict[str, Any],
) -> Surrogate:
    """Return the model of a box, with kernels on the unit cube."""
    form, rank, tolerance = (asked[name] for name in ("form", "rank", "tolerance"))
    if form not in ("auto", "features") or (form == "auto" and (rank is not None or tolerance is not None)):
        raise checks.InvalidArgument(
            f"form: the model of a box is exact, without rank and tolerance, or made of 'features', got {form!r}, rank={rank} and"
            f" tolerance={tolerance}"
        )
    cube = Domain(points=box.to_unit(np.asarray(box.points, np.float64)), names=box.names, categories=box.categories)
    data = asked["fit_to"]
    if data is not None:
        table_of_points.check("fit_to: points", data[0], Place(axes=box.dimension))
        box.check_inside("fit_to: points", data[0])
        data = box.to_unit(np.asarray(data[0], np.float64)), data[1]
    given = OutputKernels.of(cube, kernel, noise_variance, prior_mean, outputs, data)
    if np.ndim(given.noise) > 1:
        raise checks.InvalidArgument("noise_variance: must be one number, or one for each output, on a box, got a table over points")
    variances = [float(np.max(prior_variance(own, cube.points))) for own in given.members]
    need = rules.needed(variances, rules.least_variances(given.noise), given.means, horizon, refreshable=False)
    chosen = chosen_precision(asked["precision"], need)
    warn_of_float32(chosen, need)
    forms: Sequence[Pool | BoxFeatures] = [Pool(kernel=own, candidates=cube.points) for own in given.members]
    if form == "features":
        # Features with a smaller share would be rounding, divided by the root of that share.
        least = rules.RoundingLimits.share_left_out[chosen == "float64"]
        allowed = least if tolerance is None else tolerance
        features = box_features(given.members, np.asarray(cube.points), max(allowed, least), rank)
        for own in features:
            limit = f" with {len(own.pivots)} of the {box.size} candidates, of which it takes a quarter at most,"
            _check_residual(own, allowed, limit, "raise rank or candidates, loosen tolerance, or use form='auto', which is exact")
        forms = features
    built = dataclasses.replace(given, domain=box).model(BoxSurrogate, need, chosen, forms=tuple(forms))
    return remember(built, made_from={"kernel": kernel, "noise_variance": noise_variance, "prior_mean": prior_mean, **asked})


def _cost(form: Built, size: int, horizon: int) -> float:
    """Return the estimated microseconds per trial-round of a form on ``size`` points."""
    if isinstance(form, DenseFeatures):
        return RoundCosts.multiply * size * form.rank + RoundCosts.factor_entry * form.rank**2
    if isinstance(form, ProductFeatures):
        widths, heights = [a.shape[1] for a in form.axes], [a.shape[0] for a in form.axes]
        # The table is contracted axis after axis and grows from the feature widths to the grid heights.
        multiplies = sum(np.prod(heights[: a + 1]) * np.prod(widths[a:]) for a in range(len(widths)))
        return float(RoundCosts.multiply * multiplies + RoundCosts.factor_entry * form.rank**2)
    rows = form.rank
    return RoundCosts.row_round + RoundCosts.cached_entry * size * rows / 2 + RoundCosts.factor_entry * rows**2 / 2


def _build(kernel: Kernel, domain: Domain, form: str, tolerance: float, rank: int | None, horizon: int | None) -> Built:
    """Return the given form, or for ``"auto"`` the cheapest within the tolerance."""
    size, most, rounds = domain.size, domain.size if rank is None else rank, horizon or rules.RoundingLimits.unknown_horizon
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
        # The factorisation stops at the rank at which features cost as much as rows.
        worthwhile = int(np.sqrt(_cost(candidates[0], size, rounds) / RoundCosts.factor_entry)) + 1
        dense = dense_features(kernel, domain, tolerance, min(most, worthwhile, affordable_rank(size)), asked=False)
        candidates += [dense] if float(dense.residual) <= tolerance else []
    built = min(candidates, key=lambda each: _cost(each, size, rounds))
    if isinstance(built, RowCache):
        remedy = f"give horizon=, the number of rounds (now {built.capacity:,} rows), fewer points, or a smoother kernel"
        check_fits("form", built.trial_bytes, f"the rows of one trial on {size:,} points", remedy)
    else:
        limit = f" with rank={rank}" if rank is not None else ""
        _check_residual(built, tolerance, limit, "raise rank, loosen tolerance, or use form='rows', which is exact")
    return built


def _check_residual(built: Built | BoxFeatures, tolerance: float, limit: str, remedy: str) -> None:
    """Raise if features leave out more than the tolerance."""
    if float(built.residual) > tolerance:
        raise checks.InvalidArgument(
            f"form: {built.name!r}{limit} leaves out {float(built.residual):.2e} of the prior variance, above tolerance={tolerance:.0e};"
            f" {remedy}"
        )


@dataclasses.dataclass(frozen=True)
class OutputKernels:
    """Kernels, prior means and groups of outputs, and noise of the groups."""

    domain: Domain
    kernels: list[Kernel]  # [k]
    means: list[float]  # [k]
    groups: list[int]  # [k] numbers of groups
    members: list[Kernel]  # [G]
    noise: Table  # [G], or [G, M]

    @classmethod
    def of(
        cls,
        domain: Domain,
        kernel: Kernel | Sequence[Kernel],
        noise_variance: Variance,
        prior_mean: float | Sequence[float],
        count: int,
        fit_to: tuple[Numbers, Numbers] | None,
        ends: Ends | None = None,
    ) -> OutputKernels:
        """Return ``count`` outputs, fitted to data with length-scales between ``ends``."""
        kernels = one_per_output("kernel", kernel, count)
        noises = _variances(noise_variance, count, domain)
        means = [float(mean) for mean in one_per_output("prior_mean", prior_mean, count)]
        if fit_to is not None:
            kernels, noises = _fitted_kernels(kernel, noises, means, fit_to, domain, ends)
        groups: list[int] = []
        members: list[tuple[Kernel, float | Table]] = []
        for own, noise in zip(kernels, noises, strict=True):
            match = [g for g, (other, lam) in enumerate(members) if np.array_equal(lam, noise) and same(own, other)]
            if not match:
                own.check_axes(domain.dimension)
                _check_parts(own, domain)
                check_covariance("kernel", own, domain.points)
                members.append((own, noise))
            groups.append(match[0] if match else len(members) - 1)
        table = np.stack(np.broadcast_arrays(*(noise for _, noise in members))).astype(np.float64)
        return cls(domain, kernels, means, groups, [own for own, _ in members], table)

    def model(self, kind: type[Model], need: Need, precision: str, **fields: Any) -> Model:
        """Return a model of these outputs, with arrays on the device."""
        facts: dict[str, Any] = {"domain": self.domain, "noise_variance": self.noise, "prior_mean": np.asarray(self.means)}
        facts |= {"groups": tuple(self.groups), "precision": precision, "refresh": need.refresh if precision == "float32" else 0}
        with arithmetic([precision]):
            model: Model = jax.device_put(canonicalise(kind(**facts, **fields)))
            # No trial needs the kernels, so they stay as the user gave them.
            return replace(model, kernels=tuple(self.kernels))


def one_per_output(name: str, value: T | Sequence[T], outputs: int) -> list[T]:
    """Return a value per output, from a shared value or a list."""
    given: T | Sequence[T] = value.tolist() if isinstance(value, np.ndarray | jax.Array) else value
    if not isinstance(given, Sequence):
        return [given] * outputs
    if len(given) != outputs:
        raise checks.InvalidArgument(f"{name}: expected one for all, or one for each of the {outputs} outputs, got {len(given)}")
    return list(given)


def _variances(given: Any, outputs: int, domain: Domain) -> list[float | Table]:
    """Return each output's noise variance, a number or a table ``[M]``."""
    name, size = "noise_variance", domain.size
    if callable(given):
        return [_table(name, given, domain)] * outputs
    if isinstance(given, list | tuple) and any(callable(item) or np.ndim(item) for item in given):
        return [_table(f"{name}[{number}]", item, domain) for number, item in enumerate(one_per_output(name, given, outputs))]
    table = np.asarray(given, np.float64)
    if table.shape in ((), (outputs,)):
        return [float(value) for value in np.broadcast_to(table, (outputs,))]
    if table.shape not in ((size,), (outputs, size)):
        raise checks.InvalidArgument(
            f"{name}: expected one number, [{outputs}] with one for each output, a table [{size}] over the points of the domain, or"
            f" [{outputs}, {size}] with one for each output, got shape {list(table.shape)}"
        )
    return list(np.broadcast_to(table, (outputs, size)))


def _table(name: str, given: Any, domain: Domain) -> float | Table:
    if callable(given):
        given = tabulate(name, given, domain)
        checks.positive(f"{name}(x)", given, remedy="a variance is > 0 at every point")
    if np.ndim(given) == 0:
        return float(given)
    checks.shape(name, given, (domain.size,), remedy="one number per point of the domain")
    return np.asarray(given, np.float64)


def _check_parts(kernel: Kernel, domain: Domain) -> None:
    """Raise if Gram matrices lack numbers from 0, or distances see categories."""
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


def _fitted_kernels(
    kernel: Kernel | Sequence[Kernel],
    noises: list[float | Table],
    means: list[float],
    data: tuple[Numbers, Numbers],
    domain: Domain,
    ends: Ends | None,
) -> tuple[list[Kernel], list[float | Table]]:
    """Fit each output's kernel and noise variance by maximum posterior.

    Searches start at the arguments. If all outputs share a kernel and a noise variance they also share the fit.
    """
    if any(np.ndim(noise) for noise in noises):
        raise checks.InvalidArgument("noise_variance: fit_to fits one number for each output, got a table over the points; give numbers")
    points, values = (np.asarray(part, np.float64) for part in data)
    if points.shape[1] != domain.dimension or len(points) != len(values):
        raise checks.InvalidArgument(
            f"fit_to: must be points [n, {domain.dimension}] and values of the same n, got {list(points.shape)} and {list(values.shape)}"
        )
    table = values.reshape(len(values), -1)
    if table.shape[1] != len(means):
        raise checks.InvalidArgument(f"fit_to: values must have a column for each of the {len(means)} outputs, got {list(values.shape)}")
    table = table - np.asarray(means)
    sides = np.ptp(np.asarray(domain.points, np.float64), axis=0)
    prior = Prior(extent=np.where(sides > 0, sides, 1.0))

    def one(own: Kernel, columns: np.ndarray, noise: float | Table) -> tuple[Kernel, float]:
        own = with_arrays(own)
        named = dict(zip(paths(own), jax.tree.leaves(own), strict=True))
        # Gram matrices keep their values, and so do numbers that are 0, such as the bias of Linear.
        fixed = tuple(path for path, leaf in named.items() if np.ndim(leaf) == 2 or np.all(np.asarray(leaf) == 0))
        bounds = {}
        if ends is not None:
            path = next(path for path in named if path.endswith("length_scale"))
            low, high = np.asarray(ends[0]), np.asarray(ends[1])
            # One length-scale stays within the ends of all axes.
            bounds[path] = (low, high) if np.ndim(named[path]) else (np.max(low), np.min(high))
        best = fit(own, points, columns, float(noise), prior=prior, fixed=fixed, bounds=bounds)
        return jax.tree.map(_to_seven_digits, best.kernel), float(_to_seven_digits(best.noise_variance))

    if isinstance(kernel, Kernel) and len(set(noises)) == 1:
        shared = one(kernel, table, noises[0])
        return [shared[0]] * len(means), [shared[1]] * len(means)
    kernels = one_per_output("kernel", kernel, len(means))
    each = [one(own, column, noise) for own, column, noise in zip(kernels, table.T, noises, strict=True)]
    return [own for own, _ in each], [noise for _, noise in each]


def _to_seven_digits(leaf: Table) -> np.ndarray:
    """Round numbers to seven digits, far more than any data determine."""
    # Machines whose last bits differ then make the same model from the same data.
    return np.asarray(np.vectorize(lambda number: float(f"{number:.7g}"))(leaf), np.float64)
