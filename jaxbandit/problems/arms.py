"""Arms made from data (Zhou and Ji 2022, App. F): the brightest of 41 light sensors, the most expensive of 29 stocks, or made-up data.

Each data set is read from a file that the user names, by an argument or an environment variable, or replaced by synthetic data of the same
size, which are labelled as such.
"""

from __future__ import annotations

import csv
import hashlib
import os
from pathlib import Path
from typing import Annotated, Any, TypeAlias, cast

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import positive, whole
from jaxbandit.core.files import opened_text, reason_of
from jaxbandit.core.pytree import pytree, static
from jaxbandit.core.types import FilePath, Table
from jaxbandit.domains import arms
from jaxbandit.kernels import Gram
from jaxbandit.problems.base import Problem, from_tables
from jaxbandit.problems.noise import Residuals

__all__ = ["ArmsData", "light", "light_or_synthetic", "light_synthetic", "stocks", "stocks_or_synthetic", "stocks_synthetic"]

LIGHT = "JAXBANDIT_LIGHT"
LIGHT_CHECKSUM = "3d87e03ae8bc9e3f0a4abeb57c64933c7d3dee7476ac5c4f6ca28b4efc357c15"
LIGHT_FILE = "iw_data_all.mat (http://www.cs.cmu.edu/~guestrin/Class/10708-F08/projects/)"
STOCKS = "JAXBANDIT_STOCKS"
STOCKS_CHECKSUM = "e9f7d7c3a0ad4ada75e5b8fa3830c77ed0579232b45837438c671d83b1818199"
STOCKS_FILE = "a price table (CSV: dates in the first column, then one column per stock, with a header)"
PAPER_THRESHOLD = 100.0  # of stocks

Seed: TypeAlias = Annotated[int, whole(0, 2**63 - 1)]
"""A seed of NumPy's generator."""
Positive: TypeAlias = Annotated[float, positive]


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
def light(path: FilePath | None = None, *, threshold: Positive | None = None, scale: Positive = 1.0, verify: bool = True) -> ArmsData:
    """Make the light sensor problem from the file of Guestrin and Krause: 601 training and 192 test readings of 41 sensors of an office.

    ``f`` = mean test reading, kernel = covariance of the standardised training readings, ``g = -f + h``. An observation is a random
    test row, read at the chosen sensor (the residuals of all sensors have sd 288: heavy noise). With the paper's file ``B = 945.5``,
    and 19 sensors are feasible for ``h = B / 2``. The kernel matrix has eigenvalues from 27 to 6e-5, for which float32 is hardly
    enough with raw readings: give a ``scale``, or use float64.

    Args:
      path: the ``.mat`` file, of whose raw counts ``sensordata`` is read; default the environment variable ``JAXBANDIT_LIGHT``.
      threshold: ``h > 0`` in the units of the readings; default ``B / 2``.
      scale: divisor ``> 0`` of all readings and of ``h``.
      verify: refuse any file but the paper's.

    Raises:
      InvalidArgument: when no file is given; when it is missing, is not the paper's, lacks a field or holds NaN; or when a parameter is
        out of range.
    """
    remedy = "pass verify=False to use it all the same"
    file, papers = _file("light", path, LIGHT, LIGHT_FILE, LIGHT_CHECKSUM, verify=verify, remedy=remedy)
    train, test = _read_sensors(file)
    labels = tuple(f"sensor {number}" for number in range(1, train.shape[1] + 1))
    source = f"{file.name}, sensordata ({'the' if papers else 'not the'} paper's file)"
    return _arms(test, train, threshold, scale, labels, "light" if papers else "light-user", source)


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
def stocks(path: FilePath | None = None, *, threshold: Positive | None = None, scale: Positive = 1.0, verify: bool = True) -> ArmsData:
    """Make the stock problem from a table of prices; the paper's has 823 days, 2016-01-04 to 2019-04-10, of 29 stocks.

    ``f`` = mean adjusted closing price, kernel = covariance of the standardised prices, ``g = -f + h``. An observation is the price on a
    random day, whose difference from the mean is heavy-tailed noise. With the paper's file ``B = 237.3``, and 15 stocks are feasible
    for ``h = 100``.

    Args:
      path: the CSV file; default the environment variable ``JAXBANDIT_STOCKS``.
      threshold: ``h > 0`` in the units of the prices; default 100 for the paper's file, ``B / 2`` for any other.
      scale: divisor ``> 0`` of all prices and of ``h``.
      verify: refuse any table but the paper's. ``False`` takes any table of prices.

    Raises:
      InvalidArgument: when no file is given; when it is missing, is not the paper's, has repeated or constant columns, or cells that are
        not finite numbers; or when a parameter is out of range.
    """
    remedy = "pass verify=False to use any price table"
    file, papers = _file("stocks", path, STOCKS, STOCKS_FILE, STOCKS_CHECKSUM, verify=verify, remedy=remedy)
    names, prices = _read_prices(file)
    level = PAPER_THRESHOLD if threshold is None and papers else threshold
    source = f"{file.name} ({'the' if papers else 'not the'} paper's file)"
    return _arms(prices, prices, level, scale, tuple(names), "stocks" if papers else "stocks-user", source)


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
    common, own = rng.standard_t(3, (822, 1)), rng.standard_t(3, (822, 29))
    returns = drift + 0.003 * exposure * common + 0.005 * own
    prices = first * np.exp(np.vstack([np.zeros(29), np.cumsum(returns, axis=0)]))
    labels = tuple(f"synthetic {number}" for number in range(1, 30))
    return _arms(prices, prices, threshold, scale, labels, "stocks-synthetic", f"synthetic stand-in, seed {seed}")


