"""Outputs of an experiment in the user's own words and units, and the rewards and constraints that algorithms see.

Algorithms maximise a reward subject to constraints ``<= 0``. Values are turned here when they come in, and beliefs when they go out.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.problems.goals import Constraint, Objective

LARGEST = float(np.finfo(np.float64).max) / 4


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
        outputs = cls(Objective.read(objective), tuple(Constraint.read(text, f"constraints[{n}]") for n, text in enumerate(constraints)))
        for number, name in enumerate(outputs.names):
            if name in outputs.names[:number]:
                raise InvalidArgument(f"constraints: must have names of their own, got {name!r} twice")
        return outputs

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the outputs, the objective's first."""
        return (self.objective.name, *(constraint.name for constraint in self.constraints))

    @property
    def sides(self) -> tuple[tuple[tuple[int, float], ...], ...]:
        """The functions that are modelled of each output ``y``, as ``(sign, c)`` for ``sign y - c``: two of an equality."""
        return (((self.objective.sign, 0.0),), *(constraint.sides for constraint in self.constraints))

    @property
    def modelled(self) -> int:
        """Number of functions that the model has, ``1 + m``: an equality counts twice."""
        return sum(map(len, self.sides))

    @property
    def rows(self) -> tuple[tuple[int, ...], ...]:
        """The modelled functions of each output, by number."""
        count = itertools.count()
        return tuple(tuple(next(count) for _ in sides) for sides in self.sides)

    def inward(self, values: Mapping[str, float]) -> dict[int, float]:
        """Return the values of modelled functions, by number, that ``values`` of outputs by name amount to."""
        each = zip(self.names, self.rows, self.sides, strict=True)
        return {
            row: sign * values[name] - bound
            for name, rows, sides in each
            if name in values
            for row, (sign, bound) in zip(rows, sides, strict=True)
        }

    def outward(self, mean: np.ndarray, sd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and deviation ``[n, M]`` of the ``n`` outputs in their own units, from those ``[1 + m, M]`` of the model."""
        first = [(rows[0], *sides[0]) for rows, sides in zip(self.rows, self.sides, strict=True)]
        return np.stack([sign * (mean[row] + bound) for row, sign, bound in first]), sd[np.asarray([row for row, *_ in first])]

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
            low = constraint.bound - constraint.tolerance if constraint.relation != "<=" else -np.inf
            high = constraint.bound + constraint.tolerance if constraint.relation != ">=" else np.inf
            probability *= ndtr((high - mean[number]) / scale) - ndtr((low - mean[number]) / scale)
        return probability


def told_values(
    outputs: Outputs,
    values: Mapping[str, float] | None,
    reward: float | None = None,
    constraints: float | Sequence[float | None] | None = None,
    largest: float = LARGEST,
) -> dict[str, float]:
    """Return the values that are told, by name; raises ``InvalidArgument`` on what is no value of an output, or larger than ``largest``."""
    if values is not None and not isinstance(values, Mapping):
        raise InvalidArgument(f"values: must be a mapping from the names {', '.join(outputs.names)} to numbers, got {short(values)}")
    listed = np.full(len(outputs.constraints), None).tolist()
    if constraints is not None:
        listed = list(constraints) if isinstance(constraints, list | tuple | np.ndarray) else [constraints]
        if len(listed) != len(outputs.constraints):
            raise InvalidArgument(f"constraints: must hold {len(outputs.constraints)} values, one for each, got {short(constraints)}")
    named = dict(values or {})
    in_order = {name: value for name, value in zip(outputs.names, [reward, *listed], strict=True) if value is not None}
    for name in in_order.keys() & named.keys():
        raise InvalidArgument(f"values: {name} is told twice, as {short(named[name])} and in order as {short(in_order[name])}")
    if not (given := named | in_order):
        raise InvalidArgument(f"values: must hold at least one of {', '.join(outputs.names)}, got none")
    for name, value in given.items():
        if name not in outputs.names:
            raise InvalidArgument(f"values: there is no output {short(name)}; known are {', '.join(outputs.names)}")
        checks.scalar(name, value)
        given[name] = float(checks.numbers(name, value))
        if not math.isfinite(given[name]) or any(abs(part) > largest for part in outputs.inward({name: given[name]}).values()):
            raise InvalidArgument(f"{name}: must be a finite number, got {short(value)}; drop the ticket if the run failed")
    return given
