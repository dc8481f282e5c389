"""Running a study: batch by batch in this process, or as tasks of workers, with progress, checkpoints and results."""

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
from jaxbandit.core.codec import describe
from jaxbandit.core.declare import Device, FilePath, checked
from jaxbandit.core.fields import Words, between, function, of_class
from jaxbandit.core.fields import path as path_check
from jaxbandit.core.pytree import float_dtype
from jaxbandit.host.executors import EXECUTOR, VERSIONS_AND_DEVICE, AnyExecutor, TaskFailed, WorkersLost, spread
from jaxbandit.host.progress import shown
from jaxbandit.results.dataset import SECONDS, Arrays, Contents, ResultRow, assembled, header
from jaxbandit.results.files import check_results, open_results, read_results, stream_results
from jaxbandit.study.files import CheckpointMismatch, Files, HeldDirectory, hold_directory, identity, interrupted
from jaxbandit.study.plan import Batch, Memory, Plan, Segment, make_plan
from jaxbandit.study.play import CHECKPOINT_SHARE, Player
from jaxbandit.study.progress import Progress, SoFar
from jaxbandit.study.study import Study, arithmetic_of

if TYPE_CHECKING:
    import xarray as xr

Directory: TypeAlias = Annotated[str | Path | HeldDirectory, path_check | of_class(HeldDirectory, "a directory of hold_directory(...)")]
Attributes: TypeAlias = Annotated[Mapping[str, str], Words("a mapping from names to text")]


class BatchFailed(RuntimeError):
    """A batch failed in every attempt; the message names run, cell and batch. What is finished is kept, and ``resume`` goes on."""


class Options(NamedTuple):
    """How a study is run and who is told; see :func:`run_study`."""

    resume: bool
    results: Path | None
    attributes: Mapping[str, str]
    bounds: Mapping[str, Any]  # of batches, as :func:`make_plan` takes them
    checkpoint_share: float
    executor: AnyExecutor | None
    report: Callable[[Progress], None]
    note: Callable[[str], None]


def _unsaid(told: object) -> None:
    """Say nothing; where nobody is told of a run, a terminal or a notebook shows a line once it takes long."""


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
    report: Annotated[Callable[[Progress], None], function("(progress)")] = _unsaid,
    note: Annotated[Callable[[str], None], function("(line)")] = _unsaid,
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
      executor: an executor of ``concurrent.futures``, whose processes must be spawned and not forked, or a client of Dask,
        ``distributed.Client``; default none, for this process.
      report: called after each part, of workers after each batch; without it and ``note`` a terminal and a notebook show a line of it.
      note: called with a line of text when something is compiled, resumed, dropped or done.

    Raises:
      InvalidArgument: on a study that cannot run, results that do not fit memory or cannot be written, or a directory that holds the
        run of another.
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
    file, bounds = None if results is None else Path(results), {"memory": memory, "segment": segment}
    waited: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    line = [f"{study.name}: compiling"]
    if report is note is _unsaid:
        report, waited = lambda progress: line.__setitem__(0, str(progress)), shown(lambda seconds: line[0])
    options = Options(resume, file, said, bounds, checkpoint_share, executor, report, note)
    how: dict[str, Any] = {**bounds, "devices": devices, "streamed": file is not None, "by_workers": executor is not None}
    with arithmetic_of(study), waited, Store.of(make_plan(study, **how), directory, options) as store:
        with contextlib.closing(store.played()) as played:  # which calls workers off, however the run ends
            for batch, arrays, seconds in played:
                store.finish(batch, arrays, seconds)
        return store.gather()


