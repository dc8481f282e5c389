"""Tables of study files."""

import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jaxbandit
from jaxbandit import InvalidArgument, delays, estimators, informed, kernels, penalties, problems, widths
from jaxbandit.core.codec import to_plain, words_of_fields
from jaxbandit.core.declare import parameters
from jaxbandit.problems.base import AbstractProblem
from jaxbandit.study import from_table, from_toml
from jaxbandit.study.catalogue import described, places
from tests.support import small_study
from tests.support.paths import ROOT
from tests.support.study_files import KINDS, ROLES, build, names

ARMS = Path(__file__).parents[1] / "support" / "arms.csv"
# Required fields of makers by name.
REQUIRED: dict[str, dict[str, Any]] = {
    "Anytime": {"algorithm": {"type": "Rpol"}},
    "Empirical": {"values": [1, 2]},
    "Gram": {"matrix": [[1.0, 0.0], [0.0, 1.0]]},
    "PosteriorMean": {"kernel": {"type": "Matern52"}, "points": [[0.0], [1.0]], "weights": [1.0, -1.0]},
    "Heteroscedastic": {"variance": [0.1, 0.2]},
    "OnAxes": {"kernel": {"type": "Categorical"}, "axes": [1]},
    "Refitted": {"algorithm": {"type": "Rpol"}},
    "Product": {"left": {"type": "Matern12"}, "right": {"type": "White"}},
    "Scale": {"kernel": {"type": "Linear"}, "variance": 2.0},
    "Sum": {"left": {"type": "Matern12"}, "right": {"type": "White"}},
    "Residuals": {"table": [[0.1, -0.1]]},
    "from_csv": {"path": str(ARMS), "objective": "maximise yield", "constraints": ["heat <= 80"], "points": ["dose", "catalyst"]},
    "artificial": {"name": "P1", "points_per_axis": 4},
}
OBJECTS = [kind for kind in KINDS if kind != "problem"]


def required(name: str, kind: str) -> dict[str, Any]:
    if name == "PerOutput":
        return {"delays" if kind == "delay" else "models": [{"type": "NoDelay" if kind == "delay" else "Noiseless"}]}
    return REQUIRED.get(name, {})


@pytest.mark.parametrize("kind", OBJECTS)
def test_every_name_builds_an_object_that_can_be_written_again(kind: str) -> None:
    base = {
        "algorithm": jaxbandit.Algorithm,
        "delay": delays.Delay,
        "feedback": jaxbandit.feedback.Policy,
        "informed": informed.Rule,
        "kernel": kernels.Kernel,
        "noise": problems.Noise,
    }[kind]
    own = {name: maker for name, maker in names(kind).items() if issubclass(maker, base)}
    assert len(own) >= 3
    for name, maker in own.items():
        item = build(kind, {"type": name} | required(name, kind), "it")
        assert type(item) is maker
        again = build(kind, to_plain(item, "it"), "it")
        assert type(again) is maker and to_plain(again, "it") == to_plain(item, "it")


def test_every_problem_that_can_be_named_is_one() -> None:
    for name, maker in names("problem").items():
        small = {"points_per_axis": 11} if name.startswith("rkhs_2d") else {"points_per_axis": 4}
        given = small if "points_per_axis" in inspect.signature(maker).parameters else {}
        assert isinstance(build("problem", {"type": name} | given | REQUIRED.get(name, {}), "problem.p"), AbstractProblem), name
    assert {"sine", "gp_draws", "building"} <= set(names("problem"))
    assert not {"from_tables", "optimum", "with_equalities", "best_mixed_policy"} & set(names("problem"))


