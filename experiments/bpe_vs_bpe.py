"""BPE-Delay against BPE, which does not know of the delays, under Poisson delays (Vakili et al. 2023, Figure 5).

RESULTS
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments import _bpe
from experiments._experiment import Experiment, Options
from jaxbandit.study import Comparison

MEANS = (25.0, 50.0)
ALGORITHMS = ("BPE-Delay", "BPE")


def build(options: Options) -> Comparison:
    """Both algorithms under both delays on both functions."""
    return _bpe.build("bpe-vs-bpe", options, [(algorithm, mean) for algorithm in ALGORITHMS for mean in MEANS])


def notes(dataset: Any) -> list[str]:
    """Stages, eliminations, and the difference of the two, paired by trial."""
    return _bpe.notes(dataset, [(("BPE", mean), ("BPE-Delay", mean)) for mean in MEANS])


def draw(dataset: Any, path: Path) -> None:
    """Cumulative regret, as in the paper's Figure 5, one row of panels per delay."""
    rows = [{f"{algorithm}, E[τ] = {mean:g}": (algorithm, mean) for algorithm in ALGORITHMS} for mean in MEANS]
    _bpe.draw(dataset, path, title="BPE that does and does not know of the delays: means with 95% intervals, medians thin", rows=rows)


EXPERIMENT = Experiment(
    name="bpe-vs-bpe",
    title="BPE-Delay against BPE under delay (BPE-Delay paper, Figure 5)",
    defaults=_bpe.FULL,
    quick=_bpe.QUICK,
    build=build,
    notes=notes,
    draw=draw,
    text=__doc__ or "",
)
