"""Settlement of experiments, forecasts, and reasons for points."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import jaxbandit as jb
from jaxbandit import InvalidArgument, forecast, optimise
from jaxbandit.delays import Batches, NoDelay
from jaxbandit.kernels import Categorical, Matern32, Matern52, OnAxes, Scale
from jaxbandit.session import Axis, Forecast, Model, Session, SessionError, Settled, forecasts
from jaxbandit.session.settled import POINTS_DRAWN, likely_points
from jaxbandit.surrogates.evidence.host import averaged
from tests.oracles.gaussian_process import matern32, matern52

GRID = np.linspace(0.0, 1.0, 12)


def test_functions_are_drawn_from_the_posterior_of_every_model() -> None:
    """Compare 40,000 draws with dense formulas for two kernels of different weights."""
    rng = np.random.default_rng(1)
    x, at, variances, count = rng.uniform(size=(8, 2)), rng.uniform(size=(10, 2)), (0.05, 0.2), 40_000
    values = np.sin(4 * x[:, 0]) + x[:, 1]
    kernels = [Scale(kernel=form(length_scale=0.4), variance=2.0) for form in (Matern52, Matern32)]
    own = averaged(kernels[:1], x, values[:, None], variances[0], prior=None, constant=1.0, draws=0)
    other = averaged(kernels[1:], x, values[:, None], variances[1], prior=None, constant=1.0, draws=0)
    both = own._replace(models=[*own.models, *other.models], weights=np.asarray([0.75, 0.25]))
    drawn, noises = both.draws(at, count, seed=3)
    means, covariances = [], []
    for form, noise in zip((matern52, matern32), variances, strict=True):
        matrix = 2.0 * form(x, x, 0.4) + 1.0 + noise * np.eye(8)
        along = 2.0 * form(x, at, 0.4) + 1.0
        means.append(along.T @ np.linalg.solve(matrix, values))
        covariances.append(2.0 * form(at, at, 0.4) + 1.0 - along.T @ np.linalg.solve(matrix, along))
    mean = 0.75 * means[0] + 0.25 * means[1]
    expected = 0.75 * covariances[0] + 0.25 * covariances[1] + 0.1875 * np.outer(means[0] - means[1], means[0] - means[1])
    sd = np.sqrt(np.diag(expected))
    assert np.all(np.abs(drawn.mean(axis=0) - mean) < 4.5 * sd / np.sqrt(count))
    for variance, share, centre, covariance in zip(variances, (0.75, 0.25), means, covariances, strict=True):
        # Every draw comes with the noise of its model.
        of_model = drawn[noises == variance]
        assert abs(len(of_model) - share * count) < 2
        assert np.all(np.abs(of_model.mean(axis=0) - centre) < 4.5 * np.sqrt(np.diag(covariance) / len(of_model)))
    # The standard error of a covariance of normal numbers is at most sqrt(2 / n) of the product of their deviations.
    assert np.all(np.abs(np.cov(drawn.T) - expected) < 4.5 * np.sqrt(2 / count) * np.outer(sd, sd))


def dense_settlement(points: np.ndarray, x: np.ndarray, values: np.ndarray, within: float) -> tuple[float, float]:
    """Return probability and expected gain by 20,000 draws of dense posteriors."""
    rng, draws = np.random.default_rng(5), []
    for column, variance, noise, mean in zip(values.T, (1.0, 0.5), (0.02, 0.05), (0.3, 0.1), strict=True):
        along, matrix = variance * matern52(x, points, 0.3), variance * matern52(x, x, 0.3) + noise * np.eye(len(x))
        centre = mean + along.T @ np.linalg.solve(matrix, column - mean)
        covariance = variance * matern52(points, points, 0.3) - along.T @ np.linalg.solve(matrix, along)
        draws.append(rng.multivariate_normal(centre, covariance, 20_000, method="eigh"))
    reward, cost = draws
    measured = [int(np.argmin(np.abs(points - place).sum(axis=1))) for place in x]
    fine = [index for index in measured if np.mean(cost[:, index] <= 0.2) >= 0.5]
    best = fine[int(np.argmax(reward.mean(axis=0)[fine]))]
    gains = np.where(cost <= 0.2, reward - reward[:, [best]], -np.inf)
    return float(np.mean((cost[:, best] <= 0.2) & (gains.max(axis=1) <= within))), float(np.maximum(gains, 0).mean(axis=0).max())


@pytest.mark.parametrize("within", [0.05, 0.3])
def test_probability_and_gain_are_those_of_dense_posteriors(within: float) -> None:
    rng = np.random.default_rng(2)
    points = np.stack(np.meshgrid(GRID, GRID, indexing="ij"), axis=-1).reshape(-1, 2)
    x = points[rng.choice(len(points), 14, replace=False)]
    values = np.stack([np.sin(4 * x[:, 0]) + x[:, 1], 0.6 * x.sum(axis=1) - 0.4], axis=1) + 0.1 * rng.standard_normal((14, 2))
    kernels = [Scale(kernel=Matern52(length_scale=0.3), variance=variance) for variance in (1.0, 0.5)]
    model = Model(kernel=kernels, noise_variance=[0.02, 0.05], prior_mean=[0.3, 0.1])
    axes = [Axis("a", GRID), Axis("b", GRID)]
    session = Session.create(None, axes, model=model, standardise=False, constraints=["cost <= 0.2"], key=0)
    for place, (reward, cost) in zip(x, values, strict=True):
        session.observe({"a": float(place[0]), "b": float(place[1])}, {"reward": float(reward), "cost": float(cost)})
    found, (probability, gain) = session.settled(within, 4096), dense_settlement(points, x, values, within)
    assert 0.02 < probability < 0.98
    assert abs(found.probability - probability) < 4.5 * np.sqrt(probability * (1 - probability) * (1 / 4096 + 1 / 20_000))
    assert found.gain == pytest.approx(gain, rel=0.15)


def hill(x: float, y: float) -> dict[str, float]:
    """Return a reward with its best allowed value, -0.02, at (0.2, 0.5)."""
    return {"reward": -((x - 0.3) ** 2) - (y - 0.6) ** 2, "cost": x + y - 0.7}


@pytest.mark.full
def test_a_search_ends_when_it_is_settled_and_says_so(tmp_path: Path) -> None:
    search = {"axes": {"x": (0.0, 1.0), "y": (0.0, 1.0)}, "evaluations": 40, "constraints": ["cost <= 0"]}
    found = optimise(hill, **search, stop=Settled(within=0.01), directory=tmp_path / "search")
    assert 6 < len(found.points) < 30 and found.values["reward"] > -0.03
    assert "settled: within 0.01 with probability" in repr(found)
    with Session.open(tmp_path / "search") as session:
        assert session.settlement is not None and session.settlement.probability >= 0.95
        assert session.settlement == session.settled(0.01) == found.session.settlement
        count = len(session.events)
        assert session.ask(stop=Settled(within=0.01)) is None and session.ask(3, stop=Settled(within=0.01)) == []
        assert len(session.events) == count, "nothing new has happened"
        session.tell(session.ask(), {"reward": -1.0, "cost": 0.1})
        assert session.settlement is None, "it has gone on"
    count = len(found.points)
    assert len(optimise(hill, **search | {"evaluations": count + 2}, directory=tmp_path / "search").points) == count + 2


def test_nothing_is_settled_before_the_initial_design_was_told() -> None:
    session = Session.create(None, {"x": (0.0, 1.0)}, key=0)
    with pytest.raises(SessionError, match="nothing has been told"):
        session.settled(0.1)
    tickets = session.ask(3, stop=Settled(within=100.0))
    for number, ticket in enumerate(tickets):
        session.tell(ticket, reward=float(number))
    assert session.settled(100.0).probability == 1
    [last] = session.ask(1, stop=Settled(within=100.0))
    assert session.ask(stop=Settled(within=100.0)) is not None, "the last point of the design is under way"
    session.tell(last, reward=0.0)
    assert session.ask(stop=Settled(within=100.0)) is None


def test_a_point_that_was_measured_on_its_limit_counts_as_allowed() -> None:
    session = Session.create(None, {"x": (0.0, 1.0)}, key=0, constraints=["cost <= 0"])
    for x in (0.0, 0.1, 0.2, 0.3, 0.35, 0.4, 0.45, 0.5, 0.5003, 0.51, 0.6, 0.7, 0.8, 0.9, 1.0):
        session.observe({"x": x}, {"reward": x, "cost": x - 0.5})
    assert session.recommend().point == {"x": 0.5}
    assert session.settled(0.01).probability > 0.95


@pytest.mark.full(but=("stated",))
@pytest.mark.parametrize("fitted", [False, True], ids=["stated", "fitted"])
def test_categories_and_values_in_parts_are_settled_too(fitted: bool) -> None:
    axes = [Axis.of_categories("kind", ("a", "b", "c")), Axis("x", GRID)]
    kernel = OnAxes(kernel=Categorical(), axes=(0,)) * OnAxes(kernel=Matern52(length_scale=0.4), axes=(1,))
    model = None if fitted else Model(kernel=kernel, noise_variance=0.01)
    session = Session.create(None, axes, key=0, model=model, constraints=["cost <= 0.8"])
    for kind, x in (("a", 0.0), ("b", GRID[5]), ("c", GRID[8]), ("a", 1.0), ("b", GRID[2])):
        ticket = session.observe({"kind": kind, "x": float(x)}, {"reward": float(x)})
    assert 0 <= session.settled(0.2).probability < 0.9, "nothing is known of the cost"
    session.tell(ticket, {"cost": 0.1})
    assert session.settled(0.2).gain >= 0


def test_points_near_a_known_hill_leave_room_for_points_that_nobody_knows() -> None:
    """All 20 runs are on the left half of a box."""
    session, rng = Session.create(None, {"x": (0.0, 1.0), "y": (0.0, 1.0)}, key=0), np.random.default_rng(3)
    for x, y in rng.uniform(size=(20, 2)) * [0.5, 1.0]:
        session.observe({"x": float(x), "y": float(y)}, {"reward": float(np.exp(-20 * ((x - 0.2) ** 2 + (y - 0.5) ** 2)))})
    state, best = session._state, session.recommend().index
    assert best is not None
    points, numbers = likely_points(state.believed, state.space, best, state.unfit, 64)
    assert len(points) <= POINTS_DRAWN and np.count_nonzero(numbers == best) == 1
    assert np.count_nonzero(numbers >= 0) >= POINTS_DRAWN // 2
    assert np.count_nonzero((points[:, 0] > 0.6) & (numbers >= 0)) > 100


FORECAST_GRID = np.linspace(0.0, 2.0, 9)
POINTS = np.stack(np.meshgrid(FORECAST_GRID, FORECAST_GRID, indexing="ij"), axis=-1).reshape(-1, 2)
TRIALS = 2000


def stated(objective: str = "maximise y") -> tuple[Session, np.ndarray, np.ndarray]:
    """Return a session that was told twelve points, with points and values."""
    rng = np.random.default_rng(3)
    x = POINTS[rng.choice(len(POINTS), 12, replace=False)]
    values = np.stack([3 + np.sin(4 * x[:, 0]) + x[:, 1], 0.6 * x.sum(axis=1) - 0.4], axis=1) + 0.1 * rng.standard_normal((12, 2))
    kernels = [Scale(kernel=Matern52(length_scale=0.3), variance=variance) for variance in (2.0, 0.5)]
    model = Model(kernel=kernels, noise_variance=[0.02, 0.05], prior_mean=[3.0, 0.1])
    axes = [Axis("a", 0.5 * FORECAST_GRID), Axis("b", 0.5 * FORECAST_GRID)]
    session = Session.create(None, axes, model=model, standardise=False, objective=objective, constraints=["cost <= 0.2"], key=0)
    for place, (y, cost) in zip(x, values, strict=True):
        session.observe({"a": 0.5 * float(place[0]), "b": 0.5 * float(place[1])}, {"y": float(y), "cost": float(cost)})
    return session, x, values


def dense_draws(x: np.ndarray, values: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return draws ``[count, M]`` of both outputs from dense posteriors."""
    rng, draws = np.random.default_rng(5), []
    for column, variance, noise, mean in zip(values.T, (2.0, 0.5), (0.02, 0.05), (3.0, 0.1), strict=True):
        along, matrix = variance * matern52(x / 2, POINTS / 2, 0.3), variance * matern52(x / 2, x / 2, 0.3) + noise * np.eye(len(x))
        centre = mean + along.T @ np.linalg.solve(matrix, column - mean)
        covariance = variance * matern52(POINTS / 2, POINTS / 2, 0.3) - along.T @ np.linalg.solve(matrix, along)
        draws.append(rng.multivariate_normal(centre, covariance, count, method="eigh"))
    return draws[0], draws[1]


