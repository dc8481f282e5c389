"""Choices made by one kernel of an accelerator, from an algorithm's own Python.

A round reads functions on the grid three times: they move by the last observation, they are scored, and the best point is found. Here one
kernel does all of it in one pass: the algorithm's ``select`` is traced, what does not depend on the grid stays with XLA, and the rest is
computed row by row. ``simulate(..., fused=True)`` and studies use it; :func:`describe` says what a kernel does for an algorithm, or why
XLA does it. Kernels have been run by JAX's interpreter and compiled for GPUs and TPUs, never measured on a device. A round with one
launches more than XLA's own, since functions are copied into the kernel's layout and back, so that ``fused="auto"`` is XLA.

``whole_run`` goes further: all rounds in one kernel of a GPU or TPU, for algorithms that draw nothing themselves.

``equations`` divides a traced function, ``rows`` computes its equations by rows, ``deferred`` holds what the next kernel is to move,
``kernel`` has the kernels for TPUs and GPUs, ``choice`` puts them in the place of a choice. ``rounds`` has the parts of a round of a
whole run, ``whole_gpu`` and ``whole_tpu`` the kernels that play it, ``whole`` the way in.
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
