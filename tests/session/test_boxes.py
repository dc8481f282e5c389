"""Sessions on continuous boxes."""

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

import jaxbandit as jb
from jaxbandit import InvalidArgument, delays, domains, kernels, problems
from jaxbandit.algorithms import Algorithm
from jaxbandit.algorithms.base import Arena, Decision
from jaxbandit.core.keys import Stream, round_key, stream_key, trial_key
from jaxbandit.core.pytree import pytree
from jaxbandit.feedback import Wait
from jaxbandit.rules.estimators import Bounds
from jaxbandit.session import Axis, Model, Session
from jaxbandit.session.axes import Space
from jaxbandit.session.specification import Specification
from jaxbandit.surrogates import BoxSurrogate
from tests.oracles.gaussian_process import matern52, mean_and_sd

AXES = [Axis.between("dose", 0.1, 2.0, unit="mg"), Axis.between("rate", 1e-4, 1e-1, scale="logarithmic")]
BOX = domains.box({"dose": (0.1, 2.0), "rate": domains.log(1e-4, 1e-1)})
MODEL = Model(kernel=kernels.SquaredExponential(length_scale=0.3), noise_variance=0.01)
KEY, HORIZON, FIRST = jax.random.key(4), 6, 3
# With a horizon of 48 and a point that was observed its programs are those of sessions without a model, which has such kernels once fitted.
LENGTHS = np.asarray([[0.3, 0.4], [0.6, 0.5]])
FITTED = Model(
    kernel=[1.0 * kernels.Matern52(length_scale=lengths) for lengths in LENGTHS.tolist()], noise_variance=0.01, precision="float64"
)
OPTIONS: dict[str, Any] = {
    "key": KEY,
    "horizon": HORIZON,
    "objective": "maximise yield",
    "constraints": ["heat <= 0"],
    "standardise": False,
}
LONG = OPTIONS | {"horizon": 48}


def reward(x: Any) -> jax.Array:
    return jnp.exp(-((x[0] - 1.3) ** 2) / 0.3 - (jnp.log10(x[1]) + 2) ** 2 / 0.5)


def cost(x: Any) -> jax.Array:
    return x[0] - 1.2 + 0.2 * (jnp.log10(x[1]) + 2)


PROBLEM = problems.on_box(BOX, reward, [cost], noise_variance=0.01)
values_at = jax.jit(lambda x: jnp.stack([reward(x), cost(x)]))


def told(point: Mapping[str, Any], noise: np.ndarray | float = 0.0) -> dict[str, float]:
    values = np.asarray(values_at(np.asarray([point["dose"], point["rate"]], np.float32))) + noise
    return {"yield": float(values[0]), "heat": float(values[1])}


@jax.jit
def noises() -> tuple[jax.Array, jax.Array]:
    """Return a simulation's noise ``[n, 2]`` in its design and its rounds."""
    keys = (stream_key(trial_key(KEY, 0), stream) for stream in (Stream.DESIGN, Stream.NOISE))
    return tuple(jax.vmap(lambda t, key=key: PROBLEM.draw(round_key(key, t)))(1 + jnp.arange(HORIZON)) for key in keys)


def points_of(session: Session) -> np.ndarray:
    held = session.history()
    return np.stack([held["dose"].values, held["rate"].values], axis=-1)


@pytest.mark.parametrize(
    ("form", "algorithm"),
    [pytest.param("auto", jb.Rpol(), id="auto"), pytest.param("features", jb.Unconstrained(), id="features", marks=pytest.mark.full)],
)
def test_choices_are_those_of_a_simulation(form: str, algorithm: Any, tmp_path: Path) -> None:
    """Points are those of a simulation with the same key and values.

    They agree to 1e-3 sides, three times the error of a maximum in float32, because points of sessions have six digits. Seen: 1.4e-4
    and 3.8e-4 sides.
    """
    design = jb.InitialDesign(random=FIRST)
    model = dataclasses.replace(MODEL, form=form)
    session = Session.create(tmp_path, AXES, algorithm, model, delay=delays.NoDelay(), initial=design, **OPTIONS)
    first, later = map(np.asarray, noises())
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
    run = jb.simulate(PROBLEM, algorithm, model.of(BOX, 2, HORIZON, "model"), horizon=HORIZON, key=KEY, initial=design, record="indices")
    played = np.concatenate([np.asarray(run.initial_points), np.asarray(run.points)], axis=1)[0]
    np.testing.assert_allclose(BOX.to_unit(chosen), BOX.to_unit(np.asarray(played, np.float64)), rtol=0, atol=1e-3)


