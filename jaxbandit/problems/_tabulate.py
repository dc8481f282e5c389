"""Tables of users' functions on a domain: traced by JAX, or called point by point, or with all points at once."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.fields import exactly, finite_numbers
from jaxbandit.core.types import Array
from jaxbandit.domains import Domain

ONE_EACH = "one number for each point x [d]"


def tabulated(name: str, given: Callable[[Array], Array | float], domain: Domain) -> tuple[np.ndarray, str]:
    """Return the values ``[M]`` of a user's function in float64, and how they were found in words, empty where JAX traces the function.

    Raises:
      InvalidArgument: unless it gives one finite real number for each point.
    """
    if not callable(given) or isinstance(given, type):
        raise InvalidArgument(f"{name}: must be a function of one point x [d], got {short(given)}")
    points = np.asarray(domain.points, np.float64)
    with jax.enable_x64(True):
        ways = {
            "": lambda: jax.vmap(given)(jnp.asarray(points)),
            f"({_name(given)}), which was called for each of the {domain.size} points": lambda: [given(x) for x in points.copy()],
            f"({_name(given)}), which was called once with all points [M, d]": lambda: given(points.copy()),  # type: ignore[arg-type]
        }
        failures: list[Exception] = []
        for way, call in ways.items():
            try:
                table = np.asarray(call())
            except Exception as error:  # of a user's function, which may raise anything
                failures.append(error)
                continue
            if way and table.shape != (domain.size,) and failures:
                failures.append(ValueError(f"it returns shape {list(table.shape)}"))
                continue
            finite_numbers(f"{name}(x)", table, exactly(domain.size, words=ONE_EACH))
            return table.astype(np.float64), way
    traced, alone = (str(error).strip().partition("\n")[0][:160] for error in failures[:2])
    raise InvalidArgument(
        f"{name}: must be a function of one point x [d] that gives one number; got {_name(given)}, which JAX cannot trace"
        f" ({type(failures[0]).__name__}: {traced}) and which fails on a point by itself ({type(failures[1]).__name__}: {alone});"
        " write it with jax.numpy for one point, or tabulate it yourself and use problems.from_tables"
    )


def _name(function: Any) -> str:
    """Return the name of a function, or of the class of what can be called like one."""
    return function.__name__ if isinstance(function, types.FunctionType) else type(function).__name__
