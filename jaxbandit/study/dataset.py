"""Contents, attributes and pieces of the results of a study."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import numpy as np
import xarray as xr

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.codec import describe
from jaxbandit.core.pytree import float_dtype
from jaxbandit.results.dataset import header
from jaxbandit.results.schema import SECONDS, Contents, Row
from jaxbandit.study.plan import Plan


def contents_of(plan: Plan, trials: int | None = None) -> Contents:
    """Return what the results of a plan hold, of all trials or of the first few."""
    study = plan.study
    return Contents(
        rows=[Row(run.label, str(run.algorithm_label), str(run.problem_label), str(run.delay_label), dict(run.swept)) for run in plan.runs],
        swept=study.swept,
        trials=np.arange(study.trials if trials is None else trials),
        horizon=study.horizon,
        kept=study.keep.rounds(study.horizon),
        before=plan.before,
        metrics=study.metrics,
        trajectories=study.trajectories,
        problems=[cell.cell.problem for cell in plan.cells],
    )


def study_header(plan: Plan, variables: Collection[str], seconds: np.ndarray | None = None, trials: int | None = None) -> xr.Dataset:
    """Return the results without ``variables``, of all trials or of the first few.

    ``seconds [runs, 2]`` are those of each run, with and without compilation.
    """
    of_runs = {} if seconds is None else {name: ("algorithm", own) for name, own in zip(SECONDS, seconds.T, strict=True)}
    return header(contents_of(plan, trials), attributes(plan), variables, of_runs)


def run_of(plan: Plan) -> dict[str, str]:
    """Return the attributes on which all values of the results depend."""
    return {"fingerprint": plan.study.fingerprint(), "batches": json.dumps(plan.layout)}


def attributes(plan: Plan) -> dict[str, Any]:
    """Return inputs and devices; structured values as JSON text. ``table`` is the study, empty when it has no table."""
    study, runs = plan.study, plan.runs
    try:
        table = json.dumps(study.table())
    except InvalidArgument:
        table = ""
    return {
        **run_of(plan),
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
