"""Problems from tables of arms."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxbandit import InvalidArgument, problems
from jaxbandit.problems.data import columns_of

ARMS = Path(__file__).parents[1] / "support" / "arms.csv"
GOALS: dict[str, Any] = {"objective": "maximise yield", "constraints": ["heat <= 80"]}


def columns(**changes: Any) -> dict[str, Any]:
    own = {"dose": [0.2, 0.1, 0.1], "yield": [3.0, 1.0, 2.0], "heat": [70, 60, 65], "spread": [0.1, 0.2, 0.3]}
    return {name: column for name, column in (own | changes).items() if column is not None}


def test_rows_of_a_grid_become_a_product_grid() -> None:
    problem = problems.from_csv(ARMS, **GOALS, points=["dose", "catalyst"])
    assert problem.domain.grid_shape == (2, 2) and problem.name == "arms"
    assert [problem.domain.label(index) for index in range(4)] == [
        "dose=0.1, catalyst=Pd",
        "dose=0.1, catalyst=Ni",
        "dose=0.2, catalyst=Pd",
        "dose=0.2, catalyst=Ni",
    ]
    np.testing.assert_array_equal(problem.means, [[1, 2, 3, 5], [-20, -15, -10, 5]])


def test_other_rows_keep_their_order_and_goals_their_sense() -> None:
    table = columns(dose=[0.2, 0.1, 0.3])
    for either in (table, pandas.DataFrame(table)):
        problem = problems.from_columns(either, "minimise yield", ["heat >= 65"], points=["dose", "heat"])
        assert problem.domain.axes == () and problem.domain.names == ("dose", "heat")
        np.testing.assert_array_equal(problem.domain.points, [[0.2, 70], [0.1, 60], [0.3, 65]])
        np.testing.assert_array_equal(problem.means, [[-3, -1, -2], [-5, 5, 0]])
    arms = problems.from_columns(table, "maximise yield")
    assert arms.constraints == 0 and arms.noise == problems.Gaussian()
    np.testing.assert_array_equal(arms.domain.points, [[0], [1], [2]])


ROWS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["Pd", "Ni"]), st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=12)


@given(rows=ROWS)
def test_repeated_rows_are_averaged_on_demand(rows: list[Any]) -> None:
    """Averages are those of pandas."""
    table = pandas.DataFrame(rows, columns=["dose", "metal", "yield", "heat"])
    problem = problems.from_columns(table, "minimise yield", ["heat >= 1"], points=["dose", "metal"], repeated="average")
    expected = table.groupby(["dose", "metal"]).mean()
    assert problem.domain.size == len(expected)
    for index, (dose, metal) in enumerate(np.asarray(problem.domain.points).tolist()):
        own = expected.loc[(dose, problem.domain.categories[1][int(metal)])]
        np.testing.assert_allclose(np.asarray(problem.means)[:, index], [-own["yield"], 1 - own["heat"]], atol=1e-12)


@pytest.mark.parametrize("blank", ["", " ", None, np.nan, pandas.NA, pandas.NaT])
def test_rows_with_blanks_are_dropped_on_demand(blank: Any, tmp_path: Path) -> None:
    table = columns(**{"dose": [0.2, 0.1, 0.3], "yield": [3.0, blank, 2.0], "spread": [blank] * 3})
    problem = problems.from_columns(table, **GOALS, points=["dose"], blanks="drop")
    np.testing.assert_array_equal(problem.domain.points, [[0.2], [0.3]])
    np.testing.assert_array_equal(problem.means, [[3, 2], [-10, -15]])
    with pytest.raises(InvalidArgument, match=re.escape("columns['yield']: must hold finite numbers, got 'x' in row 3 of 3")):
        problems.from_columns(columns(**{"yield": [3.0, blank, "x"]}), **GOALS, blanks="drop")
    with pytest.raises(InvalidArgument, match="blanks: all 3 rows have one"):
        problems.from_columns(columns(heat=[blank] * 3), **GOALS, blanks="drop")
    pandas.DataFrame(table).to_csv(tmp_path / "arms.csv", index=False)
    again = problems.from_csv(tmp_path / "arms.csv", **GOALS, points=["dose"], blanks="drop", repeated="average")
    np.testing.assert_array_equal(again.means, problem.means)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "must hold a line of names and at least one row, got 0 lines"),
        ("yield,heat\n", "got 1 lines"),
        ("yield,yield\n1,2\n", "must have different names"),
        ("yield,heat\n1,2\n3\n", "row 2 of"),
        ("yield,heat\n1_0,2\n", "columns['yield']: must hold finite numbers, got '1_0' in row 1"),
        ("yield,heat\n1,\n", "columns['heat']: must hold finite numbers, got '' in row 1"),
        ("yield;heat\n1;2\n", "objective: there is no column 'yield'"),
        (b"\xff\xfe\x00", "is no text in UTF-8; save it as CSV in UTF-8"),
        (None, "path: cannot read"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(tmp_path: Path, content: Any, words: str) -> None:
    path = tmp_path / "arms.csv"
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InvalidArgument, match=re.escape(words)):
        problems.from_csv(path, **GOALS)
    for delimiter in ("", "::", '"', "\n", "\0"):
        with pytest.raises(InvalidArgument, match="delimiter: must be one character"):
            problems.from_csv(path, **GOALS, delimiter=delimiter)
    if content == "yield;heat\n1;2\n":
        assert problems.from_csv(str(path), **GOALS, delimiter=";").means.shape == (2, 1)


AS_SPREADSHEETS_WRITE = {
    "semicolons and decimal commas": b"heat;yield\r\n20;71,3\r\n30;1,5e1\r\n",
    "tabs": b"heat\tyield\n20\t71.3\n30\t15\n",
    "a byte-order mark, quotes and blank lines": b'\xef\xbb\xbf"heat","yield"\n"20","71.3"\n"30","15"\n\n,\n',
    "empty columns at the end": b"heat,yield,,\n20,71.3,,\n30,15,,\n",
}


@pytest.mark.parametrize("case", AS_SPREADSHEETS_WRITE)
def test_a_table_is_read_as_spreadsheets_write_it(case, tmp_path):
    path = tmp_path / "runs.csv"
    path.write_bytes(AS_SPREADSHEETS_WRITE[case])
    columns = columns_of(path, None)
    assert list(columns) == ["heat", "yield"]
    np.testing.assert_array_equal([[float(cell) for cell in cells] for cells in columns.values()], [[20, 30], [71.3, 15]])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a;b\n1,5;2.5\n", "comma of '1,5' beside '2.5' may be decimal or one of thousands"),
        (b"a;b\n1,500;2\n", "comma of '1,500' may be decimal or one of thousands"),
        ("a,b\n1,2°C\n".encode("latin-1"), "is no text in UTF-8; save it as CSV in UTF-8"),
        ("a,b\n1,2\n".encode("utf-16"), "is no text in UTF-8"),
        (b"a,a\n1,2\n", "must have different names, got \\['a', 'a'\\]"),
        (b"a,b\n71,3,1\n", "row 1 of .* must have 2 columns, as its first line, got 3"),
    ],
)
def test_a_table_of_which_nobody_can_tell_what_it_says_is_refused(content, words, tmp_path):
    path = tmp_path / "runs.csv"
    path.write_bytes(content)
    with pytest.raises(InvalidArgument, match=words):
        columns_of(path, None)
