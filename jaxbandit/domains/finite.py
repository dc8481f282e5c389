"""Finite action sets: ``M`` points ``[M, d]``, perhaps a product grid.

The values of an axis are numbers, or categories without an order (:func:`mixed`), numbered ``0, 1, ...``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.codec import nameable
from jaxbandit.core.declare import Key, Numbers, Role, Table, check_fields, checked
from jaxbandit.core.fields import Place, Words, each_axis, exactly, finite_numbers, key, label, matrix, vector, whole
from jaxbandit.core.keys import typed
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.domains.regions import Constraints, SuchThat, mask_of

__all__ = ["MOST_POINTS", "Domain", "arms", "grid", "mixed", "points", "product", "sobol", "tabulate"]

MOST_POINTS = 10**7
"""Largest number of points of a domain. With more the posterior of a single trial would take gigabytes."""
point_rows, axis_points = matrix("one row per point, one column per axis"), vector("one number per point of the axis")


class Coordinates(np.ndarray):
    """NumPy array that a traced number can index, too."""

    def __getitem__(self, index: Any) -> Any:
        """Return entries, for a traced index as a JAX array."""
        parts = index if isinstance(index, tuple) else (index,)
        plain = np.asarray(self)
        return (jnp.asarray(plain) if any(isinstance(part, jax.core.Tracer) for part in parts) else plain)[index]


@pytree
class Domain(Role):
    """Finite action set.

    Make it with :func:`grid`, :func:`product`, :func:`mixed`, :func:`sobol`, :func:`points` or :func:`arms`.

    Attributes:
      points: ``[M, d]`` coordinates; on a product grid the last axis varies fastest.
      axes: one ``[n_a]`` array per axis on a product grid, ``()`` for a bare set of points.
      names: name of each axis, ``()`` without names.
      categories: labels of the categories of each axis, ``()`` for an axis of numbers; ``()`` without axes of categories.
    """

    described: ClassVar[str] = "a domain of jaxbandit.domains, such as grid([0.0], [1.0], 50)"
    points: Annotated[Table, finite_numbers, point_rows]
    axes: tuple[Annotated[Table, finite_numbers, axis_points], ...] = ()
    names: tuple[Annotated[str, label], ...] = static(default=())
    categories: tuple[tuple[Annotated[str, label], ...], ...] = static(default=())

    def __post_init__(self) -> None:
        check_fields(self, "Domain")
        if type(self.points) is np.ndarray:
            object.__setattr__(self, "points", self.points.view(Coordinates))
        if self.axes and (math.prod(self.grid_shape), len(self.axes)) != np.shape(self.points):
            raise checks.InvalidArgument(
                f"Domain.axes: a grid of {list(self.grid_shape)} points, got {list(np.shape(self.points))} coordinates; use domains.product"
            )
        for name, given in (("names", self.names), ("categories", self.categories)):
            if len(given) not in (0, self.dimension):
                raise checks.InvalidArgument(f"Domain.{name}: must hold one for each of the {self.dimension} axes, got {len(given)}")
        if len(set(self.names)) < len(self.names):
            raise checks.InvalidArgument(f"Domain.names: must be different names, got {checks.short(self.names)}")

    def _place(self) -> Place:
        return Place(None, None, self.size, self.dimension)

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
        """Number of points on each axis of a product grid, else ``()``."""
        return tuple(int(np.shape(axis)[0]) for axis in self.axes)

    def is_categorical(self, axis: int) -> bool:
        """Return whether an axis, by its number from 0, is of categories."""
        checks.integer("axis", axis, least=0, most=self.dimension - 1)
        return bool(self.categories and self.categories[axis])

    def name_of(self, axis: int) -> str:
        """Return the name of axis ``axis`` (from 0), by default ``x1``, ``x2``."""
        checks.integer("axis", axis, least=0, most=self.dimension - 1)
        return self.names[axis] if self.names else f"x{axis + 1}"

    def label(self, index: int) -> str:
        """Return a point in words, by its number: ``"dose=0.2, catalyst=Ni"``."""
        checks.integer("index", index, least=0, most=self.size - 1)
        row = np.asarray(self.points, np.float64)[index]
        shown = [self.categories[axis][int(value)] if self.is_categorical(axis) else f"{value:.6g}" for axis, value in enumerate(row)]
        return ", ".join(f"{self.name_of(axis)}={value}" for axis, value in enumerate(shown))

    @checked
    def nearest(self, point: Annotated[Numbers, finite_numbers, each_axis]) -> int:
        """Return the index of the first point closest to ``point [d]``."""
        target = np.asarray(point, np.float64)
        return int(np.argmin(np.sum((np.asarray(self.points) - target) ** 2, axis=1)))


def in_words(domain: Domain) -> str:
    """Return a domain's number of points, grid and ranges in words."""
    points, shape = np.asarray(domain.points), domain.grid_shape
    grid = f" ({' x '.join(map(str, shape))} grid)" if len(shape) > 1 else ""
    spans = " x ".join(f"[{low:.4g}, {high:.4g}]" for low, high in zip(points.min(axis=0), points.max(axis=0), strict=True))
    return f"{len(points):,}{grid} in {spans}"


