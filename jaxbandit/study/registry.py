"""Objects from tables of plain values, ``{"type": "Rpol", ...}``, and tables from objects: what study files and results hold."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from jaxbandit import algorithms, delays, estimators, feedback, informed, kernels, penalties, problems, widths
from jaxbandit.core.checks import InvalidArgument

# Where the name in a table is looked up, by what the table is for; what an algorithm's fields hold has names of its own.
KINDS: dict[str, tuple[ModuleType, ...]] = {
    "algorithm": (algorithms, estimators, widths, penalties),
    "problem": (problems,),
    "delay": (delays,),
    "feedback": (feedback,),
    "kernel": (kernels,),
    "informed": (informed,),
    "noise": (problems,),
}
FIELDS = {
    "kernel": "kernel",
    "delay": "delay",
    "noise": "noise",
    "left": "kernel",
    "right": "kernel",
}  # fields whose tables are of another kind
# What users do not make.
HIDDEN = {"Algorithm", "Arena", "Decision", "Delay", "Estimate", "Feedback", "Kernel", "Observation", "Pending"}
# Of the functions on problems, those that take or give something that no table can be.
NO_PROBLEMS = {
    "best_mixed_policy",
    "building_day",
    "from_functions",
    "from_tables",
    "full_information",
    "optimum",
    "with_equalities",
}


def names(kind: str) -> dict[str, Any]:
    """What a table of one kind can name."""
    found: dict[str, Any] = {}
    for module in KINDS[kind]:
        public = getattr(module, "__all__", None) or [name for name in dir(module) if not name.startswith("_")]
        for name in public:
            if _makes(kind, name, getattr(module, name)):
                found.setdefault(name, getattr(module, name))
    return found


def _makes(kind: str, name: str, item: Any) -> bool:
    """Whether calling ``item`` makes something of the kind."""
    if kind == "problem":
        return inspect.isfunction(item) and name not in NO_PROBLEMS
    if not isinstance(item, type) or inspect.isabstract(item) or getattr(item, "_is_protocol", False) or name in HIDDEN:
        return False
    return kind != "noise" or (hasattr(item, "draw") and hasattr(item, "apply"))


def build(kind: str, table: Any, where: str) -> Any:
    """What a table describes; what is no table passes, lists of numbers become arrays.

    Raises:
      InvalidArgument: on an unknown name or field, with the nearest known one, and on values that the object refuses.
    """
    if isinstance(table, list) and table and not isinstance(table[0], Mapping):
        return np.asarray(table)
    if not isinstance(table, Mapping):
        return table
    table = dict(table)
    if "type" not in table:
        raise InvalidArgument(f'{where}: the table has no type; say which {kind}, as in type = "{next(iter(names(kind)))}"')
    maker = look_up(kind, table.pop("type"), where)
    known = fields_of(maker)
    for name in table:
        known_field(name, known, f"{where}.{name}", f"{maker.__name__} takes")
    values = {name: build(FIELDS.get(name, kind), value, f"{where}.{name}") for name, value in table.items()}
    try:
        return maker(**values)
    except InvalidArgument as error:
        raise InvalidArgument(f"{where}: {error}") from error
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{where}: {maker.__name__} refuses {table}: {error}") from error


def look_up(kind: str, name: Any, where: str) -> Any:
    """The class or function of a name; raises ``InvalidArgument`` with the nearest one when there is none."""
    known = names(kind)
    if name not in known:
        raise InvalidArgument(f"{where}: there is no {kind} {name!r}{nearest(str(name), known)}; known are {', '.join(sorted(known))}")
    return known[name]


def known_field(name: str, known: Iterable[str], where: str, words: str) -> None:
    """Raise ``InvalidArgument`` with the nearest name unless ``name`` is known."""
    known = list(known)
    if name not in known:
        raise InvalidArgument(f"{where}: unknown field{nearest(name, known)}; {words} {', '.join(known) or 'none'}")


def nearest(name: str, known: Iterable[str]) -> str:
    """``", did you mean ...?"`` or nothing."""
    lowered = {other.lower(): other for other in known}
    found = difflib.get_close_matches(name.lower(), lowered, n=1)
    return f", did you mean {lowered[found[0]]!r}?" if found else ""


def fields_of(maker: Any) -> list[str]:
    """The names that a class or function takes."""
    return [name for name, p in inspect.signature(maker).parameters.items() if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]


def table_of(kind: str, item: Any, where: str) -> Any:
    """The table that builds ``item``; raises ``InvalidArgument`` for what no table can describe, such as a user's own class."""
    if item is None or isinstance(item, bool | int | float | str):
        return item
    if isinstance(item, Mapping):
        return {str(name): table_of(FIELDS.get(name, kind), value, f"{where}.{name}") for name, value in item.items()}
    if isinstance(item, list | tuple) or hasattr(item, "dtype"):
        return np.asarray(item).tolist()
    if dataclasses.is_dataclass(item) and names(kind).get(type(item).__name__) is type(item):
        own = {f.name: getattr(item, f.name) for f in dataclasses.fields(item)}
        return {"type": type(item).__name__} | {
            name: table_of(FIELDS.get(name, kind), value, f"{where}.{name}") for name, value in own.items() if value is not None
        }
    raise InvalidArgument(f"{where}: a {type(item).__name__} cannot be written as a table")
