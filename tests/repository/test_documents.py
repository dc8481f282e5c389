"""Python blocks of documents, and notebooks, run."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

import jaxbandit
from tests.support.documents import Shown, python_blocks, run_together, smaller
from tests.support.paths import ROOT

SCRIPT = ROOT / "tests" / "repository" / "user_script.py"
README = ROOT / "README.md"
PAGES = {f"{folder}/{path.stem}": path for folder in ("pages", "howto") for path in sorted((ROOT / "notebooks" / folder).glob("*.md"))}
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SOURCES = {"README": README, "script": SCRIPT, **PAGES, **{path.stem: path for path in NOTEBOOKS}}
# Numbers that pages are run with here, by what they are numbers of: those of notebooks, with which pages share programs.
SMALLER = {"sine": 9, "points_per_axis": 9, "horizon": 8, "trials": 20, "every": 4, "pairs": 16, "random": 0}
SMALLER |= {"range": 3, "evaluations": 4, "n_trials": 4, "left": 1}
# These parts take long after other tests have run them, so cheaper ones stand in: a learner that compiles in six seconds, a descent of 40
# steps, a report with figures, and the signal that kills a worker.
REPLACED = {
    "pages/boxes": ("jb.Refitted(\n    algorithm=jb.Cei(), at_start=True\n)", "jb.RandomSearch()"),
    "pages/derivatives": ("descend(loss, params, 1)", "descend(loss, params, 1, steps=2, validate=16)"),
    "clusters": ("signal.SIGKILL", "0"),
    "script": ('print(jb.report.html.write_report(directory / "study").name)', ""),
}
# Parts of pages' output. Pages without Python blocks, or with tests of their own, are left out.
RECOMMENDED = r"Recommendation\(index=\d+, point=\{'"
PRINTED = {
    "pages/boxes": r"^Certificate\(value=.*\(20, 8, 3\)",
    "pages/coming_from": r"^\{'ccp_alpha': .*\} 0\.\d+\n\[0 0 0\]",
    "pages/contexts": r"^-?\d+\.\d*\n\[0\.\d.*\]\n0\.9\d*\n\{'outdoors': 5\.0, 'heating': 0\.\d+\}",
    "pages/delays": r"^0\.\d+\n$",
    "pages/derivatives": r"'penalty_growth': .* wins -?\d+\.\d+ a round, 95% interval \(",
    "pages/figures": r"^$",
    "pages/float32": r"precision float32\n.*precision float64",
    "pages/models": r"^\(Scale\(kernel=SquaredExponential\(length_scale=",
    "pages/problems": r"^dose=0.2, catalyst=Ni reward: form 'product'.*by point",
    "pages/reproducibility": r"^$",
    "pages/safe": r"^rounds with an unsafe point: \d+\ncondition .*\nas modelled .*\nlate values ",
    "pages/scaling": r"reward: form 'product'.*constraint 1: form",
    "pages/sessions": rf"^{RECOMMENDED}rate': ",
    "pages/studies": r"'algorithm': 7, 'trial': 20, 'round': 2",
    "pages/theory": r"^config\n.*claimed.*\n(?s:.*)exponent of positive regret",
    "howto/am_i_done": r"^Optimised\(evaluations: 4; .*\nSettlement\(probability=",
    "howto/four_jobs": rf"^{RECOMMENDED}rate': ",
    "howto/from_optuna": r"'width': \d+\} 0\.\d+\n.*'accuracy': 0\.",
    "howto/in_a_notebook": r"Surrogate\(.*\nrpol .*average violation",
    "howto/mixture": r"^Optimised\(evaluations: 4; best: cement=",
    "howto/is_the_model_right": r"^- cost of ticket \d+ seems to have a value 1000 times.*\n(?s:.*)Ticket \d+ was asked for at x = ",
    "howto/my_run_crashed": rf"^{RECOMMENDED}x': ",
    "howto/own_algorithm": r"(?s)\ngreedy .*\nRPOL-UCB .*hard violation +RPOL-UCB - greedy ",
    "howto/own_program": r"^\[\d\.\d* .*\] 0\n\[\d+\.\d* ",
    "howto/plant_csv": rf"incomplete runs: \[8\]\ntry Ticket\(number=9, .*\n{RECOMMENDED}temperature': (?s:.*)first \[\{{'temp",
    "howto/simulate_first": r"(?s)^algorithm +in flight +product 10%.*is recommended: after \d+ .*Config +4 .*\[\[",
    "howto/sweep_table": r"\\begin\{table\}.*\\end\{table\}",
    "howto/ten_parameters": r"^Optimised\(evaluations: 4; .*\nOptimised\(evaluations: 4, 1 failed; ",
}


# The numbers that a notebook is run with here, in place of those in its cell with the tag ``parameters``.
REDUCED = {
    "boxes": {"trials": "2", "horizon": "3", "first": "6"},
    "clusters": {"points": "9", "horizon": "8", "trials": "20", "tasks": "4", "workers": "1"},
    "delays": {"points": "9", "horizon": "8", "trials": "2"},
    "differentiable": {"points": "9", "horizon": "8", "pairs": "16", "steps": "2", "trials": "20"},
    "first_steps": {"points": "9", "horizon": "8", "trials": "20"},
    "kernels": {"points": "9", "horizon": "8", "trials": "2", "data": "16"},
    "old_data": {"runs": "6", "late": "1"},
    "one_trial": {"points": "12", "horizon": "12", "frames": "2"},
    "real_experiment": {"levels": "6", "first": "4", "then": "3", "late": "1"},
    "reproduction": {"points": "9", "horizon": "8", "trials": "20"},
    "your_algorithm": {"points": "9", "horizon": "8", "trials": "20"},
    "your_problem": {"levels": "8", "horizon": "20", "trials": "2"},
}
# Programs that the first cell may compile which compiles any, where they are more than three: one fits a model, one looks for an optimum,
# one asks for a point, and in three the first is one with several algorithms, since those before it find what earlier notebooks have
# compiled.
FIRST_CELL = {"boxes": 7, "kernels": 4, "old_data": 7, "delays": 5, "real_experiment": 4, "reproduction": 4, "your_algorithm": 5}
# A process runs these together, the first group in the quick ring.
FIRST = ("real_experiment", "pages/problems")
TOGETHER = (FIRST, ("first_steps", *sorted({*REDUCED} - {*FIRST, "first_steps"}), "README", *sorted({*PRINTED} - {*FIRST}), "script"))


def code_of(path):
    """Return a notebook's cells with the numbers of ``REDUCED``."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    (given,) = [cell for cell in cells if "parameters" in cell.metadata.get("tags", [])]
    names, _, _ = given.source.partition(" = ")
    numbers = REDUCED[path.stem]
    assert names.split(", ") == list(numbers) and "\n" not in given.source
    given.source = f"{names} = {', '.join(numbers.values())}"
    return [shortened(path.stem, cell.source, {"random": SMALLER["random"]}) for cell in cells]


