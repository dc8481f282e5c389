"""Problems from data: goals in words, tables of arms."""

from __future__ import annotations

import csv
import dataclasses
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np

from jaxbandit.core.checks import InvalidArgument, did_you_mean, short
from jaxbandit.core.codec import reads_files
from jaxbandit.core.declare import checked
from jaxbandit.core.doors import advice_on, number_of
from jaxbandit.core.fields import Check, choice, of_class, text
from jaxbandit.core.pytree import replace
from jaxbandit.delays import Delay
from jaxbandit.domains import Domain, arms, points, product
from jaxbandit.host.files import opened_text, reason_of
from jaxbandit.problems.base import Problem, from_tables
from jaxbandit.problems.noise import Noise

__all__ = ["from_columns", "from_csv"]

Columns: TypeAlias = Mapping[str, Sequence[object]]
"""Columns ``[M]`` by name."""
Repeated: TypeAlias = Annotated[str, choice("refuse", "average")]
Blanks: TypeAlias = Annotated[str, choice("refuse", "drop")]

NAME = r"[^<>=\s][^<>=]*?"


@dataclasses.dataclass(frozen=True)
class Objective:
    """The output to maximise, with ``sign`` 1, or minimise, with -1."""

    name: str
    sign: int

    @classmethod
    def read(cls, text: str) -> Objective:
        """Return the objective of ``"maximise NAME"`` or ``"minimise NAME"``."""
        pattern = re.compile(rf"\s*(maximi|minimi)[sz]e\s+({NAME})\s*", re.IGNORECASE)
        match = pattern.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise InvalidArgument(f"objective: must be 'maximise NAME' or 'minimise NAME', got {short(text)}")
        return cls(name=match[2], sign=1 if match[1].lower() == "maximi" else -1)

    def __str__(self) -> str:
        return f"{'maximise' if self.sign > 0 else 'minimise'} {self.name}"


@dataclasses.dataclass(frozen=True)
class Constraint:
    """An output with one bound or two on its mean.

    Attributes:
      name: the output.
      relation: ``"<="``, ``">="`` or ``"="``.
      bound: ``c``.
      tolerance: largest distance from ``c`` for an equality, > 0; 0 for inequalities.
      upper: second bound, > ``c``, of an output with two; its relation is ``">="``.
    """

    name: str
    relation: str
    bound: float
    tolerance: float = 0.0
    upper: float | None = None

    @classmethod
    def read(cls, text: str, where: str = "constraints") -> Constraint:
        """Return the constraint that a text describes.

        Texts are ``"NAME <= c"``, ``"NAME >= c"`` or ``"NAME = c +- tolerance"``, with a tolerance > 0 because of noise.
        """
        digits = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
        pattern = rf"\s*({NAME})\s*(<=|>=|=)\s*({digits})\s*(?:\+-\s*({digits})\s*)?"
        match = re.fullmatch(pattern, text) if isinstance(text, str) else None
        if match is None:
            words = f"must be 'NAME <= NUMBER', 'NAME >= NUMBER' or 'NAME = NUMBER +- NUMBER', got {short(text)}"
            number = text.rpartition("=")[2].strip() if isinstance(text, str) else ""
            raise InvalidArgument(f"{where}: {words}{advice_on(number) if number[-1:].isalnum() or number[-1:] == '%' else ''}")
        name, relation, bound, tolerance = match[1], match[2], float(match[3]), float(match[4] or 0)
        if not math.isfinite(bound) or not math.isfinite(tolerance):
            raise InvalidArgument(f"{where}: must be a finite number, got {short(text)}")
        if (relation == "=") != (tolerance > 0):
            words = "needs a tolerance > 0, as in 'NAME = 7 +- 0.1'" if relation == "=" else "takes no tolerance, only an equality does"
            raise InvalidArgument(f"{where}: the constraint {words}, got {short(text)}")
        return cls(name=name, relation=relation, bound=bound, tolerance=tolerance)

    @classmethod
    def merged(cls, constraints: Sequence[Constraint]) -> tuple[Constraint, ...]:
        """Return constraints with both limits of an output merged into one.

        Raises ``InvalidArgument`` on other constraints of one output, and on a lower limit that is not below the upper one.
        """
        merged: dict[str, Constraint] = {}
        for number, new in enumerate(constraints):
            old = merged.get(new.name, new)
            if old is not new:
                low, high = (old, new) if old.relation == ">=" else (new, old)
                if (low.relation, high.relation) != (">=", "<=") or low.upper is not None:
                    words = "an output can have one lower and one upper limit, or be equal to a number"
                    raise InvalidArgument(f"constraints[{number}]: {words}, got '{new}' beside '{old}'")
                if not low.bound < high.bound:
                    remedy = "the lower limit must be below the upper one; 'NAME = NUMBER +- NUMBER' asks for one value"
                    raise InvalidArgument(f"constraints[{number}]: {remedy}, got '{new}' beside '{old}'")
                new = dataclasses.replace(low, upper=high.bound)
            merged[new.name] = new
        return tuple(merged.values())

    def __str__(self) -> str:
        return ", ".join(text.replace(".0 +-", " +-").removesuffix(".0") for text in self.written)

    @property
    def written(self) -> tuple[str, ...]:
        """Texts for a journal, one per limit, with numbers as ``3.0``."""
        first = f"{self.name} {self.relation} {self.bound!r}" + (f" +- {self.tolerance!r}" if self.tolerance else "")
        return (first,) if self.upper is None else (first, f"{self.name} <= {self.upper!r}")

    @property
    def centre(self) -> float:
        """The bound, or the middle between two."""
        return self.bound if self.upper is None else (self.bound + self.upper) / 2

    @property
    def sides(self) -> tuple[tuple[int, float], ...]:
        """Equivalent inequalities ``sign y - c <= 0``, each as ``(sign, c)``."""
        above, below = (1, self.bound + self.tolerance), (-1, self.tolerance - self.bound)
        if self.upper is not None:
            return (1, self.upper), below
        return {"<=": (above,), ">=": (below,), "=": (above, below)}[self.relation]

    def violation(self, value: np.ndarray | float) -> np.ndarray:
        """Return values' violation of the constraint, ``>= 0``, in the output's units."""
        return np.maximum(np.max([sign * np.asarray(value) - bound for sign, bound in self.sides], axis=0), 0)