def test_the_catalogue_holds_what_tables_can_name_and_says_how() -> None:
    """Fields that need a Python function are not in it."""
    known = places()
    assert set(KINDS) <= set(known) and {"strategy", "width", "distribution", "penalty"} <= set(known)
    for kind in OBJECTS:
        assert set(known[kind]) == {name for name, maker in names(kind).items() if issubclass(maker, ROLES[kind])}
    assert "Custom" not in known["width"] and "SqrtLog" in known["width"] and "Bounds" not in known["algorithm"]
    text = described("Rpol", known["algorithm"]["Rpol"])
    assert text.startswith("Rpol: ") and "  initial_penalty = " in text and '  estimator = {type = "Bounds"}' in text
    assert "a table of Bounds, Randomised, Thompson" in " ".join(text.split())
    assert "  table  (required)" in described("Residuals", known["noise"]["Residuals"])
    for own in known.values():
        for name, maker in own.items():
            lines = described(name, maker).splitlines()
            assert len(lines[0]) > len(name) + 12 and "`" not in lines[0]
            fields = [line.split()[0] for line in lines[1:] if not line.startswith("      ")]
            assert fields == [parameter.name for parameter in parameters(maker)]


def test_a_study_of_a_file_is_another_one_when_the_file_has_changed(tmp_path: Path) -> None:
    """Else a run that was interrupted would go on with other values."""
    path = tmp_path / "arms.csv"
    problem = {"type": "from_csv", "path": str(path), "objective": "maximise yield"}
    table = {"name": "arms", "horizon": 3, "problem": {"arms": problem}, "algorithm": {"cbo": {"type": "Unconstrained"}}}
    found = []
    for last in ("2.0", "2.5", "2.0"):
        path.write_text(f"yield\n1.0\n{last}\n")
        found.append(from_table(table).fingerprint())
    assert found[0] == found[2] != found[1]


def test_tables_within_tables() -> None:
    table = {
        "type": "Anytime",
        "algorithm": {
            "type": "Se2",
            "estimator": {"type": "Randomised", "distribution": {"type": "DiscreteUniform", "points": 5}},
            "psi": {"type": "Polynomial", "n": 3.0},
        },
    }
    found = build("algorithm", table, "a")
    assert found.algorithm.psi == penalties.Polynomial(n=3.0)
    assert found.algorithm.estimator.distribution == estimators.DiscreteUniform(points=5)
    bounds = build("algorithm", {"type": "Rpol", "estimator": {"type": "Bounds", "reward_width": {"type": "SqrtLog", "a": 3.0}}}, "a")
    assert bounds.estimator.reward_width == widths.SqrtLog(a=3.0)
    assert build("algorithm", {"type": "Bpe", "width": {"type": "Elimination"}}, "a").width == jaxbandit.algorithms.Elimination()


def test_lists_become_arrays_tuples_or_objects_as_the_field_declares() -> None:
    admmbo = build("algorithm", {"type": "Admmbo", "reward_budget": [3, 2], "agreement": {"type": "Agreement", "absolute": 0.1}}, "a")
    assert admmbo.reward_budget == (3, 2) and admmbo.agreement.absolute == 0.1
    admmbo.validate(outputs=2)
    np.testing.assert_array_equal(build("algorithm", {"type": "Cbo", "cost_clip": [1.0, 2.0]}, "a").cost_clip, [1.0, 2.0])
    each = build("delay", {"type": "PerOutput", "delays": [{"type": "Poisson", "mean": 2.0}, {"type": "NoDelay"}]}, "d")
    assert each == delays.PerOutput(delays=(delays.Poisson(mean=2.0), delays.NoDelay()))
    assert build("delay", to_plain(each, "d"), "d") == each
    noisy = build("problem", {"type": "gp_draws", "noise": {"type": "StudentT"}, "kernel": {"type": "Matern32"}}, "p")
    assert noisy.noise == problems.StudentT()


DOMAINS: dict[str, dict[str, Any]] = {
    "arms": {"count": 3},
    "grid": {"low": [0, 0], "high": [1, 2], "points_per_axis": [2, 3]},
    "mixed": {"axes": {"dose": [0.1, 0.2], "catalyst": ["Pd", "Ni"]}},
    "points": {"coordinates": [[0.0, 1.0], [1.0, 0.5]]},
    "product": {"axes": [[0.0, 1.0], [0.0, 0.5, 2.0]]},
    "sobol": {"low": [0, 0, 0], "high": [1, 1, 2], "count": 8, "key": 3},
}
# Problems of tables refuse boxes, and tests of contexts read files with contexts.
ELSEWHERE = {"box", "with_contexts"}


