"""Axes of an experiment in the user's units, and its points.

The model works on a grid over the axes, scaled to ``[0, 1]``, or on the unit cube if an axis is continuous.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np

from jaxbandit.algorithms import Algorithm
from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, check_known, did_you_mean, short
from jaxbandit.core.codec import ObjectTable, from_fields, from_plain, name_of, origin_of, to_fields, to_plain
from jaxbandit.core.declare import checked
from jaxbandit.core.doors import either, number_of
from jaxbandit.core.fields import Above, anything, finite, label, scalar, whole
from jaxbandit.core.pytree import replace
from jaxbandit.core.text import MAX_NUMBERS_SHOWN
from jaxbandit.domains import MOST_POINTS, Box, Contextual, Domain, box, integers, log, product
from jaxbandit.domains import points as bare_points
from jaxbandit.domains.boxes import PartOfBox, Side
from jaxbandit.domains.finite import as_texts, distinct_labels, part_of
from jaxbandit.domains.regions import SuchThat, each_constraint, mask_of
from jaxbandit.feedback.learner import BESIDE

Place: TypeAlias = tuple[float, ...]
"""A point of the unit cube of a box. It is empty on a finite domain, because numbers stand for its points."""


class Spot(NamedTuple):
    """A point by its number, and on a box its place."""

    number: int
    place: Place = ()

    @property
    def point(self) -> int | Place:
        """The place on a box, and otherwise the number."""
        return self.place or self.number


# A point is on the grid within this share of an axis.
ON_GRID = 1e-6
# The arithmetic of every model can represent this value.
LARGEST_TOLD = float(np.finfo(np.float32).max) / 4


def labelled(name: str, unit: str | None) -> str:
    """Return a name with its unit, if any, for tables and figures."""
    return f"{name} ({unit})" if unit else name


def _rounded(value: float, largest: float) -> float:
    """Return a number rounded to 14 digits of ``largest``."""
    # The sum turns -0.0 into 0.0.
    return round(value, 13 - math.floor(math.log10(abs(largest)))) + 0.0


def _decimal(column: np.ndarray) -> np.ndarray:
    """Return numbers without rounding errors of float32 or even steps."""
    held, where = np.unique(column, return_inverse=True)
    single = np.clip(held, -LARGEST_TOLD, LARGEST_TOLD).astype(np.float32)
    if np.array_equal(single, held):
        return single.astype(str).astype(np.float64)[where]
    return np.asarray([_rounded(value, np.max(np.abs(held))) for value in held.tolist()])[where]


class Outside(InvalidArgument):
    """Error for a point beyond the ends of an axis."""


def _labels(where: str, given: Any) -> tuple[str, ...]:
    """Return at least two distinct labels, or raise ``InvalidArgument``."""
    # An unknown object may raise any error.
    try:
        labels = np.asarray(given, object)
    except Exception:
        labels = np.empty(0, object)
    if labels.ndim != 1 or labels.size < 2 or not all(isinstance(item, str) for item in labels):
        advice = f"; {as_texts(labels)}" if labels.ndim == 1 and labels.size > 1 else ""
        raise InvalidArgument(f"{where}: must be at least two texts, the names of categories, got {short(given)}{advice}")
    return distinct_labels(where, labels.tolist())


@dataclasses.dataclass(frozen=True, repr=False)
class Axis:
    """Quantity to choose, with a name and possible values.

    The model scales numbers to ``[0, 1]``, so a kernel's length-scale is a share of the axis. It represents categories by ``0, 1, ...``;
    because they have no order, they need their own kernel, see :class:`~jaxbandit.kernels.OnAxes`.

    Attributes:
      name: name of the quantity.
      values: at least two values ``[n]``: increasing numbers (positive on a logarithmic scale), or distinct texts on a categorical scale.
        If all values are integers, points have integers.
      scale: scale with near results for near values, ``"linear"`` or ``"logarithmic"``; or ``"categorical"``.
      unit: unit of the values in tables and figures; ``None`` for no unit.
      continuous: ``True`` for any number between the two ``values``; ``None`` for the values only. With a continuous axis all other axes
        must be continuous, have categories, or have all whole numbers of a range.
      context: ``True`` for a condition that is seen and not chosen, see :meth:`Session.ask`; ``False`` or ``None`` for a quantity to
        choose.
    """

    scales: ClassVar[tuple[str, ...]] = ("linear", "logarithmic", "categorical")
    log_remedy: ClassVar[str] = "a logarithmic scale has positive values only"
    name: str
    values: tuple[float, ...] | tuple[str, ...]
    scale: str = "linear"
    unit: str | None = None
    continuous: bool | None = None
    context: bool | None = None

    def __post_init__(self) -> None:
        label("Axis.name", self.name)
        checks.one_of("Axis.scale", self.scale, self.scales)
        if self.continuous is not None and (self.continuous is not True or self.scale == "categorical" or len(self.values) != 2):
            words = "of two numbers, the ends of a scale, or None"
            raise InvalidArgument(f"Axis.continuous: must be True {words}, got {short(self.continuous)} of {short(self.values)}")
        if self.context not in (None, True, False):
            raise InvalidArgument(f"Axis.context: must be True for a condition that is not chosen, else False, got {short(self.context)}")
        object.__setattr__(self, "context", self.context or None)
        if self.context and self.continuous:
            raise InvalidArgument(f"Axis.context: needs values, and the axis {self.name} has any number between two; give points")
        if self.unit is not None:
            label("Axis.unit", self.unit)
        given: Any = self.values

        def refused(words: str) -> InvalidArgument:
            return InvalidArgument(f"Axis.values: must {words}, got {short(given)}")

        if self.scale == "categorical":
            if self.unit is not None:
                raise InvalidArgument(f"Axis.unit: categories have none, got {short(self.unit)}")
            object.__setattr__(self, "values", _labels("Axis.values", given))
            return
        several = isinstance(given, list | tuple | np.ndarray) and checks.shape_of("Axis.values", given) != ()
        if several and any(isinstance(item, bool | np.bool_ | str | None) for item in given):
            raise refused(f"be numbers, increasing, or categories, Axis.of_categories(...); {as_texts(given)}")
        numbers = checks.numbers("Axis.values", given)
        if numbers.ndim != 1 or numbers.size < 2:
            raise refused("be at least two numbers")
        checks.finite("Axis.values", numbers)
        if np.any(np.diff(numbers) <= 0):
            raise refused("increase")
        if self.scale == "logarithmic":
            checks.positive("Axis.values", numbers, remedy=self.log_remedy)
        kind = np.asarray(given).dtype
        held = np.asarray(given) if kind.kind in "iu" else _decimal(numbers) if kind == np.float32 else numbers
        object.__setattr__(self, "values", tuple(held.tolist()))

    def __repr__(self) -> str:
        few = self.scale == "categorical" or len(self.values) <= MAX_NUMBERS_SHOWN
        first, last = self.values[0], self.values[-1]
        values = ", ".join(map(str, self.values)) if few else f"{len(self.values)} values from {first:g} to {last:g}"
        values = f"any number from {first:g} to {last:g}" if self.continuous else values
        seen = "; a context" if self.context else ""
        return f"Axis({self.name!r}: {values}{f' {self.unit}' if self.unit else ''}; {self.scale}{seen})"

    @property
    def label(self) -> str:
        """Name with the unit, such as ``"temperature (°C)"``."""
        return labelled(self.name, self.unit)

    @classmethod
    @checked
    def of_categories(
        cls, name: Annotated[str, label], categories: Annotated[Sequence[str], anything], context: bool | None = None
    ) -> Self:
        """Return an axis of unordered categories, at least two distinct texts."""
        return cls(name=name, values=_labels("categories", categories), scale="categorical", context=context)

    @classmethod
    @checked
    def between(
        cls,
        name: Annotated[str, label],
        low: Annotated[float, finite],
        high: Annotated[float, finite, Above("low")],
        points: Annotated[int, whole(2, MOST_POINTS)] | None = None,
        scale: str = "linear",
        unit: str | None = None,
        context: bool | None = None,
    ) -> Self:
        """Return an axis of evenly spaced values from ``low`` to ``high``.

        Values are evenly spaced on the ``scale`` and include both ends. They are integers if the ends are and all others are whole.
        Without ``points`` the axis is continuous.

        Raises:
          InvalidArgument: unless ``low < high`` are finite (positive on a logarithmic scale) and ``points >= 2``.
        """
        checks.one_of("scale", scale, cls.scales[:2])
        if scale == "logarithmic":
            checks.positive("low", low, remedy=cls.log_remedy)
        if points is None:
            return cls(name=name, values=(float(low), float(high)), scale=scale, unit=unit, continuous=True, context=context)
        spaced = (np.geomspace if scale == "logarithmic" else np.linspace)(low, high, points)[1:-1].tolist()
        # Rounding errors of linear values are relative to the largest value.
        largest = max(abs(low), abs(high))
        values: list[Any] = [low, *(_rounded(value, value if scale == "logarithmic" else largest) for value in spaced), high]
        if isinstance(low, int | np.integer) and isinstance(high, int | np.integer) and all(value == int(value) for value in values):
            values = [int(value) for value in values]
        return cls(name=name, values=tuple(values), scale=scale, unit=unit, context=context)

    @classmethod
    def read(cls, name: str, table: ObjectTable, where: str) -> Self:
        """Return the axis of a table with values, categories or ends."""
        if not isinstance(table, Mapping):
            raise InvalidArgument(f"{where}: must be a table, got {short(table)}")
        make = cls.of_categories if "categories" in table else cls if "values" in table else cls.between
        _, *fields = inspect.signature(make).parameters.values()
        for field in table:
            check_known(field, [known.name for known in fields], f"{where}.{field}", "such an axis has")
        for field in [known.name for known in fields if known.default is known.empty]:
            if field not in table:
                raise InvalidArgument(
                    f"{where}.{field}: give values, or low and high, with points or without, or categories, got {short(dict(table))}"
                )
        try:
            return make(name, **table)
        except InvalidArgument as error:
            raise InvalidArgument(f"{where}.{str(error).removeprefix('Axis.')}") from error

    @property
    def scaled(self) -> np.ndarray:
        """Model's values ``[n]`` from 0 to 1, or numbers of categories."""
        if self.scale == "categorical":
            return np.arange(len(self.values), dtype=np.float64)
        numbers = np.log(self.values) if self.scale == "logarithmic" else np.asarray(self.values)
        return (numbers - numbers[0]) / (numbers[-1] - numbers[0])

    def side(self) -> Side | tuple[float, ...] | tuple[str, ...]:
        """Return a box's side, or raise ``InvalidArgument`` for an unsuitable axis."""
        if self.continuous:
            return log(*self.values) if self.scale == "logarithmic" else self.values
        if self.scale == "categorical":
            return self.values
        low, high = int(self.values[0]), int(self.values[-1])
        if self.scale == "logarithmic" or list(self.values) != list(range(low, high + 1)):
            words = "has values of its own beside continuous ones, where there may be categories and all whole numbers of a range"
            raise InvalidArgument(f"domain: the axis {self.name} {words}; give points to all axes between two numbers, or to none")
        return integers(low, high)

    def apart(self, value: object) -> np.ndarray:
        """Return distances ``[n]`` of the axis's values from a given value.

        Distances are shares of the axis on its scale, and infinite between categories.

        Raises:
          InvalidArgument: if the category is unknown, or the value is no number or beyond an end by more than half a step.
        """
        if self.scale == "categorical":
            if value not in self.values:
                near, known = did_you_mean(str(value), map(str, self.values)), ", ".join(map(str, self.values))
                raise InvalidArgument(f"{self.name}: there is no category {short(value)}{near}; known are {known}")
            return np.where([value == own for own in self.values], 0.0, np.inf)
        scalar.check(self.name, value)
        checks.finite(self.name, value)
        if self.scale == "logarithmic":
            checks.positive(self.name, value, remedy=self.log_remedy)
        *held, at = (np.log if self.scale == "logarithmic" else np.asarray)(np.asarray([*self.values, value], np.float64))
        extent, (first, second), (last, before) = held[-1] - held[0], held[:2], held[:-3:-1]
        if self.continuous:
            second, before = first, last
        if not first - (second - first) / 2 <= at + ON_GRID * extent or not at - ON_GRID * extent <= last + (last - before) / 2:
            ends = f"{self.values[0]:g} to {self.values[-1]:g}{f' {self.unit}' if self.unit else ''}"
            raise Outside(f"{self.name}: must lie on its axis, {ends}, got {short(value)}")
        return np.abs(np.asarray(held) - at) / extent


