"""One trial of a study again, from its results alone."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

import jax
import numpy as np
import xarray as xr

from jaxbandit.core import checks
from jaxbandit.core.arguments import takes
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.fields import of_class, optional, text, whole
from jaxbandit.core.results import RESULTS
from jaxbandit.study.plan.planning import Plan, make_plan
from jaxbandit.study.run.dataset import gather_results
from jaxbandit.study.run.mixed_policies import mixed_values
from jaxbandit.study.run.runner import Runner
from jaxbandit.study.specify.keep import Keep
from jaxbandit.study.specify.study import Study
from jaxbandit.study.specify.tables import from_table


@takes(dataset=RESULTS)
def study_of(dataset: xr.Dataset) -> Study:
    """Return the study that gave a dataset; raises ``InvalidArgument`` when its results do not hold it."""
    table = dataset.attrs.get("table", "")
    if not table:
        raise InvalidArgument(
            "results: they do not hold the study, whose runs cannot be written as tables; build the Study in Python as it was and"
            " call rerun(dataset, trial, study=...)"
        )
    return from_table(json.loads(table))


@takes(dataset=RESULTS, trial=whole(0), label=optional(text), study=optional(of_class(Study, "a Study")))
def rerun(dataset: xr.Dataset, trial: int, *, label: str | None = None, study: Study | None = None) -> xr.Dataset:
    """Play one trial of one run again and return it with all its rounds, points and values, bit for bit as it was.

    Args:
      dataset: results of a study.
      trial: number of the trial, from 0.
      label: label of the run, along ``algorithm``; default the first.
      study: the study, for results that do not hold it, such as those of runs written by hand.

    Raises:
      InvalidArgument: when there is no such run or trial, or the results do not hold the study and none is given, or another.
    """
    study = study_of(dataset) if study is None else study
    if study.fingerprint() != dataset.attrs.get("fingerprint"):
        raise InvalidArgument("study: it is not the one that these results are of")
    if checks.integer("trial", trial, least=0) >= study.trials:
        raise InvalidArgument(f"trial: the study has trials 0 to {study.trials - 1}, got {trial}")
    labels = [str(name) for name in dataset.algorithm.values]
    label = labels[0] if label is None else label
    checks.one_of("run", label, labels)
    whole = dataclasses.replace(study, keep=Keep(every=1), trajectories=True)
    plan = make_plan(whole, memory=2**62, devices=jax.local_devices()[:1])
    return _play(plan, labels.index(label), trial, json.loads(dataset.attrs["batches"]), len(json.loads(dataset.attrs["devices"])))


def _play(plan: Plan, number: int, trial: int, batches: Sequence[Sequence[int]], devices: int) -> xr.Dataset:
    """Play a trial of a run beside itself, in a block as large as it had and in the same parts: only then it rounds alike."""
    cell = next(cell for cell, members in enumerate(plan.members) if number in members)
    size, _, rounds = batches[cell]
    own = plan.only_cell(cell).with_batches([[size // devices, 1, rounds]])
    block = own.blocked_cell(0).block
    own = own.with_batches([[block, 1, rounds]])
    runner = Runner(own)
    pair = np.asarray([[plan.members[cell].index(number), trial, number + 1]], np.int32)
    played = runner.play(0, 0, runner.made.place(np.repeat(pair, block, axis=0)), 1)
    single = dataclasses.replace(own, study=dataclasses.replace(plan.study, trials=1), runs=(plan.runs[number],), members=((0,),))
    strong = "strong_regret" in plan.study.metrics
    mixed = mixed_values(plan.study, [(number, plan.runs[number])], [trial]) if strong else None
    return gather_results(single, [[played]], mixed=mixed).assign_coords(trial=[trial])
