"""Files of a user's own classes, for commands with ``--with mine.py``.

Study files then know the classes by their names, ``type = "FixedPenalty"``, and results by ``"mine:FixedPenalty"``. A study file that names
a class runs no code. Workers receive the text of the file, and fingerprints include it.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.codec import LOADED, Source
from jaxbandit.host.files import reason_of


def load(given: str) -> tuple[ModuleType, str]:
    """Run a file and return its module and a name in it.

    A file is ``mine.py`` or ``mine.py:Name``. Raises ``InvalidArgument`` if it cannot be read or fails, or its module's name is taken.
    """
    path, _, name = given.rpartition(":") if given.rpartition(":")[0].endswith(".py") else (given, "", "")
    if not path.endswith(".py") or not Path(path).stem.isidentifier():
        raise InvalidArgument(f"with: must be a file of Python, such as mine.py, or a name in it, mine.py:FixedPenalty, got {given!r}")
    try:
        module = run_source(Source(path, Path(path).read_bytes()))
    except OSError as error:
        raise InvalidArgument(f"with: cannot read {path}: {reason_of(error)}") from error
    if name and name not in vars(module):
        raise InvalidArgument(f"with: {path} defines no {name!r}")
    return module, name


def run_source(source: Source) -> ModuleType:
    """Run a file's text as a module, once, and return the module."""
    name, known = source.module, LOADED.get(source.module)
    if known is not None and known.text == source.text:
        return sys.modules[name]
    if name in sys.modules or name in sys.stdlib_module_names:
        raise InvalidArgument(f"with: there is another module called {name!r}; give {source.path} another name")
    module = ModuleType(name)
    module.__file__ = source.path
    # Dataclasses look annotations up there.
    sys.modules[name] = module
    try:
        exec(compile(source.text, source.path, "exec"), vars(module))
    except Exception as error:
        del sys.modules[name]
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == source.path]
        where = f", line {lines[-1]}" if lines else ""
        raise InvalidArgument(f"with: {source.path}{where} fails: {reason_of(error)}") from error
    LOADED[name] = source
    return module


def run_all(sources: Iterable[Source]) -> None:
    """Run files that another process has run."""
    for source in sources:
        run_source(source)
