"""Running a study: batch by batch in this process, or as tasks of workers, with progress, checkpoints and results."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from jaxbandit.core import checks
from jaxbandit.core.arguments import takes
from jaxbandit.core.executors import EXECUTOR, AnyExecutor, TaskFailed, WorkersLost, dashboard_of, spread
from jaxbandit.core.fields import between, boolean, function, mapping, of_class, optional, text
from jaxbandit.core.fields import path as path_check
from jaxbandit.core.pytree import float_dtype
from jaxbandit.core.types import Device
from jaxbandit.core.workers import VERSIONS_AND_DEVICE
from jaxbandit.results.dataset import assembled
from jaxbandit.results.files import check_results, hidden, open_results, stream_results
from jaxbandit.results.regions import begin_regions, fill_regions, finish_regions, put_in
from jaxbandit.results.schema import Variable
from jaxbandit.study.plan.memory import check_disk
from jaxbandit.study.plan.planning import Plan, make_plan
from jaxbandit.study.run.cell_programs import empty_batch
from jaxbandit.study.run.checkpoints import CheckpointMismatch, Store, identity
from jaxbandit.study.run.dataset import pieces, run_of, study_header, variables_of
from jaxbandit.study.run.hold import HeldDirectory, hold_directory
from jaxbandit.study.run.mixed_policies import mixed_values
from jaxbandit.study.run.progress import Compiling, Progress
from jaxbandit.study.run.runner import CHECKPOINT_SHARE, LEAST_SECONDS, Runner
from jaxbandit.study.run.so_far import SoFar, Summary, summarise
from jaxbandit.study.run.tasks import Batch, BatchFailed, PlanBatches, PlayBatches
from jaxbandit.study.specify.study import Study, in_its_arithmetic


@dataclasses.dataclass(frozen=True)
class Options:
    """How a study is run and who is told; see :func:`run_study`."""

    memory: str | int | None
    segment: int | None
    devices: Sequence[Device] | None
    executor: AnyExecutor | None
    checkpoint_share: float
    report: Callable[[Progress], None]
    note: Callable[[str], None]
    compiling: Callable[[Compiling], None]


@takes(
    directory=optional(path_check | of_class(HeldDirectory, "a directory of hold_directory(...)")),
    resume=boolean,
    attributes=optional(mapping(text, "a mapping from names to text")),
    report=function("(progress)"),
    note=function("(line)"),
    compiling=function("(compiling)"),
    results=optional(path_check),
    checkpoint_share=between(0, 1, host=True),
    executor=optional(EXECUTOR),
)
def run_study(
    study: Study,
    directory: str | Path | HeldDirectory | None = None,
    *,
    resume: bool = False,
    results: str | Path | None = None,
    attributes: Mapping[str, str] | None = None,
    memory: str | int | None = None,
    segment: int | None = None,
    devices: Sequence[Device] | None = None,
    checkpoint_share: float = CHECKPOINT_SHARE,
    executor: AnyExecutor | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
    note: Callable[[str], None] = lambda line: None,
    compiling: Callable[[Compiling], None] = lambda compiling: None,
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
        fit memory; the dataset that is returned is then read from it as it is used. Needs a ``directory``. Workers write a Zarr
        directory, which all of them must see; otherwise this process writes what they send.
      attributes: what else the results say of the run, such as the command.
      memory, segment, devices: as for :func:`make_plan`; a run that is resumed keeps its own. Of workers the memory is that of each.
      checkpoint_share: share of the time that checkpoints may take, in (0, 1]; they are left out where they would take more. Workers
        make none: a batch that they lose is played again.
      executor: an executor of :mod:`concurrent.futures`, whose processes must be spawned and not forked, or a client of Dask,
        ``distributed.Client``; default none, for this process.
      report: called after each part, of workers after each batch.
      note: called with a line of text when something is compiled, resumed, dropped or done.
      compiling: called before programs are compiled.

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
        raise checks.InvalidArgument("resume: needs the directory that holds the run to go on with; give one")
    # Problems are made in the arithmetic of the caller, which a trial that is played again needs, too.
    said = {"jax_enable_x64": str(float_dtype() == np.float64), **(attributes or {})}
    if executor is not None and devices is not None:
        raise checks.InvalidArgument("devices: workers play on a device of their own each; give devices or an executor, not both")
    options = Options(memory, segment, devices, executor, checkpoint_share, report, note, compiling)
    return _run(study, directory, resume, results, said, options)


@in_its_arithmetic
def _run(
    study: Study,
    directory: str | Path | HeldDirectory | None,
    resume: bool,
    results: str | Path | None,
    attributes: Mapping[str, str],
    options: Options,
) -> xr.Dataset:
    """Do as :func:`run_study` says, in the arithmetic of the study."""
    streamed, by_workers = results is not None, options.executor is not None
    if directory is None and streamed:
        raise checks.InvalidArgument("directory: results that are written batch by batch need one for the batches; give one")
    file = None if results is None else Path(results)
    plan = make_plan(
        study, memory=options.memory, segment=options.segment, devices=options.devices, streamed=streamed, by_workers=by_workers
    )
    if file is not None:
        check_results(study_header(plan.of_one_trial(), {}), file)
    if directory is None:
        course = _Course(plan, None, None, options)
        course.plan_by_worker()
        return course.played(attributes)
    with _held(directory) as path:
        course = _Course(plan, Store(path, options.note), file, options)
        if resume:
            course.resume()
        else:
            course.begin()
        return course.played(attributes)


class _Course:
    """A run of a study: what is finished, where it is kept, and what is left to be played."""

    def __init__(self, plan: Plan, store: Store | None, file: Path | None, options: Options) -> None:
        self.plan, self.store, self.file, self.options = plan, store, file, options
        self.regions = file if file is not None and file.suffix == ".zarr" else None
        self.around: Mapping[str, str] | None = None  # surroundings of the workers, once they are known
        self.finished: dict[tuple[int, int], Mapping[str, np.ndarray]] = {}  # kept here where no file takes them
        self.done: set[tuple[int, int]] = set()
        self.seconds: dict[tuple[int, int], np.ndarray] = {}
        self.mixed: np.ndarray | None = None

    def plan_by_worker(self) -> None:
        """Let a worker say how it cuts the study into batches, and what its surroundings are."""
        if self.options.executor is None:
            return
        work = PlanBatches(self.plan.study, self.options.memory, self.options.segment)
        try:
            for _, answer in spread(self.options.executor, work, [None], note=self.options.note):
                self.plan, self.around = self.plan.with_batches(answer.result), answer.surroundings
        except TaskFailed as error:
            raise checks.InvalidArgument(f"executor: a worker cannot plan the study: {error.reason}") from error

    def begin(self) -> None:
        """Write down a new run in its directory."""
        assert self.store is not None
        self.store.clear()
        self.plan_by_worker()
        check_disk(self.store.directory, self.plan.disk_bytes(self.file is not None))
        own = identity(self.plan.study.fingerprint(), self.around)
        self.store.start({"identity": own, "batches": self.plan.batches, "regions": self.regions is not None})
        self._begin_regions()

    def resume(self) -> None:
        """Go on with the run of the directory: take its batches, and those that are finished."""
        assert self.store is not None
        if self.options.executor is not None:  # whose surroundings are compared when it plays
            known = self.store.record()["identity"]
            self.around = {name: str(known.get(name)) for name in VERSIONS_AND_DEVICE}
        record = self.store.resume(identity(self.plan.study.fingerprint(), self.around))
        if record["regions"] != (self.regions is not None):
            raise CheckpointMismatch(
                f"resume: {self.store.directory} holds a run with results {'' if record['regions'] else 'not '}in Zarr; resume it as it was"
            )
        self.plan = self.plan.with_batches(record["batches"])
        if self.regions is not None and not hidden(self.regions).is_dir():  # it was cut off before, or the results have moved
            self.store.forget_parts()
            self._begin_regions()
        sizes = {place: self.store.verified(*place) for place in self.plan.places}
        self.done = {place for place, size in sizes.items() if size}
        check_disk(self.store.directory, self.plan.disk_bytes(self.file is not None) - sum(sizes.values()))

    def _begin_regions(self) -> None:
        if self.regions is not None:
            variables = self._variables()
            begin_regions(self.regions, study_header(self.plan, variables), variables)

    def played(self, attributes: Mapping[str, str]) -> xr.Dataset:
        """Play what is left and return the results."""
        executor = self.options.executor
        dashboard = "" if executor is None else dashboard_of(executor)
        if dashboard:
            self.options.note(f"dashboard of the workers: {dashboard}")
        self.so_far = SoFar(self.plan, self.store, dashboard)
        for place in sorted(self.done):
            self._take(place, self._part(*place))
        self.so_far.write()
        if executor is None:
            self._play_here()
        else:
            self._play_by_workers(executor)
            attributes = {**attributes, "devices": json.dumps([(self.around or {}).get("device", "")])}
        self.so_far.write()
        return self._results(attributes)

    def _best_mixed(self) -> np.ndarray | None:
        """Return the rewards of the best mixed policies ``[runs, trials]``, for strong regret."""
        study = self.plan.study
        if self.mixed is None and "strong_regret" in study.metrics:
            self.mixed = mixed_values(study, list(enumerate(self.plan.runs)), range(study.trials))
        return self.mixed

    def _play_here(self) -> None:
        """Play what is left in this process."""
        latest: list[Progress] = []
        options = self.options

        def report(progress: Progress) -> None:
            latest[:] = [progress]
            options.report(progress)

        runner = Runner(self.plan, self.store, report, options.note, options.checkpoint_share, options.compiling)
        runner.skip(sum(len(self.plan.trials_of(*place)) for place in self.done) * self.plan.study.horizon)
        variables, own = (self._variables(), run_of(self.plan)) if self.regions is not None else ({}, {})
        for place in self.plan.places:
            if place in self.done:
                continue
            arrays: Mapping[str, np.ndarray] = runner.batch(*place)
            if place in runner.clock:
                self.seconds[place] = runner.clock[place]
            summary = summarise(self.plan, *place, arrays)
            if self.regions is not None:
                arrays = fill_regions(self.regions, pieces(self.plan, variables, *place, arrays), own)
            self._keep(place, arrays, summary)
            self.so_far.tell(latest[0] if latest else None, 1)

    def _play_by_workers(self, executor: AnyExecutor) -> None:
        """Let workers play what is left."""
        plan, options = self.plan, self.options
        work = PlayBatches(plan.study, options.memory, options.segment, plan.batches, self.regions and self.regions.absolute())
        mixed = self._best_mixed() if self.regions is not None else None
        left = [place for place in plan.places if place not in self.done]
        tasks = [Batch(*place, mixed=None if mixed is None else mixed[tuple(plan.trials_of(*place).T)]) for place in left]
        started, skipped = time.perf_counter(), int(self.so_far.trials.sum())
        workers: set[str] = set()
        found = spread(executor, work, tasks, group=lambda task: task.cell, wanted=self.around, note=options.note)
        try:
            with contextlib.closing(found):
                for number, answer in found:
                    place, played = left[number], answer.result
                    workers.add(answer.worker)
                    self.around, self.seconds[place] = answer.surroundings, played.seconds
                    self._keep(place, played.arrays, played.summary)
                    progress = self._progress(place, time.perf_counter() - started, skipped)
                    options.report(progress)
                    self.so_far.tell(progress, len(workers))
        except TaskFailed as error:
            cell, batch = left[error.index]
            raise BatchFailed(
                f"run {plan.title(cell)!r}: batch {batch + 1} of {plan.batch_counts[cell]} of cell {cell + 1} failed on workers,"
                f" every time: {error.reason}; what is finished is kept, and --resume goes on"
            ) from error
        except WorkersLost as error:
            raise WorkersLost(f"executor: {error}; what is finished is kept, and --resume goes on") from error

    def _keep(self, place: tuple[int, int], arrays: Mapping[str, np.ndarray], summary: Summary) -> None:
        """Keep what is finished of a batch: its arrays, or what is left of them beside regions, and then its summary."""
        self.done.add(place)
        self.so_far.add(summary)
        if self.store is not None:
            self.store.finish(*place, arrays if self.regions is None else {**arrays, **summary.arrays()})
        if self.file is None:  # otherwise it is read again, so that memory holds one at a time
            self.finished[place] = arrays

    def _progress(self, place: tuple[int, int], seconds: float, skipped: int) -> Progress:
        """Return the progress after a batch of a worker; ``skipped`` trials were finished before."""
        plan, cell, trials = self.plan, place[0], int(self.so_far.trials.sum())
        rate = (trials - skipped) * plan.study.horizon / max(seconds, LEAST_SECONDS)
        finished = sum(own == cell for own, _ in self.done)
        final = self.so_far.final(plan.members[cell])
        return Progress(
            title=plan.title(cell),
            cell=cell,
            cells=len(plan.cells),
            batch=finished - 1,
            batches=plan.batch_counts[cell],
            round=plan.study.horizon,
            last=finished == plan.batch_counts[cell],
            done=trials * plan.study.horizon,
            work=plan.work,
            seconds=seconds,
            rate=rate,
            left=max(plan.work - trials * plan.study.horizon, 0) / rate,
            means={name: float(np.mean(list(by_run.values()))) for name, by_run in final.items() if by_run},
            lines=next(iter(final.values()), {}),
        )

    def _part(self, cell: int, batch: int) -> Mapping[str, np.ndarray]:
        """Return what is kept of a finished batch."""
        if (cell, batch) in self.finished:
            return self.finished[cell, batch]
        found = None if self.store is None else self.store.part(cell, batch)
        if found is None:
            raise CheckpointMismatch(
                f"resume: batch {batch + 1} of cell {cell + 1} was altered while the study ran; run again with --resume"
            )
        return found

    def _take(self, place: tuple[int, int], part: Mapping[str, np.ndarray]) -> None:
        """Take over a batch that was finished before."""
        self.so_far.add(Summary.of_arrays(part) if self.regions is not None else summarise(self.plan, *place, part))
        if self.file is None:
            self.finished[place] = part

    def _variables(self) -> dict[str, Variable]:
        """Return the variables of results that go to a Zarr directory."""
        return variables_of(self.plan, [empty_batch(self.plan, cell) for cell in range(len(self.plan.cells))], self._best_mixed())

    def _results(self, attributes: Mapping[str, str]) -> xr.Dataset:
        """Return the results of all batches, read from their file if they are written to one."""
        plan, mixed, part = self.plan, self._best_mixed(), self._part
        seconds = [self._seconds_of(cell) for cell in range(len(plan.cells))]
        if self.file is not None and self.regions is not None:
            put_in(self.regions, ({name: x for name, x in part(*place).items() if "|" in name} for place in plan.places))
            finish_regions(self.regions, study_header(plan, self._variables(), mixed, seconds).assign_attrs(attributes))
        else:
            variables = variables_of(plan, [part(cell, 0) for cell in range(len(plan.cells))], mixed)
            head = study_header(plan, variables, mixed, seconds).assign_attrs(attributes)
            held = (piece for place in plan.places for piece in pieces(plan, variables, *place, part(*place)))
            if self.file is None:
                return assembled(head, variables, held)
            stream_results(head, variables, held, self.file)
        return open_results(self.file)  # no need to look at its seal, which is of this moment

    def _seconds_of(self, cell: int) -> tuple[float, float]:
        """Return the seconds of each run of a cell, with and without compilation; NaN unless all of it was run here or by workers."""
        places = [(cell, batch) for batch in range(self.plan.batch_counts[cell])]
        whole, playing = np.sum([self.seconds.get(place, np.full(2, np.nan)) for place in places], axis=0) / len(self.plan.members[cell])
        return float(whole), float(playing)


@takes(directory=path_check | of_class(HeldDirectory, "a directory of hold_directory(...)"))
def forget(directory: str | Path | HeldDirectory) -> None:
    """Drop the checkpoints and batches of a run, once its results are kept elsewhere; raises ``DirectoryInUse`` while a run goes on."""
    with _held(directory) as path:
        Store(path).clear()


@contextlib.contextmanager
def _held(directory: str | Path | HeldDirectory) -> Iterator[Path]:
    """Hold a directory, unless the caller does already."""
    if isinstance(directory, HeldDirectory):
        yield directory.path
    else:
        with hold_directory(directory, force=True) as held:
            yield held.path
