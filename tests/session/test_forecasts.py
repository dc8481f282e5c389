"""Forecasts: futures against dense posteriors, algorithms on them, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import jaxbandit as jb
from jaxbandit import InvalidArgument, forecast
from jaxbandit.kernels import Matern52, Scale
from jaxbandit.session import Axis, Forecast, Model, Session, SessionError, forecasts
from jaxbandit.session.settled import POINTS_DRAWN
from tests.oracles.gaussian_process import matern52

GRID = np.linspace(0.0, 2.0, 9)
POINTS = np.stack(np.meshgrid(GRID, GRID, indexing="ij"), axis=-1).reshape(-1, 2)
TRIALS = 2000


def stated(objective: str = "maximise y") -> tuple[Session, np.ndarray, np.ndarray]:
    """Return a session of a model in the outputs' units that was told twelve points, with these and their values."""
    rng = np.random.default_rng(3)
    x = POINTS[rng.choice(len(POINTS), 12, replace=False)]
    values = np.stack([3 + np.sin(4 * x[:, 0]) + x[:, 1], 0.6 * x.sum(axis=1) - 0.4], axis=1) + 0.1 * rng.standard_normal((12, 2))
    kernels = [Scale(kernel=Matern52(length_scale=0.3), variance=variance) for variance in (2.0, 0.5)]
    model = Model(kernel=kernels, noise_variance=[0.02, 0.05], prior_mean=[3.0, 0.1])
    axes = [Axis("a", 0.5 * GRID), Axis("b", 0.5 * GRID)]
    session = Session.create(None, axes, model=model, standardise=False, objective=objective, constraints=["cost <= 0.2"], key=0)
    for place, (y, cost) in zip(x, values, strict=True):
        session.observe({"a": 0.5 * float(place[0]), "b": 0.5 * float(place[1])}, {"y": float(y), "cost": float(cost)})
    return session, x, values


