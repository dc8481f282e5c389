"""Results on disk, and the flags of their trials."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import json
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import h5netcdf
import h5py
import numpy as np
import xarray as xr

from jaxbandit.core.arguments import takes
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.fields import boolean, mapping, text
from jaxbandit.core.fields import path as path_check
from jaxbandit.core.files import CannotWrite, reason_of, refuse_device, replace, write_whole
from jaxbandit.core.results import RESULTS
from jaxbandit.core.status import Status, explain, healthy
from jaxbandit.core.status import flags_in_words as status_in_words
from jaxbandit.engine.labelled import LABELS, TRIAL, Variable
from jaxbandit.study.results.seals import check_seal, seal
from jaxbandit.study.run.checkpoints import interrupted

LEVEL = 4  # of compression
CHUNK_BYTES = 2**20  # of what is compressed and read at a time
OVERHEAD = 2**18  # bytes of a file beside its values: names, attributes, and room for what HDF5 aligns


class TrialsFailed(RuntimeError):
    """Some trials of a study failed; the message says how many, which and why."""


def _status(dataset: xr.Dataset) -> np.ndarray:
    """Return the flags ``[algorithm, trial]`` of all trials."""
    return dataset.status.transpose("algorithm", "trial").values


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


@takes(dataset=RESULTS)
def flags_in_words(dataset: xr.Dataset) -> list[str]:
    """Return a line for each run and flag of its trials: ``rpol: 3 of 100 trials: why (what to do)``."""
    return [
        f"{label}: {line}"
        for label, status in zip(dataset.algorithm.values, _status(dataset), strict=True)
        for line in status_in_words(status)
    ]


@takes(dataset=RESULTS)
def sweeps_without_effect(dataset: xr.Dataset) -> list[str]:
    """Return a line for the swept fields whose values have not mattered: runs ended with the same numbers, bit for bit, in every trial."""
    ends = [dataset[name].isel(round=-1) if "round" in dataset[name].dims else dataset[name] for name in sorted(map(str, dataset))]
    ends = [end.transpose(*TRIAL, ...) for end in ends if set(TRIAL) <= set(end.dims) and "played" not in end.dims]
    swept = {str(name): dataset[name].values for name in json.loads(dataset.attrs.get("swept", "[]")) if name in dataset.coords}
    alike: dict[tuple[Any, ...], list[int]] = {}
    for run in range(dataset.sizes["algorithm"] if swept else 0):
        same = [str(dataset[name].values[run]) for name in LABELS if name in dataset.coords]
        alike.setdefault((*same, *(end.values[run].tobytes() for end in ends)), []).append(run)
    found: dict[str, list[str]] = {}
    for runs in alike.values():
        fields = [name for name, values in swept.items() if len(set(values[runs][np.isfinite(values[runs])].tolist())) > 1]
        if fields:
            found.setdefault(" and ".join(fields), []).append(", ".join(dataset.algorithm.values[runs]))
    more = {fields: f" (and of {len(runs) - 1} more such groups)" if len(runs) > 1 else "" for fields, runs in found.items()}
    return [f"{fields} changed no number in any trial of {runs[0]}{more[fields]}" for fields, runs in found.items()]


@takes(dataset=RESULTS)
def raise_if_failed(dataset: xr.Dataset) -> xr.Dataset:
    """Return the dataset, if no trial failed; raises :class:`TrialsFailed` otherwise."""
    failed = ~healthy(_status(dataset))
    if not failed.any():
        return dataset
    lines = []
    for label, status in zip(dataset.algorithm.values, _status(dataset), strict=True):
        bad = np.flatnonzero(~healthy(status))
        if len(bad):
            known = "failed_round" in dataset
            where = f" in round {dataset.failed_round.sel(algorithm=label).values[bad[0]]}" if known else ""
            lines.append(f"{label}: trial {bad[0]}{where} ({explain(int(status[bad[0]]))}), {len(bad)} in all")
    raise TrialsFailed(f"{int(failed.sum())} of {failed.size} trials failed; " + "; ".join(lines))


@takes(path=path_check, load=boolean)
def read_results(path: str | Path, *, load: bool = True) -> xr.Dataset:
    """Return the dataset of a NetCDF file or a Zarr directory, or of the directory that a run wrote one to.

    Args:
      path: path of the file or directory.
      load: read everything now; otherwise what is used is read as it is used, and the file stays open until the dataset is closed.

    Raises:
      InvalidArgument: when there is none, it cannot be read, or was altered since it was written by :func:`write_results`.
    """
    path = Path(path)
    try:
        inside = [path / name for name in ("results.nc", "results.zarr")]
        found = next((file for file in inside if file.exists()), path)
        if not found.exists() or (found.is_dir() and found.suffix != ".zarr"):
            raise InvalidArgument(
                f"results: {path} holds no results.nc or results.zarr" if path.is_dir() else f"results: there is no {path}"
            )
        refuse_device(found)
        _refuse(found, next((file.name for file in found.rglob("*") if file.is_symlink()), None))
        check_seal(found)
        lazy = open_results(found)
        if not load:
            return lazy
        with lazy:
            return lazy.load()
    except InvalidArgument:
        raise
    except Exception as error:  # what the readers raise on a damaged file is not documented
        raise InvalidArgument(f"results: cannot read {str(path)!r}: {reason_of(error)}") from error


@takes(path=path_check, attributes=mapping(text, "a mapping from names to text"))
def made_before(path: str | Path, attributes: Mapping[str, str]) -> xr.Dataset | None:
    """Return the results that a run has left at ``path`` earlier, to be read as they are used; ``None`` where there are none such.

    Args:
      path: NetCDF file or Zarr directory.
      attributes: what the results must say of their run, such as the study's fingerprint.
    """
    path = Path(path)
    if not path.exists() or interrupted(path.parent):
        return None
    with contextlib.suppress(InvalidArgument):  # no results, or damaged ones
        dataset = read_results(path, load=False)
        if all(str(dataset.attrs.get(name)) == value for name, value in attributes.items()):
            return dataset
        dataset.close()
    return None


def open_results(path: Path) -> xr.Dataset:
    """Return the dataset of a NetCDF file or a Zarr directory, to be read as it is used; raises what their readers raise."""
    if path.suffix == ".zarr":
        return xr.open_zarr(_with_zarr(path), chunks=None)
    with h5py.File(path, "r") as file:  # what fails here would make h5netcdf print a traceback when it is thrown away
        file.attrs.get("_nc3_strict")
        _refuse(path, file.visititems_links(lambda name, link: None if isinstance(link, h5py.HardLink) else name))
        _refuse(path, file.visititems(lambda name, held: name if isinstance(held, h5py.Dataset) and _is_elsewhere(held) else None))
    return xr.open_dataset(path, engine="h5netcdf")


def _is_elsewhere(held: h5py.Dataset) -> bool:
    """Say whether a variable's values lie outside its file, in any file that whoever wrote it has named."""
    return bool(held.external) or held.is_virtual


