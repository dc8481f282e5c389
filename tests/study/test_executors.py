"""Studies whose batches are tasks of an executor."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import itertools
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import jaxbandit
from jaxbandit import InvalidArgument
from jaxbandit.cli import main
from jaxbandit.core.pytree import float_dtype
from jaxbandit.host import executors
from jaxbandit.host.executors import Answer, Patience, Task, TaskFailed, perform, spread
from jaxbandit.results import files
from jaxbandit.study import BatchFailed, CheckpointMismatch, Study, WorkerMismatch, WorkersLost, connected, from_toml, make_plan, run_study
from jaxbandit.study import plan as planning
from jaxbandit.study.play import Player
from tests.support.paths import ROOT
from tests.support.small_study import ONE_CELL, assert_same, in_python, one_cell_in_python, small_memory, written

FORK = multiprocessing.get_context("fork")

# Executors of this process, in order of what goes wrong with them.


class Faulty(Executor):
    """Executor of threads whose tasks meet a ``fault`` by their attempt."""

    def __init__(self, fault: Callable[[Task, int], str] = lambda task, before: "", seed: int = 0) -> None:
        self.fault, self.random, self.given = fault, random.Random(seed), {}
        self.waiting: list[tuple[Twice, Task]] = []
        # These tasks are answered twice.
        self.again: list[Twice] = []
        self.some, self.ended = threading.Condition(), False
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def submit(self, function: Any, /, task: Task, pickled: bytes) -> Any:  # type: ignore[override]
        assert function is perform
        with self.some:
            self.pickled = pickled
            self.waiting.append((Twice(), task))
            self.some.notify()
            return self.waiting[-1][0]

    def work(self) -> None:
        while True:
            with self.some:
                self.some.wait_for(lambda: self.waiting or self.ended)
                if self.ended:
                    return
                future, task = self.waiting.pop(self.random.randrange(len(self.waiting)))
            self.end(future, task)

    def end(self, future: Twice, task: Task) -> None:
        key = repr(task.argument)
        before = self.given[key] = self.given.get(key, -1) + 1
        fault = self.fault(task, before)
        if fault == "lost":
            future.set_exception(RuntimeError("its worker was lost"))
            return
        if fault == "done and lost":
            perform(task, self.pickled)
            future.set_exception(RuntimeError("its answer was lost"))
            return
        answer = perform(task, self.pickled)
        if fault == "done twice":
            answer = perform(task, self.pickled)
        future.set_result(answer)
        for one in self.again:
            one.say()
        self.again = [future] if fault == "said twice" else []
        for one in self.again:
            one.say()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self.some:
            self.ended = True
            self.some.notify()
        self.thread.join()


class Twice(Future[Any]):
    """A future that can say a second time that it has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Callable[[Any], object]] = []

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None:  # type: ignore[override]
        self.told.append(fn)
        super().add_done_callback(fn)

    def say(self) -> None:
        for function in self.told:
            function(self)


def squared(number: int) -> int:
    return number * number


DONE: list[int] = []


def slowly_squared(number: int) -> int:
    time.sleep(0.01)
    DONE.append(number)
    return number * number


def odd_fails(number: int) -> int:
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number


FAULTS = ["", "lost", "done and lost", "done twice", "said twice"]


@given(st.integers(0, 40), st.integers(0, 2**32), st.lists(st.lists(st.sampled_from(FAULTS), max_size=Patience.attempts - 1), max_size=40))
def test_each_task_is_answered_once_whatever_an_executor_does(count: int, seed: int, faults: list[list[str]]) -> None:
    """Tasks are lost less often than they are attempted."""

    def fault(task: Task, before: int) -> str:
        own = faults[task.argument] if task.argument < len(faults) else []
        return own[before] if before < len(own) else ""

    with Faulty(fault, seed) as executor:
        found = list(spread(executor, squared, range(count)))
    assert sorted((number, answer.result) for number, answer in found) == [(number, number**2) for number in range(count)]


