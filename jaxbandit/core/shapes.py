"""Shapes that the numbers of a field or an argument may have."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument

__all__ = ["Shape", "any_shape", "each_axis", "each_output", "exactly", "leading", "matrix", "one_function", "per_axis", "per_constraint"]
__all__ += ["per_function", "per_output", "per_output_of_two", "scalar", "unknown", "vector"]

Sizes: TypeAlias = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Shape:
    """Shapes that the numbers of a field may have, and the number of functions that an object in it serves.

    Attributes:
      words: completes "expected ..."; ``{n}`` stands for the number of functions.
      fits: whether a shape is allowed for ``n`` functions, or axes, ``None`` when their number is not known.
      functions: ``n``, from the number of outputs that the owner serves.
      on_axes: the words once ``n`` axes of a domain are known; empty for shapes that do not depend on it.
    """

    words: str
    fits: Callable[[Sizes, int | None], bool]
    functions: Callable[[int | None], int | None] = lambda outputs: outputs
    on_axes: str = ""

    def check(self, name: str, value: object, outputs: int | None) -> None:
        """Raise ``InvalidArgument`` unless ``value`` has one of the shapes."""
        actual, n = checks.shape_of(name, value), self.functions(outputs)
        if not self.fits(actual, n):
            raise InvalidArgument(f"{name}: expected {self.described(n)}, got shape {list(actual)}")

    def fit_axes(self, name: str, value: Any, axes: int) -> None:
        """Raise ``InvalidArgument`` unless ``value``, possibly traced, has one of the shapes on a domain of ``axes`` axes."""
        actual = (len(value),) if isinstance(value, list | tuple) else np.shape(value)
        if self.on_axes and not self.fits(actual, axes):
            raise InvalidArgument(f"{name}: expected {self.on_axes.format(n=f'the {axes}')}, got shape {list(actual)}")

    def described(self, n: int | None = None) -> str:
        """Return the allowed shapes for ``n`` functions in words."""
        return self.words.format(n="the" if n is None else f"the {n}")


def _one(actual: Sizes, n: int | None) -> bool:
    return actual == ()


def _each(actual: Sizes, n: int | None) -> bool:
    return len(actual) == 1 if n is None else actual == (n,)


def _vector(actual: Sizes, n: int | None = None) -> bool:
    return _each(actual, n) and (n is not None or 0 not in actual)


def _one_or_each(actual: Sizes, n: int | None) -> bool:
    return actual == () or _each(actual, n)


def _one_or_some(actual: Sizes, n: int | None) -> bool:
    return actual == () or _vector(actual, n)


def _unknown(outputs: int | None) -> int | None:
    return None


PER_AXIS = "one number, or one for each of {n} axes"
scalar = Shape("one number", _one)
one_function = Shape("one number", _one_or_each, lambda outputs: 1)
per_constraint = Shape(
    "one number, or one for each of {n} constraints", _one_or_each, lambda outputs: None if outputs is None else outputs - 1
)
per_output = Shape("one number, or one for each of {n} outputs", _one_or_some)
per_output_of_two = dataclasses.replace(per_output, functions=lambda outputs: 2)
per_function = Shape("one number, or one for each of {n} functions", _one_or_each)
per_axis = Shape(PER_AXIS, _one_or_some, _unknown, PER_AXIS)
unknown = Shape("one number", _one, _unknown)
each_output = Shape("one number for each of {n} outputs", _each)
each_axis = Shape("shape [d], one number for each axis", _vector, _unknown, "one number for each of {n} axes")
any_shape = Shape("any shape", lambda actual, n: True, _unknown)


def vector(words: str) -> Shape:
    """Return the shape ``[n]``, ``n >= 1``; ``words`` say what an entry is: "one number per observed delay"."""
    return Shape(f"shape [n] with n >= 1, {words}", lambda actual, n: _vector(actual))


def matrix(words: str) -> Shape:
    """Return the shape ``[n, p]``, ``n, p >= 1``; ``words`` say what rows and columns are."""
    return Shape(f"shape [n, p] with n, p >= 1, {words}", lambda actual, n: len(actual) == 2 and 0 not in actual)


def exactly(*sizes: int | None, words: str = "") -> Shape:
    """Return the shape of these sizes, ``None`` for any; ``words`` say what an axis holds: "one row per point"."""

    def fits(actual: Sizes, n: int | None) -> bool:
        return len(actual) == len(sizes) and all(want is None or want == have for want, have in zip(sizes, actual, strict=True))

    expected = ", ".join("*" if size is None else str(size) for size in sizes)
    return Shape(f"shape [{expected}]{words and ', ' + words}", fits, _unknown)


def leading(words: str) -> Shape:
    """Return the shapes ``[n, ...]``, ``n >= 0``, of arrays with at least one axis; ``words`` say what the first one counts."""
    return Shape(f"shape [{words}, ...]", lambda actual, n: len(actual) >= 1, _unknown)
