"""Reasons for points that sessions asked for: beliefs of that time, the deciding term, near runs, and points without runs under way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jaxbandit import InvalidArgument
from jaxbandit.delays import NoDelay
from jaxbandit.kernels import Matern52, Scale
from jaxbandit.session import Axis, Model, Session, SessionError
from tests.oracles.gaussian_process import matern52

GRID = [Axis.between("a", 0, 1, 15), Axis.between("b", 0, 10, 15)]
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
    """A dense posterior of a stated model, at the point and at the best known one; later values change nothing."""
    model = Model(kernel=Scale(kernel=Matern52(length_scale=0.5), variance=2.0), noise_variance=0.1, prior_mean=[50.0, 0.5])
    with begun(GRID, 8, model=model, standardise=False) as session:
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


@pytest.mark.parametrize("axes", [GRID, BOX], ids=["grid", "box"])
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
    """One axis, known models: a far point explores, a near one exploits, and a better one that violates is a constraint's."""
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
    with begun(GRID, 1) as session:
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
