"""Memory of trials, and their blocks and parts on accelerators."""

from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit
from jaxbandit.engine import simulation
from jaxbandit.engine.cell import Cell
from jaxbandit.engine.programs import begin_all
from jaxbandit.host import memory
from jaxbandit.host.memory import tree_bytes
from jaxbandit.session import Axis, Model, Session
from jaxbandit.study import Run, Study, run_study
from jaxbandit.study.plan import Machine, seconds_of_batch
from tests.support.counted import COMPILED, Counted

Device = namedtuple("Device", "platform")


@pytest.fixture(scope="module")
def cell() -> Iterator[Cell]:
    """Return the cell of a simulation of six trials."""
    problem = jaxbandit.problems.sine(5)
    model = jaxbandit.surrogate(problem.domain, jaxbandit.kernels.SquaredExponential(), noise_variance=0.05)
    seen: list[Any] = []
    with pytest.MonkeyPatch.context() as patched:
        play = simulation.play_all
        patched.setattr(simulation, "play_all", lambda cell, *rest, **options: seen.append(cell) or play(cell, *rest, **options))
        jaxbandit.simulate(problem, jaxbandit.Rpol(), model, horizon=3, trials=6, key=jax.random.key(0))
    yield seen[0]


def test_the_bytes_of_a_trial_are_those_that_it_carries(cell: Cell) -> None:
    pairs = np.zeros((cell.block, 3), np.int32)
    carry, _ = begin_all(cell, jax.random.key(0), pairs, mesh=None)
    # A trial carries at least two means and a variance.
    assert simulation.carried_bytes(cell) * cell.block == tree_bytes(carry) > cell.block * 4 * 3 * 25


def test_an_accelerator_runs_as_many_trials_side_by_side_as_fit(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    room = simulation.COPIES_OF_CARRY * simulation.carried_bytes(cell) * 2 * len(jax.local_devices())
    for trials_that_fit, devices, want in ((1000.5, 1, 400), (100.5, 1, 100), (100.5, 2, 100), (1000.5, 2, 200), (0.5, 1, 1)):
        monkeypatch.setattr(simulation, "device_memory", lambda fit=trials_that_fit: fit * room)
        assert simulation.default_block(cell, 400, [Device("gpu")] * devices) == want
    assert simulation.default_block(jaxbandit.replace(cell, block=7), 400, [Device("cpu")]) == 7


def test_launches_are_counted_once_for_all_trials_of_a_batch() -> None:
    """Ten thousand trials share their launches on an accelerator."""
    gpu, cpu = [Device("gpu")], [Device("cpu")]
    assert seconds_of_batch(100, 1000, 1, gpu) == seconds_of_batch(100, 1000, 10_000, gpu) == 1000 * Machine.of(gpu).round_seconds
    assert seconds_of_batch(585_000, 1000, 10_000, gpu) == pytest.approx(5.85)
    assert seconds_of_batch(585_000, 1000, 10_000, gpu * 2) == pytest.approx(5.85 / 2)
    assert seconds_of_batch(100, 1000, 10_000, cpu) == pytest.approx(1e7 * Machine.of(cpu).round_seconds)


def simulated(shape: int) -> object:
    problem = jaxbandit.problems.sine(4)
    model = jaxbandit.surrogate(problem.domain, jaxbandit.kernels.SquaredExponential(), noise_variance=0.1, form="features")
    return jaxbandit.simulate(problem, jaxbandit.Rpol(), model, horizon=3 + shape, key=0)


def asked(shape: int) -> object:
    axes = [Axis.between("x", 0, 1, 5 + shape)]
    model = Model(kernel=jaxbandit.kernels.SquaredExponential(), noise_variance=0.1)
    with Session.create(None, axes, jaxbandit.Rpol(), model, key=0) as session:
        return session.ask()


def studied(shape: int) -> object:
    problem = jaxbandit.problems.sine(4)
    model = problem.model(jaxbandit.kernels.SquaredExponential())
    return run_study(Study("shapes", [Run("rpol", problem, jaxbandit.Rpol(), model)], trials=1, horizon=3 + shape))


ON_LINUX = pytest.mark.skipif(not memory.Programs.maps.exists(), reason="only Linux says how many maps of memory a process has")


@ON_LINUX
def test_programs_are_dropped_at_the_limit_of_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated(0)
    for limit, dropped in ((memory.Programs.max_maps, False), (0, True)):
        monkeypatch.setattr(memory.Programs, "max_maps", limit)
        # Maps are counted once a program has been compiled.
        jax.jit(lambda x, limit=limit: x + limit)(0.0)
        with Counted() as events:
            simulated(0)
        assert (events[COMPILED] > 0) == dropped


@ON_LINUX
@pytest.mark.full
@pytest.mark.parametrize("use", [simulated, asked, studied], ids=lambda use: use.__name__)
def test_maps_of_memory_stay_bounded_over_many_shapes(use: Callable[[int], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """The system ends a process with 65,530 maps."""

    def maps() -> int:
        return memory.Programs.maps.read_bytes().count(b"\n")

    use(0)
    jax.clear_caches()
    before = maps()
    use(0)
    one = maps() - before
    monkeypatch.setattr(memory.Programs, "max_maps", before + 2 * one)
    most = [(use(shape), maps())[1] for shape in range(1, 7)]
    assert one > 20 and max(most) < before + 4 * one
