"""Problems from data: goals in words, tables with a row per arm, and the data sets of Zhou and Ji (2022, App. F) or made-up ones."""

from __future__ import annotations

import csv
import dataclasses
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias, cast

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, did_you_mean, short
from jaxbandit.core.codec import reads_files
from jaxbandit.core.declare import FilePath, Table, checked
from jaxbandit.core.fields import Check, finite_numbers, matrix, of_class, positive, text
from jaxbandit.core.files import opened_text, reason_of
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.delays import Delay
from jaxbandit.domains import Domain, arms, points, product
from jaxbandit.kernels import Gram
from jaxbandit.problems.base import Problem, Seed, from_tables
from jaxbandit.problems.noise import Noise, Residuals

__all__ = ["ArmsData", "from_columns", "from_csv", "light", "light_or_synthetic", "light_synthetic"]
__all__ += ["stocks", "stocks_or_synthetic", "stocks_synthetic"]

Columns: TypeAlias = Mapping[str, Sequence[object]]  # [M] by name
Positive: TypeAlias = Annotated[float, positive]

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
NAME = r"[^<>=\s][^<>=]*?"
OBJECTIVE = re.compile(rf"\s*(maximise|minimise)\s+({NAME})\s*")
CONSTRAINT = re.compile(rf"\s*({NAME})\s*(<=|>=|=)\s*({NUMBER})\s*(?:\+-\s*({NUMBER})\s*)?")


@dataclasses.dataclass(frozen=True)
class Objective:
    """The output to maximise or minimise."""

    name: str
    sign: int  # 1 to maximise, -1 to minimise

    @classmethod
    def read(cls, text: str) -> Objective:
        """Return the objective that ``"maximise NAME"`` or ``"minimise NAME"`` describes."""
        match = OBJECTIVE.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise InvalidArgument(f"objective: must be 'maximise NAME' or 'minimise NAME', got {short(text)}")
        return cls(name=match[2], sign=1 if match[1] == "maximise" else -1)

    def __str__(self) -> str:
        return f"{'maximise' if self.sign > 0 else 'minimise'} {self.name}"


@dataclasses.dataclass(frozen=True)
class Constraint:
    """An output with a bound ``c`` on its mean."""

    name: str
    relation: str  # "<=", ">=" or "="
    bound: float
    tolerance: float = 0.0  # how far from c an output that is to equal it may be, > 0; 0 for inequalities

    @classmethod
    def read(cls, text: str, where: str = "constraints") -> Constraint:
        """Return the constraint that ``"NAME <= c"``, ``"NAME >= c"`` or ``"NAME = c +- tolerance"`` (> 0, because of noise) describes."""
        match = CONSTRAINT.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise InvalidArgument(f"{where}: must be 'NAME <= NUMBER', 'NAME >= NUMBER' or 'NAME = NUMBER +- NUMBER', got {short(text)}")
        name, relation, bound, tolerance = match[1], match[2], float(match[3]), float(match[4] or 0)
        if not math.isfinite(bound) or not math.isfinite(tolerance):
            raise InvalidArgument(f"{where}: must be a finite number, got {short(text)}")
        if (relation == "=") != (tolerance > 0):
            words = "needs a tolerance > 0, as in 'NAME = 7 +- 0.1'" if relation == "=" else "takes no tolerance, only an equality does"
            raise InvalidArgument(f"{where}: the constraint {words}, got {short(text)}")
        return cls(name=name, relation=relation, bound=bound, tolerance=tolerance)

    def __str__(self) -> str:
        return f"{self.name} {self.relation} {self.bound!r}" + (f" +- {self.tolerance!r}" if self.tolerance else "")

    @property
    def sides(self) -> tuple[tuple[int, float], ...]:
        """The inequalities ``sign y - c <= 0`` that say the same, each as ``(sign, c)``: two of an equality."""
        above, below = (1, self.bound + self.tolerance), (-1, self.tolerance - self.bound)
        return {"<=": (above,), ">=": (below,), "=": (above, below)}[self.relation]

    def violation(self, value: np.ndarray | float) -> np.ndarray:
        """Return how far values violate the constraint, ``>= 0``, in the output's own units."""
        return np.maximum(np.max([sign * np.asarray(value) - bound for sign, bound in self.sides], axis=0), 0)


def _are_columns(value: object) -> bool:
    """Return whether a value is a mapping, or a DataFrame of pandas, which is loaded wherever somebody has one."""
    pandas = sys.modules.get("pandas")
    return isinstance(value, Mapping) or (pandas is not None and isinstance(value, pandas.DataFrame))


