"""Noise variance of a model as users give it: numbers, tables over the points of the domain, or functions of a point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.fields import Check, Shape, function, positive_numbers
from jaxbandit.core.types import Table
from jaxbandit.domains import Domain, tabulate

Variance: TypeAlias = float | Callable[[Any], Any] | Sequence[Any] | Table
"""A noise variance as users give it, see :func:`variance_of_outputs`."""

NUMBERS = Shape(
    "one number, [1 + m] with one for each output, a table [M] over the points, or one [1 + m, M] for each output",
    lambda actual, n: len(actual) <= 2 and 0 not in actual,
    lambda outputs: outputs,
)


VARIANCE_IN_FILES = positive_numbers.of(NUMBERS)
"""Check of the noise variance of a model that can be written to a file, in which a function has no place."""
OF_A_POINT = function("(x [d])")


def _verify(name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
    if OF_A_POINT.takes(value):
        OF_A_POINT.verify(name, value, None, None)
    elif isinstance(value, list | tuple) and any(callable(item) or isinstance(item, np.ndarray) for item in value):
        for number, item in enumerate(value):
            VARIANCE(f"{name}[{number}]", item)
    else:
        VARIANCE_IN_FILES.verify(name, value, shape, outputs)


VARIANCE = Check(
    f"{VARIANCE_IN_FILES.allowed}; or a function of one point x [d], or a list of one for each output",
    lambda value: VARIANCE_IN_FILES.takes(value) or OF_A_POINT.takes(value),
    _verify,
)
"""Check of the noise variance of a model."""


def variance_of_outputs(given: Any, outputs: int, domain: Domain) -> list[float | Table]:
    """Return the noise variance of each output: a number, or a table ``[M]`` over the points.

    Raises:
      InvalidArgument: on numbers that fit neither the outputs nor the points, and on a function that is not positive at some point.
    """
    name, size = "noise_variance", domain.size
    if callable(given):
        return [_table(name, given, domain)] * outputs
    if isinstance(given, list | tuple) and any(callable(item) or np.ndim(item) for item in given):
        if len(given) != outputs:
            raise checks.InvalidArgument(f"{name}: expected one for all, or one for each of the {outputs} outputs, got {len(given)}")
        return [_table(f"{name}[{number}]", item, domain) for number, item in enumerate(given)]
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


def stacked(variances: list[float | Table]) -> Table:
    """Return the noise variance of all groups of outputs: ``[G]``, or ``[G, M]`` where one of them has a table."""
    return np.stack(np.broadcast_arrays(*variances)).astype(np.float64)


def least(variances: Any) -> list[float]:
    """Return the smallest noise variance of each group of outputs, from ``[G]`` or ``[G, M]``."""
    return [float(np.min(own)) for own in np.asarray(variances, np.float64)]
