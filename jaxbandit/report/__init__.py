"""Statistics, tables, figures and HTML reports, with the ``study`` extra."""

import importlib
from typing import Any

__all__ = ["comparison", "html", "plots", "session", "statistics", "style", "tables", "theory", "watching"]
__dir__ = __all__.copy


def __getattr__(name: str) -> Any:
    """Import a module or the style on first access."""
    if name == "style":
        return importlib.import_module("jaxbandit.host.figures").style
    if name in __all__:
        return importlib.import_module(f"jaxbandit.report.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
