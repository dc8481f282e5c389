"""BPE-Delay against GP-UCB-SDF under Poisson(50) delays (Vakili et al. 2023, Figure 2).

The paper: cumulative regret over 10 runs on two fixed functions, far less for BPE-Delay on both.

Measured 2026-11-21 by ``python -m experiments bpe`` and the options that are named (``code``: 2026-11-23):
What we get (recommended parameters, 40 trials, T = 1,000, another function of the kind in every trial) and why:
- BPE-Delay is better: reproduces. R(T) is 654 +- 33 against 1,303 +- 65 on f1 and 525 +- 28 against 1,058 +- 52 on f2, less in every
  trial. It loses most in its first two stages, 353 rounds of exploration, and next to nothing later.
- Its width of 2 is far below the theory's 16: it struck out the maximiser in 2 of 40 trials on each function (the theory allows
  delta = 0.1), where the points left are nearly as good. With the theory's widths (``paper``, 10 trials) neither learns much in
  1,000 rounds, R(T) = 1,664 against 2,281 on f1 and 1,184 against 2,071 on f2: the same order; nothing was struck out wrongly.
- With what the authors published (``code``, 10 trials) 635 against 1,075, and 544 against 992.

Parameters: functions that interpolate 100 values of a Gaussian process on [0, 10]^2, norm 10, SE of length-scale 0.8 (f1) and 1.0 (f2),
50x50 points, sigma = 0.02, lambda = sigma^2, delta = 0.1, xi = 9, b = 1. ``recommended``: width 2 for BPE, 6 for GP-UCB-SDF with window
2 E[tau], on f - min f, since it reads 0 for what is missing. ``paper``: BPE's Theorem 6.1 and the literal width of Verma et al. (2022),
with the norm bound 11. ``code``: learners of length-scale 1, width sqrt(6) for both, delta = 0.01, stages as published (98, 250, 497,
... rounds), random ties. The paper's own functions, their domain and the number of points interpolated are not published.
"""

from __future__ import annotations

from typing import Any

from experiments.common.experiment import Experiment, Options
from experiments.vakili_2023 import shared
from jaxbandit.study import Study

MEAN = 50.0
LINES = (("BPE-Delay", MEAN), ("GP-UCB-SDF", MEAN))


def build(options: Options) -> Study:
    """Return the study of both algorithms on both functions."""
    return shared.build("bpe", options, LINES)


def notes(dataset: Any) -> list[str]:
    """Return stages, eliminations, and the difference of the two, paired by trial."""
    return shared.notes(dataset, [(LINES[1], LINES[0])])


def draw(dataset: Any) -> Any:
    """Draw cumulative regret, as in the paper's Figure 2."""
    title = f"Feedback late by Poisson({MEAN:g}) rounds: means with 95% intervals, medians thin"
    return shared.draw(dataset, title=title, rows=[{algorithm: (algorithm, mean) for algorithm, mean in LINES}])


EXPERIMENT = Experiment(
    module=__name__,
    title="BPE-Delay against GP-UCB-SDF with feedback late by Poisson(50) rounds (BPE-Delay paper, Figure 2)",
    position=20,
    defaults=shared.FULL,
    quick=shared.QUICK,
    build=build,
    notes=notes,
    draw=draw,
)
