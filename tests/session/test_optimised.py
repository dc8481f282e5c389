"""optimise, and constraints on coordinates in sessions and one-call searches."""

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit import InvalidArgument, RandomSearch, domains, optimise
from jaxbandit.session import Axis, Model, Session, SessionError, read_toml
from jaxbandit.session.axes import Space

DOMAIN = domains.mixed({"x": [0.0, 0.5, 1.0, 1.5], "kind": [0.0, 1.0]})
OPTIONS: dict[str, Any] = {"objective": "minimise loss", "constraints": ["cost <= 1"], "model": Model(), "algorithm": RandomSearch()}
# Searches of eight evaluations share their programs.
CALLS: list[dict[str, Any]] = []


def outcome(x: float, kind: float) -> dict[str, float] | None:
    CALLS.append({"x": x, "kind": kind})
    return None if (x, kind) == (0.0, 0.0) else {"loss": (x - 1.0) ** 2 + kind, "cost": x}


def test_a_search_is_one_call() -> None:
    CALLS.clear()
    # Random search may repeat a point that is under way or failed.
    found = optimise(outcome, DOMAIN, 8, **OPTIONS, key=3)
    assert found.points == CALLS and len(CALLS) == 8
    measured = [(at["x"], at["kind"]) for at in CALLS if (at["x"], at["kind"]) != (0.0, 0.0)]
    best = min((p for p in measured if p[0] <= 1), key=lambda p: (p[0] - 1) ** 2 + p[1])
    assert (found.best["x"], found.best["kind"]) == best and found.feasible
    assert found.values == {"loss": (best[0] - 1) ** 2 + best[1], "cost": best[0]}
    table = found.table
    assert list(table) == ["x", "kind", "loss", "cost", "best_so_far"] and table["best_so_far"].iloc[-1] == found.values["loss"]
    failed = 8 - len(measured)
    assert int(table["loss"].isna().sum()) == failed == len([state for state in found.session.columns()["state"] if state == "failed"]) > 0
    assert f"evaluations: 8, {failed} failed; best: x=" in repr(found) and "<th" in found._repr_html_()
    again = optimise(outcome, DOMAIN, 8, **OPTIONS, key=jax.random.key(3))
    assert again.points == found.points


def test_what_is_wrong_with_a_function_is_said() -> None:
    for value, words in (("high", "must return a number"), ({"loss": 1.0}, "must return a value of cost, too")):
        with pytest.raises(InvalidArgument, match=f"^function: {words}"):
            optimise(lambda x, kind, value=value: value, DOMAIN, 8, **OPTIONS)
    found = optimise(lambda x, kind: float("nan"), DOMAIN, 8, **OPTIONS)
    assert repr(found) == "Optimised(evaluations: 8, 8 failed)"
    with pytest.raises(SessionError, match=r"^best: every evaluation failed"):
        _ = found.best
    least = optimise(lambda x, kind: {"loss": 0.0, "cost": 3.0 + x}, DOMAIN, 8, **OPTIONS)
    assert not least.feasible and least.best == min(least.points, key=lambda at: at["x"]) and "least violating" in repr(least)


def test_values_that_a_failed_evaluation_has_are_learnt() -> None:
    lacks: Any = itertools.cycle([float("nan"), None, float("inf")])

    def crashes(x: float, kind: float) -> dict[str, float | None]:
        return {"loss": next(lacks), "cost": 2.0} if x > 0.5 else {"loss": 2.0 - x, "cost": 0.0}

    found = optimise(crashes, DOMAIN, 8, **OPTIONS, key=1)
    columns = found.session.columns()
    failed = columns["x"] > 0.5
    assert np.any(failed) and np.array_equal(columns["state"] == "failed", failed)
    assert np.all(columns["cost"][failed] == 2.0) and np.all(np.isnan(columns["loss"][failed]))
    assert found.best["x"] == np.max(columns["x"][~failed]) and found.feasible and f"{failed.sum()} failed" in repr(found)
    assert found.session.recommend().point["x"] <= 0.5
    belief = found.session.belief().sel(output="cost")["mean"].values[columns["index"][failed]]
    assert np.all(belief > 0.5), "what a failed run has is learnt"
    with pytest.raises(InvalidArgument, match=r"^values: there is no output 'price'"):
        optimise(lambda x, kind: {"loss": float("nan"), "cost": 1.0, "price": 2.0}, DOMAIN, 8, **OPTIONS)


