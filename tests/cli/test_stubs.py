"""Stubs of additions, as written and filled in."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jaxbandit.cli import main
from jaxbandit.cli.stubs import STUBS
from tests.support.paths import ROOT

NAMES = {
    "algorithm": "NewRule",
    "kernel": "NewKernel",
    "problem": "new_problem",
    "policy": "NewPolicy",
    "plot": "new_plot",
    "experiment": "new_study",
}
# Code in place of each NotImplementedError, by the start of its words.
FILLED = {
    "fill in the score": "return Score(estimate.reward)",
    "fill in, from policies": "from tests.oracles.policies import unconstrained\n"
    "    return unconstrained(model, record, strategy='bounds').scores",
    "fill in the covariance": "s = math.sqrt(7) * distance(squared)\n        return (1 + s + 2 * s**2 / 5 + s**3 / 15) * jnp.exp(-s)",
    "fill in from_tables": "domain = grid([0.0], [6.0], points_per_axis)\n    x = np.asarray(domain.points)[:, 0]\n    return from_tables("
    "domain, np.exp(-((x - 5) ** 2)), np.cos(x) - 0.9, noise=Gaussian(variance=noise_variance), name='new_problem')",
    "fill in booleans": "return super().taken(feedback, chosen) & (feedback.ages <= 3)[:, None]",
    "fill in lines": "drawn = statistics.results_at_hand(results, problem)['regret'].isel(round=-1)\n    axis = one_axis(ax, (5.0, 3.6))\n"
    "    axis.plot(drawn.values.ravel())\n    axis.set(xlabel='trial', ylabel='regret')\n    return axis",
    "runs: list[Run] = []": "from jaxbandit import Rpol, kernels, problems, surrogate\n    problem = problems.sine(9)\n"
    "    runs = [Run('a', problem, Rpol(), surrogate(problem.domain, kernels.Matern52(), noise_variance=0.1))]",
    "fill in its value": "assert problems.new_problem(601).optimum().value == pytest.approx(1)",
    "fill in the difference": "testing.check_policy(feedback.NewPolicy, late=3)",
}
CHECKED = """
import sys
from pathlib import Path
import jax
import numpy as np
import jaxbandit as jb
from experiments.common.experiment import find_experiments
from jaxbandit import testing
assert Path(jb.__file__).is_relative_to(Path.cwd()) and jb.ALGORITHMS["newrule"] is jb.NewRule
def matern72(x, y):
    s = np.sqrt(7 * np.sum((x[:, None] - y[None]) ** 2, axis=-1))
    return (1 + s + 2 * s**2 / 5 + s**3 / 15) * np.exp(-s)
checks = {
    "algorithm": lambda: testing.check_algorithm(jb.NewRule, rounds=2, precision="float32"),
    "kernel": lambda: testing.check_kernel(jb.kernels.NewKernel, formula=matern72),
    "problem": lambda: testing.check_problem(jb.problems.new_problem, draws=400),
    "policy": lambda: testing.check_policy(jb.feedback.NewPolicy, late=3),
    "plot": lambda: testing.check_plot(jb.report.plots.new_plot, run(), problem),
    "experiment": lambda: find_experiments()["new-study"].build(find_experiments()["new-study"].quick),
}
problem = jb.problems.sine(20)
model = jb.surrogate(problem.domain, jb.kernels.Matern52(), noise_variance=0.1)
run = lambda: jb.simulate(problem, jb.Rpol(), model, horizon=2, trials=2, key=0)
for kind in sys.argv[1:]:
    try:
        checks[kind]()
        print(kind, "passes")
    except (NotImplementedError, jb.InvalidArgument) as error:
        print(kind, "fails:", error)
"""


def in_checkout(checkout: Path, *command: str) -> str:
    """Return the output of Python in a copy of the repository."""
    given = {"cwd": checkout, "env": os.environ | {"PYTHONPATH": str(checkout)}, "timeout": 300}
    found = subprocess.run([sys.executable, *command], capture_output=True, text=True, **given)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a copy of the repository with a stub of each kind."""
    copy = tmp_path_factory.mktemp("checkout")
    for folder in ("jaxbandit", "experiments", "tests", "notebooks/algorithms"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", "*.png", "*.svg", "golden"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(copy)
        for kind, name in NAMES.items():
            assert main(["new", kind, name]) == 0
    return copy


def test_a_stub_of_each_kind_is_good_python(checkout: Path) -> None:
    assert set(NAMES) == set(STUBS)
    in_checkout(checkout, "-m", "ruff", "check", ".")
    in_checkout(checkout, "-m", "ruff", "format", "--check", ".")
    registry = (checkout / "jaxbandit/algorithms/registry.py").read_text(encoding="utf-8")
    assert registry.index("oco import") > registry.index("newrule import NewRule as NewRule\n") > registry.index("duals")


def test_files_of_an_addition_are_at_most_those_of_the_guide() -> None:
    assert {kind: len(files) for kind, files in STUBS.items()} == {
        "algorithm": 5, "kernel": 2, "problem": 2, "policy": 2, "plot": 1, "experiment": 1,
    }  # fmt: skip


@pytest.mark.full
def test_stubs_fail_the_checks_of_their_kind_until_they_are_filled_in(checkout: Path, tmp_path: Path) -> None:
    script = tmp_path / "checked.py"
    script.write_text(CHECKED, encoding="utf-8")
    before = in_checkout(checkout, str(script), *NAMES)
    assert re.findall(r"^(\w+) fails: ", before, re.MULTILINE) == list(NAMES), before
    for path in [path for folder in ("jaxbandit", "tests", "experiments") for path in (checkout / folder).rglob("*.py")]:
        text = path.read_text(encoding="utf-8")
        for words, code in FILLED.items():
            text = re.sub(rf'(raise NotImplementedError\(")?{re.escape(words)}.*', lambda found, code=code: code, text)
        path.write_text(text, encoding="utf-8")
    assert in_checkout(checkout, str(script), *NAMES).split() == [word for kind in NAMES for word in (kind, "passes")]
    played = in_checkout(checkout, "-m", "pytest", "-n", "0", "tests/algorithms/test_references.py", "-k", "newrule")
    assert "." in played.split()[0]


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("algorithm", "Rpol", "jaxbandit/algorithms/rpol.py has Rpol already; choose another name"),
        ("algorithm", "SafeOpt", "jaxbandit/algorithms/registry.py has SafeOpt already"),
        ("experiment", "boxes", "experiments/boxes.py has boxes already"),
        ("plot", "curves", "jaxbandit/report/plots.py has curves already"),
        ("kernel", "matern", "name: must be a capital, then letters and digits, such as Matern72, got 'matern'"),
        ("problem", "Two valleys", "name: must be small letters, digits and _, such as two_valleys, got 'Two valleys'"),
    ],
)
def test_names_that_are_taken_or_no_names_are_refused(kind: str, name: str, words: str, checkout: Path, monkeypatch, capsys) -> None:
    before = {path: path.read_bytes() for path in checkout.rglob("*.py")}
    monkeypatch.chdir(checkout)
    assert main(["new", kind, name]) == 2
    assert words in capsys.readouterr().err
    assert {path: path.read_bytes() for path in checkout.rglob("*.py")} == before


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "kernel", "Matern72"]) == 2
    assert f"new: {tmp_path} is no checkout of jaxbandit; clone the repository" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