@pytest.mark.full(but=("minimise",))
@pytest.mark.parametrize("sign", [1, -1], ids=["maximise", "minimise"])
def test_random_points_bring_what_they_bring_in_dense_posteriors(sign: int) -> None:
    """Means over 2,000 futures are those of 20,000 dense draws."""
    session, x, values = stated("maximise y" if sign > 0 else "minimise y")
    found = forecast(session, 6, [jb.RandomSearch()], trials=TRIALS, key=1).dataset.isel(algorithm=0, in_flight=0, delay=0)
    reward, cost = dense_draws(x, values, 20_000)
    known = [int(np.argmin(np.abs(POINTS - place).sum(axis=1))) for place in x]
    chosen = np.random.default_rng(7).integers(len(POINTS), size=(20_000, 6))
    rows = np.arange(20_000)[:, None]
    for evaluation in (0, 6):
        seen = np.concatenate([np.broadcast_to(known, (20_000, 12)), chosen[:, :evaluation]], axis=1)
        best = np.max(np.where(cost[rows, seen] <= 0.2, sign * reward[rows, seen], -np.inf), axis=1)
        most = np.max(np.where(cost <= 0.2, sign * reward, -np.inf), axis=1)
        fine = np.isfinite(best)
        gap = most[fine] - best[fine]
        own = {name: found[name].isel(evaluation=evaluation).values for name in ("best", "gap", "violating")}
        violating = np.count_nonzero(cost[rows, chosen[:, :evaluation]] > 0.2, axis=1)
        assert abs(np.isfinite(own["best"]).mean() - fine.mean()) < 0.02
        for name, expected in (("best", sign * best[fine]), ("gap", gap), ("violating", violating)):
            seen_here = own[name][np.isfinite(own[name])]
            # A problem of 2,000 is drawn twice as often as not at all, so that their mean is as sure as that of half as many.
            assert abs(seen_here.mean() - expected.mean()) < 4.5 * expected.std() / np.sqrt(TRIALS / 2) + 1e-6, (name, evaluation)


