"""Checks of the arguments of functions, declared beside the function as those of fields are beside the field."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.fields import Check

__all__ = ["takes"]

F = TypeVar("F", bound=Callable[..., Any])


def takes(**declared: Check) -> Callable[[F], F]:
    """Return a decorator of functions: each argument named is checked before the function is called.

    ``@takes(points_per_axis=whole(2), noise_variance=nonnegative.of(per_output))`` says what two arguments may hold. An argument that is
    left out is not checked, so that a default may be anything; one that may be given as ``None`` is declared as ``optional(...)``.
    The decorated function has the mapping as ``declared``.

    Raises:
      InvalidArgument: on an argument that the function does not have; the decorated function raises it on values that are not allowed.
    """
    for name, check in declared.items():
        if not isinstance(check, Check):
            raise InvalidArgument(f"takes.{name}: must be a check of jaxbandit.fields, got {short(check)}")

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        unknown = declared.keys() - signature.parameters.keys()
        if unknown:
            raise InvalidArgument(f"takes: {function.__qualname__} has no argument {', '.join(sorted(unknown))}")

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            try:
                given: Mapping[str, Any] = signature.bind_partial(*args, **kwargs).arguments
            except TypeError:
                given = {}  # the call below fails in Python's own words, which name the function
            for name, value in given.items():
                if name in declared:
                    declared[name](name, value)
            return function(*args, **kwargs)

        checked.declared = declared  # type: ignore[attr-defined]
        return cast(F, checked)

    return decorate
