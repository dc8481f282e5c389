"""Optuna's studies by the algorithms of this library."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit
from jaxbandit import InvalidArgument
from jaxbandit.cli import main
from jaxbandit.session import Axis, Model, Session, SessionError, Specification
from jaxbandit.session.axes import Space
from jaxbandit.session.quantities import Outputs

optuna = pytest.importorskip("optuna")
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution  # noqa: E402
from optuna.trial import TrialState  # noqa: E402

from jaxbandit.optuna import Sampler, StudyParameters, _in_range, as_optuna_keeps, export  # noqa: E402

MODEL = Model(kernel=jaxbandit.kernels.SquaredExponential(length_scale=0.3), noise_variance=0.05, form="features")
SPACE = {"rate": FloatDistribution(1e-3, 1e-1, log=True), "width": IntDistribution(1, 5)}


@pytest.fixture(autouse=True)
def quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def sampler(algorithm: Any = None, **options: Any) -> Any:
    options = {"key": jax.random.key(3), "constraints": ["work <= 4.5"], "points": 6, "horizon": 30} | options
    return Sampler(jaxbandit.Cei() if algorithm is None else algorithm, options.pop("model", MODEL), **options)


def study(sampler: Any) -> Any:
    return optuna.create_study(sampler=sampler, direction="maximize")


def train(trial: Any) -> float:
    rate, width = trial.suggest_float("rate", 1e-3, 1e-1, log=True), trial.suggest_int("width", 1, 5)
    trial.set_user_attr("work", width + 10 * rate)
    return float(width - (np.log10(rate) + 2) ** 2)


def points(study: Any) -> list[Any]:
    return [(trial.params.get("rate"), trial.params.get("width")) for trial in study.trials]


GRIDS: dict[str, tuple[Any, Any, list[Any]]] = {
    "evenly": (FloatDistribution(0, 1), 5, [0.0, 0.25, 0.5, 0.75, 1.0]),
    "a logarithmic scale": (FloatDistribution(0.01, 100, log=True), 5, [0.01, 0.1, 1.0, 10.0, 100.0]),
    "steps": (FloatDistribution(0.1, 0.5, step=0.1), 9, [0.1, 0.2, 0.3, 0.4, 0.5]),
    "every other step": (FloatDistribution(0.1, 0.5, step=0.1), 3, [0.1, 0.3, 0.5]),
    "integers": (IntDistribution(2, 6), 9, [2, 3, 4, 5, 6]),
    "integers in steps": (IntDistribution(0, 100, step=20), 3, [0, 40, 100]),
    "integers on a logarithmic scale": (IntDistribution(1, 64, log=True), 4, [1, 4, 16, 64]),
    "small ones, of which some are equal": (IntDistribution(1, 4, log=True), 9, [1, 2, 3, 4]),
    "all categories": (CategoricalDistribution(["a", None, 3]), 2, ["0: a", "1: None", "2: 3"]),
}


@pytest.mark.parametrize("case", GRIDS)
def test_axes_keep_to_scales_and_steps(case: str) -> None:
    distribution, most, expected = GRIDS[case]
    parameters = StudyParameters({"x": distribution}, {"x": most}, continuous=False)
    [axis] = parameters.axes
    values = [parameters.outward({axis.name: value})["x"] for value in axis.values]
    values = list(axis.values) if axis.scale == "categorical" else values
    assert values == expected and [type(value) for value in values] == [type(value) for value in expected]
    assert axis.scale == ("categorical" if case == "all categories" else "logarithmic" if distribution.log else "linear")


def test_the_grid_is_as_fine_as_its_size_allows() -> None:
    space = {f"x{number}": FloatDistribution(0, 1) for number in range(4)} | {"c": CategoricalDistribution([1, 2])}
    assert [len(axis.values) for axis in StudyParameters(space, None, continuous=False).axes] == [8, 8, 8, 8, 2]
    assert [len(axis.values) for axis in StudyParameters(space, {"x1": 3}, continuous=False).axes] == [11, 3, 11, 11, 2]
    assert [len(axis.values) for axis in StudyParameters({"x": FloatDistribution(0, 1)}, None, continuous=False).axes] == [50]
    with pytest.raises(InvalidArgument, match=r"points: a grid of 20,000,000 points is more than 10,000,000; give fewer than 100"):
        StudyParameters(
            {f"x{number}": FloatDistribution(0, 1) for number in range(3)} | {"n": IntDistribution(1, 20)}, 100, continuous=False
        )


WHOLE: dict[str, tuple[dict[str, Any], list[list[Any]] | None]] = {
    "one": ({"n": IntDistribution(1, 1000)}, [list(range(1, 1001))]),
    "one on a logarithmic scale": ({"n": IntDistribution(1, 1000, log=True)}, [list(range(1, 1001))]),
    "one in steps": ({"n": IntDistribution(0, 900, step=3)}, [list(range(0, 901, 3))]),
    "a few beside choices": (
        {"n": IntDistribution(1, 300), "kind": CategoricalDistribution(["a", None])},
        [list(range(1, 301)), ["0: a", "1: None"]],
    ),
    "too many for a grid": ({name: IntDistribution(1, 300) for name in "abc"}, None),
    "of every kind": (
        {
            "n": IntDistribution(1, 300),
            "log": IntDistribution(1, 1000, log=True),
            "steps": IntDistribution(0, 900, step=3),
            "tenths": FloatDistribution(0, 1, step=0.1),
            "kind": CategoricalDistribution([False, True]),
        },
        None,
    ),
}


@pytest.mark.parametrize("case", WHOLE)
def test_every_value_of_whole_numbers_can_be_chosen(case: str) -> None:
    space, grid = WHOLE[case]
    parameters = StudyParameters(space, None, continuous=True)
    assert (grid is None) == parameters.is_box
    if grid is not None:
        for made in (parameters, StudyParameters(space, None, continuous=False)):
            assert [
                list(axis.values) if axis.scale == "categorical" else [one.outward(axis, value) for value in axis.values]
                for one, axis in zip(made.own, made.axes, strict=True)
            ] == grid
        return
    own, rng = parameters.space(), np.random.default_rng(0)
    for _ in range(50):
        wanted = {
            "n": int(rng.integers(1, 301)),
            "log": int(rng.integers(1, 1001)),
            "steps": 3 * int(rng.integers(301)),
            "tenths": round(0.1 * int(rng.integers(11)), 14),
            "kind": bool(rng.integers(2)),
        }
        wanted = {name: wanted.get(name, wanted["n"]) for name in space}
        place = own.place(parameters.inward(wanted))
        assert parameters.outward(own.point(parameters.in_steps(own, place))) == wanted


HUGE = {
    "from 0": IntDistribution(0, 2**62),
    "on both sides of 0": IntDistribution(-(2**62), 2**62),
    "in steps": IntDistribution(0, 2**62 - 4, step=7),
    "on a logarithmic scale": IntDistribution(1, 2**62, log=True),
    "far from 0": IntDistribution(2**53, 2**53 + 40_000, step=2),
    "many steps": FloatDistribution(0, 1e6, step=0.1),
}


@pytest.mark.parametrize("continuous", [True, False], ids=["box", "grid"])
@pytest.mark.parametrize("case", HUGE)
def test_ranges_of_any_size_have_their_ends_and_values_between(case: str, continuous: bool) -> None:
    distribution = HUGE[case]
    parameters = StudyParameters({"x": distribution}, None, continuous=continuous)
    [axis], [one] = parameters.axes, parameters.own
    assert bool(axis.continuous) == continuous
    values = [one.outward(axis, value) for value in axis.values]
    assert values[0] == distribution.low and values[-1] == pytest.approx(distribution.high, rel=1e-15)
    assert all(type(value) is type(distribution.low) and distribution._contains(value) for value in values)
    assert [one.inward(axis, value) for value in values] == pytest.approx(list(axis.values))
    drawn = study(Sampler(jaxbandit.Cei(), key=0)).ask({"x": distribution}).params["x"]
    assert type(drawn) is type(distribution.low) and distribution._contains(drawn)


@pytest.mark.full
def test_no_point_of_few_whole_numbers_on_a_logarithmic_scale_is_asked_for_a_third_time() -> None:
    """A second equal value shows that there is no noise."""

    def objective(trial: Any) -> float:
        return -abs(trial.suggest_int("n", 1, 12, log=True) - 7) - abs(trial.suggest_int("m", 1, 3000, log=True) - 3)

    run = study(Sampler(jaxbandit.Cei(augmented=True), key=0))
    run.optimize(objective, n_trials=22)
    asked = [tuple(trial.params.values()) for trial in run.trials]
    assert max(map(asked.count, asked)) <= 2 and len(set(asked)) >= 20


KILLED = """
import os, sys, optuna, jaxbandit
from jaxbandit.optuna import Sampler
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study(storage=sys.argv[1], study_name="s", direction="maximize", sampler=Sampler(jaxbandit.RandomSearch(), key=0),
                            load_if_exists=True)

