"""Output files, neither overwritten by accident nor half written, and exit statuses."""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import io
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import jax

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import FilePath, checked
from jaxbandit.core.doors import by_command, either, failure


class ExistingOutput(InvalidArgument):
    """Error of a place with files, unless ``--force`` or ``force=True`` is given."""


class CannotWrite(RuntimeError):
    """Error of a file that was not written and stays as before."""

    def __init__(self, path: Path, error: Exception) -> None:
        super().__init__(f"cannot write {path}: {reason_of(error)}; what was there before is as it was")


def reason_of(error: Exception) -> str:
    """Return an error in one line, preferably the operating system's."""
    words = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return next((line.strip() for line in words.splitlines() if line.strip()), type(error).__name__)


@contextlib.contextmanager
def _made_at(path: Path, what: str) -> Iterator[None]:
    """Turn errors of the operating system and of NUL into ``InvalidArgument``."""
    try:
        yield
    except InvalidArgument:
        raise
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"out: cannot make {what} {str(path)!r}: {reason_of(error)}") from error


@checked
def prepare_directory(path: FilePath, *, force: bool = False, besides: str = "") -> Path:
    """Make ``path`` a directory to write results in.

    Raises ``ExistingOutput`` on files in it that ``force`` or the pattern ``besides`` does not allow, and ``InvalidArgument`` on failure.
    """
    directory = Path(path)
    with _made_at(directory, "the directory"):
        if directory.exists() and not directory.is_dir():
            raise ExistingOutput(f"out: {directory} is a file, not a directory; choose another place")
        if directory.is_dir() and not force and any(not fnmatch.fnmatch(file.name, besides) for file in directory.iterdir()):
            raise ExistingOutput(
                f"out: {directory} exists and is not empty; choose another place or {either('say force=True', 'add --force')} to"
                " replace its files"
            )
        directory.mkdir(parents=True, exist_ok=True)
    if not os.access(directory, os.W_OK):
        raise InvalidArgument(f"out: {directory} is not writable")
    return directory


@checked
def prepare_file(path: FilePath, *, force: bool = False) -> Path:
    """Return a path to write at, over another file only by ``force``."""
    file = Path(path)
    with _made_at(file, "a place for"):
        if "\0" in str(file):
            raise ValueError("it holds NUL")
        if file.is_dir():
            raise ExistingOutput(f"out: {file} is a directory; name a file")
        if file.exists() and not force:
            raise ExistingOutput(f"out: {file} exists; choose another name or {either('say force=True', 'add --force')} to replace it")
        file.parent.mkdir(parents=True, exist_ok=True)
    return file


def refuse_device(path: Path) -> None:
    """Raise ``OSError`` on a device, because reading it may never end."""
    if path.is_char_device() or path.is_block_device():
        raise OSError(errno.EINVAL, "it is a device")


def opened_text(path: str | Path, newline: str | None = None) -> TextIO:
    """Open a UTF-8 file for reading, with or without byte-order mark."""
    refuse_device(Path(path))
    return Path(path).open(encoding="utf-8-sig", newline=newline)


def toml_table(path: str | Path, what: str) -> dict[str, Any]:
    """Return the table of a TOML file, called ``what`` in errors."""
    try:
        with opened_text(path) as file:
            text = file.read()
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{what}: cannot read {str(path)!r}: {reason_of(error)}") from error
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{what}: {path} is no TOML: {reason_of(error)}") from error


def drop(path: Path) -> None:
    """Remove a file or a directory, if it is there."""
    try:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise CannotWrite(path, error) from error


def move_over(temporary: Path, path: Path) -> None:
    """Rename a file or directory over another, durably in a power cut."""
    os.replace(temporary, path)
    with contextlib.suppress(OSError):
        # Windows and some file systems cannot synchronise a directory.
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Call ``write`` on a temporary name and rename the file to ``path``.

    Readers see the old file or the whole new one. Raises ``CannotWrite`` on any failure, also for a path that is no regular file.
    """
    temporary = None
    try:
        # A renamed file would replace a device.
        if path.exists() and not path.is_file():
            raise OSError(errno.EINVAL, "it is there and is no regular file")
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file)
        # Only the owner can read the files of mkstemp.
        os.chmod(temporary, 0o644)
        move_over(temporary, path)
    except OSError as error:
        raise CannotWrite(path, error) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


@by_command()
def ended(command: Callable[[], int | None], *, go_on: str, less: str, further: Mapping[type[Exception], int] | None = None) -> int:
    """Run a command and return its exit status.

    The status is the command's own (0 for ``None``), 1 for output that cannot be written or memory that does not suffice, 2 for arguments
    that cannot be used, 130 for an interrupted command, and ``further`` ones by error. Other errors are raised. ``go_on`` says how to go on
    after an interruption, ``less`` how to ask for less memory.
    """
    status: dict[type[Exception], int] = {CannotWrite: 1, InvalidArgument: 2, **(further or {})}
    # Labels may contain letters that the terminal lacks.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            return command() or 0
        finally:
            # The stream is None if the caller has closed it. Flushing here reports a failure to write.
            if sys.stdout is not None:
                sys.stdout.flush()
    except KeyboardInterrupt:
        print(f"interrupted; {go_on}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        _drop_output()
        return 0
    except tuple(status) as error:
        print(failure(error), file=sys.stderr)
        return next(number for kind, number in status.items() if isinstance(error, kind))
    except OSError as error:
        _drop_output()
        print(f"error: cannot read or write {error.filename or 'the output'}: {reason_of(error)}", file=sys.stderr)
        return 1
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        words = reason_of(error) if str(error) else "there is none left"
        print(f"error: memory does not suffice ({words}); {less}, or free some", file=sys.stderr)
        return 1


def _drop_output() -> None:
    """Discard unwritten output, so that Python does not write it on exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    # The output may be closed, or a caller in Python may have replaced it.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
