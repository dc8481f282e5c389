"""The choice of the default of ``jb.optimise``.

Rules, priors and schedules of fits are compared on functions drawn from Gaussian processes.

Every trial draws a function and its constraints of its own, in each setting with another kernel, from the squared exponential to
Matern-1/2, in 1 to 20 axes, with 0 to 3 constraints. Candidates are ranked within each trial by the best value that they evaluated where
all constraints hold, without its noise. Where the mean ranks of two candidates differ by less than the 95% interval of their difference,
trial by trial, the engine cannot tell them apart.

Measured 2026-11-28 by ``python -m experiments default`` and the settings that the page "Why this default" names
beside its table.

All candidates begin with the same 2(d+1) points of a Sobol sequence, which count as evaluations, and know neither length-scales nor
scales nor noise: ``Refitted`` fits a Matern-5/2 kernel to each output. Differences of noise, from none to half of the functions' standard
deviation, are told nobody. ``--horizon`` cuts the budgets; ``--parameters`` and ``--points-per-axis`` have no effect.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
import xarray as xr
from scipy.stats import rankdata

import jaxbandit as jb
from experiments.common.experiment import Experiment, Options
from experiments.defaults.kept import Kept
from experiments.shootout.page import page_of
from jaxbandit.delays import Delay, NoDelay
from jaxbandit.domains import Box
from jaxbandit.problems import Family, Gaussian, Noise
from jaxbandit.report.plots import COLOURS, figure_of
from jaxbandit.report.statistics import half_width
from jaxbandit.surrogates import LogNormal, Prior

# Values count in steps of this share of a function's standard deviation.
ALIKE = 1e-3
# Standard deviations of noise. The functions' own is 1.
NOISES = {"none": 0.0, "small": 0.1, "large": 0.5}
DEFAULT = "augmented CEI, fit every 4"


def _learner(algorithm: jb.Algorithm, every: int = 4, **prior: LogNormal | None) -> jb.Algorithm:
    fitted = jb.Refitted(algorithm=algorithm, at_start=True, every=every)
    return jb.replace(fitted, prior=jb.replace(fitted.prior, **prior))


CANDIDATES: dict[str, jb.Algorithm] = {
    DEFAULT: _learner(jb.Cei(augmented=True)),
    "augmented CEI, fit every 1": _learner(jb.Cei(augmented=True), 1),
    "augmented CEI, fit every 10": _learner(jb.Cei(augmented=True), 10),
    "augmented CEI, long length-scales": _learner(jb.Cei(augmented=True), length_scale=Prior().length_scale),
    "augmented CEI, noise likelier": _learner(jb.Cei(augmented=True), noise_variance=LogNormal(median=1e-4, spread=4.0)),
    "CEI": _learner(jb.Cei()),
    "SCBO": _learner(jb.Scbo()),
    "Thompson": _learner(jb.ConstrainedThompson()),
    "CONFIG": _learner(jb.Config()),
    "random": jb.RandomSearch(),
}


@jb.pytree
class Free(Family):
    """The functions of a family of draws, without constraints.

    They are on a box.

    Attributes:
      base: the family.
      domain, noise, delay, name: as of :class:`~jaxbandit.problems.Problem`.
    """

    on_boxes: ClassVar[bool] = True
    base: Family
    domain: Box
    noise: Noise = Gaussian()
    delay: Delay = NoDelay()
    name: str = jb.static(default="draws without constraints")

    @property
    def constraints(self) -> int:
        """Number of constraints, none."""
        return 0

    def sample(self, key: jax.Array) -> Any:
        """Return the instance of ``key``, with the earlier best point."""
        drawn: Any = self.base.sample(key)
        waves = jax.tree.map(lambda part: part[:1], drawn.waves)
        return jb.replace(drawn, waves=waves, shifts=drawn.shifts[:0], means=drawn.means[:1])


@dataclasses.dataclass(frozen=True)
class Setting:
    """Functions drawn with a kernel on the unit cube, with constraints."""

    axes: Mapping[str, Any]
    kernel: jb.kernels.Kernel
    constraints: int
    budget: int

    def family(self, noise: float) -> Family:
        """Return the setting's family of functions, with noise of this standard deviation."""
        box, known = jb.domains.box(self.axes), Gaussian.from_sd(noise)
        drawn = jb.problems.gp_draws(domain=box, kernel=self.kernel, noise=known, constraints=max(1, self.constraints))
        return drawn if self.constraints else Free(base=drawn, domain=box, noise=known)