def are_columns(value: object) -> bool:
    """Return whether a value is a mapping or a DataFrame of pandas."""
    # A caller that has a DataFrame has loaded pandas.
    pandas = sys.modules.get("pandas")
    return isinstance(value, Mapping) or (pandas is not None and isinstance(value, pandas.DataFrame))


@checked
def from_columns(
    columns: Annotated[Columns, Check("a mapping from names to columns, or a pandas.DataFrame", are_columns)],
    objective: str,
    constraints: Sequence[str] = (),
    *,
    points: Sequence[str] | None = None,
    repeated: Repeated = "refuse",
    blanks: Blanks = "refuse",
    noise: Noise | None = None,
    delay: Delay | None = None,
    name: str = "table",
) -> Problem:
    """Make a problem with the rows of a table as arms.

    The table may be a ``pandas.DataFrame``. Rows that are all points of a grid, each once, make a product grid, in its order; others keep
    their order.

    Args:
      columns: columns ``[M]`` by name.
      objective: ``"maximise NAME"`` or ``"minimise NAME"``, with the name of the column of its mean values.
      constraints: ``"NAME <= 80"`` or ``"NAME >= 0.5"`` each, on the mean values of a column.
      points: names of the columns with the coordinates of a point; a column of texts is an axis of categories, in the order of their
        first appearance. ``None``: arms without coordinates, numbered from 0, for an explicit Gram matrix.
      repeated: treatment of several rows at a point, ``"refuse"`` or ``"average"``.
      blanks: treatment of a row with an empty or NaN entry in one of the columns above, ``"refuse"`` or ``"drop"``.
      noise: a noise model; default standard Gaussian noise.
      delay: a delay model; ``None`` for no delay.
      name: label of the problem in tables, figures and files.

    Raises:
      InvalidArgument: on a column that is missing, on texts and on NaN or infinite numbers where numbers are expected (by column and row),
        on columns of different lengths, on points that are repeated, and on goals that cannot be read.
    """
    table = columns_of_one_length("columns", columns)
    goal = Objective.read(objective)
    bounds = [Constraint.read(bound, f"constraints[{number}]") for number, bound in enumerate(constraints)]
    if any(bound.relation == "=" for bound in bounds):
        raise InvalidArgument(f"constraints: an equality is made by problems.with_equalities, got {short(list(constraints))}")
    # This raises an error on constraints that contradict each other.
    Constraint.merged(bounds)
    named = {"objective": [goal.name], "constraints": [bound.name for bound in bounds], "points": points or ()}
    for argument, label in ((argument, label) for argument, labels in named.items() for label in labels):
        if label not in table:
            known = ", ".join(map(repr, table))
            raise InvalidArgument(f"{argument}: there is no column {label!r}{did_you_mean(label, table)}; got {known}")
    used = [table[label] for labels in named.values() for label in labels]
    rows = [row for row, cells in enumerate(zip(*used, strict=True)) if blanks == "refuse" or not any(map(is_blank, cells))]
    if not rows:
        raise InvalidArgument(f"blanks: all {len(used[0])} rows have one, of which none is left")
    costs = [sign * numbers_of(table, bound.name, rows) - limit for bound in bounds for sign, limit in bound.sides]
    domain, places = _domain(table, points, rows, average=repeated == "average")
    means = [np.bincount(places, values) / np.bincount(places) for values in (goal.sign * numbers_of(table, goal.name, rows), *costs)]
    return from_tables(domain, means[0], np.reshape(means[1:], (-1, domain.size)), noise=noise, delay=delay, name=name)


