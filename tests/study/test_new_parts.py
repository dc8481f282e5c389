"""A kernel, a delay, a problem and an algorithm of a user's own module work wherever those of the package do, without a further table."""

from __future__ import annotations

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

from jaxbandit import InvalidArgument
from jaxbandit.report.html import write_report
from jaxbandit.report.session import write_session_report
from jaxbandit.session import Model, Session
from jaxbandit.study import audit, from_toml, rerun, run_study, write_results
from jaxbandit.study.catalogue import described

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
        again = rerun(dataset, 1, label=label)  # of the study that the results hold
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
