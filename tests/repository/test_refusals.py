"""Bad input raises ``InvalidArgument`` before anything compiles.

A key of that file is a test module and a call in Python; what the call needs beside the names below stands in that module. A new case is a
new key: ``pytest -n 0 --write-golden tests/repository/test_refusals.py`` writes its message.
"""

import importlib
import json
import math
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import InvalidArgument, session, study
from jaxbandit.engine.programs import play_all
from tests.support.golden import FOLDER
from tests.support.unchecked import unchecked

CALLS: dict[str, list[str]] = {}
for _key in json.loads((FOLDER / "refusals.json").read_text()):
    CALLS.setdefault(_key.partition(": ")[0], []).append(_key.partition(": ")[2])
NAMES: dict[str, Any] = {name: getattr(home, name) for home in (jaxbandit.estimators, session, study, jaxbandit) for name in home.__all__}
NAMES |= {"jaxbandit": jaxbandit, "jb": jaxbandit, "jax": jax, "jnp": jnp, "math": math, "np": np, "study": study, "unchecked": unchecked}
DIFFERENT_ELSEWHERE = r" at 0x[0-9a-f]+|(?<=fails with )(\w+):.*|(?<=[ =])\w*Tracer[(<].*|(?<=[ =])Traced<.*"


def words_of(call: str, names: dict[str, Any]) -> str:
    """Return a refusal's message, without a process's or version's words."""
    try:
        found = eval(call, names)
    except InvalidArgument as error:
        return re.sub(DIFFERENT_ELSEWHERE, r"\1", str(error).partition("\n")[0])
    except Exception as error:
        return f"not refused but failed: {type(error).__name__}: {error}"
    return f"not refused: {found!r:.60}"


@pytest.mark.parametrize("module", sorted(CALLS))
def test_golden_refusals(module: str, golden: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*given: Any, **static: Any) -> None:
        play_all.trace(*given, **static)
        raise AssertionError("nothing may compile")

    names = NAMES | vars(importlib.import_module(f"tests.{module.replace('/', '.')}"))
    monkeypatch.setattr("jaxbandit.engine.simulation.play_all", stop)
    found = {f"{module}: {call}": words_of(call, names) for call in CALLS[module]}
    assert [key for key, words in found.items() if words.startswith("not refused")] == []
    golden("refusals").check_all(found)