@pytest.mark.parametrize("lost", [True, False])
def test_a_task_that_fails_in_every_attempt(lost: bool) -> None:
    """Other tasks are answered, and the message says the reason."""
    found, said = [], []
    with Faulty(lambda task, before: "lost" if lost and task.argument % 2 else "") as executor, pytest.raises(TaskFailed) as failed:
        for number, answer in spread(executor, squared if lost else odd_fails, range(6), note=said.append):
            found.append((number, answer.result))
    assert sorted(found) == [(number, number**2 if lost else number) for number in (0, 2, 4)]
    why = "its worker was lost" if lost else f"{failed.value.index} is odd"
    assert str(failed.value) == f"task {failed.value.index + 1} failed 3 times: {why}" and failed.value.index % 2
    assert f"task {failed.value.index + 1} is given out again: {why}" in said


def test_work_that_no_worker_could_be_sent_is_refused() -> None:
    with ThreadPoolExecutor(1) as executor, pytest.raises(InvalidArgument, match=r"^executor: what is to be done cannot be sent"):
        list(spread(executor, threading.Lock().acquire, [1]))


def test_an_executor_that_is_shut_down() -> None:
    executor = ThreadPoolExecutor(1)
    with pytest.raises(WorkersLost, match="the executor takes no more tasks: cannot schedule new futures after shutdown"):
        for _ in spread(executor, slowly_squared, range(9)):
            executor.shutdown(cancel_futures=True)


def test_whoever_stops_leaves_nothing_to_be_done() -> None:
    before = len(DONE)
    with ThreadPoolExecutor(1) as executor, contextlib.closing(spread(executor, slowly_squared, range(100))) as found:
        next(found)
    assert len(DONE) - before < 5


@pytest.mark.filterwarnings("ignore:os.fork")
def test_a_forked_process_is_refused_by_name() -> None:
    words = r"^executor: process \d+ on .* cannot take part: it was forked from .*get_context\('spawn'\)"
    with ProcessPoolExecutor(1, mp_context=FORK) as executor, pytest.raises(WorkerMismatch, match=words):
        list(spread(executor, squared, [1]))


