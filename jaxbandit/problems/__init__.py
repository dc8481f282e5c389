"""What is optimised: mean tables, noise, and the optimum to measure against."""

from jaxbandit.problems.base import Optimum, Problem, best_mixed_policy, from_functions, from_tables, optimum
from jaxbandit.problems.noise import Gaussian, Noise, Noiseless
from jaxbandit.problems.sine import CONTINUUM_OPTIMUM, CONTINUUM_POINT, sine

__all__ = [
    "CONTINUUM_OPTIMUM",
    "CONTINUUM_POINT",
    "Gaussian",
    "Noise",
    "Noiseless",
    "Optimum",
    "Problem",
    "best_mixed_policy",
    "from_functions",
    "from_tables",
    "optimum",
    "sine",
]
