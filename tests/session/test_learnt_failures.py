"""Runs that failed, and learnt failures."""

import csv
import dataclasses
import itertools
import math
import shutil
import sqlite3
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr

from jaxbandit import Cei, ConstrainedThompson, InitialDesign, RandomSearch, SafeOpt, Se2, delays, domains, kernels, optimise
from jaxbandit.cli import main
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.session import Axis, Model, Session, SessionError, forecast
from jaxbandit.session.journal import JOURNAL, DamagedSession, open_journal
from tests.oracles.expected_improvement import log_expected_improvement

GRID = [Axis.between("x", 0, 1, 6), Axis("n", (1, 2, 4, 5))]
BOX = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
MODEL = Model(kernel=kernels.SquaredExponential(length_scale=0.4), noise_variance=0.01)
ROW: dict[str, Any] = {"index": 0, "point": {"x": 0.0, "n": 1}, "failed": True}
STATED: dict[str, Any] = {"key": 3, "model": MODEL, "standardise": False}


def told(session: Session, values: list[float | None]) -> None:
    """Tell the values of points asked for, ``None`` for failed runs."""
    for value in values:
        ticket = session.ask()
        if value is None:
            session.tell(ticket, failed=True)
        else:
            session.tell(ticket, reward=value)


def believed(points: np.ndarray, known: np.ndarray, values: np.ndarray, mean: float, length: float) -> tuple[np.ndarray, np.ndarray]:
    matrix = np.exp(-np.sum((points[:, None] - points[None]) ** 2, axis=2) / (2 * length**2))
    solved = np.linalg.solve(matrix[np.ix_(known, known)] + 0.01 * np.eye(len(known)), matrix[known])
    return mean + solved.T @ (values - mean), np.sqrt(1 - np.sum(matrix[known] * solved, axis=0))


@pytest.mark.full(but=("late",))
@pytest.mark.parametrize("delay", [None, delays.NoDelay()], ids=["late", "at once"])
def test_expected_improvement_counts_with_a_power_of_the_probability_that_a_run_gives_values(delay: Any) -> None:
    """Constraints keep their exponents, here 2."""
    goals: dict[str, Any] = {"objective": "maximise y", "constraints": ["c <= 0.2"]}
    with Session.create(None, GRID, Cei(caution=2.0), delay=delay, **goals, **STATED) as session:
        for values in ({"y": 0.5, "c": 0.1}, {"y": 1.0, "c": 0.3}, None, {"y": 0.7, "c": 0.0}, None):
            ticket = session.ask()
            session.tell(ticket, values, failed=values is None)
        points, columns = session.specification.space.modelled, session.columns()
        chosen = session.ask().index
    seen, ran = columns["index"], ~columns["failed"]
    reward, cost = (believed(points, seen[ran], columns[name][ran] - mean, 0.0, 0.4) for name, mean in (("y", 0.0), ("c", 0.2)))
    runs = believed(points, seen, np.where(ran, 1.0, -1.0), 1.0, 0.24)
    holds = [index for index in seen if cost[0][index] <= 0 and runs[0][index] >= 0]
    score = 2 * log_ndtr(-cost[0] / cost[1]) + log_expected_improvement(*reward, np.max(reward[0][holds]))
    cautious = score + 30 * log_ndtr(runs[0] / runs[1])
    cautious[seen[~ran]] = -np.inf
    assert chosen == np.argmax(cautious) != np.argmax(score + log_ndtr(runs[0] / runs[1]))


