"""Floors of the package, declared roles, and rules with one place."""

import ast
import functools
import importlib
import inspect
import re
from pathlib import Path

import pytest

import jaxbandit
from tests.support.parsed import tree_of

ROOT = Path(jaxbandit.__file__).parent
REPOSITORY = ROOT.parent

# A room, that is a folder of the package, may import from rooms of the floors below, and from itself.
FLOORS = [
    {"_version", "core"},
    {"numerics", "kernels", "domains", "delays"},
    {"host"},
    {"surrogates"},
    {"problems", "rules", "feedback"},
    {"algorithms"},
    {"results", "fused"},
    {"engine"},
    {"gradients", "study"},
    {"session"},
    {"report", "testing", "optuna", "sklearn"},
    {"cli"},
    {"__main__"},
]
FLOOR = {room: number for number, floor in enumerate(FLOORS) for room in floor}
# Beyond the order, these rooms may not be imported although they are lower.
FORBIDDEN = {
    "surrogates": {"delays"},
    "rules": {"delays"},
    "feedback": {"delays"},
    # Algorithms see an Arena, never the truth.
    "algorithms": {"problems"},
}
# All algorithms share the first module, and safe ones the second.
BASES = {"jaxbandit.algorithms.base", "jaxbandit.algorithms.safe_sets"}
# They import all algorithms.
LISTS = {"jaxbandit.algorithms", "jaxbandit.algorithms.registry"}
# Nothing but these imports them.
TOPS = {"report", "cli", "__main__"}
# The package's own __init__ imports no higher floor, so higher floors may import the package.
GATHERED = FLOOR["engine"]
# The package loads these modules when asked for, as test_public_api sees.
FOR_TYPES = [f"jaxbandit.{name}" for name in (*jaxbandit.LATER, *jaxbandit.FROM.values(), *jaxbandit.PLACES.values())]


def module_name(path, root=ROOT.parent):
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source, name, is_package, modules=frozenset()):
    """Return modules that ``source`` imports, in full.

    ``from a import b`` gives ``a.b`` where that is a module, else ``a``.
    """
    found = []
    for node in ast.walk(tree_of(source)):
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


def test_every_folder_of_modules_is_a_package():
    folders = {path.parent for place in (ROOT, REPOSITORY / "experiments", REPOSITORY / "tests") for path in place.rglob("*.py")}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


@functools.cache
def imports_of(name):
    """Return a module's imports, without those for type checkers."""
    path = MODULES[name]
    found = imports(path.read_text(encoding="utf-8"), name, path.name == "__init__.py", frozenset(MODULES))
    return [module for module in found if name != "jaxbandit" or module not in FOR_TYPES]


def part(name):
    """Return the part of the package that a module belongs to.

    ``jaxbandit.surrogates.rows`` belongs to ``surrogates``.
    """
    return name.split(".")[1] if "." in name else ""


def complaints(name, imported):
    """Say what is wrong with the imports of module ``name``, in words."""
    mine, wrong = part(name), []
    for target in imported:
        if target.split(".")[0] == "experiments":
            wrong.append(f"{name} imports {target}: experiments use the package, never the reverse")
        if target.split(".")[0] != "jaxbandit":
            continue
        other = part(target)
        if mine == "":
            if FLOOR.get(other, 0) > GATHERED:
                wrong.append(f"{name} imports {target}")
        elif other not in FLOOR and other != "":
            wrong.append(f"{name} imports {target}, which has no floor")
        elif other == "" and FLOOR[mine] > GATHERED:
            continue
        elif other == "":
            wrong.append(f"{name} imports the package itself: import the module that defines the name")
        elif other != mine and FLOOR[other] >= FLOOR[mine]:
            wrong.append(f"{name} (floor {FLOOR[mine]}) imports {target} (floor {FLOOR[other]})")
        elif other in FORBIDDEN.get(mine, ()) or (other in TOPS and mine not in TOPS):
            wrong.append(f"{name} must not import {target}")
        elif mine == other == "algorithms" and name not in LISTS and target not in BASES:
            wrong.append(f"{name} imports {target}: algorithms share only algorithms.base, safe ones algorithms.safe_sets")
    return wrong


def test_the_package_was_found():
    assert {"jaxbandit", "jaxbandit.core.pytree", "jaxbandit.surrogates.rows", "jaxbandit.algorithms.rpol"} <= set(MODULES)
    assert "jaxbandit.core.pytree" in imports_of("jaxbandit.kernels.base")
    assert "jaxbandit.rules.widths" in imports_of("jaxbandit.rules.estimators")


