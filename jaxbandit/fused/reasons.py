"""Reasons why a kernel can play the rounds of an algorithm, or cannot, in words."""

from __future__ import annotations

from jaxbandit.algorithms.base import Algorithm
from jaxbandit.core.arguments import takes
from jaxbandit.core.fields import of_class, optional
from jaxbandit.feedback import Policy
from jaxbandit.surrogates import Surrogate

NOT_MEASURED = "by XLA, for fused='auto' takes a kernel only where it has been measured to be faster, and no device has run it"


@takes(algorithm=of_class(Algorithm), surrogate=of_class(Surrogate), feedback=optional(of_class(Policy)))
def describe(algorithm: Algorithm, surrogate: Surrogate, feedback: Policy | None = None) -> str:
    """Return a line on the kernel that makes an algorithm's choices under ``fused=True``, or on the reason why XLA makes them.

    Args:
      algorithm: an algorithm.
      surrogate: the GP model that it runs with.
      feedback: policy under which it runs with late feedback; default: feedback comes at once.
    """
    return f"by XLA, because {why_not(algorithm, surrogate, feedback, 'cpu')}"


def why_not(algorithm: Algorithm, surrogate: Surrogate, feedback: Policy | None, platform: str) -> str | None:
    """Return the reason why no kernel can make an algorithm's choices on a platform of JAX, ``None`` where one can."""
    return "the kernel of all rounds is called by jaxbandit.fused.whole_run alone"


def in_words(fused: bool | str, algorithm: Algorithm, surrogate: Surrogate, feedback: Policy | None) -> str:
    """Return a line on what makes an algorithm's choices under a value of the argument ``fused``."""
    if fused is True:
        return describe(algorithm, surrogate, feedback)
    return NOT_MEASURED if fused == "auto" else "by XLA, as fused=False asks"
