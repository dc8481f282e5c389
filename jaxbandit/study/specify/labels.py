"""Names that results are written with: of studies and runs, and of what they are made of."""

from __future__ import annotations

from typing import Any

from jaxbandit.core.checks import InvalidArgument, short

LONGEST_LABEL = 1000  # characters


def check_label(name: str, value: Any, *, empty: bool = False) -> str:
    """Return a label; raise ``InvalidArgument`` unless it is text that files of results and terminals can hold.

    Args:
      name: what the label is of, for messages.
      value: the label.
      empty: whether it may be empty.
    """
    if not isinstance(value, str) or not (value.strip() or empty):
        raise InvalidArgument(f"{name}: expected text{'' if empty else ' that is not empty'}, got {short(value)}")
    if len(value) > LONGEST_LABEL:
        raise InvalidArgument(f"{name}: at most {LONGEST_LABEL} characters are allowed, got {len(value)}: {short(value)}")
    if any(ord(letter) < 32 or 0x7F <= ord(letter) < 0xA0 or 0xD800 <= ord(letter) < 0xE000 for letter in value):
        raise InvalidArgument(
            f"{name}: control characters, such as line ends and NUL, and halves of surrogate pairs are not allowed, got {short(value)}"
        )
    return value
