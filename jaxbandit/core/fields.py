"""Checks and shapes of declared fields, the vocabulary of :func:`~jaxbandit.core.pytree.param` and :func:`~jaxbandit.core.pytree.static`.

A check says in words what a field may hold (``allowed``) and raises ``InvalidArgument`` on anything else: first on a value of the wrong
type, then on a wrong shape, then on NaN and infinity, then on a number out of range. ``|`` joins two checks: ``positive |
instance_of(Width)``. Numbers of leaves may be tracers, whose values cannot be looked at; then only the shape is checked.
"""

from __future__ import annotations

import dataclasses
import inspect
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
    "any_shape",
    "between",
    "boolean",
    "booleans",
    "choice",
    "each",
    "each_axis",
    "exactly",
    "finite",
    "finite_numbers",
    "function",
    "how_many_points",
    "instance_of",
    "integers",
    "integers_from",
    "key",
    "leading",
    "mask",
    "matrix",
    "nonnegative",
    "nonnegative_numbers",
    "numbers",
    "numbers_from",
    "of_class",
    "one_function",
    "optional",
    "per_axis",
    "per_constraint",
    "per_function",
    "per_output",
    "point",
    "points",
    "positive",
    "positive_numbers",
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
per_axis = Shape(
    "one number, or one for each of {n} axes", lambda actual, n: _one_or_each(actual, n) and 0 not in actual, lambda outputs: None
)
unknown = Shape("one number", lambda actual, n: actual == (), lambda outputs: None)
each_axis = Shape("shape [d], one number for each axis", lambda actual, n: len(actual) == 1 and 0 not in actual, lambda outputs: None)
any_shape = Shape("any shape", lambda actual, n: True, lambda outputs: None)


def vector(words: str) -> Shape:
    """Return the shape ``[n]``, ``n >= 1``; ``words`` say what an entry is: "one number per observed delay"."""
    return Shape(f"shape [n] with n >= 1, {words}", lambda actual, n: len(actual) == 1 and 0 not in actual, lambda outputs: outputs)


def matrix(words: str) -> Shape:
    """Return the shape ``[n, p]``, ``n, p >= 1``; ``words`` say what rows and columns are."""
    return Shape(f"shape [n, p] with n, p >= 1, {words}", lambda actual, n: len(actual) == 2 and 0 not in actual, lambda outputs: outputs)


def exactly(*sizes: int | None, words: str = "") -> Shape:
    """Return the shape of these sizes, ``None`` for any; ``words`` say what an axis holds: "one row per point"."""

    def fits(actual: tuple[int, ...], n: int | None) -> bool:
        return len(actual) == len(sizes) and all(want is None or want == have for want, have in zip(sizes, actual, strict=True))

    expected = ", ".join("*" if size is None else str(size) for size in sizes)
    return Shape(f"shape [{expected}]{words and ', ' + words}", fits, lambda outputs: None)


def leading(words: str) -> Shape:
    """Return the shapes ``[n, ...]``, ``n >= 0``, of arrays with at least one axis; ``words`` say what the first one counts."""
    return Shape(f"shape [{words}, ...]", lambda actual, n: len(actual) >= 1, lambda outputs: None)


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
            raise InvalidArgument(f"{name}: must be {self.allowed}, got {short(value)}")
        self.verify(name, value, shape, outputs)

    def fit_domain(self, name: str, value: Any, size: int, dimension: int, shape: Shape | None) -> None:
        """Raise ``InvalidArgument`` when ``value``, which is allowed on some domain, does not fit one of ``size`` points."""
        if shape is per_axis and np.shape(value) not in ((), (dimension,)):
            raise InvalidArgument(f"{name}: expected {shape.described(dimension)}, got shape {list(np.shape(value))}")
        if shape is each_axis and np.shape(value) != (dimension,):
            raise InvalidArgument(f"{name}: expected one number for each of the {dimension} axes, got shape {list(np.shape(value))}")

    def __or__(self, other: Check) -> Check:
        return _Either((self, other))

    def of(self, shape: Shape) -> Check:
        """Return the check that also asks for a shape, for arguments of functions; fields declare theirs beside the check."""
        return _Shaped(f"{self.allowed}; {shape.described()}", self, shape)


@dataclasses.dataclass(frozen=True)
class _Shaped(Check):
    allowed: str
    check: Check
    shape: Shape

    @property
    def classes(self) -> tuple[type, ...]:  # type: ignore[override]
        return self.check.classes

    def takes(self, value: Any) -> bool:
        return self.check.takes(value)

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        self.check.verify(name, value, self.shape, outputs)


