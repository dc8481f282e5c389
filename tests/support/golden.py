"""Golden files of texts and values that users rely on.

``pytest -n 0 -m "full or not full" --write-golden -k golden`` writes them anew; the change then shows in them.
"""

import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from tests.support.paths import TESTS

FOLDER = TESTS / "golden"


class Golden:
    """One golden file of plain values by key."""

    def __init__(self, name: str, *, write: bool) -> None:
        self.file, self.write = FOLDER / f"{name}.json", write

    def values(self) -> dict[str, Any]:
        return json.loads(self.file.read_text()) if self.file.exists() else {}

    def check(self, key: str, found: Any) -> None:
        """Compare a value with the file's."""
        self.check_all({key: found})

    def check_all(self, found: Mapping[str, Any]) -> None:
        """Compare values with those of the file under the same keys."""
        given, known = json.loads(json.dumps(found, default=plain)), self.values()
        if self.write:
            FOLDER.mkdir(exist_ok=True)
            known = known | given
            lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in sorted(known.items())]
            self.file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        assert given == {key: known.get(key, "not in the golden file") for key in given}

    def check_whole(self, found: Mapping[str, Any]) -> None:
        """Compare values with the whole file, so that lost keys show."""
        if self.write:
            self.file.unlink(missing_ok=True)
        self.check_all(found)
        assert self.values().keys() - found.keys() == set()

    def check_bits(self, key: str, found: Any) -> None:
        """Compare rounded values on the version of JAX that wrote them.

        Others round differently; there the references hold the same choices against their scores.
        """
        version = f"{key} by JAX {jax.__version__}"
        if self.write or version in self.values():
            self.check(version, found)


def plain(value: Any) -> Any:
    """Return an array or a number as JSON has it."""
    return np.asarray(value).tolist()
