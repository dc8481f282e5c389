"""Facts of fields and arguments that stand in their annotations.

``penalty: Annotated[PerConstraint, positive, Letter("rho")] = 1.0`` says all that validation, study files and audit traces need to know. A
:class:`Check` says in words which values are allowed and raises ``InvalidArgument`` on others: first on a value of the wrong type, then on
a wrong shape, then on NaN and infinity, then on a number out of range, and last on an entry that the domain lacks. Of tracers it checks
only the shape. A plain type (``int | None``, a literal, a class of objects) needs no check beside it, see
``jaxbandit.core.declare.parameters``.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple, TypeAlias

import jax
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.checks import Interval, InvalidArgument, float_dtype, short
from jaxbandit.core.doors import allowed_in_file

__all__ = [
    "INT32_MAX", "MOST_ROUNDS", "Above", "AtLeast", "Check", "Described", "From", "Letter", "Place", "Shape", "Words", "any_shape",
    "anything", "between", "boolean", "booleans", "check_call", "choice", "coordinates", "each", "each_axis", "each_output", "exactly",
    "finite", "finite_numbers", "floating_type", "function", "how_many_points", "index", "integers", "integers_from", "key", "label",
    "leading", "mapping", "mask", "matrix", "nonnegative", "nonnegative_numbers", "nothing", "numbers", "numbers_from", "of_class",
    "of_points", "one_function", "path", "per_axis", "per_constraint", "per_function", "per_output", "per_output_of_two", "point", "points",
    "positive", "positive_numbers", "scalar", "table_of_points", "text", "unknown", "vector", "whole", "whole_numbers",
]  # fmt: skip
__dir__ = __all__.copy

#: The largest whole number that the engine counts with.
INT32_MAX = 2**31 - 1
MOST_ROUNDS = 2**24
"""Largest number of rounds of a trial. Measures count rounds in floating point, and float32 counts to here."""


class Described:
    """Base of the classes whose objects fields and arguments can hold."""

    described: ClassVar[str]


class Letter(str):
    """The paper's letter for a hyper-parameter, for audit traces."""


class Words(str):
    """Words for the objects or the mapping that a type names."""


class Above(str):
    """Name of a field or argument that this number must exceed."""

    words: ClassVar[str] = ">"

    def holds(self, high: np.ndarray, low: np.ndarray) -> np.ndarray:
        """Return where ``high`` is above ``low``."""
        return np.asarray(high > low)


class From(Above):
    """Name of a field or argument that bounds this number from below."""

    words: ClassVar[str] = ">="

    def holds(self, high: np.ndarray, low: np.ndarray) -> np.ndarray:
        return np.asarray(high >= low)


class AtLeast(int):
    """Least number of items of a sequence or mapping in an annotation."""


# Shapes.


class Place(NamedTuple):
    """Place of a value: its declared shape and its owner's known sizes."""

    shape: Shape | None = None
    # Numbers of the owner's functions, reward included, and of its domain's points and axes; ``None`` if not known.
    outputs: int | None = None
    points: int | None = None
    axes: int | None = None

    @property
    def inside(self) -> Place:
        """Place of an object within this one, or of a tuple's item."""
        return self if self.shape is None else self._replace(shape=None, outputs=self.shape.functions(self))


@dataclasses.dataclass(frozen=True)
class Shape:
    """Shapes that the numbers of a field may have.

    The ``words`` follow "expected". Their ``{n}``, an argument of ``fits``, is the number of ``functions`` or axes at a place, if known.
    """

    words: str
    fits: Callable[[tuple[int, ...], int | None], bool]
    functions: Callable[[Place], int | None] = lambda place: place.outputs

    def check(self, name: str, value: object, place: Place = Place()) -> None:
        """Raise ``InvalidArgument`` unless ``value`` has one of the shapes."""
        actual, n = checks.shape_of(name, value), self.functions(place)
        if not self.fits(actual, n):
            raise InvalidArgument(f"{name}: expected {self.described(n)}, got shape {list(actual)}")

    def described(self, n: int | None = None) -> str:
        """Return the allowed shapes for ``n`` functions in words."""
        return self.words.format(n="the" if n is None else f"the {n}")


def _each(actual: tuple[int, ...], n: int | None, least: int = 0) -> bool:
    return len(actual) == 1 and (actual[0] >= least if n is None else actual[0] == n)


def _one_or_each(what: str, functions: Callable[[Place], int | None] = lambda place: place.outputs, least: int = 0) -> Shape:
    words = f"one number, or one for each of {{n}} {what}"
    return Shape(words, lambda actual, n: actual == () or _each(actual, n, least), functions)


