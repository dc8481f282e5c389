"""Fields of nested objects by dotted paths, such as ``"estimator.reward_width"``: what sweeps vary, in Python and in study files."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from jaxbandit.core.checks import InvalidArgument


def set_field(item: Any, path: str, value: Any, where: str) -> Any:
    """Return ``item``, a pytree dataclass or a table, with the field at ``path`` set, which must be a leaf.

    Args:
      item: what is changed; it stays as it is.
      path: names joined by dots.
      value: of the field.
      where: how messages call the place.

    Raises:
      InvalidArgument: on a name that does not exist, with the nearest one that does, and on a static field.
    """
    first, dot, rest = path.partition(".")
    if isinstance(item, Mapping):
        if first not in item and dot:
            raise InvalidArgument(f"{where}: there is no field {first!r}; the table has {', '.join(map(str, item))}")
        return {**item, first: set_field(item[first], rest, value, where) if dot else value}
    if not dataclasses.is_dataclass(item) or isinstance(item, type):
        raise InvalidArgument(f"{where}: a {type(item).__name__} has no fields")
    fields = {f.name: f for f in dataclasses.fields(item)}
    free = [name for name, f in fields.items() if not f.metadata.get("static")]
    known_field(first, fields, where, f"{type(item).__name__} can sweep {', '.join(free)}; its fields are")
    if first not in free:
        raise InvalidArgument(f"{where}: {first} of {type(item).__name__} is static, part of the program; it can sweep {', '.join(free)}")
    return dataclasses.replace(item, **{first: set_field(getattr(item, first), rest, value, where) if dot else value})


def known_field(name: str, known: Iterable[str], where: str, words: str) -> None:
    """Raise ``InvalidArgument`` with the nearest name unless ``name`` is known."""
    known = list(known)
    if name not in known:
        raise InvalidArgument(f"{where}: unknown field{nearest(name, known)}; {words} {', '.join(known) or 'none'}")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``", did you mean ...?"``, or nothing where no known name is near."""
    lowered = {other.lower(): other for other in known}
    found = difflib.get_close_matches(name.lower(), lowered, n=1)
    return f", did you mean {lowered[found[0]]!r}?" if found else ""
