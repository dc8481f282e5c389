"""Studies on boxes."""

import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import xarray as xr

import jaxbandit as jb
from jaxbandit.study import Study, audit, from_table, from_toml, make_plan, rerun, run_study
from tests.support import box_runs
from tests.support.small_study import assert_same


@pytest.fixture(scope="module")
def straight() -> xr.Dataset:
    """The study without an interruption, in parts of two rounds."""
    return run_study(box_runs.study(), segment=2)


def longer() -> Study:
    """Return the study with three rounds more."""
    return dataclasses.replace(box_runs.study(horizon=9), name="longer")


def test_a_study_file_names_a_problem_on_a_box_with_its_sides(tmp_path: Path) -> None:
    (tmp_path / "box.toml").write_text(box_runs.TOML)
    study = from_toml(tmp_path / "box.toml")
    np.testing.assert_array_equal(study.runs[0].problem.domain.points, box_runs.small_box().points)
    table = json.loads(json.dumps(study.table()))
    assert table["problem"]["valley"]["domain"]["axes"] == {"dose": [0.0, 2.0], "rate": {"type": "log", "low": 0.01, "high": 1.0}}
    assert from_table(table).fingerprint() == study.fingerprint()
    for change in ({"steps": 4}, {"key": 1}, {"axes": {"dose": [0.0, 2.0], "rate": [0.01, 1.0]}}):
        changed = json.loads(json.dumps(table))
        changed["problem"]["valley"]["domain"] |= change
        assert from_table(changed).fingerprint() != study.fingerprint()


@pytest.mark.full
def test_a_trial_is_the_same_in_a_study_and_by_simulate(straight: xr.Dataset) -> None:
    """Its rounds are the first ones of a longer run."""
    study = longer()
    alone = study.trajectory(study.runs[1], trials=[2], record="audit")
    # Alone, a GPU adds in another order.
    np.testing.assert_allclose(alone.points[0, :6], straight.point.values[1, 2], rtol=0 if jax.default_backend() == "cpu" else 1e-5)
    measured = jb.metrics.curves(study.runs[1].problem, alone.scored_points).best_feasible_value[0]
    np.testing.assert_allclose(straight.best_feasible_value.values[1, 2], measured[:6], rtol=1e-5)
    assert straight.coordinate.values.tolist() == ["dose", "rate"] and "index" not in straight
    assert not np.array_equal(straight.point.values[0], straight.point.values[1])


@pytest.mark.full
def test_a_study_file_asks_for_features_of_a_box(tmp_path: Path) -> None:
    """Playing the trial again uses the program of before."""
    text = box_runs.TOML.replace("[model]", '[model]\nform = "features"\ntolerance = 0.5').replace("[1.0, 2.0]", "[2.0]")
    (tmp_path / "box.toml").write_text(text.replace("trials = 3", "trials = 1").replace("initial = {random = 3}\n", ""))
    study = from_toml(tmp_path / "box.toml")
    assert "'features'" in study.runs[0].model.describe() and study.fingerprint() != box_runs.study().fingerprint()
    dataset = run_study(study)
    again = rerun(dataset, 0)
    np.testing.assert_array_equal(again.point.values, dataset.point.values)
    np.testing.assert_array_equal(again.regret.values, dataset.regret.values)


LATE: dict[str, Any] = {
    "algorithms": {"rpol": jb.Unconstrained()},
    "delays": {"late": jb.delays.Poisson(mean=1.0)},
    "feedback": {"rpol": jb.feedback.Hallucinate()},
    "initial": jb.InitialDesign(),
}


@pytest.mark.full
@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
def test_a_study_that_was_killed_goes_on_to_the_same_bits(late: bool, straight: xr.Dataset, tmp_path: Path) -> None:
    study = box_runs.study(**LATE) if late else box_runs.study()

    class Killed(Exception):
        pass

    reports = iter(range(10))

    def kill(*progress: Any) -> None:
        if next(reports) == 1:
            raise Killed

    how: dict[str, Any] = {"directory": tmp_path / "run", "segment": 2, "checkpoint_share": 1.0}
    with pytest.raises(Killed):
        run_study(study, report=kill, **how)
    notes: list[str] = []
    assert_same(run_study(study, resume=True, note=notes.append, **how), run_study(study, segment=2) if late else straight)
    assert any("resumed at round" in note for note in notes)


def test_fingerprints_do_not_depend_on_the_last_bits_of_candidates() -> None:
    domain = box_runs.small_box()
    object.__setattr__(domain, "points", np.nextafter(domain.points, 9.0))
    moved, same = (box_runs.study(problems={"valley": box_runs.valley(each)}) for each in (domain, box_runs.small_box()))
    assert moved.fingerprint() == same.fingerprint()


@pytest.mark.full
def test_workers_play_a_study_on_a_box_with_the_same_bits_and_its_points_come_back_from_a_file(
    straight: xr.Dataset, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(2) as pool:
        out = {"directory": tmp_path / "run", "results": tmp_path / "results.nc"}
        written = run_study(box_runs.study(), executor=pool, segment=2, **out)
    assert_same(written, straight)
    assert written.coordinate.values.tolist() == ["dose", "rate"]


@pytest.mark.full
def test_a_trace_has_the_points_and_all_that_a_round_was_computed_from_and_later_rounds_change_no_bit(straight: xr.Dataset) -> None:
    """The number of points stays the same."""
    study = longer()
    assert {planned.cell.variants.pick(0)[1].room for each in (box_runs.study(), study) for planned in make_plan(each).cells} == {64}
    trace = audit(study, study.runs[0], 1)
    assert trace["domain"].shape == (32, 2) and trace["points"].shape == (9, 2) and trace["initial_points"].shape == (3, 2)
    pool = np.concatenate([trace["domain"], trace["initial_points"], trace["points"]])
    np.testing.assert_allclose(pool[trace["indices"]], trace["points"])
    np.testing.assert_allclose(pool[trace["initial_indices"]], trace["initial_points"])
    box = json.loads(str(trace["meta"]))["box"]
    assert box["sides"]["rate"] == {"type": "Side", "low": 0.01, "high": 1.0, "scale": "log", "labels": []} and (
        box["starts"],
        box["steps"],
    ) == (2, 3)
    np.testing.assert_array_equal(trace["points"][:6], straight.point.values[0, 1])


@pytest.mark.full
def test_cells_on_a_box_and_on_a_grid_are_one_dataset(straight: xr.Dataset) -> None:
    grid_of = jb.problems.from_functions(jb.domains.grid([0.0], [1.0], 5), lambda x: x[0], [lambda x: x[0] - 0.5], noise_variance=0.01)
    dataset = run_study(box_runs.study(problems={"line": grid_of, "valley": box_runs.valley()}), segment=2)
    line, valley = dataset.sel(algorithm=dataset.problem == "line"), dataset.sel(algorithm=dataset.problem == "valley")
    np.testing.assert_allclose(line.point.values[..., 0], np.linspace(0, 1, 5)[line["index"].values.astype(int)])
    assert np.isnan(line.point.values[..., 1]).all()
    np.testing.assert_array_equal(valley.point.values, straight.point.values)