def _unit(dimension: int) -> dict[str, Any]:
    return {f"x{number}": (0.0, 1.0) for number in range(1, 1 + dimension)}


MIXED = _unit(2) | {"rate": jb.domains.log(1e-4, 1.0), "count": jb.domains.integers(1, 12)}
# Length-scales of 20 axes, five of which matter.
FEW = tuple(0.5 if axis % 4 == 0 else 4.0 for axis in range(20))
SETTINGS = {
    "1 axis": Setting(_unit(1), jb.kernels.SquaredExponential(length_scale=0.1), 0, 20),
    "2 axes, 1 constraint": Setting(_unit(2), jb.kernels.Matern52(length_scale=0.3), 1, 40),
    "3 axes, rough": Setting(_unit(3), jb.kernels.Matern12(length_scale=1.0), 0, 40),
    "4 axes, log and whole numbers among them, 2 constraints": Setting(MIXED, jb.kernels.Matern32(length_scale=0.5), 2, 60),
    "6 axes": Setting(_unit(6), jb.kernels.SquaredExponential(length_scale=(0.3, 0.3, 0.6, 0.6, 1.2, 1.2)), 0, 60),
    "10 axes, 3 constraints": Setting(_unit(10), jb.kernels.Matern52(length_scale=1.0), 3, 100),
    "20 axes, 5 of which matter": Setting(_unit(20), jb.kernels.Matern52(length_scale=FEW), 0, 200),
}


def played(setting: Setting, noise: float, candidate: str, options: Options) -> dict[str, Any]:
    """Return a candidate's best feasible values ``[trials]``, or null, and CPU seconds."""
    family, begun = setting.family(noise), time.process_time()
    first = min(2 * (family.domain.dimension + 1), budget_of(setting, options) - 1)
    model = jb.surrogate(family.domain, jb.kernels.Matern52(length_scale=0.5), noise_variance=1e-4, outputs=family.outputs)
    run = jb.simulate(
        family,
        CANDIDATES[candidate],
        model,
        horizon=budget_of(setting, options) - first,
        trials=options.trials,
        key=jax.random.key(options.seed),
        initial=jb.InitialDesign(random=first, counted=True),
        record="indices",
    )
    best = np.asarray(run.to_xarray()["best_feasible_value"].isel(algorithm=0, round=-1).values, np.float64)
    return {"best": [float(value) if np.isfinite(value) else None for value in best], "cpu": time.process_time() - begun}


def budget_of(setting: Setting, options: Options) -> int:
    """Return the evaluations of a trial."""
    return min(setting.budget, options.horizon)


def play(options: Options, directory: Path) -> xr.Dataset:
    """Play missing candidates in all settings, and return best feasible values."""
    extra, made = options.extra, []
    kept = Kept(extra["runs"])
    pairs = [(setting, noise) for setting in extra["settings"] for noise in extra["noises"]]
    for setting, noise in pairs:
        for candidate in extra["candidates"]:
            of = (setting, noise, candidate, budget_of(SETTINGS[setting], options), options.trials, options.seed)
            made.append(kept.outcome(of, partial(played, SETTINGS[setting], NOISES[noise], candidate, options)))
    best = np.reshape(np.array([run["best"] for run in made], np.float64), (len(pairs), len(extra["candidates"]), options.trials))
    return xr.Dataset(
        {
            "best": (("pair", "candidate", "trial"), best),
            "cpu": (("pair", "candidate"), np.reshape([run["cpu"] for run in made], best.shape[:2])),
        },
        coords={
            "setting": ("pair", [setting for setting, _ in pairs]),
            "noise": ("pair", [noise for _, noise in pairs]),
            "candidate": list(extra["candidates"]),
        },
    )


