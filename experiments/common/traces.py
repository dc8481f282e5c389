"""Audit traces: one trial of an experiment as arrays from which anybody can compute every decision again."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from experiments.common.experiment import Experiment, Options
from experiments.common.running import progress
from jaxbandit import InvalidArgument
from jaxbandit.study import Run, Study, audit, prepare_file, write_whole


def write_trace(experiment: Experiment, options: Options, algorithm: str, trial: int, out: Path, *, force: bool) -> None:
    """Write the audit arrays of one trial of one algorithm to the file ``out``.

    Raises:
      InvalidArgument: when ``out`` does not end in ``.npz`` or is there and ``force`` is off, or for an unknown algorithm or trial.
    """
    if out.suffix != ".npz":
        raise InvalidArgument(f"--out: must end in .npz, got {out}")
    path = prepare_file(out, force=force)
    study = experiment.study(options)
    arrays = audit(study, pick_run(study, algorithm), trial)
    write_whole(path, lambda temporary: np.savez_compressed(temporary, allow_pickle=False, **arrays))
    progress(f"wrote {path}: {', '.join(f'{name} {list(array.shape)}' for name, array in arrays.items())}")


def pick_run(study: Study, name: str) -> Run:
    """Return the run of that algorithm's name, or of that label in lower case with hyphens; raises ``InvalidArgument`` unless it is one."""
    labels = {re.sub("[^a-z0-9]+", "-", run.label.lower()).strip("-"): run for run in study.runs}
    names = [run.name_in_traces.replace("_", "-") for run in study.runs]
    if names.count(name) == 1:
        return study.runs[names.index(name)]
    if name in labels:
        return labels[name]
    known = [own if names.count(own) == 1 else label for own, label in zip(names, labels, strict=True)]
    raise InvalidArgument(f"--algorithm: {study.name} runs {', '.join(known)}; got {name!r}")
