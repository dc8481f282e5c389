"""Shared by the experiments of Xu et al. (2023, CONFIG).

It has the algorithms, and the two settings of the Gaussian-process draws.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np

import jaxbandit as jb
from experiments.common.experiment import Options, spelling, study
from jaxbandit import checks
from jaxbandit.engine.informed import SafestSeeds
from jaxbandit.kernels import Kernel, Scale, SquaredExponential
from jaxbandit.report import plots
from jaxbandit.rules.estimators import Bounds
from jaxbandit.study import Run, Study
from jaxbandit.surrogates import fit

# Noise variance of the model, and of noisy observations.
NOISE_VARIANCE = 0.05**2
# Variance of the kernel that the functions are drawn from.
VARIANCE = 2.0
RECOMMENDED_POINTS, CODE_POINTS = 201, 100
# The authors' scripts have no noise: the least regulariser, relative to the prior variance, that single precision resolves.
LEAST_NOISE = 1e-6
# Values of rho of EPBO, one too small and one large enough.
PENALTIES = (1.0, 20.0)
CODE_PENALTIES = (0.2, 1.0, 3.0)
# Number of points per function for the hyper-parameters.
SAMPLE = 30
# How far their search may go. A bowl is a parabola, whose likelihood only grows with length-scale and variance, until single precision
# cannot tell the variance from the noise.
SPAN = 100.0
NOT_THE_PAPERS = ("CEI (observed)", "RPOL", "Thompson", "Random")
# At reduced size compiling takes the time, of a program for each algorithm: a few will do.
FEWER = {"algorithms": ("CONFIG", "CEI", "SafeOpt", "Primal-dual", "RPOL")}

# All algorithms play unless the options name some.
ALL: dict[str, Any] = {"algorithms": ()}

T = TypeVar("T")


def is_code(options: Options) -> bool:
    """Say whether to run what the authors' scripts run."""
    return options.parameters == "code"


def algorithms(options: Options, *, seeds: Any = None, draws: bool = True) -> list[tuple[str, Any]]:
    """Return CONFIG, the paper's baselines and others, of width 3.

    Under ``code`` they include the scripts' SafeOpt and penalties. ``seeds`` are SafeOpt's; ``draws`` says whether the surrogate has the
    joint draws that Thompson sampling needs.
    """
    code = is_code(options)
    cautious: dict[str, Any] = {"estimator": Bounds(reward_width=2.0, cost_width=2.0), "threshold": 0.1} if code else {}
    return [
        ("CONFIG", jb.Config()),
        ("CEI", jb.Cei()),
        ("CEI (observed)", jb.Cei(incumbent="observed")),
        ("SafeOpt", jb.SafeOpt(seeds=seeds, **cautious)),
        ("Primal-dual", jb.PrimalDual()),
        *((f"EPBO-{rho:g}", jb.Epbo(penalty=rho)) for rho in (CODE_PENALTIES if code else PENALTIES)),
        ("RPOL", jb.Rpol()),
        *([("Thompson", jb.ConstrainedThompson())] if draws else []),
        ("Random", jb.RandomSearch()),
    ]


def chosen(options: Options, known: Iterable[tuple[str, T]]) -> list[tuple[str, T]]:
    """Return the algorithms that the options name, by default all."""
    found = dict(known)
    names = [spelling(found)(name) for name in options.extra.get("algorithms") or found]
    for name in names:
        checks.one_of("--algorithms", name, tuple(found))
    return [(name, algorithm) for name, algorithm in found.items() if name in names]


def add_algorithms(parser: argparse.ArgumentParser) -> None:
    """Add the option that chooses algorithms."""
    parser.add_argument("--algorithms", nargs="+", metavar="NAME", help="some of the algorithms of the table (default: all)")


def fitted_kernel(problem: Any, output: int, seed: int, length_scale: Any, draws: tuple[int, ...] = ()) -> Kernel:
    """Return a squared exponential by maximum likelihood.

    The search begins at a length-scale, on noisy values at random points. The points are the same for all problems; ``draws`` is the shape
    of other noise that is drawn beside that of the output.
    """
    random = np.random.default_rng(seed)
    chosen = random.choice(problem.domain.size, min(SAMPLE, problem.domain.size), replace=False)
    noise = np.sqrt(NOISE_VARIANCE) * random.standard_normal((*draws, len(chosen)))
    values = np.asarray(problem.means)[output, chosen] + (noise[output] if draws else noise)
    guess = Scale(kernel=SquaredExponential(length_scale=length_scale), variance=float(np.mean(values**2)))
    points = np.asarray(problem.domain.points)[chosen]
    return fit(guess, points, values, NOISE_VARIANCE, prior=None, fixed=("noise_variance",), span=SPAN).kernel