# Studies in this process.


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks of one block."""
    monkeypatch.setattr(planning.Limits, "task_seconds", 0.0)
    monkeypatch.setattr(planning.Limits, "tasks", 1000)


@functools.cache
def alone() -> xr.Dataset:
    """The study in this process, in one part."""
    return run_study(one_cell_in_python())


class Stop(Exception):
    """An interruption."""


def stop_after(reports: int) -> Callable[[Any], None]:
    count = itertools.count(1)

    def report(progress: Any) -> None:
        if next(count) == reports:
            raise Stop

    return report


@pytest.mark.full
@pytest.mark.usefixtures("on_cpu", "small_tasks")
def test_a_study_on_a_faulty_executor_has_the_same_bits() -> None:
    faults = itertools.cycle(["", "lost", "said twice", "done and lost", "done twice"])
    reports: list[Any] = []
    with Faulty(lambda task, before: next(faults) if before < Patience.attempts - 1 else "", seed=3) as executor:
        found = run_study(one_cell_in_python(), executor=executor, report=reports.append)
    assert len(json.loads(found.attrs["batches"])) == 1 and json.loads(found.attrs["batches"])[0][1] == len(reports) > 1
    assert_same(found, alone())
    assert reports[-1].last and reports[-1].done == reports[-1].work == 2 * 11 * 20
    assert np.isfinite(found.run_seconds).all() and np.all(found.playing_seconds <= found.run_seconds)


@pytest.mark.full
def test_the_study_alone_is_what_simulate_gives() -> None:
    """The file ``test_comparison.py`` compares runs written by hand."""
    study, measured = one_cell_in_python(), jax.jit(jaxbandit.metrics.curves)
    for run in study.runs:
        played = jaxbandit.simulate(
            run.problem, run.algorithm, run.model, horizon=study.horizon, trials=study.trials, key=jax.random.key(0), initial=run.initial
        )
        curves = measured(run.problem, played.scored_indices)
        for name in study.metrics:
            found = alone()[name].sel(algorithm=run.label).values
            np.testing.assert_allclose(found, getattr(curves, name), rtol=2e-5, atol=2e-5, err_msg=run.label)


def test_all_parts_of_a_study_are_sent_to_workers() -> None:
    study = in_python()
    assert executors._loaded(executors.pickled(study.fingerprint))() == study.fingerprint()


def test_no_worker_can_plan_a_study(tmp_path: Path) -> None:
    with Faulty(lambda task, before: "lost") as executor, pytest.raises(InvalidArgument) as refused:
        run_study(one_cell_in_python(), tmp_path, executor=executor)
    assert str(refused.value) == "executor: a worker cannot plan the study: its worker was lost"


@pytest.mark.full
@pytest.mark.usefixtures("small_tasks")
def test_the_scheduler_goes(tmp_path: Path) -> None:
    """A pool continues, and finished batches can be watched."""
    from distributed import Client, LocalCluster

    options: dict[str, Any] = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(**options) as own, Client(own, timeout=1) as client, pytest.raises(WorkersLost) as lost:
        run_study(one_cell_in_python(), tmp_path, executor=client, report=lambda progress: own.close())
    assert str(lost.value) == "executor: the scheduler has gone; what is finished is kept, and --resume goes on"
    so_far = json.loads((tmp_path / "progress.json").read_text())
    assert 0 < so_far["done"] < so_far["work"] == 2 * 11 * 20 and so_far["workers"] == 1
    with ThreadPoolExecutor(1) as executor:
        assert_same(run_study(one_cell_in_python(), tmp_path, resume=True, executor=executor), alone())


class Rewriting(ThreadPoolExecutor):
    """Executor whose workers answer or are asked something else."""

    def __init__(self, answer: Callable[[Answer], Answer] = lambda own: own, task: Callable[[Task], Task] = lambda own: own) -> None:
        super().__init__(1)
        self.answer, self.task = answer, task

    def submit(self, function: Any, /, task: Task, pickled: bytes) -> Any:  # type: ignore[override]
        return super().submit(lambda: self.answer(function(self.task(task), pickled)))


def of_another(name: str, value: str) -> Callable[[Answer], Answer]:
    return lambda answer: dataclasses.replace(answer, surroundings={**answer.surroundings, name: value})


def now_and_then(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    count = itertools.count()
    return lambda one: change(one) if next(count) == 2 else one


@pytest.mark.parametrize("name", ["jaxbandit", "jax", "jaxlib", "device"])
def test_a_worker_of_another_version_or_kind_of_device_is_refused(name: str) -> None:
    """The client checks answers, and a worker checks its orders."""
    for executor, words in (
        (Rewriting(answer=now_and_then(of_another(name, "0.0"))), f"its results would differ: it has {name} 0.0"),
        (Rewriting(task=lambda task: dataclasses.replace(task, wanted=task.wanted | {name: "0.0"})), f"it has {name} .* instead of 0.0"),
    ):
        with executor, pytest.raises(WorkerMismatch, match=rf"^executor: process {os.getpid()} on .* cannot take part: .*{words}"):
            list(spread(executor, squared, range(9)))


@pytest.mark.usefixtures("small_tasks")
def test_a_run_goes_on_with_its_own_kind_of_device_alone(tmp_path: Path) -> None:
    old = {"answer": of_another("device", "cpu of old"), "task": lambda task: dataclasses.replace(task, wanted={})}
    with Rewriting(**old) as executor, pytest.raises(Stop):
        run_study(one_cell_in_python(), tmp_path, executor=executor, report=stop_after(1))
    with pytest.raises(CheckpointMismatch, match=r"holds a run of another kind of device \('cpu of old', now [cg]pu "):
        run_study(one_cell_in_python(), tmp_path, resume=True)
    with ThreadPoolExecutor(1) as executor, pytest.raises(WorkerMismatch, match=r"it has device [cg]pu .* instead of cpu of old"):
        run_study(one_cell_in_python(), tmp_path, resume=True, executor=executor)
    with Rewriting(**old) as executor:
        found = run_study(one_cell_in_python(), tmp_path, resume=True, executor=executor)
    assert_same(found, alone())
    assert json.loads(found.attrs["devices"]) == ["cpu of old"]


def second_lost(task: Task, before: int) -> str:
    return "lost" if task.argument == (0, 1) else ""


@pytest.mark.full
@pytest.mark.usefixtures("small_tasks")
def test_a_batch_that_fails_every_time_is_named_and_the_others_are_kept(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    """Afterwards the command's table is that of one process."""
    command = ["run", str(written(tmp_path, ONE_CELL)), "--no-cache", "--no-figure", "--out"]
    with Faulty(second_lost) as executor, monkeypatch.context() as patch:
        patch.setattr("jaxbandit.cli.connected", lambda where: contextlib.nullcontext(executor))
        assert main([*command, str(tmp_path / "out"), "--dask", "these"]) == 3
    said = capsys.readouterr().err.splitlines()
    assert (
        [line for line in said if line.startswith("error")]
        == said[-1:]
        == [
            "error: run 'rpol reward_width=1 and 1 like it': batch 2 of 3 of cell 1 failed on workers, every time: its worker was lost;"
            " what is finished is kept, and --resume goes on"
        ]
    )
    assert {path.name for path in (tmp_path / "out" / "parts").iterdir()} == {"0-0.npz", "0-2.npz"}
    played, real = [], Player.play
    with monkeypatch.context() as patch:
        patch.setattr(Player, "play", lambda self, batch: played.append(batch.place) or real(self, batch))
        assert main([*command, str(tmp_path / "out"), "--resume"]) == 0
    assert played == [(0, 1)]
    table = capsys.readouterr().out.partition("wrote")[0]
    assert main([*command, str(tmp_path / "whole")]) == 0 and table == capsys.readouterr().out.partition("wrote")[0]
    results = [xr.load_dataset(tmp_path / name / "results.nc", engine="h5netcdf") for name in ("out", "whole")]
    assert_same(*results)


