"""Results on disk, and the flags of their trials."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import numpy as np
import xarray as xr

from jaxbandit.core.arguments import takes
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.fields import of_class, text
from jaxbandit.core.results import RESULTS
from jaxbandit.core.status import Status, explain, healthy
from jaxbandit.study.run.files import CannotWrite, reason_of, write_whole


PATH = text | of_class(Path, "a path")


class TrialsFailed(RuntimeError):
    """Some trials of a study failed; the message says how many, which and why."""


@takes(dataset=RESULTS)
def flagged(dataset: xr.Dataset) -> dict[str, dict[str, int]]:
    """Return, for each run with flagged trials, how many trials have each flag."""
    found: dict[str, dict[str, int]] = {}
    for label in dataset.algorithm.values:
        status = dataset.status.sel(algorithm=label).values
        counts = {explain(int(flag)): int(np.count_nonzero(status & flag)) for flag in Status if flag}
        if any(counts.values()):
            found[str(label)] = {words: count for words, count in counts.items() if count}
    return found


def flags_in_words(dataset: xr.Dataset) -> list[str]:
    """Return a line of text for each run with flagged trials: ``rpol: 1 trial: why; 3 trials: why else``."""

    def words(count: int, why: str) -> str:
        return f"{count} trial{'s' if count > 1 else ''}: {why}"

    return [f"{label}: " + "; ".join(words(count, why) for why, count in own.items()) for label, own in flagged(dataset).items()]


@takes(dataset=RESULTS)
def raise_if_failed(dataset: xr.Dataset) -> xr.Dataset:
    """Return the dataset, if no trial failed; raises :class:`TrialsFailed` otherwise."""
    failed = ~healthy(dataset.status.values)
    if not failed.any():
        return dataset
    lines = []
    for label, status in zip(dataset.algorithm.values, dataset.status.values, strict=True):
        bad = np.flatnonzero(~healthy(status))
        if len(bad):
            rounds = dataset.failed_round.sel(algorithm=label).values[bad]
            lines.append(f"{label}: trial {bad[0]} in round {rounds[0]} ({explain(int(status[bad[0]]))}), {len(bad)} in all")
    raise TrialsFailed(f"{int(failed.sum())} of {failed.size} trials failed; " + "; ".join(lines))


@takes(path=PATH)
def read_results(path: str | Path) -> xr.Dataset:
    """Return the dataset of a NetCDF file or a Zarr directory, or of the directory that a run wrote one to.

    Raises:
      InvalidArgument: when there is none, or it cannot be read.
    """
    path = Path(path)
    inside = [path / name for name in ("results.nc", "results.zarr")]
    found = next((file for file in inside if file.exists()), path)
    if not found.exists() or (found.is_dir() and found.suffix != ".zarr"):
        raise InvalidArgument(f"results: {path} holds no results.nc or results.zarr" if path.is_dir() else f"results: there is no {path}")
    try:
        return xr.open_zarr(_with_zarr(found)).load() if found.suffix == ".zarr" else xr.load_dataset(found, engine="h5netcdf")
    except InvalidArgument:
        raise
    except Exception as error:  # what the readers raise on a damaged file is not documented
        raise InvalidArgument(f"results: cannot read {found}: {reason_of(error)}") from error


def write_results(dataset: xr.Dataset, path: Path) -> None:
    """Write NetCDF, or Zarr if ``path`` ends in ``.zarr``; whole or not at all.

    Raises:
      InvalidArgument: when Zarr is asked for and not installed.
      CannotWrite: on any error of the operating system.
    """
    if path.suffix == ".zarr":
        _write_zarr(dataset, _with_zarr(path))
    else:
        write_whole(path, lambda temporary: save(dataset, temporary))


def _write_zarr(dataset: xr.Dataset, path: Path) -> None:
    temporary = path.with_name(f".{path.name}")
    try:
        dataset.to_zarr(temporary, mode="w", zarr_format=2)  # 3 has no stable form of labels
        if path.exists():
            shutil.rmtree(path)
        temporary.rename(path)
    except OSError as error:
        raise CannotWrite(path, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _with_zarr(path: Path) -> Path:
    """Return ``path``, if Zarr can be read and written here; raises ``InvalidArgument`` otherwise."""
    if importlib.util.find_spec("zarr") is None:
        raise InvalidArgument("format: zarr is not installed; pip install zarr, or use NetCDF")
    return path


def save(dataset: xr.Dataset, path: str | Path) -> None:
    """Write a dataset as compressed NetCDF-4."""
    compressed = {name: {"zlib": True, "complevel": 4} for name in dataset.data_vars if dataset[name].dtype.kind in "fi"}
    dataset.to_netcdf(path, engine="h5netcdf", encoding=compressed)
