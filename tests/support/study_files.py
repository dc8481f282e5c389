"""Names in study files."""

from typing import Any

from jaxbandit.core.codec import Maker, from_plain, makers, word_of
from jaxbandit.core.declare import Role, parameters
from jaxbandit.study import catalogue

ROLES = {word_of(role): role for role in catalogue.ROLES}
KINDS = [kind for kind in ROLES if kind != "domain"]


def build(kind: str, table: object, where: str) -> Any:
    """Return the object that a table describes."""
    return from_plain(ROLES[kind], table, where)


def names(kind: str) -> dict[str, Maker]:
    """Return classes and functions that a table can name.

    The first ones are of the kind itself, and the others may stand in their fields.
    """
    found: dict[str, Maker] = {}
    wanted: list[type[Role]] = [ROLES[kind]]
    # The list grows meanwhile.
    for role in wanted:
        for name, maker in makers(role).items():
            found.setdefault(name, maker)
            held = {other for parameter in parameters(maker) for other in parameter.roles} if kind != "problem" else set()
            wanted += sorted(held - set(wanted), key=lambda other: other.__name__)
    return found
