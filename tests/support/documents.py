"""Runs of documents' code, many of them in one process.

A program is a list of cells, as a notebook has them; Python blocks of a Markdown page are such cells, too. Each program has a namespace and
an empty directory of its own. Run as a script it is that process.
"""

import gc
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.support.paths import ROOT


class Shown(NamedTuple):
    """Text, values of last lines, and programs of the first cell."""

    text: str
    first_cell: int


def python_blocks(page: Path) -> list[str]:
    """The Python blocks of a Markdown page."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def smaller(code: str, numbers: Mapping[str, int]) -> str:
    """Return code with smaller numbers, as in ``trials=9`` or ``"trials": 9``."""
    for name, number in numbers.items():
        code = re.sub(rf"\b({name}(?:=|\": | = |\())\d+\b", rf"\g<1>{number}", code)
    return code


def run_together(programs: dict[str, list[str]], place: Path) -> dict[str, Shown]:
    """Return outputs of programs that one process runs in order.

    Their directories are below ``place``, and a program that fails ends all.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg", "IPYTHONDIR": str(place / "ipython")}
    command = [sys.executable, "-m", "tests.support.documents", json.dumps(programs)]
    result = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    shown = re.findall(r"^== (.*)\n((?s:.*?))^== first cell (\d+)\n", result.stdout, flags=re.MULTILINE)
    assert [name for name, _, _ in shown] == list(programs)
    return {name: Shown(text, int(count)) for name, text, count in shown}


def run(programs: dict[str, list[str]]) -> None:
    """Run the cells, and count the programs of the first one."""
    import jax
    from IPython.core.interactiveshell import InteractiveShell
    from matplotlib import pyplot

    from tests.support.counted import COMPILED, Counted

    place, shell = Path.cwd(), InteractiveShell.instance()
    # JAX then has compiled programs of its own.
    jax.random.key(0)
    for name, cells in programs.items():
        print(f"== {name}", flush=True)
        own = place / re.sub(r"\W", "-", name)
        own.mkdir()
        os.chdir(own)
        shell.reset(new_session=True)
        # Spawned processes look for it as in a kernel's main module.
        shell.user_ns["__spec__"] = None
        first = 0
        for cell in cells:
            with Counted() as events:
                shell.run_cell(cell).raise_error()
            first = first or events[COMPILED]
            pyplot.close("all")
        print(f"== first cell {first}", flush=True)
        # Garbage collection need not look through the rest again.
        gc.freeze()


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
