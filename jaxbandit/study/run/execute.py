"""Running a study: cell by cell, batch by batch, at once or in parts of some rounds, with progress and checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import xarray as xr

from jaxbandit.core import checks
from jaxbandit.study.plan.planning import Plan, make_plan
from jaxbandit.study.run.checkpoints import Store, identity
from jaxbandit.study.run.dataset import gather_results
from jaxbandit.study.run.mixed_policies import mixed_values
from jaxbandit.study.run.progress import Progress
from jaxbandit.study.run.runner import CHECKPOINT_SHARE, Runner
from jaxbandit.study.specify.study import Study


def run_study(
    study: Study,
    directory: str | Path | None = None,
    *,
    resume: bool = False,
    memory: str | int | None = None,
    segment: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    checkpoint_share: float = CHECKPOINT_SHARE,
    report: Callable[[Progress], None] = lambda progress: None,
    note: Callable[[str], None] = lambda line: None,
) -> xr.Dataset | None:
    """Run a study and return its results, ``None`` in all but the first of several processes.

    Args:
      study: study to run.
      directory: where checkpoints and finished batches go, and stay until :func:`forget`; default nowhere.
      resume: go on with the run that the directory holds, to the results it would have had without interruption, bit for bit.
      memory, segment, devices: as for :func:`make_plan`; a run that is resumed keeps its own.
      checkpoint_share: share of the time that checkpoints may take, in (0, 1]; they are left out where they would take more.
      report: called after each part.
      note: called with a line of text when something is compiled, resumed or done.

    Raises:
      InvalidArgument: on a study that cannot run, or a directory that holds the run of another.
      ProcessLost: when another process of the study has gone.
    """
    checks.within("checkpoint_share", checkpoint_share, 0.0, 1.0)
    plan = make_plan(study, memory=memory, segment=segment, devices=devices)
    processes = plan.processes
    if directory is None and processes.count > 1:
        raise checks.InvalidArgument(f"directory: {processes.count} processes meet in a directory that all of them see; give one")
    store = None if directory is None else Store(Path(directory), processes.index)
    if store is not None:
        plan = _prepared(plan, store, resume)
    runner = Runner(plan, store, report, note, checkpoint_share)
    finished = {place: runner.batch(*place) for place in plan.own_batches()}
    processes.barrier("every batch is finished")
    if not processes.first:
        return None
    batches = [
        [finished[cell, batch] if (cell, batch) in finished else runner.read(cell, batch) for batch in range(count)]
        for cell, count in enumerate(plan.batch_counts)
    ]
    mixed = mixed_values(study, list(enumerate(plan.runs)), range(study.trials)) if "strong_regret" in study.metrics else None
    return gather_results(plan, batches, mixed=mixed, seconds=[runner.seconds(cell) for cell in range(len(plan.cells))])


def forget(directory: str | Path) -> None:
    """Drop the checkpoints and batches of a run, once its results are kept elsewhere."""
    Store(Path(directory)).clear()


def _prepared(plan: Plan, store: Store, resume: bool) -> Plan:
    """Write down the run in its directory, or return the plan with the batches that the run was begun with if it is resumed."""
    own = identity(plan.study.fingerprint(), len(plan.devices))
    if not resume and plan.processes.first:
        store.start({"identity": own, "batches": plan.batches})
    plan.processes.barrier("the run is written down")
    if not resume and plan.processes.first:
        return plan
    return plan.with_batches(store.resume(own)["batches"])
