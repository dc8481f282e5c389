"""Forks of a process that used JAX are refused."""

import functools
import multiprocessing
import os
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit.core.checks import ForkedProcess
from jaxbandit.session import Axis, Session

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="no fork"), pytest.mark.filterwarnings("ignore:os.fork")]
SECONDS = 60.0  # seconds


@functools.cache
def parts() -> tuple[jb.problems.Problem, jb.Surrogate]:
    problem = jb.problems.sine(4)
    return problem, jb.surrogate(problem.domain, jb.kernels.SquaredExponential(), noise_variance=0.1, form="features")


def simulated(key: Any) -> list[int]:
    problem, model = parts()
    return jb.simulate(problem, jb.Rpol(), model, horizon=3, key=key).indices.ravel().tolist()


def model_made(_: Any) -> None:
    jb.surrogate(jb.domains.grid([0.0], [1.0], 5), jb.kernels.SquaredExponential(), noise_variance=0.1)


def session_opened(directory: Path) -> None:
    Session.open(directory)


def session_begun(_: Any) -> None:
    Session.create(None, [Axis.between("x", 0, 1, 5)], jb.Rpol(), key=0)


def study_run(_: Any) -> None:
    from tests.support.small_study import one_cell_in_python

    jb.study.run_study(one_cell_in_python())


def asked(session: Session) -> int:
    return session.ask().number


INHERITED: list[Session] = []


def asked_of_inherited(_: Any) -> int:
    return asked(INHERITED[0])


CALLS: dict[str, Callable[[Any], object]] = {
    "simulate, with a seed": lambda where: simulated(0),
    "simulate, with a key": lambda where: simulated(KEYS[0]),
    "a model": model_made,
    "a session that is opened": session_opened,
    "a session that is begun": session_begun,
    "a session that is inherited": asked_of_inherited,
    "a study": study_run,
}
KEYS: list[jax.Array] = []


def in_child(call: Callable[[], object]) -> str:
    """Return a forked child's result, or its error."""
    receiver, sender = os.pipe()
    child = os.fork()
    if not child:
        try:
            said = f"returned {call()}"
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(sender, said.encode())
        os._exit(0)
    os.close(sender)
    ready, _, _ = select.select([receiver], [], [], SECONDS)
    if not ready:
        os.kill(child, 9)
    os.waitpid(child, 0)
    with os.fdopen(receiver) as file:
        return file.read() or "it waits for ever"


@pytest.mark.parametrize("name", CALLS)
def test_a_fork_after_a_use_of_jax_is_refused_at_once(name: str, tmp_path: Path) -> None:
    first = simulated(0)
    KEYS[:] = [jax.random.key(0)]
    with Session.create(tmp_path / "session", [Axis.between("x", 0, 1, 5)], jb.Rpol(), key=0) as session:
        INHERITED[:] = [session]
        said = in_child(lambda: CALLS[name](tmp_path / "session"))
    assert said.startswith("ForkedProcess: this process was forked from one that had used JAX") and "spawn" in said
    assert simulated(0) == first, "the parent goes on"


def test_a_pool_of_forked_processes_is_refused() -> None:
    simulated(0)
    with multiprocessing.get_context("fork").Pool(1) as pool, pytest.raises(ForkedProcess, match=r"get_context\('spawn'\)"):
        pool.apply_async(simulated, (1,)).get(SECONDS)


def test_a_forked_child_that_uses_no_jax_is_left_alone(tmp_path: Path) -> None:
    simulated(0)
    assert in_child(lambda: int(np.arange(5).sum())) == "returned 10"
    assert in_child(lambda: jb.Rpol(penalty_growth=0.5).penalty_growth) == "returned 0.5"


FIRST = """
import os, sys
import jaxbandit as jb
child = os.fork()
if child:
    _, status = os.waitpid(child, 0)
    sys.exit(os.waitstatus_to_exitcode(status))
problem = jb.problems.sine(4)
model = jb.surrogate(problem.domain, jb.kernels.SquaredExponential(), noise_variance=0.1)
jb.simulate(problem, jb.Rpol(), model, horizon=3, key=0)
"""


def test_a_fork_before_any_use_of_jax_works() -> None:
    assert subprocess.run([sys.executable, "-c", FIRST], timeout=10 * SECONDS).returncode == 0