@nameable
@checked
def points(coordinates: Annotated[Numbers, finite_numbers, point_rows]) -> Domain:
    """Make a bare set of points from ``coordinates [M, d]``.

    Raises ``InvalidArgument`` without points, or on repeated or non-finite points.
    """
    table = np.asarray(coordinates, np.float64)
    repeated = len(table) - len(np.unique(table, axis=0))
    if repeated:
        raise checks.InvalidArgument(
            f"coordinates: must hold each point once, got {repeated} of {len(table)} points that are repeated: {checks.short(table)}"
        )
    return Domain(points=table)


@nameable
@checked
def arms(count: Annotated[int, whole(1, MOST_POINTS)]) -> Domain:
    """Make ``count`` unordered arms, as arm numbers ``[count, 1]``, for Gram matrices."""
    return Domain(points=np.arange(count, dtype=np.float64)[:, None])


def part_of(domain: Domain, such_that: Sequence[SuchThat]) -> Domain:
    """Return the allowed points of a domain, or without constraints itself."""
    if not such_that:
        return domain
    names, points = [domain.name_of(axis) for axis in range(domain.dimension)], np.asarray(domain.points, np.float64)
    kept = points[mask_of(such_that, names, points, domain.categories)]
    return Domain(points=kept, names=domain.names, categories=domain.categories)


@nameable
@checked
def product(axes: Sequence[Numbers], *, such_that: Constraints = ()) -> Domain:
    """Make a product grid from an increasing ``[n_a]`` array per axis.

    Constraints ``such_that``, on axes called ``x1, x2, ...``, keep the points that satisfy them, see :func:`box`. Raises
    ``InvalidArgument`` on an empty axis, repeated points, or constraints that no point satisfies.
    """
    if not (isinstance(axes, list | tuple) or (isinstance(axes, np.ndarray) and axes.ndim)) or not len(axes):
        raise checks.InvalidArgument(f"axes: must be a list of one array [n] per axis, at least one, got {checks.short(axes)}")
    for number, axis in enumerate(axes):
        finite_numbers(f"axes[{number}]", axis, Place(axis_points))
    arrays = [np.asarray(axis, np.float64) for axis in axes]
    _check_count("axes", [axis.size for axis in arrays])
    for number, axis in enumerate(arrays):
        if np.any(np.diff(axis) <= 0):
            words = f"points must increase strictly (no duplicates), got {checks.short(axis)}; use numpy.unique"
            raise checks.InvalidArgument(f"axes[{number}]: {words}")
    table = np.stack(np.meshgrid(*arrays, indexing="ij"), axis=-1).reshape(-1, len(arrays))
    return part_of(Domain(points=table, axes=tuple(arrays)), such_that)


