"""Action sets: finite sets, with contexts or without, and continuous boxes.

The values of an axis are numbers, or categories without an order (:func:`mixed`, :func:`box`), numbered ``0, 1, ...``.
"""

from jaxbandit.core.hints import missing
from jaxbandit.domains import boxes, contexts, finite
from jaxbandit.domains.boxes import *  # noqa: F403
from jaxbandit.domains.contexts import *  # noqa: F403
from jaxbandit.domains.finite import *  # noqa: F403

__all__ = [*boxes.__all__, *contexts.__all__, *finite.__all__]
__dir__ = __all__.copy
__getattr__ = missing(__name__, __all__)
