"""All rounds of many trials in one kernel of an accelerator, from an algorithm's own Python.

``equations`` holds a traced function, ``rows`` computes its equations by rows. ``rounds`` has the parts of a round of a whole run,
``whole_gpu`` and ``whole_tpu`` the kernels that play it, ``whole`` the way in.
"""

import importlib
from typing import Any

from jaxbandit.fused.equations import Unsupported
from jaxbandit.fused.reasons import describe

__all__ = ["Unsupported", "describe", "whole_run"]
__dir__ = __all__.copy  # what completion shows


def __getattr__(name: str) -> Any:
    """Load ``whole_run`` when it is first asked for: it loads the compilers of kernels."""
    if name == "whole_run":
        return importlib.import_module("jaxbandit.fused.whole").whole_run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