@checked
def light_or_synthetic(path: FilePath | None = None, **options: Any) -> ArmsData:
    """Return :func:`light` if ``path`` or ``JAXBANDIT_LIGHT`` gives a file, else :func:`light_synthetic`; ``source`` says which.

    The options are ``threshold`` and ``scale``. Raises ``InvalidArgument`` on a file that cannot be used: made-up data never silently
    replace it.
    """
    return light_synthetic(**options) if _given_path(path, LIGHT) is None else light(path, **options)


@checked
def stocks_or_synthetic(path: FilePath | None = None, **options: Any) -> ArmsData:
    """Return :func:`stocks` if ``path`` or ``JAXBANDIT_STOCKS`` gives a file, else :func:`stocks_synthetic`; ``source`` says which.

    Options and errors are those of :func:`light_or_synthetic`.
    """
    return stocks_synthetic(**options) if _given_path(path, STOCKS) is None else stocks(path, **options)


def _arms(
    readings: np.ndarray, reference: np.ndarray, threshold: float | None, scale: float, labels: tuple[str, ...], name: str, source: str
) -> ArmsData:
    """Make arms from ``readings [n, M]``, which give ``f`` and the noise, and ``reference [p, M]``, whose correlations are the kernel.

    ``threshold`` (``None`` for ``B / 2``) is in the units of the readings; everything is divided by ``scale``.
    """
    spread = reference.std(axis=0)
    for label, sd in zip(labels, spread, strict=True):
        if not sd > 0:
            raise checks.InvalidArgument(f"{source}: column {label!r} is constant, so it has no correlations; leave it out")
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


def _given_path(path: str | Path | None, variable: str) -> str | Path | None:
    """Return the user's path: the argument, else the value of the environment variable, else ``None``."""
    return path if path is not None else os.environ.get(variable) or None


