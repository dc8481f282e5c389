"""Results as one labelled dataset: assembled from pieces, checked, as tidy tables of pandas, and the flags of their trials in words."""

from __future__ import annotations

import datetime
import json
import platform
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import jax
import numpy as np

from jaxbandit._version import __version__
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import Check, Place
from jaxbandit.core.status import flags_in_words as status_in_words
from jaxbandit.results.schema import LABELS, TRIAL, Contents, Piece, Variable, coordinate_of

ORDER = (*TRIAL, "round")

# Arguments that are results.


def _are_results(value: object) -> bool:
    import xarray as xr  # an extra of studies and reports, which alone call this

    there = isinstance(value, xr.Dataset) and "status" in value and all(value.sizes.get(name) for name in ("trial", "round"))
    return there and value.sizes.get("algorithm", 1) > 0  # type: ignore[attr-defined]  # it is a dataset


def _verify(name: str, value: Any, place: Place) -> None:
    for label, variable in value.data_vars.items():
        if {"trial", "round"} <= set(variable.dims) and variable.dtype.kind not in "biuf":
            raise InvalidArgument(f"{name}: the measure {label} must hold real numbers, got {variable.dtype}")
    if value["status"].dtype.kind not in "iu":
        raise InvalidArgument(f"{name}: status must hold whole numbers, got {value['status'].dtype}")
    labels = value["algorithm"].values.ravel().tolist() if "algorithm" in value.coords else []
    if len(set(labels)) < len(labels):
        raise InvalidArgument(f"{name}: must have distinct labels along algorithm, got {short(labels)}")


RESULTS = Check("a dataset of results, with status and the dimensions algorithm, trial and round", _are_results, _verify)
ONE = Check("a dataset of one algorithm's results, with status and the dimensions trial and round", _are_results, _verify)

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    Results: TypeAlias = xr.Dataset
    OneResult: TypeAlias = xr.Dataset
else:  # xarray is loaded by whoever has made a dataset
    Results = Annotated[Any, RESULTS]
    OneResult = Annotated[Any, ONE]


# From pieces to tables.


def header(
    contents: Contents, attributes: Mapping[str, object], variables: Collection[str] = (), of_runs: Mapping[str, object] | None = None
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


# Flags of trials.


@checked
def flags_in_words(dataset: Results) -> list[str]:
    """Return a line for each run and flag of its trials: ``rpol: 3 of 100 trials: why (what to do)``."""
    statuses = zip(dataset.algorithm.values, dataset.status.transpose("algorithm", "trial").values, strict=True)
    return [f"{label}: {line}" for label, status in statuses for line in status_in_words(status)]


@checked
def sweeps_without_effect(dataset: Results) -> list[str]:
    """Return a line for the swept fields whose values have not mattered: runs ended with the same numbers, bit for bit, in every trial."""
    ends = [dataset[name].isel(round=-1) if "round" in dataset[name].dims else dataset[name] for name in sorted(map(str, dataset))]
    ends = [end.transpose(*TRIAL, ...) for end in ends if set(TRIAL) <= set(end.dims) and "played" not in end.dims]
    swept = {str(name): dataset[name].values for name in json.loads(dataset.attrs.get("swept", "[]")) if name in dataset.coords}
    alike: dict[Hashable, list[int]] = {}
    for run in range(dataset.sizes["algorithm"] if swept else 0):
        same = [str(dataset[name].values[run]) for name in LABELS if name in dataset.coords]
        alike.setdefault((*same, *(end.values[run].tobytes() for end in ends)), []).append(run)
    groups: dict[str, list[str]] = {}
    for runs in alike.values():
        fields = [name for name, values in swept.items() if len(set(values[runs][np.isfinite(values[runs])].tolist())) > 1]
        if fields:
            groups.setdefault(" and ".join(fields), []).append(", ".join(dataset.algorithm.values[runs]))
    more = {fields: f" (and of {len(runs) - 1} more such groups)" if len(runs) > 1 else "" for fields, runs in groups.items()}
    return [f"{fields} changed no number in any trial of {runs[0]}{more[fields]}" for fields, runs in groups.items()]