@pytree
class MostSeenState:
    """State with the largest mean of the reward after any value."""

    posterior: Any
    most: jax.Array


@pytree
class MostSeen(Algorithm[MostSeenState]):
    """An algorithm that reads its posterior while it learns."""

    on_boxes = True

    def init(self, arena: Arena) -> MostSeenState:
        return MostSeenState(posterior=arena.surrogate.init(), most=jnp.asarray(-jnp.inf, arena.dtype))

    def select(self, arena: Arena, state: MostSeenState, t: jax.Array, key: jax.Array) -> tuple[Decision, MostSeenState]:
        point = jnp.full((arena.domain.dimension,), 0.5, arena.dtype)
        index, state = self.place(arena, state, point)
        return Decision(index=index, widths=jnp.zeros(2, arena.dtype), point=point), state

    def learn(self, arena: Arena, state: MostSeenState, observation: Any) -> MostSeenState:
        posterior = arena.learn(state.posterior, observation)
        return MostSeenState(posterior=posterior, most=jnp.maximum(state.most, arena.surrogate.belief(posterior).mean[0].max()))


@pytest.mark.parametrize("algorithm", [jb.Cei(), pytest.param(MostSeen(), marks=pytest.mark.full)], ids=["Cei", "one that reads"])
def test_many_rows_are_believed_as_a_dense_posterior_believes_them(algorithm: Any, tmp_path: Path) -> None:
    """The rows include some without a value and one told later."""
    rng, count = np.random.default_rng(0), 70
    unit = rng.random((count, 2))
    table = {"dose": 0.1 + 1.9 * unit[:, 0], "rate": 10 ** (-4 + 3 * unit[:, 1]), "yield": rng.normal(size=count)}
    table["heat"] = np.where(np.arange(count) % 7 == 5, np.nan, rng.normal(size=count))
    with Session.create(tmp_path, AXES, algorithm, FITTED, history=table, **OPTIONS) as session:
        state = session._state.course.latest().state
        if isinstance(algorithm, jb.Cei):
            assert np.flatnonzero(state.visited).tolist() == list(range(BOX.size, BOX.size + count))
        else:
            gram = matern52(unit, unit, LENGTHS[0])
            means = [mean_and_sd(gram, np.arange(n), table["yield"][:n], 0.01)[0] for n in (1, 2, count)]
            assert float(state.most) >= max(mean.max() for mean in means) - 1e-9
        session.tell(ticket := session.ask(), told(ticket.point))
        belief = session.belief()
        places = np.concatenate([unit, BOX.to_unit(points_of(session)[-1:])])
        for output, lengths in zip(("yield", "heat"), LENGTHS, strict=True):
            values = np.append(table[output], told(ticket.point)[output])
            seen = np.flatnonzero(~np.isnan(values))
            mean, sd = mean_and_sd(matern52(places, places, lengths), seen, values[seen], 0.01)
            np.testing.assert_allclose(belief["mean"].sel(output=output)[BOX.size :], mean, atol=1e-6)
            np.testing.assert_allclose(belief["sd"].sel(output=output)[BOX.size :], sd, atol=1e-6)


