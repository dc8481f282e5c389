"""The base class of every object with hyper-parameters, and what is derived from the declarations beside its fields.

A class that derives from :class:`Declared` says with :func:`~jaxbandit.core.pytree.param` and :func:`~jaxbandit.core.pytree.static` what
each field may hold. From that come ``validate``, the letters of audit traces (:func:`symbols`) and what a study file can set
(:func:`parameters`, :func:`constructible`).
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any, ClassVar

import jax
import numpy as np

from jaxbandit.core.checks import InvalidArgument, short

__all__ = ["Declared", "Parameter", "constructible", "parameters", "symbols"]


class Declared:
    """Base of objects with hyper-parameters: pytree dataclasses whose fields are declared.

    Nothing is checked on construction, because JAX rebuilds objects with tracers, and with ``None``, in place of numbers; whoever takes
    an object from a user calls :meth:`validate`. A field without a declaration is not checked, unless it holds a ``Declared`` object.

    Attributes:
      described: the role in words for error messages, such as "a delay model of jaxbandit.delays, such as Poisson(mean=15.0)".
      in_files: whether study files can name the subclasses that the package defines.
    """

    described: ClassVar[str] = "an object with declared fields"
    in_files: ClassVar[bool] = False

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


def constructible(*roles: type[Declared]) -> dict[str, type[Declared]]:
    """Return the classes that a study file can name where an object of one of ``roles`` is wanted, by name.

    These are the classes of a role that has opted in (``in_files = True``), as far as the package that defines the role defines
    them, too: a user's own class cannot be found again from the results alone.
    """
    found: dict[str, type[Declared]] = {}
    for role in roles:
        package = role.__module__.partition(".")[0]
        for kind in _final_classes(role):
            if kind.in_files and kind.__module__.partition(".")[0] == package:
                found[kind.__name__] = kind
    return dict(sorted(found.items()))


def _final_classes(role: type[Declared]) -> Iterator[type[Declared]]:
    if dataclasses.is_dataclass(role) and not inspect.isabstract(role):
        yield role
    for kind in role.__subclasses__():
        yield from _final_classes(kind)