class Store:
    """Finished batches of a run, in memory or in ``files``; ``around`` are the surroundings of the workers, once they are known."""

    def __init__(self, plan: Plan, options: Options, files: Files | None, around: Mapping[str, str] | None) -> None:
        self.plan, self.options, self.files, self.around = plan, options, files, around
        self.so_far = SoFar(plan, options.report, None if files is None else files.directory)
        self.contents = contents_of(plan)
        self.parts: dict[Batch, Arrays | None] = {}  # finished batches: their arrays where no file takes the results
        self.seconds = np.zeros((len(plan.runs), 2))  # of each run, with and without compilation; NaN if an earlier process played some
        for batch in plan.batches if options.resume else ():
            part = None if files is None else self._read(batch)
            if part is not None:
                self.parts[batch] = None if options.results else part
                self.seconds[list(batch.cell.runs)] = np.nan
                self.so_far.finish(batch, part, before=True)

    @staticmethod
    @contextlib.contextmanager
    def of(plan: Plan, directory: Directory | None, options: Options) -> Iterator[Store]:
        """Give the store of a run, which holds its directory meanwhile; in memory without a directory."""
        around, by_workers = None, options.executor is not None
        if options.results is not None:
            check_results(header(contents_of(plan, trials=1), attributes(plan)), options.results)
        if options.executor is not None and not options.resume:  # a worker cuts the study into the batches that it would have
            try:
                [(_, answer)] = spread(options.executor, Work(plan.study, options.bounds), [None], note=options.note)
            except TaskFailed as error:
                raise InvalidArgument(f"executor: a worker cannot plan the study: {error.reason}") from error
            plan, around = plan.with_layout(answer.result), answer.surroundings
        with contextlib.nullcontext() if directory is None else _held(directory) as path:
            files = None if path is None else Files(path, options.note)
            if files is not None and options.resume:
                if by_workers:  # whose surroundings are compared when they play
                    known = files.record()["identity"]
                    around = {name: str(known.get(name)) for name in VERSIONS_AND_DEVICE}
                plan = plan.with_layout(files.resume(identity(plan.study.fingerprint(), around))["batches"])
            elif files is not None:
                files.start({"identity": identity(plan.study.fingerprint(), around), "batches": plan.layout})
            store = Store(plan, options, files, around)
            store.so_far.write()
            yield store

    def played(self) -> Generator[tuple[Batch, Arrays | None, np.ndarray]]:
        """Play all batches that are missing: give each with its arrays, unless a worker has written them, and its seconds."""
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
        """Return the batches that are still to be played."""
        return [batch for batch in self.plan.batches if batch not in self.parts]

    def finish(self, batch: Batch, part: Arrays | None, seconds: np.ndarray) -> None:
        """Keep a batch that was played, whose ``part`` is ``None`` where a worker has written it."""
        if part is not None and self.files is not None:
            self.files.write(batch.file, part)
        part = self._part(batch) if part is None else part
        self.parts[batch] = None if self.options.results else part  # which is read again, so that memory holds one at a time
        self.seconds[list(batch.cell.runs)] += seconds / len(batch.cell.runs)
        self.so_far.finish(batch, part)
        self.so_far.write(now=False)

    def _part(self, batch: Batch) -> Arrays:
        """Return what is kept of a finished batch."""
        part = self.parts.get(batch)
        if part is None and self.files is not None:
            part = self._read(batch)
        if part is None:
            raise CheckpointMismatch(f"resume: {batch} was altered while the study ran; run again with --resume")
        return part

    def _read(self, batch: Batch) -> Arrays | None:
        """Return a batch's file, ``None`` where there is none that fits."""
        assert self.files is not None
        return self.files.read(batch.file, lambda arrays: self.contents.misfit(batch.cell.number, arrays, batch.size))

    def _check_alike(self) -> None:
        """Raise ``CheckpointMismatch`` where a batch of a cell holds other arrays than the first one does."""
        held = dict[int, tuple[Batch, object]]()
        for batch in self.plan.batches:
            has = {name: (array.dtype.str, array.shape[1:]) for name, array in self._part(batch).items()}
            first, wanted = held.setdefault(batch.cell.number, (batch, has))
            if has != wanted:
                raise CheckpointMismatch(f"resume: {first} and {batch} hold different quantities; run again without --resume")

    def gather(self) -> xr.Dataset:
        """Return the results of all batches, read from their file if they are written to one."""
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
        return open_results(file)  # no need to look at its seal, which is of this moment


@dataclasses.dataclass(frozen=True)
class Work:
    """Work of a worker: cut a study into batches by its memory and its kind of device, or play a batch."""

    study: Study
    bounds: Mapping[str, Any]
    layout: list[list[int]] | None = None  # of the batches that all workers have
    files: Files | None = None  # where workers write batches themselves

    def __call__(self, place: tuple[int, int] | None) -> tuple[Arrays | None, np.ndarray] | list[list[int]]:
        """Return the layout that this worker would choose, or the batch with these numbers of its cell and of itself."""
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
        """Player of all batches."""
        plan = make_plan(self.study, **self.bounds, streamed=True, by_workers=True)
        return Player(plan if self.layout is None else plan.with_layout(self.layout))


def contents_of(plan: Plan, trials: int | None = None) -> Contents:
    """Return what the results of a plan hold, of all trials or of the first few."""
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
    """Return the results at ``path``, to be read as they are used, if they say of their run what ``attributes`` do; else ``None``."""
    path = Path(path)
    if not path.exists() or interrupted(path.parent):
        return None
    with contextlib.suppress(InvalidArgument):  # no results, or damaged ones
        dataset = read_results(path, load=False)
        if all(str(dataset.attrs.get(name)) == value for name, value in attributes.items()):
            return dataset
        dataset.close()
    return None
