"""Checkable rules of words in docstrings and comments."""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

import jaxbandit
from tests.support.parsed import tree_of

ROOT = Path(jaxbandit.__file__).parent
FILES = [path for place in ("jaxbandit", "experiments", "tests") for path in sorted((ROOT.parent / place).rglob("*.py"))]
# Words that open a fragment, such as "Of the study" or "As `observe`".
FRAGMENTS = {"And", "As", "By", "For", "From", "In", "Of", "On", "What", "Where", "Whether", "Which", "With"}
# A comment may begin with "On a box", because the rest is a sentence.
FRAGMENTS_OF_COMMENTS = {"And", "Of", "What", "Whether", "Which", "Whose"}
PRAGMA = re.compile(r"#\s*(type:|noqa|fmt:)")
SHAPE_OR_UNIT = re.compile(r"#:? (\[.*|(s|ms|us|seconds|minutes|bytes|KiB|MiB|GiB|rounds|points|trials|%))$")
MOST_WORDS = 12


def of_docstrings(source: str) -> list[tuple[int, str]]:
    """Return lines and complaints of first lines against the rules."""
    found = []
    for node in ast.walk(tree_of(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or not (
            text := ast.get_docstring(node)
        ):
            continue
        first = text.splitlines()[0]
        words = first.split()
        complaints = {
            f"{len(words)} words": len(words) > MOST_WORDS,
            "a semicolon": ";" in first,
            "which": "which" in words,
            "a fragment": words[0].rstrip(",:;") in FRAGMENTS,
        }
        found += [(node.body[0].lineno, f"{complaint}: {first}") for complaint, is_so in complaints.items() if is_so]
    return found


def of_comments(source: str) -> list[tuple[int, str]]:
    """Return a line and a complaint for each comment against the rules."""
    found, above = [], dict[int, list[tokenize.TokenInfo]]()
    first = last = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or PRAGMA.match(token.string):
            continue
        line, column = token.start
        if token.line[:column].strip():
            found += [] if SHAPE_OR_UNIT.match(token.string) else [(line, f"neither a shape nor a unit: {token.string}")]
            continue
        # Lines of one comment follow each other.
        first = first if line == last + 1 else line
        above.setdefault(first, []).append(token)
        last = line
    for line, tokens in above.items():
        text = " ".join(token.string.lstrip("#:").strip() for token in tokens)
        is_sentence = re.match(r"[A-Z0-9`\"'(]", text) and re.search(r"[.:?]\)?$", text) and text.split()[0] not in FRAGMENTS_OF_COMMENTS
        found += [] if is_sentence else [(line, f"no sentence from a capital to a full stop: {text}")]
    return found


@pytest.mark.parametrize("rule", [of_docstrings, of_comments])
def test_words_keep_the_rules(rule):
    assert len(FILES) > 100
    wrong = [f"{path.relative_to(ROOT.parent)}:{line}: {words}" for path in FILES for line, words in rule(path.read_text("utf-8"))]
    assert not wrong, "see the rules in .github/CONTRIBUTING.md:\n" + "\n".join(wrong)


@pytest.mark.parametrize("opening", [*sorted(FRAGMENTS), "What,", "Whether:"])
def test_fragments_are_found_wherever_they_stand(opening):
    source = f'"""{opening} a."""\n\nclass A:\n    """{opening} b."""\n\n    def f(self):\n        """{opening} c."""\n'
    assert [(line, words.split(": ", 1)[1]) for line, words in of_docstrings(source)] == [
        (1, f"{opening} a."),
        (4, f"{opening} b."),
        (7, f"{opening} c."),
    ]


@pytest.mark.parametrize("first", ["Return " + "x " * 12, "Return x; y.", "Return x, which is y.", "Return x which is."])
def test_long_and_joined_first_lines_are_found(first):
    assert len(of_docstrings(f'def f():\n    """{first}\n\n    Return x; y which z.\n    """\n')) == 1


@pytest.mark.parametrize("opening", ["Return whether it is safe.", "Number of outputs, k.", "``m``, the number of constraints.", ""])
def test_sentences_pass(opening):
    assert of_docstrings(f'def f():\n    """{opening}"""\n') == []


@pytest.mark.parametrize(
    "code", ["x = 1  # of which", "x = 1  # points of it", "# x is 1.\nx = 1", "# X is 1\nx = 1", "# Of X.\nx = 1", "# X is\n# 1\nx = 1"]
)
def test_fragments_of_comments_are_found(code):
    assert len(of_comments(code + "\n")) == 1


@pytest.mark.parametrize(
    "code",
    ["x = 1  # [n, d]", "x = 1  # bytes", "x = 1  # type: ignore[arg-type]", "# X is 1.\nx = 1", "# X is\n# one.\nx = 1", "x = '# of'"],
)
def test_sentences_shapes_units_and_pragmas_pass(code):
    assert of_comments(code + "\n") == []