@pytest.mark.full(but=("at once",))
@pytest.mark.parametrize("delay", [None, delays.NoDelay()], ids=["late", "at once"])
def test_the_probability_that_a_run_gives_values_is_that_of_a_process_by_hand(delay: Any) -> None:
    """The process has mean 1, noise 0.01 and shorter length-scales."""
    with Session.create(None, GRID, Cei(), delay=delay, **STATED) as session:
        told(session, [0.5, 1.0, -0.3])
        before = session.belief()
        assert np.all(before["probability_of_feasibility"] == 1)
        told(session, [None, 0.2, None])
        after, columns = session.belief(), session.columns()
    points, seen = session.specification.space.modelled, columns["index"]
    ran = np.where(columns["failed"], -1.0, 1.0)
    assert (
        columns["state"].tolist() == [*3 * ["complete"], "failed", "complete", "failed"]
        and columns["failed"].tolist() == (ran < 0).tolist()
    )
    mean, sd = believed(points, seen, ran, 1.0, 0.24)
    assert np.allclose(after["probability_of_feasibility"], ndtr(mean / sd), atol=2e-3)
    mean, sd = believed(points, seen[ran > 0], columns["reward"][ran > 0], 0.0, 0.4)
    assert np.allclose(after["mean"].values[0], mean, atol=2e-3) and np.allclose(after["sd"].values[0], sd, atol=2e-3)
    assert after["output"].values.tolist() == ["reward"]


@pytest.mark.full(but=("grid",))
@pytest.mark.parametrize("domain", [GRID, BOX], ids=["grid", "box"])
def test_journals_replay_failures_to_the_same_bits(domain: Any, tmp_path: Path) -> None:
    with Session.create(tmp_path / "s", domain, key=2, constraints=["cost <= 1"]) as session:
        tickets = session.ask(8)
        for ticket in tickets[:4]:
            session.tell(ticket, {"reward": math.sin(7 * ticket.point["x"])})
        assert version(tmp_path / "s") == 2
        session.tell(tickets[5], failed=True)
        assert version(tmp_path / "s") == 3
        for ticket in reversed(tickets[:4]):
            session.tell(ticket, {"cost": ticket.point["x"]})
        session.ask()
        session.tell(tickets[6], {"cost": 0.5})
        session.tell(tickets[6], failed=True)
        session.observe({"x": 0.4, **({"n": 2} if domain is GRID else {"y": 0.5})}, {"reward": 0.1, "cost": 0.2})
        session.ask(2)
        with Session.open(tmp_path / "s", read_only=True) as copy:
            assert copy.belief().equals(session.belief()) and copy.model.table() == session.model.table()
        shutil.copytree(tmp_path / "s", tmp_path / "copy")
        expected = session.ask().point
    with Session.open(tmp_path / "copy") as again:
        assert again.ask().point == expected


def version(directory: Path) -> int:
    """The version of a journal."""
    connection = sqlite3.connect(directory / JOURNAL)
    [number] = connection.execute("PRAGMA user_version").fetchone()
    connection.close()
    return int(number)


@pytest.mark.full(but=("cei0",))
@pytest.mark.parametrize("algorithm", [Cei(), Cei(incumbent="observed"), ConstrainedThompson(), RandomSearch()], ids=lambda one: one.name)
@pytest.mark.parametrize("delay", [None, delays.NoDelay()], ids=["late", "at once"])
def test_no_point_whose_run_failed_is_asked_for_again(algorithm: Any, delay: Any) -> None:
    model = dataclasses.replace(MODEL, form="features")
    with Session.create(None, GRID, algorithm, delay=delay, **STATED | {"model": model}) as session:
        tickets = []
        for _ in range(10):
            tickets.append(session.ask())
            session.tell(tickets[-1], failed=True)
        assert len({ticket.index for ticket in tickets}) == 10
        kept = session.ask()
        session.tell(kept, failed="retry")
        again = session.ask()
        assert again.point == kept.point and again.number == kept.number + 1
        session.tell(again, failed=True)
        for _ in range(12):
            other = session.ask()
            assert other.index not in {ticket.index for ticket in (*tickets, kept)}
            session.tell(other, reward=1.0)
        assert session.recommend().index not in {ticket.index for ticket in (*tickets, kept)}
        assert session.columns()["state"].tolist()[9:13] == ["failed", "retry", "failed", "complete"]