def test_algorithms_begin_with_what_was_measured_and_meet_the_same_futures() -> None:
    session, *_ = stated()
    both = forecast(session, 3, {"one": jb.Config(), "other": jb.Rpol()}, trials=20, in_flight=(1, 3))
    alone = forecast(session, 3, [jb.Rpol()], trials=20)
    np.testing.assert_array_equal(
        both.dataset["best"].sel(algorithm="other", in_flight=1), alone.dataset["best"].isel(algorithm=0, in_flight=0)
    )
    first = both.dataset["best"].isel(evaluation=0)
    np.testing.assert_array_equal(first.values, np.broadcast_to(first.values[0, 0, 0], first.shape))
    assert np.any(both.dataset["best"].sel(in_flight=1) != both.dataset["best"].sel(in_flight=3)), "late values change choices"
    assert (both.dataset["gap"].diff("evaluation").max() <= 0) and (both.dataset["gap"].min() >= 0)
    name, flight = both.recommended
    row = both.table.iloc[0]
    assert (row["algorithm"], row["in flight"], row["more gap"]) == (name, flight, 0)
    assert name in repr(both) and "<table" in both._repr_html_()
    assert set(both.bands()["bound"].values) == {"lower", "median", "upper"}


def test_each_future_has_its_own_noise() -> None:
    futures = forecasts.Futures(domain=jb.domains.grid([0.0], [1.0], 4), tables=np.zeros((2, 1, 4)), noises=[[0.0], [4.0]])
    model = jb.surrogate(futures.domain, Matern52(length_scale=0.3), noise_variance=1.0, outputs=1)
    values = np.asarray(jb.simulate(futures, jb.RandomSearch(), model, horizon=200, key=0, trials=40).values)[..., 0]
    still = np.all(values == 0, axis=1)
    assert 8 < np.sum(still) < 32 and values[~still].std() == pytest.approx(2.0, rel=0.05)
    session = Session.create(None, [Axis("x", np.linspace(0, 1, 20))], key=0, objective="maximise y")
    rng = np.random.default_rng(0)
    for x in np.linspace(0, 1, 20)[::2]:
        session.observe({"x": float(x)}, {"y": 100 * np.sin(6 * x) + 30 * rng.standard_normal()})
    noises = np.asarray(forecasts.Start.of_session(session, 64).problem.noises)
    assert noises.shape == (64, 1) and np.unique(noises).size > 4 and noises.max() > 4 * noises.min()


