"""Eager checks of arguments, with messages that name argument, value and remedy.

They run on concrete values at the host boundary (constructors, ``validate`` methods, arguments of functions). Tracers, in a call that the
user wrapped in ``jit`` or ``vmap``, pass; there the run-time flags of ``status`` take over.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import reprlib
import sys
from collections.abc import Iterable, Iterator, Sequence, ValuesView
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxbandit.core.doors import in_file
from jaxbandit.core.hints import did_you_mean as did_you_mean

__all__ = ["InvalidArgument", "blaming", "broadcast", "finite", "integer", "is_sequence_of_numbers", "is_traced", "nonnegative"]
__all__ += ["numbers", "one_of", "positive", "shape", "shape_of", "short", "spelled", "within"]
__dir__ = __all__.copy


class InvalidArgument(ValueError):
    """Error of an unusable value, with argument, value and remedy in brief."""

    def __init__(self, message: str) -> None:
        # A long message keeps these letters at its begin and at its end.
        begin, end = 700, 200
        super().__init__(message if len(message) <= begin + end else f"{message[:begin]} ... {message[-end:]}")


class ForkedProcess(RuntimeError):
    """Error of a forked process, whose use of JAX would never end."""


_forked = False


def _note_fork() -> None:
    global _forked
    # JAX starts threads with its devices, and has no public way to ask whether that has happened.
    with contextlib.suppress(ImportError):
        from jax._src.xla_bridge import backends_are_initialized

        _forked = backends_are_initialized()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_note_fork)


def check_not_forked() -> None:
    """Raise ``ForkedProcess`` in a fork of a process that had used JAX."""
    if _forked:
        raise ForkedProcess(
            "this process was forked from one that had used JAX, and would wait for ever; start processes by spawn, as"
            " multiprocessing.get_context('spawn').Pool() and ProcessPoolExecutor(mp_context=multiprocessing.get_context('spawn')) do"
        )


@contextlib.contextmanager
def blaming(words: str) -> Iterator[None]:
    """Turn a user function's errors inside the block into ``InvalidArgument``."""
    try:
        yield
    except InvalidArgument:
        raise
    except Exception as error:
        # A user's function may raise anything, and JAX adds pages of advice.
        text = str(error).strip().partition("\n")[0]
        raise InvalidArgument(f"{words}; got one that fails with {type(error).__name__}: {text[:200]}") from error


@contextlib.contextmanager
def naming(where: str) -> Iterator[None]:
    """Let errors inside the block name the place."""
    try:
        yield
    except InvalidArgument as error:
        raise InvalidArgument(f"{where}: {error}") from error


def float_dtype() -> np.dtype:
    """Return the engine's floating type, float32 unless ``jax_enable_x64`` is on."""
    return np.dtype(jax.dtypes.canonicalize_dtype(np.float64))


def is_traced(value: object) -> bool:
    """Return whether any leaf is a JAX tracer, with unknown numbers."""
    return is_shallow(value) and any(isinstance(leaf, jax.core.Tracer) for leaf in leaves(value))


def leaves(value: object) -> list[Any]:
    """Return the leaves of a user's value, each iterator a leaf."""
    return jax.tree.leaves(value, is_leaf=is_iterator)


def is_iterator(value: object) -> bool:
    """Return whether a value gives its items once or without order."""
    return isinstance(value, Iterator | ValuesView)


def is_real(dtype: Any) -> bool:
    """Return whether an array's type is of real numbers, without booleans."""
    return any(jax.dtypes.issubdtype(dtype, kind) for kind in (np.floating, np.integer))


def is_sequence_of_numbers(value: object, levels: int = 32) -> bool:
    """Return whether ``value`` is a nested list or tuple of plain numbers.

    It counts as an array, which in NumPy has at most 32 axes. A list or tuple of other items, such as arrays or delay models, is structure
    of a pytree.
    """
    if not isinstance(value, list | tuple) or not value or levels == 0:
        return False
    return all(isinstance(v, int | float | np.number) or is_sequence_of_numbers(v, levels - 1) for v in value)