# Results whose batches workers write themselves.


@functools.cache
def with_mixed() -> tuple[Study, xr.Dataset]:
    """A study whose variables need the best mixed policies, and its results."""
    study = one_cell_in_python(metrics=("regret", "strong_regret"))
    return study, run_study(study)


@pytest.mark.full(but=("3",))
@pytest.mark.usefixtures("small_tasks")
@pytest.mark.parametrize(("trials", "begun", "resumed"), [(1, 1, 0), (3, 1, 1), (5, 0, 1), (100, 1, 1)])
def test_batches_that_workers_write_are_gathered(trials: int, begun: int, resumed: int, tmp_path: Path, monkeypatch: Any) -> None:
    """Batches do not divide the chunks, and the run is resumed."""
    study, whole = with_mixed()
    monkeypatch.setattr(files, "CHUNK_BYTES", trials * 22 * 4)
    (cell,), file = make_plan(study, streamed=True).cells, tmp_path / "results.zarr"
    memory = cell.shared_bytes + min(form.trials_per_block for form in study.runs[0].model.forms) * cell.trial_bytes
    run: Callable[..., xr.Dataset] = functools.partial(run_study, study, tmp_path, results=file, memory=memory)
    with ThreadPoolExecutor(1) as pool:
        executor = {0: None, 1: pool}
        with pytest.raises(Stop):
            run(executor=executor[begun], report=stop_after(2))
        assert not file.exists()
        reports: list[Any] = []
        with run(executor=executor[resumed], resume=True, report=reports.append) as found:
            assert found.regret.encoding["chunks"][:2] == (1, min(trials, 11))
            assert_same(found, whole)
            assert {name: (own.dims, own.dtype) for name, own in found.variables.items()} == {
                name: (own.dims, own.dtype) for name, own in whole.variables.items()
            }
    assert len(reports) < json.loads(found.attrs["batches"])[0][1]


