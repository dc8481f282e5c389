"""What study files, tables and fingerprints were and have to stay."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jaxbandit.core.codec import to_plain
from jaxbandit.study import from_table, from_toml
from tests.support import small_study
from tests.support.paths import ROOT
from tests.support.study_files import KINDS, build, names

# One of everything that a study file can say.
EVERYTHING = """
name = "everything"
trials = 3
horizon = 8
seed = 7
keep = {every = 2}
common_random_numbers = false
metrics = ["regret", "hard_violation"]
initial = {indices = [0, 3]}

[parameters]
batch = "A"

[model]
kernel = [{type = "Scale", variance = 2.0, kernel = {type = "SquaredExponential", length_scale = [1.0, 2.0]}}, {type = "Matern32"}]
noise_variance = [0.05, 0.1]
prior_mean = [0.0, 0.5]
form = "features"
tolerance = 1e-5

[problem.sine]
type = "sine"
points_per_axis = 5

[problem.drawn]
type = "gp_draws"
domain = {type = "grid", low = [0.0, 0.0], high = [1.0, 2.0], points_per_axis = 4}
kernel = {type = "Matern52", length_scale = 0.7}
noise = {type = "StudentT"}

[delay.late]
type = "PerOutput"
delays = [{type = "Poisson", mean = 2.0}, {type = "Constant", rounds = 1}]

[algorithm.search]
type = "RandomSearch"
informed = {type = "FeasiblePoints"}

[algorithm.oracle]
type = "Oracle"
informed = {type = "BestPoint"}

[algorithm.theory]
type = "Anytime"
algorithm = {type = "Cbo", estimator = {type = "Randomised", reward_width = {type = "ImprovedGPUCB", norm_bound = 2.0}}}
sweep = {"algorithm.step_divisor" = [1.0, 3.0]}
feedback = {type = "Censor", window = 2, minimum = -1.0}
"""


def page() -> str:
    return re.findall(r"```toml\n(.*?)```", (ROOT / "notebooks" / "pages" / "studies.md").read_text(), flags=re.S)[0]


FILES: dict[str, Callable[[], str]] = {"small": lambda: small_study.TOML, "everything": lambda: EVERYTHING, "readme": page}


@pytest.mark.parametrize("name", FILES)
def test_golden_tables(name: str, tmp_path: Path, golden: Any) -> None:
    """A study file becomes the table that it always became, and the table the same study."""
    (tmp_path / f"{name}.toml").write_text(FILES[name]())
    study = from_toml(tmp_path / f"{name}.toml")
    golden("studies").check(f"{name} table", study.table())
    golden("studies").check(f"{name} fingerprint", study.fingerprint())
    assert from_table(study.table()).fingerprint() == study.fingerprint()


@pytest.mark.parametrize("kind", KINDS)
def test_golden_names(kind: str, golden: Any) -> None:
    """What study files can name, and how an object made by its name alone is written."""
    found = {}
    for name in names(kind):
        try:
            item = build(kind, {"type": name}, "it") if kind != "problem" else None
        except Exception as error:
            item, found[name] = None, str(error)
        if item is not None:
            found[name] = to_plain(item, "it")
    golden("names").check(kind, {name: found.get(name) for name in names(kind)})
