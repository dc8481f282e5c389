"""The base of all checks, and how two of them are joined."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.fields.shapes import Shape, each_axis, per_axis


class Check:
    """Abstract base of the checks of a field's value.

    Attributes:
      allowed: what the field may hold, in words that complete "must be ...": "a number > 0".
      classes: base classes of the objects that it may hold; none for numbers.
      ends: interval that its numbers lie in, ``(-inf, inf)`` where the check has none.
    """

    allowed: str
    classes: tuple[type, ...] = ()
    ends: tuple[float, float] = (float("-inf"), float("inf"))

    def takes(self, value: Any) -> bool:
        """Return whether ``value`` is of the right type, whatever its shape and range."""
        raise TypeError(f"{type(self).__name__} must define takes(value)")

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        """Raise ``InvalidArgument`` unless ``value``, which is of the right type, has an allowed shape and range."""
        raise TypeError(f"{type(self).__name__} must define verify(name, value, shape, outputs)")

    def __call__(self, name: str, value: Any, shape: Shape | None = None, outputs: int | None = None) -> None:
        """Raise ``InvalidArgument`` unless the field ``name`` of an object that serves ``outputs`` functions may hold ``value``."""
        if not self.takes(value):
            raise InvalidArgument(f"{name}: must be {self.allowed}, got {short(value)}")
        self.verify(name, value, shape, outputs)

    def inside(self, value: Any) -> Any:
        """Return whether traced numbers lie in the range, ``[]``; true for a check that has none."""
        return True

    def fit_domain(self, name: str, value: Any, size: int, dimension: int, shape: Shape | None) -> None:
        """Raise ``InvalidArgument`` when ``value``, which is allowed on some domain, does not fit one of ``size`` points."""
        if shape is per_axis and np.shape(value) not in ((), (dimension,)):
            raise InvalidArgument(f"{name}: expected {shape.described(dimension)}, got shape {list(np.shape(value))}")
        if shape is each_axis and np.shape(value) != (dimension,):
            raise InvalidArgument(f"{name}: expected one number for each of the {dimension} axes, got shape {list(np.shape(value))}")

    def __or__(self, other: Check) -> Check:
        must_be_check("other", other)
        return _Either((self, other))

    def of(self, shape: Shape, outputs: int | None = None) -> Check:
        """Return the check that also asks for a shape, for arguments of functions; fields declare theirs beside the check.

        A function that always serves as many functions says how many by ``outputs``.
        """
        if not isinstance(shape, Shape):
            raise InvalidArgument(f"shape: must be a shape of jaxbandit.fields, such as per_output, got {short(shape)}")
        if outputs is not None:
            checks.integer("outputs", outputs, least=1)
        return _Shaped(f"{self.allowed}; {shape.described()}", self, shape, outputs)


def must_be_check(name: str, value: Any) -> None:
    """Raise ``InvalidArgument`` unless ``value`` is a check."""
    if not isinstance(value, Check):
        raise InvalidArgument(f"{name}: must be a check of jaxbandit.fields, such as positive, got {short(value)}")


@dataclasses.dataclass(frozen=True)
class _Shaped(Check):
    allowed: str
    check: Check
    shape: Shape
    outputs: int | None

    @property
    def classes(self) -> tuple[type, ...]:  # type: ignore[override]
        return self.check.classes

    @property
    def ends(self) -> tuple[float, float]:  # type: ignore[override]
        return self.check.ends

    def takes(self, value: Any) -> bool:
        return self.check.takes(value)

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        self.check.verify(name, value, self.shape, self.outputs if outputs is None else outputs)

    def fit_domain(self, name: str, value: Any, size: int, dimension: int, shape: Shape | None) -> None:
        self.check.fit_domain(name, value, size, dimension, self.shape)


@dataclasses.dataclass(frozen=True)
class _Either(Check):
    checks: tuple[Check, ...]

    @property
    def allowed(self) -> str:  # type: ignore[override]
        return " or ".join(check.allowed for check in self.checks)

    @property
    def classes(self) -> tuple[type, ...]:  # type: ignore[override]
        return tuple(found for check in self.checks for found in check.classes)

    @property
    def ends(self) -> tuple[float, float]:  # type: ignore[override]
        return self.checks[0].ends  # of what is optional, or a number or an object

    def takes(self, value: Any) -> bool:
        return any(check.takes(value) for check in self.checks)

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        next(check for check in self.checks if check.takes(value)).verify(name, value, shape, outputs)

    def inside(self, value: Any) -> Any:
        return next(check for check in self.checks if check.takes(value)).inside(value)

    def fit_domain(self, name: str, value: Any, size: int, dimension: int, shape: Shape | None) -> None:
        next(check for check in self.checks if check.takes(value)).fit_domain(name, value, size, dimension, shape)
