"""Studies that sweep length-scales by one program."""

import functools
import json
import tomllib
from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit.kernels import SquaredExponential
from jaxbandit.study import Model, Study, grid, run_study
from jaxbandit.study.plan import group_runs
from jaxbandit.study.study import from_table
from jaxbandit.surrogates import RangedSurrogate

TOML = """
name = "length-scales"
trials = 3
horizon = 6

[model]
kernel = {type = "SquaredExponential"}
length_scale_range = [0.8, 1.6]
tolerance = 1e-3

[problem.sine]
type = "sine"
points_per_axis = 9

[algorithm.rpol]
type = "Rpol"
sweep = {"model.length_scale" = [0.8, 1.0, 1.6]}
"""


@functools.cache
def from_file() -> Study:
    return from_table(tomllib.loads(TOML))


def in_python(model: Model, **sweep: Any) -> Study:
    sweeps = {"rpol": {f"model.{name}": values for name, values in sweep.items()}}
    made = grid(
        problems={"sine": {"type": "sine", "points_per_axis": 9}}, algorithms={"rpol": jb.Rpol()}, model=model, sweeps=sweeps, horizon=6
    )
    return Study(name="length-scales", runs=made, trials=3, horizon=6)


def test_all_length_scales_are_one_cell_and_share_what_was_built() -> None:
    study = from_file()
    assert [run.label for run in study.runs] == [f"rpol length_scale={scale}" for scale in ("0.8", "1", "1.6")]
    assert [list(group) for _, group in group_runs(study, study.named_runs(), jax.devices()[0])] == [[0, 1, 2]]
    models = [run.model for run in study.runs]
    assert all(isinstance(model, RangedSurrogate) for model in models)
    assert all(model.forms[0].slots is models[0].forms[0].slots for model in models)


def test_the_file_the_table_and_the_objects_are_one_study() -> None:
    study = from_file()
    assert from_table(study.table()).fingerprint() == study.fingerprint()
    model = Model(kernel=SquaredExponential(), length_scale_range=(0.8, 1.6), tolerance=1e-3)
    assert in_python(model, length_scale=[0.8, 1.0, 1.6]).fingerprint() == study.fingerprint()
    others = [in_python(model, length_scale=[0.8, 1.0, 1.5]), in_python(Model(length_scale_range=(0.8, 1.7)), length_scale=[0.8, 1.0, 1.6])]
    assert len({study.fingerprint(), *(other.fingerprint() for other in others)}) == 3


@pytest.mark.full
def test_a_run_is_played_as_a_model_of_that_length_scale_is_and_recorded_with_it() -> None:
    results = run_study(from_file())
    problem = jb.problems.sine(9)
    model = jb.ranged(problem.domain, SquaredExponential(), low=0.8, high=1.6, noise_variance=0.05, tolerance=1e-3)
    swept = jb.sweep(model, {"length_scale": [0.8, 1.0, 1.6]})
    played = jb.simulate(problem, jb.Rpol(), swept, horizon=6, trials=3, key=jax.random.key(from_file().seed))
    regret = jb.metrics.curves(problem, played.indices).regret
    np.testing.assert_allclose(results.regret.values.reshape(3, 3, -1), regret, atol=1e-5)
    shown = json.loads(results.attrs["kernels"])
    assert [shown[run.label][0]["length_scale"] for run in from_file().runs] == pytest.approx([0.8, 1.0, 1.6])