def _refuse(path: Path, linked: str | None) -> None:
    """Raise ``InvalidArgument`` where results hold something, named ``linked``, that may lead to another file of this machine."""
    if linked is not None:
        raise InvalidArgument(
            f"results: {path} is not read: {linked!r} in it is a link, or takes its values from elsewhere, which could be any file"
        )


@takes(dataset=RESULTS, path=path_check)
def write_results(dataset: xr.Dataset, path: str | Path) -> None:
    """Write NetCDF, or Zarr if ``path`` ends in ``.zarr``; whole or not at all.

    Raises:
      InvalidArgument: when Zarr is asked for and not installed.
      CannotWrite: on any error of the operating system.
    """
    _write(Path(path), dataset.nbytes, lambda temporary: save(dataset, temporary))


def stream_results(
    head: xr.Dataset, variables: Mapping[str, Variable], pieces: Iterable[tuple[str, int, slice, np.ndarray]], path: Path
) -> None:
    """Write a NetCDF file of results piece by piece, as :func:`write_results` does whole ones.

    Args:
      head: coordinates, attributes, and what has no entry for each trial.
      variables: the other variables.
      pieces: name of a variable, number of the run, trials and values of every piece.
      path: path of the file.

    Raises:
      CannotWrite: on any error of the operating system.
    """

    def write(temporary: Path) -> None:
        save(head, temporary)
        with h5netcdf.File(temporary, "a") as file:
            arrays = {name: _added(file, name, variable, along_runs(head)) for name, variable in variables.items()}
            for name, run, trials, values in pieces:
                arrays[name][run, trials] = values

    _write(path, head.nbytes + sum(math.prod(own.shape) * own.dtype.itemsize for own in variables.values()), write)


def along_runs(head: xr.Dataset) -> str:
    """Return the names of coordinates along the runs, as xarray writes down which ones a variable has."""
    found = (str(name) for name, coordinate in head.coords.items() if "algorithm" in coordinate.dims and name not in head.dims)
    return " ".join(sorted(found))


