"""BPE-Delay and GP-UCB-SDF under Poisson delays.

The means are 0, 25 and 50. It is Figures 3 and 4 of Vakili et al. (2023).

The paper: the excess regret of BPE-Delay is linear in the mean delay; GP-UCB-SDF's jumps with moderate delay.

Measured 2026-11-21 by ``python -m experiments bpe-delays`` and the options that are named:
What we get (recommended parameters, 40 trials, T = 1,000) and why:
- BPE-Delay: R(T) = 472, 549, 654 on f1 and 366, 433, 525 on f2 at E[tau] = 0, 25, 50. The excess is 77 +- 25 and 182 +- 26 on f1,
  66 +- 19 and 159 +- 21 on f2: linear to within the intervals, 2.4 to 3.6 a round of mean delay. Reproduces.
- GP-UCB-SDF: 255, 1,026, 1,303 on f1 and 165, 790, 1,058 on f2: four fifths of the jump come with the first 25 rounds. Reproduces.
- Without delay GP-UCB-SDF, which is GP-UCB then, is better than BPE by a factor of two: it need not explore where nothing is to be won.

Parameters: as in ``bpe``. Without delay BPE-Delay is BPE.
"""

from __future__ import annotations

from typing import Any

from experiments.common.experiment import Experiment, Options
from experiments.vakili_2023 import shared
from jaxbandit.study import Study

MEANS = (0.0, 25.0, 50.0)
ALGORITHMS = ("BPE-Delay", "GP-UCB-SDF")


def build(options: Options) -> Study:
    """Return the study of both algorithms under every delay on both functions."""
    return shared.build("bpe-delays", options, [(algorithm, mean) for algorithm in ALGORITHMS for mean in MEANS])


def notes(dataset: Any) -> list[str]:
    """Return stages, eliminations, and the paired cost of each delay."""
    return shared.notes(dataset, [((algorithm, mean), (algorithm, MEANS[0])) for algorithm in ALGORITHMS for mean in MEANS[1:]])


def draw(dataset: Any) -> Any:
    """Draw regret of BPE-Delay above GP-UCB-SDF's, as Figures 3 and 4."""
    rows = [{f"{algorithm}, E[τ] = {mean:g}": (algorithm, mean) for mean in MEANS} for algorithm in ALGORITHMS]
    return shared.draw(dataset, title="Poisson delays of three means: means with 95% intervals, medians thin", rows=rows)


EXPERIMENT = Experiment(
    module=__name__,
    title="BPE-Delay and GP-UCB-SDF with feedback late by 0, 25 and 50 rounds on average (BPE-Delay paper, Figures 3 and 4)",
    position=21,
    defaults=shared.FULL,
    quick=shared.QUICK,
    build=build,
    notes=notes,
    draw=draw,
)