def _file(name: str, path: str | Path | None, variable: str, what: str, checksum: str, *, verify: bool, remedy: str) -> tuple[Path, bool]:
    """Return a data set's file, and whether it is the paper's.

    Raises:
      InvalidArgument: when none is given, when there is no such file, and, where it is verified, when it is not the paper's.
    """
    given = _given_path(path, variable)
    if given is None:
        raise checks.InvalidArgument(
            f"{name}: no data file given; pass path= or set {variable} to {what},"
            f" or use the made-up data of {name}_synthetic() ({name}_or_synthetic() picks one and says which)"
        )
    file = Path(given).expanduser()
    if not file.is_file():
        origin = "path" if path is not None else variable
        raise checks.InvalidArgument(f"{name}: {origin} = {str(given)!r} is not a file; give {what}")
    actual = hashlib.sha256(file.read_bytes()).hexdigest()
    if actual != checksum and verify:
        raise checks.InvalidArgument(
            f"{name}: {str(file)!r} is not the paper's file (SHA-256 {actual[:12]}..., not {checksum[:12]}...); {remedy}"
        )
    return file, actual == checksum


def _read_sensors(file: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read the training readings ``[p, M]`` and the test readings ``[n, M]``."""
    from scipy.io import loadmat  # comes with JAX; imported here because start-up should not pay for it

    try:
        content = loadmat(file, simplify_cells=True)
    except Exception as error:  # scipy may raise any exception on malformed bytes
        raise checks.InvalidArgument(f"light: {str(file)!r} is not a MATLAB file that scipy can read: {error}") from error
    train, test = (_readings(file, content, f"data.{part}.sensordata") for part in ("train", "test"))
    if train.shape[1] != test.shape[1]:
        raise checks.InvalidArgument(
            f"light: {str(file)!r}: {train.shape[1]} training columns but {test.shape[1]} test columns; both need one per sensor"
        )
    return train, test


def _readings(file: Path, content: dict[str, np.ndarray], path: str) -> np.ndarray:
    """Return the table of finite numbers at a dotted path of a MATLAB file's content."""
    value: Any = content
    for depth, word in enumerate(path.split("."), start=1):
        if not isinstance(value, dict) or word not in value:
            field = ".".join(path.split(".")[:depth])
            raise checks.InvalidArgument(f"light: {str(file)!r} has no field {field!r}; give {LIGHT_FILE}")
        value = value[word]
    where = f"light: {str(file)!r}: field {path!r}"
    try:
        table = np.asarray(value, np.float64)
    except (TypeError, ValueError) as error:
        raise checks.InvalidArgument(f"{where} does not hold numbers") from error
    checks.shape(where, table, (None, None), remedy="one row per reading, one column per sensor")
    if not table.size:
        raise checks.InvalidArgument(f"{where} is empty")
    bad = np.flatnonzero(~np.isfinite(table).all(axis=0))
    if bad.size:
        raise checks.InvalidArgument(f"{where}, column {bad[0] + 1}, has NaN or infinite readings; clean it first")
    return table


def _read_prices(file: Path) -> tuple[list[str], np.ndarray]:
    """Read the names of the stocks and their prices ``[days, M]``; the first column of the file is ignored."""
    label = f"stocks: {str(file)!r}"
    try:
        with opened_text(file, newline="") as handle:
            rows = [row for row in csv.reader(handle) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise checks.InvalidArgument(f"{label} is not a CSV text file: {reason_of(error)}") from error
    if len(rows) < 3 or len(rows[0]) < 2:
        raise checks.InvalidArgument(f"{label}: needs a header and at least two rows of a date and a price; give {STOCKS_FILE}")
    names = [name.strip() for name in rows[0][1:]]
    if "" in names or len(set(names)) < len(names):
        raise checks.InvalidArgument(f"{label}: columns without a name, or with the same one, in the header {names}; name each once")
    prices = np.empty((len(rows) - 1, len(names)))
    for number, row in enumerate(rows[1:]):
        if len(row) != len(names) + 1:
            raise checks.InvalidArgument(f"{label}: row {number + 2} has {len(row)} cells, the header {len(names) + 1}")
        for column, cell in enumerate(row[1:]):
            try:
                prices[number, column] = float(cell)
            except ValueError:
                prices[number, column] = np.nan
            if not np.isfinite(prices[number, column]):
                words = f"column {names[column]!r}, row {number + 2}: {cell!r} is not a finite number; fill or drop it first"
                raise checks.InvalidArgument(f"{label}: {words}")
    return names, prices
