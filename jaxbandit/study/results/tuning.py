"""Choosing the best hyper-parameters of an algorithm from a grid, all of them tried in one compiled run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.arguments import takes
from jaxbandit.core.fields import function, of_class, whole
from jaxbandit.core.sweep import combinations, sweep
from jaxbandit.core.tuned import Candidate, Tuned
from jaxbandit.metrics import Curves, curves, healthy
from jaxbandit.study.specify.run import Run
from jaxbandit.study.specify.study import Study, in_its_arithmetic


def regret_and_violation(measures: Curves) -> jax.Array:
    """Return positive regret plus hard violation at the end of the run: what :func:`tune` makes small unless told otherwise."""
    return measures.positive_regret[..., -1] + measures.hard_violation[..., -1]


@takes(
    study=of_class(Study, "a Study"),
    run=of_class(Run, "a Run"),
    values=of_class(Mapping, "a mapping from fields to values"),
    trials=whole(1),
    measure=function("(curves)"),
)
@in_its_arithmetic
def tune(
    study: Study,
    run: Run,
    values: Mapping[str, Sequence[Any]],
    *,
    trials: int = 20,
    measure: Callable[[Curves], jax.Array] = regret_and_violation,
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
    own = dataclasses.replace(study, seed=study.seed + 1, trials=int(trials))
    _check_measure(measure, (variants.size, own.trials), own.horizon + run.initial.counted * run.initial.count)
    played = own.trajectory(run, algorithm=variants)
    over_trials = 0 if run.problem.is_random else None
    by_trial = jax.jit(jax.vmap(curves, (over_trials, 1), 1))  # curves of [variants, T] points in each trial
    # On the host first: one after the other, small operations on what several CPU devices share can wait for each other for ever.
    points = jnp.asarray(np.asarray(played.scored_indices))
    measures = np.asarray(measure(by_trial(own.instances(run.problem), points)), np.float64)
    scores, errors = np.mean(measures, axis=1), np.std(measures, axis=1, ddof=min(1, own.trials - 1)) / np.sqrt(own.trials)
    scores = np.where(np.all(np.asarray(healthy(played.status)), axis=1) & np.isfinite(scores), scores, np.inf)
    best = int(np.argmin(scores))
    if not np.isfinite(scores[best]):
        raise checks.InvalidArgument(f"values: none of the {len(scores)} combinations gave a finite measure; give others")
    chosen = dataclasses.replace(run, algorithm=variants.pick(best))
    tried = zip(combinations(values, zipped=False, where="values"), scores.tolist(), errors.tolist(), strict=True)
    return Tuned(chosen, tuple(Candidate(combination, loss, error, "grid") for combination, loss, error in tried))


def _check_measure(measure: Callable[[Curves], jax.Array], trials: tuple[int, int], rounds: int) -> None:
    """Raise ``InvalidArgument`` unless a measure makes a number of each of ``[variants, trials]``; it is called on zeros."""
    wanted = f"measure: must make a number of each trial, {list(trials)}, of curves {[*trials, rounds]}"
    curve = jnp.zeros((*trials, rounds))
    with checks.blaming(wanted):
        made = np.asarray(measure(Curves(**{field.name: curve for field in dataclasses.fields(Curves) if field.name != "strong_regret"})))
    if made.shape != trials or made.dtype.kind not in "fiu":
        raise checks.InvalidArgument(f"{wanted}, got {made.dtype} {list(made.shape)}")
