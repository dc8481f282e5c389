"""Delayed feedback: what is pending, what has arrived, and what a learner believes meanwhile.

Any algorithm runs under any policy: :class:`Wait` for feedback, :class:`Hallucinate` it, or :class:`Censor` it.
"""

from jaxbandit.feedback.buffer import Feedback, Pending
from jaxbandit.feedback.policies import Censor, DelayedSurrogate, Hallucinate, Policy, Wait

__all__ = ["Censor", "DelayedSurrogate", "Feedback", "Hallucinate", "Pending", "Policy", "Wait"]
__dir__ = __all__.copy  # what completion shows
