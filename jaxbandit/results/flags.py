"""Flags of the trials of results, and swept fields that have changed nothing."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xarray as xr

from jaxbandit.core.declare import checked
from jaxbandit.core.status import Status, explain, healthy
from jaxbandit.core.status import flags_in_words as status_in_words
from jaxbandit.results.checks import Results
from jaxbandit.results.schema import LABELS, TRIAL


class TrialsFailed(RuntimeError):
    """Some trials of a study failed; the message says how many, which and why."""


def _status(dataset: xr.Dataset) -> np.ndarray:
    """Return the flags ``[algorithm, trial]`` of all trials."""
    return dataset.status.transpose("algorithm", "trial").values


@checked
def flagged(dataset: Results) -> dict[str, dict[str, int]]:
    """Return, for each run with flagged trials, how many trials have each flag."""
    found: dict[str, dict[str, int]] = {}
    for label in dataset.algorithm.values:
        status = dataset.status.sel(algorithm=label).values
        counts = {explain(int(flag)): int(np.count_nonzero(status & flag)) for flag in Status if flag}
        if any(counts.values()):
            found[str(label)] = {words: count for words, count in counts.items() if count}
    return found


@checked
def flags_in_words(dataset: Results) -> list[str]:
    """Return a line for each run and flag of its trials: ``rpol: 3 of 100 trials: why (what to do)``."""
    return [
        f"{label}: {line}"
        for label, status in zip(dataset.algorithm.values, _status(dataset), strict=True)
        for line in status_in_words(status)
    ]


@checked
def sweeps_without_effect(dataset: Results) -> list[str]:
    """Return a line for the swept fields whose values have not mattered: runs ended with the same numbers, bit for bit, in every trial."""
    ends = [dataset[name].isel(round=-1) if "round" in dataset[name].dims else dataset[name] for name in sorted(map(str, dataset))]
    ends = [end.transpose(*TRIAL, ...) for end in ends if set(TRIAL) <= set(end.dims) and "played" not in end.dims]
    swept = {str(name): dataset[name].values for name in json.loads(dataset.attrs.get("swept", "[]")) if name in dataset.coords}
    alike: dict[tuple[Any, ...], list[int]] = {}
    for run in range(dataset.sizes["algorithm"] if swept else 0):
        same = [str(dataset[name].values[run]) for name in LABELS if name in dataset.coords]
        alike.setdefault((*same, *(end.values[run].tobytes() for end in ends)), []).append(run)
    found: dict[str, list[str]] = {}
    for runs in alike.values():
        fields = [name for name, values in swept.items() if len(set(values[runs][np.isfinite(values[runs])].tolist())) > 1]
        if fields:
            found.setdefault(" and ".join(fields), []).append(", ".join(dataset.algorithm.values[runs]))
    more = {fields: f" (and of {len(runs) - 1} more such groups)" if len(runs) > 1 else "" for fields, runs in found.items()}
    return [f"{fields} changed no number in any trial of {runs[0]}{more[fields]}" for fields, runs in found.items()]


@checked
def raise_if_failed(dataset: Results) -> xr.Dataset:
    """Return the dataset, if no trial failed; raises :class:`TrialsFailed` otherwise."""
    failed = ~healthy(_status(dataset))
    if not failed.any():
        return dataset
    lines = []
    for label, status in zip(dataset.algorithm.values, _status(dataset), strict=True):
        bad = np.flatnonzero(~healthy(status))
        if len(bad):
            known = "failed_round" in dataset
            where = f" in round {dataset.failed_round.sel(algorithm=label).values[bad[0]]}" if known else ""
            lines.append(f"{label}: trial {bad[0]}{where} ({explain(int(status[bad[0]]))}), {len(bad)} in all")
    raise TrialsFailed(f"{int(failed.sum())} of {failed.size} trials failed; " + "; ".join(lines))
