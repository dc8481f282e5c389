"""Experiments are found by their place."""

import datetime
import importlib
import itertools
import re
import types

import nbformat
import pytest

import jaxbandit
from experiments import texts
from experiments.__main__ import main, parser
from experiments.common.experiment import find_experiments, module_names, options_from
from experiments.guo_2022 import rpol
from experiments.texts import Stated, agree, cells_of, found_by, look, outputs_of, stale, statements, text_of
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


def test_options_that_list_names_refuse_others_and_take_those_of_their_defaults(tmp_path, capsys):
    choices = [(experiment, option) for experiment in find_experiments().values() for option in experiment.choices]
    assert len(choices) >= 12
    for experiment, option in choices:
        assert main([experiment.name, f"--{option}", "nobody", "--out", str(tmp_path / "out"), "--no-cache"]) == 2
        assert re.match(rf"error: --{option}: must be one of .*; got 'nobody'", " ".join(capsys.readouterr().err.split()))
        for reduced in (False, True):
            given = (experiment.quick if reduced else experiment.defaults).extra[option]
            assert options_from(parser(quick=reduced).parse_args([experiment.name])).extra[option] == given
            assert set(given) <= set(experiment.choices[option])


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
    # Other lines continue a title.
    named = [line.split()[0] for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert named == list(experiments)


def test_no_module_but_the_experiments_own_names_it():
    """Adding an experiment adds one file."""
    shared = [FOLDER / "__init__.py", FOLDER / "__main__.py", *sorted((FOLDER / "common").glob("*.py"))]
    for path in shared:
        text = path.read_text(encoding="utf-8")
        assert not [own.stem for own in DEFINING if re.search(rf"import {own.stem}\b|\.{own.stem} import", text)], path.name


@pytest.mark.parametrize("reserved", ["list", "all", "trace", "bench"])
def test_no_experiment_takes_the_name_of_a_command(reserved):
    assert reserved not in find_experiments()
    assert reserved in parser().format_help()


MEASURED = re.compile(r"Measured (\d{4}-\d\d-\d\d) by `{1,2}python -m experiments ([^`]+)`")
# Tables are of reStructuredText, or of Markdown with numbers.
TABLE = re.compile(r"^ *=+ +=+|^\|.*\| *\d[\d.,]* ", re.MULTILINE)


def measured(text, commands):
    """Return places where texts date their figures."""
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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rpol", "--horizon", "0"], "--horizon"),
        (["rpol", "--trials", "0"], "--trials"),
        *(([name, option, "9" * 30], option) for name in ("rpol", "bpe") for option in ("--trials", "--horizon", "--seed")),
        (["rpol", "--points-per-axis", "1"], "--points-per-axis"),
        (["trace", "rpol", "--algorithm", "nope", "--out", "t.npz"], "cbo-ucb"),
        (["trace", "rpol", "--algorithm", "rpol", "--trial", "100", "--out", "t.npz"], "trial"),
        (["trace", "rpol", "--algorithm", "rpol", "--out", "t.csv"], ".npz"),
    ],
)
def test_bad_arguments_are_named(arguments, words, tmp_path, capsys):
    if arguments[0] != "trace":
        arguments = [*arguments, "--out", str(tmp_path / "out")]
    else:
        arguments = [a if not a.startswith("t.") else str(tmp_path / a) for a in arguments]
    assert main(arguments) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error:") and words in printed
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_a_grid_without_feasible_points_runs_and_says_so(tmp_path, capsys, monkeypatch):
    """All three compile as CONFIG, so one program runs them."""
    as_config = dict.fromkeys(("Rpol", "Cbo"), lambda estimator, **_: jaxbandit.Config(estimator=estimator))
    monkeypatch.setattr(rpol, "jb", types.SimpleNamespace(**vars(jaxbandit) | as_config))
    assert main(["rpol", "--trials", "2", "--horizon", "20", "--points-per-axis", "3", "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "no grid point is feasible" in printed and "undefined" in printed


def test_list_names_the_experiments(capsys):
    assert main(["list"]) == 0
    listed = capsys.readouterr().out
    assert listed.split()[0] == "rpol" and main([]) == 0 and capsys.readouterr().out == listed


STATEMENTS = [(run, one) for run, stated in statements().items() for one in stated]


@pytest.mark.parametrize(("run", "one"), STATEMENTS, ids=lambda part: part if isinstance(part, str) else part.file)
def test_every_statement_is_in_its_text_and_those_of_notebooks_are_what_they_print(run, one):
    assert found_by(one.says, text_of(texts.ROOT / one.file), one.file)
    if run.endswith(".ipynb"):
        assert one.wrong(outputs_of(cells_of(texts.ROOT / "notebooks" / run))) == []


@pytest.mark.parametrize(
    ("stated", "printed", "agreed"),
    [
        ("14.7 +- 0.1", "13.32 +- 0.20", False),
        ("26.5 +- 0.5", "26.53 +- 0.51", True),
        ("26.5 +- 0.5", "27.1", False),
        ("0.17", "0.174", True),
        ("0.17", "0.176", False),
        ("0.17", "0.18 +- 0.02", True),
        ("1,312", "1312.5 +- 34.4", True),
        ("-0.3", "0.3", False),
        ("2e-7", "2.4e-7", True),
        ("2e-7", "2.6e-7", False),
        ("84.6", "84.58", True),
        ("0.23 \u00b1 0.19", "0.231", True),
    ],
)
def test_numbers_agree_within_the_stated_interval_the_printed_one_or_rounding(stated, printed, agreed):
    assert agree(stated, printed) is agreed


def test_a_wrong_number_and_words_that_are_gone_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text("It costs 14.7 +- 0.1 a\nround, and 2 more.")
    one = Stated("page.md", "costs {cost} a round", "V(T) ... mean: {cost} and")
    assert one.wrong("V(T) at 5\nmean: 14.72 +- 0.3 and more") == []
    assert one.wrong("V(T) at 5 mean: 13.3 +- 0.2 and") == ["page.md: states 14.7 +- 0.1, the run prints 13.3 +- 0.2: costs {cost} a round"]
    assert one.wrong("nothing") == ["texts.toml: the output has nothing like 'V(T) ... mean: {cost} and'"]
    (gone,) = Stated("page.md", "cost {cost} a round", "{cost}").wrong("14.7")
    assert "page.md has nothing like" in gone
    (unnamed,) = Stated("page.md", "and {other} more", "mean: {cost}").wrong("mean: 14.7")
    assert "the run prints None" in unnamed


def notebook(printed, **metadata):
    output = nbformat.v4.new_output("stream", text=printed)
    cell = nbformat.v4.new_code_cell("print('cost 0.25 +- 0.01')", outputs=[output], metadata=metadata)
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("The cost is 0.25."), cell])