def panels(labels: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the lines of two panels, few enough to be readable."""
    return {
        "the paper's algorithms": {label: label for label in labels if label not in NOT_THE_PAPERS},
        "others beside CONFIG": {label: label for label in labels if label in ("CONFIG", *NOT_THE_PAPERS)},
    }


def drawn_from(options: Options) -> Kernel:
    """Return the kernel ``2 exp(-d^2)`` of the paper."""
    unit = SquaredExponential(length_scale=1.0) if is_code(options) else SquaredExponential.from_bandwidth(1.0)
    return Scale(kernel=unit, variance=VARIANCE)


def interval(options: Options) -> Any:
    """Return the domain ``[-5, 5]``, or the scripts' ``[-10, 10]``.

    The scripts have 100 points, unless another number than the default was asked for.
    """
    count = options.points_per_axis
    if is_code(options):
        return jb.domains.grid([-10.0], [10.0], CODE_POINTS if count == RECOMMENDED_POINTS else count)
    return jb.domains.grid([-5.0], [5.0], count)


def noise_of_model(options: Options) -> float:
    """Return the noise variance of the model, the regulariser ``lambda``."""
    return options.extra.get("noise", LEAST_NOISE) * VARIANCE if is_code(options) else NOISE_VARIANCE


def start(family: Any) -> jb.InitialDesign:
    """Return the scripts' first point, the one nearest to 0.

    It counts as a round. A family without this point has no design.
    """
    return jb.InitialDesign() if family.start is None else jb.InitialDesign(indices=np.asarray([family.start]), counted=True)


def prior_mean_at_start(instance: Any, algorithm: Any, surrogate: jb.Surrogate) -> tuple[Any, jb.Surrogate]:
    """Give the surrogate the scripts' prior means, from next to 0."""
    nearest = jnp.argmin(jnp.sum(jnp.square(instance.domain.points), axis=1))
    return algorithm, jb.replace(surrogate, prior_mean=instance.means[:, nearest])


def told(options: Options, algorithm: Any) -> jb.Informed | None:
    """Return what tells an algorithm facts of each instance, if anything does.

    Under ``code`` all but primal-dual and SafeOpt are told the prior means; otherwise SafeOpt is told a safe point.
    """
    if is_code(options):
        return None if isinstance(algorithm, jb.PrimalDual | jb.SafeOpt) else prior_mean_at_start
    return SafestSeeds() if isinstance(algorithm, jb.SafeOpt) else None


def on_draws(name: str, family: Callable[..., Any], options: Options, *, only: str | None = None) -> Study:
    """Return the study of some algorithms on functions of a GP."""
    code, kernel = is_code(options), drawn_from(options)
    problem = family("code" if code else "recommended", domain=interval(options), kernel=kernel)
    model = jb.surrogate(problem.domain, kernel, noise_variance=noise_of_model(options), horizon=options.horizon + 1)
    runs = (
        Run(label, problem, algorithm, model, informed=told(options, algorithm), initial=start(problem))
        for label, algorithm in chosen(options, algorithms(options, seeds=[problem.start] if code else None))
        if only in (None, label)
    )
    return study(name, runs, options, {"points": problem.domain.size})


def no_paper_set(dataset: Any, what: str) -> list[str]:
    """Return a note if the ``paper`` set is the recommended one."""
    return [f"--parameters paper runs the recommended set: {what}"] if '"paper"' in dataset.attrs["parameters"] else []


def best_so_far(ax: Any, dataset: Any, lines: Mapping[str, str], heading: str, among: Sequence[str]) -> None:
    """Draw the paper's constrained regret on one axis.

    It is logarithmic down to a thousandth and linear below. ``among`` has all of its lines.
    """
    words = "least suboptimality + violation"
    plots.cumulative(dataset, "best_constrained_regret", lines, heading=heading, ylabel=words, log="y", among=list(among), ax=ax)
    ax.set_yscale("symlog", linthresh=1e-3)
    # Leave room for the legend.
    ax.set_ylim(0, 20 * ax.get_ylim()[1])
    ax.legend(loc="upper right", ncols=2, fontsize=8)