@pytest.mark.full
def test_no_box_is_searched_beside_a_run_that_failed() -> None:
    def crashes(x: float, y: float) -> float | None:
        return None if x > 0.55 else x + math.exp(-((x - 0.5) ** 2 + (y - 0.5) ** 2) / 0.05)

    found = optimise(crashes, BOX, 22, key=1)
    points = np.asarray([list(point.values()) for point in found.points])
    failed = points[:, 0] > 0.55
    assert failed.sum() <= 10 and found.best["x"] > 0.5
    assert np.array_equal(found.session.columns()["failed"], failed) and np.array_equal(np.isnan(found.table["reward"]), failed)
    apart = np.max(np.abs(points[failed][:, None] - points[None]), axis=2)
    assert np.all(np.sum(apart < 0.9e-3, axis=1) == 1)


def test_an_accident_teaches_nothing() -> None:
    with Session.create(None, GRID, Cei(), **STATED) as session, Session.create(None, GRID, Cei(), **STATED) as other:
        for one in (session, other):
            told(one, [0.5, 1.0])
        session.tell(session.ask(), failed="retry")
        assert session.belief().equals(other.belief()) and session.model is other.model is MODEL
        assert not session.columns()["failed"].any()
        with pytest.raises(SessionError, match=r"^ticket 3: was told that its run failed; tell\(..., correct=True\) takes that back"):
            session.tell(3, reward=1.0)
        session.tell(3, reward=1.0, correct=True)
        told(other, [1.0])
        assert session.belief().equals(other.belief())


@pytest.mark.full(but=("late",))
@pytest.mark.parametrize("delay", [None, delays.NoDelay()], ids=["late", "at once"])
def test_a_failure_that_was_none_is_taken_back(delay: Any) -> None:
    with (
        Session.create(None, GRID, Cei(), delay=delay, **STATED) as session,
        Session.create(None, GRID, Cei(), delay=delay, **STATED) as other,
    ):
        for one in (session, other):
            told(one, [0.5, 1.0, None])
        ticket, same = session.ask(), other.ask()
        assert ticket.index == same.index
        session.tell(ticket, failed=True)
        session.tell(ticket, reward=0.7, correct=True)
        other.tell(same, reward=0.7)
        assert session.belief().equals(other.belief()) and session.ask().index == other.ask().index
        assert session.columns()["state"].tolist()[:4] == ["complete", "complete", "failed", "complete"]
        session.tell(3, failed="retry", correct=True)
        assert np.all(session.belief()["probability_of_feasibility"] > 0.8)


