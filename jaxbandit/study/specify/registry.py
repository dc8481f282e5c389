"""Objects from tables of plain values, ``{"type": "Rpol", ...}``, and tables from objects: the contents of study files and results.

A class can be named where its role has opted in (``in_files = True``), a function that makes a problem where it is marked as
:func:`~jaxbandit.problems._nameable.nameable`. The fields of a table may hold tables in turn, of the roles that the field declares.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from jaxbandit.algorithms import Algorithm
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.declare import Declared, Role, constructible, parameters, roles_of_arguments
from jaxbandit.core.paths import check_known, did_you_mean
from jaxbandit.delays import Delay
from jaxbandit.domains import Domain, arms, grid, mixed, points, product, sobol
from jaxbandit.feedback import Policy
from jaxbandit.informed import Rule
from jaxbandit.kernels import Kernel
from jaxbandit.problems import Noise
from jaxbandit.problems._nameable import MAKERS

# The roles of what a table of each kind stands for; a problem is made by a function.
ROLES: dict[str, type[Role]] = {
    "algorithm": Algorithm,
    "delay": Delay,
    "feedback": Policy,
    "informed": Rule,
    "kernel": Kernel,
    "noise": Noise,
}
KINDS = (*ROLES, "problem")
DOMAINS: dict[str, Callable[..., Domain]] = {maker.__name__: maker for maker in (arms, grid, mixed, points, product, sobol)}
"""The functions that make a domain, for the problems that take one."""


def names(kind: str) -> dict[str, Callable[..., Any]]:
    """Return the makers that a table of one kind can name, by name: first of the kind itself, then of what its fields may hold."""
    if kind == "problem":
        return dict(sorted(MAKERS.items()))
    found: dict[str, Callable[..., Any]] = {}
    wanted: list[type[Role]] = [ROLES[kind]]
    for role in wanted:  # which grows meanwhile
        for name, maker in constructible(role).items():
            found.setdefault(name, maker)
            held = {other for roles in roles_of_arguments(maker).values() for other in roles}
            wanted += sorted(held - set(wanted), key=lambda other: other.__name__)
    return found


def build(kind: str, table: Any, where: str) -> Any:
    """Return what a table describes; what is no table is returned as it is.

    Raises:
      InvalidArgument: on an unknown name or field, with the nearest known one, and on values that the object refuses.
    """
    if not isinstance(table, Mapping):
        return table
    return _made(kind, names(kind) if kind == "problem" else constructible(ROLES[kind]), table, where)


def _made(what: str, known: Mapping[str, Callable[..., Any]], table: Mapping[str, Any], where: str) -> Any:
    """Return the object that a table describes; ``what`` says in a word what it stands for."""
    values = dict(table)
    if "type" not in values:
        raise InvalidArgument(f'{where}: the table has no type; say which {what}, as in type = "{next(iter(known))}"')
    maker = _look_up(what, known, values.pop("type"), where)
    own = fields_of(maker)
    for name in values:
        check_known(name, own, f"{where}.{name}", f"{maker.__name__} takes")
    roles, fixed, domains = roles_of_arguments(maker), _static_fields(maker), domain_arguments(maker)
    made = {
        name: _made_domain(value, f"{where}.{name}")
        if name in domains and isinstance(value, Mapping)
        else _value(name, roles.get(name, ()), name in fixed, value, f"{where}.{name}")
        for name, value in values.items()
    }
    return _called(maker, made, table, where)


def _made_domain(table: Mapping[str, Any], where: str) -> Domain:
    """Return the domain that a table describes, such as ``{type = "sobol", low = [0, 0], high = [1, 1], count = 256, key = 0}``."""
    values = dict(table)
    if "type" not in values:
        raise InvalidArgument(f'{where}: the table has no type; say which domain, as in type = "grid"')
    maker = _look_up("domain", DOMAINS, values.pop("type"), where)
    for name in values:
        check_known(name, fields_of(maker), f"{where}.{name}", f"{maker.__name__} takes")
    return _called(maker, values, table, where)


def domain_arguments(maker: Callable[..., Any]) -> set[str]:
    """Return the names of the arguments of a function that may hold a domain."""
    hints = {} if isinstance(maker, type) else typing.get_type_hints(maker)
    return {name for name, hint in hints.items() if name != "return" and Domain in (hint, *typing.get_args(hint))}


def _called(maker: Callable[..., Any], values: Mapping[str, Any], table: Mapping[str, Any], where: str) -> Any:
    """Return what a maker makes of values, those of ``table``; raises ``InvalidArgument`` on values that it refuses."""
    try:
        return maker(**values)
    except InvalidArgument as error:
        raise InvalidArgument(f"{where}: {error}") from error
    except (TypeError, ValueError, ArithmeticError) as error:
        raise InvalidArgument(f"{where}: {maker.__name__} refuses {short(dict(table))}: {error}") from error


def _value(field: str, roles: tuple[type[Role], ...], is_static: bool, value: Any, where: str) -> Any:
    """Return the value of one field: tables become objects, lists of numbers arrays, or tuples where the field is static.

    Raises:
      InvalidArgument: on dates and times, on lists whose rows differ in length, and on tables that stand for no object.
    """
    leaves = jax.tree.leaves(value) if isinstance(value, list) else [value]
    if any(isinstance(leaf, datetime.date | datetime.time) for leaf in leaves):
        raise InvalidArgument(f"{where}: takes no date or time, got {short(value)}")
    if isinstance(value, Mapping):
        if not roles:
            raise InvalidArgument(f"{where}: takes no table, got {short(dict(value))}")
        return _made(field, constructible(*roles), value, where)
    if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        return tuple(_value(field, roles, is_static, item, f"{where}[{number}]") for number, item in enumerate(value))
    if isinstance(value, list):
        return tuple(_value(field, roles, True, item, where) for item in value) if is_static else _array(value, where)
    return value


def _array(value: list[Any], where: str) -> Any:
    """Return a list of numbers as an array; one of anything else as it is, for the field's own check to refuse or to take."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InvalidArgument(f"{where}: the rows of a list have one length, got {short(value)}") from error
    mixed = array.dtype.kind != "b" and any(isinstance(leaf, bool) for leaf in jax.tree.leaves(value))  # NumPy takes True for 1.0
    return array if array.dtype.kind in "biuf" and not mixed else value