def columns_of_one_length(argument: str, columns: Columns) -> dict[str, list[object]]:
    """Return columns of Python's values, or raise unless their lengths agree."""
    arrays = {str(label): np.asarray(columns[label], object) for label in columns}
    lengths = {label: column.shape for label, column in arrays.items()}
    if any(len(shape) != 1 for shape in lengths.values()) or len(set(lengths.values())) > 1:
        given = ", ".join(f"{label!r} {list(shape)}" for label, shape in lengths.items())
        raise InvalidArgument(f"{argument}: must all have one length [M], got {given}")
    if not lengths or (0,) in lengths.values():
        raise InvalidArgument(f"{argument}: must have at least one row, got none of {', '.join(map(repr, lengths)) or 'no columns'}")
    return {label: column.tolist() for label, column in arrays.items()}


@reads_files
@checked
def from_csv(
    path: Annotated[str | Path, text | of_class(Path, "the path of a file")],
    objective: str,
    constraints: Sequence[str] = (),
    *,
    points: Sequence[str] | None = None,
    repeated: Repeated = "refuse",
    blanks: Blanks = "refuse",
    noise: Noise | None = None,
    delay: Delay | None = None,
    name: str = "",
    delimiter: str = ",",
) -> Problem:
    """Make a problem with the rows of a CSV file as arms.

    The file is in UTF-8, and its first line names the columns.

    Args:
      path: the file; a relative path starts at the working directory.
      objective, constraints, points, repeated, blanks, noise, delay: as for :func:`from_columns`.
      name: label of the problem; default the name of the file.
      delimiter: separator of columns, one character.

    Raises:
      InvalidArgument: as :func:`from_columns`, on a file that cannot be read, and on rows of another length than the first.
    """
    columns, name = columns_of(path, delimiter), name or Path(path).stem
    how: dict[str, Any] = {"points": points, "repeated": repeated, "blanks": blanks, "noise": noise, "delay": delay, "name": name}
    return from_columns(columns, objective, constraints, **how)


def rows_of_csv(path: str | Path) -> np.ndarray:
    """Return the rows ``[n, c]`` of a CSV file under its header."""
    table = columns_of(path)
    return np.stack([numbers_of(table, name) for name in table], axis=1)


def columns_of(path: str | Path, delimiter: str | None = ",", argument: str = "path") -> Columns:
    """Return the columns of a CSV file, as texts.

    Raises the errors of :func:`from_csv`, about an ``argument``. Without a ``delimiter`` the first line determines it: a comma, a semicolon
    or a tab. With a semicolon or a tab numbers may have decimal commas.
    """
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n\0'):
        raise InvalidArgument(f"delimiter: must be one character, no quote and no line's end, got {short(delimiter)}")
    try:
        with opened_text(path, newline="") as file:
            lines = file.readlines()
        separator = delimiter or next((mark for mark in ";\t" if mark in "".join(lines[:1]) and "," not in lines[0]), ",")
        rows = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=separator) if any(map(str.strip, row))]
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{argument}: {str(path)!r} is no text in UTF-8; save it as CSV in UTF-8") from error
    except (OSError, ValueError, csv.Error) as error:
        raise InvalidArgument(f"{argument}: cannot read {str(path)!r}: {reason_of(error)}") from error
    if len(rows) < 2:
        raise InvalidArgument(f"{argument}: {str(path)!r} must hold a line of names and at least one row, got {len(rows)} lines")
    # Spreadsheets write empty columns behind the last one.
    width = max((number for number, name in enumerate(rows[0], start=1) if name), default=len(rows[0]))
    header, *rows = (row[:width] if not any(row[width:]) else row for row in rows)
    if len(set(header)) < len(header):
        raise InvalidArgument(f"{argument}: the columns of {str(path)!r} must have different names, got {short(header)}")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(header):
            words = f"must have {len(header)} columns, as its first line, got {len(row)}"
            raise InvalidArgument(f"{argument}: row {number} of {str(path)!r} {words}")
    if separator != delimiter and separator != ",":
        rows = _with_points(rows, argument)
    return dict(zip(header, zip(*rows, strict=True), strict=True))


