"""Declarations of classes and functions: their annotations are read once, by the same code for all.

``penalty: Annotated[PerConstraint, positive, Letter("rho")] = 1.0`` beside a field, or ``def sine(points: Annotated[int, whole(2)] = 50)``
under a bare :func:`checked`, is all that validation, audit traces (:func:`symbols`) and study files (:func:`parameters`,
:func:`constructible`) need to know. See :mod:`jaxbandit.core.fields` for the facts that an annotation can hold beside its type.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, ParamSpec, TypeAlias, TypeVar

import jax
import numpy as np

from jaxbandit.core import fields
from jaxbandit.core.checks import InvalidArgument, is_traced, short
from jaxbandit.core.fields import AtLeast, Check, Described, Letter, Shape, Words

Hint: TypeAlias = Any
"""An annotation at run time, for which Python has no type."""
Maker: TypeAlias = Callable[..., Any]
"""A class or function."""

P = ParamSpec("P")
T = TypeVar("T")


class Role(Described):
    """Base of the classes of objects that play one role, such as kernels or delay models.

    Attributes:
      in_files: whether study files can name the subclasses that the package defines.
      called: an object of the role in a word, as study files have it; by default the class's name in lower case.
      made_from: the table, or the call as a table, that an object was made by, where that is known; a changed copy of it has none.
    """

    described: ClassVar[str] = "an object of a declared role"
    called: ClassVar[str] = ""
    in_files: ClassVar[bool] = False
    made_from: ClassVar[Mapping[str, Any] | None] = None


class OnDomain(Role):
    """Base of objects that serve some outputs at the points of a domain, which arguments of their methods have to fit."""

    if TYPE_CHECKING:  # declared as read-only; at run time a property here would keep subclasses from declaring a field

        @property
        def domain(self) -> Any: ...
        @property
        def outputs(self) -> int: ...


class Declared(Role):
    """Base of objects with hyper-parameters: pytree dataclasses whose annotations say what each field may hold.

    Fields are checked on construction, and by whoever takes an object and knows how many functions it serves. Where JAX rebuilds an
    object, with tracers, and with ``None``, in place of numbers, nothing is. A field whose annotation says nothing is not checked, unless
    it holds a ``Declared`` object.
    """

    described: ClassVar[str] = "an object with declared fields"

    def __post_init__(self) -> None:
        self.validate()

    def validate(self, name: str | None = None, outputs: int | None = None) -> None:
        """Raise ``InvalidArgument`` on a field whose value has a wrong type, shape or range; tracers are passed over.

        Args:
          name: where the object is, for messages such as ``"Rpol.estimator.reward_width: must be > 0"``; default the class's name.
          outputs: how many functions the object serves, reward included, ``1 + m``; without it per-function numbers of any length pass.
        """
        if name is not None and not isinstance(name, str):
            raise TypeError(f"validate: the name must be text, got {short(name)}; the number of outputs is given as outputs=...")
        name = type(self).__name__ if name is None else name
        if jax.tree_util.all_leaves([self]):
            raise InvalidArgument(f"{name}: the class {type(self).__name__} is not a pytree; decorate it with jaxbandit.pytree")
        for parameter, value in _held(self):
            path = f"{name}.{parameter.name}"
            if parameter.check is not None:
                parameter.check(path, value, parameter.shape, outputs)
            elif isinstance(value, Declared):
                value.validate(path, outputs)
        self._check(name, outputs)

    def _check(self, name: str, outputs: int | None) -> None:
        """Raise ``InvalidArgument`` on fields that do not fit each other; called after each has been checked by itself."""


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One field of a class, or one argument of a function, as its annotation says."""

    name: str
    default: object  # dataclasses.MISSING for a required one
    static: bool  # whether it is part of the program, so that it cannot be swept
    check: Check | None  # what it may hold; None for anything
    shape: Shape | None = (
        None  # for which functions it may hold numbers of their own; None for one number, or an object for all of its owner's
    )
    symbol: str | None = None  # the paper's letter

    @property
    def allowed(self) -> str:
        """Allowed values in words: "a number > 0; one number, or one for each of the constraints"."""
        words = "anything" if self.check is None else self.check.allowed
        return words if self.shape is None else f"{words}; {self.shape.described()}"

    @property
    def classes(self) -> tuple[type, ...]:
        """Base classes of the objects that it may hold, none for numbers and plain values."""
        return () if self.check is None else self.check.classes


