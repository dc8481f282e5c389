"""Results on disk: NetCDF files and Zarr directories, written whole or not at all, and refused where they were damaged.

The seal of ``results.nc`` or ``results.zarr`` is a file of SHA-256 checksums beside it, ``results.nc.sha256``, as ``sha256sum`` writes and
checks it. Results that another program has written have no seal and are read as they are, which is said.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import logging
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import FilePath, checked
from jaxbandit.core.files import CannotWrite, drop, reason_of, refuse_device, replace, write_whole
from jaxbandit.results.dataset import Piece, Results, Variable

if TYPE_CHECKING:  # loaded by the functions that read and write: a session, which imports this by the way, need not wait for them
    import h5netcdf
    import xarray as xr

LOGGER = logging.getLogger("jaxbandit")
LEVEL = 4  # of compression
CHUNK_BYTES = 2**20  # of what is compressed and read at a time
OVERHEAD = 2**18  # bytes of a file beside its values: names, attributes, and room for what HDF5 aligns


@checked
def read_results(path: FilePath, *, load: bool = True) -> xr.Dataset:
    """Return the dataset of a NetCDF file or a Zarr directory, or of the directory that a run wrote one to.

    Args:
      path: path of the file or directory.
      load: read everything now; otherwise what is used is read as it is used, and the file stays open until the dataset is closed.

    Raises:
      InvalidArgument: when there is none, it cannot be read, or was altered since it was written by :func:`write_results`.
    """
    path = Path(path)
    try:
        found = next((file for name in ("results.nc", "results.zarr") if (file := path / name).exists()), path)
        if not found.exists() or (found.is_dir() and found.suffix != ".zarr"):
            raise InvalidArgument(
                f"results: {path} holds no results.nc or results.zarr" if path.is_dir() else f"results: there is no {path}"
            )
        refuse_device(found)
        _refuse(found, next((file.name for file in found.rglob("*") if file.is_symlink()), None))
        _check_seal(found)
        lazy = open_results(found)
        if not load:
            return lazy
        with lazy:
            return lazy.load()
    except InvalidArgument:
        raise
    except Exception as error:  # what the readers raise on a damaged file is not documented
        raise InvalidArgument(f"results: cannot read {str(path)!r}: {reason_of(error)}") from error


def open_results(path: Path) -> xr.Dataset:
    """Return the dataset of a NetCDF file or a Zarr directory, to be read as it is used; raises what their readers raise."""
    import h5py
    import xarray as xr

    if path.suffix == ".zarr":
        return xr.open_zarr(_with_zarr(path), chunks=None)
    with h5py.File(path, "r") as file:  # what fails here would make h5netcdf print a traceback when it is thrown away
        file.attrs.get("_nc3_strict")
        _refuse(path, file.visititems_links(lambda name, link: None if isinstance(link, h5py.HardLink) else name))
        outside = file.visititems(
            lambda name, held: name if isinstance(held, h5py.Dataset) and (held.external or held.is_virtual) else None
        )
        _refuse(path, outside)
    return xr.open_dataset(path, engine="h5netcdf")


def _refuse(path: Path, linked: str | None) -> None:
    """Raise ``InvalidArgument`` where results hold something, named ``linked``, that may lead to another file of this machine."""
    if linked is not None:
        raise InvalidArgument(
            f"results: {path} is not read: {linked!r} in it is a link, or takes its values from elsewhere, which could be any file"
        )


@checked
def write_results(dataset: Results, path: FilePath) -> None:
    """Write NetCDF, or Zarr where ``path`` ends so, whole or not at all; raises ``CannotWrite``, or ``InvalidArgument`` without Zarr."""
    _write(Path(path), dataset.nbytes, lambda temporary: save(dataset, temporary))


def stream_results(head: xr.Dataset, variables: Mapping[str, Variable], pieces: Iterable[Piece], path: Path) -> None:
    """Write a file or directory of results piece by piece, given all but ``variables``; raises what :func:`write_results` does."""
    named = (str(name) for name, coordinate in head.coords.items() if "algorithm" in coordinate.dims and name not in head.dims)
    coordinates = " ".join(sorted(named))  # along the runs, as xarray writes down which ones a variable has

    def write(temporary: Path) -> None:
        save(head, temporary)
        if path.suffix == ".zarr":
            import zarr

            group: Any = zarr.open_group(temporary, mode="a", zarr_format=2)
            arrays = {}
            for name, variable in variables.items():  # whose dimensions and coordinates are named as xarray names them
                named = {"_ARRAY_DIMENSIONS": list(variable.dims), "coordinates": coordinates}
                fill_value, chunks = np.nan if variable.dtype.kind == "f" else None, chunks_of(variable)
                shape, dtype = variable.shape, variable.dtype
                arrays[name] = group.create_array(name, shape=shape, chunks=chunks, dtype=dtype, fill_value=fill_value, attributes=named)
            fill(arrays)
            zarr.consolidate_metadata(temporary, zarr_format=2)
        else:
            import h5netcdf

            with h5netcdf.File(temporary, "a") as file:
                fill({name: _added_to_file(file, name, variable, coordinates) for name, variable in variables.items()})

    def fill(arrays: Mapping[str, Any]) -> None:
        for name, run, trials, values in pieces:
            arrays[name][run, trials] = values

    _write(path, head.nbytes + sum(math.prod(one.shape) * one.dtype.itemsize for one in variables.values()), write)


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


def drop_results(path: Path) -> None:
    """Remove a NetCDF file or a Zarr directory and its seal, if they are there; raises ``CannotWrite``."""
    for file in (seal_of(path), path):  # in this order: without its seal a file that stays is read as it is
        drop(file)


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
    """Call ``write``, which writes ``size`` bytes of values, with a temporary name; rename what it has written, and seal it."""

    def written(temporary: Path) -> None:
        _check_room(temporary.parent, size)
        write(temporary)
        drop(seal_of(path))  # of what is replaced now

    if path.suffix != ".zarr":
        write_whole(path, written)
        _seal(path)
        return
    temporary = _with_zarr(path).with_name(f".{path.name}")
    try:
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise OSError(errno.ENOTDIR, "it is there and is no directory")
        shutil.rmtree(temporary, ignore_errors=True)  # of a process that was killed
        write(temporary)
        drop_results(path)
        replace(temporary, path)
        _seal(path)
    except OSError as error:
        raise CannotWrite(path, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _with_zarr(path: Path) -> Path:
    """Return ``path``, if Zarr can be read and written here; raises ``InvalidArgument`` otherwise."""
    if importlib.util.find_spec("zarr") is None:
        raise InvalidArgument("format: zarr is not installed; pip install zarr, or use NetCDF")
    return path


def _added_to_file(file: h5netcdf.File, name: str, variable: Variable, coordinates: str) -> Any:
    """Add a variable to a file of NetCDF; missing numbers and coordinates are marked as xarray marks them."""
    numeric = variable.dtype.kind in "fi"
    options: dict[str, Any] = {"compression": "gzip", "compression_opts": LEVEL, "shuffle": True} if numeric else {}
    kind = np.dtype(np.int8) if variable.dtype == bool else variable.dtype
    fill = kind.type(np.nan) if kind.kind == "f" else None
    sizes = zip(variable.dims, variable.shape, strict=True)
    file.dimensions.update({dim: size for dim, size in sizes if dim not in file.dimensions})  # of those without a coordinate
    made = file.create_variable(name, variable.dims, kind, chunks=chunks_of(variable), fillvalue=fill, **options)
    made.attrs["coordinates"] = coordinates
    if variable.dtype == bool:
        made.attrs["dtype"] = "bool"
    return made


def chunks_of(variable: Variable) -> tuple[int, ...]:
    """Return the shape of a variable's chunks: of one run, whole trials, as many as make a chunk of some size."""
    trial = math.prod(variable.shape[2:]) * variable.dtype.itemsize
    return (1, min(max(CHUNK_BYTES // max(trial, 1), 1), variable.shape[1]), *variable.shape[2:])


# Seals.


def seal_of(path: Path) -> Path:
    """Return the path of the seal of a NetCDF file or a Zarr directory."""
    return path.with_name(path.name + ".sha256")


def _seal(path: Path) -> None:
    """Write the seal of a NetCDF file or a Zarr directory; raises ``CannotWrite``."""
    lines = [f"{checksum}  {(Path(path.name) / name).as_posix()}\n" for name, checksum in _checksums(path).items()]
    write_whole(seal_of(path), lambda temporary: temporary.write_text("".join(lines), encoding="utf-8"))


def _check_seal(path: Path) -> None:
    """Raise ``InvalidArgument`` on a NetCDF file or a Zarr directory that was altered since it was sealed; say where one has no seal."""
    if not seal_of(path).exists():
        LOGGER.warning(f"{path} has no {seal_of(path).name} beside it: numbers that were changed since it was written are not noticed")
        return
    text = seal_of(path).read_text(encoding="utf-8", errors="replace")
    sealed = {name.partition("/")[2] or ".": checksum for checksum, _, name in (line.partition("  ") for line in text.splitlines())}
    found = _checksums(path)
    wrong = sorted(name for name in {*sealed, *found} if sealed.get(name) != found.get(name))
    if wrong:
        raise InvalidArgument(
            f"results: {path / wrong[0]} was damaged or altered since it was written; restore it from a copy, or run the study again"
        )


def _checksums(path: Path) -> dict[str, str]:
    """Return the checksum of every file of a directory by its path in there, or of a file by the name ``"."``."""
    checksums = {}
    for file in sorted(one for one in (path, *path.rglob("*")) if one.is_file()):
        with file.open("rb") as opened:
            checksums[file.relative_to(path).as_posix()] = hashlib.file_digest(opened, "sha256").hexdigest()
    return checksums
