"""Facts of fields and arguments, which stand in their annotations: what they may hold, in which shape, and their letter in the paper.

``penalty: Annotated[PerConstraint, positive, Letter("rho")] = 1.0`` says all that validation, study files and audit traces need to know.
A :class:`Check` says in words what is allowed and raises ``InvalidArgument`` on anything else: first on a value of the wrong type, then on
a wrong shape, then on NaN and infinity, then on a number out of range. Numbers of leaves may be tracers, whose values cannot be looked at;
then only the shape is checked. What a plain type says (``int | None``, a literal, a class of objects) needs no check beside it, see
:func:`jaxbandit.core.declare.parameters`.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, float_dtype, short

__all__ = [
    "INT32_MAX",
    "MOST_ROUNDS",
    "AtLeast",
    "Check",
    "Described",
    "Letter",
    "Shape",
    "Words",
    "any_shape",
    "between",
    "boolean",
    "booleans",
    "choice",
    "each",
    "each_axis",
    "each_output",
    "exactly",
    "finite",
    "finite_numbers",
    "floating_type",
    "function",
    "how_many_points",
    "index",
    "integers",
    "integers_from",
    "key",
    "leading",
    "mapping",
    "mask",
    "matrix",
    "nonnegative",
    "nonnegative_numbers",
    "numbers",
    "numbers_from",
    "of_class",
    "one_function",
    "optional",
    "path",
    "per_axis",
    "per_constraint",
    "per_function",
    "per_output",
    "per_output_of_two",
    "point",
    "points",
    "positive",
    "positive_numbers",
    "scalar",
    "text",
    "unknown",
    "vector",
    "whole",
    "whole_numbers",
]
__dir__ = __all__.copy  # what completion shows

INFINITY = float("inf")
INT32_MAX = 2**31 - 1  # the largest whole number that the engine counts with
MOST_ROUNDS = 2**24
"""The most rounds of a trial: measures count rounds in floating point, and float32 counts to here."""


class Described:
    """Base of the classes whose objects fields and arguments can hold.

    Attributes:
      described: the object in words for error messages, such as "a delay model of jaxbandit.delays, such as Poisson(mean=15.0)".
    """

    described: ClassVar[str]


@dataclasses.dataclass(frozen=True)
class Letter:
    """The paper's letter for a hyper-parameter, under which audit traces write it."""

    name: str

    def __post_init__(self) -> None:
        checks.text("symbol", self.name)


@dataclasses.dataclass(frozen=True)
class Words:
    """Words for objects of the class, or for the mapping, that a type names: "a Trajectory, what simulate returns"."""

    text: str


@dataclasses.dataclass(frozen=True)
class AtLeast:
    """The least number of items of the sequence, or entries of the mapping, that a type names."""

    count: int


# -- shapes --------------------------------------------------------------------------------------------------------------------------


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
    fits: Callable[[tuple[int, ...], int | None], bool]
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


def _vector(actual: tuple[int, ...], n: int | None = None) -> bool:
    return len(actual) == 1 and 0 not in actual if n is None else actual == (n,)


def _one_or_each(actual: tuple[int, ...], n: int | None) -> bool:
    return actual == () or (len(actual) == 1 if n is None else actual == (n,))


def _one_or_some(actual: tuple[int, ...], n: int | None) -> bool:
    return actual == () or _vector(actual, n)


def _unknown(outputs: int | None) -> int | None:
    return None


PER_AXIS = "one number, or one for each of {n} axes"
scalar = Shape("one number", lambda actual, n: actual == ())
one_function = Shape("one number", _one_or_each, lambda outputs: 1)
per_constraint = Shape(
    "one number, or one for each of {n} constraints", _one_or_each, lambda outputs: None if outputs is None else outputs - 1
)
per_output = Shape("one number, or one for each of {n} outputs", _one_or_some)
per_output_of_two = dataclasses.replace(per_output, functions=lambda outputs: 2)
per_function = Shape("one number, or one for each of {n} functions", _one_or_each)
per_axis = Shape(PER_AXIS, _one_or_some, _unknown, PER_AXIS)
unknown = Shape("one number", lambda actual, n: actual == (), _unknown)
each_output = Shape("one number for each of {n} outputs", lambda actual, n: len(actual) == 1 if n is None else actual == (n,))
each_axis = Shape("shape [d], one number for each axis", _vector, _unknown, "one number for each of {n} axes")
any_shape = Shape("any shape", lambda actual, n: True, _unknown)