def parameters(maker: Maker) -> tuple[Parameter, ...]:
    """Return the fields of a dataclass, none of any other class, or the annotated arguments of a function, in their order."""
    return _read(maker)


@functools.cache
def _read(maker: Maker) -> tuple[Parameter, ...]:
    if not isinstance(maker, type):
        hints, reading = _annotations(maker), _Reading(shaped=True, validate=True)
        given = (one for one in inspect.signature(maker).parameters.values() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD))
        return tuple(
            Parameter(
                one.name, dataclasses.MISSING if one.default is one.empty else one.default, False, _check_of(hints[one.name], reading)
            )
            for one in given
            if one.name in hints
        )
    declared = dataclasses.fields(maker) if dataclasses.is_dataclass(maker) else ()
    hints = {name: hint for base in reversed(maker.__mro__) for name, hint in _annotations(base).items()} if declared else {}
    return tuple(_of_field(field, hints[field.name], validate=issubclass(maker, Declared)) for field in declared)


def _annotations(item: Maker) -> dict[str, Hint]:
    """Return the annotations of a function, or of a class without those of its bases; a name that cannot be looked up means anything.

    Raises:
      InvalidArgument: when facts would be lost by that.
    """
    module = sys.modules.get(item.__module__)  # None for code that is no module
    namespace = (vars(module) if module else {}) if isinstance(item, type) else inspect.unwrap(item).__globals__
    texts = inspect.get_annotations(item).items()
    return {name: _resolved(text, namespace, f"{item.__qualname__}.{name}") for name, text in texts if name != "return"}


def _resolved(text: Hint, namespace: dict[str, Hint], where: str) -> Hint:
    if not isinstance(text, str):
        return text
    try:
        return eval(text, namespace)
    except NameError as error:
        if "Annotated" in text:
            raise InvalidArgument(f"{where}: its annotation {text} must name what its module defines: {error}") from error
        return Any


def _of_field(field: dataclasses.Field[object], hint: Hint, *, validate: bool) -> Parameter:
    """Return what is declared of a field; ``validate``: of an object that is validated, with the number of outputs that it serves."""
    static, facts = bool(field.metadata.get("static")), _facts(hint)
    check = _check_of(hint, _Reading(shaped=not validate, validate=validate, static=static))
    shape, letter = _last(facts, Shape) if validate else None, _last(facts, Letter)
    return Parameter(field.name, field.default, static, check, shape, None if letter is None else letter.name)


def _last(facts: Sequence[object], kind: type[T]) -> T | None:
    return next((fact for fact in reversed(facts) if isinstance(fact, kind)), None)


def _facts(hint: Hint) -> tuple[object, ...]:
    """Return the facts of an annotation; those of the members of a union come first, so that those around it win."""
    if _origin(hint) is Annotated:
        return (*_facts(hint.__origin__), *hint.__metadata__)
    return tuple(fact for member in typing.get_args(hint) for fact in _facts(member)) if _is_union(hint) else ()


def _origin(hint: Hint) -> object:
    return typing.get_origin(hint)


def _is_union(hint: Hint) -> bool:
    return _origin(hint) in (typing.Union, types.UnionType)


@dataclasses.dataclass(frozen=True)
class _Reading:
    """How annotations are read: with their shape in the check or beside it, and with facts that stand around a type."""

    shaped: bool = False
    validate: bool = False  # whether objects are asked to validate themselves, with the number of outputs that they serve
    static: bool = False  # whether sequences must be tuples: a static list would have no hash
    words: str = ""
    least: int = 0


