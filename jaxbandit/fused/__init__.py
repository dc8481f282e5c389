"""All rounds of many trials in one kernel of an accelerator.

The algorithm must declare a score of single points. ``simulate(..., fused=True)`` and studies use the kernel; :func:`describe` returns
whether a kernel runs an algorithm, or why XLA does. On an H100 it is some four times as fast as XLA, and ``fused="auto"`` uses it for runs
that are long enough; on TPUs it was compiled, but not measured.
"""

from jaxbandit.fused.cells import Unsupported
from jaxbandit.fused.plan import describe

__all__ = ["Unsupported", "describe"]
__dir__ = __all__.copy
