"""GP-UCB with noiseless constraints on the small feasible region.

It is Figures 2 and 3 of Shi and Eryilmaz (2022, App. E.1.1).

The paper: box plots over 100 runs of average regret and violation (CV) of its Algorithm 2, both falling towards 0; ADMMBO, which stops
by itself after some 90 rounds, and bandit OCO, "almost linear after few iterations", are worse.

Measured 2026-11-21 by ``python -m experiments se22-noiseless`` and the options that are named:
What we get (recommended parameters, 100 trials) and why:
- CV/t is 0.195 at t = 100 and 0.066 at t = 350 with psi = exp, 0.114 and 0.036 with the polynomial of degree 2: reproduces. It keeps
  falling, but its limit on a grid is a point just outside the region: nearly all 350 rounds violate, by little.
- Average regret falls below 0 (-0.21), because points just outside pay more; positive regret is 0.064.
- The curves come out only when all data serve in every epoch, which costs nothing because reward and constraint are seen apart. With
  the literal restart of every epoch (``paper``) each epoch of 20 rounds is spent exploring anew: CV/t stays at 0.60, the multiplier
  grows to 2e4 and average regret is 1.25.

- ADMMBO stops after 90 to 120 evaluations (median 100) with CV/t 0.29 and average regret 0.22, where Algorithm 2 has 0.195 and -0.18
  at t = 100: reproduces. Most of its evaluations are of the constraint alone; all count as rounds. Its answer is the point that
  Algorithm 2 settles on, too: 0.005 outside the region, in all trials.
- OCO has CV/t 0.80 at t = 100 and 0.64 at t = 350, with the best of seven steps (0.3): reproduces. In the
  end it is still 0.47 outside the region; signed regret is -0.62 for that reason.

Parameters: ``recommended`` has Matern-5/2 with length-scale 1, lambda = 0.01, S = 20, T = 350 and constant width 1 (the paper gives
neither length-scale, lambda nor width) and a 30x30 grid. Runs differ by their noise only, not by their first points as the paper's do.
ADMMBO: two random points before round 1, which do not count, distances in units of the domain as in its authors' code (in the unit box
it stops after 140 to 160 evaluations). OCO: the step with the least positive regret plus violation in 20 trials of their own.
``paper``: the same, restarted in every epoch. ``code``: no code was published with the paper; it runs ``paper``.
"""

from __future__ import annotations

from typing import Any

import jaxbandit as jb
from experiments.common.experiment import Experiment, Options, study
from experiments.shi_eryilmaz_2022 import shared
from jaxbandit.rules.penalties import Exponential, Polynomial
from jaxbandit.study import Run, Study

PENALTIES = {"Alg. 2, exp(x)": Exponential(c=1.0), "Alg. 2, (x + 1)^2": Polynomial(c=1.0, n=2.0)}


def build(options: Options) -> Study:
    """Return the study of Algorithm 2, ADMMBO and OCO on ``sine``."""
    problem = jb.problems.sine(options.points_per_axis, noise_variance=[shared.NOISE_VARIANCE, 0.0])
    model = shared.model(problem, options.horizon)
    restart = shared.restarts(options)
    runs = (Run(label, problem, jb.Se2(psi=psi, epoch=shared.EPOCH, restart=restart), model) for label, psi in PENALTIES.items())
    return shared.with_baselines(study("se22-noiseless", runs, options, {"points_per_axis": options.points_per_axis}))


def draw(dataset: Any) -> Any:
    """Draw box plots of average regret and violation, as Figure 2."""
    return shared.boxes(dataset, title="Small feasible region, constraint without noise", panels=[shared.REGRET, shared.VIOLATION])


EXPERIMENT = Experiment(
    module=__name__,
    title="GP-UCB with noiseless constraints, ADMMBO and OCO on the small feasible region (SE22, Figures 2 and 3)",
    position=50,
    defaults=shared.FULL,
    quick=shared.QUICK,
    build=build,
    notes=shared.violation_notes,
    draw=draw,
)
