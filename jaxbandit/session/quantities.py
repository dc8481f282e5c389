"""Outputs of an experiment in the user's units, and their modelled functions.

Algorithms maximise a reward subject to constraints ``<= 0``. This module converts values to these functions, and beliefs back.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.doors import either
from jaxbandit.core.fields import label, scalar
from jaxbandit.problems.data import Constraint, Objective
from jaxbandit.session.axes import labelled

STATES = {"complete": "told", "partial": "told in part", "pending": "asked", "dropped": "dropped", "failed": "failed", "retry": "to retry"}
# Name of the output that is 1 for a run with values and -1 for a failed run. The names of other outputs are not blank.
RUNS = ""


def counts_of(states: Sequence[str]) -> dict[str, int]:
    """Count the tickets by state, without failures if there are none."""
    return {state: list(states).count(state) for state in STATES if state in states or state not in ("failed", "retry")}


@dataclasses.dataclass(frozen=True)
class Standard:
    """Location and scale of every output, for standardised models.

    Attributes:
      location: location of each output in its own units; of the objective, the location of its bent values.
      scale: scale of each output in its own units, > 0.
      bend: knee and unit of the objective's bend, if any, oriented so that more is better. A value ``b`` units below the knee counts as
        ``D b / (D + b)`` units below it, with ``D = 4``, so that a penalty or a heavy tail does not hide other differences.
    """

    # Bent values lie less than this number of units below the knee.
    deepest: ClassVar[float] = 4.0
    location: tuple[float, ...]
    scale: tuple[float, ...]
    bend: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        for name, numbers in (("location", self.location), ("scale", self.scale)):
            checks.finite(name, checks.numbers(name, numbers))
            object.__setattr__(self, name, tuple(map(float, numbers)))
        checks.positive("scale", self.scale)
        if self.bend is not None:
            checks.shape("bend", self.bend, (2,))
            knee, unit = checks.numbers("bend", self.bend)
            checks.finite("bend", knee)
            checks.positive("bend", unit)
            object.__setattr__(self, "bend", (float(knee), float(unit)))

    def said_of(self, sign: int) -> str:
        """Return the bend of an objective with ``sign`` in words."""
        if self.bend is None:
            return ""
        knee, unit = self.bend
        return (
            f"values {'below' if sign > 0 else 'above'} {sign * knee:.4g} count for less, the worst as {self.deepest * unit:.3g} from there"
        )

    def bent(self, rewards: np.ndarray) -> np.ndarray:
        """Return the bent ``rewards``, where more is better."""
        if self.bend is None:
            return rewards
        knee, unit = self.bend
        below = np.maximum(knee - rewards, 0) / unit
        return np.where(below > 0, knee - unit * self.deepest * below / (self.deepest + below), rewards)

    def log_slope(self, rewards: np.ndarray) -> np.ndarray:
        """Return the logarithms of the derivatives of :meth:`bent`."""
        if self.bend is None:
            return np.zeros(len(rewards))
        return -2 * np.log1p(np.maximum(self.bend[0] - rewards, 0) / self.bend[1] / self.deepest)

    def straightened(self, bent: np.ndarray) -> np.ndarray:
        """Return the inverse of :meth:`bent`."""
        if self.bend is None:
            return bent
        knee, unit = self.bend
        # By rounding or smoothness a belief may lie below all bent values: clip it.
        below = np.clip((knee - bent) / unit, 0, self.deepest * (1 - 1e-6))
        return np.where(below > 0, knee - unit * self.deepest * below / (self.deepest - below), bent)

    def straightened_belief(self, mean: np.ndarray, sd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and deviation of rewards from those of bent ones."""
        if self.bend is None:
            return mean, sd
        # The bend makes both sides of a deviation unequal, so take half of their distance.
        high, centre, low = (self.straightened(mean + side * sd) for side in (1, 0, -1))
        return centre, (high - low) / 2


