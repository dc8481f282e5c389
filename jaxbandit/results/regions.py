"""Results as a Zarr directory that several processes fill, each with whole chunks that no other touches.

The directory has a hidden name until all of it is written. What a batch has of a chunk that another one shares is handed back, and put
in at the end by one process.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.files import CannotWrite, replace
from jaxbandit.results.dataset import Piece
from jaxbandit.results.files import along_runs, chunks_of, hidden, publish, save
from jaxbandit.results.schema import Variable


def begin_regions(path: Path, head: xr.Dataset, variables: Mapping[str, Variable]) -> None:
    """Write a directory without values for ``path``, whose variables are then filled; raises ``CannotWrite``."""
    import zarr

    new = path.with_name(f".new-{path.name}")  # until it is ready to be filled
    try:
        for before in (new, hidden(path)):
            shutil.rmtree(before, ignore_errors=True)
        save(head, new)
        group = zarr.open_group(new, mode="a", zarr_format=2)
        for name, variable in variables.items():
            # Dimensions and coordinates are named as xarray names them.
            named: dict[str, Any] = {"_ARRAY_DIMENSIONS": list(variable.dims), "coordinates": along_runs(head)}
            fill = np.nan if variable.dtype.kind == "f" else None
            group.create_array(
                name, shape=variable.shape, chunks=chunks_of(variable), dtype=variable.dtype, fill_value=fill, attributes=named
            )
        zarr.consolidate_metadata(new, zarr_format=2)
        replace(new, hidden(path))
    except OSError as error:
        raise CannotWrite(path, error) from error


def fill_regions(path: Path, pieces: Iterable[Piece], run: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Write the whole chunks of pieces, and return what is left of them, for :func:`put_in`.

    Args:
      path: path of the results.
      pieces: what is known of them.
      run: what the directory must say of its run: a worker may have been left behind by another one, which was given up.

    Raises:
      InvalidArgument: where this process does not see the directory, as one on another machine may not, or it is of another run.
      CannotWrite: on any error of the operating system.
    """
    import zarr

    try:
        group: Any = zarr.open_group(hidden(path), mode="r+", zarr_format=2)
    except FileNotFoundError as error:
        raise InvalidArgument(
            f"results: workers fill {path}, and this one does not see it; give a directory that all machines share, or write NetCDF"
        ) from error
    if any(group.attrs.get(name) != value for name, value in run.items()):
        raise InvalidArgument(f"results: {path} is filled by another run meanwhile")
    left = {}
    try:
        for name, number, trials, values in pieces:
            array = group[name]
            size, every = array.chunks[1], array.shape[1]
            first = -(-trials.start // size) * size
            last = trials.stop if trials.stop == every else trials.stop // size * size
            if first < last:
                array[number, first:last] = values[first - trials.start : last - trials.start]
            for start, stop in ((trials.start, min(first, trials.stop)), (max(last, first), trials.stop)):
                if start < stop:
                    left[f"{name}|{number}|{start}"] = values[start - trials.start : stop - trials.start]
    except OSError as error:
        raise CannotWrite(path, error) from error
    return left


def put_in(path: Path, left: Iterable[Mapping[str, np.ndarray]]) -> None:
    """Put in what :func:`fill_regions` has left of all batches."""
    import zarr

    group: Any = zarr.open_group(hidden(path), mode="r+", zarr_format=2)
    for arrays in left:
        for key, values in arrays.items():
            name, run, start = key.rsplit("|", 2)
            group[name][int(run), int(start) : int(start) + len(values)] = values


def finish_regions(path: Path, head: xr.Dataset) -> None:
    """Add what is known only at the end to a directory that is filled, and give it its name; raises ``CannotWrite``."""

    def write(temporary: Path) -> None:
        head.to_zarr(temporary, mode="a", zarr_format=2, consolidated=True)

    publish(path, write, keep=True)
