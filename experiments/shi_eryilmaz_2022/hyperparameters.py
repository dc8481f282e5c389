"""Hyper-parameters of a network, tuned within a budget.

The mean cost of a training stays within the budget (Shi and Eryilmaz 2022, sec. 3).

The paper names this use and does not run it. Here it is run on a real model, a small network on handwritten digits: each choice of
learning rate, weight decay and width has a random accuracy and a random cost, the work until early stopping. Four trainings are under way
at a time; each comes back after as long as its work takes, so that results are late and out of order. All algorithms but Optuna's run
through ``jaxbandit.Session``, whose journals are left in the directory ``sessions``.

Measured 2026-11-22 by ``python -m experiments hyperparameters`` and the options that are named:
What we get (10 trials of 60 trainings, 10 x 6 x 6 choices):
- All end with networks of about equal worth within the budget, test accuracy 0.951 +- 0.008 (RPOL-UCB), 0.958 +- 0.004 (constrained EI),
  0.954 +- 0.003 (random search) and 0.952 +- 0.004 (TPE): on these data a good network is cheap to find.
- What they spend on the way differs: work above the budget 1.03, 0.56, 2.03 and 0.73 for each training, that of the first 8 included. RPOL
  tries expensive networks first, for the lower bounds of what it does not know are low; then its excess flattens, to a mean work of 1.4 in
  the last trainings at a budget of 1.2, as its theory has it. The excess of random search and of TPE grows on.
- What they earn on the way differs, too: a mean validation accuracy of 0.954 (RPOL) and 0.956 (constrained EI) in trainings 19 to 58, of
  0.89 (TPE) and 0.85 (random search). TPE samples where the others choose.
- Ends of trainings are counted, so that the last ones are the longest.

Parameters: squared exponential kernel with length-scales of 0.5, 1 and 0.5 of the axes; accuracy with prior mean 0.85 and variance 0.02,
work with prior mean at the budget and variance 9; noise variances 4e-4 and 0.25; widths 2; feedback hallucinated; 8 random trainings
first, the same for all. The budget is 1.2e7 examples times parameters. The paper has no such study: ``paper`` and ``code`` run the same.
"""

from __future__ import annotations

import dataclasses
import heapq
import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np
import xarray as xr

import jaxbandit as jb
from experiments.common.experiment import Experiment, Options
from experiments.common.running import progress
from experiments.shi_eryilmaz_2022.digits import UNIT, Trained, train
from jaxbandit.report.plots import COLOURS, DASHES, figure_of, legend_below
from jaxbandit.report.statistics import half_width
from jaxbandit.session import Axis, Model, Session

OPTUNA = "Optuna's TPE"
WORKERS, FIRST, BUDGET, WIDTH = 4, 8, 1.2, 2.0
AXES = (
    Axis.between("learning rate", 1e-3, 1e-1, 10, "logarithmic"),
    Axis.between("weight decay", 1e-4, 1.0, 6, "logarithmic"),
    Axis("width", (4, 8, 16, 32, 64, 128), "logarithmic"),
)
SMOOTH = jb.kernels.SquaredExponential(length_scale=(0.5, 1.0, 0.5))
MODEL = Model(
    kernel=(jb.kernels.Scale(kernel=SMOOTH, variance=0.02), jb.kernels.Scale(kernel=SMOOTH, variance=9.0)),
    noise_variance=(4e-4, 0.25),
    prior_mean=(0.85, BUDGET),
)
BOUNDS = jb.estimators.Bounds(reward_width=WIDTH, cost_width=WIDTH)


@dataclasses.dataclass
class BySession:
    """A tuner that runs through a session."""

    session: Session

    def ask(self) -> tuple[Any, dict[str, float]]:
        ticket = self.session.ask()
        return ticket, {name: float(value) for name, value in ticket.point.items()}

    def tell(self, ticket: Any, found: Trained) -> None:
        self.session.tell(ticket, {"accuracy": found.accuracy, "work": found.work})


