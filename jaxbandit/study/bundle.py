"""Bundles: a study's results in one file, with everything that checks them."""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import jax
import numpy as np

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import FilePath, checked
from jaxbandit.core.fields import anything
from jaxbandit.host.files import prepare_file, write_whole
from jaxbandit.results.citations import cite
from jaxbandit.results.dataset import SECONDS
from jaxbandit.results.files import read_results
from jaxbandit.study.run import run_study
from jaxbandit.study.trial import study_of

if TYPE_CHECKING:
    import xarray as xr

SUMS = "SHA256SUMS"


class Verification(NamedTuple):
    """Outcome of :func:`verify` for one quantity of the results.

    Attributes:
      name: name of the quantity in the results.
      equal: whether both runs have the same bits.
      share: share of the trials that differ.
      largest: largest difference of a number, relative to the largest number of the quantity.
    """

    name: str
    equal: bool
    share: float
    largest: float


@checked
def bundle(directory: FilePath, file: FilePath, *, scripts: Annotated[Sequence[FilePath], anything] = (), force: bool = False) -> Path:
    """Write a study's results, figures, versions and citations into a zip file.

    The results hold the study as a table, with its seeds, so that :func:`verify` can run it again.

    Args:
      directory: directory of the study, with ``results.nc`` or ``results.zarr``.
      file: zip file to write.
      scripts: further files, such as the study file and files of your own classes.
      force: whether to replace the file if it exists.

    Raises:
      InvalidArgument: if there are no results, they hold no study, or a script does not exist.
    """
    folder = Path(directory)
    with read_results(folder, load=False) as dataset:
        citations = cite(study_of(dataset))
    target = prepare_file(Path(file), force=force)
    parts: dict[str, Path | bytes] = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    for script in map(Path, scripts):
        if not script.is_file():
            raise InvalidArgument(f"scripts: there is no file {str(script)!r}")
        parts[f"scripts/{script.name}"] = script
    installed = sorted({f"{one.name}=={one.version}" for one in metadata.distributions()}, key=str.lower)
    parts |= {"citations.bib": citations.encode(), "requirements.txt": "\n".join([*installed, ""]).encode()}
    parts[SUMS] = "".join(f"{_checksum(part)}  {name}\n" for name, part in sorted(parts.items())).encode()

    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, part in parts.items():
                archive.writestr(name, part) if isinstance(part, bytes) else archive.write(part, name)

    write_whole(target, write)
    return target


@checked
def verify(file: FilePath) -> list[Verification]:
    """Run a bundle's study again and compare its results.

    On the same kind of machine with the same versions all bits are equal. Elsewhere numbers differ by rounding, and a trial in which two
    scores were nearly equal goes its own way.

    Raises:
      InvalidArgument: if the file is not a bundle, was altered, or holds a study that cannot run here.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _unpack(Path(file), folder)
        # The study's tables have the precision of the process that ran it.
        with read_results(folder) as stored, jax.enable_x64(stored.attrs.get("jax_enable_x64") == "True"):
            again = run_study(study_of(stored))
            return [_compared(stored[name], again[name]) for name in stored.data_vars if name in again and name not in SECONDS]


def _unpack(file: Path, folder: Path) -> None:
    """Unpack a bundle, or raise ``InvalidArgument`` if it was altered."""
    try:
        with zipfile.ZipFile(file) as archive:
            archive.extractall(folder)
    except (OSError, zipfile.BadZipFile) as error:
        raise InvalidArgument(f"file: cannot read {str(file)!r} as a bundle: {error}") from error
    if not (folder / SUMS).is_file():
        raise InvalidArgument(f"file: {str(file)!r} has no {SUMS}; it is not a bundle")
    named = dict(line.split("  ", 1)[::-1] for line in (folder / SUMS).read_text().splitlines())
    for name, known in named.items():
        part = folder / name
        if not part.is_file() or _checksum(part) != known:
            raise InvalidArgument(f"file: {name!r} of {str(file)!r} is missing or was altered since the bundle was made")


def _checksum(part: Path | bytes) -> str:
    """Return the SHA-256 sum of a file or of bytes."""
    if isinstance(part, bytes):
        return hashlib.sha256(part).hexdigest()
    with part.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _compared(stored: xr.DataArray, again: xr.DataArray) -> Verification:
    """Return how far a quantity of two runs differs."""
    one, other = stored.values, again.values
    floats = one.dtype.kind == "f"
    same = (one == other) | (np.isnan(one) & np.isnan(other)) if floats else one == other
    differs = stored.copy(data=~same)
    trials = differs.any([dim for dim in differs.dims if dim not in ("algorithm", "trial")])
    largest = 0.0
    if floats and not same.all():
        apart = np.where(same, 0, np.abs(one - other))
        largest = float(np.max(np.where(np.isnan(apart), np.inf, apart)) / (np.nanmax(np.abs(one)) or 1.0))
    return Verification(str(stored.name), bool(same.all()), float(trials.mean()), largest)