def test_every_module_has_a_room():
    assert {part(name) for name in MODULES} - {""} <= set(FLOOR), "put it into FLOORS, above all that it imports"


def test_no_module_stands_outside_a_room():
    assert {path.stem for path in ROOT.glob("*.py")} == {"__init__", "__main__", "_version"}


def test_imports_point_one_way():
    assert [words for name in MODULES for words in complaints(name, imports_of(name))] == []


@pytest.mark.parametrize(
    ("name", "source", "word"),
    [
        ("jaxbandit.kernels", "from jaxbandit.surrogates import Surrogate", "floor 3"),
        ("jaxbandit.core.pytree", "import jaxbandit.kernels", "floor 1"),
        ("jaxbandit.problems.sine", "def f():\n    from jaxbandit.rules.estimators import Bounds", "floor 4"),
        ("jaxbandit.problems.sine", "from ..algorithms import base", "floor 5"),
        ("jaxbandit.algorithms.rpol", "from jaxbandit.problems import sine", "must not import"),
        ("jaxbandit.algorithms.rpol", "from jaxbandit.algorithms.cbo import Cbo", "share only algorithms.base"),
        ("jaxbandit.algorithms.rpol", "from .cbo import Cbo", "share only algorithms.base"),
        ("jaxbandit.algorithms.rpol", "from . import cbo", "share only algorithms.base"),
        ("jaxbandit.results.metrics", "from jaxbandit.report import plots", "floor 10"),
        ("jaxbandit", "import jaxbandit.report.plots", "imports jaxbandit.report.plots"),
        ("jaxbandit.study.play", "import experiments.rpol", "never the reverse"),
        ("jaxbandit.rules.widths", "import jaxbandit", "the package itself"),
        ("jaxbandit.domains", "from jaxbandit.kernels import same", "floor 1"),
    ],
)
def test_the_rules_catch_offenders(name, source, word):
    found = complaints(name, imports(source, name, is_package=name == "jaxbandit", modules=frozenset(MODULES)))
    assert len(found) == 1 and word in found[0]


def test_no_import_cycles():
    """Between modules, not only between parts: every module can be imported first."""
    graph = {name: {t for t in imports_of(name) if t in MODULES and t != name} for name in MODULES}
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


# Experiments may use the package, the modules among its public names wherever they stand, and ``jaxbandit.study``, ``jaxbandit.session``,
# ``jaxbandit.gradients`` and the modules of ``jaxbandit.report``, because ``import jaxbandit`` does not load these. They may use names in
# ``__all__``, or without it the names that a module defines without an underscore.
NAMED = {module.__name__ for public in jaxbandit.__all__ if inspect.ismodule(module := getattr(jaxbandit, public))}
PUBLIC_MODULES = {
    "jaxbandit",
    "jaxbandit.session",
    "jaxbandit.study",
    "jaxbandit.gradients",
    *(name for name in MODULES if name in NAMED and part(name) != "core"),
    *(name for name in MODULES if name == "jaxbandit.report" or name.startswith("jaxbandit.report.")),
}


