"""How often a session's check flags a mistake or a false alarm.

Every trial is a session of an objective and a constraint on two axes, drawn from a Gaussian process with a Matern-5/2 kernel. Their
length-scales are 0.2 to 0.5 of an axis, their noise has 0.05 to 0.2 of their deviation, and both have units and locations of their own.
A session that fits its model chooses its points. Where the model is stated, in standardised outputs, points are random. ``--horizon`` is
the number of points. Measured 2026-11-28 by ``python -m experiments checks --seed 1``; the page "Is the model right?" has the shares of
sessions that were flagged. Thresholds were chosen on sessions of other seeds. ``--parameters`` and ``--points-per-axis`` have no effect.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.stats import binomtest

from experiments.common.experiment import Experiment, Options
from jaxbandit import InitialDesign
from jaxbandit.kernels import Matern52, Scale
from jaxbandit.report.plots import COLOURS, figure_of
from jaxbandit.session import Axis, Model, Session

FEATURES = 500
NAMES = ("reward", "cost")


class Mistake(NamedTuple):
    """A mistake in all sessions of one kind.

    Attributes:
      length: the stated length-scales divided by the true ones; ``None`` where the model is fitted.
      noise: factor on the deviation of the noise, which the stated model does not have.
      exchanged: number of successive runs whose columns are exchanged.
      drift: change of the reward from the first to the last run, in its deviations.
      factor: factor on the cost of one run.
    """

    length: float | None = None
    noise: float = 1.0
    exchanged: int = 0
    drift: float = 0.0
    factor: float = 1.0


MISTAKES = {
    "none": Mistake(),
    "none, model stated": Mistake(length=1.0),
    "length-scale x 3, stated": Mistake(length=3.0),
    "length-scale / 3, stated": Mistake(length=1 / 3),
    "noise x 10, less stated": Mistake(length=1.0, noise=10.0),
    "noise variance x 10, less stated": Mistake(length=1.0, noise=10**0.5),
    "one value in another unit": Mistake(factor=10.0),
    "columns of one run exchanged": Mistake(exchanged=1),
    "columns of five runs exchanged": Mistake(exchanged=5),
    "drift of two deviations": Mistake(drift=2.0),
    "drift of one deviation": Mistake(drift=1.0),
}


def flagged(mistake: Mistake, horizon: int, seed: list[int]) -> bool:
    """Return whether the check of a session with a mistake flags anything."""
    rng = np.random.default_rng(seed)
    lengths, noises = (np.exp(rng.uniform(np.log(ends[0]), np.log(ends[1]), 2)) for ends in ((0.2, 0.5), (0.05, 0.2)))
    scale, location = 10 ** rng.uniform(-2, 3, 2), rng.uniform(-20, 20, 2)
    # Spectral densities of Matern-5/2 kernels are Student's with five degrees of freedom.
    waves = rng.standard_normal((2, FEATURES, 2)) / lengths[:, None, None] / np.sqrt(rng.chisquare(5, (2, FEATURES, 1)) / 5)
    phases, weights = rng.uniform(0, 2 * np.pi, (2, FEATURES)), rng.standard_normal((2, FEATURES)) * np.sqrt(2 / FEATURES)
    first = int(rng.integers(0, max(1, horizon - mistake.exchanged)))
    axes, model, initial = [Axis.between(name, 0, 1) for name in "ab"], None, None
    if mistake.length is not None:
        kernels = [Scale(kernel=Matern52(length_scale=length * mistake.length), variance=1.0) for length in lengths.tolist()]
        initial, model = InitialDesign(random=horizon), Model(kernel=kernels, noise_variance=(noises**2).tolist())
    bound = scale[1] * (location[1] + 0.5)
    key, limits = int(rng.integers(2**31)), [f"cost <= {bound:.12g}"]
    with Session.create(None, axes, model=model, key=key, constraints=limits, initial=initial) as session:
        for run in range(horizon):
            ticket = session.ask()
            values = np.sum(weights * np.cos(waves @ [ticket.point["a"], ticket.point["b"]] + phases), axis=1)
            values[0] += mistake.drift * run / max(1, horizon - 1)
            values = scale * (location + values + mistake.noise * noises * rng.standard_normal(2))
            if run == first:
                values[1] *= mistake.factor
            if first <= run < first + mistake.exchanged:
                values = values[::-1]
            session.tell(ticket, dict(zip(NAMES, values.tolist(), strict=True)))
        return bool(session.check().flags)


def play(options: Options, directory: Path) -> xr.Dataset:
    """Play and check sessions with every mistake."""
    names = list(options.extra["mistakes"])
    with warnings.catch_warnings():
        # Sessions warn of constraints that always held, which says nothing here.
        warnings.simplefilter("ignore")
        seeds = {name: (options.seed, list(MISTAKES).index(name)) for name in names}
        found = [[flagged(MISTAKES[name], options.horizon, [*seeds[name], trial]) for trial in range(options.trials)] for name in names]
    return xr.Dataset({"flagged": (("mistake", "trial"), np.asarray(found))}, coords={"mistake": names})


def shares(dataset: Any) -> np.ndarray:
    """Return the shares ``[mistake, 3]`` of flagged sessions, with 95% intervals."""
    tests = [binomtest(int(which.sum()), which.size) for which in dataset["flagged"].values]
    return np.asarray([[test.statistic, *test.proportion_ci(method="wilson")] for test in tests])


def rows(dataset: Any) -> list[dict[str, str]]:
    """Return a row for each mistake."""
    named = zip(dataset["mistake"].values, shares(dataset), strict=True)
    return [
        {"mistake": str(name), "flagged": f"{share:.0%}", "95% interval": f"{low:.0%} to {high:.0%}"} for name, (share, low, high) in named
    ]


def notes(dataset: Any) -> list[str]:
    """Return the meaning of the shares."""
    return ["share of sessions whose check flags anything; where there is no mistake that is a false alarm"]


def draw(dataset: Any) -> Any:
    """Draw the shares of all mistakes."""
    names, (share, low, high) = dataset["mistake"].values.tolist(), shares(dataset).T
    figure, [[axis]] = figure_of(1, 1, (7.5, 1.5 + 0.35 * len(names)), title=EXPERIMENT.title)
    axis.errorbar(share, range(len(names)), xerr=np.maximum([share - low, high - share], 0), fmt="o", color=COLOURS[0])
    axis.set(xlabel="share of sessions that are flagged", xlim=(-0.02, 1.02))
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    return figure


EXPERIMENT = Experiment(
    module=__name__,
    title="How often the check of a session flags mistakes",
    position=33,
    defaults=Options(trials=100, horizon=30, extra={"mistakes": tuple(MISTAKES)}),
    quick=Options(trials=3, horizon=12, extra={"mistakes": ("none", "length-scale x 3, stated", "columns of one run exchanged")}),
    build=None,
    play=play,
    rows=rows,
    notes=notes,
    draw=draw,
    choices={"mistakes": MISTAKES},
)