@dataclasses.dataclass(frozen=True)
class Space:
    """Points of an experiment, in the user's units and for the model.

    A given domain has no ``axes``. All points satisfy the constraints ``such_that``; ``kept`` are the numbers of such points on the whole
    grid of axes. Boxes and contexts have classes of their own.
    """

    # Keys of a point in events, the last of which says where the point is.
    keys: ClassVar[tuple[str, ...]] = ("index",)
    domain: Domain
    axes: tuple[Axis, ...]
    names: tuple[str, ...]
    own: tuple[Place, ...] = ()
    such_that: tuple[SuchThat, ...] = ()
    kept: np.ndarray | None = None

    @classmethod
    def of(cls, domain: Domain | Sequence[Axis] | Mapping[str, Any], such_that: Sequence[SuchThat] = ()) -> Space:
        """Return the space of a domain, axes or sides within constraints."""
        each_constraint("such_that", such_that)
        # Tables of boxes hold the arguments that were given.
        given: dict[str, Any] = {"such_that": such_that} if such_that else {}
        if isinstance(domain, Mapping):
            domain = box(domain, **given)
        elif isinstance(domain, Box) and such_that:
            made = origin_of(domain)
            if made is None or isinstance(domain, PartOfBox):
                words = "belong to the box here" if made else "need a box as domains.box makes it, not a changed one"
                raise InvalidArgument(f"such_that: constraints {words}; give them to domains.box(..., such_that=[...]) alone")
            domain = box(**{name: value for name, value in made.items() if name != "type"}, such_that=such_that)
        if isinstance(domain, Domain):
            names = tuple(domain.name_of(number) for number in range(domain.dimension))
            if isinstance(domain, Box):
                return BoxSpace(domain, (), names, such_that=domain.region.given if isinstance(domain, PartOfBox) else ())
            if isinstance(domain, Contextual):
                if such_that:
                    raise InvalidArgument("such_that: is not for a domain with contexts; give the actions constraints of their own")
                return ContextSpace(domain, (), names)
            return Space(part_of(domain, such_that), (), names, such_that=tuple(such_that))
        if not isinstance(domain, list | tuple) or not domain or not all(isinstance(axis, Axis) for axis in domain):
            words = "a domain of jaxbandit.domains, a list of session.Axis, or a mapping from names to (low, high) and the like"
            raise InvalidArgument(f"domain: must be {words}, got {short(domain)}")
        seen = [axis for axis in domain if axis.context]
        if seen and (len(seen) == len(domain) or such_that or any(axis.continuous for axis in domain)):
            words = "leave no axis to choose" if len(seen) == len(domain) else "need points on all axes, and no such_that"
            raise InvalidArgument(f"domain: the contexts {', '.join(axis.name for axis in seen)} {words}")
        axes = (*seen, *(axis for axis in domain if not axis.context))
        names = tuple(axis.name for axis in axes)
        if any(axis.continuous for axis in axes):
            return BoxSpace.of_axes(axes, such_that)
        grid = product([axis.scaled for axis in axes])
        labels = tuple(tuple(map(str, axis.values)) if axis.scale == "categorical" else () for axis in axes)
        named = replace(grid, names=names, categories=labels) if any(labels) else grid
        if seen:
            return ContextSpace(Contextual.of(named, len(seen), math.prod(len(axis.values) for axis in seen)), axes, names)
        if not such_that:
            return Space(named, axes, names)
        values = [np.arange(len(axis.values)) if axis.scale == "categorical" else np.asarray(axis.values, np.float64) for axis in axes]
        table = np.stack(np.meshgrid(*values, indexing="ij"), axis=-1).reshape(-1, len(values)).astype(np.float64)
        kept = np.flatnonzero(mask_of(such_that, names, table, labels))
        part = Domain(points=np.asarray(named.points)[kept], names=named.names, categories=named.categories)
        return Space(part, axes, names, such_that=tuple(such_that), kept=kept)

    @functools.cached_property
    def columns(self) -> dict[str, np.ndarray]:
        """Coordinates ``[M]`` of all points by name, in the user's units."""
        if self.axes:
            values = self._at_points([np.asarray(axis.values) for axis in self.axes], always=True)
            return dict(zip(self.names, values, strict=True))
        columns = {name: _decimal(column) for name, column in zip(self.names, np.asarray(self.domain.points, np.float64).T, strict=True)}
        labels = {name: labels for name, labels in zip(self.names, self.domain.categories, strict=False) if labels}
        return columns | {name: np.asarray(held)[columns[name].astype(int)] for name, held in labels.items()}

    @functools.cached_property
    def modelled(self) -> np.ndarray:
        """Points ``[M, d]`` for the model, in float64."""
        return np.asarray(self.domain.points, np.float64)

    @property
    def size(self) -> int:
        """Number of points ``M``."""
        return self.domain.size + len(self.own)

    @property
    def choices(self) -> int | str:
        """Number of points to choose among, ``"any"`` for a box."""
        return self.domain.size

    def event(self, point: int | Place | None = None) -> dict[str, Any]:
        """Return an event's fields for a point, ``None`` before the choice."""
        return {} if point is None else {"index": point}

    def entered(self, place: Sequence[float]) -> tuple[Space, Place]:
        """Return the space with an event's point, and the point's place."""
        return self, ()

    def place(self, point: Mapping[str, object]) -> Place:
        """Return a box's point in the unit cube, or raise as :meth:`nearest`."""
        return ()

    def measured(self, point: Mapping[str, object]) -> tuple[int, dict[str, object], float]:
        """Return nearest point's number (-1 on a box), plain values and distance."""
        index = self.nearest(point)
        distance, there = self.distance(point, index), self.point(index)
        return index, _point_in_numbers(point, there) if distance > ON_GRID else dict(there), distance

    def coordinates(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return points ``[n, d]`` for the model, perhaps outside, from columns."""
        found = []
        for number, (name, own) in enumerate(self.columns.items()):
            column = columns[name]
            if (column.dtype.kind == "U") != (own.dtype.kind == "U"):
                raise InvalidArgument(f"{name}: must be categories in both sessions, or numbers in both")
            if own.dtype.kind == "U":
                labels = [*self._labels(number)]
                if unknown := sorted({*column.tolist()}.difference(labels)):
                    raise InvalidArgument(f"{name}: there is no category {short(unknown[0])}; known are {', '.join(map(str, labels))}")
                column = np.asarray([labels.index(label) for label in column.tolist()])
            held = column.astype(np.float64)
            if self.is_logarithmic(name):
                checks.positive(name, held, remedy=Axis.log_remedy)
            found.append(self._scaled(number, held))
        return np.stack(found, axis=1)

    def _labels(self, number: int) -> Sequence[Any]:
        """Return the categories of an axis."""
        return self.axes[number].values if self.axes else self.domain.categories[number]

    def _scaled(self, number: int, values: np.ndarray) -> np.ndarray:
        """Return an axis's values ``[n]``, or numbers of categories, for the model."""
        if not self.axes or self.axes[number].scale == "categorical":
            return values
        axis = self.axes[number]
        every = np.asarray([axis.values[0], axis.values[-1], *values])
        every = np.log(every) if axis.scale == "logarithmic" else every
        return (every[2:] - every[0]) / (every[1] - every[0])

    def modelled_at(self, spot: Spot) -> np.ndarray:
        """Return a point ``[d]`` for the model."""
        return np.asarray(spot.place) if spot.place else self.modelled[spot.number]

    def near(self, spot: Spot) -> np.ndarray:
        """Return the mask ``[M]`` of points that count as the same."""
        return np.arange(self.size) == spot.number

    @property
    def outside(self) -> np.ndarray:
        """Points ``[M]`` that constraints exclude."""
        return np.zeros(self.size, bool)

    def point(self, point: int | Place) -> dict[str, float | str]:
        """Return a point's coordinates by name, given its number or place."""
        assert not isinstance(point, tuple), "a place is of a box"
        return {name: column[point].item() for name, column in self.columns.items()}

    def readable(self, place: Sequence[float]) -> Place:
        """Return ``place`` rounded to readable values in the user's units."""
        return tuple(place)

    def nearest(self, point: Mapping[str, object]) -> int:
        """Return the nearest point's number, or raise ``InvalidArgument`` without one."""
        apart = self._apart(point)
        if self.axes and self.kept is None:
            return int(np.ravel_multi_index([int(np.argmin(shares)) for shares in apart], self.domain.grid_shape))
        squares = np.sum(np.square(self._at_points(apart)), axis=0)
        if not np.isfinite(squares).any():
            raise InvalidArgument(f"point: there is none of these categories, got {short(dict(point))}")
        return int(np.argmin(squares))

    def context(self, given: Mapping[str, object] | None) -> int | None:
        """Return the number of the nearest context, ``None`` without contexts."""
        if given is not None:
            raise InvalidArgument(f"context: must be None, because no axis is a context, got {short(given)}")
        return None

    def context_of(self, index: Any) -> int | None:
        """Return the number of a point's context, ``None`` without contexts."""
        return None

    def in_context(self, point: int | Place, context: int | None) -> int | Place:
        """Return the point with the same action in a context."""
        return point

    def of_context(self, context: int | None) -> np.ndarray:
        """Return the mask ``[M]`` of a context's points, all for ``None``."""
        return np.ones(self.size, bool)

    def check_one_best(self, argument: str, why: str) -> None:
        """Raise ``InvalidArgument`` in a session with contexts, and say why."""

    def check_algorithm(self, algorithm: Algorithm) -> None:
        """Raise ``InvalidArgument`` if an algorithm cannot choose points here."""

    def distance(self, point: Mapping[str, object], index: int) -> float:
        """Return the distance of points as the largest share of an axis."""
        apart = self._apart(point)
        if self.axes and self.kept is None:
            numbers = np.unravel_index(index, self.domain.grid_shape)
            return float(max(shares[number] for shares, number in zip(apart, numbers, strict=True)))
        return float(max(shares[index] for shares in self._at_points(apart)))

    def _at_points(self, tables: list[np.ndarray], *, always: bool = False) -> list[np.ndarray]:
        """Return tables ``[M]`` of points from tables of the axes' values."""
        if self.kept is None and not always:
            return tables
        return [table.reshape(-1)[slice(None) if self.kept is None else self.kept] for table in np.meshgrid(*tables, indexing="ij")]

    def _apart(self, point: Mapping[str, object]) -> list[np.ndarray]:
        """Return relative distances of values ``[n]`` or points ``[M]`` by coordinate."""
        if not isinstance(point, Mapping) or point.keys() != set(self.names):
            raise InvalidArgument(f"point: must be a mapping from the names {', '.join(self.names)} to values, got {short(point)}")
        if self.axes:
            return [axis.apart(point[axis.name]) for axis in self.axes]
        apart = []
        for name, column in self.columns.items():
            if column.dtype.kind == "U":
                apart.append(np.where(column == point[name], 0.0, np.inf))
                continue
            scalar.check(name, point[name])
            checks.finite(name, point[name])
            apart.append(np.abs(column - checks.numbers(name, point[name])) / (np.ptp(column) or 1))
        return apart

    def is_logarithmic(self, name: str) -> bool:
        """Return whether an axis or a side has a logarithmic scale."""
        return any(axis.name == name and axis.scale == "logarithmic" for axis in self.axes)

    def label(self, name: str) -> str:
        """Return a coordinate's name with its unit."""
        return next((axis.label for axis in self.axes if axis.name == name), name)

    def table(self) -> dict[str, object]:
        """Return plain values for :meth:`from_table`."""
        written = _plain_constraints(self.such_that)
        limits: dict[str, object] = {"such_that": written} if written else {}
        return {"axes": [to_fields(axis, "axis") for axis in self.axes]} | limits if self.axes else self._domain_table(limits)

    def _domain_table(self, limits: dict[str, object]) -> dict[str, object]:
        """Return the plain values of a given domain within limits."""
        domain = self.domain
        held = {"product": [np.asarray(axis).tolist() for axis in domain.axes]} if domain.axes else {"points": to_plain(domain.points)}
        return held | {name: value for name in ("names", "categories") if (value := getattr(domain, name))} | limits

    @classmethod
    def from_table(cls, table: ObjectTable, such_that: Sequence[SuchThat] | None = None) -> Space:
        """Return a :meth:`table`'s space, with the functions of ``such_that``."""
        box_table: dict[str, Any] = table.get("box", {})
        written: Any = table.get("such_that", box_table.get("such_that", ()))
        given = tuple(such_that or ())
        if such_that is None and all(isinstance(one, str) for one in written):
            given = tuple(written)
        elif _plain_constraints(given) != list(written):
            shown = ", ".join(repr(one) if isinstance(one, str) else f"the function {one['function']}" for one in written)
            words = f"the session was made with {shown or 'no constraints'}"
            raise InvalidArgument(f"such_that: {words}; give the same, got {short(such_that)}")
        if "axes" in table:
            return cls.of([from_fields(Axis, axis, "axis") for axis in table["axes"]], given)
        if "box" in table:
            return cls.of(from_plain(Domain, box_table | ({"such_that": given} if given else {}), "box"))
        domain = product(table["product"]) if "product" in table else bare_points(table["points"])
        named = replace(domain, names=tuple(table.get("names", ())), categories=tuple(map(tuple, table.get("categories", ()))))
        return cls.of(Contextual.of(named, *table["contexts"]) if "contexts" in table else named, given)


@dataclasses.dataclass(frozen=True)
class ContextSpace(Space):
    """Points of contexts that are seen and actions that are chosen."""

    domain: Contextual

    def context(self, given: Mapping[str, object] | None) -> int | None:
        names = self.names[: self.domain.context_axes]
        if not isinstance(given, Mapping) or given.keys() != set(names):
            mapping = f"must be a mapping from {', '.join(names)} to the values seen now, got {short(given)}"
            options = " ".join(f"--context {name}=VALUE" for name in names)
            raise InvalidArgument(f"context: {either(mapping, f'give the values seen now, {options}')}")
        return self.context_of(self.nearest({**self.point(0), **given}))

    def context_of(self, index: Any) -> int | None:
        # A damaged journal may have anything in its place.
        return index // self.domain.actions if isinstance(index, int) else None

    def in_context(self, point: int | Place, context: int | None) -> int | Place:
        actions = self.domain.actions
        return point if context is None or isinstance(point, tuple) else context * actions + point % actions

    def of_context(self, context: int | None) -> np.ndarray:
        numbers = np.arange(self.size) // self.domain.actions
        return np.ones(self.size, bool) if context is None else numbers == context

    def check_one_best(self, argument: str, why: str) -> None:
        raise InvalidArgument(f"{argument}: needs a session without contexts, because {why}")

    def check_algorithm(self, algorithm: Algorithm) -> None:
        if algorithm.traits.certifies or not algorithm.on_contexts:
            raise InvalidArgument(
                f"algorithm: {type(algorithm).__name__} cannot choose among the actions of a context in a session; take Cei, Pdcbo,"
                " Rpol or another algorithm that scores points"
            )

    def _domain_table(self, limits: dict[str, object]) -> dict[str, object]:
        return super()._domain_table(limits) | {"contexts": [self.domain.context_axes, self.domain.contexts]}


@dataclasses.dataclass(frozen=True)
class BoxSpace(Space):
    """Points of a box: its candidates, then the places of tickets."""

    keys: ClassVar[tuple[str, ...]] = ("index", "place")
    domain: Box

    @classmethod
    def of_axes(cls, axes: Sequence[Axis], such_that: Sequence[SuchThat] = ()) -> BoxSpace:
        """Return the box of axes, even without continuous ones."""
        given: dict[str, Any] = {"such_that": such_that} if such_that else {}
        domain = box({axis.name: axis.side() for axis in axes}, **given)
        return cls(domain, tuple(axes), tuple(axis.name for axis in axes), such_that=tuple(such_that))

    @functools.cached_property
    def columns(self) -> dict[str, np.ndarray]:
        """Coordinates ``[M]`` of all points by name, in the user's units."""
        columns = dict[str, np.ndarray]()
        for name, column, side in zip(self.names, self.domain.from_unit(self.modelled).T, self.domain.sides, strict=True):
            if side.scale == "integers":
                columns[name] = np.asarray(side.labels)[column.astype(int)] if side.labels else column.astype(int)
                continue
            # Numbers without rounding errors of the unit cube have 14 digits.
            parts = 10.0 ** (13 - np.floor(np.log10(column if side.scale == "log" else max(abs(side.low), abs(side.high)))))
            columns[name] = np.asarray(np.rint(column * parts) / parts + 0.0)
        return columns

    @functools.cached_property
    def modelled(self) -> np.ndarray:
        """Points ``[M, d]`` of the unit cube, in float64."""
        points = np.asarray(self.domain.points, np.float64)
        return np.concatenate([self.domain.to_unit(points), np.asarray(self.own, np.float64).reshape(-1, points.shape[1])])

    @property
    def choices(self) -> int | str:
        return "any"

    def event(self, point: int | Place | None = None) -> dict[str, Any]:
        return {"index": self.size, **({"place": list(point)} if isinstance(point, tuple) else {})}

    def entered(self, place: Sequence[float]) -> tuple[Space, Place]:
        own = tuple(map(float, place))
        checks.shape("place", own, (self.domain.dimension,))
        checks.finite("place", np.asarray(own))
        return dataclasses.replace(self, own=(*self.own, own)), own

    def place(self, point: Mapping[str, object]) -> Place:
        self._apart(point)
        named = list(zip(self.names, self.domain.sides, strict=True))
        if unknown := [name for name, side in named if side.labels and point[name] not in side.labels]:
            raise InvalidArgument(f"{unknown[0]}: there is no such category, got {short(dict(point))}")
        held = np.asarray([side.labels.index(str(point[name])) if side.labels else point[name] for name, side in named], np.float64)
        unit = self.domain.to_unit(held)
        if np.any(np.abs(unit - 0.5) > 0.5 + ON_GRID):
            raise Outside(f"point: must lie in the box, got {short(dict(point))}")
        return tuple(np.clip(unit, 0, 1).tolist())

    def measured(self, point: Mapping[str, object]) -> tuple[int, dict[str, object], float]:
        # This raises for a point outside the box.
        self.place(point)
        return -1, _point_in_numbers(point, point), 0.0

    def distance(self, point: Mapping[str, object], index: int) -> float:
        return 0.0

    def _labels(self, number: int) -> Sequence[Any]:
        return self.domain.sides[number].labels

    def _scaled(self, number: int, values: np.ndarray) -> np.ndarray:
        return np.asarray(self.domain.sides[number].to_unit(values))

    def near(self, spot: Spot) -> np.ndarray:
        return super().near(spot) | self.domain.are_near(self.modelled, np.asarray(spot.place), BESIDE)

    @property
    def outside(self) -> np.ndarray:
        return ~self.domain.holds(self.modelled) if isinstance(self.domain, PartOfBox) else super().outside

    def readable(self, place: Sequence[float]) -> Place:
        """Return ``place`` rounded to readable values in the user's units.

        Numbers have six digits or a millionth's precision. A place that constraints exclude after rounding keeps all digits.
        """
        point = self.point(tuple(place))
        for (name, value), side in zip(point.items(), self.domain.sides, strict=True):
            if isinstance(value, float):
                digits = [5 - math.floor(math.log10(size)) for size in (side.high - side.low, abs(value)) if size > 0]
                point[name] = round(value, max(digits)) + 0.0
        found = self.place(point)
        if not isinstance(self.domain, PartOfBox):
            return found
        # A point with few digits within this share of the sides of an edge is moved onto it.
        on_edge = 2e-6
        rounded = self.domain.settled(np.asarray(found), on_edge)
        return tuple((rounded if self.domain.is_inside(rounded) else self.domain.settled(np.asarray(place, np.float64))).tolist())

    def point(self, point: int | Place) -> dict[str, float | str]:
        if isinstance(point, tuple):
            return dataclasses.replace(self, own=(point,)).point(self.domain.size)
        return super().point(point)

    def check_algorithm(self, algorithm: Algorithm) -> None:
        if not algorithm.on_boxes:
            raise InvalidArgument(
                f"algorithm: {type(algorithm).__name__} chooses among the points of a grid; give every axis a number of points"
            )

    def is_logarithmic(self, name: str) -> bool:
        return self.domain.sides[self.names.index(name)].scale == "log"

    def _domain_table(self, limits: dict[str, object]) -> dict[str, object]:
        made = origin_of(self.domain) if limits else None
        return {"box": to_plain(self.domain) if made is None else to_plain({**made, **limits})}


def _point_in_numbers(point: Mapping[str, object], there: Mapping[str, object]) -> dict[str, object]:
    """Return a point's numbers as floats or integers, and labels as ``there``."""
    return {name: held if isinstance(held, str) else number_of(point[name]) for name, held in there.items()}


def _plain_constraints(such_that: Sequence[SuchThat]) -> list[Any]:
    """Return constraints as texts, and functions by their names."""
    return [one if isinstance(one, str) else {"function": name_of(one)} for one in such_that]
