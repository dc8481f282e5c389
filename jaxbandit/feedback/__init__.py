"""Delayed feedback: what is pending, what has arrived, and what a posterior makes of it."""

from jaxbandit.feedback.buffer import Feedback, Pending
from jaxbandit.feedback.policies import Censor, Hallucinate, Wait

__all__ = ["Censor", "Feedback", "Hallucinate", "Pending", "Wait"]