def is_shallow(value: object, levels: int = 32) -> bool:
    """Return whether lists, tuples and mappings nest in at most ``levels``."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return levels > 0 and all(is_shallow(part, levels - 1) for part in inside)


def numbers(name: str, value: object) -> np.ndarray:
    """Return ``value`` as a float64 array.

    Raises:
      InvalidArgument: unless it holds real numbers; text such as ``"3.0"``, booleans, complex numbers and ``None`` do not count.
    """
    for part in value if isinstance(value, list | tuple) else (value,):
        short_enough(name, part)
    # NumPy would ignore the mask.
    if isinstance(value, np.ma.MaskedArray):
        raise InvalidArgument(f"{name}: expected numbers, got a masked array, {short(value)}; fill it")
    try:
        array = np.asarray(value)
        converted = array.astype(np.float64) if is_real(array.dtype) else None
    except Exception as error:
        # NumPy, JAX and a user's own conversion raise errors of many kinds.
        raise InvalidArgument(f"{name}: expected numbers, got {short(value)}") from error
    among = isinstance(value, list | tuple) and any(isinstance(leaf, bool) for leaf in leaves(value))
    # NumPy takes True beside numbers for 1.0, and makes objects of integers with more than 64 bits.
    if converted is None or among:
        remedy = "; write it as a float" if isinstance(value, int) and not isinstance(value, bool) else ""
        raise InvalidArgument(f"{name}: expected numbers, got {short(value)}{remedy}")
    return converted


def short_enough(name: str, value: object) -> None:
    """Raise ``InvalidArgument`` on a range too long to be written out."""
    if isinstance(value, range) and value[10**7 :]:
        raise InvalidArgument(f"{name}: must be at most 10,000,000 numbers, got {short(value)}")


def short(value: object) -> str:
    """Return ``repr(value)``, arrays as lists, cut to 120 characters."""
    if isinstance(value, type):
        return f"the class {value.__name__}; make an instance, {value.__name__}(...)"
    if isinstance(value, np.ndarray):
        value = value.tolist() if value.size <= 1000 else value.ravel()[:60].tolist()
    brief = reprlib.Repr()
    brief.maxtuple = brief.maxlist = brief.maxdict = brief.maxset = brief.maxfrozenset = 60
    brief.maxstring = brief.maxother = brief.maxlong = 240
    try:
        text = in_file(value) or (
            brief.repr(value) if isinstance(value, list | tuple | dict | set | frozenset | str | bytes) else repr(value)
        )
    except Exception:
        # An integer may have more digits than Python prints, and a user's own __repr__ may fail.
        text = f"<{type(value).__name__} that cannot be printed>"
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    return text if len(text) <= 120 else text[:117] + "..."


class Interval(NamedTuple):
    """Numbers between two ends, without the ends that ``open_*`` names."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = True
    open_high: bool = True

    def __str__(self) -> str:
        return f"{'(' if self.open_low else '['}{self.low:g}, {self.high:g}{')' if self.open_high else ']'}"

    def holds(self, value: Any) -> Any:
        """Return where numbers, also traced ones, lie in the interval."""
        return (value > self.low if self.open_low else value >= self.low) & (value < self.high if self.open_high else value <= self.high)

    def check(self, name: str, value: object, *, remedy: str = "") -> None:
        """Raise unless all numbers are finite and in the interval, or traced."""
        if is_traced(value):
            return
        given, words = numbers(name, value), f"lie in {self}"
        if self in (Interval(), Interval(0.0), Interval(0.0, open_low=False)):
            sign = "" if self == Interval() else " > 0" if self.open_low else " >= 0"
            words, remedy = f"be{sign or ' finite'}", remedy or (f"give a number{sign}" if sign else "give finite numbers")
        if bad := int(np.count_nonzero(~np.isfinite(given))):
            remedy = remedy or "give finite numbers"
            raise InvalidArgument(f"{name}: {bad} of {given.size} values are NaN or infinite, got {short(value)}; {remedy}")
        if not np.all(self.holds(given)):
            raise InvalidArgument(f"{name}: must {words}, got {short(value)}{remedy and '; ' + remedy}")


