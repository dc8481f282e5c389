"""One trial of a study again, from its results alone."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated, Any

import jax
import numpy as np
import xarray as xr

import jaxbandit
from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import whole
from jaxbandit.results.dataset import Results, assembled, header, pieces_of
from jaxbandit.study.plan import MAX_BYTES, Batch, Plan, make_plan
from jaxbandit.study.play import Player
from jaxbandit.study.run import attributes, contents_of
from jaxbandit.study.study import Keep, Study, from_table, in_its_arithmetic


@checked
def study_of(dataset: Results) -> Study:
    """Return the study that gave a dataset; raises ``InvalidArgument`` when its results do not hold it, or not one of this version."""
    if not dataset.attrs.get("table", ""):
        raise InvalidArgument(
            "results: they do not hold the study, for no table describes its runs; build the Study in Python as it was and"
            " call rerun(dataset, trial, study=...)"
        )
    try:
        return from_table(_parsed(dataset, "table"))
    except InvalidArgument as error:
        raise InvalidArgument(f"results: the study that they hold cannot be made here: {error}{_of_another_version(dataset)}") from error


def _of_another_version(dataset: xr.Dataset) -> str:
    """Return a remark on the version that wrote results, empty when it is this one."""
    try:
        version = json.loads(dataset.attrs["versions"])["jaxbandit"]
    except (KeyError, TypeError, ValueError, RecursionError):
        version = "an unknown one"
    own = jaxbandit.__version__
    return "" if version == own else f"; they were written by another version of jaxbandit ({version}, this is {own})"


def _parsed(dataset: xr.Dataset, name: str) -> Any:
    """Return an attribute of results that is JSON; raises ``InvalidArgument`` when it is missing or something else."""
    try:
        return json.loads(dataset.attrs[name])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"results: their attribute {name!r} is missing or broken{_of_another_version(dataset)}") from error


@checked
def rerun(dataset: Results, trial: Annotated[int, whole(0)], *, label: str | None = None, study: Study | None = None) -> xr.Dataset:
    """Play one trial of one run again and return it with all its rounds, points and values, bit for bit as it was.

    Args:
      dataset: results of a study.
      trial: number of the trial, from 0.
      label: label of the run, along ``algorithm``; default the first.
      study: the study, for results that do not hold it, such as those of problems that no table describes.

    Raises:
      InvalidArgument: when there is no such run or trial, or the results do not hold the study and none is given, or another.
    """
    return _again(study_of(dataset) if study is None else study, dataset, trial, label)


@in_its_arithmetic
def _again(study: Study, dataset: xr.Dataset, trial: int, label: str | None) -> xr.Dataset:
    """Return what :func:`rerun` returns."""
    if study.fingerprint() != str(dataset.attrs.get("fingerprint")):
        raise InvalidArgument(f"study: it is not the one that these results are of{_of_another_version(dataset)}")
    if checks.integer("trial", trial, least=0) >= study.trials:
        raise InvalidArgument(f"trial: the study has trials 0 to {study.trials - 1}, got {trial}")
    labels = [run.label for run in study.runs]
    if "algorithm" not in dataset.coords or [str(name) for name in np.atleast_1d(dataset.algorithm.values)] != labels:
        raise InvalidArgument(f"results: their runs are not those of the study, {short(labels)}{_of_another_version(dataset)}")
    label = labels[0] if label is None else label
    checks.one_of("run", label, labels)
    number = labels.index(label)
    everything = dataclasses.replace(study, keep=Keep(every=1), trajectories=True)
    plan = _as_played(make_plan(everything, memory=MAX_BYTES, devices=jax.local_devices()[:1]), _parsed(dataset, "batches"))
    # A trial is played beside itself, in a block as large as it had and in the same parts: only then it rounds alike.
    cell = next(cell for cell in plan.cells if number in cell.runs)
    block = cell.cell.block
    batch = Batch(cell.cut(block, cell.rounds, block), 0, list(cell.runs).index(number) * study.trials + trial, 1)
    arrays = Player(plan, left=lambda: [batch]).play(batch)
    single = dataclasses.replace(contents_of(plan), trials=[trial], problems=[cell.cell.problem])
    single = dataclasses.replace(single, rows=[row for row in single.rows if row.label == label])
    variables = single.variables([arrays])
    head = header(single, attributes(dataclasses.replace(plan, runs=(plan.runs[number],))), variables)
    return assembled(head, variables, pieces_of(variables, 0, arrays, np.zeros((1, 2), int)))


def _as_played(plan: Plan, layout: Any) -> Plan:
    """Return a plan with the batches in results; raises ``InvalidArgument`` unless they are batches of all its trials, in whole blocks."""
    try:
        known = plan.with_layout(layout)
        sizes = zip(layout, known.cells, strict=True)
        if known.layout == layout and all(1 <= row[3] <= row[0] and row[2] <= plan.study.horizon for row, _ in sizes):
            return known
    except (TypeError, ValueError, ArithmeticError):  # of what is no list of four whole numbers for each cell
        pass
    raise InvalidArgument(f"results: their batches, {short(layout)}, are none of this study")
