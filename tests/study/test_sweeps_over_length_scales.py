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


REFUSED = [
    ({"length_scale": 1.0}, r"model\.length_scale: needs length_scale_range = \[low, high\].*length-scale of its kernel"),
    ({"length_scale_range": (0.8, 1.2, 1.6)}, r"model\.length_scale_range: expected \[low, high\]"),
    ({"length_scale_range": (1.6, 0.8)}, r"model\.length_scale_range: expected \[low, high\] with low < high"),
    ({"length_scale_range": (0.8, 1.6), "form": "rows"}, r"model\.form: .*'rows'"),
    ({"length_scale_range": (0.8, 1.6), "length_scale": 2.0}, r"length_scale: must lie between"),
    ({"length_scale_range": (2.0, 3.0)}, r"model: surrogate\.length_scale: must lie between .* got 1\.0"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_bad_models_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(jb.InvalidArgument, match=message):
        in_python(Model(**changes), noise_variance=[0.05])


def test_a_swept_length_scale_without_a_range_says_what_is_missing() -> None:
    with pytest.raises(jb.InvalidArgument, match=r"length_scale: needs length_scale_range = \[low, high\]"):
        in_python(Model(), length_scale=[0.8, 1.0])


@pytest.mark.parametrize("value", [0.5, [], [1.0], [3.0, 2.0], [1.0, 1.0], [1.0, 2.0, 3.0], [[1.0, 2.0], [2.0, 1.0]]], ids=str)
def test_ranges_that_are_none_are_refused_where_the_model_is_made(value: Any) -> None:
    with pytest.raises(jb.InvalidArgument, match=r"^model\.length_scale_range: expected \[low, high\] with low < high, got"):
        Model(length_scale_range=value)


def test_whole_numbers_of_more_than_64_bits_are_refused_where_the_kernel_is_made() -> None:
    with pytest.raises(jb.InvalidArgument, match=r"length_scale: .* got 1180591620717411303424"):
        SquaredExponential(length_scale=2**70)
