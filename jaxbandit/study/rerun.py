"""One trial of a study again, from its results alone."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import jax
import numpy as np
import xarray as xr

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.study.engine import Plan, Runner, make_plan
from jaxbandit.study.results import gather_results
from jaxbandit.study.spec import Study, from_table
from jaxbandit.study.thinning import Keep


def study_of(dataset: xr.Dataset) -> Study:
    """The study that gave a dataset; raises ``InvalidArgument`` when its results do not hold it."""
    table = dataset.attrs.get("table", "")
    if not table:
        raise InvalidArgument(
            "results: they do not hold the study, which had parts that cannot be written as tables; build the Study in Python as it was and"
            " call rerun(dataset, trial, study=...)"
        )
    return from_table(json.loads(table))


def rerun(dataset: xr.Dataset, trial: int, *, label: str | None = None, study: Study | None = None) -> xr.Dataset:
    """One trial of one line, with all its rounds, points and values, without strong regret.

    Args:
      dataset: of a study.
      trial: its number, from 0.
      label: of the line, along ``algorithm``; default the first.
      study: for results that do not hold it.

    Raises:
      InvalidArgument: when there is no such line or trial, or the results do not hold the study and none is given, or another.
    """
    study = study_of(dataset) if study is None else study
    if study.fingerprint() != dataset.attrs["fingerprint"]:
        raise InvalidArgument("study: it is not the one that these results are of")
    if checks.integer("trial", trial, least=0) >= study.trials:
        raise InvalidArgument(f"trial: the study has trials 0 to {study.trials - 1}, got {trial}")
    labels = [str(name) for name in dataset.algorithm.values]
    label = labels[0] if label is None else label
    checks.one_of("line", label, labels)
    whole = dataclasses.replace(study, keep=Keep(every=1), trajectories=True)
    parts = json.loads(dataset.attrs["parameters"])["rounds_in_a_part"]  # sums of a part are rounded together
    plan = make_plan(whole, memory=2**62, segment=parts, devices=jax.local_devices()[:1])
    return _play(plan, labels.index(label), trial, json.loads(dataset.attrs["batches"]), len(json.loads(dataset.attrs["devices"])))


def _play(plan: Plan, line: int, trial: int, sizes: Any, devices: int) -> xr.Dataset:
    """The trial beside itself, in a block as large as it had: only then it rounds alike."""
    cell = next(c for c, planned in enumerate(plan.cells) if line in planned.lines)
    planned = plan.cells[cell]
    batch = dataclasses.replace(plan.batches[cell], size=sizes[cell][0] // devices, batches=1)
    own = dataclasses.replace(plan, cells=(planned,), batches=(batch,), lines=(plan.lines[line],))
    runner = Runner(own)
    pair = np.asarray([[planned.lines.index(line), trial, line + 1]], np.int32)
    part = runner.play(0, 0, runner.place(np.repeat(pair, runner.sized(0).block, axis=0)), 1)
    # Strong regret needs the best mixed policy of every trial before it.
    metrics = tuple(name for name in plan.study.metrics if name != "strong_regret") or ("regret",)
    single = dataclasses.replace(
        own, study=dataclasses.replace(plan.study, trials=1, metrics=metrics), cells=(dataclasses.replace(planned, lines=(0,)),)
    )
    return gather_results(single, [[part]]).assign_coords(trial=[trial])
