"""When an experiment is settled: probabilities against dense posteriors, and rules that end sessions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jaxbandit import optimise
from jaxbandit.kernels import Categorical, Matern32, Matern52, OnAxes, Scale
from jaxbandit.session import Axis, Model, Session, SessionError, Settled
from jaxbandit.session.settled import POINTS_DRAWN, likely_points
from jaxbandit.surrogates.evidence.host import averaged
from tests.oracles.gaussian_process import matern32, matern52

GRID = np.linspace(0.0, 1.0, 12)


def test_functions_are_drawn_from_the_posterior_of_every_model() -> None:
    """Mean and covariance of 40,000 draws against dense formulas, of two kernels with the weights 3 / 4 and 1 / 4."""
    rng = np.random.default_rng(1)
    x, at, noise, count = rng.uniform(size=(8, 2)), rng.uniform(size=(10, 2)), 0.05, 40_000
    values = np.sin(4 * x[:, 0]) + x[:, 1]
    kernels = [Scale(kernel=form(length_scale=0.4), variance=2.0) for form in (Matern52, Matern32)]
    own = averaged(kernels[:1], x, values[:, None], noise, prior=None, constant=1.0, draws=0)
    other = averaged(kernels[1:], x, values[:, None], noise, prior=None, constant=1.0, draws=0)
    both = own._replace(models=[*own.models, *other.models], weights=np.asarray([0.75, 0.25]))
    drawn = both.draws(at, count, seed=3)
    means, covariances = [], []
    for form in (matern52, matern32):
        matrix = 2.0 * form(x, x, 0.4) + 1.0 + noise * np.eye(8)
        along = 2.0 * form(x, at, 0.4) + 1.0
        means.append(along.T @ np.linalg.solve(matrix, values))
        covariances.append(2.0 * form(at, at, 0.4) + 1.0 - along.T @ np.linalg.solve(matrix, along))
    mean = 0.75 * means[0] + 0.25 * means[1]
    expected = 0.75 * covariances[0] + 0.25 * covariances[1] + 0.1875 * np.outer(means[0] - means[1], means[0] - means[1])
    sd = np.sqrt(np.diag(expected))
    assert np.all(np.abs(drawn.mean(axis=0) - mean) < 4.5 * sd / np.sqrt(count))
    # The standard error of a covariance of normal numbers is at most sqrt(2 / n) of the product of their deviations.
    assert np.all(np.abs(np.cov(drawn.T) - expected) < 4.5 * np.sqrt(2 / count) * np.outer(sd, sd))


def dense_settlement(points: np.ndarray, x: np.ndarray, values: np.ndarray, within: float) -> tuple[float, float]:
    """Return probability and expected gain of the best point measured, by 20,000 draws of two dense posteriors."""
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
    """Return a reward with its best allowed value, -.02, at (.2, .5), where its constraint is active."""
    return {"reward": -((x - 0.3) ** 2) - (y - 0.6) ** 2, "cost": x + y - 0.7}


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


def test_categories_and_values_in_parts_are_settled_too() -> None:
    axes = [Axis.of_categories("kind", ("a", "b", "c")), Axis("x", GRID)]
    kernel = OnAxes(kernel=Categorical(), axes=(0,)) * OnAxes(kernel=Matern52(length_scale=0.4), axes=(1,))
    for model in (None, Model(kernel=kernel, noise_variance=0.01)):
        session = Session.create(None, axes, key=0, model=model, constraints=["cost <= 0.8"])
        for kind, x in (("a", 0.0), ("b", GRID[5]), ("c", GRID[8]), ("a", 1.0), ("b", GRID[2])):
            ticket = session.observe({"kind": kind, "x": float(x)}, {"reward": float(x)})
        assert 0 <= session.settled(0.2).probability < 0.9, "nothing is known of the cost"
        session.tell(ticket, {"cost": 0.1})
        assert session.settled(0.2).gain >= 0


def test_points_near_a_known_hill_leave_room_for_points_that_nobody_knows() -> None:
    """Of 20 runs on the left half of a box, the right half must stay among the points at which functions are drawn."""
    session, rng = Session.create(None, {"x": (0.0, 1.0), "y": (0.0, 1.0)}, key=0), np.random.default_rng(3)
    for x, y in rng.uniform(size=(20, 2)) * [0.5, 1.0]:
        session.observe({"x": float(x), "y": float(y)}, {"reward": float(np.exp(-20 * ((x - 0.2) ** 2 + (y - 0.5) ** 2)))})
    state, best = session._state, session.recommend().index
    assert best is not None
    points, numbers = likely_points(state.believed, state.space, best, state.unfit, 64)
    assert len(points) <= POINTS_DRAWN and np.count_nonzero(numbers == best) == 1
    assert np.count_nonzero(numbers >= 0) >= POINTS_DRAWN // 2
    assert np.count_nonzero((points[:, 0] > 0.6) & (numbers >= 0)) > 100
