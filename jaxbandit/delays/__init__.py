"""Delay models: feedback of round ``s`` arrives at round ``s + tau``.

``draw`` returns the delays of one round, one per output, reward first. ``draw`` and ``mean`` trace under ``jit`` and ``vmap``; ``quantile``
and ``validate`` need concrete numbers.
"""

from jaxbandit.core.hints import missing
from jaxbandit.delays import models
from jaxbandit.delays.models import *  # noqa: F403

__all__ = [*models.__all__]
# Completion shows these names.
__dir__ = __all__.copy
__getattr__ = missing(__name__, __all__)
