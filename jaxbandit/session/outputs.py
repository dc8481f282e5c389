"""Outputs of an experiment in the user's own words and units, and the rewards and constraints that algorithms see.

Algorithms maximise a reward subject to constraints ``<= 0``. Values are turned here when they come in, and beliefs when they go out.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, short

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
OBJECTIVE = re.compile(r"\s*(maximise|minimise)\s+(\S.*?)\s*")
CONSTRAINT = re.compile(rf"\s*([^<>=\s][^<>=]*?)\s*(<=|>=|=)\s*({NUMBER})\s*(?:\+-\s*({NUMBER})\s*)?")


@dataclasses.dataclass(frozen=True)
class Objective:
    """The output to maximise or minimise.

    Attributes:
      name: its name.
      sign: 1 for an output to maximise, -1 for one to minimise.
    """

    name: str
    sign: int

    @classmethod
    def read(cls, text: str) -> Objective:
        """Return the objective that ``"maximise NAME"`` or ``"minimise NAME"`` describes; raises ``InvalidArgument`` on anything else."""
        found = OBJECTIVE.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise InvalidArgument(f"objective: must be 'maximise NAME' or 'minimise NAME', got {short(text)}")
        return cls(name=found[2], sign=1 if found[1] == "maximise" else -1)

    def __str__(self) -> str:
        return f"{'maximise' if self.sign > 0 else 'minimise'} {self.name}"


@dataclasses.dataclass(frozen=True)
class Constraint:
    """An output with a bound on its mean.

    Attributes:
      name: its name.
      relation: ``"<="``, ``">="`` or ``"="``.
      bound: the bound ``c``.
      tolerance: how far from ``c`` an output that is to equal it may be, > 0; 0 for inequalities.
    """

    name: str
    relation: str
    bound: float
    tolerance: float = 0.0

    @classmethod
    def read(cls, text: str, where: str = "constraints") -> Constraint:
        """Return the constraint that ``"NAME <= c"``, ``"NAME >= c"`` or ``"NAME = c +- tolerance"`` describes.

        Raises:
          InvalidArgument: on anything else, and on an equality without a tolerance > 0, which no noisy experiment can show to hold.
        """
        found = CONSTRAINT.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise InvalidArgument(f"{where}: must be 'NAME <= NUMBER', 'NAME >= NUMBER' or 'NAME = NUMBER +- NUMBER', got {short(text)}")
        name, relation, bound, tolerance = found[1], found[2], float(found[3]), float(found[4] or 0)
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


@dataclasses.dataclass(frozen=True)
class Outputs:
    """All outputs of an experiment: the objective, then the constraints.

    Attributes:
      objective: what is maximised or minimised.
      constraints: bounds on further outputs.
    """

    objective: Objective
    constraints: tuple[Constraint, ...]

    @classmethod
    def read(cls, objective: str, constraints: Sequence[str]) -> Outputs:
        """Return the outputs that texts describe; raises ``InvalidArgument`` on a name that stands twice."""
        if isinstance(constraints, str) or not isinstance(constraints, list | tuple):
            raise InvalidArgument(f"constraints: must be a list of texts such as 'cost <= 2.5', got {short(constraints)}")
        made = cls(Objective.read(objective), tuple(Constraint.read(text, f"constraints[{n}]") for n, text in enumerate(constraints)))
        for number, name in enumerate(made.names):
            if name in made.names[:number]:
                raise InvalidArgument(f"constraints: must have names of their own, got {name!r} twice")
        return made

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the outputs, the objective's first."""
        return (self.objective.name, *(constraint.name for constraint in self.constraints))

    @property
    def modelled(self) -> int:
        """Number of functions that the model has, ``1 + m``: an equality counts twice."""
        return 1 + sum(len(constraint.sides) for constraint in self.constraints)

    @property
    def rows(self) -> tuple[tuple[int, ...], ...]:
        """The modelled functions of each output, by number."""
        found: list[tuple[int, ...]] = [(0,)]
        start = 1
        for constraint in self.constraints:
            found.append(tuple(range(start, start + len(constraint.sides))))
            start += len(constraint.sides)
        return tuple(found)

    def inward(self, values: Mapping[str, float]) -> dict[int, float]:
        """Return the values of modelled functions, by number, that ``values`` of outputs by name amount to."""
        found: dict[int, float] = {}
        for name, value in values.items():
            number = self.names.index(name)
            sides = ((self.objective.sign, 0.0),) if number == 0 else self.constraints[number - 1].sides
            found |= {row: sign * value - bound for row, (sign, bound) in zip(self.rows[number], sides, strict=True)}
        return found

    def outward(self, mean: np.ndarray, sd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and deviation ``[n, M]`` of the ``n`` outputs in their own units, from those ``[1 + m, M]`` of the model."""
        first = [rows[0] for rows in self.rows]
        turns = [(self.objective.sign, 0.0), *(constraint.sides[0] for constraint in self.constraints)]
        means = [sign * (mean[row] + bound) for row, (sign, bound) in zip(first, turns, strict=True)]
        return np.stack(means), sd[np.asarray(first)]

    def prior_means(self, given: Sequence[float]) -> list[float]:
        """Return prior means of the modelled functions ``[1 + m]`` from those of the outputs ``[n]``."""
        inward = self.inward(dict(zip(self.names, given, strict=True)))
        return [inward[row] for row in range(self.modelled)]

    def probability_of_feasibility(self, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
        """Return the probability ``[M]`` that all constraints hold, from independent normal beliefs ``[n, M]`` in the outputs' units."""
        from scipy.special import ndtr  # comes with JAX; imported here because start-up should not pay for it

        probability = np.ones(mean.shape[1:])
        for number, constraint in enumerate(self.constraints, 1):
            scale = np.maximum(sd[number], np.finfo(np.float64).tiny)
            low, high = {
                "<=": (-np.inf, constraint.bound),
                ">=": (constraint.bound, np.inf),
                "=": (constraint.bound - constraint.tolerance, constraint.bound + constraint.tolerance),
            }[constraint.relation]
            probability *= ndtr((high - mean[number]) / scale) - ndtr((low - mean[number]) / scale)
        return probability


def told_values(
    outputs: Outputs,
    values: Mapping[str, float] | None,
    reward: float | None,
    constraints: float | Sequence[float | None] | None,
    largest: float,
) -> dict[str, float]:
    """Return the values that are told, by name; raises ``InvalidArgument`` on what is no value of an output, or larger than ``largest``."""
    given: dict[str, Any] = {}
    if values is not None:
        if not isinstance(values, Mapping):
            raise InvalidArgument(f"values: must be a mapping from the names {', '.join(outputs.names)} to numbers, got {short(values)}")
        given |= values
    if reward is not None:
        given = {outputs.objective.name: reward} | given
    if constraints is not None:
        listed = list(constraints) if isinstance(constraints, list | tuple | np.ndarray) else [constraints]
        if len(listed) != len(outputs.constraints):
            raise InvalidArgument(f"constraints: must hold {len(outputs.constraints)} values, one for each, got {short(constraints)}")
        named = {constraint.name: value for constraint, value in zip(outputs.constraints, listed, strict=True) if value is not None}
        given = named | given
    if not given:
        raise InvalidArgument(f"values: must hold at least one of {', '.join(outputs.names)}, got none")
    for name in given:
        if name not in outputs.names:
            raise InvalidArgument(f"values: there is no output {short(name)}; known are {', '.join(outputs.names)}")
    return {name: _number(outputs, name, value, largest) for name, value in given.items()}


def _number(outputs: Outputs, name: str, value: Any, largest: float) -> float:
    """Return a value as a float; raises ``InvalidArgument`` on what is none, or beyond what the model's arithmetic can work with."""
    checks.scalar(name, value)
    number = float(checks.numbers(name, value))
    if not math.isfinite(number) or any(abs(part) > largest for part in outputs.inward({name: number}).values()):
        raise InvalidArgument(f"{name}: must be a finite number, got {short(value)}; drop the ticket if the run failed")
    return number
