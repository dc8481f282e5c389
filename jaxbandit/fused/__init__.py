"""Choices made by one kernel of an accelerator, from an algorithm's own Python.

A round reads functions on the grid three times: they move by the last observation, they are scored, and the best point is found. Here one
kernel does all of it in one pass: the algorithm's ``select`` is traced, what does not depend on the grid stays with XLA, and the rest is
computed row by row. ``simulate(..., fused=True)`` and studies use it; :func:`describe` says what a kernel does for an algorithm, or why
XLA does it. Kernels have been run by JAX's interpreter and lowered for GPUs and TPUs, never measured on a device, so ``fused="auto"`` is XLA.

``equations`` divides a traced function, ``rows`` computes its equations by rows, ``deferred`` holds what the next kernel is to move,
``kernel`` has the kernels for TPUs and GPUs, ``choice`` puts them in the place of a choice.
"""

from jaxbandit.fused.equations import Unsupported
from jaxbandit.fused.reasons import describe

__all__ = ["Unsupported", "describe"]
