"""Sessions on continuous boxes: choices of a simulation, points off any grid, reopening, corrections, and what is under way."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from jaxbandit import InitialDesign, InvalidArgument, Refitted, Rpol, SafeOpt, Unconstrained, delays, domains, kernels, problems, simulate
from jaxbandit.core.keys import Stream, round_key, stream_key, trial_key
from jaxbandit.estimators import Bounds
from jaxbandit.feedback import Wait
from jaxbandit.session import Axis, Model, Session
from jaxbandit.session.axes import Space
from tests.oracles.gaussian_process import squared_exponential

AXES = [Axis.between("dose", 0.1, 2.0, unit="mg"), Axis.between("rate", 1e-4, 1e-1, scale="logarithmic")]
BOX = domains.box({"dose": (0.1, 2.0), "rate": domains.log(1e-4, 1e-1)})
MODEL = Model(kernel=kernels.SquaredExponential(length_scale=0.3), noise_variance=0.01)
KEY, HORIZON, FIRST = jax.random.key(4), 6, 3
OPTIONS: dict[str, Any] = {
    "key": KEY,
    "horizon": HORIZON,
    "objective": "maximise yield",
    "constraints": ["heat <= 0"],
    "standardise": False,
}


def reward(x: Any) -> jax.Array:
    return jnp.exp(-((x[0] - 1.3) ** 2) / 0.3 - (jnp.log10(x[1]) + 2) ** 2 / 0.5)


def cost(x: Any) -> jax.Array:
    return x[0] - 1.2 + 0.2 * (jnp.log10(x[1]) + 2)


PROBLEM = problems.on_box(BOX, reward, [cost], noise_variance=0.01)
values_at = jax.jit(lambda x: jnp.stack([reward(x), cost(x)]))


def told(point: Mapping[str, Any], noise: np.ndarray | float = 0.0) -> dict[str, float]:
    values = np.asarray(values_at(np.asarray([point["dose"], point["rate"]], np.float32))) + noise
    return {"yield": float(values[0]), "heat": float(values[1])}


def noises(stream: Stream, count: int) -> np.ndarray:
    """The noise ``[count, 2]`` of trial 0 of a simulation."""
    key = stream_key(trial_key(KEY, 0), stream)
    return np.asarray([PROBLEM.draw(round_key(key, t)) for t in range(1, count + 1)])


def points_of(session: Session) -> np.ndarray:
    held = session.history()
    return np.stack([held["dose"].values, held["rate"].values], axis=-1)


@pytest.mark.parametrize("form", ["auto", pytest.param("features", marks=pytest.mark.full)])
def test_choices_are_those_of_a_simulation(form: str, tmp_path: Path) -> None:
    """With the key, the model and the values of a simulation on the same box, told before the next round; and when it is opened again.

    To 1e-3 sides, three times what float32 resolves of where a maximum lies (the root of its rounding error): points of sessions have six
    digits, and programs of their own; from there on both learn from points that far apart. Seen: 1.4e-4 and 3.8e-4 sides.
    """
    design = InitialDesign(random=FIRST)
    model = dataclasses.replace(MODEL, form=form)
    session = Session.create(tmp_path, AXES, Rpol(), model, delay=delays.NoDelay(), initial=design, **OPTIONS)
    first, later = noises(Stream.DESIGN, FIRST), noises(Stream.NOISE, HORIZON)
    for number in range(FIRST + 3):
        ticket = session.ask()
        session.tell(ticket, told(ticket.point, first[ticket.number - 1] if ticket.round == 0 else later[ticket.round - 1]))
        assert (ticket.index, ticket.round) == (BOX.size + number, max(0, number - FIRST + 1))
    session.close()
    with Session.open(tmp_path) as again:
        while len(points_of(again)) < FIRST + HORIZON:
            ticket = again.ask()
            again.tell(ticket, told(ticket.point, later[ticket.round - 1]))
        chosen = points_of(again)
    run = simulate(PROBLEM, Rpol(), model.of(BOX, 2, HORIZON, "model"), horizon=HORIZON, key=KEY, initial=design, record="indices")
    played = np.concatenate([run.initial_points[0], run.points[0]])
    np.testing.assert_allclose(BOX.to_unit(chosen), BOX.to_unit(np.asarray(played, np.float64)), rtol=0, atol=1e-3)


def test_points_of_no_grid_are_believed_where_they_are(tmp_path: Path) -> None:
    """What is told of any point of the box moves the belief there, under its own number; beyond the box nothing is told."""
    with Session.create(tmp_path, AXES, Rpol(), MODEL, **OPTIONS) as session:
        place = {"dose": 0.7310, "rate": 3.21e-3}
        ticket = session.observe(place, {"yield": 2.0, "heat": -1.0})
        assert (ticket.point, ticket.distance, ticket.observed) == (pytest.approx(place), 0.0, True)
        belief = session.belief()
        assert belief.sizes["point"] == BOX.size + 1 == ticket.index + 1
        mean, sd = 2.0 / 1.01, np.sqrt(1 - 1 / 1.01)  # one value under noise 0.01, about a prior mean of 0 and a variance of 1
        assert float(belief["mean"].sel(output="yield")[ticket.index]) == pytest.approx(mean, abs=1e-4)
        assert float(belief["sd"].sel(output="yield")[ticket.index]) == pytest.approx(sd, abs=1e-4)
        assert session.recommend(measured=True).index == ticket.index
        for wrong in ({"dose": 2.5, "rate": 1e-3}, {"dose": 1.0, "rate": 2e-1}, {"dose": 1.0}):
            with pytest.raises(InvalidArgument, match=r"dose|rate|point"):
                session.observe(wrong, {"yield": 1.0})
    with pytest.raises(InvalidArgument, match=r"step.*continuous"):
        Session.create(tmp_path / "mixed", [*AXES, Axis("step", (1, 2, 4))], Rpol(), MODEL, **OPTIONS)
    with pytest.raises(InvalidArgument, match=r"algorithm: SafeOpt chooses among the points of a grid"):
        Session.create(tmp_path / "sets", AXES, SafeOpt(count=2), MODEL, **OPTIONS)


@pytest.mark.full
def test_the_recommended_point_is_the_best_of_the_box() -> None:
    """Against a dense posterior, of which SciPy finds the best mean where the constraint holds with a probability; one run is under way.

    Shares of 1e-3 are where six digits of a point lie, and 1e-5 within the edge of what is feasible.
    """
    unit, values = np.random.default_rng(3).uniform(size=(9, 2)), []
    with Session.create(None, AXES, Rpol(), MODEL, **OPTIONS) as session:
        for place in unit:
            point = dict(zip(("dose", "rate"), BOX.from_unit(place).tolist(), strict=True))
            values.append(told(point))
            session.observe(point, values[-1])
        session.observe({"dose": 1.0, "rate": 1e-2}, None)
        table = np.asarray([[one["yield"], one["heat"]] for one in values]).T
        root = np.linalg.inv(squared_exponential(unit, unit, 0.3) + 0.01 * np.eye(9))

        def at(x: np.ndarray) -> tuple[np.ndarray, float]:
            cross = squared_exponential(x[None], unit, 0.3)[0]
            return table @ (root @ cross), float(np.sqrt(1 - cross @ root @ cross))

        for probability in (0.5, 0.9):
            best = session.recommend(probability)
            assert best.index is None and best.feasible and best.probability_of_feasibility < probability + 1e-3
            limit = {"type": "ineq", "fun": lambda x, level=norm.ppf(probability): -at(x)[0][1] - level * at(x)[1]}
            starts = np.random.default_rng(0).uniform(size=(20, 2))
            solved = [minimize(lambda x: -at(x)[0][0], x, bounds=[(0, 1)] * 2, constraints=limit) for x in starts]
            most = max(-one.fun for one in solved if limit["fun"](one.x) > -1e-6)
            place = BOX.to_unit(np.asarray([best.point["dose"], best.point["rate"]], np.float64))
            mean, sd = at(place)
            assert most - 1e-3 < mean[0] < most + 1e-6
            assert [*best.mean.values()] == pytest.approx(mean, abs=1e-5) and best.sd["heat"] == pytest.approx(sd, abs=1e-5)
            known = session.recommend(probability, measured=True)
            assert known.index is not None and known.mean["yield"] < best.mean["yield"]
        assert session.plot().axes


@pytest.mark.full
def test_a_learner_that_fits_its_own_model_recommends_by_that() -> None:
    """The best point is on the edge, at a dose of 1.2."""
    learner = Refitted(algorithm=Rpol(), every=4, at_start=True)
    options = OPTIONS | {"delay": delays.NoDelay(), "initial": InitialDesign(random=FIRST)}
    with Session.create(None, domains.box({"dose": (0.0, 2.0)}, candidates=16), learner, MODEL, **options) as session:
        for _ in range(FIRST + 4):
            ticket = session.ask()
            dose = float(ticket.point["dose"])
            session.tell(ticket, {"yield": -((dose - 1.5) ** 2), "heat": dose - 1.2})
        best = session.recommend()
        assert best.feasible and best.point["dose"] == pytest.approx(1.2, abs=0.05)


@pytest.mark.full
def test_no_point_under_way_is_asked_for_again(tmp_path: Path) -> None:
    """Of a learner that takes no notice of what is under way: it would repeat itself; and when the session is opened again."""

    rule = Unconstrained(estimator=Bounds(reward_width=2.0, cost_width=2.0))

    def begun(directory: Path | None) -> Session:
        session = Session.create(directory, AXES, rule, MODEL, feedback=Wait(), **OPTIONS)
        session.observe({"dose": 0.7, "rate": 1e-2}, {"yield": 0.5, "heat": -0.5})
        return session

    with begun(None) as session:
        session.ask(3)
        asked = BOX.to_unit(points_of(session)[1:])
    apart = np.max(np.abs(asked[:, None] - asked[None]), axis=-1)[np.triu_indices(3, 1)]
    assert np.all(apart > 9e-4), apart  # what lies within 1e-3 is shunned, but for six digits
    with begun(tmp_path) as other:
        other.ask(2)
    with Session.open(tmp_path) as again:
        again.ask()
        assert np.array_equal(BOX.to_unit(points_of(again)[1:]), asked)


@pytest.mark.full
def test_a_session_that_is_opened_again_chooses_as_if_it_had_not_been_closed(tmp_path: Path) -> None:
    """With late values, an observation in between, which has a number between those of two rounds, and a correction: bit for bit."""

    def play(directory: Path, *, close: bool) -> np.ndarray:
        session = Session.create(directory, AXES, Rpol(), MODEL, **OPTIONS)
        waiting = []
        for number in range(5):
            waiting.append(session.ask())
            if number == 1:
                session.observe({"dose": 0.4, "rate": 5e-4}, {"yield": 0.1, "heat": -0.5})
            if number >= 2:
                session.tell(waiting[-2], told(waiting[-2].point))
            if number == 3:
                session.tell(waiting[-2], {"yield": 0.9, "heat": -0.4}, correct=True)
            if close:
                session.close()
                session = Session.open(directory)
        with session:
            return points_of(session)

    kept, reopened = play(tmp_path / "kept", close=False), play(tmp_path / "reopened", close=True)
    assert np.array_equal(kept, reopened)
    assert len(np.unique(kept, axis=0)) == 6


@pytest.mark.full
def test_a_session_without_a_model_finds_the_best_point(tmp_path: Path) -> None:
    """Fitted from six Sobol points on, with three runs under way, none of which repeats another."""
    options = OPTIONS | {"horizon": 100, "standardise": True}
    with Session.create(tmp_path, AXES, Rpol(), **options) as session:
        for _ in range(9):
            tickets = session.ask(3)
            for one in tickets:
                session.tell(one, told(one.point))
        assert len(np.unique(points_of(session), axis=0)) == 27
        best = session.recommend()
        assert best.feasible
        assert float(reward(np.asarray([best.point["dose"], best.point["rate"]]))) > PROBLEM.best.value - 0.05


@pytest.mark.full
def test_a_table_of_a_session_can_be_told_and_looked_at(tmp_path: Path) -> None:
    """The history of one session is another's, by its points; figures of one, two and three axes are drawn."""
    more = [*AXES, Axis.between("time", 1.0, 5.0)]
    for axes in (AXES[:1], AXES, more):
        names = [axis.name for axis in axes]
        with Session.create(tmp_path / str(len(axes)), axes, Rpol(), MODEL, **OPTIONS) as session:
            for share in (0.2, 0.5, 0.7):
                session.observe(
                    {axis.name: axis.values[0] + share * (axis.values[1] - axis.values[0]) for axis in axes},
                    {"yield": share, "heat": -share},
                )
            if axes is AXES:  # whose programs other tests have, too
                session.ask()
            table = session.history().to_dataframe().reset_index()
            assert session.plot().axes
        with Session.create(
            tmp_path / f"again {len(axes)}", axes, Rpol(), MODEL, history=table[[*names, "yield", "heat"]], **OPTIONS
        ) as other:
            assert np.allclose(other.history()["dose"].values, table["dose"].values)
            ticket = session.told
            assert list(other.told.values()) == list(ticket.values())


