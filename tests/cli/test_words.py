"""Messages of commands name options, files and commands, never Python."""

import re
from pathlib import Path
from typing import Any

import pytest

from jaxbandit.cli import main
from jaxbandit.core.doors import advice_on
from jaxbandit.session import Session, read_toml

STUDY = """
trials = 3
horizon = 5
[problem.p]
type = "gp_draws"
#problem
[algorithm.a]
type = "Rpol"
#algorithm
[model]
kernel = {type = "SquaredExponential"}
#model
"""
EXPERIMENT = """
objective = "maximise r"
constraints = ["c <= 1"]
#experiment
[axis.x]
low = 0
high = 1
points = 5
#axis
[axis.y]
low = 0
high = 1
points = 5
"""
FAULTS = {
    "noise = 3 #problem": 'must be a noise model, such as {type = "Gaussian", variance = 0.05}, got 3',
    "attempts = true #problem": "must be a whole number from 1 to 1000000, got true",
    'domain = {type = "grid", low = [0], high = [1]} #problem': "it lacks points_per_axis",
    "estimator = 4 #algorithm": 'must be an exploration strategy, such as {type = "Bounds"}, got 4',
    "[algorithm.b]\ntype = 'Refitted' #algorithm": "it lacks algorithm",
    "length_scale = 3 #model": "needs length_scale_range = [low, high]",
    "form = 'x' #model": "must be one of auto, features, product, rows",
    "[[run]]\nproblem = 'p' #model": "it lacks label, algorithm, delay",
    "[keep]\nevery = 2\nlog_spaced = 3 #model": "got every = 2 and log_spaced = 3",
    "standardise = false #experiment": "standardise: must be true without a model",
    "units = {q = 'm'} #experiment": "an axis has its own, unit in its table",
    "units = {r = 3} #experiment": "units.r: must be text",
    "unit = 3 #axis": "axis.x.unit: must be text, got 3",
    "[axis.z]\nvalues = [2024-01-03, 2024-01-04] #axis": "axis.z.values: expected numbers, got [2024-01-03, 2024-01-04]",
    "[axis.z]\ncategories = ['a'] #axis": "axis.z.categories: must be at least two texts",
    "[algorithm]\ntype = 'Oracle' #axis": "only a simulation knows",
    "[algorithm]\ntype = 'Nope' #axis": "there is no algorithm 'Nope'",
    "[algorithm]\ntype = 'Bpe' #axis": "give mean_delay, or aware = false",
    "[algorithm]\ntype = 'Admmbo'\n[delay]\ntype = 'Constant' #axis": 'give delay = {type = "NoDelay"}, got {type = "Constant"',
    "[feedback]\ntype = 'Wait'\n[delay]\ntype = 'NoDelay' #axis": 'got {type = "Wait"}',
}
PYTHON = re.compile(r"\w\(|\b(None|True|False)\b|jaxbandit\.|[a-z_]{2,}=\w|\.py\b|tuple|self\.")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def ends(capsys: Any, status: int, *words: str) -> str:
    """Return the last line of a command that fails with a status."""
    try:
        assert main([*words]) == status
    except SystemExit as ended:
        assert ended.code == status
    said = capsys.readouterr()
    return str(said.out + said.err)


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_with_a_file_is_said_as_files_say_it(fault: str, capsys: Any) -> None:
    line, _, place = fault.rpartition(" #")
    of_study = f"#{place}" in STUDY
    Path("f.toml").write_text((STUDY if of_study else EXPERIMENT).replace(f"#{place}", line), encoding="utf-8")
    words = ends(capsys, 2, *(("run", "f.toml", "--dry-run", "--no-cache") if of_study else ("session", "new", "f.toml")))
    assert FAULTS[fault] in words
    assert not PYTHON.search(words), words


