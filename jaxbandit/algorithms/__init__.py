"""Algorithms that maximise a reward subject to ``g_j(x) <= 0``."""

from jaxbandit.algorithms.base import Algorithm, Arena, Decision, Observation, Shown, Traits
from jaxbandit.algorithms.bpe import Elimination
from jaxbandit.algorithms.registry import *  # noqa: F403
from jaxbandit.algorithms.registry import ALGORITHMS
from jaxbandit.core.hints import missing

__all__ = ["ALGORITHMS", "Algorithm", "Arena", "Decision", "Elimination", "Observation", "Shown", "Traits", *ALGORITHMS]
__dir__ = __all__.copy
__getattr__ = missing(__name__, __all__)