@dataclasses.dataclass(frozen=True)
class Outputs:
    """Outputs of an experiment: objective, constraints, and units by name."""

    objective: Objective
    constraints: tuple[Constraint, ...]
    unit_of: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def read(cls, objective: str, constraints: Sequence[str], units: Mapping[str, str] | None = None) -> Outputs:
        """Return the outputs of texts, with ``units`` by name."""
        if isinstance(constraints, str) or not isinstance(constraints, list | tuple):
            raise InvalidArgument(f"constraints: must be a list of texts such as 'cost <= 2.5', got {short(constraints)}")
        limits = [Constraint.read(text, f"constraints[{number}]") for number, text in enumerate(constraints)]
        held = cls(Objective.read(objective), Constraint.merged(limits))
        if units is not None and not isinstance(units, Mapping):
            raise InvalidArgument(f"units: must be a mapping from names of outputs to texts, got {short(units)}")
        for name, unit in (units or {}).items():
            if name not in held.names:
                known = f"known are {', '.join(held.names)}; an axis has its own, {either('Axis(..., unit=)', 'unit in its table')}"
                raise InvalidArgument(f"units: there is no output {short(name)}; {known}")
            label(either(f"units[{name!r}]", f"units.{name}"), unit)
        return dataclasses.replace(held, unit_of=dict(units or {}))

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the outputs, the objective's first."""
        return (self.objective.name, *(constraint.name for constraint in self.constraints))

    def with_runs(self) -> Outputs:
        """Return the outputs with one more constraint: a run gives values."""
        return dataclasses.replace(self, constraints=(*self.constraints, Constraint(RUNS, ">=", 0.0)))

    def check_measured(self, axes: Sequence[str]) -> None:
        """Raise ``InvalidArgument`` if an output's name is an expression, as in ``axes``."""
        for number, name in enumerate(self.names):
            where, said = ("constraints", self.constraints[number - 1]) if number else ("objective", self.objective)
            if is_arithmetic(name, axes):
                words = "must name an output that is measured, and computes nothing"
                remedy = "list only the points that satisfy it, or measure it under a name without operators"
                raise InvalidArgument(f"{where}: {words}, got '{said}'; {remedy}")

    def hold(self, values: Mapping[str, float]) -> bool | None:
        """Return whether all constraints hold, ``None`` if a missing value decides."""
        measured = [bool(one.violation(np.asarray(values[one.name])) == 0) for one in self.constraints if one.name in values]
        return False if not all(measured) else True if len(measured) == len(self.constraints) else None

    def label(self, name: str) -> str:
        """Return an output's name with its unit, such as ``"yield (%)"``."""
        return labelled(name, self.unit_of.get(name))

    def excess(self, values: Mapping[str, float]) -> list[float]:
        """Return constraint values, ``<= 0`` if satisfied, two for an equality."""
        return [value for row, value in sorted(self.inward(values).items()) if row > 0]

    @functools.cached_property
    def functions(self) -> tuple[tuple[str, int, float], ...]:
        """Modelled functions ``sign y - c`` of limits, as ``(name, sign, c)``."""
        sides = [(constraint.name, *side) for constraint in self.constraints for side in constraint.sides]
        return ((self.objective.name, self.objective.sign, 0.0), *sides)

    def units(self, standard: Standard | None) -> tuple[np.ndarray, np.ndarray]:
        """Return shift and scale ``[1 + m]`` of the modelled functions.

        The model's value is ``(value - shift) / scale``, after the bend. Constraints have shift 0, so feasible values stay ``<= 0``.
        """
        shift, scale = np.zeros(len(self.functions)), np.ones(len(self.functions))
        if standard is not None:
            shift[0] = self.objective.sign * standard.location[0]
            scale[:] = [standard.scale[self.names.index(name)] for name, *_ in self.functions]
        return shift, scale

    def seen(self, standard: Standard | None, function: int, value: float) -> float:
        """Return the model's value for a value of modelled ``function``."""
        if standard is None:
            return value
        shift, scale = self.units(standard)
        counted = value if function else float(standard.bent(np.asarray(value)))
        return float((counted - shift[function]) / scale[function])

    def inward(self, values: Mapping[str, float]) -> dict[int, float]:
        """Return values of modelled functions by number from ``values`` of outputs."""
        return {row: sign * values[name] - bound for row, (name, sign, bound) in enumerate(self.functions) if name in values}

    def outward(self, mean: np.ndarray, sd: np.ndarray, standard: Standard | None) -> tuple[np.ndarray, np.ndarray]:
        """Convert mean and deviation ``[1 + m, M]`` to outputs' ``[n, M]``."""
        shift, scale = self.units(standard)
        mean, sd = mean * scale[:, None] + shift[:, None], sd * scale[:, None]
        if standard is not None:
            mean[0], sd[0] = standard.straightened_belief(mean[0], sd[0])
        rows = [next(row for row, (other, *_) in enumerate(self.functions) if other == name) for name in self.names]
        units = [(mean[row], *self.functions[row][1:]) for row in rows]
        return np.stack([sign * (values + bound) for values, sign, bound in units]), sd[rows]

    def probability_of_feasibility(self, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
        """Return the probability ``[M]`` of feasibility from independent normal beliefs ``[n, M]``."""
        probability = np.ones(mean.shape[1:])
        for constraint, centre, scale in zip(self.constraints, mean[1:], sd[1:], strict=True):
            probability *= probability_of(constraint, centre, scale)
        return probability


def probability_of(constraint: Constraint, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Return the probability that a constraint holds, from normal beliefs."""
    # SciPy comes with JAX. It is imported here because start-up should not pay for it.
    from scipy.special import ndtr

    bounds, sd = dict(constraint.sides), np.maximum(sd, np.finfo(np.float64).tiny)
    low, high = -bounds.get(-1, np.inf), bounds.get(1, np.inf)
    probability: np.ndarray = ndtr((high - mean) / sd) - ndtr((low - mean) / sd)
    return probability


def is_arithmetic(name: str, axes: Sequence[str]) -> bool:
    """Return whether a name is an expression in axes or has operators."""
    # Operators as people write them, and as Python does.
    operators = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "^": "**", "²": "**2", "³": "**3"})
    text = re.sub(r"\|([^|]*)\|", r"abs(\1)", name.translate(operators))
    # Axes become X, and all other words x, because some are keywords of Python.
    parts = "|".join(map(re.escape, sorted(axes, key=len, reverse=True)))
    token = re.compile(rf"(?P<axis>(?<![^\W\d])(?:{parts})(?!\w))|[^\W\d]\w*")
    text = token.sub(lambda found: "X" if found["axis"] else "x", text)
    # A hyphen without spaces joins words and numbers. A number before a word is a factor if there are axes.
    text = re.sub(r"(?<=x)-(?=[xX\d])|(?<=[X\d])-(?=x)", "_", text)
    text = re.sub(r"(?<=\d)\s*(?=[xX])", "*", text).strip() if "X" in text else text.strip()
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return False
    operands: list[ast.expr] = []
    for node in ast.walk(tree):
        match node:
            case ast.BinOp():
                operands += [node.left, node.right]
            case ast.UnaryOp():
                operands.append(node.operand)
            case ast.Call():
                operands += node.args
            case ast.Tuple():
                operands += node.elts
    is_of_axes = any(isinstance(each, ast.Name) and each.id == "X" for each in (tree, *operands))
    return is_of_axes or (bool(operands) and re.search(r"\s[+*/]\s|\*", text) is not None)


def told_values(
    outputs: Outputs,
    values: Mapping[str, float] | None,
    reward: float | None = None,
    constraints: float | Sequence[float | None] | None = None,
    largest: float = float(np.finfo(np.float64).max) / 4,
) -> dict[str, float]:
    """Return values by name, or raise ``InvalidArgument`` for values beyond ``largest``."""
    if values is not None and not isinstance(values, Mapping):
        raise InvalidArgument(f"values: must be a mapping from the names {', '.join(outputs.names)} to numbers, got {short(values)}")
    in_order: dict[str, Any] = {} if reward is None else {outputs.objective.name: reward}
    if constraints is not None:
        is_one = not isinstance(constraints, list | tuple | np.ndarray) or (isinstance(constraints, np.ndarray) and constraints.ndim == 0)
        listed: list[Any] = [constraints] if is_one else [*cast(Sequence[Any], constraints)]
        if len(listed) != len(outputs.constraints):
            raise InvalidArgument(f"constraints: must hold {len(outputs.constraints)} values, one for each, got {short(constraints)}")
        in_order |= {name: value for name, value in zip(outputs.names[1:], listed, strict=True) if value is not None}
    given = {**(values or {})}
    for name in in_order.keys() & given.keys():
        raise InvalidArgument(f"values: {name} is told twice, as {short(given[name])} and in order as {short(in_order[name])}")
    if not (given := given | in_order):
        raise InvalidArgument(f"values: must hold at least one of {', '.join(outputs.names)}, got none")
    for name, value in given.items():
        if name not in outputs.names:
            raise InvalidArgument(f"values: there is no output {short(name)}; known are {', '.join(outputs.names)}")
        scalar.check(name, value)
        given[name] = float(checks.numbers(name, value))
        if not math.isfinite(given[name]) or any(abs(part) > largest for part in outputs.inward({name: given[name]}).values()):
            failing = either("failed=True says that the run failed", "session fail says that the run failed")
            raise InvalidArgument(f"{name}: must be a finite number, got {short(value)}; {failing}")
    return given


def readable(value: object) -> str:
    """Return a number's six (or twelve exact) digits, or a text."""
    if value is None or value != value:
        return ""
    return (whole if float(whole := f"{value:.12g}") == value else f"{value:.6g}") if isinstance(value, float) else str(value)
