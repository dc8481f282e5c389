"""One small study, in TOML and in Python, and its results."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr

import jaxbandit
from jaxbandit.delays import Poisson
from jaxbandit.kernels import SquaredExponential
from jaxbandit.rules.estimators import Bounds
from jaxbandit.study import Model, Study, grid, make_plan, run_study

TOML = """
name = "small"
trials = 11
horizon = 20
trajectories = true
metrics = ["regret", "soft_violation", "violating_rounds", "best_constrained_regret"]
initial = {random = 2, counted = true}

[model]
kernel = {type = "SquaredExponential", length_scale = 1}
noise_variance = 0.05

[problem.sine]
type = "sine"
points_per_axis = 9

[delay.late]
type = "Poisson"
mean = 2

[algorithm.rpol]
type = "Rpol"
estimator = {type = "Bounds", reward_width = 3, cost_width = 3}
sweep = {"estimator.reward_width" = [1, 2.5]}

[algorithm.cbo]
type = "Cbo"
estimator = {type = "Thompson"}
reward_clip = 7
cost_clip = 2
"""


LATE = """
[delay.late]
type = "Poisson"
mean = 2
"""
# The lines of the first cell alone, with values that come at once, which compiles in less time.
ONE_CELL = TOML.split("[algorithm.cbo]")[0].replace(LATE, "")


def in_python(**changes: Any) -> Study:
    """Return the same study as objects, with ``changes``."""
    axes: dict[str, Any] = {
        "problems": {"sine": {"type": "sine", "points_per_axis": 9}},
        "algorithms": {
            "rpol": jaxbandit.Rpol(estimator=Bounds(reward_width=3.0)),
            "cbo": jaxbandit.Cbo(estimator=jaxbandit.estimators.Thompson(), reward_clip=7.0, cost_clip=2.0),
        },
        "sweeps": {} if "algorithms" in changes else {"rpol": {"estimator.reward_width": [1.0, 2.5]}},
        "model": Model(kernel=SquaredExponential(length_scale=1.0), noise_variance=0.05),
        "delays": {"late": Poisson(mean=2.0)},
        "initial": jaxbandit.InitialDesign(random=2, counted=True),
        "horizon": changes.get("horizon", 20),
    }
    axes |= {name: changes.pop(name) for name in axes if name in changes}
    metrics = ("regret", "soft_violation", "violating_rounds", "best_constrained_regret")
    own: dict[str, Any] = {"name": "small", "trials": 11, "horizon": axes["horizon"], "metrics": metrics, "trajectories": True} | changes
    return Study(runs=grid(**axes), **own)


def rpol_lines(**changes: Any) -> Study:
    """The lines of the first cell alone."""
    study = in_python(**changes)
    return dataclasses.replace(study, runs=study.runs[:2])


@functools.cache
def whole() -> xr.Dataset:
    """The study in one batch, every round kept."""
    return run_study(in_python(), segment=5)


def one_cell_in_python(**changes: Any) -> Study:
    """The study of :data:`ONE_CELL`, of objects, with changes."""
    algorithms, sweeps = {"rpol": jaxbandit.Rpol(estimator=Bounds(reward_width=3.0))}, {"rpol": {"estimator.reward_width": [1.0, 2.5]}}
    return in_python(algorithms=algorithms, sweeps=sweeps, delays=None, **changes)


# As many trials as run side by side: one that is played again is played by their programs.
ONE_BLOCK = ONE_CELL.replace("trials = 11", "trials = 5")


def one_block_in_python() -> Study:
    """The study of :data:`ONE_BLOCK`, of objects."""
    return one_cell_in_python(trials=5)


@functools.cache
def one_block() -> xr.Dataset:
    """The results of :data:`ONE_BLOCK`, every round kept."""
    return run_study(one_block_in_python(), segment=5)


def small_memory(study: Study) -> int:
    """Return memory of a worker for batches of two blocks."""
    (cell,) = make_plan(study, by_workers=True).cells
    return cell.shared_bytes + 2 * min(form.trials_per_block for form in study.runs[0].model.forms) * cell.trial_bytes


# No two runs share these.
CLOCKS = ("run_seconds", "playing_seconds")


def assert_same(a: xr.Dataset, b: xr.Dataset, *, tolerance: float = 0.0) -> None:
    assert set(a.data_vars) == set(b.data_vars)
    for name in set(a.data_vars) - set(CLOCKS):
        np.testing.assert_allclose(a[name].values, b[name].values, rtol=tolerance, atol=tolerance, err_msg=name)


def written(tmp_path: Path, text: str = TOML) -> Path:
    # A command would start one device a core, and tests share programs of one.
    jax.devices()
    (tmp_path / "small.toml").write_text(text)
    return tmp_path / "small.toml"