def _look_up(what: str, known: Mapping[str, Callable[..., Any]], name: Any, where: str) -> Callable[..., Any]:
    """Return the maker of a name; raises ``InvalidArgument`` with the nearest one when there is none."""
    if not isinstance(name, str):
        raise InvalidArgument(f"{where}.type: expected the name of a {what} as text, got {short(name)}")
    if name not in known:
        raise InvalidArgument(f"{where}: there is no {what} {short(name)}{did_you_mean(name, known)}; known are {', '.join(sorted(known))}")
    return known[name]


def _static_fields(maker: Callable[..., Any]) -> set[str]:
    """Return the names of the fields that are part of the program, whose lists must be tuples; none of a function."""
    if not (isinstance(maker, type) and issubclass(maker, Declared)):
        return set()
    return {parameter.name for parameter in parameters(maker) if parameter.static}


@functools.cache
def _classes() -> frozenset[Any]:
    """Return the classes that some table can name."""
    return frozenset(maker for kind in ROLES for maker in names(kind).values())


def fields_of(maker: Callable[..., Any]) -> list[str]:
    """Return the names of the arguments that a class or function takes."""
    return [name for name, p in inspect.signature(maker).parameters.items() if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]


def table_of(item: Any, where: str) -> Any:
    """Return the table that builds ``item``; raises ``InvalidArgument`` on what no table can describe, such as a user's own class."""
    if item is None or isinstance(item, bool | int | float | str):
        return item
    if isinstance(item, Mapping):
        return {str(name): table_of(value, f"{where}.{name}") for name, value in item.items()}
    if isinstance(item, list | tuple) and any(isinstance(part, Role | Mapping) for part in item):
        return [table_of(part, f"{where}[{number}]") for number, part in enumerate(item)]
    if isinstance(item, list | tuple | np.ndarray | np.generic | jax.Array):
        return np.asarray(item).tolist()
    if dataclasses.is_dataclass(item) and type(item) in _classes():
        held = {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}
        tables = {name: table_of(value, f"{where}.{name}") for name, value in held.items() if value is not None}
        return {"type": type(item).__name__} | tables
    raise InvalidArgument(f"{where}: a {type(item).__name__} cannot be written as a table")
