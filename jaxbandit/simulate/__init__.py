"""From a problem, an algorithm and a surrogate to trajectories."""

from jaxbandit.simulate.batch import simulate
from jaxbandit.simulate.trial import Informed, InitialDesign, Trajectory

__all__ = ["Informed", "InitialDesign", "Trajectory", "simulate"]
