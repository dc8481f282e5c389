"""The experiment on hyper-parameters: four trainings under way, what counts as the best, and that a training repeats."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

from experiments.common.experiment import Experiment, Options
from experiments.common.running import run_experiment
from experiments.shi_eryilmaz_2022 import digits, hyperparameters
from experiments.shi_eryilmaz_2022.digits import Trained
from experiments.shi_eryilmaz_2022.hyperparameters import BUDGET, FIRST, WORKERS, best_feasible, play, played
from jaxbandit import InvalidArgument


class Recording:
    """A tuner that notes who is under way, and asks for networks of random widths."""

    def __init__(self) -> None:
        self.under_way: set[int] = set()
        self.most, self.order, self.asked = 0, [], 0  # type: ignore[var-annotated]
        self.rng = np.random.default_rng(0)

    def ask(self) -> tuple[Any, dict[str, float]]:
        assert self.asked != FIRST or not self.under_way, "the design has ended"
        self.under_way.add(self.asked)
        self.most, self.asked = max(self.most, len(self.under_way)), self.asked + 1
        return self.asked - 1, {"learning rate": 0.01, "weight decay": 0.001, "width": float(self.rng.integers(4, 128))}

    def tell(self, ticket: int, found: Trained) -> None:
        self.under_way.remove(ticket)
        self.order.append((ticket, found.work))


def test_trainings_come_back_after_as_long_as_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hyperparameters, "train", lambda rate, decay, width, seed: Trained(0.9, 0.9, width / 10, seed))
    tuner = Recording()
    found = list(played(tuner, FIRST + 20, seed=7))
    assert tuner.most == WORKERS and not tuner.under_way and len(found) == FIRST + 20
    tickets = [ticket for ticket, _ in tuner.order]
    assert tickets != sorted(tickets) and sorted(tickets) == list(range(FIRST + 20))
    assert max(tickets[:FIRST]) == FIRST - 1 and [one.epochs for one in found] == [7 + ticket for ticket in tickets]


def test_the_best_is_chosen_by_validation_and_judged_by_the_test() -> None:
    columns = {
        "accuracy": [0.5, 0.9, 0.7, 0.95, 0.8],
        "test_accuracy": [0.51, 0.91, 0.71, 0.96, 0.81],
        "work": np.array([0.5, 2.0, 0.9, 1.1, 0.1]) * BUDGET,
    }
    dataset = xr.Dataset({name: (("algorithm", "trial", "training"), np.reshape(column, (1, 1, 5))) for name, column in columns.items()})
    np.testing.assert_array_equal(best_feasible(dataset)[0, 0], [0.51, 0.51, 0.71, 0.71, 0.81])
    none = dataset.assign(work=dataset["work"] + 2 * BUDGET)
    assert np.isnan(best_feasible(none)).all()


def test_what_is_no_study_is_written_and_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its dataset has a form of its own, without flags and rounds."""
    dataset, plays = xr.Dataset({"work": ("training", [1.0, 2.0])}), list[Path]()
    options = Options(trials=1, horizon=2)
    experiment = Experiment(
        module="none",
        title="No study",
        defaults=options,
        quick=options,
        build=None,
        play=lambda options, directory: plays.append(directory) or dataset.copy(),
        rows=lambda dataset: [{"algorithm": "a", "trials": 1}],
        notes=lambda dataset: [f"work {float(dataset['work'].sum()):g}"],
        draw=lambda dataset: plt.figure(),
        position=1,
    )
    for force, count, ending in ((False, 1, "written in"), (False, 1, "made 20"), (True, 2, "written in")):
        run_experiment(experiment, experiment.defaults, tmp_path / "out", force=force)
        xr.testing.assert_equal(xr.load_dataset(tmp_path / "out" / "results.nc", engine="h5netcdf"), dataset)
        printed = " ".join(capsys.readouterr().out.split())  # of whatever length its lines are
        assert len(plays) == count and "- work 3" in printed and f"figure.png: {ending}" in printed
    with pytest.raises(InvalidArgument, match="not empty"):
        run_experiment(experiment, dataclasses.replace(experiment.defaults, seed=1), tmp_path / "out", force=False)


def test_sessions_of_a_run_that_is_replaced_are_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "sessions" / "old").mkdir(parents=True)
    monkeypatch.setattr(hyperparameters, "labels", list)
    play(Options(trials=1, horizon=2), tmp_path)
    assert not (tmp_path / "sessions").exists()


@pytest.mark.full
def test_a_training_repeats_and_its_cost_is_counted_work() -> None:
    with jax.numpy_dtype_promotion("standard"):  # as Optax needs it
        found, again, other, narrow = (digits.train(0.01, 1e-3, *own) for own in ((16, 3), (16, 3), (16, 4), (4, 3)))
    assert found == again != other
    assert found.accuracy > 0.9 and found.test_accuracy > 0.85 and narrow.accuracy < found.accuracy
    assert found.work == pytest.approx(found.epochs * digits.TRAINING * (65 * 16 + 17 * 10) / digits.UNIT)
