"""Values that were measured before a session or beside it."""

import contextlib
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxbandit
from jaxbandit import InvalidArgument, delays, domains, feedback
from jaxbandit.session import Axis, Session, SessionError
from jaxbandit.session.axes import Space
from jaxbandit.session.journal import JOURNAL, DamagedSession, open_journal
from tests.support import conformance
from tests.support.sessions import create, in_units

AXES = [
    Axis.between("heat", 20, 80, 13, unit="°C"),
    Axis("dose", (0.1, 1.0, 10.0), "logarithmic"),
    Axis.of_categories("metal", ["Pd", "Ni"]),
]
SPACE = Space.of(AXES)
VALUES = in_units(np.array([0.3, -0.1, 0.2]))


def point(index: int) -> dict[str, float]:
    """A point of the domain of ``create``."""
    return {f"x{number + 1}": float(x) for number, x in enumerate(np.asarray(conformance.study()[0].domain.points)[index])}


def table() -> pandas.DataFrame:
    """Return three runs, the second without a purity."""
    rows = [point(3) | VALUES, point(9) | VALUES | {"purity": np.nan, "loss": 0.4}, point(3) | VALUES | {"loss": -0.2}]
    return pandas.DataFrame(rows)


@given(index=st.integers(0, SPACE.domain.size - 1), heat=st.floats(-0.49, 0.49), dose=st.floats(-0.49, 0.49))
def test_the_nearest_point_is_that_of_each_axis(index: int, heat: float, dose: float) -> None:
    """Distances are shares of an axis, on its scale."""
    there: Any = SPACE.point(index)
    moved = there | {"heat": there["heat"] + 5 * heat, "dose": there["dose"] * 10**dose}
    assert SPACE.nearest(there) == SPACE.nearest(moved) == index
    assert SPACE.distance(there, index) == 0.0
    np.testing.assert_allclose(SPACE.distance(moved, index), max(abs(heat) / 12, abs(dose) / 2), atol=1e-9)


def test_the_nearest_of_bare_points() -> None:
    bare = Space.of(
        jaxbandit.replace(domains.points([[0.0, 0.0], [2.0, 1.0], [4.0, 1.0]]), names=("a", "b"), categories=((), ("Pd", "Ni")))
    )
    near: Any = {"a": 1.9, "b": "Pd"}
    assert bare.nearest(near) == 0 and bare.nearest(near | {"b": "Ni"}) == 1
    assert bare.distance(near | {"b": "Ni"}, 1) == pytest.approx(0.025)
    with pytest.raises(InvalidArgument, match="point: there is none of these categories"):
        bare.nearest(near | {"b": "Cu"})


def test_it_is_believed_as_an_initial_design_would_be(tmp_path: Path) -> None:
    """Neither the order of telling nor opening again changes a bit."""
    own = table().drop(index=1)
    design = jaxbandit.InitialDesign(indices=np.asarray([3, 3]))
    with (
        create(tmp_path / "design", initial=design) as first,
        create(tmp_path / "beside") as beside,
        create(tmp_path / "told", history=own) as told,
    ):
        for ticket, row in zip([first.ask(), first.ask()], own.to_dict("records"), strict=True):
            first.tell(ticket, {name: row[name] for name in VALUES})
        asked = beside.ask()
        for row in own.to_dict("records"):
            ticket = beside.observe(point(3), {name: row[name] for name in VALUES})
            assert ticket.observed and (ticket.round, ticket.index, ticket.distance) == (0, 3, 0.0)
        np.testing.assert_array_equal(first.belief()["mean"], told.belief()["mean"])
        others = {session.ask().index for session in (first, told)}
        assert len(others) == 1 and {session.history()["round"].values[-1] for session in (first, told)} == {1}
        beside.tell(asked, VALUES)
        later = beside.ask()
        assert (asked.round, later.round, later.number) == (1, 2, 4)
        with Session.open(tmp_path / "beside", read_only=True) as again:
            assert again.belief().equals(beside.belief()) and again.history().equals(beside.history())
        assert np.isnat(beside.history()["asked_at"].values).tolist() == [False, True, True, False]


LATENESS: dict[str, dict[str, Any]] = {
    "hallucinated": {},
    "waited for": {"feedback": feedback.Wait()},
    "at once": {"delay": delays.NoDelay()},
}


