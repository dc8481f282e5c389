"""Origins of frozen objects, remembered by the objects themselves.

A class declares the fact as a ``ClassVar`` with a default, the value of an object of unknown origin: ``Role.made_from`` (the table of a
call), ``Sweep.tried``, ``AbstractProblem.drawn_from`` and ``Trajectory.made``. The fact is no field. So it has no part in equality and in
compiled programs, and changed copies, and copies that JAX makes, are of unknown origin again.
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def remember(item: T, **facts: object) -> T:
    """Add facts of its origin to a new object."""
    for name, fact in facts.items():
        object.__setattr__(item, name, fact)
    return item
