"""What texts state is what runs print: the table of statements, its mechanism, and what notebooks say of their stored outputs."""

import nbformat
import pytest

from experiments import texts
from experiments.__main__ import main
from experiments.texts import Stated, agree, cells_of, found_by, look, outputs_of, stale, statements, text_of

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