def dense_draws(x: np.ndarray, values: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return draws ``[count, M]`` of both outputs from dense posteriors, of lengths .3 of the unit square."""
    rng, draws = np.random.default_rng(5), []
    for column, variance, noise, mean in zip(values.T, (2.0, 0.5), (0.02, 0.05), (3.0, 0.1), strict=True):
        along, matrix = variance * matern52(x / 2, POINTS / 2, 0.3), variance * matern52(x / 2, x / 2, 0.3) + noise * np.eye(len(x))
        centre = mean + along.T @ np.linalg.solve(matrix, column - mean)
        covariance = variance * matern52(POINTS / 2, POINTS / 2, 0.3) - along.T @ np.linalg.solve(matrix, along)
        draws.append(rng.multivariate_normal(centre, covariance, count, method="eigh"))
    return draws[0], draws[1]


@pytest.mark.parametrize("sign", [1, -1])
def test_random_points_bring_what_they_bring_in_dense_posteriors(sign: int) -> None:
    """Means over 2,000 futures of best value, gap and violations, known points included, against 20,000 dense draws and random points."""
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


def test_delays_come_beside_the_runs_in_flight() -> None:
    """Four runs in flight are a delay of three rounds, and two in flight beside two rounds are, too."""
    session, *_ = stated()
    flown = forecast(session, 4, [jb.Config()], in_flight=(1, 4), trials=16)
    late = forecast(session, 4, [jb.Config()], delays={"soon": jb.delays.NoDelay(), "late": jb.delays.Constant(rounds=3)}, trials=16)
    both = forecast(session, 4, [jb.Config()], in_flight=(2,), delays=[jb.delays.Constant(rounds=2)], trials=16)
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
    assert found.said == f"{words} that of other, the next, is 1.25 +- 1.23744 further."
    with pytest.raises(InvalidArgument, match="within: must be a number > 0, got 0"):
        found.until(0)


def test_a_large_grid_stands_for_its_likely_points() -> None:
    """Points that were measured are among them, and where the objective is best; algorithms that draw have few features."""
    axes, rng = [Axis.between(name, 0, 1, 50) for name in "xy"], np.random.default_rng(0)
    session = Session.create(None, axes, key=0, objective="maximise f", constraints=["c <= 1"], initial=jb.InitialDesign(random=12))
    for ticket in session.ask(12):
        x, y = (float(ticket.point[name]) for name in "xy")
        noise = 0.1 * rng.standard_normal(2)
        session.tell(ticket, {"f": -4 * (x - 0.5) ** 2 - 4 * (y - 0.5) ** 2 + noise[0], "c": 2 * x + noise[1]})
    begun, points = forecasts.begun_by(session, 8), session.specification.space.modelled
    held = np.asarray(begun.problem.domain.points, np.float64)
    assert 600 < len(held) <= 12 + POINTS_DRAWN + forecasts.SPREAD and len(np.unique(held, axis=0)) == len(held)
    told = [record.ticket.index for record in session._state.records.values()]
    np.testing.assert_array_equal(held[np.asarray(begun.initial.indices)], points[told])
    best = np.array([0.5, 0.5]) * np.ptp(points, axis=0) + points.min(axis=0)
    near = np.flatnonzero(np.max(np.abs(points - best) / np.ptp(points, axis=0), axis=1) < 0.05)
    assert np.isin(near, [np.argmin(np.abs(points - place).sum(axis=1)) for place in held]).all()
    assert max(form.rank for form in begun.learner(jb.ConstrainedThompson(), 8).forms) < 400


def test_given_values_condition_the_model_in_place_of_observed_ones() -> None:
    """With the values that a problem without noise has, choices are the same; with others the record shows them, and choices differ."""
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


def test_a_fitted_session_is_forecast_in_its_own_units() -> None:
    session = Session.create(None, [Axis("x", np.linspace(0, 1, 15))], key=0, objective="minimise cost", constraints=["heat >= 300"])
    for x in np.linspace(0, 1, 15)[::3]:
        session.observe({"x": float(x)}, {"cost": 1000 + 50 * float(x), "heat": 250 + 120 * float(x)})
    found = forecast(session, 4, trials=64)
    assert list(found.dataset["algorithm"].values) == ["Cei", "ConstrainedThompson", "Config", "Rpol"]
    last = found.dataset["best"].isel(evaluation=-1, in_flight=0, delay=0).median("future").values
    # The least allowed cost is that of x = 6 / 14, about 1021.4.
    assert np.all(np.abs(last - 1021.4) < 4)


def test_a_box_is_forecast_at_its_likely_points() -> None:
    session, rng = Session.create(None, {"x": (0.0, 1.0), "y": (0.0, 2.0)}, key=0, constraints=["cost <= 1"]), np.random.default_rng(0)
    for x, y in rng.uniform(size=(24, 2)) * [1, 2]:
        session.observe({"x": float(x), "y": float(y)}, {"reward": -((x - 0.3) ** 2) - (y - 1.0) ** 2, "cost": 2 * x + 0.2 * y})
    found = forecast(session, 8, [jb.Config()], trials=32).dataset
    assert float(found["gap"].isel(evaluation=-1).median()) < 0.3 * float(found["gap"].isel(evaluation=0).median())
    assert abs(float(found["best"].isel(evaluation=-1).median())) < 0.01, "the best allowed value is 0"


def test_refused_forecasts_name_the_argument() -> None:
    session, *_ = stated()
    empty = Session.create(None, [Axis("x", GRID)], key=0)
    empty.ask()
    table = jb.problems.from_tables(jb.domains.grid([0.0], [1.0], 5), np.zeros(5), [np.zeros(5)])
    with pytest.raises(SessionError, match="forecast: all values of at least one point must be told first"):
        forecast(empty, 3)
    for call, words in (
        (lambda: forecast(session, 3, model=session.model), "model: a session has its own"),
        (lambda: forecast(session, 3, "Config"), "algorithms: must be a list of algorithms, or a mapping"),
        (lambda: forecast(session, 3, []), "algorithms: must hold at least one"),
        (lambda: forecast(session, 3, in_flight=()), "in_flight: must hold at least one"),
        (lambda: forecast(session, 3, delays=[]), "delays: must hold at least one, got none"),
        (lambda: forecast(session, 3, delays=jb.delays.Poisson()), "delays: must be a list of delays, or a mapping from names to delays"),
        (lambda: forecast(session, 3, delays=[3]), "delays: must be a list of delays, or a mapping"),
        (
            lambda: forecast(session, 3, [jb.Config(), jb.Config()]),
            "algorithms: two have one name; give a mapping from names to algorithms",
        ),
        (lambda: forecast(table, 3), "model: must be given for a problem that is not drawn from a kernel"),
        (lambda: forecast(7, 3), "of: must be a Session, a problem or a Surrogate, got 7"),
        (lambda: jb.InitialDesign(random=2, values=[[1.0]]), "values: must have a row for each of 0 indices"),
        (lambda: Session.create(None, [Axis("x", GRID)], key=0, initial=jb.InitialDesign(indices=[0], values=[[1.0]])), "initial.values"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            call()