def shortened(name, code, numbers=SMALLER):
    """Return a document's code with smaller numbers and without slow parts."""
    what, by = REPLACED.get(name, ("", ""))
    return smaller(code.replace(what, by), numbers)


def blocks_of(name):
    """Return a page's Python blocks, with earlier blocks' files."""
    return [cell for block in python_blocks(SOURCES[name]) for cell in ("%reset -f", shortened(name, block))]


class Printed(dict[str, Shown]):
    """Output of all documents in small sizes, run when asked for."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.programs = {path.stem: code_of(path) for path in NOTEBOOKS}
        self.programs |= {name: blocks_of(name) for name in ("README", *PAGES)}
        self.programs["script"] = [shortened("script", SCRIPT.read_text()) + "main('.')"]

    def __missing__(self, name: str) -> Shown:
        together = next(names for names in TOGETHER if name in names)
        self |= run_together({own: self.programs[own] for own in together}, self.place)
        return self[name]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Printed:
    return Printed(tmp_path_factory.mktemp("documents"))


@pytest.mark.full
def test_readme_examples_run_and_print_small_violations_and_a_point(printed):
    for block in python_blocks(README):
        assert len([line for line in block.splitlines() if line.strip()]) <= 15
    violations, point = printed["README"].text.split("{", 1)
    numbers = [float(x) for x in re.findall(r"\d+\.\d+", violations)]
    # One number is the run's, and five are the widths'.
    assert len(numbers) == 6
    assert all(0 < value < 1 for value in numbers)
    assert re.match(r"'rate': .*'share 2': .* \{'accuracy': ", point)


@pytest.mark.full(but=FIRST)
@pytest.mark.parametrize("name", PRINTED)
def test_blocks_of_pages_run(name, printed):
    assert re.search(PRINTED[name], printed[name].text, flags=re.DOTALL), printed[name].text


def test_every_page_is_run_and_linked():
    readme = README.read_text(encoding="utf-8")
    shown = {name: "".join(python_blocks(path)) for name, path in PAGES.items()}
    assert {name for name, code in shown.items() if code} == {"pages/optuna", *PRINTED}
    assert [name for name in SMALLER if all(smaller(code, {name: 0}) == code for code in shown.values())] == []
    assert [name for name, path in PAGES.items() if f"({path.relative_to(ROOT)})" not in readme] == []
    assert [name for name, (what, _) in REPLACED.items() if what not in SOURCES[name].read_text(encoding="utf-8")] == []
    assert "jb.Refitted(algorithm=jb.Cei(), at_start=True" in "".join(code_of(ROOT / "notebooks" / "boxes.ipynb"))
    # Tables have a line for each algorithm.
    assert len([line for line in readme.splitlines() if not line.startswith("|")]) <= 120
    assert len([line for line in python_blocks(PAGES["pages/sessions"])[0].splitlines() if line.strip()]) < 20


@pytest.mark.full
def test_workers_share_a_study_are_killed_and_others_go_on(tmp_path):
    """A pool of two processes is killed, and one goes on."""
    optuna = pytest.importorskip("optuna")
    (block,) = python_blocks(PAGES["pages/optuna"])
    assert "[40]" in block and "Sampler(" in block

    def command(trials: int, workers: str) -> subprocess.Popen[str]:
        # Programs of a grid take less time to compile.
        on_grid = block.replace("jb.optuna.Sampler(", "partial(jb.optuna.Sampler, points=20)(")
        (tmp_path / "worker.py").write_text("from functools import partial\n" + on_grid.replace("[40]", f"[{trials}]"))
        given = {"cwd": tmp_path, "env": os.environ | {"PYTHONPATH": str(ROOT)}, "start_new_session": True, "text": True}
        return subprocess.Popen([sys.executable, "worker.py", workers], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **given)

    def trials() -> list:
        storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(tmp_path / "tuning.log")))
        studies = optuna.get_all_study_names(storage)
        return optuna.load_study(study_name="tuning", storage=storage).trials if studies else []

    def complete() -> list:
        return [trial for trial in trials() if trial.state.name == "COMPLETE"]

    first, deadline = command(10**6, "2"), time.monotonic() + 200
    while len(complete()) < 8 and first.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    before = {(trial.number, *trial.params.values(), trial.value) for trial in complete()}
    assert first.returncode == -signal.SIGKILL and len(before) >= 8
    # More than twelve points need programs of their own.
    last = len(before) + 3
    again = command(last, "1")
    said, wrong = again.communicate(timeout=300)
    assert again.returncode == 0 and said.count("'rate'") == 1, wrong
    after = complete()
    assert before <= {(trial.number, *trial.params.values(), trial.value) for trial in after} and len(after) == last
    assert all(trial.system_attrs["constraints"] == [trial.user_attrs["work"] - 1.2] for trial in after)
    assert any(trial.system_attrs["constraints"][0] <= 0 for trial in after)
    others = [trial.state.name for trial in trials() if trial.state.name != "COMPLETE"]
    assert set(others) <= {"RUNNING"} and len(others) <= 2, "nothing failed; those that were killed"


@pytest.mark.full
def test_the_script_that_ci_checks_the_types_of_runs(printed):
    assert "RPOL" in printed["script"].text


def test_paths_in_the_guide_exist():
    guide = (ROOT / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = [
        path for path in re.findall(r"`((?:jaxbandit|tests|notebooks|experiments|\.github|\.ci)/[^`\s]+)`", guide) if "NAME" not in path
    ]
    assert len(paths) > 30 and [path for path in paths if not (ROOT / path).exists()] == []


def test_every_notebook_is_run_and_linked():
    assert {path.stem for path in NOTEBOOKS} == set(REDUCED)
    readme = README.read_text(encoding="utf-8")
    assert [path.stem for path in NOTEBOOKS if f"(notebooks/{path.name})" not in readme] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_committed_with_their_outputs(path):
    """Cells ran in order, with figures and without an error."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert len([output for output in outputs if "image/png" in output.get("data", {})]) >= 2
    assert path.stat().st_size < 2_000_000


@pytest.mark.full(but=FIRST)
@pytest.mark.parametrize("name", sorted(REDUCED))
def test_notebooks_run_and_compile_little_in_their_first_cell(name, printed):
    assert 0 < printed[name].first_cell <= FIRST_CELL.get(name, 3)


def test_the_version_stands_in_one_place_and_its_citation():
    cited = re.search(r"^version: (.*)$", (ROOT / ".github" / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited is not None and cited[1] == jaxbandit.__version__
