"""Finite action sets: ``M`` points ``[M, d]``, and for product grids the axes that they are made of, which surrogates exploit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.arguments import takes
from jaxbandit.core.declare import Role
from jaxbandit.core.fields import Check, each, exactly, finite_numbers, function, of_class, text, vector, whole
from jaxbandit.core.memory import check_fits
from jaxbandit.core.pytree import pytree
from jaxbandit.core.types import Numbers, Table

__all__ = ["DOMAIN", "MOST_POINTS", "Domain", "arms", "grid", "points", "product", "tabulate"]

MOST_POINTS = 10**7
"""The most points of a domain: beyond, the posterior of a single trial would take gigabytes."""

COORDINATES = exactly(None, None, words="one row per point")


@pytree
class Domain(Role):
    """A finite action set; make one with :func:`grid`, :func:`product`, :func:`points` or :func:`arms`.

    Attributes:
      points: ``[M, d]`` coordinates; on a product grid the last axis varies fastest.
      axes: one ``[n_a]`` array per axis on a product grid, ``()`` for a bare set of points.
    """

    described: ClassVar[str] = "a domain of jaxbandit.domains, such as grid([0.0], [1.0], 50)"
    points: Table
    axes: tuple[Table, ...] = ()

    def __post_init__(self) -> None:
        finite_numbers("Domain.points", self.points, COORDINATES)
        if 0 in np.shape(self.points):
            raise checks.InvalidArgument(
                f"Domain.points: the domain is empty (shape {list(np.shape(self.points))}); give at least one point"
            )
        AXES("Domain.axes", self.axes)
        if self.axes and (math.prod(self.grid_shape), len(self.axes)) != np.shape(self.points):
            raise checks.InvalidArgument(
                f"Domain.axes: a grid of {list(self.grid_shape)} points, got {list(np.shape(self.points))} coordinates; use domains.product"
            )

    @property
    def size(self) -> int:
        """Number of points, ``M``."""
        return int(np.shape(self.points)[0])

    @property
    def dimension(self) -> int:
        """Number of coordinates of a point, ``d``."""
        return int(np.shape(self.points)[1])

    @property
    def grid_shape(self) -> tuple[int, ...]:
        """Number of points on each axis of a product grid, ``()`` for a bare set of points."""
        return tuple(int(np.shape(axis)[0]) for axis in self.axes)

    @takes(point=finite_numbers)
    def nearest(self, point: Numbers) -> int:
        """Return the index of the domain's point closest to ``point [d]`` in Euclidean distance, the first of equals."""
        target = np.asarray(point, np.float64)
        checks.shape("point", target, (self.dimension,))
        return int(np.argmin(np.sum((np.asarray(self.points) - target) ** 2, axis=1)))


AXES = each(finite_numbers.of(vector("one number per point of the axis")))
DOMAIN: Check = of_class(Domain)
"""Check of an argument that is a domain."""


@takes(coordinates=finite_numbers.of(COORDINATES))
def points(coordinates: Numbers) -> Domain:
    """Make a bare set of points from ``coordinates [M, d]``; raises ``InvalidArgument`` if empty, not finite or with repeated points."""
    table = np.asarray(coordinates, np.float64)
    if table.size == 0:
        raise checks.InvalidArgument(f"coordinates: must hold at least one point, got shape {list(table.shape)}; the domain is empty")
    repeated = len(table) - len(np.unique(table, axis=0))
    if repeated:
        raise checks.InvalidArgument(
            f"coordinates: must hold each point once, got {repeated} of {len(table)} points that are repeated: {checks.short(table)}"
        )
    return Domain(points=table)


@takes(count=whole(1, MOST_POINTS))
def arms(count: int) -> Domain:
    """Make a domain of ``count`` unordered arms, whose points are arm numbers ``[count, 1]``; for explicit Gram matrices."""
    check_fits("count", 2 * 8 * int(count), f"a domain of {checks.short(count)} arms", "take fewer")
    return Domain(points=np.arange(count, dtype=np.float64)[:, None])