def _check_of(hint: Hint, reading: _Reading = _Reading()) -> Check | None:
    """Return what an annotation allows, ``None`` where it does not say."""
    origin, arguments = _origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _check_of_annotated(arguments[0], hint.__metadata__, reading)
    if _is_union(hint):
        members = [_check_of(member, reading) for member in arguments]
        known = [member for member in members if member is not None]
        return functools.reduce(Check.__or__, known) if len(known) == len(members) else None
    if origin is Literal:
        return fields.choice(*arguments)
    if origin is tuple or (origin is Sequence and arguments != (int,)):  # numbers may come in arrays
        return _check_of_items(arguments, reading)
    if origin is Mapping and (item := _check_of(arguments[1], _Reading(shaped=True))) is not None:
        return fields.mapping(item, reading.words or f"a mapping from labels to items, each {item.allowed}", least=reading.least)
    is_role = isinstance(origin, type) and issubclass(origin, Described)  # such as Algorithm[Any]
    kind = origin if is_role or (reading.words and origin is not None) else hint.__bound__ if isinstance(hint, TypeVar) else hint
    if not isinstance(kind, type) or isinstance(kind, types.GenericAlias):
        return None
    return PLAIN.get(kind) or _check_of_objects(kind, reading)


PLAIN: dict[type, Check] = {bool: fields.boolean, int: fields.whole_number, str: fields.text, type(None): fields.nothing}


def _check_of_annotated(hint: Hint, facts: tuple[object, ...], reading: _Reading) -> Check | None:
    words, least, shape = _last(facts, Words), _last(facts, AtLeast), _last(facts, Shape)
    within = dataclasses.replace(reading, words=words.text if words else reading.words, least=least.count if least else reading.least)
    check = _last(facts, Check) or _check_of(hint, within)
    return check if check is None or shape is None or not reading.shaped else check.of(shape)


def _check_of_items(hints: tuple[Hint, ...], reading: _Reading) -> Check | None:
    """Return what a tuple of items ``X, ...`` or ``X, X``, or a sequence ``X``, allows."""
    check = _check_of(hints[0], _Reading(shaped=True, validate=reading.validate))
    if check is None or any(hint not in (hints[0], Ellipsis) for hint in hints):
        return None
    length = len(hints) if len(hints) > 1 and Ellipsis not in hints else None
    return fields.each(check, least=reading.least, length=length, types=(tuple,) if reading.static else (tuple, list))


def _check_of_objects(kind: type, reading: _Reading) -> Check | None:
    if not reading.words and not issubclass(kind, Described):
        return None
    check = fields.of_class(kind, reading.words)
    if not (reading.validate and issubclass(kind, Declared)):
        return check  # each was checked when it was made

    def verify(name: str, value: Declared, shape: Shape | None, outputs: int | None) -> None:
        value.validate(name, outputs if shape is None else shape.functions(outputs))

    return dataclasses.replace(check, verify=verify)


def _held(item: object) -> Iterator[tuple[Parameter, object]]:
    """Return the fields of an object with their values, none of what is no dataclass."""
    return ((parameter, getattr(item, parameter.name)) for parameter in parameters(type(item)))


def check_fields(item: object, name: str = "") -> None:
    """Raise ``InvalidArgument`` on a field of a plain dataclass that its annotation does not allow; ``name`` is what messages call it."""
    for parameter, value in _held(item):
        if parameter.check is not None:
            parameter.check(f"{name}.{parameter.name}".removeprefix("."), value)


def check_domain(item: object, size: int, dimension: int, name: str | None = None) -> None:
    """Raise ``InvalidArgument`` on a field, here or in an object within, that names points which a domain of ``size`` points lacks.

    The checks of fields say which hold points, one entry for each point, or one number for each of ``dimension`` axes.
    """
    name = type(item).__name__ if name is None else name
    for parameter, value in _held(item):
        path = f"{name}.{parameter.name}"
        if isinstance(value, Role):
            check_domain(value, size, dimension, path)
        elif parameter.check is not None and value is not None:
            parameter.check.fit_domain(path, value, size, dimension)
            if parameter.shape is not None:
                parameter.shape.fit_axes(path, value, dimension)


