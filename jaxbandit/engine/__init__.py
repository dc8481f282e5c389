"""The engine: many trials of an algorithm in one program."""

from jaxbandit.engine.ask_tell import Learner, LearnerState
from jaxbandit.engine.certification import SafetyTable, certify
from jaxbandit.engine.simulation import simulate
from jaxbandit.engine.trial import Informed, InitialDesign
from jaxbandit.results.trajectory import Trajectory

__all__ = ["Informed", "InitialDesign", "Learner", "LearnerState", "SafetyTable", "Trajectory", "certify", "simulate"]
__dir__ = __all__.copy
