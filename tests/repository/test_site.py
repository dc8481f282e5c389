"""The documentation site refuses what would mislead its readers; that it builds is seen by CI, which builds it."""

import re
import shutil
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

PAGE = """# Page

[nowhere](missing.md), {py:func}`jaxbandit.no_such_name`, $\\nosuchcommand x$

```{public} jaxbandit.penalties
```
"""


@pytest.mark.full
def test_dead_links_unknown_names_and_names_that_no_page_describes_fail_the_build(tmp_path):
    for name in ("conf.py", "extension.py", "papers.py", "site.css"):
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
