"""Lines of a study gathered into cells: those that differ in numbers only are variants of one compiled program."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxbandit.core.pytree import canonicalise, replace, variants
from jaxbandit.simulate import InitialDesign
from jaxbandit.simulate.batch import check
from jaxbandit.simulate.delayed import Delays, plan
from jaxbandit.simulate.segments import Cell
from jaxbandit.study.lines import Line, Specification

LARGE = 4096  # numbers in a leaf from which lines that differ in it are cells of their own: a variant is copied for every trial


@dataclasses.dataclass(frozen=True)
class Member:
    """A line on its way into a cell: its number in the study, and what is run."""

    number: int
    line: Line
    parts: Any  # canonical (algorithm, surrogate, delays)


@dataclasses.dataclass(frozen=True)
class PlannedCell:
    """A cell, and the numbers of its lines in the study."""

    cell: Cell
    lines: tuple[int, ...]


def gather(study: Specification, lines: Sequence[Line]) -> list[PlannedCell]:
    """The cells of a study in the order of their first lines; raises ``InvalidArgument`` on parts that do not fit each other."""
    groups: list[list[Member]] = []
    for number, line in enumerate(lines):
        member = Member(number=number, line=line, parts=_parts(study, line))
        group = next((group for group in groups if _alike(group[0], member)), None)
        if group is None:
            groups.append([member])
        else:
            group.append(member)
    return [_cell(study, group) for group in groups]


def _parts(study: Specification, line: Line) -> Any:
    """What varies between lines, checked as :func:`~jaxbandit.simulate` checks it."""
    entry = line.entry
    check(entry.problem, entry.algorithm, entry.surrogate, entry.delay, study.horizon, _initial(line), "indices")
    delays, algorithm = plan(entry.problem.outputs, entry.algorithm, entry.delay, entry.feedback, None, study.horizon)
    return canonicalise((algorithm, entry.surrogate, delays))


def _alike(first: Member, other: Member) -> bool:
    """Whether two lines can share a cell: one problem and initial design, one structure but for the buffer's size, no large leaf that
    differs.
    """
    a, b = first.line.entry, other.line.entry
    if a.problem is not b.problem or a.informed != b.informed:
        return False
    same_design = _equal_but(_initial(first.line), _initial(other.line), largest=0)
    return same_design and _equal_but(_sized(first.parts, 1), _sized(other.parts, 1), largest=LARGE)


def _equal_but(one: Any, other: Any, *, largest: int) -> bool:
    """Whether two trees are equal but for numbers in leaves of fewer than ``largest``."""
    (leaves, structure), (others, another) = jax.tree.flatten(one), jax.tree.flatten(other)
    if structure != another:  # type: ignore[operator]  # its stub allows for None
        return False
    pairs = list(zip(leaves, others, strict=True))
    return all(_shape(x) == _shape(y) and (np.size(x) < largest or x is y or np.array_equal(x, y)) for x, y in pairs)


def _initial(line: Line) -> InitialDesign:
    return line.entry.initial or InitialDesign()


def _shape(leaf: Any) -> tuple[Any, ...]:
    return np.shape(leaf), getattr(leaf, "dtype", None)


def _sized(parts: Any, capacity: int) -> Any:
    """The parts with another size of the buffer of pending feedback, on which results do not depend."""
    algorithm, surrogate, delays = parts
    return algorithm, surrogate, replace(delays, capacity=capacity) if isinstance(delays, Delays) else delays


def _cell(study: Specification, group: list[Member]) -> PlannedCell:
    capacity = max((m.parts[2].capacity for m in group if m.parts[2] is not None), default=1)
    entry = group[0].line.entry
    cell = Cell(
        problem=canonicalise(entry.problem),
        lines=variants([_sized(member.parts, capacity) for member in group]),
        initial=canonicalise(_initial(group[0].line)),
        horizon=study.horizon,
        block=entry.surrogate.trials_per_block,
        common=study.common_random_numbers,
        informed=entry.informed,
    )
    return PlannedCell(cell=cell, lines=tuple(member.number for member in group))