@pytest.mark.full
def test_delays_come_beside_the_runs_in_flight() -> None:
    """Four runs in flight are a delay of three rounds."""
    session, *_ = stated()
    flown = forecast(session, 6, [jb.Config()], in_flight=(1, 4), trials=16)
    late = forecast(session, 6, [jb.Config()], delays={"soon": jb.delays.NoDelay(), "late": jb.delays.Constant(rounds=3)}, trials=16)
    both = forecast(session, 6, [jb.Config()], in_flight=(2,), delays=[jb.delays.Constant(rounds=2)], trials=16)
    assert list(flown.dataset["delay"].values) == ["none"] and list(both.dataset["delay"].values) == ["Constant(rounds 2)"]
    for name in ("best", "gap", "violating"):
        alike = [flown.dataset[name].values[0, 1, 0], late.dataset[name].values[0, 0, 1], both.dataset[name].values[0, 0, 0]]
        np.testing.assert_array_equal(alike[0], alike[1])
        np.testing.assert_array_equal(alike[0], alike[2])
        np.testing.assert_array_equal(flown.dataset[name].values[0, 0, 0], late.dataset[name].values[0, 0, 0])
    assert late.recommended == ("Config", 1) and list(late.table["delay"]) == ["soon", "late"]
    assert "delay" not in flown.table.columns
    # A reward that comes a round before the cost, and values that are lost, come later, too.
    apart = jb.delays.Lossy(delay=jb.delays.PerOutput(delays=(jb.delays.NoDelay(), jb.delays.Constant(rounds=1))), never=0.5)
    assert forecast(session, 3, [jb.Config()], in_flight=(2,), delays={"apart": apart}, trials=4).dataset["gap"].shape == (1, 1, 1, 4, 4)