def test_what_cannot_be_told_of_a_failure_is_refused_by_name() -> None:
    with Session.create(None, GRID, Cei(), constraints=["cost <= 1"], **STATED) as session:
        tickets = session.ask(4)
        session.tell(tickets[0], {"reward": 1.0, "cost": 0.0})
        session.tell(tickets[1], failed=True)
        session.drop(tickets[2])
        count = len(session.events)
        for error, words, arguments in (
            (SessionError, r"^ticket 1: cannot have failed, all its values have been told$", {"ticket": 1, "failed": True}),
            (SessionError, r"^ticket 2: was told before that its run failed$", {"ticket": 2, "failed": True}),
            (SessionError, r"^ticket 2: was told before that its run failed$", {"ticket": 2, "failed": True, "correct": True}),
            (SessionError, r"^ticket 2: was told that its run failed; .* takes that back$", {"ticket": 2, "failed": "retry"}),
            (SessionError, r"^ticket 2: was told that its run failed; .* takes that back$", {"ticket": 2, "values": {"cost": 1.0}}),
            (SessionError, r"^ticket 3: was dropped; .* takes that back$", {"ticket": 3, "failed": True}),
            (InvalidArgument, r"^ticket: must be one that was asked for", {"ticket": 9, "failed": True}),
            (InvalidArgument, r"^failed: must be True, False or 'retry', got 'again'", {"ticket": 4, "failed": "again"}),
            (InvalidArgument, r"^failed: must be True, False or 'retry', got 1", {"ticket": 4, "failed": 1}),
            (InvalidArgument, r"^failed: must be True, False or 'retry', got None", {"ticket": 4, "failed": None}),
            (InvalidArgument, r"^failed: a run that failed has no values", {"ticket": 4, "failed": True, "reward": 1.0}),
            (InvalidArgument, r"^reward: must be a finite number, got nan; failed=True says", {"ticket": 4, "reward": math.nan}),
        ):
            with pytest.raises(error, match=words):
                session.tell(**arguments)
        with pytest.raises(SessionError, match=r"^ticket 2: cannot be dropped, it was told that its run failed$"):
            session.drop(2)
        assert len(session.events) == count
        session.tell(3, failed=True, correct=True)
        assert session.columns()["state"].tolist() == ["complete", "failed", "failed", "pending"]


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("failed", {"ticket": 1, "retry": False}, "ticket: must be one that could fail, got 1, which is complete"),
        ("failed", {"ticket": 2, "retry": False}, "ticket: must be one that could fail, got 2, which is failed"),
        ("failed", {"ticket": 3, "retry": 1}, "retry: "),
        ("failed", {"ticket": 3}, "must hold retry, ticket"),
        ("dropped", {"ticket": 2}, "ticket: must be one that could be dropped, got 2, which is failed"),
        ("observed", {"ticket": 4, "rows": [ROW | {"values": {"reward": 1.0}}]}, "values: must be none of a run that failed"),
        ("observed", {"ticket": 4, "rows": [ROW | {"values": {}, "failed": 1}]}, "failed: must be True"),
    ],
)
def test_a_failure_that_does_not_follow_on_the_journal_is_damage(kind: str, body: Any, words: str, tmp_path: Path) -> None:
    with Session.create(tmp_path / "s", GRID, Cei(), **STATED) as session:
        session.ask(3)
        session.tell(1, reward=1.0)
        session.tell(2, failed=True)
    journal = open_journal(tmp_path / "s")
    with journal.claim():
        journal.append(kind, body)
    journal.close()
    with pytest.raises(DamagedSession, match=f"does not fit its session: {words}"):
        Session.open(tmp_path / "s")


def test_a_table_says_which_runs_failed(tmp_path: Path) -> None:
    with Session.create(None, GRID, Cei(), constraints=["cost <= 1"], **STATED) as session:
        session.ask(2)
        table = {"ticket": [1, 2, ""], "x": ["", "", 0.4], "n": ["", "", 2], "reward": [1.0, "", ""], "cost": [0.5, "", ""]}
        with pytest.raises(InvalidArgument, match=r"^history: row 2: failed: must be true or false, or blank, got 'maybe'"):
            session.tell_all(table | {"failed": ["", "maybe", True]})
        with pytest.raises(InvalidArgument, match=r"^history: row 1: failed: a run that failed has no values, got \{"):
            session.tell_all(table | {"failed": ["yes", "", True]})
        assert [ticket.number for ticket in session.tell_all(table | {"failed": [False, "yes", True]})] == [1, 2, 3]
        assert session.columns()["failed"].tolist() == [False, True, True]
        own = session.history().to_dataframe().reset_index()
        assert session.tell_all(own) == () and own["failed"].tolist() == [False, True, True]
        own.drop(columns="ticket")[["x", "n", "reward", "cost", "failed"]].to_csv(tmp_path / "runs.csv", index=False)
    with Session.create(tmp_path / "s", GRID, Cei(), constraints=["cost <= 1"], history=tmp_path / "runs.csv", **STATED) as other:
        assert other.columns()["failed"].tolist() == [False, True, True] and version(tmp_path / "s") == 3
        point = {"x": 0.4, "n": 2}
        index = other.specification.space.nearest(point)
        assert float(other.belief()["probability_of_feasibility"][index]) < 0.1
        asked = [other.ask().index for _ in range(12)]
        assert not {*asked} & {*session.columns()["index"][1:].tolist()}
    with Session.open(tmp_path / "s") as again:
        assert again.belief().equals(other.belief())
    with pytest.raises(InvalidArgument, match=r"^history: must have a column of an output"):
        Session.create(None, GRID, Cei(), history={"x": [0.4], "n": [2]}, **STATED)


