"""Results as tidy tables of pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxbandit.core.arguments import takes
from jaxbandit.core.fields import boolean
from jaxbandit.core.results import RESULTS

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

ORDER = ("algorithm", "trial", "round")


@takes(dataset=RESULTS, last=boolean)
def to_dataframe(dataset: xr.Dataset, *, last: bool = False) -> pd.DataFrame:
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