def made(gaps: list[list[list[float]]]) -> Forecast:
    """Return a forecast of gaps ``[algorithm, future, evaluation]``."""
    gap = np.asarray(gaps)[:, None, None]
    dims = ("algorithm", "in_flight", "delay", "future", "evaluation")
    coords = {"algorithm": ["one", "other"], "in_flight": [1], "delay": ["none"], "evaluation": np.arange(gap.shape[-1])}
    return Forecast(xr.Dataset({"best": (dims, -gap), "gap": (dims, gap), "violating": (dims, 0 * gap)}, coords=coords), "y")


def test_a_forecast_says_when_a_point_is_good_enough_and_what_to_take() -> None:
    found = made([[[3, 2, 1], [np.nan, 2, 0]], [[3, 0.5, 0.5], [4, 4, 3]]])
    np.testing.assert_array_equal(found.until(1.0).values[:, 0, 0], [[2, 2], [1, np.inf]])
    np.testing.assert_array_equal(found.until(2).values[:, 0, 0], [[1, 1], [1, np.inf]])
    assert found.recommended == ("one", 1)
    # Differences are -0.5 and 3, of mean 1.25 and deviation 1.75.
    words = "one is recommended: after 2 further evaluations its best allowed y is 0.5 from the best one in the mean of 2 futures;"
    assert found.said == f"{words} that of other, the next, is 1.25 +- 1.2 further."
    with pytest.raises(InvalidArgument, match="within: must be > 0, got 0"):
        found.until(0)


