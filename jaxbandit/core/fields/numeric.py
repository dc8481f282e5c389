"""Checks of numbers, arrays, points and keys, which are leaves: tracers pass, for their values cannot be looked at."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.fields.check import Check
from jaxbandit.core.fields.shapes import Shape, scalar
from jaxbandit.core.types import float_dtype


@dataclasses.dataclass(frozen=True)
class _Numbers(Check):
    allowed: str
    test: Callable[[str, Any], None]  # of concrete numbers
    holds: Callable[[Any], Any] | None = (
        None  # the same of one number, asked of most fields of every object that is made, or of traced ones
    )
    engine: bool = True  # whether the engine calculates with the numbers, in its own floating type
    ends: tuple[float, float] = Check.ends

    def takes(self, value: Any) -> bool:
        # What `canonicalise` makes one array of: a list of arrays would stay structure.
        if isinstance(value, list | tuple):
            return checks.is_sequence_of_numbers(value)
        return isinstance(value, int | float | np.number | np.ndarray | jax.Array) and not isinstance(value, bool)

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        if checks.is_traced(value):
            checks.real(name, value, self.allowed)
            (shape or scalar).check(name, value, outputs)
            return
        if self.holds is not None and type(value) in (float, int) and self._holds_in_the_engine(value):
            own = shape or scalar
            if own.fits((), own.functions(outputs)):
                return
        try:
            given = checks.numbers(name, value)
        except InvalidArgument as error:  # an array of something else
            raise InvalidArgument(f"{name}: must be {self.allowed}; {str(error).removeprefix(name + ': ')}") from error
        (shape or scalar).check(name, value, outputs)
        self.test(name, value)
        if self.engine:
            self._in_the_engine(name, value, given)

    def inside(self, value: Any) -> Any:
        return True if self.holds is None else jnp.all(self.holds(value) & jnp.isfinite(value))

    def _holds_in_the_engine(self, value: float) -> bool:
        """Return whether one number is allowed, and what the engine makes of it, too; numbers near the ends of its type are left alone."""
        if type(value) is int and not -(2**63) <= value < 2**63:  # which no array of whole numbers holds
            return False
        return 1e-30 < abs(value) < 1e30 and self.holds(value) and self.holds(float(float_dtype().type(value)))  # type: ignore[misc]

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


positive = _Numbers("a number > 0", checks.positive, lambda value: value > 0)
nonnegative = _Numbers("a number >= 0", checks.nonnegative, lambda value: value >= 0)
finite = _Numbers("a finite number", checks.finite, lambda value: True)


def between(low: float, high: float, *, open_low: bool = True, open_high: bool = False, host: bool = False) -> Check:
    """Return the check for numbers in an interval; ``open_*`` says which ends are left out, ``host`` that they stay in float64."""
    checks.ends(low=low, high=high)
    interval = f"{'(' if open_low else '['}{low:g}, {high:g}{')' if open_high else ']'}"
    test = partial(checks.within, low=low, high=high, open_low=open_low, open_high=open_high)

    def holds(value: Any) -> Any:
        return (value > low if open_low else value >= low) & (value < high if open_high else value <= high)

    return _Numbers(f"a number in {interval}", test, holds, engine=not host, ends=(low, high))


def whole_numbers(least: int, most: int, unit: str) -> Check:
    """Return the check for leaves that hold whole numbers of some unit; a float such as 3.0 is one."""
    checks.ends(least=least, most=most)
    checks.text("unit", unit)
    return _Numbers(f"a whole number of {unit} from {least} to {most}", partial(checks.whole, low=least, high=most, unit=unit))


def _is_a_point(name: str, value: Any) -> None:
    given = checks.numbers(name, value)
    if not np.all(np.isfinite(given) & (given >= 0)) or np.any(given % 1):
        raise InvalidArgument(f"{name}: must be the number of a point, got {short(value)}")


def _check_inside(name: str, value: Any, size: int) -> None:
    """Raise ``InvalidArgument`` on numbers of points beyond the last of ``size``; those below 0 have been refused before."""
    if not checks.is_traced(value) and np.any(np.asarray(value) >= size):
        raise InvalidArgument(f"{name}: must lie in [0, {size - 1}], for the domain has {size} points, got {short(value)}")


@dataclasses.dataclass(frozen=True)
class _Point(_Numbers):
    def fit_domain(self, name: str, value: Any, size: int, dimension: int, shape: Shape | None) -> None:
        _check_inside(name, value, size)


point = _Point("the number of a point", _is_a_point)


@dataclasses.dataclass(frozen=True)
class _Numeric(Check):
    """Whatever NumPy turns into an array of real numbers, nested lists of arrays among them: arguments of functions on the host."""

    allowed: str
    test: Callable[[str, Any], Any] | None
    whole: bool = False

    def takes(self, value: Any) -> bool:
        return not isinstance(value, str | bytes | bool | type(None))

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        if checks.is_traced(value):
            checks.real(name, value, self.allowed)
            kind = value.dtype.kind if isinstance(value, jax.Array) else "i"
        else:
            try:
                given = checks.numbers(name, value)
            except InvalidArgument as error:
                raise InvalidArgument(f"{name}: must be {self.allowed}, got {short(value)}") from error
            kind = np.asarray(value).dtype.kind if given.size else "i"
        if self.whole and kind not in "iu":
            raise InvalidArgument(f"{name}: must be {self.allowed}, got {short(value)}")
        if shape is not None:
            shape.check(name, value, outputs)
        if self.test is not None and not checks.is_traced(value):
            self.test(name, given)


@dataclasses.dataclass(frozen=True)
class _Index(_Numeric):
    """Numbers of points that methods of objects on a domain take: one ``[]``, or several ``[n]``."""

    def fit_domain(self, name: str, value: Any, size: int, dimension: int, shape: Shape | None) -> None:
        _check_inside(name, value, size)


index = _Index("the number of a point, or an array of such", partial(checks.nonnegative, remedy="points are counted from 0"), whole=True)
"""An integer, not a float such as 3.0: it is looked up in arrays."""
numbers = _Numeric("numbers", None)
finite_numbers = _Numeric("finite numbers", checks.finite)
nonnegative_numbers = _Numeric("numbers >= 0", checks.nonnegative)
positive_numbers = _Numeric("numbers > 0", checks.positive)
integers = _Numeric("whole numbers", None, whole=True)


def numbers_from(low: float, high: float) -> Check:
    """Return the check for an array of numbers from ``low`` to ``high``, both allowed."""
    checks.ends(low=low, high=high)
    return _Numeric(f"numbers from {low:g} to {high:g}", partial(checks.within, low=low, high=high, open_low=False))


def integers_from(low: int, high: int) -> Check:
    """Return the check for an array of whole numbers from ``low`` to ``high``, both allowed."""
    checks.ends(low=low, high=high, integers=True)
    return _Numeric(f"whole numbers from {low} to {high}", partial(checks.within, low=low, high=high, open_low=False), whole=True)


@dataclasses.dataclass(frozen=True)
class _Booleans(Check):
    allowed: str = "true and false"

    def takes(self, value: Any) -> bool:
        if isinstance(value, list | tuple):
            return bool(value) and all(self.takes(part) for part in value)
        return isinstance(value, bool | np.bool_) or (isinstance(value, np.ndarray | jax.Array) and value.dtype == bool)

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        if shape is not None:
            shape.check(name, value, outputs)


booleans = _Booleans()


@dataclasses.dataclass(frozen=True)
class _FloatingType(Check):
    allowed: str = "a floating type, such as jnp.float32"

    def takes(self, value: Any) -> bool:
        if value is None or isinstance(value, float):
            return False
        try:
            return bool(jax.dtypes.issubdtype(np.dtype(value), np.floating))
        except (TypeError, ValueError):
            return False

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        """A type has no range."""


floating_type = _FloatingType()


@dataclasses.dataclass(frozen=True)
class _Key(Check):
    allowed: str = "one PRNG key, jax.random.key(seed)"

    def takes(self, value: Any) -> bool:
        if not isinstance(value, jax.Array | np.ndarray):
            return False
        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            return value.shape == ()
        default = jax.config.jax_default_prng_impl  # type: ignore[attr-defined]  # the generator of keys that do not name theirs
        return value.dtype == np.uint32 and value.shape == ((2,) if default == "threefry2x32" else (4,))

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        """A key has no range."""


key = _Key()
"""A key of ``jax.random.key``, or one in the older form of ``jax.random.PRNGKey``."""


@dataclasses.dataclass(frozen=True)
class _Array(Check):
    """One-dimensional arrays, lists or tuples, possibly empty, of one kind of entry."""

    allowed: str
    kind: str  # of NumPy's types: "i" and "u" for integers, "b" for booleans

    def takes(self, value: Any) -> bool:
        if isinstance(value, list | tuple):
            return len(value) == 0 or checks.is_sequence_of_numbers(value)
        return isinstance(value, np.ndarray | jax.Array | range)

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        checks.short_enough(name, value)
        actual = checks.shape_of(name, value)
        dtype = value.dtype if isinstance(value, np.ndarray | jax.Array) else np.asarray(value).dtype
        if len(actual) != 1 or (0 not in actual and dtype.kind not in self.kind):
            raise InvalidArgument(f"{name}: must be {self.allowed}, got {short(value)}")
        if shape is not None:
            shape.check(name, value, outputs)


@dataclasses.dataclass(frozen=True)
class _Points(_Array):
    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        super().verify(name, value, shape, outputs)
        if not checks.is_traced(value):
            checks.nonnegative(name, np.asarray(value, np.int64), remedy="points are counted from 0")

    def fit_domain(self, name: str, value: Any, size: int, dimension: int, shape: Shape | None) -> None:
        _check_inside(name, value, size)


@dataclasses.dataclass(frozen=True)
class _Mask(_Array):
    def fit_domain(self, name: str, value: Any, size: int, dimension: int, shape: Shape | None) -> None:
        if np.shape(value) != (size,):
            raise InvalidArgument(f"{name}: expected one entry for each of the domain's {size} points, got shape {list(np.shape(value))}")


points = _Points("a list of numbers of points", "iu")
mask = _Mask("a list of true and false, one for each point", "b")
