"""Runs that are kept in a file of JSON lines.

Each is written as soon as it has ended, so that a later command plays only the missing runs.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.common.running import progress
from jaxbandit import InvalidArgument


class Kept:
    """Outcomes of runs by a tuple, in memory or in a file."""

    def __init__(self, file: str | None) -> None:
        self._file = None if file is None else Path(file)
        self._found: dict[tuple[Any, ...], dict[str, Any]] = {}
        if self._file is not None and self._file.exists():
            try:
                lines = [json.loads(line) for line in self._file.read_text(encoding="utf-8").splitlines()]
                self._found = {tuple(line.pop("of")): line for line in lines}
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise InvalidArgument(f"--runs: {file} has a line that is no run; name another file, or remove that line") from error

    def outcome(self, of: tuple[Any, ...], play: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return a kept outcome, or play the run and keep it."""
        if of not in self._found:
            with warnings.catch_warnings():
                # Fits warn of hyper-parameters that few values do not determine, and libraries of fits that they try again.
                warnings.simplefilter("ignore")
                self._found[of] = play()
            progress(f"{', '.join(map(str, of))}: {', '.join(f'{name} {value}' for name, value in self._found[of].items())}"[:200])
            if self._file is not None:
                with self._file.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"of": of, **self._found[of]}) + "\n")
        return self._found[of]