scalar = Shape("one number", lambda actual, n: actual == ())
unknown = dataclasses.replace(scalar, functions=lambda place: None)
per_function = _one_or_each("functions")
per_constraint = _one_or_each("constraints", lambda place: None if place.outputs is None else place.outputs - 1)
per_output = _one_or_each("outputs", least=1)
per_output_of_two = dataclasses.replace(per_output, functions=lambda place: 2)
per_axis = _one_or_each("axes", lambda place: place.axes, least=1)
one_function = Shape("one number", per_function.fits, lambda place: 1)
each_output = Shape("one number for each of {n} outputs", _each)
each_axis = Shape("one number for each of {n} axes", lambda actual, n: _each(actual, n, 1), lambda place: place.axes)
any_shape = Shape("any shape", lambda actual, n: True)
of_points = Shape(
    "shape [..., d], one coordinate for each of {n} axes",
    lambda actual, n: len(actual) > 0 and n in (None, actual[-1]),
    lambda place: place.axes,
)

table_of_points = dataclasses.replace(
    of_points, words="shape [n, d], one coordinate for each of {n} axes", fits=lambda actual, n: len(actual) == 2 and n in (None, actual[1])
)


def vector(words: str) -> Shape:
    """Return the shape ``[n]``, ``n >= 1``, with ``words`` on its entries."""
    return Shape(f"shape [n] with n >= 1, {words}", lambda actual, n: _each(actual, None, 1))


def matrix(words: str) -> Shape:
    """Return the shape ``[n, p]``, with ``words`` on its rows and columns."""
    return Shape(f"shape [n, p] with n, p >= 1, {words}", lambda actual, n: len(actual) == 2 and 0 not in actual)


def exactly(*sizes: int | None, words: str = "") -> Shape:
    """Return the shape with these sizes, ``None`` for any size."""

    def fits(actual: tuple[int, ...], n: int | None) -> bool:
        return len(actual) == len(sizes) and all(want is None or want == have for want, have in zip(sizes, actual, strict=True))

    expected = ", ".join("*" if size is None else str(size) for size in sizes)
    return Shape(f"shape [{expected}]{words and ', ' + words}", fits)


def leading(words: str) -> Shape:
    """Return the shapes ``[n, ...]``, with ``words`` for their first axis."""
    return Shape(f"shape [{words}, ...]", lambda actual, n: len(actual) >= 1)


# Checks.


@dataclasses.dataclass(frozen=True)
class Check:
    """Values that a field or an argument may hold.

    The words ``allowed`` follow "must be". ``takes`` tests the type, and ``verify`` raises on a shape or range that does not fit its place.
    ``classes`` is empty for numbers, ``interval`` is ``None`` if they have to meet more, and ``convert`` maps a value to an argument.
    """

    allowed: str
    takes: Callable[[object], bool]
    verify: Callable[[str, Any, Place], object] = lambda name, value, place: None
    classes: tuple[type, ...] = ()
    interval: Interval | None = None
    convert: Callable[[Any], Any] = lambda value: value

    def __call__(self, name: str, value: object, place: Place = Place()) -> None:
        """Raise ``InvalidArgument`` unless ``value``, called ``name``, may stand at a place."""
        if not self.takes(value):
            raise self.refusal(name, value)
        self.verify(name, value, place)

    def refusal(self, name: str, value: object) -> InvalidArgument:
        """Return the error with the allowed values and the value."""
        return InvalidArgument(f"{name}: must be {allowed_in_file(self.allowed)}, got {short(value)}")

    def __or__(self, other: Check) -> Check:
        """Return the check for values that either allows: ``positive | choice("auto")``."""
        return Check(
            f"{self.allowed} or {other.allowed}",
            lambda value: self.takes(value) or other.takes(value),
            lambda name, value, place: (self if self.takes(value) else other).verify(name, value, place),
            (*self.classes, *other.classes),
            self.interval or other.interval,
            lambda value: (self if self.takes(value) else other).convert(value),
        )

    def of(self, shape: Shape) -> Check:
        """Return the check that also asks items or arguments for a shape."""

        def verify(name: str, value: Any, place: Place) -> None:
            self.verify(name, value, place._replace(shape=shape))

        return dataclasses.replace(self, allowed=f"{self.allowed}; {shape.described()}", verify=verify)


anything = Check("anything", lambda value: True)


def of_class(kind: type, words: str = "") -> Check:
    """Return the check for objects of a class, whatever their contents."""
    return Check(words or kind.described, lambda value: isinstance(value, kind), classes=(kind,))  # type: ignore[attr-defined]


# Numbers and arrays. They may be traced.


