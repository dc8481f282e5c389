"""Words of messages for callers in Python and for users of commands.

A message that differs between them has both texts where it is raised, by :func:`either`. While a command runs, values and examples of
objects are written as a TOML file has them, and arguments as options.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import inspect
import json
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import jax
import numpy as np

# The running command's options by the names of arguments, ``None`` without a command.
_OPTIONS: ContextVar[dict[str, str] | None] = ContextVar("options", default=None)

TRUTH = re.compile(r"\b(?:True|False)\b")


class Parser(argparse.ArgumentParser):
    """Parser of commands, with decimal numbers and messages that name options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.spelled: dict[str, str] = {}
        super().__init__(*args, **kwargs)
        self.register("type", float, decimal)
        self.register("type", int, whole_decimal)

    def add_argument(self, *names: str, **kwargs: Any) -> argparse.Action:
        """Add an argument and remember its option."""
        action = super().add_argument(*names, **kwargs)
        if action.option_strings:
            self.spelled[action.dest] = action.option_strings[-1]
        return action

    def parse_known_args(self, *args: Any, **kwargs: Any) -> Any:
        """Parse arguments, with their options known to messages."""
        if (options := _OPTIONS.get()) is not None:
            options |= self.spelled
        return super().parse_known_args(*args, **kwargs)


@contextlib.contextmanager
def by_command() -> Iterator[None]:
    """Write messages inside the block, and warnings in a line, for commands."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        print(f"warning: {_in_one_line(str(message))}", file=sys.stderr)

    token = _OPTIONS.set({})
    try:
        with warnings.catch_warnings():
            warnings.showwarning = show
            yield
    finally:
        _OPTIONS.reset(token)


def _in_one_line(words: str) -> str:
    """Return a message in one line, its first argument as an option."""
    name = words[: len(words) - len(words.lstrip("abcdefghijklmnopqrstuvwxyz_"))]
    option = (_OPTIONS.get() or {}).get(name) if words[len(name) :].startswith((":", ".", "[")) else None
    return " ".join(((option or name) + words[len(name) :]).splitlines())


def warn(words: str, kind: type[Warning] = UserWarning) -> None:
    """Warn at the line outside this package, however deep the call."""
    frame, level = inspect.currentframe(), 1
    # These are files of the package, and of the modules that call it back.
    inside = (f"{Path(__file__).parents[1]}{os.sep}", f"{Path(jax.__file__).parent}{os.sep}", contextlib.__file__)
    # Code that dataclasses write has no file of its own, unlike the module of its frame.
    while frame is not None and str(frame.f_globals.get("__file__")).startswith(inside):
        frame, level = frame.f_back, level + 1
    warnings.warn(words, kind, stacklevel=level)


def failure(error: Exception) -> str:
    """Return the line that ends a command with an error."""
    return f"error: {_in_one_line(str(error))}"


def either(python: str, command: str) -> str:
    """Return the words for Python, or for a command while it runs."""
    return python if _OPTIONS.get() is None else command


def option_of(argument: str, words: str) -> str:
    """Return words with an argument's option in place of ``{}``, else nothing."""
    option = (_OPTIONS.get() or {}).get(argument)
    return words.format(option) if option else ""


def setting(name: str, value: object) -> str:
    """Return a field's setting in Python, or in TOML for commands."""
    if _OPTIONS.get() is None:
        return f"{name}={value!r}"
    return f"{name} = {in_file(value) or json.dumps(value)}"


def in_file(value: object) -> str | None:
    """Return a plain value as TOML while a command runs, else ``None``."""
    if _OPTIONS.get() is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.date | datetime.time):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        written = repr(value)
        return _as_table(written if written.count("(") == 1 else type(value).__name__)
    if isinstance(value, list | tuple) and len(value) < 60:
        return f"[{', '.join(in_file(item) or repr(item) for item in value)}]"
    if isinstance(value, Mapping) and len(value) < 60:
        return f"{{{', '.join(f'{name} = {in_file(item) or repr(item)}' for name, item in value.items())}}}"
    return None


def allowed_in_file(words: str) -> str:
    """Return allowed values as TOML while a command runs, without ``None``."""
    if _OPTIONS.get() is None:
        return words
    words = re.sub(r" of jaxbandit\.\w+", "", re.sub(r" or None\b", "", words)).replace("a tuple of", "a list of")
    words = re.sub(TRUTH, lambda match: match[0].lower(), words)
    return re.sub(r"(?<=, such as )\w+\([^()]*\)", lambda match: _as_table(match[0]), words)


def _as_table(call: str) -> str:
    """Return a call as a table, with arguments if all are named."""
    maker, _, arguments = call.removesuffix(")").partition("(")
    arguments = arguments if "=" in arguments and "..." not in arguments else ""
    fields = "".join(f", {argument.replace('=', ' = ')}" for argument in arguments.split(", ") if argument and "=None" not in argument)
    fields = re.sub(TRUTH, lambda match: match[0].lower(), fields)
    return f'{{type = "{maker}"{fields}}}'


def advice_on(item: object) -> str:
    """Return advice on a text that is no number, after a semicolon."""
    text = str(item).strip()
    if re.match(r"[<>≤≥]", text):
        return "; of a value beyond a limit of detection write the limit or half of it, or leave it out"
    if re.match(r"\d{4}-\d\d?-\d\d?|\d\d?[./]\d\d?[./]\d\d", text):
        return "; a date is no number: count the days from one"
    if re.fullmatch(r"[-+]?[\d.,' ]*\d[\d.,' ]*(?:[eE][-+]?\d+)?", text) and re.search(r"[,' ]|\..*\.", text):
        return "; numbers have a decimal point and nothing between thousands, as in 1234.5"
    if re.fullmatch(r"[-+]?[\d.]+\s*[^\d\s.].*", text) and not re.match(r"[-+]?0[xXbBoO]|.*_", text):
        return "; write the number without a sign or a unit"
    return ""


def decimal(text: str) -> float:
    """Return a command's word as a number, or raise ``ArgumentTypeError`` with advice."""
    value = number_of(text)
    if value != value:
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}{advice_on(text)}")
    return value


def whole_decimal(text: str) -> int:
    """Return a command's word as a whole number, or raise ``ArgumentTypeError``."""
    if not re.fullmatch(r"\s*[-+]?[0-9]+\s*", text):
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}")
    return int(text)


def number_of(item: object) -> float:
    """Return an entry as a number, or NaN for any other."""
    try:
        # Python would read 1_0 as a number.
        is_none = isinstance(item, bool | np.bool_) or (isinstance(item, str) and ("_" in item or not item.isascii()))
        return float("nan") if is_none else float(item)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return float("nan")
