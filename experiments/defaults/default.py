"""The engine chooses the default of ``jb.optimise``: rules, priors and schedules of fits on functions drawn from Gaussian processes.

Every trial draws a function and its constraints with one of four kernels, squared exponential or Matern of smoothness 5/2, 3/2 or 1/2, and
a length-scale of its own for each output and axis. Candidates are ranked within each trial by the best value that they evaluated
where all constraints hold, without its noise. Ranks of two candidates differ by less than their 95% interval, trial by trial, where the
engine cannot tell them apart.

Measured 2026-11-28 by ``python -m experiments default``; the table is on the page "Why this default".

All candidates begin with the same 2(d+1) points of a Sobol sequence, which count as evaluations, and know neither length-scales nor
scales nor noise: ``Refitted`` fits a Matern-5/2 kernel to each output. Differences of noise, from none to half of the functions' standard
deviation, are told nobody. ``--horizon`` cuts the budgets; ``--parameters`` and ``--points-per-axis`` have no effect.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from scipy.stats import rankdata

import jaxbandit as jb
from experiments.common.experiment import Experiment, Options, spelling
from experiments.defaults.kept import Kept, add_runs
from experiments.shootout.page import markdown_table
from jaxbandit import checks
from jaxbandit.delays import Delay, NoDelay
from jaxbandit.domains import Box
from jaxbandit.problems import Family, Gaussian, Noise
from jaxbandit.problems.boxes import Certificate
from jaxbandit.problems.drawn import BoxDraw, at, look_out
from jaxbandit.report.plots import COLOURS, figure_of
from jaxbandit.report.statistics import half_width
from jaxbandit.surrogates.pool import prior_draw

KERNELS = (jb.kernels.SquaredExponential, jb.kernels.Matern52, jb.kernels.Matern32, jb.kernels.Matern12)
SHORTEST, LONGEST = 0.15, 0.6  # length-scales of the draws, in diagonals of the unit cube, evenly distributed on a logarithmic scale
ALLOWED = 0.3  # share of the box in which all constraints hold, were they independent
NOISES = {"none": 0.0, "small": 0.1, "large": 0.5}  # standard deviation in units of the functions' own
DEFAULT = "augmented CEI, fit every 4"
CANDIDATES: dict[str, Callable[[], jb.Algorithm]] = {
    DEFAULT: lambda: jb.Refitted(algorithm=jb.Cei(augmented=True), at_start=True, every=4),
    "augmented CEI, fit every 1": lambda: jb.Refitted(algorithm=jb.Cei(augmented=True), at_start=True, every=1),
    "augmented CEI, fit every 10": lambda: jb.Refitted(algorithm=jb.Cei(augmented=True), at_start=True, every=10),
    "augmented CEI, long length-scales": lambda: jb.Refitted(
        algorithm=jb.Cei(augmented=True), at_start=True, every=4, prior=jb.surrogates.Prior()
    ),
    "CEI": lambda: jb.Refitted(algorithm=jb.Cei(), at_start=True, every=4),
    "SCBO": lambda: jb.Refitted(algorithm=jb.Scbo(), at_start=True, every=4),
    "Thompson": lambda: jb.Refitted(algorithm=jb.ConstrainedThompson(), at_start=True, every=4),
    "CONFIG": lambda: jb.Refitted(algorithm=jb.Config(), at_start=True, every=4),
    "random": jb.RandomSearch,
}


@jb.pytree
class RandomDraws(Family):
    """Functions on a box, each trial's with a kernel, length-scales and limits of constraints of its own; variance 1, mean 0.

    Attributes:
      looked_at: ``[L, d]`` points of the unit cube, the candidates first; constraints are shifted to hold in a share of them.
      constraint_count: ``m``, 0 included.
      domain, noise, delay, name: as of :class:`~jaxbandit.problems.Problem`.
    """

    on_boxes: ClassVar[bool] = True
    domain: Box
    looked_at: Any = dataclasses.field(repr=False)
    noise: Noise = Gaussian()
    delay: Delay = NoDelay()
    constraint_count: int = jb.static(default=0)
    name: str = jb.static(default="random draws")

    @property
    def constraints(self) -> int:
        """Number of constraints, ``m``."""
        return self.constraint_count

    def sample(self, key: jax.Array) -> BoxDraw:
        """Return the instance that belongs to ``key``; of its best point only the best of those looked at is known."""
        points = jnp.asarray(self.looked_at, float)
        form, scales, draws = jax.random.split(key, 3)
        number = jax.random.randint(form, (), 0, len(KERNELS))

        def drawn(scale: jax.Array, key: jax.Array) -> Any:
            each = [prior_draw(kernel(length_scale=scale), key, points.shape[1], points.dtype) for kernel in KERNELS]
            return jax.tree.map(lambda *parts: jnp.stack(parts)[number], *each)

        shape = (1 + self.constraints, points.shape[1])
        ends = jnp.log(jnp.asarray([SHORTEST, LONGEST]) * np.sqrt(points.shape[1]))
        lengths = jnp.exp(jax.random.uniform(scales, shape, points.dtype, ends[0], ends[1]))
        waves = jax.vmap(drawn)(lengths, jax.random.split(draws, shape[0]))
        table = at(waves, points)
        shifts = -jnp.quantile(table[1:], ALLOWED ** (1 / max(1, self.constraints)), axis=1)
        means = table.at[1:].add(shifts[:, None])
        value = jnp.where(jnp.all(means[1:] <= 0, axis=0), means[0], -jnp.inf)
        best = Certificate(value=jnp.max(value), point=self.domain.from_unit(points[jnp.argmax(value)]))
        return BoxDraw(
            domain=self.domain,
            waves=waves,
            shifts=shifts,
            accepted=jnp.asarray(True),
            means=means[:, : self.domain.size],
            best=best,
            noise=self.noise,
            delay=self.delay,
            name=self.name,
        )


@dataclasses.dataclass(frozen=True)
class Setting:
    """A box, a number of constraints and a budget of evaluations."""

    axes: Mapping[str, Any]
    constraints: int
    budget: int

    def family(self, noise: float) -> RandomDraws:
        """Return the family of functions of this setting, with noise of that standard deviation."""
        box = jb.domains.box(self.axes)
        return RandomDraws(domain=box, looked_at=look_out(box, []), noise=Gaussian.from_sd(noise), constraint_count=self.constraints)


def _unit(dimension: int) -> dict[str, Any]:
    return {f"x{number}": (0.0, 1.0) for number in range(1, 1 + dimension)}


SETTINGS = {
    "1 axis": Setting(_unit(1), 0, 20),
    "2 axes, 1 constraint": Setting(_unit(2), 1, 40),
    "4 axes, log and whole numbers among them, 2 constraints": Setting(
        _unit(2) | {"rate": jb.domains.log(1e-4, 1.0), "count": jb.domains.integers(1, 12)}, 2, 60
    ),
    "6 axes": Setting(_unit(6), 0, 60),
    "10 axes, 3 constraints": Setting(_unit(10), 3, 100),
    "20 axes": Setting(_unit(20), 0, 200),
}


def played(setting: Setting, noise: float, candidate: str, options: Options) -> dict[str, Any]:
    """Return the best feasible values ``[trials]`` of a candidate, null where there is none, and the CPU seconds of all trials."""
    family, begun = setting.family(noise), time.process_time()
    first = min(2 * (family.domain.dimension + 1), budget_of(setting, options) - 1)
    model = jb.surrogate(family.domain, jb.kernels.Matern52(length_scale=0.5), noise_variance=1e-4, outputs=family.outputs)
    with warnings.catch_warnings():
        # It is meant that learners are not told the noise.
        warnings.filterwarnings("ignore", message="noise_variance: the model's is")
        run = jb.simulate(
            family,
            CANDIDATES[candidate](),
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
    """Play all candidates in all settings, but those that the file of runs has; return the best feasible values."""
    extra, made = options.extra, []
    for what, known in NAMES.items():
        for name in extra[what]:
            checks.one_of(f"--{what}", name, known)
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
    """Return ranks ``[pair, candidate, trial]`` from 1, the best, of the values of each trial; equal ones share theirs, none is last."""
    return np.asarray(rankdata(-np.nan_to_num(dataset["best"].values, nan=-np.inf), axis=1))


def groups(dataset: Any) -> dict[str, np.ndarray]:
    """Return which pairs ``[pair]`` of settings and noises belong together, by words."""
    noise, settings = dataset["noise"].values, [SETTINGS[str(name)] for name in dataset["setting"].values]
    dimension, limits = np.array([len(each.axes) for each in settings]), np.array([each.constraints for each in settings])
    found = {f"noise {name}": noise == name for name in NOISES}
    found |= {"free": limits == 0, "constrained": limits > 0, "d < 5": dimension < 5, "d > 5": dimension > 5}
    return {words: which for words, which in found.items() if which.any()}


def rows(dataset: Any) -> list[dict[str, str]]:
    """Return a row for each candidate: its mean rank, how much that is above the default's, with the 95% interval, and those of groups."""
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
        f"mean ranks among {dataset.sizes['candidate']} candidates over {count} functions, 1 is best; +-: half of a 95% interval of the"
        " difference, function by function; CPU s a trial: compilation included",
        f"trials without a feasible point: {', '.join(lacking) or 'none'}",
    ]


def draw(dataset: Any) -> Any:
    """Draw the mean ranks of all candidates, over all functions and in groups."""
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
    lines = [markdown_table([list(rows[0]), *(list(row.values()) for row in rows)]), "", *(f"- {note}" for note in notes(dataset))]
    return {"default.md": lambda path: path.write_text("\n".join(lines) + "\n", encoding="utf-8")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose candidates, settings and noises, and say where runs are kept."""
    for what, known in NAMES.items():
        words = f"some of {'; '.join(known)} (default: all)"
        parser.add_argument(f"--{what}", type=spelling(known), nargs="+", default=known, metavar="NAME", help=words)
    add_runs(parser)


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
    add_arguments=add_arguments,
    files=files,
)
