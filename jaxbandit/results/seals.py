"""Seals of results on disk: SHA-256 checksums by which damage is noticed before a file is read.

The seal of ``results.nc`` or ``results.zarr`` is a file beside it, ``results.nc.sha256``, as ``sha256sum`` writes and checks it.
Results that another program has written have no seal and are read as they are.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.files import drop, write_whole

SUFFIX = ".sha256"


def seal_of(path: Path) -> Path:
    """Return the path of the seal of a NetCDF file or a Zarr directory."""
    return path.with_name(path.name + SUFFIX)


def seal(path: Path) -> None:
    """Write the seal of a NetCDF file or a Zarr directory; raises ``CannotWrite``."""
    lines = [f"{checksum}  {(Path(path.name) / name).as_posix()}\n" for name, checksum in _checksums(path).items()]
    write_whole(seal_of(path), lambda temporary: temporary.write_text("".join(lines), encoding="utf-8"))


def drop_results(path: Path) -> None:
    """Remove a NetCDF file or a Zarr directory and its seal, if they are there; raises ``CannotWrite``."""
    for file in (seal_of(path), path):  # in this order: without its seal a file that stays is read as it is
        drop(file)


def check_seal(path: Path) -> None:
    """Raise ``InvalidArgument`` on a NetCDF file or a Zarr directory that was altered since it was sealed; one without a seal passes."""
    if not seal_of(path).exists():
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
