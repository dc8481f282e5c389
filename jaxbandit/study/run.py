"""Running a study: batch by batch in this process, or as tasks of workers, with progress, checkpoints and results."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
import xarray as xr

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.codec import describe
from jaxbandit.core.declare import checked
from jaxbandit.core.executors import EXECUTOR, VERSIONS_AND_DEVICE, AnyExecutor, TaskFailed, WorkersLost, dashboard_of, spread
from jaxbandit.core.fields import Words, between, function, of_class
from jaxbandit.core.fields import path as path_check
from jaxbandit.core.pytree import float_dtype
from jaxbandit.core.types import Device, FilePath
from jaxbandit.results.dataset import assembled, header, pieces_of
from jaxbandit.results.files import check_results, open_results, read_results, stream_results
from jaxbandit.results.schema import SECONDS, Arrays, Contents, Row
from jaxbandit.study.files import CheckpointMismatch, Files, HeldDirectory, check_disk, hold_directory, identity, interrupted
from jaxbandit.study.plan import Batch, Memory, Plan, Segment, make_plan
from jaxbandit.study.play import CHECKPOINT_SHARE, Played, Player
from jaxbandit.study.progress import Progress, SoFar, moments_alone
from jaxbandit.study.study import Study, in_its_arithmetic

Directory: TypeAlias = Annotated[str | Path | HeldDirectory, path_check | of_class(HeldDirectory, "a directory of hold_directory(...)")]
Attributes: TypeAlias = Annotated[Mapping[str, str], Words("a mapping from names to text")]
Numbers: TypeAlias = tuple[int, int]  # of a cell, and of a batch in it


class BatchFailed(RuntimeError):
    """A batch failed in every attempt; the message names run, cell and batch. What is finished is kept, and ``resume`` goes on."""


@dataclasses.dataclass(frozen=True)
class Options:
    """How a study is run and who is told; see :func:`run_study`."""

    resume: bool
    results: Path | None
    attributes: Mapping[str, str]
    memory: str | int | None
    segment: int | None
    devices: Sequence[Device] | None
    checkpoint_share: float
    executor: AnyExecutor | None
    report: Callable[[Progress], None]
    note: Callable[[str], None]

    def plan(self, study: Study) -> Plan:
        """Return the plan of a study as this process would play it."""
        how: dict[str, Any] = {"memory": self.memory, "segment": self.segment, "devices": self.devices}
        return make_plan(study, **how, streamed=self.results is not None, by_workers=self.executor is not None)


@checked
def run_study(
    study: Study,
    directory: Directory | None = None,
    *,
    resume: bool = False,
    results: FilePath | None = None,
    attributes: Attributes | None = None,
    memory: Memory | None = None,
    segment: Segment | None = None,
    devices: Sequence[Device] | None = None,
    checkpoint_share: Annotated[float, between(0, 1, host=True)] = CHECKPOINT_SHARE,
    executor: Annotated[AnyExecutor, EXECUTOR] | None = None,
    report: Annotated[Callable[[Progress], None], function("(progress)")] = lambda progress: None,
    note: Annotated[Callable[[str], None], function("(line)")] = lambda line: None,
) -> xr.Dataset:
    """Run a study and return its results.

    With an ``executor`` its batches are tasks of workers, each of which plays on one device. A batch that is lost with its worker is given
    to another one, and the results have the same bits whatever the number of workers, and whichever of them are lost.

    Args:
      study: study to run.
      directory: where checkpoints and finished batches go, and stay until :func:`forget`; default nowhere. It belongs to this run while
        it lasts, or for longer if :func:`hold_directory` has made it.
      resume: go on with the run that the directory holds, to the results it would have had without interruption, bit for bit, with
        other workers or without any.
      results: NetCDF file, or Zarr directory if it ends in ``.zarr``, that results are written to batch by batch, so that they need not
        fit memory; the dataset that is returned is then read from it as it is used. Needs a ``directory``. For Zarr workers write
        their batches to that directory, which all of them must see; otherwise this process writes what they send.
      attributes: what else the results say of the run, such as the command.
      memory, segment, devices: as for :func:`make_plan`; a run that is resumed keeps its own. Of workers the memory is that of each.
      checkpoint_share: share of the time that checkpoints may take, in (0, 1]; they are left out where they would take more. Workers
        make none: a batch that they lose is played again.
      executor: an executor of :mod:`concurrent.futures`, whose processes must be spawned and not forked, or a client of Dask,
        ``distributed.Client``; default none, for this process.
      report: called after each part, of workers after each batch.
      note: called with a line of text when something is compiled, resumed, dropped or done.

    Raises:
      InvalidArgument: on a study that cannot run, results that fit neither memory nor disk or cannot be written, or a directory that
        holds the run of another.
      DirectoryInUse: when a run that is going on holds the directory.
      CannotWrite: on any error of the operating system when a file is written.
      BatchFailed: when a batch has failed on workers again and again; all that were under way are finished and kept before.
      WorkerMismatch: when a worker has another version or another kind of device, whose results would differ.
      WorkersLost: when the executor takes no more tasks.
    """
    if resume and directory is None:
        raise InvalidArgument("resume: needs the directory that holds the run to go on with; give one")
    if executor is not None and devices is not None:
        raise InvalidArgument("devices: workers play on a device of their own each; give devices or an executor, not both")
    if directory is None and results is not None:
        raise InvalidArgument("directory: results that are written batch by batch need one for the batches; give one")
    # Problems are built in the arithmetic of the caller, which a trial that is played again needs, too.
    said = {"jax_enable_x64": str(float_dtype() == np.float64), **(attributes or {})}
    file = None if results is None else Path(results)
    options = Options(resume, file, said, memory, segment, devices, checkpoint_share, executor, report, note)
    return _run(study, directory, options)


@in_its_arithmetic
def _run(study: Study, directory: Directory | None, options: Options) -> xr.Dataset:
    """Run a study in its arithmetic."""
    with Store.of(directory, options.plan(study), options) as store:
        store.so_far.write()
        if options.executor is None:
            _play_here(store, options)
        else:
            _play_by_workers(store, options.executor, options)
        store.so_far.write()
        return store.gather()


def _play_here(store: Store, options: Options) -> None:
    """Play all batches that are missing."""
    player = Player(store.plan, store.so_far, store.files, note=options.note, share=options.checkpoint_share, left=store.missing)
    for batch in store.missing():
        store.finish(batch, *player.result(batch))


def _play_by_workers(store: Store, executor: AnyExecutor, options: Options) -> None:
    """Let workers play all batches that are missing, in any order."""
    plan, so_far, missing = store.plan, store.so_far, store.missing()
    so_far.dashboard = dashboard_of(executor)
    if so_far.dashboard:
        options.note(f"dashboard of the workers: {so_far.dashboard}")
    shared = options.results is not None and options.results.suffix == ".zarr"
    work = Work(plan.study, options.memory, options.segment, plan.layout, store.files.of_workers() if shared and store.files else None)
    started, places = time.perf_counter(), [batch.place for batch in missing]
    answers = spread(executor, work, places, wanted=store.around, note=options.note)
    try:
        with contextlib.closing(answers):  # which calls workers off, however the run ends
            for number, answer in answers:
                batch, (arrays, seconds) = missing[number], answer.result
                so_far.workers.add(answer.worker)
                store.around = answer.surroundings
                store.finish(batch, arrays, seconds, written=work.files is not None)
                ends = arrays.get(f"mean {plan.study.metrics[0]}", np.full((len(arrays["runs"]), 1), np.nan))[:, -1]
                means = dict(zip(arrays["runs"].tolist(), ends, strict=True))
                so_far.played(batch, plan.study.horizon, plan.study.horizon, time.perf_counter() - started, means)
    except TaskFailed as error:
        batch = missing[error.index]
        raise BatchFailed(
            f"run {batch.cell.title!r}: batch {batch.number + 1} of {batch.cell.count} of cell {batch.cell.number + 1} failed on workers,"
            f" every time: {error.reason}; what is finished is kept, and --resume goes on"
        ) from error
    except WorkersLost as error:
        raise WorkersLost(f"executor: {error}; what is finished is kept, and --resume goes on") from error


class Store:
    """Finished batches of a run, in memory or in ``files``; ``around`` are the surroundings of the workers, once they are known."""

    def __init__(self, plan: Plan, options: Options, files: Files | None, around: Mapping[str, str] | None) -> None:
        self.plan, self.options, self.files, self.around = plan, options, files, around
        self.parts: dict[Batch, Arrays | None] = {}  # finished batches: their arrays where no file takes the results
        self.seconds: dict[Batch, np.ndarray] = {}
        if files is not None:
            (self._resume if options.resume else self._begin)(files)
        self.so_far = SoFar(self.plan, options.report, None if files is None else files.directory)
        for batch in self.plan.batches if options.resume else ():
            part = None if files is None else files.part(*batch.place)
            if part is not None:
                self.so_far.skip(batch, self.plan.study.horizon)
                self._keep(batch, part)

    @staticmethod
    @contextlib.contextmanager
    def of(directory: Directory | None, plan: Plan, options: Options) -> Iterator[Store]:
        """Give the store of a run, which holds its directory meanwhile; in memory without a directory."""
        if options.results is not None:
            check_results(study_header(plan, (), trials=1), options.results)
        around = None
        if options.executor is not None and not options.resume:
            plan, around = _cut_by_worker(plan, options.executor, options)
        with contextlib.nullcontext() if directory is None else _held(directory) as path:
            yield Store(plan, options, None if path is None else Files(path, options.note), around)

    def _begin(self, files: Files) -> None:
        """Write down a new run in its directory."""
        files.clear()
        check_disk(files.directory, self.plan.disk_bytes(self.options.results is not None))
        own = identity(self.plan.study.fingerprint(), self.around)
        files.start({"identity": own, "batches": self.plan.layout})

    def _resume(self, files: Files) -> None:
        """Go on with the run of the directory: take its batches."""
        if self.options.executor is not None:  # whose surroundings are compared when it plays
            known = files.record()["identity"]
            self.around = {name: str(known.get(name)) for name in VERSIONS_AND_DEVICE}
        record = files.resume(identity(self.plan.study.fingerprint(), self.around))
        self.plan = self.plan.with_layout(record["batches"])
        check_disk(files.directory, self.plan.disk_bytes(self.options.results is not None) - files.part_bytes())

    def missing(self) -> list[Batch]:
        """Return the batches that are still to be played."""
        return [batch for batch in self.plan.batches if batch not in self.parts]

    def finish(self, batch: Batch, part: Arrays, seconds: np.ndarray, *, written: bool = False) -> None:
        """Keep a batch that was played, unless a worker has ``written`` it."""
        self.seconds[batch] = seconds
        if self.files is not None and not written:
            self.files.finish(*batch.place, part)
        self._keep(batch, part)
        self.so_far.write_now_and_then()

    def _keep(self, batch: Batch, part: Arrays) -> None:
        self.so_far.add(part)
        self.parts[batch] = part if self.options.results is None else None  # which is read again, so that memory holds one at a time

    def _part(self, batch: Batch) -> Arrays:
        """Return what is kept of a finished batch."""
        part = self.parts[batch]
        if part is None and self.files is not None:
            part = self.files.part(*batch.place)
        if part is None:
            raise CheckpointMismatch(f"resume: {batch} was altered while the study ran; run again with --resume")
        return part

    def gather(self) -> xr.Dataset:
        """Return the results of all batches, read from their file if they are written to one."""
        plan, file, attributes = self.plan, self.options.results, dict(self.options.attributes)
        if self.options.executor is not None:
            attributes["devices"] = json.dumps([(self.around or {}).get("device", "")])
        seconds, unknown = np.empty((len(plan.runs), 2)), np.full(2, np.nan)  # with and without compilation, of what this run has played
        for cell in plan.cells:
            seconds[list(cell.runs)] = np.sum([self.seconds.get(batch, unknown) for batch in cell.batches], axis=0) / len(cell.runs)
        variables = contents_of(plan).variables([self._part(next(cell.batches)) for cell in plan.cells])
        head = study_header(plan, variables, seconds).assign_attrs(attributes)
        pieces = (piece for batch in plan.batches for piece in pieces_of(variables, batch.cell.number, self._part(batch), batch.rows))
        if file is None:
            return assembled(head, variables, pieces)
        stream_results(head, variables, pieces, file)
        return open_results(file)  # no need to look at its seal, which is of this moment


@dataclasses.dataclass(frozen=True)
class Work:
    """Work of a worker: cut a study into batches by its memory and its kind of device, or play a batch."""

    study: Study
    memory: str | int | None
    segment: int | None
    layout: list[list[int]] | None = None  # of the batches that all workers have
    files: Files | None = None  # where workers write batches themselves

    def __call__(self, place: Numbers | None) -> Played | list[list[int]]:
        """Return the layout that this worker would choose, or the results of the batch with these numbers of its cell and of itself."""
        return self.player.plan.layout if place is None else _played(self.study, self, place)

    @functools.cached_property
    def player(self) -> Player:
        """Player of all batches."""
        plan = make_plan(self.study, memory=self.memory, segment=self.segment, streamed=True, by_workers=True)
        return Player(plan if self.layout is None else plan.with_layout(self.layout))


@in_its_arithmetic
def _played(study: Study, work: Work, place: Numbers) -> Played:
    """Play a batch, in the arithmetic of the study."""
    cell, number = place
    batch = next(itertools.islice(work.player.plan.cells[cell].batches, number, None))
    work.player.left = lambda: [batch]
    arrays, seconds = work.player.result(batch)
    if work.files is None:
        return arrays, seconds
    if not work.files.is_there():
        raise InvalidArgument(
            f"results: workers write to {work.files.directory}, and this one does not see the run there; give a directory that all"
            " machines share, or write NetCDF"
        )
    work.files.finish(*place, arrays)
    return moments_alone(arrays), seconds


def _cut_by_worker(plan: Plan, executor: AnyExecutor, options: Options) -> tuple[Plan, Mapping[str, str]]:
    """Return the plan with the batches that a worker would have, and what its results depend on beside the program."""
    try:
        [(_, answer)] = spread(executor, Work(plan.study, options.memory, options.segment), [None], note=options.note)
    except TaskFailed as error:
        raise InvalidArgument(f"executor: a worker cannot plan the study: {error.reason}") from error
    return plan.with_layout(answer.result), answer.surroundings


def contents_of(plan: Plan, trials: int | None = None) -> Contents:
    """Return what the results of a plan hold, of all trials or of the first few."""
    study = plan.study
    return Contents(
        rows=[Row(run.label, str(run.algorithm_label), str(run.problem_label), str(run.delay_label), dict(run.swept)) for run in plan.runs],
        swept=study.swept,
        trials=np.arange(study.trials if trials is None else trials),
        horizon=study.horizon,
        kept=study.keep.rounds(study.horizon),
        before=plan.before,
        metrics=study.metrics,
        trajectories=study.trajectories,
        problems=[cell.cell.problem for cell in plan.cells],
    )


def study_header(plan: Plan, variables: Collection[str], seconds: np.ndarray | None = None, trials: int | None = None) -> xr.Dataset:
    """Return the results without ``variables``, of all trials or of the first few.

    ``seconds [runs, 2]`` are those of each run, with and without compilation.
    """
    of_runs = {} if seconds is None else {name: ("algorithm", own) for name, own in zip(SECONDS, seconds.T, strict=True)}
    return header(contents_of(plan, trials), attributes(plan), variables, of_runs)


def attributes(plan: Plan) -> dict[str, object]:
    """Return inputs and devices; structured values as JSON text. ``table`` is the study, empty when it has no table."""
    study, runs = plan.study, plan.runs
    try:
        table = json.dumps(study.table())
    except InvalidArgument:
        table = ""
    return {
        "fingerprint": plan.study.fingerprint(),
        "batches": json.dumps(plan.layout),
        "study": study.name,
        "table": table,
        "seed": study.seed,
        "parameters": json.dumps(dict(study.recorded)),
        "problems": json.dumps({run.problem_label: describe(run.problem) for run in runs}),
        "initial_designs": json.dumps({run.label: describe(run.initial) for run in runs}),
        "algorithms": json.dumps({run.label: {"alg": run.name_in_traces, **describe(run.algorithm)} for run in runs}),
        "delays": json.dumps({run.label: describe(run.delay_in_force) for run in runs}),
        "feedback": json.dumps({run.label: describe(run.policy_in_force) for run in runs}),
        "kernels": json.dumps({run.label: [describe(kernel) for kernel in run.model.kernels_in_force] for run in runs}),
        "surrogates": json.dumps({run.label: run.model.describe() for run in runs}),
        "choices": json.dumps({run.label: study.describe_choices(run) for run in runs}),
        "noise_variance_of_model": json.dumps({run.label: describe(run.model.noise_variance) for run in runs}),
        "precision": str(float_dtype()),
        "devices": json.dumps([str(device) for device in plan.devices]),
    }


@contextlib.contextmanager
def _held(directory: Directory) -> Iterator[Path]:
    """Hold a directory, unless the caller does already."""
    with contextlib.nullcontext(directory) if isinstance(directory, HeldDirectory) else hold_directory(directory, force=True) as held:
        yield held.path


@checked
def forget(directory: Directory) -> None:
    """Drop the checkpoints and batches of a run, once its results are kept elsewhere; raises ``DirectoryInUse`` while a run goes on."""
    with _held(directory) as path:
        Files(path).clear()


@checked
def made_before(path: FilePath, attributes: Attributes) -> xr.Dataset | None:
    """Return the results that a run has left at ``path`` earlier, to be read as they are used; ``None`` where there are none such.

    Args:
      path: NetCDF file or Zarr directory.
      attributes: what the results must say of their run, such as the study's fingerprint.
    """
    path = Path(path)
    if not path.exists() or interrupted(path.parent):
        return None
    with contextlib.suppress(InvalidArgument):  # no results, or damaged ones
        dataset = read_results(path, load=False)
        if all(str(dataset.attrs.get(name)) == value for name, value in attributes.items()):
            return dataset
        dataset.close()
    return None
