"""Eager checks of what a user hands in. Each names the argument, what it was and what is allowed.

They run on concrete values at the host boundary (``validate`` methods, constructors of tables and surrogates). A value that is a
tracer, because the user wrapped a call in ``jit`` or ``vmap``, is passed over: there the run-time flags of ``status`` take over.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


class InvalidArgument(ValueError):
    """A value the library cannot work with; the message names the argument, the value and the remedy."""


def is_traced(value: Any) -> bool:
    """Whether any leaf of ``value`` is a JAX tracer, so that its numbers cannot be looked at."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value))


def _numbers(name: str, value: Any) -> np.ndarray:
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{name}: expected numbers, got {_short(value)}") from error
    return numbers


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def finite(name: str, value: Any, *, remedy: str = "give finite numbers") -> None:
    """Raise unless every number of ``value`` is finite."""
    if is_traced(value):
        return
    numbers = _numbers(name, value)
    bad = int(np.count_nonzero(~np.isfinite(numbers)))
    if bad:
        raise InvalidArgument(f"{name}: {bad} of {numbers.size} values are NaN or infinite; {remedy}")


def positive(name: str, value: Any, *, remedy: str = "give a number > 0") -> None:
    """Raise unless every number of ``value`` is finite and greater than zero."""
    finite(name, value, remedy=remedy)
    if not is_traced(value) and not np.all(_numbers(name, value) > 0):
        raise InvalidArgument(f"{name}: must be > 0, got {_short(value)}; {remedy}")


def nonnegative(name: str, value: Any, *, remedy: str = "give a number >= 0") -> None:
    """Raise unless every number of ``value`` is finite and not negative."""
    finite(name, value, remedy=remedy)
    if not is_traced(value) and not np.all(_numbers(name, value) >= 0):
        raise InvalidArgument(f"{name}: must be >= 0, got {_short(value)}; {remedy}")


def within(name: str, value: Any, low: float, high: float, *, open_low: bool = True, open_high: bool = False) -> None:
    """Raise unless every number of ``value`` lies in the interval; ``open_*`` says which ends are left out."""
    finite(name, value)
    if is_traced(value):
        return
    numbers = _numbers(name, value)
    above = numbers > low if open_low else numbers >= low
    below = numbers < high if open_high else numbers <= high
    if not np.all(above & below):
        interval = f"{'(' if open_low else '['}{low:g}, {high:g}{')' if open_high else ']'}"
        raise InvalidArgument(f"{name}: must lie in {interval}, got {_short(value)}")


def integer(name: str, value: Any, *, least: int) -> int:
    """``value`` as a Python int; raises unless it is a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InvalidArgument(f"{name}: must be a whole number >= {least}, got {_short(value)}")
    return int(value)


def shape(name: str, value: Any, expected: tuple[int | None, ...], *, remedy: str = "") -> None:
    """Raise unless ``value`` has the expected shape; ``None`` stands for any size."""
    actual = tuple(np.shape(value))
    if len(actual) != len(expected) or any(e is not None and e != a for e, a in zip(expected, actual, strict=True)):
        words = "[" + ", ".join("*" if e is None else str(e) for e in expected) + "]"
        raise InvalidArgument(f"{name}: expected shape {words}, got {list(actual)}{'; ' + remedy if remedy else ''}")


def per_constraint(name: str, value: Any, constraints: int) -> None:
    """Raise unless ``value`` is a scalar or has one entry for each of ``constraints``."""
    if np.shape(value) not in ((), (constraints,)):
        raise InvalidArgument(
            f"{name}: expected one number, or one for each of the {constraints} constraints, got shape {list(np.shape(value))}"
        )


def scalar(name: str, value: Any) -> None:
    """Raise unless ``value`` is a single number."""
    if np.shape(value) != ():
        raise InvalidArgument(f"{name}: expected one number, got shape {list(np.shape(value))}")


def one_of(name: str, value: Any, allowed: Any) -> None:
    """Raise unless ``value`` is among ``allowed``."""
    if value not in allowed:
        raise InvalidArgument(f"{name}: must be one of {', '.join(map(str, allowed))}; got {value!r}")
