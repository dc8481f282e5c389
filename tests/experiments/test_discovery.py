"""Experiments are found by where they stand: every module that defines ``EXPERIMENT`` is a command, and no list names it again."""

import datetime
import importlib
import itertools
import re

import pytest

from experiments.__main__ import main, parser
from experiments.common.experiment import find_experiments, module_names
from tests.support.paths import ROOT

FOLDER = ROOT / "experiments"
DEFINING = [path for path in sorted(FOLDER.rglob("*.py")) if re.search(r"^EXPERIMENT = ", path.read_text(encoding="utf-8"), re.MULTILINE)]


def test_every_module_with_an_experiment_is_found_under_its_own_name():
    assert len(DEFINING) >= 19
    assert sorted(find_experiments()) == sorted(path.stem.replace("_", "-") for path in DEFINING)


@pytest.mark.parametrize("path", DEFINING, ids=lambda path: path.stem)
def test_an_experiment_belongs_to_its_module(path):
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    name = path.stem.replace("_", "-")
    assert find_experiments()[name] is module.EXPERIMENT
    assert module.EXPERIMENT.name == name and module.EXPERIMENT.text == module.__doc__


def test_modules_that_run_something_are_not_imported():
    assert {"experiments.guo_2022.rpol", "experiments.delay_sweep"} <= set(module_names())
    assert "experiments.__main__" not in module_names()


def test_positions_keep_the_experiments_of_a_paper_together(capsys):
    experiments = find_experiments()
    positions = [experiment.position for experiment in experiments.values()]
    assert positions == sorted(positions)
    folders = {path.stem.replace("_", "-"): path.parent.name for path in DEFINING}
    groups = [folder for folder, _ in itertools.groupby(folders[name] for name in experiments) if folder != FOLDER.name]
    assert len(groups) == len(set(groups))
    assert main(["list"]) == 0
    named = [line.split()[0] for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]  # others go on with a title
    assert named == list(experiments)


def test_no_module_but_the_experiments_own_names_it():
    """Adding an experiment is adding its file: the command line and the shared code know none by name."""
    shared = [FOLDER / "__init__.py", FOLDER / "__main__.py", *sorted((FOLDER / "common").glob("*.py"))]
    for path in shared:
        text = path.read_text(encoding="utf-8")
        assert not [own.stem for own in DEFINING if re.search(rf"import {own.stem}\b|\.{own.stem} import", text)], path.name


@pytest.mark.parametrize("reserved", ["list", "all", "trace", "bench"])
def test_no_experiment_takes_the_name_of_a_command(reserved):
    assert reserved not in find_experiments()
    assert reserved in parser().format_help()


MEASURED = re.compile(r"Measured (\d{4}-\d\d-\d\d) by `{1,2}python -m experiments ([^`]+)`")
TABLE = re.compile(r"^ *=+ +=+|^\|.*\| *\d[\d.,]* ", re.MULTILINE)  # of reStructuredText; or of Markdown, with numbers


def measured(text, commands):
    """Where the text says when and by which command its figures were measured, the experiment's name first."""
    found = MEASURED.search(text)
    assert found, "say when and by which command the figures were measured"
    datetime.date.fromisoformat(found[1])
    commands.parse_args(found[2].split())
    return found.start(), found[2].split()[0]


def test_figures_in_texts_have_a_date_and_a_command():
    commands = parser()
    for name, experiment in find_experiments().items():
        start, command = measured(experiment.text, commands)
        table = TABLE.search(experiment.text)
        assert command == name and (table is None or start < table.start())
    files = [
        *ROOT.glob("*.md"),
        ROOT / "notebooks/pages/speed.md",
        *(path for part in ("jaxbandit", "experiments") for path in (ROOT / part).rglob("*.py")),
    ]
    tables = {path: TABLE.search(path.read_text(encoding="utf-8")) for path in files}
    tables = {path.name: measured(path.read_text(encoding="utf-8"), commands)[0] < found.start() for path, found in tables.items() if found}
    assert {"speed.md", "config_gp.py"} <= set(tables) and all(tables.values())