@checked
def from_columns(
    columns: Annotated[Columns, Check("a mapping from names to columns, or a pandas.DataFrame", _are_columns)],
    objective: str,
    constraints: Sequence[str] = (),
    *,
    points: Sequence[str] | None = None,
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
      noise: a noise model; default standard Gaussian noise.
      delay: a delay model; ``None`` for no delay.
      name: label of the problem in tables, figures and files.

    Raises:
      InvalidArgument: on a column that is missing, on texts and on NaN or infinite numbers where numbers are expected (by column and row),
        on columns of different lengths, on points that are repeated, and on goals that cannot be read.
    """
    arrays = {str(label): np.asarray(columns[label], object) for label in columns}
    lengths = {label: column.shape for label, column in arrays.items()}
    if any(len(shape) != 1 for shape in lengths.values()) or len(set(lengths.values())) > 1:
        given = ", ".join(f"{label!r} {list(shape)}" for label, shape in lengths.items())
        raise InvalidArgument(f"columns: must all have one length [M], got {given}")
    if not lengths or (0,) in lengths.values():
        raise InvalidArgument(f"columns: must have at least one row, got none of {', '.join(map(repr, lengths)) or 'no columns'}")
    table = {label: column.tolist() for label, column in arrays.items()}
    goal = Objective.read(objective)
    bounds = [Constraint.read(bound, f"constraints[{number}]") for number, bound in enumerate(constraints)]
    if any(bound.relation == "=" for bound in bounds):
        raise InvalidArgument(f"constraints: an equality is made by problems.with_equalities, got {short(list(constraints))}")
    named = {"objective": [goal.name], "constraints": [bound.name for bound in bounds], "points": points or ()}
    for argument, label in ((argument, label) for argument, labels in named.items() for label in labels):
        if label not in table:
            known = ", ".join(map(repr, table))
            raise InvalidArgument(f"{argument}: there is no column {label!r}{did_you_mean(label, table)}; got {known}")
    costs = [sign * _numbers(table, bound.name) - limit for bound in bounds for sign, limit in bound.sides]
    domain, order = _domain(table, points)
    means = np.stack([goal.sign * _numbers(table, goal.name), *costs])[:, order]
    return from_tables(domain, means[0], means[1:].reshape(-1, domain.size), noise=noise, delay=delay, name=name)


@reads_files
@checked
def from_csv(
    path: Annotated[str | Path, text | of_class(Path, "the path of a file")],
    objective: str,
    constraints: Sequence[str] = (),
    *,
    points: Sequence[str] | None = None,
    noise: Noise | None = None,
    delay: Delay | None = None,
    name: str = "",
    delimiter: str = ",",
) -> Problem:
    """Make a problem whose arms are the rows of a CSV file in UTF-8, the first line of which names the columns.

    Args:
      path: the file; a relative path starts where the program was started.
      objective, constraints, points, noise, delay: as for :func:`from_columns`.
      name: label of the problem; default the name of the file.
      delimiter: what separates columns, one character.

    Raises:
      InvalidArgument: as :func:`from_columns`, on a file that cannot be read, and on rows of another length than the first.
    """
    columns, name = _columns_of(path, delimiter), name or Path(path).stem
    return from_columns(columns, objective, constraints, points=points, noise=noise, delay=delay, name=name)


def rows_of_csv(path: str | Path) -> np.ndarray:
    """Return the rows ``[n, c]`` of a CSV file of numbers in UTF-8, the first line of which names the columns."""
    table = _columns_of(path)
    return np.stack([_numbers(table, name) for name in table], axis=1)


def _columns_of(path: str | Path, delimiter: str = ",") -> Columns:
    """Return the columns of a CSV file, of texts."""
    if len(delimiter) != 1 or delimiter in '"\r\n\0':
        raise InvalidArgument(f"delimiter: must be one character, no quote and no line's end, got {short(delimiter)}")
    try:
        with opened_text(path, newline="") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file, delimiter=delimiter) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise InvalidArgument(f"path: cannot read {str(path)!r}: {reason_of(error)}") from error
    if len(rows) < 2:
        raise InvalidArgument(f"path: {str(path)!r} must hold a line of names and at least one row, got {len(rows)} lines")
    header = rows[0]
    if len(set(header)) < len(header):
        raise InvalidArgument(f"path: the columns of {str(path)!r} must have different names, got {short(header)}")
    for number, row in enumerate(rows[1:], start=1):
        if len(row) != len(header):
            raise InvalidArgument(f"path: row {number} of {str(path)!r} must have {len(header)} columns, as its first line, got {len(row)}")
    return dict(zip(header, zip(*rows[1:], strict=True), strict=True))


def _numbers(table: Columns, name: str) -> np.ndarray:
    """Return a column of finite numbers ``[M]``; raises ``InvalidArgument`` with the first row that holds anything else."""
    values = np.asarray([_number(item) for item in table[name]], np.float64)
    for row in np.flatnonzero(~np.isfinite(values))[:1]:
        item = short(table[name][row])
        raise InvalidArgument(f"columns[{name!r}]: must hold finite numbers, got {item} in row {row + 1} of {len(values)}")
    return values


def _number(item: object) -> float:
    """Return an entry as a number, NaN where it is none."""
    try:
        is_none = isinstance(item, bool | np.bool_) or (isinstance(item, str) and ("_" in item or not item.isascii()))  # 1_0 is of Python
        return float("nan") if is_none else float(item)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def _domain(table: Columns, names: Sequence[str] | None) -> tuple[Domain, np.ndarray]:
    """Return the domain of the rows, and the row ``[M]`` of each of its points."""
    if names is None:
        size = len(next(iter(table.values())))
        return arms(size), np.arange(size)
    if not names or len(set(names)) < len(names):
        raise InvalidArgument(f"points: must be different names of columns, at least one, got {short(list(names))}")
    columns, labels = [], []
    for name in names:
        items = table[name]
        known = tuple(dict.fromkeys(items)) if all(isinstance(item, str) and item and np.isnan(_number(item)) for item in items) else ()
        columns.append(np.asarray([known.index(item) for item in items], np.float64) if known else _numbers(table, name))
        labels.append(known)
    rows, named = np.stack(columns, axis=1), {"names": tuple(names), "categories": tuple(labels) if any(labels) else ()}
    _, repeated, counts = np.unique(rows, axis=0, return_index=True, return_counts=True)
    for row in repeated[counts > 1][:1]:
        where = ", ".join(f"{name}={table[name][row]}" for name in names)
        raise InvalidArgument(f"points: each row must be another point, got {where} in {counts.max()} rows; average them first")
    axes = [np.unique(column) for column in columns]
    if np.prod([float(len(axis)) for axis in axes]) == len(rows):  # all points of a grid, because none is repeated
        return replace(product(axes), **named), np.lexsort(rows.T[::-1])
    return replace(points(rows), **named), np.arange(len(rows))


@pytree
class ArmsData:
    """A problem on ``M`` arms made from data, with the facts about it that papers give to the learner.

    Attributes:
      problem: ``f`` = mean readings, ``g = -f + h``, noise resampled from the readings: one reading gives reward ``y`` and cost ``h - y``.
      gram: ``[M, M]`` covariance of the standardised readings, unit diagonal.
      bound: bound on the reward, ``B = max |f|``.
      noise_bound: bound on the noise, ``R``, the largest residual in absolute value.
      threshold: least reward of a feasible arm, ``h``.
      labels: names of the ``M`` arms.
      source: origin of the numbers; says "synthetic" when they are made up.
    """

    problem: Problem
    gram: Table
    bound: float
    noise_bound: float
    threshold: float
    labels: tuple[str, ...] = static(default=())
    source: str = static(default="")

    @property
    def kernel(self) -> Gram:
        """Kernel for a surrogate on ``problem.domain``."""
        return Gram(matrix=self.gram)

    @property
    def residuals(self) -> Table:
        """Residuals ``[n, M]`` of the readings, from which the noise is resampled."""
        return cast(Residuals, self.problem.noise).table


@checked
def light(path: FilePath | None = None, *, threshold: Positive | None = None, scale: Positive = 1.0) -> ArmsData:
    """Make the light sensor problem from the file of Guestrin and Krause: 601 training and 192 test readings of 41 sensors of an office.

    ``f`` = mean test reading, kernel = covariance of the standardised training readings, ``g = -f + h``. An observation is a random
    test row, read at the chosen sensor (the residuals of all sensors have sd 288: heavy noise). With the paper's file ``B = 945.5``,
    and 19 sensors are feasible for ``h = B / 2``. The kernel matrix has eigenvalues from 27 to 6e-5, for which float32 is hardly
    enough with raw readings: give a ``scale``, or use float64.

    Args:
      path: the ``.mat`` file, of whose raw counts ``sensordata`` is read; default the environment variable ``JAXBANDIT_LIGHT``.
      threshold: ``h > 0`` in the units of the readings; default ``B / 2``.
      scale: divisor ``> 0`` of all readings and of ``h``.

    Raises:
      InvalidArgument: when no file is given; when it is missing, lacks a field or holds NaN; or when a parameter is out of range.
    """
    from scipy.io import loadmat  # comes with JAX; imported here because start-up should not pay for it

    file = _file("light", path, "iw_data_all.mat (http://www.cs.cmu.edu/~guestrin/Class/10708-F08/projects/)")
    with checks.blaming(f"light: {str(file)!r} must be a MATLAB file with the fields data.train.sensordata and data.test.sensordata"):
        content = loadmat(file, simplify_cells=True)["data"]
        tables = {part: np.asarray(content[part]["sensordata"], np.float64) for part in ("train", "test")}
    for part, table in tables.items():
        finite_numbers.of(matrix("one row per reading, one column per sensor"))(f"light: {str(file)!r}: data.{part}.sensordata", table)
    train, test = (table.shape[1] for table in tables.values())
    if train != test:
        raise InvalidArgument(f"light: {str(file)!r}: must have one column per sensor, got {train} of training and {test} of test")
    labels = tuple(f"sensor {number}" for number in range(1, train + 1))
    return _arms(tables["test"], tables["train"], threshold, scale, labels, "light", f"{file.name}, sensordata")


@checked
def light_synthetic(*, seed: Seed = 0, threshold: Positive | None = None, scale: Positive = 1.0) -> ArmsData:
    """Make a **synthetic** replacement for :func:`light`, of the same size and similar values; its results are not results on the data.

    The 41 sensors are at random places of a floor with windows on one side. Their readings are daylight, which falls off with the
    distance from the windows and varies with hour and cloud, lamps in working hours, and a little sensor noise; clipped to
    ``[0, 1500]``.

    Args:
      seed: seed of NumPy's generator, ``>= 0``; the same seed gives the same data.
      threshold, scale: as for :func:`light`.
    """
    rng = np.random.default_rng(seed)
    depth = rng.uniform(0.0, 1.0, 41)  # 0 at the windows
    exposure = 1500 * np.exp(-1.2 * depth) * rng.uniform(0.6, 1.0, 41)
    azimuth = rng.uniform(-1.5, 1.5, 41)  # hours by which a sensor's peak is off noon
    lamps = rng.uniform(20, 200, 41)

    def readings(count: int) -> np.ndarray:
        hour, cloud = rng.uniform(6, 20, (count, 1)), rng.uniform(0.3, 1.0, (count, 1))
        day = np.maximum(np.cos(np.pi * (hour - 12.5 - azimuth) / 13), 0) * (np.abs(hour - 12.5) < 8)
        on = (hour > 7) & (hour < 20)
        return np.clip(80 + exposure * cloud * day + lamps * on + rng.normal(0, 15, (count, 41)), 0, 1500)

    train, test = readings(601), readings(192)
    labels = tuple(f"synthetic sensor {number}" for number in range(1, 42))
    return _arms(test, train, threshold, scale, labels, "light-synthetic", f"synthetic stand-in, seed {seed}")


@checked
def stocks(path: FilePath | None = None, *, threshold: Positive | None = 100.0, scale: Positive = 1.0) -> ArmsData:
    """Make the stock problem from a table of prices; the paper's has 823 days, 2016-01-04 to 2019-04-10, of 29 stocks.

    ``f`` = mean adjusted closing price, kernel = covariance of the standardised prices, ``g = -f + h``. An observation is the price on a
    random day, whose difference from the mean is heavy-tailed noise. With the paper's file ``B = 237.3``, and 15 stocks are feasible
    for ``h = 100``.

    Args:
      path: the CSV file, dates in its first column; default the environment variable ``JAXBANDIT_STOCKS``.
      threshold: ``h > 0`` in the units of the prices; ``None`` for ``B / 2``.
      scale: divisor ``> 0`` of all prices and of ``h``.

    Raises:
      InvalidArgument: when no file is given; when it is missing, has repeated or constant columns, or cells that are not finite numbers;
        or when a parameter is out of range.
    """
    file = _file("stocks", path, "a price table (CSV: dates in the first column, then one column per stock, with a header)")
    try:
        table = _columns_of(file)
        labels = list(table)[1:]
        prices = np.stack([_numbers(table, name) for name in labels], axis=1) if labels else np.zeros((len(table), 0))
        finite_numbers.of(matrix("one row per day, one column per stock"))("prices", prices)
    except InvalidArgument as error:
        raise InvalidArgument(f"stocks: {str(file)!r}: {error}") from error
    return _arms(prices, prices, threshold, scale, tuple(labels), "stocks", file.name)


@checked
def stocks_synthetic(*, seed: Seed = 0, threshold: Positive | None = None, scale: Positive = 1.0) -> ArmsData:
    """Make a **synthetic** replacement for :func:`stocks`, heavy-tailed and of the same size; its results are not results on the data.

    There are 29 price paths of 823 days. A log-return is a drift of the stock, a common factor and a part of the stock's own, the last
    two Student-t with 3 degrees of freedom; first prices are log-normal around 80.

    Args:
      seed: seed of NumPy's generator, ``>= 0``; the same seed gives the same data.
      threshold: ``h > 0`` in the units of the prices; default ``B / 2``.
      scale: as for :func:`stocks`.
    """
    rng = np.random.default_rng(seed)
    first, drift, exposure = np.exp(rng.normal(np.log(80), 0.5, 29)), rng.normal(3e-4, 2e-4, 29), rng.uniform(0.5, 1.5, 29)
    common, single = rng.standard_t(3, (822, 1)), rng.standard_t(3, (822, 29))
    returns = drift + 0.003 * exposure * common + 0.005 * single
    prices = first * np.exp(np.vstack([np.zeros(29), np.cumsum(returns, axis=0)]))
    labels = tuple(f"synthetic {number}" for number in range(1, 30))
    return _arms(prices, prices, threshold, scale, labels, "stocks-synthetic", f"synthetic stand-in, seed {seed}")


@checked
def light_or_synthetic(path: FilePath | None = None, **options: Any) -> ArmsData:
    """Return :func:`light` if ``path`` or ``JAXBANDIT_LIGHT`` gives a file, else :func:`light_synthetic`; ``source`` says which.

    The options are ``threshold`` and ``scale``. Raises ``InvalidArgument`` on a file that cannot be used: made-up data never silently
    replace it.
    """
    return light_synthetic(**options) if path is None and not os.environ.get("JAXBANDIT_LIGHT") else light(path, **options)


@checked
def stocks_or_synthetic(path: FilePath | None = None, **options: Any) -> ArmsData:
    """Return :func:`stocks` if ``path`` or ``JAXBANDIT_STOCKS`` gives a file, else :func:`stocks_synthetic`; ``source`` says which.

    Options and errors are those of :func:`light_or_synthetic`.
    """
    return stocks_synthetic(**options) if path is None and not os.environ.get("JAXBANDIT_STOCKS") else stocks(path, **options)


def _file(name: str, path: str | Path | None, what: str) -> Path:
    """Return a data set's file, of the argument ``path`` or the environment variable; raise ``InvalidArgument`` where there is none."""
    variable = f"JAXBANDIT_{name.upper()}"
    given = path if path is not None else os.environ.get(variable) or None
    if given is None:
        raise InvalidArgument(
            f"{name}: no data file given; pass path= or set {variable} to {what},"
            f" or use the made-up data of {name}_synthetic() ({name}_or_synthetic() picks one and says which)"
        )
    file = Path(given).expanduser()
    if not file.is_file():
        raise InvalidArgument(f"{name}: {variable if path is None else 'path'} = {str(given)!r} is not a file; give {what}")
    return file


def _arms(
    readings: np.ndarray, reference: np.ndarray, threshold: float | None, scale: float, labels: tuple[str, ...], name: str, source: str
) -> ArmsData:
    """Make arms from ``readings [n, M]``, which give ``f`` and the noise, and ``reference [p, M]``, whose correlations are the kernel."""
    spread = reference.std(axis=0)
    for label, sd in zip(labels, spread, strict=True):
        if not sd > 0:
            raise InvalidArgument(f"{source}: column {label!r} is constant, so it has no correlations; leave it out")
    standard = (reference - reference.mean(axis=0)) / spread
    covariance = standard.T @ standard / len(standard)
    mean = readings.mean(axis=0)
    bound = float(np.abs(mean).max())
    level = bound / 2 if threshold is None else threshold
    checks.positive("threshold", level, remedy="h is in the units of the readings")
    residuals = (readings - mean) / scale
    noise = Residuals(table=residuals, weights=np.array([1.0, -1.0]))
    return ArmsData(
        problem=from_tables(arms(len(mean)), mean / scale, (level - mean) / scale, noise=noise, name=name),
        gram=(covariance + covariance.T) / 2,
        bound=bound / float(scale),
        noise_bound=float(np.abs(residuals).max()),
        threshold=float(level) / float(scale),
        labels=labels,
        source=source,
    )
