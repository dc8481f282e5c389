"""Rules that stand in one place only: which trials failed, and how wide a confidence interval is."""

import re

import pytest

from tests.support.paths import ROOT

FILES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for folder in ("jaxbandit", "experiments")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
# What to look for, the file that it stands in, and what to use elsewhere.
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