@pytest.mark.full
@pytest.mark.usefixtures("small_tasks")
def test_a_run_that_a_worker_does_not_see(tmp_path: Path) -> None:
    """Their run is deleted meanwhile, so they begin again."""
    study, whole = with_mixed()
    file = tmp_path / "results.zarr"

    def take_away(progress: Any) -> None:
        (tmp_path / "study.json").unlink(missing_ok=True)

    with Faulty() as executor, pytest.raises(BatchFailed) as failed:
        run_study(study, tmp_path, results=file, executor=executor, report=take_away)
    words = (
        rf"every time: results: workers write to {tmp_path}, and this one does not see the run there; give a directory that all machines"
    )
    assert re.search(words, str(failed.value))
    with ThreadPoolExecutor(1) as pool, run_study(study, tmp_path, results=file, executor=pool) as found:
        assert_same(found, whole)


# Settings and refusals.


def in_force(_: None) -> tuple[Any, ...]:
    """Settings of a worker, and the precision of numbers there."""
    names = ("jax_enable_x64", "jax_default_matmul_precision", "jax_threefry_partitionable")
    return *(getattr(jax.config, name) for name in names), str(np.dtype(float_dtype()))


def assert_in_force(executor: Any) -> None:
    before = in_force(None)
    with jax.enable_x64(True), jax.default_matmul_precision("float32"), jax.threefry_partitionable(False):
        (_, there), here = next(iter(spread(executor, in_force, [None]))), in_force(None)
    (_, after), *_ = spread(executor, in_force, [None])
    assert there.result == here == (True, "float32", False, "float64") and after.result == before != here


def test_settings_of_the_caller_are_in_force_in_threads() -> None:
    with ThreadPoolExecutor(1) as executor:
        assert_in_force(executor)


