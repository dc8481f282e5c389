"""Declarations of classes and functions, read from their annotations.

``penalty: Annotated[PerConstraint, positive, Letter("rho")] = 1.0`` beside a field, or ``def sine(points: Annotated[int, whole(2)] = 50)``
under a bare :func:`checked`, is all that validation, audit traces (:func:`symbols`) and study files (:func:`parameters`) need to know. See
:mod:`jaxbandit.core.fields` for the facts that an annotation can hold beside its type.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, ParamSpec, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing

from jaxbandit.core import fields
from jaxbandit.core.checks import InvalidArgument, broadcast, is_traced, short
from jaxbandit.core.fields import Above, AtLeast, Check, Described, Letter, Place, Shape, Words, anything
from jaxbandit.core.hints import did_you_mean

Hint: TypeAlias = Any
"""An annotation at run time, for which Python has no type."""
Maker: TypeAlias = Callable[..., Any]
"""A class or function."""

# These names say in one word which values a field or an argument may hold. A user gives numbers, lists or arrays; inside a compiled program
# each is a ``jax.Array``, as :func:`jaxbandit.core.pytree.canonicalise` makes it. Code that calculates with a ``PerConstraint``,
# ``PerOutput``, ``PerAxis`` or ``Table`` starts with ``jnp.asarray(...)``, at no cost.

Array: TypeAlias = jax.Array
"""An array of JAX, concrete or traced. Comments and docstrings give its shape, such as ``[M, d]``."""
Key: TypeAlias = Annotated[jax.Array, fields.key]
"""A PRNG key of ``jax.random.key``, shape ``[]``."""
KeyOrSeed: TypeAlias = Annotated[jax.Array | int, fields.key]
"""A PRNG key, or its seed. :func:`checked` makes the key from the seed. Only functions that users call have it."""
Device: TypeAlias = Any
"""A ``jax.Device``. Type checkers know nothing of jaxlib's class."""
FilePath: TypeAlias = Annotated[str | Path, fields.path]
"""Path of a file or a directory. It need not exist yet."""
Scalar: TypeAlias = float | jax.Array
"""One number: a Python or NumPy float, an int, or an array of shape ``[]``."""
PerConstraint: TypeAlias = Annotated[float | Sequence[float] | np.ndarray | jax.Array, fields.per_constraint]
"""One number for all constraints, or one for each: shape ``[]`` or ``[m]``."""
PerOutput: TypeAlias = Annotated[float | Sequence[float] | np.ndarray | jax.Array, fields.per_output]
"""One number for all outputs, or one for each, reward first: shape ``[]`` or ``[1 + m]``."""
PerFunction: TypeAlias = Annotated[float | Sequence[float] | np.ndarray | jax.Array, fields.per_function]
"""One number for all functions of an object, or one for each: shape ``[]`` or ``[n]``."""
PerAxis: TypeAlias = Annotated[float | Sequence[float] | np.ndarray | jax.Array, fields.per_axis]
"""One number for all axes of the inputs, or one for each: shape ``[]`` or ``[d]``."""
Indices: TypeAlias = Sequence[int] | np.ndarray | jax.Array
"""Numbers of points of a domain, counted from 0: shape ``[n]``."""
Numbers: TypeAlias = numpy.typing.ArrayLike
"""A number, an array, or a sequence of them. ``numpy.asarray`` makes it an array on the host, so traced values are excluded."""
Table: TypeAlias = np.ndarray | jax.Array
"""An array of values given by the user or made on the host (NumPy) and used inside compiled programs (JAX)."""

P = ParamSpec("P")
T = TypeVar("T")


class Role(Described):
    """Base of the classes of objects with one role, such as kernels.

    Attributes:
      papers: the BibTeX keys in ``results/references.bib`` of the papers behind the class, with the part of each, such as "sec. 3-4".
      in_files: whether study files can name the subclasses that the package defines.
      called: the word of study files for an object of the role; by default the class's name in lower case.
      made_from: the table, or the call as a table, that made an object, where it is known; a changed copy has none.
    """

    described: ClassVar[str] = "an object of a declared role"
    called: ClassVar[str] = ""
    in_files: ClassVar[bool] = False
    made_from: ClassVar[Mapping[str, Any] | None] = None
    papers: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def also_called(cls) -> tuple[str, ...]:
        """Return further names of the class, such as its name in papers."""
        return ()

    def _place(self) -> Place:
        """Return the sizes that arguments of its methods have to fit."""
        return Place()