def _with_points(rows: Sequence[Sequence[str]], argument: str) -> list[list[str]]:
    """Return rows with decimal points, or raise on a comma of thousands."""
    with_comma = [cell for row in rows for cell in row if re.fullmatch(r"[-+]?\d+,\d+(?:[eE][-+]?\d+)?", cell)]
    with_point = [cell for row in rows for cell in row if re.fullmatch(r"[-+]?\d+\.\d+(?:[eE][-+]?\d+)?", cell)]
    grouped = [cell for cell in with_comma if re.fullmatch(r"[-+]?[1-9]\d{0,2},\d{3}", cell)]
    if with_comma and (with_point or len(grouped) == len(with_comma)):
        cells = f"{with_comma[0]!r}{f' beside {with_point[0]!r}' if with_point else ''}"
        raise InvalidArgument(f"{argument}: the comma of {cells} may be decimal or one of thousands; write numbers with decimal points")
    return [[cell.replace(",", ".") if cell in set(with_comma) else cell for cell in row] for row in rows]


def numbers_of(table: Columns, name: str, rows: Sequence[int] | None = None) -> np.ndarray:
    """Return finite numbers ``[n]`` of a column's rows, by default all."""
    rows = range(len(table[name])) if rows is None else rows
    values = np.asarray([number_of(table[name][row]) for row in rows], np.float64)
    for bad in np.flatnonzero(~np.isfinite(values))[:1]:
        row = rows[bad]
        where = f"got {short(table[name][row])} in row {row + 1} of {len(table[name])}"
        raise InvalidArgument(f"columns[{name!r}]: must hold finite numbers, {where}")
    return values


def is_blank(item: object) -> bool:
    """Return whether an entry is empty, NaN or a mark like ``n/a``."""
    return item is None or str(item).strip() in {"", "nan", "NaN", "<NA>", "NaT", "n/a", "N/A", "NA", "#N/A", "-"}


def _domain(table: Columns, names: Sequence[str] | None, rows: Sequence[int], *, average: bool) -> tuple[Domain, np.ndarray]:
    """Return the domain of rows, and the point ``[n]`` of each."""
    if names is None:
        return arms(len(rows)), np.arange(len(rows))
    if not names or len(set(names)) < len(names):
        raise InvalidArgument(f"points: must be different names of columns, at least one, got {short(list(names))}")
    columns, labels = [], []
    for name in names:
        items = [table[name][row] for row in rows]
        known = tuple(dict.fromkeys(items)) if all(isinstance(item, str) and item and np.isnan(number_of(item)) for item in items) else ()
        columns.append(np.asarray([known.index(item) for item in items], np.float64) if known else numbers_of(table, name, rows))
        labels.append(known)
    named = {"names": tuple(names), "categories": tuple(labels) if any(labels) else ()}
    found, first, places, counts = np.unique(np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True, return_counts=True)
    for row in [] if average else first[counts > 1][:1]:
        where = ", ".join(f"{name}={table[name][rows[row]]}" for name in names)
        words = "repeated='average' takes their means"
        raise InvalidArgument(f"points: each row must be another point, got {where} in {counts.max()} rows; {words}")
    axes = [np.unique(column) for column in columns]
    if np.prod([float(len(axis)) for axis in axes]) == len(found):
        # These are all points of a grid, in its order.
        return replace(product(axes), **named), places.reshape(-1)
    # Otherwise points are in the order of their first rows.
    order = np.argsort(first)
    return replace(points(found[order]), **named), np.argsort(order)[places.reshape(-1)]
