"""What study files can name."""

from typing import Any

from jaxbandit.core.codec import Maker, from_plain, makers, word_of
from jaxbandit.core.declare import Role, parameters
from jaxbandit.study import catalogue

ROLES = {word_of(role): role for role in catalogue.ROLES}
KINDS = [kind for kind in ROLES if kind != "domain"]


def build(kind: str, table: object, where: str) -> Any:
    """What a table of one kind describes."""
    return from_plain(ROLES[kind], table, where)


def names(kind: str) -> dict[str, Maker]:
    """The classes and functions that a table of one kind can name: first of the kind itself, then of what their fields may hold."""
    found: dict[str, Maker] = {}
    wanted: list[type[Role]] = [ROLES[kind]]
    for role in wanted:  # which grows meanwhile
        for name, maker in makers(role).items():
            found.setdefault(name, maker)
            held = {other for parameter in parameters(maker) for other in parameter.roles} if kind != "problem" else set()
            wanted += sorted(held - set(wanted), key=lambda other: other.__name__)
    return found