def test_points_of_no_grid_are_believed_where_they_are(tmp_path: Path) -> None:
    with Session.create(tmp_path, AXES, jb.Rpol(), MODEL, **OPTIONS) as session:
        place = {"dose": 0.7310, "rate": 3.21e-3}
        ticket = session.observe(place, {"yield": 2.0, "heat": -1.0})
        assert (ticket.point, ticket.distance, ticket.observed) == (pytest.approx(place), 0.0, True)
        belief = session.belief()
        assert belief.sizes["point"] == BOX.size + 1 == ticket.index + 1
        # One value has noise variance 0.01, prior mean 0 and prior variance 1.
        mean, sd = 2.0 / 1.01, np.sqrt(1 - 1 / 1.01)
        assert float(belief["mean"].sel(output="yield")[ticket.index]) == pytest.approx(mean, abs=1e-4)
        assert float(belief["sd"].sel(output="yield")[ticket.index]) == pytest.approx(sd, abs=1e-4)
        assert session.recommend().index == ticket.index
        for wrong in ({"dose": 2.5, "rate": 1e-3}, {"dose": 1.0, "rate": 2e-1}, {"dose": 1.0}):
            with pytest.raises(InvalidArgument, match=r"dose|rate|point"):
                session.observe(wrong, {"yield": 1.0})
    with pytest.raises(InvalidArgument, match=r"step.*continuous"):
        Session.create(tmp_path / "mixed", [*AXES, Axis("step", (1, 2, 4))], jb.Rpol(), MODEL, **OPTIONS)
    with pytest.raises(InvalidArgument, match=r"algorithm: SafeOpt chooses among the points of a grid"):
        Session.create(tmp_path / "sets", AXES, jb.SafeOpt(count=2), MODEL, **OPTIONS)


@pytest.mark.full
def test_the_recommended_point_is_the_best_of_the_box() -> None:
    """SciPy finds the best mean of a dense posterior under the constraint.

    The tolerances are the six digits of a point (1e-3) and the edge of the feasible set (1e-5). One run is under way.
    """
    unit, values = np.random.default_rng(3).uniform(size=(9, 2)), []
    with Session.create(None, AXES, jb.Rpol(), FITTED, **LONG) as session:
        for place in unit:
            point = dict(zip(("dose", "rate"), BOX.from_unit(place).tolist(), strict=True))
            values.append(told(point))
            session.observe(point, values[-1])
        session.observe({"dose": 1.0, "rate": 1e-2}, None)
        table = np.asarray([[one["yield"], one["heat"]] for one in values]).T
        roots = [np.linalg.inv(matern52(unit, unit, lengths) + 0.01 * np.eye(9)) for lengths in LENGTHS]

        def at(x: np.ndarray) -> tuple[list[float], float]:
            cross = [matern52(x[None], unit, lengths)[0] for lengths in LENGTHS]
            means = [float(own @ root @ k) for own, root, k in zip(table, roots, cross, strict=True)]
            return means, float(np.sqrt(1 - cross[1] @ roots[1] @ cross[1]))

        for probability in (0.5, 0.9):
            best = session.recommend(probability, anywhere=True)
            assert best.index is None and best.feasible and best.probability_of_feasibility < probability + 1e-3
            limit = {"type": "ineq", "fun": lambda x, level=norm.ppf(probability): -at(x)[0][1] - level * at(x)[1]}
            starts = np.random.default_rng(0).uniform(size=(20, 2))
            solved = [minimize(lambda x: -at(x)[0][0], x, bounds=[(0, 1)] * 2, constraints=limit) for x in starts]
            most = max(-one.fun for one in solved if limit["fun"](one.x) > -1e-6)
            place = BOX.to_unit(np.asarray([best.point["dose"], best.point["rate"]], np.float64))
            mean, sd = at(place)
            assert most - 1e-3 < mean[0] < most + 1e-6
            assert [*best.mean.values()] == pytest.approx(mean, abs=1e-5) and best.sd["heat"] == pytest.approx(sd, abs=1e-5)
            known = session.recommend(probability)
            assert known.index is not None and known.mean["yield"] < best.mean["yield"]
        assert session.plot().axes


