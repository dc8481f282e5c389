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
from typing import Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks, shapes
from jaxbandit.core.checks import Interval, InvalidArgument, float_dtype, short
from jaxbandit.core.shapes import *  # noqa: F403  # which are facts of fields, too
from jaxbandit.core.shapes import Shape, scalar

__all__ = ["INT32_MAX", "MOST_ROUNDS", "AtLeast", "Check", "Described", "Letter", "Words"]
__all__ += ["between", "finite", "nonnegative", "point", "positive", "whole_numbers"]
__all__ += ["booleans", "finite_numbers", "floating_type", "index", "integers", "integers_from", "key", "mask", "nonnegative_numbers"]
__all__ += ["numbers", "numbers_from", "points", "positive_numbers"]
__all__ += ["boolean", "choice", "each", "function", "how_many_points", "mapping", "nothing", "of_class", "path", "text", "whole"]
__all__ += shapes.__all__
__dir__ = __all__.copy  # what completion shows

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


@dataclasses.dataclass(frozen=True)
class Words:
    """Words for objects of the class, or for the mapping, that a type names: "a Trajectory, what simulate returns"."""

    text: str


@dataclasses.dataclass(frozen=True)
class AtLeast:
    """The least number of items of the sequence, or entries of the mapping, that a type names."""

    count: int


# -- checks --------------------------------------------------------------------------------------------------------------------------

Verify: TypeAlias = Callable[[str, Any, Shape | None, int | None], object]
FitDomain: TypeAlias = Callable[[str, Any, int, int], None]


@dataclasses.dataclass(frozen=True)
class Check:
    """Values that a field or an argument may hold.

    Attributes:
      allowed: in words that complete "must be ...": "a number > 0".
      takes: whether a value is of the right type, whatever its shape and range.
      verify: raises ``InvalidArgument`` on a value of the right type, called ``name``, whose shape or range does not fit a field of shape
        ``shape`` in an object that serves ``outputs`` functions; default: nothing more is asked.
      classes: base classes of the objects that the field may hold; none for numbers.
      interval: where its numbers lie; ``None`` where that is not all that it asks of them.
      fit_domain: raises ``InvalidArgument`` on a value, called ``name``, that does not fit a domain of ``size`` points and ``axes`` axes.
    """

    allowed: str
    takes: Callable[[object], bool]
    verify: Verify = lambda name, value, shape, outputs: None
    classes: tuple[type, ...] = ()
    interval: Interval | None = None
    fit_domain: FitDomain = lambda name, value, size, axes: None

    def __call__(self, name: str, value: object, shape: Shape | None = None, outputs: int | None = None) -> None:
        """Raise ``InvalidArgument`` unless the field ``name`` of an object that serves ``outputs`` functions may hold ``value``."""
        if not self.takes(value):
            raise self.refusal(name, value)
        self.verify(name, value, shape, outputs)

    def refusal(self, name: str, value: object) -> InvalidArgument:
        """Return the error that says what is allowed and what the value was."""
        return InvalidArgument(f"{name}: must be {self.allowed}, got {short(value)}")

    def __or__(self, other: Check) -> Check:
        """Return the check for what either allows: ``positive | choice("auto")``."""

        def which(value: object) -> Check:
            return self if self.takes(value) else other

        return Check(
            f"{self.allowed} or {other.allowed}",
            lambda value: self.takes(value) or other.takes(value),
            lambda name, value, shape, outputs: which(value).verify(name, value, shape, outputs),
            (*self.classes, *other.classes),
            self.interval or other.interval,  # of what is optional, or a number or an object
            lambda name, value, size, axes: which(value).fit_domain(name, value, size, axes),
        )

    def inside(self, value: jax.Array) -> jax.Array | bool:
        """Return whether traced numbers lie in the interval, ``[]``."""
        return True if self.interval is None else jnp.all(self.interval.holds(value) & jnp.isfinite(value))

    def of(self, shape: Shape) -> Check:
        """Return the check that also asks for a shape, for items and arguments; of a field the shape is checked beside."""

        def fit_domain(name: str, value: object, size: int, axes: int) -> None:
            self.fit_domain(name, value, size, axes)
            shape.fit_axes(name, value, axes)

        return dataclasses.replace(
            self,
            allowed=f"{self.allowed}; {shape.described()}",
            verify=lambda name, value, _, outputs: self.verify(name, value, shape, outputs),
            fit_domain=fit_domain,
        )


def of_class(kind: type, words: str = "") -> Check:
    """Return the check for objects of a class, whose contents are not looked at; ``words`` say what they are, unless the class does."""
    return Check(words or kind.described, lambda value: isinstance(value, kind), classes=(kind,))  # type: ignore[attr-defined]


# -- numbers and arrays, which may be traced -----------------------------------------------------------------------------------------


def _is_leaf(value: object) -> bool:
    """Return whether ``canonicalise`` makes one array of a value; a list of arrays would stay structure."""
    is_number = isinstance(value, int | float | np.number | np.ndarray | jax.Array) and not isinstance(value, bool)
    return is_number or checks.is_sequence_of_numbers(value)


