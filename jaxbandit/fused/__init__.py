"""All rounds of many trials in one kernel of an accelerator, for algorithms that declare a score of single points.

What is believed of the functions stays beside the cores from the first round to the last: a kernel moves it by each observation, scores the
points and picks the best one. ``simulate(..., fused=True)`` and studies use it; :func:`describe` says whether a kernel plays an algorithm,
or why XLA does. The kernels have been run by JAX's interpreter and compiled for GPUs and TPUs, never measured on a device, so that
``fused="auto"`` is XLA.

``plan`` says whether there is a kernel, ``rounds`` traces the parts of a round and calls it, ``cells`` computes them at all points inside,
``gpu`` and ``tpu`` are the kernels.
"""

from jaxbandit.fused.cells import Unsupported
from jaxbandit.fused.plan import describe

__all__ = ["Unsupported", "describe"]
__dir__ = __all__.copy  # what completion shows
