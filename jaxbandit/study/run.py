"""The run of a study, in this process or on workers."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import numpy as np

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.codec import readable_plain
from jaxbandit.core.declare import Device, FilePath, checked
from jaxbandit.core.fields import Words, between, function, of_class
from jaxbandit.core.fields import path as path_check
from jaxbandit.core.pytree import float_dtype
from jaxbandit.host.executors import VERSIONS, AnyExecutor, TaskFailed, WorkersLost, spread
from jaxbandit.host.progress import shown
from jaxbandit.results.dataset import SECONDS, Arrays, Contents, ResultRow, assembled, header
from jaxbandit.results.files import check_results, open_results, read_results, stream_results
from jaxbandit.study.files import CheckpointMismatch, Files, HeldDirectory, hold_directory, identity, interrupted
from jaxbandit.study.plan import Batch, Memory, Plan, Segment, make_plan
from jaxbandit.study.play import Player
from jaxbandit.study.progress import Progress, SoFar
from jaxbandit.study.study import Study, arithmetic_of

if TYPE_CHECKING:
    import xarray as xr

Directory: TypeAlias = Annotated[str | Path | HeldDirectory, path_check | of_class(HeldDirectory, "a directory of hold_directory(...)")]
Attributes: TypeAlias = Annotated[Mapping[str, str], Words("a mapping from names to text")]


class BatchFailed(RuntimeError):
    """Error for a batch that failed in every attempt, naming the batch."""


class Options(NamedTuple):
    """Arguments of :func:`run_study`, with ``bounds`` for :func:`make_plan`."""

    resume: bool
    results: Path | None
    attributes: Mapping[str, str]
    bounds: Mapping[str, Any]
    checkpoint_share: float
    executor: AnyExecutor | None
    report: Callable[[Progress], None]
    note: Callable[[str], None]


def _unsaid(told: object) -> None:
    """Do nothing: the default of ``report`` and ``note``."""


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
    checkpoint_share: Annotated[float, between(0, 1, host=True)] = Player.usual_share,
    executor: AnyExecutor | None = None,
    report: Annotated[Callable[[Progress], None], function("(progress)")] = _unsaid,
    note: Annotated[Callable[[str], None], function("(line)")] = _unsaid,
) -> xr.Dataset:
    """Run a study and return its results.

    With an ``executor`` its batches are tasks of workers with one device each. If a worker is lost, another worker runs its batch. Results
    have the same bits whatever the number of workers and their losses.

    Args:
      study: study to run.
      directory: directory for checkpoints and finished batches until :func:`forget`; default none. This run locks it until its end, or
        :func:`hold_directory` locks it for longer.
      resume: whether to continue the run in the directory, with any workers or none, to the same bits as without interruption.
      results: NetCDF file, or Zarr directory if it ends in ``.zarr``, for the results of batch after batch, so that they need not fit
        memory. The returned dataset reads it lazily. It needs a ``directory``, in which workers write their batches for Zarr, so that all
        workers must see it. Otherwise this process writes them.
      attributes: further attributes of the results, such as the command.
      memory, segment, devices: as for :func:`make_plan`, with ``memory`` for each worker. A resumed run keeps its batches.
      checkpoint_share: greatest share of the time for checkpoints, in (0, 1]. Workers make no checkpoints: a lost batch runs again.
      executor: an executor of ``concurrent.futures``, with spawned processes, or a ``distributed.Client`` of Dask; default this process.
      report: called after each part, or with workers after each batch. Without it and ``note`` a terminal and a notebook show a line.
      note: called with a line of text on each compilation, resumption, dropped file and end.

    Raises:
      InvalidArgument: on a study that cannot run, results that do not fit memory or cannot be written, or a directory with another run.
      DirectoryInUse: when another running study has locked the directory.
      CannotWrite: on any error of the operating system when a file is written.
      BatchFailed: when a batch has failed on workers again and again. All started batches are finished and stored before.
      WorkerMismatch: when a worker has another version or another kind of device, so that its results would differ.
      WorkersLost: when the executor takes no more tasks.
    """
    if resume and directory is None:
        raise InvalidArgument("resume: needs the directory that holds the run to go on with; give one")
    if executor is not None and devices is not None:
        raise InvalidArgument("devices: workers play on a device of their own each; give devices or an executor, not both")
    if directory is None and results is not None:
        raise InvalidArgument("directory: results that are written batch by batch need one for the batches; give one")
    # A rerun of a trial needs the caller's arithmetic, in which the problems were built.
    said = {"jax_enable_x64": str(float_dtype() == np.float64), **(attributes or {})}
    file, bounds = None if results is None else Path(results), {"memory": memory, "segment": segment}
    waited: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    line = [f"{study.name}: compiling"]
    if report is note is _unsaid:
        report, waited = lambda progress: line.__setitem__(0, str(progress)), shown(lambda seconds: line[0])
    options = Options(resume, file, said, bounds, checkpoint_share, executor, report, note)
    how: dict[str, Any] = {**bounds, "devices": devices, "streamed": file is not None, "by_workers": executor is not None}
    with arithmetic_of(study), waited, Store.of(make_plan(study, **how), directory, options) as store:
        # The context cancels the workers' tasks, however the run ends.
        with contextlib.closing(store.played()) as played:
            for batch, arrays, seconds in played:
                store.finish(batch, arrays, seconds)
        return store.gather()


class Store:
    """Finished batches of a run, in memory or in ``files``."""

    def __init__(self, plan: Plan, options: Options, files: Files | None, around: Mapping[str, str] | None) -> None:
        self.plan, self.options, self.files, self.around = plan, options, files, around
        self.so_far = SoFar(plan, options.report, None if files is None else files.directory)
        self.contents = contents_of(plan)
        self.parts: dict[Batch, Arrays | None] = {}
        # The seconds are those of each run with and without compilation, NaN after a resumption.
        self.seconds = np.zeros((len(plan.runs), 2))
        for batch in plan.batches if options.resume else ():
            part = None if files is None else self._read(batch)
            if part is not None:
                self.parts[batch] = None if options.results else part
                self.seconds[list(batch.cell.runs)] = np.nan
                self.so_far.finish(batch, part, before=True)

    @staticmethod
    @contextlib.contextmanager
    def of(plan: Plan, directory: Directory | None, options: Options) -> Iterator[Store]:
        """Yield the store of a run, with its directory locked."""
        around, by_workers = None, options.executor is not None
        if options.results is not None:
            check_results(header(contents_of(plan, trials=1), attributes(plan)), options.results)
        # A worker decides the batches.
        if options.executor is not None and not options.resume:
            try:
                [(_, answer)] = spread(options.executor, Work(plan.study, options.bounds), [None], note=options.note)
            except TaskFailed as error:
                raise InvalidArgument(f"executor: a worker cannot plan the study: {error.reason}") from error
            plan, around = plan.with_layout(answer.result), answer.surroundings
        with contextlib.nullcontext() if directory is None else _locked(directory) as path:
            files = None if path is None else Files(path, options.note)
            if files is not None and options.resume:
                # The workers' surroundings are compared in their tasks.
                if by_workers:
                    known = files.record()["identity"]
                    around = {name: str(known.get(name)) for name in (*VERSIONS, "device")}
                plan = plan.with_layout(files.resume(identity(plan.study.fingerprint(), around))["batches"])
            elif files is not None:
                files.start({"identity": identity(plan.study.fingerprint(), around), "batches": plan.layout})
            store = Store(plan, options, files, around)
            store.so_far.write()
            yield store

    def played(self) -> Generator[tuple[Batch, Arrays | None, np.ndarray]]:
        """Run every missing batch and yield batch, unwritten arrays and seconds."""
        options, missing = self.options, self.missing()
        if options.executor is None:
            how: dict[str, Any] = {"note": options.note, "share": options.checkpoint_share, "left": self.missing, "contents": self.contents}
            player = Player(self.plan, self.files, report=self.so_far.played, **how)
            self.so_far.compiling = lambda: player.compiling
            yield from ((batch, *player.play(batch)) for batch in missing)
            return
        self.so_far.dashboard = "" if isinstance(options.executor, Executor) else options.executor.dashboard_link or ""
        if self.so_far.dashboard:
            options.note(f"dashboard of the workers: {self.so_far.dashboard}")
        files = self.files if options.results is not None and options.results.suffix == ".zarr" else None
        shared = None if files is None else Files(files.directory.absolute(), run=files.run)
        work, places = Work(self.plan.study, options.bounds, self.plan.layout, shared), [batch.place for batch in missing]
        try:
            with contextlib.closing(spread(options.executor, work, places, wanted=self.around, note=options.note)) as answers:
                for number, answer in answers:
                    self.so_far.workers.add(answer.worker)
                    self.around = answer.surroundings
                    yield missing[number], *answer.result
        except TaskFailed as error:
            batch = missing[error.index]
            raise BatchFailed(
                f"run {batch.cell.title!r}: batch {batch.number + 1} of {batch.cell.count} of cell {batch.cell.number + 1} failed on"
                f" workers, every time: {error.reason}; what is finished is kept, and --resume goes on"
            ) from error
        except WorkersLost as error:
            raise WorkersLost(f"executor: {error}; what is finished is kept, and --resume goes on") from error

    def missing(self) -> list[Batch]:
        """Return the unfinished batches."""
        return [batch for batch in self.plan.batches if batch not in self.parts]

    def finish(self, batch: Batch, part: Arrays | None, seconds: np.ndarray) -> None:
        """Store a finished batch, without ``part`` if a worker has written it."""
        if part is not None and self.files is not None:
            self.files.write(batch.file, part)
        part = self._part(batch) if part is None else part
        # With a results file :meth:`gather` reads one batch after the other again.
        self.parts[batch] = None if self.options.results else part
        self.seconds[list(batch.cell.runs)] += seconds / len(batch.cell.runs)
        self.so_far.finish(batch, part)
        self.so_far.write(now=False)

    def _part(self, batch: Batch) -> Arrays:
        """Return the arrays of a finished batch."""
        part = self.parts.get(batch)
        if part is None and self.files is not None:
            part = self._read(batch)
        if part is None:
            raise CheckpointMismatch(f"resume: {batch} was altered while the study ran; run again with --resume")
        return part

    def _read(self, batch: Batch) -> Arrays | None:
        """Return the arrays of a batch's file, ``None`` if unfit."""
        assert self.files is not None
        return self.files.read(batch.file, lambda arrays: self.contents.misfit(batch.cell.number, arrays, batch.size))

    def _check_alike(self) -> None:
        """Raise ``CheckpointMismatch`` unless all batches of a cell have equal types."""
        held = dict[int, tuple[Batch, object]]()
        for batch in self.plan.batches:
            has = {name: (array.dtype.str, array.shape[1:]) for name, array in self._part(batch).items()}
            first, wanted = held.setdefault(batch.cell.number, (batch, has))
            if has != wanted:
                raise CheckpointMismatch(f"resume: {first} and {batch} hold different quantities; run again without --resume")

    def gather(self) -> xr.Dataset:
        """Return the results of all batches, read from their file if any."""
        plan, file, contents = self.plan, self.options.results, self.contents
        self.so_far.write()
        said = {**attributes(plan), **self.options.attributes}
        if self.options.executor is not None:
            said["devices"] = json.dumps([(self.around or {}).get("device", "")])
        self._check_alike()
        variables = contents.variables([self._part(cell.batch(0)) for cell in plan.cells])
        seconds = {name: ("algorithm", each) for name, each in zip(SECONDS, self.seconds.T, strict=True)}
        head = header(contents, said, variables, seconds)
        pieces = (piece for batch in plan.batches for piece in contents.pieces(variables, batch.cell.number, self._part(batch), batch.rows))
        if file is None:
            return assembled(head, variables, pieces)
        stream_results(head, variables, pieces, file)
        return open_results(file)


