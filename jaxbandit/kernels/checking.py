"""A check that a kernel of a user gives covariances."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import jax
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import exactly, finite_numbers
from jaxbandit.core.gram import check_called
from jaxbandit.core.types import Array, Table
from jaxbandit.kernels.base import Kernel

LOOKED_AT = 100  # points of a domain at which a user's kernel is tried


@checked
def check_covariance(
    name: str, kernel: Kernel, points: Annotated[Table, finite_numbers, exactly(None, None, words="one row per point")]
) -> None:
    """Raise ``InvalidArgument`` unless ``kernel`` gives covariances: finite, symmetric and positive semi-definite at some of ``points``.

    The package's own kernels do by their formulas; those that a user has written are called, in float64.
    """
    if all(type(part).__module__.startswith("jaxbandit.kernels.") for part in _parts(kernel)):
        return
    table = np.asarray(points, np.float64)
    table = table[np.linspace(0, len(table) - 1, min(len(table), LOOKED_AT)).astype(int)]
    with checks.blaming(f"{name}: must give covariances [n, p] of points [n, d] and [p, d]"), jax.enable_x64(True):
        matrix, diagonal = map(np.asarray, _evaluated(kernel, table))
    check_called(name, type(kernel).__name__, matrix, diagonal, len(table))


@jax.jit  # not operation by operation
def _evaluated(kernel: Kernel, points: Array) -> tuple[Array, Array]:
    return kernel(points, points), kernel.diag(points)


def _parts(kernel: Kernel) -> list[Kernel]:
    """Return a kernel and those that it is made of."""
    fields = [getattr(kernel, field.name) for field in dataclasses.fields(kernel)]  # type: ignore[arg-type]  # every kernel is a dataclass
    return [kernel, *(part for value in fields if isinstance(value, Kernel) for part in _parts(value))]