def test_outputs_of_any_name_are_those_of_the_user() -> None:
    with Session.create(None, GRID, Cei(), objective="maximise failed", constraints=["runs >= 0"], **STATED) as session:
        session.ask(2)
        session.tell(1, {"failed": 3.0, "runs": 0.5})
        session.tell(2, failed=True)
        assert session.columns()["failed"].tolist()[0] == 3.0 and np.isnan(session.columns()["failed"][1])
        assert session.columns()["state"].tolist() == ["complete", "failed"]
        session.observe({"x": 0.4, "n": 2}, {"failed": 1.0, "runs": 1.0})
        assert session.tell_all({"x": [0.6], "n": [2], "failed": [2.0], "runs": [0.1]})[0].number == 4
        assert session.recommend().mean.keys() == {"failed", "runs"}


def test_what_the_function_of_a_search_says_of_failures() -> None:
    class Broken(Exception):
        pass

    results = iter([1.0, None, math.nan, math.inf, Broken(), 2.0, KeyError("gone")])

    def function(x: float, n: float) -> float | None:
        result = next(results)
        if isinstance(result, Exception):
            raise result
        return result

    with pytest.raises(KeyError) as raised:
        optimise(function, GRID, 8, algorithm=RandomSearch(), model=MODEL, catch=Broken)
    found: Any = raised.value.optimised  # type: ignore[attr-defined]
    assert found.session.columns()["state"].tolist() == ["complete", *4 * ["failed"], "complete", "pending"]
    assert "evaluations: 6, 4 failed" in repr(found)


@pytest.mark.full(but=("SafeOpt",))
@pytest.mark.parametrize("algorithm", [SafeOpt(seeds=[4]), Se2()], ids=["SafeOpt", "Se2"])
def test_a_rule_that_cannot_learn_failures_says_so_once_and_asks_for_no_point_again(algorithm: Any) -> None:
    with Session.create(None, GRID, algorithm, constraints=["cost <= 1"], **STATED) as session:
        session.tell(session.ask(), {"reward": 1.0, "cost": 0.0})
        model, before = session.model, session.belief()
        with warnings.catch_warnings():
            # SafeOpt's safe set stands still.
            warnings.simplefilter("ignore")
            first, second = session.ask(), session.ask()
        with pytest.warns(UserWarning, match=rf"^tell: with {type(algorithm).__name__} this session learns nothing from runs that fail"):
            session.tell(first, failed=True)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            session.tell(second, failed=True)
        assert session.model is model and session.belief().equals(before)
        assert session.columns()["state"].tolist() == ["complete", "failed", "failed"]


def test_failures_of_an_initial_design_count_for_the_first_fit() -> None:
    """Noise is then shown at a run that gave values."""
    with Session.create(None, BOX, key=0) as session:
        tickets = [session.ask() for _ in range(5)]
        for ticket in tickets[:3]:
            session.tell(ticket, failed=True)
        assert not any(event.kind == "fitted" for event in session.events)
        with pytest.raises(SessionError, match=r"^recommend: nothing has been told yet"):
            session.recommend()
        for ticket in tickets[3:]:
            session.tell(ticket, reward=ticket.point["x"])
        last = session.ask()
        assert last.round == 0 and all(abs(last.point[name] - tickets[3].point[name]) < 2e-4 for name in BOX)
        session.tell(last, reward=last.point["x"])
        assert "model" in session.events[-1].body and session.events[-1].body["told"] == 6
        assert session.ask().round == 1


@pytest.mark.full(but=("one",))
@pytest.mark.parametrize("domain", [{"x": (0.0, 1.0)}, BOX, {**BOX, "z": (0.0, 1.0)}], ids=["one", "two", "three"])
def test_failures_are_crosses(domain: Any, tmp_path: Path) -> None:
    with Session.create(tmp_path, domain, model=MODEL, key=1) as session:
        told(session, [0.5, 0.2])
        lines = [line for axis in session.plot().axes for line in axis.lines if line.get_label() == "failed"]
        assert lines == []
        told(session, [None])
        lines = [line for axis in session.plot().axes for line in axis.lines if line.get_label() == "failed"]
        assert lines and all(line.get_marker() == "x" for line in lines)
        if len(domain) < 3:
            assert all(float(line.get_xdata()[0]) == pytest.approx(session.columns()["x"][-1]) for line in lines)


