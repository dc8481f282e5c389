"""Docstrings start with a verb or a noun phrase that stands by itself, so that each is understood at first reading."""

import ast
from pathlib import Path

import pytest

import jaxbandit
from tests.support.parsed import tree_of

ROOT = Path(jaxbandit.__file__).parent
FILES = [path for place in ("jaxbandit", "experiments") for path in sorted((ROOT.parent / place).rglob("*.py"))]

# Words that open a fragment: "What a rule gives", "Of the study", "As `observe`", "Whether it is safe".
FRAGMENTS = {"And", "As", "By", "For", "From", "In", "Of", "On", "What", "Where", "Whether", "Which", "With"}


def fragments(source):
    """Return ``(line, first words)`` of every docstring of a module's source, public or private, that opens with a fragment's word."""
    found = []
    for node in ast.walk(tree_of(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        words = (ast.get_docstring(node) or "").split()
        if words and words[0].rstrip(",:;") in FRAGMENTS:
            found.append((node.body[0].lineno, " ".join(words[:6])))
    return found


def test_no_docstring_opens_with_a_fragment():
    assert len(FILES) > 100
    wrong = [f"{path.relative_to(ROOT.parent)}:{line}: {words!r}" for path in FILES for line, words in fragments(path.read_text("utf-8"))]
    assert not wrong, "start with a verb ('Return ...') or a noun phrase:\n" + "\n".join(wrong)


@pytest.mark.parametrize("opening", [*sorted(FRAGMENTS), "What,", "Whether:"])
def test_fragments_are_found_wherever_they_stand(opening):
    source = f'"""{opening} a."""\n\nclass A:\n    """{opening} b."""\n\n    def f(self):\n        """{opening} c."""\n'
    assert fragments(source) == [(1, f"{opening} a."), (4, f"{opening} b."), (7, f"{opening} c.")]


@pytest.mark.parametrize("opening", ["Return whether it is safe.", "Number of outputs, k.", "``m``, the number of constraints.", ""])
def test_sentences_pass(opening):
    assert fragments(f'def f():\n    """{opening}"""\n') == []
