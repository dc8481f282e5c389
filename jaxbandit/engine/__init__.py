"""The engine: from a problem, an algorithm and a surrogate to trajectories, many trials in one compiled program."""

from jaxbandit.engine.simulation import Trajectory, simulate
from jaxbandit.engine.trial import Informed, InitialDesign

__all__ = ["Informed", "InitialDesign", "Trajectory", "simulate"]
__dir__ = __all__.copy  # what completion shows
