"""Tests that run what the documents show: the README's Python blocks and every notebook."""

import json
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
from tests.support.paths import ROOT

SCRIPT = ROOT / "tests" / "repository" / "user_script.py"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)


USE = """
problem = jb.problems.sine(20)
model = jb.surrogate(problem.domain, jb.kernels.SquaredExponential(length_scale=1.0), noise_variance=0.05)
run = jb.simulate(problem, Greedy(), model, horizon=20, trials=3, key=jax.random.key(0))
print(run.indices.shape, int(run.status.max()))
"""


def smaller(code: str, **numbers: str) -> str:
    """The code with other numbers in place of some that it must hold."""
    for old, new in numbers.items():
        name, _, value = old.partition("_")
        given = f"{name}({value})" if name == "sine" else f"{name}={value}"
        assert given in code
        code = code.replace(given, given.replace(value, new))
    return code


# The numbers that a notebook is run with here, in place of those in its cell with the tag ``parameters``.
REDUCED = {
    "boxes": {"trials": "2", "horizon": "3", "first": "6"},
    "clusters": {"points": "9", "horizon": "8", "trials": "20", "tasks": "4"},
    "delays": {"points": "9", "horizon": "8", "trials": "2"},
    "differentiable": {"points": "9", "horizon": "8", "pairs": "4", "steps": "2"},
    "first_steps": {"points": "9", "horizon": "8", "trials": "2"},
    "kernels": {"points": "9", "horizon": "8", "trials": "2", "data": "16"},
    "old_data": {"runs": "6", "late": "1"},
    "one_trial": {"points": "12", "horizon": "12", "frames": "2"},
    "real_experiment": {"levels": "6", "first": "4", "then": "3", "late": "1"},
    "reproduction": {"points": "9", "horizon": "40", "trials": "3"},
    "your_algorithm": {"points": "9", "horizon": "8", "trials": "3"},
    "your_problem": {"levels": "8", "horizon": "20", "trials": "2"},
}
# Programs that the first cell may compile which compiles any, where they are more than three: one fits a model, one looks for an optimum.
FIRST_CELL = {"boxes": 7, "old_data": 7}
# Runs the cells of notebooks as a kernel would, and the README's blocks as such cells, each in a namespace of its own, shows what their
# last lines give, and counts the programs of the first cell that has any, beside those of JAX that make a key. One that fails ends all.
RUN_CELLS = """
import gc, json, sys, warnings
import jax
from IPython.core.interactiveshell import InteractiveShell
from matplotlib import pyplot
from tests.support.counted import COMPILED, Counted
from tests.support.quick import trace_quickly
trace_quickly()
shell = InteractiveShell.instance()
for name, cells in json.loads(sys.argv[1]).items():
    print(f"== {name}", flush=True)
    shell.reset(new_session=True)
    shell.user_ns["__spec__"] = None  # as a kernel's main module has it, which processes that are spawned look for
    if len(cells) > 1:  # a notebook, which compiles its own; blocks share what they can
        jax.clear_caches()
        jax.random.key(0)
    first = 0
    for cell in cells:
        with Counted() as events:
            shell.run_cell(cell).raise_error()
        first = first or events[COMPILED]
        pyplot.close("all")
    print(f"== first cell {first}", flush=True)
    gc.freeze()  # what is left of it, which nobody need look through again
"""
# What a process runs together: the first one in the quick ring.
BLOCKS = (("own", "data"), ("example", "session", "study", "derivatives", "box", "script"))
FIRST = ("real_experiment",)
TOGETHER = ((*FIRST, *BLOCKS[0]), (*sorted({*REDUCED} - {*FIRST}), *BLOCKS[1]))


