"""Outputs of an experiment in the user's own words and units, and the rewards and constraints that algorithms see.

Algorithms maximise a reward subject to constraints ``<= 0``. Values are turned here when they come in, and beliefs when they go out.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.problems.goals import Constraint, Objective


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
    if values is not None and not isinstance(values, Mapping):
        raise InvalidArgument(f"values: must be a mapping from the names {', '.join(outputs.names)} to numbers, got {short(values)}")
    named: dict[str, Any] = dict(values or {})
    in_order: dict[str, Any] = {} if reward is None else {outputs.objective.name: reward}
    if constraints is not None:
        listed = list(constraints) if isinstance(constraints, list | tuple | np.ndarray) else [constraints]
        if len(listed) != len(outputs.constraints):
            raise InvalidArgument(f"constraints: must hold {len(outputs.constraints)} values, one for each, got {short(constraints)}")
        in_order |= {constraint.name: value for constraint, value in zip(outputs.constraints, listed, strict=True) if value is not None}
    for name in in_order.keys() & named.keys():
        raise InvalidArgument(f"values: {name} is told twice, as {short(named[name])} and in order as {short(in_order[name])}")
    given = named | in_order
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