class ByOptuna:
    """A tuner that runs Optuna's TPE on the same grid.

    It has TPE's own treatment of constraints, and starts with the same points.
    """

    def __init__(self, seed: int, first: list[dict[str, float]]) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=FIRST, constant_liar=True)
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        for point in first:
            self._study.enqueue_trial({axis.name: axis.values.index(point[axis.name]) for axis in AXES})

    def ask(self) -> tuple[Any, dict[str, float]]:
        trial = self._study.ask()
        return trial, {axis.name: float(axis.values[trial.suggest_int(axis.name, 0, len(axis.values) - 1)]) for axis in AXES}

    def tell(self, ticket: Any, found: Trained) -> None:
        ticket.set_constraint("excess work", found.work - BUDGET)
        self._study.tell(ticket, found.accuracy)


Tuner: TypeAlias = BySession | ByOptuna
ALGORITHMS: dict[str, jb.Algorithm] = {
    "RPOL-UCB": jb.Rpol(estimator=BOUNDS),
    "constrained EI": jb.Cei(),
    "random search": jb.RandomSearch(),
}


def played(tuner: Tuner, tickets: int, seed: int) -> Iterator[Trained]:
    """Yield every training's result in the order of their ends.

    ``WORKERS`` trainings run at a time. The first ones are a design, after whose end all workers are free. A training takes as long as its
    work.
    """
    running: list[tuple[float, int, Any, Trained]] = []
    now, asked = 0.0, 0
    while running or asked < tickets:
        while len(running) < WORKERS and asked < tickets and (asked != FIRST or not running):
            ticket, point = tuner.ask()
            found = train(point["learning rate"], point["weight decay"], int(point["width"]), seed + asked)
            heapq.heappush(running, (now + found.work, asked, ticket, found))
            asked += 1
        now, _, ticket, found = heapq.heappop(running)
        tuner.tell(ticket, found)
        yield found


def tuner_of(label: str, options: Options, directory: Path, trial: int) -> Tuner:
    """Return the tuner of a trial, with the first points of all."""
    place, key = (
        directory / "sessions" / f"{label.replace(' ', '-').lower()}-{trial}",
        jax.random.fold_in(jax.random.key(options.seed), trial),
    )
    goals: dict[str, Any] = {"objective": "maximise accuracy", "constraints": [f"work <= {BUDGET}"]}
    how: dict[str, Any] = {"feedback": jb.feedback.Hallucinate(), "initial": jb.InitialDesign(random=FIRST), "horizon": options.horizon}
    # The model is in the outputs' units.
    how |= {"standardise": False}
    return BySession(Session.create(place, AXES, ALGORITHMS[label], MODEL, key=key, **goals, **how))


def labels() -> list[str]:
    """Return the names of all tuners, Optuna's if it is installed."""
    return [*ALGORITHMS, *([OPTUNA] if importlib.util.find_spec("optuna") else [])]


def play(options: Options, directory: Path) -> xr.Dataset:
    """Tune in all trials by each tuner.

    Return the result of every training, in the order of their ends. Sessions that an earlier run has left in the directory, which is then
    to be replaced, are removed.
    """
    shutil.rmtree(directory / "sessions", ignore_errors=True)
    names, shape = labels(), (len(labels()), options.trials, FIRST + options.horizon)
    columns = {name: np.full(shape, np.nan) for name in Trained._fields}
    for trial in range(options.trials):
        first: list[dict[str, float]] = []
        for place, label in enumerate(names):
            seed = 100_000 * options.seed + 1_000 * trial
            tuner = ByOptuna(seed, first) if label == OPTUNA else tuner_of(label, options, directory, trial)
            for number, found in enumerate(played(tuner, shape[2], seed)):
                for name, value in found._asdict().items():
                    columns[name][place, trial, number] = value
            if isinstance(tuner, BySession):
                records = tuner.session.history().isel(ticket=slice(FIRST))
                first = [{axis.name: float(records[axis.name][row]) for axis in AXES} for row in range(FIRST)]
                tuner.session.close()
        progress(f"trial {trial + 1} of {options.trials}")
    coordinates = {"algorithm": names, "trial": np.arange(options.trials), "training": np.arange(1, shape[2] + 1)}
    dataset = xr.Dataset({name: (("algorithm", "trial", "training"), column) for name, column in columns.items()}, coords=coordinates)
    dataset["best"] = best_feasible(dataset)
    dataset["violation"] = (dataset["work"] - BUDGET).clip(min=0).cumsum("training")
    return dataset


