"""Compiled programs on disk, for the next process that needs them."""

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
from jaxbandit.host.files import reason_of

# Bytes of a directory's programs.
MAX_SIZE = 2**29
# This object stands for the usual directory, wherever a user has it.
USUAL_DIRECTORY = Path("~", ".cache", "jaxbandit")


class CacheChoice:
    """Record of whether this process has chosen where it keeps programs."""

    made = False


def enable_unless_chosen() -> None:
    """Keep compiled programs in the usual directory, unless another was chosen."""
    if not CacheChoice.made and not jax.config.values["jax_compilation_cache_dir"]:
        enable_cache()


@checked
def enable_cache(directory: FilePath | None = USUAL_DIRECTORY) -> Path | None:
    """Keep compiled programs on disk from now on, and return the directory.

    Sessions, :func:`~jaxbandit.optimise`, the Optuna sampler and the commands ``python -m jaxbandit`` and ``python -m experiments`` call
    this when they begin, the first three only if nobody has called it or set JAX's own directory before. A script or a notebook calls it
    before its first simulation; ``enable_cache(None)`` keeps no programs from now on.

    A process finds a program again if the program, JAX's version and the compiler's flags are unchanged. Programs of machines with other
    instructions, which could not run, have a directory of their own. A warning says when the directory is made. It holds at most 512 MiB;
    beyond this size JAX removes the programs that were used longest ago.

    Whoever can write to the directory, or replace it, can make this process run other programs. So the directory is made for its owner
    alone. It is not used, with a warning, if others own it or can write to it, to a file in it, or to a directory or a link on the way to
    it. A directory above it may be sticky and open to others, as ``/tmp`` is, or the superuser's. Access control lists do not count.

    Args:
      directory: where to keep them, ``None`` for nowhere; default: JAX's own directory, set by ``JAX_COMPILATION_CACHE_DIR`` or the caller,
        or else ``jaxbandit`` in ``$XDG_CACHE_HOME``, which is ``~/.cache`` unless it is set. A user without a home directory, or with one
        that cannot be written to, keeps no programs, and gets ``None``.

    Raises:
      InvalidArgument: when ``directory`` was given, is no directory and cannot be made.
    """
    CacheChoice.made = True
    if directory is None:
        _use(None)
        return None
    given, chosen = None if directory is USUAL_DIRECTORY else directory, jax.config.values["jax_compilation_cache_dir"]
    of_jax = given is None and bool(chosen)
    if of_jax and "://" in chosen:
        return Path(chosen)
    try:
        base = Path(chosen) if of_jax else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxbandit"
        base = (base if given is None else Path(given)).absolute()
    except RuntimeError:
        return None
    # Earlier versions of jaxbandit have directories of their own, without a bound.
    compiled_for = hashlib.sha256(f"bounded {platform.machine()} {_instructions()} {jaxlib.__version__}".encode()).hexdigest()[:12]
    inner = base if of_jax else base / f"jax-{jax.__version__}-{compiled_for}"
    try:
        new = not base.exists()
        # It checks existing directories before it makes others within them.
        reason = _distrusted(inner)
        if not reason:
            for place in reversed((inner, *inner.parents)):
                place.mkdir(0o700, exist_ok=True)
            reason = _distrusted(base, made=True) or _distrusted(inner, made=True) or _distrusted_within(inner)
        if not (reason or of_jax):
            _remove_cut_off(inner)
    except (OSError, ValueError) as error:
        if given is None:
            return None
        raise InvalidArgument(f"cache: must be a directory that can be made, got {short(str(base))}: {reason_of(error)}") from error
    logger = logging.getLogger("jaxbandit")
    if reason:
        words = "and what others put there would be run; forbid that, remove it, or choose another directory"
        logger.warning(f"compiled programs are not kept: {reason}, {words}")
        _use(None)
        return None
    # A link could point elsewhere when a program is read.
    inner = inner.resolve()
    if new and not of_jax:
        logger.warning(f"compiled programs are kept in {base}, to be found by later runs; it can be deleted at any time")
    if str(inner) != chosen:
        _use(inner)
    if not of_jax:
        jax.config.update("jax_compilation_cache_max_size", MAX_SIZE)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return inner


def _use(directory: Path | None) -> None:
    jax.config.update("jax_compilation_cache_dir", None if directory is None else str(directory))
    # JAX looks for the directory only once, when it first compiles.
    compilation_cache.reset_cache()


def _remove_cut_off(directory: Path) -> None:
    """Remove programs without a time of use, because they block JAX."""
    for entry in directory.glob("*-cache"):
        # Another process may remove the program at the same time.
        with contextlib.suppress(FileNotFoundError):
            # A process takes less than a minute to write a program with its time of use.
            is_new = entry.stat().st_mtime > time.time() - 60
            if not (is_new or entry.with_name(f"{entry.name.removesuffix('cache')}atime").exists()):
                entry.unlink()


def _way_to(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield existing directories and links on a path, from the root on."""
    place, left, links = Path(path.anchor), list(path.parts[:0:-1]), 0
    yield place, place.lstat()
    while left:
        if (part := left.pop()) == "..":
            place = place.parent
            continue
        try:
            status = (place / part).lstat()
        except FileNotFoundError:
            return
        yield place / part, status
        if not stat.S_ISLNK(status.st_mode):
            place = place / part
        elif (links := links + 1) > 40:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        else:
            target = (place / part).readlink()
            left += [name for name in reversed(target.parts) if name != target.anchor]
            place = Path(target.anchor) if target.is_absolute() else place


def _distrusted(directory: Path, *, made: bool = False) -> str:
    """Return a reason to distrust a directory's path, or a ``made`` directory."""
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
    """Return a reason to distrust a file in a trusted directory."""
    if sys.platform == "win32":
        return ""
    # Files of some users may be written to by all, but nobody reaches them in a closed directory.
    lets_in = directory.stat().st_mode & 0o011
    for top, folders, files in os.walk(directory):
        for place in (os.path.join(top, name) for name in (*folders, *files)):
            try:
                status = os.lstat(place)
            except OSError:
                continue
            if status.st_uid != os.geteuid():
                return f"{place} belongs to another user"
            if status.st_mode & 0o022 and lets_in:
                return f"{place} can be written to by others"
    return ""


def processor() -> str:
    """Return a short name of the processor and its vector instructions."""
    vectors = sorted(word for word in _instructions().split() if word.startswith(("amx", "asimd", "avx", "fma", "sse", "sve")))
    widest = next((word for word in ("avx512f", "avx2", "avx", "sve2", "sve", "asimd") if word in vectors), "")
    return f"{platform.machine()} {widest} {hashlib.sha256(' '.join(vectors).encode()).hexdigest()[:6]}".replace("  ", " ")


def _instructions() -> str:
    """Return the names of the processor's instructions, as Linux lists them."""
    listed = Path("/proc/cpuinfo")
    known = listed.read_text(encoding="utf-8", errors="replace").splitlines() if listed.exists() else []
    return next((line for line in known if line.startswith(("flags", "Features"))), platform.processor())
