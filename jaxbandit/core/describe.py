"""Any pytree dataclass of the library in plain JSON values or in a few words."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

MAX_NUMBERS_DESCRIBED = 64  # larger arrays are named by their shape: a table belongs in the data, not in an attribute


def describe(item: Any) -> Any:
    """Return ``item`` as nested dicts, lists, numbers and strings; a dataclass becomes ``{"type": ..., field: ...}``."""
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        fields = {f.name: describe(getattr(item, f.name)) for f in dataclasses.fields(item)}
        return {"type": type(item).__name__, **fields}
    if item is None or isinstance(item, bool | str | int | float):
        return item
    if isinstance(item, dict):
        return {str(k): describe(v) for k, v in item.items()}
    if isinstance(item, tuple | list):
        return [describe(v) for v in item]
    if isinstance(item, jax.Array | np.ndarray | np.generic):
        array = np.asarray(item)
        return array.tolist() if array.size <= MAX_NUMBERS_DESCRIBED else f"array {list(array.shape)} {array.dtype}"
    if callable(item):
        return name_of(item)
    return repr(item)


def name_of(item: Any) -> str:
    """Return the full name of a function or of whatever else can be called."""
    return f"{getattr(item, '__module__', '?')}.{getattr(item, '__qualname__', repr(item))}"


def in_words(item: Any) -> str:
    """Return a dataclass in a few words: its type, with its numbers, such as ``Poisson(mean 15)``."""
    described = {} if not dataclasses.is_dataclass(item) else {f.name: describe(getattr(item, f.name)) for f in dataclasses.fields(item)}
    numbers = [f"{name} {value:g}" for name, value in described.items() if isinstance(value, int | float) and not isinstance(value, bool)]
    return type(item).__name__ + (f"({', '.join(numbers)})" if numbers else "")
