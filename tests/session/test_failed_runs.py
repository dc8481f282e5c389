"""Runs that failed: their points are neither asked for again nor recommended."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxbandit import Cei, InitialDesign, RandomSearch, SafeOpt, delays, domains
from jaxbandit.session import Axis, Model, Session, SessionError

GRID = [Axis.between("x", 0, 1, 3), Axis("n", (1, 2, 4))]
BOXES: dict[str, Any] = {
    "mixed": {"x": domains.log(1e-3, 1.0), "n": domains.integers(1, 3), "kind": ("a", "b")},
    "whole": {"n": domains.integers(1, 3), "kind": ("a", "b")},
}


def points_of(session: Session) -> list[tuple[Any, ...]]:
    return [tuple(record.ticket.point.values()) for record in session._state.records.values()]


@pytest.mark.parametrize(("algorithm", "delay"), [(Cei(), None), (Cei(), delays.NoDelay()), (RandomSearch(), None)])
def test_no_failed_point_of_a_grid_is_asked_for_again(algorithm: Any, delay: Any, tmp_path: Path) -> None:
    """Opened again the session goes on so, and what is told may be asked for again."""
    parts: dict[str, Any] = {"key": 3, "delay": delay, "model": Model(), "standardise": False}
    with Session.create(tmp_path / "s", GRID, algorithm, **parts) as session:
        for _ in range(7):
            session.drop(session.ask())
        assert len(set(points_of(session))) == 7
    with Session.open(tmp_path / "s") as session:
        for _ in range(3):
            ticket = session.ask()
            assert tuple(ticket.point.values()) not in points_of(session)[:7]
            session.tell(ticket, reward=1.0)
        failed = {record.ticket.index for record in session._state.records.values() if record.dropped}
        assert session.recommend().index not in failed and session.recommend(anywhere=True).index not in failed


@pytest.mark.parametrize(("case", "delay"), [("mixed", None), ("whole", None), ("whole", delays.NoDelay())])
def test_no_failed_point_of_a_box_is_asked_for_again(case: str, delay: Any, tmp_path: Path) -> None:
    """Points are the same within a thousandth of the sides of numbers; whole numbers and categories are the same or not."""
    with Session.create(tmp_path / "s", BOXES[case], Cei(), key=1, delay=delay) as session:
        count = 6 if case == "whole" else 10
        for _ in range(count):
            session.drop(session.ask())
        space = session._state.space
        places = [np.asarray(place) for place in space.own]
        assert all(np.max(np.abs(one - other)) > 0.9e-3 for one, other in itertools.combinations(places, 2))
        if case == "whole":
            with pytest.raises(SessionError, match=r"^ask: the runs at all points have failed"):
                session.ask()
            with pytest.raises(SessionError, match=r"^recommend: "):
                session.recommend()
        else:
            kept = session.ask()
            session.tell(kept, reward=0.0)
            assert session.recommend().point == kept.point


def test_nothing_is_left_where_every_point_has_failed(tmp_path: Path) -> None:
    with Session.create(tmp_path / "s", GRID, RandomSearch(), key=0, model=Model(), standardise=False) as session:
        tickets = [session.ask()]
        for _ in range(8):
            session.drop(tickets[-1])
            tickets.append(session.ask())
        session.drop(tickets[-1])
        with pytest.raises(SessionError, match=r"^ask: the runs at all points have failed.* told as a correction"):
            session.ask()
        with pytest.raises(SessionError, match=r"^recommend: every point has failed"):
            session.recommend(anywhere=True)
        session.tell(tickets[4], reward=2.0, correct=True)
        assert session.ask().point == tickets[4].point == session.recommend().point


def test_a_failed_point_of_the_initial_design_is_not_asked_for_twice(tmp_path: Path) -> None:
    """Another point stands for one that the design holds twice; journals in which it was asked for again still open."""
    parts: dict[str, Any] = {"key": 0, "model": Model(), "initial": InitialDesign(indices=[4, 4, 0, 4])}
    with Session.create(tmp_path / "s", GRID, Cei(), **parts) as session:
        first = session.ask()
        session.drop(first)
        others = session.ask(3)
        assert first.index == 4 and others[1].index == 0 and 4 not in {other.index for other in others}
        assert [other.round for other in others] == [0, 0, 0] and session.ask().round == 1
    with Session.open(tmp_path / "s") as session:
        assert [record.ticket.index for record in session._state.records.values()][1:4] == [other.index for other in others]
    with Session.create(tmp_path / "old", GRID, Cei(), **parts) as session:
        session.drop(session.ask())
        with session._claimed():
            session._happen("asked", {**session._state.next(), "status": 0})
    with Session.open(tmp_path / "old") as session:
        assert [record.ticket.index for record in session._state.records.values()] == [4, 4]


def test_a_point_that_ran_once_is_recommended_but_not_asked_for_again(tmp_path: Path) -> None:
    parts: dict[str, Any] = {"key": 0, "model": Model(noise_variance=0.01), "initial": InitialDesign(indices=[4, 4, 0])}
    with Session.create(tmp_path / "s", GRID, Cei(), standardise=False, **parts) as session:
        for ticket, reward in zip(session.ask(3), (3.0, None, 0.0), strict=True):
            if reward is None:
                session.drop(ticket)
            else:
                session.tell(ticket, reward=reward)
        assert session.recommend().index == 4
        asked = []
        for _ in range(12):
            ticket = session.ask()
            asked.append(ticket.index)
            session.tell(ticket, reward=-1.0)
        assert 4 not in asked


def test_values_that_a_dropped_run_of_the_initial_design_has_are_learnt(tmp_path: Path) -> None:
    parts: dict[str, Any] = {"key": 0, "model": Model(noise_variance=0.01), "initial": InitialDesign(indices=[4, 0])}
    with Session.create(tmp_path / "s", GRID, Cei(), constraints=["ok >= 0.5"], standardise=False, **parts) as session:
        first, _ = session.ask(2)
        before = session.belief()
        session.tell(first, {"ok": -3.0})
        session.drop(first)
        told = session.belief()
        assert float(told["mean"].sel(output="ok", point=4)) < -2.5 < float(before["mean"].sel(output="ok", point=4))
        assert told["mean"].sel(output="reward").equals(before["mean"].sel(output="reward"))
        assert session.history()["state"].values.tolist() == ["dropped", "pending"]


def test_a_rule_that_certifies_points_takes_no_other_for_one_that_failed(tmp_path: Path) -> None:
    parts: dict[str, Any] = {"model": Model(), "constraints": ["cost <= 1"], "standardise": False, "delay": delays.NoDelay()}
    with Session.create(tmp_path / "s", GRID, SafeOpt(seeds=[4]), key=0, **parts) as session:
        session.drop(session.ask())
        with pytest.raises(SessionError, match=r"^ask: SafeOpt finds no point but those that have failed"):
            session.ask()
