"""Gaussian-process posteriors in interchangeable forms behind one interface."""

from jaxbandit.core.hints import missing
from jaxbandit.surrogates import boxes, choose, evidence, posterior, precision, ranges, refitted, refitted_boxes
from jaxbandit.surrogates.boxes import *  # noqa: F403
from jaxbandit.surrogates.choose import *  # noqa: F403
from jaxbandit.surrogates.evidence import *  # noqa: F403
from jaxbandit.surrogates.posterior import *  # noqa: F403
from jaxbandit.surrogates.precision import *  # noqa: F403
from jaxbandit.surrogates.ranges import *  # noqa: F403
from jaxbandit.surrogates.refitted import *  # noqa: F403
from jaxbandit.surrogates.refitted_boxes import *  # noqa: F403

__all__ = [
    *boxes.__all__, *choose.__all__, *evidence.__all__, *posterior.__all__, *precision.__all__, *ranges.__all__, *refitted.__all__,
    *refitted_boxes.__all__,
]  # fmt: skip
# Completion shows these names.
__dir__ = __all__.copy
__getattr__ = missing(__name__, __all__)
