"""The search for the most expensive stock (Zhou and Ji 2022, App. F.2): 29 closing prices, any price table, or made-up data."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import positive
from jaxbandit.core.files import opened_text, reason_of
from jaxbandit.core.types import FilePath
from jaxbandit.problems._arms import ArmsData, Seed, arms_data, find_file, given_path, is_papers

__all__ = ["stocks", "stocks_or_synthetic", "stocks_synthetic"]

VARIABLE = "JAXBANDIT_STOCKS"
CHECKSUM = "e9f7d7c3a0ad4ada75e5b8fa3830c77ed0579232b45837438c671d83b1818199"
EXPECTED = "a price table (CSV: dates in the first column, then one column per stock, with a header)"
PAPER_THRESHOLD = 100.0


@checked
def stocks(
    path: FilePath | None = None,
    *,
    threshold: Annotated[float, positive] | None = None,
    scale: Annotated[float, positive] = 1.0,
    cost_noise: Literal["same", "independent"] = "same",
    columns: Sequence[str] | None = None,
    verify: bool = True,
) -> ArmsData:
    """Make the stock problem from a table of prices; the paper's has 823 days, 2016-01-04 to 2019-04-10, of 29 stocks.

    ``f`` = mean adjusted closing price, kernel = covariance of the standardised prices, ``g = -f + h``. An observation is the price on a
    random day, whose difference from the mean is heavy-tailed noise. With the paper's file ``B = 237.3``, and 15 stocks are feasible
    for ``h = 100``.

    Args:
      path: the CSV file; default the environment variable ``JAXBANDIT_STOCKS``.
      threshold: ``h > 0`` in the units of the prices; default 100 for the paper's file, ``B / 2`` for any other.
      scale: divisor ``> 0`` of all prices and of ``h``.
      cost_noise: ``"same"``: one price gives reward ``y`` and cost ``h - y``, or ``"independent"``: the cost reads a day of its own
        (the paper does not say).
      columns: names of the stocks to use; default all.
      verify: refuse any table but the paper's. ``False`` takes any table of prices.

    Raises:
      InvalidArgument: when no file is given; when it is missing, is not the paper's, has missing, repeated or constant columns, or cells
        that are not finite numbers; or when a parameter is out of range.
    """
    file = find_file("stocks", path, VARIABLE, EXPECTED)
    papers = is_papers("stocks", file, CHECKSUM, verify=verify, remedy="pass verify=False to use any price table")
    names, prices = _read(file)
    if columns is not None:
        missing = [name for name in columns if name not in names]
        if missing or not columns or len(set(columns)) < len(columns):
            raise checks.InvalidArgument(
                f"columns: {str(file)!r} has {', '.join(names)}; name at least one of them, each once, got {checks.short(columns)}"
            )
        prices, names = prices[:, [names.index(name) for name in columns]], list(columns)
    if threshold is None and papers:
        threshold = PAPER_THRESHOLD
    return arms_data(
        prices,
        prices,
        threshold=threshold,
        scale=scale,
        cost_noise=cost_noise,
        labels=tuple(names),
        name="stocks" if papers else "stocks-user",
        source=f"{file.name} ({'the' if papers else 'not the'} paper's file)",
    )


@checked
def stocks_synthetic(
    *,
    seed: Seed = 0,
    threshold: Annotated[float, positive] | None = None,
    scale: Annotated[float, positive] = 1.0,
    cost_noise: Literal["same", "independent"] = "same",
) -> ArmsData:
    """Make a **synthetic** replacement for :func:`stocks`, heavy-tailed and of the same size; its results are not results on the data.

    There are 29 price paths of 823 days. A log-return is a drift of the stock, a common factor and a part of the stock's own, the last
    two Student-t with 3 degrees of freedom; first prices are log-normal around 80.

    Args:
      seed: seed of NumPy's generator, ``>= 0``; the same seed gives the same data.
      threshold: ``h > 0`` in the units of the prices; default ``B / 2``.
      scale, cost_noise: as for :func:`stocks`.

    Raises:
      InvalidArgument: on a parameter out of range.
    """
    rng = np.random.default_rng(seed)
    first, drift, exposure = np.exp(rng.normal(np.log(80), 0.5, 29)), rng.normal(3e-4, 2e-4, 29), rng.uniform(0.5, 1.5, 29)
    common, own = rng.standard_t(3, (822, 1)), rng.standard_t(3, (822, 29))
    returns = drift + 0.003 * exposure * common + 0.005 * own
    prices = first * np.exp(np.vstack([np.zeros(29), np.cumsum(returns, axis=0)]))
    return arms_data(
        prices,
        prices,
        threshold=threshold,
        scale=scale,
        cost_noise=cost_noise,
        labels=tuple(f"synthetic {number}" for number in range(1, 30)),
        name="stocks-synthetic",
        source=f"synthetic stand-in, seed {seed}",
    )


@checked
def stocks_or_synthetic(path: FilePath | None = None, **options: Any) -> ArmsData:
    """Return :func:`stocks` if ``path`` or ``JAXBANDIT_STOCKS`` gives a file, else :func:`stocks_synthetic`; ``source`` says which.

    Args:
      path: the CSV file, or ``None``.
      **options: ``threshold``, ``scale`` and ``cost_noise``.

    Raises:
      InvalidArgument: when a file is given and cannot be used: made-up data never silently replace a file.
    """
    return stocks_synthetic(**options) if given_path(path, VARIABLE) is None else stocks(path, **options)


def _read(file: Path) -> tuple[list[str], np.ndarray]:
    """Read the names of the stocks and their prices ``[days, M]``; the first column of the file is ignored."""
    label = f"stocks: {str(file)!r}"
    try:
        with opened_text(file, newline="") as handle:
            rows = [row for row in csv.reader(handle) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise checks.InvalidArgument(f"{label} is not a CSV text file: {reason_of(error)}") from error
    if len(rows) < 3 or len(rows[0]) < 2:
        raise checks.InvalidArgument(f"{label}: needs a header and at least two rows of a date and a price; give {EXPECTED}")
    names = [name.strip() for name in rows[0][1:]]
    if "" in names or len(set(names)) < len(names):
        raise checks.InvalidArgument(f"{label}: columns without a name, or with the same one, in the header {names}; name each once")
    prices = np.empty((len(rows) - 1, len(names)))
    for number, row in enumerate(rows[1:]):
        if len(row) != len(names) + 1:
            raise checks.InvalidArgument(f"{label}: row {number + 2} has {len(row)} cells, the header {len(names) + 1}")
        for column, cell in enumerate(row[1:]):
            prices[number, column] = _price(label, names[column], number + 2, cell)
    return names, prices


def _price(label: str, column: str, row: int, cell: str) -> float:
    try:
        price = float(cell)
    except ValueError:
        price = float("nan")
    if not np.isfinite(price):
        raise checks.InvalidArgument(f"{label}: column {column!r}, row {row}: {cell!r} is not a finite number; fill or drop it first")
    return price