def _numbers(
    allowed: str,
    # Without an interval NaN and infinity are allowed. The test raises on concrete numbers, by default outside the interval.
    interval: Interval | None = None,
    test: Callable[[str, object], object] | None = None,
    *,
    # A leaf of a pytree is one number unless a shape is given; otherwise nested lists of arrays are allowed, too.
    leaf: bool = False,
    whole: bool = False,
    engine: bool = False,
) -> Check:
    """Return the check for real numbers."""

    def takes(value: object) -> bool:
        if not leaf:
            return not isinstance(value, str | bytes | bool | type(None)) and checks.is_shallow(value)
        is_number = isinstance(value, int | float | np.number | np.ndarray | jax.Array) and not isinstance(value, bool)
        return is_number or checks.is_sequence_of_numbers(value)

    test = test or (interval.check if interval else lambda name, value: None)

    def verify(name: str, value: Any, place: Place) -> None:
        shape, tracers = place.shape or (scalar if leaf else None), [x for x in checks.leaves(value) if isinstance(x, jax.core.Tracer)]
        if not tracers and leaf and interval and _is_plain(value, interval) and (shape is None or shape.fits((), shape.functions(place))):
            return
        for tracer in tracers:
            if not checks.is_real(tracer.dtype):
                raise InvalidArgument(f"{name}: must be {allowed}, got {tracer.dtype} {list(tracer.shape)}")
        try:
            given = None if tracers else checks.numbers(name, value)
        except InvalidArgument as error:
            raise check.refusal(name, value) from error
        array = value if tracers or not whole else np.asarray(value)
        if whole and isinstance(array, np.ndarray | jax.Array) and array.size and array.dtype.kind not in "iu":
            raise check.refusal(name, value)
        if shape is not None:
            shape.check(name, value, place)
        if given is not None:
            test(name, value if leaf else np.asarray(value))
            if engine:
                with np.errstate(all="ignore"):
                    rounded = given.astype(float_dtype())
                # Processors take subnormal numbers for zero.
                test(f"{name} in {rounded.dtype}", np.where(np.abs(rounded) < np.finfo(rounded.dtype).tiny, 0, rounded))

    check = Check(allowed, takes, verify, interval=interval if leaf else None)
    return check


def _is_plain(value: object, interval: Interval) -> bool:
    """Return quickly whether a number is in range, also for the engine."""
    if not isinstance(value, float | int) or not 1e-30 < abs(value) < (1e30 if type(value) is float else 2**63):
        return False
    return bool(interval.holds(value) and interval.holds(float(float_dtype().type(value))))


positive = _numbers("a number > 0", Interval(0.0), leaf=True, engine=True)
nonnegative = _numbers("a number >= 0", Interval(0.0, open_low=False), leaf=True, engine=True)
finite = _numbers("a finite number", Interval(), leaf=True, engine=True)
numbers = _numbers("numbers")
finite_numbers = _numbers("finite numbers", Interval())
nonnegative_numbers = _numbers("numbers >= 0", Interval(0.0, open_low=False))
positive_numbers = _numbers("numbers > 0", Interval(0.0))
integers = _numbers("whole numbers", whole=True)
coordinates = _numbers("numbers [..., d]").of(of_points)
"""Points ``[..., d]`` as arguments of boxes and of problems on boxes. They may be any numbers, one for each axis."""


def between(low: float, high: float, *, open_low: bool = True, open_high: bool = False, host: bool = False) -> Check:
    """Return the check for an interval of numbers, float64 on the ``host``."""
    interval = Interval(low, high, open_low, open_high)
    return _numbers(f"a number in {interval}", interval, leaf=True, engine=not host)


def numbers_from(low: float, high: float) -> Check:
    """Return the check for numbers from ``low`` to ``high``, both allowed."""
    return _numbers(f"numbers from {low:g} to {high:g}", Interval(low, high, False, False))


def integers_from(low: int, high: int) -> Check:
    """Return the check for integers from ``low`` to ``high``, both allowed."""
    return _numbers(f"whole numbers from {low} to {high}", Interval(low, high, False, False), whole=True)


def _without_fraction(allowed: str, interval: Interval, words: str) -> Check:
    """Return the check for leaves with whole numbers, also as floats."""

    def test(name: str, value: object) -> None:
        interval.check(name, value)
        if np.any(checks.numbers(name, value) % 1):
            raise InvalidArgument(f"{name}: must be {words}, got {short(value)}")

    return _numbers(allowed, test=test, leaf=True, engine=True)


