"""Delayed feedback: what is pending, what has arrived, and what a learner believes meanwhile.

Any algorithm runs under any policy: :class:`Wait` for feedback, :class:`Hallucinate` it, or :class:`Censor` it.
"""

from jaxbandit.core.hints import missing
from jaxbandit.feedback import learner, policies
from jaxbandit.feedback.learner import *  # noqa: F403
from jaxbandit.feedback.policies import *  # noqa: F403

__all__ = [*learner.__all__, *policies.__all__]
__dir__ = __all__.copy
__getattr__ = missing(__name__, __all__)
