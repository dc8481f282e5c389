"""Axes and outputs of an experiment in the user's own words and units, and as the model sees them.

The model works on a grid over the axes, scaled to ``[0, 1]``. Algorithms maximise a reward subject to constraints ``<= 0``: values are
turned when they come in, and beliefs when they go out.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.codec import Table, from_fields, to_fields, to_plain
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import AtLeast, finite, scalar, whole
from jaxbandit.core.paths import check_known
from jaxbandit.core.pytree import MOST_NUMBERS_SHOWN, replace
from jaxbandit.domains import MOST_POINTS, Domain, product
from jaxbandit.domains import points as bare_points
from jaxbandit.problems.goals import Constraint, Objective

SCALES = ("linear", "logarithmic", "categorical")
RANGE = ("low", "high", "points")
LARGEST = float(np.finfo(np.float64).max) / 4


@dataclasses.dataclass(frozen=True, repr=False)
class Axis:
    """One quantity that is chosen: its name and the values that it can take.

    The model sees numbers scaled to ``[0, 1]``, so that a kernel's length-scale is a share of the axis, and categories, which have no
    order, as ``0, 1, ...``; these need a kernel of their own, see :class:`~jaxbandit.kernels.OnAxes`.

    Attributes:
      name: its name.
      values: increasing values ``[n]``, at least two; positive on a logarithmic scale. On a categorical one distinct texts.
      scale: ``"linear"`` or ``"logarithmic"``: on which scale near values have near results; or ``"categorical"``.
    """

    name: str
    values: tuple[float, ...] | tuple[str, ...]
    scale: str = "linear"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise InvalidArgument(f"Axis.name: must be text that is not empty, got {short(self.name)}")
        checks.one_of("Axis.scale", self.scale, SCALES)
        given: Any = self.values
        if self.scale == "categorical":
            if not isinstance(given, list | tuple) or len(given) < 2 or not all(isinstance(item, str) and item for item in given):
                raise InvalidArgument(f"Axis.values: must be at least two texts, the names of categories, got {short(given)}")
            if len(set(given)) < len(given):
                raise InvalidArgument(f"Axis.values: must be different categories, got {short(given)}")
        else:
            numbers = checks.numbers("Axis.values", given)
            if numbers.ndim != 1 or numbers.size < 2:
                raise InvalidArgument(f"Axis.values: must be at least two numbers, got {short(given)}")
            checks.finite("Axis.values", numbers)
            if np.any(np.diff(numbers) <= 0):
                raise InvalidArgument(f"Axis.values: must increase, got {short(given)}")
            if self.scale == "logarithmic":
                checks.positive("Axis.values", numbers, remedy="a logarithmic scale has positive values only")
            given = numbers.tolist()
        object.__setattr__(self, "values", tuple(given))

    def __repr__(self) -> str:
        few = self.scale == "categorical" or len(self.values) <= MOST_NUMBERS_SHOWN
        first, last = self.values[0], self.values[-1]
        values = ", ".join(map(str, self.values)) if few else f"{len(self.values)} values from {first:g} to {last:g}"
        return f"Axis({self.name!r}: {values}; {self.scale})"

    @classmethod
    @checked
    def of_categories(cls, name: str, categories: Annotated[Sequence[str], AtLeast(2)]) -> Self:
        """Return an axis of categories without an order; raises ``InvalidArgument`` unless they are at least two different texts."""
        return cls(name=name, values=tuple(categories), scale="categorical")

    @classmethod
    @checked
    def between(
        cls,
        name: str,
        low: Annotated[float, finite],
        high: Annotated[float, finite],
        points: Annotated[int, whole(2, MOST_POINTS)],
        scale: str = "linear",
    ) -> Self:
        """Return an axis of evenly spaced values from ``low`` to ``high``, both included, on its scale.

        Raises:
          InvalidArgument: unless ``low < high`` are finite, and positive on a logarithmic scale, and ``points >= 2``.
        """
        checks.one_of("scale", scale, SCALES[:2])
        if not low < high:
            raise InvalidArgument(f"low: must be below high, got {short(low)} and {short(high)}")
        if scale == "logarithmic":
            checks.positive("low", low, remedy="a logarithmic scale has positive values only")
        spaced = (np.geomspace if scale == "logarithmic" else np.linspace)(low, high, points)
        return cls(name=name, values=tuple(spaced.tolist()), scale=scale)

    @classmethod
    def read(cls, name: str, table: Table, where: str) -> Self:
        """Return the axis that a table describes: ``values``, or ``low``, ``high`` and ``points``, with a ``scale``; or ``categories``."""
        if not isinstance(table, Mapping):
            raise InvalidArgument(f"{where}: must be a table, got {short(table)}")
        for field in table:
            check_known(field, ["values", *RANGE, "scale", "categories"], f"{where}.{field}", "an axis has")
        missing = [field for field in RANGE if field not in table]
        try:
            if "categories" in table:
                if len(table) > 1:
                    raise InvalidArgument(f"categories: an axis of categories has nothing else, got {short(dict(table))}")
                return cls(name=name, values=table["categories"], scale="categorical")
            if "values" not in table and missing:
                raise InvalidArgument(f"{missing[0]}: give values, or low, high and points, or categories, got {short(dict(table))}")
            if "values" in table and len(missing) < len(RANGE):
                raise InvalidArgument(f"values: give either values, or low, high and points, got {short(dict(table))}")
            return cls(name=name, **table) if "values" in table else cls.between(name, **table)
        except InvalidArgument as error:
            raise InvalidArgument(f"{where}.{error}") from error

    @property
    def scaled(self) -> np.ndarray:
        """The values as the model sees them, ``[n]`` from 0 to 1; categories as ``0, 1, ...``."""
        if self.scale == "categorical":
            return np.arange(len(self.values), dtype=np.float64)
        numbers = np.log(self.values) if self.scale == "logarithmic" else np.asarray(self.values)
        return (numbers - numbers[0]) / (numbers[-1] - numbers[0])


@dataclasses.dataclass(frozen=True)
class Space:
    """The points among which an experiment chooses: as the user names them, and as the model sees them.

    Attributes:
      domain: the points as the model sees them.
      axes: the user's axes; empty where a domain was given as it is.
      names: names of the coordinates.
    """

    domain: Domain
    axes: tuple[Axis, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, domain: Domain | Sequence[Axis]) -> Space:
        """Return the space of a domain, whose coordinates are called ``x1``, ``x2`` ... without names of theirs, or of axes.

        Raises:
          InvalidArgument: on anything else.
        """
        if isinstance(domain, Domain):
            return cls(domain=domain, axes=(), names=tuple(domain.name_of(number) for number in range(domain.dimension)))
        if not isinstance(domain, list | tuple) or not domain or not all(isinstance(axis, Axis) for axis in domain):
            raise InvalidArgument(f"domain: must be a domain of jaxbandit.domains, or a list of session.Axis, got {short(domain)}")
        names = tuple(axis.name for axis in domain)
        if len(set(names)) < len(names):
            raise InvalidArgument(f"domain: must have axes of different names, got {short(list(names))}")
        grid = product([axis.scaled for axis in domain])
        labels = tuple(tuple(map(str, axis.values)) if axis.scale == "categorical" else () for axis in domain)
        return cls(domain=replace(grid, names=names, categories=labels) if any(labels) else grid, axes=tuple(domain), names=names)

    @functools.cached_property
    def coordinates(self) -> np.ndarray:
        """The points in the user's units, ``[M, d]``; categories as ``0, 1, ...``."""
        if not self.axes:
            return np.asarray(self.domain.points, np.float64)
        values = [axis.scaled if axis.scale == "categorical" else np.asarray(axis.values) for axis in self.axes]
        return np.stack(np.meshgrid(*values, indexing="ij"), axis=-1).reshape(-1, len(self.axes))

    def column(self, number: int, points: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return one coordinate of some points ``[n]``, in the user's units: numbers, or the labels of categories."""
        values = self.coordinates[points, number]
        return np.asarray(self.domain.categories[number])[values.astype(int)] if self.domain.is_categorical(number) else values

    def point(self, index: int) -> dict[str, float | str]:
        """Return a point by the names of its coordinates, in the user's units, or by the labels of categories."""
        return {name: self.column(number, np.asarray([index])).tolist()[0] for number, name in enumerate(self.names)}

    def scaled(self, index: int) -> dict[str, float]:
        """Return a point by the names of its coordinates, as the model sees them."""
        return dict(zip(self.names, np.asarray(self.domain.points[index], np.float64).tolist(), strict=True))

    def table(self) -> dict[str, object]:
        """Return plain values from which :meth:`from_table` makes the same space."""
        if self.axes:
            return {"axes": [to_fields(axis, "axis") for axis in self.axes]}
        domain = self.domain
        axes = [to_plain(np.asarray(axis)) for axis in domain.axes]
        labels = {"names": list(domain.names), "categories": list(map(list, domain.categories))}
        return ({"product": axes} if axes else {"points": to_plain(domain.points)}) | {name: held for name, held in labels.items() if held}

    @classmethod
    def from_table(cls, table: Table) -> Space:
        """Return the space that :meth:`table` describes."""
        if "axes" in table:
            return cls.of([from_fields(Axis, axis, "axis") for axis in table["axes"]])
        domain = product(table["product"]) if "product" in table else bare_points(table["points"])
        return cls.of(replace(domain, names=tuple(table.get("names", ())), categories=tuple(map(tuple, table.get("categories", ())))))


@dataclasses.dataclass(frozen=True)
class Outputs:
    """All outputs of an experiment: the objective, then the constraints.

    Attributes:
      objective: what is maximised or minimised.
      constraints: bounds on further outputs.
    """

    objective: Objective
    constraints: tuple[Constraint, ...]

    @classmethod
    def read(cls, objective: str, constraints: Sequence[str]) -> Outputs:
        """Return the outputs that texts describe; raises ``InvalidArgument`` on a name that stands twice."""
        if isinstance(constraints, str) or not isinstance(constraints, list | tuple):
            raise InvalidArgument(f"constraints: must be a list of texts such as 'cost <= 2.5', got {short(constraints)}")
        outputs = cls(Objective.read(objective), tuple(Constraint.read(text, f"constraints[{n}]") for n, text in enumerate(constraints)))
        for number, name in enumerate(outputs.names):
            if name in outputs.names[:number]:
                raise InvalidArgument(f"constraints: must have names of their own, got {name!r} twice")
        return outputs

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the outputs, the objective's first."""
        return (self.objective.name, *(constraint.name for constraint in self.constraints))

    @functools.cached_property
    def sides(self) -> tuple[tuple[tuple[int, float], ...], ...]:
        """The functions that are modelled of each output ``y``, as ``(sign, c)`` for ``sign y - c``: two of an equality."""
        return (((self.objective.sign, 0.0),), *(constraint.sides for constraint in self.constraints))

    @property
    def modelled(self) -> int:
        """Number of functions that the model has, ``1 + m``: an equality counts twice."""
        return sum(map(len, self.sides))

    @functools.cached_property
    def rows(self) -> tuple[tuple[int, ...], ...]:
        """The modelled functions of each output, by number."""
        count = itertools.count()
        return tuple(tuple(next(count) for _ in sides) for sides in self.sides)

    def inward(self, values: Mapping[str, float]) -> dict[int, float]:
        """Return the values of modelled functions, by number, that ``values`` of outputs by name amount to."""
        each = zip(self.names, self.rows, self.sides, strict=True)
        return {
            row: sign * values[name] - bound
            for name, rows, sides in each
            if name in values
            for row, (sign, bound) in zip(rows, sides, strict=True)
        }

    def outward(self, mean: np.ndarray, sd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and deviation ``[n, M]`` of the ``n`` outputs in their own units, from those ``[1 + m, M]`` of the model."""
        first = [(rows[0], *sides[0]) for rows, sides in zip(self.rows, self.sides, strict=True)]
        return np.stack([sign * (mean[row] + bound) for row, sign, bound in first]), sd[np.asarray([row for row, *_ in first])]

    def prior_means(self, given: Sequence[float]) -> list[float]:
        """Return prior means of the modelled functions ``[1 + m]`` from those of the outputs ``[n]``."""
        inward = self.inward(dict(zip(self.names, given, strict=True)))
        return [inward[row] for row in range(self.modelled)]

    def probability_of_feasibility(self, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
        """Return the probability ``[M]`` that all constraints hold, from independent normal beliefs ``[n, M]`` in the outputs' units."""
        from scipy.special import ndtr  # comes with JAX; imported here because start-up should not pay for it

        probability = np.ones(mean.shape[1:])
        for number, constraint in enumerate(self.constraints, 1):
            scale = np.maximum(sd[number], np.finfo(np.float64).tiny)
            low = constraint.bound - constraint.tolerance if constraint.relation != "<=" else -np.inf
            high = constraint.bound + constraint.tolerance if constraint.relation != ">=" else np.inf
            probability *= ndtr((high - mean[number]) / scale) - ndtr((low - mean[number]) / scale)
        return probability


def told_values(
    outputs: Outputs,
    values: Mapping[str, float] | None,
    reward: float | None = None,
    constraints: float | Sequence[float | None] | None = None,
    largest: float = LARGEST,
) -> dict[str, float]:
    """Return the values that are told, by name; raises ``InvalidArgument`` on what is no value of an output, or larger than ``largest``."""
    if values is not None and not isinstance(values, Mapping):
        raise InvalidArgument(f"values: must be a mapping from the names {', '.join(outputs.names)} to numbers, got {short(values)}")
    listed = np.full(len(outputs.constraints), None).tolist()
    if constraints is not None:
        listed = list(constraints) if isinstance(constraints, list | tuple | np.ndarray) else [constraints]
        if len(listed) != len(outputs.constraints):
            raise InvalidArgument(f"constraints: must hold {len(outputs.constraints)} values, one for each, got {short(constraints)}")
    named = dict(values or {})
    in_order = {name: value for name, value in zip(outputs.names, [reward, *listed], strict=True) if value is not None}
    for name in in_order.keys() & named.keys():
        raise InvalidArgument(f"values: {name} is told twice, as {short(named[name])} and in order as {short(in_order[name])}")
    if not (given := named | in_order):
        raise InvalidArgument(f"values: must hold at least one of {', '.join(outputs.names)}, got none")
    for name, value in given.items():
        if name not in outputs.names:
            raise InvalidArgument(f"values: there is no output {short(name)}; known are {', '.join(outputs.names)}")
        scalar.check(name, value)
        given[name] = float(checks.numbers(name, value))
        if not math.isfinite(given[name]) or any(abs(part) > largest for part in outputs.inward({name: given[name]}).values()):
            raise InvalidArgument(f"{name}: must be a finite number, got {short(value)}; drop the ticket if the run failed")
    return given
