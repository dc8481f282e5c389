"""Shapes that the numbers of a field may have, by the number of functions, axes or points that its owner serves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument


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


def _one_or_some(actual: tuple[int, ...], n: int | None) -> bool:
    return _one_or_each(actual, n) and 0 not in actual


def _fewer(outputs: int | None) -> int | None:
    return None if outputs is None else outputs - 1


scalar = Shape("one number", lambda actual, n: actual == (), lambda outputs: outputs)
one_function = Shape("one number", _one_or_each, lambda outputs: 1)
per_constraint = Shape("one number, or one for each of {n} constraints", _one_or_each, _fewer)
per_output = Shape("one number, or one for each of {n} outputs", _one_or_some, lambda outputs: outputs)
per_function = Shape("one number, or one for each of {n} functions", _one_or_each, lambda outputs: outputs)
per_axis = Shape("one number, or one for each of {n} axes", _one_or_some, lambda outputs: None)
unknown = Shape("one number", lambda actual, n: actual == (), lambda outputs: None)
each_output = Shape(
    "one number for each of {n} outputs", lambda actual, n: len(actual) == 1 if n is None else actual == (n,), lambda outputs: outputs
)
each_axis = Shape("shape [d], one number for each axis", lambda actual, n: len(actual) == 1 and 0 not in actual, lambda outputs: None)
any_shape = Shape("any shape", lambda actual, n: True, lambda outputs: None)


def vector(words: str) -> Shape:
    """Return the shape ``[n]``, ``n >= 1``; ``words`` say what an entry is: "one number per observed delay"."""
    checks.text("words", words)
    return Shape(f"shape [n] with n >= 1, {words}", lambda actual, n: len(actual) == 1 and 0 not in actual, lambda outputs: outputs)


def matrix(words: str) -> Shape:
    """Return the shape ``[n, p]``, ``n, p >= 1``; ``words`` say what rows and columns are."""
    checks.text("words", words)
    return Shape(f"shape [n, p] with n, p >= 1, {words}", lambda actual, n: len(actual) == 2 and 0 not in actual, lambda outputs: outputs)


def exactly(*sizes: int | None, words: str = "") -> Shape:
    """Return the shape of these sizes, ``None`` for any; ``words`` say what an axis holds: "one row per point"."""
    checks.text("words", words)
    for size in sizes:
        if size is not None:
            checks.integer("sizes", size, least=0)

    def fits(actual: tuple[int, ...], n: int | None) -> bool:
        return len(actual) == len(sizes) and all(want is None or want == have for want, have in zip(sizes, actual, strict=True))

    expected = ", ".join("*" if size is None else str(size) for size in sizes)
    return Shape(f"shape [{expected}]{words and ', ' + words}", fits, lambda outputs: None)


def leading(words: str) -> Shape:
    """Return the shapes ``[n, ...]``, ``n >= 0``, of arrays with at least one axis; ``words`` say what the first one counts."""
    checks.text("words", words)
    return Shape(f"shape [{words}, ...]", lambda actual, n: len(actual) >= 1, lambda outputs: None)