def vector(words: str) -> Shape:
    """Return the shape ``[n]``, ``n >= 1``; ``words`` say what an entry is: "one number per observed delay"."""
    checks.text("words", words)
    return Shape(f"shape [n] with n >= 1, {words}", lambda actual, n: _vector(actual))


def matrix(words: str) -> Shape:
    """Return the shape ``[n, p]``, ``n, p >= 1``; ``words`` say what rows and columns are."""
    checks.text("words", words)
    return Shape(f"shape [n, p] with n, p >= 1, {words}", lambda actual, n: len(actual) == 2 and 0 not in actual)


def exactly(*sizes: int | None, words: str = "") -> Shape:
    """Return the shape of these sizes, ``None`` for any; ``words`` say what an axis holds: "one row per point"."""
    checks.text("words", words)
    for size in sizes:
        if size is not None:
            checks.integer("sizes", size, least=0)

    def fits(actual: tuple[int, ...], n: int | None) -> bool:
        return len(actual) == len(sizes) and all(want is None or want == have for want, have in zip(sizes, actual, strict=True))

    expected = ", ".join("*" if size is None else str(size) for size in sizes)
    return Shape(f"shape [{expected}]{words and ', ' + words}", fits, _unknown)


def leading(words: str) -> Shape:
    """Return the shapes ``[n, ...]``, ``n >= 0``, of arrays with at least one axis; ``words`` say what the first one counts."""
    checks.text("words", words)
    return Shape(f"shape [{words}, ...]", lambda actual, n: len(actual) >= 1, _unknown)


# -- checks --------------------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Check:
    """Values that a field or an argument may hold.

    Attributes:
      allowed: in words that complete "must be ...": "a number > 0".
      takes: whether a value is of the right type, whatever its shape and range.
      verify: raises ``InvalidArgument`` on a value of the right type, called ``name``, whose shape or range does not fit a field of shape
        ``shape`` in an object that serves ``outputs`` functions; default: nothing more is asked.
      classes: base classes of the objects that the field may hold; none for numbers.
      ends: interval that its numbers lie in, ``(-inf, inf)`` where the check has none.
      inside: whether traced numbers lie in the range, ``[]``; true for a check that has none.
      fit_domain: raises ``InvalidArgument`` on a value, called ``name``, that does not fit a domain of ``size`` points and ``axes`` axes.
    """

    allowed: str
    takes: Callable[[Any], bool]
    verify: Callable[[str, Any, Shape | None, int | None], None] = lambda name, value, shape, outputs: None
    classes: tuple[type, ...] = ()
    ends: tuple[float, float] = (-INFINITY, INFINITY)
    inside: Callable[[Any], Any] = lambda value: True
    fit_domain: Callable[[str, Any, int, int], None] = lambda name, value, size, axes: None

    def __call__(self, name: str, value: object, shape: Shape | None = None, outputs: int | None = None) -> None:
        """Raise ``InvalidArgument`` unless the field ``name`` of an object that serves ``outputs`` functions may hold ``value``."""
        if not self.takes(value):
            raise InvalidArgument(f"{name}: must be {self.allowed}, got {short(value)}")
        self.verify(name, value, shape, outputs)

    def __or__(self, other: Check) -> Check:
        """Return the check for what either allows: ``positive | choice("auto")``."""
        must_be_check("other", other)

        def which(value: object) -> Check:
            return self if self.takes(value) else other

        return Check(
            f"{self.allowed} or {other.allowed}",
            lambda value: self.takes(value) or other.takes(value),
            lambda name, value, shape, outputs: which(value).verify(name, value, shape, outputs),
            (*self.classes, *other.classes),
            self.ends,  # of what is optional, or a number or an object
            lambda value: which(value).inside(value),
            lambda name, value, size, axes: which(value).fit_domain(name, value, size, axes),
        )

    def of(self, shape: Shape) -> Check:
        """Return the check that also asks for a shape, for items and arguments; of a field the shape is checked beside."""
        must_be_shape(shape)

        def fit_domain(name: str, value: object, size: int, axes: int) -> None:
            self.fit_domain(name, value, size, axes)
            shape.fit_axes(name, value, axes)

        return dataclasses.replace(
            self,
            allowed=f"{self.allowed}; {shape.described()}",
            verify=lambda name, value, _, outputs: self.verify(name, value, shape, outputs),
            fit_domain=fit_domain,
        )