finite, positive, nonnegative = Interval().check, Interval(0.0).check, Interval(0.0, open_low=False).check


def within(name: str, value: object, low: float, high: float, *, open_low: bool = True, open_high: bool = False) -> None:
    """Raise unless all numbers lie in the interval, without its ``open_*`` ends."""
    Interval(low, high, open_low, open_high).check(name, value)


def integer(name: str, value: object, *, least: int, most: int | None = None) -> int:
    """Return a whole number from ``least`` to ``most`` as a Python int."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InvalidArgument(f"{name}: must be a whole number >= {least}, got {short(value)}")
    if most is not None and value > most:
        raise InvalidArgument(f"{name}: must be a whole number from {least} to {most}, got {short(value)}")
    return int(value)


def shape(name: str, value: object, expected: tuple[int | None, ...], *, remedy: str = "") -> None:
    """Raise unless ``value`` has the expected shape, ``None`` for any size."""
    actual = shape_of(name, value)
    if len(actual) != len(expected) or any(want not in (None, have) for want, have in zip(expected, actual, strict=True)):
        words = ", ".join("*" if want is None else str(want) for want in expected)
        raise InvalidArgument(f"{name}: expected shape [{words}], got {list(actual)}{remedy and '; ' + remedy}")


def broadcast(**values: object) -> None:
    """Raise unless arrays, by their arguments' names, broadcast with each other."""
    shapes = {name: shape_of(name, value) for name, value in values.items()}
    try:
        np.broadcast_shapes(*shapes.values())
    except ValueError as error:
        words = " and ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        raise InvalidArgument(f"{', '.join(shapes)}: must have shapes that go together, got {words}") from error


def shape_of(name: str, value: Any) -> tuple[int, ...]:
    """Return the shape, or raise on rows of different lengths."""
    short_enough(name, value)
    if isinstance(value, list | tuple) and is_traced(value):
        return len(value), *shape_of(name, value[0])
    try:
        return tuple(np.shape(value))
    except Exception as error:
        # NumPy, JAX and a user's own conversion raise errors of many kinds.
        raise InvalidArgument(f"{name}: expected an array of numbers, got {short(value)}") from error


def one_of(name: str, value: object, allowed: Iterable[object]) -> None:
    """Raise unless ``value`` is one of ``allowed``, also in type."""
    given, *known = (item.item() if isinstance(item, np.generic) else item for item in (value, *allowed))
    if not any(type(given) is type(choice) and given == choice for choice in known):
        raise InvalidArgument(f"{name}: must be one of {', '.join(in_file(choice) or str(choice) for choice in known)}; got {short(value)}")


def check_known(name: str, known: Iterable[str], where: str, words: str) -> None:
    """Raise with the nearest known name unless ``name`` is known."""
    known = list(known)
    if not isinstance(name, str):
        raise InvalidArgument(f"{where}: must be named by text, got {short(name)}; {words} {', '.join(known) or 'none'}")
    if name not in known:
        raise InvalidArgument(f"{where}: unknown field{did_you_mean(name, known)}; {words} {', '.join(known) or 'none'}")


def spelled(name: str, known: Iterable[str], alike: Iterable[Sequence[str]] = ()) -> str:
    """Return the known name that matches, or is ``alike``, else ``name``."""

    def bare(word: str) -> str:
        return re.sub(r"[\W_]+", "", word).casefold()

    known = list(known)
    if name in known:
        return name
    groups = [{bare(word) for word in words} for words in alike]
    for same in ({bare(name)}, set[str]().union(*(group for group in groups if bare(name) in group))):
        found = [other for other in known if bare(other) in same]
        if len(found) == 1:
            return found[0]
    return name
