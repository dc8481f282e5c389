"""Goals in words, in the units of what is measured: what to maximise or minimise, and bounds on further outputs."""

from __future__ import annotations

import dataclasses
import math
import re

import numpy as np

from jaxbandit.core.checks import InvalidArgument, short

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
NAME = r"[^<>=\s][^<>=]*?"
OBJECTIVE = re.compile(rf"\s*(maximise|minimise)\s+({NAME})\s*")
CONSTRAINT = re.compile(rf"\s*({NAME})\s*(<=|>=|=)\s*({NUMBER})\s*(?:\+-\s*({NUMBER})\s*)?")


@dataclasses.dataclass(frozen=True)
class Objective:
    """The output to maximise or minimise."""

    name: str
    sign: int  # 1 to maximise, -1 to minimise

    @classmethod
    def read(cls, text: str) -> Objective:
        """Return the objective that ``"maximise NAME"`` or ``"minimise NAME"`` describes; raises ``InvalidArgument`` on anything else."""
        match = OBJECTIVE.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise InvalidArgument(f"objective: must be 'maximise NAME' or 'minimise NAME', got {short(text)}")
        return cls(name=match[2], sign=1 if match[1] == "maximise" else -1)

    def __str__(self) -> str:
        return f"{'maximise' if self.sign > 0 else 'minimise'} {self.name}"


@dataclasses.dataclass(frozen=True)
class Constraint:
    """An output with a bound ``c`` on its mean."""

    name: str
    relation: str  # "<=", ">=" or "="
    bound: float
    tolerance: float = 0.0  # how far from c an output that is to equal it may be, > 0; 0 for inequalities

    @classmethod
    def read(cls, text: str, where: str = "constraints") -> Constraint:
        """Return the constraint that ``"NAME <= c"``, ``"NAME >= c"`` or ``"NAME = c +- tolerance"`` describes.

        Raises:
          InvalidArgument: on anything else, and on an equality without a tolerance > 0, which no noisy experiment can show to hold.
        """
        match = CONSTRAINT.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise InvalidArgument(f"{where}: must be 'NAME <= NUMBER', 'NAME >= NUMBER' or 'NAME = NUMBER +- NUMBER', got {short(text)}")
        name, relation, bound, tolerance = match[1], match[2], float(match[3]), float(match[4] or 0)
        if not math.isfinite(bound) or not math.isfinite(tolerance):
            raise InvalidArgument(f"{where}: must be a finite number, got {short(text)}")
        if (relation == "=") != (tolerance > 0):
            words = "needs a tolerance > 0, as in 'NAME = 7 +- 0.1'" if relation == "=" else "takes no tolerance, only an equality does"
            raise InvalidArgument(f"{where}: the constraint {words}, got {short(text)}")
        return cls(name=name, relation=relation, bound=bound, tolerance=tolerance)

    def __str__(self) -> str:
        return f"{self.name} {self.relation} {self.bound!r}" + (f" +- {self.tolerance!r}" if self.tolerance else "")

    @property
    def sides(self) -> tuple[tuple[int, float], ...]:
        """The inequalities ``sign y - c <= 0`` that say the same, each as ``(sign, c)``: two of an equality."""
        above, below = (1, self.bound + self.tolerance), (-1, self.tolerance - self.bound)
        return {"<=": (above,), ">=": (below,), "=": (above, below)}[self.relation]

    def violation(self, value: np.ndarray | float) -> np.ndarray:
        """Return how far values violate the constraint, ``>= 0``, in the output's own units."""
        return np.maximum(np.max([sign * np.asarray(value) - bound for sign, bound in self.sides], axis=0), 0)
