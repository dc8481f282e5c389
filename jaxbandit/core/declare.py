"""The base class of every object with hyper-parameters, and what is derived from the declarations beside its fields.

A class that derives from :class:`Declared` says with :func:`~jaxbandit.core.pytree.param` and :func:`~jaxbandit.core.pytree.static` what
each field may hold. From that come ``validate``, the letters of audit traces (:func:`symbols`) and what a study file can set
(:func:`parameters`, :func:`constructible`).
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import jax
import numpy as np

from jaxbandit.core.checks import InvalidArgument, is_traced, short

__all__ = [
    "Declared",
    "Parameter",
    "Role",
    "check_domain",
    "constructible",
    "in_range",
    "is_foreign",
    "parameters",
    "roles_of_arguments",
    "symbols",
]


PACKAGE = __name__.partition(".")[0]


class Role:
    """Base of the classes of objects that play one role, such as kernels or delay models.

    Attributes:
      described: the role in words for error messages, such as "a delay model of jaxbandit.delays, such as Poisson(mean=15.0)".
      in_files: whether study files can name the subclasses that the package defines.
      calls_users_code: whether objects of the class hold a function of the user's.
    """

    described: ClassVar[str] = "an object of a declared role"
    in_files: ClassVar[bool] = False
    calls_users_code: ClassVar[bool] = False


class Declared(Role):
    """Base of objects with hyper-parameters: pytree dataclasses whose fields are declared.

    Fields are checked on construction, and by whoever takes an object and knows how many functions it serves. Where JAX rebuilds an
    object, with tracers, and with ``None``, in place of numbers, nothing is. A field without a declaration is not checked, unless it
    holds a ``Declared`` object.
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
        for field, value in _fields(self):
            path = f"{name}.{field.name}"
            if field.metadata.get("check") is not None:
                field.metadata["check"](path, value, field.metadata.get("shape"), outputs)
            elif isinstance(value, Declared):
                value.validate(path, outputs)
        self._check(name, outputs)

    def _check(self, name: str, outputs: int | None) -> None:
        """Raise ``InvalidArgument`` on fields that do not fit each other; called after each has been checked by itself."""


def check_domain(item: Any, size: int, dimension: int, name: str | None = None) -> None:
    """Raise ``InvalidArgument`` on a field, here or in an object within, that names points which a domain of ``size`` points lacks.

    The checks of fields say which hold points, one entry for each point, or one number for each of ``dimension`` axes.
    """
    name = type(item).__name__ if name is None else name
    for field, value in _fields(item):
        path, check = f"{name}.{field.name}", field.metadata.get("check")
        if isinstance(value, Role):
            check_domain(value, size, dimension, path)
        elif check is not None and value is not None:
            check.fit_domain(path, value, size, dimension, field.metadata.get("shape"))


def in_range(item: Any) -> Any:
    """Return whether the traced numbers of all fields, here or in an object within, lie in their ranges, ``[]``."""
    found: Any = True
    for field, value in _fields(item):
        check = field.metadata.get("check")
        if isinstance(value, Role):
            found &= in_range(value)
        elif check is not None and is_traced(value):
            found &= check.inside(value)
    return found


def is_foreign(item: Any) -> bool:
    """Return whether an object, or any that it holds, runs code that the package does not define, so that its results are looked at."""
    if isinstance(item, list | tuple):
        return any(is_foreign(part) for part in item)
    if not isinstance(item, Role):
        return False
    if item.calls_users_code or type(item).__module__.partition(".")[0] != PACKAGE:
        return True
    return any(is_foreign(value) for _, value in _fields(item))


def _fields(item: Any) -> Iterator[tuple[dataclasses.Field[Any], Any]]:
    """Return the fields of a dataclass with their values."""
    return ((field, getattr(item, field.name)) for field in _declared(type(item)))


def _declared(kind: type) -> tuple[dataclasses.Field[Any], ...]:
    """Return the fields of a dataclass, none for any other class."""
    return dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()


def symbols(item: Declared) -> dict[str, Any]:
    """Return the hyper-parameters under the letters of the paper, as plain values, for audit traces.

    Fields count that declare a symbol, also those of the objects that ``item`` holds; an object whose own field has one is written as its
    class in lower case.
    """
    found: dict[str, Any] = {}
    for field, value in _fields(item):
        symbol = field.metadata.get("symbol")
        if symbol is not None:
            found[symbol] = type(value).__name__.lower() if isinstance(value, Declared) else _plain(value)
        if isinstance(value, Declared):
            found |= symbols(value)
    return found


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else np.asarray(value).tolist()


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One field of a class, as its declaration says.

    Attributes:
      name: of the field.
      default: its value where none is given; ``dataclasses.MISSING`` for a required one.
      static: whether it is part of the program, so that it cannot be swept.
      allowed: what it may hold, in words: "a number > 0; one number, or one for each of the constraints".
      classes: base classes of the objects that it may hold, none for numbers and plain values.
      symbol: the paper's letter, or ``None``.
    """

    name: str
    default: Any
    static: bool
    allowed: str
    classes: tuple[type, ...]
    symbol: str | None


def parameters(kind: type[Declared]) -> tuple[Parameter, ...]:
    """Return what a user can set when making an object of a class, in the order of its fields."""
    return tuple(_parameter(field) for field in _declared(kind))


def _parameter(field: dataclasses.Field[Any]) -> Parameter:
    check, shape = field.metadata.get("check"), field.metadata.get("shape")
    words = "anything" if check is None else check.allowed
    return Parameter(
        name=field.name,
        default=field.default,
        static=bool(field.metadata.get("static")),
        allowed=words if shape is None else f"{words}; {shape.described()}",
        classes=() if check is None else check.classes,
        symbol=field.metadata.get("symbol"),
    )


def roles_of_arguments(maker: Callable[..., Any]) -> dict[str, tuple[type[Role], ...]]:
    """Return which roles the objects have that each argument of a class or function may hold, none for numbers and plain values.

    The declarations beside the fields say it where there are any; of kernels and functions the annotations do.
    """
    if isinstance(maker, type) and issubclass(maker, Declared):
        return {parameter.name: parameter.classes for parameter in parameters(maker)}
    return {name: tuple(_roles_in(hint)) for name, hint in typing.get_type_hints(maker).items() if name != "return"}


def _roles_in(hint: Any) -> Iterator[type[Role]]:
    """Return the roles that an annotation such as ``Sequence[Kernel] | None`` names."""
    if isinstance(hint, type) and not isinstance(hint, types.GenericAlias) and issubclass(hint, Role):
        yield hint
    for part in typing.get_args(hint):
        yield from _roles_in(part)


def constructible(*roles: type[Role]) -> dict[str, type[Role]]:
    """Return the classes that a study file can name where an object of one of ``roles`` is wanted, by name.

    These are the classes of a role that has opted in (``in_files = True``), as far as the package that defines the role defines
    them, too: a user's own class cannot be found again from the results alone.
    """
    found: dict[str, type[Role]] = {}
    for role in roles:
        package = role.__module__.partition(".")[0]
        for kind in _final_classes(role):
            if kind.in_files and kind.__module__.partition(".")[0] == package:
                found[kind.__name__] = kind
    return dict(sorted(found.items()))


def _final_classes(role: type[Role]) -> Iterator[type[Role]]:
    if dataclasses.is_dataclass(role) and not inspect.isabstract(role):
        yield role
    for kind in role.__subclasses__():
        yield from _final_classes(kind)