def test_a_search_on_a_disk_goes_on(tmp_path: Path) -> None:
    CALLS.clear()
    in_memory = optimise(outcome, DOMAIN, 8, **OPTIONS, key=3)
    CALLS.clear()
    parts: dict[str, Any] = OPTIONS | {"key": 3, "directory": tmp_path / "search"}
    assert optimise(outcome, DOMAIN, 3, **parts).points == CALLS == in_memory.points[:3]
    found = optimise(outcome, DOMAIN, 8, **parts)
    assert found.points == CALLS == in_memory.points and found.table["loss"].equals(in_memory.table["loss"])
    assert len(optimise(outcome, DOMAIN, 2, **parts).points) == len(CALLS) == 8, "nothing is called where there are enough"
    with pytest.raises(InvalidArgument, match=r"^directory: .* holds a search with another constraints, key; choose another directory"):
        optimise(outcome, DOMAIN, 9, **(parts | {"constraints": ["cost <= 2"], "key": 4}))


def test_what_ends_a_search_loses_no_value(tmp_path: Path) -> None:
    """A search that goes on calls the interrupted point first."""

    def ended(error: type[BaseException], after: int) -> Any:
        calls = itertools.count(1)

        def function(x: float, kind: float) -> Any:
            CALLS.append({"x": x, "kind": kind})
            if next(calls) > after:
                raise error("stop")
            return {"loss": x, "cost": 0.0}

        return function

    parts: dict[str, Any] = OPTIONS | {"key": 5, "directory": tmp_path / "search"}
    CALLS.clear()
    found = optimise(ended(KeyboardInterrupt, 2), DOMAIN, 8, **parts)
    assert found.points == CALLS[:2] and repr(found).startswith("Optimised(evaluations: 2; best: x=") and len(found.table) == 2
    assert found.best in CALLS[:2]
    with pytest.raises(RuntimeError, match="stop") as raised:
        optimise(ended(RuntimeError, 2), DOMAIN, 8, **parts)
    assert CALLS[3] == CALLS[2], "the point that was interrupted"
    assert raised.value.optimised.points == [*CALLS[:2], *CALLS[3:5]]  # type: ignore[attr-defined]
    [note] = raised.value.__notes__
    assert "4 evaluations had ended" in note and "goes on with them in directory" in note
    with pytest.raises(KeyboardInterrupt):
        optimise(ended(KeyboardInterrupt, 0), DOMAIN, 8, **OPTIONS)
    with pytest.raises(ZeroDivisionError) as alone:
        optimise(ended(ZeroDivisionError, 0), DOMAIN, 8, **OPTIONS)
    assert not hasattr(alone.value, "optimised")


def test_exceptions_that_mean_a_failed_run() -> None:
    def out_of_memory(x: float, kind: float) -> dict[str, float]:
        if x > 0.5:
            raise MemoryError
        return {"loss": x, "cost": 0.0}

    for catch in (MemoryError, (MemoryError, ZeroDivisionError), [Exception]):
        found = optimise(out_of_memory, DOMAIN, 8, **OPTIONS, key=1, catch=catch)
        failed = [point["x"] > 0.5 for point in found.points]
        assert any(failed) and np.array_equal(np.isnan(found.table["loss"].values), failed)
    with pytest.raises(MemoryError):
        optimise(out_of_memory, DOMAIN, 8, **OPTIONS, key=1, catch=(ValueError,))
    for catch in (KeyboardInterrupt, (BaseException,), "MemoryError", MemoryError()):
        with pytest.raises(InvalidArgument, match=r"^catch"):
            optimise(out_of_memory, DOMAIN, 8, **OPTIONS, catch=catch)  # type: ignore[arg-type]


def test_points_of_a_box_are_in_its_units() -> None:
    """Whole numbers are integers, and six digits have no rounding behind them."""
    space = Space.of({"layers": domains.integers(1, 8), "rate": domains.log(1e-6, 1e-1), "dose": (-1.0, 3.0), "kind": ["a", "b"]})
    own = [space.readable([0.1, share, share, 0.6]) for share in (0.123456789, 0.5432198765, 1.0)]
    for index in range(space.size, space.size + len(own)):
        point: Any = dataclasses.replace(space, own=tuple(own)).point(index)
        assert type(point["layers"]) is int and point["kind"] == "b"
        assert all(point[name] == float(f"{point[name]:.6g}") for name in ("rate", "dose"))


