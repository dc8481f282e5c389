"""Tests of what commands refuse, and of what they say of grids on which nothing is feasible."""

import types

import pytest

import jaxbandit
from experiments.__main__ import main
from experiments.guo_2022 import rpol


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
    """All three as CONFIG, the one that finds out: the words are the same, and one program plays them."""
    as_config = dict.fromkeys(("Rpol", "Cbo"), lambda estimator, **_: jaxbandit.Config(estimator=estimator))
    monkeypatch.setattr(rpol, "jb", types.SimpleNamespace(**vars(jaxbandit) | as_config))
    assert main(["rpol", "--trials", "2", "--horizon", "20", "--points-per-axis", "3", "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "no grid point is feasible" in printed and "undefined" in printed


def test_list_names_the_experiments(capsys):
    assert main(["list"]) == 0
    listed = capsys.readouterr().out
    assert listed.split()[0] == "rpol" and main([]) == 0 and capsys.readouterr().out == listed
