"""Running a study: cell by cell, batch by batch, at once or in parts of some rounds, with progress and checkpoints."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import jax
import numpy as np
import xarray as xr

from jaxbandit.core import checks
from jaxbandit.core.arguments import takes
from jaxbandit.core.fields import between, boolean, function, mapping, of_class, optional, text
from jaxbandit.core.fields import path as path_check
from jaxbandit.core.files import drop
from jaxbandit.core.pytree import float_dtype
from jaxbandit.study.plan.memory import check_disk
from jaxbandit.study.plan.planning import Plan, make_plan
from jaxbandit.study.plan.processes import Processes
from jaxbandit.study.results.storage import check_results, open_results, stream_results
from jaxbandit.study.run.checkpoints import Store, identity
from jaxbandit.study.run.dataset import gather_results, header, pieces, study_variables
from jaxbandit.study.run.hold import HeldDirectory, hold_directory
from jaxbandit.study.run.meeting import Meeting
from jaxbandit.study.run.mixed_policies import mixed_values
from jaxbandit.study.run.progress import Compiling, Progress
from jaxbandit.study.run.runner import CHECKPOINT_SHARE, Runner
from jaxbandit.study.specify.study import Study, in_its_arithmetic


@takes(
    directory=optional(path_check | of_class(HeldDirectory, "a directory of hold_directory(...)")),
    resume=boolean,
    attributes=optional(mapping(text, "a mapping from names to text")),
    report=function("(progress)"),
    note=function("(line)"),
    compiling=function("(compiling)"),
    results=optional(path_check),
    checkpoint_share=between(0, 1, host=True),
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
    devices: Sequence[jax.Device] | None = None,
    checkpoint_share: float = CHECKPOINT_SHARE,
    processes: Processes | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
    note: Callable[[str], None] = lambda line: None,
    compiling: Callable[[Compiling], None] = lambda compiling: None,
) -> xr.Dataset | None:
    """Run a study and return its results, ``None`` in all but the first of several processes.

    Args:
      study: study to run.
      directory: where checkpoints and finished batches go, and stay until :func:`forget`; default nowhere. It belongs to this run while
        it lasts, or for longer if :func:`hold_directory` has made it; of several processes the first one holds it.
      resume: go on with the run that the directory holds, to the results it would have had without interruption, bit for bit.
      results: NetCDF file, or Zarr directory if it ends in ``.zarr``, that results are written to batch by batch, so that they need not
        fit memory; the dataset that is returned is then read from it as it is used. Needs a ``directory``.
      attributes: what else the results say of the run, such as the command.
      memory, segment, devices: as for :func:`make_plan`; a run that is resumed keeps its own.
      checkpoint_share: share of the time that checkpoints may take, in (0, 1]; they are left out where they would take more.
      processes: as for :func:`make_plan`.
      report: called after each part.
      note: called with a line of text when something is compiled, resumed, dropped or done.
      compiling: called before programs are compiled.

    Raises:
      InvalidArgument: on a study that cannot run, results that fit neither memory nor disk or cannot be written, or a directory that
        holds the run of another.
      DirectoryInUse: when a run that is going on holds the directory.
      CannotWrite: on any error of the operating system when a file is written.
      ProcessLost: when another process of the study has gone.
    """
    if resume and directory is None:
        raise checks.InvalidArgument("resume: needs the directory that holds the run to go on with; give one")
    # Problems are made in the arithmetic of the caller, which a trial that is played again needs, too.
    said = {"jax_enable_x64": str(float_dtype() == np.float64), **(attributes or {})}
    return _run(study, directory, resume, results, said, memory, segment, devices, checkpoint_share, processes, report, note, compiling)


@in_its_arithmetic
def _run(
    study: Study,
    directory: str | Path | HeldDirectory | None,
    resume: bool,
    results: str | Path | None,
    attributes: Mapping[str, str],
    memory: str | int | None,
    segment: int | None,
    devices: Sequence[jax.Device] | None,
    checkpoint_share: float,
    processes: Processes | None,
    report: Callable[[Progress], None],
    note: Callable[[str], None],
    compiling: Callable[[Compiling], None],
) -> xr.Dataset | None:
    """Do as :func:`run_study` says, in the arithmetic of the study."""
    plan = make_plan(study, memory=memory, segment=segment, devices=devices, streamed=results is not None, processes=processes)
    if directory is None:
        if plan.processes.count > 1:
            raise checks.InvalidArgument(f"directory: {plan.processes.count} processes meet in a directory that all see; give one")
        if results is not None:
            raise checks.InvalidArgument("directory: results that are written batch by batch need one for the batches; give one")
        return _played(plan, None, None, attributes, checkpoint_share, report, note, compiling)
    if results is not None:
        check_results(header(plan.of_one_trial(), ()), Path(results))
    with _held(directory, plan.processes.first) as path:
        store = Store(path, plan.processes.index, note)
        with Meeting(path, plan.processes) as meeting:
            plan = _prepared(plan, store, resume, streamed=results is not None)
            file = None if results is None else Path(results)
            return _played(plan, store, file, attributes, checkpoint_share, report, note, compiling, meeting)


def _played(
    plan: Plan,
    store: Store | None,
    results: Path | None,
    attributes: Mapping[str, str],
    checkpoint_share: float,
    report: Callable[[Progress], None],
    note: Callable[[str], None],
    compiling: Callable[[Compiling], None],
    meeting: Meeting | None = None,
) -> xr.Dataset | None:
    """Play what is left of a plan and gather the results."""
    runner = Runner(plan, store, report, note, checkpoint_share, compiling)
    finished: dict[tuple[int, int], Mapping[str, np.ndarray]] = {}
    for place in plan.own_batches():
        if results is None:
            finished[place] = runner.batch(*place)
        else:
            runner.batch(*place)  # not kept: it is read again, so that memory holds one at a time
    if meeting is not None and plan.processes.count > 1:
        meeting.finished()
        if not plan.processes.first:
            meeting.gathered()
            return None

    def batch_at(cell: int, number: int) -> Mapping[str, np.ndarray]:
        return finished[cell, number] if (cell, number) in finished else runner.read(cell, number)

    study = plan.study
    mixed = mixed_values(study, list(enumerate(plan.runs)), range(study.trials)) if "strong_regret" in study.metrics else None
    seconds = [runner.seconds(cell) for cell in range(len(plan.cells))]
    if results is None:
        return gather_results(plan, batch_at, mixed=mixed, seconds=seconds).assign_attrs(attributes)
    variables = study_variables(plan, batch_at, mixed)
    head = header(plan, variables, mixed=mixed, seconds=seconds).assign_attrs(attributes)
    stream_results(head, variables, pieces(plan, variables, batch_at), results)
    return open_results(results)  # no need to look at its seal, which is of this moment


@takes(directory=path_check | of_class(HeldDirectory, "a directory of hold_directory(...)"))
def forget(directory: str | Path | HeldDirectory) -> None:
    """Drop the checkpoints and batches of a run, once its results are kept elsewhere; raises ``DirectoryInUse`` while a run goes on."""
    with _held(directory, True) as path:
        Store(path).clear()
        for lock in path.glob("process-*.lock"):  # of processes that were lost, or are about to end
            drop(lock)


@contextlib.contextmanager
def _held(directory: str | Path | HeldDirectory, first: bool) -> Iterator[Path]:
    """Hold a directory in the first of several processes, unless the caller does already."""
    if isinstance(directory, HeldDirectory):
        yield directory.path
    elif not first:
        yield Path(directory)
    else:
        with hold_directory(directory, force=True) as held:
            yield held.path


def _prepared(plan: Plan, store: Store, resume: bool, streamed: bool) -> Plan:
    """Write down the run in its directory, or return the plan with the batches that the run was begun with if it is resumed."""
    own = identity(plan.study.fingerprint(), len(plan.devices), plan.processes.count)
    if plan.processes.first and not resume:
        store.clear()
        check_disk(store.directory, plan.disk_bytes(streamed))
        store.start({"identity": own, "batches": plan.batches})
    plan.processes.meet("the run is written down")
    if plan.processes.first and not resume:
        return plan
    begun = plan.with_batches(store.resume(own)["batches"])
    if resume:
        kept = sum(store.verified(*place) for place in begun.own_batches())
        if plan.processes.first:
            check_disk(store.directory, begun.disk_bytes(streamed) - kept)
    return begun
