"""What the documents show is run: the README's Python blocks and every notebook."""

import os
import re
import subprocess
import sys

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.paths import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)


def run_python(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_readme_example_runs_and_prints_small_violations():
    example = python_blocks()[0]
    assert len([line for line in example.splitlines() if line.strip()]) <= 15
    printed = [float(x) for x in re.findall(r"\d+\.\d+", run_python(example))]
    assert len(printed) == 5  # one for the run, one for each of the four widths
    assert all(0 < value < 1 for value in printed)


def test_readme_study_of_runs_runs():
    block = python_blocks()[1].replace("sine(50)", "sine(5)").replace("1000", "6").replace("every=10", "every=2")
    model = "model = jb.surrogate(jb.problems.sine(5).domain, jb.kernels.SquaredExponential(length_scale=1.0), noise_variance=0.05)"
    assert run_python(f"import jaxbandit as jb\n{model}\n{block}\nprint(dataset.regret.shape)").split() == ["(7,", "6,", "3)"]


def test_readme_algorithm_of_ones_own_runs():
    block = python_blocks()[2]
    use = """
problem = jb.problems.sine(20)
model = jb.surrogate(problem.domain, jb.kernels.SquaredExponential(length_scale=1.0), noise_variance=0.05)
run = jb.simulate(problem, Greedy(), model, horizon=20, trials=3, key=jax.random.key(0))
print(run.indices.shape, int(run.status.max()))
"""
    assert run_python(f"import jax\nimport jaxbandit as jb\n{block}\n{use}").split() == ["(3,", "20)", "0"]


def test_readme_names_every_algorithm():
    import jaxbandit.algorithms

    text = (ROOT / "README.md").read_text()
    classes = [name for name in jaxbandit.algorithms.__all__ if hasattr(getattr(jaxbandit.algorithms, name), "select")]
    missing = [name for name in classes if name != "Algorithm" and not re.search(rf"`{name}[(`]", text)]
    assert not missing


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_executes(path):
    assert NOTEBOOKS
    notebook = nbformat.read(path, as_version=4)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(ROOT)}}).execute(env=environment)
    outputs = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    assert any(outputs) and not any(output.output_type == "error" for group in outputs for output in group)
