"""From a problem, an algorithm and a surrogate to trajectories."""

from jaxbandit.simulate.batch import simulate
from jaxbandit.simulate.trial import InitialDesign, Trajectory

__all__ = ["InitialDesign", "Trajectory", "simulate"]
