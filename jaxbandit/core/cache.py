"""Compiled programs kept on disk, so that the next process which needs them finds them."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

import jax
import jaxlib
from jax.experimental.compilation_cache import compilation_cache

from jaxbandit.core.arguments import takes
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.fields import optional, path
from jaxbandit.core.files import reason_of
from jaxbandit.core.notes import say

PROCESSORS = Path("/proc/cpuinfo")


@takes(directory=optional(path))
def enable_cache(directory: str | Path | None = None) -> Path | None:
    """Keep compiled programs on disk from now on, and find those that are there; return the directory, ``None`` where there is none.

    A program is found again if nothing that it is made of has changed: JAX compares the program, its own version and the compiler's
    flags. Programs of machines with other instructions, which could not run, lie in a directory of their own. The commands ``python -m
    jaxbandit`` and ``python -m experiments`` call this; a script or a notebook calls it before its first simulation. When the directory is
    made, that is said.

    Args:
      directory: where to keep them; default: where ``JAX_COMPILATION_CACHE_DIR`` or the caller has told JAX to keep them, or else
        ``jaxbandit`` in ``$XDG_CACHE_HOME``, which is ``~/.cache`` unless it is set. A user without a home directory keeps none.

    Raises:
      InvalidArgument: when ``directory`` was given, is no directory and cannot be made.
    """
    given = directory is not None
    chosen: str | None = jax.config.values["jax_compilation_cache_dir"]
    if directory is None and chosen:
        return Path(chosen)
    if directory is None:
        try:
            directory = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxbandit"
        except RuntimeError:  # no home
            return None
    if _make(Path(directory)) if given else not Path(directory).exists():
        say(f"compiled programs are kept in {directory}, to be found by later runs; it can be deleted at any time")
    own = Path(directory) / f"jax-{jax.__version__}-{_machine()}"
    if str(own) != chosen:
        jax.config.update("jax_compilation_cache_dir", str(own))
        compilation_cache.reset_cache()  # JAX looks for it once, when it first compiles
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return own


def _make(directory: Path) -> bool:
    """Make the directory that a user has named, and say whether it was not there; raise ``InvalidArgument`` when that cannot be."""
    try:
        new = not directory.exists()
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # a ValueError where a path holds NUL
        raise InvalidArgument(f"cache: must be a directory that can be made, got {short(str(directory))}: {reason_of(error)}") from error
    return new


def _machine() -> str:
    """Return a short name of what programs are compiled for: the instructions of the processor and the version of the compiler."""
    known = PROCESSORS.read_text(encoding="utf-8", errors="replace").splitlines() if PROCESSORS.exists() else []
    instructions = next((line for line in known if line.startswith(("flags", "Features"))), platform.processor())
    return hashlib.sha256(f"{platform.machine()} {instructions} {jaxlib.__version__}".encode()).hexdigest()[:12]
