"""Data sets of Zhou and Ji (2022, App. F), or made-up substitutes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, TypeAlias, cast

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import FilePath, Table, checked
from jaxbandit.core.fields import finite_numbers, matrix, positive
from jaxbandit.core.pytree import pytree, static
from jaxbandit.domains import arms
from jaxbandit.kernels import Gram
from jaxbandit.problems import data
from jaxbandit.problems.base import Problem, Seed, from_tables
from jaxbandit.problems.noise import Residuals

__all__ = ["ArmsData", "light", "light_or_synthetic", "light_synthetic"]
__all__ += ["stocks", "stocks_or_synthetic", "stocks_synthetic"]

Positive: TypeAlias = Annotated[float, positive]


@pytree
class ArmsData:
    """Problem on ``M`` arms from data, with the papers' facts for learners.

    Attributes:
      problem: ``f`` = mean readings, ``g = -f + h``, noise resampled from the readings: one reading gives reward ``y`` and cost ``h - y``.
      gram: ``[M, M]`` covariance of the standardised readings, unit diagonal.
      bound: bound on the reward, ``B = max |f|``.
      noise_bound: bound on the noise, ``R``, the largest residual in absolute value.
      threshold: least reward of a feasible arm, ``h``.
      labels: names of the ``M`` arms.
      source: origin of the numbers; it contains "synthetic" for synthetic data.
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
        """Residuals ``[n, M]`` of the readings, resampled as noise."""
        return cast(Residuals, self.problem.noise).table


@checked
def light(path: FilePath | None = None, *, threshold: Positive | None = None, scale: Positive = 1.0) -> ArmsData:
    """Make the light sensor problem from the file of Guestrin and Krause.

    It has 601 training and 192 test readings of 41 sensors of an office. ``f`` = mean test reading, kernel = covariance of the standardised
    training readings, ``g = -f + h``. An observation is a random test row, read at the chosen sensor (the residuals of all sensors have sd
    288: heavy noise). With the paper's file ``B = 945.5``, and 19 sensors are feasible for ``h = B / 2``. The kernel matrix has eigenvalues
    from 27 to 6e-5, so float32 is hardly enough for raw readings: pass a ``scale``, or use float64.

    Args:
      path: the ``.mat`` file with raw counts ``sensordata``; default the environment variable ``JAXBANDIT_LIGHT``.
      threshold: ``h > 0`` in the units of the readings; default ``B / 2``.
      scale: divisor ``> 0`` of all readings and of ``h``.

    Raises:
      InvalidArgument: without a file; when the file is missing, lacks a field or has NaN; or when a parameter is out of range.
    """
    # Import SciPy here, because start-up should not pay for it.
    from scipy.io import loadmat

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
    """Make a **synthetic** replacement for :func:`light`.

    It has the same size and similar values; its results are not results on the data. The 41 sensors are at random places of a floor with
    windows on one side. Their readings are daylight, which falls off with the distance from the windows and varies with hour and cloud,
    lamps in working hours, and a little sensor noise; clipped to ``[0, 1500]``.

    Args:
      seed: seed of NumPy's generator, ``>= 0``; the same seed gives the same data.
      threshold, scale: as for :func:`light`.
    """
    rng = np.random.default_rng(seed)
    # The windows are at depth 0.
    depth = rng.uniform(0.0, 1.0, 41)
    exposure = 1500 * np.exp(-1.2 * depth) * rng.uniform(0.6, 1.0, 41)
    # The peak of a sensor is some hours off noon.
    azimuth = rng.uniform(-1.5, 1.5, 41)
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
    """Make the stock problem from a table of prices.

    The paper's table has 823 days, 2016-01-04 to 2019-04-10, of 29 stocks. ``f`` = mean adjusted closing price, kernel = covariance of the
    standardised prices, ``g = -f + h``. An observation is the price on a random day, whose difference from the mean is heavy-tailed noise.
    With the paper's file ``B = 237.3``, and 15 stocks are feasible for ``h = 100``.

    Args:
      path: the CSV file, dates in its first column; default the environment variable ``JAXBANDIT_STOCKS``.
      threshold: ``h > 0`` in the units of the prices; ``None`` for ``B / 2``.
      scale: divisor ``> 0`` of all prices and of ``h``.

    Raises:
      InvalidArgument: without a file; when the file is missing, has repeated or constant columns, or cells that are not finite numbers; or
        when a parameter is out of range.
    """
    file = _file("stocks", path, "a price table (CSV: dates in the first column, then one column per stock, with a header)")
    try:
        table = data.columns_of(file)
        labels = list(table)[1:]
        prices = np.stack([data.numbers_of(table, name) for name in labels], axis=1) if labels else np.zeros((len(table), 0))
        finite_numbers.of(matrix("one row per day, one column per stock"))("prices", prices)
    except InvalidArgument as error:
        raise InvalidArgument(f"stocks: {str(file)!r}: {error}") from error
    return _arms(prices, prices, threshold, scale, tuple(labels), "stocks", file.name)


@checked
def stocks_synthetic(*, seed: Seed = 0, threshold: Positive | None = None, scale: Positive = 1.0) -> ArmsData:
    """Make a **synthetic** replacement for :func:`stocks`.

    It is heavy-tailed and of the same size; its results are not results on the data. There are 29 price paths of 823 days. A log-return is
    a drift of the stock, a common factor and a part of the stock's own, the last two Student-t with 3 degrees of freedom; first prices are
    log-normal around 80.

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
    """Return :func:`light` if there is a file, else :func:`light_synthetic`.

    The file is ``path`` or the value of ``JAXBANDIT_LIGHT``; the result's ``source`` names the data set. The options are ``threshold`` and
    ``scale``. Raises ``InvalidArgument`` on an unusable file, and never replaces it by synthetic data.
    """
    return light_synthetic(**options) if path is None and not os.environ.get("JAXBANDIT_LIGHT") else light(path, **options)


@checked
def stocks_or_synthetic(path: FilePath | None = None, **options: Any) -> ArmsData:
    """Return :func:`stocks` if there is a file, else :func:`stocks_synthetic`.

    The file is ``path`` or the value of ``JAXBANDIT_STOCKS``; the result's ``source`` names the data set. Options and errors are as for
    :func:`light_or_synthetic`.
    """
    return stocks_synthetic(**options) if path is None and not os.environ.get("JAXBANDIT_STOCKS") else stocks(path, **options)


def _file(name: str, path: str | Path | None, what: str) -> Path:
    """Return the file at ``path`` or in the environment, or raise."""
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
    """Make arms from ``readings [n, M]`` and ``reference [p, M]``.

    The readings determine ``f`` and the noise, and the correlations of the reference are the kernel.
    """
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
