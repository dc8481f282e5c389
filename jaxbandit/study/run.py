"""Running a study: batch by batch in this process, or as tasks of workers, with progress, checkpoints and results."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import xarray as xr

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import checked
from jaxbandit.core.executors import EXECUTOR, AnyExecutor, TaskFailed, WorkersLost, dashboard_of, spread
from jaxbandit.core.fields import Words, between, function, of_class
from jaxbandit.core.fields import path as path_check
from jaxbandit.core.pytree import float_dtype
from jaxbandit.core.types import Device, FilePath
from jaxbandit.study.hold import HeldDirectory
from jaxbandit.study.plan import CHECKPOINT_SHARE, Batch, Memory, Options, Segment
from jaxbandit.study.play import Played, Player
from jaxbandit.study.progress import Compiling, Progress
from jaxbandit.study.specify.study import Study, in_its_arithmetic
from jaxbandit.study.store import Store
from jaxbandit.study.workers import BatchFailed, Work


@checked
def run_study(
    study: Study,
    directory: Annotated[str | Path | HeldDirectory, path_check | of_class(HeldDirectory, "a directory of hold_directory(...)")]
    | None = None,
    *,
    resume: bool = False,
    results: FilePath | None = None,
    attributes: Annotated[Mapping[str, str], Words("a mapping from names to text")] | None = None,
    memory: Memory | None = None,
    segment: Segment | None = None,
    devices: Sequence[Device] | None = None,
    checkpoint_share: Annotated[float, between(0, 1, host=True)] = CHECKPOINT_SHARE,
    executor: Annotated[AnyExecutor, EXECUTOR] | None = None,
    report: Annotated[Callable[[Progress], None], function("(progress)")] = lambda progress: None,
    note: Annotated[Callable[[str], None], function("(line)")] = lambda line: None,
    compiling: Annotated[Callable[[Compiling], None], function("(compiling)")] = lambda compiling: None,
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
        raise InvalidArgument("resume: needs the directory that holds the run to go on with; give one")
    if executor is not None and devices is not None:
        raise InvalidArgument("devices: workers play on a device of their own each; give devices or an executor, not both")
    # Problems are built in the arithmetic of the caller, which a trial that is played again needs, too.
    said = {"jax_enable_x64": str(float_dtype() == np.float64), **(attributes or {})}
    file = None if results is None else Path(results)
    return _run(
        study,
        directory,
        Options(resume, file, said, memory, segment, devices, checkpoint_share, executor, report, note, compiling),
    )


@in_its_arithmetic
def _run(study: Study, directory: str | Path | HeldDirectory | None, options: Options) -> xr.Dataset:
    """Run a study in its arithmetic."""
    if directory is None and options.results is not None:
        raise InvalidArgument("directory: results that are written batch by batch need one for the batches; give one")
    plan = options.plan(study)
    with Store.of(directory, plan, options) as store:
        with contextlib.closing(_played(store, options)) as batches:  # which calls workers off, however the run ends
            for batch, played in batches:
                store.finish(batch, played)
        return store.gather()


def _played(store: Store, options: Options) -> Generator[tuple[Batch, Played]]:
    """Give the batches that were missing as they are played, here or by workers."""
    if options.executor is not None:
        store.so_far.dashboard = dashboard_of(options.executor)
        if store.so_far.dashboard:
            options.note(f"dashboard of the workers: {store.so_far.dashboard}")
    store.so_far.write()
    if options.executor is not None:
        yield from _played_by_workers(store, options.executor, options)
    else:
        player = Player(store.plan, options, store.meter, store.files, store.missing)
        for batch in store.missing():
            yield batch, player.result(batch, store.regions)
            store.so_far.tell(store.meter.latest, 1)
    store.so_far.write()


def _played_by_workers(store: Store, executor: AnyExecutor, options: Options) -> Iterator[tuple[Batch, Played]]:
    """Give batches that workers have played, in any order."""
    plan, missing = store.plan, store.missing()
    work = Work(plan.study, options.memory, options.segment, plan.layout, store.regions and store.regions.absolute())
    started = time.perf_counter()
    workers: set[str] = set()
    places = [batch.place for batch in missing]
    found = spread(executor, work, places, group=lambda place: place[0], wanted=store.around, note=options.note)
    try:
        with contextlib.closing(found):
            for number, answer in found:
                batch, played = missing[number], answer.result
                workers.add(answer.worker)
                store.around = answer.surroundings
                yield batch, played
                labels = [plan.runs[run].label for run in played.summary.runs]
                means = {
                    name: {label: float(mean) for label, mean in zip(labels, curves[:, -1], strict=True)}
                    for name, curves in played.summary.mean.items()
                }
                store.meter.played(batch, plan.study.horizon, plan.study.horizon, time.perf_counter() - started, means)
                store.so_far.tell(store.meter.latest, len(workers))
    except TaskFailed as error:
        batch = missing[error.index]
        raise BatchFailed(
            f"run {batch.cell.title!r}: batch {batch.number + 1} of {batch.cell.count} of cell {batch.cell.number + 1} failed on workers,"
            f" every time: {error.reason}; what is finished is kept, and --resume goes on"
        ) from error
    except WorkersLost as error:
        raise WorkersLost(f"executor: {error}; what is finished is kept, and --resume goes on") from error