def must_be_check(name: str, value: object) -> None:
    """Raise ``InvalidArgument`` unless ``value`` is a check."""
    if not isinstance(value, Check):
        raise InvalidArgument(f"{name}: must be a check of jaxbandit.fields, such as positive, got {short(value)}")


def must_be_shape(value: object) -> None:
    """Raise ``InvalidArgument`` unless ``value`` is a shape."""
    if not isinstance(value, Shape):
        raise InvalidArgument(f"shape: must be a shape of jaxbandit.fields, such as per_output, got {short(value)}")


def of_class(kind: type, words: str = "") -> Check:
    """Return the check for objects of a class, whose contents are not looked at; ``words`` say what they are, unless the class does."""
    checks.text("words", words)
    if not isinstance(kind, type) or not (words or issubclass(kind, Described)):
        raise InvalidArgument(f"kind: must be a class, with words unless it has its own, got {short(kind)}")
    return Check(words or kind.described, lambda value: isinstance(value, kind), classes=(kind,))  # type: ignore[attr-defined]


# -- numbers in leaves, which may be traced ------------------------------------------------------------------------------------------


def _is_number(value: object) -> bool:
    """Return whether ``canonicalise`` makes one array of a value; a list of arrays would stay structure."""
    if isinstance(value, list | tuple):
        return checks.is_sequence_of_numbers(value)
    return isinstance(value, int | float | np.number | np.ndarray | jax.Array) and not isinstance(value, bool)


