"""Imports point one way. Read from the source with ``ast``, so an import inside a function counts too."""

import ast
from pathlib import Path

import pytest

import jaxbandit

ROOT = Path(jaxbandit.__file__).parent
REPOSITORY = ROOT.parent

# A part of the package may import from parts of a lower number, and from itself.
LAYERS = {
    "_version": 0,
    "core": 0,
    "kernels": 1,
    "domains": 1,
    "delays": 1,
    "problems": 2,
    "surrogates": 2,
    "widths": 3,
    "estimators": 4,
    "acquisition": 4,
    "feedback": 4,
    "penalties": 4,
    "consensus": 4.5,
    "safety": 4.5,
    "algorithms": 5,
    "informed": 6,
    "engine": 6,
    "metrics": 3,
    "study": 8,
    "session": 8,
    "report": 9,
    "cli": 10,
    "__main__": 11,
}
# Beyond the order: what may not be imported although it is lower, or what only some may import.
FORBIDDEN = {
    "problems": {"surrogates", "algorithms", "widths", "estimators", "acquisition"},
    "kernels": {"domains"},
    "domains": {"kernels"},
    "surrogates": {"problems", "delays"},
    "widths": {"problems", "delays"},
    "estimators": {"problems", "delays"},
    "acquisition": {"problems", "delays"},
    "feedback": {"problems", "delays"},
    "penalties": {"problems", "delays"},
    "consensus": {"problems", "delays"},
    "safety": {"problems", "delays"},
    "algorithms": {"problems"},  # they see an Arena, never the truth
}
LISTS = {"jaxbandit.algorithms", "jaxbandit.algorithms.registry"}  # import all algorithms
TOPS = {"report", "cli", "__main__"}  # imported by nothing in the package but one another
GATHERED = LAYERS["engine"]  # the package's own __init__ imports no higher layer, so higher layers may import the package


def module_name(path, root=ROOT.parent):
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source, name, is_package, modules=frozenset()):
    """Every module that ``source`` imports, in full; ``from a import b`` gives ``a.b`` where that is a module, else ``a``."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = name.split(".")
                parents = parents[: len(parents) - node.level + is_package]
                base = ".".join([*parents, base] if base else parents)
            found += [f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules else base for alias in node.names]
    return found


PATHS = sorted(ROOT.rglob("*.py"))
MODULES = {module_name(path): path for path in PATHS}
IMPORTS = {
    name: imports(path.read_text(encoding="utf-8"), name, path.name == "__init__.py", frozenset(MODULES)) for name, path in MODULES.items()
}


def part(name):
    """The part of the package that a module belongs to: ``surrogates`` for ``jaxbandit.surrogates.rows``."""
    return name.split(".")[1] if "." in name else ""


def complaints(name, imported):
    """What is wrong with the imports of module ``name``, in words."""
    mine, wrong = part(name), []
    for target in imported:
        if target.split(".")[0] == "experiments":
            wrong.append(f"{name} imports {target}: experiments use the package, never the reverse")
        if target.split(".")[0] != "jaxbandit":
            continue
        other = part(target)
        if mine == "":
            if LAYERS.get(other, 0) > GATHERED:
                wrong.append(f"{name} imports {target}")
        elif other not in LAYERS and other != "":
            wrong.append(f"{name} imports {target}, which has no layer")
        elif other == "" and LAYERS[mine] > GATHERED:
            continue
        elif other == "":
            wrong.append(f"{name} imports the package itself: import the module that defines the name")
        elif other != mine and LAYERS[other] >= LAYERS[mine]:
            wrong.append(f"{name} (layer {LAYERS[mine]}) imports {target} (layer {LAYERS[other]})")
        elif other in FORBIDDEN.get(mine, ()) or (other in TOPS and mine not in TOPS):
            wrong.append(f"{name} must not import {target}")
        elif mine == other == "algorithms" and name not in LISTS and target != "jaxbandit.algorithms.base":
            wrong.append(f"{name} imports {target}: algorithms share only algorithms.base")
    return wrong


def test_the_package_was_found():
    assert {"jaxbandit", "jaxbandit.core.pytree", "jaxbandit.surrogates.rows", "jaxbandit.algorithms.rpol"} <= set(MODULES)
    assert "jaxbandit.core.pytree" in IMPORTS["jaxbandit.kernels"] and "jaxbandit.widths" in IMPORTS["jaxbandit.estimators"]


@pytest.mark.parametrize("name", [name for name in MODULES if part(name)])
def test_every_module_has_a_layer(name):
    assert part(name) in LAYERS, f"{part(name)} has no layer: put it into LAYERS, above all that it imports"


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_one_way(name):
    assert complaints(name, IMPORTS[name]) == []


@pytest.mark.parametrize(
    ("name", "source", "word"),
    [
        ("jaxbandit.kernels", "from jaxbandit.surrogates import Surrogate", "layer 2"),
        ("jaxbandit.core.pytree", "import jaxbandit.kernels", "layer 1"),
        ("jaxbandit.problems.sine", "def f():\n    from jaxbandit.surrogates import surrogate", "layer 2"),
        ("jaxbandit.problems.sine", "from ..algorithms import base", "layer 5"),
        ("jaxbandit.algorithms.rpol", "from jaxbandit.problems import sine", "must not import"),
        ("jaxbandit.algorithms.rpol", "from jaxbandit.algorithms.cbo import Cbo", "share only algorithms.base"),
        ("jaxbandit.algorithms.rpol", "from .cbo import Cbo", "share only algorithms.base"),
        ("jaxbandit.algorithms.rpol", "from . import cbo", "share only algorithms.base"),
        ("jaxbandit.metrics", "from jaxbandit.report import plots", "layer 9"),
        ("jaxbandit", "import jaxbandit.report.plots", "imports jaxbandit.report.plots"),
        ("jaxbandit.study.runtime", "import experiments.rpol", "never the reverse"),
        ("jaxbandit.widths", "import jaxbandit", "the package itself"),
        ("jaxbandit.domains", "from jaxbandit.kernels import same", "layer 1"),
    ],
)
def test_the_rules_catch_offenders(name, source, word):
    found = complaints(name, imports(source, name, is_package=name == "jaxbandit", modules=frozenset(MODULES)))
    assert len(found) == 1 and word in found[0]


def test_no_import_cycles():
    """Between modules, not only between parts: every module can be imported first."""
    graph = {name: {t for t in IMPORTS[name] if t in MODULES and t != name} for name in MODULES}
    done, path = set(), []

    def visit(name):
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name in done:
            return
        path.append(name)
        for target in graph[name]:
            visit(target)
        path.pop()
        done.add(name)

    for name in graph:
        visit(name)
    assert done == set(MODULES)


@pytest.mark.parametrize("path", sorted((REPOSITORY / "experiments").rglob("*.py")), ids=lambda path: path.name)
def test_experiments_use_what_a_user_would(path):
    """No private module, and nothing private by name."""
    name = module_name(path, REPOSITORY)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "jaxbandit":
            words = [*node.module.split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Import):
            words = [word for alias in node.names if alias.name.split(".")[0] == "jaxbandit" for word in alias.name.split(".")]
        else:
            continue
        assert not [word for word in words if word.startswith("_") and word != "__version__"], f"{name}, line {node.lineno}"
