"""Choosing the best hyper-parameters of an algorithm from a grid, all of them tried in one compiled run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import function, whole
from jaxbandit.core.sweep import combinations, sweep
from jaxbandit.core.tuned import Candidate, Tuned
from jaxbandit.metrics import Curves, curves, healthy
from jaxbandit.study.runs import Run, Values
from jaxbandit.study.study import Study, in_its_arithmetic

Measure: TypeAlias = Annotated[Callable[[Curves], jax.Array], function("(curves)")]
"""A number of each trial ``[variants, trials]`` from curves ``[variants, trials, T]``."""


def regret_and_violation(measures: Curves) -> jax.Array:
    """Return positive regret plus hard violation at the end of the run: what :func:`tune` makes small unless told otherwise."""
    return measures.positive_regret[..., -1] + measures.hard_violation[..., -1]


@checked
@in_its_arithmetic
def tune(
    study: Study,
    run: Run,
    values: Values,
    *,
    trials: Annotated[int, whole(1)] = 20,
    measure: Measure = regret_and_violation,
) -> Tuned[Run]:
    """Return the run with the best hyper-parameters of a grid, as papers do who set a baseline's to its best performance.

    It is tuned on trials of its own, from the seed after the study's, so that it is not scored on what it was chosen by.

    Args:
      study: study that gives horizon and seed.
      run: run whose algorithm is tuned; it need not be one of the study's.
      values: for the dotted paths of fields the values to try, as for :func:`~jaxbandit.sweep`; every combination is tried.
      trials: number of trials.
      measure: a number per trial, ``[variants, trials]``, from curves ``[variants, trials, T]``; its mean is made small.

    Returns:
      The run with the best algorithm, and every combination with its mean, in the order tried. A combination with a trial that
      failed, or without a number, counts as infinitely bad.

    Raises:
      InvalidArgument: on no field, an unknown one, a measure that does not make a number of each trial, or when every combination failed.
    """
    if not values:
        raise checks.InvalidArgument("values: must hold at least one field with the values to try, got {}")
    variants = sweep(run.algorithm, values)
    apart = dataclasses.replace(study, seed=study.seed + 1, trials=int(trials))
    _check_measure(measure, (variants.size, apart.trials), apart.horizon + run.initial.counted * run.initial.count)
    played = apart.trajectory(run, algorithm=variants)
    over_trials = 0 if run.problem.is_random else None
    by_trial = jax.jit(jax.vmap(curves, (over_trials, 1), 1))  # curves of [variants, T] points in each trial
    # On the host first: one after the other, small operations on what several CPU devices share can wait for each other for ever.
    points = jnp.asarray(np.asarray(played.scored_points))
    measures = np.asarray(measure(by_trial(apart.instances(run.problem), points)), np.float64)
    scores, errors = np.mean(measures, axis=1), np.std(measures, axis=1, ddof=min(1, apart.trials - 1)) / np.sqrt(apart.trials)
    usable = np.all(np.asarray(healthy(played.status)), axis=1)
    scores = np.where(usable & np.isfinite(scores), scores, np.inf)
    best = int(np.argmin(scores))
    if not np.isfinite(scores[best]):
        raise checks.InvalidArgument(f"values: none of the {len(scores)} combinations gave a finite measure; give others")
    chosen = dataclasses.replace(run, algorithm=variants.pick(best))
    rows = zip(combinations(values, zipped=False, where="values"), scores.tolist(), errors.tolist(), strict=True)
    tried = tuple(Candidate(combination, loss, error, "grid") for combination, loss, error in rows)
    return Tuned(chosen, tried, algorithm=chosen.algorithm, model=chosen.model)


def _check_measure(measure: Measure, trials: tuple[int, int], rounds: int) -> None:
    """Raise ``InvalidArgument`` unless a measure makes a number of each of ``[variants, trials]``; it is called on zeros."""
    wanted = f"measure: must make a number of each trial, {list(trials)}, of curves {[*trials, rounds]}"
    curve = jnp.zeros((*trials, rounds))
    with checks.blaming(wanted):
        made = np.asarray(measure(Curves(**{field.name: curve for field in dataclasses.fields(Curves) if field.name != "strong_regret"})))
    if made.shape != trials or made.dtype.kind not in "fiu":
        raise checks.InvalidArgument(f"{wanted}, got {made.dtype} {list(made.shape)}")
