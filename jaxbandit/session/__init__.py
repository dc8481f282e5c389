"""Sessions: real experiments that ask for points and are told values, late, in parts and out of order, and that survive a crash.

A session plays the rounds of a simulation on values that its user tells. Its parts are its ``specification``, all events are in its
``journal``, and what they amount to is its ``state``. Needs the ``study`` extra (``pip install "jaxbandit[study]"``).
"""

from jaxbandit.session.axes import Axis
from jaxbandit.session.journal import CannotRecord, DamagedSession, SessionError, SessionInUse
from jaxbandit.session.optimised import Optimised, optimise
from jaxbandit.session.session import DeclaredInfeasible, Recommendation, Session
from jaxbandit.session.specification import Specification, read_toml
from jaxbandit.session.state import Ticket
from jaxbandit.study.runs import Model

__all__ = [
    "Axis",
    "CannotRecord",
    "DamagedSession",
    "DeclaredInfeasible",
    "Model",
    "Optimised",
    "Recommendation",
    "Session",
    "SessionError",
    "SessionInUse",
    "Specification",
    "Ticket",
    "optimise",
    "read_toml",
]
__dir__ = __all__.copy  # what completion shows
