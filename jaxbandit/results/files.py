"""Results on disk: sealed NetCDF files and Zarr directories.

Results are written whole or not at all, and reading damaged results raises an error. The seal of ``results.nc`` or ``results.zarr`` is a
file of SHA-256 checksums, ``results.nc.sha256``, in the format of ``sha256sum``. Results of another program have no seal: reading them
warns.
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
from jaxbandit.host.files import CannotWrite, drop, move_over, reason_of, refuse_device, write_whole
from jaxbandit.results.dataset import Piece, Results, Variable

# The functions that read and write load these, because a session imports this module and need not wait for them.
if TYPE_CHECKING:
    import h5netcdf
    import xarray as xr

COMPRESSION_LEVEL = 4
# The library compresses and reads a chunk of 1 MiB at a time.
CHUNK_BYTES = 2**20


@checked
def read_results(path: FilePath, *, load: bool = True) -> xr.Dataset:
    """Return the dataset of results on disk.

    Args:
      path: path of a NetCDF file, of a Zarr directory, or of a run's directory.
      load: read everything now; otherwise values are read when they are used, and the file stays open until the dataset is closed.

    Raises:
      InvalidArgument: when there are no results, they cannot be read, or were altered since :func:`write_results` wrote them.
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
    except Exception as error:
        # The readers do not document their errors on a damaged file.
        raise InvalidArgument(f"results: cannot read {str(path)!r}: {reason_of(error)}") from error


def open_results(path: Path) -> xr.Dataset:
    """Return a dataset that reads its values as they are used."""
    import h5py
    import xarray as xr

    if path.suffix == ".zarr":
        return xr.open_zarr(_with_zarr(path), chunks=None)
    # A file that fails here would make h5netcdf print a traceback when Python deletes its object.
    with h5py.File(path, "r") as file:
        file.attrs.get("_nc3_strict")
        _refuse(path, file.visititems_links(lambda name, link: None if isinstance(link, h5py.HardLink) else name))
        outside = file.visititems(
            lambda name, held: name if isinstance(held, h5py.Dataset) and (held.external or held.is_virtual) else None
        )
        _refuse(path, outside)
    return xr.open_dataset(path, engine="h5netcdf")


def _refuse(path: Path, linked: str | None) -> None:
    """Raise ``InvalidArgument`` if an entry, ``linked``, may lead to another file."""
    if linked is not None:
        raise InvalidArgument(
            f"results: {path} is not read: {linked!r} in it is a link, or takes its values from elsewhere, which could be any file"
        )


@checked
def write_results(dataset: Results, path: FilePath) -> None:
    """Write results as NetCDF, or as Zarr if ``path`` ends in ``.zarr``.

    They are written whole or not at all. Raises ``CannotWrite``, or ``InvalidArgument`` if Zarr is not installed.
    """
    _write_sealed(Path(path), dataset.nbytes, lambda temporary: save(dataset, temporary))


def stream_results(head: xr.Dataset, variables: Mapping[str, Variable], pieces: Iterable[Piece], path: Path) -> None:
    """Write results piece by piece, given a head without ``variables``."""
    # A variable has the names of its coordinates in one text. These are along the runs.
    named = (str(name) for name, coordinate in head.coords.items() if "algorithm" in coordinate.dims and name not in head.dims)
    coordinates = " ".join(sorted(named))

    def write(temporary: Path) -> None:
        save(head, temporary)
        if path.suffix == ".zarr":
            import zarr

            group: Any = zarr.open_group(temporary, mode="a", zarr_format=2)
            arrays = {}
            for name, variable in variables.items():
                # By these names xarray finds dimensions and coordinates.
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

    _write_sealed(path, head.nbytes + sum(math.prod(one.shape) * one.dtype.itemsize for one in variables.values()), write)


def check_results(head: xr.Dataset, path: Path) -> None:
    """Raise ``InvalidArgument`` on a head that no file here can store."""
    if path.suffix == ".zarr":
        _with_zarr(path)
    try:
        with tempfile.TemporaryDirectory() as folder:
            _check_room(Path(folder), head.nbytes)
            save(head, Path(folder) / path.name)
    except OSError:
        # The temporary folder lacks room. The place of the results may have enough.
        return
    except Exception as error:
        # The writers do not document their errors.
        raise InvalidArgument(f"results: cannot be written to {path.name}: {reason_of(error)}; change labels and names") from error