class OnDomain(Role):
    """Base of objects that serve some outputs at a domain's points."""

    if TYPE_CHECKING:
        # The fields are read-only; at run time a property here would keep subclasses from declaring them.

        @property
        def domain(self) -> Any: ...
        @property
        def outputs(self) -> int: ...

    def _place(self) -> Place:
        return Place(None, self.outputs, self.domain.size, self.domain.dimension)


class Declared(Role):
    """Base of pytree dataclasses whose annotations say what each field may hold.

    Fields are checked on construction, and by a caller who knows how many functions the object serves. JAX rebuilds objects unchecked, with
    tracers or ``None`` as numbers. A field without facts in its annotation is not checked, unless it holds a ``Declared`` object.
    """

    described: ClassVar[str] = "an object with declared fields"

    def __post_init__(self) -> None:
        self.validate()

    def validate(self, name: str | None = None, outputs: int | None = None, points: int | None = None, axes: int | None = None) -> None:
        """Raise ``InvalidArgument`` on a wrong type, shape or range, except of tracers.

        Args:
          name: where the object is, for messages such as ``"Rpol.estimator.reward_width: must be > 0"``; default the class's name.
          outputs: number of functions that the object serves, reward included, ``1 + m``; without it per-function numbers may have any
            length.
          points: number of points of the object's domain; without it any number of points passes.
          axes: number of axes of the domain; without it per-axis numbers may have any length.
        """
        name = type(self).__name__ if name is None else name
        if jax.tree_util.all_leaves([self]):
            raise InvalidArgument(f"{name}: the class {type(self).__name__} is not a pytree; decorate it with jaxbandit.pytree")
        for parameter, value in _fields_of(self):
            place = Place(parameter.shape, outputs, points, axes)
            parameter.check(f"{name}.{parameter.name}", value, place)
            if parameter.check is anything and isinstance(value, Declared):
                _validate(f"{name}.{parameter.name}", value, place)
        _check_order(type(self), vars(self), f"{name}.")
        self._check(name, outputs)

    def _check(self, name: str, outputs: int | None) -> None:
        """Raise ``InvalidArgument`` on fields that do not fit each other."""


@dataclasses.dataclass(frozen=True)
class Parameter:
    """Field of a class or argument of a function, as annotated.

    A field of a ``Declared`` object has its ``shape`` here, others in the check. The number must exceed the fields or arguments ``above``.
    """

    name: str
    check: Check
    static: bool = False
    shape: Shape | None = None
    symbol: str | None = None
    above: tuple[Above, ...] = ()

    @property
    def allowed(self) -> str:
        """Allowed values and shapes in words."""
        return self.check.allowed if self.shape is None else f"{self.check.allowed}; {self.shape.described()}"

    @property
    def roles(self) -> tuple[type[Role], ...]:
        """Roles of the objects that it may hold, empty for plain values."""
        return tuple(kind for kind in self.check.classes if issubclass(kind, Role))


def _parameters(maker: Maker) -> tuple[Parameter, ...]:
    """Return the fields of a dataclass, or the arguments of a function."""
    # A declared class has the shape of a field beside its check, others have it within.
    beside = isinstance(maker, type) and issubclass(maker, Declared)
    if isinstance(maker, type):
        hints = {name: hint for base in reversed(maker.__mro__) for name, hint in _annotations(base).items()}
        held = dataclasses.fields(maker) if dataclasses.is_dataclass(maker) else ()
        named = {field.name: bool(field.metadata.get("static")) for field in held}
    else:
        hints, arguments = _annotations(maker), inspect.signature(maker).parameters.values()
        named = {one.name: False for one in arguments if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}
    found = []
    for name, static in named.items():
        facts, check = _facts(hints.get(name)), _check_of(hints.get(name), shaped=not beside, static=static)
        above = tuple(fact for fact in facts if isinstance(fact, Above))
        found.append(Parameter(name, check, static, _last(facts, Shape) if beside else None, _last(facts, Letter), above))
    return tuple(found)


