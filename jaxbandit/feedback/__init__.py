"""Delayed feedback, and policies for beliefs while it is pending.

Any algorithm runs under any policy: :class:`Wait`, :class:`Hallucinate`, :class:`Believe` or :class:`Censor`.
"""

from jaxbandit.core.hints import missing
from jaxbandit.feedback import learner, policies
from jaxbandit.feedback.learner import *  # noqa: F403
from jaxbandit.feedback.policies import *  # noqa: F403

__all__ = [*learner.__all__, *policies.__all__]
__dir__ = __all__.copy
__getattr__ = missing(__name__, __all__)
