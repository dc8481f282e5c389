"""A line of progress on terminals and in notebooks."""

import io
import re

import nbformat
import pytest
from nbclient import NotebookClient

import jaxbandit as jb
from jaxbandit.host import progress
from jaxbandit.study import Run, Study, run_study

PROBLEM = jb.problems.from_tables(jb.domains.arms(2), [0.0, 1.0], [])
MODEL = PROBLEM.model(jb.kernels.White(), outputs=1)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def on_terminal(monkeypatch):
    # Pytest restores its own stream after a fixture.
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.delenv("CI", raising=False)
    return stream


def play(trials=1):
    return jb.simulate(PROBLEM, jb.RandomSearch(), MODEL, horizon=3, trials=trials, key=0)


def test_what_takes_long_shows_a_line_that_disappears(monkeypatch):
    terminal = on_terminal(monkeypatch)
    monkeypatch.setattr(progress, "WAITS", (0.0, 0.5))
    play()
    first, *_, end, last = terminal.getvalue().split("\r")
    assert first == last == "" and not end.strip()
    assert re.search(r"\rsimulate: (compiling|playing) 1 trials of 3 rounds of randomsearch, 0 s +\r", terminal.getvalue())
    run_study(Study("mine", [Run("a", PROBLEM, jb.RandomSearch(), MODEL)], trials=2, horizon=3))
    assert "\rmine: compiling " in terminal.getvalue()


def test_nothing_is_shown_otherwise(monkeypatch):
    terminal = on_terminal(monkeypatch)
    monkeypatch.setattr(progress, "WAITS", (60.0, 0.5))
    # This ends before the line.
    play()
    monkeypatch.setattr(progress, "WAITS", (0.0, 0.5))
    monkeypatch.setenv("CI", "true")
    play()
    monkeypatch.delenv("CI")
    monkeypatch.setattr(Terminal, "isatty", lambda self: False)
    play()
    assert terminal.getvalue() == ""


CELLS = """import time
from jaxbandit.host import progress
progress.WAITS = (0.0, 0.01)
with progress.shown(lambda seconds: f"compiling, {seconds:.2f} s"):
    print("before")
    time.sleep(0.3)
print("after")"""


@pytest.mark.full
def test_an_executed_notebook_holds_no_lines_of_progress(monkeypatch, tmp_path):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    cell = nbformat.v4.new_code_cell(CELLS)
    seen = []
    client = NotebookClient(nbformat.v4.new_notebook(cells=[cell]))
    note = client.process_message
    client.process_message = lambda msg, *rest: (seen.append(msg["content"].get("data", {}).get("text/plain", "")), note(msg, *rest))[1]
    client.execute()
    lines = [line for line in seen if line.startswith("compiling, ")]
    assert len(lines) > 3, "whoever watches sees it"
    printed = [output.text for output in cell.outputs if output.output_type == "stream"]
    shown = [output.data for output in cell.outputs if output.output_type == "display_data"]
    assert "".join(printed) == "before\nafter\n" and shown == [{"text/plain": ""}] and len(cell.outputs) == len(printed) + 1
