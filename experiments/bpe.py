"""BPE-Delay against GP-UCB-SDF under Poisson(50) delays (Vakili et al. 2023, Figure 2).

RESULTS
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments import _bpe
from experiments._experiment import Experiment, Options
from jaxbandit.study import Comparison

MEAN = 50.0
LINES = (("BPE-Delay", MEAN), ("GP-UCB-SDF", MEAN))


def build(options: Options) -> Comparison:
    """Both algorithms on both functions."""
    return _bpe.build("bpe", options, LINES)


def notes(dataset: Any) -> list[str]:
    """Stages, eliminations, and the difference of the two, paired by trial."""
    return _bpe.notes(dataset, [(LINES[1], LINES[0])])


def draw(dataset: Any, path: Path) -> None:
    """Cumulative regret, as in the paper's Figure 2."""
    title = f"Feedback late by Poisson({MEAN:g}) rounds: means with 95% intervals, medians thin"
    _bpe.draw(dataset, path, title=title, rows=[{algorithm: (algorithm, mean) for algorithm, mean in LINES}])


EXPERIMENT = Experiment(
    name="bpe",
    title="BPE-Delay against GP-UCB-SDF with feedback late by Poisson(50) rounds (BPE-Delay paper, Figure 2)",
    defaults=_bpe.FULL,
    quick=_bpe.QUICK,
    build=build,
    notes=notes,
    draw=draw,
    text=__doc__ or "",
)
