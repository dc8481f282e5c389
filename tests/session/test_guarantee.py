"""Sessions of algorithms that certify points."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit import InitialDesign, InvalidArgument, SafeOpt, SgpUcb, StageOpt, Status, kernels
from jaxbandit.session import Axis, Session, SessionError, read_toml
from jaxbandit.session.guarantee import fitted_once
from jaxbandit.session.specification import Specification
from jaxbandit.study import Model

SIDE, SEED = 30, 282
AXES = [Axis.between("x", 0, 1, SIDE), Axis.between("y", 0, 1, SIDE)]
GOALS: dict[str, Any] = {"objective": "maximise f", "constraints": ["g <= 0"]}
MODEL = Model(kernel=kernels.SquaredExponential(length_scale=0.4), noise_variance=1e-4)
KINDS = [SafeOpt, lambda **given: StageOpt(exploration=15.0, **given), lambda **given: SgpUcb(warm_up=3.0, **given)]
HISTORY = {
    "temperature": [60, 60, 60, 70, 70, 80, 80, 80],
    "catalyst": [0.4, 0.6, 1.0, 0.4, 0.6, 1.0, 0.8, 0.4],
    "yield": [43.8, 47.0, 48.4, 46.8, 51.2, 57.7, 60.8, 54.0],
    "impurity": [0.69, 0.80, 0.92, 0.87, 1.23, 1.20, 1.50, None],
}
PLANT = [Axis.between("temperature", 40, 130, 10, unit="°C"), Axis.between("catalyst", 0.2, 1.2, 6, unit="g/L")]
MODEL_OF_PLANT = Model(kernel=kernels.Scale(kernel=kernels.Matern52(length_scale=0.5), variance=9.0), noise_variance=0.01)
LIMIT: dict[str, Any] = {"objective": "maximise yield", "constraints": ["impurity <= 3"], "history": HISTORY}


def outcome(point: Any) -> dict[str, float]:
    x, y = point.values()
    return {"f": x, "g": 1.2 * (x - 0.3) ** 2 + 1.2 * (y - 0.4) ** 2 - 0.35}


def create(algorithm: Any = None, model: Any = None, **options: Any) -> Session:
    return Session.create(None, AXES, algorithm or SafeOpt(seeds=[SEED]), model, key=0, **GOALS | options)


def told(session: Session, rounds: int) -> list[jb.session.Ticket]:
    """Return tickets that were told one after the other."""
    tickets = []
    for _ in range(rounds):
        tickets.append(session.ask())
        session.tell(tickets[-1], outcome(tickets[-1].point))
    return tickets


def unsafe(tickets: Any) -> list[int]:
    return [ticket.number for ticket in tickets if outcome(ticket.point)["g"] > 0]


@pytest.mark.parametrize("kind", [KINDS[0], *(pytest.param(kind, marks=pytest.mark.full) for kind in KINDS[1:])])
@pytest.mark.parametrize("initial", [None, pytest.param(InitialDesign(indices=[SEED]), marks=pytest.mark.full)])
def test_no_unsafe_point_is_asked_for_without_a_model(kind: Callable[..., Any], initial: Any) -> None:
    session = create(kind(seeds=[SEED]), initial=initial)
    assert session.specification.standardise is False
    with pytest.warns(
        UserWarning, match=r"fit: \w+ promises that constraints hold as far as this prior does, fitted once, to 1 point: g has"
    ):
        tickets = told(session, 32)
    assert tickets[0].index == SEED and not unsafe(tickets) and len({ticket.index for ticket in tickets}) > 10
    assert [event.kind for event in session.events].count("fitted") == 1, "and never at doubling numbers"
    assert "fitted once" in session._repr_html_()


def test_a_rule_names_an_axis_of_the_session() -> None:
    sessions = [create(SafeOpt(seeds=[SEED], safety=jb.safety.Monotone(axis=axis)), MODEL) for axis in (1, "y")]
    by_number, by_name = ([ticket.index for ticket in told(session, 3)] for session in sessions)
    assert by_name == by_number and len({*by_name}) == 3
    assert Specification.from_table(sessions[1].specification.table()).algorithm.safety.axis == "y"
    with pytest.raises(InvalidArgument, match="must be one of the axes x, y, or its number from 0, got 'z'"):
        create(SafeOpt(seeds=[SEED], safety=jb.safety.Monotone(axis="z")), MODEL)


def test_no_unsafe_point_is_asked_for_with_a_model_in_units_and_many_runs_under_way() -> None:
    session = create(model=MODEL)
    tickets = [session.ask()]
    session.tell(tickets[0], outcome(tickets[0].point))
    for _ in range(4):
        tickets += (late := session.ask(8))
        for ticket in late[::-1]:
            session.tell(ticket, outcome(ticket.point))
    assert not unsafe(tickets) and len({ticket.index for ticket in tickets}) > 12
    assert all(event.kind != "fitted" for event in session.events)


@pytest.mark.full
@pytest.mark.usefixtures("on_cpu")
def test_a_session_makes_the_choices_of_a_simulation() -> None:
    domain = jb.domains.grid([0.0, 0.0], [1.0, 1.0], 12)
    problem = jb.problems.gp_draws(domain=domain, kernel=MODEL.kernel, noise=jb.problems.Gaussian(variance=1e-4))
    instance = problem.sample(jax.random.key(2))
    seeds, options = [int(jb.informed.safest(instance, 1)[0])], {"key": jax.random.key(5), "initial": None}
    options["initial"] = InitialDesign(indices=seeds)
    model = MODEL.of(domain, 2, 21, "model")
    run = jb.simulate(instance, SafeOpt(seeds=seeds), model, horizon=20, trials=1, record="all", **options)
    session = Session.create(
        None, domain, SafeOpt(seeds=seeds), MODEL, horizon=20, delay=jb.delays.NoDelay(), key=options["key"], constraints=["cost <= 0"]
    )
    for index, values in zip([*run.initial_indices[0], *run.indices[0]], [*run.initial_values[0], *run.values[0]], strict=True):
        ticket = session.ask()
        assert ticket.index == int(index), ticket.number
        session.tell(ticket, reward=float(values[0]), constraints=float(values[1]))


def test_points_are_certified_once_the_seeds_have_been_told() -> None:
    session = create(SafeOpt(seeds=[SEED, SEED + 1]))
    with pytest.raises(SessionError, match=r"fitted once, to the values at its seeds; tell or drop tickets 1, 2 first"):
        session.ask(3)
    first = session.ask(2)
    session.tell(first[0], {"g": -0.34})
    with pytest.raises(SessionError, match=r"tell or drop tickets 1, 2 first"):
        session.ask()
    for ticket in first:
        session.drop(ticket)
    with pytest.raises(SessionError, match=r"no value of a seed of SafeOpt has been told"):
        session.ask()
    assert len(session.told) == 2, "nothing has happened"


def test_a_seed_that_is_unsafe_ends_the_session_unless_another_is_left() -> None:
    session = create(SafeOpt(seeds=[899]), model=MODEL)
    told(session, 1)
    with pytest.raises(
        SessionError, match=r"ask: no point was certified safe and no seed was left .*\(give seeds that are known to be safe\)"
    ):
        session.ask()
    session = create(SafeOpt(seeds=[899, SEED]), model=MODEL)
    with pytest.warns(UserWarning, match=r"ask: values showed with certainty that a constraint does not hold at a seed") as said:
        tickets = told(session, 12)
    assert len(said) == 1 and unsafe(tickets) == [2] and tickets[2].status & Status.SEED_UNSAFE


def test_a_set_that_stands_still_is_warned_of_once() -> None:
    session = create(model=Model(kernel=kernels.SquaredExponential(length_scale=0.1), noise_variance=1e-4))
    with pytest.warns(UserWarning, match=r"ask: the safe set stood still: .*\(give a smaller cost_width, a longer length-scale") as said:
        tickets = told(session, 6)
    assert len(said) == 1 and {ticket.index for ticket in tickets} == {SEED} and tickets[-1].status & Status.SAFE_SET_STILL


def test_what_voids_the_guarantee_writes_nothing(tmp_path: Path) -> None:
    """``golden/refusals.json`` has all that voids it."""
    with pytest.raises(InvalidArgument, match=r"^SafeOpt\.seeds: needs points"):
        Session.create(tmp_path / "session", AXES, SafeOpt(), key=0, **GOALS)
    assert not (tmp_path / "session").exists()


def test_a_box_and_a_fit_are_refused_and_so_is_a_prior_that_values_belie() -> None:
    with pytest.raises(InvalidArgument, match=r"SafeOpt chooses among the points of a grid; give every axis a number of points"):
        Session.create(None, {"x": (0.0, 1.0)}, SafeOpt(), key=0, seeds=[{"x": 0.5}], constraints=["g <= 0"])
    session = create(model=MODEL)
    ticket = told(session, 1)[0]
    with pytest.raises(SessionError, match=r"fit: SafeOpt certifies points by the model's prior, which a fit would replace; begin another"):
        session.fit()
    with pytest.warns(UserWarning, match="prior deviations"):
        session = create(model=MODEL)
        session.tell(session.ask(), {"f": 1.0, "g": -80.0})
    with pytest.raises(SessionError, match=r"ask: g = -80 is 80 prior deviations from the prior mean"):
        session.ask()
    session.tell(ticket.number, {"g": -0.3}, correct=True)
    assert not unsafe(told(session, 2))


def test_an_output_with_two_limits_stays_between_them() -> None:
    session = Session.create(None, AXES, SafeOpt(seeds=[SEED]), key=0, objective="maximise f", constraints=["h >= -0.2", "h <= 0.3"])
    measured = []
    with pytest.warns(UserWarning, match=r"h has mean 0\.05, between its bounds, deviation 0\.\d+"):
        for _ in range(8):
            ticket = session.ask()
            x, y = ticket.point.values()
            measured.append(x - y + 0.15)
            session.tell(ticket, {"f": x, "h": measured[-1]})
    assert min(measured) >= -0.2 and max(measured) <= 0.3 and len(set(measured)) > 3


def test_the_prior_deviation_between_two_limits_is_the_distance_to_the_further() -> None:
    session = Session.create(None, AXES, SafeOpt(seeds=[SEED]), key=0, objective="maximise f", constraints=["h >= -0.2", "h <= 0.3"])
    with pytest.warns(UserWarning, match=r"h has mean 0\.05, between its bounds"):
        _, standard = fitted_once(session.specification, [(SEED, {"f": 0.3, "h": 0.15})])
    assert standard.scale[1] == pytest.approx(0.35)


def test_rows_of_a_history_that_held_are_seeds_and_the_first_points_are_near_them() -> None:
    with pytest.warns(UserWarning, match="fitted once, to 8 points"):
        session = Session.create(None, PLANT, SafeOpt(), key=0, **LIMIT)
    columns = session.specification.space.columns
    seeds = np.asarray(session.specification.algorithm.seeds)
    assert sorted(columns["temperature"][seeds]) == HISTORY["temperature"][:7], "the last one lacks its impurity"
    point = session.ask().point
    assert point["temperature"] <= 90, "no corner of the plant"
    others = {**HISTORY, "impurity": [0.69, 0.80, 3.2, 0.87, 1.23, 1.20, 1.50, None]}
    session = Session.create(None, PLANT, SafeOpt(), MODEL_OF_PLANT, key=0, **LIMIT | {"history": others})
    kept = columns["temperature"][np.asarray(session.specification.algorithm.seeds)]
    assert sorted(kept) == [60, 60, 70, 70, 80, 80], "nor is one that did not hold a seed"
    session = Session.create(None, PLANT, SafeOpt(), MODEL_OF_PLANT, seeds=[{"temperature": 50, "catalyst": 0.4}], key=0, **LIMIT)
    ticket = session.ask()
    assert ticket.round == 0 and ticket.point == {"temperature": 50, "catalyst": 0.4}, "a seed that was not measured comes first"
    assert session.ask().round == 1


def test_no_point_lies_further_than_the_step_from_one_that_held() -> None:
    optimist = Model(kernel=kernels.SquaredExponential(length_scale=2.0), noise_variance=1e-4)
    wide, step = create(model=optimist), {"x": 0.07}
    near = create(model=optimist, max_step=step)
    told(wide, 3)
    tickets = told(near, 25)
    held = [tickets[0].point["x"]]
    for ticket in tickets[1:]:
        assert min(abs(ticket.point["x"] - x) for x in held) <= 0.07 * (1 + 1e-6)
        held += [ticket.point["x"]] if outcome(ticket.point)["g"] <= 0 else []
    assert len(set(held)) > 4
    far = [abs(ticket["x"] - tickets[0].point["x"]) for ticket in (event_point(wide, number) for number in (2, 3))]
    assert max(far) > 0.07, "without a step it goes further at once"


def event_point(session: Session, number: int) -> Any:
    return session.specification.space.point(int(session.history()["index"].values[number - 1]))


def test_a_session_goes_on_where_it_was(tmp_path: Path) -> None:
    made = {"seeds": [{"x": AXES[0].values[9], "y": AXES[1].values[12]}], "max_step": {"y": 0.2}, "key": 0, **GOALS}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = Session.create(tmp_path / "one", AXES, SafeOpt(), **made)
        other = Session.create(None, AXES, SafeOpt(), **made)
        told(one, 8)
        told(other, 8)
    one.close()
    with Session.open(tmp_path / "one") as again:
        assert again.specification.is_guarded and again.specification.max_step == {"y": 0.2}
        assert again.specification.algorithm.seeds == [SEED]
        assert again.ask().point == other.ask().point


OLD: dict[str, Any] = {
    "space": {"axes": [{"name": name, "values": [0.0, 0.2, 0.4, 0.6, 0.8, 1.0], "scale": "linear"} for name in ("x", "y")]},
    "objective": "maximise f",
    "constraints": ["g <= 0.0"],
    "algorithm": {
        "type": "SafeOpt",
        "estimator": {"type": "Bounds", "reward_width": 3.0, "cost_width": 3.0},
        "seeds": [14],
        "threshold": 0.0,
        "together": True,
    },
    "model": None,
    "key": {"generator": "threefry2x32", "data": [0, 0]},
    "initial": {"indices": [21, 14, 11, 24, 34, 1], "random": 0},
    "standardise": True,
    "delay": None,
    "feedback": {"type": "Hallucinate"},
    "horizon": 20,
    "capacity": None,
    "fit_every": None,
}


def test_a_journal_of_before_keeps_what_it_meant(tmp_path: Path) -> None:
    """An earlier version's session does not begin at its seeds."""
    specification = Specification.from_table(OLD)
    assert not specification.is_guarded and specification.standardise is True and specification.table() == OLD
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Session.begin(tmp_path / "old", specification) as session:
            assert [ticket.index for ticket in told(session, 14)][:6] == [21, 14, 11, 24, 34, 1]
        with Session.open(tmp_path / "old") as again:
            assert not again.specification.is_guarded
            again.fit()
            assert [event.kind for event in again.events].count("fitted") > 2 and again.ask().number == 15


def test_a_file_says_seeds_and_steps(tmp_path: Path) -> None:
    file = tmp_path / "plant.toml"
    text = """
objective = "maximise yield"
constraints = ["impurity <= 3"]
seeds = [{temperature = 60, catalyst = 0.4}]
max_step = {temperature = 10}
[axis.temperature]
low = 40
high = 130
points = 10
[axis.catalyst]
low = 0.2
high = 1.2
points = 6
[algorithm]
type = "SafeOpt"
"""
    file.write_text(text)
    session = Session.begin(None, read_toml(file))
    assert session.ask().point == {"temperature": 60, "catalyst": 0.4} and session.specification.max_step == {"temperature": 10}
    file.write_text(text.replace("temperature = 10", "heat = 10"))
    with pytest.raises(InvalidArgument, match=r"max_step\.heat: unknown field; the axes are temperature, catalyst"):
        read_toml(file)
