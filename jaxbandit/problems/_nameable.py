"""Functions that make problems and that study files can name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from jaxbandit.problems.base import AbstractProblem

Maker = TypeVar("Maker", bound=Callable[..., AbstractProblem])

MAKERS: dict[str, Callable[..., AbstractProblem]] = {}
"""The functions that :func:`nameable` has marked, by name."""


READERS: set[str] = set()
"""Those of them whose problem depends on a file, too."""


def reads_files(maker: Maker) -> Maker:
    """Let study files name ``maker`` as :func:`nameable` does, and tell them that what it makes depends on more than its arguments."""
    READERS.add(maker.__name__)
    return nameable(maker)


def nameable(maker: Maker) -> Maker:
    """Let study files name ``maker``, a function of plain values (and of tables that stand for kernels, noise or delays) to a problem."""
    MAKERS[maker.__name__] = maker
    return maker
