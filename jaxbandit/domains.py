"""Finite action sets: ``M`` points ``[M, d]``, and for product grids the axes that they are made of, which surrogates exploit."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.memory import check_fits
from jaxbandit.core.pytree import pytree
from jaxbandit.core.types import Numbers, Table

__all__ = ["Domain", "arms", "grid", "points", "product"]


@pytree
class Domain:
    """A finite action set; make one with :func:`grid`, :func:`product`, :func:`points` or :func:`arms`.

    Attributes:
      points: ``[M, d]`` coordinates; on a product grid the last axis varies fastest.
      axes: one ``[n_a]`` array per axis on a product grid, ``()`` for a bare set of points.
    """

    points: Table
    axes: tuple[Table, ...] = ()

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

    def nearest(self, point: Numbers) -> int:
        """Return the index of the domain's point closest to ``point [d]`` in Euclidean distance, the first of equals."""
        target = np.asarray(point, np.float64)
        checks.shape("point", target, (self.dimension,))
        checks.finite("point", target)
        return int(np.argmin(np.sum((np.asarray(self.points) - target) ** 2, axis=1)))


def points(coordinates: Numbers) -> Domain:
    """Make a bare set of points from ``coordinates [M, d]``; raises ``InvalidArgument`` if empty, not finite or with repeated points."""
    table = np.asarray(coordinates, np.float64)
    checks.shape("coordinates", table, (None, None), remedy="give one row per point")
    if table.size == 0:
        raise checks.InvalidArgument(f"coordinates: the domain is empty (shape {list(table.shape)}); give at least one point")
    checks.finite("coordinates", table)
    distinct = len(np.unique(table, axis=0))
    if distinct < len(table):
        raise checks.InvalidArgument(f"coordinates: {len(table) - distinct} of {len(table)} points are repeated; remove them")
    return Domain(points=table)


def arms(count: int) -> Domain:
    """Make a domain of ``count`` unordered arms, whose points are arm numbers ``[count, 1]``; for explicit Gram matrices."""
    checks.integer("count", count, least=1)
    check_fits("count", 2 * 8 * int(count), f"a domain of {checks.short(count)} arms", "take fewer")
    return Domain(points=np.arange(count, dtype=np.float64)[:, None])


def product(axes: Sequence[Numbers]) -> Domain:
    """Make a product grid from one increasing ``[n_a]`` array per axis; raises ``InvalidArgument`` on empty or repeated axis points."""
    arrays = [np.asarray(axis, np.float64) for axis in axes]
    if not arrays:
        raise checks.InvalidArgument("axes: the domain is empty; give at least one axis")
    for number, axis in enumerate(arrays):
        checks.shape(f"axes[{number}]", axis, (None,))
        if axis.size == 0:
            raise checks.InvalidArgument(f"axes[{number}]: the domain is empty; give at least one point per axis")
        checks.finite(f"axes[{number}]", axis)
        if np.any(np.diff(axis) <= 0):
            raise checks.InvalidArgument(f"axes[{number}]: points must increase strictly (no duplicates); sort them and use numpy.unique")
    table = np.stack(np.meshgrid(*arrays, indexing="ij"), axis=-1).reshape(-1, len(arrays))
    return Domain(points=table, axes=tuple(arrays))


def grid(low: Sequence[float], high: Sequence[float], points_per_axis: int | Sequence[int]) -> Domain:
    """Make a product grid of evenly spaced points (ends included) on the box ``[low, high]`` in ``R^d``.

    Args:
      low, high: ``[d]`` corners of the box, ``low < high`` on every axis.
      points_per_axis: one number for all axes, or one per axis; each at least 2.

    Raises:
      InvalidArgument: on corners of different lengths, ``low >= high``, or fewer than 2 points on an axis.
    """
    lower, upper = np.atleast_1d(np.asarray(low, np.float64)), np.atleast_1d(np.asarray(high, np.float64))
    checks.finite("low", lower)
    checks.finite("high", upper)
    if lower.shape != upper.shape or lower.ndim != 1 or not np.all(lower < upper):
        raise checks.InvalidArgument(f"low, high: need two corners with low < high on every axis, got {low} and {high}")
    counts = list(points_per_axis) if isinstance(points_per_axis, Sequence) else [points_per_axis] * len(lower)
    if len(counts) != len(lower):
        raise checks.InvalidArgument(f"points_per_axis: expected one number or {len(lower)}, got {len(counts)}")
    for count in counts:
        checks.integer("points_per_axis", count, least=2)
    size = math.prod(int(count) for count in counts)
    check_fits("points_per_axis", 2 * 8 * len(counts) * size, f"a grid of {checks.short(size)} points", "take fewer")
    return product([np.linspace(a, b, n) for a, b, n in zip(lower, upper, counts, strict=True)])
