"""Classes of a user's own in studies and study files."""

import contextlib
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest

from experiments.common.running import with_algorithms
from jaxbandit import InvalidArgument
from jaxbandit.cli import main
from jaxbandit.core.codec import LOADED
from jaxbandit.host import executors, user_code
from jaxbandit.report.html import write_report
from jaxbandit.report.session import write_session_report
from jaxbandit.session import Model, Session
from jaxbandit.study import Study, audit, from_table, from_toml, grid, own_algorithm, rerun, run_study, write_results
from jaxbandit.study.catalogue import described
from tests.study import kill_study

TEXT = """
import dataclasses
from typing import ClassVar
import jaxbandit as jb
from jaxbandit.algorithms.base import BeliefState, Scored
from jaxbandit.rules.scores import Score
from jaxbandit.rules.estimators import Bounds, Strategy

@jb.pytree
class FixedPenalty(Scored[BeliefState]):
    name: ClassVar[str] = "fixed"
    estimator: Strategy = Bounds()
    penalty: float = 5.0

    def score(self, state, estimate):
        return Score(estimate.reward)

@jb.pytree
class Mine(jb.Rpol):
    name: ClassVar[str] = "mine"
"""
TABLE = {"problem": {"sine": {"type": "sine", "points_per_axis": 4}}, "algorithm": {"own": {"type": "FixedPenalty", "penalty": 3.0}}}
TABLE |= {"name": "own", "trials": 2, "horizon": 4}


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[Path]:
    """Write a class in a file that no process knows yet."""
    path = tmp_path / "rules_of_mine.py"
    path.write_text(TEXT, encoding="utf-8")
    yield path
    forget()


def forget() -> None:
    for name in list(LOADED):
        del LOADED[name], sys.modules[name]
    executors._loaded.cache_clear()


def test_a_class_of_a_file_that_is_named_is_known_by_its_name(mine: Path) -> None:
    with pytest.raises(InvalidArgument, match="there is no algorithm 'FixedPenalty'"):
        from_table(TABLE)
    module, name = user_code.load(str(mine))
    assert user_code.load(f"{mine}:FixedPenalty") == (module, "FixedPenalty") and name == ""
    study = from_table(TABLE)
    table = json.loads(json.dumps(study.table()))
    assert table["algorithm"]["own"]["type"] == "rules_of_mine:FixedPenalty" and from_table(table).fingerprint() == study.fingerprint()
    sent, before = executors.pickled(study.table), study.fingerprint()
    forget()
    with pytest.raises(InvalidArgument, match=r"import its module first"):
        from_table(table)
    assert executors._loaded(sent)() == table and from_table(table).fingerprint() == before
    forget()
    mine.write_text(TEXT + "\n# changed\n", encoding="utf-8")
    user_code.load(str(mine))
    assert from_table(table).fingerprint() != before