def _may_be_array(value: object) -> bool:
    return not isinstance(value, str | bytes | bool | type(None))


def _numbers(
    allowed: str,
    test: Callable[[str, object], object] = lambda name, value: None,
    interval: Interval | None = None,
    *,
    leaf: bool = False,
    whole: bool = False,
    engine: bool = False,
) -> Check:
    """Return the check for real numbers.

    Args:
      allowed: in words.
      test: raises ``InvalidArgument`` on concrete numbers out of range.
      interval: the range, where it is one.
      leaf: whether the numbers are a leaf of a pytree, one unless a shape is given; otherwise nested lists of arrays are taken, too.
      whole: whether their type must be one of whole numbers.
      engine: whether the engine calculates with the numbers, in its own floating type.
    """

    def verify(name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        shape, given = shape or (scalar if leaf else None), None
        if checks.is_traced(value):
            checks.real(name, value, allowed)
        elif is_plainly_allowed(value) and (shape is None or shape.fits((), shape.functions(outputs))):
            return
        else:
            try:
                given = checks.numbers(name, value)
            except InvalidArgument as error:
                raise check.refusal(name, value) from error
        if whole and not _are_integers(value, traced=given is None):
            raise check.refusal(name, value)
        if shape is not None:
            shape.check(name, value, outputs)
        if given is not None:
            test(name, value if leaf else given)
            if engine:
                in_the_engine(name, value, given)

    def is_plainly_allowed(value: object) -> bool:
        """Return whether one number is allowed, and what the engine makes of it, too; asked of most fields of every object."""
        if interval is None or not isinstance(value, float | int) or not 1e-30 < abs(value) < (1e30 if type(value) is float else 2**63):
            return False
        return bool(interval.holds(value) and interval.holds(float(float_dtype().type(value))))

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

    check = Check(allowed, _is_leaf if leaf else _may_be_array, verify, interval=interval)
    return check


def _are_integers(value: Any, *, traced: bool) -> bool:
    """Return whether numbers are of a type of whole numbers; a list of traced ones is taken for such."""
    array = value if traced else np.asarray(value)
    return (traced and not isinstance(value, jax.Array)) or not array.size or array.dtype.kind in "iu"


positive = _numbers("a number > 0", checks.positive, Interval(0.0), leaf=True, engine=True)
nonnegative = _numbers("a number >= 0", checks.nonnegative, Interval(0.0, open_low=False), leaf=True, engine=True)
finite = _numbers("a finite number", checks.finite, Interval(), leaf=True, engine=True)


def between(low: float, high: float, *, open_low: bool = True, open_high: bool = False, host: bool = False) -> Check:
    """Return the check for numbers in an interval; ``open_*`` says which ends are left out, ``host`` that they stay in float64."""
    interval = Interval(low, high, open_low, open_high)
    test = partial(checks.within, low=low, high=high, open_low=open_low, open_high=open_high)
    return _numbers(f"a number in {interval}", test, interval, leaf=True, engine=not host)


def whole_numbers(least: int, most: int, unit: str) -> Check:
    """Return the check for leaves that hold whole numbers of some unit; a float such as 3.0 is one."""

    def test(name: str, value: object) -> None:
        checks.within(name, value, least, most, open_low=False)
        if np.any(checks.numbers(name, value) % 1):
            raise InvalidArgument(f"{name}: must be whole numbers of {unit}, got {short(value)}")

    return _numbers(f"a whole number of {unit} from {least} to {most}", test, leaf=True, engine=True)


def _is_a_point(name: str, value: object) -> None:
    given = checks.numbers(name, value)
    if not np.all(np.isfinite(given) & (given >= 0)) or np.any(given % 1):
        raise InvalidArgument(f"{name}: must be the number of a point, got {short(value)}")


def _check_inside(name: str, value: object, size: int, axes: int) -> None:
    """Raise ``InvalidArgument`` on numbers of points beyond the last of ``size``; those below 0 have been refused before."""
    if not checks.is_traced(value) and np.any(np.asarray(value) >= size):
        raise InvalidArgument(f"{name}: must lie in [0, {size - 1}], for the domain has {size} points, got {short(value)}")


FROM_ZERO = "points are counted from 0"
point = dataclasses.replace(_numbers("the number of a point", _is_a_point, leaf=True, engine=True), fit_domain=_check_inside)
index = dataclasses.replace(
    _numbers("the number of a point, or an array of such", partial(checks.nonnegative, remedy=FROM_ZERO), whole=True),
    fit_domain=_check_inside,
)
"""Numbers of points that methods of objects on a domain take, one ``[]`` or several ``[n]``: integers, not floats such as 3.0."""
numbers = _numbers("numbers")
finite_numbers = _numbers("finite numbers", checks.finite)
nonnegative_numbers = _numbers("numbers >= 0", checks.nonnegative)
positive_numbers = _numbers("numbers > 0", checks.positive)
integers = _numbers("whole numbers", whole=True)


def numbers_from(low: float, high: float) -> Check:
    """Return the check for an array of numbers from ``low`` to ``high``, both allowed."""
    return _numbers(f"numbers from {low:g} to {high:g}", partial(checks.within, low=low, high=high, open_low=False))


def integers_from(low: int, high: int) -> Check:
    """Return the check for an array of whole numbers from ``low`` to ``high``, both allowed."""
    return _numbers(f"whole numbers from {low} to {high}", partial(checks.within, low=low, high=high, open_low=False), whole=True)


def _are_booleans(value: object) -> bool:
    if isinstance(value, list | tuple):
        return bool(value) and all(map(_are_booleans, value))
    return isinstance(value, bool | np.bool_) or (isinstance(value, np.ndarray | jax.Array) and value.dtype == bool)


booleans = Check(
    "true and false", _are_booleans, lambda name, value, shape, outputs: None if shape is None else shape.check(name, value, outputs)
)


def _is_floating_type(value: object) -> bool:
    try:
        dtype = np.dtype(value)  # type: ignore[call-overload]  # of anything
        return value is not None and not isinstance(value, float) and bool(jax.dtypes.issubdtype(dtype, np.floating))
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


def _one_each(name: str, value: Any, size: int, axes: int) -> None:
    if np.shape(value) != (size,):
        raise InvalidArgument(f"{name}: expected one entry for each of the domain's {size} points, got shape {list(np.shape(value))}")


def _is_list(value: object) -> bool:
    if isinstance(value, list | tuple):
        return len(value) == 0 or checks.is_sequence_of_numbers(value)
    return isinstance(value, np.ndarray | jax.Array | range)


def _list(entries: Check, fit_domain: FitDomain) -> Check:
    """Return the check for one-dimensional arrays, lists or tuples, possibly empty, of such entries."""

    def verify(name: str, value: object, shape: Shape | None, outputs: int | None) -> None:
        if len(checks.shape_of(name, value)) != 1:
            raise entries.refusal(name, value)
        entries.verify(name, value, shape, outputs)

    return dataclasses.replace(entries, takes=_is_list, verify=verify, fit_domain=fit_domain)


def _verify_mask(name: str, value: object, shape: Shape | None, outputs: int | None) -> None:
    if np.size(value) and not _are_booleans(value):  # type: ignore[arg-type]  # an array or a list
        raise mask.refusal(name, value)


def _from_zero(name: str, value: object) -> None:
    checks.nonnegative(name, np.asarray(value, np.int64), remedy=FROM_ZERO)


points = _list(_numbers("a list of numbers of points", _from_zero, whole=True), _check_inside)
mask = _list(Check("a list of true and false, one for each point", _is_list, _verify_mask), _one_each)


# -- plain values --------------------------------------------------------------------------------------------------------------------


def _plain(allowed: str, types: tuple[type, ...], test: Callable[[str, Any], object] = lambda name, value: None) -> Check:
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
    words = f"a whole number >= {least}" if most == INT32_MAX else f"a whole number from {least} to {most}"
    return _plain(words, (int, np.integer), partial(checks.integer, least=least, most=most))


def _at_most(name: str, value: Any, size: int, axes: int) -> None:
    if value > size:
        raise InvalidArgument(f"{name}: must be at most {size}, the number of points of the domain, got {short(value)}")


def how_many_points(least: int = 1) -> Check:
    """Return the check for a number of points to choose, at least ``least`` and, once the domain is known, at most its size."""
    return dataclasses.replace(whole(least), fit_domain=_at_most)


def choice(*values: str | int) -> Check:
    """Return the check for one of a few names or numbers."""
    kinds = tuple({type(value) for value in values}) + (np.integer,) * any(isinstance(value, int) for value in values)
    return _plain("one of " + ", ".join(map(repr, values)), kinds, partial(checks.one_of, allowed=values))


def function(arguments: str) -> Check:
    """Return the check for a function that can be called with the positional ``arguments``, such as ``"(t, gain)"``."""
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


def each(check: Check, *, least: int = 0, length: int | None = None, types: tuple[type, ...] = (tuple, list)) -> Check:
    """Return the check for a tuple or list of at least ``least`` items, or of ``length``, every one of which ``check`` allows."""
    several = f" of at least {least} items" if least else "" if length is None else f" of {length} items"

    def takes(value: object) -> bool:
        return isinstance(value, types) and (length is None or len(value) == length) and len(value) >= least  # type: ignore[arg-type]

    def verify(name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        for number, item in enumerate(value):
            check(f"{name}[{number}]", item, None, outputs if shape is None else shape.functions(outputs))

    return Check(f"a tuple{several}, each item {check.allowed}", takes, verify, check.classes)


def mapping(check: Check, words: str, *, least: int = 0) -> Check:
    """Return the check for a mapping from texts, of at least ``least`` entries, whose values ``check`` allows; ``words`` describe it."""

    def takes(value: object) -> bool:
        return isinstance(value, Mapping) and len(value) >= least and all(isinstance(label, str) for label in value)

    def verify(name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        for label, item in value.items():
            check(f"{name}[{label!r}]", item)

    return Check(words, takes, verify)
