"""Runs of a study grouped into cells: those that differ in numbers only are variants of one compiled program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import numpy as np

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.pytree import canonicalise, replace
from jaxbandit.core.sweep import gather_variants
from jaxbandit.engine.delayed import Delays, plan_delays
from jaxbandit.engine.programs import Cell
from jaxbandit.engine.simulation import check_run, refreshed_in_time
from jaxbandit.fused.rounds import Plan as KernelPlan
from jaxbandit.problems.base import without_name
from jaxbandit.study.specify.run import Run
from jaxbandit.study.specify.study import Study, kernel_of
from jaxbandit.surrogates import Surrogate

MIN_UNSHARED_LEAF = 4096  # numbers in a leaf from which runs that differ in it are cells of their own: a variant is copied for every trial

Parts: TypeAlias = tuple[Any, Surrogate, Delays | None]
"""Parts that vary between the runs of a cell: the algorithm, its model, and delays with what the learner does meanwhile."""


def group_runs(study: Study, runs: Sequence[Run]) -> list[tuple[Cell, tuple[int, ...]]]:
    """Return the cells of a study in the order of their first runs, each with the numbers of its runs.

    Raises:
      InvalidArgument: on a run whose parts do not fit each other, and when kernels are to play the rounds and can play those of no run.
    """
    models = refreshed_in_time([run.model for run in runs], study.horizon)
    parts = [_parts(study, run, model) for run, model in zip(runs, models, strict=True)]
    kernels = [kernel if isinstance(kernel := kernel_of(study, run), KernelPlan) else None for run in runs]
    groups: list[list[int]] = []
    for number, run in enumerate(runs):
        for group in groups:
            first = group[0]
            if (
                _share_a_program(runs[first], parts[first], run, parts[number], alike=kernels[number] is not None)
                and kernels[first] == kernels[number]
            ):
                group.append(number)
                break
        else:
            groups.append([number])
    cells = [(_cell(study, runs[group[0]], [parts[number] for number in group], kernels[group[0]]), tuple(group)) for group in groups]
    if study.fused is True and not any(kernels):
        raise InvalidArgument(f"fused: no kernel can play the rounds of any run; {runs[0].label!r}: {study.describe_choices(runs[0])}")
    return cells


def _parts(study: Study, run: Run, model: Surrogate) -> Parts:
    """Return what varies between runs, checked as :func:`~jaxbandit.simulate` checks it, in arrays of the engine's types."""
    try:
        check_run(run.problem, [run.algorithm], [run.model], study.horizon, run.initial, run.informed)
        delay, policy = run.delay_in_force, run.policy_in_force
        algorithms, delays = plan_delays(run.problem.outputs, [run.algorithm], [delay], policy, None, study.horizon)
    except InvalidArgument as error:
        raise InvalidArgument(f"run {run.label!r}: {error}") from error
    return canonicalise((algorithms[0], model.without_kernels(), None if delays is None else delays[0]))


def _share_a_program(one: Run, parts: Parts, other: Run, other_parts: Parts, *, alike: bool) -> bool:
    """Return whether two runs can share a cell.

    They have one problem and initial design, and parts of one structure, but for the size of the buffer of pending feedback, that
    differ in no large leaf; with ``alike`` models of one form.
    """
    if alike and not _equal_but(parts[1].forms, other_parts[1].forms, largest=0):
        return False
    if one.problem is not other.problem or one.informed != other.informed:
        return False
    same_design = _equal_but(one.initial, other.initial, largest=0)
    return same_design and _equal_but(_with_capacity(parts, 1), _with_capacity(other_parts, 1), largest=MIN_UNSHARED_LEAF)


def _equal_but(one: Any, other: Any, *, largest: int) -> bool:
    """Say whether two trees are equal but for the numbers in leaves of fewer than ``largest``."""
    (leaves, structure), (others, another) = jax.tree.flatten(one), jax.tree.flatten(other)
    if structure != another:  # type: ignore[operator]  # its stub allows for None
        return False
    pairs = list(zip(leaves, others, strict=True))
    return all(_shape(x) == _shape(y) and (np.size(x) < largest or x is y or np.array_equal(x, y)) for x, y in pairs)


def _shape(leaf: Any) -> tuple[Any, ...]:
    return np.shape(leaf), leaf.dtype if isinstance(leaf, jax.Array | np.ndarray | np.generic) else None


def _with_capacity(parts: Parts, capacity: int) -> Parts:
    """Return the parts with another size of the buffer of pending feedback, on which results do not depend."""
    algorithm, model, delays = parts
    return algorithm, model, None if delays is None else replace(delays, capacity=capacity)


def _cell(study: Study, first: Run, parts: Sequence[Parts], kernel: KernelPlan | None) -> Cell:
    """Return the cell of runs with these parts, which are like the first one in all else."""
    capacity = max((delays.capacity for _, _, delays in parts if delays is not None), default=1)
    return Cell(
        problem=canonicalise(without_name(first.problem)),
        variants=gather_variants([_with_capacity(own, capacity) for own in parts]),
        initial=canonicalise(first.initial),
        horizon=study.horizon,
        block=first.model.trials_per_block,
        common=study.common_random_numbers,
        informed=first.informed,
        kernel=kernel,
    )