def test_options_stand_where_arguments_would(capsys: Any) -> None:
    Path("e.toml").write_text(EXPERIMENT, encoding="utf-8")
    ends(capsys, 0, "session", "new", "e.toml")
    ends(capsys, 0, "session", "ask", "e")
    ends(capsys, 0, "session", "tell", "e", "1", "--value", "r=1")
    Path("t.csv").write_text("x,y,r,Date,lab note\n0,0,1,2024-01-03,a\n", encoding="utf-8")
    Path("o.csv").write_text("x,y,r\n0.1,0,1\n", encoding="utf-8")
    told = [
        (("ask", "nowhere"), "holds no session; session new makes one"),
        (("ask", "e", "--wait=-1"), "error: --wait: must be >= 0"),
        (("tell", "e", "1", "--value", "r=2"), "session tell with --correct replaces it"),
        (("tell", "e", "1", "--value", "q=1"), "error: --value: there is no output 'q'"),
        (("tell", "e", "1", "--constraint", "1", "--constraint", "2"), "error: --constraint: must hold 1 values"),
        (("tell", "e", "--csv", "nowhere.csv"), "error: --csv: cannot read 'nowhere.csv'"),
        (("tell", "e", "--csv", "t.csv"), "leave them out by --ignore Date --ignore 'lab note'"),
        (("tell", "e", "--csv", "o.csv"), "with --off-grid round the nearest point stands for one"),
        (("history", "e", "--csv", "e.toml"), "error: --csv: e.toml exists; choose another name or add --force to replace it"),
        (("recommend", "e", "--probability", "2"), "error: --probability: must lie in [0, 1]"),
        (("plot", "e", "--out", "x.doc"), "error: --out: must end in one of"),
        (("drop", "e", "x"), "TICKET: must be a whole number, got 'x'"),
        (("ask", "e", "-n", "1.5"), "-n/--count: must be a whole number, got '1.5'"),
    ]
    for command, expected in told:
        words = ends(capsys, 2, "session", *command)
        assert expected in words
        assert not PYTHON.search(words.rpartition("error:")[2]), words
    words = ends(capsys, 0, "session", "tell", "e", "--csv", "o.csv", "--off-grid", "round")
    assert "warning: --csv: it lies off the grid" in words and ".py" not in words


NUMBERS = {
    "71,3": "numbers have a decimal point",
    "1.234,5": "numbers have a decimal point",
    "1 000": "numbers have a decimal point",
    "5%": "write the number without a sign or a unit",
    "20 °C": "write the number without a sign or a unit",
    "<0.5": "write the limit or half of it",
    "> 3": "write the limit or half of it",
    "2024-01-03": "a date is no number",
    "3.1.2024": "a date is no number",
    "n/a": "",
    "1_0": "",
    "0x10": "",
    "nan": "",
    "": "",
}


@pytest.mark.parametrize("text", NUMBERS)
def test_what_is_no_number_is_refused_with_what_to_write(text: str, capsys: Any) -> None:
    words = ends(capsys, 2, "session", "tell", "e", "1", "--value", f"r={text}")
    assert f"argument --value: must be a number, got {text!r}{advice_on(text)}" in words
    assert NUMBERS[text] in words and bool(advice_on(text)) == bool(NUMBERS[text])


def test_several_points_are_asked_for_at_once(capsys: Any) -> None:
    Path("e.toml").write_text(EXPERIMENT, encoding="utf-8")
    ends(capsys, 0, "session", "new", "e.toml")
    words = ends(capsys, 0, "session", "ask", "e", "-n", "4")
    assert re.findall(r"ticket +(\d)", words) == ["1", "2", "3", "4"]
    with Session.open("e", read_only=True) as session:
        assert len(session.pending) == 4
    assert "error: --count: must be a whole number >= 1, got 0" in ends(capsys, 2, "session", "ask", "e", "--count", "0")


@pytest.mark.parametrize(("written", "sign"), [("maximise", 1), ("Maximize", 1), ("minimise", -1), ("minimize", -1)])
def test_an_objective_is_read_in_either_spelling_and_the_algorithm_is_cei(written: str, sign: int) -> None:
    Path("e.toml").write_text(EXPERIMENT.replace("maximise", written), encoding="utf-8")
    specification = read_toml("e.toml")
    assert specification.outputs.objective.sign == sign and specification.algorithm.name == "cei"
