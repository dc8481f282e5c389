"""Names and dotted paths of fields, such as ``"estimator.reward_width"``: how a sweep or a study file names a value to set."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from jaxbandit.core.checks import InvalidArgument, short


def set_field(item: Any, path: str, value: object, where: str) -> Any:
    """Return a copy of ``item`` with the field at ``path`` set to ``value``.

    Args:
      item: a dataclass, or a table (a mapping) as a study file has it; so are the items along the path.
      path: names of fields separated by dots. A field on the path must be a leaf, not static, and not declared with
        ``metadata={"fixed": REASON}``.
      value: any value that the class of ``item`` allows.
      where: how messages call the place, for example ``"algorithm.rpol.sweep.estimator.reward_width"``.

    Raises:
      InvalidArgument: on an unknown field, with the nearest known one, on a field that cannot be set, and on a value that is not allowed.
    """
    first, dot, rest = path.partition(".")
    if isinstance(item, Mapping):
        if dot and first not in item:
            raise InvalidArgument(f"{where}: there is no such field")
        return {**item, first: set_field(item[first], rest, value, where) if dot else value}
    if not dataclasses.is_dataclass(item) or isinstance(item, type):
        raise InvalidArgument(f"{where}: a {type(item).__name__} has no fields")
    kind = type(item).__name__
    fields = {f.name: f for f in dataclasses.fields(item)}
    free = ", ".join(name for name, f in fields.items() if not f.metadata.get("static") and not f.metadata.get("fixed"))
    check_known(first, fields, where, f"{kind} can sweep {free}; its fields are")
    if fields[first].metadata.get("static"):
        raise InvalidArgument(f"{where}: {first} of {kind} is static, part of the program; it can sweep {free}")
    if fields[first].metadata.get("fixed"):
        raise InvalidArgument(f"{where}: {first} of {kind} cannot be set: {fields[first].metadata['fixed']}; it can sweep {free}")
    inner = set_field(getattr(item, first), rest, value, where) if dot else value
    try:
        return dataclasses.replace(item, **{first: inner})
    except InvalidArgument as error:
        raise InvalidArgument(f"{where}: {error}") from error


def check_known(name: str, known: Iterable[str], where: str, words: str) -> None:
    """Raise ``InvalidArgument`` with the nearest known name unless ``name`` is known; ``words`` introduce the list of known names."""
    known = list(known)
    if not isinstance(name, str):
        raise InvalidArgument(f"{where}: must be named by text, got {short(name)}; {words} {', '.join(known) or 'none'}")
    if name not in known:
        raise InvalidArgument(f"{where}: unknown field{did_you_mean(name, known)}; {words} {', '.join(known) or 'none'}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``", did you mean ...?"`` with the known name nearest to ``name``, or nothing when none is near."""
    lowered = {other.lower(): other for other in known}
    found = difflib.get_close_matches(name.lower(), lowered, n=1)
    return f", did you mean {lowered[found[0]]!r}?" if found else ""