@pytest.mark.parametrize("case", LATENESS)
def test_blanks_stay_open(case: str, tmp_path: Path) -> None:
    """Values count at once if they come in parts, and otherwise together."""
    options, late, rows = LATENESS[case], case != "at once", table()
    with create(tmp_path / "s", history=rows, **options) as session:
        assert session.history()["state"].values.tolist() == ["complete", "partial", "complete"]
        with create(tmp_path / "without", history=rows.drop(index=1), **options) as without:
            moved = np.abs(session.belief()["mean"] - without.belief()["mean"]).max("point")
        assert (float(moved.sel(output="loss")) > 1e-3) == late and float(moved.sel(output="purity")) < 1e-6
        assert session.ask().round == 1, "open tickets of this kind hold nothing up"
        session.tell(2, {"purity": 0.6})
        session.tell(1, {"loss": 0.35}, correct=True)
        filled = rows.assign(purity=rows["purity"].fillna(0.6), loss=[0.35, *rows["loss"][1:]])
        with create(tmp_path / "filled", history=filled, **options) as other:
            other.ask()
            np.testing.assert_array_equal(session.belief()["mean"], other.belief()["mean"])


def test_a_table_is_a_frame_or_columns_or_a_file(tmp_path: Path) -> None:
    rows = table()
    rows.assign(date="2026-11-23", remark="").to_csv(tmp_path / "runs.csv", index=False)
    with create(tmp_path / "s") as session:
        tickets = session.tell_all(tmp_path / "runs.csv", ignore=["date", "remark"])
        assert [ticket.number for ticket in tickets] == [1, 2, 3] and session.told[2] == ["loss", "cost"]
        for again in (rows, rows.astype(object).where(rows.notna(), None).to_dict("list")):
            with pytest.raises(SessionError, match="history: these rows were told before, as tickets 1 to 3"):
                session.tell_all(again)
        assert len(session.events) == 2 and session.events[1].kind == "observed"
        session.observe(point(0), VALUES)
        session.observe(point(0), VALUES)
        assert session.observe(point(1)).number == 6 and session.history()["state"].values[-1] == "pending"


def test_rows_on_a_box_are_told_once(tmp_path: Path) -> None:
    rows = {"x": [0.25, 0.5], "reward": [1.0, 2.0]}
    with Session.create(tmp_path, {"x": (0.0, 1.0)}, key=0, history=rows) as session:
        session.tell_all({"x": [0.75], "reward": [3.0]})
        for again, which in ((rows, "tickets 1 to 2"), ({"x": [0.75], "reward": [3.0]}, "ticket 3")):
            with pytest.raises(SessionError, match=f"history: these rows were told before, as {which}"):
                session.tell_all(again)
        assert [ticket.number for ticket in session.tell_all({"x": [0.75], "reward": [3.5]})] == [4]


def test_a_table_fills_the_blanks_of_tickets(tmp_path: Path) -> None:
    """Tables come from the session, or from a laboratory's list of tickets."""
    with create(tmp_path / "s", history=table()) as session:
        asked = session.ask()
        own = session.history().to_dataframe().reset_index()
        own.loc[1, "purity"], own.loc[3, "loss"] = 0.6, 0.25
        assert [ticket.number for ticket in session.tell_all(own)] == [2, 4]
        assert [event.kind for event in session.events[-2:]] == ["told", "told"]
        assert session.told == {1: [*VALUES], 2: [*VALUES], 3: [*VALUES], 4: ["loss"]}
        events = len(session.events)
        assert session.tell_all(own) == () and len(session.events) == events, "telling the same again changes nothing"
        laboratory = {"ticket": [4, "", 2], "x1": ["", point(5)["x1"], ""], "x2": ["", point(5)["x2"], ""], "purity": [0.7, 0.8, 0.6]}
        for changes, words in (
            ({"purity": [0.7, 0.8, 0.9]}, "ticket 2: was told .*correct=True"),
            ({"ticket": [5, "", 2]}, "history: row 1: ticket: must be one that was asked for, or blank, got 5"),
            ({"x1": [point(5)["x1"]] * 3, "x2": [point(5)["x2"]] * 3}, f"row 1: ticket: the point is not that of ticket {asked.number}"),
        ):
            with pytest.raises(InvalidArgument, match=words):
                session.tell_all(laboratory | changes)
        assert len(session.events) == events, "all of a table is told, or nothing"
        tickets = session.tell_all(laboratory | {"purity": [0.7, 0.8, 0.9]}, correct=True)
        assert [ticket.number for ticket in tickets] == [4, 2, 5] and session.history()["purity"].values[[1, 3, 4]].tolist() == [
            0.9,
            0.7,
            0.8,
        ]
        session.tell_all({"ticket": [4], "cost": [0.1]})
    with create(tmp_path / "again", history=own) as other:
        assert [event.kind for event in other.events] == ["created", "observed"] and other.told[4] == ["loss"]


