"""The words of messages at the two doors of the library: of arguments for callers in Python, of options and files for commands.

A message that differs between them says both where it is raised, by :func:`either`. While a command runs, values and examples of
objects are written as a TOML file holds them.
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

# The options of the command that runs, by the names of arguments; None while no command does.
_OPTIONS: ContextVar[dict[str, str] | None] = ContextVar("options", default=None)

# Where the package has its files, and those that it calls and is called back by.
INSIDE = (f"{Path(__file__).parents[1]}{os.sep}", f"{Path(jax.__file__).parent}{os.sep}", contextlib.__file__)

TRUTH = re.compile(r"\b(?:True|False)\b")


class Parser(argparse.ArgumentParser):
    """A parser of a command: messages call an argument by the option that sets it, whose ``dest`` is its name, and numbers are decimal."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.spelled: dict[str, str] = {}
        super().__init__(*args, **kwargs)
        self.register("type", float, decimal)
        self.register("type", int, whole_number)

    def add_argument(self, *names: str, **kwargs: Any) -> argparse.Action:
        """Add an argument as argparse does."""
        action = super().add_argument(*names, **kwargs)
        if action.option_strings:
            self.spelled[action.dest] = action.option_strings[-1]
        return action

    def parse_known_args(self, *args: Any, **kwargs: Any) -> Any:
        """Parse as argparse does."""
        if (options := _OPTIONS.get()) is not None:
            options |= self.spelled
        return super().parse_known_args(*args, **kwargs)


@contextlib.contextmanager
def by_command() -> Iterator[None]:
    """Let messages inside the block speak to a user of a command; warnings are one line each, without a place in a source."""

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
    """Return a message in one line, which begins with an option where it began with the argument that this sets."""
    name = words[: len(words) - len(words.lstrip("abcdefghijklmnopqrstuvwxyz_"))]
    option = (_OPTIONS.get() or {}).get(name) if words[len(name) :].startswith((":", ".", "[")) else None
    return " ".join(((option or name) + words[len(name) :]).splitlines())


def warn(words: str, kind: type[Warning] = UserWarning) -> None:
    """Warn at the line outside this package that called it, however many functions are between."""
    frame, level = inspect.currentframe(), 1
    # The file of a frame's module, because code that dataclasses write has no file of its own.
    while frame is not None and str(frame.f_globals.get("__file__")).startswith(INSIDE):
        frame, level = frame.f_back, level + 1
    warnings.warn(words, kind, stacklevel=level)


def failure(error: Exception) -> str:
    """Return the line by which a command ends with an error."""
    return f"error: {_in_one_line(str(error))}"


def either(python: str, command: str) -> str:
    """Return the words for a caller in Python, or while a command runs those for its user."""
    return python if _OPTIONS.get() is None else command


def option_of(argument: str, words: str) -> str:
    """Return words with the option for an argument in place of ``{}``; nothing where no command runs that has one."""
    option = (_OPTIONS.get() or {}).get(argument)
    return words.format(option) if option else ""


def setting(name: str, value: object) -> str:
    """Return the setting of a field: ``fused=False`` for a caller in Python, ``fused = false`` as a file has it."""
    if _OPTIONS.get() is None:
        return f"{name}={value!r}"
    return f"{name} = {in_file(value) or json.dumps(value)}"


def in_file(value: object) -> str | None:
    """Return a plain value as a TOML file holds it while a command runs; ``None`` for a caller in Python, and of what no file holds."""
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
    """Return what a field may hold as a file writes it while a command runs: ``{type = "Wait"}`` for ``Wait()``, and no ``None``."""
    if _OPTIONS.get() is None:
        return words
    words = re.sub(r" of jaxbandit\.\w+", "", re.sub(r" or None\b", "", words)).replace("a tuple of", "a list of")
    words = re.sub(TRUTH, lambda match: match[0].lower(), words)
    return re.sub(r"(?<=, such as )\w+\([^()]*\)", lambda match: _as_table(match[0]), words)


def _as_table(call: str) -> str:
    """Return a call as the table of a file, with its arguments where all are named."""
    maker, _, arguments = call.removesuffix(")").partition("(")
    arguments = arguments if "=" in arguments and "..." not in arguments else ""
    fields = "".join(f", {argument.replace('=', ' = ')}" for argument in arguments.split(", ") if argument and "=None" not in argument)
    fields = re.sub(TRUTH, lambda match: match[0].lower(), fields)
    return f'{{type = "{maker}"{fields}}}'


def advice_on(item: object) -> str:
    """Return what to write in place of a text that is no number, beginning with a semicolon; nothing where it cannot be told."""
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
    """Return the number that a word of a command writes; raises ``ArgumentTypeError``, with what to write instead."""
    value = number_of(text)
    if value != value:
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}{advice_on(text)}")
    return value


def whole_number(text: str) -> int:
    """Return the whole number that a word of a command writes; raises ``ArgumentTypeError``."""
    if not re.fullmatch(r"\s*[-+]?[0-9]+\s*", text):
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}")
    return int(text)


def number_of(item: object) -> float:
    """Return an entry as a number, NaN where it is none."""
    try:
        is_none = isinstance(item, bool | np.bool_) or (isinstance(item, str) and ("_" in item or not item.isascii()))  # 1_0 is of Python
        return float("nan") if is_none else float(item)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return float("nan")
