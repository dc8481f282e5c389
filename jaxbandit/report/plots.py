"""Figures of a comparison, one style everywhere: colours that survive colour-blindness, lines that survive grey printing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # files only: a notebook that wants another backend draws from the dataset itself
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

from jaxbandit.core.status import FAILED

# Okabe and Ito's palette, without yellow, which is too light for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))
STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "figure.dpi": 100,
    "savefig.dpi": 160,
}

PANELS = (
    ("regret", "average regret $R(t)/t$"),
    ("positive_regret", "average positive regret $R^+(t)/t$"),
    ("hard_violation", "average violation $V(t)/t$"),
)


def average_curves(dataset: xr.Dataset, path: Path, *, title: str, panels: Sequence[tuple[str, str]] = PANELS) -> None:
    """Averages over time, ``measure(t) / t``, as mean lines with 95% confidence bands; writes a PNG to ``path``.

    Failed trials are left out. ``panels`` are pairs of a dataset variable and its axis label.
    """
    with matplotlib.rc_context(STYLE):
        figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.6), layout="constrained", squeeze=False)
        elapsed = np.arange(1, dataset.sizes["round"] + 1)
        for axis, (name, label) in zip(axes[0], panels, strict=True):
            for number, algorithm in enumerate(dataset.algorithm.values):
                _band(axis, elapsed, dataset.sel(algorithm=algorithm), name, str(algorithm), number)
            axis.set(xlabel="round $t$", ylabel=label, xlim=(1, len(elapsed)))
            if name != "regret":
                axis.set_ylim(bottom=0)
            else:
                axis.axhline(0, color="0.4", linewidth=0.8)
        axes[0][-1].legend(loc="upper right")
        figure.suptitle(title, fontsize=11)
        figure.savefig(path)
        plt.close(figure)


def _band(axis: Any, elapsed: np.ndarray, part: xr.Dataset, name: str, label: str, number: int) -> None:
    """One algorithm's mean line and confidence band."""
    ok = (part.status.values & int(FAILED)) == 0
    values = part[name].values[ok].astype(np.float64) / elapsed
    if not len(values) or not np.isfinite(values).any():
        axis.plot([], [], label=f"{label} (undefined)")
        return
    mean = values.mean(axis=0)
    half = 1.96 * values.std(axis=0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.zeros_like(mean)
    colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
    # Later lines are thinner, so that one that coincides with an earlier line leaves it visible on both sides.
    axis.plot(elapsed, mean, color=colour, linestyle=dash, linewidth=max(3.4 - 0.9 * number, 1.2), label=label)
    axis.fill_between(elapsed, mean - half, mean + half, color=colour, alpha=0.18, linewidth=0)
