"""The algorithms, one file each. All maximise a reward subject to ``g_j(x) <= 0``."""

from jaxbandit.algorithms.admmbo import Admmbo
from jaxbandit.algorithms.anytime import Anytime
from jaxbandit.algorithms.base import Algorithm, Arena, Decision, Diagnostics, Observation
from jaxbandit.algorithms.bpe import Bpe, Elimination
from jaxbandit.algorithms.cbo import Cbo
from jaxbandit.algorithms.cei import Cei
from jaxbandit.algorithms.config import Config
from jaxbandit.algorithms.constrained_thompson import ConstrainedThompson
from jaxbandit.algorithms.epbo import Epbo
from jaxbandit.algorithms.oco import Oco
from jaxbandit.algorithms.oracle import Oracle
from jaxbandit.algorithms.primal_dual import PrimalDual
from jaxbandit.algorithms.random_search import RandomSearch
from jaxbandit.algorithms.rpol import Rpol
from jaxbandit.algorithms.safeopt import SafeOpt
from jaxbandit.algorithms.scgp import Scgp
from jaxbandit.algorithms.se2 import Se2
from jaxbandit.algorithms.se3 import Se3
from jaxbandit.algorithms.sgp_ucb import SgpUcb
from jaxbandit.algorithms.stageopt import StageOpt
from jaxbandit.algorithms.unconstrained import Unconstrained

__all__ = [
    "Admmbo",
    "Algorithm",
    "Anytime",
    "Arena",
    "Bpe",
    "Cbo",
    "Cei",
    "Config",
    "ConstrainedThompson",
    "Decision",
    "Diagnostics",
    "Elimination",
    "Epbo",
    "Observation",
    "Oco",
    "Oracle",
    "PrimalDual",
    "RandomSearch",
    "Rpol",
    "SafeOpt",
    "Scgp",
    "Se2",
    "Se3",
    "SgpUcb",
    "StageOpt",
    "Unconstrained",
]