# -- numbers that are leaves ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Numbers(Check):
    allowed: str
    test: Callable[[str, Any], None]  # of concrete numbers
    holds: Callable[[float], bool] | None = None  # the same of one number, for it is asked of most fields of every object that is made
    engine: bool = True  # whether the engine calculates with the numbers, in its own floating type

    def takes(self, value: Any) -> bool:
        # What `canonicalise` makes one array of: a list of arrays would stay structure.
        if isinstance(value, list | tuple):
            return checks.is_sequence_of_numbers(value)
        return isinstance(value, int | float | np.number | np.ndarray | jax.Array) and not isinstance(value, bool)

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        if checks.is_traced(value):
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

    def _holds_in_the_engine(self, value: float) -> bool:
        """Return whether one number is allowed, and what the engine makes of it, too; numbers near the ends of its type are left alone."""
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
    interval = f"{'(' if open_low else '['}{low:g}, {high:g}{')' if open_high else ']'}"
    test = partial(checks.within, low=low, high=high, open_low=open_low, open_high=open_high)
    return _Numbers(f"a number in {interval}", test, lambda value: low < value < high, engine=not host)


def whole_numbers(least: int, most: int, unit: str) -> Check:
    """Return the check for leaves that hold whole numbers of some unit; a float such as 3.0 is one."""
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
        if not checks.is_traced(value):
            try:
                given = checks.numbers(name, value)
            except InvalidArgument as error:
                raise InvalidArgument(f"{name}: must be {self.allowed}, got {short(value)}") from error
            if self.whole and given.size and np.asarray(value).dtype.kind not in "iu":
                raise InvalidArgument(f"{name}: must be {self.allowed}, got {short(value)}")
        if shape is not None:
            shape.check(name, value, outputs)
        if self.test is not None and not checks.is_traced(value):
            self.test(name, given)


numbers = _Numeric("numbers", None)
finite_numbers = _Numeric("finite numbers", checks.finite)
nonnegative_numbers = _Numeric("numbers >= 0", checks.nonnegative)
positive_numbers = _Numeric("numbers > 0", checks.positive)
integers = _Numeric("whole numbers", None, whole=True)


def numbers_from(low: float, high: float) -> Check:
    """Return the check for an array of numbers from ``low`` to ``high``, both allowed."""
    return _Numeric(f"numbers from {low:g} to {high:g}", partial(checks.within, low=low, high=high, open_low=False))


def integers_from(low: int, high: int) -> Check:
    """Return the check for an array of whole numbers from ``low`` to ``high``, both allowed."""
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
class _Key(Check):
    allowed: str = "one PRNG key, jax.random.key(seed)"

    def takes(self, value: Any) -> bool:
        if not isinstance(value, jax.Array | np.ndarray):
            return False
        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            return value.shape == ()
        return value.dtype == np.uint32 and value.shape in ((2,), (4,))  # by the generator

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
        return isinstance(value, np.ndarray | jax.Array)

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
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


points = _Points("a list of numbers of points", "iu")
mask = _Mask("a list of true and false, one for each point", "b")


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


def how_many_points() -> Check:
    """Return the check for a number of points to choose, at least 1 and, once the domain is known, at most its size."""
    return _Count(whole(1))


def choice(*values: str | int) -> Check:
    """Return the check for one of a few names or numbers."""
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
    return _Function(f"a function of {arguments}", arguments.count(",") + 1)


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
class _OfClass(Check):
    allowed: str
    classes: tuple[type, ...]

    def takes(self, value: Any) -> bool:
        return isinstance(value, self.classes)

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        """The object was checked when it was made."""


def of_class(role: type, described: str = "") -> Check:
    """Return the check for objects of a class, whose contents are not looked at; ``described`` says in words what they are.

    Without words they are those of the class itself, see :class:`~jaxbandit.core.declare.Role`.
    """
    return _OfClass(described or role.described, (role,))  # type: ignore[attr-defined]


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

    def fit_domain(self, name: str, value: Any, size: int, dimension: int, shape: Shape | None) -> None:
        next(check for check in self.checks if check.takes(value)).fit_domain(name, value, size, dimension, shape)


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
    least: int = 0

    @property
    def classes(self) -> tuple[type, ...]:  # type: ignore[override]
        return self.check.classes

    def takes(self, value: Any) -> bool:
        return isinstance(value, self.types) and (self.length is None or len(value) == self.length) and len(value) >= self.least  # type: ignore[arg-type]

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        for number, item in enumerate(value):
            self.check(f"{name}[{number}]", item, None, outputs if shape is None else shape.functions(outputs))


def each(check: Check, *, least: int = 0) -> Check:
    """Return the check for a tuple or list of at least so many items, every one of which ``check`` allows."""
    several = f" of at least {least} items" if least else ""
    return _Each(f"a tuple{several}, each item {check.allowed}", check, (tuple, list), least=least)


def tuple_of(check: Check, length: int | None = None) -> Check:
    """Return the check for a tuple of plain values, of ``length`` items where given; a static list would have no hash."""
    return _Each(f"a tuple{f' of {length} items' if length else ''}, each item {check.allowed}", check, (tuple,), length)