def test_a_large_grid_stands_for_its_likely_points() -> None:
    axes, rng = [Axis.between(name, 0, 1, 50) for name in "xy"], np.random.default_rng(0)
    session = Session.create(None, axes, key=0, objective="maximise f", constraints=["c <= 1"], initial=jb.InitialDesign(random=12))
    for ticket in session.ask(12):
        x, y = (float(ticket.point[name]) for name in "xy")
        noise = 0.1 * rng.standard_normal(2)
        session.tell(ticket, {"f": -4 * (x - 0.5) ** 2 - 4 * (y - 0.5) ** 2 + noise[0], "c": 2 * x + noise[1]})
    start, points = forecasts.Start.of_session(session, 8), session.specification.space.modelled
    held = np.asarray(start.problem.domain.points, np.float64)
    assert 600 < len(held) <= 12 + POINTS_DRAWN + 256 and len(np.unique(held, axis=0)) == len(held)
    told = [record.ticket.index for record in session._state.records.values()]
    np.testing.assert_array_equal(held[np.asarray(start.initial.indices)], points[told])
    best = np.array([0.5, 0.5]) * np.ptp(points, axis=0) + points.min(axis=0)
    near = np.flatnonzero(np.max(np.abs(points - best) / np.ptp(points, axis=0), axis=1) < 0.05)
    assert np.isin(near, [np.argmin(np.abs(points - place).sum(axis=1)) for place in held]).all()
    assert max(form.rank for form in start.learner(jb.ConstrainedThompson(), 8).forms) < 400


def test_given_values_condition_the_model_in_place_of_observed_ones() -> None:
    domain = jb.domains.grid([0.0], [1.0], 30)
    problem = jb.problems.from_tables(domain, np.sin(7 * np.linspace(0, 1, 30)), [np.linspace(-1, 1, 30)], noise=jb.problems.Noiseless())
    model = jb.surrogate(domain, Matern52(length_scale=0.2), noise_variance=0.01, outputs=2)
    indices = [3, 17, 29]
    own = np.asarray(problem.means)[:, indices].T
    how = {"horizon": 8, "key": 0, "trials": 2}
    plain = jb.simulate(problem, jb.Config(), model, initial=jb.InitialDesign(indices=indices), **how)
    given = jb.simulate(problem, jb.Config(), model, initial=jb.InitialDesign(indices=indices, values=own), **how)
    other = jb.simulate(problem, jb.Config(), model, initial=jb.InitialDesign(indices=indices, values=-own), **how)
    np.testing.assert_array_equal(plain.indices, given.indices)
    np.testing.assert_allclose(other.initial_values[0], -own, rtol=1e-6)
    assert np.any(other.indices[:, 0] != plain.indices[:, 0])


@pytest.mark.full
def test_problems_and_priors_are_forecast_from_an_initial_design() -> None:
    domain = jb.domains.grid([0.0], [1.0], 40)
    kernel = Scale(kernel=Matern52(length_scale=0.2), variance=4.0)
    prior = jb.surrogate(domain, kernel, noise_variance=0.01, outputs=2)
    family = jb.problems.gp_draws(domain=domain, kernel=kernel, noise=jb.problems.Gaussian(variance=0.01))
    of_prior, of_family = (forecast(each, 10, [jb.Config()], trials=400) for each in (prior, family))
    last = [float(one.dataset["gap"].isel(evaluation=-1).mean()) for one in (of_prior, of_family)]
    assert last[0] < 0.5 * float(of_prior.dataset["gap"].isel(evaluation=0).mean())
    # Families draw constraints again until a point is allowed, which one prior draw in a hundred lacks.
    assert last == pytest.approx([last[0]] * 2, abs=0.25)
    counts = forecast(prior, 2, [jb.Config()], trials=4, initial=jb.InitialDesign(random=1)).dataset.sizes
    assert (counts["evaluation"], counts["future"]) == (3, 4)


@pytest.mark.parametrize("count", [0, 2])
def test_only_further_evaluations_are_counted_as_violations(count: int) -> None:
    domain = jb.domains.grid([0.0], [1.0], 5)
    problem = jb.problems.from_tables(domain, np.zeros(5), [np.ones(5)])
    model = jb.surrogate(domain, Matern52(length_scale=0.2), noise_variance=0.01, outputs=2)
    found = forecast(problem, 3, [jb.RandomSearch()], trials=2, model=model, initial=jb.InitialDesign(random=count)).dataset
    np.testing.assert_array_equal(found["violating"].values[0, 0, 0], [[0, 1, 2, 3]] * 2)