@pytest.mark.full
@pytest.mark.parametrize("seed", [7, 8])
def test_the_point_believed_best_is_that_of_a_dense_search(seed: int) -> None:
    lengths, bounds, unit = (
        np.asarray([[0.3, 0.4], [0.6, 0.5], [0.4, 0.7]]),
        np.asarray([0.0, 0.3]),
        domains.box({"a": (0, 1), "b": (0, 1)}),
    )
    model = Model(kernel=[1.0 * kernels.Matern52(length_scale=one) for one in lengths.tolist()], noise_variance=1e-4, precision="float64")
    rng = np.random.default_rng(seed)
    places = rng.uniform(size=(8, 2))
    tables = [matern52(places, places, one) + 1e-4 * np.eye(8) for one in lengths]
    values = np.stack([np.linalg.cholesky(table) @ rng.standard_normal(8) for table in tables])
    means = np.append(0, bounds)[:, None]
    weights = [np.linalg.solve(table, own) for table, own in zip(tables, values - means, strict=True)]

    def at(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        cross = [matern52(np.atleast_2d(points), places, one) for one in lengths]
        mean = np.stack([centre + own @ weight for centre, own, weight in zip(means, cross, weights, strict=True)])
        varied = [1 - np.sum(own.T * np.linalg.solve(table, own.T), axis=0) for own, table in zip(cross, tables, strict=True)]
        return mean[0], np.sum(norm.logcdf((bounds[:, None] - mean[1:]) / np.sqrt(varied[1:])), axis=0)

    options = {"key": seed, "constraints": ["u <= 0", "v <= 0.3"], "standardise": False, "horizon": 48}
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 101)] * 2), axis=-1).reshape(-1, 2)
    with Session.create(None, unit, jb.Rpol(), model, **options) as session:
        for place, told_there in zip(places.tolist(), values.T.tolist(), strict=True):
            session.observe(dict(zip("ab", place, strict=True)), dict(zip(("reward", "u", "v"), told_there, strict=True)))
        for probability in (0.5, 0.9):
            level = np.log(probability)
            mean, holds = at(grid)
            starts = grid[np.argsort(-np.where(holds >= level, mean, -np.inf))[:5]]
            limit = {"type": "ineq", "fun": lambda x, level=level: at(x)[1][0] - level}
            tight: Any = {"bounds": [(0, 1)] * 2, "constraints": limit, "options": {"ftol": 1e-12}}
            solved = [minimize(lambda x: -at(x)[0][0], x, **tight) for x in starts]
            dense = max([*mean[holds >= level], *(-one.fun for one in solved if limit["fun"](one.x) > -1e-6)])
            found, known = session.recommend(probability, anywhere=True), session.recommend(probability)
            assert found.feasible and found.mean["reward"] >= known.mean["reward"]
            assert dense - 2e-3 < found.mean["reward"] < dense + 1e-4
            [mean], [holds] = at(np.asarray([found.point["a"], found.point["b"]], np.float64))
            assert found.mean["reward"] == pytest.approx(mean, abs=1e-6)
            assert found.probability_of_feasibility == pytest.approx(np.exp(holds), abs=1e-6)


@pytest.mark.full
def test_a_learner_that_fits_its_own_model_recommends_by_that() -> None:
    """The best point is where the sine is 1."""
    learner = jb.Refitted(algorithm=jb.Unconstrained(), every=4)
    options = OPTIONS | {"delay": delays.NoDelay(), "initial": jb.InitialDesign(random=FIRST), "constraints": []}
    with Session.create(None, domains.box({"dose": (0.0, 2.0)}, candidates=16), learner, MODEL, **options) as session:
        for _ in range(FIRST + 4):
            ticket = session.ask()
            session.tell(ticket, {"yield": float(np.sin(3 * ticket.point["dose"]))})
        assert session.recommend(anywhere=True).point["dose"] == pytest.approx(np.pi / 6, abs=0.05)
        assert session.plot().axes, "figures of one axis"


@pytest.mark.full
def test_no_point_under_way_is_asked_for_again(tmp_path: Path) -> None:
    """The learner ignores points under way, so it would repeat itself."""

    rule = jb.Unconstrained(estimator=Bounds(reward_width=2.0, cost_width=2.0))

    def begun(directory: Path | None) -> Session:
        session = Session.create(directory, AXES, rule, MODEL, feedback=Wait(), **OPTIONS | {"constraints": []})
        session.observe({"dose": 0.7, "rate": 1e-2}, {"yield": 0.5})
        return session

    with begun(None) as session:
        session.ask(3)
        asked = BOX.to_unit(points_of(session)[1:])
    apart = np.max(np.abs(asked[:, None] - asked[None]), axis=-1)[np.triu_indices(3, 1)]
    # The learner avoids points within 1e-3, up to the rounding to six digits.
    assert np.all(apart > 9e-4), apart
    with begun(tmp_path) as other:
        other.ask(2)
    with Session.open(tmp_path) as again:
        again.ask()
        assert np.array_equal(BOX.to_unit(points_of(again)[1:]), asked)


