"""Constraints on coordinates in sessions: no point outside, in journals, files and one-call searches."""

import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit import InvalidArgument, domains
from jaxbandit.session import Axis, Session, read_toml

AXES = [Axis.between("a", 0, 2, 5), Axis.of_categories("kind", ["x", "y"]), Axis("b", (1, 10, 100), "logarithmic")]
MIXTURE = {name: (0.0, 1.0) for name in "abcde"}
SUM, RATIO = "a + b + c + d + e = 1", "a <= 2 * b"


def product_of(a, b):
    return a * b - 20


def excess(point):
    """By how much a point of the mixture breaks a constraint."""
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


def test_a_mixture_is_asked_for_exactly_and_its_best_point_is_found():
    found = jb.optimise(value, MIXTURE, 25, such_that=[SUM, RATIO])
    assert max(excess(point) for point in found.points) < 1e-12
    # The best point lies on both constraints and on the face e = 0: by Lagrange's equations for a, b, c and d.
    rows = np.array([[1, 1, 1, 1], [1, -2, 0, 0]])
    system = np.block([[np.eye(4), rows.T], [rows, np.zeros((2, 2))]])
    best = np.linalg.solve(system, [0.5, 0.2, 0.25, 0.1, 1, 0])[:4]
    np.testing.assert_allclose(list(found.best.values()), [*best, 0], atol=0.02)
    assert excess(found.session.recommend(anywhere=True).point) < 1e-12


def test_whole_numbers_and_functions_hold_at_every_point_asked_for():
    axes = {"a": (0.0, 10.0), "n": domains.integers(1, 8), "r": domains.log(1e-3, 1.0)}
    limits = ["a + n <= 6", lambda a, r: a * r - 1]
    for algorithm in (None, jb.Scbo(), jb.RandomSearch()):
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
    first = jb.optimise(value, MIXTURE, 3, such_that=[SUM], directory=tmp_path)
    first.session.close()
    on = jb.optimise(value, MIXTURE, 5, such_that=[SUM], directory=tmp_path)
    assert on.points[:3] == first.points
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


def test_a_function_alone_keeps_points_in_the_box():
    axes = {"a": (0.0, 2.0), "b": (0.0, 2.0)}
    found = jb.optimise(lambda a, b: 2 * a + b, axes, 16, such_that=[lambda a, b: a * b - 1])
    assert all(0 <= value <= 2 for point in found.points for value in point.values())
    assert all(point["a"] * point["b"] <= 1 + 1e-9 for point in found.points)
    np.testing.assert_allclose(list(found.best.values()), [2, 0.5], atol=0.1)
