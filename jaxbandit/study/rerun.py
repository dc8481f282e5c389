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
from jaxbandit.study.dataset import gather_results
from jaxbandit.study.instances import mixed_values
from jaxbandit.study.planning import Plan, make_plan
from jaxbandit.study.runner import Runner
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


def rerun(dataset: xr.Dataset, trial: int, *, label: str | None = None, study: Any = None) -> xr.Dataset:
    """One trial of one line, with all its rounds, points and values.

    Args:
      dataset: of a study.
      trial: its number, from 0.
      label: of the line, along ``algorithm``; default the first.
      study: for results that do not hold it, such as those of a comparison.

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
    plan = make_plan(whole, memory=2**62, devices=jax.local_devices()[:1])
    return _play(plan, labels.index(label), trial, json.loads(dataset.attrs["batches"]), len(json.loads(dataset.attrs["devices"])))


def _play(plan: Plan, line: int, trial: int, batches: Any, devices: int) -> xr.Dataset:
    """The trial beside itself, in a block as large as it had and in the same parts: only then it rounds alike."""
    cell = next(c for c, planned in enumerate(plan.cells) if line in planned.lines)
    planned, (size, _, rounds) = plan.cells[cell], batches[cell]
    batch = dataclasses.replace(plan.batches[cell], size=size // devices, batches=1, rounds=rounds)
    own = dataclasses.replace(plan, cells=(planned,), batches=(batch,))
    block = own.sized(0).block
    own = dataclasses.replace(own, batches=(dataclasses.replace(batch, size=block),))
    runner = Runner(own)
    pair = np.asarray([[planned.lines.index(line), trial, line + 1]], np.int32)
    part = runner.play(0, 0, runner.made.place(np.repeat(pair, block, axis=0)), 1)
    single = dataclasses.replace(
        own,
        study=dataclasses.replace(plan.study, trials=1),  # type: ignore[type-var]  # both kinds of studies are dataclasses
        lines=(plan.lines[line],),
        cells=(dataclasses.replace(planned, lines=(0,)),),
    )
    strong = "strong_regret" in plan.study.metrics
    mixed = mixed_values(plan.study, [(line, plan.lines[line])], [trial]) if strong else None
    return gather_results(single, [[part]], mixed=mixed).assign_coords(trial=[trial])