def test_whole_numbers_beside_continuous_axes() -> None:
    """They are a side of the box; an axis that leaves some out is none."""
    space = Space.of([AXES[0], Axis.between("layers", 1, 5, 5)])
    assert isinstance(space.domain, domains.Box) and space.domain.sides[1] == domains.integers(1, 5)
    assert space.point_at(space.place({"dose": 0.5, "layers": 4})) == {"dose": 0.5, "layers": 4}
    for values, scale in (((1, 2, 4), "linear"), ((1.5, 2.5), "linear"), ((1, 2, 3), "logarithmic")):
        with pytest.raises(InvalidArgument, match=r"^domain: the axis layers has values of its own beside continuous ones"):
            Space.of([AXES[0], Axis("layers", values, scale=scale)])


@pytest.mark.full
def test_categories_beside_continuous_axes(tmp_path: Path) -> None:
    """The category that serves best is found, and points say their labels; a label that is none is refused."""
    axes = [AXES[0], Axis.of_categories("catalyst", ["none", "nickel", "palladium"])]
    gains = {"none": 0.0, "nickel": 0.5, "palladium": 1.0}
    with Session.create(tmp_path, axes, Rpol(), key=KEY, objective="maximise yield") as session:
        for _ in range(16):
            ticket = session.ask()
            point: Mapping[str, Any] = ticket.point
            session.tell(ticket, {"yield": gains[point["catalyst"]] - (point["dose"] - 1.0) ** 2})
        asked = session.history()["catalyst"].values
        assert {*asked} == {*gains}
        best = session.recommend()
        assert best.point["catalyst"] == "palladium" and abs(float(best.point["dose"]) - 1.0) < 0.1
        assert session.observe({"dose": 0.5, "catalyst": "nickel"}, {"yield": 0.25}).point["catalyst"] == "nickel"
        with pytest.raises(InvalidArgument, match="catalyst"):
            session.observe({"dose": 0.5, "catalyst": "iron"}, {"yield": 0.25})
