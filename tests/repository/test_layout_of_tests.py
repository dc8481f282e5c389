"""The tests themselves, and the documentation site."""

import ast
import re
import shutil
import subprocess
import sys

import pytest

from tests.conftest import BUDGETS, OPTIMISED
from tests.support.parsed import tree_of
from tests.support.paths import ROOT, TESTS

FILES = sorted(path for path in TESTS.rglob("*.py") if "__pycache__" not in path.parts)
ORACLES = [path for path in FILES if path.parent.name == "oracles"]
WHEN_ADDED = re.compile(r"_(more|apart|baselines)(_|$)")
TEST = "test_"


def relative(path):
    return path.relative_to(TESTS).as_posix()


def imports(source):
    """Return names that ``source`` and programs in its strings import."""
    found = []
    for node in ast.walk(tree_of(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{node.module or ''}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "import " in node.value:
            try:
                found += imports(node.value)
            except SyntaxError:
                # The string has words and no program.
                continue
    return found


def of_test_modules(names):
    """Return the imported ``names`` within test modules."""
    return [name for name in names if any(part.startswith(TEST) for part in name.split("."))]


def test_the_tests_were_found():
    assert {"conftest.py", "study/test_study.py", "oracles/gaussian_process.py"} <= {relative(path) for path in FILES}
    assert "tests.support.small_study.in_python" in imports((TESTS / "study/test_study.py").read_text(encoding="utf-8"))


def test_folders_are_those_of_the_package():
    folders = {path.parent.name for path in (ROOT / "jaxbandit").glob("*/*.py")}
    assert len(folders) > 10 and folders <= {path.parent.name for path in TESTS.glob("*/test_*.py")}


def test_files_that_are_named_are_there():
    assert {*BUDGETS["files"], *OPTIMISED} <= {relative(path) for path in FILES}


def test_no_test_module_imports_another():
    imported = {relative(path): of_test_modules(imports(path.read_text(encoding="utf-8"))) for path in FILES}
    assert {path: names for path, names in imported.items() if names} == {}


def test_file_names_do_not_say_when_a_test_was_added():
    assert [relative(path) for path in FILES if WHEN_ADDED.search(path.stem)] == []


def test_references_import_nothing_that_they_are_compared_with():
    roots = {relative(path): {name.split(".")[0] for name in imports(path.read_text(encoding="utf-8"))} for path in ORACLES}
    assert roots
    assert {path: names for path, names in roots.items() if names & {"jax", "jaxlib", "jaxbandit"}} == {}


@pytest.mark.parametrize(
    "source",
    [
        f"import {TEST}study",
        f"from {TEST}study import whole",
        f"from tests.study import {TEST}study",
        f"from tests.study.{TEST}study import whole as w",
        f"from . import {TEST}study",
        f"def f():\n    import tests.study.{TEST}study",
        f"PROGRAM = '''\nimport {TEST}study as t\nprint(t.whole())\n'''",
    ],
)
def test_the_rule_catches_offenders(source):
    assert len(of_test_modules(imports(source))) == 1


@pytest.mark.parametrize("stem", [f"{TEST}flags_more", f"{TEST}apart", f"{TEST}baselines", "reference_more_of_it"])
def test_the_rule_catches_names(stem):
    assert WHEN_ADDED.search(stem)


PAGE = """# Page

[nowhere](missing.md), {py:func}`jaxbandit.no_such_name`, $\\nosuchcommand x$

```{public} jaxbandit.penalties
```
"""


@pytest.mark.full
def test_dead_links_unknown_names_and_names_that_no_page_describes_fail_the_build(tmp_path):
    for name in ("conf.py", "extension.py", "skeletons.py", "papers.py", "site.css"):
        shutil.copy(ROOT / "notebooks" / name, tmp_path)
    half, rest = (" + ".join(f"x_{{{number}}}" for number in numbers) for numbers in (range(15), range(15, 30)))
    formulas = (f"$$\n{half} + {rest}\n$$", f"$$\n{half} \\\\\n+ {rest}\n$$")
    (tmp_path / "index.md").write_text("\n\n".join([PAGE, *formulas]))
    command = [sys.executable, "-m", "sphinx", "-q", "--no-color", str(tmp_path), str(tmp_path / "out")]
    built = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert built.returncode == 1, built.stderr
    for words in (
        r"'missing.md'",
        r"target not found: jaxbandit\.no_such_name ",
        r"a formula has a command that MathML lacks: \\nosuchcommand x",
        r"a formula is too wide for a window of 1,300 pixels, .*: x_\{0\} \+ x_\{1\}",
        r"WARNING: jaxbandit\.simulate is public, and no page of the reference describes it",
        r"algorithms/rpol\.md, the page of Rpol, lacks ## Difference from the paper, ## Cost of a round, ## When it fails",
    ):
        assert re.search(words, built.stderr), words
    assert "jaxbandit.penalties.Exponential" not in built.stderr and (tmp_path / "out" / "index.html").is_file()
    assert built.stderr.count("too wide") == 1 and "<mtable" in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
