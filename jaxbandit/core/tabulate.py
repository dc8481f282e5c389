"""Tables of users' functions of a point: traced by JAX, or called point by point, or with all points at once."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.fields import exactly, finite_numbers
from jaxbandit.core.types import Array, Table

ONE_EACH = "one number for each point x [d]"


def tabulated(name: str, given: Callable[[Array], Array | float], points: Table) -> tuple[np.ndarray, str]:
    """Return the values ``[M]`` of a user's function at ``points [M, d]``, and how they were found in words, empty where JAX traces it.

    Raises:
      InvalidArgument: unless it gives one finite real number for each point.
    """
    if not callable(given) or isinstance(given, type):
        raise InvalidArgument(f"{name}: must be a function of one point x [d], got {short(given)}")
    points = np.asarray(points, np.float64)
    size = len(points)
    with jax.enable_x64(True):
        ways: dict[str, Callable[[], Any]] = {
            "": lambda: _traced(given, points),
            f"({_name(given)}), which was called for each of the {size} points": lambda: [given(x) for x in points.copy()],
            f"({_name(given)}), which was called once with all points [M, d]": lambda: given(points.copy()),  # type: ignore[arg-type]
        }
        failures: list[Exception] = []
        for way, call in ways.items():
            try:
                table = np.asarray(call())
            except Exception as error:  # of a user's function, which may raise anything
                failures.append(error)
                continue
            if way and table.shape != (size,) and failures:
                failures.append(ValueError(f"it returns shape {list(table.shape)}"))
                continue
            finite_numbers(f"{name}(x)", table, exactly(size, words=ONE_EACH))
            if not way:
                _check_indices(name, given, points[0].copy())
            return table.astype(np.float64), way
    traced, alone = (str(error).strip().partition("\n")[0][:160] for error in failures[:2])
    raise InvalidArgument(
        f"{name}: must be a function of one point x [d] that gives one number; got {_name(given)}, which JAX cannot trace"
        f" ({type(failures[0]).__name__}: {traced}) and which fails on a point by itself ({type(failures[1]).__name__}: {alone});"
        " write it with jax.numpy for one point, or tabulate it yourself and use problems.from_tables"
    )


def _traced(given: Callable[[Array], Array | float], points: np.ndarray) -> Array | float:
    """Return the values ``[M]`` by one compiled program, or operation by operation where the function needs numbers of JAX's on the way."""
    try:
        values: Array = jax.jit(jax.vmap(given))(points)
        return values
    except jax.errors.ConcretizationTypeError:
        return jax.vmap(given)(jnp.asarray(points))


def _check_indices(name: str, given: Callable[[Array], Array | float], x: np.ndarray) -> None:
    """Raise ``InvalidArgument`` where a function reads a coordinate that ``x [d]`` lacks; JAX takes the last one in its place."""
    try:
        jax.eval_shape(lambda: given(x))  # type: ignore[arg-type]  # compiles nothing
    except IndexError as error:
        raise InvalidArgument(f"{name}: must be a function of one point x [{len(x)}], got {_name(given)}: {error}") from error
    except Exception:  # what works on JAX's arrays alone
        return


def _name(function: Any) -> str:
    """Return the name of a function, or of the class of what can be called like one."""
    return function.__name__ if isinstance(function, types.FunctionType) else type(function).__name__
