"""Checks and shapes of declared fields, the vocabulary of :func:`~jaxbandit.core.pytree.param` and :func:`~jaxbandit.core.pytree.static`.

A check says in words what a field may hold (``allowed``) and raises ``InvalidArgument`` on anything else: first on a value of the wrong
type, then on a wrong shape, then on NaN and infinity, then on a number out of range. ``|`` joins two checks: ``positive |
instance_of(Width)``. Numbers of leaves may be tracers, whose values cannot be looked at; then only the shape is checked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import jax
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.pytree import float_dtype

__all__ = [
    "Check",
    "Shape",
    "between",
    "boolean",
    "choice",
    "each",
    "finite",
    "function",
    "instance_of",
    "matrix",
    "nonnegative",
    "one_function",
    "optional",
    "per_constraint",
    "per_function",
    "per_output",
    "positive",
    "scalar",
    "text",
    "tuple_of",
    "unknown",
    "vector",
    "whole",
    "whole_numbers",
]


@dataclasses.dataclass(frozen=True)
class Shape:
    """Shapes that the numbers of a field may have, and the number of functions that an object in it serves.

    Attributes:
      words: completes "expected ..."; ``{n}`` stands for the number of functions.
      fits: whether a shape is allowed for ``n`` functions, ``None`` when their number is not known.
      functions: ``n``, from the number of outputs that the owner serves.
    """

    words: str
    fits: Callable[[tuple[int, ...], int | None], bool]
    functions: Callable[[int | None], int | None]

    def check(self, name: str, value: Any, outputs: int | None) -> None:
        """Raise ``InvalidArgument`` unless ``value`` has one of the shapes."""
        actual, n = checks.shape_of(name, value), self.functions(outputs)
        if not self.fits(actual, n):
            raise InvalidArgument(f"{name}: expected {self.described(n)}, got shape {list(actual)}")

    def described(self, n: int | None = None) -> str:
        """Return the allowed shapes for ``n`` functions in words."""
        return self.words.format(n="the" if n is None else f"the {n}")


def _one_or_each(actual: tuple[int, ...], n: int | None) -> bool:
    return actual == () or (len(actual) == 1 if n is None else actual == (n,))


def _fewer(outputs: int | None) -> int | None:
    return None if outputs is None else outputs - 1


scalar = Shape("one number", lambda actual, n: actual == (), lambda outputs: outputs)
one_function = Shape("one number", _one_or_each, lambda outputs: 1)
per_constraint = Shape("one number, or one for each of {n} constraints", _one_or_each, _fewer)
per_output = Shape("one number, or one for each of {n} outputs", _one_or_each, lambda outputs: outputs)
per_function = Shape("one number, or one for each of {n} functions", _one_or_each, lambda outputs: outputs)
unknown = Shape("one number", lambda actual, n: actual == (), lambda outputs: None)


def vector(words: str) -> Shape:
    """Return the shape ``[n]``, ``n >= 1``; ``words`` say what an entry is: "one number per observed delay"."""
    return Shape(f"shape [n] with n >= 1, {words}", lambda actual, n: len(actual) == 1 and 0 not in actual, lambda outputs: outputs)


def matrix(words: str) -> Shape:
    """Return the shape ``[n, p]``, ``n, p >= 1``; ``words`` say what rows and columns are."""
    return Shape(f"shape [n, p] with n, p >= 1, {words}", lambda actual, n: len(actual) == 2 and 0 not in actual, lambda outputs: outputs)


class Check:
    """Abstract base of the checks of a field's value.

    Attributes:
      allowed: what the field may hold, in words that complete "must be ...": "a number > 0".
      classes: base classes of the objects that it may hold; none for numbers.
    """

    allowed: str
    classes: tuple[type, ...] = ()

    def takes(self, value: Any) -> bool:
        """Return whether ``value`` is of the right type, whatever its shape and range."""
        raise TypeError(f"{type(self).__name__} must define takes(value)")

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        """Raise ``InvalidArgument`` unless ``value``, which is of the right type, has an allowed shape and range."""
        raise TypeError(f"{type(self).__name__} must define verify(name, value, shape, outputs)")

    def __call__(self, name: str, value: Any, shape: Shape | None = None, outputs: int | None = None) -> None:
        """Raise ``InvalidArgument`` unless the field ``name`` of an object that serves ``outputs`` functions may hold ``value``."""
        if not self.takes(value):
            raise InvalidArgument(f"{name}: must be {self.allowed}, got {_shown(value)}")
        self.verify(name, value, shape, outputs)

    def __or__(self, other: Check) -> Check:
        return _Either((self, other))


def _shown(value: Any) -> str:
    """Return a value as an error message shows it; a class in place of an instance is a frequent slip."""
    return f"the class {value.__name__}; make an instance, {value.__name__}(...)" if isinstance(value, type) else short(value)


# -- numbers that are leaves ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Numbers(Check):
    allowed: str
    test: Callable[[str, Any], None]  # of concrete numbers

    def takes(self, value: Any) -> bool:
        # What `canonicalise` makes one array of: a list of arrays would stay structure.
        if isinstance(value, list | tuple):
            return checks.is_sequence_of_numbers(value)
        return isinstance(value, int | float | np.number | np.ndarray | jax.Array) and not isinstance(value, bool)

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        if checks.is_traced(value):
            (shape or scalar).check(name, value, outputs)
            return
        try:
            given = checks.numbers(name, value)
        except InvalidArgument as error:  # an array of something else
            raise InvalidArgument(f"{name}: must be {self.allowed}; {str(error).removeprefix(name + ': ')}") from error
        (shape or scalar).check(name, value, outputs)
        self.test(name, value)
        self._in_the_engine(name, value, given)

    def _in_the_engine(self, name: str, value: Any, given: np.ndarray) -> None:
        """Raise when a number is allowed, but not what it becomes in the engine's floating type."""
        dtype = float_dtype()
        limits = np.finfo(dtype)
        with np.errstate(all="ignore"):
            rounded = given.astype(dtype)
        rounded = np.where(np.abs(rounded) < limits.tiny, 0, rounded)  # processors flush smaller ones to zero
        try:
            self.test(name, rounded)
        except InvalidArgument as error:
            raise InvalidArgument(
                f"{name}: must be {self.allowed} in {dtype}, got {short(value)}, which becomes {short(rounded.tolist())} there; turn on"
                " jax_enable_x64, or change the number"
            ) from error