@nameable
@checked
def mixed(
    axes: Annotated[
        Mapping[str, Sequence[float] | Sequence[str]], Words("a mapping from the names of axes to numbers or to labels of categories")
    ],
    *,
    such_that: Constraints = (),
) -> Domain:
    """Make a product grid of named axes of numbers or categories.

    An example is ``mixed({"dose": [0.1, 0.2, 0.5], "catalyst": ["Pd", "Ni"]})``. Points number categories ``0, 1, ...`` in the given order;
    ``domain.label(index)`` returns a point in words. A kernel relates categories: :class:`~jaxbandit.kernels.Categorical`, or a
    :class:`~jaxbandit.kernels.Gram` matrix, each on its axis by :class:`~jaxbandit.kernels.OnAxes`.

    Args:
      axes: by name, increasing numbers ``[n_a]`` or distinct texts.
      such_that: constraints on the axes, as for :func:`box`; points that do not satisfy them are left out.

    Raises:
      InvalidArgument: on an axis without values, of numbers that do not increase, of texts that repeat, or of both, and on constraints
        that no point satisfies.
    """
    check_names("axes", axes)
    coordinates, labels = [], []
    for name, values in axes.items():
        where, items = f"axes[{name!r}]", values.tolist() if isinstance(values, np.ndarray) else values
        holds_texts = isinstance(items, list | tuple) and any(isinstance(item, str) for item in items)
        if not holds_texts:
            finite_numbers(where, values, Place(axis_points))
        else:
            distinct_labels(where, items)
        coordinates.append(np.arange(len(items), dtype=np.float64) if holds_texts else np.asarray(values, np.float64))
        labels.append(tuple(items) if holds_texts else ())
    return part_of(replace(product(coordinates), names=tuple(axes), categories=tuple(labels) if any(labels) else ()), such_that)


def check_names(where: str, axes: Mapping[Any, object]) -> None:
    """Raise ``InvalidArgument`` unless a mapping has names of axes as keys."""
    if not axes or not all(map(label.takes, axes)):
        words = f"must be a mapping from the names of axes, each {label.allowed}, at least one"
        raise checks.InvalidArgument(f"{where}: {words}, got {checks.short(dict(axes))}")


def as_texts(items: Iterable[object]) -> str:
    """Return advice to write choices, such as ``(False, True)``, as texts."""
    texts = tuple(str(item) if isinstance(item, str | np.generic) else checks.short(item) for item in items)
    return f"choices without an order are categories, given as texts, which points hold: {checks.short(texts)}"


def distinct_labels(where: str, labels: Sequence[object]) -> tuple[str, ...]:
    """Return the labels of categories, or raise ``InvalidArgument`` unless they are distinct."""
    if not all(map(label.takes, labels)) or len(set(labels)) < len(labels):
        raise checks.InvalidArgument(f"{where}: categories must be distinct texts, each {label.allowed}, got {checks.short(list(labels))}")
    return tuple(map(str, labels))


def _check_count(name: str, counts: Sequence[int]) -> None:
    """Raise ``InvalidArgument`` when a product grid has too many points."""
    if math.prod(counts) > MOST_POINTS:
        raise checks.InvalidArgument(
            f"{name}: must make at most {MOST_POINTS:,} points in all, got {checks.short(list(counts))}, which are {math.prod(counts):.3g}"
        )


@nameable
@checked
def grid(
    low: Annotated[Sequence[float], finite_numbers],
    high: Annotated[Sequence[float], finite_numbers],
    points_per_axis: int | Sequence[int],
    *,
    such_that: Constraints = (),
) -> Domain:
    """Make a product grid of evenly spaced points, ends included.

    Args:
      low, high: ``[d]`` corners of the box, ``low < high`` on every axis.
      points_per_axis: one number for all axes, or one per axis; each at least 2.
      such_that: constraints on the axes ``x1, x2, ...``, as for :func:`box`; points that do not satisfy them are left out.

    Raises:
      InvalidArgument: on corners of different lengths, ``low >= high``, fewer than 2 points on an axis, or constraints that no point
        satisfies.
    """
    lower, upper = _corners(low, high)
    several = isinstance(points_per_axis, list | tuple) or (isinstance(points_per_axis, np.ndarray) and points_per_axis.ndim == 1)
    counts: list[Any] = list(points_per_axis) if several else [points_per_axis] * len(lower)  # type: ignore[arg-type]
    if len(counts) != len(lower):
        raise checks.InvalidArgument(f"points_per_axis: expected one number or {len(lower)}, got {len(counts)}")
    counts = [checks.integer("points_per_axis", count, least=2, most=MOST_POINTS) for count in counts]
    _check_count("points_per_axis", counts)
    return part_of(product([np.linspace(a, b, n) for a, b, n in zip(lower, upper, counts, strict=True)]), such_that)


