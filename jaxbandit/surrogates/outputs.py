"""Facts of a model's outputs as users give them: kernels, noise variances, prior means, or data to fit them to; groups of equals."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import jax
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.fields import Check, Place, Shape, function, positive_numbers
from jaxbandit.core.pytree import canonicalise, replace
from jaxbandit.core.types import Array, Numbers, Table
from jaxbandit.domains import Domain, tabulate
from jaxbandit.kernels import Categorical, Constant, Gram, Kernel, White, check_covariance, parts_on_axes, same
from jaxbandit.surrogates.evidence import Prior, fit
from jaxbandit.surrogates.evidence.maximise import paths, with_arrays
from jaxbandit.surrogates.posterior import Surrogate
from jaxbandit.surrogates.precision import Need, arithmetic

Model = TypeVar("Model", bound=Surrogate)
T = TypeVar("T")
Variance: TypeAlias = float | Callable[[Array], object] | Sequence[object] | Table
"""A noise variance as users give it, see :func:`jaxbandit.surrogate`."""
Ends: TypeAlias = tuple[Sequence[float], Sequence[float]]
"""The shortest and the longest length-scale on each axis."""

NUMBERS = Shape(
    "one number, [1 + m] with one for each output, a table [M] over the points, or one [1 + m, M] for each output",
    lambda actual, n: len(actual) <= 2 and 0 not in actual,
)
VARIANCE_IN_FILES = positive_numbers.of(NUMBERS)
"""Check of the noise variance of a model that can be written to a file, in which a function has no place."""
OF_A_POINT = function("(x [d])")


def _verify_variance(name: str, value: Any, place: Place) -> None:
    if OF_A_POINT.takes(value):
        OF_A_POINT.verify(name, value, place)
    elif isinstance(value, list | tuple) and any(callable(item) or isinstance(item, np.ndarray) for item in value):
        for number, item in enumerate(value):
            VARIANCE(f"{name}[{number}]", item)
    else:
        VARIANCE_IN_FILES.verify(name, value, place)


VARIANCE = Check(
    f"{VARIANCE_IN_FILES.allowed}; or a function of one point x [d], or a list of one for each output",
    lambda value: VARIANCE_IN_FILES.takes(value) or OF_A_POINT.takes(value),
    _verify_variance,
)
"""Check of the noise variance of a model."""


def _verify_data(name: str, value: Any, place: Place) -> None:
    for part, given, ranks in zip(("points", "values"), value, ((2,), (1, 2)), strict=True):
        table = checks.numbers(f"{name}: {part}", given)
        if table.ndim not in ranks or not table.size:
            raise checks.InvalidArgument(f"{name}: must be {DATA.allowed}, got {part} of shape {list(table.shape)}")
        checks.finite(f"{name}: {part}", table)


DATA = Check(
    "two arrays, points [n, d] and values [n] or [n, 1 + m], of finite numbers",
    lambda value: isinstance(value, tuple | list) and len(value) == 2,
    _verify_data,
)
"""Check of the data that a model is fitted to."""
DIGITS = 7  # of fitted hyper-parameters, far more than any data determine


@dataclasses.dataclass(frozen=True)
class Outputs:
    """Kernel, noise variance and prior mean of every output, and the groups of outputs that share a factor."""

    domain: Domain
    kernels: list[Kernel]  # of each output
    means: list[float]
    groups: list[int]  # for each output the number of its group
    members: list[Kernel]  # of each group
    noise: Table  # [G], or [G, M] where one of them has a table

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
    ) -> Outputs:
        """Return the facts of ``count`` outputs, fitted to data where those are given, with length-scales between ``ends``."""
        kernels = one_per_output("kernel", kernel, count)
        noises = _variances(noise_variance, count, domain)
        means = [float(mean) for mean in one_per_output("prior_mean", prior_mean, count)]
        if fit_to is not None:
            kernels, noises = _fitted(kernel, noises, means, fit_to, domain, ends)
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
        """Return a model of these outputs with its arrays on the device, in the precision chosen."""
        refresh = need.refresh if precision == "float32" else 0
        own: dict[str, Any] = {"noise_variance": self.noise, "prior_mean": np.asarray(self.means), "groups": tuple(self.groups)}
        with arithmetic([precision]):
            model: Model = jax.device_put(canonicalise(kind(domain=self.domain, precision=precision, refresh=refresh, **own, **fields)))
            return replace(model, kernels=tuple(self.kernels))  # as they were given: no trial needs them


def one_per_output(name: str, value: T | Sequence[T], outputs: int) -> list[T]:
    """Return one value per output, from one for all of them or a list of one for each."""
    given: T | Sequence[T] = value.tolist() if isinstance(value, np.ndarray | jax.Array) else value
    if not isinstance(given, Sequence):
        return [given] * outputs
    if len(given) != outputs:
        raise checks.InvalidArgument(f"{name}: expected one for all, or one for each of the {outputs} outputs, got {len(given)}")
    return list(given)


def _variances(given: Any, outputs: int, domain: Domain) -> list[float | Table]:
    """Return the noise variance of each output: a number, or a table ``[M]`` over the points."""
    name, size = "noise_variance", domain.size
    if callable(given):
        return [_table(name, given, domain)] * outputs
    if isinstance(given, list | tuple) and any(callable(item) or np.ndim(item) for item in given):
        return [_table(f"{name}[{number}]", item, domain) for number, item in enumerate(one_per_output(name, given, outputs))]
    table = np.asarray(given, np.float64)
    if table.ndim == 0:
        return [float(table)] * outputs
    if table.shape == (outputs,):
        return [float(value) for value in table]
    if table.shape == (size,):
        return [table] * outputs
    if table.shape == (outputs, size):
        return list(table)
    raise checks.InvalidArgument(
        f"{name}: expected one number, [{outputs}] with one for each output, a table [{size}] over the points of the domain, or"
        f" [{outputs}, {size}] with one for each output, got shape {list(table.shape)}"
    )


def _table(name: str, given: Any, domain: Domain) -> float | Table:
    """Return a number as it is, and a table or a function of a point as a table ``[M]``."""
    if callable(given):
        table = tabulate(name, given, domain)
        checks.positive(f"{name}(x)", table, remedy="a variance is > 0 at every point")
        return table
    if np.ndim(given) == 0:
        return float(given)
    checks.shape(name, given, (domain.size,), remedy="one number per point of the domain")
    return np.asarray(given, np.float64)


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


def _fitted(
    kernel: Kernel | Sequence[Kernel],
    noises: list[float | Table],
    means: list[float],
    data: tuple[Numbers, Numbers],
    domain: Domain,
    ends: Ends | None,
) -> tuple[list[Kernel], list[float | Table]]:
    """Return the kernel and the noise variance of each output of maximum posterior, given ``data``, points and values.

    The searches start at the arguments. One kernel and one noise variance for all outputs stay that; otherwise each output has its own.
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
        # Gram matrices keep their value, and numbers that are 0, such as the bias of Linear.
        fixed = tuple(path for path, leaf in named.items() if np.ndim(leaf) == 2 or np.all(np.asarray(leaf) == 0))
        bounds = {}
        if ends is not None:
            path = next(path for path in named if path.endswith("length_scale"))
            low, high = np.asarray(ends[0]), np.asarray(ends[1])
            bounds[path] = (low, high) if np.ndim(named[path]) else (np.max(low), np.min(high))  # of all axes
        best = fit(own, points, columns, float(noise), prior=prior, fixed=fixed, bounds=bounds)
        return jax.tree.map(_rounded, best.kernel), float(_rounded(best.noise_variance))

    if isinstance(kernel, Kernel) and len(set(noises)) == 1:
        shared = one(kernel, table, noises[0])
        return [shared[0]] * len(means), [shared[1]] * len(means)
    kernels = one_per_output("kernel", kernel, len(means))
    each = [one(own, column, noise) for own, column, noise in zip(kernels, table.T, noises, strict=True)]
    return [own for own, _ in each], [noise for _, noise in each]


def _rounded(leaf: Table) -> np.ndarray:
    """Return numbers to ``DIGITS`` digits, so that machines whose last bits differ make the same model of the same data."""
    return np.asarray(np.vectorize(lambda number: float(f"{number:.{DIGITS}g}"))(leaf), np.float64)