def save(dataset: xr.Dataset, path: str | Path) -> None:
    """Write a dataset as compressed NetCDF-4, or as Zarr."""
    if Path(path).suffix == ".zarr":
        # Format 3 has no stable form of labels.
        dataset.to_zarr(path, mode="w", zarr_format=2)
        return
    compressed = {name: {"zlib": True, "complevel": COMPRESSION_LEVEL} for name in dataset.data_vars if dataset[name].dtype.kind in "fi"}
    dataset.to_netcdf(path, engine="h5netcdf", encoding=compressed)


def drop_results(path: Path) -> None:
    """Remove results and their seal, or raise ``CannotWrite``."""
    # The seal goes first, because a file that stays is read as it is without its seal.
    for file in (seal_of(path), path):
        drop(file)


def _check_room(directory: Path, size: int) -> None:
    """Raise ``OSError`` unless a file fits, because HDF5 would end the process."""
    # Besides its values a file stores names, attributes, and the bytes by which HDF5 aligns them.
    size += 2**18
    if size > shutil.disk_usage(directory).free:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if sys.platform == "win32":
        # Processes have no limits there.
        return
    import resource

    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit != resource.RLIM_INFINITY and limit < size:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))


def _write_sealed(path: Path, size: int, write: Callable[[Path], object]) -> None:
    """Let ``write`` store ``size`` bytes, rename its file and seal it."""

    def written(temporary: Path) -> None:
        _check_room(temporary.parent, size)
        write(temporary)
        # The file that is replaced now loses its seal.
        drop(seal_of(path))

    if path.suffix != ".zarr":
        write_whole(path, written)
        _seal(path)
        return
    temporary = _with_zarr(path).with_name(f".{path.name}")
    try:
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise OSError(errno.ENOTDIR, "it is there and is no directory")
        # A process that was killed may have left its directory.
        shutil.rmtree(temporary, ignore_errors=True)
        write(temporary)
        drop_results(path)
        move_over(temporary, path)
        _seal(path)
    except OSError as error:
        raise CannotWrite(path, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _with_zarr(path: Path) -> Path:
    """Return ``path``, or raise ``InvalidArgument`` if Zarr is not installed."""
    if importlib.util.find_spec("zarr") is None:
        raise InvalidArgument("format: zarr is not installed; pip install zarr, or use NetCDF")
    return path


def _added_to_file(file: h5netcdf.File, name: str, variable: Variable, coordinates: str) -> Any:
    """Add a variable to a NetCDF file, with the marks of xarray."""
    numeric = variable.dtype.kind in "fi"
    options: dict[str, Any] = {"compression": "gzip", "compression_opts": COMPRESSION_LEVEL, "shuffle": True} if numeric else {}
    kind = np.dtype(np.int8) if variable.dtype == bool else variable.dtype
    fill = kind.type(np.nan) if kind.kind == "f" else None
    sizes = zip(variable.dims, variable.shape, strict=True)
    # Dimensions with a coordinate are there.
    file.dimensions.update({dim: size for dim, size in sizes if dim not in file.dimensions})
    made = file.create_variable(name, variable.dims, kind, chunks=chunks_of(variable), fillvalue=fill, **options)
    made.attrs["coordinates"] = coordinates
    if variable.dtype == bool:
        made.attrs["dtype"] = "bool"
    return made


def chunks_of(variable: Variable) -> tuple[int, ...]:
    """Return a chunk's shape: trials of one run, about ``CHUNK_BYTES``."""
    trial = math.prod(variable.shape[2:]) * variable.dtype.itemsize
    return (1, min(max(CHUNK_BYTES // max(trial, 1), 1), variable.shape[1]), *variable.shape[2:])


# Seals.


def seal_of(path: Path) -> Path:
    """Return the path of the seal of a file or directory."""
    return path.with_name(path.name + ".sha256")


def _seal(path: Path) -> None:
    """Write the seal of results, or raise ``CannotWrite``."""
    lines = [f"{checksum}  {(Path(path.name) / name).as_posix()}\n" for name, checksum in _checksums(path).items()]
    write_whole(seal_of(path), lambda temporary: temporary.write_text("".join(lines), encoding="utf-8"))


def _check_seal(path: Path) -> None:
    """Raise ``InvalidArgument`` on altered results, warn of results without seal."""
    if not seal_of(path).exists():
        words = f"{path} has no {seal_of(path).name} beside it: numbers that were changed since it was written are not noticed"
        logging.getLogger("jaxbandit").warning(words)
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
    """Return files' checksums by path, ``"."`` for a single file."""
    checksums = {}
    for file in sorted(one for one in (path, *path.rglob("*")) if one.is_file()):
        with file.open("rb") as opened:
            checksums[file.relative_to(path).as_posix()] = hashlib.file_digest(opened, "sha256").hexdigest()
    return checksums
