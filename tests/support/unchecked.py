"""Objects as JAX may rebuild them, with anything in their fields: what the checks of a whole object are tried on."""

import dataclasses
from typing import Any


def unchecked(kind: type, /, **values: Any) -> Any:
    """Return an object of a pytree dataclass with defaults in the fields not given; nothing is checked."""
    made = object.__new__(kind)
    for field in dataclasses.fields(kind):
        object.__setattr__(made, field.name, values.get(field.name, field.default))
    return made


def changed(item: Any, **values: Any) -> Any:
    """Return a copy of ``item`` with other values in some fields; nothing is checked."""
    held = {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}
    return unchecked(type(item), **held | values)