@pytest.mark.full
def test_a_session_has_one_posterior_until_a_value_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """It chooses the points of one with two posteriors, before and after."""

    def asked_for() -> tuple[np.ndarray, list[bool]]:
        session, one = Session.create(None, AXES, jb.Cei(), FITTED, **LONG), []
        for _ in range(4):
            ticket = session.ask()
            one.append(isinstance(session._state.course.setting.arena.surrogate, BoxSurrogate))
            session.tell(ticket, told(ticket.point))
        late, further = session.ask(2)
        one.append(isinstance(session._state.course.setting.arena.surrogate, BoxSurrogate))
        session.tell(further, told(further.point))
        session.tell(late, told(late.point))
        session.ask()
        return np.asarray([place for place in session._state.space.own]), one

    places, one = asked_for()
    assert one == [True] * 4 + [False]
    monkeypatch.setattr(Specification, "undelayed", None)
    both, one = asked_for()
    assert not any(one)
    assert places == pytest.approx(both, abs=1e-4)


@pytest.mark.full
def test_a_session_that_is_opened_again_chooses_as_if_it_had_not_been_closed(tmp_path: Path) -> None:
    """Late values, an observation between rounds and a correction change no bit."""

    def play(directory: Path, *, close: bool) -> np.ndarray:
        session = Session.create(directory, AXES, jb.Rpol(), FITTED, **LONG)
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
    """Three runs are under way, and none repeats another."""
    with Session.create(tmp_path, AXES, jb.Rpol(), **LONG | {"standardise": True}) as session:
        session.observe({"dose": 0.4, "rate": 5e-4}, told({"dose": 0.4, "rate": 5e-4}))
        for _ in range(7):
            tickets = session.ask(3)
            for one in tickets:
                session.tell(one, told(one.point))
        assert len(np.unique(points_of(session), axis=0)) == 22
        best, seen = session.recommend(), session.history()
        assert best.feasible
        assert told(best.point)["yield"] == np.max(seen["yield"].values[seen["heat"].values <= 0])
        assert np.max(seen["yield"].values[seen["heat"].values <= 1e-3]) > PROBLEM.best.value - 1e-3


@pytest.mark.full
def test_a_table_of_a_session_can_be_told_and_looked_at(tmp_path: Path) -> None:
    more = [*AXES, Axis.between("time", 1.0, 5.0)]
    for axes in (AXES[:1], AXES, more):
        names = [axis.name for axis in axes]
        # Programs of two axes are those of other tests, and of three of one posterior.
        model, options = (FITTED, LONG) if axes is AXES else (MODEL, OPTIONS | {"delay": delays.NoDelay()})
        with Session.create(tmp_path / str(len(axes)), axes, jb.Rpol(), model, **options) as session:
            for share in (0.2, 0.5, 0.7):
                session.observe(
                    {axis.name: axis.values[0] + share * (axis.values[1] - axis.values[0]) for axis in axes},
                    {"yield": share, "heat": -share},
                )
            if axes is AXES:
                session.ask()
            table = session.history().to_dataframe().reset_index()
            assert len(axes) == 1 or session.plot().axes
        with Session.create(
            tmp_path / f"again {len(axes)}", axes, jb.Rpol(), model, history=table[[*names, "yield", "heat"]], **options
        ) as other:
            assert np.allclose(other.history()["dose"].values, table["dose"].values)
            ticket = session.told
            assert list(other.told.values()) == list(ticket.values())


def test_whole_numbers_beside_continuous_axes() -> None:
    space = Space.of([AXES[0], Axis.between("layers", 1, 5, 5)])
    assert isinstance(space.domain, domains.Box) and space.domain.sides[1] == domains.integers(1, 5)
    assert space.point(space.place({"dose": 0.5, "layers": 4})) == {"dose": 0.5, "layers": 4}
    for values, scale in (((1, 2, 4), "linear"), ((1.5, 2.5), "linear"), ((1, 2, 3), "logarithmic")):
        with pytest.raises(InvalidArgument, match=r"^domain: the axis layers has values of its own beside continuous ones"):
            Space.of([AXES[0], Axis("layers", values, scale=scale)])
