"""Whatever a person has at hand, a run, several runs by name, or the dataset of a study, as a dataset of results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import xarray as xr

from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.fields import Check
from jaxbandit.core.types import Key
from jaxbandit.engine import Trajectory
from jaxbandit.problems import AbstractProblem
from jaxbandit.results.checks import ONE, RESULTS
from jaxbandit.results.measured import results_of

GIVEN = Check(
    "what simulate returns, a mapping from labels to such, or a dataset of results", lambda value: isinstance(value, Trajectory | Mapping)
)
Given: TypeAlias = Annotated[Trajectory | Mapping[str, Trajectory] | xr.Dataset, GIVEN]
"""A trajectory from ``simulate``, a mapping from labels to such, or a study's dataset."""


def runs_of(results: Any) -> dict[str, Trajectory] | None:
    """Return runs by their labels, ``None`` for a dataset or anything else."""
    if isinstance(results, Trajectory):
        return {"run": results}
    if isinstance(results, Mapping) and not isinstance(results, xr.Dataset):
        if results and all(isinstance(label, str) and isinstance(run, Trajectory) for label, run in results.items()):
            return dict(results)
        raise InvalidArgument(f"results: a mapping must have labels and what simulate returns, got {short(results)}")
    return None


def results_at_hand(results: Given, problem: AbstractProblem | None = None, *, key: Key | None = None) -> xr.Dataset:
    """Return a dataset of results.

    Args:
      results: a trajectory from :func:`~jaxbandit.simulate`, a mapping from labels to such, or the dataset of a study.
      problem: the problem that was run; needed for trajectories.
      key: the key that :func:`~jaxbandit.simulate` was given; needed for trajectories of a random family.

    Raises:
      InvalidArgument: on anything else, or when the problem or the key is missing.
    """
    runs = runs_of(results)
    if runs is None:
        if isinstance(results, xr.Dataset) and "algorithm" not in results.dims and "trial" in results.dims:
            ONE("results", results)
            labels = {name: ("algorithm", [own.item()]) for name, own in results.coords.items() if own.ndim == 0 and name != "algorithm"}
            return results.drop_vars(list(labels)).expand_dims("algorithm").assign_coords(labels)
        RESULTS("results", results)
        return results  # type: ignore[return-value]
    if problem is None:
        raise InvalidArgument("problem: give the problem that was run, with which regret and violation are measured")
    return results_of({label: run.played() for label, run in runs.items()}, problem, key=key)
