"""Tests that a class declares what its objects are; nothing in the package asks an object which attributes it has. Read with ``ast``.

``getattr(x, name)`` with a computed name and no default stays: it reads a field whose name another part of the program knows, and fails
where there is none, so that it asks nothing.
"""

import ast
import functools
from pathlib import Path

import pytest

import jaxbandit
from tests.support.parsed import tree_of

ROOT = Path(jaxbandit.__file__).parent
QUESTIONS = ("hasattr", "getattr", "attrgetter")
MOST = 5  # entries in the list below
# Questions to something other than an object of the library, by file and expression; the reason says to what.
ALLOWED = {
    ("core/codec.py", "getattr(item, '__module__', '?')"): "any callable of a user's, whose name goes into a record",
    ("core/codec.py", "getattr(item, '__qualname__', repr(item))"): "any callable of a user's, whose name goes into a record",
}


def questions(source):
    """Every place where ``source`` asks an object what it has, as it is written, in the order of the file."""
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


PATHS = {path.relative_to(ROOT).as_posix(): path for path in sorted(ROOT.rglob("*.py"))}


@functools.cache
def found(name):
    """The questions of one file of the package."""
    return questions(PATHS[name].read_text(encoding="utf-8"))


def test_the_package_was_found():
    assert {"algorithms/base.py", "engine/trial.py", "study/catalogue.py"} <= set(PATHS)


def test_roles_are_declared():
    asked = [(name, question) for name in PATHS for question in found(name)]
    assert [entry for entry in asked if entry not in ALLOWED] == [], "ask for the class: isinstance of an abstract base"


def test_exceptions_are_few_have_reasons_and_are_needed():
    assert len(ALLOWED) <= MOST
    assert all(len(reason.split()) >= 5 for reason in ALLOWED.values())
    assert [entry for entry in ALLOWED if entry[0] not in PATHS or entry[1] not in found(entry[0])] == []


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