AXES = [Axis.between("a", 0, 2, 5), Axis.of_categories("kind", ["x", "y"]), Axis("b", (1, 10, 100), "logarithmic")]
MIXTURE = {name: (0.0, 1.0) for name in "abcde"}
SUM, RATIO = "a + b + c + d + e = 1", "a <= 2 * b"


def product_of(a, b):
    return a * b - 20


def excess(point):
    """Return the excess of a mixture's point over each constraint."""
    return max(abs(sum(point.values()) - 1), point["a"] - 2 * point["b"], *(-value for value in point.values()))


def value(a, b, c, d, e):
    return -((a - 0.5) ** 2) - (b - 0.2) ** 2 - (c - 0.25) ** 2 - (d - 0.1) ** 2 - e


def test_a_grid_of_axes_has_only_points_that_satisfy_constraints():
    session = Session.create(None, AXES, key=0, such_that=["10 * a + b <= 20", product_of])
    space = session.specification.space
    assert {(point["a"], point["kind"], point["b"]) for point in map(space.point, range(space.size))} == {
        (a, kind, b) for a in (0.0, 0.5, 1.0, 1.5, 2.0) for kind in "xy" for b in (1, 10, 100) if 10 * a + b <= 20 and a * b <= 20
    }
    for index in range(space.size):
        assert space.nearest(space.point(index)) == index and space.distance(space.point(index), index) == 0
    with pytest.raises(InvalidArgument, match="point"):
        session.observe({"a": 2.0, "kind": "x", "b": 100}, {"reward": 1.0})
    for number in range(8):
        ticket = session.ask()
        assert 10 * ticket.point["a"] + ticket.point["b"] <= 20
        session.tell(ticket, reward=float(number))
    assert session.plot() is not None
    assert session.recommend().index < space.size


@pytest.mark.full
def test_a_mixture_is_asked_for_exactly_and_its_best_point_is_found():
    found = jb.optimise(value, MIXTURE, 25, such_that=[SUM, RATIO])
    assert max(excess(point) for point in found.points) < 1e-12
    # The best point lies on both constraints and on the face e = 0: by Lagrange's equations for a, b, c and d.
    rows = np.array([[1, 1, 1, 1], [1, -2, 0, 0]])
    system = np.block([[np.eye(4), rows.T], [rows, np.zeros((2, 2))]])
    best = np.linalg.solve(system, [0.5, 0.2, 0.25, 0.1, 1, 0])[:4]
    np.testing.assert_allclose(list(found.best.values()), [*best, 0], atol=0.02)
    assert excess(found.session.recommend(anywhere=True).point) < 1e-12


@pytest.mark.full(but=("random",))
@pytest.mark.parametrize("algorithm", [None, jb.Scbo(), jb.RandomSearch()], ids=["default", "scbo", "random"])
def test_whole_numbers_and_functions_hold_at_every_point_asked_for(algorithm):
    axes = {"a": (0.0, 10.0), "n": domains.integers(1, 8), "r": domains.log(1e-3, 1.0)}
    limits = ["a + n <= 6", lambda a, r: a * r - 1]
    own = axes if algorithm else axes | {"kind": ["x", "y"]}
    found = jb.optimise(lambda a, n, r, kind="x": a + 2 * n + r + (kind == "x"), own, 16, such_that=limits, algorithm=algorithm)
    assert all(point["a"] + point["n"] <= 6 + 1e-9 and point["a"] * point["r"] <= 1 + 1e-9 for point in found.points)
    assert {point["n"] for point in found.points} <= {1, 2, 3, 4, 5, 6}