@pytest.mark.full
def test_a_fitted_session_is_forecast_in_its_own_units() -> None:
    session = Session.create(None, [Axis("x", np.linspace(0, 1, 15))], key=0, objective="minimise cost", constraints=["heat >= 300"])
    for x in np.linspace(0, 1, 15)[::3]:
        session.observe({"x": float(x)}, {"cost": 1000 + 50 * float(x), "heat": 250 + 120 * float(x)})
    found = forecast(session, 4, trials=64)
    assert list(found.dataset["algorithm"].values) == ["Cei", "ConstrainedThompson", "Config", "Rpol"]
    last = found.dataset["best"].isel(evaluation=-1, in_flight=0, delay=0).median("future").values
    # The least allowed cost is that of x = 6 / 14, about 1021.4.
    assert np.all(np.abs(last - 1021.4) < 4)


@pytest.mark.full
def test_a_box_is_forecast_at_its_likely_points() -> None:
    session, rng = Session.create(None, {"x": (0.0, 1.0), "y": (0.0, 2.0)}, key=0, constraints=["cost <= 1"]), np.random.default_rng(0)
    for x, y in rng.uniform(size=(24, 2)) * [1, 2]:
        session.observe({"x": float(x), "y": float(y)}, {"reward": -((x - 0.3) ** 2) - (y - 1.0) ** 2, "cost": 2 * x + 0.2 * y})
    found = forecast(session, 8, [jb.Config()], trials=32).dataset
    assert float(found["gap"].isel(evaluation=-1).median()) < 0.3 * float(found["gap"].isel(evaluation=0).median())
    assert abs(float(found["best"].isel(evaluation=-1).median())) < 0.01, "the best allowed value is 0"


TABLE = jb.problems.from_tables(jb.domains.grid([0.0], [1.0], 5), np.zeros(5), [np.zeros(5)])


def test_a_session_without_values_has_no_forecast() -> None:
    empty = Session.create(None, [Axis("x", FORECAST_GRID)], key=0)
    empty.ask()
    with pytest.raises(SessionError, match="forecast: all values of at least one point must be told first"):
        forecast(empty, 3)


REASON_GRID = [Axis.between("a", 0, 1, 15), Axis.between("b", 0, 10, 15)]
BOX = [Axis.between("a", 0, 1), Axis.between("b", 0, 10)]


def measured(point: Any) -> dict[str, float]:
    return {"y": 50 + 10 * np.sin(5 * point["a"]) * np.cos(0.3 * point["b"]), "c": np.cos(4 * point["a"] + 0.2 * point["b"])}


def begun(axes: Any, count: int, **options: Any) -> Session:
    """Return a session with ``count`` complete runs."""
    session = Session.create(None, axes, key=0, objective="maximise y", constraints=["c <= 0.5"], **options)
    for _ in range(count):
        ticket = session.ask()
        session.tell(ticket, measured(ticket.point))
    return session


def test_beliefs_are_those_of_the_values_told_before_the_ticket() -> None:
    """Later values change nothing."""
    model = Model(kernel=Scale(kernel=Matern52(length_scale=0.5), variance=2.0), noise_variance=0.1, prior_mean=[50.0, 0.5])
    with begun(REASON_GRID, 8, model=model, standardise=False) as session:
        found = session.why(6)
        history = session.history()
    x = np.stack([history["a"], history["b"] / 10], axis=1)[:6]
    before, at = x[:5], x[5:]
    means = {}
    for name, prior in (("y", 50.0), ("c", 0.5)):
        values = history[name].values[:5] - prior
        inverse = np.linalg.inv(2 * matern52(before, before, 0.5) + 0.1 * np.eye(5))
        along = 2 * matern52(before, x, 0.5)
        means[name] = prior + along.T @ inverse @ values
        sd = np.sqrt(2 - np.sum(along * (inverse @ along), axis=0))
        assert found.belief is not None and found.best is not None
        assert found.belief.mean[name] == pytest.approx(means[name][5], rel=1e-3, abs=1e-3)
        assert found.belief.sd[name] == pytest.approx(sd[5], rel=1e-2)
    feasible = np.flatnonzero(means["c"][:5] <= 0.5)
    best = int(feasible[np.argmax(means["y"][feasible])])
    assert found.best[0] == best + 1 and found.best[1].mean["y"] == pytest.approx(means["y"][best], rel=1e-3)
    away = np.max(np.abs(before - at), axis=1)
    order = np.argsort(away, kind="stable")[:3]
    assert [*found.nearest] == (order + 1).tolist() and [*found.nearest.values()] == pytest.approx(away[order])
    assert found.values.keys() == {"y", "c"} and found.alone is None


