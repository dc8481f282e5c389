"""Functions that some platforms compute in another order of operations, which suits their compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax

R = TypeVar("R")


def by_platform(default: Callable[..., R], **others: Callable[..., R]) -> Callable[..., R]:
    """Return the function that is ``others[platform](*args)`` on the platforms named, and ``default(*args)`` elsewhere.

    All of them give the same up to rounding. A program holds the one of the platform that it is compiled for. The derivative is that of
    ``default`` on all platforms: reverse-mode differentiation of the choice itself would store what every alternative needs.
    """

    @jax.custom_jvp
    def function(*args: object) -> R:
        result: R = jax.lax.platform_dependent(*args, default=default, **others)
        return result

    @function.defjvp
    def _(primals: tuple[object, ...], tangents: tuple[object, ...]) -> tuple[R, R]:
        pair: tuple[R, R] = jax.jvp(default, primals, tangents)
        return pair

    return function
