"""The number and the length of epochs of GP-UCB.

Constraints are noiseless. It is Figure 1 of Shi and Eryilmaz (2022, App. E.1.1).

The paper: mean regret and violation (CV) for five pairs of L and S; for three of them more frequent updates of the multiplier trade
regret for violation.

Measured 2026-11-21 by ``python -m experiments se22-tradeoff`` and the options that are named:
What we get (recommended parameters, 100 trials, T = 350): S = 10, 20, 35, 70 give CV/T 0.042, 0.066, 0.101, 0.162 and average regret
-0.12, -0.21, -0.29, -0.41: the trade-off reproduces, for all four. Regret is negative because points outside the region pay more;
positive regret, 0.085 at S = 10 and 0.064 at all others, is spent before the first updates and shows the trade-off only at S = 10.

Parameters: as in ``se22-noiseless`` with psi = exp; the paper does not list its pairs. ``paper``: restarted in every epoch, which
diverges. ``code``: no code was published with the paper; it runs ``paper``.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jaxbandit as jb
from experiments.common.experiment import Experiment, Options, study
from experiments.shi_eryilmaz_2022 import shared
from jaxbandit.report import plots
from jaxbandit.study import Run, Study

EPOCHS = (10, 20, 35, 70)


def build(options: Options) -> Study:
    """Return the study of Algorithm 2 with epochs of several lengths."""
    problem = jb.problems.sine(options.points_per_axis, noise_variance=[shared.NOISE_VARIANCE, 0.0])
    model = shared.model(problem, options.horizon)
    restart = shared.restarts(options)
    labels = {f"S = {epoch}, L = {-(-options.horizon // epoch)}": epoch for epoch in EPOCHS}
    runs = (Run(label, problem, jb.Se2(epoch=epoch, restart=restart), model) for label, epoch in labels.items())
    return study("se22-tradeoff", runs, options, {"points_per_axis": options.points_per_axis})


def draw(dataset: Any) -> Any:
    """Draw average regret against average violation, as the paper's Figure 1."""
    panels = [("regret", "average regret $R(T)/T$"), ("positive_regret", "average positive regret $R^+(T)/T$")]
    violation = ("soft_violation", "average violation $V(T)/T$")
    drawers = [partial(plots.trade_off, results=dataset, x=violation, y=panel, joined=True) for panel in panels]
    return plots.compose("Epochs of S rounds: regret against violation (means, 95% intervals)", [drawers])


EXPERIMENT = Experiment(
    module=__name__,
    title="GP-UCB with noiseless constraints: number against length of epochs (SE22, Figure 1)",
    position=52,
    defaults=shared.FULL,
    # Epochs of every length are whole.
    quick=dataclasses.replace(shared.QUICK, horizon=140),
    build=build,
    notes=shared.violation_notes,
    draw=draw,
)
