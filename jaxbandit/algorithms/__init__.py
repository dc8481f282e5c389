"""The algorithms, one file each. All maximise a reward subject to ``g_j(x) <= 0``."""

from jaxbandit.algorithms.base import Algorithm, Arena, Decision, Observation
from jaxbandit.algorithms.cbo import Cbo
from jaxbandit.algorithms.config import Config
from jaxbandit.algorithms.rpol import Rpol

__all__ = ["Algorithm", "Arena", "Cbo", "Config", "Decision", "Observation", "Rpol"]