def objective(trial):
    x = trial.suggest_float("x", 0, 1)
    if trial.number == int(sys.argv[2]):
        os.kill(os.getpid(), 9)
    return -(x - 0.3) ** 2

study.optimize(objective, n_trials=8 - len(study.trials))
"""


@pytest.mark.full
def test_a_study_whose_process_is_killed_goes_on(tmp_path: Path) -> None:
    """The killed trial stays under way and is not chosen again."""
    environment = {**os.environ, "PYTHONPATH": str(Path(jaxbandit.__file__).parents[1])}

    def play(name: str, killed_at: int) -> int:
        storage = f"sqlite:///{tmp_path / name}.db"
        return subprocess.run([sys.executable, "-c", KILLED, storage, str(killed_at)], env=environment, check=False).returncode

    def trials(name: str) -> list[Any]:
        return optuna.load_study(storage=f"sqlite:///{tmp_path / name}.db", study_name="s").trials

    assert play("whole", -1) == 0 and play("killed", 4) == -9 and len(trials("killed")) == 5
    assert play("killed", -1) == 0
    whole, killed = trials("whole"), trials("killed")
    assert [trial.state for trial in killed] == [TrialState.RUNNING if number == 4 else TrialState.COMPLETE for number in range(8)]
    assert [trial.params for trial in killed] == [trial.params for trial in whole] and len({trial.params["x"] for trial in killed}) == 8


@pytest.mark.full
def test_parameters_that_are_all_whole_numbers_are_optimised_on_a_box() -> None:
    def objective(trial: Any) -> float:
        point = [trial.suggest_int(name, 1, 300) for name in "abc"] + [trial.suggest_categorical("kind", [False, True])]
        assert all(type(value) is int for value in point[:3]) and type(point[3]) is bool
        return -float(sum(abs(value - 123) for value in point[:3])) + point[3]

    whole, broken = (study(sampler(jaxbandit.RandomSearch(), model=None, constraints=None, points=None)) for _ in range(2))
    whole.optimize(objective, n_trials=14)
    for _ in range(14):
        broken.sampler = sampler(jaxbandit.RandomSearch(), model=None, constraints=None, points=None)
        broken.optimize(objective, n_trials=1)
    assert [trial.params for trial in whole.trials] == [trial.params for trial in broken.trials]
    assert len({trial.params["a"] for trial in whole.trials}) > 10


def test_infinite_values_count_as_the_worst_or_best_that_is_finite() -> None:
    outputs = Outputs.read("maximise objective", ["cost <= 1", "pH >= 6", "pH <= 8"])
    told = {
        0: {"objective": 3.0, "cost": 0.5, "pH": 7.0},
        1: {"objective": -math.inf, "cost": math.inf, "pH": math.inf},
        2: {"objective": -1.0, "cost": -math.inf, "pH": -math.inf},
        3: {"objective": math.inf},
        4: {"objective": 1e300, "cost": -1.0, "pH": 7.5},
        5: {},
    }
    found = _in_range(outputs, told)
    assert [found[number].get("objective") for number in range(6)] == [3.0, -1.0, -1.0, 3.0, 3.0, None]
    assert (found[1]["cost"], found[2]["cost"]) == (3.0, -3.0), "beyond the bound by as much as all lie apart, and as far on the other side"
    assert (found[1]["pH"], found[2]["pH"], found[4]["pH"]) == (10.0, 4.0, 7.5)
    nothing = _in_range(outputs, {0: {"objective": -math.inf}, 1: {}})
    assert nothing == {0: {}, 1: {}}


@pytest.mark.full(but=("maximize",))
@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_a_worthless_trial_teaches(direction: str) -> None:
    """Its value is infinite, and any worker learns it alike."""
    sign = 1 if direction == "maximize" else -1

    def objective(trial: Any) -> float:
        value = trial.suggest_int("n", 1, 40)
        return sign * (-math.inf if value > 20 else float(value))

    options: dict[str, Any] = {"constraints": None, "points": None, "model": Model(noise_variance=0.01)}
    run, broken = (optuna.create_study(direction=direction, sampler=sampler(**options)) for _ in range(2))
    run.optimize(objective, n_trials=9)
    for _ in range(9):
        broken.sampler = sampler(**options)
        broken.optimize(objective, n_trials=1)
    assert [trial.params for trial in run.trials] == [trial.params for trial in broken.trials]
    worthless = [trial.number for trial in run.trials if math.isinf(trial.value)]
    assert worthless and {trial.state for trial in run.trials} == {TrialState.COMPLETE}
    records = run.sampler._session._state.records
    worst = min(sign * trial.value for trial in run.trials[:8] if math.isfinite(trial.value))
    assert {sign * records[number + 1].values["objective"] for number in worthless if number < 8} == {worst}


@pytest.mark.full
def test_points_of_trials_whose_workers_were_killed_are_not_repeated() -> None:
    """One worker is killed before it has a point, and one after."""
    run = study(sampler(model=None, constraints=None))
    run.optimize(train, n_trials=2)
    silent, told = run.ask(), run.ask()
    train(told)
    run.optimize(train, n_trials=2)
    run.tell(silent, state=TrialState.FAIL)
    run.tell(told, state=TrialState.FAIL)
    run.sampler = sampler(model=None, constraints=None)
    run.optimize(train, n_trials=8)
    said = [tuple(trial.params.values()) for trial in run.trials if trial.params]
    assert said.count(said[2]) == 1, "the point that was killed"
    assert len(set(said[:8])) == 8, "the initial design"


def test_trials_that_fail_before_any_ends_are_no_reason_to_draw() -> None:
    run = optuna.create_study(direction="maximize", sampler=sampler(jaxbandit.RandomSearch(), constraints=None, points=None))

    def fails(trial: Any) -> float:
        trial.suggest_int("n", 1, 6)
        raise ValueError

    run.optimize(fails, n_trials=6, catch=(ValueError,))
    assert {trial.params["n"] for trial in run.trials} == {1, 2, 3, 4, 5, 6}
    with pytest.raises(SessionError, match="the runs at all points have failed"):
        run.ask().suggest_int("n", 1, 6)


@pytest.mark.full(but=("grid",))
@pytest.mark.parametrize("space", ["grid", "box"])
def test_choices_follow_from_the_trials_alone(space: str) -> None:
    options = {} if space == "grid" else {"points": None}
    whole, broken = study(sampler(**options)), study(sampler(**options))
    whole.optimize(train, n_trials=12)
    for _ in range(12):
        broken.sampler = sampler(**options)
        broken.optimize(train, n_trials=1)
    assert points(whole) == points(broken) and len(set(points(whole))) > 6
    assert (len({trial.params["rate"] for trial in whole.trials}) <= 6) == (space == "grid")
    for trial in whole.trials:
        assert trial.system_attrs["constraints"] == [trial.user_attrs["work"] - 4.5]
    assert whole.best_trial.user_attrs["work"] <= 4.5 and any(trial.constraints["0"] > 0 for trial in whole.trials)
    assert whole.best_trials[0].params["width"] == 4, "the best allowed width is found"
    other = study(sampler(key=jax.random.key(4), **options))
    other.optimize(train, n_trials=1)
    assert points(other)[0] != points(whole)[0]


def test_the_initial_design_of_a_box_is_in_the_steps_of_parameters() -> None:
    def objective(trial: Any) -> float:
        return float(trial.suggest_float("rate", 1e-4, 1e-1, log=True) + trial.suggest_int("width", 4, 128, log=True))

    run, sessions = study(sampler(points=None, model=None, constraints=None)), []
    for _ in range(5):
        run.optimize(objective, n_trials=1)
        sessions.append(run.sampler._session)
    assert sessions[0] is None and sessions[1] is not None and all(session is sessions[1] for session in sessions[2:])
    asked = [record.ticket.point for record in sessions[1]._state.records.values()]
    assert [{f"parameter {name}": value for name, value in trial.params.items()} for trial in run.trials] == asked
    assert all(4 <= width <= 128 and isinstance(width, int) for _, width in points(run)) and len(set(points(run))) == 5


@pytest.mark.parametrize(
    "changes", [{}, {"form": "rows"}, {"form": "auto"}, {"form": "auto", "rank": 5}, {"length_scale_range": (0.1, 1.0)}]
)
def test_a_model_that_boxes_do_not_have_is_one_of_a_grid(changes: dict[str, Any]) -> None:
    model = jaxbandit.replace(MODEL, **changes)
    asked: dict[str, Any] = {"algorithm": jaxbandit.Cei(), "model": model, "key": 0, "outputs": Outputs.read("maximise y", [])}
    try:
        is_known = Specification(space=Space.of([Axis.between("x", 0, 1)]), **asked).setting is not None
    except InvalidArgument:
        is_known = False
    assert sampler(model=model, points=None)._continuous == is_known
    assert is_known == (changes in ({}, {"form": "auto"}))


STEPS: dict[str, tuple[Any, Any, Any]] = {
    "any number": (FloatDistribution(0, 1), 0.123456789, 0.123457),
    "steps": (FloatDistribution(0.1, 0.5, step=0.1), 0.5, 0.3),
    "whole numbers on a logarithmic scale": (IntDistribution(1, 64, log=True), 0.5, 8),
    "whole numbers in steps": (IntDistribution(0, 100, step=20), 0.52, 60),
    "whole numbers": (IntDistribution(2, 6), 0.7, 5),
    "many whole numbers": (IntDistribution(0, 10**6), 0.1234567, 123457),
    "categories": (CategoricalDistribution(["a", None]), 0.9, None),
}


@pytest.mark.parametrize("case", STEPS)
def test_places_of_a_box_are_in_the_steps_of_parameters(case: str) -> None:
    distribution, share, expected = STEPS[case]
    space = {"x": distribution, "y": FloatDistribution(0, 1)}
    parameters = StudyParameters(space, None, continuous=True)
    own = Space.of(parameters.axes)
    place = parameters.in_steps(own, (share, 0.5))
    there = own.point(place)
    found = parameters.outward(there)
    assert found["x"] == expected and type(found["x"]) is type(expected)
    assert parameters.inward(found) == there
    assert parameters.in_steps(own, place) == place


def test_trials_under_way_count_also_those_that_have_not_said_their_point() -> None:
    """Every choice is made once, whoever makes it first."""

    def played(order: list[int]) -> tuple[Any, list[int]]:
        run = study(sampler())
        run.optimize(train, n_trials=3)
        trials = [run.ask() for _ in range(6)]
        run.sampler = sampler()
        for number in order:
            train(trials[number])
        return points(run), [move.point for move in run.sampler._made if move.values is None]

    in_order, indices = played([0, 1, 2, 3, 4, 5])
    assert len(set(in_order[3:])) == 6
    from_the_last, last = played([5])
    assert from_the_last[8] == in_order[8] and last == indices
    backwards, _ = played([5, 4, 3, 2, 1, 0])
    assert len(set(backwards[3:])) == 6


def test_without_a_model_the_first_trials_are_the_initial_design() -> None:
    """An enqueued trial takes the place of a point."""
    run = study(sampler(model=None))
    run.enqueue_trial({"rate": 0.1, "width": 5})
    run.optimize(train, n_trials=2)
    run.enqueue_trial({"rate": 0.001, "width": 1})
    run.optimize(train, n_trials=3)
    session = run.sampler._session
    assert [record.ticket.round for record in session._state.records.values()] == 5 * [0]
    design, own = session._state.design, run.sampler._first
    assert len(design) == len(own) == 6 and [index for index, other in zip(design, own, strict=True) if index == other] == [
        own[1],
        *own[3:],
    ]
    assert (design[0], design[2]) == (29, 0) and len(set(points(run))) == 5


def test_trials_that_fail_are_pruned_or_enqueued() -> None:
    run = study(sampler())
    run.enqueue_trial({"rate": 0.0123, "width": 4})
    run.optimize(train, n_trials=3)
    assert points(run)[0] == (0.0123, 4)
    failed, pruned = run.ask(), run.ask()
    train(failed), train(pruned)
    run.tell(failed, state=TrialState.FAIL)
    run.tell(pruned, state=TrialState.PRUNED)
    run.optimize(train, n_trials=1)
    assert points(run)[-1] not in points(run)[3:5]
    records = list(run.sampler._session._state.records.values())
    assert [record.state for record in records] == 3 * ["complete"] + ["failed", "dropped", "pending"]
    assert records[3].values == {} and records[4].values == {"work": pruned.user_attrs["work"]}
    assert run.trials[3].constraints == {} and list(run.trials[4].constraints) == ["0"]


def test_parameters_under_a_condition_are_drawn_by_themselves() -> None:
    def branch(trial: Any) -> float:
        value = train(trial)
        return value + (trial.suggest_float("decay", 0, 1) if trial.number % 2 else 0)

    one, other = study(sampler()), study(sampler())
    for run in (one, other):
        run.optimize(branch, n_trials=4)
    drawn = [trial.params["decay"] for trial in one.trials if "decay" in trial.params]
    assert drawn == [trial.params["decay"] for trial in other.trials if "decay" in trial.params]
    assert len(set(drawn)) == 2 and set(drawn) <= set(np.linspace(0, 1, 6).round(14).tolist())


def test_trials_of_other_parameters_do_not_count() -> None:
    """Their parameters are others, or had another range."""
    run = study(sampler())
    run.optimize(train, n_trials=2)
    run.enqueue_trial({"rate": "fast", "width": 1})
    run.optimize(train, n_trials=1, catch=(ValueError,))
    other = run.ask()
    other.suggest_float("rate", 1.0, 2.0, log=True), other.suggest_int("width", 7, 9)
    run.optimize(train, n_trials=2)
    assert [trial.state.name for trial in run.trials] == ["COMPLETE", "COMPLETE", "FAIL", "RUNNING", "COMPLETE", "COMPLETE"]
    assert [move.number for move in run.sampler._made if move.values is None] == [0, 1, 4, 5]


CONSTRAINTS: dict[str, tuple[Any, Any]] = {
    "a function": (lambda trial: [trial.user_attrs["work"] - 4.5], {"0"}),
    "what trials set": (None, {"work"}),
}


@pytest.mark.parametrize("case", CONSTRAINTS)
def test_constraints_by_a_function_or_as_trials_set_them(case: str) -> None:
    constraints, names = CONSTRAINTS[case]

    def objective(trial: Any) -> float:
        value = train(trial)
        if constraints is None:
            trial.set_constraint("work", trial.user_attrs["work"] - 4.5)
        return value

    run, named = study(sampler(constraints=constraints)), study(sampler(constraints=["work <= 4.5"]))
    run.optimize(objective, n_trials=6)
    named.optimize(train, n_trials=6)
    assert all(trial.constraints.keys() == names for trial in run.trials)
    assert points(run) == points(named)


def test_optuna_keeps_constraint_values_where_the_sampler_stores_them() -> None:
    """A version of Optuna that changes these private names fails here."""
    run = optuna.create_study()
    trial = run.ask()
    as_optuna_keeps([1.5, -2.0], run, trial)
    run.tell(trial, 1.0)
    run.add_trial(optuna.trial.create_trial(value=1.0, system_attrs=as_optuna_keeps([1.5, -2.0])))
    assert [trial.constraints for trial in run.trials] == [{"0": 1.5, "1": -2.0}] * 2


# ``golden/refusals.json`` has what these and ``sampler`` refuse.


def constrained(values: Any) -> None:
    run = optuna.create_study(sampler=Sampler(jaxbandit.Cei(), key=0, constraints=lambda trial: values))
    run.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)


def exported(**changes: Any) -> None:
    session = Session.create(None, [Axis.between("x", 0.0, 1.0, 3)], jaxbandit.Rpol(), key=0)
    export(**{"session": session, "storage": optuna.storages.InMemoryStorage()} | changes)


def test_labels_of_choices_can_be_shown() -> None:
    run = optuna.create_study(sampler=Sampler(jaxbandit.Cei(), key=0))
    run.optimize(lambda trial: len(trial.suggest_categorical("c", ["a\nb", "\0"])), n_trials=3)
    assert len(run.trials) == 3


def test_what_cannot_be_used_is_refused_by_name() -> None:
    with pytest.raises(InvalidArgument, match="algorithm: Scgp sees the constraint functions"):
        study(sampler(jaxbandit.Scgp())).optimize(train, n_trials=2)
    with pytest.raises(InvalidArgument, match="points: no trial has a parameter 'widht', did you mean 'width'"):
        study(sampler(points={"rate": 3, "widht": 3})).optimize(train, n_trials=2)
    run = study(sampler())
    with pytest.raises(InvalidArgument, match=r"constraints: trial 0 has no number work; say trial.set_user_attr\('work', value\)"):
        run.optimize(lambda trial: trial.suggest_float("rate", 0, 1), n_trials=1)
    with pytest.raises(ValueError, match="multi-objective"):
        optuna.create_study(directions=["minimize", "minimize"], sampler=sampler()).optimize(train, n_trials=1)


def test_an_algorithm_that_needs_values_at_once_has_one_worker() -> None:
    run = study(sampler(jaxbandit.Oco()))
    run.optimize(train, n_trials=2)
    waiting = run.ask()
    train(waiting)
    with pytest.raises(SessionError, match="sampler: Oco needs the values of trial 2 first"):
        run.optimize(train, n_trials=1)


def test_a_session_becomes_a_study(tmp_path: Path, capsys: Any) -> None:
    axes = [Axis("rate", (0.01, 0.1, 1.0), "logarithmic"), Axis("width", (2, 4, 8)), Axis.of_categories("kind", ["a", "b"])]
    constraints = ["work <= 3", "pH = 7 +- 0.5"]
    with Session.create(
        tmp_path / "tuning", axes, jaxbandit.RandomSearch(), None, key=jax.random.key(0), objective="minimise loss", constraints=constraints
    ) as session:
        tickets = [session.ask() for _ in range(4)]
        session.tell(1, {"loss": 0.5, "work": 2.5, "pH": 7.25})
        session.tell(2, {"work": 4.0})
        session.drop(3)
        made = export(session, tmp_path / "journal.log")
        with pytest.raises(SessionError, match="holds a study 'tuning' already"):
            export(session, tmp_path / "journal.log")
        assert export(session, f"sqlite:///{tmp_path / 'trials.db'}", "again").study_name == "again"
    assert main(["session", "export", str(tmp_path / "tuning"), "--optuna", str(tmp_path / "other.log"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"wrote": str(tmp_path / "other.log"), "study": "tuning", "trials": 4}
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(tmp_path / "journal.log")))
    loaded = optuna.load_study(study_name="tuning", storage=storage)
    assert [trial.state.name for trial in loaded.trials] == ["COMPLETE", "RUNNING", "FAIL", "RUNNING"]
    assert loaded.best_trial.value == 0.5 and loaded.direction == made.direction == optuna.study.StudyDirection.MINIMIZE
    assert loaded.trials[0].system_attrs == {"constraints": [-0.5, -0.25, -0.75]}
    assert [trial.params for trial in loaded.trials] == [dict(ticket.point) for ticket in tickets]
    assert loaded.trials[1].user_attrs == {"ticket": 2, "work": 4.0} and loaded.trials[1].system_attrs == {}
    assert loaded.trials[0].distributions["width"] == IntDistribution(2, 8)
    asked = session.events[1].at
    assert abs(loaded.trials[0].datetime_start.timestamp() - np.datetime64(asked[:-6], "ms").astype(int) / 1000) < 1


CONSTRAINED: dict[str, Any] = {
    "a": FloatDistribution(0, 1),
    "b": FloatDistribution(0.5, 2.5),
    "n": IntDistribution(3, 9, step=2),
    "k": CategoricalDistribution(["x", "y"]),
    "one": FloatDistribution(2, 2),
}
SUCH_THAT = ["a + b <= 1.5", "n + 10 * a >= 5 * one - 5"]


def limited(trial: Any) -> float:
    """Return a value whose best point lies outside of the constraints."""
    a, b = trial.suggest_float("a", 0, 1), trial.suggest_float("b", 0.5, 2.5)
    n, one = trial.suggest_int("n", 3, 9, step=2), trial.suggest_float("one", 2, 2)
    assert a + b <= 1.5 + 1e-9 and n + 10 * a >= 5 * one - 5 - 1e-9, trial.params
    return float(a + b + n * (trial.suggest_categorical("k", ["x", "y"]) == "x"))


@pytest.mark.full(but=("grid",))
@pytest.mark.parametrize("points", [None, 6], ids=["box", "grid"])
def test_no_suggestion_is_outside_of_constraints(points: Any) -> None:
    model = Model(kernel=jaxbandit.kernels.Constant(variance=1.0)) if points else None
    own = Sampler(
        jaxbandit.Cei() if points is None else jaxbandit.RandomSearch(), model, key=0, points=points, such_that=SUCH_THAT, space=CONSTRAINED
    )
    made = study(own)
    made.optimize(limited, n_trials=16)
    assert len({tuple(trial.params.items()) for trial in made.trials}) > 8
    if points is None:
        assert made.best_value > 10, "the best of n = 9 is on the edge a + b = 1.5"


def test_spaces_and_constraints_that_do_not_fit_are_refused_by_name() -> None:
    for options, words in (
        ({"such_that": SUCH_THAT}, r"^such_that: needs space, the distributions of all parameters by name, got None"),
        ({"such_that": ["a + c <= 1"], "space": CONSTRAINED}, r"^such_that\[0\]: 'a \+ c <= 1': names 'c', which is no axis"),
        ({"such_that": ["a + k <= 1"], "space": CONSTRAINED}, r"^such_that\[0\]: 'a \+ k <= 1': k has categories, which have no sums"),
        ({"such_that": ["one <= 1"], "space": CONSTRAINED}, r"^such_that\[0\]: 'one <= 1': must name a parameter of several values"),
        ({"such_that": ["a + b <= 0.4"], "space": CONSTRAINED}, r"^such_that\[0\]: .*exclude"),
        (
            {"such_that": ["a + n <= 9"], "space": {"a": FloatDistribution(0, 1), "n": IntDistribution(1, 10**6)}},
            r"n is rounded after the choice",
        ),
        ({"space": {"a": 3}}, r"^space: must be a mapping from names of parameters to distributions of Optuna or None, got"),
    ):
        with pytest.raises(InvalidArgument, match=words) as refusal:
            Sampler(jaxbandit.Cei(), key=0, **options)
        assert "\n" not in str(refusal.value)
    made = study(Sampler(jaxbandit.RandomSearch(), MODEL, key=0, space={"a": FloatDistribution(0, 1)}))
    with pytest.raises(
        InvalidArgument, match=r"^space: parameter a must be suggested as FloatDistribution\(high=1.0.*, got FloatDistribution\(high=3.0"
    ):
        made.ask().suggest_float("a", 2, 3)