@dataclasses.dataclass(frozen=True)
class Work:
    """Work of a worker: decide a study's batches, or run a batch."""

    study: Study
    bounds: Mapping[str, Any]
    layout: list[list[int]] | None = None
    files: Files | None = None

    def __call__(self, place: tuple[int, int] | None) -> tuple[Arrays | None, np.ndarray] | list[list[int]]:
        """Return this worker's layout, or the batch with numbers ``place``."""
        with arithmetic_of(self.study):
            if place is None:
                return self.player.plan.layout
            batch = self.player.plan.cells[place[0]].batch(place[1])
            self.player.left = lambda: [batch]
            arrays, seconds = self.player.play(batch)
            if self.files is None:
                return arrays, seconds
            if not self.files.is_there():
                raise InvalidArgument(
                    f"results: workers write to {self.files.directory}, and this one does not see the run there; give a directory that"
                    " all machines share, or write NetCDF"
                )
            self.files.write(batch.file, arrays)
            return None, seconds

    @functools.cached_property
    def player(self) -> Player:
        """Player of this worker's batches."""
        plan = make_plan(self.study, **self.bounds, streamed=True, by_workers=True)
        return Player(plan if self.layout is None else plan.with_layout(self.layout))


def contents_of(plan: Plan, trials: int | None = None) -> Contents:
    """Return the contents of results, of all trials or the first."""
    study = plan.study
    return Contents(
        rows=[
            ResultRow(run.label, str(run.algorithm_label), str(run.problem_label), str(run.delay_label), dict(run.swept))
            for run in plan.runs
        ],
        swept=list(dict.fromkeys(path for run in plan.runs for path in run.swept)),
        trials=np.arange(study.trials if trials is None else trials),
        horizon=study.horizon,
        kept=study.keep.rounds(study.horizon),
        before=plan.before,
        metrics=study.metrics,
        trajectories=study.trajectories,
        problems=[cell.cell.problem for cell in plan.cells],
    )