def test_what_cannot_go_together() -> None:
    with ThreadPoolExecutor(1) as executor, pytest.raises(InvalidArgument, match=r"^devices: .* give devices or an executor, not both"):
        run_study(one_cell_in_python(), executor=executor, devices=jax.devices())
    for wrong in (3, "tcp://127.0.0.1:8786", ThreadPoolExecutor, [], map):
        with pytest.raises(InvalidArgument, match=r"^executor: must be an executor of concurrent.futures, or a client of Dask, .*, got"):
            run_study(one_cell_in_python(), executor=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("where", ["127.0.0.1:1", "nowhere.invalid:1", "nowhere", "none.json", "tcp://", "x" * 300, ""])
def test_no_scheduler_to_be_found(where: str, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(executors.Patience, "seconds_to_answer", 0.3)
    assert main(["run", str(written(tmp_path, ONE_CELL)), "--out", str(tmp_path / "out"), "--no-cache", "--dask", where]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: dask: no scheduler answers at {where}") and said.endswith("its file, or local\n")
    assert said.count("\n") == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == []


def test_a_broken_scheduler_file(tmp_path: Path, monkeypatch: Any) -> None:
    """Afterwards xarray writes files as before."""
    from distributed import get_client

    monkeypatch.setattr(executors.Patience, "seconds_to_answer", 0.3)
    for text in ("", "{", "[]", "{}", '{"address": 3}'):
        (tmp_path / "scheduler.json").write_text(text)
        with pytest.raises(InvalidArgument, match=r"^dask: no scheduler answers at .*scheduler.json \("):
            connected(str(tmp_path / "scheduler.json")).__enter__()
        with pytest.raises(ValueError, match="No global client found"):
            get_client()


@pytest.mark.parametrize(("package", "module"), [("Dask", "distributed"), ("cryptography", "cryptography")])
def test_without_dask(package: str, module: str, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *own: None if name == module else real(name, *own))
    assert main(["run", str(written(tmp_path, ONE_CELL)), "--out", str(tmp_path / "out"), "--no-cache", "--dask", "local"]) == 2
    assert capsys.readouterr().err == f"error: dask: {package} is not installed; pip install 'jaxbandit[cluster]'\n"


def test_nobody_else_reaches_the_scheduler_of_a_local_cluster(monkeypatch: Any) -> None:
    """Without the right certificate no connection to its ports is made."""
    from distributed import Client
    from distributed.security import Security

    # The scheduler then has no workers.
    monkeypatch.setattr(executors, "cores", lambda: 0)
    with executors.local_cluster() as own:
        assert own.scheduler_address.startswith("tls://127.0.0.1:")
        plain = own.scheduler_address.replace("tls://", "tcp://")
        for address, security in ((own.scheduler_address, None), (plain, None), (own.scheduler_address, Security.temporary())):
            with pytest.raises((OSError, TypeError, ValueError)):
                Client(address, security=security, timeout=2, set_as_default=False)
        with Client(own, set_as_default=False) as client:
            assert client.scheduler_info()["workers"] == {}


# Processes of this machine.

# Each batch takes a tenth of a second.
LONG: dict[str, Any] = {"trials": 100, "horizon": 160, "trajectories": False}


@functools.cache
def long_study() -> Study:
    return one_cell_in_python(**LONG)


@functools.cache
def long_alone() -> xr.Dataset:
    return run_study(long_study())


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Return a client of a local cluster of two processes.

    A process that ends is started again, unless its nanny was told before.
    """
    # Workers then find its programs compiled.
    long_alone()
    with contextlib.ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(executors, "cores", lambda: 2)
            if jax.default_backend() == "gpu":
                patch.setenv("CUDA_VISIBLE_DEVICES", "0,0")
            client = stack.enter_context(connected("local"))
        yield client


@pytest.mark.full
def test_a_worker_of_a_cluster_is_killed_and_then_all_with_what_they_have_finished(client: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """First one dies within a batch, then all of them do.

    Dask itself would wait for ever, because for a moment nobody could take over.
    """
    monkeypatch.setattr(executors.Patience, "seconds_to_send", 2.0)
    (first, second), reports, said = client.cluster.workers.values(), [], []

    def report(progress: Any) -> None:
        reports.append(progress)
        if len(reports) == 1:
            # A nanny that is told so starts no other process.
            first.close_gracefully("killed")
            os.kill(first.pid, signal.SIGKILL)
        if len(reports) == 4:
            assert list(client.run(os.getpid).values()) == [second.pid]
            # Meanwhile other batches finish and wait.
            time.sleep(1.0)
            os.kill(second.pid, signal.SIGKILL)

    run: Callable[..., xr.Dataset] = functools.partial(run_study, executor=client, report=report, note=said.append)
    with run(long_study(), tmp_path, results=tmp_path / "results.nc", memory=small_memory(long_study())) as found:
        assert json.loads(found.attrs["batches"])[0][1] == len(reports) == 10
        assert_same(found, long_alone())
    assert "dashboard of the workers: http://127.0.0.1" in said[0]


@pytest.mark.full
def test_settings_of_the_caller_are_in_force_in_a_cluster(client: Any) -> None:
    assert_in_force(client)


@pytest.mark.full
def test_a_batch_that_fails_on_a_cluster_is_not_remembered(client: Any, tmp_path: Path) -> None:
    """The run's own record is deleted, and written again later."""
    reports: list[Any] = []
    record, away = tmp_path / "study.json", tmp_path / "away.json"
    run: Callable[..., xr.Dataset] = functools.partial(
        run_study, long_study(), tmp_path, results=tmp_path / "results.zarr", executor=client
    )
    with pytest.raises(BatchFailed, match="this one does not see the run"):
        run(report=lambda progress: record.exists() and record.rename(away), memory=small_memory(long_study()))
    away.rename(record)
    with run(resume=True, report=reports.append) as found:
        assert_same(found, long_alone())
    assert 0 < len(reports) < json.loads(found.attrs["batches"])[0][1]


LONG_TOML = ONE_CELL.replace("trials = 11", "trials = 100").replace("horizon = 20", "horizon = 160").replace("trajectories = true", "")

SCRIPT = """
import functools, multiprocessing, os, runpy, signal, sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated

import jaxbandit
from jaxbandit.study import WorkersLost, connected, run_study
from tests.support.small_study import assert_same, in_python, small_memory


@jaxbandit.pytree
class Own(jaxbandit.RandomSearch):
    shift: Annotated[int, jaxbandit.fields.whole(1)] = jaxbandit.static(default=1)

    def select(self, arena, state, t, key):
        chosen, state = super().select(arena, state, t, key)
        return jaxbandit.replace(chosen, index=(chosen.index + self.shift) % arena.surrogate.domain.size), state


if __name__ == "__main__":
    own = {"algorithms": {"own": Own(shift=2)}, "delays": None, "metrics": ("regret",), "trajectories": False}
    study, reports, process = in_python(trials=100, horizon=1000, **own), [], set()
    run = functools.partial(run_study, study, memory=small_memory(study), results=Path("own.nc"))

    def report(progress):
        if not process:  # of two batches that are there already the second is reported, too
            process.update(pool._processes)
            os.kill(*process, signal.SIGKILL)

    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            run(Path("own"), executor=pool, report=report)
        except WorkersLost as error:
            print(error)
    with connected(sys.argv.pop(1)) as client:
        resumed = run(Path("own"), resume=True, executor=client, report=reports.append)
        assert_same(resumed, run_study(study, executor=client))
    assert 0 < len(reports) < reports[-1].batches == 5
    print("the same bits", flush=True)
    runpy.run_module("jaxbandit", run_name="__main__", alter_sys=True)
"""


def certificates(client: Any) -> dict[str, str]:
    """Return settings of Dask for another client of a local cluster."""
    own, tls = client.security, "distributed.comm.tls"
    return {f"{tls}.ca-file": own.tls_ca_file, f"{tls}.client.cert": own.tls_client_cert, f"{tls}.client.key": own.tls_client_key}


@pytest.fixture(scope="module")
def killed(client: Any, tmp_path_factory: Any) -> tuple[Path, str]:
    """Kill a command with a cluster, and return folder and output."""
    folder = tmp_path_factory.mktemp("killed")
    (folder / "script.py").write_text(SCRIPT)
    command = ["run", str(written(folder, LONG_TOML)), "--no-cache", "--memory", str(small_memory(long_study())), "--dask", "local"]
    let_in = {f"DASK_{name}".upper().replace(".", "__").replace("-", "_"): text for name, text in certificates(client).items()}
    process = subprocess.Popen(
        [sys.executable, "script.py", client.scheduler_info()["address"], *command, "--out", "out"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | let_in,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # Then the command starts a cluster of one worker.
    os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
    deadline = time.monotonic() + 200
    while len(list(folder.glob("out/parts/*.npz"))) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    printed, wrong = process.communicate()
    assert process.returncode == -signal.SIGKILL, wrong
    return folder, printed


@pytest.mark.full
def test_a_class_of_the_callers_script(killed: tuple[Path, str]) -> None:
    """The pool breaks, because no worker has seen the class."""
    lost, same = killed[1].splitlines()
    assert re.fullmatch(r"executor: the pool of processes is broken: .*; what is finished is kept, and --resume goes on", lost)
    assert same == "the same bits"


@pytest.mark.full
def test_the_client_is_killed_and_others_go_on(client: Any, killed: tuple[Path, str], capfd: Any) -> None:
    """Another command then uses a cluster that runs already."""
    import dask

    out, study = killed[0] / "out", killed[0] / "small.toml"
    assert from_toml(study).fingerprint() == long_study().fingerprint() and not (out / "results.nc").exists()
    shutil.copytree(out, killed[0] / "again")
    command = ["run", str(study), "--no-cache", "--no-figure", "--resume", "--out"]
    assert main([*command, str(out)]) == 0
    table = capfd.readouterr().out
    address = client.scheduler_info()["address"]
    with dask.config.set(certificates(client)):
        assert main([*command, str(killed[0] / "again"), "--memory", str(small_memory(long_study())), "--dask", address]) == 0
    printed, said = capfd.readouterr()
    assert "dashboard of the workers: http://127.0.0.1:" in said and "Traceback" not in said
    assert table.partition("wrote")[0] == printed.partition("wrote")[0] != ""
    for name in ("out", "again"):
        assert_same(xr.load_dataset(killed[0] / name / "results.nc", engine="h5netcdf"), long_alone())
