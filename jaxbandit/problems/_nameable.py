"""Functions that make problems and that study files can name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from jaxbandit.problems.base import AbstractProblem

Maker = TypeVar("Maker", bound=Callable[..., AbstractProblem])

MAKERS: dict[str, Callable[..., AbstractProblem]] = {}
"""The functions that :func:`nameable` has marked, by name."""


def nameable(maker: Maker) -> Maker:
    """Let study files name ``maker``, a function of plain values (and of tables that stand for kernels, noise or delays) to a problem."""
    MAKERS[maker.__name__] = maker
    return maker