def whole_numbers(least: int, most: int, unit: str) -> Check:
    """Return the check for leaves with whole numbers of a unit."""
    words = f"a whole number of {unit} from {least} to {most}"
    return _without_fraction(words, Interval(least, most, False, False), f"whole numbers of {unit}")


# Points, and arrays with an entry for each point.


def _are_booleans(value: object) -> bool:
    if isinstance(value, list | tuple):
        return bool(value) and checks.is_shallow(value) and all(map(_are_booleans, value))
    return isinstance(value, bool | np.bool_) or (isinstance(value, np.ndarray | jax.Array) and value.dtype == bool)


def _is_list(value: object) -> bool:
    if isinstance(value, list | tuple):
        return len(value) == 0 or checks.is_sequence_of_numbers(value)
    return isinstance(value, np.ndarray | jax.Array | range)


def _of_the_domain(check: Check, *, lists: bool = False) -> Check:
    """Return the check for numbers of points, or ``lists``, of the domain."""

    def verify(name: str, value: Any, place: Place) -> None:
        if lists and len(checks.shape_of(name, value)) != 1:
            raise check.refusal(name, value)
        check.verify(name, value, place)
        if (size := place.points) is not None and not checks.is_traced(value) and np.any(np.asarray(value) >= size):
            raise InvalidArgument(f"{name}: must lie in [0, {size - 1}], for the domain has {size} points, got {short(value)}")

    return dataclasses.replace(check, takes=_is_list if lists else check.takes, verify=verify)


def _verify_mask(name: str, value: Any, place: Place) -> None:
    if len(shape := checks.shape_of(name, value)) != 1 or (np.size(value) and not _are_booleans(value)):
        raise mask.refusal(name, value)
    if place.points not in (None, shape[0]):
        raise InvalidArgument(f"{name}: expected one entry for each of the domain's {place.points} points, got shape {list(shape)}")


_counted = partial(checks.nonnegative, remedy="points are counted from 0")
point = _of_the_domain(_without_fraction("the number of a point", Interval(0.0, open_low=False), "the number of a point"))
index = _of_the_domain(_numbers("the number of a point, or an array of such", test=_counted, whole=True))
"""Numbers of points as arguments of objects on a domain, one ``[]`` or several ``[n]``. They are integers, not floats such as 3.0."""
points = _of_the_domain(_numbers("a list of numbers of points", test=_counted, whole=True), lists=True)
mask = Check("a list of true and false, one for each point", _is_list, _verify_mask)
booleans = Check("true and false", _are_booleans, lambda name, value, place: (place.shape or any_shape).check(name, value, place))


# Plain values.


def _plain(allowed: str, types: tuple[type, ...], test: Callable[[str, Any], object] = lambda name, value: None) -> Check:
    return Check(
        allowed,
        lambda value: isinstance(value, types) and (bool in types or not isinstance(value, bool)),
        lambda name, value, place: test(name, value),
    )


def _is_floating_type(value: object) -> bool:
    try:
        dtype = np.dtype(value)  # type: ignore[call-overload]
        return value is not None and not isinstance(value, float) and bool(jax.dtypes.issubdtype(dtype, np.floating))
    except (TypeError, ValueError):
        return False


