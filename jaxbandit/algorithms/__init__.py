"""The algorithms, one file each. All maximise a reward subject to ``g_j(x) <= 0``."""

from jaxbandit.algorithms.anytime import Anytime
from jaxbandit.algorithms.base import Algorithm, Arena, Decision, Observation
from jaxbandit.algorithms.cbo import Cbo
from jaxbandit.algorithms.config import Config
from jaxbandit.algorithms.epbo import Epbo
from jaxbandit.algorithms.rpol import Rpol
from jaxbandit.algorithms.scgp import Scgp
from jaxbandit.algorithms.se2 import Se2
from jaxbandit.algorithms.se3 import Se3
from jaxbandit.algorithms.unconstrained import Unconstrained

__all__ = [
    "Algorithm",
    "Anytime",
    "Arena",
    "Cbo",
    "Config",
    "Decision",
    "Epbo",
    "Observation",
    "Rpol",
    "Scgp",
    "Se2",
    "Se3",
    "Unconstrained",
]
