"""Seals of results on disk: checksums by which damage is noticed before a file is read.

The seal of a NetCDF file is a line behind its HDF5 data, where HDF5 does not look; that of a Zarr directory is a file beside its arrays.
Results that another program has written, or written again, have no seal and are read as they are.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from jaxbandit.core.checks import InvalidArgument

CHECKSUMS = ".checksums.json"  # in a Zarr directory: the SHA-256 of every other file, by its path
LINE = "\njaxbandit results, SHA-256 {}\n"  # behind a NetCDF file
LENGTH = len(LINE.format("0" * 64))
PIECE = 2**20  # bytes that are read at a time
HDF5 = b"\x89HDF\r\n\x1a\n"


def seal(path: Path) -> None:
    """Add a seal to a NetCDF file or a Zarr directory that has none, once all of it is written."""
    if path.is_dir():
        (path / CHECKSUMS).write_text(json.dumps(_checksums(path), indent=1) + "\n", encoding="utf-8")
        return
    line = LINE.format(_checksum(path, path.stat().st_size))
    with path.open("ab") as file:
        file.write(line.encode())


def check_seal(path: Path) -> None:
    """Raise ``InvalidArgument`` on a NetCDF file or a Zarr directory that was altered since it was sealed; one without a seal passes."""
    if path.is_dir():
        _check_directory(path)
    else:
        _check_file(path)


def _check_directory(path: Path) -> None:
    if not (path / CHECKSUMS).exists():
        return
    try:
        held = json.loads((path / CHECKSUMS).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        held = None
    if not isinstance(held, dict):
        raise _altered(path / CHECKSUMS)
    found = _checksums(path)
    wrong = sorted(name for name in {*held, *found} if held.get(name) != found.get(name))
    if wrong:
        raise _altered(path / wrong[0])


def _check_file(path: Path) -> None:
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(64)
        file.seek(max(size - LENGTH, 0))
        end = file.read().decode("ascii", errors="replace")
    held = re.fullmatch(LINE.format("([0-9a-f]{64})"), end)
    if held is not None:
        if held[1] != _checksum(path, size - LENGTH):
            raise _altered(path)
    elif head.startswith(HDF5) and size > _hdf5_size(head):  # something stands where a seal does
        raise _altered(path)


def _hdf5_size(head: bytes) -> int:
    """Return the end of the data of an HDF5 file, by its superblock (HDF5 File Format Specification 3.0, II.A)."""
    version = head[8]
    width, place = (head[13], {0: 40, 1: 44}[version]) if version < 2 else (head[9], 28)
    return int.from_bytes(head[place : place + width], "little")


def _altered(path: Path) -> InvalidArgument:
    return InvalidArgument(f"results: {path} was damaged or altered since it was written; restore it from a copy, or run the study again")


def _checksums(directory: Path) -> dict[str, str]:
    """Return the checksum of every file of a directory but :data:`CHECKSUMS`."""
    files = sorted(path for path in directory.rglob("*") if path.is_file() and path.name != CHECKSUMS)
    return {path.relative_to(directory).as_posix(): _checksum(path, path.stat().st_size) for path in files}


def _checksum(path: Path, size: int) -> str:
    """Return the SHA-256 of the first ``size`` bytes of a file, as hexadecimal digits."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while size > 0 and (piece := file.read(min(PIECE, size))):
            found.update(piece)
            size -= len(piece)
    return found.hexdigest()
