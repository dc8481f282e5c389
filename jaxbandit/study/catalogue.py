"""Catalogue of what a study file can name at a place: a line of description each, and the fields with their defaults."""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Mapping

from jaxbandit.algorithms import Algorithm
from jaxbandit.core.codec import Maker, fields_of, makers, word_of
from jaxbandit.core.declare import Role, parameters
from jaxbandit.delays import Delay
from jaxbandit.domains import Domain
from jaxbandit.feedback import Policy
from jaxbandit.informed import Rule
from jaxbandit.kernels import Kernel
from jaxbandit.problems import AbstractProblem, Noise

ROLES = (Algorithm, AbstractProblem, Delay, Domain, Kernel, Noise, Policy, Rule)  # of a study's own tables
WIDTH = 110  # characters of a line
REQUIRED = "  (required)"
FIELD = re.compile(r"^      (\w+(?:, \w+)*): (.+)$")  # of a docstring's list of attributes or arguments


def places() -> dict[str, Mapping[str, Maker]]:
    """Return, for each place in a study file, the makers that a table there can name, by name.

    The places are those of a study's own tables, and after them the objects that fields of these hold, by the name of their role.
    """
    known = {word_of(role): makers(role) for role in ROLES}
    seen = set(ROLES)
    todo = [maker for named in known.values() for maker in named.values()]
    for maker in todo:  # which grows meanwhile
        for role in (role for parameter in parameters(maker) for role in parameter.roles):
            if makers(role) and not any(issubclass(role, other) for other in seen):
                seen.add(role)
                known[word_of(role)] = makers(role)
                todo += makers(role).values()
    return {place: {name: maker for name, maker in named.items() if not _needs_code(maker)} for place, named in sorted(known.items())}


def _needs_code(maker: Maker) -> bool:
    """Return whether a maker has to be given a function, which no file holds."""
    allowed, defaults = _allowed(maker), _defaults(maker)
    return any(words.startswith("a function") and defaults[name] == REQUIRED for name, words in allowed.items())


def catalogue(place: str) -> str:
    """Return what a study file can name at a place, one of :func:`places`, as text."""
    return "\n\n".join(described(name, maker) for name, maker in places()[place].items())


def described(name: str, maker: Maker) -> str:
    """Return a class or function that a table can name: a line on what it is, and its fields."""
    lines = [f"{name}: {_first_sentence(maker)}"]
    words, defaults, allowed = _words_of_fields(maker), _defaults(maker), _allowed(maker)
    roles = {parameter.name: parameter.roles for parameter in parameters(maker)}
    for field in fields_of(maker):
        held = [name for role in roles.get(field, ()) for name, kind in makers(role).items() if not _needs_code(kind)]
        says = [words.get(field, "").rstrip(".;") or allowed.get(field, "")]
        says += [f"a table of {', '.join(held)}"] if held else [] if words.get(field) is None else [allowed.get(field, "")]
        text = "; ".join(part for part in dict.fromkeys(says) if part)
        lines += [f"  {field}{defaults[field]}", *(f"      {line}" for line in textwrap.wrap(text, WIDTH - 6, break_on_hyphens=False))]
    return "\n".join(lines)


def _first_sentence(maker: Maker) -> str:
    """Return the first sentence of a docstring, without marks of markup."""
    text = " ".join((inspect.getdoc(maker) or "").split("\n\n")[0].split())
    return _plain(re.split(r"(?<=[a-z0-9)`])(?<!et al)(?<!sec)(?<!Thm)\.(?: |$)", text)[0])


def _plain(text: str) -> str:
    """Return words of a docstring without marks of markup."""
    text = re.sub(r":\w+:`~?(?:[^`<]*\.)?([^`<]*)`", r"\1", text)
    return re.sub(r":math:`([^`]*)`", r"\1", text).replace("``", "").replace("\\", "")


def _words_of_fields(maker: Maker) -> dict[str, str]:
    """Return what the docstrings of a function, or of a class and its bases, say of each field or argument."""
    found: dict[str, str] = {}
    names: list[str] = []
    texts = [kind.__doc__ for kind in reversed(maker.__mro__)] if isinstance(maker, type) else [maker.__doc__]
    for line in (line for text in texts for line in (text or "").splitlines()):
        start = FIELD.match(line)
        if start is not None:
            names = start[1].split(", ")
            found |= dict.fromkeys(names, start[2])
        elif names and line.startswith("        "):
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
        else:
            names = []
    return {name: _plain(words) for name, words in found.items()}


def _defaults(maker: Maker) -> dict[str, str]:
    """Return the default of each field as it follows its name, or that it is required."""
    given = {name: parameter.default for name, parameter in inspect.signature(maker).parameters.items()}
    return {name: REQUIRED if value is inspect.Parameter.empty else f" = {_shown(value)}" for name, value in given.items()}


def _shown(value: object) -> str:
    """Return a default as a study file would have it."""
    if isinstance(value, Role) and dataclasses.is_dataclass(value):
        return f'{{type = "{type(value).__name__}"}}'
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "none"
    return f'"{value}"' if isinstance(value, str) else str(list(value)) if isinstance(value, tuple) else str(value)


def _allowed(maker: Maker) -> dict[str, str]:
    """Return what each field may hold, in the words of its check."""
    return {parameter.name: parameter.allowed for parameter in parameters(maker) if parameter.check is not None}
