"""The experiment on boxes: its table beside values computed here, from the points that were played."""

import dataclasses
import re

import numpy as np
import pytest

from experiments import boxes
from jaxbandit import InvalidArgument
from jaxbandit.study import run_study

OPTIONS = dataclasses.replace(boxes.EXPERIMENT.quick, trials=3, horizon=2, extra={"algorithms": ("Random",), "problems": ("Gramacy",)})


def test_trials_without_a_feasible_point_are_the_worst():
    values = np.array([[np.nan, 1.0], [np.nan, 2.0], [np.nan, 3.0], [5.0, 5.0]])
    np.testing.assert_array_equal(boxes.quartiles(values), [[np.nan, 1.0], [np.nan, 2.0], [np.nan, 3.0]])
    np.testing.assert_array_equal(boxes.quartiles(values[3:]), np.full((3, 2), 5.0))


def test_boxes_in_words():
    words = {name: boxes.described(make()) for name, (make, _) in boxes.PROBLEMS.items()}
    assert words["Ackley-10"] == "x1 -5 to 10 .. x10 -5 to 10" and words["Gramacy"] == "x1 0 to 1, x2 0 to 1"
    assert words["pressure vessel"].startswith("shell 1 to 99 (integers), head 1 to 99 (integers), radius 10 to 200")


def test_names_are_checked():
    for what in ("algorithms", "problems"):
        with pytest.raises(InvalidArgument, match=rf"^--{what}: must be one of .*; got 'nobody'"):
            boxes.build(dataclasses.replace(OPTIONS, extra=OPTIONS.extra | {what: ["nobody"]}))


@pytest.mark.full
def test_the_table_is_of_the_points_played(tmp_path):
    dataset = run_study(boxes.build(OPTIONS))
    (row,) = boxes.rows(dataset)
    evaluations = boxes.FIRST + OPTIONS.horizon
    assert row["problem"] == "Gramacy" and row["algorithm"] == "Random" and row["evaluations"] == str(evaluations)
    values = dataset.observed.values[0]  # [trials, rounds, outputs], without noise, of the rounds after the first points
    after = dataset.best_feasible_value.values[0]
    allowed = np.where(np.all(values[..., 1:] <= 0, axis=-1), values[..., 0], -np.inf)
    before = after[:, boxes.FIRST - 1]
    best = np.maximum(np.where(np.isnan(before), -np.inf, before), allowed.max(axis=1))
    assert float(row["best feasible, median"]) == pytest.approx(np.sort(best)[1], rel=1e-5)
    assert row["feasible found"] == f"{np.mean(np.isfinite(best)):.0%}" and row["trials"] == "3"
    notes = boxes.notes(dataset)
    assert notes[0] == "Gramacy: x1 0 to 1, x2 0 to 1; optimum -0.5998 (Gramacy et al. 2016)" and "milliseconds" in notes[1]
    assert re.search(r"cores: Random \d", notes[1]), notes[1]
    assert boxes.notes(dataset.assign(playing_seconds=dataset.playing_seconds * np.nan))[1].endswith("unknown of a run that was resumed")
    boxes.files(dataset, [row])["boxes.md"](tmp_path / "boxes.md")
    assert (tmp_path / "boxes.md").read_text().count("| Gramacy |") == 1
    boxes.draw(dataset).savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