def _number(
    allowed: str,
    test: Callable[[str, object], None],
    holds: Callable[[Any], Any] | None = None,
    *,
    engine: bool = True,
    ends: tuple[float, float] = (-INFINITY, INFINITY),
) -> Check:
    """Return the check for numbers of leaves.

    Args:
      allowed: in words.
      test: raises ``InvalidArgument`` on concrete numbers out of range.
      holds: the same of one number, asked of most fields of every object that is made, or of traced ones.
      engine: whether the engine calculates with the numbers, in its own floating type.
      ends: the interval that they lie in.
    """

    def verify(name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        shape = shape or scalar
        if checks.is_traced(value):
            checks.real(name, value, allowed)
            shape.check(name, value, outputs)
            return
        if holds is not None and type(value) in (float, int) and holds_in_the_engine(value) and shape.fits((), shape.functions(outputs)):
            return
        try:
            given = checks.numbers(name, value)
        except InvalidArgument as error:  # an array of something else
            raise InvalidArgument(f"{name}: must be {allowed}; {str(error).removeprefix(name + ': ')}") from error
        shape.check(name, value, outputs)
        test(name, value)
        if engine:
            in_the_engine(name, value, given)

    def holds_in_the_engine(value: float) -> bool:
        """Return whether one number is allowed, and what the engine makes of it, too; numbers near the ends of its type are left alone."""
        if type(value) is int and not -(2**63) <= value < 2**63:  # which no array of whole numbers holds
            return False
        return 1e-30 < abs(value) < 1e30 and holds(value) and holds(float(float_dtype().type(value)))  # type: ignore[misc]

    def in_the_engine(name: str, value: object, given: np.ndarray) -> None:
        """Raise when a number is allowed, but not what it becomes in the engine's floating type."""
        dtype = float_dtype()
        with np.errstate(all="ignore"):
            rounded = given.astype(dtype)
        rounded = np.where(np.abs(rounded) < np.finfo(dtype).tiny, 0, rounded)  # processors flush smaller ones to zero
        try:
            test(name, rounded)
        except InvalidArgument as error:
            raise InvalidArgument(
                f"{name}: must be {allowed} in {dtype}, got {short(value)}, which becomes {short(rounded.tolist())} there; turn on"
                " jax_enable_x64, or change the number"
            ) from error

    def inside(value: Any) -> Any:
        return True if holds is None else jnp.all(holds(value) & jnp.isfinite(value))

    return Check(allowed, _is_number, verify, ends=ends, inside=inside)


positive = _number("a number > 0", checks.positive, lambda value: value > 0)
nonnegative = _number("a number >= 0", checks.nonnegative, lambda value: value >= 0)
finite = _number("a finite number", checks.finite, lambda value: True)


def between(low: float, high: float, *, open_low: bool = True, open_high: bool = False, host: bool = False) -> Check:
    """Return the check for numbers in an interval; ``open_*`` says which ends are left out, ``host`` that they stay in float64."""
    checks.ends(low=low, high=high)
    interval = f"{'(' if open_low else '['}{low:g}, {high:g}{')' if open_high else ']'}"
    test = partial(checks.within, low=low, high=high, open_low=open_low, open_high=open_high)

    def holds(value: Any) -> Any:
        return (value > low if open_low else value >= low) & (value < high if open_high else value <= high)

    return _number(f"a number in {interval}", test, holds, engine=not host, ends=(low, high))


def whole_numbers(least: int, most: int, unit: str) -> Check:
    """Return the check for leaves that hold whole numbers of some unit; a float such as 3.0 is one."""
    checks.ends(least=least, most=most)
    checks.text("unit", unit)
    return _number(f"a whole number of {unit} from {least} to {most}", partial(checks.whole, low=least, high=most, unit=unit))


def _is_a_point(name: str, value: object) -> None:
    given = checks.numbers(name, value)
    if not np.all(np.isfinite(given) & (given >= 0)) or np.any(given % 1):
        raise InvalidArgument(f"{name}: must be the number of a point, got {short(value)}")


def _check_inside(name: str, value: object, size: int, axes: int) -> None:
    """Raise ``InvalidArgument`` on numbers of points beyond the last of ``size``; those below 0 have been refused before."""
    if not checks.is_traced(value) and np.any(np.asarray(value) >= size):
        raise InvalidArgument(f"{name}: must lie in [0, {size - 1}], for the domain has {size} points, got {short(value)}")


point = dataclasses.replace(_number("the number of a point", _is_a_point), fit_domain=_check_inside)


# -- arrays, which may be traced -----------------------------------------------------------------------------------------------------


def _numeric(allowed: str, test: Callable[[str, object], object] | None = None, *, whole: bool = False) -> Check:
    """Return the check for whatever NumPy turns into an array of real numbers, nested lists of arrays among them."""

    def verify(name: str, value: object, shape: Shape | None, outputs: int | None) -> None:
        if checks.is_traced(value):
            checks.real(name, value, allowed)
            kind = value.dtype.kind if isinstance(value, jax.Array) else "i"
        else:
            try:
                given = checks.numbers(name, value)
            except InvalidArgument as error:
                raise InvalidArgument(f"{name}: must be {allowed}, got {short(value)}") from error
            kind = np.asarray(value).dtype.kind if given.size else "i"
        if whole and kind not in "iu":
            raise InvalidArgument(f"{name}: must be {allowed}, got {short(value)}")
        if shape is not None:
            shape.check(name, value, outputs)
        if test is not None and not checks.is_traced(value):
            test(name, given)

    return Check(allowed, lambda value: not isinstance(value, str | bytes | bool | type(None)), verify)


FROM_ZERO = "points are counted from 0"
index = dataclasses.replace(
    _numeric("the number of a point, or an array of such", partial(checks.nonnegative, remedy=FROM_ZERO), whole=True),
    fit_domain=_check_inside,
)
"""Numbers of points that methods of objects on a domain take, one ``[]`` or several ``[n]``: integers, not floats such as 3.0."""
numbers = _numeric("numbers")
finite_numbers = _numeric("finite numbers", checks.finite)
nonnegative_numbers = _numeric("numbers >= 0", checks.nonnegative)
positive_numbers = _numeric("numbers > 0", checks.positive)
integers = _numeric("whole numbers", whole=True)


def numbers_from(low: float, high: float) -> Check:
    """Return the check for an array of numbers from ``low`` to ``high``, both allowed."""
    checks.ends(low=low, high=high)
    return _numeric(f"numbers from {low:g} to {high:g}", partial(checks.within, low=low, high=high, open_low=False))


def integers_from(low: int, high: int) -> Check:
    """Return the check for an array of whole numbers from ``low`` to ``high``, both allowed."""
    checks.ends(low=low, high=high, integers=True)
    return _numeric(f"whole numbers from {low} to {high}", partial(checks.within, low=low, high=high, open_low=False), whole=True)


def _are_booleans(value: object) -> bool:
    if isinstance(value, list | tuple):
        return bool(value) and all(map(_are_booleans, value))
    return isinstance(value, bool | np.bool_) or (isinstance(value, np.ndarray | jax.Array) and value.dtype == bool)


booleans = Check(
    "true and false", _are_booleans, lambda name, value, shape, outputs: None if shape is None else shape.check(name, value, outputs)
)


def _is_floating_type(value: Any) -> bool:
    try:
        return value is not None and not isinstance(value, float) and bool(jax.dtypes.issubdtype(np.dtype(value), np.floating))
    except (TypeError, ValueError):
        return False


floating_type = Check("a floating type, such as jnp.float32", _is_floating_type)


def _is_key(value: object) -> bool:
    if not isinstance(value, jax.Array | np.ndarray):
        return False
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        return value.shape == ()
    default = jax.config.jax_default_prng_impl  # type: ignore[attr-defined]  # the generator of keys that do not name theirs
    return value.dtype == np.uint32 and value.shape == ((2,) if default == "threefry2x32" else (4,))


key = Check("one PRNG key, jax.random.key(seed)", _is_key)
"""A key of ``jax.random.key``, or one in the older form of ``jax.random.PRNGKey``."""


def _array(allowed: str, kinds: str, test: Callable[[str, object], None], fit_domain: Callable[[str, Any, int, int], None]) -> Check:
    """Return the check for one-dimensional arrays, lists or tuples, possibly empty, of entries of some of NumPy's ``kinds``."""

    def takes(value: object) -> bool:
        if isinstance(value, list | tuple):
            return len(value) == 0 or checks.is_sequence_of_numbers(value)
        return isinstance(value, np.ndarray | jax.Array | range)

    def verify(name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        actual = checks.shape_of(name, value)
        dtype = value.dtype if isinstance(value, np.ndarray | jax.Array) else np.asarray(value).dtype
        if len(actual) != 1 or (0 not in actual and dtype.kind not in kinds):
            raise InvalidArgument(f"{name}: must be {allowed}, got {short(value)}")
        if shape is not None:
            shape.check(name, value, outputs)
        if not checks.is_traced(value):
            test(name, value)

    return Check(allowed, takes, verify, fit_domain=fit_domain)


def _one_each(name: str, value: Any, size: int, axes: int) -> None:
    if np.shape(value) != (size,):
        raise InvalidArgument(f"{name}: expected one entry for each of the domain's {size} points, got shape {list(np.shape(value))}")


points = _array(
    "a list of numbers of points",
    "iu",
    lambda name, value: checks.nonnegative(name, np.asarray(value, np.int64), remedy=FROM_ZERO),
    _check_inside,
)
mask = _array("a list of true and false, one for each point", "b", lambda name, value: None, _one_each)


# -- plain values --------------------------------------------------------------------------------------------------------------------


def _plain(allowed: str, types: tuple[type, ...], test: Callable[[str, Any], Any] = lambda name, value: None) -> Check:
    return Check(
        allowed,
        lambda value: isinstance(value, types) and (bool in types or not isinstance(value, bool)),
        lambda name, value, shape, outputs: test(name, value),
    )


boolean = _plain("true or false", (bool, np.bool_))
text = _plain("text", (str,))
whole_number = _plain("a whole number", (int, np.integer))
nothing = Check("None", lambda value: value is None)
path = Check("text that is not empty, or a path", lambda value: isinstance(value, str | os.PathLike) and bool(str(value).strip()))
"""Text, or a ``Path``; the rest shows when it is opened."""


def whole(least: int, most: int = INT32_MAX) -> Check:
    """Return the check for a whole number of at least ``least`` and at most ``most``."""
    checks.ends(least=least, most=most, integers=True)
    words = f"a whole number >= {least}" if most == INT32_MAX else f"a whole number from {least} to {most}"
    return _plain(words, (int, np.integer), partial(checks.integer, least=least, most=most))


def _at_most(name: str, value: Any, size: int, axes: int) -> None:
    if value > size:
        raise InvalidArgument(f"{name}: must be at most {size}, the number of points of the domain, got {short(value)}")


def how_many_points() -> Check:
    """Return the check for a number of points to choose, at least 1 and, once the domain is known, at most its size."""
    return dataclasses.replace(whole(1), fit_domain=_at_most)


def choice(*values: str | int) -> Check:
    """Return the check for one of a few names or numbers."""
    if not values or len({(type(value), value) for value in values if isinstance(value, str | int)}) < len(values):
        raise InvalidArgument(f"values: must be different names or whole numbers, at least one, got {short(values)}")
    kinds = tuple({type(value) for value in values}) + (np.integer,) * any(isinstance(value, int) for value in values)
    return _plain("one of " + ", ".join(map(repr, values)), kinds, partial(checks.one_of, allowed=values))


def function(arguments: str) -> Check:
    """Return the check for a function that can be called with the positional ``arguments``, such as ``"(t, gain)"``."""
    if not isinstance(arguments, str) or not arguments.startswith("("):
        raise InvalidArgument(f"arguments: must be text such as '(t, gain)', got {short(arguments)}")
    allowed, count = f"a function of {arguments}", arguments.count(",") + 1

    def verify(name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        try:
            signature = inspect.signature(value)
        except (TypeError, ValueError):  # of a built-in function
            return
        try:
            signature.bind(*[None] * count)
        except TypeError as error:
            raise InvalidArgument(f"{name}: must be {allowed}, got one with the arguments {signature}: {error}") from error

    return Check(allowed, lambda value: callable(value) and not isinstance(value, type), verify)


# -- checks of checks ----------------------------------------------------------------------------------------------------------------


def optional(check: Check) -> Check:
    """Return the check for ``None`` or what ``check`` allows."""
    must_be_check("check", check)
    return check | nothing


def each(check: Check, *, least: int = 0, length: int | None = None, types: tuple[type, ...] = (tuple, list)) -> Check:
    """Return the check for a tuple or list of at least ``least`` items, or of ``length``, every one of which ``check`` allows."""
    must_be_check("check", check)
    checks.integer("least", least, least=0)
    if length is not None:
        checks.integer("length", length, least=0)
    several = f" of at least {least} items" if least else "" if length is None else f" of {length} items"

    def takes(value: object) -> bool:
        return isinstance(value, types) and (length is None or len(value) == length) and len(value) >= least  # type: ignore[arg-type]

    def verify(name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        for number, item in enumerate(value):
            check(f"{name}[{number}]", item, None, outputs if shape is None else shape.functions(outputs))

    return Check(f"a tuple{several}, each item {check.allowed}", takes, verify, check.classes)


def mapping(check: Check, words: str, *, least: int = 0) -> Check:
    """Return the check for a mapping from texts, of at least ``least`` entries, whose values ``check`` allows; ``words`` describe it."""
    must_be_check("check", check)
    checks.text("words", words)
    checks.integer("least", least, least=0)

    def takes(value: object) -> bool:
        return isinstance(value, Mapping) and len(value) >= least and all(isinstance(label, str) for label in value)

    def verify(name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        for label, item in value.items():
            check(f"{name}[{label!r}]", item)

    return Check(words, takes, verify)