def ranks(dataset: Any) -> np.ndarray:
    """Return ranks ``[pair, candidate, trial]`` of each trial's values.

    Rank 1 is the best. Values are in steps of ``ALIKE``, and equal values share a rank. A trial without a feasible point is the last.
    """
    return np.asarray(rankdata(-np.round(np.nan_to_num(dataset["best"].values, nan=-np.inf) / ALIKE), axis=1))


def groups(dataset: Any) -> dict[str, np.ndarray]:
    """Return pairs ``[pair]`` of settings and noises, grouped by words."""
    noise, settings = dataset["noise"].values, [SETTINGS[str(name)] for name in dataset["setting"].values]
    dimension, limits = np.array([len(each.axes) for each in settings]), np.array([each.constraints for each in settings])
    found = {f"noise {name}": noise == name for name in NOISES}
    found |= {"free": limits == 0, "constrained": limits > 0, "d < 5": dimension < 5, "d > 5": dimension > 5}
    return {words: which for words, which in found.items() if which.any()}


def rows(dataset: Any) -> list[dict[str, str]]:
    """Return each candidate's mean ranks, with the difference from the default."""
    names, all_ranks = list(dataset["candidate"].values), ranks(dataset)
    reference, made = names.index(DEFAULT) if DEFAULT in names else 0, []
    for number, name in enumerate(names):
        above = (all_ranks[:, number] - all_ranks[:, reference]).reshape(-1)
        difference = "0" if number == reference else f"{above.mean():+.2f} +- {half_width(above):.2f}"
        row = {"candidate": str(name), "rank": f"{all_ranks[:, number].mean():.2f}", "minus default": difference}
        row |= {words: f"{all_ranks[which, number].mean():.2f}" for words, which in groups(dataset).items()}
        made.append(row | {"CPU s a trial": f"{dataset['cpu'].values[:, number].mean() / dataset.sizes['trial']:.2g}"})
    return made


def notes(dataset: Any) -> list[str]:
    """Return what the ranks are of."""
    count = dataset.sizes["trial"] * dataset.sizes["pair"]
    none = np.isnan(dataset["best"].values).sum(axis=(0, 2))
    lacking = [f"{name} {n}" for name, n in zip(dataset["candidate"].values, none, strict=True) if n]
    return [
        f"mean ranks among {dataset.sizes['candidate']} candidates over {count} functions, 1 is best, values in steps of {ALIKE:g} of the"
        " functions' standard deviation; +-: half of a 95% interval of the difference, function by function; CPU s a trial: compilation"
        " included",
        f"trials without a feasible point: {', '.join(lacking) or 'none'}",
    ]


def draw(dataset: Any) -> Any:
    """Draw the mean ranks of candidates, over all functions and groups."""
    names, all_ranks = [str(name) for name in dataset["candidate"].values], ranks(dataset)
    parts = {"all": np.ones(len(all_ranks), bool)} | groups(dataset)
    figure, axes = figure_of(1, 1, (7.5, 1.5 + 0.35 * len(names)), title=EXPERIMENT.title)
    axis = axes[0][0]
    for number, (words, which) in enumerate(parts.items()):
        means = all_ranks[which].mean(axis=(0, 2))
        axis.plot(means, range(len(names)), "osD^v<>P"[number % 8], color=COLOURS[number % len(COLOURS)], label=words, alpha=0.8)
    axis.set(xlabel="mean rank, 1 is best")
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def files(dataset: Any, rows: Sequence[dict[str, str]]) -> Mapping[str, Callable[[Path], object]]:
    """Return the function that writes the table as Markdown, with the notes."""
    return {"default.md": page_of(rows, notes(dataset))}


NAMES = {"candidates": tuple(CANDIDATES), "settings": tuple(SETTINGS), "noises": tuple(NOISES)}
EXPERIMENT = Experiment(
    module=__name__,
    title="Rules, priors and schedules of fits on drawn functions",
    position=95,
    defaults=Options(trials=24, horizon=200, extra=NAMES | {"runs": None}),
    quick=Options(
        trials=2,
        horizon=12,
        extra={"candidates": (DEFAULT, "random"), "settings": ("2 axes, 1 constraint",), "noises": ("none", "large"), "runs": None},
    ),
    build=None,
    play=play,
    rows=rows,
    notes=notes,
    draw=draw,
    choices=NAMES,
    files=files,
)