def code_of(path):
    """The code cells of a notebook with the numbers of ``REDUCED``, which must all be in its cell with the tag ``parameters``."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    (given,) = [cell for cell in cells if "parameters" in cell.metadata.get("tags", [])]
    names, _, _ = given.source.partition(" = ")
    numbers = REDUCED[path.stem]
    assert names.split(", ") == list(numbers) and "\n" not in given.source
    given.source = f"{names} = {', '.join(numbers.values())}"
    return [cell.source for cell in cells]


class Printed(dict[str, str]):
    """What notebooks, the README's blocks and the user's script print, with fewer trials, rounds and points; run when asked for."""

    def __init__(self, place: Path) -> None:
        example, session, _, study, derivatives, own, data, on_box = python_blocks()
        self.place, self.counts = place, dict[str, int]()
        self.programs = {path.stem: code_of(path) for path in NOTEBOOKS}
        self.programs |= {
            "example": [smaller(example, trials_100="4", horizon_200="40")],
            "session": [session.replace("range(30)", "range(3)").replace('"tuning"', repr(str(place / "tuning")))],
            "study": [smaller(study, sine_50="5", trials_1000="6", horizon_1000="6", every_10="2") + "print(dataset.regret.shape)"],
            "derivatives": [smaller(derivatives, sine_50="10", horizon_100="6", pairs_32="4")],
            "own": [own + USE],
            "data": [data],
            "box": [smaller(on_box, horizon_20="2", trials_50="2", random_8="3")],
            "script": [SCRIPT.read_text() + f"main({str(place)!r})"],
        }

    def __missing__(self, name: str) -> str:
        """Several in one process: what takes long is the start and the compilation."""
        programs = {own: self.programs[own] for own in next(names for names in TOGETHER if name in names)}
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg", "IPYTHONDIR": str(self.place / "ipython")}
        command = [sys.executable, "-c", RUN_CELLS, json.dumps(programs)]
        result = subprocess.run(command, cwd=self.place, env=environment, capture_output=True, text=True, timeout=900)
        assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
        for own, said, count in re.findall(r"^== (.*)\n((?s:.*?))^== first cell (\d+)\n", result.stdout, flags=re.MULTILINE):
            self[own], self.counts[own] = said, int(count)
        assert self.keys() >= programs.keys()
        return self[name]

    def first_cell(self, name: str) -> int:
        """The number of programs of a notebook's first cell that has any."""
        assert name in self.counts or self[name] is not None  # which runs it
        return self.counts[name]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Printed:
    return Printed(tmp_path_factory.mktemp("documents"))


@pytest.mark.full
def test_readme_example_runs_and_prints_small_violations(printed):
    assert len([line for line in python_blocks()[0].splitlines() if line.strip()]) <= 15
    numbers = [float(x) for x in re.findall(r"\d+\.\d+", printed["example"])]
    assert len(numbers) == 5  # one for the run, one for each of the four widths
    assert all(0 < value < 1 for value in numbers)


@pytest.mark.full
def test_readme_session_runs(printed):
    block = python_blocks()[1]
    assert len([line for line in block.splitlines() if line.strip()]) < 20 and "range(30)" in block
    assert re.match(r"Recommendation\(index=\d+, point={'learning rate': ", printed["session"])


@pytest.mark.full
def test_readme_workers_share_a_study_are_killed_and_others_go_on(tmp_path):
    """The pool of two processes, killed in the middle, and after it the same with one."""
    optuna = pytest.importorskip("optuna")
    block = python_blocks()[2]
    assert "[40]" in block

    def command(trials: int, workers: str) -> subprocess.Popen[str]:
        (tmp_path / "worker.py").write_text(block.replace("[40]", f"[{trials}]"))
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
    last = len(before) + 6
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
def test_readme_box_runs(printed):
    assert re.match(r"Certificate\(value=", printed["box"]) and "(2, 2, 3)" in printed["box"]


@pytest.mark.full
def test_readme_study_of_runs_runs(printed):
    assert printed["study"].split() == ["(7,", "6,", "3)"]


@pytest.mark.full
def test_readme_derivatives_run(printed):
    assert re.search(r"'penalty_growth': .* wins -?\d+\.\d+ a round, 95% interval \(", printed["derivatives"])


def test_readme_algorithm_of_ones_own_runs(printed):
    assert printed["own"].split() == ["(3,", "20)", "0"]


@pytest.mark.full
def test_the_script_that_ci_checks_the_types_of_runs(printed):
    assert "RPOL" in printed["script"] and "report.html" in printed["script"]


def test_readme_mixed_domain_runs(printed):
    assert printed["data"].startswith("dose=0.2, catalyst=Ni reward: form 'product'") and "by point" in printed["data"]


def test_every_notebook_is_run_and_linked():
    assert {path.stem for path in NOTEBOOKS} == set(REDUCED)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [path.stem for path in NOTEBOOKS if f"(notebooks/{path.name})" not in readme] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_committed_with_their_outputs(path):
    """Check that cells ran in order, without an error, with some figures, small enough to be read in a browser."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert len([output for output in outputs if "image/png" in output.get("data", {})]) >= 2
    assert path.stat().st_size < 2_000_000


@pytest.mark.full(but=FIRST)
@pytest.mark.parametrize("name", sorted(REDUCED))
def test_notebooks_run_and_compile_little_in_their_first_cell(name, printed):
    assert 0 < printed.first_cell(name) <= FIRST_CELL.get(name, 3)


def test_the_version_stands_in_one_place_and_its_citation():
    cited = re.search(r"^version: (.*)$", (ROOT / ".github" / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited is not None and cited[1] == jaxbandit.__version__
