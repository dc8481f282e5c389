"""Compiled programs kept on disk, so that the next process which needs them finds them."""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import sys
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
WIDEST = ("avx512f", "avx2", "avx", "sve2", "sve", "asimd")


@checked
def enable_cache(directory: FilePath | None = None) -> Path | None:
    """Keep compiled programs on disk from now on, and find those that are there; return the directory, ``None`` where there is none.

    A program is found again if nothing that it is made of has changed: JAX compares the program, its own version and the compiler's
    flags. Programs of machines with other instructions, which could not run, lie in a directory of their own. The commands ``python -m
    jaxbandit`` and ``python -m experiments`` call this; a script or a notebook calls it before its first simulation. When the directory is
    made, that is said.

    Whoever can write to the directory can have this process run programs of theirs. So it is made for its owner alone, and one that
    belongs to another user than this process's, that others can write to, or that holds such files, is not used, which is said.

    Args:
      directory: where to keep them; default: where ``JAX_COMPILATION_CACHE_DIR`` or the caller has told JAX to keep them, or else
        ``jaxbandit`` in ``$XDG_CACHE_HOME``, which is ``~/.cache`` unless it is set. A user without a home directory, or whose own cannot
        be written to, keeps none.

    Raises:
      InvalidArgument: when ``directory`` was given, is no directory and cannot be made.
    """
    given, chosen = directory, jax.config.values["jax_compilation_cache_dir"]
    if given is None and chosen:
        return None if _refused(Path(chosen)) else Path(chosen)
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxbandit" if given is None else Path(given)
    except RuntimeError:  # no home
        return None
    compiled_for = hashlib.sha256(f"{platform.machine()} {_instructions()} {jaxlib.__version__}".encode()).hexdigest()[:12]
    inner = base / f"jax-{jax.__version__}-{compiled_for}"
    try:
        new = not base.exists()
        for place in (base, inner):
            place.mkdir(0o700, parents=True, exist_ok=True)
            if _refused(place, inside=place == inner):
                return None
    except (OSError, ValueError) as error:  # a ValueError where a path holds NUL
        if given is None:
            return None
        raise InvalidArgument(f"cache: must be a directory that can be made, got {short(str(base))}: {reason_of(error)}") from error
    if new:
        LOGGER.warning(f"compiled programs are kept in {base}, to be found by later runs; it can be deleted at any time")
    if str(inner) != chosen:
        _use(inner)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return inner


def _use(directory: str | Path | None) -> None:
    jax.config.update("jax_compilation_cache_dir", None if directory is None else str(directory))
    compilation_cache.reset_cache()  # JAX looks for it once, when it first compiles


def _refused(directory: Path, *, inside: bool = True) -> bool:
    """Keep no programs, and say so, where others than this process's user may have put some into a directory."""
    # Of 12,000 files this takes 60 ms, half of what it does by paths.
    within = (os.path.join(top, name) for top, folders, files in os.walk(directory) for name in (*folders, *files))
    for place in () if sys.platform == "win32" else (directory, *(within if inside else ())):
        try:
            status = os.stat(place)
        except OSError:  # it is gone, or cannot be read either
            continue
        # Files that let others write, as some users' all do, let nobody whom the directory does not let enter.
        open_to_others = status.st_mode & 0o022 and (place == directory or directory.stat().st_mode & 0o011)
        reason = "belongs to another user" if status.st_uid != os.geteuid() else "can be written to by others" if open_to_others else ""
        if reason:
            words = "and what others put there would be run; remove it or choose another directory"
            LOGGER.warning(f"compiled programs are not kept: {place} {reason}, {words}")
            _use(None)
            return True
    return False


def processor() -> str:
    """Return a short name of the processor, equal where its instructions on vectors are, on which the last bits of sums depend."""
    vectors = sorted(word for word in _instructions().split() if word.startswith(VECTORS))
    widest = next((word for word in WIDEST if word in vectors), "")
    return f"{platform.machine()} {widest} {hashlib.sha256(' '.join(vectors).encode()).hexdigest()[:6]}".replace("  ", " ")


def _instructions() -> str:
    """Return the names of the processor's instructions, as Linux lists them."""
    known = PROCESSORS.read_text(encoding="utf-8", errors="replace").splitlines() if PROCESSORS.exists() else []
    return next((line for line in known if line.startswith(("flags", "Features"))), platform.processor())