def test_a_table_that_cannot_be_used_is_refused_whole(tmp_path: Path) -> None:
    """``golden/refusals.json`` has all that cannot be used."""
    with pytest.raises(InvalidArgument, match="history: row 3: loss: must be a number"):
        create(tmp_path / "s", history=table().assign(loss=["1", "2", "low"]))
    assert not (tmp_path / "s").exists()


@pytest.mark.full
def test_enough_of_it_takes_the_place_of_the_default_design(tmp_path: Path) -> None:
    """The design has 8 points, so 8 rows are fitted at once."""
    rng, indices = np.random.default_rng(0), [0, 7, 15, 23, 38, 44, 59, 77]
    rows = [SPACE.point(index) | {"yield": 60 + SPACE.point(index)["heat"] / 4 + rng.normal()} for index in indices]  # type: ignore[operator]
    with on_axes(tmp_path / "few", history=pandas.DataFrame(rows[:7])) as session:
        assert session.ask().round == 0 and not any("model" in event.body for event in session.events[1:])
    with on_axes(tmp_path / "enough", history=pandas.DataFrame(rows)) as session:
        assert [event.kind for event in session.events] == ["created", "observed", "fitted"]
        assert abs(float(session.belief()["mean"].mean()) - np.mean([row["yield"] for row in rows])) < 5.0
        assert session.ask().round == 1
        again = session.belief()
    with Session.open(tmp_path / "enough", read_only=True) as session:
        assert session.belief().equals(again)
    on_axes(tmp_path / "later").close()
    with Session.open(tmp_path / "later") as session:
        session.tell_all(pandas.DataFrame(rows))
        assert [event.kind for event in session.events] == ["created", "observed", "fitted"]
        np.testing.assert_allclose(session.belief()["mean"], again["mean"], rtol=1e-5)
    with Session.open(tmp_path / "later") as session:
        assert session._state.left_of_design == 0 and session.ask().round == 1


def test_rows_take_the_place_of_no_design_that_was_given_or_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "_keep_up", lambda self, **options: None)
    rows = {"heat": [20] * 8, "dose": [1.0] * 8, "metal": ["Pd"] * 8, "yield": range(8)}
    for initial, asked, left in ((None, 0, 0), (None, 1, 7), (jaxbandit.InitialDesign(random=8), 0, 8)):
        with on_axes(tmp_path / f"{left}", initial=initial) as session:
            for _ in range(asked):
                session.ask()
            session.tell_all(rows)
            assert session._state.left_of_design == left
        with Session.open(tmp_path / f"{left}") as session:
            assert session._state.left_of_design == left
    with on_axes(tmp_path / "few") as session:
        session.tell_all({name: column[:7] for name, column in rows.items()})
        assert session._state.left_of_design == 8


def on_axes(directory: Path, **options: Any) -> Session:
    goals: dict[str, Any] = {"objective": "maximise yield", "key": jax.random.key(0), "delay": delays.NoDelay()}
    return Session.create(directory, AXES, jaxbandit.RandomSearch(), **goals, **options)


def test_points_off_the_grid_are_refused_or_rounded_as_asked(tmp_path: Path) -> None:
    where: Any = {"heat": 52, "dose": 1.0, "metal": "Ni"}
    words = r"it lies off the grid, by up to 0.033 of an axis \(heat=52 for 50\)"
    with on_axes(tmp_path / "s") as session:
        with pytest.raises(InvalidArgument, match=f"point: {words}; with off_grid='round'"):
            session.observe(where, {"yield": 1.0})
        with pytest.warns(UserWarning, match=f"point: {words}"):
            ticket = session.observe(where, {"yield": 1.0}, off_grid="round")
        assert repr(ticket.point) == "{'heat': 50, 'dose': 1.0, 'metal': 'Ni'}" and ticket.distance == pytest.approx(1 / 30)
        [last] = [event for event in session.events if event.kind == "observed"]
        assert last.body["rows"] == [{"index": ticket.index, "point": where, "values": {"yield": 1.0}}]
        for change, words in (
            ({"heat": 83}, "heat: must lie on its axis, 20 to 80 °C, got 83"),
            ({"heat": 17}, "heat: must lie on its axis, 20 to 80 °C, got 17"),
            ({"dose": 0}, "dose: must be > 0"),
            ({"metal": "ni"}, "metal: there is no category 'ni', did you mean 'Ni'"),
            ({"heat": "50"}, "heat: expected"),
            ({"cold": 3}, "point: must be a mapping from the names heat, dose, metal"),
        ):
            with pytest.raises(InvalidArgument, match=words):
                session.observe(where | change, {"yield": 1.0}, off_grid="round")
        with pytest.warns(UserWarning, match="history: 1 of 2 points lie off the grid"):
            session.tell_all({"heat": [20, 81], "dose": [1, 10], "metal": ["Pd", "Ni"], "yield": [1, 2]}, off_grid="round")
        assert [event.kind for event in session.events if event.kind != "fitted"] == ["created", "observed", "observed"]
    with Session.open(tmp_path / "s", read_only=True) as again:
        assert again.history()["heat"].values.tolist() == [50, 20, 80]
        assert again._state.records[1].ticket == ticket


