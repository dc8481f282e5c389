"""Problems from tables of data: a row for each arm, read from a CSV file, a DataFrame, or a mapping of columns."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, decimal, short
from jaxbandit.core.codec import reads_files
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import Check, Shape, of_class, text
from jaxbandit.core.files import opened_text, reason_of
from jaxbandit.core.paths import did_you_mean
from jaxbandit.core.pytree import replace
from jaxbandit.delays import Delay
from jaxbandit.domains import Domain, arms, product
from jaxbandit.domains import points as bare_points
from jaxbandit.problems.base import Problem, from_tables
from jaxbandit.problems.goals import Constraint, Objective
from jaxbandit.problems.noise import Heteroscedastic, Noise

__all__ = ["from_columns", "from_csv"]


def _are_columns(value: object) -> bool:
    """Return whether a value is a mapping, or a DataFrame of pandas, which is loaded wherever somebody has one."""
    pandas = sys.modules.get("pandas")
    return isinstance(value, Mapping) or (pandas is not None and isinstance(value, pandas.DataFrame))


def _are_some(name: str, value: Sized, shape: Shape | None, outputs: int | None) -> None:
    if not len(value):
        raise InvalidArgument(f"{name}: must be {COLUMNS.allowed}, with at least one row, got an empty one")


COLUMNS = Check("a mapping from names to columns, or a pandas.DataFrame", _are_columns, _are_some)


@checked
def from_columns(
    columns: Annotated[Mapping[str, Sequence[object]], COLUMNS],
    objective: str,
    constraints: Sequence[str] = (),
    *,
    points: Sequence[str] | None = None,
    noise_variance: str | Sequence[str] | None = None,
    noise: Noise | None = None,
    delay: Delay | None = None,
    name: str = "table",
) -> Problem:
    """Make a problem whose arms are the rows of a table, such as a ``pandas.DataFrame``.

    Rows that are all points of a grid, each once, make a product grid, in its order; others keep their order.

    Args:
      columns: columns ``[M]`` by name.
      objective: ``"maximise NAME"`` or ``"minimise NAME"``, with the name of the column of its mean values.
      constraints: ``"NAME <= 80"`` or ``"NAME >= 0.5"`` each, on the mean values of a column.
      points: names of the columns that hold the coordinates of a point; a column of texts is an axis of categories, in the order of their
        first appearance. ``None``: arms without coordinates, numbered from 0, for an explicit Gram matrix.
      noise_variance: name of the column of the variance of Gaussian noise, or a name for each output, reward first.
      noise: a noise model, instead of ``noise_variance``; default standard Gaussian noise.
      delay: a delay model; ``None`` for no delay.
      name: label of the problem in tables, figures and files.

    Raises:
      InvalidArgument: on a column that is missing, on texts and on NaN or infinite numbers where numbers are expected (by column and row),
        on columns of different lengths, on points that are repeated, and on goals that cannot be read.
    """
    table = _Table(columns)
    goal = Objective.read(objective)
    bounds = [Constraint.read(bound, f"constraints[{number}]") for number, bound in enumerate(constraints)]
    if any(bound.relation == "=" for bound in bounds):
        raise InvalidArgument(f"constraints: an equality is made by problems.with_equalities, got {short(list(constraints))}")
    if noise is not None and noise_variance is not None:
        raise InvalidArgument(f"noise_variance: give either noise or the column of its variance, got {short(noise_variance)} and {noise!r}")
    variance_columns = [noise_variance] if isinstance(noise_variance, str) else [] if noise_variance is None else noise_variance
    named = {"objective": [goal.name], "constraints": [bound.name for bound in bounds], "points": points or []}
    for argument, names in (named | {"noise_variance": variance_columns}).items():
        table.check_names(argument, names)
    reward = goal.sign * table.numbers(goal.name)
    costs = [sign * table.numbers(bound.name) - limit for bound in bounds for sign, limit in bound.sides]
    domain, order = _domain(table, points)
    if noise_variance is not None:
        count = len(variance_columns)
        if count not in (1, 1 + len(bounds)):
            raise InvalidArgument(f"noise_variance: expected one column, or one for each of {1 + len(bounds)} outputs, got {count}")
        variances = [table.numbers(column)[order] for column in variance_columns]
        for column, variance in zip(variance_columns, variances, strict=True):
            checks.nonnegative(f"noise_variance: column {column!r}", variance)
        noise = Heteroscedastic(variance=variances[0] if count == 1 else np.stack(variances))
    means = np.stack([reward, *costs])[:, order]
    return from_tables(domain, means[0], means[1:].reshape(-1, domain.size), noise=noise, delay=delay, name=name)


@reads_files
@checked
def from_csv(
    path: Annotated[str | Path, text | of_class(Path, "the path of a file")],
    objective: str,
    constraints: Sequence[str] = (),
    *,
    points: Sequence[str] | None = None,
    noise_variance: str | Sequence[str] | None = None,
    noise: Noise | None = None,
    delay: Delay | None = None,
    name: str = "",
    delimiter: str = ",",
) -> Problem:
    """Make a problem whose arms are the rows of a CSV file in UTF-8, the first line of which names the columns.

    Args:
      path: the file; a relative path starts where the program was started.
      objective, constraints, points, noise_variance, noise, delay: as for :func:`from_columns`.
      name: label of the problem; default the name of the file.
      delimiter: what separates columns, one character.

    Raises:
      InvalidArgument: as :func:`from_columns`, on a file that cannot be read, and on rows of another length than the first.
    """
    what: dict[str, Any] = {
        "points": points,
        "noise_variance": noise_variance,
        "noise": noise,
        "delay": delay,
        "name": name or Path(path).stem,
    }
    return from_columns(_columns_of(path, delimiter), objective, constraints, **what)


def rows_of_csv(path: str | Path) -> np.ndarray:
    """Return the rows ``[n, c]`` of a CSV file of numbers in UTF-8, the first line of which names the columns.

    Raises:
      InvalidArgument: on a file that cannot be read, on rows of another length than the first, and on what is no finite number.
    """
    table = _Table(_columns_of(path, ","))
    return np.stack([table.numbers(name) for name in table.columns], axis=1)


def _columns_of(path: str | Path, delimiter: str) -> dict[str, list[str]]:
    """Return the columns of a CSV file by name, as texts."""
    if len(delimiter) != 1 or delimiter in '"\r\n\0':
        raise InvalidArgument(f"delimiter: must be one character, no quote and no line's end, got {short(delimiter)}")
    try:
        with opened_text(path, newline="") as file:
            rows = [row for row in csv.reader(file, delimiter=delimiter) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise InvalidArgument(f"path: cannot read {str(path)!r}: {reason_of(error)}") from error
    if len(rows) < 2:
        raise InvalidArgument(f"path: {str(path)!r} must hold a line of names and at least one row, got {len(rows)} lines")
    header = [word.strip() for word in rows[0]]
    if len(set(header)) < len(header):
        raise InvalidArgument(f"path: the columns of {str(path)!r} must have different names, got {short(header)}")
    for number, row in enumerate(rows[1:], start=1):
        if len(row) != len(header):
            raise InvalidArgument(f"path: row {number} of {str(path)!r} must have {len(header)} columns, as its first line, got {len(row)}")
    return {word: [row[place].strip() for row in rows[1:]] for place, word in enumerate(header)}


class _Table:
    """Columns of one length, looked up by name."""

    def __init__(self, columns: Mapping[str, Sequence[object]]) -> None:
        self.columns = {str(name): np.asarray(columns[name], object) for name in columns}
        lengths = {name: column.shape for name, column in self.columns.items()}
        if any(len(shape) != 1 for shape in lengths.values()) or len(set(lengths.values())) > 1:
            given = ", ".join(f"{name!r} {list(shape)}" for name, shape in lengths.items())
            raise InvalidArgument(f"columns: must all have one length [M], got {given}")
        self.size = next(iter(lengths.values()))[0]
        if not self.size:
            raise InvalidArgument(f"columns: must have at least one row, got none of {', '.join(map(repr, lengths))}")

    def check_names(self, argument: str, names: Sequence[str]) -> None:
        """Raise ``InvalidArgument``, with the nearest name, when an argument names a column that is not there."""
        for name in names:
            if name not in self.columns:
                known = ", ".join(map(repr, self.columns))
                raise InvalidArgument(f"{argument}: there is no column {name!r}{did_you_mean(name, self.columns)}; got {known}")

    def numbers(self, name: str) -> np.ndarray:
        """Return a column of finite numbers ``[M]``; raises ``InvalidArgument`` with the first row that holds anything else."""
        column = self.columns[name]
        values = np.asarray([_number(item) for item in column.tolist()], np.float64)
        for row in np.flatnonzero(~np.isfinite(values))[:1]:
            item = short(column.tolist()[row])
            raise InvalidArgument(f"columns[{name!r}]: must hold finite numbers, got {item} in row {row + 1} of {len(values)}")
        return values

    def texts(self, name: str) -> list[str] | None:
        """Return a column of texts, ``None`` where some entry is a number or empty."""
        items = self.columns[name].tolist()
        return items if all(isinstance(item, str) and item and np.isnan(_number(item)) for item in items) else None


def _number(item: object) -> float:
    """Return an entry as a number, NaN where it is none."""
    if isinstance(item, bool | np.bool_):
        return float("nan")
    try:
        return decimal(item) if isinstance(item, str) else float(item)  # type: ignore[arg-type]  # what is no number is caught
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def _domain(table: _Table, points: Sequence[str] | None) -> tuple[Domain, np.ndarray]:
    """Return the domain of the rows, and the row ``[M]`` of each of its points."""
    if points is None:
        return arms(table.size), np.arange(table.size)
    if not points or len(set(points)) < len(points):
        raise InvalidArgument(f"points: must be different names of columns, at least one, got {short(list(points))}")
    columns, labels = zip(*_coordinates(table, points), strict=True)
    rows = np.stack(columns, axis=1)
    named = {"names": tuple(points), "categories": labels if any(labels) else ()}
    _, repeated, counts = np.unique(rows, axis=0, return_index=True, return_counts=True)
    for row in repeated[counts > 1][:1]:
        where = ", ".join(f"{name}={table.columns[name][row]}" for name in points)
        raise InvalidArgument(f"points: each row must be another point, got {where} in {counts.max()} rows; average them first")
    axes = [np.unique(column) for column in columns]
    if np.prod([float(len(axis)) for axis in axes]) == table.size:  # all points of a grid, for none is repeated
        return replace(product(axes), **named), np.lexsort(rows.T[::-1])
    return replace(bare_points(rows), **named), np.arange(table.size)


def _coordinates(table: _Table, points: Sequence[str]) -> Iterator[tuple[np.ndarray, tuple[str, ...]]]:
    """Return the numbers ``[M]`` of each coordinate, with the labels of the categories that they stand for."""
    for name in points:
        texts = table.texts(name)
        known = tuple(dict.fromkeys(texts or ()))
        yield (np.asarray([known.index(item) for item in texts], np.float64) if texts else table.numbers(name)), known
