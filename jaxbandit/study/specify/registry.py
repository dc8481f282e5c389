"""The roles of objects that study files name, by the words that they use for them."""

from __future__ import annotations

from typing import Any

from jaxbandit.algorithms import Algorithm
from jaxbandit.core.codec import from_plain
from jaxbandit.core.declare import Role
from jaxbandit.delays import Delay
from jaxbandit.domains import Domain
from jaxbandit.feedback import Policy
from jaxbandit.informed import Rule
from jaxbandit.kernels import Kernel
from jaxbandit.problems import AbstractProblem, Noise

ROLES: dict[str, type[Role]] = {
    "algorithm": Algorithm,
    "delay": Delay,
    "domain": Domain,
    "feedback": Policy,
    "informed": Rule,
    "kernel": Kernel,
    "noise": Noise,
    "problem": AbstractProblem,
}


def build(kind: str, table: object, where: str) -> Any:
    """Return what a table of a kind, one of ``ROLES``, describes; what is no table is returned as it is.

    Raises:
      InvalidArgument: on an unknown name or field, with the nearest known one, and on values that the object refuses.
    """
    return from_plain(kind, ROLES[kind], table, where)
