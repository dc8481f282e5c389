"""Sessions run real experiments by ask and tell, and survive a crash.

A session runs the rounds of a simulation on values that its user reports, late, in parts and out of order. Its ``specification``
names its parts, its ``journal`` stores all events, and ``replay`` computes its state from these events.
Sessions need the ``study`` extra (``pip install "jaxbandit[study]"``).
"""

from jaxbandit.session.axes import Axis
from jaxbandit.session.checks import ModelCheck
from jaxbandit.session.forecasts import Forecast, forecast
from jaxbandit.session.journal import CannotRecord, DamagedSession, SessionError, SessionInUse
from jaxbandit.session.optimised import Optimised, optimise
from jaxbandit.session.reasons import Reason
from jaxbandit.session.replay import Ticket
from jaxbandit.session.session import DeclaredInfeasible, Recommendation, Session
from jaxbandit.session.settled import Settled, Settlement
from jaxbandit.session.specification import Specification, read_toml
from jaxbandit.study.runs import Model

__all__ = [
    "Axis",
    "CannotRecord",
    "DamagedSession",
    "DeclaredInfeasible",
    "Forecast",
    "Model",
    "ModelCheck",
    "Optimised",
    "Reason",
    "Recommendation",
    "Session",
    "SessionError",
    "SessionInUse",
    "Settled",
    "Settlement",
    "Specification",
    "Ticket",
    "forecast",
    "optimise",
    "read_toml",
]
# Completion shows only the public names.
__dir__ = __all__.copy
