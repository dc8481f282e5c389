"""All rounds of many trials in one kernel of an accelerator, for algorithms that declare a score of single points.

``simulate(..., fused=True)`` and studies use it; :func:`describe` says whether a kernel plays an algorithm, or why XLA does. Kernels have
been run by JAX's interpreter and compiled for GPUs and TPUs, never measured on a device, so that ``fused="auto"`` is XLA.
"""

from jaxbandit.fused.cells import Unsupported
from jaxbandit.fused.plan import describe

__all__ = ["Unsupported", "describe"]
__dir__ = __all__.copy  # what completion shows
