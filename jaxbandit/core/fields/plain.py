"""Checks of plain values that are static: true or false, text, whole numbers, names, functions."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.fields.check import Check
from jaxbandit.core.fields.shapes import Shape


@dataclasses.dataclass(frozen=True)
class _Plain(Check):
    allowed: str
    types: tuple[type, ...]
    test: Callable[[str, Any], Any] | None = None

    def takes(self, value: Any) -> bool:
        return isinstance(value, self.types) and (bool in self.types or not isinstance(value, bool))

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        if self.test is not None:
            self.test(name, value)


boolean = _Plain("true or false", (bool, np.bool_))
text = _Plain("text", (str,))


@dataclasses.dataclass(frozen=True)
class _Location(Check):
    allowed: str = "text that is not empty, or a path"

    def takes(self, value: Any) -> bool:
        return isinstance(value, str | os.PathLike) and bool(str(value).strip())

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        """Nothing more is asked of it: what is there shows when it is opened."""


path = _Location()
"""Text, or a ``Path``."""


INT32_MAX = 2**31 - 1  # the largest whole number that the engine counts with
MOST_ROUNDS = 2**24
"""The most rounds of a trial: measures count rounds in floating point, and float32 counts to here."""


def whole(least: int, most: int = INT32_MAX) -> Check:
    """Return the check for a whole number of at least ``least`` and at most ``most``."""
    checks.ends(least=least, most=most, integers=True)
    words = f"a whole number >= {least}" if most == INT32_MAX else f"a whole number from {least} to {most}"
    return _Plain(words, (int, np.integer), partial(checks.integer, least=least, most=most))


@dataclasses.dataclass(frozen=True)
class _Count(Check):
    """Numbers of points to choose, which a domain must have."""

    check: Check

    @property
    def allowed(self) -> str:  # type: ignore[override]
        return self.check.allowed

    def takes(self, value: Any) -> bool:
        return self.check.takes(value)

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        self.check.verify(name, value, shape, outputs)

    def fit_domain(self, name: str, value: Any, size: int, dimension: int, shape: Shape | None) -> None:
        if value > size:
            raise InvalidArgument(f"{name}: must be at most {size}, the number of points of the domain, got {short(value)}")


def how_many_points() -> Check:
    """Return the check for a number of points to choose, at least 1 and, once the domain is known, at most its size."""
    return _Count(whole(1))


def choice(*values: str | int) -> Check:
    """Return the check for one of a few names or numbers."""
    if not values or len({(type(value), value) for value in values if isinstance(value, str | int)}) < len(values):
        raise InvalidArgument(f"values: must be different names or whole numbers, at least one, got {short(values)}")
    kinds = tuple({type(value) for value in values}) + (np.integer,) * any(isinstance(value, int) for value in values)
    return _Plain("one of " + ", ".join(map(repr, values)), kinds, partial(checks.one_of, allowed=values))


@dataclasses.dataclass(frozen=True)
class _Function(Check):
    allowed: str
    count: int  # of arguments

    def takes(self, value: Any) -> bool:
        return callable(value) and not isinstance(value, type)

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        try:
            signature = inspect.signature(value)
        except (TypeError, ValueError):  # of a built-in function
            return
        try:
            signature.bind(*[None] * self.count)
        except TypeError as error:
            raise InvalidArgument(f"{name}: must be {self.allowed}, got one with the arguments {signature}: {error}") from error


def function(arguments: str) -> Check:
    """Return the check for a function that can be called with the positional ``arguments``, such as ``"(t, gain)"``."""
    if not isinstance(arguments, str) or not arguments.startswith("("):
        raise InvalidArgument(f"arguments: must be text such as '(t, gain)', got {short(arguments)}")
    return _Function(f"a function of {arguments}", arguments.count(",") + 1)
