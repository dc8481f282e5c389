"""Helpers of the checks: the object, its fields, and failures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import Declared, T

STANDARD_ERRORS = 5.0


def made(given: T | Callable[[], T], role: Any) -> T:
    """Return the given instance, or call the class or function."""
    try:
        made = given if isinstance(given, role) or not callable(given) else given()
    except TypeError as error:
        raise AssertionError(f"{given!r}: cannot be called without arguments, give an instance: {error}") from error
    assert isinstance(made, role), f"must be a {role.__name__}, or a class or function that makes one, got {given!r}"
    return made


def ensure(holds: bool, name: str, words: str) -> None:
    """Raise ``AssertionError`` with the class and the words unless a promise holds."""
    assert holds, f"{name}: {words}"


def near(name: str, promise: str, found: Any, expected: Any, tolerance: float) -> None:
    """Raise ``AssertionError`` unless arrays agree, with the largest difference and its place."""
    found, expected = np.asarray(found), np.asarray(expected)
    ensure(found.shape == expected.shape, name, f"{promise}: shape {list(found.shape)}, expected {list(expected.shape)}")
    # NaN agrees with no number.
    wrong = ~(np.abs(found - expected) <= tolerance)
    if np.any(wrong):
        place = np.unravel_index(int(np.argmax(np.where(wrong, np.nan_to_num(np.abs(found - expected), nan=np.inf), -1))), found.shape)
        ensure(
            False, name, f"{promise}: {found[place]:.9g} at {list(map(int, place))}, expected {expected[place]:.9g} (+- {tolerance:.3g})"
        )


def survives(item: Declared, outputs: int | None = None) -> str:
    """Check an object's fields and pytree, and return its class's name."""
    name = type(item).__name__
    try:
        item.validate(outputs=outputs)
    except InvalidArgument as error:
        raise AssertionError(f"{name}: its fields must be valid: {error}") from error
    structure: Any = jax.tree.structure(item)
    leaves = jax.tree.leaves(item)
    again = jax.tree.unflatten(structure, leaves)
    ensure(
        type(again) is type(item) and structure == jax.tree.structure(again), name, "must be a pytree; decorate it with jaxbandit.pytree"
    )
    kept = all(x is y or np.array_equal(x, y) for x, y in zip(leaves, jax.tree.leaves(again), strict=True))
    ensure(kept, name, "must keep its numbers when it is taken apart and put together")
    ensure(structure == jax.tree.structure(jax.eval_shape(lambda x: x, item)), name, "must keep its fields under a transformation of JAX")
    blank = jax.tree.leaves(jax.tree.unflatten(structure, [None] * len(leaves)), is_leaf=lambda x: x is None)
    ensure(all(x is None for x in blank), name, "must not convert or check fields that JAX puts in")
    return name