@functools.cache
def public_names(name):
    """The public names of a module."""
    module = importlib.import_module(name)
    if "__all__" in vars(module):
        return frozenset(module.__all__) | {"__all__"}
    found = {child.rpartition(".")[2] for child in MODULES if child.rpartition(".")[0] == name}
    for node in tree_of(MODULES[name].read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
        found |= {node.name} if isinstance(node, ast.FunctionDef | ast.ClassDef) else set()
    return frozenset(word for word in found if not word.startswith("_"))


def as_module(name, attribute):
    """Return the full name of an attribute's module, or ``None``."""
    if f"{name}.{attribute}" in MODULES:
        return f"{name}.{attribute}"
    value = vars(importlib.import_module(name)).get(attribute)
    return value.__name__ if inspect.ismodule(value) else None


def uses_beyond_public(source):
    """Return uses in ``source`` of names that are not public."""
    tree, wrong, modules = tree_of(source), [], {}

    def name_of(module, attribute):
        """Return a public name's module, or complain of a private name."""
        if attribute in public_names(module):
            return as_module(module, attribute)
        wrong.append(f"{module}.{attribute} is not public")
        return None

    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "jaxbandit":
                    wrong += [] if alias.name in PUBLIC_MODULES else [f"{alias.name} is not public"]
                    modules[alias.asname or "jaxbandit"] = alias.name if alias.asname else "jaxbandit"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "jaxbandit":
            if node.module not in PUBLIC_MODULES:
                wrong.append(f"{node.module} is not public")
                continue
            for alias in node.names:
                module = name_of(node.module, alias.name)
                if module is not None:
                    modules[alias.asname or alias.name] = module

    def follow(node):
        """Return the module that an expression is, and complain of private names."""
        if isinstance(node, ast.Name):
            return modules.get(node.id)
        if not isinstance(node, ast.Attribute):
            return None
        base = follow(node.value)
        return None if base is None else name_of(base, node.attr)

    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            follow(node)
    return wrong


@pytest.mark.parametrize("name", sorted(PUBLIC_MODULES))
def test_public_modules_have_public_names(name):
    assert public_names(name)


EXPERIMENTS = sorted((REPOSITORY / "experiments").rglob("*.py"))


def test_the_experiments_were_found():
    assert {"rpol.py", "contestants.py", "measure.py"} <= {path.name for path in EXPERIMENTS}


def test_experiments_use_what_a_user_would():
    wrong = {path.name: uses_beyond_public(path.read_text(encoding="utf-8")) for path in EXPERIMENTS}
    assert {name: words for name, words in wrong.items() if words} == {}


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("from jaxbandit.core import checks", "jaxbandit.core"),
        ("from jaxbandit.core.status import healthy", "jaxbandit.core.status"),
        ("import jaxbandit.core.sweep", "jaxbandit.core.sweep"),
        ("import jaxbandit.core as core", "jaxbandit.core"),
        ("def f():\n    from jaxbandit import core", "jaxbandit.core"),
        ("import jaxbandit as jb\njb.core.checks.integer('n', 1)", "jaxbandit.core"),
        ("from jaxbandit.engine import simulate", "jaxbandit.engine"),
        ("from jaxbandit.engine.trial import Informed", "jaxbandit.engine.trial"),
        ("from jaxbandit.problems.rkhs_2d import rkhs_2d", "jaxbandit.problems.rkhs_2d"),
        ("from jaxbandit.problems import _draws", "jaxbandit.problems._draws"),
        ("from jaxbandit.study.runs import grid", "jaxbandit.study.runs"),
        ("from jaxbandit import problems\nproblems.fixed._simulated()", "problems.fixed"),
        ("import jaxbandit\nprint(jaxbandit.cli.main)", "jaxbandit.cli"),
        ("from jaxbandit.report.statistics import np", "np"),
        ("from jaxbandit.report import plots\nplots._band()", "_band"),
    ],
)
def test_the_rule_for_experiments_catches_offenders(source, word):
    found = uses_beyond_public(source)
    assert len(found) == 1 and word in found[0]


@pytest.mark.parametrize(
    "source",
    [
        "import jaxbandit as jb\njb.checks.integer('n', 1)\njb.problems.Gaussian.from_sd(1.0)\njb.simulate",
        "from jaxbandit import checks, InvalidArgument",
        "from jaxbandit.study import Run, Study, run_study",
        "from jaxbandit.report import plots\nplots.compose\nplots.COLOURS",
        "import numpy as np\nnp._private",
    ],
)
def test_the_rule_for_experiments_lets_public_names_be_used(source):
    assert uses_beyond_public(source) == []


QUESTIONS = ("hasattr", "getattr", "attrgetter")
# The list below may have so many entries.
MOST = 5
# Questions to something other than an object of the library, by file and expression; the reason says to what.
ALLOWED = {
    ("core/codec.py", "getattr(item, '__module__', '?')"): "any callable of a user's, whose name goes into a record",
    ("core/codec.py", "getattr(item, '__qualname__', repr(item))"): "any callable of a user's, whose name goes into a record",
}


def questions(source):
    """Return places where ``source`` asks an object for attributes, in order."""
    tree = tree_of(source)
    fields = {
        id(node.func)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _name(node.func) == "getattr" and len(node.args) == 2 and not _is_text(node.args[1])
    }
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    found = []
    for node in ast.walk(tree):
        if _name(node) in QUESTIONS and id(node) not in fields:
            found.append(calls.get(id(node), node))
        elif isinstance(node, ast.ExceptHandler) and node.type is not None:
            found += [part for part in ast.walk(node.type) if _name(part) == "AttributeError"]
    return [ast.unparse(node) for node in sorted(found, key=lambda node: (node.lineno, node.col_offset))]


