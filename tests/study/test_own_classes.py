"""Classes of a user's own in study files: the command names their file, and nothing else runs it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.common.running import with_algorithms
from jaxbandit import InvalidArgument
from jaxbandit.cli import main
from jaxbandit.core.codec import LOADED
from jaxbandit.host import executors, user_code
from jaxbandit.study import Study, from_table, grid, own_algorithm
from tests.study import kill_study

TEXT = """
import dataclasses
from typing import ClassVar
import jaxbandit as jb
from jaxbandit.algorithms.base import BeliefState, Scored
from jaxbandit.rules.scores import Score
from jaxbandit.rules.estimators import Bounds, Strategy

@jb.pytree
class FixedPenalty(Scored[BeliefState]):
    name: ClassVar[str] = "fixed"
    estimator: Strategy = Bounds()
    penalty: float = 5.0

    def score(self, state, estimate):
        return Score(estimate.reward)

@jb.pytree
class Mine(jb.Rpol):
    name: ClassVar[str] = "mine"
"""
TABLE = {"problem": {"sine": {"type": "sine", "points_per_axis": 4}}, "algorithm": {"own": {"type": "FixedPenalty", "penalty": 3.0}}}
TABLE |= {"name": "own", "trials": 2, "horizon": 4}


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[Path]:
    """A file of a class; no process knows it before, and none after."""
    path = tmp_path / "rules_of_mine.py"
    path.write_text(TEXT, encoding="utf-8")
    yield path
    forget()


def forget() -> None:
    for name in list(LOADED):
        del LOADED[name], sys.modules[name]
    executors._loaded.cache_clear()


def test_a_class_of_a_file_that_is_named_is_known_by_its_name(mine: Path) -> None:
    with pytest.raises(InvalidArgument, match="there is no algorithm 'FixedPenalty'"):
        from_table(TABLE)
    module, name = user_code.load(str(mine))
    assert user_code.load(f"{mine}:FixedPenalty") == (module, "FixedPenalty") and name == ""  # which runs nothing again
    study = from_table(TABLE)
    table = json.loads(json.dumps(study.table()))
    assert table["algorithm"]["own"]["type"] == "rules_of_mine:FixedPenalty" and from_table(table).fingerprint() == study.fingerprint()
    sent, before = executors.pickled(study.table), study.fingerprint()
    forget()
    with pytest.raises(InvalidArgument, match=r"import its module first"):
        from_table(table)
    assert executors._loaded(sent)() == table and from_table(table).fingerprint() == before  # in a worker, which is sent the text
    forget()
    mine.write_text(TEXT + "\n# changed\n", encoding="utf-8")
    user_code.load(str(mine))
    assert from_table(table).fingerprint() != before  # so that no run goes on with other code


def test_an_experiment_plays_an_algorithm_of_a_user(mine: Path) -> None:
    algorithm = own_algorithm(f"{mine}:FixedPenalty")
    sines = {"fine": {"type": "sine", "points_per_axis": 5}, "coarse": {"type": "sine", "points_per_axis": 4}}
    runs = grid(problems=sines, algorithms={"rpol": {"type": "Rpol"}, "cei": {"type": "Cei"}}, horizon=4)
    study = with_algorithms(Study("several", runs=runs, horizon=4), [algorithm])
    assert [run.label for run in study.runs[4:]] == ["FixedPenalty on fine", "FixedPenalty on coarse"]
    assert study.runs[4].model is study.runs[0].model and study.runs[5].problem is study.runs[2].problem
    for given, words in (
        (str(mine), "must name a class in the file"),
        (f"{mine}:Bounds", "there is no algorithm"),
        (f"{mine}:None_", "defines no 'None_'"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            own_algorithm(given)


@pytest.mark.full
def test_a_study_of_a_class_of_a_user_is_killed_and_goes_on_to_the_same_bits() -> None:
    """At reduced size, of one cell; ``python tests/study/kill_study.py`` does it at full size, with the library's own."""
    study, said = kill_study.ONE_CELL.replace('"Rpol"', '"Mine"'), list[str]()
    try:
        assert kill_study.kill_and_compare(1, 60, seed=1, report=said.append, study=study, own=TEXT) == 0
    finally:
        forget()
    assert len(said) == 1


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("mine.txt", "", "must be a file of Python"),
        ("not a name.py", "", "must be a file of Python"),
        ("json.py", "", "there is another module called 'json'"),
        ("failing.py", "x = 1\ny = z\n", r"failing\.py, line 2 fails: name 'z' is not defined"),
        ("unread.py", None, r"cannot read .*unread\.py"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, words: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(InvalidArgument, match=f"^with: .*{words}"):
        user_code.load(str(tmp_path / name))
    assert Path(name).stem not in LOADED and "failing" not in sys.modules
    assert main(["run", "none.toml", "--with", str(tmp_path / name)]) == 2 and "with: " in capsys.readouterr().err
