"""Faults of refusals, untyped, late or without argument and value."""

import time
from typing import Any

from jaxbandit import InvalidArgument

LIMIT = 1.0  # seconds


def refused(name: str, field: str, what: str, make: Any, *, limit: float = LIMIT) -> str | None:
    """Return the fault of a value's refusal, or ``None``."""
    started = time.perf_counter()
    try:
        make()
    except InvalidArgument as error:
        message = str(error)
    except Exception as error:
        return f"{name}: {field} = {what}: {type(error).__name__}: {error}"
    else:
        return f"{name}: {field} = {what} was accepted"
    if (
        field not in message.partition(":")[0]
        or not any(word in message for word in ("got", "NaN", "this machine has"))
        or len(message) > 1000
    ):
        return f"{name}: {field} = {what}: the message says neither where nor what: {message}"
    return None if time.perf_counter() - started < limit else f"{name}: {field} = {what} took long"
