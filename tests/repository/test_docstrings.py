"""Docstrings start with a verb or a noun phrase that stands by itself, so that each is understood at first reading."""

import ast
from pathlib import Path

import pytest

import jaxbandit

ROOT = Path(jaxbandit.__file__).parent
MODULES = sorted(".".join(path.relative_to(ROOT.parent).with_suffix("").parts) for path in ROOT.rglob("*.py"))

# Words that open a fragment: "What a rule gives", "Of the study", "As `observe`", "Whether it is safe".
FRAGMENTS = {"And", "As", "By", "For", "From", "In", "Of", "On", "What", "Where", "Whether", "Which", "With"}

# Parts of the package that are not converted yet. The list only gets shorter; nothing may be added.
NOT_YET = (
    "jaxbandit.algorithms",
    "jaxbandit.informed",
    "jaxbandit.safety",
)


def waits(module):
    return any(module == part or module.startswith(part + ".") for part in NOT_YET)


def fragments(source):
    """Return ``(line, first words)`` of every docstring of a module's source, public or private, that opens with a fragment's word."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        words = (ast.get_docstring(node) or "").split()
        if words and words[0].rstrip(",:;") in FRAGMENTS:
            found.append((node.body[0].lineno, " ".join(words[:6])))
    return found


def read(module):
    return (ROOT.parent / Path(*module.split("."))).with_suffix(".py").read_text(encoding="utf-8")


@pytest.mark.parametrize("module", [module for module in MODULES if not waits(module)])
def test_no_docstring_opens_with_a_fragment(module):
    wrong = [f"{module}:{line}: {words!r}" for line, words in fragments(read(module))]
    assert not wrong, "start with a verb ('Return ...') or a noun phrase:\n" + "\n".join(wrong)


@pytest.mark.parametrize("part", NOT_YET)
def test_parts_that_wait_are_parts_of_the_package_with_fragments(part):
    """An entry goes from the list as soon as its part is converted."""
    modules = [module for module in MODULES if module == part or module.startswith(part + ".")]
    assert any(fragments(read(module)) for module in modules), f"{part} has no fragments left: take it from NOT_YET"


@pytest.mark.parametrize("opening", [*sorted(FRAGMENTS), "What,", "Whether:"])
def test_fragments_are_found_wherever_they_stand(opening):
    source = f'"""{opening} a."""\n\nclass A:\n    """{opening} b."""\n\n    def f(self):\n        """{opening} c."""\n'
    assert fragments(source) == [(1, f"{opening} a."), (4, f"{opening} b."), (7, f"{opening} c.")]


@pytest.mark.parametrize("opening", ["Return whether it is safe.", "Number of outputs, k.", "``m``, the number of constraints.", ""])
def test_sentences_pass(opening):
    assert fragments(f'def f():\n    """{opening}"""\n') == []
