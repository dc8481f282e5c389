"""Compiled programs kept on disk, so that the next process which needs them finds them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import platform
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import jaxlib
from jax.experimental.compilation_cache import compilation_cache

from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.declare import FilePath, checked
from jaxbandit.core.files import reason_of

LOGGER = logging.getLogger("jaxbandit")  # which shows warnings on standard error unless logging is set up otherwise
PROCESSORS = Path("/proc/cpuinfo")
VECTORS = ("amx", "asimd", "avx", "fma", "sse", "sve")  # beginnings of the names of instructions on vectors
MAX_SIZE = 2**29  # bytes of the programs in a directory
SECONDS_TO_WRITE = 60.0  # a program and its time, at most
MOST_LINKS = 40  # on the way to a directory, as on Linux
USUAL = Path("~", ".cache", "jaxbandit")  # stands for the usual directory, wherever a user's is
WIDEST = ("avx512f", "avx2", "avx", "sve2", "sve", "asimd")


class Choice:
    """Choice of where this process keeps programs, once somebody has made it."""

    made = False


def enable_unless_chosen() -> None:
    """Keep compiled programs in the usual directory, unless :func:`enable_cache` has been called or JAX told where to keep them."""
    if not Choice.made and not jax.config.values["jax_compilation_cache_dir"]:
        enable_cache()


@checked
def enable_cache(directory: FilePath | None = USUAL) -> Path | None:
    """Keep compiled programs on disk from now on, and find those that are there; return the directory, ``None`` where there is none.

    Sessions, :func:`~jaxbandit.optimise` and the Optuna sampler do this by themselves when they begin, unless it was called before or JAX
    was told where to keep programs; ``enable_cache(None)`` keeps none from now on.

    A program is found again if nothing that it is made of has changed: JAX compares the program, its own version and the compiler's
    flags. Programs of machines with other instructions, which could not run, lie in a directory of their own. The commands ``python -m
    jaxbandit`` and ``python -m experiments`` call this, too; a script or a notebook calls it before its first simulation. When the
    directory is made, that is said. It holds at most 512 MiB, beyond which JAX removes the programs that were used longest ago.

    Whoever can write to the directory, or put another one in its place, can have this process run programs of theirs. So it is made for
    its owner alone, and it is not used, which is said, where it or a file in it can be written to by others or belongs to another user,
    or where this holds for a directory or a link on the way to it. Others may write to a directory above it if that is sticky, as ``/tmp``
    is, and the superuser may own it. Modes and owners are looked at, access control lists are not.

    Args:
      directory: where to keep them, ``None`` for nowhere; default: where ``JAX_COMPILATION_CACHE_DIR`` or the caller has told JAX to keep
        them, or else ``jaxbandit`` in ``$XDG_CACHE_HOME``, which is ``~/.cache`` unless it is set. A user without a home directory, or
        whose own cannot be written to, keeps none.

    Raises:
      InvalidArgument: when ``directory`` was given, is no directory and cannot be made.
    """
    Choice.made = True
    if directory is None:
        _use(None)
        return None
    given, chosen = None if directory is USUAL else directory, jax.config.values["jax_compilation_cache_dir"]
    of_jax = given is None and bool(chosen)
    if of_jax and "://" in chosen:  # in a cloud, whose owner says who may write
        return Path(chosen)
    try:
        base = Path(chosen) if of_jax else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxbandit"
        base = (base if given is None else Path(given)).absolute()
    except RuntimeError:  # no home
        return None
    # Beside those of earlier versions of jaxbandit, which knew no bound.
    compiled_for = hashlib.sha256(f"bounded {platform.machine()} {_instructions()} {jaxlib.__version__}".encode()).hexdigest()[:12]
    inner = base if of_jax else base / f"jax-{jax.__version__}-{compiled_for}"
    try:
        new = not base.exists()
        # What is there already is looked at before anything is made within it.
        reason = _distrusted(inner)
        if not reason:
            for place in reversed((inner, *inner.parents)):
                place.mkdir(0o700, exist_ok=True)
            reason = _distrusted(base, made=True) or _distrusted(inner, made=True) or _distrusted_within(inner)
        if not (reason or of_jax):
            _remove_cut_off(inner)
    except (OSError, ValueError) as error:  # a ValueError where a path holds NUL
        if given is None:
            return None
        raise InvalidArgument(f"cache: must be a directory that can be made, got {short(str(base))}: {reason_of(error)}") from error
    if reason:
        words = "and what others put there would be run; forbid that, remove it, or choose another directory"
        LOGGER.warning(f"compiled programs are not kept: {reason}, {words}")
        _use(None)
        return None
    inner = inner.resolve()  # without links, which could lead elsewhere by the time that a program is read
    if new and not of_jax:
        LOGGER.warning(f"compiled programs are kept in {base}, to be found by later runs; it can be deleted at any time")
    if str(inner) != chosen:
        _use(inner)
    if not of_jax:
        jax.config.update("jax_compilation_cache_max_size", MAX_SIZE)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return inner


def _use(directory: Path | None) -> None:
    jax.config.update("jax_compilation_cache_dir", None if directory is None else str(directory))
    compilation_cache.reset_cache()  # JAX looks for it once, when it first compiles


def _remove_cut_off(directory: Path) -> None:
    """Remove programs without the time of their last use, without which JAX can keep no more: a process was killed that wrote them."""
    for entry in directory.glob("*-cache"):
        with contextlib.suppress(FileNotFoundError):  # another process has removed it
            is_new = entry.stat().st_mtime > time.time() - SECONDS_TO_WRITE
            if not (is_new or entry.with_name(f"{entry.name.removesuffix('cache')}atime").exists()):
                entry.unlink()


def _way_to(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield all directories and links by which a path is reached, from the root on, as far as they are there."""
    place, left, links = Path(path.anchor), list(path.parts[:0:-1]), 0
    yield place, place.lstat()
    while left:
        if (part := left.pop()) == "..":  # of a link
            place = place.parent
            continue
        try:
            status = (place / part).lstat()
        except FileNotFoundError:
            return
        yield place / part, status
        if not stat.S_ISLNK(status.st_mode):
            place = place / part
        elif (links := links + 1) > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        else:
            target = (place / part).readlink()
            left += [name for name in reversed(target.parts) if name != target.anchor]
            place = Path(target.anchor) if target.is_absolute() else place


