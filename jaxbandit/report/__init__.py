"""Statistics, tables, figures and HTML reports of results. Needs the ``study`` extra; no lower layer imports it."""

import importlib
from typing import Any

__all__ = ["comparison", "html", "plots", "session", "statistics", "style", "tables", "watching"]
__dir__ = __all__.copy  # what completion shows


def __getattr__(name: str) -> Any:
    """Load a module of the reports, or the style of figures, when it is first asked for, so that tables need no matplotlib."""
    if name == "style":
        return importlib.import_module("jaxbandit.drawing").style
    if name in __all__:
        return importlib.import_module(f"jaxbandit.report.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
