"""Checks of objects, and checks made of checks: one that may be missing, or each item of a tuple."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.declare import Declared, Role
from jaxbandit.core.fields.check import Check, must_be_check
from jaxbandit.core.fields.shapes import Shape


@dataclasses.dataclass(frozen=True)
class _InstanceOf(Check):
    allowed: str
    classes: tuple[type[Declared], ...]

    def takes(self, value: Any) -> bool:
        return isinstance(value, self.classes)

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        value.validate(name, outputs if shape is None else shape.functions(outputs))


def instance_of(role: type) -> Check:
    """Return the check for objects of a class that derives from ``Declared``; their own fields are checked, too."""
    if not isinstance(role, type) or not issubclass(role, Declared):
        raise InvalidArgument(f"role: must be a class that derives from Declared, got {short(role)}")
    return _InstanceOf(role.described, (role,))


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
    checks.text("described", described)
    if not isinstance(role, type) or not (described or issubclass(role, Role)):
        raise InvalidArgument(f"role: must be a class, with words unless it has its own, got {short(role)}")
    return _OfClass(described or role.described, (role,))  # type: ignore[attr-defined]


@dataclasses.dataclass(frozen=True)
class _Nothing(Check):
    allowed: str = "None"

    def takes(self, value: Any) -> bool:
        return value is None

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        """``None`` has no shape and no range."""


def optional(check: Check) -> Check:
    """Return the check for ``None`` or what ``check`` allows."""
    must_be_check("check", check)
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


def each(check: Check, *, least: int = 0, length: int | None = None) -> Check:
    """Return the check for a tuple or list of at least ``least`` items, or of ``length``, every one of which ``check`` allows."""
    must_be_check("check", check)
    checks.integer("least", least, least=0)
    if length is not None:
        checks.integer("length", length, least=0)
    several = f" of at least {least} items" if least else "" if length is None else f" of {length} items"
    return _Each(f"a tuple{several}, each item {check.allowed}", check, (tuple, list), length, least)


def mapping(check: Check, words: str, *, least: int = 0) -> Check:
    """Return the check for a mapping from texts, of at least ``least`` entries, whose values ``check`` allows; ``words`` describe it."""
    must_be_check("check", check)
    checks.text("words", words)
    checks.integer("least", least, least=0)
    return _MappingOf(words, check, least)


@dataclasses.dataclass(frozen=True)
class _MappingOf(Check):
    allowed: str
    check: Check
    least: int

    def takes(self, value: Any) -> bool:
        return isinstance(value, Mapping) and len(value) >= self.least and all(isinstance(key, str) for key in value)

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        for key, item in value.items():
            self.check(f"{name}[{key!r}]", item)


def tuple_of(check: Check, length: int | None = None) -> Check:
    """Return the check for a tuple of plain values, of ``length`` items where given; a static list would have no hash."""
    return dataclasses.replace(each(check, length=length), types=(tuple,))  # type: ignore[type-var]