def test_events_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    on_axes(tmp_path / "s").close()
    good = {"index": 0, "point": SPACE.point(0), "values": {"yield": 1.0}}
    for number, (rows, ticket, words) in enumerate([
        ([good], 2, "ticket: must be 1"),
        ([good | {"index": 99}], 1, "index: must be a whole number from 0 to 77"),
        ([good | {"point": {}}], 1, "point: must be a mapping"),
        ([good | {"values": {"cost": 1.0}}], 1, "values: there is no output 'cost'"),
        ([{"index": 0}], 1, "rows: must be a list of tables of index, point, values"),
    ]):  # fmt: skip
        with contextlib.closing(open_journal(tmp_path / "s")) as journal, journal.claim():
            held = list(journal.events)
        directory = tmp_path / str(number)
        directory.mkdir()
        (directory / JOURNAL).write_bytes((tmp_path / "s" / JOURNAL).read_bytes())
        with contextlib.closing(open_journal(directory)) as journal, journal.claim():
            assert len(held) == 1
            journal.append("observed", {"ticket": ticket, "rows": rows})
        with pytest.raises(DamagedSession, match=words):
            Session.open(directory)


def laboratory(cells: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Two runs on AXES, with some cells replaced."""
    return {"heat": ["20", "50"], "dose": ["0.1", "10"], "metal": ["Pd", "Ni"], "yield": ["61", "70.5"]} | cells


@pytest.mark.parametrize("blank", ["n/a", "NA", "-", "", " ", None])
def test_marks_of_a_laboratory_are_blank_where_nothing_was_measured(blank: str | None, tmp_path: Path) -> None:
    with on_axes(tmp_path / "s", history=laboratory({"yield": ["61", blank]})) as session:
        assert session.told == {1: ["yield"], 2: []}
    with pytest.raises(InvalidArgument, match="row 2: metal: is blank, and a row must say all of its point"):
        on_axes(tmp_path / "t", history=laboratory({"metal": ["Pd", blank]}))


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"yield": ["61", "<0.5"]}, "row 2: yield: must be .*'<0.5'; of a value beyond a limit of detection write the limit or half of it"),
        ({"yield": ["5%", "1"]}, "row 1: yield: .*; write the number without a sign or a unit"),
        ({"yield": ["1", "71,3"]}, "row 2: yield: .*; numbers have a decimal point"),
        ({"dose": ["1", "2024-03-01"]}, "row 2: dose: .*; a date is no number"),
        ({"heat": ["20", "95"]}, "row 2: heat: must lie on its axis, 20 to 80 °C, got 95.0; outside='drop' leaves such rows out"),
        ({"Date": ["2024-01-03"] * 2}, r"ignore=\['Date'\]"),
        ({"Heat": ["20", "30"]}, "must have one column of heat"),
    ],
)
def test_what_is_no_measurement_is_refused_by_its_row(cells: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=words):
        on_axes(tmp_path / "s", history=laboratory(cells))


def test_rows_beyond_an_axis_are_left_out_where_that_is_asked(tmp_path: Path) -> None:
    rows = laboratory({"heat": ["95", "50"]})
    with pytest.warns(UserWarning, match=r"history: 1 of 2 rows lie beyond the ends of an axis, and are left out: \[1\]"):
        session = on_axes(tmp_path / "s", history=rows, outside="drop")
    with session:
        assert [ticket.point["heat"] for ticket in session.pending] == [] and session.told == {1: ["yield"]}
        assert session.columns()["heat"].tolist() == [50]
    box = {"x": (0.0, 1.0)}
    with (
        pytest.warns(UserWarning, match="1 of 2 rows"),
        Session.create(None, box, key=0, history={"x": [0.5, 1.5], "reward": [1.0, 2.0]}, outside="drop") as session,
    ):
        assert session.columns()["x"].tolist() == [0.5]


def test_columns_go_by_their_units_too(tmp_path: Path) -> None:
    rows = {"Heat (°C)": [20], "DOSE": [0.1], "metal": ["Pd"], "yield": [61]}
    with on_axes(tmp_path / "s", history=rows) as session:
        assert session.told == {1: ["yield"]}