def test_a_journal_holds_constraints(tmp_path):
    with Session.create(tmp_path / "texts", MIXTURE, key=0, such_that=[SUM]) as session:
        first = session.ask(3)
        assert session.events[0].body["space"]["box"]["such_that"] == [SUM]
        assert f"points: any of a, b, c, d, e, such that {SUM!r}" in repr(session)
    with Session.open(tmp_path / "texts") as session:
        assert [ticket.point for ticket in session.pending] == [ticket.point for ticket in first]
        assert abs(sum(session.ask().point.values()) - 1) < 1e-12
    with pytest.raises(InvalidArgument, match=r"such_that: the session was made with 'a \+ b \+ c \+ d \+ e = 1'; give the same"):
        Session.open(tmp_path / "texts", such_that=[RATIO])
    with Session.create(tmp_path / "grid", AXES, key=0, such_that=["10 * a + b <= 20"]) as session:
        size, table = session.specification.space.size, session.events[0].body["space"]
        assert table["such_that"] == ["10 * a + b <= 20"]
    with Session.open(tmp_path / "grid") as session:
        assert session.specification.space.size == size
    part = domains.grid([0, 0], [1, 1], 5)
    with Session.create(tmp_path / "part", part, key=0, such_that=["x1 + x2 <= 1"]) as session:
        assert session.specification.space.size == 15
    with Session.open(tmp_path / "part") as session:
        assert session.specification.space.size == 15


@pytest.mark.parametrize("space", [AXES, {"a": (0.0, 2.0), "b": (1.0, 100.0)}], ids=["grid", "box"])
def test_a_session_with_a_function_needs_it_again(tmp_path, space):
    limits = ["a <= 1.5", product_of]
    with Session.create(tmp_path, space, key=0, such_that=limits) as session:
        size, first = session.specification.space.size, session.ask().point
    with pytest.raises(InvalidArgument, match=r"made with 'a <= 1.5', the function .*product_of; give the same"):
        Session.open(tmp_path)
    with pytest.raises(InvalidArgument, match="give the same"):
        Session.open(tmp_path, such_that=["a <= 1.5"])
    with Session.open(tmp_path, such_that=limits) as session:
        assert session.specification.space.size == size and session.pending[0].point == first


def test_a_file_has_constraints(tmp_path):
    text = 'objective = "maximise reward"\nsuch_that = ["a + b <= 1"]\n'
    axes = "".join(f"[axis.{name}]\nlow = 0\nhigh = 1\n" for name in "ab")
    file = tmp_path / "mixture.toml"
    file.write_text(text + axes)
    with Session.begin(None, read_toml(file)) as session:
        assert all(ticket.point["a"] + ticket.point["b"] <= 1 for ticket in session.ask(6))
    file.write_text(text.replace("a + b", "a + q") + axes)
    with pytest.raises(InvalidArgument, match=r"mixture.toml: such_that\[0\]: 'a \+ q <= 1': names 'q'"):
        read_toml(file)
    file.write_text(text.replace('["a + b <= 1"]', '"a + b <= 1"') + axes)
    with pytest.raises(InvalidArgument, match=r"such_that: must be a"):
        read_toml(file)


def test_a_search_in_a_directory_goes_on_with_its_constraints(tmp_path):
    first = jb.optimise(value, MIXTURE, 3, such_that=[SUM, RATIO], directory=tmp_path)
    first.session.close()
    on = jb.optimise(value, MIXTURE, 5, such_that=[SUM, RATIO], directory=tmp_path)
    assert on.points[:3] == first.points and max(excess(point) for point in on.points) < 1e-12
    on.session.close()
    with pytest.raises(InvalidArgument, match="holds a search with another space"):
        jb.optimise(value, MIXTURE, 5, directory=tmp_path)


def test_a_point_measured_outside_is_learnt_and_never_recommended():
    session = Session.create(None, {"a": (0.0, 1.0), "b": (0.0, 1.0)}, key=0, such_that=["a + b <= 1"])
    session.observe({"a": 0.9, "b": 0.9}, {"reward": 5.0})
    session.observe({"a": 0.3, "b": 0.3}, {"reward": 1.0})
    assert session.recommend().point == {"a": 0.3, "b": 0.3}
    found = session.recommend(anywhere=True).point
    assert found["a"] + found["b"] <= 1 + 1e-12


@pytest.mark.full
def test_a_function_alone_keeps_points_in_the_box():
    axes = {"a": (0.0, 2.0), "b": (0.0, 2.0)}
    found = jb.optimise(lambda a, b: 2 * a + b, axes, 16, such_that=[lambda a, b: a * b - 1])
    assert all(0 <= value <= 2 for point in found.points for value in point.values())
    assert all(point["a"] * point["b"] <= 1 + 1e-9 for point in found.points)
    np.testing.assert_allclose(list(found.best.values()), [2, 0.5], atol=0.1)