def test_problems_take_the_domains_that_can_be_named() -> None:
    assert set(DOMAINS) | ELSEWHERE == set(places()["domain"])
    for name, given in DOMAINS.items():
        found = build("problem", {"type": "gp_draws", "domain": {"type": name} | given}, "p").domain
        wanted = getattr(jaxbandit.domains, name)(**given)
        np.testing.assert_array_equal(found.points, wanted.points)
        assert found.names == wanted.names and found.categories == wanted.categories
    assert "a table of arms, box, grid, mixed, points, product, sobol" in " ".join(
        described("gp_draws", names("problem")["gp_draws"]).split()
    )


@jaxbandit.pytree
class Own(jaxbandit.Algorithm):
    """A user's own."""

    name = "own"

    def select(self, arena: Any, state: Any, t: Any, key: Any) -> Any:
        raise NotImplementedError


def test_what_cannot_be_found_again_is_no_table() -> None:
    @jaxbandit.pytree
    class Local(jaxbandit.Algorithm):
        """A user's own, defined where nobody can import it from."""

        name = "local"

        def select(self, arena: Any, state: Any, t: Any, key: Any) -> Any:
            raise NotImplementedError

    for item in (
        Local(),
        jaxbandit.Anytime(algorithm=Local()),
        widths.Custom(function=max),
        object(),
        jaxbandit.replace(problems.sine(4), name="mine"),
    ):
        with pytest.raises(InvalidArgument, match="cannot be written as a table"):
            to_plain(item, "it")
    assert "Own" not in names("algorithm")


def test_a_users_own_class_is_named_with_its_module_and_read_only_where_that_is_imported() -> None:
    table = {"type": f"{__name__}:Own"}
    assert to_plain(Own(), "it") == table and build("algorithm", table, "it") == Own()
    assert build("algorithm", {"type": "Anytime", "algorithm": table}, "it").algorithm == Own()
    for name in (
        "this.is_not_there:Own",
        "antigravity:Own",
        f"{__name__}:Nope",
        f"{__name__}:required",
        "os:system",
        f"{__name__}:Own.name",
    ):
        with pytest.raises(InvalidArgument, match=f"it: there is no algorithm '{name}' in the modules that have been imported"):
            build("algorithm", {"type": name}, "it")
    with pytest.raises(InvalidArgument, match="there is no delay"):
        build("delay", table, "it")
    assert "antigravity" not in sys.modules


def test_words_of_fields_are_read_as_each_python_keeps_docstrings() -> None:
    """Python 3.13 and later strip the indentation of docstrings."""
    wanted = {"points": "numbers of points, which go on here.", "low": "an end.", "high": "an end."}

    def indented() -> None:
        """Do nothing.

        Args:
          points: numbers of points,
            which go on here.
          low, high: an end.

        Other words: no field.
        """

    assert words_of_fields(indented) == wanted
    indented.__doc__ = inspect.cleandoc(indented.__doc__ or "")
    assert words_of_fields(indented) == wanted


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
    (tmp_path / f"{name}.toml").write_text(FILES[name]())
    study = from_toml(tmp_path / f"{name}.toml")
    golden("studies").check(f"{name} table", study.table())
    golden("studies").check(f"{name} fingerprint", study.fingerprint())
    assert from_table(study.table()).fingerprint() == study.fingerprint()


@pytest.mark.parametrize("kind", KINDS)
def test_golden_names(kind: str, golden: Any) -> None:
    found = {}
    for name in names(kind):
        try:
            item = build(kind, {"type": name}, "it") if kind != "problem" else None
        except Exception as error:
            item, found[name] = None, str(error)
        if item is not None:
            found[name] = to_plain(item, "it")
    golden("names").check(kind, {name: found.get(name) for name in names(kind)})
