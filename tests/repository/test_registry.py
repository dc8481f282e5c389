"""All lists of algorithms agree with one registry."""

import ast
import json
import re
from pathlib import Path

import pytest

import jaxbandit
from experiments.common.experiment import spelling
from jaxbandit.algorithms import ALGORITHMS
from jaxbandit.core.codec import to_plain
from jaxbandit.core.declare import Role
from jaxbandit.results.citations import cite, entries, papers_in_words
from jaxbandit.study import Run, Study
from tests.support.algorithms import ALGORITHMS as CONFORMING
from tests.support.paths import ROOT
from tests.support.study_files import build, names

FOLDER = Path(jaxbandit.algorithms.__file__).parent
NOT_ALGORITHMS = {"__init__", "base", "registry"}
# They are the ceiling and the floor.
WITHOUT_A_PAPER = {"Oracle", "RandomSearch"}
AFTER_ROWS = "\n\nAll algorithms take any number of constraints"
every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)


def default(name: str) -> jaxbandit.Algorithm:
    """Return the algorithm with defaults, a wrapper around RPOL."""
    kind = ALGORITHMS[name]
    return kind(algorithm=jaxbandit.Rpol()) if kind in (jaxbandit.Anytime, jaxbandit.Refitted) else kind()


def readme_rows() -> list[list[str]]:
    """The cells of every row of the README's table of algorithms."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("## Algorithms")[1].split("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")][2:]


def test_every_module_of_the_folder_is_registered() -> None:
    files = {path.stem for path in FOLDER.glob("*.py")} - NOT_ALGORITHMS
    assert files == {kind.__module__.rpartition(".")[2] for kind in ALGORITHMS.values()}
    assert len(files) > 8


def test_the_registry_is_one_line_for_each_algorithm() -> None:
    lines = ast.parse((FOLDER / "registry.py").read_text(encoding="utf-8")).body
    imports = [node for node in lines if isinstance(node, ast.ImportFrom)]
    others = ("jaxbandit.algorithms.base", "jaxbandit.core.codec", "typing")
    assert [node.names[0].name for node in imports if node.module not in others] == list(ALGORITHMS)
    assert len(lines) - len(imports) == 3, "beside them its docstring, the table, and what the table is"


@every_algorithm
def test_it_is_public(name: str) -> None:
    for module in (jaxbandit, jaxbandit.algorithms):
        assert vars(module)[name] is ALGORITHMS[name] and name in module.__all__


def test_golden_rows_of_the_readme(golden) -> None:
    """The README may add words to a row."""
    readme = ROOT / "README.md"
    lacking = []
    for name, kind in ALGORITHMS.items():
        found = (kind.title in made[0] and f"`{name}(" in made[1] and papers_in_words(kind.papers) in made[2] for made in readme_rows())
        lacking += [] if any(found) else [f"| {kind.title} | `{name}()` | {papers_in_words(kind.papers)} |"]
        assert kind.title and bool(kind.papers) == (name not in WITHOUT_A_PAPER)
    if golden("readme").write and lacking:
        readme.write_text(readme.read_text(encoding="utf-8").replace(AFTER_ROWS, "\n".join(["", *lacking]) + AFTER_ROWS), encoding="utf-8")
    assert lacking == [] or golden("readme").write


def test_every_entry_of_the_bibliography_is_of_a_class_and_the_librarys_own_is_its_citation_file() -> None:
    kinds, named = [Role], set[str]()
    for kind in kinds:
        kinds += kind.__subclasses__()
        named |= kind.papers.keys()
    assert named | {"jaxbandit"} == set(entries())
    own = (ROOT / ".github" / "CITATION.cff").read_text(encoding="utf-8")
    for field, word in (("title", "title"), ("author", "  - name"), ("version", "version")):
        (words,) = re.findall(rf"^  {field} = {{+(.*?)}}+,$", entries()["jaxbandit"], re.MULTILINE)
        assert words == re.search(rf'^{word}: "?(.*?)"?$', own, re.MULTILINE)[1]


def test_what_was_used_is_cited_once_with_what_is_inside() -> None:
    wrapped = jaxbandit.Anytime(algorithm=jaxbandit.Cbo(estimator=jaxbandit.estimators.Thompson()))
    problem = jaxbandit.problems.sine(5)
    model = jaxbandit.surrogate(problem.domain, jaxbandit.kernels.White(), noise_variance=0.1)
    run = Run("it", problem, wrapped, model, feedback=jaxbandit.feedback.Hallucinate())
    for used in (run, [run], Study("one", runs=[run], trials=1, horizon=1)):
        assert re.findall(r"^@\w+{(\w+),$", cite(used), re.MULTILINE) == ["jaxbandit", "zhou2022", "chowdhury2017", "desautels2014"]
    swept = jaxbandit.sweep(jaxbandit.Rpol(), {"penalty_growth": [1.0, 2.0]})
    assert cite(swept) == cite("rpol-ucb") == cite(jaxbandit.Rpol) and "Hengquan" in cite(swept)
    for wrong in (3, {}, problem.domain.points):
        with pytest.raises(jaxbandit.InvalidArgument, match="used: must be an algorithm, a run, a study"):
            cite(wrong)


def test_every_spelling_finds_one_algorithm() -> None:
    for name, kind in ALGORITHMS.items():
        for word in (name, kind.name, kind.title, kind.title.upper(), kind.name.replace("_", "-")):
            assert ALGORITHMS[word] is kind and spelling(["other", kind.title])(word) == kind.title
    with pytest.raises(jaxbandit.InvalidArgument, match=r"there is no 'rpool', did you mean 'Rpol'\?; known are Admmbo, "):
        ALGORITHMS["rpool"]
    rpol = build("algorithm", {"type": "rpol-ucb", "penalty_growth": 2.0}, "it")
    assert isinstance(rpol, jaxbandit.Rpol) and to_plain(rpol, "it", given=True) == {"type": "Rpol", "penalty_growth": 2.0}
    assert spelling(["RPOL", "RPOL-UCB"])("rpol") == "RPOL" and spelling(["RPOL"])("CBO") == "CBO"


@every_algorithm
def test_a_study_file_can_name_it_and_write_it_down(name: str) -> None:
    assert names("algorithm")[name] is ALGORITHMS[name]
    algorithm = default(name)
    table = json.loads(json.dumps(to_plain(algorithm, "it")))
    assert table["type"] == name
    assert build("algorithm", table, "it") == algorithm


@every_algorithm
def test_audit_traces_can_hold_its_hyperparameters(name: str) -> None:
    found = default(name).symbols_in_force(50)
    assert json.loads(json.dumps(found)) == found


@every_algorithm
def test_it_conforms(name: str) -> None:
    assert ALGORITHMS[name] in {type(make()) for make in CONFORMING.values()}