@nameable
@checked
def sobol(
    low: Annotated[Sequence[float], finite_numbers],
    high: Annotated[Sequence[float], finite_numbers],
    count: Annotated[int, whole(1, MOST_POINTS)],
    key: Annotated[Key | int, key | whole(0)],
) -> Domain:
    """Make the first ``count`` points of a scrambled Sobol sequence.

    They fill the box evenly in many dimensions, where grids have too many points. Sets of a power of two are the most even.

    Args:
      low, high: ``[d]`` corners of the box, ``low < high`` on every axis; at most 21,201 axes.
      count: number of points.
      key: a PRNG key, or a whole number as a seed, of the scrambling (Owen 1998).

    Raises:
      InvalidArgument: on corners of different lengths, ``low >= high``, or too many axes.
    """
    lower, upper = _corners(low, high)
    return points(lower + (upper - lower) * sobol_points(len(lower), count, words_of(key)))


def words_of(key: Key | int) -> list[int]:
    """Return a PRNG key, or a seed, as whole numbers."""
    words = np.asarray(key if isinstance(key, int | np.integer) else jax.random.key_data(typed(key)), np.uint64)
    return [int(word) for word in np.atleast_1d(words)]


def sobol_points(dimension: int, count: int, seed: Sequence[int] = (0,)) -> np.ndarray:
    """Return the first points ``[count, d]`` of a scrambled Sobol sequence."""
    # The import is here because it would slow down start-up.
    from scipy.stats import qmc

    if dimension > qmc.Sobol.MAXDIM:
        raise checks.InvalidArgument(f"low, high: must have at most {qmc.Sobol.MAXDIM:,} axes, got {dimension:,}")
    sequence = qmc.Sobol(dimension, seed=np.random.default_rng(list(seed)))
    return sequence.random_base2(int(max(count - 1, 0)).bit_length())[:count]


def _corners(low: Numbers, high: Numbers) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners ``[d]`` of a box, or raise ``InvalidArgument``."""
    lower, upper = np.atleast_1d(np.asarray(low, np.float64)), np.atleast_1d(np.asarray(high, np.float64))
    if lower.shape != upper.shape or lower.ndim != 1 or not np.all(lower < upper):
        raise checks.InvalidArgument(
            f"low, high: must be two corners with low < high on every axis, got {checks.short(low)} and {checks.short(high)}"
        )
    return lower, upper


@checked
def tabulate(name: str, function: Callable[[Any], Any], domain: Domain) -> Table:
    """Return the values ``[M]`` of a function at every point, in float64.

    Args:
      name: name of the function in messages.
      function: a function of one point ``x [d]``. It is called point by point if JAX cannot trace it.
      domain: the ``M`` points.

    Raises:
      InvalidArgument: when the function fails, or does not return one finite real number for each point.
    """
    return tables({name: function}, domain)[0]


def tables(functions: Mapping[str, Callable[[Any], Any]], domain: Domain) -> list[Table]:
    """Return :func:`tabulate` of each of ``functions``, from one program for all."""
    for name, function in functions.items():
        if not callable(function) or isinstance(function, type):
            raise checks.InvalidArgument(f"{name}: must be a function of one point x [d], got {checks.short(function)}")
    points, found = np.asarray(domain.points, np.float64), list[Table]()
    with jax.enable_x64(True):
        try:
            traced = jax.jit(jax.vmap(lambda x: [function(x) for function in functions.values()]))(points)
        # JAX cannot trace a function of NumPy or a branch on x.
        except Exception:
            if len(functions) > 1:
                return [tabulate(name, function, domain) for name, function in functions.items()]
            traced = None
    for number, (name, function) in enumerate(functions.items()):
        words = f"{name}: must be a function of one point x [{domain.dimension}] that gives one number"
        with jax.enable_x64(True), checks.blaming(f"{words}; write it with jax.numpy, or tabulate it and use problems.from_tables"):
            table = np.asarray([function(x) for x in points.copy()] if traced is None else traced[number])
            finite_numbers(f"{name}(x)", table, Place(exactly(domain.size, words="one number for each point x [d]")))
            # NumPy raises IndexError beyond the last coordinate, where JAX returns the last. Other errors are of functions of JAX's arrays.
            try:
                jax.eval_shape(lambda function=function: function(points[0].copy()))
            except IndexError:
                raise
            except Exception:
                # Some functions work on arrays of JAX alone.
                pass
        found.append(table.astype(np.float64))
    return found
