"""Numbers of texts beside those that runs print.

Run ``python -m experiments texts`` before a release.

The table ``texts.toml`` says, for a notebook or a command, where a text states its numbers and where the run prints them.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.common.experiment import find_experiments
from jaxbandit import InvalidArgument, checks

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_suffix(".toml")
VALUE, HALF = r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?", r"(?: ?(?:\+-|±) ?\d[\d,]*(?:\.\d+)?)?"
# Number of letters in a line. A row of a table is one line.
COLUMNS = "1000"


@dataclasses.dataclass(frozen=True)
class Stated:
    """Numbers that a text states, and that a run prints.

    Each ``{name}`` in ``says`` is the number at ``{name}`` in what a run ``prints``. ``{_}`` is any number.
    """

    file: str
    says: str
    prints: str

    def wrong(self, output: str) -> list[str]:
        """Return a line for each number that the text states otherwise.

        Another line says what the text or the output of its run lacks.
        """
        try:
            stated = found_by(self.says, text_of(ROOT / self.file), self.file)
            printed = found_by(self.prints, output, "the output")
        except InvalidArgument as error:
            return [str(error)]
        return [
            f"{self.file}: states {number}, the run prints {printed.get(name)}: {self.says}"
            for name, number in stated.items()
            if name not in printed or not agree(number, printed[name])
        ]


def agree(stated: str, printed: str) -> bool:
    """Return whether a printed number agrees with the stated one.

    It must lie within the stated interval, else within the printed interval, else within the rounding.
    """
    (value, half), (other, room) = parts(stated), parts(printed)
    mantissa, _, power = value.partition("e")
    digits = max(len(number.partition(".")[2]) for number in (mantissa, half))
    return abs(float(value) - float(other)) <= float(half or room or 0) + 0.5 * 10.0 ** (int(power or 0) - digits) * (1 + 1e-6)


def parts(number: str) -> tuple[str, str]:
    """Return a number and its half-width as plain digits."""
    value, _, half = number.replace(",", "").replace("±", "+-").partition("+-")
    return value.strip(), half.strip()


def found_by(pattern: str, text: str, where: str) -> dict[str, str]:
    """Return the numbers of a pattern in a text, by name.

    ``...`` is any text, and all white space is alike.
    """
    plain = re.escape(" ".join(pattern.split())).replace(re.escape(" ... "), ".*?").replace(re.escape("{_}"), VALUE + HALF)
    named = re.sub(r"\\{(\w+)\\}", lambda place: f"(?P<{place[1]}>{VALUE}{HALF})", plain)
    match = re.search(named, " ".join(text.split()))
    if match is None:
        raise InvalidArgument(f"texts.toml: {where} has nothing like {pattern!r}")
    return match.groupdict()


def text_of(path: Path) -> str:
    """Return the text of a file or of a notebook's cells."""
    if path.suffix != ".ipynb":
        return path.read_text(encoding="utf-8")
    return "\n".join(cell.source for cell in cells_of(path) if cell.cell_type == "markdown")


def cells_of(path: Path) -> list[Any]:
    """Return the cells of a notebook."""
    import nbformat

    return list(nbformat.read(path, as_version=4).cells)


def printed_by(cell: Any) -> str:
    """Return the text that a notebook's cell printed, without figures."""
    shown = [(out.get("text", ""), out.get("data", {})) for out in cell.get("outputs", [])]
    return "\n".join(text or ("" if "image/png" in data else data.get("text/plain", "")) for text, data in shown)


def outputs_of(cells: Sequence[Any]) -> str:
    """Return the text that the cells of a notebook have put out."""
    return "\n".join(map(printed_by, cells))


def stale(stored: Sequence[Any], executed: Sequence[Any]) -> Iterator[str]:
    """Yield the first line that differs, for each such cell.

    Another run does not print the stored text. The tag ``varies`` is for times.
    """
    for number, (old, new) in enumerate(zip(stored, executed, strict=True)):
        if "varies" in old.metadata.get("tags", []):
            continue
        before, after = ([*filter(str.strip, printed_by(cell).splitlines()), "nothing"] for cell in (old, new))
        for was, line in zip(before, after, strict=False):
            (words, numbers), (others, found) = ((re.split(VALUE + HALF, text), re.findall(VALUE + HALF, text)) for text in (was, line))
            if [" ".join(part.split()) for part in words] != [" ".join(part.split()) for part in others] or not all(
                map(agree, numbers, found)
            ):
                yield f"cell {number}: {was!r} is stored, {line!r} printed"
                break


def statements() -> dict[str, list[Stated]]:
    """Return the texts' statements, by the run that prints them.

    A run is a notebook or a command. All notebooks and experiments are included.
    """
    runs: dict[str, list[Stated]] = {path.name: [] for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
    runs |= {name: [] for name in find_experiments()}
    for run, table in tomllib.loads(TABLE.read_text(encoding="utf-8")).items():
        runs.setdefault(run, []).extend(Stated(one.get("file", f"notebooks/{run}"), one["says"], one["prints"]) for one in table)
    return runs


def executed(path: Path, *, write: bool) -> list[Any]:
    """Return a notebook's cells after a run, and perhaps store them."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        given: dict[str, Any] = {"extra_arguments": ["--log-level=ERROR"], "resources": {"metadata": {"path": folder}}}
        NotebookClient(notebook, timeout=None, **given).execute(env=os.environ | {"CI": "1"})
    if write:
        nbformat.write(notebook, path)
    return list(notebook.cells)


def look(run: str, stated: Sequence[Stated], out: Path, *, force: bool, write: bool) -> list[str]:
    """Run a notebook or command, and return lines of differences.

    A difference is between its output and its texts or stored outputs.
    """
    if run.endswith(".ipynb"):
        path = ROOT / "notebooks" / run
        stored, cells = cells_of(path), executed(path, write=write)
        return [*([] if write else stale(stored, cells)), *(line for one in stated for line in one.wrong(outputs_of(cells)))]
    folder = out / re.sub(r"[^\w.]+", "-", run)
    command = [sys.executable, "-m", "experiments", *shlex.split(run), "--out", str(folder), *(["--force"] if force else [])]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": COLUMNS}, check=False)
    return [line for one in stated for line in one.wrong(ended.stdout)] if ended.returncode == 0 else [f"ended with {ended.returncode}"]


def compare(names: Sequence[str], out: Path, *, force: bool, write: bool) -> int:
    """Run all or some notebooks and experiments, and print differences."""
    runs, wrong = statements(), 0
    for name in names:
        checks.one_of("NAME", name, tuple(dict.fromkeys(run.split()[0] for run in runs)))
    for run, stated in runs.items():
        if names and run.split()[0] not in names:
            continue
        lines = look(run, stated, out, force=force, write=write)
        print(f"{run}: {len(stated)} statements, {f'{len(lines)} disagree' if lines else 'all agree'}", *lines, sep="\n  ", flush=True)
        wrong += len(lines)
    return int(wrong > 0)
