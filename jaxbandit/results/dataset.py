"""Results as one labelled dataset, assembled from pieces, and as tidy tables of pandas."""

from __future__ import annotations

import datetime
import json
import platform
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import numpy as np

from jaxbandit._version import __version__
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import checked
from jaxbandit.results.checks import Results
from jaxbandit.results.schema import Arrays, Contents, Variable, coordinate_of

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

ORDER = ("algorithm", "trial", "round")

Piece: TypeAlias = tuple[str, int, slice, np.ndarray]
"""Name of a variable, number of the run, trials, and their values."""


def header(
    contents: Contents, attributes: Mapping[str, Any], variables: Collection[str] = (), of_runs: Mapping[str, Any] | None = None
) -> xr.Dataset:
    """Return results without ``variables``, which are named: coordinates, attributes, and ``of_runs``, what has no entry for each trial.

    Attributes are inputs, versions and sizes; structured values are JSON text.
    """
    try:
        import xarray as xr
    except ImportError as error:
        raise InvalidArgument('to_xarray: needs xarray; install it with pip install "jaxbandit[study]"') from error

    common = {
        "horizon": contents.horizon,
        "trials": len(contents.trials),
        "swept": json.dumps([coordinate_of(path) for path in contents.swept]),
        "counted_before": contents.before,
        "versions": json.dumps(
            {"jaxbandit": __version__, "jax": jax.__version__, "numpy": np.__version__, "python": platform.python_version()}
        ),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    return xr.Dataset(dict(of_runs or {}), contents.coordinates(outputs="lost" in variables), {**common, **attributes})


def pieces_of(variables: Mapping[str, Variable], cell: int, arrays: Arrays, rows: np.ndarray) -> Iterator[Piece]:
    """Return the pieces of all variables that a batch of a cell holds, given the run and the trial ``[n, 2]`` of each row."""
    runs, starts = np.unique(rows[:, 0], return_index=True)
    ends = [*starts[1:], len(rows)]
    for name, variable in variables.items():
        values = variable.entries(cell, arrays, rows)
        for run, start, end in zip(runs, starts, ends, strict=True):
            first = int(rows[start, 1])
            yield name, int(run), slice(first, first + int(end - start)), values[start:end]


def assembled(head: xr.Dataset, variables: Mapping[str, Variable], pieces: Iterable[Piece]) -> xr.Dataset:
    """Return results in memory, their header with all variables."""
    arrays = {name: np.empty(variable.shape, variable.dtype) for name, variable in variables.items()}
    for name, run, trials, values in pieces:
        arrays[name][run, trials] = values
    return head.assign({name: (variable.dims, arrays[name]) for name, variable in variables.items()})


@checked
def to_dataframe(dataset: Results, *, last: bool = False) -> pd.DataFrame:
    """Return results as a tidy table: a row for each run, trial and round.

    Columns are the labels of the run (``algorithm``, ``base``, ``problem``, ``delay``), a column for each swept field, NaN where a run has
    none, then ``trial`` and ``round``, every measure of a round, and what is known of the trial, such as ``status`` and ``optimum``.
    ``table.to_csv(path)`` and ``table.to_parquet(path)`` write it; the latter needs the extra ``parquet``.

    Args:
      dataset: results of a study, or of :meth:`~jaxbandit.Trajectory.to_xarray`.
      last: whether to keep the last round only.
    """
    part = dataset.isel(round=[-1]) if last else dataset
    part = part[[name for name in part.data_vars if set(part[name].dims) <= set(ORDER)]]
    of_round = [str(name) for name in part.data_vars if "round" in part[name].dims]
    of_trial = [str(name) for name in part.data_vars if "round" not in part[name].dims]
    labels = [str(name) for name in part.coords if part[name].dims in ((), ("algorithm",)) and name != "algorithm"]
    table = part.to_dataframe(dim_order=[name for name in ORDER if name in part.dims]).reset_index()
    return table[["algorithm", *labels, "trial", "round", *of_round, *of_trial]]