def test_stored_outputs_that_another_run_does_not_print_are_told():
    fresh = notebook("cost 0.25 +- 0.01\n").cells
    for printed, told in (
        ("cost 0.245 +- 0.01\n", 0),
        ("\n\ncost 0.25 +- 0.01", 0),
        ("cost 0.2 +- 0.01\n", 1),
        ("costs 0.25 +- 0.01\n", 1),
        ("", 1),
        ("cost 0.25 +- 0.01\nmore\n", 1),
    ):
        assert len(list(stale(notebook(printed).cells, fresh))) == told, printed
    assert list(stale(notebook("cost 0.2\n", tags=["varies"]).cells, fresh)) == []


@pytest.mark.full
def test_a_notebook_is_run_compared_and_stored_when_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "ROOT", tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    path = tmp_path / "notebooks" / "small.ipynb"
    path.parent.mkdir()
    nbformat.write(notebook("cost 0.2 +- 0.01\n"), path)
    stated = [Stated("notebooks/small.ipynb", "The cost is {cost}.", "cost {cost}")]
    old = path.read_bytes()
    (line,) = look("small.ipynb", stated, tmp_path, force=False, write=False)
    assert line == "cell 1: 'cost 0.2 +- 0.01' is stored, 'cost 0.25 +- 0.01' printed" and path.read_bytes() == old
    assert look("small.ipynb", stated, tmp_path, force=False, write=True) == []
    assert look("small.ipynb", stated, tmp_path, force=False, write=False) == []


@pytest.mark.full
def test_the_command_ends_with_1_where_a_text_is_wrong(tmp_path, monkeypatch, capsys):
    run = "rpol --trials 2 --horizon 5 --points-per-axis 9"
    (tmp_path / "page.md").write_text("The optimum is 3.5.")
    stated = Stated(str(tmp_path / "page.md"), "optimum is {best}.", "against the grid's optimum {best} (continuum")
    monkeypatch.setattr(texts, "statements", lambda: {run: [stated], "bpe": []})
    assert main(["texts", "rpol", "--out", str(tmp_path / "out"), "--no-cache"]) == 1
    said = capsys.readouterr().out
    assert f"{run}: 1 statements, 1 disagree\n  " in said and "page.md: states 3.5, the run prints " in said and "bpe" not in said
    assert main(["texts", "nobody", "--out", str(tmp_path / "out"), "--no-cache"]) == 2