positive = _Numbers("a number > 0", checks.positive)
nonnegative = _Numbers("a number >= 0", checks.nonnegative)
finite = _Numbers("a finite number", checks.finite)


def between(low: float, high: float, *, open_low: bool = True, open_high: bool = False) -> Check:
    """Return the check for numbers in an interval; ``open_*`` says which ends are left out."""
    interval = f"{'(' if open_low else '['}{low:g}, {high:g}{')' if open_high else ']'}"
    test = partial(checks.within, low=low, high=high, open_low=open_low, open_high=open_high)
    return _Numbers(f"a number in {interval}", test)


def whole_numbers(least: int, most: int, unit: str) -> Check:
    """Return the check for leaves that hold whole numbers of some unit; a float such as 3.0 is one."""
    return _Numbers(f"a whole number of {unit} from {least} to {most}", partial(checks.whole, low=least, high=most, unit=unit))


# -- plain values that are static ----------------------------------------------------------------------------------------------------


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


INT32_MAX = 2**31 - 1  # the largest whole number that the engine counts with


def whole(least: int, most: int = INT32_MAX) -> Check:
    """Return the check for a whole number of at least ``least`` and at most ``most``."""
    words = f"a whole number >= {least}" if most == INT32_MAX else f"a whole number from {least} to {most}"
    return _Plain(words, (int, np.integer), partial(checks.integer, least=least, most=most))


def choice(*values: str | int) -> Check:
    """Return the check for one of a few names or numbers."""
    kinds = tuple({type(value) for value in values}) + (np.integer,) * any(isinstance(value, int) for value in values)
    return _Plain("one of " + ", ".join(map(repr, values)), kinds, partial(checks.one_of, allowed=values))


@dataclasses.dataclass(frozen=True)
class _Function(Check):
    allowed: str

    def takes(self, value: Any) -> bool:
        return callable(value)

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        """Nothing more can be seen without calling it."""


def function(arguments: str) -> Check:
    """Return the check for a function; ``arguments`` such as ``"(t, gain)"`` are for messages."""
    return _Function(f"a function of {arguments}")


# -- objects, and checks made of checks ----------------------------------------------------------------------------------------------


class _Role(Protocol):
    """Objects that :class:`~jaxbandit.core.declare.Declared` makes."""

    def validate(self, name: str | None = None, outputs: int | None = None) -> None: ...


@dataclasses.dataclass(frozen=True)
class _InstanceOf(Check):
    allowed: str
    classes: tuple[type[_Role], ...]

    def takes(self, value: Any) -> bool:
        return isinstance(value, self.classes)

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        value.validate(name, outputs if shape is None else shape.functions(outputs))


def instance_of(role: type) -> Check:
    """Return the check for objects of a class that derives from ``Declared``; their own fields are checked, too."""
    return _InstanceOf(role.described, (role,))  # type: ignore[attr-defined]


@dataclasses.dataclass(frozen=True)
class _Either(Check):
    checks: tuple[Check, ...]

    @property
    def allowed(self) -> str:  # type: ignore[override]
        return " or ".join(check.allowed for check in self.checks)

    @property
    def classes(self) -> tuple[type, ...]:  # type: ignore[override]
        return tuple(found for check in self.checks for found in check.classes)

    def takes(self, value: Any) -> bool:
        return any(check.takes(value) for check in self.checks)

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        next(check for check in self.checks if check.takes(value)).verify(name, value, shape, outputs)


@dataclasses.dataclass(frozen=True)
class _Nothing(Check):
    allowed: str = "None"

    def takes(self, value: Any) -> bool:
        return value is None

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        """``None`` has no shape and no range."""


def optional(check: Check) -> Check:
    """Return the check for ``None`` or what ``check`` allows."""
    return check | _Nothing()


@dataclasses.dataclass(frozen=True)
class _Each(Check):
    allowed: str
    check: Check
    types: tuple[type, ...]
    length: int | None = None

    @property
    def classes(self) -> tuple[type, ...]:  # type: ignore[override]
        return self.check.classes

    def takes(self, value: Any) -> bool:
        return isinstance(value, self.types) and (self.length is None or len(value) == self.length)  # type: ignore[arg-type]

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        for number, item in enumerate(value):
            self.check(f"{name}[{number}]", item, None, outputs if shape is None else shape.functions(outputs))


def each(check: Check) -> Check:
    """Return the check for a tuple or list whose every item ``check`` allows."""
    return _Each(f"a tuple, each item {check.allowed}", check, (tuple, list))


def tuple_of(check: Check, length: int | None = None) -> Check:
    """Return the check for a tuple of plain values, of ``length`` items where given; a static list would have no hash."""
    return _Each(f"a tuple{f' of {length} items' if length else ''}, each item {check.allowed}", check, (tuple,), length)
