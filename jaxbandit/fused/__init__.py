"""All rounds of many trials in one kernel of an accelerator, for algorithms that declare a score of single points.

``simulate(..., fused=True)`` and studies use it; :func:`describe` says whether a kernel plays an algorithm, or why XLA does. On an H100
it is some four times as fast as XLA, and ``fused="auto"`` takes it for runs that are long enough; on TPUs it was compiled, never measured.
"""

from jaxbandit.fused.cells import Unsupported
from jaxbandit.fused.plan import describe

__all__ = ["Unsupported", "describe"]
__dir__ = __all__.copy  # what completion shows