@pytest.mark.full
def test_a_forecast_after_a_failure_is_one_of_the_outputs_that_were_told() -> None:
    session = Session.create(None, [Axis.between("x", 0, 1, 9)], key=0, objective="maximise f", constraints=["g <= 0.6"])
    session.tell(session.ask(), failed=True)
    with pytest.raises(SessionError, match=r"^forecast: all values of at least one point must be told first$"):
        forecast(session, 2)
    for number, ticket in enumerate(session.ask(5)):
        x = float(ticket.point["x"])
        session.tell(ticket, **({"failed": True} if number == 2 else {"values": {"f": x, "g": x * x}}))
    found = forecast(session, 2, [Cei()], trials=16)
    best = found.dataset["best"].values
    known = [f for f, g in zip(session.columns()["f"], session.columns()["g"], strict=True) if g <= 0.6]
    np.testing.assert_allclose(best[..., 0], max(known), atol=0.1)
    assert np.all(np.diff(best, axis=-1) >= 0) and found.objective == "f"


def test_the_command_line_tells_failures(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "e.toml"
    file.write_text(
        'objective = "maximise reward"\nstandardise = false\n[axis.x]\nlow = 0\nhigh = 1\npoints = 9\n'
        '[algorithm]\ntype = "Cei"\n[model]\nnoise_variance = 0.01\n[model.kernel]\ntype = "SquaredExponential"\nlength_scale = 0.3\n'
    )
    where = str(tmp_path / "e")

    def said(*words: Any) -> str:
        assert main(["session", *map(str, words)]) == 0
        return str(capsys.readouterr().out)

    def refused(*words: Any) -> str:
        assert main(["session", *map(str, words)]) == 2
        return str(capsys.readouterr().err)

    said("new", file)
    said("ask", where, "-n", 3)
    said("tell", where, 1, "--reward", 1)
    assert "failed" not in said("status", where) and "failed" not in said("history", where)
    assert said("fail", where, 2).split() == ["ticket", "2", "state", "failed"]
    assert said("fail", where, 3, "--retry").split() == ["ticket", "3", "state", "retry"]
    status = said("status", where).split()
    assert status[status.index("failed") + 1] == status[status.index("retry") + 1] == "1"
    assert "ticket 2: was told before that its run failed" in refused("fail", where, 2)
    assert "session fail with --correct takes that back" in refused("fail", where, 2, "--retry")
    assert "ticket 1: cannot have failed" in refused("fail", where, 1)
    said("fail", where, 3, "--correct")
    said("history", where, "--csv", tmp_path / "h.csv")
    rows = list(csv.DictReader((tmp_path / "h.csv").read_text().splitlines()))
    assert [row["failed"] for row in rows] == ["False", "True", "True"] and [row["state"] for row in rows] == ["told", "failed", "failed"]
    assert said("list", where).split().count("failed") == 2
    text = said("report", where) and (tmp_path / "e" / "report.html").read_text()
    assert "Crosses mark where runs failed" in text and "2 failed" in text


def test_a_design_point_that_failed_does_not_end_the_design() -> None:
    design = InitialDesign(indices=[4, 0, 9])
    with Session.create(None, GRID, Cei(), initial=design, **STATED) as session:
        told(session, [None, None, None])
        assert session.ask().round == 1
        assert np.all(session.belief()["mean"] == 0)


def test_whole_numbers_and_categories_fail_one_by_one() -> None:
    sides: Any = {"n": domains.integers(1, 3), "kind": ("a", "b")}
    with Session.create(None, sides, Cei(), key=1) as session:
        for _ in range(5):
            session.tell(session.ask(), failed=True)
        kept = session.ask()
        session.tell(kept, reward=1.0)
        assert session.recommend().point == kept.point
        assert len({tuple(record.ticket.point.values()) for record in session._state.records.values()}) == 6


FAILED_GRID = [Axis.between("x", 0, 1, 3), Axis("n", (1, 2, 4))]
BOXES: dict[str, Any] = {
    "mixed": {"x": domains.log(1e-3, 1.0), "n": domains.integers(1, 3), "kind": ("a", "b")},
    "whole": {"n": domains.integers(1, 3), "kind": ("a", "b")},
}


def points_of(session: Session) -> list[tuple[Any, ...]]:
    return [tuple(record.ticket.point.values()) for record in session._state.records.values()]


@pytest.mark.full(but=("late",))
@pytest.mark.parametrize(
    ("algorithm", "delay"), [(Cei(), None), (Cei(), delays.NoDelay()), (RandomSearch(), None)], ids=["late", "at once", "random"]
)
def test_no_failed_point_of_a_grid_is_asked_for_again(algorithm: Any, delay: Any, tmp_path: Path) -> None:
    parts: dict[str, Any] = {"key": 3, "delay": delay, "model": Model(), "standardise": False}
    with Session.create(tmp_path / "s", FAILED_GRID, algorithm, **parts) as session:
        for _ in range(7):
            session.drop(session.ask())
        assert len(set(points_of(session))) == 7
    with Session.open(tmp_path / "s") as session:
        for _ in range(3):
            ticket = session.ask()
            assert tuple(ticket.point.values()) not in points_of(session)[:7]
            session.tell(ticket, reward=1.0)
        failed = {record.ticket.index for record in session._state.records.values() if record.over == "dropped"}
        assert session.recommend().index not in failed and session.recommend(anywhere=True).index not in failed


@pytest.mark.full(but=("mixed",))
@pytest.mark.parametrize(("case", "delay"), [("mixed", None), ("whole", None), ("whole", delays.NoDelay())])
def test_no_failed_point_of_a_box_is_asked_for_again(case: str, delay: Any, tmp_path: Path) -> None:
    """Numbers must be a thousandth apart, and whole numbers must differ."""
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
    with Session.create(tmp_path / "s", FAILED_GRID, RandomSearch(), key=0, model=Model(), standardise=False) as session:
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
    parts: dict[str, Any] = {"key": 0, "model": Model(), "initial": InitialDesign(indices=[4, 4, 0, 4])}
    with Session.create(tmp_path / "s", FAILED_GRID, Cei(), **parts) as session:
        first = session.ask()
        session.drop(first)
        others = session.ask(3)
        assert first.index == 4 and others[1].index == 0 and 4 not in {other.index for other in others}
        assert [other.round for other in others] == [0, 0, 0] and session.ask().round == 1
    with Session.open(tmp_path / "s") as session:
        assert [record.ticket.index for record in session._state.records.values()][1:4] == [other.index for other in others]
    with Session.create(tmp_path / "old", FAILED_GRID, Cei(), **parts) as session:
        session.drop(session.ask())
        with session._claimed():
            session._happen("asked", {**session._state.next(), "status": 0})
    with Session.open(tmp_path / "old") as session:
        assert [record.ticket.index for record in session._state.records.values()] == [4, 4]


def test_a_point_that_ran_once_is_recommended_but_not_asked_for_again(tmp_path: Path) -> None:
    parts: dict[str, Any] = {"key": 0, "model": Model(noise_variance=0.01), "initial": InitialDesign(indices=[4, 4, 0])}
    with Session.create(tmp_path / "s", FAILED_GRID, Cei(), standardise=False, **parts) as session:
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
    with Session.create(tmp_path / "s", FAILED_GRID, Cei(), constraints=["ok >= 0.5"], standardise=False, **parts) as session:
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
    with Session.create(tmp_path / "s", FAILED_GRID, SafeOpt(seeds=[4]), key=0, **parts) as session:
        session.drop(session.ask())
        with pytest.raises(SessionError, match=r"^ask: SafeOpt finds no point but those that have failed"):
            session.ask()