def check_results(head: xr.Dataset, path: Path) -> None:
    """Raise ``InvalidArgument`` on labels, names or attributes that no file of results can hold, and when Zarr is not installed."""
    if path.suffix == ".zarr":
        _with_zarr(path)
    try:
        with tempfile.TemporaryDirectory() as folder:
            _check_room(Path(folder), head.nbytes)
            save(head, Path(folder) / path.name)
    except OSError:  # for want of room there, which says nothing of the results' own place
        return
    except Exception as error:  # what the writers raise is not documented
        raise InvalidArgument(f"results: cannot be written to {path.name}: {reason_of(error)}; change labels and names") from error


def save(dataset: xr.Dataset, path: str | Path) -> None:
    """Write a dataset as compressed NetCDF-4, or as Zarr."""
    if Path(path).suffix == ".zarr":
        dataset.to_zarr(path, mode="w", zarr_format=2)  # 3 has no stable form of labels
        return
    compressed = {name: {"zlib": True, "complevel": LEVEL} for name in dataset.data_vars if dataset[name].dtype.kind in "fi"}
    dataset.to_netcdf(path, engine="h5netcdf", encoding=compressed)


def _check_room(directory: Path, size: int) -> None:
    """Raise ``OSError`` unless a file of ``size`` bytes of values fits; where one does not, HDF5 ends in tracebacks or ends the process."""
    size += OVERHEAD
    if size > shutil.disk_usage(directory).free:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if sys.platform == "win32":  # which has no limits of a process
        return
    import resource

    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit != resource.RLIM_INFINITY and limit < size:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))


def _write(path: Path, size: int, write: Callable[[Path], object]) -> None:
    """Call ``write`` with a temporary name, seal what it has written, a file or a Zarr directory, and rename it.

    Args:
      path: path of the file or directory.
      size: bytes of all values that are to be written.
      write: writes them.
    """

    def sealed(temporary: Path) -> None:
        if path.suffix != ".zarr":
            _check_room(temporary.parent, size)
        write(temporary)
        seal(temporary)

    if path.suffix != ".zarr":
        write_whole(path, sealed)
    else:
        publish(_with_zarr(path), write)


def hidden(path: Path) -> Path:
    """Return the name of a Zarr directory until it is whole."""
    return path.with_name(f".{path.name}")


def publish(path: Path, write: Callable[[Path], object], *, keep: bool = False) -> None:
    """Call ``write`` with the hidden name of a Zarr directory, seal it, and give it its name; ``keep`` what is there to be added to."""
    temporary, whole = hidden(path), False
    try:
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise OSError(errno.ENOTDIR, "it is there and is no directory")
        if not keep:
            shutil.rmtree(temporary, ignore_errors=True)  # of a process that was killed
        write(temporary)
        seal(temporary)
        if path.exists():
            shutil.rmtree(path)
        replace(temporary, path)
        whole = True
    except OSError as error:
        raise CannotWrite(path, error) from error
    finally:
        if not (keep or whole):
            shutil.rmtree(temporary, ignore_errors=True)


def _with_zarr(path: Path) -> Path:
    """Return ``path``, if Zarr can be read and written here; raises ``InvalidArgument`` otherwise."""
    if importlib.util.find_spec("zarr") is None:
        raise InvalidArgument("format: zarr is not installed; pip install zarr, or use NetCDF")
    return path


def _added(file: h5netcdf.File, name: str, variable: Variable, coordinates: str) -> Any:
    """Add a variable to a file, whose pieces are then set; missing numbers and coordinates are marked as xarray marks them."""
    numeric = variable.dtype.kind in "fi"
    options: dict[str, Any] = {"compression": "gzip", "compression_opts": LEVEL, "shuffle": True} if numeric else {}
    kind = np.dtype(np.int8) if variable.dtype == bool else variable.dtype
    fill = kind.type(np.nan) if kind.kind == "f" else None
    made = file.create_variable(name, variable.dims, kind, chunks=chunks_of(variable), fillvalue=fill, **options)
    made.attrs["coordinates"] = coordinates
    if variable.dtype == bool:
        made.attrs["dtype"] = "bool"
    return made


def chunks_of(variable: Variable) -> tuple[int, ...]:
    """Return the shape of a variable's chunks: of one run, whole trials, as many as make a chunk of some size."""
    trial = math.prod(variable.shape[2:]) * variable.dtype.itemsize
    return (1, min(max(CHUNK_BYTES // max(trial, 1), 1), variable.shape[1]), *variable.shape[2:])