def best_feasible(dataset: xr.Dataset) -> xr.DataArray:
    """Return the best feasible network's test accuracy so far.

    Its training kept to the budget. The accuracy is NaN before there is one.
    """
    accuracy = dataset["accuracy"].where(dataset["work"] <= BUDGET, -np.inf).values
    best = np.maximum.accumulate(accuracy, axis=-1)
    risen = np.concatenate([np.isfinite(accuracy[..., :1]), accuracy[..., 1:] > best[..., :-1]], axis=-1)
    places = np.maximum.accumulate(np.where(risen, np.arange(accuracy.shape[-1]), 0), axis=-1)
    test = np.take_along_axis(dataset["test_accuracy"].values, places, axis=-1)
    return xr.DataArray(np.where(np.isfinite(best), test, np.nan), dims=dataset["accuracy"].dims)


def rows(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Return the rows of the table, one for each tuner."""
    measures = {
        "test accuracy": dataset["best"][..., -1],
        "excess work per training": dataset["violation"][..., -1] / dataset.sizes["training"],
        "share over budget": (dataset["work"] > BUDGET).mean("training"),
    }

    def cell(values: np.ndarray) -> str:
        return f"{np.nanmean(values):.4f}" + ("" if len(values) < 2 else f" +- {float(half_width(values)):.4f}")

    columns = {heading: [cell(each) for each in values.values] for heading, values in measures.items()}
    start = [{"algorithm": str(label), "trials": dataset.sizes["trial"]} for label in dataset["algorithm"].values]
    return [row | {heading: cells[place] for heading, cells in columns.items()} for place, row in enumerate(start)]


def notes(dataset: Any) -> list[str]:
    """Return what the numbers are of, and what was left out."""
    median = float(dataset["work"].median())
    found = [
        f"{WORKERS} trainings at a time, the first {FIRST} at random points, the same for all; budget {BUDGET:g} x {UNIT:g} examples times"
        f" parameters, median work of a training {median:.2f}",
        "python -m jaxbandit session report DIR makes a page of a session; they are in the directory sessions beside these results",
        "test accuracy: of the network with the best validation accuracy among trainings within the budget",
    ]
    if OPTUNA not in dataset["algorithm"].values:
        found.append('Optuna is not installed: its TPE was left out; pip install "jaxbandit[tuning]"')
    return found


def draw(dataset: Any) -> Any:
    """Draw test accuracy and cumulative violation by trainings that ended.

    The accuracy is that of the best feasible network. The violation is of the budget.
    """
    panels = (("best", "test accuracy, best in budget"), ("violation", "cumulative excess work"))
    lowest = 1.0
    figure, axes = figure_of(1, len(panels), (5.0, 4.0), title=EXPERIMENT.title)
    for axis, (name, label) in zip(axes[0], panels, strict=True):
        for number, algorithm in enumerate(dataset["algorithm"].values):
            values = dataset[name].sel(algorithm=algorithm).values
            known = np.isfinite(values).all(axis=0)
            mean, half = values[:, known].mean(axis=0), np.asarray(half_width(values[:, known]))
            trainings = dataset["training"].values[known]
            colour = COLOURS[number % len(COLOURS)]
            axis.plot(trainings, mean, color=colour, linestyle=DASHES[number], label=str(algorithm))
            if len(values) > 1:
                axis.fill_between(trainings, mean - half, mean + half, color=colour, alpha=0.15, linewidth=0)
            if name == "best":
                lowest = min(lowest, float(mean[trainings >= FIRST].min()))
        axis.axvline(FIRST, color="0.6", linewidth=1, label="end of the common random points")
        axis.set(xlabel="trainings that have ended", ylabel=label)
        axis.xaxis.get_major_locator().set_params(integer=True)
    # Show the accuracies from the end of the design on, because earlier ones are worse.
    axes[0][0].set_ylim(lowest - 0.02, 1.0)
    legend_below(figure)
    return figure


EXPERIMENT = Experiment(
    module=__name__,
    title="Tuning a network on digits within a budget of work, four trainings at a time, through sessions (SE22, section 3)",
    position=54,
    defaults=Options(trials=10, horizon=52),
    quick=Options(trials=1, horizon=8),
    build=None,
    play=play,
    rows=rows,
    notes=notes,
    draw=draw,
)