def _distrusted(directory: Path, *, made: bool = False) -> str:
    """Return a part of the way to a directory that others can change, or of one that is ``made`` the directory; nothing for none."""
    if sys.platform == "win32":
        return ""
    way = list(_way_to(directory))
    for number, (place, status) in enumerate(way, start=1):
        is_own = made and number == len(way)
        if status.st_uid not in ({os.geteuid()} if is_own else {0, os.geteuid()}):
            return f"{place} belongs to another user"
        # In a sticky directory nobody can remove or rename what belongs to others.
        is_safe = stat.S_ISLNK(status.st_mode) or (status.st_mode & stat.S_ISVTX and not is_own)
        if status.st_mode & 0o022 and not is_safe:
            return f"{place} can be written to by others"
    return ""


def _distrusted_within(directory: Path) -> str:
    """Return which file of a directory that is trusted others may have made; nothing where there is none."""
    if sys.platform == "win32":
        return ""
    lets_in = directory.stat().st_mode & 0o011  # else nobody reaches the files that let others write, as some users' all do
    for top, folders, files in os.walk(directory):
        for place in (os.path.join(top, name) for name in (*folders, *files)):
            try:
                status = os.lstat(place)
            except OSError:  # it has gone
                continue
            if status.st_uid != os.geteuid():
                return f"{place} belongs to another user"
            if status.st_mode & 0o022 and lets_in:
                return f"{place} can be written to by others"
    return ""


def processor() -> str:
    """Return a short name of the processor, equal where its instructions on vectors are, on which the last bits of sums depend."""
    vectors = sorted(word for word in _instructions().split() if word.startswith(VECTORS))
    widest = next((word for word in WIDEST if word in vectors), "")
    return f"{platform.machine()} {widest} {hashlib.sha256(' '.join(vectors).encode()).hexdigest()[:6]}".replace("  ", " ")


def _instructions() -> str:
    """Return the names of the processor's instructions, as Linux lists them."""
    known = PROCESSORS.read_text(encoding="utf-8", errors="replace").splitlines() if PROCESSORS.exists() else []
    return next((line for line in known if line.startswith(("flags", "Features"))), platform.processor())