parameters: Callable[[Maker], tuple[Parameter, ...]] = functools.cache(_parameters)


def _annotations(item: Maker) -> dict[str, Hint]:
    """Return the own annotations of a function or a class.

    A name that cannot be looked up means any value. Raises ``InvalidArgument`` if facts would be lost by that.
    """
    module = sys.modules.get(item.__module__)
    namespace = (vars(module) if module else {}) if isinstance(item, type) else inspect.unwrap(item).__globals__
    hints = inspect.get_annotations(item)
    for name, hint in hints.items():
        try:
            hints[name] = eval(hint, namespace) if isinstance(hint, str) and name != "return" else hint
        except NameError as error:
            if "Annotated" in hint:
                where = f"{item.__qualname__}.{name}"
                raise InvalidArgument(f"{where}: its annotation {hint} must name what its module defines: {error}") from error
            hints[name] = Any
    return hints


def _last(facts: Sequence[object], kind: type[T]) -> T | None:
    return next((fact for fact in reversed(facts) if isinstance(fact, kind)), None)


def _facts(hint: Hint) -> tuple[object, ...]:
    """Return the facts of an annotation, the outermost last."""
    origin: object = typing.get_origin(hint)
    if origin is Annotated:
        return (*_facts(hint.__origin__), *hint.__metadata__)
    return tuple(fact for member in typing.get_args(hint) for fact in _facts(member)) if origin in (typing.Union, types.UnionType) else ()


def _check_of(hint: Hint, facts: tuple[object, ...] = (), *, shaped: bool = True, static: bool = False) -> Check:
    """Return the check that an annotation with ``facts`` around it asks for.

    Sequences of ``static`` fields are tuples, because a list has no hash. A ``shaped`` check asks for the shape itself.
    """
    origin: object = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    words, least, inner = _last(facts, Words) or "", _last(facts, AtLeast) or 0, functools.partial(_check_of, static=static)
    if origin is Annotated:
        facts, shape = (*facts, *hint.__metadata__), _last(hint.__metadata__, Shape)
        check = _last(hint.__metadata__, Check) or inner(arguments[0], facts, shaped=shaped)
        return check if check is anything or shape is None or not shaped else check.of(shape)
    if origin in (typing.Union, types.UnionType):
        members = [inner(member, facts, shaped=shaped) for member in arguments]
        return anything if anything in members else functools.reduce(Check.__or__, members)
    if origin is Literal:
        return fields.choice(*arguments)
    # A sequence of integers may be an array.
    if origin is tuple or (origin is Sequence and arguments != (int,)):
        check, length = _check_of(arguments[0]), len(arguments) if len(arguments) > 1 and ... not in arguments else None
        if check is anything or any(item not in (arguments[0], ...) for item in arguments):
            return anything
        return fields.each(check, least=least, length=length, types=(tuple,) if static else (tuple, list))
    if origin is Mapping and (check := _check_of(arguments[1])) is not anything:
        return fields.mapping(check, words or f"a mapping from labels to items, each {check.allowed}", least=least)
    is_role = isinstance(origin, type) and issubclass(origin, Described)
    kind = origin if is_role or (words and origin is not None) else hint.__bound__ if isinstance(hint, TypeVar) else hint
    plain: dict[object, Check] = {bool: fields.boolean, int: fields.whole_number, str: fields.text, type(None): fields.nothing}
    if kind in plain:
        return plain[kind]
    if not isinstance(kind, type) or isinstance(kind, types.GenericAlias) or not (words or issubclass(kind, Described)):
        return anything
    check = fields.of_class(kind, words)
    return dataclasses.replace(check, verify=_validate) if issubclass(kind, Declared) else check


