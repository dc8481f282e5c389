"""The engine: from a problem, an algorithm and a surrogate to trajectories, many trials in one compiled program.

``trial`` plays one trial, ``blocks`` runs many side by side and on several devices, ``programs`` compiles them; ``simulate`` and
studies both run these programs.
"""

from jaxbandit.engine.simulation import simulate
from jaxbandit.engine.trajectory import Trajectory
from jaxbandit.engine.trial import Informed, InitialDesign

__all__ = ["Informed", "InitialDesign", "Trajectory", "simulate"]
__dir__ = __all__.copy  # what completion shows