def _name(node):
    """The last word of a name such as ``operator.attrgetter``."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None


def _is_text(node):
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


ROLE_PATHS = {path.relative_to(ROOT).as_posix(): path for path in sorted(ROOT.rglob("*.py"))}


@functools.cache
def found(name):
    """The questions of one file of the package."""
    return questions(ROLE_PATHS[name].read_text(encoding="utf-8"))


def test_declared_roles_were_found():
    assert {"algorithms/base.py", "engine/trial.py", "study/catalogue.py"} <= set(ROLE_PATHS)


def test_roles_are_declared():
    asked = [(name, question) for name in ROLE_PATHS for question in found(name)]
    assert [entry for entry in asked if entry not in ALLOWED] == [], "ask for the class: isinstance of an abstract base"


def test_exceptions_are_few_have_reasons_and_are_needed():
    assert len(ALLOWED) <= MOST
    assert all(len(reason.split()) >= 5 for reason in ALLOWED.values())
    assert [entry for entry in ALLOWED if entry[0] not in ROLE_PATHS or entry[1] not in found(entry[0])] == []


@pytest.mark.parametrize(
    "source",
    [
        "hasattr(state, 'inner')",
        "if not hasattr(algorithm, 'reveal'):\n    pass",
        "getattr(algorithm, 'feedback', Wait())",
        "getattr(algorithm, 'symbols_in_force', lambda horizon: {})(3)",
        "getattr(algorithm, 'feedback')",
        "getattr(algorithm, f'{name}s')",
        "getattr(algorithm, name, None)",
        "[hasattr(item, hook) for hook in hooks]",
        "has = hasattr",
        "all(map(builtins.hasattr, items, hooks))",
        "read = operator.attrgetter('posterior')",
        "from operator import attrgetter\nread = attrgetter('posterior')",
        "try:\n    state.inner\nexcept AttributeError:\n    pass",
        "try:\n    state.inner\nexcept (TypeError, AttributeError):\n    pass",
        "def unwrapped(algorithm):\n    return unwrapped(algorithm.algorithm) if hasattr(algorithm, 'algorithm') else algorithm",
    ],
)
def test_the_rule_catches_offenders(source):
    assert len(questions(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "{f.name: getattr(item, f.name) for f in dataclasses.fields(item)}",
        "for name in ('xi', 'b'):\n    check(name, getattr(self, name))",
        "state.inner",
        "isinstance(algorithm, Algorithm)",
        "raise AttributeError('no such field')",
        "'hasattr(state, \"inner\")'",
    ],
)
def test_the_rule_lets_fields_be_read(source):
    assert questions(source) == []


FILES = {
    path.relative_to(ROOT.parent).as_posix(): path.read_text(encoding="utf-8")
    for folder in ("jaxbandit", "experiments")
    for path in sorted((ROOT.parent / folder).rglob("*.py"))
}
# Each entry is a pattern, the file that holds it, and the replacement elsewhere.
RULES = {
    r"(?<![\d.])1\.96(?!\d)": ("jaxbandit/numerics/intervals.py", "half_width, or NORMAL_95"),
    r"\bFAILED\b": ("jaxbandit/core/status.py", "healthy"),
}


@pytest.mark.parametrize(("pattern", "place", "instead"), [(pattern, *rest) for pattern, rest in RULES.items()], ids=["interval", "health"])
def test_a_rule_stands_in_one_place(pattern, place, instead):
    found = [name for name, text in FILES.items() if re.search(pattern, text)]
    assert found == [place], f"use {instead}"


@pytest.mark.parametrize(
    "line",
    ["half = 1.96 * sd", "(status & int(FAILED)) == 0", "(status & FAILED) == 0", "from jaxbandit.core.status import FAILED, Status"],
)
def test_the_rules_catch_copies(line):
    assert sum(bool(re.search(pattern, line)) for pattern in RULES) == 1


@pytest.mark.parametrize("line", ["regret 11.96 and 1.967", "TrialsFailed", "UNFAILED"])
def test_the_rules_let_other_things_stand(line):
    assert not any(re.search(pattern, line) for pattern in RULES)
