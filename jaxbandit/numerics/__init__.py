"""Scores of points, and the choice of a point.

These are the public names of ``jaxbandit.acquisition``.
"""

from jaxbandit.numerics import improvement, ties
from jaxbandit.numerics.improvement import *  # noqa: F403
from jaxbandit.numerics.ties import *  # noqa: F403

__all__ = [*ties.__all__, *improvement.__all__]
# Completion shows the public names only.
__dir__ = __all__.copy
