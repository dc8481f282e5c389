"""A line about what takes long: on terminals and in notebooks only, from two seconds on, and gone at the end."""

import io
import re

import jaxbandit as jb
from jaxbandit.core import waiting
from jaxbandit.study import Run, Study, run_study

PROBLEM = jb.problems.from_tables(jb.domains.arms(2), [0.0, 1.0], [])
MODEL = PROBLEM.model(jb.kernels.White(), outputs=1)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def on_terminal(monkeypatch):
    stream = Terminal()  # here and not in a fixture, after whose end pytest has its own again
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.delenv("CI", raising=False)
    return stream


def play(trials=1):
    return jb.simulate(PROBLEM, jb.RandomSearch(), MODEL, horizon=3, trials=trials, key=0)


def test_what_takes_long_shows_a_line_that_disappears(monkeypatch):
    terminal = on_terminal(monkeypatch)
    monkeypatch.setattr(waiting, "AFTER", 0.0)
    play()
    first, *_, end, last = terminal.getvalue().split("\r")
    assert first == last == "" and not end.strip()
    assert re.search(r"\rsimulate: (compiling|playing) 1 trials of 3 rounds of randomsearch, 0 s +\r", terminal.getvalue())
    run_study(Study("mine", [Run("a", PROBLEM, jb.RandomSearch(), MODEL)], trials=2, horizon=3))
    assert "\rmine: compiling " in terminal.getvalue()


def test_nothing_is_shown_otherwise(monkeypatch):
    terminal = on_terminal(monkeypatch)
    monkeypatch.setattr(waiting, "AFTER", 60.0)
    play()  # which ends before the line
    monkeypatch.setattr(waiting, "AFTER", 0.0)
    monkeypatch.setenv("CI", "true")
    play()
    monkeypatch.delenv("CI")
    monkeypatch.setattr(Terminal, "isatty", lambda self: False)
    play()
    assert terminal.getvalue() == ""