def _validate(name: str, value: Declared, place: Place) -> None:
    value.validate(name, *place.inside[1:])


def _fields_of(item: object) -> Iterator[tuple[Parameter, object]]:
    """Return the fields of a dataclass with their values, else nothing."""
    return ((parameter, getattr(item, parameter.name)) for parameter in parameters(type(item)))


def check_fields(item: object, name: str = "") -> None:
    """Raise ``InvalidArgument`` on a field that its annotation does not allow."""
    for parameter, value in _fields_of(item):
        parameter.check(f"{name}.{parameter.name}".removeprefix("."), value)
    _check_order(type(item), vars(item), f"{name}.".removeprefix("."))


def _check_order(maker: Maker, values: Mapping[str, Any], prefix: str = "") -> None:
    """Raise ``InvalidArgument`` on a number not above the one its annotation names."""
    for parameter in parameters(maker):
        for other in parameter.above:
            high, low = values.get(parameter.name), values.get(other)
            if high is None or low is None or is_traced((high, low)):
                continue
            broadcast(**{f"{prefix}{parameter.name}": high, other: low})
            if not np.all(other.holds(np.asarray(high), np.asarray(low))):
                words = f"must be {other.words} {other}, got {short(high)} and {other} = {short(low)}"
                raise InvalidArgument(f"{prefix}{parameter.name}: {words}")


def in_range(item: object) -> jax.Array | bool:
    """Return whether all traced numbers of the object lie in range, ``[]``."""
    inside: jax.Array | bool = True
    for parameter, value in _fields_of(item):
        if isinstance(value, Role):
            inside &= in_range(value)
        elif parameter.check.interval is not None and is_traced(value):
            leaf: Any = value
            inside &= jnp.all(parameter.check.interval.holds(leaf) & jnp.isfinite(leaf))
    return inside


def symbols(item: Declared) -> dict[str, object]:
    """Return hyper-parameters by their letters in the paper, for audit traces.

    Fields count that declare a letter, also within objects that ``item`` holds. An object whose own field has a letter becomes the name of
    its class in lower case.
    """
    letters: dict[str, object] = {}
    for parameter, value in _fields_of(item):
        if parameter.symbol is not None:
            plain = value if value is None or isinstance(value, str) else np.asarray(value).tolist()
            letters[parameter.symbol] = type(value).__name__.lower() if isinstance(value, Declared) else plain
        if isinstance(value, Declared):
            letters |= symbols(value)
    return letters


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function check its arguments by their annotations before it runs.

    A default is not checked. A seed in place of a key becomes a key. Arguments of the methods of an object on a domain have to fit the
    domain and its number of outputs. A traced number that the function has to know raises ``InvalidArgument`` by its name.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            bound = _signature(function).bind_partial(*args, **kwargs)
        except TypeError:
            # The call below fails in Python's own words, with the function's name.
            bound = None
        given: dict[str, object] = {} if bound is None else bound.arguments
        owner = given.get("self")
        place = owner._place() if isinstance(owner, Role) else Place()
        for parameter in parameters(function):
            if parameter.name in given:
                parameter.check(parameter.name, value := given[parameter.name], place)
                if (made := parameter.check.convert(value)) is not value and bound is not None:
                    given[parameter.name] = made
                    args, kwargs = bound.args, bound.kwargs  # type: ignore[assignment]
        _check_order(function, given)
        try:
            return function(*args, **kwargs)
        except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
            traced = [name for name, value in given.items() if is_traced(value)]
            if not traced:
                raise
            words = ", ".join(f"{name}={short(given[name])}" for name in traced)
            raise InvalidArgument(f"{', '.join(traced)}: must be known here, not traced by jit or vmap, got {words}") from error
        except TypeError as error:
            if bound is not None:
                raise
            known = _signature(function).parameters
            misspelt = next((name for name in kwargs if name not in known), "")
            raise TypeError(f"{error}{did_you_mean(misspelt, known)}") from None

    call.is_checked = True  # type: ignore[attr-defined]
    return call


_signature = functools.cache(inspect.signature)