def test_an_experiment_plays_an_algorithm_of_a_user(mine: Path) -> None:
    algorithm = own_algorithm(f"{mine}:FixedPenalty")
    sines = {"fine": {"type": "sine", "points_per_axis": 5}, "coarse": {"type": "sine", "points_per_axis": 4}}
    runs = grid(problems=sines, algorithms={"rpol": {"type": "Rpol"}, "cei": {"type": "Cei"}}, horizon=4)
    study = with_algorithms(Study("several", runs=runs, horizon=4), [algorithm])
    assert [run.label for run in study.runs[4:]] == ["FixedPenalty on fine", "FixedPenalty on coarse"]
    assert study.runs[4].model is study.runs[0].model and study.runs[5].problem is study.runs[2].problem
    for given, words in (
        (str(mine), "must name a class in the file"),
        (f"{mine}:Bounds", "there is no algorithm"),
        (f"{mine}:None_", "defines no 'None_'"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            own_algorithm(given)


@pytest.mark.full
def test_a_study_of_a_class_of_a_user_is_killed_and_goes_on_to_the_same_bits() -> None:
    """``python tests/study/kill_study.py`` kills a study of full size."""
    study, said = kill_study.ONE_CELL.replace('"Rpol"', '"Mine"'), list[str]()
    try:
        assert kill_study.kill_and_compare(1, 60, seed=1, report=said.append, study=study, own=TEXT) == 0
    finally:
        forget()
    assert len(said) == 1


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("mine.txt", "", "must be a file of Python"),
        ("not a name.py", "", "must be a file of Python"),
        ("json.py", "", "there is another module called 'json'"),
        ("failing.py", "x = 1\ny = z\n", r"failing\.py, line 2 fails: name 'z' is not defined"),
        ("unread.py", None, r"cannot read .*unread\.py"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, words: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(InvalidArgument, match=f"^with: .*{words}"):
        user_code.load(str(tmp_path / name))
    assert Path(name).stem not in LOADED and "failing" not in sys.modules
    assert main(["run", "none.toml", "--with", str(tmp_path / name)]) == 2 and "with: " in capsys.readouterr().err


MODULE = '''
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np

import jaxbandit as jb
from jaxbandit.algorithms import Decision


@jb.pytree
class Bump(jb.kernels.Kernel):
    """A product of bumps, ``prod_a exp(-|x_a - y_a| / l)``."""

    length_scale: Annotated[float, jb.fields.positive] = 1.0

    def __call__(self, x, y):
        return jnp.exp(-jnp.sum(jnp.abs(x[:, None] - y[None]), -1) / self.length_scale)


@jb.pytree
class Coin(jb.delays.Delay):
    """No delay or a delay of ``rounds``, as a coin falls."""

    rounds: Annotated[int, jb.fields.whole(1)] = jb.static(default=2)
    mean = property(lambda self: self.rounds / 2)

    def draw(self, key, outputs):
        return self.rounds * jax.random.bernoulli(key, shape=(outputs,)).astype(jnp.int32)

    def quantile(self, q):
        return 0 if q <= 0.5 else self.rounds


@jb.pytree
class Cycle(jb.Algorithm):
    """Every ``stride``-th point in turn."""

    name = "cycle"
    stride: Annotated[float, jb.fields.positive, jb.fields.Letter("s")] = 1.0

    def select(self, arena, state, t, key):
        index = (t * jnp.asarray(self.stride).astype(jnp.int32)) % arena.size
        return Decision(index=index.astype(jnp.int32), widths=jnp.zeros((1 + arena.constraints,), arena.dtype)), state


@jb.problems.nameable
def valley(points: int = 4, kernel: jb.kernels.Kernel | None = None) -> jb.problems.Problem:
    """A valley.

    Args:
      points: number of points.
      kernel: one that is not used.
    """
    x = np.linspace(0.0, 1.0, points)
    return jb.problems.from_tables(jb.domains.product([x]), x**2, [x - 0.5], noise_variance=0.01, name="valley")
'''
STUDY = """
trajectories = true
trials = 2
horizon = 8
metrics = ["regret", "hard_violation"]
keep = {{every = 1}}
model = {{kernel = {{type = "Scale", variance = 2.0, kernel = {{type = "{0}:Bump", length_scale = 0.5}}}}, form = "features"}}
problem.mine = {{type = "{0}:valley", points = 5, kernel = {{type = "{0}:Bump"}}}}
delay.mine = {{type = "{0}:Coin", rounds = 3}}
algorithm.mine = {{type = "{0}:Cycle", sweep = {{stride = [1.0, 2.0]}}}}
"""


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module, imported."""
    name = "parts_of_a_user"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module(name)
    sys.modules.pop(name, None)


@pytest.mark.full
def test_a_study_is_run_resumed_played_again_audited_and_reported(parts: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(STUDY.format(parts.__name__))
    study = from_toml(tmp_path / "own.toml")

    def lose_patience(progress: Any) -> None:
        if progress.round == 6:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        run_study(study, tmp_path / "out", segment=2, checkpoint_share=1.0, report=lose_patience)
    said: list[str] = []
    dataset = run_study(study, tmp_path / "out", resume=True, note=said.append)
    assert any("resumed" in line for line in said)
    for label in ("mine stride=1", "mine stride=2"):
        # The results hold the study.
        again = rerun(dataset, 1, label=label)
        np.testing.assert_array_equal(again.regret.values.ravel(), dataset.regret.sel(algorithm=label, trial=1).values)
    meta = json.loads(str(audit(study, study.runs[1], 0)["meta"]))
    assert meta["params"]["kernel"] == {"name": "bump", "var": 2.0, "u": 0.5} and meta["params"]["s"] == 2.0
    assert meta["params"]["delay"] == {"type": "Coin", "rounds": 3}
    write_results(dataset, tmp_path / "out" / "results.nc")
    assert "mine stride=2" in write_report(tmp_path / "out").read_text()
    assert "points = 4" in described("valley", parts.valley) and "number of points" in described("valley", parts.valley)


def test_a_session_is_held_opened_again_and_reported(parts: ModuleType, tmp_path: Path) -> None:
    domain, model = parts.valley(5).domain, Model(kernel=parts.Bump(length_scale=0.5), noise_variance=0.1, form="features")
    with Session.create(
        tmp_path / "s", domain, parts.Cycle(stride=2), model, delay=parts.Coin(rounds=1), key=jax.random.key(0), horizon=6
    ) as session:
        ticket = session.ask()
        session.tell(ticket, {"reward": 0.25})
        expected = session.ask().index
    with Session.open(tmp_path / "s") as again:
        assert [waiting.index for waiting in again.pending] == [expected] and again.specification.table() == session.specification.table()
    assert "Bump" in write_session_report(tmp_path / "s").read_text()
    del sys.modules[parts.__name__]
    with pytest.raises(InvalidArgument, match=f"no kernel '{parts.__name__}:Bump' in the modules that have been imported"):
        Session.open(tmp_path / "s")