@pytest.mark.full(but=("grid",))
@pytest.mark.parametrize("axes", [REASON_GRID, BOX], ids=["grid", "box"])
def test_the_point_without_runs_under_way_is_what_a_session_without_them_asks_for(axes: Any) -> None:
    with begun(axes, 9) as session, begun(axes, 9) as other:
        first, second = session.ask(2)
        alone = other.ask()
        assert first.point == alone.point and session.why(first).alone is None
        found = session.why(second)
        assert found.alone == pytest.approx(alone.point, abs=1e-3) and second.point != alone.point
        assert found.term == "under way" and found.text.endswith("would have been asked for.")
        session.tell(second, measured(second.point))
        third = session.ask()
        assert session.why(second).text == found.text, "later values change nothing"
        other.drop(alone)
        other.observe(second.point, measured(second.point))
        assert "Without runs under way" in session.why(third).text


def test_points_of_the_initial_design_spread_out() -> None:
    with begun(BOX, 2) as session:
        first, second = (session.why(number) for number in (1, 2))
    assert first.term == second.term == "design"
    assert first.belief is None and first.best is None and not first.nearest
    assert first.text.endswith("because it is a point of the initial design, which spreads points out.")


def test_the_term_is_that_of_the_expected_improvement() -> None:
    """Far points explore, near ones exploit, and violations belong to constraints."""
    axes, kernel = [Axis.between("a", 0, 1, 21)], Scale(kernel=Matern52(length_scale=0.3), variance=1.0)
    options: dict[str, Any] = {
        "model": Model(kernel=kernel, noise_variance=1e-4),
        "standardise": False,
        "key": 0,
        "objective": "maximise y",
    }
    with Session.create(None, axes, **options) as session:
        session.tell_all({"a": [0.0, 0.05, 0.1], "y": [0.0, 0.0, 0.0]})
        assert session.why(session.ask()).term == "explore"
    with Session.create(None, axes, constraints=["c <= 0"], **options) as session:
        rows = np.linspace(0, 1, 11)
        session.tell_all({"a": rows, "y": 3 * rows, "c": np.where(rows > 0.55, 2.0, -2.0)})
        assert session.why(session.ask()).term == "constraint"
    places, heights = [0.0, 0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9, 1.0], [0, 0.1, 0.4, 0.8, 1.1, 1.1, 0.8, 0.4, 0.1, 0]
    with Session.create(None, axes, **options) as session:
        session.tell_all({"a": places, "y": heights})
        assert session.why(session.ask()).term == "exploit"


def test_what_has_no_reason_is_refused_in_one_line() -> None:
    with begun(REASON_GRID, 1) as session:
        seen = session.observe({"a": 0.5, "b": 5.0}, measured({"a": 0.5, "b": 5.0}))
        with pytest.raises(SessionError, match=r"^why: ticket 2 was told without being asked for, so that no rule chose its point$"):
            session.why(seen)
        with pytest.raises(InvalidArgument, match=r"ticket: must be one that was asked for \(1 to 2\), got 9"):
            session.why(9)


def test_a_reason_has_a_small_figure_and_needs_no_delays() -> None:
    with begun(BOX, 8, delay=NoDelay()) as session:
        found = session.why(8)
    assert found.alone is None and str(found) == repr(found) == found.text
    figure = found.plot()
    assert [axis.get_xlabel() for axis in figure.axes] == ["y", "c"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["ticket 8", f"best known, ticket {found.best[0]}"]


def test_runs_in_flight_of_a_forecast_keep_batches() -> None:
    model = forecasts.Later(delay=Batches(size=4), rounds=3)
    drawn = [model.draw_in_round(jax.random.key(0), 2, jnp.int32(t)).tolist() for t in (1, 2, 4, 5)]
    assert drawn == [[6, 6], [5, 5], [3, 3], [6, 6]]
