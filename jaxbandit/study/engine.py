"""Running a study: cell by cell, batch by batch, at once or in parts of some rounds, with progress and checkpoints."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from jaxbandit.core import checks
from jaxbandit.study.checkpoints import Store, identity
from jaxbandit.study.dataset import gather_results
from jaxbandit.study.instances import mixed_values
from jaxbandit.study.lines import Specification
from jaxbandit.study.planning import Plan, make_plan
from jaxbandit.study.progress import Progress
from jaxbandit.study.runner import CHECKPOINT_SHARE, Runner


def run_study(
    study: Specification,
    directory: str | Path | None = None,
    *,
    resume: bool = False,
    memory: str | int | None = None,
    segment: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    checkpoint_share: float = CHECKPOINT_SHARE,
    report: Callable[[Progress], None] = lambda progress: None,
    note: Callable[[str], None] = lambda line: None,
) -> Any:
    """Run a study and gather its results: an ``xarray.Dataset``, or ``None`` in all but the first of several processes.

    Args:
      study: what to run, a :class:`~jaxbandit.study.Study` or a :class:`~jaxbandit.study.Comparison`.
      directory: where checkpoints and finished batches go, and stay until :func:`forget`; default nowhere.
      resume: go on with the run that the directory holds, to the results it would have had without interruption, bit for bit.
      memory, segment, devices: as for :func:`make_plan`; a run that is resumed keeps its own.
      checkpoint_share: of the time that checkpoints may take, in (0, 1]; they are left out where they would take more.
      report: called after each part.
      note: called with a line of text when something is compiled, resumed or done.

    Raises:
      InvalidArgument: on a study that cannot run, or a directory that holds the run of another.
      ProcessLost: when another process of the study has gone.
    """
    checks.within("checkpoint_share", checkpoint_share, 0.0, 1.0)
    plan = make_plan(study, memory=memory, segment=segment, devices=devices)
    hosts = plan.hosts
    if directory is None and hosts.count > 1:
        raise checks.InvalidArgument(f"directory: {hosts.count} processes meet in a directory that all of them see; give one")
    store = None if directory is None else Store(Path(directory), hosts.index)
    if store is not None:
        plan = _prepared(plan, store, resume)
    runner = Runner(plan, store, report, note, checkpoint_share)
    parts = {place: runner.batch(*place) for place in plan.owned()}
    hosts.meet("every batch is finished")
    if not hosts.first:
        return None
    whole = [[parts[c, b] if (c, b) in parts else runner.read(c, b) for b in range(batch.batches)] for c, batch in enumerate(plan.batches)]
    mixed = mixed_values(study, list(enumerate(plan.lines)), range(study.trials)) if "strong_regret" in study.metrics else None
    return gather_results(plan, whole, mixed=mixed, seconds=[runner.seconds(cell) for cell in range(len(plan.cells))])


def forget(directory: str | Path) -> None:
    """Drop the checkpoints and batches of a run, once its results are kept elsewhere."""
    Store(Path(directory)).clear()


def _prepared(plan: Plan, store: Store, resume: bool) -> Plan:
    """The plan, as it was when the run was begun if it is resumed."""
    own = identity(plan.study.fingerprint(), len(plan.devices))
    if not resume and plan.hosts.first:
        store.start({"identity": own, "batches": [[batch.size, batch.batches, batch.rounds] for batch in plan.batches]})
    plan.hosts.meet("the run is written down")
    if not resume and plan.hosts.first:
        return plan
    record = store.resume(own)
    pairs = zip(plan.batches, record["batches"], strict=True)
    batches = [dataclasses.replace(b, size=size, batches=n, rounds=rounds) for b, (size, n, rounds) in pairs]
    return dataclasses.replace(plan, batches=tuple(batches))
