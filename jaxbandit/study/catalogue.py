"""Catalogue of classes and functions for study files, with their fields."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping

from jaxbandit.algorithms import Algorithm
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.codec import Maker, Named, from_plain, makers, word_of, words_of_fields
from jaxbandit.core.declare import Role, checked, parameters
from jaxbandit.core.fields import anything
from jaxbandit.core.text import filled
from jaxbandit.delays import Delay
from jaxbandit.domains import Domain
from jaxbandit.engine.informed import Rule
from jaxbandit.feedback import Policy
from jaxbandit.host.user_code import load
from jaxbandit.kernels import Kernel
from jaxbandit.problems import AbstractProblem, Noise

ROLES = (Algorithm, AbstractProblem, Delay, Domain, Kernel, Noise, Policy, Rule)


@checked
def own_algorithm(given: str) -> Algorithm:
    """Run a user's file and return its algorithm, ``"mine.py:FixedPenalty"``.

    The algorithm has its default fields. Study files can name the file's classes from then on, by their names alone.

    Raises:
      InvalidArgument: on a file that cannot be read or fails, or that has no algorithm of that name.
    """
    module, name = load(given)
    if not name:
        raise InvalidArgument(f"with: must name a class in the file, such as mine.py:FixedPenalty, got {given!r}")
    algorithm: Algorithm = from_plain(Algorithm, {"type": f"{module.__name__}:{name}"}, "with")
    return algorithm


def places() -> Named[Named[Maker]]:
    """Return the named classes and functions of each place in study files."""
    # Places are the roles of a study's own tables, and of objects in their fields.
    known: dict[type[Role], Mapping[str, Maker]] = {role: makers(role) for role in ROLES}
    todo = [maker for named in known.values() for maker in named.values()]
    for maker in todo:
        for role in (role for parameter in parameters(maker) for role in parameter.roles):
            if makers(role) and not issubclass(role, tuple(known)):
                known[role] = makers(role)
                todo += makers(role).values()
    by_word = sorted((word_of(role), named) for role, named in known.items())
    return Named((word, Named((name, maker) for name, maker in named.items() if not _needs_code(maker))) for word, named in by_word)


def _needs_code(maker: Maker) -> bool:
    """Return whether a maker needs a function as argument."""
    required = (parameter for parameter in parameters(maker) if _given(maker)[parameter.name] is inspect.Parameter.empty)
    return any(parameter.allowed.startswith("a function") for parameter in required)


def _given(maker: Maker) -> dict[str, object]:
    return {name: parameter.default for name, parameter in inspect.signature(maker).parameters.items()}


def catalogue(place: str) -> str:
    """Return the catalogue of a place, one of :func:`places`, as text."""
    return "\n\n".join(described(name, maker) for name, maker in places()[place].items())


def described(name: str, maker: Maker) -> str:
    """Return a summary line and the fields of a class or function."""
    summary = (inspect.getdoc(maker) or "").partition("\n")[0]
    lines = [f"{name}: {_without_markup(summary).rstrip('.')}"]
    allowed = {parameter.name: parameter.allowed for parameter in parameters(maker) if parameter.check is not anything}
    roles = {parameter.name: parameter.roles for parameter in parameters(maker)}
    words, defaults = words_of_fields(maker), _given(maker)
    for field in roles:
        tables = [name for role in roles.get(field, ()) for name, kind in makers(role).items() if not _needs_code(kind)]
        ruled = allowed.get(field, "")
        says = [_without_markup(words.get(field, "")).rstrip(".;") or ruled, f"a table of {', '.join(tables)}" if tables else ruled]
        text = "; ".join(part for part in dict.fromkeys(says) if part)
        lines.append(f"  {field}" + ("  (required)" if defaults[field] is inspect.Parameter.empty else f" = {_shown(defaults[field])}"))
        lines += [6 * " " + text] if text else []
    return "\n".join(filled(line, indent="      ") for line in lines)


def _without_markup(text: str) -> str:
    """Return words of a docstring without markup."""
    text = re.sub(r":\w+:`~?(?:[^`<]*\.)?([^`<]*)`", r"\1", text)
    return re.sub(r":math:`([^`]*)`", r"\1", text).replace("``", "").replace("\\", "")


def _shown(value: object) -> str:
    """Return a default in the form of a study file."""
    if isinstance(value, Role) and dataclasses.is_dataclass(value):
        return f'{{type = "{type(value).__name__}"}}'
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    return f'"{value}"' if isinstance(value, str) else str(list(value)) if isinstance(value, tuple) else str(value)