def product(axes: Sequence[Numbers]) -> Domain:
    """Make a product grid from one increasing ``[n_a]`` array per axis; raises ``InvalidArgument`` on empty or repeated axis points."""
    if not isinstance(axes, list | tuple) and not (isinstance(axes, np.ndarray) and axes.ndim):
        raise checks.InvalidArgument(f"axes: must be a list of one array [n] per axis, got {checks.short(axes)}")
    if not len(axes):
        raise checks.InvalidArgument(f"axes: the domain is empty; give at least one axis, got {checks.short(axes)}")
    for number, axis in enumerate(axes):
        finite_numbers(f"axes[{number}]", axis, exactly(None))
    arrays = [np.asarray(axis, np.float64) for axis in axes]
    _check_count("axes", [axis.size for axis in arrays])
    for number, axis in enumerate(arrays):
        if axis.size == 0:
            raise checks.InvalidArgument(f"axes[{number}]: must hold at least one point, got []; the domain is empty")
        if np.any(np.diff(axis) <= 0):
            raise checks.InvalidArgument(
                f"axes[{number}]: points must increase strictly (no duplicates), got {checks.short(axis)}; use numpy.unique"
            )
    table = np.stack(np.meshgrid(*arrays, indexing="ij"), axis=-1).reshape(-1, len(arrays))
    return Domain(points=table, axes=tuple(arrays))


def _check_count(name: str, counts: Sequence[int]) -> None:
    """Raise ``InvalidArgument`` when a product grid has too many points; the product is that of Python's integers, which never overflow."""
    if math.prod(counts) > MOST_POINTS:
        raise checks.InvalidArgument(
            f"{name}: must make at most {MOST_POINTS:,} points in all, got {checks.short(list(counts))}, which are {math.prod(counts):.3g}"
        )


@takes(low=finite_numbers, high=finite_numbers)
def grid(low: Sequence[float], high: Sequence[float], points_per_axis: int | Sequence[int]) -> Domain:
    """Make a product grid of evenly spaced points (ends included) on the box ``[low, high]`` in ``R^d``.

    Args:
      low, high: ``[d]`` corners of the box, ``low < high`` on every axis.
      points_per_axis: one number for all axes, or one per axis; each at least 2.

    Raises:
      InvalidArgument: on corners of different lengths, ``low >= high``, or fewer than 2 points on an axis.
    """
    lower, upper = np.atleast_1d(np.asarray(low, np.float64)), np.atleast_1d(np.asarray(high, np.float64))
    if lower.shape != upper.shape or lower.ndim != 1 or not np.all(lower < upper):
        raise checks.InvalidArgument(
            f"low, high: must be two corners with low < high on every axis, got {checks.short(low)} and {checks.short(high)}"
        )
    several = isinstance(points_per_axis, list | tuple) or (isinstance(points_per_axis, np.ndarray) and points_per_axis.ndim == 1)
    counts: list[Any] = list(points_per_axis) if several else [points_per_axis] * len(lower)  # type: ignore[arg-type]
    if len(counts) != len(lower):
        raise checks.InvalidArgument(f"points_per_axis: expected one number or {len(lower)}, got {len(counts)}")
    counts = [checks.integer("points_per_axis", count, least=2) for count in counts]
    _check_count("points_per_axis", counts)
    size = math.prod(counts)
    check_fits("points_per_axis", 2 * 8 * len(counts) * size, f"a grid of {checks.short(size)} points", "take fewer")
    return product([np.linspace(a, b, n) for a, b, n in zip(lower, upper, counts, strict=True)])


@takes(name=text, function=function("(x [d])"), domain=DOMAIN)
def tabulate(name: str, function: Callable[[Any], Any], domain: Domain) -> Table:
    """Return the values ``[M]``, in float64, of a function of one point ``x [d]`` at every point of a domain.

    Args:
      name: what the function is called in messages.
      function: a function that JAX can trace, to one number.
      domain: the ``M`` points.

    Raises:
      InvalidArgument: when the function cannot be traced, or does not give one finite real number for each point.
    """
    with checks.blaming(f"{name}: must be a function of one point x [d] that JAX can trace"), jax.enable_x64(True):
        table = np.asarray(jax.vmap(function)(jnp.asarray(domain.points)))
    finite_numbers(f"{name}(x)", table, exactly(domain.size, words="one number for each point x [d]"))
    return np.asarray(table, np.float64)