def in_range(item: object) -> jax.Array | bool:
    """Return whether the traced numbers of all fields, here or in an object within, lie in their ranges, ``[]``."""
    inside: jax.Array | bool = True
    for parameter, value in _held(item):
        if isinstance(value, Role):
            inside &= in_range(value)
        elif parameter.check is not None and is_traced(value):
            inside &= parameter.check.inside(value)  # type: ignore[arg-type]  # a leaf
    return inside


def symbols(item: Declared) -> dict[str, object]:
    """Return the hyper-parameters under the letters of the paper, as plain values, for audit traces.

    Fields count that declare a letter, also those of the objects that ``item`` holds; an object whose own field has one is written as its
    class in lower case.
    """
    letters: dict[str, object] = {}
    for parameter, value in _held(item):
        if parameter.symbol is not None:
            letters[parameter.symbol] = type(value).__name__.lower() if isinstance(value, Declared) else _plain(value)
        if isinstance(value, Declared):
            letters |= symbols(value)
    return letters


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, str) else np.asarray(value).tolist()


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function check its arguments by their annotations before it runs.

    An argument that is left out is not checked, so that a default may be anything. Arguments of the methods of an object on a domain have
    to fit that and its number of outputs, too. A traced number that the function has to know raises ``InvalidArgument`` by its name.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            given: Mapping[str, object] = _signature(function).bind_partial(*args, **kwargs).arguments
        except TypeError:
            given = {}  # the call below fails in Python's own words, which name the function
        owner = item if isinstance(item := given.get("self"), OnDomain) else None
        for parameter in parameters(function):
            if parameter.name in given and parameter.check is not None:
                value = given[parameter.name]
                parameter.check(parameter.name, value, None, None if owner is None else owner.outputs)
                if owner is not None and value is not None:
                    parameter.check.fit_domain(parameter.name, value, owner.domain.size, owner.domain.dimension)
        with _naming_traced(given):
            return function(*args, **kwargs)

    call.is_checked = True  # type: ignore[attr-defined]
    return call


_signature = functools.cache(inspect.signature)


@contextlib.contextmanager
def _naming_traced(given: Mapping[str, object]) -> Iterator[None]:
    """Turn JAX's errors on traced numbers that are looked at into ``InvalidArgument``, which names the arguments that hold them."""
    try:
        yield
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
        traced = [name for name, value in given.items() if is_traced(value)]
        if not traced:
            raise
        words = ", ".join(f"{name}={short(given[name])}" for name in traced)
        raise InvalidArgument(f"{', '.join(traced)}: must be known here, not traced by jit or vmap, got {words}") from error


def roles_of_arguments(maker: Maker) -> dict[str, tuple[type[Role], ...]]:
    """Return which roles the objects have that each argument of a class or function may hold, none for numbers and plain values."""
    return {item.name: tuple(kind for kind in item.classes if issubclass(kind, Role)) for item in parameters(maker)}


def constructible(*roles: type[Role]) -> dict[str, type[Role]]:
    """Return the classes that a study file can name where an object of one of ``roles`` is wanted, by name.

    These are the classes of a role that has opted in (``in_files = True``), as far as the package that defines the role defines
    them, too: a user's own class cannot be found again from the results alone.
    """
    classes: dict[str, type[Role]] = {}
    for role in roles:
        package = role.__module__.partition(".")[0]
        for kind in _final_classes(role):
            if kind.in_files and kind.__module__.partition(".")[0] == package:
                classes[kind.__name__] = kind
    return dict(sorted(classes.items()))


def _final_classes(role: type[Role]) -> Iterator[type[Role]]:
    if dataclasses.is_dataclass(role) and not inspect.isabstract(role):
        yield role
    for kind in role.__subclasses__():
        yield from _final_classes(kind)