def attributes(plan: Plan) -> dict[str, object]:
    """Return inputs and devices, structured values as JSON text."""
    # The table is empty if none describes the study.
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
        "problems": json.dumps({run.problem_label: readable_plain(run.problem) for run in runs}),
        "initial_designs": json.dumps({run.label: readable_plain(run.initial) for run in runs}),
        "algorithms": json.dumps({run.label: {"alg": run.name_in_traces, **readable_plain(run.algorithm)} for run in runs}),
        "delays": json.dumps({run.label: readable_plain(run.delay_in_force) for run in runs}),
        "feedback": json.dumps({run.label: readable_plain(run.policy_in_force) for run in runs}),
        "kernels": json.dumps({run.label: [readable_plain(kernel) for kernel in run.model.kernels_in_force] for run in runs}),
        "surrogates": json.dumps({run.label: run.model.describe() for run in runs}),
        "choices": json.dumps({run.label: study.describe_choices(run) for run in runs}),
        "noise_variance_of_model": json.dumps({run.label: readable_plain(run.model.noise_variance) for run in runs}),
        "precision": str(float_dtype()),
        "devices": json.dumps([str(device) for device in plan.devices]),
    }


@contextlib.contextmanager
def _locked(directory: Directory) -> Iterator[Path]:
    """Lock a directory, unless the caller has locked it."""
    with contextlib.nullcontext(directory) if isinstance(directory, HeldDirectory) else hold_directory(directory, force=True) as held:
        yield held.path


@checked
def forget(directory: Directory) -> None:
    """Drop checkpoints and batches of a finished run, or raise ``DirectoryInUse``."""
    with _locked(directory) as path:
        Files(path).clear()


@checked
def made_before(path: FilePath, attributes: Attributes) -> xr.Dataset | None:
    """Return lazy results at ``path`` with these ``attributes``, or ``None``."""
    path = Path(path)
    if not path.exists() or interrupted(path.parent):
        return None
    with contextlib.suppress(InvalidArgument):
        dataset = read_results(path, load=False)
        if all(str(dataset.attrs.get(name)) == value for name, value in attributes.items()):
            return dataset
        dataset.close()
    return None
