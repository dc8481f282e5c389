"""Choice of hyper-parameters from a grid, in one compiled run."""

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
from jaxbandit.results.metrics import Curves, curves, healthy
from jaxbandit.results.search import Candidate, Tuned
from jaxbandit.results.summary import MEASURED
from jaxbandit.study.runs import Run, SweptValues
from jaxbandit.study.study import Study, in_its_arithmetic

Measure: TypeAlias = Annotated[Callable[[Curves], jax.Array], function("(curves)")]
"""A number of each trial ``[variants, trials]`` from curves ``[variants, trials, T]``."""


def final_regret_and_violation(measures: Curves) -> jax.Array:
    """Return positive regret plus hard violation at the end, the default measure."""
    return measures.positive_regret[..., -1] + measures.hard_violation[..., -1]


@checked
@in_its_arithmetic
def tune(
    study: Study,
    run: Run,
    values: SweptValues,
    *,
    trials: Annotated[int, whole(1)] = 20,
    measure: Measure = final_regret_and_violation,
) -> Tuned[Run]:
    """Return the run with the best hyper-parameters of a grid.

    Papers tune baselines in this way. Its trials have the seed after the study's, so that scores do not use the data of the choice.

    Args:
      study: study that gives horizon and seed.
      run: run whose algorithm is tuned. It need not belong to the study.
      values: values to try by the dotted paths of fields, as for :func:`~jaxbandit.sweep`, in every combination.
      trials: number of trials.
      measure: a function from curves ``[variants, trials, T]`` to numbers ``[variants, trials]``; the least mean is best.

    Returns:
      The run with the best algorithm, and every combination with its mean, in the order tried. A combination with a failed trial or without
      a number counts as infinitely bad.

    Raises:
      InvalidArgument: on no or an unknown field, a measure without a number for each trial, or when every combination failed.
    """
    if not values:
        raise checks.InvalidArgument("values: must hold at least one field with the values to try, got {}")
    variants = sweep(run.algorithm, values)
    apart = dataclasses.replace(study, seed=study.seed + 1, trials=int(trials))
    _check_measure(measure, (variants.size, apart.trials), apart.horizon + run.initial.counted * run.initial.count)
    played = apart.trajectory(run, algorithm=variants)
    over_trials = 0 if run.problem.is_random else None
    by_trial = jax.jit(jax.vmap(curves, (over_trials, 1), 1))
    # The points go to the host first, because small operations on arrays of several CPU devices can wait for each other for ever.
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
    """Raise ``InvalidArgument`` unless a measure of zeros is ``[variants, trials]``."""
    wanted = f"measure: must make a number of each trial, {list(trials)}, of curves {[*trials, rounds]}"
    curve = jnp.zeros((*trials, rounds))
    with checks.blaming(wanted):
        made = np.asarray(measure(Curves(**dict.fromkeys(MEASURED, curve))))
    if made.shape != trials or made.dtype.kind not in "fiu":
        raise checks.InvalidArgument(f"{wanted}, got {made.dtype} {list(made.shape)}")
