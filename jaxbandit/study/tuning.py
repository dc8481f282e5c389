"""Picking the best hyper-parameters of an algorithm from a grid, all of them in one compiled run."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.pytree import sweep, unstack
from jaxbandit.metrics import Curves, curves, healthy
from jaxbandit.study.comparison import Comparison
from jaxbandit.study.lines import Entry


def regret_and_violation(measures: Curves) -> Any:
    """Positive regret plus hard violation at the end of the run: what :func:`tune` makes small unless told otherwise."""
    return measures.positive_regret[..., -1] + measures.hard_violation[..., -1]


def tune(
    comparison: Comparison,
    entry: Entry,
    *,
    trials: int = 20,
    measure: Callable[[Curves], Any] = regret_and_violation,
    **values: Sequence[Any],
) -> tuple[Entry, list[tuple[dict[str, Any], float]]]:
    """The entry with the best hyper-parameters of a grid, as papers do who set a baseline's to its best performance.

    It is tuned on trials of its own, from the seed after the comparison's, so that it is not scored on what it was chosen by.

    Args:
      comparison: the study.
      entry: whose algorithm is tuned.
      trials: on how many trials.
      measure: a number per trial, ``[variants, trials]``, from curves ``[variants, trials, T]``; its mean is made small.
      **values: ``field=sequence`` as for :func:`~jaxbandit.sweep`; every combination is tried.

    Returns:
      The entry with the best algorithm, and every combination with its mean, in the order tried. A combination with a trial that
      failed, or without a number, counts as infinitely bad.

    Raises:
      InvalidArgument: on no field, or when every combination failed.
      ValueError: on an unknown field.
    """
    if not values:
        raise checks.InvalidArgument("values: give at least one field and the values to try")
    combinations = [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]
    variants = sweep(entry.algorithm, **{name: [c[name] for c in combinations] for name in values})
    study = dataclasses.replace(comparison, seed=comparison.seed + 1, trials=checks.integer("trials", trials, least=1))
    run = study.trajectory(dataclasses.replace(entry, algorithm=variants))

    problem = study.problem_of(entry)
    over_trials = 0 if problem.is_random else None
    by_trial = jax.vmap(curves, (over_trials, 1), 1)  # curves of [variants, T] points in each trial
    # On the host first: one after the other, small operations on what several CPU devices share can wait for each other for ever.
    points = jnp.asarray(np.asarray(run.scored_indices))
    scores = np.mean(np.asarray(measure(by_trial(study.instances(problem), points)), np.float64), axis=1)
    scores = np.where(np.all(np.asarray(healthy(run.status)), axis=1) & np.isfinite(scores), scores, np.inf)
    best = int(np.argmin(scores))
    if not np.isfinite(scores[best]):
        raise checks.InvalidArgument(f"values: none of the {len(scores)} combinations gave a finite measure; give others")
    chosen = dataclasses.replace(entry, algorithm=unstack(variants)[best])
    return chosen, list(zip(combinations, scores.tolist(), strict=True))
