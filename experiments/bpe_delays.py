"""BPE-Delay and GP-UCB-SDF under Poisson delays of mean 0, 25 and 50 (Vakili et al. 2023, Figures 3 and 4).

RESULTS
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments import _bpe
from experiments._experiment import Experiment, Options
from jaxbandit.study import Comparison

MEANS = (0.0, 25.0, 50.0)
ALGORITHMS = ("BPE-Delay", "GP-UCB-SDF")


def build(options: Options) -> Comparison:
    """Both algorithms under every delay on both functions."""
    return _bpe.build("bpe-delays", options, [(algorithm, mean) for algorithm in ALGORITHMS for mean in MEANS])


def notes(dataset: Any) -> list[str]:
    """Stages, eliminations, and what each delay costs each algorithm, paired by trial."""
    return _bpe.notes(dataset, [((algorithm, mean), (algorithm, MEANS[0])) for algorithm in ALGORITHMS for mean in MEANS[1:]])


def draw(dataset: Any, path: Path) -> None:
    """Cumulative regret, BPE-Delay above as in the paper's Figure 3, GP-UCB-SDF below as in its Figure 4."""
    rows = [{f"{algorithm}, E[τ] = {mean:g}": (algorithm, mean) for mean in MEANS} for algorithm in ALGORITHMS]
    _bpe.draw(dataset, path, title="Poisson delays of three means: means with 95% intervals, medians thin", rows=rows)


EXPERIMENT = Experiment(
    name="bpe-delays",
    title="BPE-Delay and GP-UCB-SDF with feedback late by 0, 25 and 50 rounds on average (BPE-Delay paper, Figures 3 and 4)",
    defaults=_bpe.FULL,
    quick=_bpe.QUICK,
    build=build,
    notes=notes,
    draw=draw,
    text=__doc__ or "",
)
