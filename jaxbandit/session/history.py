"""Measurements at points of the user's choice, singly or in tables."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np

from jaxbandit.core.checks import InvalidArgument, naming, short
from jaxbandit.core.doors import either, warn
from jaxbandit.core.fields import Check, choice, each, of_class, text
from jaxbandit.problems.data import Columns, advice_on, are_columns, columns_of, columns_of_one_length, is_blank, number_of
from jaxbandit.session.axes import LARGEST_TOLD, ON_GRID, Outside, Space
from jaxbandit.session.quantities import Outputs, readable, told_values
from jaxbandit.session.specification import TAKEN, Specification

# Name of the column that says which runs failed.
FAILURE = "failed"
History: TypeAlias = Annotated[
    Columns | str | Path,
    Check("a pandas.DataFrame, a mapping from names to columns", are_columns) | text | of_class(Path, "the path of a CSV file"),
]
OffGrid: TypeAlias = Annotated[str, choice("refuse", "round")]
OutsideOf: TypeAlias = Annotated[str, choice("refuse", "drop")]
Names: TypeAlias = Annotated[Sequence[str], each(text)]


@dataclasses.dataclass(frozen=True)
class HistoryRow:
    """Values measured at a point, by the number of the nearest point."""

    index: int
    point: Mapping[str, object]
    values: Mapping[str, float]
    distance: float
    ticket: int | None = None
    failed: bool = False

    @classmethod
    def of(cls, space: Space, outputs: Outputs, point: Mapping[str, object], values: Mapping[str, float] | None) -> HistoryRow:
        """Return the row, or raise ``InvalidArgument`` for a wrong point or values."""
        index, there, distance = space.measured(point)
        return cls(index, there, {} if values is None else told_values(outputs, values, largest=LARGEST_TOLD), distance)

    def is_whole(self, outputs: Outputs) -> bool:
        """Return whether no value is missing."""
        return len(self.values) == len(outputs.names)

    @staticmethod
    def observed(ticket: int, rows: Sequence[HistoryRow], size: int) -> dict[str, Any]:
        """Return the body of an event ``"observed"`` with the next ticket."""
        numbered = [dataclasses.replace(row, index=size + place) if row.index < 0 else row for place, row in enumerate(rows)]
        return {"ticket": ticket, "rows": [row.table() for row in numbered]}

    def table(self) -> dict[str, object]:
        """Return the plain values for an event."""
        failed = {"failed": True} if self.failed else {}
        return {"index": self.index, "point": dict(self.point), "values": dict(self.values), **failed}


def rows_of(
    history: Columns | str | Path,
    specification: Specification,
    ignore: Sequence[str],
    outside: str = "refuse",
    tickets: Mapping[int, int] | None = None,
    space: Space | None = None,
) -> list[HistoryRow]:
    """Return the rows of a table of coordinates and values.

    Rows may have numbers of ``tickets``, a mapping to points of the session's own ``space``. Without it a column of tickets is ignored, as
    are the other columns of a session's own table. With ``outside="drop"`` points beyond an axis are dropped with a warning. The column
    ``failed`` marks failed runs, unless it is an axis or an output.

    Raises:
      InvalidArgument: if a file cannot be read, columns are missing or unknown (and not to ``ignore``), or a row has an unusable entry.
    """
    space, outputs = space or specification.space, specification.outputs
    table = columns_of_one_length("history", columns_of(history, None, "history") if isinstance(history, str | Path) else history)
    known = [*space.names, *outputs.names]
    table = named_as({name: {name, space.label(name), outputs.label(name)} for name in known}, table)
    numbers = table.get("ticket") if tickets is not None and "ticket" not in ignore else None
    own = {*TAKEN, *(f"violation of {one.name}" for one in outputs.constraints)} if "ticket" in table else set()
    table = {name: cells for name, cells in table.items() if name not in {*ignore, *own}}
    failures = None if FAILURE in known else table.pop(FAILURE, None)
    if unknown := [name for name in table if name not in known]:
        words = f"are neither axes nor outputs, which are {', '.join(known)}"
        ignoring = either(f"ignore={unknown!r}", shlex.join(word for name in unknown for word in ("--ignore", name)))
        raise InvalidArgument(f"history: the columns {', '.join(map(repr, unknown))} {words}; leave them out by {ignoring}")
    count = len(next(iter(table.values()), failures or ()))
    asked = [None] * count if numbers is None else [_entry("ticket", cell) for cell in numbers]
    if missing := [name for name in space.names if name not in table and None in asked]:
        raise InvalidArgument(
            f"history: must have a column for every axis, lacks {', '.join(map(repr, missing))}; got {short(list(table))}"
        )
    told: dict[int, dict[str, float]] = {}
    if not table.keys() & set(outputs.names) and failures is None:
        raise InvalidArgument(f"history: must have a column of an output, {', '.join(outputs.names)}; got {short(list(table))}")
    labels = {name: set(column.tolist()) for name, column in space.columns.items() if column.dtype.kind == "U"}
    rows, left_out = list[HistoryRow](), list[int]()
    for number, ticket in enumerate(asked):
        with naming(f"history: row {number + 1}"):
            row = {name: _entry(name, cells[number], labels.get(name)) for name, cells in table.items()}
            values: Any = {name: row[name] for name in outputs.names if row.get(name) is not None}
            point: dict[str, Any] = {name: row.get(name) for name in space.names}
            said = "" if failures is None or is_blank(failures[number]) else str(failures[number]).strip().casefold()
            failed = said in ("true", "yes", "1", "1.0")
            if failures is not None and said and not failed and said not in ("false", "no", "0", "0.0"):
                raise InvalidArgument(f"{FAILURE}: must be true or false, or blank, got {short(failures[number])}")
            if failed and values:
                raise InvalidArgument(f"{FAILURE}: a run that failed has no values, got {short(values)}")
            if ticket is None:
                if blank := [name for name, held in point.items() if held is None]:
                    raise InvalidArgument(f"{', '.join(blank)}: is blank, and a row must say all of its point")
                try:
                    rows.append(dataclasses.replace(HistoryRow.of(space, outputs, point, values or None), failed=failed))
                except Outside as error:
                    if outside == "refuse":
                        dropping = either("outside='drop'", "--outside drop")
                        raise InvalidArgument(f"{error}; {dropping} leaves such rows out") from error
                    left_out.append(number + 1)
                continue
            index = (tickets or {}).get(int(ticket)) if float(ticket).is_integer() else None
            if index is None:
                raise InvalidArgument(f"ticket: must be one that was asked for, or blank, got {ticket:g}")
            there = space.point(index)
            one = HistoryRow.of(space, outputs, there if any(map(is_blank, point.values())) else point, values or None)
            if one.index != index and (
                one.index >= 0 or not np.allclose(space.place(one.point), space.modelled[index], atol=ON_GRID, rtol=0)
            ):
                raise InvalidArgument(f"ticket: the point is not that of ticket {ticket:g}, {short(there)}")
            before = told.setdefault(int(ticket), {})
            if any(before.get(name, value) != value for name, value in one.values.items()):
                raise InvalidArgument(
                    f"ticket: {ticket:g} has other values in a row before, {short(before)}, got {short(dict(one.values))}"
                )
            before |= one.values
            rows.append(dataclasses.replace(one, index=index, ticket=int(ticket), failed=failed))
    if left_out:
        words = f"lie beyond the ends of an axis, and are left out: {short(left_out)}"
        warn(f"history: {len(left_out)} of {len(asked)} rows {words}")
    return rows


def named_as(known: Mapping[str, Collection[str]], table: Mapping[str, list[object]]) -> dict[str, list[object]]:
    """Return a table with known names for columns with units or capitals."""
    named: dict[str, list[object]] = {}
    for column, cells in table.items():
        name = next((name for name, others in known.items() if column in others), column)
        if name == column and column not in known:
            name = next((name for name, others in known.items() if column.casefold() in map(str.casefold, others)), column)
        if name in named or (name != column and name in table):
            raise InvalidArgument(f"history: must have one column of {name}, got {short(list(table))}")
        named[name] = cells
    return named


def _entry(name: str, cell: object, categories: Collection[object] | None = None) -> Any:
    """Return an entry's number or category, ``None`` for a blank."""
    if cell in (categories or ()):
        return cell
    if is_blank(cell) or categories:
        return None if is_blank(cell) else cell
    number = number_of(cell)
    if number != number:
        raise InvalidArgument(f"{name}: must be a number, or blank where it is not there, got {short(cell)}{advice_on(cell)}")
    return number


def check_placed(rows: Sequence[HistoryRow], space: Space, off_grid: str, argument: str) -> None:
    """Raise ``InvalidArgument`` for points off the grid, or warn if rounding."""
    off = [row for row in rows if row.distance > ON_GRID]
    if not off:
        return
    worst = max(off, key=lambda row: row.distance)
    there = space.point(worst.index)
    moves = ", ".join(f"{name}={readable(own)} for {readable(there[name])}" for name, own in worst.point.items() if own != there[name])
    which = "it lies" if len(rows) == 1 else f"{len(off)} of {len(rows)} points lie"
    words = f"{argument}: {which} off the grid, by up to {worst.distance:.2g} of an axis ({moves})"
    if off_grid == "refuse":
        rounding = either("off_grid='round'", "--off-grid round")
        raise InvalidArgument(f"{words}; with {rounding} the nearest point stands for one")
    warn(f"{words}; the nearest point stands for one")
