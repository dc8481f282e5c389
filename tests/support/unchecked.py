"""Objects with unchecked fields, as JAX may rebuild them."""

import dataclasses
from typing import Any


def unchecked(kind: type, /, **values: Any) -> Any:
    """Return an unchecked object with defaults in the fields not given."""
    made = object.__new__(kind)
    for field in dataclasses.fields(kind):
        object.__setattr__(made, field.name, values.get(field.name, field.default))
    return made


def changed(item: Any, **values: Any) -> Any:
    """Return an unchecked copy with other values in some fields."""
    held = {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}
    return unchecked(type(item), **held | values)
