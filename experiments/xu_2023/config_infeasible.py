"""CONFIG declares infeasibility (Xu, Jiang, Svetozarevic and Jones 2023, section 6.1).

The paper: on 50 instances drawn from a Gaussian process whose constraint is shifted to be at least 0.1, CONFIG always declares
infeasibility, after 16.3 steps on average.

Measured 2026-11-28 by ``python -m experiments config-infeasible`` and the options that are named:
What we get (recommended parameters): 50 of 50 declared, after 17.0 evaluations on average (sd 3.4, at most 27): reproduces. Over 300
instances (``--trials 300``) the mean is 16.6. The declaration comes before the next evaluation, so the round of declaration is one more.
With what the authors' scripts run (``code``) all are declared after 17.4 evaluations, the first point included.

Parameters: as in ``config-gp``; the paper gives no domain, on which the number depends.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import jaxbandit as jb
from experiments.common.experiment import Experiment, Options
from experiments.xu_2023 import shared
from jaxbandit.report import plots
from jaxbandit.study import Study


def build(options: Options) -> Study:
    """Return the study of CONFIG on infeasible instances."""
    return shared.on_draws("config-infeasible", jb.problems.gp_draws_infeasible, options, only="CONFIG")


def evaluations_before(dataset: Any) -> np.ndarray:
    """Return the number of evaluations before each declaration of infeasibility."""
    declared = dataset.declared_round.values[0]
    # The declaration of round t comes before that round's evaluation, and after those of an initial design that counts.
    return declared[declared > 0] - 1 + (dataset.sizes["round"] - dataset.sizes["played"])


def notes(dataset: Any) -> list[str]:
    """Return when infeasibility was declared, in evaluations as the paper counts."""
    evaluations = evaluations_before(dataset)
    lines = [f"{len(evaluations)} of {dataset.sizes['trial']} instances declared infeasible"]
    if len(evaluations):
        lines.append(
            f"declared after {evaluations.mean():.1f} evaluations on average, sd {evaluations.std():.1f}, at most {evaluations.max()}"
            " (paper: 16.3)"
        )
    lines.append("no point is feasible, so regret is undefined; V counts the rounds after the declaration, too")
    return lines + shared.no_paper_set(dataset, "the paper differs only in giving no domain")


def draw(dataset: Any) -> Any:
    """Draw how many instances were declared infeasible in each round."""
    panel = partial(plots.rounds_of_declaration, results=dataset, heading="")
    evaluations = evaluations_before(dataset)
    mean = f"\n(evaluations before it: {evaluations.mean():.1f} on average; paper 16.3)" if len(evaluations) else ""
    return plots.compose(f"Infeasible instances: the round of CONFIG's declaration{mean}", [[panel]], size=(5.2, 3.8))


EXPERIMENT = Experiment(
    module=__name__,
    title="CONFIG declares infeasibility (CONFIG paper, section 6.1)",
    position=61,
    defaults=Options(trials=50, horizon=100, points_per_axis=shared.RECOMMENDED_POINTS),
    quick=Options(trials=10, horizon=40, points_per_axis=81),
    build=build,
    notes=notes,
    draw=draw,
)
