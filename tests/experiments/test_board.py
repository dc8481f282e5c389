"""Ranks of the board, by hand and from a small run."""

import dataclasses
import importlib.util

import numpy as np
import pytest
import xarray as xr

import jaxbandit as jb
from experiments.common.experiment import study
from experiments.shootout import arenas, board, shootout
from jaxbandit.study import make_plan

# Losses [entry, trial] of three algorithms on P1, and of two on P2. A failed trial has no loss.
LOSSES = [[1.0, np.nan], [2.0, 3.0], [2.0, 4.0], [5.0, 5.0], [6.0, 7.0]]
NAMES = {"part": ["grids"] * 5, "problem": ["P1"] * 3 + ["P2"] * 2, "algorithm": ["a", "b", "c", "b", "c"]}


def dataset():
    """Return a dataset of the losses above."""
    losses = np.repeat(np.array(LOSSES)[..., None], len(board.SHARES), axis=2)
    coordinates = {name: ("entry", values) for name, values in NAMES.items()}
    return xr.Dataset({"loss": (("entry", "trial", "share"), losses)}, coords=coordinates | {"share": list(board.SHARES)})


def test_ranks_are_of_each_trial_and_from_0_to_1():
    table = board.ranked(dataset())["grids"]
    np.testing.assert_array_equal(table["a"], [0.0, 1.0, np.nan, np.nan])
    np.testing.assert_array_equal(table["b"], [0.75, 0.0, 0.0, 0.0])
    np.testing.assert_array_equal(table["c"], [0.75, 0.5, 1.0, 1.0])


def test_rows_compare_with_the_best_of_the_part():
    first, second, third = board.rows(dataset())
    assert [row["algorithm"] for row in (first, second, third)] == ["b", "a", "c"]
    # Differences of a from b are -3/4 and 1, and those of c from b 0, 1/2, 1 and 1.
    assert first["minus the best"] == "0" and first["problems"] == "2"
    assert second["rank"] == "0.50" and second["minus the best"].startswith("+0.12 +- ") and second["problems"] == "1"
    assert third["rank"] == "0.81" and third["minus the best"].startswith("+0.62 +- ")
    assert board.curves(dataset())[1]["after 0.5"] == "2.5"


@pytest.mark.full
def test_losses_are_regret_and_violation_per_round():
    chosen = {"parts": ("grids", "boxes"), "problems": ("P6", "Gramacy"), "algorithms": ("RPOL", "Random")}
    options = dataclasses.replace(board.EXPERIMENT.quick, trials=2, horizon=20, extra=board.FEWER | chosen)
    found = board.play(options, None)
    assert list(found["algorithm"].values) == ["RPOL", "Random"] * 2
    arena = arenas.PROBLEMS["P6"](options.points_per_axis).tabulated(options)
    run = jb.simulate(arena.problem, jb.RandomSearch(), arena.model(20), horizon=20, trials=2, key=0)
    reward, constraint = np.asarray(arena.problem.means, np.float64)
    best = reward[constraint <= 0].max()
    lost = np.maximum(best - reward, 0.0) + np.maximum(constraint, 0.0)
    np.testing.assert_allclose(found["loss"].values[1, :, -1], lost[np.asarray(run.indices)].mean(axis=1), rtol=1e-4)
    # The least value of Gramacy's problem is 0.5998, and the greatest 2.
    assert np.all((found["loss"].values[2:, :, -1] > 0.5997) & (found["loss"].values[2:, :, -1] < 2))


@pytest.mark.full
def test_every_algorithm_can_run_on_every_problem_that_it_is_said_to_fit():
    options = dataclasses.replace(board.EXPERIMENT.defaults, trials=2, horizon=10, points_per_axis=10, extra=shootout.NAMES)
    pairs = make_plan(shootout.build(options)).runs
    assert {run.label.split(": ")[1] for run in pairs} == set(shootout.NAMES["algorithms"])
    assert len(make_plan(study("late", tuple(board.late(options)), options, {})).runs) > 200


@pytest.mark.skipif(importlib.util.find_spec("cocoex") is not None, reason="cocoex is installed")
def test_the_suite_of_coco_names_its_extra():
    with pytest.raises(jb.InvalidArgument, match=r"--parts: coco needs cocoex.*jaxbandit\[board\]"):
        board.coco()