def _is_seed(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_key(value: object) -> bool:
    if _is_seed(value):
        return True
    if not isinstance(value, jax.Array | np.ndarray):
        return False
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        return value.shape == ()
    default = jax.config.jax_default_prng_impl  # type: ignore[attr-defined]
    return value.dtype == np.uint32 and value.shape == ((2,) if default == "threefry2x32" else (4,))


def _key_of(seed: Any) -> jax.Array:
    checks.check_not_forked()
    return jax.random.key(int(seed))


def check_seed(name: str, value: object) -> None:
    """Raise ``InvalidArgument`` unless JAX uses all bits of a seed."""
    checks.integer(name, value, least=0, most=2**63 - 1 if float_dtype().itemsize == 8 else 2**32 - 1)


def _is_label(value: object) -> bool:
    kinds = {unicodedata.category(letter) for letter in value} if isinstance(value, str) else set()
    return not kinds <= {"Zs", "Zl", "Zp", "Cf"} and not kinds & {"Cc", "Cs"}


def _is_path(value: object) -> bool:
    try:
        return isinstance(value, str | os.PathLike) and bool(str(value).strip()) and b"\0" not in os.fsencode(value)
    except (TypeError, ValueError):
        return False


boolean = _plain("true or false", (bool, np.bool_))
text = _plain("text", (str,))
whole_number = _plain("a whole number", (int, np.integer))
label = Check("text that is not blank, without control characters", _is_label)
"""A name that tables and figures show."""
nothing = Check("None", lambda value: value is None)
floating_type = Check("a floating type, such as jnp.float32", _is_floating_type)
key = Check(
    "one PRNG key, jax.random.key(seed)",
    _is_key,
    lambda name, value, place: check_seed(name, value) if _is_seed(value) else None,
    convert=lambda value: _key_of(value) if _is_seed(value) else value,
)
"""A key of ``jax.random.key`` or ``jax.random.PRNGKey``, or the seed of a key."""
path = Check("text that is not empty, or a path", _is_path)
"""Text, or a ``Path``. Other faults show when the file is opened."""


def whole(least: int, most: int = INT32_MAX) -> Check:
    """Return the check for a whole number from ``least`` to ``most``."""
    words = f"a whole number >= {least}" if most == INT32_MAX else f"a whole number from {least} to {most}"
    return _plain(words, (int, np.integer), partial(checks.integer, least=least, most=most))


def how_many_points(least: int = 1) -> Check:
    """Return the check for a number of points from ``least`` to all."""
    count = whole(least)

    def verify(name: str, value: Any, place: Place) -> None:
        count.verify(name, value, place)
        if place.points is not None and value > place.points:
            raise InvalidArgument(f"{name}: must be at most {place.points}, the number of points of the domain, got {short(value)}")

    return dataclasses.replace(count, verify=verify)


def choice(*values: str | int) -> Check:
    """Return the check for one of a few names or numbers."""
    kinds = tuple({type(value) for value in values}) + (np.integer,) * any(isinstance(value, int) for value in values)
    return _plain("one of " + ", ".join(map(repr, values)), kinds, partial(checks.one_of, allowed=values))


def function(arguments: str) -> Check:
    """Return the check for functions of positional ``arguments``, such as ``"(t)"``."""
    allowed, count = f"a function of {arguments}", arguments.count(",") + 1

    def verify(name: str, value: Any, place: Place) -> None:
        check_call(name, value, allowed, *[None] * count)

    return Check(allowed, lambda value: callable(value) and not isinstance(value, type), verify)


def check_call(name: str, function: Callable[..., Any], allowed: str, *args: object, **kwargs: object) -> None:
    """Raise ``InvalidArgument`` unless a function takes these arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise InvalidArgument(f"{name}: must be {allowed}, got one with the arguments {signature}: {error}") from error


# Checks of checks.


def each(check: Check, *, least: int = 0, length: int | None = None, types: tuple[type, ...] = (tuple, list)) -> Check:
    """Return the check for tuples or lists of items allowed by ``check``."""
    several = f" of at least {least} items" if least else "" if length is None else f" of {length} items"

    def takes(value: object) -> bool:
        return isinstance(value, types) and (length is None or len(value) == length) and len(value) >= least  # type: ignore[arg-type]

    def verify(name: str, value: Any, place: Place) -> None:
        for number, item in enumerate(value):
            check(f"{name}[{number}]", item, place.inside)

    return Check(f"a tuple{several}, each item {check.allowed}", takes, verify, check.classes)


def mapping(check: Check, words: str, *, least: int = 0) -> Check:
    """Return the check for a mapping from texts to values of ``check``."""

    def takes(value: object) -> bool:
        return isinstance(value, Mapping) and len(value) >= least and all(isinstance(label, str) for label in value)

    def verify(name: str, value: Any, place: Place) -> None:
        for label, item in value.items():
            check(f"{name}[{label!r}]", item)

    return Check(words, takes, verify)


def _are_trials(value: object) -> bool:
    if isinstance(value, int | np.integer):
        return not isinstance(value, bool) and bool(1 <= value <= INT32_MAX)
    if isinstance(value, np.ndarray | jax.Array):
        return bool(value.ndim == 1 and jax.dtypes.issubdtype(value.dtype, np.integer))
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)


def _check_trials(name: str, value: Any, place: Place) -> None:
    if isinstance(value, int | np.integer):
        return
    if isinstance(value, range):
        value = [value[0], value[-1]] if value else []
    for number in np.asarray(value).tolist() if isinstance(value, np.ndarray | jax.Array) else value:
        checks.integer(f"{name}: the number of a trial", number, least=0, most=INT32_MAX)
    if not len(value):
        raise InvalidArgument(f"{name}: the list of trial numbers is empty; must be {trial_numbers.allowed}, got []")


trial_numbers = Check(
    f"a whole number of trials from 1 to {INT32_MAX}, or a list of their numbers, each from 0 to {INT32_MAX}", _are_trials, _check_trials
)
Trials: TypeAlias = Annotated[int | Sequence[int], trial_numbers]
Rounds: TypeAlias = Annotated[int, whole(1, MOST_ROUNDS)]
