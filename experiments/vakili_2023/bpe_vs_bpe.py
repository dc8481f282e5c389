"""BPE-Delay against BPE under Poisson delays.

BPE does not know of the delays. It is Figure 5 of Vakili et al. (2023).

The paper: BPE-Delay has less regret in a delayed setting.

Measured 2026-11-21 by ``python -m experiments bpe-vs-bpe`` and the options that are named (``code``: 2026-11-23):
What we get (recommended parameters, 40 trials, T = 1,000) and why:
- It has: reproduces. BPE has 104 +- 30 more on f1 and 88 +- 36 more on f2 at E[tau] = 25, 88 +- 33 and 78 +- 34 at E[tau] = 50, paired
  by trial; 653 and 521, 742 and 604 against 549 and 433, 654 and 525. BPE ends its first stage of 32 rounds without feedback of most or
  all of it, strikes out next to nothing, and explores all the longer in the second.
- Waiting has a price: BPE-Delay struck out the maximiser in 2 of 40 trials in each setting, BPE in none, since it decides on less data.
- With what the authors published (``code``, 10 trials, delta = 0.01) BPE has 34 +- 27 and 95 +- 48 more at E[tau] = 25, 5 +- 34 and
  71 +- 50 more at 50; with the theory's widths (``paper``, 10 trials) BPE-Delay is ahead at E[tau] = 50 (51 +- 41, 88 +- 53), and not on
  f2 at 25.

Parameters: as in ``bpe``.
"""

from __future__ import annotations

from typing import Any

from experiments.common.experiment import Experiment, Options
from experiments.vakili_2023 import shared
from jaxbandit.study import Study

MEANS = (25.0, 50.0)
ALGORITHMS = ("BPE-Delay", "BPE")


def build(options: Options) -> Study:
    """Return the study of both algorithms under both delays on both functions."""
    return shared.build("bpe-vs-bpe", options, [(algorithm, mean) for algorithm in ALGORITHMS for mean in MEANS])


def notes(dataset: Any) -> list[str]:
    """Return stages, eliminations, and the difference of the two, paired by trial."""
    return shared.notes(dataset, [(("BPE", mean), ("BPE-Delay", mean)) for mean in MEANS])


def draw(dataset: Any) -> Any:
    """Draw cumulative regret, one row of panels per delay, as Figure 5."""
    rows = [{f"{algorithm}, E[τ] = {mean:g}": (algorithm, mean) for algorithm in ALGORITHMS} for mean in MEANS]
    return shared.draw(dataset, title="BPE that does and does not know of the delays: means with 95% intervals, medians thin", rows=rows)


EXPERIMENT = Experiment(
    module=__name__,
    title="BPE-Delay against BPE under delay (BPE-Delay paper, Figure 5)",
    position=22,
    defaults=shared.FULL,
    quick=shared.QUICK,
    build=build,
    notes=notes,
    draw=draw,
)
